package e2e

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ipamaudit/test/bed"
)

// TestSnapshotSaysTheSame saves a live cluster and audits what was saved: the
// verdict is that of the live audit, in every detail.
func TestSnapshotSaysTheSame(t *testing.T) {
	needs(t, "run", "snapshot")
	for _, api := range []bed.CalicoAPI{bed.CalicoV1, bed.CalicoV3} {
		t.Run(filepath.Base(string(api)), func(t *testing.T) {
			t.Parallel()
			c := bed.New(t, bed.Options{Name: "kubestage", Calico: api})
			if err := c.Load(t.Context(), bed.Kubestage(api)); err != nil {
				t.Fatal(err)
			}
			config := kubeconfig(t, c.Context())
			first, res := auditOne(t, "--kubeconfig", config)
			res.wantCode(t, 1)
			wantKubestage(t, first)

			for _, name := range []string{"directory", "archive.tar.gz"} {
				t.Run(name, func(t *testing.T) {
					live := first
					live.Coverage.Resources = slices.Clone(first.Coverage.Resources)
					path := filepath.Join(t.TempDir(), name)
					saved := ipamaudit(t, snapshotArgs(config, path)...)
					saved.wantCode(t, 0)
					got, res := auditOne(t, "--from", path, "--as-of", live.AsOf.Format(time.RFC3339Nano))
					res.wantCode(t, 1)
					// What is saved is read for every check, also for those switched off.
					got.Coverage.Resources = slices.DeleteFunc(got.Coverage.Resources, func(r resource) bool { return live.coverage()[r.Resource] == "missing" })
					live.Coverage.Resources = slices.DeleteFunc(live.Coverage.Resources, func(r resource) bool { return r.Status == "missing" })
					if diff := cmp.Diff(live, got); diff != "" {
						t.Errorf("(-live +saved):\n%s", diff)
					}
				})
			}
		})
	}
}

// snapshotArgs saves the kubeconfig's current context into path.
func snapshotArgs(kubeconfig, path string) []string {
	return []string{"snapshot", "--kubeconfig", kubeconfig, "-o", path}
}
