package notify_test

import (
	"bytes"
	"fmt"
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
	"ipamaudit/notify/slack"
)

func TestSilenceAndHeartbeat(t *testing.T) {
	w := newWorld(t, fakejira.Config{}, fakeslack.Config{})
	ongoing := as(sick("prod-1", checks.High, "node-a"), audit.StateOngoing)
	w.run(ongoing) // the first run says hello
	for range 6 {
		w.nextNight()
		w.run(ongoing)
	}
	w.digests(1)
	w.nextNight()
	w.run(ongoing)
	if d := string(w.digests(2)[1].Blocks); !strings.Contains(d, "1 ongoing") || strings.Contains(d, "!here") {
		t.Errorf("sign of life: %s", d)
	}
	// What could not be looked at is never silent.
	partial := ongoing
	partial.Status = audit.Partial
	for n := range 2 {
		w.nextNight()
		w.run(partial)
		w.digests(3 + n)
	}
	w.o.Digest.Heartbeat = func(time.Time, time.Time) bool { return false }
	w.at = w.at.Add(60 * 24 * time.Hour)
	w.run(ongoing)
	w.digests(4)
	w.o.Digest.Always = true
	w.nextNight()
	w.run(ongoing)
	w.digests(5)
}

func TestEveryWeek(t *testing.T) {
	monday := notify.EveryWeek(time.Monday)
	at := func(day, hour int) time.Time { return time.Date(2026, 12, day, hour, 0, 0, 0, time.UTC) } // the 7th is a Monday
	for _, tc := range []struct {
		last, now time.Time
		want      bool
	}{
		{time.Time{}, at(2, 2), true}, {at(2, 2), at(3, 2), false}, {at(6, 2), at(7, 2), true}, {at(7, 2), at(7, 5), false},
		{at(7, 2), at(13, 23), false}, {at(6, 2), at(9, 2), true}, {at(7, 2), at(14, 2), true},
	} {
		if got := monday(tc.last, tc.now); got != tc.want {
			t.Errorf("last %s, now %s: %v", tc.last, tc.now, got)
		}
	}
}

func TestLostAnswerOfPost(t *testing.T) {
	for _, kind := range []wire.Kind{wire.CommitThenServerError, wire.CommitThenHang, wire.CommitThenReset} {
		for _, scopes := range [][]string{fakeslack.AllScopes(), {fakeslack.ChatWrite, fakeslack.ChannelsHistory}, {fakeslack.ChatWrite}} {
			t.Run(fmt.Sprint(kind, len(scopes)), func(t *testing.T) {
				w := newWorldThatWaits(t, fakejira.Config{}, fakeslack.Config{}, hangLimit(kind))
				w.slack.SetScopes(scopes...)
				w.slack.Inject(wire.Fault{Path: "api/chat.postMessage", Times: 1, Kind: kind})
				_, err := w.try(sick("prod-1", checks.High, "node-a"))
				blind := len(scopes) == 1
				if (err != nil) != blind {
					t.Errorf("error %v", err)
				}
				w.digests(1)
				// Again: still one, whatever this account may see.
				_, err = w.try(sick("prod-1", checks.High, "node-a"))
				if (err != nil) != blind {
					t.Errorf("error of the repeated run %v", err)
				}
				d := w.digests(1)[0]
				if n := len(w.slack.Thread(channel, d.TS)); !blind && n != 2 {
					t.Errorf("%d messages in the thread", n)
				}
			})
		}
	}
}

func TestPostThatNeverArrived(t *testing.T) {
	w := newWorld(t, fakejira.Config{}, fakeslack.Config{})
	w.slack.Inject(wire.Fault{Path: "api/chat.postMessage", Times: 1, Kind: wire.ServerError})
	if _, err := w.try(sick("prod-1", checks.High, "node-a")); err == nil {
		t.Error("no error")
	}
	w.digests(0)
	w.only() // Slack's failure is not Jira's
	w.at = w.at.Add(5 * time.Minute)
	w.run(sick("prod-1", checks.High, "node-a"))
	w.digests(1)
}

func TestEditsRefused(t *testing.T) {
	w := newWorld(t, fakejira.Config{}, fakeslack.Config{EditWindow: time.Minute})
	w.run(sick("prod-1", checks.High, "node-a"))
	w.at = w.at.Add(time.Hour)
	for range 2 {
		w.run(healthy("prod-1"), failed("prod-2"))
	}
	thread := w.slack.Thread(channel, w.digests(1)[0].TS)
	n := 0
	for _, m := range thread {
		if strings.Contains(string(m.Blocks), "Not audited") && m.ThreadTS != "" {
			n++
		}
	}
	if n != 2 { // the new digest, and the details of prod-2
		t.Errorf("%d replies with the news, want the digest and one cluster's details: %+v", n, thread)
	}
}

func TestDeletedDigest(t *testing.T) {
	w := newWorld(t, fakejira.Config{}, fakeslack.Config{})
	w.run(sick("prod-1", checks.High, "node-a"))
	must(t, w.slack.Delete(channel, w.digests(1)[0].TS))
	w.run(sick("prod-1", checks.High, "node-a"))
	w.digests(0) // the same content does not come back
	w.run(healthy("prod-1"), failed("prod-2"))
	w.digests(1)
}

func TestChannelByName(t *testing.T) {
	w := newWorld(t, fakejira.Config{}, fakeslack.Config{})
	w.o.Digest.Channel = func(*audit.ClusterReport, string, checks.Severity) string { return "#calico-ipam" }
	w.run(sick("prod-1", checks.High, "node-a"))
	w.run(sick("prod-1", checks.Critical, "node-a"))
	if m := w.digests(1)[0]; m.Edits != 1 {
		t.Errorf("%d edits", m.Edits)
	}
}

func TestSlackSaysNo(t *testing.T) {
	for _, code := range []string{"invalid_auth", "channel_not_found", "invalid_blocks", "is_archived"} {
		w := newWorld(t, fakejira.Config{}, fakeslack.Config{})
		method := "chat.postMessage"
		if code == "invalid_auth" {
			method = "auth.test"
		}
		w.slack.Inject(fakeslack.Refusal(method, code, 0))
		_, err := w.try(sick("prod-1", checks.High, "node-a"))
		if err == nil || !strings.Contains(err.Error(), code) {
			t.Errorf("%s: %v", code, err)
		}
		w.only()
		if strings.Contains(string(w.store.saved), `"intent"`) {
			t.Errorf("%s: an intent is left: %s", code, w.store.saved)
		}
	}
}

func TestRouting(t *testing.T) {
	w := newWorld(t, fakejira.Config{Projects: []fakejira.Project{{Key: "OPS"}, {Key: "NET"}}},
		fakeslack.Config{Channels: []fakeslack.Channel{{ID: channel, Name: "a"}, {ID: "C0OTHER", Name: "b"}}})
	w.o.Tickets.Project = func(c *audit.ClusterReport, _ string, _ checks.Severity) string {
		return map[string]string{"prod-1": "OPS", "prod-2": "NET"}[c.Name]
	}
	w.o.Digest.Channel = func(c *audit.ClusterReport, _ string, _ checks.Severity) string {
		return map[string]string{"prod-1": channel, "prod-2": "C0OTHER"}[c.Name]
	}
	w.run(sick("prod-1", checks.High, "a"), sick("prod-2", checks.High, "b"), sick("nowhere", checks.High, "c"))
	got := w.issues(2)
	if got[0].Project != "OPS" || got[1].Project != "NET" {
		t.Errorf("projects %s, %s", got[0].Project, got[1].Project)
	}
	for ch, wants := range map[string][2]string{channel: {"prod-1", "prod-2"}, "C0OTHER": {"prod-2", "prod-1"}} {
		m := w.slack.Messages(ch)
		if len(m) == 0 || !strings.Contains(string(m[0].Blocks), wants[0]) || strings.Contains(string(m[0].Blocks), wants[1]) {
			t.Errorf("channel %s: %+v", ch, m)
		}
	}
	// One project is closed to us: the other's tickets are kept all the same.
	must(t, w.jira.Deny("OPS", fakejira.CreateIssues))
	w.nextNight()
	_, err := w.try(sick("prod-1", checks.Critical, "a"), sick("prod-2", checks.Critical, "b"))
	if i, _ := w.jira.Issue(got[1].Key); err == nil || !strings.Contains(i.Description, "severity=critical") {
		t.Errorf("error %v, description %s", err, i.Description)
	}
}

func TestWebhook(t *testing.T) {
	w := newWorld(t, fakejira.Config{}, fakeslack.Config{})
	hook := w.slack.WebhookURL()
	var logs bytes.Buffer
	transport := notify.NewTransport(notify.TransportOptions{Rate: 1e6, Secrets: slack.WebhookSecrets(hook),
		Log: slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	m, err := slack.NewWebhook(hook, transport)
	must(t, err)
	w.client.Messenger = m
	for range 2 { // the second has news, and no way to tell
		w.run(sick("prod-1", checks.High, "node-a"))
	}
	w.run(sick("prod-1", checks.Critical, "node-a"))
	if d := w.digests(1)[0]; d.Edits != 0 || !strings.Contains(string(d.Blocks), "node-a") {
		t.Errorf("%+v", d)
	}
	w.nextNight()
	w.slack.Inject(wire.Fault{Path: "services/...", Times: 1, Kind: wire.CommitThenReset})
	for range 2 {
		_, err = w.try(failed("prod-1"))
		if err == nil || strings.Contains(err.Error(), "fakesecret") {
			t.Errorf("error %v", err)
		}
	}
	w.digests(2)
	w.nextNight()
	w.slack.Inject(wire.Fault{Path: "services/...", Times: 1, Kind: wire.Answer, Status: 400, Answer: "invalid_blocks"})
	if _, err = w.try(failed("prod-1")); err == nil || !strings.Contains(err.Error(), "invalid_blocks") {
		t.Errorf("error %v", err)
	}
	if strings.Contains(logs.String(), "fakesecret") {
		t.Errorf("the webhook's secret is in the log: %s", logs.String())
	}
}
