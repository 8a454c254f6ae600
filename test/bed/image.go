package bed

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// containerImage is an image of one layer.
type containerImage struct {
	tags       []string
	entrypoint string
	files      map[string]string // path in the image to one of this machine
}

// write makes a docker-archive, which `ctr images import` reads.
func (i containerImage) write(path string) error {
	fail := func(err error) error { return fmt.Errorf("image %s: %w", strings.Join(i.tags, ", "), err) }
	contents := map[string][]byte{}
	for to, from := range i.files {
		content, err := os.ReadFile(from)
		if err != nil {
			return fail(err)
		}
		contents[to] = content
	}
	layer, err := tarOf(contents)
	if err != nil {
		return fail(err)
	}
	config, err := json.Marshal(object{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": object{"Entrypoint": []string{i.entrypoint}, "Env": []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}},
		"rootfs": object{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	if err != nil {
		return fail(err)
	}
	manifest, err := json.Marshal([]object{{"Config": "config.json", "RepoTags": i.tags, "Layers": []string{"layer.tar"}}})
	if err != nil {
		return fail(err)
	}
	archive, err := tarOf(map[string][]byte{"manifest.json": manifest, "config.json": config, "layer.tar": layer})
	if err != nil {
		return fail(err)
	}
	return os.WriteFile(path, archive, 0o600)
}

func tarOf(files map[string][]byte) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := w.WriteHeader(&tar.Header{Name: strings.TrimPrefix(name, "/"), Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(files[name]))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(files[name]); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

// withLibraries returns a program of this machine and what the output of ldd
// says that it loads, for an image.
func withLibraries(program, ldd string) map[string]string {
	files := map[string]string{program: program}
	for field := range strings.FieldsSeq(ldd) {
		if filepath.IsAbs(field) {
			files[field] = field
		}
	}
	return files
}
