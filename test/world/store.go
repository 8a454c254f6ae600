package world

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

type object = unstructured.Unstructured

// store reads and writes the objects of one cluster, whichever of Calico's API
// groups it has.
type store struct {
	client dynamic.Interface
	calico schema.GroupVersion
}

func newStore(config *rest.Config, calico string) (*store, error) {
	gv, err := schema.ParseGroupVersion(calico)
	if err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	return &store{client: client, calico: gv}, err
}

var core = schema.GroupVersion{Version: "v1"}

// of is the client for a resource: Calico's own, or one of Kubernetes'.
func (s *store) of(resource, namespace string) dynamic.ResourceInterface {
	gvr := s.calico.WithResource(resource)
	switch resource {
	case "pods", "nodes", "namespaces", "events":
		gvr = core.WithResource(resource)
	case "deployments", "daemonsets":
		gvr = schema.GroupVersion{Group: "apps", Version: "v1"}.WithResource(resource)
	case "ipamconfigs":
		if s.calico.Version == "v3" {
			gvr = s.calico.WithResource("ipamconfigurations")
		}
	}
	if namespace != "" {
		return s.client.Resource(gvr).Namespace(namespace)
	}
	return s.client.Resource(gvr)
}

func (s *store) list(ctx context.Context, resource string) ([]object, error) {
	l, err := s.of(resource, "").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", resource, err)
	}
	return l.Items, nil
}

// singleton returns the object default, nil where there is none.
func (s *store) singleton(ctx context.Context, resource string) (*object, error) {
	o, err := s.of(resource, "").Get(ctx, "default", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // Calico's defaults
	}
	return o, err
}

func (s *store) create(ctx context.Context, resource, kind, name string, spec map[string]any) error {
	o := &object{Object: map[string]any{"apiVersion": s.calico.String(), "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec}}
	_, err := s.of(resource, "").Create(ctx, o, metav1.CreateOptions{})
	return err
}

// remove deletes an object if it is there.
func (s *store) remove(ctx context.Context, resource, name string) error {
	err := s.of(resource, "").Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func text(o *object, path ...string) string {
	s, _, _ := unstructured.NestedString(o.Object, path...)
	return s
}

func truth(o *object, path ...string) bool {
	if o == nil {
		return false
	}
	b, _, _ := unstructured.NestedBool(o.Object, path...)
	return b
}

func number(o *object, path ...string) int64 {
	n, _, _ := unstructured.NestedInt64(o.Object, path...)
	return n
}
