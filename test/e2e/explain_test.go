package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"ipamaudit/test/bed"
)

// story is the part of an answer of `explain -o json` that these tests look at.
type story struct {
	Subject    object
	Verdict    struct{ Status, Text string }
	Findings   []struct{ Check string }
	Unknown    []string
	Incomplete bool
	Address    struct {
		Path struct {
			Hops []struct {
				Outcome, Route string
				Nodes          []string
			}
		}
	}
}

// explained runs explain; there is no story where nobody knows the subject.
func explained(t *testing.T, args ...string) (s story, res result) {
	t.Helper()
	res = ipamaudit(t, append([]string{"explain", "-o", "json"}, args...)...)
	var answer struct{ Stories []story }
	if res.stdout != "" {
		if err := json.Unmarshal([]byte(res.stdout), &answer); err != nil {
			t.Fatalf("explain %q: %v\n%s", args, err, res.stdout)
		}
	}
	if len(answer.Stories) > 0 {
		s = answer.Stories[0]
	}
	return s, res
}

// TestExplainLive asks a real API server about a subject of each kind: with
// every right, and with one missing.
func TestExplainLive(t *testing.T) {
	needs(t, "explain")
	c := bed.New(t, bed.Options{Name: "kubestage", Calico: bed.CalicoV1})
	if err := c.Load(t.Context(), bed.Kubestage(bed.CalicoV1)); err != nil {
		t.Fatal(err)
	}
	all := []string{"ipamblocks", "blockaffinities", "ipamhandles", "ipamconfigs", "ippools", "ipreservations", "clusterinformations", "bgpconfigurations",
		"bgppeers", "bgpfilters", "felixconfigurations", "kubecontrollersconfigurations", "nodes", "pods", "namespaces", "services", "events", "deployments", "daemonsets"}
	without := func(name string) string {
		rule := rbacv1.PolicyRule{APIGroups: []string{"*"}, Verbs: []string{"get", "list"}, Resources: slices.DeleteFunc(slices.Clone(all), func(r string) bool { return r == name })}
		account, err := c.ServiceAccount(t.Context(), "curious", "without-"+name, []rbacv1.PolicyRule{rule})
		if err != nil {
			t.Fatal(err)
		}
		return kubeconfig(t, c.ContextAs(account))
	}
	full, noPods, noPools := kubeconfig(t, c.Context()), without("pods"), without("ippools")
	for _, tc := range []struct {
		ask, kind, name string
		findings        []string
		says            string
	}{
		{"10.64.75.0", "IP", "10.64.75.0", []string{"borrowed-ips"}, "kubestage1003"},
		{"lab/kubestage1003-app-10-64-75-0", "Pod", "kubestage1003-app-10-64-75-0", []string{"borrowed-ips"}, "10.64.75.0"},
		{"kubestage1003", "Node", "kubestage1003", []string{"blockless-nodes", "borrowed-ips"}, "no block"},
		{"10.64.75.0/26", "IPAMBlock", "10.64.75.0/26", []string{"multi-block-nodes"}, "kubestage1001"},
		{"pool/kubestage-pods", "IPPool", "kubestage-pods", []string{"pool-utilisation"}, ""},
	} {
		t.Run(tc.kind, func(t *testing.T) {
			s, res := explained(t, tc.ask, "--kubeconfig", full)
			res.wantCode(t, 0)
			if s.Subject.Kind != tc.kind || s.Subject.Name != tc.name || s.Verdict.Status != "problem" || s.Incomplete || !strings.Contains(res.stdout, tc.says) {
				t.Errorf("%+v", s)
			}
			for _, check := range tc.findings {
				if !slices.ContainsFunc(s.Findings, func(f struct{ Check string }) bool { return f.Check == check }) {
					t.Errorf("the story does not tell what %s found: %+v", check, s.Findings)
				}
			}
			for missing, config := range map[string]string{"pods": noPods, "ippools": noPools} {
				s, res := explained(t, tc.ask, "--kubeconfig", config)
				res.wantCode(t, 3)
				if s.Subject.Name == "" { // the subject itself is what was not read
					if !strings.Contains(res.stderr, missing) {
						t.Errorf("without %s: %s", missing, res.stderr)
					}
					continue
				}
				if !s.Incomplete || !strings.Contains(strings.Join(s.Unknown, "\n"), missing) || s.Verdict.Status == "ok" {
					t.Errorf("without %s: %+v", missing, s)
				}
			}
		})
	}
	t.Run("nobody", func(t *testing.T) {
		_, res := explained(t, "node/kubestage9999", "--kubeconfig", full)
		res.wantCode(t, 2)
	})
}

// TestExplainChurn asks about pods and addresses of a healthy cluster in which
// everything comes and goes: no story tells of a problem that is none.
func TestExplainChurn(t *testing.T) {
	needs(t, "explain")
	c := bed.New(t, bed.Options{Name: "churn", Calico: bed.CalicoV1})
	churn, err := c.StartChurn(t.Context(), 8, 30)
	if err != nil {
		t.Fatal(err)
	}
	kube, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		t.Fatal(err)
	}
	config, drifting := kubeconfig(t, c.Context()), settings(t, "pageSize: 10, qps: 80, burst: 5")
	moved := 0
	for i := range 8 {
		pods, err := kube.CoreV1().Pods("lab").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pod := pods.Items[i*len(pods.Items)/8]
		asks := []string{"lab/" + pod.Name, "node/" + pod.Spec.NodeName}
		if pod.Status.PodIP != "" {
			asks = append(asks, pod.Status.PodIP)
		}
		ask := asks[i%len(asks)]
		s, res := explained(t, ask, "--kubeconfig", config, "--config", drifting)
		if s.Verdict.Status == "problem" {
			t.Errorf("%s: %s; %+v, not seen: %q", ask, s.Verdict.Text, s.Findings, s.Unknown)
		}
		if s.Incomplete {
			moved++
		}
		t.Logf("%s: %s (exit code %d): %s", ask, s.Verdict.Status, res.code, s.Verdict.Text)
	}
	t.Logf("%d of 8 were in motion", moved)
	if err := churn.Stop(); err != nil {
		t.Fatalf("the churn itself failed: %v", err)
	}
}
