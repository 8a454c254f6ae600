package bed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/util/retry"

	"golang.org/x/sync/errgroup"
)

// loadConcurrency is the number of objects on their way at once. More does not
// make a kube-apiserver on two cores faster.
const loadConcurrency = 32

// LoadDir loads a saved snapshot, see Load and ReadDir.
func (c *Cluster) LoadDir(ctx context.Context, dir string) error {
	objects, err := ReadDir(dir)
	if err != nil {
		return err
	}
	return c.Load(ctx, objects)
}

// Load creates the objects with their status: namespaces first (those that are
// only mentioned, too), then nodes, then everything else. An object that
// carries a deletion timestamp is deleted and held by a finalizer, so that it
// is seen as terminating.
//
// What the API server alone decides is not kept: UIDs, resource versions and
// creation timestamps. Every loaded object is as old as the load, whatever the
// snapshot said; ages that Calico writes into its own objects (allocation and
// claim times) are kept, as are all other fields.
//
// All objects are tried; the error lists those that the API server refused.
// Namespaces that exist already are left as they are.
func (c *Cluster) Load(ctx context.Context, objects []*unstructured.Unstructured) error {
	l, err := c.newLoader()
	if err != nil {
		return fmt.Errorf("load into %s: %w", c.Name, err)
	}
	var waves [3][]*unstructured.Unstructured // namespaces, nodes, the rest
	waves[0] = namespacesOf(objects)
	for _, o := range objects {
		switch o.GroupVersionKind().GroupKind() {
		case schema.GroupKind{Kind: "Namespace"}:
		case schema.GroupKind{Kind: "Node"}:
			waves[1] = append(waves[1], o)
		default:
			waves[2] = append(waves[2], o)
		}
	}
	var failed []error
	for i, wave := range waves {
		failed = append(failed, l.createAll(ctx, wave)...)
		if i == 0 && len(c.managers) > 0 {
			if err := c.waitServiceAccounts(ctx, wave); err != nil {
				return fmt.Errorf("load into %s: %w", c.Name, err)
			}
		}
	}
	if len(failed) > 0 {
		const show = 20
		err := fmt.Errorf("load into %s: %d of %d objects refused", c.Name, len(failed), len(objects))
		return errors.Join(append([]error{err}, failed[:min(show, len(failed))]...)...)
	}
	return nil
}

// namespacesOf returns a Namespace for each namespace that objects define or are in.
func namespacesOf(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	byName := map[string]*unstructured.Unstructured{}
	for _, o := range objects {
		name := o.GetNamespace()
		if name == "" || byName[name] != nil {
			continue
		}
		ns := &unstructured.Unstructured{}
		ns.SetAPIVersion("v1")
		ns.SetKind("Namespace")
		ns.SetName(name)
		byName[name] = ns
	}
	for _, o := range objects {
		if o.GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "Namespace"}) {
			byName[o.GetName()] = o
		}
	}
	return slices.Collect(maps.Values(byName))
}

type loader struct {
	client    dynamic.Interface
	mapper    meta.RESTMapper
	hasStatus map[schema.GroupVersionResource]bool
}

func (c *Cluster) newLoader() (*loader, error) {
	client, err := dynamic.NewForConfig(c.Admin())
	if err != nil {
		return nil, err
	}
	disco, err := discovery.NewDiscoveryClientForConfig(c.Admin())
	if err != nil {
		return nil, err
	}
	groups, err := restmapper.GetAPIGroupResources(disco)
	if err != nil {
		return nil, err
	}
	l := &loader{client: client, mapper: restmapper.NewDiscoveryRESTMapper(groups), hasStatus: map[schema.GroupVersionResource]bool{}}
	for _, group := range groups {
		for version, resources := range group.VersionedResources {
			gv := schema.GroupVersion{Group: group.Group.Name, Version: version}
			for _, r := range resources {
				if resource, ok := strings.CutSuffix(r.Name, "/status"); ok {
					l.hasStatus[gv.WithResource(resource)] = true
				}
			}
		}
	}
	return l, nil
}

func (l *loader) createAll(ctx context.Context, objects []*unstructured.Unstructured) []error {
	var (
		mu     sync.Mutex
		failed []error
		limit  errgroup.Group
	)
	limit.SetLimit(loadConcurrency)
	for _, o := range objects {
		limit.Go(func() error {
			if err := l.create(ctx, o); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, fmt.Errorf("%s %s: %w", o.GetKind(), objectName(o), err))
			}
			return nil // one refused object does not keep the others out
		})
	}
	_ = limit.Wait()
	slices.SortFunc(failed, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return failed
}

// resource returns the client for an object's kind and namespace.
func (l *loader) resource(o *unstructured.Unstructured) (dynamic.ResourceInterface, schema.GroupVersionResource, error) {
	gvk := o.GroupVersionKind()
	mapping, err := l.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, schema.GroupVersionResource{}, fmt.Errorf("not served here (is Options.Calico the API that the objects are written in?): %w", err)
	}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		return l.client.Resource(mapping.Resource).Namespace(o.GetNamespace()), mapping.Resource, nil
	}
	return l.client.Resource(mapping.Resource), mapping.Resource, nil
}

func (l *loader) create(ctx context.Context, o *unstructured.Unstructured) error {
	client, gvr, err := l.resource(o)
	if err != nil {
		return err
	}
	terminating := o.GetDeletionTimestamp() != nil && gvr.Resource != "namespaces" // a terminating namespace would take no pods
	o = acceptable(o)
	created, err := client.Create(ctx, o, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) && gvr.Resource == "namespaces" {
		return nil
	}
	if err != nil {
		return err
	}
	if status, ok := o.Object["status"].(map[string]any); ok && len(status) > 0 && l.hasStatus[gvr] && gvr.Resource != "namespaces" {
		if qos, ok, _ := unstructured.NestedString(created.Object, "status", "qosClass"); ok {
			status["qosClass"] = qos // computed at creation, immutable since
		}
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			created.Object["status"] = status
			_, err := client.UpdateStatus(ctx, created, metav1.UpdateOptions{})
			if apierrors.IsConflict(err) { // a controller was quicker
				if now, failed := client.Get(ctx, o.GetName(), metav1.GetOptions{}); failed == nil {
					created = now
				}
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("status: %w", err)
		}
	}
	if terminating {
		return client.Delete(ctx, o.GetName(), metav1.DeleteOptions{})
	}
	return nil
}

// Apply writes manifests by server-side apply, in the order in which they can
// depend on each other: namespaces first. With dryRun the API server checks
// everything (defaults, validation, admission) and keeps nothing; a namespace
// that the manifests bring along must exist already then.
func (c *Cluster) Apply(ctx context.Context, dryRun bool, objects ...*unstructured.Unstructured) error {
	l, err := c.newLoader()
	if err != nil {
		return fmt.Errorf("apply to %s: %w", c.Name, err)
	}
	options := metav1.ApplyOptions{FieldManager: "ipamaudit-bed", Force: true}
	if dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	isNamespace := func(o *unstructured.Unstructured) int {
		if o.GetKind() == "Namespace" {
			return 0
		}
		return 1
	}
	objects = slices.Clone(objects)
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return cmp.Compare(isNamespace(a), isNamespace(b)) })
	for _, o := range objects {
		client, _, err := l.resource(o)
		if err == nil {
			_, err = client.Apply(ctx, o.GetName(), o, options)
		}
		if err != nil {
			return fmt.Errorf("apply %s %s to %s: %w", o.GetKind(), objectName(o), c.Name, err)
		}
	}
	return nil
}

func objectName(o *unstructured.Unstructured) string {
	if ns := o.GetNamespace(); ns != "" {
		return ns + "/" + o.GetName()
	}
	return o.GetName()
}
