package deploy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// TestAgentManifests decodes every file strictly and finds each of them named.
func TestAgentManifests(t *testing.T) {
	types := map[string]func() any{
		"Namespace": func() any { return new(corev1.Namespace) }, "ServiceAccount": func() any { return new(corev1.ServiceAccount) },
		"Role": func() any { return new(rbacv1.Role) }, "RoleBinding": func() any { return new(rbacv1.RoleBinding) },
		"ClusterRole": func() any { return new(rbacv1.ClusterRole) }, "ClusterRoleBinding": func() any { return new(rbacv1.ClusterRoleBinding) },
		"DaemonSet":                        func() any { return new(appsv1.DaemonSet) },
		"ValidatingAdmissionPolicy":        func() any { return new(admissionv1.ValidatingAdmissionPolicy) },
		"ValidatingAdmissionPolicyBinding": func() any { return new(admissionv1.ValidatingAdmissionPolicyBinding) },
	}
	paths, err := filepath.Glob("agent/*.yaml")
	if err != nil || len(paths) < 10 {
		t.Fatal(paths, err)
	}
	var found []string
	for _, path := range paths {
		if filepath.Base(path) == "kustomization.yaml" {
			continue
		}
		found = append(found, filepath.Base(path))
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var meta struct{ Kind string }
		if err := yaml.Unmarshal(content, &meta); err != nil || types[meta.Kind] == nil {
			t.Errorf("%s: kind %q, %v", path, meta.Kind, err)
			continue
		}
		if err := yaml.UnmarshalStrict(content, types[meta.Kind]()); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	named := read[kustomization](t, "agent/kustomization.yaml").Resources
	slices.Sort(named)
	if diff := cmp.Diff(found, named); diff != "" {
		t.Errorf("present (-) and named (+) files:\n%s", diff)
	}
}

// TestAgentHasNoPrivilege: the host's network is all that it gets.
func TestAgentHasNoPrivilege(t *testing.T) {
	pod := read[appsv1.DaemonSet](t, "agent/daemonset.yaml").Spec.Template.Spec
	if !pod.HostNetwork || pod.HostPID || pod.HostIPC || len(pod.Volumes) > 0 || len(pod.Containers) != 1 {
		t.Errorf("host network %v, PID %v, IPC %v, volumes %v", pod.HostNetwork, pod.HostPID, pod.HostIPC, pod.Volumes)
	}
	if s := pod.SecurityContext; s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.RunAsUser == nil || *s.RunAsUser == 0 || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("securityContext of the pod %+v", pod.SecurityContext)
	}
	yes, no := true, false
	want := &corev1.SecurityContext{AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
	c := pod.Containers[0]
	if diff := cmp.Diff(want, c.SecurityContext); diff != "" {
		t.Errorf("securityContext of the container (-want +got):\n%s", diff)
	}
	if len(c.Ports) > 0 || c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
		t.Errorf("ports %v, resources %v", c.Ports, c.Resources)
	}
}

// TestAgentMayWriteNothingElse: RBAC, and the policy's reach.
func TestAgentMayWriteNothingElse(t *testing.T) {
	var got []string
	for _, rule := range slices.Concat(read[rbacv1.Role](t, "agent/role.yaml").Rules, read[rbacv1.ClusterRole](t, "agent/clusterrole.yaml").Rules) {
		got = append(got, fmt.Sprint(rule.APIGroups, rule.Resources, rule.Verbs))
	}
	if diff := cmp.Diff([]string{"[] [configmaps] [create patch]", "[crd.projectcalico.org projectcalico.org] [ippools] [list]"}, got); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	account := read[corev1.ServiceAccount](t, "agent/serviceaccount.yaml")
	policy := read[admissionv1.ValidatingAdmissionPolicy](t, "agent/admissionpolicy.yaml").Spec
	if who := "system:serviceaccount:" + account.Namespace + ":" + account.Name; len(policy.MatchConditions) != 1 || !strings.Contains(policy.MatchConditions[0].Expression, `"`+who+`"`) {
		t.Errorf("the policy is not about %s", who)
	}
	if policy.FailurePolicy == nil || *policy.FailurePolicy != admissionv1.Fail {
		t.Error("a policy that cannot be evaluated lets pass")
	}
	// A policy that fails must not stand in anybody else's way.
	if diff := cmp.Diff(map[string]string{"kubernetes.io/metadata.name": account.Namespace}, policy.MatchConstraints.NamespaceSelector.MatchLabels); diff != "" {
		t.Errorf("namespaces of the policy (-want +got):\n%s", diff)
	}
	binding := read[admissionv1.ValidatingAdmissionPolicyBinding](t, "agent/admissionpolicybinding.yaml").Spec
	if binding.PolicyName != "ipamaudit-agent" || !slices.Contains(binding.ValidationActions, admissionv1.Deny) {
		t.Errorf("binding %+v", binding)
	}
}
