package collect

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ipamaudit/ipam"
)

// Recorder writes what a source reads as a snapshot on disk, while it is read.
// Only the fields that the audit decodes are written: no managed fields, no
// last-applied annotations, no environment but Calico's own settings. Nothing
// appears under the destination's name before Finish.
type Recorder struct {
	dest    string
	archive bool
	staging string

	mu    sync.Mutex
	files map[ipam.Resource]*recording
	// err is the first that writing met: a full disk must not look like a
	// cluster that could not be read.
	err error
}

// recording is the file of one resource.
type recording struct {
	f     *os.File
	w     *bufio.Writer
	items int
}

// NewRecorder prepares a snapshot at dest: a directory, or an archive when the
// name ends in .tar.gz or .tgz. A directory that holds something and a file
// that exists are refused. The caller calls Finish or Discard.
func NewRecorder(dest string) (*Recorder, error) {
	dest = filepath.Clean(dest)
	r := &Recorder{dest: dest, files: map[ipam.Resource]*recording{}}
	lower := strings.ToLower(dest)
	r.archive = strings.HasSuffix(lower, ".tar.gz") || strings.HasSuffix(lower, ".tgz")
	if err := r.free(); err != nil {
		return nil, err
	}
	staging, err := os.MkdirTemp(filepath.Dir(dest), "."+filepath.Base(dest)+".tmp-")
	if err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", dest, err)
	}
	r.staging = staging
	return r, nil
}

// free checks that dest may be written.
func (r *Recorder) free() error {
	info, err := os.Stat(r.dest)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("snapshot %s: %w", r.dest, err)
	case r.archive:
		return fmt.Errorf("snapshot %s: %w; choose another name or remove it", r.dest, fs.ErrExist)
	case !info.IsDir():
		return fmt.Errorf("snapshot %s: it exists and is no directory", r.dest)
	}
	entries, err := os.ReadDir(r.dest)
	if err != nil {
		return fmt.Errorf("snapshot %s: %w", r.dest, err)
	}
	if len(entries) > 0 {
		return fmt.Errorf("snapshot %s: the directory is not empty; choose another or empty it", r.dest)
	}
	return nil
}

// object appends one object to its resource's list.
func (r *Recorder) object(res ipam.Resource, w object) {
	raw, err := json.Marshal(w, json.Deterministic(true))
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && r.err == nil {
		err = r.append(res, raw)
	}
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("snapshot %s: %s: %w", r.dest, res, err)
	}
}

func (r *Recorder) append(res ipam.Resource, raw []byte) error {
	rec, err := r.recording(res)
	if err != nil {
		return err
	}
	separator := "\n"
	if rec.items > 0 {
		separator = ",\n"
	}
	rec.items++
	if _, err = rec.w.WriteString(separator); err == nil {
		_, err = rec.w.Write(raw)
	}
	return err
}

func (r *Recorder) recording(res ipam.Resource) (*recording, error) {
	if rec := r.files[res]; rec != nil {
		return rec, nil
	}
	f, err := os.OpenFile(filepath.Join(r.staging, string(res)+".items"), os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	rec := &recording{f: f, w: bufio.NewWriterSize(f, 64<<10)}
	r.files[res] = rec
	return rec, nil
}

// reset forgets what was recorded of a resource: its list starts over or failed.
func (r *Recorder) reset(res ipam.Resource) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rec := r.files[res]; rec != nil {
		_ = rec.f.Close()
		_ = os.Remove(rec.f.Name())
		delete(r.files, res)
	}
}

// Discard removes everything that was recorded.
func (r *Recorder) Discard() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rec := range r.files {
		_ = rec.f.Close()
	}
	r.files = map[ipam.Resource]*recording{}
	if err := os.RemoveAll(r.staging); err != nil {
		return fmt.Errorf("snapshot %s: %w", r.dest, err)
	}
	return nil
}

// Finish completes the snapshot with the manifest and the route tables of s,
// which the recorded source returned, and moves it to its destination. tool
// names the program and its version.
func (r *Recorder) Finish(s *ipam.Snapshot, tool string) (err error) {
	defer func() { err = errors.Join(err, r.Discard()) }()
	if r.err != nil {
		return r.err
	}
	if err := r.write(s, tool); err != nil {
		return fmt.Errorf("snapshot %s: %w", r.dest, err)
	}
	// Somebody may have come first.
	if err := r.free(); err != nil {
		return err
	}
	if r.archive {
		err = r.pack()
	} else {
		err = r.move()
	}
	if err != nil {
		return fmt.Errorf("snapshot %s: %w", r.dest, err)
	}
	return nil
}

func (r *Recorder) write(s *ipam.Snapshot, tool string) error {
	m := manifest{Schema: ManifestSchema, Time: s.AsOf, TimeInferred: s.AsOfInferred, Tool: tool, API: s.API}
	m.Cluster.Name, m.Cluster.ID = s.Cluster.Name, s.Cluster.ID
	for _, c := range s.Coverage.List() {
		m.Resources = append(m.Resources, manifestResource{string(c.Resource), c.Status, c.Detail})
		if c.Status != ipam.Read {
			r.reset(c.Resource)
			continue
		}
		if err := r.list(c.Resource, s.API); err != nil {
			return err
		}
	}
	for _, e := range s.Rejected {
		m.Rejected = append(m.Rejected, manifestRejected{e.Where, e.Kind, e.Name, e.Field, e.Message})
	}
	for _, t := range s.Tables {
		if !fs.ValidPath(t.Node) || strings.ContainsAny(t.Node, `/\`) {
			return fmt.Errorf("routes: node name %q cannot be a file name", t.Node)
		}
		dir := filepath.Join(r.staging, "routes")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, t.Node+".txt"), FormatTable(&t), 0o644); err != nil {
			return err
		}
	}
	raw, err := json.Marshal(m, jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.staging, manifestFile), append(raw, '\n'), 0o644)
}

// list turns the recorded items into a List: the head is only written now,
// since an empty list has to say its group, too.
func (r *Recorder) list(res ipam.Resource, api string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	apiVersion, kind := kindOf(res, api)
	out, err := os.OpenFile(filepath.Join(r.staging, string(res)+".json"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := fmt.Fprintf(out, `{"apiVersion":%q,"kind":%q,"metadata":{},"items":[`, apiVersion, kind+"List"); err != nil {
		return err
	}
	if rec := r.files[res]; rec != nil {
		if err := rec.w.Flush(); err != nil {
			return err
		}
		if _, err := rec.f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.Copy(out, rec.f); err != nil {
			return err
		}
		_ = rec.f.Close()
		if err := os.Remove(rec.f.Name()); err != nil {
			return err
		}
		delete(r.files, res)
	}
	if _, err := out.WriteString("\n]}\n"); err != nil {
		return err
	}
	return out.Close()
}

// move puts the staged directory in the place of dest.
func (r *Recorder) move() error {
	if err := os.Chmod(r.staging, 0o755); err != nil {
		return err
	}
	// An empty directory may stand there; Windows does not rename over it.
	if err := os.Remove(r.dest); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(r.staging, r.dest)
}

// pack writes the staged directory as an archive beside it and renames that.
func (r *Recorder) pack() (err error) {
	f, err := os.CreateTemp(filepath.Dir(r.dest), "."+filepath.Base(r.dest)+".tmp-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	z := gzip.NewWriter(f)
	t := tar.NewWriter(z)
	// The manifest goes first, so that a reader knows what it has before it.
	staged := os.DirFS(r.staging)
	for _, part := range []fs.FS{only{staged, true}, only{staged, false}} {
		if err := t.AddFS(part); err != nil {
			return err
		}
	}
	if err := errors.Join(t.Close(), z.Close(), f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), r.dest)
}

// only is a directory with nothing but the manifest in it, or all but that.
type only struct {
	fs.FS
	manifest bool
}

// ReadDir leaves out what is not wanted at the root.
func (o only) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(o.FS, name)
	if name == "." {
		entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return (e.Name() == manifestFile) != o.manifest })
	}
	return entries, err
}
