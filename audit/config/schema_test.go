package config

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"
)

// compileSchema reads Schema with an independent implementation.
func compileSchema(t testing.TB, specs []CheckSpec) *jsonschema.Schema {
	t.Helper()
	text, err := Schema(specs)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	if err := compiler.AddResource("config.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("config.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func validates(schema *jsonschema.Schema, text []byte) error {
	asJSON, err := yaml.YAMLToJSON(text)
	if err != nil {
		return err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	if err != nil {
		return err
	}
	return schema.Validate(doc)
}

// TestSchemaAgreesWithLoad: the schema refuses what the strict reader refuses, so far as a schema can.
func TestSchemaAgreesWithLoad(t *testing.T) {
	schema := compileSchema(t, testChecks)
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		switch name {
		case "wrong-types", "out-of-range", "bad-formats", "required", "empty-values", "bad-labels", "not-a-mapping":
		default:
			if !strings.HasPrefix(name, "typo-") {
				continue // needs more than one value to judge, or is no YAML
			}
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := validates(schema, text); err == nil {
			t.Errorf("%s: the schema accepts it", name)
		}
	}
	if err := validates(compileSchema(t, nil), []byte("checks: [{id: anything, params: {x: 1}}]")); err != nil {
		t.Errorf("without a catalogue: %v", err)
	}
}
