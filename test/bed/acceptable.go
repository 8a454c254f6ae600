package bed

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// heldFinalizer keeps an object that a snapshot shows as terminating.
const heldFinalizer = "ipamaudit.test/terminating"

// acceptable returns a copy of a recorded object that an API server creates:
// without the fields that the server owns, and with those that a recording may
// lack and validation asks for.
func acceptable(recorded *unstructured.Unstructured) *unstructured.Unstructured {
	o := recorded.DeepCopy()
	if o.GetDeletionTimestamp() != nil {
		o.SetFinalizers(append(o.GetFinalizers(), heldFinalizer))
	}
	metadata, _ := o.Object["metadata"].(map[string]any)
	maps.DeleteFunc(metadata, func(field string, _ any) bool {
		switch field {
		case "resourceVersion", "uid", "generation", "creationTimestamp", "managedFields", "selfLink",
			"deletionTimestamp", "deletionGracePeriodSeconds":
			return true
		}
		return false
	})
	complete(o)
	return o
}

// complete adds what a recording may lack and validation asks for.
func complete(o *unstructured.Unstructured) {
	switch o.GetAPIVersion() + " " + o.GetKind() {
	case "v1 Pod":
		acceptablePod(o)
	case "v1 Service":
		acceptableService(o)
	case "apps/v1 DaemonSet", "apps/v1 Deployment", "apps/v1 ReplicaSet", "apps/v1 StatefulSet":
		acceptableWorkload(o)
	}
}

func acceptablePod(o *unstructured.Unstructured) {
	spec, ok := o.Object["spec"].(map[string]any)
	if !ok {
		spec = map[string]any{}
		o.Object["spec"] = spec
	}
	delete(spec, "ephemeralContainers") // only ever added to a running pod
	setContainers(spec)
}

// acceptableWorkload completes a controller that was recorded for its status.
func acceptableWorkload(o *unstructured.Unstructured) {
	if seen, ok, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration"); ok && o.GetGeneration() == 0 {
		o.SetGeneration(seen)
	}
	spec, _ := o.Object["spec"].(map[string]any)
	if spec["selector"] != nil && spec["template"] != nil {
		return
	}
	if spec == nil {
		spec = map[string]any{}
		o.Object["spec"] = spec
	}
	labels := map[string]any{"ipamaudit.test/workload": o.GetName()}
	pod := map[string]any{}
	setContainers(pod)
	spec["selector"] = map[string]any{"matchLabels": labels}
	spec["template"] = map[string]any{"metadata": map[string]any{"labels": labels}, "spec": pod}
}

func setContainers(spec map[string]any) {
	containers, _ := spec["containers"].([]any)
	if len(containers) == 0 {
		containers = []any{map[string]any{}}
	}
	for _, c := range containers {
		if c, ok := c.(map[string]any); ok {
			setDefault(c, "name", "main")
			setDefault(c, "image", "registry.invalid/app")
		}
	}
	spec["containers"] = containers
}

// acceptableService drops addresses that another cluster's range had given.
func acceptableService(o *unstructured.Unstructured) {
	if ip, _, _ := unstructured.NestedString(o.Object, "spec", "clusterIP"); ip != "None" {
		unstructured.RemoveNestedField(o.Object, "spec", "clusterIP")
		unstructured.RemoveNestedField(o.Object, "spec", "clusterIPs")
	}
}

func setDefault(object map[string]any, field string, value any) {
	if _, ok := object[field]; !ok {
		object[field] = value
	}
}
