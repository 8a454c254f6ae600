package state

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ipamaudit/audit"
)

func mustLock(t *testing.T, s audit.Store) func() {
	t.Helper()
	unlock, err := s.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return unlock
}

func mustLoad(t *testing.T, s audit.Store) *audit.State {
	t.Helper()
	got, err := s.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func mustSave(t *testing.T, s audit.Store, state *audit.State) {
	t.Helper()
	if err := s.Save(t.Context(), state); err != nil {
		t.Fatal(err)
	}
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep", "state.json")
	f := NewFile(path)
	if d := cmp.Diff(audit.NewState(), mustLoad(t, f)); d != "" {
		t.Errorf("nothing stored is not the empty state: %s", d)
	}
	unlock := mustLock(t, f)
	mustSave(t, f, audit.NewState())
	mustSave(t, f, sample())
	unlock()
	unlock() // twice is once
	if d := cmp.Diff(sample(), mustLoad(t, NewFile(path))); d != "" {
		t.Error(d)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v (%v), want 0600", info.Mode(), err)
	}
	if got := files(t, filepath.Dir(path)); got != "state.json state.json.lock" {
		t.Errorf("files: %s", got)
	}
	if data, err := os.ReadFile(path); err != nil || !strings.Contains(string(data), "\n  \"schema\": \"ipamaudit/state/v1\"") {
		t.Errorf("not for people (%v):\n%s", err, data)
	}
}

func files(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func TestFileThatCannotBeReadIsNeverOverwritten(t *testing.T) {
	contents := map[string]string{"later": future}
	for name, d := range damaged {
		contents[name] = d.data
	}
	for name, content := range contents {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.json")
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			f := NewFile(path)
			defer mustLock(t, f)()
			if _, err := f.Load(t.Context()); err == nil || !strings.Contains(err.Error(), "mv \""+path) {
				t.Errorf("Load: %v, want an error that says how to move it away", err)
			}
			if err := f.Save(t.Context(), sample()); err == nil {
				t.Error("Save went through")
			}
			if data, err := os.ReadFile(path); err != nil || string(data) != content {
				t.Errorf("the file was changed (%v): %s", err, data)
			}
		})
	}
}

// A run that is killed while it writes leaves an unfinished file beside the old
// state, and its lock is gone with it.
func TestFileSurvivesAKilledRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	f := NewFile(path)
	unlock := mustLock(t, f)
	mustSave(t, f, sample())
	unlock()
	for _, name := range []string{".state.json.tmp-123", ".other.json.tmp-1"} {
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), name), []byte(`{"schema": "ipamaud`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path+".lock", []byte(`{"name": "pid 1 on a host that died"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(sample(), mustLoad(t, f)); d != "" {
		t.Errorf("the old state is lost: %s", d)
	}
	defer mustLock(t, f)()
	if got, want := files(t, filepath.Dir(path)), ".other.json.tmp-1 state.json state.json.lock"; got != want {
		t.Errorf("files %s, want %s", got, want)
	}
}

// The child of TestFileLockOfAnotherProcess: it holds the lock until it is killed.
func TestHoldLock(t *testing.T) {
	path := os.Getenv("HOLD_STATE_LOCK")
	if path == "" {
		t.Skip("only as a child of TestFileLockOfAnotherProcess")
	}
	mustLock(t, NewFile(path))
	_, _ = os.Stdout.WriteString("locked\n")
	select {}
}

func TestFileLockOfAnotherProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	child := exec.Command(os.Args[0], "-test.run=^TestHoldLock$", "-test.timeout=1m")
	child.Env = append(os.Environ(), "HOLD_STATE_LOCK="+path)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Wait()
	defer child.Process.Kill()
	if _, err := fmt.Fscanln(out, new(string)); err != nil {
		t.Fatalf("the child did not lock: %v", err)
	}

	_, err = NewFile(path).Lock(t.Context())
	var locked *LockedError
	if !errors.Is(err, audit.ErrLocked) || !errors.As(err, &locked) {
		t.Fatalf("Lock: %v, want ErrLocked", err)
	}
	if want := fmt.Sprintf("pid %d on ", child.Process.Pid); !strings.Contains(err.Error(), want) || locked.Holder.Since.IsZero() {
		t.Errorf("error %q, want it to say %q and since when", err, want)
	}

	// However a process ends, its lock ends with it.
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	child.Wait()
	mustLock(t, NewFile(path))()
}

func TestFileNeedsItsLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.json")
	f := NewFile(path)
	if err := f.Save(t.Context(), sample()); !errors.Is(err, errNotLocked) {
		t.Errorf("Save without a lock: %v", err)
	}
	unlock := mustLock(t, f)
	if _, err := NewFile(path).Lock(t.Context()); !errors.Is(err, audit.ErrLocked) {
		t.Errorf("a second lock: %v, want ErrLocked", err)
	}
	// Somebody deletes the lock file and another run takes the new one.
	if err := os.Remove(path + ".lock"); err != nil {
		t.Fatal(err)
	}
	defer mustLock(t, NewFile(path))()
	if err := f.Save(t.Context(), sample()); !errors.Is(err, audit.ErrLostLock) {
		t.Errorf("Save after the lock file was replaced: %v, want ErrLostLock", err)
	}
	unlock()
}

func TestFileFollowsALink(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "volume", "s.json"), filepath.Join(dir, "state.json")
	if err := os.Mkdir(filepath.Dir(target), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(target, []byte(`{"schema": "ipamaudit/state/v1"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Skip(err)
	}
	f := NewFile(link)
	defer mustLock(t, f)()
	mustSave(t, f, sample())
	if d := cmp.Diff(sample(), mustLoad(t, NewFile(target))); d != "" {
		t.Errorf("the target was not written: %s", d)
	}
}

func TestFileEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	f := NewFile(filepath.Join(t.TempDir(), "state.json"))
	if _, err := f.Load(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Load: %v", err)
	}
	if _, err := f.Lock(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Lock: %v", err)
	}
}
