package collect

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// SavedName is what a saved snapshot calls itself: the name in its manifest,
// where that can be found without reading the snapshot (at the root of a
// directory, at the head of an archive). Empty otherwise.
func SavedName(name string) string {
	if name == "-" {
		return ""
	}
	info, err := os.Stat(name)
	if err != nil {
		return ""
	}
	if info.IsDir() {
		f, err := os.Open(filepath.Join(name, manifestFile))
		if err != nil {
			return ""
		}
		defer f.Close()
		return nameIn(f)
	}
	if !strings.HasSuffix(name, ".gz") && !strings.HasSuffix(name, ".tgz") {
		return ""
	}
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return ""
	}
	// The writer puts the manifest first; people's own archives may begin with
	// a directory.
	t := tar.NewReader(z)
	for range 3 {
		h, err := t.Next()
		if err != nil {
			return ""
		}
		if path.Base(h.Name) == manifestFile {
			return nameIn(t)
		}
	}
	return ""
}

func nameIn(r io.Reader) string {
	var m struct {
		Cluster struct {
			Name string `json:"name"`
		} `json:"cluster"`
	}
	if json.NewDecoder(io.LimitReader(r, 1<<20)).Decode(&m) != nil {
		return ""
	}
	return m.Cluster.Name
}
