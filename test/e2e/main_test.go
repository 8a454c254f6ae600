// Package e2e runs the built ipamaudit against real API servers.
package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// root is the repository's, seen from this package.
const root = "../.."

// binDir is where the program under test is built; TestMain removes it.
var binDir string

func TestMain(m *testing.M) {
	if code, is := tool(); is {
		os.Exit(code) // a remediation's shell called this program as kubectl or calicoctl
	}
	dir, err := os.MkdirTemp("", "ipamaudit-e2e-")
	if err != nil {
		panic(err)
	}
	binDir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// program builds ipamaudit once, or takes $IPAMAUDIT_BIN.
var program = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("IPAMAUDIT_BIN"); path != "" {
		return filepath.Abs(path)
	}
	path := filepath.Join(binDir, "ipamaudit")
	build := exec.Command("go", "build", "-o", path, "./cmd/ipamaudit")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", errors.New("go build ./cmd/ipamaudit: " + err.Error() + "\n" + string(out))
	}
	return path, nil
})

// needs skips the test while the program or one of its verbs does not exist. A
// program that does not compile is a failure.
func needs(t *testing.T, verbs ...string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(root, "cmd", "ipamaudit")); err != nil && os.Getenv("IPAMAUDIT_BIN") == "" {
		t.Skip("there is no cmd/ipamaudit to run yet")
	}
	help := ipamaudit(t, "--help")
	for _, verb := range verbs {
		if !strings.Contains(help.stdout, "\n  "+verb+" ") {
			t.Skipf("ipamaudit has no %q yet (its help does not name it)", verb)
		}
	}
}

// needsPackage skips the test while the program is built without one of its
// packages.
func needsPackage(t *testing.T, pkg string) {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "./cmd/ipamaudit")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list ./cmd/ipamaudit: %v", err)
	}
	if !slices.Contains(strings.Fields(string(out)), pkg) {
		t.Skipf("ipamaudit is built without %s yet", pkg)
	}
}

// result is how a run of the program ended.
type result struct {
	code           int
	stdout, stderr string
}

// ipamaudit runs the program with nothing of the developer's around it: no
// kubeconfig, no configuration, no home.
func ipamaudit(t *testing.T, args ...string) result { return ipamauditWith(t, nil, args...) }

// ipamauditWith is ipamaudit with more environment.
func ipamauditWith(t *testing.T, env []string, args ...string) result {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Dir = home
	cmd.Env = append([]string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + home}, env...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("ipamaudit %s: %v", strings.Join(args, " "), err)
	}
	return result{code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
}

// lastLine is where the program says why its exit code is what it is.
func (r result) lastLine() string {
	lines := strings.Split(strings.TrimRight(r.stderr, "\n"), "\n")
	return lines[len(lines)-1]
}

// wantCode stops the test when the exit code is another.
func (r result) wantCode(t *testing.T, want int) {
	t.Helper()
	if r.code != want {
		t.Fatalf("exit code %d, want %d; stderr:\n%s", r.code, want, r.stderr)
	}
}
