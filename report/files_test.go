package report

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseSpec(t *testing.T) {
	for arg, want := range map[string]Spec{
		"table":                  {Table, ""},
		"json=-":                 {JSON, ""},
		"json=out.json":          {JSON, "out.json"},
		"prometheus=/d/a=b.prom": {Prometheus, "/d/a=b.prom"},
	} {
		if got, err := ParseSpec(arg); err != nil || got != want {
			t.Errorf("ParseSpec(%q) = %v, %v; want %v", arg, got, err, want)
		}
	}
	for arg, want := range map[string]string{
		"":       "want one of table, json, yaml, markdown, junit, prometheus",
		"html":   `unknown report format "html": want one of table, json`,
		"JSON":   "unknown report format",
		"=x":     "unknown report format",
		"json=":  "names no file",
		"json.x": "unknown report format",
	} {
		if got, err := ParseSpec(arg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseSpec(%q) = %v, %v; want an error with %q", arg, got, err, want)
		}
	}
}

func TestEveryFormatHasAWriter(t *testing.T) {
	for _, f := range Formats() {
		if _, err := For(f, Options{}); err != nil {
			t.Error(err)
		}
	}
	if _, err := For("html", Options{}); err == nil {
		t.Error("html is no format yet")
	}
}

func TestWriteFiles(t *testing.T) {
	dir := t.TempDir()
	prom, md := filepath.Join(dir, "a.prom"), filepath.Join(dir, "link.md")
	if err := os.WriteFile(filepath.Join(dir, "real.md"), []byte("old"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real.md", md); err != nil {
		t.Fatal(err)
	}
	var stdout bytes.Buffer
	err := WriteFiles([]Spec{{Table, ""}, {Prometheus, prom}, {Markdown, md}}, sample(), &stdout, Options{Width: 100, Color: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := render(t, sample(), Table, Options{Width: 100, Color: true}); got != stdout.String() {
		t.Error("stdout is not the table in colour")
	}
	for path, want := range map[string]struct {
		format string
		mode   os.FileMode
	}{prom: {Prometheus, 0o644}, filepath.Join(dir, "real.md"): {Markdown, 0o640}} {
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != render(t, sample(), want.format, Options{}) {
			t.Errorf("%s is not the %s report", path, want.format)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want.mode {
			t.Errorf("%s has mode %v (%v), want %v", path, info.Mode(), err, want.mode)
		}
	}
	if info, err := os.Lstat(md); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v, %v", info, err)
	}
	onlyEntries(t, dir, "a.prom", "link.md", "real.md")
}

func TestTablesInFilesHaveNoColour(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.txt")
	if err := WriteFiles([]Spec{{Table, path}}, sample(), nil, Options{Color: true, Width: 300}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != render(t, sample(), Table, Options{}) {
		t.Error("a file is not 100 columns without colour")
	}
}

func TestADeviceIsWrittenToAndNotReplaced(t *testing.T) {
	if err := WriteFiles([]Spec{{JSON, os.DevNull}}, sample(), nil, Options{}); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(os.DevNull); err != nil || info.Mode().IsRegular() {
		t.Fatalf("%s was replaced: %v, %v", os.DevNull, info, err)
	}
}

func TestWriteFilesErrors(t *testing.T) {
	dir := t.TempDir()
	missing, good := filepath.Join(dir, "missing", "r.json"), filepath.Join(dir, "r.yaml")
	for name, tt := range map[string]struct {
		specs []Spec
		want  []string
	}{
		"two on stdout":    {[]Spec{{Table, ""}, {JSON, ""}}, []string{"table and json would both go to stdout", "-o json=FILE"}},
		"two in one file":  {[]Spec{{YAML, good}, {JSON, dir + "/./r.yaml"}}, []string{"would go to the same file"}},
		"a directory":      {[]Spec{{JSON, dir}}, []string{"write the json report to " + dir, "is a directory"}},
		"no directory":     {[]Spec{{JSON, missing}}, []string{"write the json report to " + missing, "no such file"}},
		"a closed stdout":  {[]Spec{{Table, ""}}, []string{"write the table report to stdout", "pipe is gone"}},
		"unknown format":   {[]Spec{{"html", ""}}, []string{"html", "want one of table"}},
		"one of two fails": {[]Spec{{JSON, missing}, {YAML, good}}, []string{missing}},
	} {
		err := WriteFiles(tt.specs, sample(), brokenPipe{}, Options{})
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want one with %q", name, err, want)
			}
		}
	}
	// The report that could be written was written, and nothing lies around.
	onlyEntries(t, dir, "r.yaml")
}

func onlyEntries(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%s holds %v, want %v", dir, got, want)
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("pipe is gone") }
