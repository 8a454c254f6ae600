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
// nothing may be said to leak, to be orphaned or to be there twice. A saved
// snapshot of the same cluster has no second look: what it says shows that there
// is something to be wrong about. $IPAMAUDIT_CHURN_RUNS says how often (`make
// soak`: 50).
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
	drifting := settings(t, "pageSize: 10, qps: 40, burst: 5")
	fooled, changes := 0, int64(0)
	for i := range runs {
		before := churn.Changes()
		got, res := auditOne(t, "--kubeconfig", config, "--config", drifting, "--fail-on", "low")
		if res.code != 0 && res.code != 1 {
			t.Fatalf("run %d: exit code %d: %s", i, res.code, res.stderr)
		}
		changed := churn.Changes() - before
		for _, f := range falseAlarms(got) {
			t.Errorf("run %d: false alarm: %s %s about %s %s: %s", i, f.Severity, f.Check, f.Subject.Kind, f.Subject.Name, f.Detail)
		}
		changes += changed
		alone := oneLook(t, config, drifting)
		if len(alone) > 0 {
			fooled++
		}
		t.Logf("run %d: %d pods, %d changes while they were read; one look alone: %d false alarms", i, got.Pods, changed, len(alone))
	}
	t.Logf("%d runs: no false alarm; with one look alone %d of them had some", runs, fooled)
	if each := changes / int64(runs); each < 100 { // on a machine that is busy with other things some runs see fewer
		t.Errorf("only %d changes in each run: this proves nothing", each)
	}
	for tries := 0; fooled == 0; tries++ {
		if tries == 20 {
			t.Fatal("one look alone raises no false alarm either: this proves nothing")
		}
		fooled += len(oneLook(t, config, drifting))
	}
	if err := churn.Stop(); err != nil {
		t.Fatalf("the churn itself failed: %v", err)
	}
	// When all is quiet there is nothing to find either: the churn leaves no mess.
	got, _ := auditOne(t, "--kubeconfig", config, "--config", drifting)
	for _, f := range got.Findings {
		if f.Severity != "low" {
			t.Errorf("at rest: %s %s: %s", f.Severity, f.Check, f.Title)
		}
	}
}

// oneLook is what an audit says that cannot look again.
func oneLook(t *testing.T, config, settings string) []finding {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "snapshot")
	ipamaudit(t, append(snapshotArgs(config, dir), "--config", settings)...).wantCode(t, 0)
	got, _ := auditOne(t, "--from", dir)
	return falseAlarms(got)
}

// falseAlarms are the findings that a healthy cluster cannot have.
func falseAlarms(c cluster) []finding {
	return slices.DeleteFunc(slices.Clone(c.Findings), func(f finding) bool {
		return !slices.Contains([]string{"leaked-ips", "orphan-affinities", "misbooked-ips", "duplicate-ips", "unallocated-pod-ips", "handle-leaks",
			"affinity-conflicts", "borrowed-ips", "tunnel-ips", "ipam-data", "ipam-gc", "blackholed-routes", "route-disagreement"}, f.Check)
	})
}
