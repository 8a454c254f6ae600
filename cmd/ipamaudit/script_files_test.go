package main

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// scriptSub: sub FILE OLD NEW replaces a text that must be there. \n is a line break.
func scriptSub(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: sub FILE OLD NEW")
	}
	unescape := strings.NewReplacer(`\n`, "\n").Replace
	text, old := ts.ReadFile(args[0]), unescape(args[1])
	if !strings.Contains(text, old) {
		ts.Fatalf("%s does not contain %q", args[0], old)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.ReplaceAll(text, old, unescape(args[2]))), 0o600))
}

// scriptCopyAs: copyas SRC DST copies a file to a name with Go's escapes in it.
func scriptCopyAs(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: copyas SRC DST")
	}
	name, err := strconv.Unquote(`"` + args[1] + `"`)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(name), []byte(ts.ReadFile(args[0])), 0o600))
}

// scriptTarball: tarball ARCHIVE ENTRY=PATH... writes a .tar.gz whose entries
// have any name; of a PATH that is a directory it takes everything; a PATH
// that begins with -> makes a symbolic link.
func scriptTarball(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: tarball ARCHIVE ENTRY=PATH...")
	}
	f, err := os.Create(ts.MkAbs(args[0]))
	ts.Check(err)
	z := gzip.NewWriter(f)
	w := tar.NewWriter(z)
	add := func(name, path string) {
		data, err := os.ReadFile(path)
		ts.Check(err)
		ts.Check(w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(data))}))
		_, err = w.Write(data)
		ts.Check(err)
	}
	for _, arg := range args[1:] {
		name, path, _ := strings.Cut(arg, "=")
		if target, link := strings.CutPrefix(path, "->"); link {
			ts.Check(w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target}))
			continue
		}
		path = ts.MkAbs(path)
		ts.Check(filepath.WalkDir(path, func(p string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				rel, _ := filepath.Rel(path, p)
				add(strings.TrimSuffix(filepath.ToSlash(filepath.Join(name, rel)), "/."), p)
			}
			return err
		}))
	}
	ts.Check(errors.Join(w.Close(), z.Close(), f.Close()))
}

// scriptTruncate: truncate FILE PERCENT keeps only the beginning of a file;
// truncate FILE -BYTES takes so much off its end.
func scriptTruncate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: truncate FILE PERCENT|-BYTES")
	}
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	size := len(ts.ReadFile(args[0]))
	keep := size * n / 100
	if n < 0 {
		keep = size + n
	}
	ts.Check(os.Truncate(ts.MkAbs(args[0]), int64(keep)))
}

// scriptGenJunk: genjunk FILE MIB writes so much of objects that are of no
// interest, as JSON or YAML by the name of the file.
func scriptGenJunk(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: genjunk FILE MIB")
	}
	mib, err := strconv.Atoi(args[1])
	ts.Check(err)
	f, err := os.Create(ts.MkAbs(args[0]))
	ts.Check(err)
	w := bufio.NewWriter(f)
	ts.Check(writeJunk(w, mib<<20, filepath.Ext(args[0]) == ".json"))
	ts.Check(errors.Join(w.Flush(), f.Close()))
}

func writeJunk(w io.Writer, size int, asJSON bool) error {
	filler := strings.Repeat("lorem ipsum ", 300)
	object := "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: widget}\ndata:\n  text: " + filler + "\n"
	first, between, last := "", "---\n", ""
	if asJSON {
		object = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"widget"},"data":{"text":"` + filler + `"}}` + "\n"
		first, between, last = `{"apiVersion":"example.com/v1","kind":"WidgetList","items":[`, ",", "]}\n"
	}
	if _, err := io.WriteString(w, first+object); err != nil {
		return err
	}
	for n := len(object); n < size; n += len(object) {
		if _, err := io.WriteString(w, between+object); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, last)
	return err
}

// scriptNoRun: norun FILE... blanks what describes the run: its id and times.
func scriptNoRun(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("usage: norun FILE...")
	}
	about := regexp.MustCompile(`(?m)"?(id|startedAt|finishedAt)"?: ("20[^"]*"|"?run-[a-z]+"?)|\brun-[a-z]+\b| · took .*$|^ipamaudit_run_(duration|timestamp)_seconds .*$`)
	for _, file := range args {
		text := about.ReplaceAllString(ts.ReadFile(file), "")
		ts.Check(os.WriteFile(ts.MkAbs(file), []byte(text), 0o600))
	}
}

// scriptReverse: reverse FILE turns the order of the items of a YAML List round.
func scriptReverse(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: reverse FILE")
	}
	const start, end = "\n- apiVersion:", "\nkind: List\n"
	text, rest, _ := strings.Cut(ts.ReadFile(args[0]), end)
	items := strings.Split(text, start)
	slices.Reverse(items[1:])
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(strings.Join(items, start)+end+rest), 0o600))
}

// scriptEnvSub: envsub FILE puts the values of environment variables into a file.
func scriptEnvSub(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: envsub FILE")
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(os.Expand(ts.ReadFile(args[0]), ts.Getenv)), 0o600))
}
