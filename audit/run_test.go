package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"ipamaudit/checks"
	"ipamaudit/ipam"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sourceFunc is a Source made of a function.
type sourceFunc func(ctx context.Context) (*ipam.Snapshot, error)

func (f sourceFunc) Collect(ctx context.Context) (*ipam.Snapshot, error) { return f(ctx) }

// snapshot is a cluster of which everything was read.
func snapshot(id string) *ipam.Snapshot {
	s := ipam.NewSnapshot()
	s.Cluster.ID = id
	s.AsOf = time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC)
	for _, r := range ipam.AllResources() {
		s.Coverage.Set(r, ipam.Read, 0, "")
	}
	return s.Seal()
}

func live(id string) Source {
	return sourceFunc(func(context.Context) (*ipam.Snapshot, error) { return snapshot(id), nil })
}

func dead() Source {
	return sourceFunc(func(ctx context.Context) (*ipam.Snapshot, error) {
		<-ctx.Done()
		return nil, fmt.Errorf("list pods: %w", ctx.Err())
	})
}

// finder is a check that finds what it is told, or nothing.
func finder(id string, needs []ipam.Resource, subjects ...string) checks.Check {
	return checks.Check{ID: id, AnyIPAM: true, Needs: needs, Run: func(in *checks.Input) checks.Result {
		var r checks.Result
		for _, s := range subjects {
			r.Findings = append(r.Findings, checks.Finding{
				Severity: checks.High, Subject: checks.Subject{Kind: checks.KindNode, Name: s}, Title: "t",
			})
		}
		return r
	}}
}

func catalogue(more ...checks.Check) []checks.Check {
	access, _ := checks.Find(checks.ClusterAccessID)
	return append(more, access)
}

func byName(t *testing.T, r *Report, name string) *ClusterReport {
	t.Helper()
	for i := range r.Clusters {
		if r.Clusters[i].Name == name {
			return &r.Clusters[i]
		}
	}
	t.Fatalf("no cluster %q in the report", name)
	return nil
}

func check(t *testing.T, c *ClusterReport, id string) CheckReport {
	t.Helper()
	i := slices.IndexFunc(c.Checks, func(k CheckReport) bool { return k.ID == id })
	if i < 0 {
		t.Fatalf("cluster %s has no check %s", c.Name, id)
	}
	return c.Checks[i]
}

func mustRun(t *testing.T, o Options, targets ...Target) (*Report, *State) {
	t.Helper()
	r, next, err := Run(t.Context(), o, targets)
	if err != nil {
		t.Fatal(err)
	}
	return r, next
}

func TestFleetTakesAsLongAsTheSlowestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var targets []Target
		for i := range 50 {
			target := Target{Name: fmt.Sprintf("c%02d", 49-i), Source: live(fmt.Sprintf("uid-%d", i)), Timeout: time.Minute}
			if i%10 == 3 {
				target.Source = dead()
			}
			targets = append(targets, target)
		}
		began := time.Now()
		r, _ := mustRun(t, Options{RunID: "n1", Checks: catalogue(finder("f", nil, "node-1"))}, targets...)
		if took := time.Since(began); took < time.Minute || took > time.Minute+DefaultGrace {
			t.Errorf("took %s, want about the slowest timeout of 1m", took)
		}
		if r.Totals.ClustersFailed != 5 || r.Totals.High != 45+5 {
			t.Errorf("totals %+v, want 5 failed clusters and a finding in each of the 50", r.Totals)
		}
		if !slices.IsSortedFunc(r.Clusters, func(a, b ClusterReport) int { return strings.Compare(a.Name, b.Name) }) {
			t.Error("clusters are not sorted by name")
		}
	})
}

func TestSourceThatIgnoresItsContextIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		hung := sourceFunc(func(context.Context) (*ipam.Snapshot, error) {
			<-release
			return snapshot("late"), nil
		})
		began := time.Now()
		r, _ := mustRun(t, Options{RunID: "n1", Checks: catalogue(finder("f", nil)), Grace: 3 * time.Second},
			Target{Name: "hung", Source: hung, Timeout: 10 * time.Second}, Target{Name: "fine", Source: live("a")})
		if took := time.Since(began); took != 13*time.Second {
			t.Errorf("took %s, want timeout and grace: 13s", took)
		}
		c := byName(t, r, "hung")
		if c.Status != Failed || !strings.Contains(c.Error, "not collected within 10s") || !strings.Contains(c.Error, "did not stop") {
			t.Errorf("status %s, error %q", c.Status, c.Error)
		}
		if k := check(t, c, "f"); k.Status != checks.StatusUnknown || !k.Incomplete {
			t.Errorf("check of a failed cluster: %+v, want unknown and incomplete", k)
		}
		if byName(t, r, "fine").Status != Complete {
			t.Error("the other cluster suffered")
		}
		before := fmt.Sprintf("%+v", *c)
		close(release)
		synctest.Wait()
		if after := fmt.Sprintf("%+v", *c); after != before {
			t.Errorf("the late answer changed the report:\n%s\n%s", before, after)
		}
	})
}

func TestAnswerWithinTheGraceCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := sourceFunc(func(ctx context.Context) (*ipam.Snapshot, error) {
			<-ctx.Done()
			time.Sleep(time.Second) // what was read so far is packed up
			return snapshot("a"), nil
		})
		r, _ := mustRun(t, Options{RunID: "n1", Checks: catalogue()}, Target{Name: "slow", Source: slow, Timeout: time.Second})
		if c := byName(t, r, "slow"); c.Status != Complete {
			t.Errorf("status %s (%s), want complete", c.Status, c.Error)
		}
	})
}

func TestPanicsCostOnlyThemselves(t *testing.T) {
	bad := finder("bad", nil)
	bad.Run = func(*checks.Input) checks.Result { panic("index out of range") }
	targets := []Target{
		{Name: "fine", Source: live("a")},
		{Name: "panics", Source: sourceFunc(func(context.Context) (*ipam.Snapshot, error) { panic("nil map") })},
		{Name: "nothing", Source: sourceFunc(func(context.Context) (*ipam.Snapshot, error) { return nil, nil })},
		{Name: "nosource"},
		{Name: "badparams", Source: live("b"), Params: func(string) checks.Params { panic("no such parameter") }},
	}
	r, _ := mustRun(t, Options{RunID: "n1", Checks: catalogue(bad, finder("good", nil, "node-1"))}, targets...)

	fine := byName(t, r, "fine")
	if fine.Status != Partial || check(t, fine, "bad").Status != checks.StatusUnknown || check(t, fine, "good").Status != checks.StatusFindings {
		t.Errorf("a panicking check: status %s, checks %+v; want partial, unknown beside findings", fine.Status, fine.Checks)
	}
	for name, want := range map[string]string{
		"panics": "please report it: nil map (ipamaudit/audit.TestPanics", "nothing": "no snapshot", "nosource": "please report it",
	} {
		if c := byName(t, r, name); c.Status != Failed || !strings.Contains(c.Error, want) || strings.Contains(c.Error, "\n") {
			t.Errorf("%s: status %s, error %q, want it to say %q in one line", name, c.Status, c.Error, want)
		}
	}
	if c := byName(t, r, "badparams"); c.Status != Partial || !strings.Contains(check(t, c, "good").Reason, "no such parameter") {
		t.Errorf("badparams: status %s, checks %+v", c.Status, c.Checks)
	}
}

func TestCheckThatDoesNotComeBackIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		endless := finder("endless", nil)
		endless.Run = func(*checks.Input) checks.Result { <-release; return checks.Result{} }
		r, _ := mustRun(t, Options{RunID: "n1", Checks: catalogue(endless, finder("good", nil, "node-1"))}, Target{Name: "a", Source: live("a")})
		close(release)
		c := byName(t, r, "a")
		if k := check(t, c, "endless"); k.Status != checks.StatusUnknown || !k.Incomplete || !strings.Contains(k.Reason, "did not finish within 2m0s") {
			t.Errorf("endless: %+v", k)
		}
		if c.Status != Partial || len(c.Findings) != 1 {
			t.Errorf("status %s with %d findings, want partial with the other check's", c.Status, len(c.Findings))
		}
	})
}

func TestInterruptedRunBlamesNoCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		o := Options{RunID: "n1", Concurrency: 1, Checks: catalogue()}
		r, next, err := Run(ctx, o, []Target{{Name: "a", Source: dead()}, {Name: "b", Source: live("b")}})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range r.Clusters {
			if c.Status != Failed || !strings.Contains(c.Error, "interrupted") || len(c.Findings) != 0 {
				t.Errorf("%s: status %s, error %q, %d findings; want failed, interrupted, none", c.Name, c.Status, c.Error, len(c.Findings))
			}
			if n := next.Clusters[c.Name].Failures; n != 0 {
				t.Errorf("%s: %d failures are remembered, want none", c.Name, n)
			}
		}
	})
}

func TestRunDeadlineIsAFailureOfTheCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, _, err := Run(ctx, Options{RunID: "n1", Checks: catalogue()}, []Target{{Name: "a", Source: dead()}})
		if err != nil {
			t.Fatal(err)
		}
		if c := r.Clusters[0]; len(c.Findings) != 1 || !strings.Contains(c.Error, "the time for the whole run was over") {
			t.Errorf("error %q, %d findings; want the run's time named and cluster-access", c.Error, len(c.Findings))
		}
	})
}

func TestSelection(t *testing.T) {
	all := catalogue(finder("one", nil, "n"), finder("two", nil, "n"))
	on := func(id string) bool { return id != "two" }
	tests := []struct {
		name       string
		only, skip map[string]bool
		enabled    func(string) bool
		want       string
	}{
		{"everything", nil, nil, nil, "cluster-access=ok, one=findings, two=findings"},
		{"only", map[string]bool{"one": true}, nil, nil, "cluster-access=not selected, one=findings, two=not selected"},
		{"skip", nil, map[string]bool{"one": true}, nil, "cluster-access=ok, one=not selected, two=findings"},
		{"switched off", nil, nil, on, "cluster-access=ok, one=findings, two=switched off"},
		{"both", map[string]bool{"two": true}, nil, on, "cluster-access=not selected, one=not selected, two=switched off"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, _ := mustRun(t, Options{RunID: "n1", Checks: all, Only: tt.only, Skip: tt.skip}, Target{Name: "a", Source: live("a"), Enabled: tt.enabled})
			c := r.Clusters[0]
			var got []string
			for _, k := range c.Checks {
				s := string(k.Status)
				if k.Status == checks.StatusSkipped {
					s = k.Reason
				}
				got = append(got, k.ID+"="+s)
			}
			if s := strings.Join(got, ", "); s != tt.want || c.Status != Complete {
				t.Errorf("got %s (%s)\nwant %s (complete)", s, c.Status, tt.want)
			}
		})
	}
}

func TestUnreadNeedMakesTheClusterPartial(t *testing.T) {
	s := snapshot("a")
	s.Coverage.Set(ipam.ResPods, ipam.Forbidden, 0, "pods is forbidden")
	src := sourceFunc(func(context.Context) (*ipam.Snapshot, error) { return s, nil })
	needsPods := finder("needs-pods", []ipam.Resource{ipam.ResPods}, "n")
	r, _ := mustRun(t, Options{RunID: "n1", Checks: catalogue(needsPods, finder("other", nil))}, Target{Name: "a", Source: src})
	if c := r.Clusters[0]; c.Status != Partial || check(t, &c, "needs-pods").Status != checks.StatusUnknown || check(t, &c, "other").Status != checks.StatusOK {
		t.Errorf("status %s, checks %+v", c.Status, c.Checks)
	}
	// A check that nobody runs needs nothing.
	r, _ = mustRun(t, Options{RunID: "n1", Checks: catalogue(needsPods), Skip: map[string]bool{"needs-pods": true}}, Target{Name: "a", Source: src})
	if c := r.Clusters[0]; c.Status != Complete {
		t.Errorf("status %s, want complete", c.Status)
	}
}

func TestRoutesCountAsRequired(t *testing.T) {
	none := checks.Result{Unseen: []string{"the route tables of 2 nodes"}}
	some := checks.Result{Unseen: none.Unseen, Partial: true}
	tests := []struct {
		name       string
		result     checks.Result
		source     string
		require    bool
		incomplete bool
	}{
		{"no tables, none wanted", none, "", false, false},
		{"no tables, required", none, "", true, true},
		{"no tables, a source is configured", none, "agent", false, true},
		{"some tables", some, "files", false, false},
		{"some tables, all required", some, "files", true, true},
		{"all tables", checks.Result{}, "files", true, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			routes := checks.Check{ID: "routes", AnyIPAM: true, NeedsRoutes: true, Run: func(*checks.Input) checks.Result { return tt.result }}
			s := snapshot("a")
			s.RouteSource = tt.source
			src := sourceFunc(func(context.Context) (*ipam.Snapshot, error) { return s, nil })
			r, _ := mustRun(t, Options{RunID: "n1", Checks: catalogue(routes), RequireRoutes: tt.require}, Target{Name: "a", Source: src})
			want := Complete
			if tt.incomplete {
				want = Partial
			}
			if c := r.Clusters[0]; check(t, &c, "routes").Incomplete != tt.incomplete || c.Status != want {
				t.Errorf("got %+v (%s), want incomplete=%v", check(t, &c, "routes"), c.Status, tt.incomplete)
			}
		})
	}
}

func TestDuplicateClusters(t *testing.T) {
	pinned := NewState()
	pinned.Clusters["b"] = &ClusterState{ID: "uid"}
	tests := []struct {
		name    string
		prev    *State
		targets []Target
		want    string
	}{
		{"one id twice", nil, []Target{{Name: "a", Source: live("uid")}, {Name: "b", Source: live("uid")}}, `"a", "b" are one and the same cluster (id uid)`},
		{"one name twice", nil, []Target{{Name: "a", Source: live("x")}, {Name: "a", Source: live("y")}}, `two clusters are called "a"`},
		{"ids are only names", nil, []Target{{Name: "a", Source: live("a")}, {Name: "b", Source: live("b")}}, ""},
		{"the context now called a was b, and b is down", pinned, []Target{{Name: "a", Source: live("uid")}, {Name: "b", Source: live0(errors.New("down"))}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, next, err := Run(t.Context(), Options{RunID: "n1", Checks: catalogue(), Previous: tt.prev}, tt.targets)
			var dup *DuplicateError
			switch {
			case tt.want == "" && (err != nil || r == nil || next == nil):
				t.Errorf("error %v", err)
			case tt.want != "" && (!errors.As(err, &dup) || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func live0(err error) Source {
	return sourceFunc(func(context.Context) (*ipam.Snapshot, error) { return nil, err })
}

func TestFiftyNightsAgree(t *testing.T) {
	// Two runs over one input differ only in run, whatever order they finish in.
	o := Options{Checks: catalogue(finder("z", nil, "n2", "n1"), finder("a", nil, "n3")), Concurrency: 3}
	targets := []Target{{Name: "c", Source: live("c1")}, {Name: "a", Source: live("a1")}, {Name: "b", Source: live0(errors.New("refused"))}}
	first, _ := mustRun(t, o, targets...)
	for range 50 {
		slices.Reverse(targets)
		again, _ := mustRun(t, o, targets...)
		again.Run = first.Run
		byName(t, again, "b").Findings[0].FirstSeen = byName(t, first, "b").Findings[0].FirstSeen // a cluster that failed has no time of its own
		if d := cmp.Diff(first, again); d != "" {
			t.Fatal(d)
		}
	}
}

func TestProgressIsToldOneAtATime(t *testing.T) {
	busy := make(chan struct{}, 1)
	var began, ended, last int
	o := Options{RunID: "n1", Checks: catalogue(), Progress: func(e Event) {
		select {
		case busy <- struct{}{}:
		default:
			t.Error("two calls at a time")
		}
		if e.Finished {
			ended++
			last = e.Done
		} else {
			began++
		}
		<-busy
	}}
	var targets []Target
	for i := range 20 {
		targets = append(targets, Target{Name: fmt.Sprint(i), Source: live(fmt.Sprint("id", i))})
	}
	mustRun(t, o, targets...)
	if began != 20 || ended != 20 || last != 20 {
		t.Errorf("began %d, ended %d, the last said %d done; want 20 each", began, ended, last)
	}
}

type suppressAll struct{ whole []bool }

func (s *suppressAll) Suppress(_ string, f *Finding) *Suppression {
	if f.Subject.Name == "loud" {
		return nil
	}
	return &Suppression{Reason: "accepted", Owner: "net", Until: "2027-01-01"}
}

func (s *suppressAll) Review(whole bool) []SuppressionNotice {
	s.whole = append(s.whole, whole)
	return []SuppressionNotice{{State: SuppressionUnused}}
}

func TestSuppressedFindingsCountInNothing(t *testing.T) {
	s := &suppressAll{}
	o := Options{RunID: "n1", Checks: catalogue(finder("f", nil, "quiet", "loud")), Suppress: s}
	r, next := mustRun(t, o, Target{Name: "a", Source: live("a")})
	if r.Totals.High != 1 || len(r.Said()) != 1 || len(next.Clusters["a"].Findings) != 2 {
		t.Errorf("high %d, notices %q, remembered %d; want 1, 1, 2", r.Totals.High, r.Said(), len(next.Clusters["a"].Findings))
	}
	o.Subset = true
	mustRun(t, o, Target{Name: "a", Source: live("a")})
	o.Subset = false
	mustRun(t, o, Target{Name: "a", Source: live0(errors.New("down"))})
	if d := cmp.Diff([]bool{true, false, false}, s.whole); d != "" {
		t.Errorf("whether unused suppressions can be told: %s", d)
	}
}

func sourceOf(s *ipam.Snapshot) Source {
	return sourceFunc(func(context.Context) (*ipam.Snapshot, error) { return s, nil })
}
