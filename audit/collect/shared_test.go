package collect

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"ipamaudit/ipam"
)

// sharedDir finds the workshop's samples beside the repository, or where
// IPAMAUDIT_SAMPLES points; tests that need them are skipped without.
func sharedDir(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("IPAMAUDIT_SAMPLES"); dir != "" {
		return dir
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for range 6 {
		if _, err := os.Stat(filepath.Join(dir, "shared", "cases")); err == nil {
			return filepath.Join(dir, "shared")
		}
		dir = filepath.Dir(dir)
	}
	t.Skip("no samples: set IPAMAUDIT_SAMPLES to a directory with cases/ and real/")
	return ""
}

// TestSamples loads every sample cluster there is: none may lose an object.
func TestSamples(t *testing.T) {
	shared := sharedDir(t)
	var dirs []string
	for _, pattern := range []string{"cases/*/cluster", "real/t293729", "real/t293729-v3crds"} {
		found, err := filepath.Glob(filepath.Join(shared, pattern))
		if err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, found...)
	}
	if len(dirs) == 0 {
		t.Fatal("no sample clusters")
	}
	for _, dir := range dirs {
		name, err := filepath.Rel(shared, dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := FromPath(context.Background(), dir, Options{})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range s.Rejected {
				t.Errorf("rejected: %v", e)
			}
			for _, b := range s.Blocks {
				if len(b.Malformed) > 0 {
					t.Errorf("block %s: %v", b.Name, b.Malformed)
				}
			}
			if s.AsOf.IsZero() {
				t.Error("no time")
			}
			t.Logf("%s %s asOf=%s blocks=%d aff=%d handles=%d pools=%d nodes=%d pods=%d events=%d wl=%d tables=%d ignored=%d api=%s", s.Cluster.Name, s.Cluster.ID, s.AsOf, len(s.Blocks), len(s.Affinities), len(s.Handles), len(s.Pools), len(s.Nodes), len(s.Pods), len(s.Events), len(s.Workloads), len(s.Tables), s.Ignored, s.API)
			for _, c := range s.Coverage.List() {
				if c.Status != ipam.Read || c.Detail != "" {
					t.Logf("   %s %s %d %s", c.Resource, c.Status, c.Items, c.Detail)
				}
			}
		})
	}
}
