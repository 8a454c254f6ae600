package notify_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"ipamaudit/audit"
	"ipamaudit/checks"
	"ipamaudit/notify"
	"ipamaudit/notify/fake/wire"

	fakejira "ipamaudit/notify/fake/jira"
	fakeslack "ipamaudit/notify/fake/slack"
)

// flavours runs a test against both products.
func flavours(t *testing.T, test func(*testing.T, *world)) {
	for _, cfg := range []fakejira.Config{{}, {BasePath: "/ex/jira/1"}, {Flavour: fakejira.DataCenter, Projects: []fakejira.Project{{Key: "OPS", Workflow: fakejira.ClassicWorkflow()}}}} {
		t.Run(string(cfg.Flavour)+cfg.BasePath, func(t *testing.T) { test(t, newWorld(t, cfg, fakeslack.Config{})) })
	}
}

func TestLifeOfATicket(t *testing.T) {
	flavours(t, func(t *testing.T, w *world) {
		w.o.Tickets.CloseAfter = 2

		out := w.run(healthy("prod-2"), sick("prod-1", checks.High, "node-a"))
		i := w.only()
		if i.Summary != "[prod-1] blackholed-routes: pod traffic is dropped on node node-a" {
			t.Errorf("summary %q", i.Summary)
		}
		if got := out.Tickets[0]; got.Key != i.Key || got.URL != "https://jira.example.com/browse/"+i.Key || got.Action != notify.Create {
			t.Errorf("outcome %+v", got)
		}
		d := string(w.digests(1)[0].Blocks)
		for _, want := range []string{"https://jira.example.com/browse/" + i.Key, "ssh node-a ip route get 10.64.75.0", "`prod-2`"} {
			if !strings.Contains(d, want) {
				t.Errorf("the digest lacks %q: %s", want, d)
			}
		}
		if n := len(w.slack.Thread(channel, w.digests(1)[0].TS)); n != 2 {
			t.Errorf("%d messages in the thread, want the digest and the details of prod-1", n)
		}

		// Night 2: the same. Nothing is written and nobody hears of it.
		w.nextNight()
		w.jira.ForgetRequests()
		w.run(healthy("prod-2"), as(sick("prod-1", checks.High, "node-a"), audit.StateOngoing))
		if n := w.writes(); n != 0 {
			t.Errorf("%d writes without a change", n)
		}
		w.digests(1)

		// Night 3: worse. One update, one comment.
		w.nextNight()
		worse := as(sick("prod-1", checks.Critical, "node-a", "node-b"), audit.StateChanged)
		w.run(healthy("prod-2"), worse)
		i = w.only()
		if !strings.Contains(i.Description, "node-b") || len(i.Comments) != 1 || !strings.Contains(i.Comments[0].Body, "Worse") {
			t.Errorf("after escalation: %q, comments %+v", i.Description, i.Comments)
		}
		if d := w.digests(2)[1]; !strings.Contains(string(d.Blocks), "\\u003c!here\\u003e") && !strings.Contains(string(d.Blocks), "<!here>") {
			t.Errorf("newly critical without a mention: %s", d.Blocks)
		}

		// Night 4: the cluster is down. The ticket stays as it is, access has its own.
		w.nextNight()
		w.run(healthy("prod-2"), failed("prod-1"))
		all := w.issues(2)
		if len(all[0].Comments) != 1 || !all[0].Open() || !strings.Contains(all[1].Summary, "cluster-access") {
			t.Errorf("a failed night touched %+v, or filed %q", all[0], all[1].Summary)
		}
		if d := string(w.digests(3)[2].Blocks); strings.Index(d, "Not audited") > strings.Index(d, "healthy cluster*") {
			t.Errorf("the failed cluster is not first: %s", d)
		}

		// Night 5: clean. Said once, closed after two complete clean runs.
		w.nextNight()
		w.run(healthy("prod-2"), healthy("prod-1"))
		for _, i := range w.issues(2) {
			if !i.Open() || !strings.Contains(i.Description, "not found any more by run "+w.runID()) ||
				!strings.Contains(i.Comments[len(i.Comments)-1].Body, "Not found any more") {
				t.Errorf("first clean night: %+v", i)
			}
		}
		w.nextNight()
		w.run(healthy("prod-2"), healthy("prod-1"))
		for _, i := range w.issues(2) {
			if i.Open() || i.Resolution != "Done" {
				t.Errorf("second clean night: open %v, resolution %q", i.Open(), i.Resolution)
			}
		}

		// It comes back within the window: the same ticket.
		w.nextNight()
		w.run(healthy("prod-2"), sick("prod-1", checks.High, "node-a"))
		i = w.issues(2)[0]
		if !i.Open() || !strings.Contains(i.Description, "state=open") || !strings.Contains(i.Description, "reopened=1") {
			t.Errorf("not reopened: %v %s", i.Open(), i.Description)
		}
		for _, c := range i.ChangesBy(fakejira.Bot) {
			if c.What == "assignee" || c.What == "priority" {
				t.Errorf("touched %s", c.What)
			}
		}
	})
}

func TestSameRunAgain(t *testing.T) {
	w := newWorld(t, fakejira.Config{}, fakeslack.Config{})
	w.run(sick("prod-1", checks.High, "node-a"))
	w.jira.ForgetRequests()
	w.slack.ForgetRequests()
	w.run(sick("prod-1", checks.High, "node-a"))
	w.only()
	w.digests(1)
	if n := w.writes() + w.slack.Count("POST", "api/chat.postMessage") + w.slack.Count("POST", "api/chat.update"); n != 0 {
		t.Errorf("%d writes by a repeated run", n)
	}

	// Repeated with other content: the same messages, edited.
	w.run(healthy("prod-1"))
	if m := w.digests(1)[0]; m.Edits != 1 {
		t.Errorf("the digest was edited %d times, want once", m.Edits)
	}
	thread := w.slack.Thread(channel, w.digests(1)[0].TS)
	if len(thread) != 2 || thread[1].Edits != 1 {
		t.Errorf("the details of the first attempt still stand: %+v", thread)
	}

	// The state is lost, the same run is repeated: a look-up, no second digest.
	for _, scopes := range [][]string{fakeslack.AllScopes(), {fakeslack.ChatWrite, fakeslack.ChannelsHistory}} {
		w.slack.SetScopes(scopes...)
		w.store.saved = nil
		w.run(sick("prod-1", checks.High, "node-a"))
		w.only()
		w.digests(1)
	}
}

func TestLostStateFindsTickets(t *testing.T) {
	flavours(t, func(t *testing.T, w *world) {
		w.run(sick("prod-1", checks.High, "node-a"))
		w.store.saved = nil
		w.nextNight()
		w.jira.ForgetRequests()
		w.run(as(sick("prod-1", checks.High, "node-a"), audit.StateOngoing))
		w.only()
		if n := w.writes(); n != 0 {
			t.Errorf("%d writes, the ticket itself says that nothing has changed", n)
		}
		// Escalation is known from the ticket as well.
		w.store.saved = nil
		w.nextNight()
		w.run(sick("prod-1", checks.Critical, "node-a"))
		if i := w.only(); len(i.Comments) != 1 {
			t.Errorf("comments %+v, want one", i.Comments)
		}
	})
}

func TestCrashes(t *testing.T) {
	// The process dies at every save in turn; the next night, with what was saved,
	// or with nothing, must end with one ticket and one comment per change.
	for _, lose := range []bool{false, true} {
		for at := 1; at <= 12; at++ {
			t.Run(fmt.Sprintf("save %d, state lost %v", at, lose), func(t *testing.T) {
				w := newWorld(t, fakejira.Config{}, fakeslack.Config{})
				w.store.failAt = at
				_, _ = w.try(sick("prod-1", checks.High, "node-a"))
				_, _ = w.try(sick("prod-1", checks.Critical, "node-a"))
				w.store.failAt = 0
				if lose {
					w.store.saved = nil
				}
				w.at = w.at.Add(20 * time.Minute) // beyond the lag of search
				w.run(sick("prod-1", checks.Critical, "node-a"))
				i := w.only()
				if !strings.Contains(i.Description, "severity=critical") {
					t.Errorf("description %s", i.Description)
				}
				if len(i.Comments) > 1 {
					t.Errorf("%d comments", len(i.Comments))
				}
				w.digests(1)
			})
		}
	}
}

func TestLostAnswerOfCreate(t *testing.T) {
	for _, kind := range []wire.Kind{wire.CommitThenServerError, wire.CommitThenHang, wire.CommitThenReset} {
		for _, lag := range []time.Duration{0, time.Hour} {
			t.Run(fmt.Sprintf("%s, search %s late", kind, lag), func(t *testing.T) {
				w := newWorldThatWaits(t, fakejira.Config{SearchLag: lag}, fakeslack.Config{}, hangLimit(kind))
				w.jira.Inject(wire.Fault{Method: "POST", Path: "rest/api/2/issue", Times: 1, Kind: kind})
				_, err := w.try(sick("prod-1", checks.High, "node-a"))
				if (err != nil) != (lag > 0) {
					t.Errorf("error %v", err)
				}
				w.only()
				if lag > 0 && !strings.Contains(string(w.digests(1)[0].Blocks), "may or may not have been done") {
					t.Errorf("the digest does not say so: %s", w.digests(1)[0].Blocks)
				}
				// At once again: search still shows nothing, so nothing is filed.
				w.run(sick("prod-1", checks.High, "node-a"))
				w.only()
				w.nextNight()
				out := w.run(as(sick("prod-1", checks.High, "node-a"), audit.StateOngoing))
				if i := w.only(); out.Tickets[0].Key != i.Key {
					t.Errorf("not adopted: %+v", out.Tickets)
				}
				if n := w.jira.PendingFaults(); n != 0 {
					t.Error("the fault never happened")
				}
			})
		}
	}
}

// hangLimit is short where a request hangs, and long where a busy machine may be slow.
func hangLimit(kind wire.Kind) time.Duration {
	if kind == wire.CommitThenHang {
		return time.Second
	}
	return 30 * time.Second
}

// TestStaleSearch: what people did a moment ago is not in the search yet.
func TestStaleSearch(t *testing.T) {
	for _, flavour := range []fakejira.Flavour{fakejira.Cloud, fakejira.DataCenter} {
		t.Run(string(flavour), func(t *testing.T) {
			staleSearch(t, newWorld(t, fakejira.Config{Flavour: flavour, SearchLag: time.Hour}, fakeslack.Config{}))
		})
	}
}

func staleSearch(t *testing.T, w *world) {
	w.run(sick("prod-1", checks.High, "node-a"))
	key := w.only().Key
	w.nextNight()
	must(t, w.jira.EditDescription(key, "Mine.\n"+w.only().Description))
	w.run(sick("prod-1", checks.High, "node-a", "node-b"))
	if d := w.only().Description; !strings.HasPrefix(d, "Mine.\n") || !strings.Contains(d, "node-b") {
		t.Errorf("description %s", d)
	}
	w.nextNight()
	must(t, w.jira.CloseAs(key, "Won't Fix"))
	before := len(w.only().ChangesBy(fakejira.Bot))
	w.run(sick("prod-1", checks.Critical, "node-a", "node-b"))
	if n := len(w.only().ChangesBy(fakejira.Bot)); n != before {
		t.Errorf("%d changes to a ticket that was closed as won't fix a moment ago", n-before)
	}
}

func TestSearchLag(t *testing.T) {
	w := newWorld(t, fakejira.Config{SearchLag: 36 * time.Hour}, fakeslack.Config{})
	for range 4 {
		w.run(sick("prod-1", checks.High, "node-a"))
		w.nextNight()
	}
	w.only()
}

func TestRateLimits(t *testing.T) {
	for _, after := range []string{"0", "", "date"} {
		w := newWorld(t, fakejira.Config{}, fakeslack.Config{})
		if after == "date" {
			after = wire.RetryDate(time.Now())
		}
		w.jira.Inject(wire.Fault{Method: "POST", Path: "rest/api/2/issue", Times: 1, Kind: wire.RateLimited, RetryAfter: after})
		w.slack.Inject(wire.Fault{Path: "api/chat.postMessage", Times: 1, Kind: wire.RateLimited, RetryAfter: "0"})
		w.run(sick("prod-1", checks.High, "node-a"))
		w.only()
		w.digests(1)
	}
}

// TestHiccups: one failure of a read, or of an edit, is not worth an error.
func TestHiccups(t *testing.T) {
	w := newWorld(t, fakejira.Config{}, fakeslack.Config{})
	w.run(sick("prod-1", checks.High, "node-a"))
	for _, f := range []wire.Fault{
		{Path: "rest/api/2/search/jql", Kind: wire.Unavailable}, {Path: "rest/api/2/mypermissions", Kind: wire.Reset},
		{Method: "PUT", Path: "rest/api/2/issue/*", Kind: wire.CommitThenServerError},
	} {
		f.Times = 1
		w.jira.Inject(f)
	}
	w.slack.Inject(wire.Fault{Path: "api/conversations.history", Times: 1, Kind: wire.Unavailable})
	w.nextNight()
	w.run(sick("prod-1", checks.Critical, "node-a"))
	if i := w.only(); len(i.Comments) != 1 || !strings.Contains(i.Description, "severity=critical") {
		t.Errorf("%+v", i)
	}
	w.digests(2)
	if n := w.jira.PendingFaults() + w.slack.PendingFaults(); n != 0 {
		t.Errorf("%d faults never happened", n)
	}
}

// TestLostAnswerOfComment: the comment is there, the answer is not.
func TestLostAnswerOfComment(t *testing.T) {
	w := newWorld(t, fakejira.Config{}, fakeslack.Config{})
	w.run(sick("prod-1", checks.High, "node-a"))
	w.nextNight()
	w.jira.Inject(wire.Fault{Method: "POST", Path: "rest/api/2/issue/*/comment", Times: 1, Kind: wire.CommitThenReset})
	if _, err := w.try(sick("prod-1", checks.Critical, "node-a")); err == nil {
		t.Error("no error")
	}
	w.nextNight()
	w.run(sick("prod-1", checks.Critical, "node-a"))
	if i := w.only(); len(i.Comments) != 1 || !strings.Contains(i.Description, "severity=critical") {
		t.Errorf("%d comments, description %s", len(i.Comments), i.Description)
	}
}

func TestExpiredToken(t *testing.T) {
	flavours(t, func(t *testing.T, w *world) {
		w.run(sick("prod-1", checks.High, "node-a"))
		w.nextNight()
		w.jira.ExpireToken()
		_, err := w.try(sick("prod-1", checks.High, "node-a", "node-b"), sick("prod-2", checks.High, "node-c"))
		if err == nil || !strings.Contains(err.Error(), "not authenticated") {
			t.Errorf("error %v", err)
		}
		w.only()
		d := string(w.digests(2)[1].Blocks)
		if !strings.Contains(d, "not authenticated") || !strings.Contains(d, "/browse/"+w.only().Key) {
			t.Errorf("the digest lacks the error or yesterday's link: %s", d)
		}
	})
}

func TestExpiredInTheMiddle(t *testing.T) {
	w := newWorld(t, fakejira.Config{}, fakeslack.Config{})
	w.jira.Inject(wire.Fault{Path: "rest/api/2/search/jql", Times: 1, Kind: fakejira.ExpiredToken})
	if _, err := w.try(sick("prod-1", checks.High, "node-a")); err == nil {
		t.Error("an anonymous search was believed")
	}
	w.issues(0)
}

func TestBrakes(t *testing.T) {
	t.Run("search is empty, tickets are known", func(t *testing.T) {
		w := newWorld(t, fakejira.Config{}, fakeslack.Config{})
		w.run(sick("prod-1", checks.High, "node-a"))
		w.nextNight()
		w.jira.Inject(wire.Fault{Path: "rest/api/2/search/jql", Kind: wire.Answer, Answer: `{"issues":[],"isLast":true}`})
		out := w.run(sick("prod-1", checks.High, "node-a"), sick("prod-2", checks.High, "node-a"))
		w.only()
		if !strings.Contains(strings.Join(out.Notices, "\n"), "no ticket was created") {
			t.Errorf("notices %q", out.Notices)
		}
	})
	t.Run("labels are dropped", func(t *testing.T) {
		w := newWorld(t, fakejira.Config{}, fakeslack.Config{})
		w.jira.Inject(wire.Fault{Method: "POST", Path: "rest/api/2/issue", Kind: fakejira.DropLabels})
		_, err := w.try(sick("prod-1", checks.High, "node-a"), sick("prod-2", checks.High, "node-a"), sick("prod-3", checks.High, "node-a"))
		if n := len(w.jira.Issues()); n != 1 || err == nil {
			t.Errorf("%d issues, error %v; want one and an error", n, err)
		}
	})
	t.Run("labels are off the screen", func(t *testing.T) {
		w := newWorld(t, fakejira.Config{Projects: []fakejira.Project{{Key: "OPS", OffScreen: []string{"labels"}}}}, fakeslack.Config{})
		if _, err := w.try(sick("prod-1", checks.High, "node-a")); err == nil || !strings.Contains(err.Error(), "lacks labels") {
			t.Errorf("error %v", err)
		}
		w.digests(1)
	})
	t.Run("required field", func(t *testing.T) {
		w := newWorld(t, fakejira.Config{Projects: []fakejira.Project{{Key: "OPS", Fields: []fakejira.Field{{ID: "customfield_10010", Name: "Team", Kind: fakejira.Text, Required: true}}}}}, fakeslack.Config{})
		if _, err := w.try(sick("prod-1", checks.High, "node-a")); err == nil || !strings.Contains(err.Error(), "Team (customfield_10010)") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("required field, given", func(t *testing.T) {
		w := newWorld(t, fakejira.Config{Projects: []fakejira.Project{{Key: "OPS", Components: []string{"net"}, Fields: []fakejira.Field{{ID: "customfield_10010", Name: "Team", Kind: fakejira.Text, Required: true}}}}}, fakeslack.Config{})
		w.o.Tickets.Fields, w.o.Tickets.Assignee, w.o.Tickets.Components = map[string]any{"customfield_10010": "SRE"}, "kim", []string{"net"}
		w.o.Tickets.Priorities = map[checks.Severity]string{checks.High: "High"}
		w.run(sick("prod-1", checks.High, "node-a"))
		if i := w.only(); string(i.Fields["customfield_10010"]) != `"SRE"` || string(i.Fields["assignee"]) != `{"accountId":"kim"}` || i.Priority != "High" || len(i.Components) != 1 {
			t.Errorf("%+v", i)
		}
	})
	t.Run("may not browse", func(t *testing.T) {
		w := newWorld(t, fakejira.Config{Projects: []fakejira.Project{{Key: "OPS", Denied: []string{fakejira.BrowseProjects}}}}, fakeslack.Config{})
		if _, err := w.try(sick("prod-1", checks.High, "node-a")); err == nil || !strings.Contains(err.Error(), "BROWSE_PROJECTS") {
			t.Errorf("error %v", err)
		}
		if n := w.jira.Count("POST", "rest/api/2/issue"); n != 0 {
			t.Error("created blindly")
		}
	})
	t.Run("too many new", func(t *testing.T) {
		w := newWorld(t, fakejira.Config{}, fakeslack.Config{})
		w.o.Tickets.MaxNew = 2
		var all []audit.ClusterReport
		for i := range 5 {
			all = append(all, sick(fmt.Sprintf("prod-%d", i), checks.High, "node-a"))
		}
		all[4] = sick("prod-4", checks.Critical, "node-a")
		w.run(all...)
		if got := w.issues(2); !strings.Contains(got[0].Summary, "prod-4") {
			t.Errorf("the worst is not first: %s", got[0].Summary)
		}
		if !strings.Contains(string(w.digests(1)[0].Blocks), "3 more problems have no ticket yet") {
			t.Errorf("digest: %s", w.digests(1)[0].Blocks)
		}
		w.nextNight()
		w.run(all...)
		w.issues(4)
	})
}

func TestPeople(t *testing.T) {
	flavours(t, func(t *testing.T, w *world) {
		w.run(sick("prod-1", checks.High, "node-a"))
		i := w.only()
		must(t, w.jira.EditDescription(i.Key, "Above: call Kim.\n\n"+i.Description+"\n\nBelow: see the *runbook*."))
		must(t, w.jira.EditSummary(i.Key, "Kim's summary"))
		must(t, w.jira.RemoveLabels(i.Key, notify.StaticLabel))
		must(t, w.jira.AddLabels(i.Key, "sre"))
		w.nextNight()
		w.run(sick("prod-1", checks.High, "node-a", "node-b"))
		got := w.only()
		if !strings.HasPrefix(got.Description, "Above: call Kim.") || !strings.HasSuffix(got.Description, "Below: see the *runbook*.") ||
			!strings.Contains(got.Description, "node-b") || strings.Count(got.Description, "ipamaudit:begin") != 1 {
			t.Errorf("description:\n%s", got.Description)
		}
		if got.Summary != "Kim's summary" || !slices.Contains(got.Labels, "sre") || !slices.Contains(got.Labels, notify.StaticLabel) {
			t.Errorf("summary %q, labels %q", got.Summary, got.Labels)
		}

		// All of the description is rewritten: from now on there are comments, one per change.
		must(t, w.jira.EditDescription(i.Key, "All mine."))
		for range 3 {
			w.nextNight()
			w.run(sick("prod-1", checks.High, "node-a", "node-b", "node-c"))
		}
		got = w.only()
		if got.Description != "All mine." || len(got.Comments) != 1 || !strings.Contains(got.Comments[0].Body, "node-c") {
			t.Errorf("description %q, comments %+v", got.Description, got.Comments)
		}
		w.store.saved = nil
		w.nextNight()
		w.run(sick("prod-1", checks.High, "node-a", "node-b", "node-c"))
		if got = w.only(); len(got.Comments) != 1 {
			t.Errorf("%d comments after the state was lost", len(got.Comments))
		}
		w.nextNight()
		w.run(healthy("prod-1"))
		w.nextNight()
		w.run(healthy("prod-1"))
		if got = w.only(); len(got.Comments) != 2 {
			t.Errorf("%d comments after two clean nights, want the second to be said once", len(got.Comments))
		}
	})
}

func TestClosedByPeople(t *testing.T) {
	for _, tc := range []struct {
		name       string
		resolution string
		label      string
		policy     notify.ReopenMode
		after      time.Duration
		tickets    int
		open       bool
	}{
		{"won't fix", "Won't Fix", "", notify.ReopenAlways, 0, 1, false},
		{"accepted", "", "ipam-accepted", notify.ReopenAlways, 0, 1, true},
		{"done, reopened", "Done", "", notify.ReopenWithin, 0, 1, true},
		{"done long ago, renewed", "Done", "", notify.ReopenWithin, 30 * 24 * time.Hour, 2, false},
		{"done long ago, always", "Done", "", notify.ReopenAlways, 30 * 24 * time.Hour, 1, true},
		{"never", "Done", "", notify.ReopenNever, 0, 2, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, lost := range []bool{false, true} {
				w := newWorld(t, fakejira.Config{}, fakeslack.Config{})
				w.o.Tickets.Reopen = tc.policy
				w.run(sick("prod-1", checks.High, "node-a"))
				key := w.only().Key
				if tc.label != "" {
					must(t, w.jira.AddLabels(key, tc.label))
				} else {
					must(t, w.jira.CloseAs(key, tc.resolution))
				}
				w.at = w.at.Add(tc.after)
				w.nextNight()
				if lost {
					w.store.saved = nil
				}
				w.run(sick("prod-1", checks.Critical, "node-a"))
				all := w.issues(tc.tickets)
				if all[0].Open() != tc.open {
					t.Errorf("the first ticket is open: %v", all[0].Open())
				}
				if tc.tickets == 2 && (!all[1].Open() || !strings.Contains(all[1].Description, "Follows "+key)) {
					t.Errorf("the new ticket: %+v", all[1])
				}
				w.nextNight()
				w.run(as(sick("prod-1", checks.Critical, "node-a"), audit.StateOngoing))
				w.issues(tc.tickets)
			}
		})
	}
}

func TestReopenedTooOften(t *testing.T) {
	w := newWorld(t, fakejira.Config{}, fakeslack.Config{})
	for range 6 {
		w.run(sick("prod-1", checks.High, "node-a"))
		must(t, w.jira.CloseAs(w.only().Key, "Done"))
		w.nextNight()
	}
	i := w.only()
	if i.Open() || len(i.Comments) != 4 {
		t.Errorf("open %v, %d comments; want closed after 3 reopenings and one last word", i.Open(), len(i.Comments))
	}
}

func TestMovedAndDeleted(t *testing.T) {
	cfg := fakejira.Config{Projects: []fakejira.Project{{Key: "OPS"}, {Key: "NET"}}}
	for _, lost := range []bool{false, true} {
		w := newWorld(t, cfg, fakeslack.Config{})
		w.run(sick("prod-1", checks.High, "node-a"))
		key, err := w.jira.MoveTo(w.only().Key, "NET")
		must(t, err)
		if lost {
			w.store.saved = nil
		}
		w.nextNight()
		out := w.run(sick("prod-1", checks.High, "node-a", "node-b"))
		if w.only(); out.Tickets[0].Key != key {
			t.Errorf("the moved ticket is %s, not %s", key, out.Tickets[0].Key)
		}
	}

	w := newWorld(t, cfg, fakeslack.Config{})
	w.run(sick("prod-1", checks.High, "node-a"))
	must(t, w.jira.Delete(w.only().Key))
	for night, want := range []int{0, 1, 1} { // one night of doubt
		w.nextNight()
		w.run(sick("prod-1", checks.High, "node-a"))
		if got := len(w.jira.Issues()); got != want {
			t.Errorf("night %d after the deletion: %d issues, want %d", night+1, got, want)
		}
	}
}

func TestDuplicates(t *testing.T) {
	w := newWorld(t, fakejira.Config{}, fakeslack.Config{})
	w.run(sick("prod-1", checks.High, "node-a"))
	first := w.only().Key
	second, err := w.jira.Clone(first)
	must(t, err)
	w.nextNight()
	out := w.run(sick("prod-1", checks.High, "node-a", "node-b"))
	if out.Tickets[0].Key != first || !strings.Contains(strings.Join(out.Notices, ""), second) {
		t.Errorf("tickets %+v, notices %q", out.Tickets, out.Notices)
	}
	if i, _ := w.jira.Issue(second); len(i.ChangesBy(fakejira.Bot)) != 0 {
		t.Error("the duplicate was touched")
	}
}

func TestQuietFindings(t *testing.T) {
	w := newWorld(t, fakejira.Config{}, fakeslack.Config{})
	w.o.Tickets.After = func(string) int { return 2 }
	c := sick("prod-1", checks.High, "node-a")
	w.run(c)
	w.issues(0)
	w.nextNight()
	c.Findings[0].Runs = 2
	w.run(c)
	w.only()
	for _, change := range []func(*audit.ClusterReport){
		func(c *audit.ClusterReport) { c.Findings[0].Severity = checks.Low },
		func(c *audit.ClusterReport) { c.Findings[0].Suppressed = &audit.Suppression{Reason: "known"} },
		func(c *audit.ClusterReport) { c.Findings[0].Runs = 1 },
		func(c *audit.ClusterReport) {
			c.Findings[0].State, c.Checks[0].Status = audit.StateUnknown, checks.StatusUnknown
		},
		func(c *audit.ClusterReport) { c.Checks[0].Status, c.Findings = checks.StatusSkipped, nil },
		func(c *audit.ClusterReport) { c.Status, c.Findings = audit.Failed, nil },
	} {
		w.nextNight()
		w.jira.ForgetRequests()
		c := sick("prod-1", checks.High, "node-a")
		change(&c)
		w.run(c)
		if n := w.writes(); n != 0 {
			t.Errorf("%d writes for %+v", n, c)
		}
	}
}

func TestClusterGetsItsID(t *testing.T) {
	w := newWorld(t, fakejira.Config{}, fakeslack.Config{})
	down := failed("prod-1")
	down.ID = "prod-1" // the name, for nothing else is known
	w.run(down)
	w.nextNight()
	w.run(failed("prod-1")) // by now with its own id
	w.only()
	w.nextNight()
	w.run(healthy("prod-1"))
	if i := w.only(); !strings.Contains(i.Description, "state=resolved") {
		t.Errorf("not resolved: %s", i.Description)
	}
}

func TestDryRun(t *testing.T) {
	w := newWorld(t, fakejira.Config{}, fakeslack.Config{})
	w.run(sick("prod-1", checks.High, "node-a"))
	w.nextNight()
	before := string(w.store.saved)
	w.jira.ForgetRequests()
	w.slack.ForgetRequests()
	w.o.DryRun = true
	saves := w.store.saves
	out := w.run(sick("prod-1", checks.Critical, "node-a"), failed("prod-2"), healthy("prod-3"))
	for _, want := range []string{"UPDATE OPS-1", "CREATE OPS: cluster-access in prod-2", "Worse", "Message to C0CALICO", "new in OPS", "Reply in its thread, cluster/prod-2"} {
		if !strings.Contains(out.Plan, want) {
			t.Errorf("the plan lacks %q:\n%s", want, out.Plan)
		}
	}
	if n := w.writes() + w.slack.Count("POST", "api/chat.postMessage") + w.slack.Count("POST", "api/chat.update"); n != 0 {
		t.Errorf("%d writes by a dry run", n)
	}
	if w.store.saves != saves || string(w.store.saved) != before {
		t.Error("a dry run saved the state")
	}

	// Without credentials: from the state, and it says so.
	w.client = notify.Clients{}
	out = w.run(sick("prod-1", checks.Critical, "node-a"))
	for _, want := range []string{"UPDATE OPS-1", "Jira was not asked", "Message to C0CALICO"} {
		if !strings.Contains(out.Plan, want) {
			t.Errorf("the plan lacks %q:\n%s", want, out.Plan)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
