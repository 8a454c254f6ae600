package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ipamaudit/test/bed"
)

// calicoData are the kinds that the restore of ipam-data brings back, in its order.
var calicoData = []string{"ippools", "ipamblocks", "blockaffinities", "ipamhandles"}

// TestRestore loses everything that IPAM knows under running pods and does what
// ipam-data says with the backup that somebody made with kubectl: then all of it
// is there again as it was, and the audit is silent.
func TestRestore(t *testing.T) {
	needs(t, "run")
	kubectl := pasteWith(t)
	for api, version := range map[bed.CalicoAPI]string{bed.CalicoV1: "", bed.CalicoV3: "v3.33.0"} {
		t.Run(string(api), func(t *testing.T) {
			t.Parallel()
			c := bed.New(t, bed.Options{Name: "lost", Calico: api})
			good := plan{check: "ipam-data", fixture: "good", version: version}
			objects, asOf := good.objects(t)
			if err := c.Replay(t.Context(), objects, asOf); err != nil {
				t.Fatal(err)
			}
			kc, dir := kubeconfig(t, c.Context()), t.TempDir()
			bash := func(command string) string {
				t.Helper()
				shell := exec.CommandContext(t.Context(), "bash", "-c", command)
				shell.Dir = dir
				shell.Env = []string{"PATH=" + filepath.Dir(kubectl) + ":" + os.Getenv("PATH"), "KUBECONFIG=" + kc, "HOME=" + dir}
				out, err := shell.CombinedOutput()
				if err != nil {
					t.Fatalf("%s: %v\n%s", command, err, out)
				}
				return string(out)
			}
			group, _, _ := strings.Cut(string(api), "/")
			what := func() (all string) {
				for _, kind := range calicoData {
					all += bash("kubectl get " + kind + "." + group + " -o json | grep -vE '\"(resourceVersion|uid|creationTimestamp|generation)\":'")
				}
				return all
			}
			audit := func() audited {
				t.Helper()
				res := ipamaudit(t, "run", "-o", "json", "--kubeconfig", kc)
				var r struct{ Clusters []audited }
				if err := json.Unmarshal([]byte(res.stdout), &r); err != nil || len(r.Clusters) != 1 {
					t.Fatalf("no report: %v\n%s", err, res.stderr)
				}
				return r.Clusters[0]
			}
			if loud := audit().loud(""); len(loud) > 0 {
				t.Fatalf("not healthy to begin with: %v", loud)
			}
			before := what()
			for _, kind := range []string{`"IPPool"`, `"IPAMBlock"`, `"BlockAffinity"`, `"IPAMHandle"`} {
				if !strings.Contains(before, kind) {
					t.Fatalf("there is no %s to lose", kind)
				}
			}
			for _, kind := range calicoData {
				bash("kubectl get " + kind + "." + group + " -o yaml >" + kind + ".yaml")
			}
			for _, kind := range calicoData {
				bash("kubectl delete --all " + kind + "." + group)
			}
			lost := audit().of("ipam-data")
			if len(lost) != 1 || lost[0].Severity != "critical" {
				t.Fatalf("IPAM's data is gone, and the audit says %v", lost)
			}
			restored := false
			for _, step := range lost[0].Remediation {
				if strings.HasPrefix(step.Title, "Restore pools") {
					restored = true
					bash(strings.Join(step.Commands, "\n"))
				}
			}
			if !restored {
				t.Fatalf("no step restores: %v", lost[0].Remediation)
			}
			if after := what(); after != before {
				t.Errorf("not what was there before:\n%s\nbefore:\n%s", after, before)
			}
			if loud := audit().loud(""); len(loud) > 0 {
				t.Errorf("after the restore: %v", loud)
			}
		})
	}
}
