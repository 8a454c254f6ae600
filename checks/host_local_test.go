package checks

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The lease of a running pod is never called stale, whatever crictl says or
// does not say.
func TestStaleLeases(t *testing.T) {
	const live, gone, young = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752", "fd61a03af4f77d870fc21e05e7e80678095c92d808cfb3b5c279ee04c74aca13"
	dir := t.TempDir()
	long := time.Now().Add(-time.Hour)
	for name, content := range map[string]string{
		"k8s-pod-network/10.42.5.7": live + "\r\neth0", "k8s-pod-network/10.42.5.8": gone + "\r\neth0",
		"k8s-pod-network/fd00::5": live + "\r\neth0", "k8s-pod-network/fd00::6": gone, // without an interface, as old releases wrote it
		"k8s-pod-network/10.42.5.9": young + "\r\neth0", // its sandbox is being made
		"k8s-pod-network/lock":      "", "k8s-pod-network/last_reserved_ip.0": "10.42.5.9",
		"podman/10.88.0.2": "a container of podman's",
	} {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(content, young) {
			continue
		}
		if err := os.Chtimes(name, long, long); err != nil {
			t.Fatal(err)
		}
	}
	steps := hostLocalSteps("n1")
	look := strings.ReplaceAll(strings.Join(steps[0].Commands, "\n"), "/var/lib/cni/networks", dir)
	set := strings.Replace(look, "NETWORK= ", "NETWORK=k8s-pod-network ", 1)
	remove := steps[2].Commands[0]
	answers := "crictl() { echo " + live + "; echo 0000; }\n"
	stale := []string{"k8s-pod-network/10.42.5.8", "k8s-pod-network/fd00::6"}
	for _, tc := range []struct {
		name, script string
		stale        []string
	}{
		{"crictl works", answers + set, stale},
		{"crictl prints short IDs", "crictl() { echo " + live[:13] + "; }\n" + set, stale},
		{"crictl warns", "crictl() { echo WARN deprecated >&2; echo " + live + "; }\n" + set, stale},
		{"crictl is missing", "PATH=/usr/bin:/bin; unset -f crictl\n" + set, nil},
		{"crictl fails", "crictl() { echo FATA no such socket >&2; return 1; }\n" + set, nil},
		{"crictl breaks off", "crictl() { echo 0000; return 1; }\n" + set, nil},
		{"crictl lists nothing", "crictl() { :; }\n" + set, nil},
		{"no network is named", answers + look, nil},
		{"no such network", answers + strings.Replace(look, "NETWORK= ", "NETWORK=cbr0 ", 1), nil},
	} {
		for _, shell := range []string{"bash", "sh"} {
			var got []string
			out, _ := exec.Command(shell, "-c", tc.script).Output() // refusals exit with a status of their own
			for line := range strings.Lines(string(out)) {
				if rel, err := filepath.Rel(dir, strings.TrimSpace(line)); err == nil && strings.HasPrefix(line, dir) {
					got = append(got, rel)
				}
			}
			slices.Sort(got)
			if strings.Join(got, " ") != strings.Join(tc.stale, " ") {
				t.Errorf("%s, %s: %q, want %q\n%s", tc.name, shell, got, tc.stale, out)
			}
			if tc.stale == nil {
				_ = exec.Command(shell, "-c", tc.script+"\n"+remove).Run()
			}
		}
	}
	left := func() (n int) {
		files, err := filepath.Glob(dir + "/*/*")
		if err != nil {
			t.Fatal(err)
		}
		return len(files)
	}
	if n := left(); n != 8 {
		t.Fatalf("%d files are left, want all 8: something was deleted where nothing is known to be stale", n)
	}
	if out, err := exec.Command("bash", "-c", answers+set+"\n"+remove).CombinedOutput(); err != nil || left() != 6 {
		t.Errorf("%v, %d files left, want 6:\n%s", err, left(), out)
	}
	count := strings.ReplaceAll(countLeases("n1"), "/var/lib/cni/networks", dir+"/k8s-pod-network")
	if out, err := exec.Command("bash", "-c", count).Output(); err != nil || strings.TrimSpace(string(out)) != "3" {
		t.Errorf("%v, %s leases, want 3", err, out)
	}
}
