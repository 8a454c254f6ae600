package audit

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ipamaudit/checks"
)

// night is one run over cluster "c", in the words of the tables below.
type night struct {
	id    string // run id; empty means the next one
	check CheckReport
	// found is "severity×affected" of the one finding, empty for none.
	found string
	// want is the state of the finding in the report, empty for none there;
	// runs, first (the night it was seen first, from 1) and was go with it.
	want  FindingState
	runs  int
	first int
	was   string
}

var (
	ok       = CheckReport{Status: checks.StatusOK}
	findings = CheckReport{Status: checks.StatusFindings}
	unknown  = CheckReport{Status: checks.StatusUnknown, Reason: "not read: pods (forbidden)", Incomplete: true}
	notHere  = CheckReport{Status: checks.StatusSkipped, Reason: "no Calico IPAM here"}
	off      = CheckReport{Status: checks.StatusSkipped, Reason: ReasonSwitchedOff}
	notNow   = CheckReport{Status: checks.StatusSkipped, Reason: ReasonNotSelected}
	lossy    = CheckReport{Status: checks.StatusOK, Lossy: true}
)

var subject = checks.Subject{Kind: checks.KindNode, Name: "node-1"}

func dayN(n int) time.Time { return time.Date(2026, 3, n, 2, 0, 0, 0, time.UTC) }

func parseFound(t *testing.T, s string) (checks.Severity, int) {
	t.Helper()
	severity, n, _ := strings.Cut(s, "×")
	var affected int
	if _, err := fmt.Sscan(n, &affected); err != nil {
		t.Fatalf("%q: %v", s, err)
	}
	return checks.Severity(severity), affected
}

func reportOf(t *testing.T, n int, in night) *Report {
	t.Helper()
	k := in.check
	k.ID = "f"
	c := ClusterReport{Name: "c", ID: "uid", Status: Complete, AsOf: dayN(n), Checks: []CheckReport{k}}
	if in.found != "" {
		severity, affected := parseFound(t, in.found)
		c.Findings = []Finding{{
			Fingerprint: checks.Fingerprint("f", "uid", subject),
			Finding:     checks.Finding{Check: "f", Severity: severity, Subject: subject, Title: "t", Affected: make([]checks.Affected, affected)},
		}}
	}
	id := in.id
	if id == "" {
		id = fmt.Sprint("night-", n)
	}
	return &Report{Run: RunInfo{ID: id, StartedAt: dayN(n), FinishedAt: dayN(n)}, Clusters: []ClusterReport{c}}
}

func TestLifecycle(t *testing.T) {
	tests := map[string][]night{
		"a whole life, and another": {
			{check: findings, found: "high×3", want: StateNew, runs: 1, first: 1},
			{check: findings, found: "high×3", want: StateOngoing, runs: 2, first: 1},
			{check: findings, found: "high×4", want: StateChanged, runs: 3, first: 1, was: "high×3"},
			{check: findings, found: "critical×4", want: StateChanged, runs: 4, first: 1, was: "high×4"},
			{check: findings, found: "critical×4", want: StateOngoing, runs: 5, first: 1},
			{check: ok, want: StateResolved, runs: 5, first: 1, was: "critical×4"},
			{check: ok},
			{check: findings, found: "low×1", want: StateNew, runs: 1, first: 8},
		},
		"new again the night after it was resolved": {
			{check: findings, found: "high×3", want: StateNew, runs: 1, first: 1},
			{check: ok, want: StateResolved, runs: 1, first: 1, was: "high×3"},
			{check: findings, found: "high×3", want: StateNew, runs: 1, first: 3},
		},
		"a run that cannot look resolves nothing": {
			{check: findings, found: "high×3", want: StateNew, runs: 1, first: 1},
			{check: unknown, want: StateUnknown, runs: 1, first: 1, was: "high×3"},
			{check: lossy, want: StateUnknown, runs: 1, first: 1, was: "high×3"},
			{check: findings, found: "high×3", want: StateOngoing, runs: 2, first: 1},
			{check: unknown, want: StateUnknown, runs: 2, first: 1, was: "high×3"},
			{check: ok, want: StateResolved, runs: 2, first: 1, was: "high×3"},
		},
		"worse after a night that could not look": {
			{check: findings, found: "high×3", want: StateNew, runs: 1, first: 1},
			{check: unknown, want: StateUnknown, runs: 1, first: 1, was: "high×3"},
			{check: findings, found: "critical×3", want: StateChanged, runs: 2, first: 1, was: "high×3"},
		},
		"findings beside something unseen resolve nothing": {
			{check: findings, found: "high×3", want: StateNew, runs: 1, first: 1},
			{check: CheckReport{Status: checks.StatusFindings, Unseen: []string{"events"}}, want: StateUnknown, runs: 1, first: 1, was: "high×3"},
			{check: CheckReport{Status: checks.StatusFindings, Unseen: []string{"events"}, Partial: true}, want: StateResolved, runs: 1, first: 1, was: "high×3"},
		},
		"what nobody wanted to look at is left alone": {
			{check: findings, found: "high×3", want: StateNew, runs: 1, first: 1},
			{check: notNow},
			{check: off},
			{check: findings, found: "high×3", want: StateOngoing, runs: 2, first: 1},
		},
		"the check no longer applies": {
			{check: findings, found: "high×3", want: StateNew, runs: 1, first: 1},
			{check: notHere, want: StateResolved, runs: 1, first: 1, was: "high×3"},
		},
		"a repeated run tells the same story": {
			{id: "A", check: findings, found: "high×3", want: StateNew, runs: 1, first: 1},
			{id: "A", check: findings, found: "high×3", want: StateNew, runs: 1, first: 1},
			{id: "B", check: findings, found: "critical×3", want: StateChanged, runs: 2, first: 1, was: "high×3"},
			{id: "B", check: findings, found: "critical×3", want: StateChanged, runs: 2, first: 1, was: "high×3"},
			{id: "B", check: findings, found: "high×3", want: StateOngoing, runs: 2, first: 1},
			{id: "C", check: ok, want: StateResolved, runs: 2, first: 1, was: "high×3"},
			{id: "C", check: ok, want: StateResolved, runs: 2, first: 1, was: "high×3"},
			{id: "C", check: unknown, want: StateUnknown, runs: 2, first: 1, was: "high×3"},
			{id: "C", check: ok, want: StateResolved, runs: 2, first: 1, was: "high×3"},
			{id: "C", check: findings, found: "high×3", want: StateOngoing, runs: 3, first: 1},
			{id: "C", check: ok, want: StateResolved, runs: 3, first: 1, was: "high×3"},
			{id: "D", check: ok},
		},
	}
	for name, nights := range tests {
		t.Run(name, func(t *testing.T) {
			var state *State
			for i, in := range nights {
				r := reportOf(t, i+1, in)
				before := state.snapshot(t)
				next := Compare(state, r)
				if d := cmp.Diff(before, state); d != "" {
					t.Fatalf("night %d: the old state was changed: %s", i+1, d)
				}
				state = next
				got := night{id: in.id, check: in.check, found: in.found}
				for _, f := range r.Clusters[0].Findings {
					if got.want != "" {
						t.Fatalf("night %d: more than one finding", i+1)
					}
					got.want, got.runs, got.first = f.State, f.Runs, f.FirstSeen.Day()
					if f.Previous != nil {
						got.was = fmt.Sprintf("%s×%d", f.Previous.Severity, f.Previous.Affected)
					}
					if (f.State == StateResolved || f.State == StateUnknown) && (f.Title != "t" || f.Subject != subject || f.Detail == "" || f.Counts()) {
						t.Errorf("night %d: %+v does not say what it was, or counts", i+1, f)
					}
				}
				if d := cmp.Diff(in, got, cmp.AllowUnexported(night{})); d != "" {
					t.Errorf("night %d (-want +got):\n%s", i+1, d)
				}
			}
		})
	}
}

// snapshot is a copy to compare with.
func (s *State) snapshot(t *testing.T) *State {
	t.Helper()
	if s == nil {
		return nil
	}
	c := s.Clone()
	if d := cmp.Diff(s, c); d != "" {
		t.Fatalf("a clone differs: %s", d)
	}
	return c
}

func TestRouteTablesOfSomeNodesResolveOnlyTheirs(t *testing.T) {
	node := func(n string) checks.Subject { return checks.Subject{Kind: checks.KindNode, Name: n} }
	block := checks.Subject{Kind: checks.KindBlock, Name: "10.0.0.0/26"}
	state := NewState()
	cs := &ClusterState{ID: "uid", Findings: map[string]*FindingRecord{}}
	state.Clusters["c"] = cs
	for _, s := range []checks.Subject{node("known"), node("unread"), node("deleted"), block} {
		cs.Findings[checks.Fingerprint("r", "uid", s)] = &FindingRecord{Check: "r", Subject: s, Severity: checks.Critical, RunID: "before"}
	}
	k := CheckReport{ID: "r", Status: checks.StatusOK, Routes: true, Partial: true, Unseen: []string{"1 node"}}
	r := &Report{Run: RunInfo{ID: "now"}, Clusters: []ClusterReport{{
		Name: "c", ID: "uid", Status: Complete, Checks: []CheckReport{k}, Tables: map[string]bool{"known": true, "unread": false},
	}}}
	next := Compare(state, r)
	got := map[string]FindingState{}
	for _, f := range r.Clusters[0].Findings {
		got[f.Subject.Name] = f.State
	}
	want := map[string]FindingState{"known": StateResolved, "deleted": StateResolved, "unread": StateUnknown, "10.0.0.0/26": StateUnknown}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if n := next.Clusters["c"].CleanRuns["r"]; n != 0 {
		t.Errorf("counted %d clean runs while findings are unknown", n)
	}
}

func TestCleanRuns(t *testing.T) {
	nights := []struct {
		night
		clean int
	}{
		{night{id: "A", check: ok}, 1},
		{night{id: "A", check: ok}, 1},
		{night{id: "B", check: ok}, 2},
		{night{id: "C", check: unknown}, 2},
		{night{id: "D", check: notNow}, 2},
		{night{id: "E", check: lossy}, 2},
		{night{id: "F", check: ok}, 3},
		{night{id: "F", check: findings, found: "low×1"}, 0},
		{night{id: "F", check: ok}, 1},
		{night{id: "G", check: ok}, 2},
		{night{id: "H", check: notHere}, 3},
	}
	var state *State
	for i, n := range nights {
		state = Compare(state, reportOf(t, i+1, n.night))
		if got := state.Clusters["c"].CleanRuns["f"]; got != n.clean {
			t.Errorf("run %d (%s): %d clean runs, want %d", i+1, n.id, got, n.clean)
		}
	}
}

func TestNightsWithoutAccess(t *testing.T) {
	o := Options{Checks: catalogue(finder("f", nil, "n1"))}
	run := func(id string, src Source) *ClusterReport {
		t.Helper()
		o.RunID = id
		r, next := mustRun(t, o, Target{Name: "prod", Source: src, Kubectl: "kubectl --context eu"})
		o.Previous = next
		return &r.Clusters[0]
	}
	access := func(c *ClusterReport) *Finding {
		i := slices.IndexFunc(c.Findings, func(f Finding) bool { return f.Check == checks.ClusterAccessID })
		if i < 0 {
			return nil
		}
		return &c.Findings[i]
	}
	down := live0(errors.New("connection refused"))
	run("A", live("uid"))
	steps := []struct {
		id       string
		severity checks.Severity
		state    FindingState
		night    string
	}{
		{"B", checks.High, StateNew, "1st night"},
		{"B", checks.High, StateNew, "1st night"},
		{"B", checks.High, StateNew, "1st night"},
		{"C", checks.High, StateOngoing, "2nd night"},
		{"D", checks.Critical, StateChanged, "3rd night"},
		{"D", checks.Critical, StateChanged, "3rd night"},
		{"E", checks.Critical, StateOngoing, "4th night"},
	}
	for _, s := range steps {
		c := run(s.id, down)
		f := access(c)
		if f == nil || c.Status != Failed || c.ID != "uid" {
			t.Fatalf("run %s: status %s, id %s, finding %v; want failed under the pinned id with a finding", s.id, c.Status, c.ID, f)
		}
		if f.Severity != s.severity || f.State != s.state || !strings.Contains(f.Detail, s.night) || !strings.Contains(f.Detail, "connection refused") {
			t.Errorf("run %s: %s, %s, %q; want %s, %s, %s", s.id, f.Severity, f.State, f.Detail, s.severity, s.state, s.night)
		}
		if cmd := f.Remediation[0].Commands[0]; !strings.HasPrefix(cmd, "kubectl --context eu get --raw ") {
			t.Errorf("run %s: command %q", s.id, cmd)
		}
		if i := slices.IndexFunc(c.Findings, func(f Finding) bool { return f.Check == "f" }); i < 0 || c.Findings[i].State != StateUnknown {
			t.Errorf("run %s: the finding of before is not unknown: %+v", s.id, c.Findings)
		}
	}
	c := run("F", live("uid"))
	if f := access(c); f == nil || f.State != StateResolved || o.Previous.Clusters["prod"].Failures != 0 {
		t.Errorf("after access came back: %+v", f)
	}
	if i := slices.IndexFunc(c.Findings, func(f Finding) bool { return f.Check == "f" }); c.Findings[i].State != StateOngoing {
		t.Errorf("the finding of before is %s, want ongoing", c.Findings[i].State)
	}
	if f := access(run("G", down)); f.Severity != checks.High || f.State != StateNew {
		t.Errorf("down again: %s, %s; want high, new", f.Severity, f.State)
	}
}

func TestIdentity(t *testing.T) {
	ticket := func(check, cluster, id string) (string, *TicketState) {
		return checks.TicketFingerprint(check, id), &TicketState{Check: check, Cluster: cluster, Key: "NET-1"}
	}
	// The state knows cluster "c" by id "uid" and GUID "guid", with one finding and a ticket.
	known := func(name, id, guid string) *State {
		s := NewState()
		s.Clusters[name] = &ClusterState{ID: id, GUID: guid, Findings: map[string]*FindingRecord{
			checks.Fingerprint("f", id, subject): {Check: "f", Subject: subject, Severity: checks.High, FirstSeen: dayN(1), Runs: 4, RunID: "before"},
		}}
		fp, tk := ticket("f", name, id)
		s.Tickets[fp] = tk
		return s
	}
	source := func(id, guid string) Source {
		s := snapshot(id)
		s.Info.GUID = guid
		return sourceOf(s)
	}
	tests := []struct {
		name   string
		prev   *State
		source Source
		wantID string
		state  FindingState
		ticket string // fingerprint's id
		notice string
	}{
		{"the same", known("c", "uid", "guid"), source("uid", "guid"), "uid", StateOngoing, "uid", ""},
		{"only the GUID was readable", known("c", "uid", "guid"), source("guid", "guid"), "uid", StateOngoing, "uid", ""},
		{"the GUID is pinned, now the UID is readable", known("c", "guid", "guid"), source("uid", "guid"), "guid", StateOngoing, "guid", ""},
		{"nothing was readable", known("c", "uid", ""), source("c", ""), "uid", StateOngoing, "uid", ""},
		{"only the name was known so far", known("c", "c", ""), source("uid", ""), "uid", StateOngoing, "uid", ""},
		{"renamed", known("old-name", "uid", ""), source("uid", ""), "uid", StateOngoing, "uid", ""},
		{"another cluster under the name", known("c", "other", "g2"), source("uid", "guid"), "uid", StateNew, "other", `cluster "c" is another cluster`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := Options{RunID: "now", Previous: tt.prev, Checks: catalogue(finder("f", nil, "node-1"))}
			r, next := mustRun(t, o, Target{Name: "c", Source: tt.source})
			c := r.Clusters[0]
			if c.ID != tt.wantID || next.Clusters["c"].ID != tt.wantID {
				t.Errorf("id %s, pinned %s; want %s", c.ID, next.Clusters["c"].ID, tt.wantID)
			}
			if f := c.Findings[0]; f.State != tt.state || f.Fingerprint != checks.Fingerprint("f", tt.wantID, subject) {
				t.Errorf("finding is %s under %s, want %s", f.State, f.Fingerprint, tt.state)
			}
			tk := next.Tickets[checks.TicketFingerprint("f", tt.ticket)]
			if tk == nil || len(next.Tickets) != 1 || tt.notice == "" && tk.Cluster != "c" {
				t.Errorf("tickets %+v, want the one of %s", next.Tickets, tt.ticket)
			}
			if got := strings.Join(r.Notices, "\n"); (tt.notice == "") != (got == "") || !strings.Contains(got, tt.notice) {
				t.Errorf("notices %q, want %q", got, tt.notice)
			}
		})
	}
}

func TestFlippedContextComesBack(t *testing.T) {
	// A context that points elsewhere for one night costs nothing once it is right again.
	o := Options{Checks: catalogue(finder("f", nil, "node-1"))}
	for i, id := range []string{"uid", "wrong", "uid"} {
		o.RunID = fmt.Sprint(i)
		r, next := mustRun(t, o, Target{Name: "c", Source: live(id)})
		o.Previous = next
		want := []FindingState{StateNew, StateNew, StateOngoing}[i]
		if f := r.Clusters[0].Findings[0]; f.State != want {
			t.Errorf("night %d: %s, want %s", i, f.State, want)
		}
	}
}

func TestClustersThatAreNotInTheRunAreLeftAlone(t *testing.T) {
	o := Options{RunID: "A", Checks: catalogue(finder("f", nil, "node-1"))}
	_, state := mustRun(t, o, Target{Name: "a", Source: live("ida")}, Target{Name: "b", Source: live("idb")})
	o.RunID, o.Previous, o.Subset = "B", state, true
	_, next := mustRun(t, o, Target{Name: "a", Source: live("ida")})
	if d := cmp.Diff(state.Clusters["b"], next.Clusters["b"]); d != "" {
		t.Error(d)
	}
	if next.Clusters["a"].Findings[checks.Fingerprint("f", "ida", subject)].Runs != 2 {
		t.Error("cluster a was not compared")
	}
}

func TestPoolTrendIsOfTheRunBefore(t *testing.T) {
	var state *State
	for i, n := range []struct {
		id     string
		free   uint64
		before any
	}{
		{"A", 10, nil}, {"A", 9, nil}, {"B", 7, uint64(9)}, {"B", 6, uint64(9)}, {"C", 6, uint64(6)},
	} {
		r := reportOf(t, i+1, night{id: n.id, check: ok})
		r.Clusters[0].Pools = []PoolReport{{Name: "p", BlocksFree: n.free}}
		state = Compare(state, r)
		var got any
		if b := r.Clusters[0].Pools[0].Before; b != nil {
			got = b.BlocksFree
		}
		if got != n.before {
			t.Errorf("run %d (%s): before %v, want %v", i+1, n.id, got, n.before)
		}
	}
}
