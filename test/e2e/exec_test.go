package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"ipamaudit/test/bed"
)

// ipOutput is what `ip -j` prints on kubestage1001 in the story; of the other
// nodes one breaks, one hangs and one runs no calico-node.
func ipOutput(ctx context.Context, pod string, args []string, stdout, stderr io.Writer) int {
	switch {
	case pod == "calico-node-kubestage1002":
		fmt.Fprintln(stderr, "ip: command not found")
		return 127
	case pod == "calico-node-kubestage1003":
		<-ctx.Done()
		return 1
	case strings.Contains(strings.Join(args, " "), "rule show"):
		fmt.Fprint(stdout, `[{"priority":0,"src":"all","table":"local"},{"priority":32766,"src":"all","table":"main"},{"priority":32767,"src":"all","table":"default"}]`)
	default:
		fmt.Fprint(stdout, `[{"dst":"default","gateway":"10.64.0.1","dev":"eno1","flags":["onlink"]},`,
			`{"type":"blackhole","dst":"10.64.75.0/26","dev":"*","protocol":"bird","scope":"link","flags":[]},`,
			`{"dst":"10.64.75.1","dev":"cali866d7d89068","scope":"link","flags":[]}]`)
	}
	return 0
}

// TestExec reads route tables by `ip` in calico-node pods: a real API server,
// the kubelet's own code for streams, and no container. Over WebSockets, and over
// SPDY where something on the way does not let them pass.
func TestExec(t *testing.T) {
	needs(t, "run")
	c := bed.New(t, bed.Options{Name: "kubestage", Calico: bed.CalicoV1, APIServerFlags: []string{"--kubelet-preferred-address-types=ExternalIP"}})
	if err := c.Load(t.Context(), bed.Kubestage(bed.CalicoV1)); err != nil {
		t.Fatal(err)
	}
	kube, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"kubestage1001", "kubestage1002", "kubestage1003"} {
		pod, err := kube.CoreV1().Pods("kube-system").Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "calico-node-" + node, Labels: map[string]string{"k8s-app": "calico-node"}},
			Spec:       corev1.PodSpec{NodeName: node, HostNetwork: true, Containers: []corev1.Container{{Name: "calico-node", Image: "registry.invalid/node"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pod.Status.Phase = corev1.PodRunning
		if _, err := kube.CoreV1().Pods("kube-system").UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.Kubelets(t, ipOutput)
	rules := only[rbacv1.ClusterRole](t, render(t, "deploy/kustomize"), "ClusterRole").Rules
	reader, err := c.ServiceAccount(t.Context(), "laptop", "reader", rules)
	if err != nil {
		t.Fatal(err)
	}
	root, err := c.ServiceAccount(t.Context(), "laptop", "root", append(slices.Clone(rules), rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/exec"}, Verbs: []string{"create", "get"}}))
	if err != nil {
		t.Fatal(err)
	}
	run := func(t *testing.T, account *rest.Config) (cluster, result) {
		t.Helper()
		config := filepath.Join(t.TempDir(), "config.yaml")
		text := fmt.Sprintf("clusters:\n  - name: kubestage\n    kubeconfig: %s\n    routes: {exec: {enabled: true}}\n", kubeconfig(t, c.ContextAs(account)))
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return auditOne(t, "--config", config)
	}
	wantTable := func(t *testing.T, got cluster, res result) {
		t.Helper()
		res.wantCode(t, 1) // some tables are known: the others are named, and no reason for 3
		if !got.has("blackholed-routes", "kubestage1001", "critical") || got.Coverage.Routes.Source != "exec" || got.Coverage.Routes.Nodes != 1 {
			t.Errorf("routes %+v; %q", got.Coverage.Routes, got.headlines())
		}
		for _, why := range []string{"kubestage1002", "ip: command not found", "kubestage1003"} {
			if !strings.Contains(res.stdout, why) {
				t.Errorf("the report does not say %q", why)
			}
		}
	}
	t.Run("WebSocket", func(t *testing.T) {
		t.Parallel()
		got, res := run(t, root)
		wantTable(t, got, res)
	})
	t.Run("SPDY", func(t *testing.T) {
		t.Parallel()
		var sockets, spdy atomic.Int32
		front := c.Front(t, func(_ *bed.Front, w http.ResponseWriter, r *http.Request) bool {
			switch {
			case strings.EqualFold(r.Header.Get("Upgrade"), "websocket"):
				sockets.Add(1)
				http.Error(w, "what is a WebSocket?", http.StatusBadRequest)
				return true
			case strings.HasPrefix(r.Header.Get("Upgrade"), "SPDY"):
				spdy.Add(1)
			}
			return false
		})
		got, res := run(t, front.As(root.BearerToken))
		wantTable(t, got, res)
		if sockets.Load() == 0 || spdy.Load() == 0 {
			t.Errorf("%d tries over WebSocket, %d over SPDY", sockets.Load(), spdy.Load())
		}
	})
	t.Run("without the permission", func(t *testing.T) {
		t.Parallel()
		got, res := run(t, reader)
		res.wantCode(t, 3)
		if got.statuses()["blackholed-routes"] != "unknown" || !strings.Contains(res.stdout, "pods/exec") {
			t.Errorf("blackholed-routes is %s; %s", got.statuses()["blackholed-routes"], res.stderr)
		}
	})
}
