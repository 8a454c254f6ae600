package bed

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// New starts a cluster that ends with the test. When the test fails, the ends
// of the servers' logs are part of its output; `go test -artifacts` keeps the
// whole logs.
func New(t testing.TB, o Options) *Cluster { return Fleet(t, o)[0] }

// Fleet starts clusters side by side that end with the test, as New does.
func Fleet(t testing.TB, options ...Options) []*Cluster {
	t.Helper()
	ctx, cancel := untilDeadline(t)
	defer cancel()
	programs, err := FindPrograms(ctx)
	if err != nil {
		t.Fatal(err)
	}
	clusters := make([]*Cluster, len(options))
	logs := make([]string, len(options))
	for i := range options {
		//nolint:usetesting // a directory for each of the test's clusters among what -artifacts keeps
		if logs[i], err = os.MkdirTemp(t.ArtifactDir(), "cluster-"); err != nil {
			t.Fatal(err)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	for i, o := range options {
		group.Go(func() (err error) {
			o.Programs, o.LogDir = programs, logs[i]
			clusters[i], err = Start(ctx, o)
			return err
		})
	}
	err = group.Wait()
	t.Cleanup(func() {
		for _, c := range clusters {
			if c == nil {
				continue
			}
			if t.Failed() {
				t.Log(c.Logs(10))
			}
			c.Kill() // nothing in it is worth an orderly end
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return clusters
}

// untilDeadline ends a little before the test's own deadline, so that what was
// not ready in time is reported instead of panicked about.
func untilDeadline(t testing.TB) (context.Context, context.CancelFunc) {
	const margin = 20 * time.Second
	if d, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if deadline, ok := d.Deadline(); ok {
			return context.WithDeadlineCause(t.Context(), deadline.Add(-margin), errors.New("go test's -timeout is close"))
		}
	}
	return context.WithCancel(t.Context())
}
