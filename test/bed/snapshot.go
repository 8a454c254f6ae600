package bed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// ReadDir reads the objects of a saved snapshot: every *.yaml, *.yml and *.json
// below dir, as `kubectl get -o yaml` or `-o json` prints them. Lists are taken
// apart, documents that are no Kubernetes objects (snapshot.json, route tables)
// passed over.
func ReadDir(dir string) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == "routes" && path != dir {
			return fs.SkipDir
		}
		switch filepath.Ext(path) {
		case ".yaml", ".yml", ".json":
		default:
			return nil
		}
		if d.IsDir() {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		objects, err := decodeAll(path, data)
		out = append(out, objects...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read snapshot %s: %w", dir, err)
	}
	return out, nil
}

// decodeAll decodes the objects of a file's documents. Integers stay integers:
// Calico's sequence numbers do not fit a float64.
func decodeAll(name string, data []byte) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for n := 1; ; n++ {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
			return out, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s, document %d: %w", name, n, err)
		}
		var head struct{ APIVersion, Kind string }
		if err := json.Unmarshal(raw, &head); err != nil || head.APIVersion == "" || head.Kind == "" {
			continue
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(raw); err != nil {
			return nil, fmt.Errorf("%s, document %d: %w", name, n, err)
		}
		if !object.IsList() {
			out = append(out, object)
			continue
		}
		err := object.EachListItem(func(item runtime.Object) error {
			o, ok := item.(*unstructured.Unstructured)
			if !ok {
				return fmt.Errorf("an item of type %T", item)
			}
			out = append(out, o)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("%s, document %d: %w", name, n, err)
		}
	}
}
