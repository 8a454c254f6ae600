package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"

	"ipamaudit/test/bed"
	"ipamaudit/test/world"
)

// TestEvictionHonoursBudgets pastes the step that recreates running pods while a
// PodDisruptionBudget forbids it: nothing happens. When it allows one, one goes.
func TestEvictionHonoursBudgets(t *testing.T) {
	needs(t, "run")
	kubectl := pasteWith(t)
	p := plan{check: "misbooked-ips", fixture: "bad"}
	objects, asOf := p.objects(t)
	s := &session{plan: p, dir: t.TempDir(), ran: map[string]int{}, bench: &bench{kubectl: kubectl, tools: newTools(t), cluster: bed.New(t, bed.Options{}), api: bed.CalicoV1}}
	for _, o := range objects {
		if o.GetKind() == "Pod" && o.GetNamespace() == "pipeline" {
			o.SetLabels(map[string]string{"app": "ingest"})
			// A budget protects pods that are ready.
			if err := unstructured.SetNestedSlice(o.Object, []any{map[string]any{"type": "Ready", "status": "True"}}, "status", "conditions"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.cluster.Replay(t.Context(), objects, asOf); err != nil {
		t.Fatal(err)
	}
	s.kubeconfig = kubeconfig(t, s.cluster.Context())
	var err error
	if s.world, err = world.New(t.Context(), s.cluster.Admin(), string(s.api)); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	played := make(chan error, 1)
	go func() { played <- s.world.Run(ctx) }()
	defer func() {
		stop()
		if err := <-played; err != nil {
			t.Errorf("the world: %v", err)
		}
	}()
	client, err := kubernetes.NewForConfig(s.cluster.Admin())
	if err != nil {
		t.Fatal(err)
	}
	uids := func() []string {
		pods, err := client.CoreV1().Pods("pipeline").List(t.Context(), metav1.ListOptions{LabelSelector: "app=ingest"})
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, p := range pods.Items {
			out = append(out, string(p.UID))
		}
		return out
	}
	budgets := client.PolicyV1().PodDisruptionBudgets("pipeline")
	all := intstr.FromString("100%")
	budget, err := budgets.Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "ingest"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &all, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "ingest"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	finding := s.audit(t).of(p.check)[0]
	i := slices.IndexFunc(finding.Remediation, func(step remedyStep) bool { return strings.HasPrefix(step.Title, "Recreate the pods") })
	if i < 0 {
		t.Fatalf("no step recreates the pods: %+v", finding.Remediation)
	}
	was := uids()
	if len(was) < 2 {
		t.Fatalf("%d pods, want several", len(was))
	}
	for _, allowed := range []int32{0, 1} {
		// The disruption controller's part; the API server counts down by itself.
		budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: budget.Generation, DisruptionsAllowed: allowed, CurrentHealthy: int32(len(was)), DesiredHealthy: int32(len(was)) - allowed, ExpectedPods: int32(len(was))}
		if budget, err = budgets.UpdateStatus(t.Context(), budget, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		s.refused = len(was) - int(allowed)
		s.paste(t, finding, finding.Remediation[i], false)
		gone := 0
		for _, uid := range was {
			if !slices.Contains(uids(), uid) {
				gone++
			}
		}
		if gone != int(allowed) || s.refused != 0 {
			t.Errorf("%d disruptions allowed: %d pods were evicted, %d refusals are missing", allowed, gone, s.refused)
		}
	}
}
