package collect

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"ipamaudit/ipam"
)

// Options tell what a saved snapshot does not say itself.
type Options struct {
	// Name of the cluster; when empty the manifest's, else the path's last element.
	Name string
	// AsOf is the snapshot's "now"; when zero the manifest's time, else the
	// newest creation, event or allocation in it.
	AsOf time.Time
	// Stdin is what the path "-" reads.
	Stdin io.Reader
	// Record receives a reduced copy of everything that is read, or is nil.
	Record *Recorder
}

// Files reads a saved snapshot.
type Files struct {
	path string
	opts Options
}

// NewFiles returns a source that reads name: a directory, a .tar.gz, a single
// file, or "-" for one YAML or JSON stream on opts.Stdin.
func NewFiles(name string, opts Options) *Files { return &Files{name, opts} }

// Collect reads the snapshot. Errors match ErrNoInput or ErrBadInput, or are
// the context's.
func (f *Files) Collect(ctx context.Context) (*ipam.Snapshot, error) {
	if f.path == "-" {
		if f.opts.Stdin == nil {
			return nil, fmt.Errorf("%w: standard input is not connected", ErrNoInput)
		}
		return FromReader(ctx, f.opts.Stdin, f.opts)
	}
	return FromPath(ctx, f.path, f.opts)
}

// FromPath reads a snapshot from a directory (recursively), an archive
// (.tar.gz, .tgz, .tar) or a single file.
func FromPath(ctx context.Context, name string, opts Options) (*ipam.Snapshot, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadInput, err)
	}
	l := newLoader(ctx, opts)
	switch {
	case info.IsDir():
		err = l.directory(name)
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%w: %s is neither a file nor a directory", ErrBadInput, name)
	default:
		err = l.single(name)
	}
	return l.finish(name, defaultName(name), err)
}

// FromReader reads one stream of YAML or JSON.
func FromReader(ctx context.Context, r io.Reader, opts Options) (*ipam.Snapshot, error) {
	l := newLoader(ctx, opts)
	l.objects("stdin", r, 0)
	return l.finish("standard input", "stdin", nil)
}

func defaultName(name string) string {
	if abs, err := filepath.Abs(name); err == nil {
		name = abs
	}
	base := filepath.Base(name)
	for _, ext := range []string{".tar.gz", ".tgz", ".tar", ".yaml", ".yml", ".json"} {
		if rest, ok := strings.CutSuffix(base, ext); ok && rest != "" {
			return rest
		}
	}
	return base
}

// loader reads files one after the other and hands their objects to workers.
type loader struct {
	ctx       context.Context
	opts      Options
	b         *Builder
	workers   *workers
	manifests []*manifest
	files     int
}

func newLoader(ctx context.Context, opts Options) *loader {
	b := NewBuilder()
	if opts.Record != nil {
		b.tee = opts.Record.object
	}
	return &loader{ctx: ctx, opts: opts, b: b, workers: startWorkers(b)}
}

// finish waits for the workers and builds the snapshot.
func (l *loader) finish(what, name string, err error) (*ipam.Snapshot, error) {
	l.workers.wait()
	l.b.checkPages()
	if err == nil {
		err = l.ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	opts := FinishOptions{Name: l.opts.Name, AsOf: l.opts.AsOf}
	switch len(l.manifests) {
	case 0:
	case 1:
		m := l.manifests[0]
		m.apply(l.b)
		if opts.Name == "" {
			opts.Name = m.Cluster.Name
		}
		if opts.AsOf.IsZero() {
			opts.AsOf, opts.AsOfInferred = m.Time, m.TimeInferred
		}
		opts.ID, opts.API = m.Cluster.ID, m.API
	default:
		return nil, fmt.Errorf("%w: %s holds several snapshots (%s, %s); pass each by itself", ErrBadInput, what, l.manifests[0].file, l.manifests[1].file)
	}
	if len(l.manifests) == 0 && !l.b.usable() {
		return nil, l.nothing(what)
	}
	if opts.Name == "" {
		opts.Name = name
	}
	s, err := l.b.Finish(opts)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return s, nil
}

// nothing says why there is no snapshot: the first errors, else what was looked for.
func (l *loader) nothing(what string) error {
	if len(l.b.rejected) == 0 {
		if l.files == 0 {
			return fmt.Errorf("%w: %s is empty", ErrNoInput, what)
		}
		return fmt.Errorf("%w: %s holds no object that the audit knows (%d files or objects of other kinds)", ErrNoInput, what, l.b.ignored)
	}
	const most = 5
	var errs []error
	for i, e := range l.b.rejected {
		if i == most {
			errs = append(errs, fmt.Errorf("and %d more", len(l.b.rejected)-most))
			break
		}
		errs = append(errs, e)
	}
	return fmt.Errorf("%w: nothing in %s can be used: %w", ErrBadInput, what, errors.Join(errs...))
}

func (l *loader) directory(name string) error {
	root, err := os.OpenRoot(name)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBadInput, err)
	}
	defer func() { _ = root.Close() }()
	return fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if l.ctx.Err() != nil {
			return l.ctx.Err()
		}
		hidden := p != "." && strings.HasPrefix(path.Base(p), ".")
		switch {
		case err != nil && p == ".":
			return fmt.Errorf("%w: %w", ErrBadInput, err)
		case err != nil:
			l.unreadable(p, err)
			return nil
		case d.IsDir() && hidden:
			return fs.SkipDir
		case d.IsDir():
			return nil
		case hidden:
			l.b.Ignored()
			return nil
		}
		// root follows no link out of the directory.
		info, err := root.Stat(p)
		if err != nil || !info.Mode().IsRegular() {
			l.b.Ignored()
			return nil
		}
		f, err := root.Open(p)
		if err != nil {
			l.unreadable(p, err)
			return nil
		}
		defer f.Close()
		return l.file(p, f, info.Size())
	})
}

// unreadable reports a file that could not be opened. What it should have held
// was not read, if its name tells.
func (l *loader) unreadable(name string, err error) {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	l.files++
	l.broken(Place{File: name}, fmt.Errorf("cannot be read: %w", err))
}

// broken reports a file, or the rest of one.
func (l *loader) broken(p Place, err error) {
	l.b.Rejected(ipam.ObjectError{Where: p.String(), Message: err.Error()})
	if r, _, ok := resourceOfFile(p.File); ok {
		l.b.SetStatus(r, ipam.Failed, fmt.Sprintf("%s: %v", p, err))
	}
}

// single reads an archive or one file of objects.
func (l *loader) single(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBadInput, err)
	}
	defer f.Close()
	lower := strings.ToLower(name)
	switch {
	case strings.HasSuffix(lower, ".tar.gz"), strings.HasSuffix(lower, ".tgz"):
		z, err := gzip.NewReader(bufio.NewReaderSize(f, 256<<10))
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrBadInput, name, archiveError(err))
		}
		return l.archive(name, z)
	case strings.HasSuffix(lower, ".tar"):
		return l.archive(name, f)
	default:
		size := int64(0)
		if info, err := f.Stat(); err == nil {
			size = info.Size()
		}
		l.objects(filepath.Base(name), f, size)
		return nil
	}
}

// archive reads a tar stream. An archive that breaks off is refused as a
// whole: nobody can tell which kinds its lost part held.
func (l *loader) archive(name string, r io.Reader) error {
	t := tar.NewReader(&ctxReader{l.ctx, r})
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			// Reading on to the end verifies gzip's checksum.
			if _, err := io.Copy(io.Discard, &ctxReader{l.ctx, r}); err != nil {
				return fmt.Errorf("%w: %s: %w", ErrBadInput, name, archiveError(err))
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrBadInput, name, archiveError(err))
		}
		entry := strings.TrimPrefix(path.Clean(h.Name), "./")
		if h.Typeflag == tar.TypeDir {
			continue
		}
		if h.Typeflag != tar.TypeReg || !fs.ValidPath(entry) || hiddenPath(entry) {
			l.b.Ignored()
			continue
		}
		watched := &errReader{r: t}
		if err := l.file(entry, watched, h.Size); err != nil {
			return err
		}
		if watched.err != nil {
			return fmt.Errorf("%w: %s: %s: %w", ErrBadInput, name, entry, archiveError(watched.err))
		}
	}
}

func hiddenPath(p string) bool {
	for part := range strings.SplitSeq(p, "/") {
		if strings.HasPrefix(part, ".") {
			return true
		}
	}
	return false
}

func archiveError(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return fmt.Errorf("the archive is truncated: %w", io.ErrUnexpectedEOF)
	}
	return fmt.Errorf("the archive is broken: %w", err)
}

// errReader remembers why reading failed, to tell a broken archive from a
// broken file in it.
type errReader struct {
	r   io.Reader
	err error
}

func (e *errReader) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		e.err = err
	}
	return n, err
}

// ctxReader ends when the context does.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *ctxReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// file reads one file of a directory or archive by what its name says it is.
func (l *loader) file(name string, r io.Reader, size int64) error {
	l.files++
	ext := strings.ToLower(path.Ext(name))
	switch {
	case path.Base(name) == manifestFile:
		m, ok, err := readManifest(name, r)
		if err != nil {
			return err
		}
		if ok {
			l.manifests = append(l.manifests, m)
		}
	case path.Base(path.Dir(name)) == "routes" && (ext == ".txt" || ext == ".json"):
		l.routes(name, r)
	case ext == ".yaml" || ext == ".yml" || ext == ".json":
		l.objects(name, r, size)
	default:
		l.b.Ignored()
	}
	return nil
}

// routes reads routes/<node>.txt or .json.
func (l *loader) routes(name string, r io.Reader) {
	const most = 64 << 20
	data, err := io.ReadAll(io.LimitReader(&ctxReader{l.ctx, r}, most))
	node := strings.TrimSuffix(path.Base(name), path.Ext(name))
	table, errs := tableOf(node, name, data, err)
	for _, e := range errs {
		l.b.Rejected(e)
	}
	if table != nil {
		l.b.AddTables(sourceFiles, *table)
		return
	}
	l.b.AddTables(sourceFiles)
}

// objects reads a stream of YAML or JSON, of so many bytes where that is known.
func (l *loader) objects(name string, r io.Reader, size int64) {
	l.workers.expect(size)
	in := bufio.NewReaderSize(&ctxReader{l.ctx, r}, 64<<10)
	head, _ := in.Peek(512)
	f := &fileSink{l: l, name: name}
	f.resource, _, f.named = resourceOfFile(name)
	if st, text, ok := kubectlError(head); ok {
		l.b.Ignored()
		if f.named {
			l.b.hint(f.resource, st, text)
		}
		return
	}
	var err error
	switch {
	case bytes.HasPrefix(head, []byte{0xff, 0xfe}), bytes.HasPrefix(head, []byte{0xfe, 0xff}), bytes.IndexByte(head, 0) >= 0:
		err = errors.New("is not UTF-8 (PowerShell's > writes UTF-16; save it as UTF-8)")
	default:
		if bytes.HasPrefix(head, []byte("\xef\xbb\xbf")) {
			_, _ = in.Discard(3)
			head = head[3:]
		}
		if strings.HasSuffix(strings.ToLower(name), ".json") || looksLikeJSON(head) {
			err = newJSONStream(in, Place{File: name}, f).run()
		} else {
			err = newYAMLStream(in, Place{File: name}, f).run()
		}
	}
	l.workers.flush()
	if l.ctx.Err() != nil {
		return
	}
	f.end(head, err)
}

// looksLikeJSON tells {"… and [{ from YAML's flow style, which nobody writes at the top.
func looksLikeJSON(head []byte) bool {
	head = bytes.TrimSpace(head)
	if len(head) == 0 {
		return false
	}
	rest := bytes.TrimSpace(head[1:])
	switch head[0] {
	case '{':
		return len(rest) == 0 || rest[0] == '"' || rest[0] == '}'
	case '[':
		return len(rest) == 0 || rest[0] == '{' || rest[0] == ']'
	}
	return false
}

// fileSink receives what one file holds.
type fileSink struct {
	l    *loader
	name string
	// resource is what the file is named after, if named.
	resource ipam.Resource
	named    bool
	// seen are the resources of the file's objects and lists.
	seen map[ipam.Resource]bool
}

func (f *fileSink) wants(apiVersion, kind string) bool {
	_, ok := resourceOf(apiVersion, kind)
	return ok
}

func (f *fileSink) note(apiVersion, kind string) {
	if r, ok := resourceOf(apiVersion, kind); ok && !f.seen[r] {
		if f.seen == nil {
			f.seen = map[ipam.Resource]bool{}
		}
		f.seen[r] = true
	}
}

func (f *fileSink) object(o Object) {
	f.note(o.APIVersion, o.Kind)
	if o.JSON == nil || !f.wants(o.APIVersion, o.Kind) {
		f.l.b.Ignored()
		return
	}
	f.l.workers.add(job{apiVersion: o.APIVersion, kind: o.Kind, place: o.Place}, o.JSON)
}

func (f *fileSink) fragment(y yamlFragment) {
	f.note(y.APIVersion, y.Kind)
	if y.Unwanted {
		f.l.b.Ignored()
		return
	}
	f.l.workers.add(job{apiVersion: y.APIVersion, kind: y.Kind, place: y.Place, yaml: true}, y.Text)
}

func (f *fileSink) listed(e listEnd) {
	f.note(e.APIVersion, strings.TrimSuffix(e.Kind, "List"))
	listed(f.l.b, f.name, e)
}

// listed records that a list was read: by its own kind, or, for an anonymous
// empty List, by the name of its file.
func listed(b *Builder, file string, e listEnd) {
	if r, ok := resourceOf(e.APIVersion, strings.TrimSuffix(e.Kind, "List")); ok && knownVersion(e.APIVersion) {
		b.Listed(r, groupOf(e.APIVersion))
		b.paged(r, file, e)
		return
	}
	if r, group, ok := resourceOfFile(file); ok && e.Kind == "List" && e.Items == 0 {
		b.Listed(r, group)
	}
}

func (f *fileSink) broken(p Place, apiVersion, kind string, err error) {
	brokenFragment(f.l.b, p, apiVersion, kind, err)
}

// brokenFragment rejects a piece of a file whose kind may only be guessed from
// the file's name.
func brokenFragment(b *Builder, p Place, apiVersion, kind string, err error) {
	r, ok := resourceOf(apiVersion, kind)
	if !ok {
		r, _, ok = resourceOfFile(p.File)
	}
	if !ok {
		r = ""
	}
	b.reject(r, &Object{APIVersion: apiVersion, Kind: kind, Place: p}, err)
}

// end judges the file as a whole.
func (f *fileSink) end(head []byte, err error) {
	if err != nil {
		// The rest is lost, of every kind that the file holds.
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("it ends in the middle")
		}
		p := Place{File: f.name}
		f.l.broken(p, err)
		for r := range f.seen {
			f.l.b.SetStatus(r, ipam.Failed, fmt.Sprintf("%s: %v", p, err))
		}
		return
	}
	if f.named && len(bytes.TrimSpace(head)) == 0 {
		f.l.b.hint(f.resource, ipam.Failed, f.name+" is empty")
	}
}

// kubectlError recognises what kubectl prints instead of objects, redirected
// into the file together with what it should have held.
func kubectlError(head []byte) (ipam.ReadStatus, string, bool) {
	line, _, _ := strings.Cut(strings.TrimSpace(string(head)), "\n")
	for _, start := range []string{"Error from server", "error: ", "Unable to connect to the server"} {
		if strings.HasPrefix(line, start) {
			st := ipam.Failed
			if strings.Contains(line, "(Forbidden)") {
				st = ipam.Forbidden
			}
			return st, strings.TrimSpace(strings.ToValidUTF8(line, "?")), true
		}
	}
	return "", "", false
}
