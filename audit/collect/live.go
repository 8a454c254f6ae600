package collect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sourcegraph/conc/pool"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ipamaudit/ipam"
)

// The defaults of LiveOptions.
const (
	// DefaultPageSize costs an API server no more seats of priority and fairness
	// than 500 would, and half of the time or less (docs/performance.md). Where it
	// is too much, pages shrink.
	DefaultPageSize = 5000
	DefaultParallel = 4
	// DefaultQPS and DefaultBurst replace client-go's 5 and 10, with which
	// the pages of one large list alone would take most of a minute. The API
	// server's priority and fairness protects it from more than it can bear.
	DefaultQPS   = 20
	DefaultBurst = 40
)

// LiveOptions say how a live cluster is read.
type LiveOptions struct {
	// Name of the cluster.
	Name string
	// PageSize is the limit of one list request.
	PageSize int
	// Parallel is how many lists are read at once.
	Parallel int
	// RequestTimeout bounds each single request.
	RequestTimeout time.Duration
	// Renew returns a configuration with fresh credentials, for those that expire
	// while a cluster is read; nil means that client-go's own ways must do.
	Renew func(context.Context) (*rest.Config, error)
	// API is the group that holds Calico's data; when empty it is discovered.
	API string
	// Only picks the resources to read; nil reads all of them. What is left out
	// is missing in the snapshot's coverage.
	Only func(ipam.Resource) bool
	// Now is the clock; the snapshot's time is when the collection began.
	Now func() time.Time
	// Routes is where route tables come from, or nil.
	Routes RouteSource
	// Record receives a reduced copy of everything that is read, or is nil.
	Record *Recorder
}

// Live reads one cluster through its API server. It only ever lists and gets.
type Live struct {
	client   atomic.Pointer[rest.RESTClient]
	renewing sync.Mutex
	// limit spaces the requests out; nil where nobody wants that.
	limit flowcontrol.RateLimiter
	// sleep waits between two tries.
	sleep func(context.Context, time.Duration) error
	host  string
	opts  LiveOptions
}

// NewLive returns a source for the cluster that cfg leads to. The timeout of
// the whole is the context's of Collect.
func NewLive(cfg *rest.Config, opts LiveOptions) (*Live, error) {
	opts.PageSize = cmp.Or(opts.PageSize, DefaultPageSize)
	opts.Parallel = cmp.Or(opts.Parallel, DefaultParallel)
	opts.RequestTimeout = cmp.Or(opts.RequestTimeout, DefaultRequestTimeout)
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.API != "" && opts.API != ipam.APIv1 && opts.API != ipam.APIv3 {
		return nil, fmt.Errorf("cluster %q: API group %q is neither %s nor %s", opts.Name, opts.API, ipam.APIv1, ipam.APIv3)
	}
	l := &Live{host: safeHost(cfg.Host), opts: opts, sleep: sleep}
	qps, burst := cfg.QPS, cfg.Burst
	if qps == 0 {
		qps, burst = DefaultQPS, DefaultBurst
	}
	if qps > 0 {
		l.limit = flowcontrol.NewTokenBucketRateLimiter(qps, max(burst, 1))
	}
	client, err := newClient(cfg)
	if err != nil {
		return nil, &ClusterError{opts.Name, l.host, shortError(err)}
	}
	l.client.Store(client)
	return l, nil
}

func newClient(cfg *rest.Config) (*rest.RESTClient, error) {
	cfg = rest.CopyConfig(cfg)
	// Only Status needs a type: everything else is decoded here.
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeJSON, acceptJSON
	cfg.WarningHandler = rest.NoWarnings{}
	if cfg.UserAgent == "" {
		// Never curl's or kubectl's: the API server pretty-prints for curl.
		cfg.UserAgent = "ipamaudit"
	}
	// The wait for the limiter must not count as the server's slowness, and a
	// client that replaces another takes over from its limiter.
	cfg.QPS, cfg.RateLimiter = -1, nil
	// Packing costs an API server more time than the network next to it: see
	// docs/performance.md.
	cfg.DisableCompression = true
	return rest.UnversionedRESTClientFor(cfg)
}

// safeHost is the API server's address without anything that could be a secret.
func safeHost(host string) string {
	u, err := url.Parse(host)
	if err != nil || u.Host == "" {
		if strings.Contains(host, "@") {
			return "unparsable host"
		}
		return host
	}
	return u.Scheme + "://" + u.Host
}

// Collect reads the cluster. What could not be read is in the snapshot's
// coverage; the error is a *ClusterError when nothing could be read at all.
func (l *Live) Collect(ctx context.Context) (*ipam.Snapshot, error) {
	asOf := l.opts.Now().UTC()
	found, err := l.discover(ctx)
	if err != nil {
		return nil, l.fail(ctx, err)
	}
	b := NewBuilder()
	outcomes := l.readAll(ctx, found)
	var first error
	read := 0
	for _, o := range outcomes {
		if o.err == nil {
			read++
			b.merge(o.builder, 0)
			continue
		}
		if o.builder != nil {
			b.merge(o.builder, 0)
		}
		st, reason := outcomeOf(o.err)
		b.SetStatus(o.resource, st, reason)
		if first == nil && st != ipam.Absent {
			first = fmt.Errorf("%s: %w", o.resource, shortError(o.err))
		}
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, ctx.Err()
	}
	if read == 0 {
		if first == nil {
			first = errors.New("the API serves none of the resources that the audit reads")
		}
		return nil, l.fail(ctx, first)
	}
	s, err := l.finish(ctx, b, found, asOf)
	if err != nil {
		return nil, fmt.Errorf("cluster %q: %w", l.opts.Name, err)
	}
	return s, nil
}

// Again is the second look of audit.Rechecker: it reads the resources once more
// and returns first without what has changed meanwhile. A resource that cannot
// be read again is an error: then nothing is confirmed.
func (l *Live) Again(ctx context.Context, first *ipam.Snapshot, resources []ipam.Resource) (*ipam.Snapshot, error) {
	look := ipam.NewSecondLook(first, resources)
	var one sync.Mutex
	p := pool.New().WithErrors().WithMaxGoroutines(l.opts.Parallel)
	for _, t := range (&discovery{api: first.API}).tasks() {
		if !slices.Contains(resources, t.resource) {
			continue
		}
		p.Go(func() error {
			read := func() error {
				return l.pages(ctx, t, nil, func(p *page) {
					one.Lock()
					defer one.Unlock()
					look.Nodes(p.b.nodes.values)
					look.Pods(p.b.pods.values)
					look.Blocks(p.b.blocks.values)
					look.Affinities(p.b.affinities.values)
					look.Handles(p.b.handles.values)
				})
			}
			err := read()
			if expired(err) {
				err = read()
			}
			if err != nil {
				return fmt.Errorf("%s: %w", t.resource, shortError(err))
			}
			return nil
		})
	}
	if err := p.Wait(); err != nil {
		return nil, err
	}
	return look.Settled(), nil
}

func (l *Live) fail(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return &ClusterError{l.opts.Name, l.host, shortError(err)}
}

// finish adds the route tables and builds the snapshot.
func (l *Live) finish(ctx context.Context, b *Builder, found *discovery, asOf time.Time) (*ipam.Snapshot, error) {
	if l.opts.Routes != nil {
		tables, err := l.opts.Routes.Tables(ctx, b.scope())
		b.AddTables(sourcesOf(l.opts.Routes.Name(), tables), tables...)
		b.rejectRoutes(l.opts.Routes.Name(), err)
	}
	return b.Finish(FinishOptions{Name: l.opts.Name, AsOf: asOf, API: found.api})
}

// readAll reads every resource, some of them at once.
func (l *Live) readAll(ctx context.Context, found *discovery) []outcome {
	p := pool.NewWithResults[outcome]().WithMaxGoroutines(l.opts.Parallel)
	for _, t := range found.tasks() {
		if l.opts.Only != nil && !l.opts.Only(t.resource) {
			continue
		}
		p.Go(func() outcome { return l.read(ctx, t) })
	}
	return p.Wait()
}

// outcome is how the reading of one resource went. With an error the builder
// is nil, or holds what may be used all the same.
type outcome struct {
	resource ipam.Resource
	builder  *Builder
	err      error
}

// read reads one resource. Only a list that was read to its end counts.
func (l *Live) read(ctx context.Context, t task) outcome {
	o := outcome{resource: t.resource}
	if t.err != nil {
		o.err = t.err
		return o
	}
	o.builder, o.err = l.lists(ctx, t, t.queries)
	switch {
	case o.err == nil && t.enough != nil && !t.enough(o.builder), apierrors.IsBadRequest(o.err):
		// Old API servers do not know every field selector.
		o.builder, o.err = l.lists(ctx, t, []url.Values{nil})
	case o.err != nil && t.fallback != "":
		// Enough to know the cluster by.
		b := NewBuilder()
		if raw, err := l.get(ctx, t.fallback); err == nil {
			b.Add(withKind(Object{JSON: raw, Place: Place{File: t.fallback}}, t))
			o.builder = b
		}
	}
	if o.err != nil && l.opts.Record != nil {
		l.opts.Record.reset(t.resource)
	}
	return o
}

// withKind names the kind of an object that leaves it to its list.
func withKind(o Object, t task) Object {
	if o.Kind == "" {
		o.APIVersion, o.Kind = kindOf(t.resource, t.api)
	}
	return o
}

// lists reads one resource, which may take several queries.
func (l *Live) lists(ctx context.Context, t task, queries []url.Values) (*Builder, error) {
	for attempt := 0; ; attempt++ {
		b := NewBuilder()
		if l.opts.Record != nil {
			l.opts.Record.reset(t.resource)
		}
		var err error
		for _, q := range queries {
			err = l.pages(ctx, t, q, func(p *page) {
				b.merge(p.b, p.end.Remaining)
				for _, record := range p.held {
					record(l.opts.Record)
				}
			})
			if err != nil {
				break
			}
		}
		// A continue token lives as long as etcd keeps the version it stands
		// for; after that the list has to start over, once.
		if expired(err) && attempt == 0 {
			continue
		}
		if err != nil {
			return nil, err
		}
		b.Listed(t.resource, groupOf(t.api))
		return b, nil
	}
}
