package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"

	"ipamaudit/test/bed"
)

// TestLeastPrivilege runs the audit as the account that deploy/kustomize makes:
// what it may is enough and no more, and it changes nothing.
func TestLeastPrivilege(t *testing.T) {
	needs(t, "run")
	requireDir(t, "deploy/kustomize")
	c := bed.New(t, bed.Options{Name: "kubestage", Calico: bed.CalicoV1, Audit: true})
	if err := c.Load(t.Context(), bed.Kubestage(bed.CalicoV1)); err != nil {
		t.Fatal(err)
	}
	shipped := shippedAccount(t, c)
	rules := only[rbacv1.ClusterRole](t, render(t, "deploy/kustomize"), "ClusterRole").Rules
	full, res := auditOne(t, "--kubeconfig", kubeconfig(t, c.Context()))
	res.wantCode(t, 1)

	t.Run("the shipped role sees all", func(t *testing.T) {
		got, res := auditOne(t, "--kubeconfig", kubeconfig(t, c.ContextAs(shipped)))
		res.wantCode(t, 1)
		wantKubestage(t, got)
		if diff := cmp.Diff(full.headlines(), got.headlines()); diff != "" {
			t.Errorf("findings (-administrator +ServiceAccount):\n%s", diff)
		}
		if diff := cmp.Diff(full.Checks, got.Checks); diff != "" {
			t.Errorf("checks (-administrator +ServiceAccount):\n%s", diff)
		}
		if got.Status != "complete" {
			t.Errorf("status %s, want complete", got.Status)
		}
	})

	t.Run("it only reads, and all that it may", func(t *testing.T) {
		requests, err := c.Requests("system:serviceaccount:ipamaudit:ipamaudit")
		if err != nil {
			t.Fatal(err)
		}
		if len(requests) == 0 {
			t.Fatal("the API server recorded no request of the auditor")
		}
		for _, r := range requests {
			if r.Resource != "" && r.Verb != "get" && r.Verb != "list" && !strings.HasPrefix(r.Resource, "selfsubject") {
				t.Errorf("the audit did %s %s (%s)", r.Verb, r.Resource, r.URI)
			}
			if r.Resource != "" && r.Code == 403 && !strings.HasPrefix(r.Resource, "selfsubject") {
				t.Errorf("the shipped role lacks %s %s.%s", r.Verb, r.Resource, r.Group)
			}
		}
		for _, rule := range rules {
			if slices.Equal(rule.APIGroups, []string{"projectcalico.org"}) {
				continue // not served here
			}
			for _, granted := range rule.Resources {
				if !slices.ContainsFunc(requests, func(r bed.Request) bool {
					return r.Resource == granted && slices.Contains(rule.APIGroups, r.Group)
				}) {
					t.Errorf("the shipped role allows %s, which nothing reads", granted)
				}
			}
		}
	})

	for _, tc := range []struct {
		resource string
		unknown  []string // checks that cannot do without it; with none the audit stays complete
	}{
		{"ipamblocks", []string{"blockless-nodes", "borrowed-ips", "multi-block-nodes", "pool-utilisation"}},
		{"ippools", []string{"blockless-nodes", "multi-block-nodes", "pool-utilisation"}},
		{"nodes", []string{"blockless-nodes", "borrowed-ips", "multi-block-nodes", "pool-utilisation"}},
		{"pods", []string{"borrowed-ips", "multi-block-nodes"}},
		{"events", nil},
		{"namespaces", nil},
		{"bgppeers", nil},
		{"bgpconfigurations", nil},
		{"ipamconfigs", nil},
		{"ipreservations", nil},
		{"clusterinformations", nil},
		{"deployments", nil},
	} {
		t.Run("without "+tc.resource, func(t *testing.T) {
			t.Parallel()
			account, err := c.ServiceAccount(t.Context(), "partial", "without-"+tc.resource, without(rules, tc.resource))
			if err != nil {
				t.Fatal(err)
			}
			got, res := auditOne(t, "--kubeconfig", kubeconfig(t, c.ContextAs(account)))
			wantCode, wantStatus := 1, "complete"
			if len(tc.unknown) > 0 {
				wantCode, wantStatus = 3, "partial"
			}
			res.wantCode(t, wantCode)
			if got.Status != wantStatus {
				t.Errorf("status %s, want %s", got.Status, wantStatus)
			}

			wantCoverage := full.coverage()
			switch wantCoverage[tc.resource] {
			case "read":
				wantCoverage[tc.resource] = "forbidden"
			case "missing": // no enabled check wants it, so nobody asks
			default:
				t.Fatalf("the full audit's coverage of %s is %q", tc.resource, wantCoverage[tc.resource])
			}
			if diff := cmp.Diff(wantCoverage, got.coverage()); diff != "" {
				t.Errorf("coverage (-want +got):\n%s", diff)
			}

			statuses := full.statuses()
			for _, check := range got.Checks {
				mustBeUnknown := slices.Contains(tc.unknown, check.ID)
				switch {
				case mustBeUnknown && check.Status != "unknown":
					t.Errorf("%s is %s, and cannot know", check.ID, check.Status)
				case check.Status == "unknown" && statuses[check.ID] != "unknown":
					if !strings.Contains(check.Reason+strings.Join(check.Unseen, " "), tc.resource) {
						t.Errorf("%s is unknown and does not name %s: %q %q", check.ID, tc.resource, check.Reason, check.Unseen)
					}
				case check.Status == "ok" && statuses[check.ID] == "findings":
					t.Errorf("%s has become ok by looking at less", check.ID)
				}
			}
			// Seeing less is no reason to see more.
			for _, f := range got.Findings {
				if !slices.ContainsFunc(full.Findings, func(o finding) bool { return o.Check == f.Check && o.Subject == f.Subject }) {
					t.Errorf("a finding only for those who see less: %s %s %s: %s", f.Severity, f.Check, f.Subject.Name, f.Title)
				}
			}
			if wantCode == 3 && !strings.Contains(res.lastLine(), tc.resource) {
				t.Errorf("the last line on stderr does not name %s: %q", tc.resource, res.lastLine())
			}
		})
	}
}

// kubeconfig writes a kubeconfig with one context.
func kubeconfig(t *testing.T, context bed.Context) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := bed.WriteKubeconfig(path, context); err != nil {
		t.Fatal(err)
	}
	return path
}
