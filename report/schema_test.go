package report

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	reflector "github.com/invopop/jsonschema"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"ipamaudit/audit"
	"ipamaudit/checks"
	"ipamaudit/ipam"
)

// generateSchema makes schema.json from audit.Report and its comments.
func generateSchema(t *testing.T) string {
	t.Helper()
	enums := map[reflect.Type][]any{
		reflect.TypeFor[audit.ClusterStatus](): {audit.Complete, audit.Partial, audit.Failed},
		reflect.TypeFor[audit.FindingState](): {
			audit.StateNew, audit.StateOngoing, audit.StateChanged, audit.StateResolved, audit.StateUnknown},
		reflect.TypeFor[checks.Status]():   {checks.StatusOK, checks.StatusFindings, checks.StatusUnknown, checks.StatusSkipped},
		reflect.TypeFor[checks.Severity](): {checks.Critical, checks.High, checks.Medium, checks.Low},
		reflect.TypeFor[checks.Evidence](): {checks.Observed, checks.Inferred},
		reflect.TypeFor[checks.Risk]():     {checks.Safe, checks.Disruptive, checks.Destructive},
		reflect.TypeFor[ipam.ReadStatus](): {ipam.Read, ipam.Forbidden, ipam.Absent, ipam.Failed, ipam.Missing},
	}
	r := reflector.Reflector{
		// Later versions add keys; a reader that validates must not break on them.
		AllowAdditionalProperties: true,
		Mapper: func(t reflect.Type) *reflector.Schema {
			if values, ok := enums[t]; ok {
				return &reflector.Schema{Type: "string", Enum: values}
			}
			return nil
		},
	}
	for _, dir := range []string{"../audit", "../checks", "../ipam"} {
		if err := r.AddGoComments("ipamaudit/report", dir); err != nil {
			t.Fatal(err)
		}
	}
	s := r.Reflect(&audit.Report{})
	s.ID, s.Title = "", "ipamaudit report"
	s.Definitions["Report"].Properties.Set("schema", &reflector.Schema{Type: "string", Const: audit.Schema})
	for _, key := range []string{"previous", "suppressed"} {
		p, ok := s.Definitions["Finding"].Properties.Get(key)
		if !ok {
			t.Fatalf("a finding has no %s", key)
		}
		s.Definitions["Finding"].Properties.Set(key, &reflector.Schema{AnyOf: []*reflector.Schema{p, {Type: "null"}}})
	}
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b) + "\n"
}

func TestSchemaIsGenerated(t *testing.T) { golden(t, "schema.json", generateSchema(t)) }

func TestReportsMatchTheSchema(t *testing.T) {
	schema := compileSchema(t)
	for name, r := range map[string]*audit.Report{
		"sample":  sample(),
		"empty":   {Schema: audit.Schema},
		"no list": {Schema: audit.Schema, Clusters: []audit.ClusterReport{{Status: audit.Failed, Findings: []audit.Finding{finding("x", "y", checks.Low, "Node", "n")}}}},
	} {
		if err := schema.Validate(decode(t, render(t, r, JSON, Options{}))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheSchemaRefuses(t *testing.T) {
	schema := compileSchema(t)
	good := render(t, sample(), JSON, Options{})
	for name, edit := range map[string][2]string{
		"a severity that is none":  {`"severity": "critical"`, `"severity": "catastrophic"`},
		"a state that is none":     {`"state": "changed"`, `"state": "worse"`},
		"another schema":           {`"ipamaudit/v1"`, `"ipamaudit/v2"`},
		"a figure in quotes":       {`"nodes": 4,`, `"nodes": "4",`},
		"a finding without a key":  {`"evidenceLevel"`, `"evidence"`},
		"null for a list":          {`"causedBy": []`, `"causedBy": null`},
		"a time that has no zone":  {`"asOf": "2026-11-30T07:50:00Z"`, `"asOf": "2026-11-30 07:50"`},
		"an unknown check outcome": {`"status": "skipped"`, `"status": "passed"`},
	} {
		bad := strings.Replace(good, edit[0], edit[1], 1)
		if bad == good {
			t.Errorf("%s: the sample has no %s", name, edit[0])
		} else if schema.Validate(decode(t, bad)) == nil {
			t.Errorf("accepted %s", name)
		}
	}
}

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	schema, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func decode(t *testing.T, doc string) any {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(doc))
	if err != nil {
		t.Fatal(err)
	}
	return v
}
