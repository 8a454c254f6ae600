package deploy_test

import (
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"ipamaudit/audit"
	"ipamaudit/audit/config"
	"ipamaudit/audit/state"
)

// TestRoleKeepsTheState has two nights keep their state as the shipped configuration says, and holds each
// request against the Role.
func TestRoleKeepsTheState(t *testing.T) {
	role := read[rbacv1.Role](t, base+"/role.yaml")
	c, _, err := config.Load(config.Options{File: base + "/config.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	client := fake.NewClientset()
	client.PrependReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		o, err := meta.Accessor(action.(clienttesting.CreateAction).GetObject())
		if err == nil {
			o.SetResourceVersion("1") // which the fake forgets
		}
		return false, nil, err
	})
	for range 2 {
		store := state.NewConfigMap(client, role.Namespace, c.State.ConfigMap.Name, state.ConfigMapOptions{})
		unlock, err := store.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s, err := store.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s.Clusters = map[string]*audit.ClusterState{"this-cluster": {}}
		if err := store.Save(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		unlock()
	}
	asked := map[string]bool{} // by doctor
	for _, a := range state.NewConfigMap(client, role.Namespace, c.State.ConfigMap.Name, state.ConfigMapOptions{}).Access() {
		asked[a.Verb+" "+a.Resource+" "+a.Name] = true
	}
	seen := map[string]bool{}
	for _, action := range client.Actions() {
		name := ""
		switch a := action.(type) {
		case clienttesting.GetAction:
			name = a.GetName()
		case clienttesting.UpdateAction: // a create is one, too; its name is not known when it is authorized
			if o, err := meta.Accessor(a.GetObject()); err == nil && a.GetVerb() == "update" {
				name = o.GetName()
			}
		}
		seen[action.GetVerb()+" "+action.GetResource().Resource] = true
		if what := action.GetVerb() + " " + action.GetResource().Resource + " " + name; !asked[what] {
			t.Errorf("doctor does not ask whether it may %s", what)
		}
		if !slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.APIGroups, action.GetResource().Group) && slices.Contains(r.Resources, action.GetResource().Resource) &&
				slices.Contains(r.Verbs, action.GetVerb()) && (len(r.ResourceNames) == 0 || slices.Contains(r.ResourceNames, name))
		}) {
			t.Errorf("the Role does not allow to %s %s %q", action.GetVerb(), action.GetResource().Resource, name)
		}
	}
	for _, want := range []string{"get leases", "create leases", "update leases", "get configmaps", "create configmaps", "update configmaps"} {
		if !seen[want] {
			t.Errorf("two nights did not %s", want)
		}
	}
}
