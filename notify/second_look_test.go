package notify

import (
	"testing"

	"ipamaudit/audit"
	"ipamaudit/checks"
)

// What one look cannot prove waits for the second, whatever its neighbours do
// and whatever the check's own setting is.
func TestSecondLookPerFinding(t *testing.T) {
	proven := audit.Finding{Fingerprint: "a", Runs: 1, State: audit.StateNew, Finding: checks.Finding{Check: "affinity-conflicts", Severity: checks.Critical}}
	doubtful := proven
	doubtful.Fingerprint, doubtful.Severity, doubtful.SecondLook = "b", checks.Medium, true
	again := doubtful
	again.Runs = 2
	for name, tc := range map[string]struct {
		found []audit.Finding
		rows  int
	}{
		"proven": {[]audit.Finding{proven}, 1}, "doubtful": {[]audit.Finding{doubtful}, 0}, "again": {[]audit.Finding{again}, 1},
		"one of two": {[]audit.Finding{proven, doubtful}, 1}, "both by now": {[]audit.Finding{proven, again}, 2},
	} {
		c := &audit.ClusterReport{Name: "one", ID: "id", Status: audit.Complete, Findings: tc.found, Checks: []audit.CheckReport{{ID: "affinity-conflicts", Status: checks.StatusFindings}}}
		p := problem(c, "affinity-conflicts", audit.NewState(), TicketPolicy{
			MinSeverity: checks.Medium, After: func(string) int { return 1 },
			Project: func(*audit.ClusterReport, string, checks.Severity) string { return "NET" },
		})
		if len(p.Findings) != tc.rows || p.Seen.Present != (tc.rows > 0) {
			t.Errorf("%s: %d rows, present %v", name, len(p.Findings), p.Seen.Present)
		}
		if tc.rows == 0 && p.Seen.Quiet != SecondLook {
			t.Errorf("%s: quiet because of %q", name, p.Seen.Quiet)
		}
	}
}
