package notify_test

import (
	"strings"
	"testing"

	"ipamaudit/audit"
	"ipamaudit/checks"
	fakejira "ipamaudit/notify/fake/jira"
	fakeslack "ipamaudit/notify/fake/slack"
)

// TestRouting: who is told what depends on severity, and moves with it.
func TestRoutingBySeverity(t *testing.T) {
	const incidents = "C0INCIDENTS"
	w := newWorld(t, fakejira.Config{Projects: []fakejira.Project{{Key: "OPS"}, {Key: "INC"}}},
		fakeslack.Config{Channels: []fakeslack.Channel{{ID: channel, Name: "calico-ipam"}, {ID: incidents, Name: "incidents"}}})
	w.o.Digest.Channel = func(_ *audit.ClusterReport, _ string, s checks.Severity) string {
		if s == checks.Critical {
			return incidents
		}
		return channel
	}
	w.o.Tickets.Project = func(_ *audit.ClusterReport, _ string, s checks.Severity) string {
		if s == checks.Critical {
			return "INC"
		}
		return "OPS"
	}
	last := func(ch string) string {
		t.Helper()
		var text string
		for _, m := range w.slack.Messages(ch) {
			if m.ThreadTS == "" {
				text = string(m.Blocks)
			}
		}
		return text
	}

	w.run(sick("prod-1", checks.High, "node-a"), sick("prod-2", checks.Critical, "node-b"))
	if all := w.issues(2); all[0].Project != "INC" || all[1].Project != "OPS" {
		t.Errorf("projects %s, %s", all[0].Project, all[1].Project)
	}
	if d := last(channel); !strings.Contains(d, "node-a") || strings.Contains(d, "node-b") || strings.Contains(d, "healthy cluster") {
		t.Errorf("the channel of the team: %s", d)
	}
	if d := last(incidents); !strings.Contains(d, "node-b") || strings.Contains(d, "node-a") {
		t.Errorf("the channel of incidents: %s", d)
	}

	// It gets worse: both channels hear of it, and the ticket stays the same one.
	w.nextNight()
	worse := as(sick("prod-1", checks.Critical, "node-a"), audit.StateChanged)
	worse.Findings[0].Previous = &audit.Previous{Severity: checks.High, Affected: 1}
	w.run(worse, failed("prod-2"))
	w.issues(3) // prod-2 cannot be read now
	for _, ch := range []string{channel, incidents} {
		if d := last(ch); !strings.Contains(d, "was high") || !strings.Contains(d, "Not audited") {
			t.Errorf("%s does not hear of the change or of the failed cluster: %s", ch, d)
		}
	}

	// The state is lost: the ticket is found in whatever project it is.
	w.store.saved = nil
	w.nextNight()
	w.run(as(sick("prod-1", checks.High, "node-a"), audit.StateChanged), failed("prod-2"))
	w.issues(3)
}
