package config

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var testNow = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func limit(f float64) *float64 { return &f }

// testChecks stand in for the catalogue.
var testChecks = []CheckSpec{
	{ID: "leaked-ips", TicketAfterRuns: 2},
	{ID: "multi-block-nodes"},
	{ID: "pool-utilisation", Params: []ParamSpec{
		{Name: "mediumPercent", Type: ParamNumber, Default: 70, Min: limit(0), Max: limit(100), Doc: "medium from here"},
		{Name: "blocks", Type: ParamInteger, Default: 4},
		{Name: "grace", Type: ParamDuration, Default: "20m", Max: limit(86400)},
		{Name: "strict", Type: ParamBool, Default: false},
		{Name: "mode", Type: ParamString, Default: "even", Enum: []string{"even", "uneven"}},
	}},
}

// writeConfig writes a configuration that only its owner can read.
func writeConfig(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func mustLoad(t *testing.T, text string, o Options) *Config {
	t.Helper()
	o.File, o.Checks = writeConfig(t, text), testChecks
	c, _, err := Load(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; -update rewrites it):\n%s", file, diff)
	}
}

// TestBadFiles reads each file of testdata/bad, which are named after what is wrong in them, and
// compares the whole of the error.
func TestBadFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			c, _, err := Load(Options{File: file, Checks: testChecks, Now: testNow})
			var problems *Error
			if !errors.As(err, &problems) || len(problems.Problems) == 0 || c != nil {
				t.Fatalf("no problems: %v", err)
			}
			got := err.Error() + "\n"
			if strings.Contains(got, "hunter2") {
				t.Errorf("a secret is printed:\n%s", got)
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".err", got)
		})
	}
}

// TestNoConfigurationAtAll: a large file of something else is refused in a moment, and briefly.
func TestNoConfigurationAtAll(t *testing.T) {
	var text strings.Builder
	for i := range 90_000 {
		fmt.Fprintf(&text, "concurrency%d: 1\n", i)
	}
	_, _, err := Load(Options{File: writeConfig(t, text.String())})
	if err == nil || strings.Count(err.Error(), "\n") != mostShown || !strings.HasSuffix(err.Error(), "... and 89900 more problems") {
		t.Errorf("%.2000v", err)
	}
}
