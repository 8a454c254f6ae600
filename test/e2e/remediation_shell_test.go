package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"ipamaudit/test/bed"
	"ipamaudit/test/world"
)

// bench is an API server and the shell in front of it.
type bench struct {
	kubectl, tools string
	cluster        *bed.Cluster
	api            bed.CalicoAPI
}

// newTools makes a directory with this program under the names of the tools
// that a remediation calls, and the program under test.
func newTools(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	audit, err := program()
	if err != nil {
		t.Fatal(err)
	}
	for tool, target := range map[string]string{"kubectl": self, "calicoctl": self, "sleep": self, "ipamaudit": audit} {
		if err := os.Symlink(target, filepath.Join(dir, tool)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// session is one plan on the bench.
type session struct {
	*bench
	plan       plan
	world      *world.World
	kubeconfig string
	dir        string
	pools      int
	fill       map[string]string
	ran        map[string]int
	// refused is how many evictions a disruption budget is expected to refuse.
	refused int
}

func calicoOnly(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool { return o.GetKind() == "Node" })
}

// placeholders are what people put in place of the words in capitals.
func placeholders(objects []*unstructured.Unstructured) map[string]string {
	out := map[string]string{}
	for _, o := range objects {
		switch o.GetKind() {
		case "BGPPeer":
			out["PEER"] = o.GetName()
		case "IPPool":
			selector, _, _ := unstructured.NestedString(o.Object, "spec", "nodeSelector")
			if key, value, ok := strings.Cut(selector, " == "); ok {
				out["KEY=VALUE"] = key + "=" + strings.Trim(value, "'")
			}
		}
	}
	return out
}

// remedy does what a finding says, its causes first, each only once. What it
// says is read anew: an earlier remedy may have changed it, or ended it.
func (s *session) remedy(t *testing.T, f remediable, done map[string]bool) {
	t.Helper()
	if done[f.Fingerprint] {
		return
	}
	done[f.Fingerprint] = true
	now := s.audit(t)
	for _, c := range now.Findings {
		if slices.Contains(f.CausedBy, c.Fingerprint) {
			s.remedy(t, c, done)
			now = s.audit(t)
		}
	}
	i := slices.IndexFunc(now.Findings, func(g remediable) bool { return g.Fingerprint == f.Fingerprint })
	if i < 0 {
		return
	}
	for _, step := range now.Findings[i].Remediation {
		if onlyIf.MatchString(step.Title) && !s.audit(t).has(f) {
			continue
		}
		s.paste(t, f, step, false)
		if err := s.world.Settle(t.Context()); err != nil {
			t.Fatalf("the world: %v", err)
		}
	}
}

// onlyIf are the words with which a step says that it is not for everybody.
var onlyIf = regexp.MustCompile(`^(Only |Where that |Or |Otherwise )`)

// onNode are programs that are typed on a node, not where kubectl is.
var onNode = regexp.MustCompile(`^(ip|cat|ls|find|systemctl|grep|calicoctl node) |^stale($| )`)

// paste runs a step's commands in one shell, as they are printed.
func (s *session) paste(t *testing.T, f remediable, step remedyStep, dry bool) {
	t.Helper()
	var script, machines []string
	for _, c := range step.Commands {
		switch {
		case onNode.MatchString(c):
			s.ran["on the node"]++
			if machine, ok := strings.CutPrefix(c, "systemctl restart kubelet   # on "); ok && !dry {
				machines = append(machines, machine)
			}
			continue
		case strings.HasPrefix(c, "NEW_CIDR="):
			s.pools++
			c = fmt.Sprintf("NEW_CIDR=10.%d.0.0/18", 249-s.pools)
			if strings.Contains(strings.Join(step.Commands, "\n"), "blockSize: 12") {
				c = fmt.Sprintf("NEW_CIDR=fd00:%d::/108", s.pools)
			}
		}
		for word, value := range s.fill {
			c = strings.ReplaceAll(c, word, value)
		}
		script = append(script, c)
	}
	if len(script) > 0 {
		s.run(t, f, step, script, dry)
	}
	for _, machine := range machines {
		s.register(t, machine)
	}
}

// run runs a script and judges every call in it.
func (s *session) run(t *testing.T, f remediable, step remedyStep, script []string, dry bool) {
	t.Helper()
	journal := filepath.Join(s.dir, "journal")
	_ = os.Remove(journal)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", strings.Join(script, "\n"))
	cmd.Dir = s.dir
	cmd.Env = []string{"HOME=" + s.dir, "PATH=" + s.tools + ":/usr/bin:/bin", "KUBECONFIG=" + s.kubeconfig, "TMPDIR=" + s.dir,
		"BENCH_KUBECTL=" + s.kubectl, "BENCH_JOURNAL=" + journal, "BENCH_CALICO=" + string(s.api), "BENCH_DRY=" + fmt.Sprint(dry)}
	out, err := cmd.CombinedOutput()
	if testing.Verbose() && os.Getenv("BENCH_TRACE") != "" {
		t.Logf("%s: %s\n%s\n--\n%s", f.Check, step.Title, strings.Join(script, "\n"), out)
	}
	if ctx.Err() != nil {
		t.Fatalf("%s of %s: %q hangs:\n%s\n%s", f.Check, f.Subject.Name, step.Title, strings.Join(script, "\n"), out)
	}
	if strings.Contains(string(out), "command not found") || strings.Contains(string(out), "syntax error") {
		t.Errorf("%s: %q: %s\n%s", f.Check, step.Title, out, strings.Join(script, "\n"))
	}
	_ = err // of the last command; each one's is in the journal
	data, err := os.ReadFile(journal)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var e entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		s.ran[e.What]++
		if s.refused > 0 && e.Code != 0 && strings.Contains(e.Stderr, "would violate the pod's disruption budget") {
			s.refused--
			continue
		}
		if e.Code != 0 && !e.tolerable() {
			t.Errorf("%s of %s, %q (dry run: %v): exit code %d of %q:\n%s", f.Check, f.Subject.Name, step.Title, dry, e.Code, e.Args, e.Stderr)
		}
	}
}

// register is what a machine's kubelet does when it is restarted.
func (s *session) register(t *testing.T, machine string) {
	t.Helper()
	// Not before the collector has taken the old node's blocks, as the step says.
	err := s.world.Settle(t.Context())
	if err = errors.Join(err, s.world.Register(t.Context(), machine)); err != nil {
		t.Errorf("the world: %v", err)
	}
}
