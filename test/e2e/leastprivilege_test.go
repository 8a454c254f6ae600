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

	declared := declarations(t, full)
	for _, rule := range rules {
		if slices.Equal(rule.APIGroups, []string{"projectcalico.org"}) {
			continue // not served here
		}
		for _, resource := range rule.Resources {
			t.Run("without "+resource, func(t *testing.T) {
				t.Parallel()
				account, err := c.ServiceAccount(t.Context(), "partial", "without-"+resource, without(rules, resource))
				if err != nil {
					t.Fatal(err)
				}
				config := kubeconfig(t, c.ContextAs(account))
				var needed []string
				for id, d := range declared {
					if slices.Contains(d.needs, resource) && full.statuses()[id] != "skipped" {
						needed = append(needed, id)
					}
				}
				slices.Sort(needed)
				t.Run("doctor", func(t *testing.T) { wantDoctor(t, config, resource, needed) })
				wantWithout(t, config, resource, full, declared, needed)
			})
		}
	}
}

// declaration is what a check says that it reads.
type declaration struct{ needs, uses []string }

// declarations asks the program what its checks declare: the page of a check is
// made from the same declaration as the shipped role.
func declarations(t *testing.T, c cluster) map[string]declaration {
	t.Helper()
	list := func(page, after string) []string {
		_, rest, _ := strings.Cut(page, after)
		line, _, _ := strings.Cut(rest, ".")
		var out []string
		for i, word := range strings.Split(line, "`") {
			if i%2 == 1 {
				out = append(out, word)
			}
		}
		return out
	}
	out := map[string]declaration{}
	for _, check := range c.Checks {
		page := ipamaudit(t, "checks", check.ID).stdout
		out[check.ID] = declaration{list(page, "Cannot do without: "), list(page, "Uses where it was read: ")}
	}
	if d := out["leaked-ips"]; !slices.Contains(d.needs, "ipamblocks") || !slices.Contains(d.uses, "ipamhandles") {
		t.Fatalf("the page of leaked-ips no longer says what it reads: %+v", d)
	}
	return out
}

// wantDoctor: doctor says beforehand what the audit will lack, and what to do.
func wantDoctor(t *testing.T, config, resource string, needed []string) {
	t.Helper()
	res := ipamaudit(t, "doctor", "--kubeconfig", config)
	var said string
	for line := range strings.Lines(res.stdout) {
		if strings.Contains(line, "may not list "+resource) {
			said = strings.TrimSpace(line)
		}
	}
	if said == "" || !strings.Contains(res.stdout, "clusterrole.yaml") || !strings.Contains(res.stdout, "verbs: [get, list]") {
		t.Fatalf("doctor does not say what is missing and how to fix it:\n%s", res.stdout)
	}
	if len(needed) == 0 {
		res.wantCode(t, 0)
		return
	}
	res.wantCode(t, 3)
	_, consequence, _ := strings.Cut(said, ": ")
	if want := strings.Join(needed, ", ") + " will be unknown"; consequence != want {
		t.Errorf("doctor says %q, want %q", consequence, want)
	}
	if !strings.Contains(res.lastLine(), resource) {
		t.Errorf("the last line on stderr does not name %s: %q", resource, res.lastLine())
	}
}

// wantWithout audits as somebody who may not list one resource, and wants
// exactly the checks that need it to be unknown.
func wantWithout(t *testing.T, config, resource string, full cluster, declared map[string]declaration, needed []string) {
	t.Helper()
	got, res := auditOne(t, "--kubeconfig", config)
	wantCode, wantStatus := 1, "complete"
	if len(needed) > 0 {
		wantCode, wantStatus = 3, "partial"
		if !strings.Contains(res.lastLine(), resource) {
			t.Errorf("the last line on stderr does not name %s: %q", resource, res.lastLine())
		}
	}
	res.wantCode(t, wantCode)
	if got.Status != wantStatus {
		t.Errorf("status %s, want %s", got.Status, wantStatus)
	}
	wantCoverage := full.coverage()
	switch wantCoverage[resource] {
	case "read":
		wantCoverage[resource] = "forbidden"
	case "absent": // the API does not serve it here
	default:
		t.Fatalf("the full audit's coverage of %s is %q", resource, wantCoverage[resource])
	}
	if diff := cmp.Diff(wantCoverage, got.coverage()); diff != "" {
		t.Errorf("coverage (-want +got):\n%s", diff)
	}

	before := full.statuses()
	for _, check := range got.Checks {
		says := check.Reason + " " + strings.Join(check.Unseen, " ")
		switch d := declared[check.ID]; {
		case slices.Contains(needed, check.ID):
			if check.Status != "unknown" || !strings.Contains(check.Reason, resource+" (forbidden)") {
				t.Errorf("%s cannot do without %s and says %s: %s", check.ID, resource, check.Status, check.Reason)
			}
		case check.Status == before[check.ID]:
		case !slices.Contains(d.uses, resource):
			t.Errorf("%s does not read %s, and has changed from %s to %s: %s", check.ID, resource, before[check.ID], check.Status, says)
		case check.Status == "unknown" && !strings.Contains(says, resource):
			t.Errorf("%s is unknown and does not name %s: %q", check.ID, resource, says)
		case check.Status == "ok" && before[check.ID] == "findings":
			t.Errorf("%s has become ok by looking at less", check.ID)
		}
	}
	// Seeing less is no reason to see more.
	for _, f := range got.Findings {
		if !slices.ContainsFunc(full.Findings, func(o finding) bool { return o.Check == f.Check && o.Subject == f.Subject }) {
			t.Errorf("a finding only for those who see less: %s %s %s: %s", f.Severity, f.Check, f.Subject.Name, f.Title)
		}
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
