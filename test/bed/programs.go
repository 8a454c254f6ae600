package bed

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/rogpeppe/go-internal/lockedfile"
)

// Programs are the executables that make a cluster.
type Programs struct {
	APIServer, Etcd string // absolute paths
}

// FindPrograms returns the first kube-apiserver and etcd that can be had, in
// the order the package comment gives. A source that was named by environment
// variable and does not deliver is an error, not a reason to try the next one.
// Decompressed and built programs are kept below os.UserCacheDir; concurrent
// callers, other processes included, wait for the one that fills it.
func FindPrograms(ctx context.Context) (Programs, error) {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		p, err := programsIn(dir)
		if err != nil {
			return Programs{}, fmt.Errorf("KUBEBUILDER_ASSETS: %w", err)
		}
		return p, nil
	}

	cache, err := cacheDir()
	if err != nil {
		return Programs{}, err
	}
	unlock, err := lockedfile.MutexAt(filepath.Join(cache, "lock")).Lock()
	if err != nil {
		return Programs{}, fmt.Errorf("lock the cache of kube-apiserver and etcd in %s: %w", cache, err)
	}
	defer unlock()

	if dir := os.Getenv("IPAMAUDIT_KUBE_BIN"); dir != "" {
		p, err := unpackPrograms(dir, cache)
		if err != nil {
			return Programs{}, fmt.Errorf("IPAMAUDIT_KUBE_BIN: %w", err)
		}
		return p, nil
	}
	if dir, ok := findAbove(filepath.Join("shared", "kube-bin", "SHA256SUMS")); ok {
		return unpackPrograms(filepath.Dir(dir), cache)
	}
	return buildPrograms(ctx, cache)
}

func programsIn(dir string) (Programs, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Programs{}, err
	}
	p := Programs{APIServer: filepath.Join(dir, "kube-apiserver"), Etcd: filepath.Join(dir, "etcd")}
	for _, path := range []string{p.APIServer, p.Etcd} {
		info, err := os.Stat(path)
		if err != nil {
			return Programs{}, err
		}
		if info.IsDir() || info.Mode()&0o111 == 0 {
			return Programs{}, fmt.Errorf("%s is not an executable file", path)
		}
	}
	return p, nil
}

func cacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no place to keep kube-apiserver and etcd (set KUBEBUILDER_ASSETS or XDG_CACHE_HOME): %w", err)
	}
	dir := filepath.Join(base, "ipamaudit-test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("no place to keep kube-apiserver and etcd: %w", err)
	}
	return dir, nil
}

// findAbove looks for rel in the working directory and in each directory above.
func findAbove(rel string) (string, bool) {
	dir, err := os.Getwd()
	for err == nil {
		path := filepath.Join(dir, rel)
		if _, statErr := os.Stat(path); statErr == nil {
			return path, true
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			break
		}
		dir = parent
	}
	return "", false
}

// installFile puts a program where others look for it only once it is whole.
func installFile(path string, write func(*os.File) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // renamed by then, unless something failed
	if err := write(tmp); err != nil {
		tmp.Close()
		return err
	}
	if err := tmp.Chmod(fs.FileMode(0o755)); err != nil {
		tmp.Close()
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
