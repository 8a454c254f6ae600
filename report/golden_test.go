package report

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ipamaudit/audit"
)

var update = flag.Bool("update", false, "rewrite goldens, schema.json and docs/metrics.md")

func TestGoldens(t *testing.T) {
	for file, g := range map[string]struct {
		format string
		opts   Options
	}{
		"table-80.txt":      {Table, Options{Width: 80}},
		"table-100.txt":     {Table, Options{}},
		"table-140.txt":     {Table, Options{Width: 140}},
		"table-color.txt":   {Table, Options{Width: 100, Color: true}},
		"table-details.txt": {Table, Options{Width: 100, Details: true}},
		"report.json":       {JSON, Options{}},
		"report.yaml":       {YAML, Options{}},
		"report.md":         {Markdown, Options{}},
		"report.junit.xml":  {JUnit, Options{}},
		"report.prom":       {Prometheus, Options{}},
	} {
		t.Run(file, func(t *testing.T) {
			golden(t, filepath.Join("testdata", file), render(t, sample(), g.format, g.opts))
		})
	}
}

// render writes r twice, each time from a fresh writer, and fails unless both agree.
func render(t *testing.T, r *audit.Report, format string, opts Options) string {
	t.Helper()
	var out [2]bytes.Buffer
	for i := range out {
		w, err := For(format, opts)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(&out[i], r); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(out[0].String(), out[1].String()); diff != "" {
		t.Fatalf("two writes of one report differ:\n%s", diff)
	}
	return out[0].String()
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s is not what is written now (run go test ./report -update, and read it):\n%s", file, diff)
	}
}
