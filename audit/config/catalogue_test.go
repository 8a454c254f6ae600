package config_test

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"ipamaudit/audit/config"
	"ipamaudit/checks"
)

// exampleFile is what users copy. It is Example with the real catalogue:
//
//	go test ./audit/config -run ExampleFile -update
const exampleFile = "../../config.example.yaml"

func catalogue() []config.CheckSpec {
	var specs []config.CheckSpec
	for _, c := range checks.All() {
		spec := config.CheckSpec{ID: c.ID}
		for _, p := range c.Params {
			spec.Params = append(spec.Params, config.ParamSpec{
				Name: p.Name, Type: config.ParamType(p.Type), Default: p.Default, Min: p.Min, Max: p.Max, Doc: p.Doc,
			})
		}
		specs = append(specs, spec)
	}
	return specs
}

func TestExampleFile(t *testing.T) {
	want := config.Example(catalogue())
	if flag.Lookup("update").Value.String() == "true" {
		if err := os.WriteFile(exampleFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(got), string(want)); diff != "" {
		t.Errorf("%s is out of date (-file +settings; -update rewrites it):\n%s", exampleFile, diff)
	}
	if _, _, err := config.Load(config.Options{File: exampleFile, Checks: catalogue()}); err != nil {
		t.Error(err)
	}
}
