package notify

import (
	"testing"

	"ipamaudit/checks"
)

// TestDecide goes through every combination of what people know and what a run
// can see.
func TestDecide(t *testing.T) {
	told := map[string]Told{
		"nothing":           {},
		"high":              {Ever: true, Severity: checks.High, Hash: "h"},
		"high, but gone":    {Ever: true, Severity: checks.High, Hash: "h", Resolved: true},
		"something unknown": {Ever: true},
	}
	seen := map[string]Seen{
		"same":     {Present: true, Severity: checks.High, Hash: "h"},
		"other":    {Present: true, Severity: checks.High, Hash: "o"},
		"milder":   {Present: true, Severity: checks.Medium, Hash: "m"},
		"worse":    {Present: true, Severity: checks.Critical, Hash: "c"},
		"clean":    {},
		"unknown":  {Quiet: Unknown},
		"silenced": {Quiet: Suppressed},
		"young":    {Quiet: SecondLook},
		"mild":     {Quiet: BelowMinimum},
	}
	want := map[string]map[string]Reason{
		"nothing": {"same": New, "other": New, "milder": New, "worse": New, "clean": NoChange,
			"unknown": Unknown, "silenced": Suppressed, "young": SecondLook, "mild": BelowMinimum},
		"high": {"same": NoChange, "other": Changed, "milder": Changed, "worse": Escalated, "clean": Resolved,
			"unknown": Unknown, "silenced": Suppressed, "young": SecondLook, "mild": BelowMinimum},
		"high, but gone": {"same": Back, "other": Back, "milder": Back, "worse": Back, "clean": NoChange,
			"unknown": Unknown, "silenced": Suppressed, "young": SecondLook, "mild": BelowMinimum},
		"something unknown": {"same": Changed, "other": Changed, "milder": Changed, "worse": Changed, "clean": Resolved,
			"unknown": Unknown, "silenced": Suppressed, "young": SecondLook, "mild": BelowMinimum},
	}
	for a, old := range told {
		for b, now := range seen {
			if got := Decide(old, now); got != want[a][b] {
				t.Errorf("told %s, seen %s: %s, want %s", a, b, got, want[a][b])
			}
		}
	}
	for _, r := range []Reason{New, Changed, Escalated, Back, Resolved} {
		if !r.Speaks() {
			t.Errorf("%s is silent", r)
		}
	}
	for _, r := range []Reason{NoChange, Unknown, Suppressed, SecondLook, BelowMinimum} {
		if r.Speaks() {
			t.Errorf("%s speaks", r)
		}
	}
}
