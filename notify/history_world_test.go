package notify_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"time"

	"ipamaudit/audit"
	"ipamaudit/checks"
	"ipamaudit/notify"
	"ipamaudit/notify/fake/fence"
	fakejira "ipamaudit/notify/fake/jira"
	fakeslack "ipamaudit/notify/fake/slack"
	"ipamaudit/notify/fake/wire"
	"ipamaudit/notify/jira"
	"ipamaudit/notify/slack"
)

// universe is a fleet, a Jira, a Slack and a state in a bubble of virtual time.
// Its servers are called without a network, its processes die by a panic.
type universe struct {
	h      history
	fences [2]*fence.Fence
	jira   *fakejira.Server
	slack  *fakeslack.Server
	// What is true of the fleet.
	truth   map[problemKey]map[int]checks.Severity // by node
	blind   map[problemKey]bool
	hushed  map[problemKey]bool
	down    map[int]bool
	stored  []byte // the state
	backups []backup
	// wentWell: the last run came to its end without an error.
	wentWell bool
	holder   int // the process with the lock; 0 is none
	pids     int
	steps    int // calls, and what happens between them
	book     *book
	trace    func(format string, args ...any)
}

// backup is a state of earlier, and what was known and told then.
type backup struct {
	stored    []byte
	told, now view
}

const fingerprintField = "customfield_10050"

type problemKey struct{ cluster, check string }

func newUniverse(h history, fences [2]*fence.Fence) *universe {
	u := &universe{
		h: h, fences: fences, truth: map[problemKey]map[int]checks.Severity{}, blind: map[problemKey]bool{},
		hushed: map[problemKey]bool{}, down: map[int]bool{}, book: newBook(), trace: func(string, ...any) {},
	}
	jc := fakejira.Config{
		User: mail, Token: jiraToken, Now: time.Now, SearchLag: h.rules.lag,
		Projects: []fakejira.Project{{Key: "OPS"}, {Key: "NET"}},
	}
	if h.rules.field {
		for i := range jc.Projects {
			jc.Projects[i].Fields = []fakejira.Field{{ID: fingerprintField, Name: "Audit fingerprint", Kind: fakejira.Text}}
		}
	}
	if h.rules.dataCenter {
		jc.Flavour = fakejira.DataCenter
		jc.Projects[0].Workflow = fakejira.ClassicWorkflow()
	}
	u.jira = fakejira.New(jc)
	sc := fakeslack.Config{Token: slackToken, Now: time.Now, Pace: time.Second, EditWindow: h.rules.editWindow}
	if h.rules.noHistory {
		sc.Scopes = []string{fakeslack.ChatWrite}
	}
	u.slack = fakeslack.New(sc)
	return u
}

// process is one run of the program, from its start to its end or its crash.
type process struct {
	u      *universe
	pid    int
	calls  int
	faults []fault
	calm   bool // of the end of a history: nothing goes wrong any more
	adopt  bool
	saved  func()
}

// crash is what a process dies of.
type crash struct{}

// next is what becomes of the next call.
func (p *process) next() (fault, bool) {
	p.calls++
	p.u.steps++
	for _, f := range p.faults {
		if f.call == p.calls {
			return f, true
		}
	}
	return fault{}, false
}

// server calls an http.Handler as if it were far away.
type server struct {
	p    *process
	h    http.Handler
	jira bool
}

func (s server) RoundTrip(r *http.Request) (*http.Response, error) {
	f, hit := s.p.next()
	if !hit || f.kind == "disk full" { // no call of a disk
		return s.serve(r), nil
	}
	s.p.u.trace("    call %d, %s %s: %s", s.p.calls, r.Method, r.URL.Path, f.kind)
	lost := fmt.Errorf("read: %w", syscall.ECONNRESET)
	switch f.kind {
	case "crash before":
		panic(crash{})
	case "crash after":
		s.serve(r)
		panic(crash{})
	case "refused":
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	case "lost before":
		return nil, lost
	case "lost after":
		s.serve(r)
		return nil, lost
	case "500 before":
		return answer(r, 500, nil), nil
	case "500 after":
		s.serve(r)
		return answer(r, 500, nil), nil
	case "503":
		return answer(r, 503, nil), nil
	case "503 later":
		return answer(r, 503, http.Header{"Retry-After": {"7"}}), nil
	case "429":
		return answer(r, 429, nil), nil
	case "429 later":
		return answer(r, 429, http.Header{"Retry-After": {"55"}}), nil
	case "429 date":
		return answer(r, 429, http.Header{"Retry-After": {wire.RetryDate(time.Now().Add(20 * time.Second))}}), nil
	case "429 long":
		return answer(r, 429, http.Header{"Retry-After": {"3600"}}), nil
	case "hang before", "hang after":
		if f.kind == "hang after" {
			s.serve(r)
		}
		<-r.Context().Done()
		return nil, r.Context().Err()
	case "html 401":
		return answer(r, 401, nil), nil
	case "expired", "drop labels":
		if !s.jira {
			return jsonAnswer(r, `{"ok":false,"error":"token_expired"}`), nil
		}
		kind := fakejira.ExpiredToken
		if f.kind == "drop labels" {
			kind = fakejira.DropLabels
			if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/issue") {
				return s.serve(r), nil
			}
		}
		s.p.u.jira.Inject(wire.Fault{Times: 1, Kind: kind})
		return s.serve(r), nil
	case "second run":
		// While this call is on its way somebody starts the program again.
		s.p.u.run(f.second, s.p.adopt, false)
		return s.serve(r), nil
	case "taken over":
		// This process stands still for so long that its lock is given away, and
		// what it was about to send arrives all the same.
		time.Sleep(4 * time.Minute)
		if s.p.u.holder == s.p.pid {
			s.p.u.holder = 0
		}
		s.p.u.book.takeovers++
		s.p.u.run(f.second, s.p.adopt, false)
		s.serve(r)
		return nil, context.DeadlineExceeded
	}
	panic("no such fault: " + f.kind)
}

func (s server) serve(r *http.Request) *http.Response {
	rec := httptest.NewRecorder()
	c := r.Clone(context.WithoutCancel(r.Context()))
	if c.Body == nil {
		c.Body = http.NoBody
	}
	s.h.ServeHTTP(rec, c)
	resp := rec.Result()
	resp.Request = r
	return resp
}

func answer(r *http.Request, status int, h http.Header) *http.Response {
	if h == nil {
		h = http.Header{}
	}
	h.Set("Content-Type", "text/html")
	return &http.Response{
		StatusCode: status, Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), Header: h, Request: r,
		Body: io.NopCloser(strings.NewReader("<html><body>the proxy says no</body></html>")), ProtoMajor: 1, ProtoMinor: 1,
	}
}

func jsonAnswer(r *http.Request, body string) *http.Response {
	resp := answer(r, 200, nil)
	resp.Header.Set("Content-Type", "application/json; charset=utf-8")
	resp.Body = io.NopCloser(strings.NewReader(body))
	return resp
}

// Load, Save, Lock and String make a process the audit.Store of its run.
func (p *process) Load(context.Context) (*audit.State, error) {
	st := audit.NewState()
	if p.u.stored == nil {
		return st, nil
	}
	return st, json.Unmarshal(p.u.stored, st)
}

func (p *process) Save(_ context.Context, st *audit.State) error {
	f, hit := p.next()
	if hit {
		p.u.trace("    call %d, save: %s", p.calls, f.kind)
		switch f.kind {
		case "crash before":
			panic(crash{})
		case "disk full", "lost before", "500 before":
			return errors.New("no space left on device")
		case "second run":
			p.u.run(f.second, p.adopt, false)
		case "taken over":
			time.Sleep(4 * time.Minute)
			if p.u.holder == p.pid {
				p.u.holder = 0
			}
			p.u.book.takeovers++
			p.u.run(f.second, p.adopt, false)
		}
	}
	if p.u.holder != p.pid {
		return audit.ErrLostLock
	}
	b, err := json.Marshal(st)
	if err != nil {
		return err
	}
	p.u.stored = b
	p.saved()
	if hit && f.kind == "crash after" {
		panic(crash{})
	}
	return nil
}

func (p *process) Lock(context.Context) (func(), error) {
	if p.u.holder != 0 {
		return nil, audit.ErrLocked
	}
	p.u.holder = p.pid
	return func() {
		if p.u.holder == p.pid {
			p.u.holder = 0
		}
	}, nil
}

func (p *process) String() string { return "memory" }

// run starts the program. It ends by itself, or by a crash, which gives the lock
// back as the end of a process does.
func (u *universe) run(faults []fault, adopt, calm bool) {
	u.pids++
	u.wentWell = false
	p := &process{u: u, pid: u.pids, faults: faults, adopt: adopt, calm: calm}
	unlock, err := p.Lock(context.Background())
	if err != nil {
		u.trace("    the second run finds the lock taken")
		return
	}
	defer func() {
		if r := recover(); r != nil {
			if _, died := r.(crash); !died {
				panic(r)
			}
			u.trace("    crashed")
			u.book.crashes++
		}
		unlock()
	}()
	st, err := p.Load(context.Background())
	if err != nil {
		u.book.violate("state", "%v", err)
		return
	}
	report := u.report(st)
	next := audit.Compare(st, report)
	u.suppress(report)
	p.saved = u.book.channel.sees(u, report)
	u.book.sees(u, st, report, next)
	var logs bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	clients, err := u.clients(p, log)
	if err != nil {
		u.book.violate("clients", "%v", err)
		return
	}
	o := u.options()
	o.Tickets.Adopt = adopt
	out, err := notify.Run(context.Background(), report, next, p, o, clients, log)
	if calm && err != nil {
		u.book.violate("a calm run fails", "%v", err)
	}
	u.wentWell = err == nil
	if err != nil {
		u.trace("    error: %v", err)
	}
	for _, t := range out.Tickets {
		u.trace("    %s %s: %s %s (%s) %s", t.Cluster, t.Check, t.Action, t.Key, t.Reason, t.Why)
	}
	text := logs.String() + fmt.Sprint(err)
	if strings.Contains(text, jiraToken) || strings.Contains(text, slackToken) || strings.Contains(text, "fakesecret") {
		u.book.violate("secret", "a token shows: %s", text)
	}
}

func (u *universe) options() notify.Options {
	r, over, run := u.h.rules, 0, ""
	if r.extras {
		over, run = 1, "https://ci.example.com/runs/{run}"
	}
	return notify.Options{
		Tickets: notify.TicketPolicy{
			AttachOver: over, RunURL: run,
			Project: func(*audit.ClusterReport, string, checks.Severity) string { return "OPS" },
			Reopen:  r.reopen, MaxReopens: r.maxReopens, ResolveAfter: r.resolveAfter, CloseAfter: r.closeAfter, MaxNew: r.maxNew,
		},
		Digest: notify.DigestPolicy{
			Channel:   func(*audit.ClusterReport, string, checks.Severity) string { return channel },
			Heartbeat: func(time.Time, time.Time) bool { return false },
		},
	}
}

func (u *universe) clients(p *process, log *slog.Logger) (notify.Clients, error) {
	transport := func(f *fence.Fence, h http.Handler, isJira bool) http.RoundTripper {
		return notify.NewTransport(notify.TransportOptions{
			Version: "test", Secrets: []string{jiraToken, slackToken}, Log: log, Base: f.Transport(server{p, h, isJira}),
		})
	}
	jo := jira.Options{Flavour: jira.Cloud, BaseURL: "http://jira.test/", BrowseURL: "https://jira.example.com", User: mail, Token: jiraToken}
	f := u.fences[0]
	if u.h.rules.dataCenter {
		jo.Flavour, jo.User, f = jira.DataCenter, "", nil
	}
	if u.h.rules.field {
		jo.FingerprintField = fingerprintField
	}
	jo.Transport = transport(f, u.jira, true)
	tracker, err := jira.New(jo)
	if err != nil {
		return notify.Clients{}, err
	}
	if u.h.rules.webhook {
		hook := "http://slack.test/services/" + fakeslack.TeamID + "/" + fakeslack.BotID + "/fakesecret"
		messenger, err := slack.NewWebhook(hook, notify.NewTransport(notify.TransportOptions{
			Version: "test", Secrets: slack.WebhookSecrets(hook), Log: log, Base: u.fences[1].Transport(server{p, u.slack, false}),
		}))
		return notify.Clients{Tracker: tracker, Messenger: messenger}, err
	}
	messenger, err := slack.New(slack.Options{Token: slackToken, APIURL: "http://slack.test/api/", Transport: transport(u.fences[1], u.slack, false)})
	return notify.Clients{Tracker: tracker, Messenger: messenger}, err
}

// report is what the audit sees of the truth.
func (u *universe) report(st *audit.State) *audit.Report {
	now := time.Now()
	r := &audit.Report{Schema: audit.Schema, Run: audit.RunInfo{ID: now.UTC().Format(time.DateOnly), StartedAt: now, FinishedAt: now, Version: "test"}}
	for n := range 3 {
		name := clusterName(n)
		if u.down[n] {
			c := failed(name)
			c.AsOf, c.ID = now, name
			if cs := st.Clusters[name]; cs != nil && cs.ID != "" {
				c.ID = cs.ID
			}
			c.Findings[0].Fingerprint = checks.Fingerprint("cluster-access", c.ID, c.Findings[0].Subject)
			c.Checks = append(c.Checks, audit.CheckReport{ID: checkIDs[1], Status: checks.StatusUnknown, Incomplete: true})
			r.Clusters = append(r.Clusters, c)
			continue
		}
		c := healthy(name)
		c.AsOf = now
		for i, id := range checkIDs {
			k := problemKey{name, id}
			if u.blind[k] {
				c.Checks[i].Status, c.Checks[i].Reason, c.Checks[i].Incomplete = checks.StatusUnknown, "blocks were not read", true
				c.Status = audit.Partial
				continue
			}
			for node, severity := range u.truth[k] {
				c.Findings = append(c.Findings, finding(c.ID, id, severity, fmt.Sprintf("node-%d", node)))
				c.Checks[i].Status = checks.StatusFindings
			}
		}
		r.Clusters = append(r.Clusters, c)
	}
	return r
}

// suppress does what a configuration's suppressions do.
func (u *universe) suppress(r *audit.Report) {
	for i := range r.Clusters {
		for j := range r.Clusters[i].Findings {
			if f := &r.Clusters[i].Findings[j]; u.hushed[problemKey{r.Clusters[i].Name, f.Check}] {
				f.Suppressed = &audit.Suppression{Reason: "known", Owner: "kim"}
			}
		}
	}
}

func clusterName(n int) string { return fmt.Sprintf("prod-%d", n) }

// happen lets one event of the history happen.
func (u *universe) happen(e event) {
	u.steps++
	k := problemKey{clusterName(e.cluster), checkIDs[e.check]}
	switch e.what {
	case "run":
		time.Sleep(e.wait)
		u.run(e.faults, e.adopt, false)
	case "find":
		if u.truth[k] == nil {
			u.truth[k] = map[int]checks.Severity{}
		}
		u.truth[k][e.node] = e.severity
	case "fix":
		delete(u.truth, k)
	case "blind":
		u.blind[k] = true
	case "see":
		clear(u.blind)
		clear(u.hushed)
	case "suppress":
		u.hushed[k] = true
	case "down":
		u.down[e.cluster] = true
	case "up":
		delete(u.down, e.cluster)
	case "lose state":
		u.stored = nil
		u.book.stateLost()
		u.book.channel.stateIs(view{}, view{})
	case "restore state":
		if n := len(u.backups); n > 0 {
			u.book.restores++
			b := u.backups[e.ticket%n]
			u.stored = b.stored
			u.book.stateLost()
			u.book.channel.stateIs(b.told, b.now)
		}
	case "delete digest":
		if ms := u.slack.Messages(channel); len(ms) > 0 {
			_ = u.slack.Delete(channel, ms[e.ticket%len(ms)].TS)
		}
	case "say in channel":
		u.slack.Say(channel, "what is this?", "")
	default:
		u.people(e)
	}
}

// backUp keeps the states of the last runs.
func (u *universe) backUp() {
	u.backups = append(u.backups, backup{slices.Clone(u.stored), maps.Clone(u.book.channel.told), maps.Clone(u.book.channel.now)})
	if len(u.backups) > 4 {
		u.backups = u.backups[1:]
	}
}

// people do something to one of the tickets.
func (u *universe) people(e event) {
	all := u.jira.Issues()
	if len(all) == 0 {
		return
	}
	i := all[e.ticket%len(all)]
	var err error
	h := u.book.human(i.ID)
	switch e.what {
	case "reopen":
		if !i.Open() {
			err = u.jira.Reopen(i.ID)
		}
	case "delete":
		err = u.jira.Delete(i.ID)
	case "move":
		to := "NET"
		if i.Project == to {
			to = "OPS"
		}
		_, err = u.jira.MoveTo(i.ID, to)
	case "clone":
		_, err = u.jira.Clone(i.ID)
	case "remove all labels":
		err = u.jira.RemoveLabels(i.ID, i.Labels...)
		h.labels = nil
	case "remove static label":
		err = u.jira.RemoveLabels(i.ID, notify.StaticLabel)
	case "accept":
		err = u.jira.AddLabels(i.ID, "ipam-accepted")
	case "no longer accept":
		err = u.jira.RemoveLabels(i.ID, "ipam-accepted")
	case "write above and below":
		err = u.jira.EditDescription(i.ID, fmt.Sprintf("Kim %d: call me.\n\n%s\n\nBelow, see the *runbook* %d.", u.steps, i.Description, u.steps))
	case "rewrite description":
		err = u.jira.EditDescription(i.ID, fmt.Sprintf("All mine %d.", u.steps))
	case "cut the end off":
		if at := strings.Index(i.Description, "ipamaudit:end fp"); at > 0 {
			err = u.jira.EditDescription(i.ID, i.Description[:at])
		}
	case "edit summary":
		h.summary = fmt.Sprintf("Kim's summary %d", u.steps)
		err = u.jira.EditSummary(i.ID, h.summary)
	case "add label":
		l := fmt.Sprintf("kim-%d", u.steps)
		h.labels = append(h.labels, l)
		err = u.jira.AddLabels(i.ID, l)
	case "set priority":
		h.priority = "Lowest"
		err = u.jira.SetPriority(i.ID, h.priority)
	case "assign":
		h.assignee = `{"accountId":"kim"}`
		err = u.jira.SetField(i.ID, "assignee", map[string]string{"accountId": "kim"})
	case "comment":
		err = u.jira.Comment(i.ID, "I look into it.")
	default:
		resolution, ok := strings.CutPrefix(e.what, "close as ")
		if !ok {
			panic("no such event: " + e.what)
		}
		if i.Open() {
			err = u.jira.CloseAs(i.ID, resolution)
		}
	}
	if err != nil {
		panic(err)
	}
	switch e.what {
	case "add label", "set priority", "assign", "comment", "edit summary", "accept", "no longer accept":
	default:
		h.provoked++
	}
	if now, there := u.jira.Issue(i.ID); there {
		h.description = now.Description
	}
}
