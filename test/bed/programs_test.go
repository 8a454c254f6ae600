package bed

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

func writePrebuilt(t *testing.T, sums string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"kube-apiserver", "etcd"} {
		enc, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+".zst"), enc.EncodeAll([]byte("program "+name), nil), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "SHA256SUMS"), []byte(sums), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestPrebuiltPrograms(t *testing.T) {
	sum := func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }
	good := sum("program kube-apiserver") + "  kube-apiserver\n" + sum("program etcd") + " *etcd\n"
	for _, tc := range []struct{ name, sums, wantErr string }{
		{"good", good, ""},
		{"other content", strings.Replace(good, sum("program etcd"), sum("something else"), 1), "SHA256SUMS says " + sum("something else")},
		{"not listed", sum("program etcd") + "  etcd\n", "does not list kube-apiserver"},
		{"not a list of sums", "hello\n", "not a line of sha256sum"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cache := t.TempDir()
			p, err := unpackPrograms(writePrebuilt(t, tc.sums), cache)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("error %v, want %q in it", err, tc.wantErr)
				}
				left, _ := filepath.Glob(filepath.Join(cache, "*", "etcd"))
				if len(left) > 0 {
					t.Errorf("an unverified program was left in the cache: %v", left)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := programsIn(filepath.Dir(p.Etcd)); err == nil {
				t.Error("etcd and kube-apiserver share a directory although their sums differ")
			}
			for _, path := range []string{p.APIServer, p.Etcd} {
				data, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if want := "program " + filepath.Base(path); string(data) != want {
					t.Errorf("%s contains %q, want %q", path, data, want)
				}
				if info, _ := os.Stat(path); info.Mode()&0o111 == 0 {
					t.Errorf("%s is not executable", path)
				}
			}
		})
	}
}

// A source that somebody named must deliver: silently building for a quarter of
// an hour instead would be no help.
func TestNamedSourcesMustDeliver(t *testing.T) {
	for _, name := range []string{"KUBEBUILDER_ASSETS", "IPAMAUDIT_KUBE_BIN"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("XDG_CACHE_HOME", t.TempDir())
			t.Setenv("KUBEBUILDER_ASSETS", "")
			t.Setenv(name, t.TempDir())
			if _, err := FindPrograms(t.Context()); err == nil || !strings.HasPrefix(err.Error(), name+": ") {
				t.Errorf("error %v, want one that begins with %s", err, name)
			}
		})
	}
}

func TestBuildFlags(t *testing.T) {
	if got, want := ldflags("v1.36.3"), "gitMinor=36"; !strings.Contains(got, want) {
		t.Errorf("ldflags = %q, want %q in it", got, want)
	}
	src, err := kubeModule()
	if err != nil {
		t.Fatal(err)
	}
	if version, err := goCommand(t.Context(), src, "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes"); err != nil || !strings.HasPrefix(version, "v1.") {
		t.Errorf("version of Kubernetes in test/kube: %q, %v", version, err)
	}
	if _, err := goCommand(t.Context(), src, "list", "-deps", "./..."); err != nil {
		t.Errorf("test/kube does not resolve; run `go mod tidy` there: %v", err)
	}
	one, err1 := buildKey(src)
	two, err2 := buildKey(src)
	if err1 != nil || err2 != nil || one != two || one == "" {
		t.Errorf("build keys %q, %q, %v, %v", one, two, err1, err2)
	}
}
