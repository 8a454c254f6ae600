package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"ipamaudit/test/bed"
)

// TestScenarioFromFiles audits the bed's scenario without any cluster, so that a
// wrong diagnosis is not sought in the collection of live ones.
func TestScenarioFromFiles(t *testing.T) {
	needs(t, "run")
	for _, api := range []bed.CalicoAPI{bed.CalicoV1, bed.CalicoV3} {
		t.Run(filepath.Base(string(api)), func(t *testing.T) {
			list, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": bed.Kubestage(api)})
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "all.json"), list, 0o600); err != nil {
				t.Fatal(err)
			}
			got, res := auditOne(t, "--from", dir)
			res.wantCode(t, 1)
			wantKubestage(t, got)
		})
	}
}
