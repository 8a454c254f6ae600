package bed_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"ipamaudit/test/bed"
)

// list asks for the namespaces, with a bounded wait.
func list(t *testing.T, config *rest.Config, wait time.Duration) error {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	_, err = client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	return err
}

func TestClustersAreIndependent(t *testing.T) {
	t.Parallel()
	clusters := bed.Fleet(t, bed.Options{Name: "east", Calico: bed.NoCalico}, bed.Options{Name: "west", Calico: bed.NoCalico})
	east, west := clusters[0], clusters[1]

	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := bed.WriteKubeconfig(path, east.Context(), west.Context()); err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{}
	for _, name := range []string{"east", "west"} {
		config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
			&clientcmd.ClientConfigLoadingRules{ExplicitPath: path}, &clientcmd.ConfigOverrides{CurrentContext: name}).ClientConfig()
		if err != nil {
			t.Fatal(err)
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		ns, err := client.CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
		if err != nil {
			t.Fatalf("through the kubeconfig's context %s: %v", name, err)
		}
		ids[string(ns.UID)] = name
	}
	if len(ids) != 2 {
		t.Errorf("two clusters, but their identities are %v", ids)
	}
	if err := bed.WriteKubeconfig(path, east.Context(), east.Context()); err == nil {
		t.Error("a kubeconfig with two contexts of one name was written")
	}

	if err := list(t, east.As("not-a-token"), 10*time.Second); !apierrors.IsUnauthorized(err) {
		t.Errorf("with an unknown token: %v, want 401", err)
	}

	// A cluster that hangs takes connections and answers none.
	if err := east.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := list(t, east.Admin(), 300*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a paused cluster: %v, want no answer until the deadline", err)
	}
	if err := east.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := list(t, east.Admin(), 10*time.Second); err != nil {
		t.Errorf("a resumed cluster: %v", err)
	}

	// One that was killed refuses them, and leaves the other alone.
	east.Kill()
	if err := list(t, east.Admin(), 10*time.Second); !errors.Is(err, syscall.ECONNREFUSED) {
		var netErr net.Error
		t.Errorf("a killed cluster: %v (%t), want connection refused", err, errors.As(err, &netErr))
	}
	if err := list(t, west.Admin(), 10*time.Second); err != nil {
		t.Errorf("the other cluster: %v", err)
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	programs, err := bed.FindPrograms(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cluster, err := bed.Start(t.Context(), bed.Options{Programs: programs, Dir: dir, Calico: bed.NoCalico})
	if err != nil {
		t.Fatal(err)
	}
	cluster.Stop()
	cluster.Kill() // after Stop there is nothing left to do
	log, err := os.ReadFile(filepath.Join(dir, "kube-apiserver.log"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(log), "Stopped listening on") {
		t.Errorf("kube-apiserver did not end in order:\n%s", cluster.Logs(10))
	}
}

func TestStartReportsWhyItFailed(t *testing.T) {
	programs, err := bed.FindPrograms(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = bed.Start(t.Context(), bed.Options{Name: "broken", Programs: programs, APIServerFlags: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") || !strings.Contains(err.Error(), "broken") {
		t.Errorf("the error does not say what the API server did not like: %v", err)
	}
}

func TestAccess(t *testing.T) {
	t.Parallel()
	auditor := bed.User{Name: "auditor", Token: "auditors-token"}
	cluster := bed.New(t, bed.Options{Audit: true, Calico: bed.NoCalico, Users: []bed.User{auditor}})

	if err := list(t, cluster.As(auditor.Token), 10*time.Second); !apierrors.IsForbidden(err) {
		t.Errorf("a user without any right: %v, want 403", err)
	}
	account, err := cluster.ServiceAccount(t.Context(), "audit", "reader", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces", "pods/log"}, Verbs: []string{"get", "list"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := list(t, account, 10*time.Second); err != nil {
		t.Errorf("a ServiceAccount that may list namespaces: %v", err)
	}
	client, err := kubernetes.NewForConfig(account)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a ServiceAccount that may not list pods: %v, want 403", err)
	}

	requests, err := cluster.Requests("system:serviceaccount:audit:reader")
	if err != nil {
		t.Fatal(err)
	}
	var pods []bed.Request
	for _, r := range requests {
		if r.Resource == "pods" {
			pods = append(pods, r)
		}
	}
	if len(pods) != 1 || pods[0].Verb != "list" || pods[0].Code != 403 {
		t.Errorf("recorded requests for pods: %+v, want one refused list", pods)
	}
}
