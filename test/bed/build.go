package bed

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// ErrNotBuiltYet says that the build of kube-apiserver was cut short, by the
// test's deadline for instance. What it compiled stays in Go's build cache.
var ErrNotBuiltYet = errors.New("kube-apiserver is not built yet; build it once with `go run ./cmd/bed programs` in test/ (some fifteen CPU minutes), or set KUBEBUILDER_ASSETS")

// buildPrograms compiles the module test/kube. The result is kept in the cache
// under a name made of everything it depends on.
func buildPrograms(ctx context.Context, cache string) (Programs, error) {
	src, err := kubeModule()
	if err != nil {
		return Programs{}, err
	}
	key, err := buildKey(src)
	if err != nil {
		return Programs{}, err
	}
	dir := filepath.Join(cache, key)
	if p, err := programsIn(dir); err == nil {
		return p, nil
	}

	version, err := goCommand(ctx, src, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	if err != nil {
		return Programs{}, err
	}
	tmp, err := os.MkdirTemp(cache, "build-*")
	if err != nil {
		return Programs{}, err
	}
	defer func() { _ = os.RemoveAll(tmp) }() // moved away by then, unless the build failed
	if _, err := goCommand(ctx, src, "build", "-trimpath", "-ldflags", ldflags(version), "-o", tmp+string(filepath.Separator), "./etcd", "./kube-apiserver"); err != nil {
		if ctx.Err() != nil {
			return Programs{}, fmt.Errorf("%w (%w)", ErrNotBuiltYet, context.Cause(ctx))
		}
		return Programs{}, fmt.Errorf("build kube-apiserver and etcd from the module proxy: %w", err)
	}
	if err := os.Rename(tmp, dir); err != nil {
		return Programs{}, err
	}
	return programsIn(dir)
}

// ldflags gives the API server the version it is of: without, it says v0.0.0,
// and clients that look at versions behave as with a server of another age.
func ldflags(version string) string {
	flags := []string{"-s", "-w", "-X", "k8s.io/component-base/version.gitVersion=" + version}
	if parts := strings.Split(strings.TrimPrefix(version, "v"), "."); len(parts) == 3 {
		flags = append(flags,
			"-X", "k8s.io/component-base/version.gitMajor="+parts[0],
			"-X", "k8s.io/component-base/version.gitMinor="+parts[1])
	}
	return strings.Join(flags, " ")
}

func kubeModule() (string, error) {
	for _, rel := range []string{"kube/go.mod", "test/kube/go.mod"} {
		if path, ok := findAbove(filepath.FromSlash(rel)); ok {
			return filepath.Dir(path), nil
		}
	}
	return "", errors.New("no kube-apiserver and etcd: KUBEBUILDER_ASSETS is not set, and the module test/kube that builds them was not found above the working directory")
}

func buildKey(src string) (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for _, name := range []string{"go.mod", "go.sum", "etcd/main.go", "kube-apiserver/main.go"} {
		data, err := os.ReadFile(filepath.Join(src, filepath.FromSlash(name)))
		if err != nil {
			return "", err
		}
		fmt.Fprintln(hash, name, len(data))
		hash.Write(data)
	}
	return fmt.Sprintf("built-%x", hash.Sum(nil)[:8]), nil
}

func goCommand(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s in %s: %w\n%s", args[0], dir, err, tail(stderr.String(), 20))
	}
	return strings.TrimSpace(string(out)), nil
}

// tail returns the last n lines of a text.
func tail(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
