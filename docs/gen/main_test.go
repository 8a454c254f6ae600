package main

import (
	"os"
	"path/filepath"
	"testing"
)

// What is generated is what is committed.
func TestGeneratedFilesAreUpToDate(t *testing.T) {
	for path, want := range files() {
		got, err := os.ReadFile(filepath.Join("..", "..", path))
		if err != nil || string(got) != want {
			t.Errorf("%s is out of date (%v): run make generate", path, err)
		}
	}
}
