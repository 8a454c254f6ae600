package notify_test

import (
	"slices"
	"strings"
	"testing"

	"ipamaudit/audit"
	"ipamaudit/checks"
	"ipamaudit/notify"
	fakejira "ipamaudit/notify/fake/jira"
	fakeslack "ipamaudit/notify/fake/slack"
	"ipamaudit/notify/fake/wire"
)

// TestBaseline: one ticket for a fleet with a history, and what becomes of it.
func TestBaseline(t *testing.T) {
	for _, lost := range []bool{false, true} {
		flavours(t, func(t *testing.T, w *world) {
			a, b, c := sick("prod-1", checks.High, "a"), sick("prod-2", checks.High, "b"), sick("prod-3", checks.Medium, "c")
			night := func(tickets int, clusters ...audit.ClusterReport) []fakejira.Issue {
				t.Helper()
				w.nextNight()
				if lost {
					w.store.saved = nil
				}
				w.run(clusters...)
				return w.issues(tickets)
			}
			w.o.Tickets.Adopt = true
			w.run(a, b, c)
			w.run(a, b, c) // once more, at once
			w.o.Tickets.Adopt = false
			base := w.only()
			if !strings.Contains(base.Description, "|medium|prod-3|blackholed\\-routes|") && !strings.Contains(base.Description, "|medium|prod-3|blackholed-routes|") {
				t.Errorf("the baseline: %s\n%s", base.Summary, base.Description)
			}
			must(t, w.jira.EditDescription(base.Key, "Kim: later.\n\n"+base.Description))
			night(1, a, b, c)

			// Worse than in the baseline: a ticket of its own.
			worse := sick("prod-1", checks.Critical, "a")
			if all := night(2, worse, b, c); !strings.Contains(all[1].Summary, "prod-1") {
				t.Errorf("the new ticket is %q", all[1].Summary)
			}
			// Gone: struck off, people's words stay. Not looked at: nothing happens.
			down := healthy("prod-2")
			down.Checks[0].Status, down.Status = checks.StatusUnknown, audit.Partial
			d := night(2, worse, down, healthy("prod-3"))[0].Description
			if !strings.HasPrefix(d, "Kim: later.") || strings.Count(d, "=gone") != 1 {
				t.Errorf("struck off: %s", d)
			}
			// Back: a ticket of its own, for it is no old story any more.
			if all := night(3, worse, b, c); !strings.Contains(all[2].Summary, "prod-3") {
				t.Errorf("the new ticket is %q", all[2].Summary)
			}
			// The baseline is closed: what is left is filed.
			must(t, w.jira.CloseAs(base.Key, "Done"))
			all := night(4, worse, b, c)
			if !strings.Contains(all[3].Summary, "prod-2") || all[0].Open() {
				t.Errorf("after the baseline was closed: %q, open %v", all[3].Summary, all[0].Open())
			}
		})
	}
}

func TestBaselineLostAnswer(t *testing.T) {
	w := newWorld(t, fakejira.Config{SearchLag: 5 * 60 * 1e9}, fakeslack.Config{})
	w.jira.Inject(wire.Fault{Method: "POST", Path: "rest/api/2/issue", Times: 1, Kind: wire.CommitThenServerError})
	w.o.Tickets.Adopt = true
	if _, err := w.try(sick("prod-1", checks.High, "a"), sick("prod-2", checks.High, "b")); err == nil {
		t.Error("no error")
	}
	// The night's own run comes before search knows of the baseline.
	w.o.Tickets.Adopt = false
	out := w.run(sick("prod-1", checks.High, "a"), sick("prod-2", checks.High, "b"))
	w.only()
	if !slices.ContainsFunc(out.Tickets, func(r notify.TicketResult) bool { return strings.Contains(r.Why, "baseline") }) {
		t.Errorf("nobody says why there is no ticket: %+v", out.Tickets)
	}
	w.nextNight()
	w.run(sick("prod-1", checks.High, "a"), sick("prod-2", checks.High, "b"))
	w.only()
}
