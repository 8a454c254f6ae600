package bed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/rogpeppe/go-internal/lockedfile"
)

// ErrNoProgram is returned where a program of Kubernetes is not to be had.
// Unlike kube-apiserver and etcd the others are never built: who has none skips
// what needs it.
var ErrNoProgram = errors.New("neither in $KUBEBUILDER_ASSETS, nor in $IPAMAUDIT_KUBE_BIN or a sibling shared/kube-bin, nor on the PATH")

// FindKubectl returns the path of a kubectl, as findProgram does.
func FindKubectl(context.Context) (string, error) { return findProgram("kubectl") }

// findProgram returns the path of a program, from the places that FindPrograms
// looks at and from the PATH, in that order.
func findProgram(name string) (string, error) {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		if path, err := filepath.Abs(filepath.Join(dir, name)); err == nil && isFile(path) {
			return path, nil
		}
	}
	dir := os.Getenv("IPAMAUDIT_KUBE_BIN")
	if sums, ok := findAbove(filepath.Join("shared", "kube-bin", "SHA256SUMS")); dir == "" && ok {
		dir = filepath.Dir(sums)
	}
	if dir != "" && isFile(filepath.Join(dir, name+".zst")) {
		cache, err := cacheDir()
		if err != nil {
			return "", err
		}
		unlock, err := lockedfile.MutexAt(filepath.Join(cache, "lock")).Lock()
		if err != nil {
			return "", fmt.Errorf("lock the cache of %s in %s: %w", name, cache, err)
		}
		defer unlock()
		return unpackProgram(dir, cache, name)
	}
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return "", fmt.Errorf("no %s: %w", name, ErrNoProgram)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
