package report

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"ipamaudit/audit"
)

// Spec says which format goes where.
type Spec struct {
	Format string
	// Path is a file; empty means stdout.
	Path string
}

// String prints the spec as -o takes it.
func (s Spec) String() string {
	if s.Path == "" {
		return s.Format
	}
	return s.Format + "=" + s.Path
}

// ParseSpec reads "json" (to stdout), "json=-" (the same) or "json=out.json".
func ParseSpec(arg string) (Spec, error) {
	format, path, hasPath := strings.Cut(arg, "=")
	switch {
	case !known(format):
		return Spec{}, unknownFormat(format)
	case hasPath && path == "":
		return Spec{}, fmt.Errorf("report %q names no file after the =", arg)
	case path == "-":
		path = ""
	}
	return Spec{Format: format, Path: path}, nil
}

// CheckSpecs refuses what one run cannot write: two reports to stdout, or two
// to the same file.
func CheckSpecs(specs []Spec) error {
	seen := map[string]Spec{}
	for _, s := range specs {
		place := s.Path
		if place != "" {
			place = filepath.Clean(place)
		}
		if first, taken := seen[place]; taken && place == "" {
			return fmt.Errorf("reports %s and %s would both go to stdout: write one of them to a file, as in -o %s=FILE", first, s, s.Format)
		} else if taken {
			return fmt.Errorf("reports %s and %s would go to the same file", first, s)
		}
		seen[place] = s
	}
	return nil
}

// WriteFiles writes r in every format asked for. Files appear whole or not at
// all. Opts are the terminal's and apply to stdout only. One report that
// cannot be written does not keep back the others: all errors come back, each
// with its format and place.
func WriteFiles(specs []Spec, r *audit.Report, stdout io.Writer, opts Options) error {
	if err := CheckSpecs(specs); err != nil {
		return err
	}
	var errs []error
	for _, s := range specs {
		if err := write(s, r, stdout, opts); err != nil {
			place := "stdout"
			if s.Path != "" {
				place = s.Path
			}
			errs = append(errs, fmt.Errorf("write the %s report to %s: %w", s.Format, place, err))
		}
	}
	return errors.Join(errs...)
}

func write(s Spec, r *audit.Report, stdout io.Writer, opts Options) error {
	if s.Path != "" {
		opts = Options{Details: opts.Details}
	}
	w, err := For(s.Format, opts)
	if err != nil {
		return err
	}
	// Reports of large fleets are too large to be held once more.
	content := func(to io.Writer) error {
		buf := bufio.NewWriterSize(to, 64<<10)
		return errors.Join(w.Write(buf, r), buf.Flush())
	}
	if s.Path == "" {
		return content(stdout)
	}
	return replaceFile(s.Path, content)
}

// replaceFile puts content at path by renaming a finished file over it, as
// node_exporter's textfile collector and everybody else who may be reading
// wants it. Links are followed. What is no regular file (/dev/null, a FIFO, a
// process substitution) is written to and not replaced.
func replaceFile(path string, content func(io.Writer) error) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	mode := fs.FileMode(0o644) // readers are other users: node_exporter, a web server
	switch info, err := os.Stat(path); {
	case err == nil && info.IsDir():
		return errors.New("it is a directory")
	case err == nil && !info.Mode().IsRegular():
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(content(f), f.Close())
	case err == nil:
		mode = info.Mode().Perm()
	}
	// The dot and the ending keep the textfile collector (*.prom) off it.
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	err = errors.Join(content(tmp), tmp.Chmod(mode), tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}
