package collect

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"ipamaudit/ipam"
)

// diffSnapshots compares what two snapshots say. What a recorded one need not
// repeat is left out: ignored files, and objects that told nothing.
func diffSnapshots(a, b *ipam.Snapshot) string {
	return cmp.Diff(a, b,
		cmpopts.IgnoreUnexported(ipam.Snapshot{}, ipam.Pool{}, ipam.Block{}, ipam.RouteTable{}, ipam.BGPPeer{}),
		cmpopts.IgnoreFields(ipam.Snapshot{}, "Ignored", "Coverage", "Rejected"),
		cmpopts.IgnoreFields(ipam.RouteTable{}, "Source"),
		cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{}),
		cmpopts.EquateEmpty(),
	)
}

func diffCoverage(a, b *ipam.Snapshot) string {
	return cmp.Diff(a.Coverage.List(), b.Coverage.List(), cmpopts.IgnoreFields(ipam.ResourceCoverage{}, "Items"))
}

func record(t *testing.T, dest, from string) *ipam.Snapshot {
	t.Helper()
	rec, err := NewRecorder(dest)
	if err != nil {
		t.Fatal(err)
	}
	s, err := FromPath(context.Background(), from, Options{Record: rec})
	if err != nil {
		t.Fatal(err)
	}
	if err := rec.Finish(s, "test"); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestRecordedSamples writes every sample and reads it back.
func TestRecordedSamples(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join(sharedDir(t), "*", "*", "cluster"))
	if err != nil || len(dirs) == 0 {
		t.Fatal("no samples", err)
	}
	for i, dir := range append(dirs, filepath.Join(sharedDir(t), "real", "t293729"), filepath.Join(sharedDir(t), "real", "t293729-v3crds")) {
		t.Run(filepath.Base(filepath.Dir(dir)), func(t *testing.T) {
			t.Parallel()
			dest := filepath.Join(t.TempDir(), "snap")
			if i%2 == 0 {
				dest += ".tar.gz"
			}
			want := record(t, dest, dir)
			got, err := FromPath(context.Background(), dest, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if d := diffSnapshots(want, got); d != "" {
				t.Errorf("read back (-want +got):\n%s", d)
			}
			if d := diffCoverage(want, got); d != "" {
				t.Errorf("coverage (-want +got):\n%s", d)
			}
		})
	}
}

func TestRecorderRefusesWhatExists(t *testing.T) {
	dir := t.TempDir()
	full := filepath.Join(dir, "full")
	if err := os.MkdirAll(filepath.Join(full, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(dir, "a.tar.gz")
	if err := os.WriteFile(archive, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, dest := range []string{full, archive, filepath.Join(dir, "no", "parent")} {
		if _, err := NewRecorder(dest); err == nil {
			t.Errorf("%s: no error", dest)
		}
	}
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	rec, err := NewRecorder(empty)
	if err != nil {
		t.Fatal(err)
	}
	if err := rec.Discard(); err != nil {
		t.Fatal(err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, ".*"))
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestRecordingHoldsNoMoreThanNeeded looks for what must never be stored.
func TestRecordingHoldsNoMoreThanNeeded(t *testing.T) {
	from := t.TempDir()
	writeFile(t, from, "all.json", `{"apiVersion":"v1","kind":"List","items":[
	 {"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"data":{"p":"c2VjcmV0LXdvcmQ="}},
	 {"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"password":"secret-word"}},
	 {"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"n","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"secret-word","cni.projectcalico.org/podIP":""},"managedFields":[{"manager":"secret-word"}]},
	  "spec":{"containers":[{"env":[{"name":"PW","value":"secret-word"}]}]},
	  "status":{"containerStatuses":[{"restartCount":3,"state":{"waiting":{"reason":"CrashLoopBackOff"}},"lastState":{"terminated":{"message":"secret-word"}}}]}},
	 {"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"calico-kube-controllers","namespace":"kube-system"},
	  "spec":{"template":{"spec":{"containers":[{"name":"c","env":[{"name":"ETCD_PASSWORD","value":"secret-word"},{"name":"ENABLED_CONTROLLERS","value":"node"}]}]}}}},
	 {"apiVersion":"v1","kind":"Event","metadata":{"name":"e","namespace":"n"},"involvedObject":{"kind":"Pod","name":"p"},"reason":"Pulled","message":"secret-word"}
	]}`)
	dest := filepath.Join(t.TempDir(), "snap")
	record(t, dest, from)
	err := filepath.WalkDir(dest, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		for _, word := range []string{"secret-word", "c2VjcmV0", "managedFields", "last-applied", "ETCD_PASSWORD"} {
			if contains(data, word) {
				t.Errorf("%s holds %q", p, word)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := FromPath(context.Background(), dest, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if p := got.Pods[0]; !p.Released || p.Restarts != 3 || p.Waiting != "CrashLoopBackOff" {
		t.Errorf("pod lost something: %+v", p)
	}
	if got.Workloads[0].Env["ENABLED_CONTROLLERS"] != "node" {
		t.Errorf("workload lost its settings: %+v", got.Workloads[0])
	}
}

// TestRecorderThatCannotWrite: the audit goes on, the snapshot does not appear.
func TestRecorderThatCannotWrite(t *testing.T) {
	dest := filepath.Join(t.TempDir(), "snap")
	rec, err := NewRecorder(dest)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(rec.staging); err != nil {
		t.Fatal(err)
	}
	from := t.TempDir()
	writeFile(t, from, "ippools.json", onePool)
	s, err := FromPath(context.Background(), from, Options{Record: rec})
	if err != nil || len(s.Pools) != 1 {
		t.Fatal(err)
	}
	if err := rec.Finish(s, "test"); err == nil {
		t.Error("no error")
	}
	if _, err := os.Stat(dest); err == nil {
		t.Error("half a snapshot")
	}
}
