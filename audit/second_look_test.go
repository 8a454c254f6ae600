package audit

import (
	"testing"

	"ipamaudit/checks"
)

// What one look cannot know may be worse in the second run in a row; the same
// run once more is no second look.
func TestWorseIfItStays(t *testing.T) {
	var state *State
	for i, step := range []struct {
		run  string
		want checks.Severity
		life FindingState
	}{
		{"night-1", checks.Medium, StateNew}, {"night-1", checks.Medium, StateNew},
		{"night-2", checks.Critical, StateChanged}, {"night-2", checks.Critical, StateChanged},
		{"night-3", checks.Critical, StateOngoing},
	} {
		r := reportOf(t, i+1, night{id: step.run, check: findings, found: "medium×1"})
		r.Clusters[0].Findings[0].IfItStays = checks.Critical
		state = Compare(state, r)
		if f := r.Clusters[0].Findings[0]; f.Severity != step.want || f.State != step.life {
			t.Errorf("%d, %s: %s %s, want %s %s", i, step.run, f.Severity, f.State, step.want, step.life)
		}
	}
}
