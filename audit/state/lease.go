package state

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"ipamaudit/audit"
)

// DefaultLeaseDuration is how long a run that is gone keeps others from writing.
const DefaultLeaseDuration = time.Minute

const (
	// A Lease is renewed renewals times within its duration, so that a few lost
	// requests do not cost it.
	renewals = 4
	// forgotten is the number of durations after which a Lease is taken over at
	// once. Before that its holder is watched, because its clock may be another
	// than ours.
	forgotten = 10
	// releaseTimeout bounds giving the Lease back: it ends by itself, too.
	releaseTimeout = 5 * time.Second
)

// lease is a coordination.k8s.io/v1 Lease used as a lock.
type lease struct {
	client          kubernetes.Interface
	namespace, name string
	holder          string
	duration        time.Duration

	mu sync.Mutex
	// object is ours as it was last written, nil while we hold none.
	object *coordinationv1.Lease
	// renewed is when that was, by the monotonic clock; lost is why it is no
	// longer ours.
	renewed time.Time
	lost    error
}

func newLease(client kubernetes.Interface, namespace, name, holder string, duration time.Duration) *lease {
	// The API counts in whole seconds.
	return &lease{client: client, namespace: namespace, name: name, holder: holder, duration: max(duration.Round(time.Second), time.Second)}
}

func defaultHolder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unnamed"
	}
	return host + "_" + rand.Text()[:8]
}

// String is "Lease NAMESPACE/NAME".
func (l *lease) String() string { return fmt.Sprintf("Lease %s/%s", l.namespace, l.name) }

func (l *lease) lock(ctx context.Context) (unlock func(), err error) {
	l.mu.Lock()
	mine := l.object
	l.mu.Unlock()
	if mine != nil {
		return nil, l.locked(mine)
	}
	object, err := l.acquire(ctx)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.object, l.renewed, l.lost = object, time.Now(), nil
	l.mu.Unlock()

	// The run's last writes come after its context has ended; the Lease must
	// live until unlock.
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.keep(renewing)
	}()
	var once sync.Once
	return func() {
		once.Do(func() {
			stop()
			<-done
			l.release(context.WithoutCancel(ctx))
		})
	}, nil
}

// acquire creates the Lease, takes a free one, or one whose holder does not
// renew it while we watch for its whole duration.
func (l *lease) acquire(ctx context.Context) (*coordinationv1.Lease, error) {
	poll := time.NewTicker(l.duration / 10)
	defer poll.Stop()
	var watched string
	var since time.Time
	for {
		object, err := l.api().Get(ctx, l.name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			object, err = l.api().Create(ctx, l.take(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
				Namespace: l.namespace, Name: l.name, Labels: map[string]string{"app.kubernetes.io/name": "ipamaudit"},
			}}), metav1.CreateOptions{})
			if err == nil {
				return object, nil
			}
			if !apierrors.IsAlreadyExists(err) {
				return nil, explain("take the", l, err)
			}
		case err != nil:
			return nil, explain("read the", l, err)
		case free(object) || watched == object.ResourceVersion && time.Since(since) >= durationOf(object):
			taken, err := l.api().Update(ctx, l.take(object.DeepCopy()), metav1.UpdateOptions{})
			if err == nil {
				return taken, nil
			}
			if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				return nil, explain("take over the", l, err)
			}
		case watched == "":
			watched, since = object.ResourceVersion, time.Now()
		case watched != object.ResourceVersion:
			return nil, l.locked(object)
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the %s: %w", l, context.Cause(ctx))
		}
	}
}

// take writes our name into the object.
func (l *lease) take(object *coordinationv1.Lease) *coordinationv1.Lease {
	now := metav1.NewMicroTime(time.Now())
	transitions := int32(0)
	if object.Spec.LeaseTransitions != nil {
		transitions = *object.Spec.LeaseTransitions + 1
	}
	object.Spec = coordinationv1.LeaseSpec{
		HolderIdentity: new(l.holder), LeaseDurationSeconds: new(int32(l.duration / time.Second)),
		AcquireTime: &now, RenewTime: &now, LeaseTransitions: &transitions,
	}
	return object
}

// free reports whether nobody holds the Lease, or somebody did so long ago that
// no clock can be that wrong.
func free(object *coordinationv1.Lease) bool {
	if holderOf(object) == "" || object.Spec.RenewTime == nil {
		return true
	}
	return time.Since(object.Spec.RenewTime.Time) > forgotten*durationOf(object)
}

func durationOf(object *coordinationv1.Lease) time.Duration {
	if s := object.Spec.LeaseDurationSeconds; s != nil && *s > 0 {
		return time.Duration(*s) * time.Second
	}
	return DefaultLeaseDuration
}

func holderOf(object *coordinationv1.Lease) string {
	if object.Spec.HolderIdentity == nil {
		return ""
	}
	return *object.Spec.HolderIdentity
}

func (l *lease) locked(object *coordinationv1.Lease) error {
	e := &LockedError{
		Where: l.String(), Holder: Holder{Name: holderOf(object)},
		Advice: "Wait until that run has ended; when it dies its Lease is taken over after " + durationOf(object).String() + ".",
	}
	if t := object.Spec.AcquireTime; t != nil {
		e.Holder.Since = t.Time
	}
	return e
}

// keep renews the Lease until ctx ends or the Lease is lost.
func (l *lease) keep(ctx context.Context) {
	tick := time.NewTicker(l.duration / renewals)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !l.renew(ctx) {
			return
		}
	}
}

// renew reports whether the Lease can still be ours.
func (l *lease) renew(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, l.duration/renewals)
	defer cancel()
	l.mu.Lock()
	object := l.object.DeepCopy()
	l.mu.Unlock()

	began := time.Now()
	now := metav1.NewMicroTime(began)
	object.Spec.RenewTime = &now
	written, err := l.api().Update(ctx, object, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		// Somebody labelled it, or our own last answer was lost on its way.
		if written, err = l.api().Get(ctx, l.name, metav1.GetOptions{}); err == nil && holderOf(written) == l.holder {
			written.Spec.RenewTime = &now
			written, err = l.api().Update(ctx, written, metav1.UpdateOptions{})
		}
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil && holderOf(written) != l.holder:
		l.lost = fmt.Errorf("%w: %s is held by %q now", audit.ErrLostLock, l, holderOf(written))
	case err == nil:
		// Counted from before the request: the API server may have been slow.
		l.object, l.renewed = written, began
	case apierrors.IsNotFound(err):
		l.lost = fmt.Errorf("%w: %s was deleted", audit.ErrLostLock, l)
	case l.overdue():
		l.lost = fmt.Errorf("%w: %s could not be renewed for %s: %w", audit.ErrLostLock, l, l.duration, err)
	}
	return l.lost == nil
}

func (l *lease) overdue() bool { return time.Since(l.renewed) >= l.duration }

// check fails unless the Lease is ours, by what we know and by what the API
// server says now.
func (l *lease) check(ctx context.Context) error {
	l.mu.Lock()
	held, lost, overdue := l.object != nil, l.lost, l.overdue()
	l.mu.Unlock()
	switch {
	case !held:
		return errNotLocked
	case lost != nil:
		return lost
	case overdue:
		return fmt.Errorf("%w: %s could not be renewed for %s", audit.ErrLostLock, l, l.duration)
	}
	object, err := l.api().Get(ctx, l.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w: %s was deleted", audit.ErrLostLock, l)
	case err != nil:
		return explain("read the", l, err)
	case holderOf(object) != l.holder:
		return fmt.Errorf("%w: %s is held by %q now", audit.ErrLostLock, l, holderOf(object))
	}
	return nil
}

// release gives the Lease back, so that the next run need not wait. Where that
// fails it ends by itself.
func (l *lease) release(ctx context.Context) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost == nil {
		ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
		defer cancel()
		object := l.object.DeepCopy()
		object.Spec.HolderIdentity = nil
		_, _ = l.api().Update(ctx, object, metav1.UpdateOptions{})
	}
	l.object = nil
}

func (l *lease) api() leaseAPI { return l.client.CoordinationV1().Leases(l.namespace) }

// leaseAPI is what is needed of client-go's LeaseInterface.
type leaseAPI interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error)
	Create(ctx context.Context, l *coordinationv1.Lease, o metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, l *coordinationv1.Lease, o metav1.UpdateOptions) (*coordinationv1.Lease, error)
}
