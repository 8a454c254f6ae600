package state

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	authv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"ipamaudit/audit"
)

const (
	plainKey = "state.json"
	gzipKey  = "state.json.gz"

	// plainLimit is where the state is compressed: people can no longer read
	// that much anyway.
	plainLimit = 700 << 10
	// sizeLimit is what the API server accepts in one ConfigMap (core/v1:
	// MaxSecretSize), warnLimit where people should hear that it comes near.
	sizeLimit = corev1.MaxSecretSize
	warnLimit = sizeLimit * 3 / 4
	// inflateLimit is far above what fits into sizeLimit when compressed: more is
	// no state of ours.
	inflateLimit = 256 << 20

	// saveAttempts bounds the retries after somebody else changed labels or
	// annotations of the ConfigMap.
	saveAttempts = 5
)

// ConfigMap keeps the state in a ConfigMap, and a Lease of the same name keeps
// other runs from writing. It needs get, create and update on both, in their
// namespace. It implements audit.Store.
type ConfigMap struct {
	client          kubernetes.Interface
	namespace, name string
	warn            func(string)
	lease           *lease

	mu sync.Mutex
	// object is as it was last read or written, nil before that; its
	// resourceVersion is empty where there is none yet.
	object *corev1.ConfigMap
	// warned is the compressed size, in bytes, that people have heard of.
	warned int
}

var _ audit.Store = (*ConfigMap)(nil)

// ConfigMapOptions are the settings of a ConfigMap that may be left out.
type ConfigMapOptions struct {
	// Holder names this run in the Lease; the default is the host name (a pod's
	// is the pod's) and something random.
	Holder string
	// LeaseDuration is how long a run that no longer renews its Lease keeps
	// others from writing; DefaultLeaseDuration by default.
	LeaseDuration time.Duration
	// Warn hears what people should know, a state that grows too large; nil
	// means nobody listens.
	Warn func(string)
}

// NewConfigMap returns the store for the ConfigMap, which is made when it is
// needed.
func NewConfigMap(client kubernetes.Interface, namespace, name string, o ConfigMapOptions) *ConfigMap {
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	return &ConfigMap{
		client: client, namespace: namespace, name: name, warn: o.Warn,
		lease: newLease(client, namespace, name, cmp.Or(o.Holder, defaultHolder()), cmp.Or(o.LeaseDuration, DefaultLeaseDuration)),
	}
}

// String is "ConfigMap NAMESPACE/NAME".
func (c *ConfigMap) String() string { return fmt.Sprintf("ConfigMap %s/%s", c.namespace, c.name) }

func (c *ConfigMap) place() place {
	get := fmt.Sprintf("kubectl -n %s get configmap %s -o yaml", c.namespace, c.name)
	return place{
		where:  c.String(),
		advice: fmt.Sprintf("To go on without it, keep a copy (%s) and delete it. %s", get, startAfresh),
	}
}

// Access is what the account of a run must be allowed for this.
func (c *ConfigMap) Access() []authv1.ResourceAttributes {
	var out []authv1.ResourceAttributes
	for _, verb := range []string{"get", "create", "update"} {
		name := c.name
		if verb == "create" {
			name = "" // RBAC cannot limit it to a name
		}
		out = append(out,
			authv1.ResourceAttributes{Verb: verb, Resource: "configmaps", Namespace: c.namespace, Name: name},
			authv1.ResourceAttributes{Verb: verb, Group: "coordination.k8s.io", Resource: "leases", Namespace: c.namespace, Name: name})
	}
	return out
}

// Client is the client of the cluster that holds it.
func (c *ConfigMap) Client() kubernetes.Interface { return c.client }

// Lock takes the Lease. While another run holds it Lock watches until that run
// renews, which means that it lives (ErrLocked), or has not renewed for the
// Lease's duration, which means that it is gone: then the Lease is taken over.
func (c *ConfigMap) Lock(ctx context.Context) (unlock func(), err error) {
	return c.lease.lock(ctx)
}

// Load returns what is stored; an empty state where there is no ConfigMap, or
// one without data.
func (c *ConfigMap) Load(ctx context.Context) (*audit.State, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.load(ctx)
}

func (c *ConfigMap) load(ctx context.Context) (*audit.State, error) {
	object, err := c.get(ctx)
	if err != nil {
		return nil, err
	}
	data, err := payload(object)
	if err != nil {
		return nil, &DamagedError{Where: c.String(), Advice: c.place().advice, Err: err}
	}
	state := audit.NewState()
	if data != nil {
		if state, err = decode(data, c.place()); err != nil {
			return nil, err
		}
	}
	c.object = object
	return state, nil
}

// Save writes the state, provided that the Lease is still ours and nobody else
// has written since we read or wrote last: otherwise it fails with ErrLostLock.
func (c *ConfigMap) Save(ctx context.Context, s *audit.State) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	data, err := encode(s)
	if err != nil {
		return err
	}
	if c.object == nil {
		// What cannot be read is somebody's only copy.
		if _, err := c.load(ctx); err != nil {
			return err
		}
	}
	next := c.object.DeepCopy()
	if err := c.pack(next, data); err != nil {
		return err
	}
	for range saveAttempts {
		if err := c.lease.check(ctx); err != nil {
			return fmt.Errorf("save the state in %s: %w", c, err)
		}
		written, err := c.write(ctx, next)
		if err == nil {
			c.object = written
			return nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
			return explain("save the state in", c, err)
		}
		// Labels and annotations are anybody's; the data is only ours.
		current, err := c.get(ctx)
		if err != nil {
			return err
		}
		if !samePayload(current, c.object) {
			return fmt.Errorf("save the state in %s: %w: somebody else has written or deleted it meanwhile", c, audit.ErrLostLock)
		}
		current.Data, current.BinaryData = next.Data, next.BinaryData
		next = current
	}
	return fmt.Errorf("save the state in %s: somebody keeps changing it, %d attempts failed", c, saveAttempts)
}

func (c *ConfigMap) get(ctx context.Context) (*corev1.ConfigMap, error) {
	object, err := c.client.CoreV1().ConfigMaps(c.namespace).Get(ctx, c.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: c.namespace, Name: c.name,
			Labels: map[string]string{"app.kubernetes.io/name": "ipamaudit", "app.kubernetes.io/component": "state"},
		}}, nil
	}
	if err != nil {
		return nil, explain("read the state in", c, err)
	}
	return object, nil
}

func (c *ConfigMap) write(ctx context.Context, object *corev1.ConfigMap) (*corev1.ConfigMap, error) {
	api := c.client.CoreV1().ConfigMaps(c.namespace)
	if object.ResourceVersion == "" {
		return api.Create(ctx, object, metav1.CreateOptions{})
	}
	return api.Update(ctx, object, metav1.UpdateOptions{})
}

// pack puts data into the object, compressed where it is large.
func (c *ConfigMap) pack(object *corev1.ConfigMap, data []byte) error {
	object.Data, object.BinaryData = nil, nil
	if len(data) <= plainLimit {
		object.Data = map[string]string{plainKey: string(data)}
		return nil
	}
	packed, err := compress(data)
	if err != nil {
		return fmt.Errorf("compress the state: %w", err)
	}
	const instead = "Keep the state in a file on a volume (state.file), or split the fleet over several configurations with a ConfigMap each"
	size := len(packed)
	if size > sizeLimit {
		return fmt.Errorf("the state has grown to %s (compressed %s), more than a ConfigMap may hold (%s): it was not saved, %s still has the one before. %s",
			kib(len(data)), kib(size), kib(sizeLimit), c, instead)
	}
	// A run saves many times: once is enough, and once more when it gets serious.
	if c.warned == 0 || c.warned <= warnLimit && size > warnLimit {
		c.warned = size
		text := fmt.Sprintf("the state in %s has grown to %s and is kept compressed: %s of at most %s", c, kib(len(data)), kib(size), kib(sizeLimit))
		if size > warnLimit {
			text += "; beyond that it cannot be saved. " + instead
		}
		c.warn(text)
	}
	object.BinaryData = map[string][]byte{gzipKey: packed}
	return nil
}

// payload returns the JSON in the object, nil where there is none.
func payload(object *corev1.ConfigMap) ([]byte, error) {
	plain, isPlain := object.Data[plainKey]
	packed, isPacked := object.BinaryData[gzipKey]
	switch {
	case isPlain && isPacked:
		return nil, fmt.Errorf("it has both %s and %s, which no run writes", plainKey, gzipKey)
	case isPlain:
		return []byte(plain), nil
	case isPacked:
		data, err := inflate(packed)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", gzipKey, err)
		}
		return data, nil
	default:
		return nil, nil
	}
}

func samePayload(a, b *corev1.ConfigMap) bool {
	return a.Data[plainKey] == b.Data[plainKey] && bytes.Equal(a.BinaryData[gzipKey], b.BinaryData[gzipKey])
}

func compress(data []byte) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(data); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func inflate(packed []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(z, inflateLimit+1))
	if err != nil {
		return nil, err
	}
	if len(data) > inflateLimit {
		return nil, errors.New("it inflates to more than any state has")
	}
	return data, z.Close()
}

// explain adds to an API error what people can do about it.
func explain(doing string, where fmt.Stringer, err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%s %s: %w: the auditor's Role must allow get, create and update of configmaps and of leases.coordination.k8s.io there", doing, where, err)
	}
	return fmt.Errorf("%s %s: %w", doing, where, err)
}

func kib(n int) string { return fmt.Sprintf("%d KiB", (n+1023)/1024) }
