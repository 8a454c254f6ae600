package notify_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"ipamaudit/audit"
	"ipamaudit/checks"
	"ipamaudit/notify"
	"ipamaudit/notify/fake/fence"
	fakejira "ipamaudit/notify/fake/jira"
	fakeslack "ipamaudit/notify/fake/slack"
	"ipamaudit/notify/jira"
	"ipamaudit/notify/slack"
)

const (
	mail       = "ipam-bot@example.com"
	jiraToken  = "jira-token-that-nobody-must-see"
	slackToken = "xoxb-token-that-nobody-must-see"
	channel    = "C0CALICO"
)

// world is a Jira, a Slack, a clock, and what the program remembers.
type world struct {
	t      *testing.T
	jira   *fakejira.Server
	slack  *fakeslack.Server
	store  *memory
	at     time.Time
	o      notify.Options
	logs   bytes.Buffer
	client notify.Clients
}

func newWorld(t *testing.T, jc fakejira.Config, sc fakeslack.Config) *world {
	t.Helper()
	return newWorldThatWaits(t, jc, sc, 30*time.Second)
}

// newWorldThatWaits has a time limit for each request, for tests in which some hang.
func newWorldThatWaits(t *testing.T, jc fakejira.Config, sc fakeslack.Config, timeout time.Duration) *world {
	t.Helper()
	w := &world{t: t, at: time.Date(2026, 12, 1, 2, 0, 0, 0, time.UTC), store: &memory{}}
	jc.Now, sc.Now = w.now, w.now
	jc.User, jc.Token, sc.Token = mail, jiraToken, slackToken
	var err error
	if w.jira, err = fakejira.Start(jc); err != nil {
		t.Fatal(err)
	}
	if w.slack, err = fakeslack.Start(sc); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.jira.Close(); w.slack.Close(); w.noSecrets(w.logs.String()) })

	log := slog.New(slog.NewTextHandler(&w.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	transport := func(base http.RoundTripper) http.RoundTripper {
		return notify.NewTransport(notify.TransportOptions{
			Version: "test", Rate: 1e6, Burst: 1000, Timeout: timeout, Backoff: time.Millisecond, Attempts: 2,
			Secrets: []string{jiraToken, slackToken}, Log: log, Base: base,
		})
	}
	jo := jira.Options{Flavour: jira.Cloud, BaseURL: w.jira.URL(), BrowseURL: "https://jira.example.com/", User: mail, Token: jiraToken}
	jbase := fence.Jira(t).Transport(nil)
	if jc.Flavour == fakejira.DataCenter {
		jo.Flavour, jo.User, jbase = jira.DataCenter, "", http.DefaultTransport
	}
	jo.Transport = transport(jbase)
	if w.client.Tracker, err = jira.New(jo); err != nil {
		t.Fatal(err)
	}
	w.client.Messenger, err = slack.New(slack.Options{Token: slackToken, APIURL: w.slack.APIURL(),
		Transport: transport(fence.Slack(t).Transport(nil)), Pace: time.Microsecond})
	if err != nil {
		t.Fatal(err)
	}
	w.o = notify.Options{
		Tickets:  notify.TicketPolicy{Project: func(*audit.ClusterReport, string, checks.Severity) string { return "OPS" }},
		Digest:   notify.DigestPolicy{Channel: func(*audit.ClusterReport, string, checks.Severity) string { return channel }, Mentions: map[checks.Severity]string{checks.Critical: "<!here>"}},
		Patience: 50 * time.Millisecond, Now: w.now,
	}
	return w
}

func (w *world) now() time.Time { return w.at }

// nextNight moves the clock to the next run.
func (w *world) nextNight() { w.at = w.at.Add(24 * time.Hour) }

func (w *world) runID() string { return w.at.Format(time.DateOnly) }

// try runs the notifier over clusters, as the program does: load, tell, saved.
func (w *world) try(clusters ...audit.ClusterReport) (notify.Outcome, error) {
	w.t.Helper()
	st, err := w.store.Load(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	r := &audit.Report{Schema: audit.Schema, Run: audit.RunInfo{ID: w.runID(), StartedAt: w.at, Version: "test"}, Clusters: clusters}
	for _, c := range clusters { // what the lifecycle does
		if st.Clusters[c.Name] == nil {
			st.Clusters[c.Name] = &audit.ClusterState{ID: c.ID, CleanRuns: map[string]int{}}
		}
		for _, ch := range c.Checks {
			if ch.Status == checks.StatusOK && c.Status == audit.Complete {
				st.Clusters[c.Name].CleanRuns[ch.ID]++
			} else {
				st.Clusters[c.Name].CleanRuns[ch.ID] = 0
			}
		}
	}
	log := slog.New(slog.NewTextHandler(&w.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	out, err := notify.Run(context.Background(), r, st, w.store, w.o, w.client, log)
	if err != nil {
		w.noSecrets(err.Error())
	}
	return out, err
}

func (w *world) run(clusters ...audit.ClusterReport) notify.Outcome {
	w.t.Helper()
	out, err := w.try(clusters...)
	if err != nil {
		w.t.Fatalf("run %s: %v", w.runID(), err)
	}
	return out
}

func (w *world) noSecrets(text string) {
	w.t.Helper()
	for _, secret := range []string{jiraToken, slackToken} {
		if strings.Contains(text, secret) {
			w.t.Errorf("a secret shows: %s", text)
		}
	}
}

// issues are all issues of the tool.
func (w *world) issues(want int) []fakejira.Issue {
	w.t.Helper()
	got := w.jira.Find(notify.StaticLabel)
	if len(got) != want {
		w.t.Fatalf("%d issues, want %d", len(got), want)
	}
	return got
}

func (w *world) only() fakejira.Issue { w.t.Helper(); return w.issues(1)[0] }

// digests are the messages that are no replies.
func (w *world) digests(want int) []fakeslack.Message {
	w.t.Helper()
	var out []fakeslack.Message
	for _, m := range w.slack.Messages(channel) {
		if m.ThreadTS == "" {
			out = append(out, m)
		}
	}
	if len(out) != want {
		w.t.Fatalf("%d digests, want %d", len(out), want)
	}
	return out
}

// writes counts what changed Jira.
func (w *world) writes() int {
	return w.jira.Count("POST", "rest/api/2/issue") + w.jira.Count("PUT", "rest/api/2/issue/*") +
		w.jira.Count("POST", "rest/api/2/issue/*/comment") + w.jira.Count("POST", "rest/api/2/issue/*/transitions")
}

// memory is a Store that can break.
type memory struct {
	saved []byte
	saves int
	// failAt makes that save and all after it fail: the process died there.
	failAt int
}

func (m *memory) Load(context.Context) (*audit.State, error) {
	st := audit.NewState()
	if m.saved == nil {
		return st, nil
	}
	return st, json.Unmarshal(m.saved, st)
}

func (m *memory) Save(_ context.Context, st *audit.State) error {
	m.saves++
	if m.failAt > 0 && m.saves >= m.failAt {
		return errors.New("disk full")
	}
	b, err := json.MarshalIndent(st, "", " ")
	m.saved = b
	return err
}

func (m *memory) Lock(context.Context) (func(), error) { return func() {}, nil }
func (m *memory) String() string                       { return "memory" }

// healthy is a cluster whose checks found nothing.
func healthy(name string) audit.ClusterReport {
	return audit.ClusterReport{
		Name: name, ID: "uid-" + name, Status: audit.Complete, Nodes: 3,
		Calico: audit.CalicoReport{Version: "v3.29.1", IPAM: "calico-ipam"},
		Checks: []audit.CheckReport{
			{ID: "blackholed-routes", Status: checks.StatusOK}, {ID: "blockless-nodes", Status: checks.StatusOK},
			{ID: "cluster-access", Status: checks.StatusOK},
		},
	}
}

// sick is a cluster in which some nodes drop traffic.
func sick(name string, severity checks.Severity, nodes ...string) audit.ClusterReport {
	c := healthy(name)
	c.Checks[0].Status = checks.StatusFindings
	for _, n := range nodes {
		c.Findings = append(c.Findings, finding(c.ID, "blackholed-routes", severity, n))
	}
	return c
}

func finding(cluster, check string, severity checks.Severity, node string) audit.Finding {
	s := checks.Subject{Kind: checks.KindNode, Name: node}
	return audit.Finding{
		Fingerprint: checks.Fingerprint(check, cluster, s), State: audit.StateNew, Runs: 1,
		FirstSeen: time.Date(2026, 12, 1, 2, 0, 0, 0, time.UTC),
		Finding: checks.Finding{
			Check: check, Severity: severity, Evidence: checks.Observed, Subject: s,
			Title:    "pod traffic is dropped on node " + node,
			Detail:   "the longest match of 10.64.75.0 is blackhole 10.64.75.0/26",
			Affected: []checks.Affected{{Kind: checks.KindIP, Name: "10.64.75.0", Note: "lab/web-0 on " + node}},
			Remediation: []checks.Step{
				{Title: "Look at the route", Risk: checks.Safe, Commands: []string{"ssh " + node + " ip route get 10.64.75.0"}, Verify: "the answer names an interface"},
				{Title: "Recreate the pod", Risk: checks.Disruptive, Commands: []string{"kubectl -n lab delete pod web-0"}, Verify: "kubectl -n lab get pod web-0 -o wide"},
			},
		},
	}
}

// failed is a cluster that could not be audited.
func failed(name string) audit.ClusterReport {
	c := audit.ClusterReport{Name: name, ID: "uid-" + name, Status: audit.Failed, Error: "dial tcp 10.0.0.1:6443: i/o timeout",
		Checks: []audit.CheckReport{{ID: "cluster-access", Status: checks.StatusFindings}, {ID: "blackholed-routes", Status: checks.StatusUnknown, Reason: "cluster failed"}}}
	f := finding(c.ID, "cluster-access", checks.High, "")
	f.Subject = checks.Subject{Kind: checks.KindCluster, Name: name}
	f.Title, f.Affected = "the cluster could not be audited", nil
	c.Findings = []audit.Finding{f}
	return c
}

// as gives all findings a state.
func as(c audit.ClusterReport, s audit.FindingState) audit.ClusterReport {
	c.Findings = append([]audit.Finding(nil), c.Findings...)
	for i := range c.Findings {
		c.Findings[i].State = s
	}
	return c
}
