package bed

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
)

// CalicoAPI says which of Calico's two API groups a cluster serves from custom
// resource definitions.
type CalicoAPI string

// What a cluster can serve.
const (
	CalicoV1   CalicoAPI = "crd.projectcalico.org/v1" // every Calico version; the default
	CalicoV3   CalicoAPI = "projectcalico.org/v3"     // native v3 definitions, Calico v3.32 and later
	CalicoBoth CalicoAPI = "both"                     // v1 data, v3 present as well
	NoCalico   CalicoAPI = "none"
)

func (a CalicoAPI) versions() []schema.GroupVersion {
	v1 := schema.GroupVersion{Group: "crd.projectcalico.org", Version: "v1"}
	v3 := schema.GroupVersion{Group: "projectcalico.org", Version: "v3"}
	switch a {
	case NoCalico:
		return nil
	case CalicoV3:
		return []schema.GroupVersion{v3}
	case CalicoBoth:
		return []schema.GroupVersion{v1, v3}
	default:
		return []schema.GroupVersion{v1}
	}
}

// CalicoAPIOf tells which groups the objects need: the one they are written in.
func CalicoAPIOf(objects []*unstructured.Unstructured) CalicoAPI {
	uses := func(a CalicoAPI) bool {
		return slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetAPIVersion() == string(a) })
	}
	switch v1, v3 := uses(CalicoV1), uses(CalicoV3); {
	case v1 && v3:
		return CalicoBoth
	case v1:
		return CalicoV1
	case v3:
		return CalicoV3
	default:
		return NoCalico
	}
}

//go:embed crds/*.yaml
var minimalCRDs embed.FS

// minimalDefinitions returns this package's own definitions for a group.
func minimalDefinitions(gv schema.GroupVersion) ([]*unstructured.Unstructured, error) {
	name := "crds/" + gv.Group + "_" + gv.Version + ".yaml"
	data, err := minimalCRDs.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return decodeAll(name, data)
}

// calicoDefinitions returns Calico's own definitions, for the resources that
// minimalDefinitions has, from a directory with v1/ and v3/ in it.
func calicoDefinitions(dir string, gv schema.GroupVersion) ([]*unstructured.Unstructured, error) {
	minimal, err := minimalDefinitions(gv)
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for _, crd := range minimal {
		plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
		path := filepath.Join(dir, gv.Version, gv.Group+"_"+plural+".yaml")
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		objects, err := decodeAll(path, data)
		if err != nil {
			return nil, err
		}
		out = append(out, objects...)
	}
	return out, nil
}

// calicoCRDDir is the directory with Calico's own definitions, if there is one:
// $IPAMAUDIT_CALICO_CRDS or a sibling shared/crds of any directory above.
func calicoCRDDir() (string, bool) {
	if dir := os.Getenv("IPAMAUDIT_CALICO_CRDS"); dir != "" {
		return dir, true
	}
	return findAbove(filepath.Join("shared", "crds"))
}

// installCalico creates the definitions of a's groups and returns once every
// resource is both discovered and served.
func (c *Cluster) installCalico(ctx context.Context, a CalicoAPI, minimal bool) error {
	dir, found := calicoCRDDir()
	for _, gv := range a.versions() {
		definitions, err := minimalDefinitions(gv)
		if found && !minimal {
			definitions, err = calicoDefinitions(dir, gv)
		}
		if err != nil {
			return fmt.Errorf("read the definitions of %s: %w", gv, err)
		}
		if err := c.installDefinitions(ctx, gv, definitions); err != nil {
			return fmt.Errorf("install %s: %w", gv, err)
		}
	}
	return nil
}

func (c *Cluster) installDefinitions(ctx context.Context, gv schema.GroupVersion, definitions []*unstructured.Unstructured) error {
	client, err := dynamic.NewForConfig(c.Admin())
	if err != nil {
		return err
	}
	crds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	var plurals []string
	for _, d := range definitions {
		if _, err := crds.Create(ctx, d, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create %s: %w", d.GetName(), err)
		}
		plural, _, _ := unstructured.NestedString(d.Object, "spec", "names", "plural")
		plurals = append(plurals, plural)
	}
	disco, err := discovery.NewDiscoveryClientForConfig(c.Admin())
	if err != nil {
		return err
	}
	return c.apiserver.waitReady(ctx, func(ctx context.Context) error {
		_, lists, err := disco.ServerGroupsAndResources()
		if err != nil {
			return err
		}
		missing := slices.Clone(plurals)
		for _, list := range lists {
			if list.GroupVersion != gv.String() {
				continue
			}
			for _, r := range list.APIResources {
				missing = slices.DeleteFunc(missing, func(p string) bool { return p == r.Name })
			}
		}
		if len(missing) > 0 {
			return errors.New("not discovered yet: " + strings.Join(missing, ", "))
		}
		for _, plural := range plurals {
			if _, err := client.Resource(gv.WithResource(plural)).List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
				return err
			}
		}
		return nil
	})
}
