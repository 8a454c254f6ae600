package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"ipamaudit/test/bed"
)

// kustomizations are the directories that users apply or copy.
var kustomizations = []string{"deploy/kustomize", "deploy/examples/hub", "deploy/examples/host-network"}

// TestManifests has a real API server judge what `kubectl apply -k` would send:
// unknown fields, validation, and Pod Security for the pods that the CronJob
// makes (for the template alone the API server only warns).
func TestManifests(t *testing.T) {
	requireDir(t, "deploy/kustomize")
	c := bed.New(t, bed.Options{Calico: bed.NoCalico})
	for _, dir := range kustomizations {
		t.Run(dir, func(t *testing.T) {
			requireDir(t, dir)
			objects := render(t, dir)
			// A dry run creates nothing, so what goes into the namespace would miss it.
			for _, o := range objects {
				if o.GetKind() == "Namespace" {
					if err := c.Apply(t.Context(), false, o); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := c.Apply(t.Context(), true, objects...); err != nil {
				t.Error(err)
			}
			cron := only[batchv1.CronJob](t, objects, "CronJob")
			pod := &corev1.Pod{ObjectMeta: cron.Spec.JobTemplate.Spec.Template.ObjectMeta, Spec: cron.Spec.JobTemplate.Spec.Template.Spec}
			pod.Name = "first-look"
			client, err := kubernetes.NewForConfig(c.Admin())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.CoreV1().Pods(cron.Namespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
				t.Errorf("the CronJob's pod: %v", err)
			}
		})
	}
}

func requireDir(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(root, dir)); err != nil {
		t.Skipf("%s does not exist yet", dir)
	}
}

// render does what `kubectl kustomize` does.
func render(t *testing.T, dir string) []*unstructured.Unstructured {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(root, dir))
	if err != nil {
		t.Fatalf("kustomize %s: %v", dir, err)
	}
	var out []*unstructured.Unstructured
	for _, r := range resources.Resources() {
		fields, err := r.Map()
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(data); err != nil {
			t.Fatal(err)
		}
		out = append(out, o)
	}
	return out
}

// only decodes the single object of a kind.
func only[T any](t *testing.T, objects []*unstructured.Unstructured, kind string) *T {
	t.Helper()
	var found []*T
	for _, o := range objects {
		if o.GetKind() != kind {
			continue
		}
		into := new(T)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, into, true); err != nil {
			t.Fatalf("%s %s: %v", kind, o.GetName(), err)
		}
		found = append(found, into)
	}
	if len(found) != 1 {
		t.Fatalf("%d objects of kind %s, want 1", len(found), kind)
	}
	return found[0]
}

// shippedAccount installs deploy/kustomize and returns the client configuration
// of the ServiceAccount that its CronJob runs as, once its rights are in force.
func shippedAccount(t *testing.T, c *bed.Cluster) *rest.Config {
	t.Helper()
	requireDir(t, "deploy/kustomize")
	objects := render(t, "deploy/kustomize")
	if err := c.Apply(t.Context(), false, objects...); err != nil {
		t.Fatal(err)
	}
	cron := only[batchv1.CronJob](t, objects, "CronJob")
	token, err := c.Token(t.Context(), cron.Namespace, cron.Spec.JobTemplate.Spec.Template.Spec.ServiceAccountName, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	account := c.As(token)
	if err := c.WaitAllowed(t.Context(), account, only[rbacv1.ClusterRole](t, objects, "ClusterRole").Rules); err != nil {
		t.Fatal(err)
	}
	return account
}

// without returns the rules without a resource, in whatever group it is.
func without(rules []rbacv1.PolicyRule, resources ...string) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for _, rule := range rules {
		rule := *rule.DeepCopy()
		rule.Resources = slices.DeleteFunc(rule.Resources, func(r string) bool { return slices.Contains(resources, r) })
		if len(rule.Resources) > 0 {
			out = append(out, rule)
		}
	}
	return out
}
