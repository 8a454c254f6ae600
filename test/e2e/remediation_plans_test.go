package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"ipamaudit/test/bed"
	"ipamaudit/test/world"
)

// plan is one fixture under one release of Calico.
type plan struct {
	check, fixture string
	// version is another release than the fixture's, empty for its own; v3 has
	// native objects of projectcalico.org/v3.
	version string
	// dead is a collector that never comes round, so that the last resort is needed.
	dead bool
}

func (p plan) String() string {
	s := p.check + "/" + p.fixture
	if p.version != "" {
		s += "/" + p.version
	}
	if p.dead {
		s += "/no-collector"
	}
	return s
}

func (p plan) dir() string { return filepath.Join(root, "fixtures", p.check, p.fixture) }

// plans are all fixtures with findings; the bad ones under old releases and as
// native v3 objects, too.
func plans(t *testing.T) []plan {
	t.Helper()
	goldens, err := filepath.Glob(filepath.Join(root, "fixtures", "*", "*.golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	var out []plan
	for _, golden := range goldens {
		data, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		var verdict struct{ Findings []finding }
		if err := json.Unmarshal(data, &verdict); err != nil {
			t.Fatal(err)
		}
		if len(verdict.Findings) == 0 {
			continue
		}
		p := plan{check: filepath.Base(filepath.Dir(golden)), fixture: strings.TrimSuffix(filepath.Base(golden), ".golden.json")}
		out = append(out, p)
		if p.fixture != "bad" || testing.Short() {
			continue
		}
		versions := []string{"v3.17.3", "v3.33.0"}
		if slices.Contains([]string{"ipam-config", "borrowed-ips", "leaked-ips", "handle-leaks"}, p.check) {
			versions = append(versions, "v3.12.0") // without ipam configure and reports
		}
		for _, p.version = range versions {
			out = append(out, p)
		}
		p.version = ""
		if slices.Contains([]string{"leaked-ips", "orphan-affinities", "handle-leaks", "multi-block-nodes"}, p.check) {
			p.dead = true
			out = append(out, p)
		}
	}
	return out
}

// objects are the fixture's, under the plan's release.
func (p plan) objects(t *testing.T) ([]*unstructured.Unstructured, time.Time) {
	t.Helper()
	objects, err := bed.ReadDir(p.dir())
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(p.dir(), "snapshot.json"))
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct{ Time time.Time }
	if err := json.Unmarshal(data, &manifest); err != nil {
		t.Fatal(err)
	}
	booked, handles := map[string]map[string]any{}, false
	calico := ""
	for _, o := range objects {
		if strings.Contains(o.GetAPIVersion(), "projectcalico.org") && o.GetKind() != "Node" {
			calico = o.GetAPIVersion()
		}
		switch o.GetKind() {
		case "ClusterInformation":
			if p.version != "" {
				_ = unstructured.SetNestedField(o.Object, p.version, "spec", "calicoVersion")
			}
		case "IPAMHandle":
			handles = true
		case "Pod":
			// The fixtures are short of controllers: without one nothing recreates a
			// pod, and the steps leave it to people.
			if host, _, _ := unstructured.NestedBool(o.Object, "spec", "hostNetwork"); !host && len(o.GetOwnerReferences()) == 0 {
				controller := true
				o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: o.GetName() + "-set", UID: "set", Controller: &controller}})
			}
		case "IPAMBlock":
			world.Handles(o, booked)
		}
	}
	// A live cluster has handles; most fixtures leave them out.
	for id, blocks := range booked {
		if handles {
			break
		}
		objects = append(objects, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": calico, "kind": "IPAMHandle", "metadata": map[string]any{"name": strings.ToLower(id)},
			"spec": map[string]any{"handleID": id, "block": blocks, "deleted": false},
		}})
	}
	if p.version == "v3.33.0" {
		for _, o := range objects {
			native(o)
		}
	}
	return objects, manifest.Time
}

// native turns an object of crd.projectcalico.org/v1 into one of
// projectcalico.org/v3, as Calico v3.32 and later may store them.
func native(o *unstructured.Unstructured) {
	if o.GetAPIVersion() != string(bed.CalicoV1) {
		return
	}
	o.SetAPIVersion(string(bed.CalicoV3))
	switch o.GetKind() {
	case "IPAMConfig":
		o.SetKind("IPAMConfiguration")
	case "BlockAffinity":
		deleted, _, _ := unstructured.NestedString(o.Object, "spec", "deleted")
		_ = unstructured.SetNestedField(o.Object, deleted == "true", "spec", "deleted")
	}
}
