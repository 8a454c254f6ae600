package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ipamaudit/test/bed"
)

// TestFleetOfThree audits three clusters of which one is dead: it costs only
// itself, and nobody can miss it.
func TestFleetOfThree(t *testing.T) {
	needs(t, "run")
	fleet := bed.Fleet(t,
		bed.Options{Name: "east", Calico: bed.CalicoV1},
		bed.Options{Name: "lost", Calico: bed.CalicoV1},
		bed.Options{Name: "west", Calico: bed.CalicoV3},
	)
	east, lost, west := fleet[0], fleet[1], fleet[2]
	for c, api := range map[*bed.Cluster]bed.CalicoAPI{east: bed.CalicoV1, west: bed.CalicoV3} {
		if err := c.Load(t.Context(), bed.Kubestage(api)); err != nil {
			t.Fatal(err)
		}
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := bed.WriteKubeconfig(kubeconfig, east.Context(), lost.Context(), west.Context()); err != nil {
		t.Fatal(err)
	}
	lost.Kill()

	t.Run("one is dead", func(t *testing.T) {
		r, res := audit(t, "--kubeconfig", kubeconfig, "--all-contexts")
		res.wantCode(t, 3)
		wantFailed(t, r, "lost")
		if !strings.Contains(res.lastLine(), "lost") {
			t.Errorf("the last line on stderr does not say why the exit code is 3: %q", res.lastLine())
		}
		for name, api := range map[string]string{"east": "crd.projectcalico.org/v1", "west": "projectcalico.org/v3"} {
			c := r.cluster(t, name)
			if c.Status != "complete" || c.Error != "" {
				t.Errorf("%s is %s (%s), want complete", name, c.Status, c.Error)
			}
			if c.Calico.API != api {
				t.Errorf("%s is read through %q, want %s", name, c.Calico.API, api)
			}
			wantKubestage(t, c)
		}
		if r.cluster(t, "east").ID == r.cluster(t, "west").ID {
			t.Error("two clusters have one id")
		}
	})

	t.Run("the dead one comes first in the table", func(t *testing.T) {
		res := ipamaudit(t, "run", "--kubeconfig", kubeconfig, "--all-contexts")
		res.wantCode(t, 3)
		if at, other := strings.Index(res.stdout, "lost"), strings.Index(res.stdout, "east"); at < 0 || other < 0 || at > other {
			t.Errorf("the table does not begin with the cluster that could not be audited:\n%s", res.stdout)
		}
	})

	// The dead and the hanging cluster together cost no more than one timeout.
	t.Run("one is dead and one hangs", func(t *testing.T) {
		const timeout = 4 * time.Second
		if err := west.Pause(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := west.Resume(); err != nil {
				t.Fatal(err)
			}
		}()
		config := filepath.Join(t.TempDir(), "config.yaml")
		var text strings.Builder
		fmt.Fprintf(&text, "run: {clusterTimeout: %s}\nclusters:\n", timeout)
		for _, c := range fleet {
			fmt.Fprintf(&text, "  - {name: %s, kubeconfig: %s, context: %s}\n", c.Name, kubeconfig, c.Name)
		}
		if err := os.WriteFile(config, []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		r, res := audit(t, "--config", config)
		res.wantCode(t, 3)
		wantFailed(t, r, "lost", "west")
		wantKubestage(t, r.cluster(t, "east"))
		if took := time.Since(start); took > 2*timeout {
			t.Errorf("the run took %s, with a timeout of %s for each cluster", took, timeout)
		}
	})
}

// wantFailed checks that exactly these clusters failed, each with a reason and a
// finding of its own.
func wantFailed(t *testing.T, r report, names ...string) {
	t.Helper()
	var failed []string
	for _, c := range r.Clusters {
		if c.Status != "failed" {
			continue
		}
		failed = append(failed, c.Name)
		if c.Error == "" {
			t.Errorf("%s failed without a reason", c.Name)
		}
		access := slices.IndexFunc(c.Findings, func(f finding) bool { return f.Check == "cluster-access" })
		if len(c.Findings) != 1 || access < 0 || c.Findings[access].Severity != "high" || c.Findings[access].Subject.Kind != "Cluster" {
			t.Errorf("findings of failed cluster %s: %v, want cluster-access alone, high", c.Name, c.headlines())
		}
		for id, status := range c.statuses() {
			if status == "ok" {
				t.Errorf("check %s is ok on %s, which nobody looked at", id, c.Name)
			}
		}
	}
	slices.Sort(failed)
	if !slices.Equal(failed, names) {
		t.Errorf("failed clusters: %v, want %v", failed, names)
	}
	if len(r.Clusters) != 3 || r.Totals.ClustersFailed != len(names) {
		t.Errorf("%d clusters, clustersFailed %d; want 3 and %d", len(r.Clusters), r.Totals.ClustersFailed, len(names))
	}
}
