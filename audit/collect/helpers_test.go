package collect

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ipamaudit/ipam"
)

func writeFile(t testing.TB, dir, name, text string) {
	t.Helper()
	p := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func contains(data []byte, word string) bool { return bytes.Contains(data, []byte(word)) }

// read reads one stream of objects.
func read(t testing.TB, text string) *ipam.Snapshot {
	t.Helper()
	s, err := FromReader(context.Background(), strings.NewReader(text), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// readDir reads a directory of files.
func readDir(t testing.TB, files map[string]string) (*ipam.Snapshot, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		writeFile(t, dir, name, text)
	}
	return FromPath(context.Background(), dir, Options{Name: "test"})
}
