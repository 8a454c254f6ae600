package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"ipamaudit/test/bed"
)

// TestChurn audits a healthy cluster in which pods, blocks and nodes come and
// go by the hundred while they are listed, all of them with old timestamps:
// nothing may be said to leak, to be orphaned or to be there twice.
// $IPAMAUDIT_CHURN_RUNS says how often (`make soak`: 50).
func TestChurn(t *testing.T) {
	needs(t, "run")
	runs := 5
	if text := os.Getenv("IPAMAUDIT_CHURN_RUNS"); text != "" {
		var err error
		if runs, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	c := bed.New(t, bed.Options{Name: "churn", Calico: bed.CalicoV1})
	churn, err := c.StartChurn(t.Context(), 8, 30)
	if err != nil {
		t.Fatal(err)
	}
	config := kubeconfig(t, c.Context())
	// Small pages make the lists take long, and drift apart.
	settings := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(settings, []byte("run: {pageSize: 10, qps: 40, burst: 5}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range runs {
		before := churn.Changes()
		got, res := auditOne(t, "--kubeconfig", config, "--config", settings, "--fail-on", "low")
		if res.code != 0 && res.code != 1 {
			t.Fatalf("run %d: exit code %d: %s", i, res.code, res.stderr)
		}
		for _, f := range got.Findings {
			if slices.Contains([]string{"leaked-ips", "orphan-affinities", "misbooked-ips", "duplicate-ips", "unallocated-pod-ips", "handle-leaks",
				"affinity-conflicts", "borrowed-ips", "tunnel-ips", "ipam-data", "ipam-gc", "blackholed-routes", "route-disagreement"}, f.Check) {
				t.Errorf("run %d: false alarm: %s %s about %s %s: %s", i, f.Severity, f.Check, f.Subject.Kind, f.Subject.Name, f.Detail)
			}
		}
		t.Logf("run %d: %d pods, %d changes while they were read", i, got.Pods, churn.Changes()-before)
		if changed := churn.Changes() - before; changed < 100 {
			t.Errorf("run %d: only %d changes: this proves nothing", i, changed)
		}
	}
	if err := churn.Stop(); err != nil {
		t.Fatalf("the churn itself failed: %v", err)
	}
	// When all is quiet there is nothing to find either: the churn leaves no mess.
	got, _ := auditOne(t, "--kubeconfig", config, "--config", settings)
	for _, f := range got.Findings {
		if f.Severity != "low" {
			t.Errorf("at rest: %s %s: %s", f.Severity, f.Check, f.Title)
		}
	}
}
