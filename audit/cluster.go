package audit

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/sourcegraph/conc/panics"
	"github.com/sourcegraph/conc/pool"

	"ipamaudit/checks"
	"ipamaudit/ipam"
)

// The reasons of checks that nobody wanted to run. What they found before is
// left alone: neither resolved nor unknown.
const (
	ReasonSwitchedOff = "switched off"
	ReasonNotSelected = "not selected"
)

// reasonNoCluster is why every check of a failed cluster is unknown.
const reasonNoCluster = "the cluster could not be audited"

// maxRejectedNamed is how many unusable objects a report names.
const maxRejectedNamed = 20

// auditCluster collects one cluster and runs the checks over it. Nothing that
// happens there gets out of here.
func auditCluster(ctx context.Context, o Options, t Target) ClusterReport {
	c := ClusterReport{
		Name: t.Name, Labels: t.Labels,
		Coverage: CoverageReport{Resources: []ipam.ResourceCoverage{}},
		Pools:    []PoolReport{}, Checks: []CheckReport{}, Findings: []Finding{},
	}
	snap, err := collect(ctx, t, o.Grace)
	if err == nil {
		// The checks' part is guarded as well: a fault in the figures is one
		// cluster's, too.
		err = guard(func() error { c.examine(ctx, snap, o, t); return nil })
	}
	if err != nil {
		// Whatever was filled in before the fault is not to be trusted.
		return failedCluster(o, t, err)
	}
	return c
}

func failedCluster(o Options, t Target, err error) ClusterReport {
	c := ClusterReport{
		Name: t.Name, Labels: t.Labels, Status: Failed, Error: err.Error(),
		ID:       identify(o.Previous, t.Name, "", ""),
		Coverage: CoverageReport{Resources: []ipam.ResourceCoverage{}},
		Calico:   CalicoReport{Version: ipam.Version{}.String(), IPAM: "unknown"},
		Pools:    []PoolReport{}, Checks: make([]CheckReport, 0, len(o.Checks)), Findings: []Finding{},
	}
	for _, k := range o.Checks {
		if reason := notWanted(k, o, t); reason != "" {
			c.Checks = append(c.Checks, CheckReport{ID: k.ID, Status: checks.StatusSkipped, Reason: reason})
			continue
		}
		c.Checks = append(c.Checks, CheckReport{ID: k.ID, Status: checks.StatusUnknown, Reason: reasonNoCluster, Incomplete: true})
	}
	return c
}

// collect calls the source.
func collect(ctx context.Context, t Target, grace time.Duration) (*ipam.Snapshot, error) {
	return within(ctx, t, grace, func(ctx context.Context) (*ipam.Snapshot, error) { return t.Source.Collect(ctx) })
}

// within calls look and waits for it no longer than the cluster's timeout and
// the grace. A source that does not come back is left behind: it holds nothing
// that we read, and its answer goes into a channel that nobody opens.
func within(ctx context.Context, t Target, grace time.Duration, look func(context.Context) (*ipam.Snapshot, error)) (*ipam.Snapshot, error) {
	timeout := t.Timeout
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("not begun: %w", stopReason(ctx, ctx, timeout))
	}
	timed, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	type answer struct {
		snap *ipam.Snapshot
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		var a answer
		err := guard(func() (err error) { a.snap, err = look(timed); return err })
		a.err = err
		answers <- a
	}()

	var a answer
	select {
	case a = <-answers:
	case <-timed.Done():
		late := time.NewTimer(grace)
		defer late.Stop()
		select {
		case a = <-answers:
		case <-late.C:
			return nil, fmt.Errorf("%w, and the source did not stop when told to", stopReason(ctx, timed, timeout))
		}
	}
	switch {
	case a.err != nil && timed.Err() != nil:
		return nil, fmt.Errorf("%w: %w", stopReason(ctx, timed, timeout), a.err)
	case a.err != nil:
		return nil, a.err
	case a.snap == nil:
		return nil, errors.New("the source returned no snapshot")
	}
	return a.snap, nil
}

// stopReason says whether it was this cluster's time that ran out or the run's.
func stopReason(run, cluster context.Context, timeout time.Duration) error {
	switch {
	case interrupted(run):
		return fmt.Errorf("the run was interrupted: %w", context.Cause(run))
	case run.Err() != nil:
		return fmt.Errorf("the time for the whole run was over: %w", context.Cause(run))
	default:
		return fmt.Errorf("not collected within %s: %w", timeout, cluster.Err())
	}
}

// interrupted reports whether somebody stopped the run, which says nothing about
// its clusters; running out of time does.
func interrupted(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// examine fills in the report of a cluster that was collected.
func (c *ClusterReport) examine(ctx context.Context, collected *ipam.Snapshot, o Options, t Target) {
	// A copy, because the id may be another than the collector could see, and
	// checks link their findings by it.
	s := *collected
	s.Cluster = ipam.ClusterRef{Name: t.Name, ID: identify(o.Previous, t.Name, collected.Cluster.ID, collected.Info.GUID)}
	if s.AsOf.IsZero() {
		s.AsOf = o.Now()
	}
	s.AsOf = s.AsOf.UTC()

	c.ID, c.GUID, c.AsOf = s.Cluster.ID, s.Info.GUID, s.AsOf
	c.Coverage = coverageOf(&s)
	c.Calico = calicoOf(&s)
	c.Pools = poolReports(&s)
	c.Nodes, c.Pods = len(s.Nodes), len(s.Pods)
	c.Tables = make(map[string]bool, len(s.Nodes))
	for i := range s.Nodes {
		c.Tables[s.Nodes[i].Name] = s.Table(s.Nodes[i].Name) != nil
	}

	c.Status = Complete
	outs := runChecks(&s, o, t)
	confirm(ctx, &s, o, t, outs)
	checks.LinkCauses(&s, outs)
	for i, out := range outs {
		k := checkReport(o.Checks[i], out, &s, o.RequireRoutes)
		if k.Incomplete {
			c.Status = Partial
		}
		c.Checks = append(c.Checks, k)
		for _, f := range out.Findings {
			c.Findings = append(c.Findings, Finding{
				Fingerprint: checks.Fingerprint(f.Check, c.ID, f.Subject), Finding: f,
			})
		}
	}
}

func checkReport(k checks.Check, out checks.Outcome, s *ipam.Snapshot, requireRoutes bool) CheckReport {
	r := CheckReport{
		ID: k.ID, Status: out.Status, Reason: out.Reason, Unseen: out.Unseen,
		Incomplete: out.Incomplete, Partial: out.Partial, Routes: k.NeedsRoutes,
		Lossy: out.Lossy,
	}
	// Route tables count as required where somebody wants them (CONTRACT, exit
	// codes). Asked for explicitly, the tables of some nodes are not enough.
	if k.NeedsRoutes && out.Status != checks.StatusSkipped {
		// A source that delivered some tables did its work; what they leave open
		// is said in the check's status.
		unknown := out.Status == checks.StatusUnknown && (s.RouteSource != "" && len(s.Tables) == 0 || requireRoutes)
		if unknown || requireRoutes && len(out.Unseen) > 0 {
			r.Incomplete = true
		}
	}
	return r
}

// runChecks returns one outcome per check, in the catalogue's order.
func runChecks(s *ipam.Snapshot, o Options, t Target) []checks.Outcome {
	out := make([]checks.Outcome, len(o.Checks))
	// Checks only compute: more of them at a time than processors gains nothing.
	p := pool.New().WithMaxGoroutines(runtime.GOMAXPROCS(0))
	for i, k := range o.Checks {
		if reason := notWanted(k, o, t); reason != "" {
			out[i] = checks.Outcome{ID: k.ID, Status: checks.StatusSkipped, Reason: reason}
			continue
		}
		if k.ID == checks.ClusterAccessID {
			out[i] = checks.Outcome{ID: k.ID, Status: checks.StatusOK}
			continue
		}
		p.Go(func() { out[i] = evaluate(k, s, o, t) })
	}
	p.Wait()
	return out
}

// evaluate runs one check. One that does not come back is unknown, and left
// behind with its own answer.
func evaluate(k checks.Check, s *ipam.Snapshot, o Options, t Target) checks.Outcome {
	failed := func(err error) checks.Outcome {
		return checks.Outcome{ID: k.ID, Status: checks.StatusUnknown, Incomplete: true, Reason: err.Error()}
	}
	answers := make(chan checks.Outcome, 1)
	go func() {
		var out checks.Outcome
		err := guard(func() error {
			out = checks.Evaluate(k, &checks.Input{Snapshot: s, Params: paramsFor(k, t), Now: s.AsOf})
			return nil
		})
		if err != nil {
			out = failed(err)
		}
		answers <- out
	}()
	late := time.NewTimer(o.CheckTimeout)
	defer late.Stop()
	select {
	case out := <-answers:
		return out
	case <-late.C:
		return failed(fmt.Errorf("the check did not finish within %s, please report this", o.CheckTimeout))
	}
}

func paramsFor(k checks.Check, t Target) checks.Params {
	if t.Params != nil {
		return t.Params(k.ID)
	}
	p := checks.Params{}
	for _, one := range k.Params {
		p[one.Name] = one.Default
	}
	return p
}

// notWanted is the reason to skip a check, empty where it is to run.
func notWanted(k checks.Check, o Options, t Target) string {
	switch {
	case len(o.Only) > 0 && !o.Only[k.ID], o.Skip[k.ID]:
		return ReasonNotSelected
	case t.Enabled != nil && !t.Enabled(k.ID):
		return ReasonSwitchedOff
	default:
		return ""
	}
}

// addAccessFinding makes the finding of the check cluster-access, the only one
// that is the runner's own. A run that somebody interrupted blames no cluster.
func (c *ClusterReport) addAccessFinding(t Target, o Options, interrupted bool) {
	for i := range c.Checks {
		k := &c.Checks[i]
		if k.ID != checks.ClusterAccessID || k.Status == checks.StatusSkipped || interrupted {
			continue
		}
		k.Status, k.Reason, k.Incomplete = checks.StatusFindings, "", false
		f := checks.ClusterAccessFinding(checks.AccessFailure{
			Cluster: c.Name, Error: c.Error, Kubectl: t.Kubectl, Saved: t.Saved,
			Nights: failuresInARow(o.Previous.Clusters[c.Name], c.ID, o.RunID),
		})
		c.Findings = append(c.Findings, Finding{Fingerprint: checks.Fingerprint(f.Check, c.ID, f.Subject), Finding: f})
	}
}

func coverageOf(s *ipam.Snapshot) CoverageReport {
	c := CoverageReport{Resources: s.Coverage.List(), Rejected: len(s.Rejected), Ignored: s.Ignored}
	for i := range s.Rejected[:min(len(s.Rejected), maxRejectedNamed)] {
		c.RejectedFirst = append(c.RejectedFirst, s.Rejected[i].Error())
	}
	nodes := map[string]bool{}
	for i := range s.Tables {
		nodes[s.Tables[i].Node] = true
	}
	c.Routes = RouteCoverage{Nodes: len(nodes), Source: s.RouteSource}
	return c
}

func calicoOf(s *ipam.Snapshot) CalicoReport {
	kind, _ := s.IPAM()
	return CalicoReport{
		Version: s.Info.Version.String(), API: s.API, IPAM: string(kind),
		StrictAffinity: s.Config.StrictAffinity, MaxBlocksPerHost: s.Config.MaxBlocksPerHost,
	}
}

// guard calls f and turns a panic into an error short enough for a ticket.
func guard(f func() error) (err error) {
	var caught panics.Catcher
	caught.Try(func() { err = f() })
	if r := caught.Recovered(); r != nil {
		return fmt.Errorf("a fault of this program, please report it: %v (%s)", r.Value, panicSite(r))
	}
	return err
}

// panicSite is the function and line that panicked.
func panicSite(r *panics.Recovered) string {
	frames := runtime.CallersFrames(r.Callers)
	for {
		f, more := frames.Next()
		if f.Function != "" && !strings.HasPrefix(f.Function, "runtime.") && !strings.HasPrefix(f.Function, "github.com/sourcegraph/conc/") {
			return fmt.Sprintf("%s:%d", f.Function, f.Line)
		}
		if !more {
			return "unknown place"
		}
	}
}
