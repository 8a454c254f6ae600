package notify_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"ipamaudit/audit"
	"ipamaudit/checks"
	"ipamaudit/notify"
	fakejira "ipamaudit/notify/fake/jira"
	fakeslack "ipamaudit/notify/fake/slack"
	"ipamaudit/notify/fake/wire"
)

// night is a run whose findings get their life from the state, as in the program.
func (w *world) night(clusters ...audit.ClusterReport) (*audit.Report, error) {
	w.t.Helper()
	w.nextNight()
	st, err := w.store.Load(context.Background())
	must(w.t, err)
	r := &audit.Report{Schema: audit.Schema, Run: audit.RunInfo{ID: w.runID(), StartedAt: w.at, Version: "test"}, Clusters: clusters}
	next := audit.Compare(st, r)
	_, err = notify.Run(context.Background(), r, next, w.store, w.o, w.client, slog.New(slog.NewTextHandler(&w.logs, nil)))
	return r, err
}

// lastDigest is the text of the newest digest, which is the n-th.
func (w *world) lastDigest(n int) string { w.t.Helper(); return string(w.digests(n)[n-1].Blocks) }

func quiet(w *world) { w.o.Digest.Heartbeat = func(time.Time, time.Time) bool { return false } }

// Whatever kept a night's digest from a channel, the next one that arrives has
// what that night found, what was gone by it, and who could not be audited.
func TestNewsOfAFailedNight(t *testing.T) {
	for name, breaks := range map[string]func(w *world) (mend func()){
		"500s all night": func(w *world) func() {
			w.slack.Inject(wire.Fault{Kind: wire.ServerError})
			return w.slack.ClearFaults
		},
		"not in the channel": func(w *world) func() {
			w.slack.SetChannel(fakeslack.Channel{ID: channel, Name: "calico-ipam", NotMember: true})
			w.slack.SetScopes(fakeslack.ChatWrite)
			return func() {
				w.slack.SetChannel(fakeslack.Channel{ID: channel, Name: "calico-ipam"})
				w.slack.SetScopes(fakeslack.AllScopes()...)
			}
		},
		"killed before posting": func(w *world) func() {
			w.store.failAt = w.store.saves + 5 // after what is known was saved
			return func() { w.store.failAt = 0 }
		},
		"no token": func(w *world) func() {
			m := w.client.Messenger
			w.client.Messenger = nil
			return func() { w.client.Messenger = m }
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, fakejira.Config{}, fakeslack.Config{})
			quiet(w)
			// Night 1 is told.
			_, err := w.night(sick("prod-1", checks.High, "node-a", "node-b"), healthy("prod-2"), healthy("prod-3"))
			must(t, err)
			// Night 2 is not: one gone, one new, one worse, one cluster down.
			mend := breaks(w)
			worse := sick("prod-1", checks.High, "node-b", "node-c")
			worse.Findings[0].Severity = checks.Critical
			_, _ = w.night(worse, failed("prod-2"), sick("prod-3", checks.Medium, "node-z"))
			w.digests(1)
			mend()
			// Night 3: prod-2 is back, what was new in prod-3 is gone, the rest is as it was.
			worse = sick("prod-1", checks.High, "node-b", "node-c")
			worse.Findings[0].Severity = checks.Critical
			_, err = w.night(worse, healthy("prod-2"), healthy("prod-3"))
			must(t, err)
			text := w.lastDigest(2)
			for _, want := range []string{
				"1 new, 1 worse, 3 resolved", "(was high)", "node node-a", "node node-c", "came and went since the last digest",
				"<!here>", // what has got critical calls, a day late
			} {
				if !strings.Contains(strings.ReplaceAll(strings.ReplaceAll(text, `\u003c`, "<"), `\u003e`, ">"), want) {
					t.Errorf("the next digest lacks %q: %s", want, text)
				}
			}
			// Night 4: all was told.
			worse = sick("prod-1", checks.High, "node-b", "node-c")
			worse.Findings[0].Severity = checks.Critical
			_, err = w.night(worse, healthy("prod-2"), healthy("prod-3"))
			must(t, err)
			w.digests(2)
		})
	}
}

// A lost answer is looked for the next night before its news are told again.
func TestLostDigestIsLookedFor(t *testing.T) {
	w := newWorldThatWaits(t, fakejira.Config{}, fakeslack.Config{}, hangLimit(wire.CommitThenHang))
	quiet(w)
	w.slack.Inject(wire.Fault{Path: "api/chat.postMessage", Times: 1, Kind: wire.CommitThenServerError}, wire.Fault{Path: "api/conversations.history", After: 1, Kind: wire.ServerError})
	if _, err := w.night(sick("prod-1", checks.High, "node-a")); err == nil {
		t.Fatal("no error")
	}
	w.digests(1)
	w.slack.ClearFaults()
	_, err := w.night(sick("prod-1", checks.High, "node-a"))
	must(t, err)
	w.digests(1)
}

// What a suppression has hidden since it appeared is news when that ends.
func TestNewsOfASuppression(t *testing.T) {
	w := newWorld(t, fakejira.Config{}, fakeslack.Config{})
	quiet(w)
	hidden := sick("prod-1", checks.High, "node-a")
	hidden.Findings[0].Suppressed = &audit.Suppression{Reason: "known"}
	for range 3 {
		_, err := w.night(hidden)
		must(t, err)
	}
	w.digests(0)
	_, err := w.night(sick("prod-1", checks.High, "node-a"))
	must(t, err)
	if text := w.lastDigest(1); !strings.Contains(text, "1 new") {
		t.Error(text)
	}
	_, err = w.night(sick("prod-1", checks.High, "node-a"))
	must(t, err)
	w.digests(1)
}

// What is kept for a channel that nobody can reach is bounded, and says so.
func TestNewsAreBounded(t *testing.T) {
	w := newWorld(t, fakejira.Config{}, fakeslack.Config{})
	quiet(w)
	w.o.Tickets.Project = nil
	var nodes []string
	for n := range 800 {
		nodes = append(nodes, "node-"+strings.Repeat("x", n%7)+string(rune('a'+n%26))+time.Duration(n).String())
	}
	w.slack.Inject(wire.Fault{Kind: wire.ServerError})
	for range 3 {
		if _, err := w.night(sick("prod-1", checks.High, nodes...)); err == nil {
			t.Fatal("no error")
		}
	}
	st, err := w.store.Load(context.Background())
	must(t, err)
	if n := len(st.Channels[channel].Untold); n != 500 {
		t.Errorf("%d changes are kept", n)
	}
	w.slack.ClearFaults()
	_, err = w.night(sick("prod-1", checks.High, nodes...))
	must(t, err)
	if text := w.lastDigest(1); !strings.Contains(text, "500 new") || !strings.Contains(text, "than was kept") {
		t.Error(text)
	}
	_, err = w.night(sick("prod-1", checks.High, nodes...))
	must(t, err)
	w.digests(1)
	if st, err = w.store.Load(context.Background()); err != nil || len(st.Channels[channel].Untold) > 0 || !st.Channels[channel].LostAt.IsZero() {
		t.Errorf("what was told is kept: %+v, %v", st.Channels[channel], err)
	}
}
