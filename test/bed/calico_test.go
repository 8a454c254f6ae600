package bed

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestMinimalDefinitionsAgreeWithCalicos compares what the two must share:
// names, scope, required fields, subresources, and the types of the fields that
// the minimal ones name.
func TestMinimalDefinitionsAgreeWithCalicos(t *testing.T) {
	dir, ok := calicoCRDDir()
	if !ok {
		t.Skip("Calico's own definitions are not here (IPAMAUDIT_CALICO_CRDS, or a sibling shared/crds)")
	}
	for _, gv := range CalicoBoth.versions() {
		minimal, err := minimalDefinitions(gv)
		if err != nil {
			t.Fatal(err)
		}
		calicos, err := calicoDefinitions(dir, gv)
		if err != nil {
			t.Fatal(err)
		}
		for i := range minimal {
			t.Run(minimal[i].GetName(), func(t *testing.T) {
				if diff := cmp.Diff(outline(calicos[i]), outline(minimal[i])); diff != "" {
					t.Errorf("(-Calico's +minimal):\n%s", diff)
				}
				realSpec, minimalSpec := specSchema(calicos[i]), specSchema(minimal[i])
				if diff := cmp.Diff(realSpec["required"], minimalSpec["required"]); diff != "" {
					t.Errorf("required fields of spec (-Calico's +minimal):\n%s", diff)
				}
				fields, _, _ := unstructured.NestedMap(minimalSpec, "properties")
				for name, field := range fields {
					theirs, ok, _ := unstructured.NestedMap(realSpec, "properties", name)
					if !ok {
						t.Errorf("spec.%s is not Calico's", name)
						continue
					}
					ours := field.(map[string]any)
					for _, facet := range []string{"type", "pattern", "enum", "nullable"} {
						if diff := cmp.Diff(theirs[facet], ours[facet]); diff != "" {
							t.Errorf("%s of spec.%s (-Calico's +minimal):\n%s", facet, name, diff)
						}
					}
				}
			})
		}
	}
}

func outline(crd *unstructured.Unstructured) map[string]any {
	get := func(fields ...string) any {
		v, _, _ := unstructured.NestedFieldNoCopy(crd.Object, fields...)
		return v
	}
	version := versionOf(crd)
	_, status := version["subresources"].(map[string]any)["status"]
	required, _, _ := unstructured.NestedSlice(version, "schema", "openAPIV3Schema", "required")
	return map[string]any{
		"name": crd.GetName(), "group": get("spec", "group"), "scope": get("spec", "scope"),
		"kind": get("spec", "names", "kind"), "plural": get("spec", "names", "plural"), "singular": get("spec", "names", "singular"),
		"listKind": get("spec", "names", "listKind"),
		"version":  version["name"], "status subresource": status, "required": required,
	}
}

func versionOf(crd *unstructured.Unstructured) map[string]any {
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	version := versions[0].(map[string]any)
	if version["subresources"] == nil {
		version["subresources"] = map[string]any{}
	}
	return version
}

func specSchema(crd *unstructured.Unstructured) map[string]any {
	spec, _, _ := unstructured.NestedMap(versionOf(crd), "schema", "openAPIV3Schema", "properties", "spec")
	return spec
}
