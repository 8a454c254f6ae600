package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"ipamaudit/audit"
)

// File keeps the state in a JSON file. A crash at any moment leaves the old
// state or the new one, whole. It implements audit.Store.
type File struct {
	path string

	mu   sync.Mutex
	lock *os.File // nil while not locked
}

var _ audit.Store = (*File)(nil)

// NewFile returns the store for path. The file and its directory are made when
// they are needed; beside it a lock file, path + ".lock", stays.
func NewFile(path string) *File { return &File{path: path} }

// String is "file PATH".
func (f *File) String() string { return "file " + f.path }

func (f *File) place() place {
	return place{
		where:  f.String(),
		advice: fmt.Sprintf("To go on without it, move it away: mv %[1]q %[1]q.old. %[2]s", f.path, startAfresh),
	}
}

// Load returns what is stored; an empty state where there is no file yet.
func (f *File) Load(ctx context.Context) (*audit.State, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return audit.NewState(), nil
	case err != nil:
		return nil, fmt.Errorf("read the state: %w", err)
	}
	return decode(data, f.place())
}

// Save replaces the file: a new one is written beside it, synced and renamed.
func (f *File) Save(ctx context.Context, s *audit.State) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.stillLocked(); err != nil {
		return fmt.Errorf("save the state in %s: %w", f.path, err)
	}
	// What cannot be read is somebody's only copy.
	if _, err := f.Load(ctx); err != nil {
		return err
	}
	data, err := encode(s)
	if err != nil {
		return err
	}
	if err := f.replace(data); err != nil {
		return fmt.Errorf("save the state in %s: %w", f.path, err)
	}
	return nil
}

func (f *File) replace(data []byte) (err error) {
	target, err := f.target()
	if err != nil {
		return err
	}
	// CreateTemp makes it readable for its owner only.
	tmp, err := os.CreateTemp(filepath.Dir(target), tempPattern(target))
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			tmp.Close()
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	if _, err = tmp.Write(data); err != nil {
		return err
	}
	if err := tmp.Sync(); err != nil {
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), target); err != nil {
		return err
	}
	return syncDir(filepath.Dir(target))
}

// target follows a symbolic link, which renaming would replace.
func (f *File) target() (string, error) {
	target, err := filepath.EvalSymlinks(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return f.path, nil
	}
	return target, err
}

func tempPattern(target string) string { return "." + filepath.Base(target) + ".tmp-*" }

// Lock takes the lock of the file, which the system gives back when the process
// ends, however it ends.
func (f *File) Lock(ctx context.Context) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of the state: %w", err)
	}
	lock, err := f.takeLock()
	if err != nil {
		return nil, err
	}
	f.lock = lock
	f.removeLeftovers()
	var once sync.Once
	return func() { once.Do(f.unlock) }, nil
}

func (f *File) takeLock() (*os.File, error) {
	path := f.lockPath()
	for {
		lock, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, fmt.Errorf("open the lock of the state: %w", err)
		}
		switch err := tryFlock(lock); {
		case errors.Is(err, errWouldBlock):
			holder := readHolder(lock)
			_ = lock.Close()
			return nil, &LockedError{
				Where: path, Holder: holder,
				Advice: "Wait until that run has ended. The lock ends with its process; do not delete the file.",
			}
		case err != nil:
			lock.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		// Somebody may have deleted the file between opening and locking it.
		if !isFile(path, lock) {
			lock.Close()
			continue
		}
		if err := writeHolder(lock); err != nil {
			lock.Close()
			return nil, fmt.Errorf("write %s: %w", path, err)
		}
		return lock, nil
	}
}

func (f *File) unlock() {
	f.mu.Lock()
	defer f.mu.Unlock()
	// Closing gives the lock back. The file stays: deleting it would let two
	// processes lock two files of one name.
	f.lock.Truncate(0) //nolint:errcheck // only a hint for people
	f.lock.Close()
	f.lock = nil
}

func (f *File) stillLocked() error {
	switch {
	case f.lock == nil:
		return errNotLocked
	case !isFile(f.lockPath(), f.lock):
		return fmt.Errorf("%w: %s was deleted or replaced", audit.ErrLostLock, f.lockPath())
	}
	return nil
}

// removeLeftovers deletes the unfinished files of runs that were killed. Only
// the holder of the lock writes any.
func (f *File) removeLeftovers() {
	target, err := f.target()
	if err != nil {
		return
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(target), tempPattern(target)))
	if err != nil {
		return
	}
	for _, path := range left {
		os.Remove(path) //nolint:errcheck // litter, no harm
	}
}

func (f *File) lockPath() string { return f.path + ".lock" }

func isFile(path string, open *os.File) bool {
	at, err := os.Stat(path)
	if err != nil {
		return false
	}
	is, err := open.Stat()
	return err == nil && os.SameFile(at, is)
}

func readHolder(lock *os.File) (h Holder) {
	// A holder that is just writing its name has none yet.
	_ = json.NewDecoder(lock).Decode(&h)
	return h
}

func writeHolder(lock *os.File) error {
	host, err := os.Hostname()
	if err != nil {
		host = "an unnamed host"
	}
	data, err := json.Marshal(Holder{Name: fmt.Sprintf("pid %d on %s", os.Getpid(), host), Since: time.Now().UTC()})
	if err != nil {
		return err
	}
	if err := lock.Truncate(0); err != nil {
		return err
	}
	_, err = lock.WriteAt(append(data, '\n'), 0)
	return err
}
