package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"ipamaudit/test/bed"
)

// realNode is the node of Kubestage that TestNode runs: the owner of the blocks
// that others borrow from.
const realNode = "kubestage1001"

// TestNode tells the story with nothing played on the owner of the blocks: a
// kubelet, containerd and runc run its pods, and the kernel has its routes.
func TestNode(t *testing.T) {
	needs(t, "run", "explain", "agent")
	bed.NeedsNode(t)
	c := bed.New(t, bed.Options{Name: "kubestage", Calico: bed.CalicoV1, Node: realNode})
	if err := c.Load(t.Context(), bed.Kubestage(bed.CalicoV1)); err != nil {
		t.Fatal(err)
	}
	kube, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		t.Fatal(err)
	}
	pods, err := kube.CoreV1().Pods("lab").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	n := &storyNode{Node: c.StartNode(t), owned: map[string]bool{}}
	t.Logf("a node with real pods after %s", time.Since(start).Round(time.Millisecond))
	for _, block := range []string{"10.64.75.0/26", "10.64.75.64/26"} {
		n.Namespace.IP(t, "route add blackhole "+block+" proto bird")
		for _, pod := range pods.Items {
			if netip.MustParsePrefix(block).Contains(netip.MustParseAddr(pod.Status.PodIP)) {
				n.owned[pod.Status.PodIP] = pod.Spec.NodeName == realNode
			}
		}
	}

	t.Run("exec", func(t *testing.T) {
		rules := only[rbacv1.ClusterRole](t, render(t, "deploy/kustomize"), "ClusterRole").Rules
		account, err := c.ServiceAccount(t.Context(), "laptop", "root", append(slices.Clone(rules), rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/exec"}, Verbs: []string{"create", "get"}}))
		if err != nil {
			t.Fatal(err)
		}
		n.tell(t, c, account, "exec", "{exec: {enabled: true}}")
	})
}

// storyNode is the real node of the story.
type storyNode struct {
	*bed.Node
	owned map[string]bool // the addresses of pods in its blocks, false for those that others borrow
}

// dropped are the addresses that the kernel drops packets for.
func (n *storyNode) dropped(t *testing.T) []string {
	t.Helper()
	var out []string
	for ip := range n.owned {
		if _, err := n.Namespace.TryIP(t.Context(), "route get "+ip); err != nil {
			if !strings.Contains(err.Error(), "Invalid argument") { // what a blackhole answers
				t.Fatal(err)
			}
			out = append(out, ip)
		}
	}
	slices.Sort(out)
	return out
}

// tell audits while routes come and go: at each step the audit must say of each
// pod's address what the kernel does with it.
func (n *storyNode) tell(t *testing.T, c *bed.Cluster, account *rest.Config, source, routes string) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "config.yaml")
	text := fmt.Sprintf("clusters:\n  - name: kubestage\n    kubeconfig: %s\n    routes: %s\n", kubeconfig(t, c.ContextAs(account)), routes)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const own, foreign = "10.64.75.4", "10.64.75.70"
	veth := n.Namespace.IP(t, "route show "+own)
	if !strings.Contains(veth, " dev cali") {
		t.Fatalf("the route to a pod of its own is %q", veth)
	}
	var borrowed []string
	for ip, owned := range n.owned {
		if !owned {
			borrowed = append(borrowed, ip)
		}
	}
	via := " via " + n.Namespace.Outside.String() + " proto bird"
	for _, step := range []struct {
		name    string
		routes  func()
		dropped []string
	}{
		{"what others borrow has no route", func() {}, slices.Sorted(slices.Values(borrowed))},
		{"each has one", func() {
			for _, ip := range borrowed {
				n.Namespace.IP(t, "route add "+ip+"/32"+via)
			}
		}, nil},
		{"one has none", func() { n.Namespace.IP(t, "route del "+foreign+"/32") }, []string{foreign}},
		{"nor has a pod of its own", func() { n.Namespace.IP(t, "route del "+own+"/32") }, []string{own, foreign}},
	} {
		step.routes()
		if kernel := n.dropped(t); !slices.Equal(kernel, step.dropped) {
			t.Fatalf("%s: the kernel drops %q, want %q", step.name, kernel, step.dropped)
		}
		n.wantDropped(t, step.name, config, source, step.dropped)
		for _, ip := range []string{own, foreign} {
			if drops, want := n.explainedAsDropped(t, config, ip), slices.Contains(step.dropped, ip); drops != want {
				t.Errorf("%s: explain %s says that it is dropped: %v, the kernel: %v", step.name, ip, drops, want)
			}
		}
	}
	n.Namespace.IP(t, "route add "+strings.Join(strings.Fields(veth), " "))
	for _, ip := range borrowed {
		_, err := n.Namespace.TryIP(t.Context(), "route del "+ip+"/32"+via)
		if err != nil && ip != foreign {
			t.Error(err)
		}
	}
}

func (n *storyNode) wantDropped(t *testing.T, step, config, source string, want []string) {
	t.Helper()
	got, _ := auditOne(t, "--config", config, "--check", "blackholed-routes")
	if got.Coverage.Routes.Source != source || got.Coverage.Routes.Nodes != 1 {
		t.Fatalf("%s: routes %+v", step, got.Coverage.Routes)
	}
	var dropped []string
	for _, f := range got.Findings {
		if f.Subject.Name != realNode || f.Severity != "critical" {
			t.Errorf("%s: %s %s/%s: %s", step, f.Severity, f.Subject.Kind, f.Subject.Name, f.Title)
		}
		for _, o := range f.Affected {
			dropped = append(dropped, o.Name)
		}
	}
	slices.Sort(dropped)
	if !slices.Equal(dropped, want) {
		t.Errorf("%s: the audit says that %q are dropped, the kernel drops %q", step, dropped, want)
	}
}

func (n *storyNode) explainedAsDropped(t *testing.T, config, ip string) bool {
	t.Helper()
	s, _ := explained(t, "--config", config, ip)
	for _, hops := range s.Address.Path.Hops {
		if slices.Contains(hops.Nodes, realNode) {
			return hops.Outcome == "drops" && strings.HasPrefix(hops.Route, "blackhole ")
		}
	}
	t.Fatalf("explain %s knows no way from %s: %+v", ip, realNode, s.Address.Path)
	return false
}
