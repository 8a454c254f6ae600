package bed_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"ipamaudit/test/bed"
)

// readBack lists a resource and reduces the objects to what a load keeps.
func readBack(t *testing.T, c *bed.Cluster, gvr schema.GroupVersionResource) []*unstructured.Unstructured {
	t.Helper()
	client, err := dynamic.NewForConfig(c.Admin())
	if err != nil {
		t.Fatal(err)
	}
	got, err := client.Resource(gvr).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var out []*unstructured.Unstructured
	for i := range got.Items {
		out = append(out, &got.Items[i])
	}
	return out
}

func only(objects []*unstructured.Unstructured, kind string) []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool { return o.GetKind() != kind })
}

// fields maps each object's name to one of its fields, e.g. "status".
func fields(objects []*unstructured.Unstructured, path ...string) map[string]any {
	out := map[string]any{}
	for _, o := range objects {
		value, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
		out[o.GetName()] = value
	}
	return out
}

func TestLoadKeepsWhatMatters(t *testing.T) {
	core := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Version: "v1", Resource: resource}
	}
	for _, options := range []bed.Options{
		{Name: "v1 minimal", Calico: bed.CalicoV1, MinimalCRDs: true},
		{Name: "v3 minimal", Calico: bed.CalicoV3, MinimalCRDs: true},
		{Name: "v1", Calico: bed.CalicoV1},
		{Name: "v3", Calico: bed.CalicoV3},
	} {
		t.Run(options.Name, func(t *testing.T) {
			t.Parallel()
			cluster, api := bed.New(t, options), options.Calico
			objects := bed.Kubestage(api)
			if got := bed.CalicoAPIOf(objects); got != api {
				t.Fatalf("objects for %s are said to need %s", api, got)
			}
			if err := cluster.Load(t.Context(), objects); err != nil {
				t.Fatal(err)
			}
			gv, err := schema.ParseGroupVersion(string(api))
			if err != nil {
				t.Fatal(err)
			}
			for _, tc := range []struct {
				kind string
				gvr  schema.GroupVersionResource
				path []string
			}{
				{"IPAMBlock", gv.WithResource("ipamblocks"), []string{"spec"}}, // sequence numbers beyond 2^53 and null entries among them
				{"BlockAffinity", gv.WithResource("blockaffinities"), []string{"spec"}},
				{"IPAMHandle", gv.WithResource("ipamhandles"), []string{"spec"}},
				{"Node", core("nodes"), []string{"metadata", "annotations"}},
				{"Node", core("nodes"), []string{"status", "conditions"}},
				{"Node", core("nodes"), []string{"spec", "taints"}}, // none: a loaded node is not "not ready"
				{"Pod", core("pods"), []string{"spec", "nodeName"}},
				{"Pod", core("pods"), []string{"status", "podIPs"}},
				{"Pod", core("pods"), []string{"status", "phase"}},
				{"DaemonSet", schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "daemonsets"}, []string{"status"}},
				{"Deployment", schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, []string{"status", "availableReplicas"}},
			} {
				want, got := fields(only(objects, tc.kind), tc.path...), fields(readBack(t, cluster, tc.gvr), tc.path...)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s of %s (-loaded +read):\n%s", strings.Join(tc.path, "."), tc.kind, diff)
				}
				if len(want) == 0 {
					t.Errorf("the scenario has no %s", tc.kind)
				}
			}
		})
	}
}

func TestLoadTerminatingAndOddObjects(t *testing.T) {
	t.Parallel()
	cluster := bed.New(t, bed.Options{Calico: bed.NoCalico})
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(`
apiVersion: v1
kind: Pod
metadata: {name: going, namespace: shop, uid: u, resourceVersion: "7", creationTimestamp: 2026-01-01T00:00:00Z, deletionTimestamp: 2026-01-01T00:10:00Z, deletionGracePeriodSeconds: 30}
spec: {nodeName: n1, priority: 2000001000, priorityClassName: unknown-here, serviceAccountName: unknown-here}
status: {phase: Running, qosClass: Burstable, podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}]}
---
{"schema": "ipamaudit/snapshot/v1"}
---
apiVersion: v1
kind: List
items:
  - apiVersion: v1
    kind: Event
    metadata: {name: e1, namespace: shop}
    involvedObject: {kind: Pod, namespace: shop, name: going}
    reason: FailedCreatePodSandBox
    lastTimestamp: 2026-01-01T00:09:00Z
`), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := cluster.LoadDir(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	pods := readBack(t, cluster, schema.GroupVersionResource{Version: "v1", Resource: "pods"})
	if len(pods) != 1 || pods[0].GetDeletionTimestamp() == nil {
		t.Fatalf("want one terminating pod, got %v", pods)
	}
	if phase, _, _ := unstructured.NestedString(pods[0].Object, "status", "phase"); phase != "Running" {
		t.Errorf("the terminating pod is %s, want Running", phase)
	}
	if events := readBack(t, cluster, schema.GroupVersionResource{Version: "v1", Resource: "events"}); len(events) != 1 {
		t.Errorf("want one event, got %v", events)
	}

	err := cluster.Load(t.Context(), bed.Kubestage(bed.CalicoV1))
	if err == nil || !strings.Contains(err.Error(), "Options.Calico") {
		t.Errorf("Calico objects in a cluster without Calico: %v", err)
	}
}
