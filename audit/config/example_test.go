package config

import (
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestExample reads the example back: it is valid, shows the defaults, and loads to them.
func TestExample(t *testing.T) {
	text := Example(testChecks)
	golden(t, "testdata/example.yaml", string(text))
	for _, line := range strings.Split(string(text), "\n") {
		if n := len([]rune(line)); n > 150 {
			t.Errorf("%d columns are not readable: %s", n, line)
		}
	}
	if err := validates(compileSchema(t, testChecks), text); err != nil {
		t.Errorf("schema: %v", err)
	}
	example, warnings, err := load(text, Options{File: "config.example.yaml", Checks: testChecks, Now: testNow})
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	defaults, _, err := Load(Options{Checks: testChecks})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"pool-utilisation", "leaked-ips"} {
		if got, want := example.CheckParams(Cluster{}, id), defaults.CheckParams(Cluster{}, id); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", id, got, want)
		}
	}
	// What remains after the samples are gone is the defaults.
	example.Clusters, example.Checks, example.Suppressions, example.Routing = nil, nil, nil, nil
	example.Jira.Fields, example.Report.Outputs = nil, nil
	if got, want := string(example.View()), string(defaults.View()); got != want {
		t.Errorf("the example does not show the defaults:\n%s\n%s", got, want)
	}
}

// TestExampleShowsEverything walks the structs themselves, not what the example was made from.
func TestExampleShowsEverything(t *testing.T) {
	var doc yaml.Node
	if err := yaml.Unmarshal(Example(testChecks), &doc); err != nil {
		t.Fatal(err)
	}
	everyKey(t, doc.Content[0], reflect.TypeFor[Config](), "")
}

func everyKey(t *testing.T, n *yaml.Node, typ reflect.Type, path string) {
	t.Helper()
	for i := range typ.NumField() {
		field := typ.Field(i)
		name := field.Tag.Get("yaml")
		if name == "-" || !field.IsExported() {
			continue
		}
		if name == "" {
			t.Errorf("%s.%s has no name", typ, field.Name)
			continue
		}
		var value *yaml.Node
		for j := 0; j+1 < len(n.Content); j += 2 {
			if n.Content[j].Value == name {
				value = n.Content[j+1]
			}
		}
		at := join(path, name)
		switch inner := field.Type; {
		case value == nil:
			t.Errorf("%s is not in the example", at)
		case inner.Kind() == reflect.Struct && inner.PkgPath() == typ.PkgPath():
			everyKey(t, value, inner, at)
		case inner.Kind() == reflect.Slice && inner.Elem().Kind() == reflect.Struct:
			if value.Kind != yaml.SequenceNode || len(value.Content) == 0 {
				t.Errorf("%s has no sample", at)
				continue
			}
			everyKey(t, value.Content[0], inner.Elem(), at+"[0]")
		case path != "" && field.Tag.Get("doc") == "":
			t.Errorf("%s has no documentation", at)
		}
	}
}
