package bed

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"regexp"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
)

// storedAt is where etcd has the objects of a built-in kind. Calico's are below
// their group and plural.
var storedAt = map[string]string{
	"Pod": "pods", "Node": "minions", "Namespace": "namespaces", "Event": "events", "Service": "services/specs", "ConfigMap": "configmaps",
	"Deployment": "deployments", "DaemonSet": "daemonsets", "PodDisruptionBudget": "poddisruptionbudgets",
}

// plurals of Calico's kinds, where they are not the kind in lower case with an s.
var plurals = map[string]string{"BlockAffinity": "blockaffinities"}

// Replay replaces everything in the cluster by these objects, as they were:
// unlike Load it keeps UIDs, creation and deletion timestamps, and it moves all
// times in them, so that what was recorded at asOf is as old now as it was then.
// It writes straight into etcd; only what validation asks for is completed. It
// returns when the API server shows the nodes.
func (c *Cluster) Replay(ctx context.Context, objects []*unstructured.Unstructured, asOf time.Time) error {
	for _, gv := range []CalicoAPI{CalicoV1, CalicoV3} {
		group, _, _ := strings.Cut(string(gv), "/")
		if err := c.wipe(ctx, "/registry/"+group+"/"); err != nil {
			return err
		}
	}
	for _, key := range storedAt {
		if key == "namespaces" || key == "services/specs" {
			continue // the API server needs its own; others do no harm
		}
		if err := c.wipe(ctx, "/registry/"+key+"/"); err != nil {
			return err
		}
	}
	later := time.Since(asOf).Truncate(time.Second)
	stored := map[string][]byte{} // the last of two with one name, as `kubectl apply` has it
	for _, recorded := range append(namespacesOf(objects), objects...) {
		o := recorded.DeepCopy()
		o.SetResourceVersion("")
		o.SetManagedFields(nil)
		complete(o)
		if o.GetUID() == "" {
			o.SetUID(uidOf(o))
		}
		if made := o.GetCreationTimestamp(); made.IsZero() {
			o.Object["metadata"].(map[string]any)["creationTimestamp"] = asOf.Add(-24 * time.Hour).UTC().Format(time.RFC3339) //nolint:forcetypeassert // it has a name
		}
		moved, _ := moveTimes(o.Object, later).(map[string]any)
		value, err := json.Marshal(moved)
		if err != nil {
			return fmt.Errorf("replay %s %s: %w", o.GetKind(), objectName(o), err)
		}
		stored[keyOf(o)] = value
	}
	pairs := make([]Pair, 0, len(stored))
	for key, value := range stored {
		pairs = append(pairs, Pair{Key: key, Value: value})
	}
	if err := c.Put(ctx, pairs); err != nil {
		return err
	}
	return c.shows(ctx, objects)
}

// shows waits until the API server lists the nodes among objects and no other:
// what is put into etcd behind its back has to reach its cache.
func (c *Cluster) shows(ctx context.Context, objects []*unstructured.Unstructured) error {
	want := map[string]bool{}
	for _, o := range objects {
		if o.GetKind() == "Node" && o.GetAPIVersion() == "v1" {
			want[o.GetName()] = true
		}
	}
	client, err := dynamic.NewForConfig(c.Admin())
	if err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		list, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"}).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, fmt.Errorf("what was replayed into %s: %w", c.Name, err)
		}
		for i := range list.Items {
			if !want[list.Items[i].GetName()] {
				return false, nil
			}
		}
		return len(list.Items) == len(want), nil
	})
}

func keyOf(o *unstructured.Unstructured) string {
	place, ok := storedAt[o.GetKind()]
	if group := o.GroupVersionKind().Group; strings.Contains(group, "projectcalico.org") {
		plural, irregular := plurals[o.GetKind()]
		if !irregular {
			plural = strings.ToLower(o.GetKind()) + "s"
		}
		place, ok = group+"/"+plural, true
	}
	if !ok {
		place = strings.ToLower(o.GetKind()) + "s"
	}
	return "/registry/" + place + "/" + objectName(o)
}

func uidOf(o *unstructured.Unstructured) types.UID {
	h := fnv.New128a()
	_, _ = fmt.Fprint(h, o.GetKind(), objectName(o))
	s := fmt.Sprintf("%x", h.Sum(nil))
	return types.UID(s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:])
}

var (
	rfc3339   = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$`)
	goDefault = regexp.MustCompile(`^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? \+0000 UTC$`) // Calico's allocations
)

// moveTimes returns the value with all times in it moved.
func moveTimes(v any, by time.Duration) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = moveTimes(e, by)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = moveTimes(e, by)
		}
		return out
	case string:
		const calico = "2006-01-02 15:04:05.999999999 -0700 MST"
		for pattern, layout := range map[*regexp.Regexp]string{rfc3339: time.RFC3339Nano, goDefault: calico} {
			if !pattern.MatchString(v) {
				continue
			}
			if t, err := time.Parse(layout, v); err == nil {
				return t.Add(by).UTC().Format(layout)
			}
		}
	}
	return v
}
