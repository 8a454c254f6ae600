package audit

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sourcegraph/conc/pool"

	"ipamaudit/checks"
	"ipamaudit/ipam"
)

// Source is where a cluster's snapshot comes from: a live API server or files.
// Collect should return soon after ctx is done; one that does not is abandoned.
type Source interface {
	Collect(ctx context.Context) (*ipam.Snapshot, error)
}

// Target is one cluster to audit.
type Target struct {
	// Name is the configured one, unique within a run: the state is kept by it.
	Name   string
	Source Source
	// Timeout bounds the collection; 0 means DefaultTimeout.
	Timeout time.Duration
	// Labels go into the report (team, environment).
	Labels map[string]string
	// Params returns the parameters of a check here; nil means its defaults.
	Params func(checkID string) checks.Params
	// Enabled is false for a check that is switched off here; nil means none is.
	Enabled func(checkID string) bool
	// Kubectl is how people reach the cluster, for the remediation when it could
	// not be audited: "kubectl --context prod-eu". Empty means by its name.
	Kubectl string
	// Saved is the path where the snapshot was read from, empty for a live cluster.
	Saved string
}

// Defaults of what a Target or Options leave at zero.
const (
	DefaultTimeout     = 5 * time.Minute
	DefaultConcurrency = 16
	// DefaultGrace is how long a source may take to return after its timeout.
	DefaultGrace = 5 * time.Second
	// DefaultCheckTimeout is far more than any check needs on a large cluster: it
	// only keeps a fault in one check from costing the night.
	DefaultCheckTimeout = 2 * time.Minute
)

// Options are what the clusters of a run have in common.
type Options struct {
	RunID, Version string
	// Concurrency is the number of clusters audited at the same time.
	Concurrency int
	// Grace and CheckTimeout: see the defaults of their names.
	Grace, CheckTimeout time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Checks is the catalogue, usually checks.All().
	Checks []checks.Check
	// Only, unless empty, and Skip select checks for this run alone.
	Only, Skip map[string]bool
	// Subset says that not all configured clusters are among the targets.
	Subset bool
	// RequireRoutes makes missing route tables count as incomplete even where no
	// source for them is configured.
	RequireRoutes bool
	// Suppress says which findings are accepted; nil means none.
	Suppress Suppressor
	// Previous is the state the last run left; nil means there is none.
	Previous *State
	// Progress hears of every cluster that begins and ends, one call at a time;
	// nil means nobody listens.
	Progress func(Event)
}

// Suppressor says which findings somebody has accepted for a while.
type Suppressor interface {
	// Suppress returns why the finding is silent, nil where it is not.
	Suppress(cluster string, f *Finding) *Suppression
	// Review returns what people should hear about the suppressions themselves:
	// expired and, when the run looked at everything, unused ones.
	Review(lookedAtEverything bool) []SuppressionNotice
}

// Event is a step of a run.
type Event struct {
	Cluster string
	// Finished is false when the cluster's audit begins.
	Finished bool
	// Status, Error, Findings and Took are set when Finished.
	Status   ClusterStatus
	Error    string
	Findings int
	Took     time.Duration
	// Done of Total clusters are finished.
	Done, Total int
}

// DuplicateError says that several targets are one cluster: every ticket would
// be filed twice. It is a configuration error.
type DuplicateError struct {
	// ID is what they have in common; empty when it is their name.
	ID    string
	Names []string
}

// Error names the clusters and what to do.
func (e *DuplicateError) Error() string {
	if e.ID == "" {
		return fmt.Sprintf("two clusters are called %q: give each its own name", e.Names[0])
	}
	return fmt.Sprintf("%s are one and the same cluster (id %s): keep one of them, or correct the kubeconfig or context of the others",
		quoteAll(e.Names), e.ID)
}

// Run audits the targets, compares the outcome with o.Previous and returns the
// report and the state to remember. Whatever happens to a cluster costs only
// itself and is said in its part of the report: the only error is a
// *DuplicateError.
func Run(ctx context.Context, o Options, targets []Target) (*Report, *State, error) {
	o = o.withDefaults()
	targets = slices.Clone(targets)
	slices.SortStableFunc(targets, func(a, b Target) int { return cmp.Compare(a.Name, b.Name) })
	for i := 1; i < len(targets); i++ {
		if targets[i].Name == targets[i-1].Name {
			return nil, nil, &DuplicateError{Names: []string{targets[i].Name}}
		}
	}

	r := &Report{Schema: Schema, Run: RunInfo{ID: o.RunID, Version: o.Version, StartedAt: o.Now().UTC()}}
	r.Clusters = auditFleet(ctx, o, targets)
	if err := r.settleIDs(); err != nil {
		return nil, nil, err
	}
	for i, t := range targets {
		if c := &r.Clusters[i]; c.Status == Failed {
			c.addAccessFinding(t, o, interrupted(ctx))
		}
	}
	r.Run.FinishedAt = o.Now().UTC()
	next := Compare(o.Previous, r)
	r.suppress(o)
	r.Totals = r.total()
	return r, next, nil
}

func (o Options) withDefaults() Options {
	o.Concurrency = cmp.Or(max(o.Concurrency, 0), DefaultConcurrency)
	o.Grace = cmp.Or(o.Grace, DefaultGrace)
	o.CheckTimeout = cmp.Or(o.CheckTimeout, DefaultCheckTimeout)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Previous == nil {
		o.Previous = NewState()
	}
	o.Checks = slices.Clone(o.Checks)
	slices.SortFunc(o.Checks, func(a, b checks.Check) int { return cmp.Compare(a.ID, b.ID) })
	return o
}

// auditFleet returns one report per target, in their order.
func auditFleet(ctx context.Context, o Options, targets []Target) []ClusterReport {
	out := make([]ClusterReport, len(targets))
	var mu sync.Mutex
	done := 0
	tell := func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Finished {
			done++
		}
		if o.Progress != nil {
			e.Done, e.Total = done, len(targets)
			o.Progress(e)
		}
	}
	p := pool.New().WithMaxGoroutines(o.Concurrency)
	for i, t := range targets {
		p.Go(func() {
			began := o.Now()
			tell(Event{Cluster: t.Name})
			out[i] = auditCluster(ctx, o, t)
			c := &out[i]
			tell(Event{Cluster: t.Name, Finished: true, Status: c.Status, Error: c.Error,
				Findings: len(c.Findings), Took: o.Now().Sub(began)})
		})
	}
	p.Wait()
	return out
}

// settleIDs refuses two clusters with one id. Ids that are only names do not
// clash, and a cluster that failed does not claim the pinned id that another
// one now shows (the contexts were renamed): it is known by its name only.
func (r *Report) settleIDs() error {
	names := map[string][]string{}
	for i := range r.Clusters {
		if c := &r.Clusters[i]; c.Status != Failed && c.ID != c.Name {
			names[c.ID] = append(names[c.ID], c.Name)
		}
	}
	for i := range r.Clusters {
		c := &r.Clusters[i]
		if n := names[c.ID]; c.Status != Failed && len(n) > 1 {
			return &DuplicateError{ID: c.ID, Names: n}
		} else if c.Status == Failed && len(n) > 0 && c.ID != c.Name {
			r.Notices = append(r.Notices, fmt.Sprintf("cluster %q could not be audited, and the cluster it was before is now called %q", c.Name, n[0]))
			c.ID = c.Name
		}
	}
	return nil
}

func (r *Report) suppress(o Options) {
	if o.Suppress == nil {
		return
	}
	whole := !o.Subset && len(o.Only) == 0 && len(o.Skip) == 0
	for i := range r.Clusters {
		c := &r.Clusters[i]
		whole = whole && c.Status == Complete
		for j := range c.Findings {
			c.Findings[j].Suppressed = o.Suppress.Suppress(c.Name, &c.Findings[j])
		}
	}
	r.Suppressions = o.Suppress.Review(whole)
}

func (r *Report) total() Totals {
	var t Totals
	for i := range r.Clusters {
		c := &r.Clusters[i]
		if c.Status == Failed {
			t.ClustersFailed++
		}
		for _, k := range c.Checks {
			if k.Status == checks.StatusUnknown {
				t.ChecksUnknown++
			}
		}
		for j := range c.Findings {
			if c.Findings[j].Counts() {
				t.count(c.Findings[j].Severity)
			}
		}
	}
	return t
}

func (t *Totals) count(s checks.Severity) {
	switch s {
	case checks.Critical:
		t.Critical++
	case checks.High:
		t.High++
	case checks.Medium:
		t.Medium++
	case checks.Low:
		t.Low++
	}
}

// quoteAll joins names for people; quoting keeps control characters out.
func quoteAll(names []string) string {
	q := make([]string, len(names))
	for i, n := range names {
		q[i] = fmt.Sprintf("%q", n)
	}
	return strings.Join(q, ", ")
}
