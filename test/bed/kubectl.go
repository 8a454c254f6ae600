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

// ErrNoKubectl is returned where there is no kubectl to be had. Unlike the
// servers it is never built: who has none skips what needs it.
var ErrNoKubectl = errors.New("no kubectl: neither in $KUBEBUILDER_ASSETS, nor in $IPAMAUDIT_KUBE_BIN or a sibling shared/kube-bin, nor on the PATH")

// FindKubectl returns the path of a kubectl, from the places that FindPrograms
// looks at and from the PATH, in that order.
func FindKubectl(context.Context) (string, error) {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		if path, err := filepath.Abs(filepath.Join(dir, "kubectl")); err == nil && isFile(path) {
			return path, nil
		}
	}
	dir := os.Getenv("IPAMAUDIT_KUBE_BIN")
	if sums, ok := findAbove(filepath.Join("shared", "kube-bin", "SHA256SUMS")); dir == "" && ok {
		dir = filepath.Dir(sums)
	}
	if dir != "" && isFile(filepath.Join(dir, "kubectl.zst")) {
		cache, err := cacheDir()
		if err != nil {
			return "", err
		}
		unlock, err := lockedfile.MutexAt(filepath.Join(cache, "lock")).Lock()
		if err != nil {
			return "", fmt.Errorf("lock the cache of kubectl in %s: %w", cache, err)
		}
		defer unlock()
		return unpackProgram(dir, cache, "kubectl")
	}
	if path, err := exec.LookPath("kubectl"); err == nil {
		return path, nil
	}
	return "", ErrNoKubectl
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
