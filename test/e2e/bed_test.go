package e2e

import (
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"ipamaudit/test/bed"
)

// TestBed loads the repository's scenarios into real clusters and lists them
// back, so that a failure of the bed is not taken for one of the program.
func TestBed(t *testing.T) {
	for name, objects := range scenarios(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := bed.New(t, bed.Options{Calico: bed.CalicoAPIOf(objects)})
			if err := c.Load(t.Context(), objects); err != nil {
				t.Fatal(err)
			}
			client, err := kubernetes.NewForConfig(c.Admin())
			if err != nil {
				t.Fatal(err)
			}
			pods, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for kind, got := range map[string]int{"Pod": len(pods.Items), "Node": len(nodes.Items)} {
				want := 0
				for _, o := range objects {
					if o.GetKind() == kind {
						want++
					}
				}
				if got != want {
					t.Errorf("%d objects of kind %s listed, %d loaded", got, kind, want)
				}
			}
		})
	}
}

// scenarios are the snapshots in fixtures/scenarios, and the bed's own.
func scenarios(t *testing.T) map[string][]*unstructured.Unstructured {
	t.Helper()
	out := map[string][]*unstructured.Unstructured{"kubestage": bed.Kubestage(bed.CalicoV1)}
	dirs, err := os.ReadDir(filepath.Join(root, "fixtures", "scenarios"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		if !dir.IsDir() {
			continue
		}
		objects, err := bed.ReadDir(filepath.Join(root, "fixtures", "scenarios", dir.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[dir.Name()] = objects
	}
	return out
}
