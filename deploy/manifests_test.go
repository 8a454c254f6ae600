// Package deploy_test holds the manifests to what the documentation promises of them.
package deploy_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const base = "kustomize"

// kinds are the types that a manifest may have; strict decoding finds a misspelt field, which an API server
// would drop with no more than a warning.
var kinds = map[string]func() any{
	"v1/Namespace":      func() any { return new(corev1.Namespace) },
	"v1/ServiceAccount": func() any { return new(corev1.ServiceAccount) },
	"v1/Secret":         func() any { return new(corev1.Secret) },
	"batch/v1/CronJob":  func() any { return new(batchv1.CronJob) },
	"rbac.authorization.k8s.io/v1/ClusterRole":        func() any { return new(rbacv1.ClusterRole) },
	"rbac.authorization.k8s.io/v1/ClusterRoleBinding": func() any { return new(rbacv1.ClusterRoleBinding) },
	"rbac.authorization.k8s.io/v1/Role":               func() any { return new(rbacv1.Role) },
	"rbac.authorization.k8s.io/v1/RoleBinding":        func() any { return new(rbacv1.RoleBinding) },
}

// kustomization is the part of kustomize's file that the tests look at.
type kustomization struct {
	Resources          []string
	ConfigMapGenerator []struct {
		Name, Namespace string
		Files           []string
	}
	Patches []struct{ Path string }
}

func TestEveryManifestDecodesStrictly(t *testing.T) {
	paths := manifests(t)
	if len(paths) < 10 {
		t.Fatalf("found only %d manifests: %q", len(paths), paths)
	}
	for _, path := range paths {
		t.Run(path, func(t *testing.T) { decode(t, path) })
	}
}

func TestKustomizationNamesEveryFile(t *testing.T) {
	for _, dir := range []string{base, "examples/hub", "examples/host-network"} {
		t.Run(dir, func(t *testing.T) {
			k := read[kustomization](t, filepath.Join(dir, "kustomization.yaml"))
			want := []string{"kustomization.yaml"}
			for _, resource := range k.Resources {
				if strings.HasSuffix(resource, ".yaml") {
					want = append(want, resource)
				} else if _, err := os.Stat(filepath.Join(dir, resource, "kustomization.yaml")); err != nil {
					t.Errorf("resource %s: %v", resource, err)
				}
			}
			for _, patch := range k.Patches {
				want = append(want, patch.Path)
			}
			for _, generated := range k.ConfigMapGenerator {
				want = append(want, generated.Files...)
			}
			if dir == "examples/hub" {
				want = append(want, "token.yaml") // for the audited clusters, not for the hub
			}
			slices.Sort(want)
			found, err := filepath.Glob(filepath.Join(dir, "*"))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, path := range found {
				got = append(got, filepath.Base(path))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("named (-) and present (+) files:\n%s", diff)
			}
		})
	}
}

func TestEverythingIsInItsNamespace(t *testing.T) {
	for _, path := range manifests(t) {
		object, ok := decode(t, path).(metav1.Object)
		if !ok {
			t.Fatalf("%s: no object", path)
		}
		cluster := slices.Contains([]string{"namespace.yaml", "clusterrole.yaml", "clusterrolebinding.yaml"}, filepath.Base(path))
		if want := map[bool]string{true: "", false: "ipamaudit"}[cluster]; object.GetNamespace() != want {
			t.Errorf("%s: namespace %q, want %q", path, object.GetNamespace(), want)
		}
	}
}

func TestNamespaceIsRestricted(t *testing.T) {
	ns := read[corev1.Namespace](t, base+"/namespace.yaml")
	for _, mode := range []string{"enforce", "audit", "warn"} {
		if got := ns.Labels["pod-security.kubernetes.io/"+mode]; got != "restricted" {
			t.Errorf("Pod Security %s = %q, want restricted", mode, got)
		}
	}
}

func TestClusterRoleOnlyReads(t *testing.T) {
	role := read[rbacv1.ClusterRole](t, base+"/clusterrole.yaml")
	if len(role.Rules) == 0 {
		t.Fatal("no rules")
	}
	got := map[string]bool{}
	for _, rule := range role.Rules {
		if diff := cmp.Diff([]string{"get", "list"}, rule.Verbs); diff != "" {
			t.Errorf("verbs for %q (-want +got):\n%s", rule.Resources, diff)
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				got[resource+"."+group] = true
				if group == "*" || strings.ContainsAny(resource, "*/") {
					t.Errorf("%s in group %q: a wildcard or subresource", resource, group)
				}
				if slices.Contains([]string{"secrets", "configmaps", "serviceaccounts"}, resource) {
					t.Errorf("may read %s in every namespace", resource)
				}
			}
		}
	}
	// Without these there is no audit at all, in either API group.
	for _, want := range []string{
		"ipamblocks.crd.projectcalico.org", "blockaffinities.crd.projectcalico.org", "ippools.crd.projectcalico.org", "ipamconfigs.crd.projectcalico.org",
		"ipamblocks.projectcalico.org", "blockaffinities.projectcalico.org", "ippools.projectcalico.org", "ipamconfigurations.projectcalico.org",
		"nodes.", "pods.", "namespaces.",
	} {
		if !got[want] {
			t.Errorf("cannot read %s", want)
		}
	}
}

func TestRoleWritesOnlyItsOwnObjects(t *testing.T) {
	role := read[rbacv1.Role](t, base+"/role.yaml")
	var got []string
	for _, rule := range role.Rules {
		got = append(got, fmt.Sprint(rule.APIGroups, rule.Resources, rule.ResourceNames, rule.Verbs))
	}
	want := []string{
		"[] [configmaps] [ipamaudit-state] [get update]",
		"[coordination.k8s.io] [leases] [ipamaudit-state] [get update]",
		"[] [configmaps] [] [create]",
		"[coordination.k8s.io] [leases] [] [create]",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}

func TestBindingsMeetTheirAccount(t *testing.T) {
	account := read[corev1.ServiceAccount](t, base+"/serviceaccount.yaml")
	cluster := read[rbacv1.ClusterRoleBinding](t, base+"/clusterrolebinding.yaml")
	own := read[rbacv1.RoleBinding](t, base+"/rolebinding.yaml")
	want := []rbacv1.Subject{{Kind: "ServiceAccount", Name: account.Name, Namespace: account.Namespace}}
	for name, got := range map[string][]rbacv1.Subject{"ClusterRoleBinding": cluster.Subjects, "RoleBinding": own.Subjects} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("subjects of the %s (-want +got):\n%s", name, diff)
		}
	}
	if name := read[rbacv1.ClusterRole](t, base+"/clusterrole.yaml").Name; cluster.RoleRef != (rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}) {
		t.Errorf("ClusterRoleBinding points at %+v", cluster.RoleRef)
	}
	if name := read[rbacv1.Role](t, base+"/role.yaml").Name; own.RoleRef != (rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}) {
		t.Errorf("RoleBinding points at %+v", own.RoleRef)
	}
	if token := read[corev1.Secret](t, "examples/hub/token.yaml"); token.Annotations[corev1.ServiceAccountNameKey] != account.Name || token.Type != corev1.SecretTypeServiceAccountToken {
		t.Errorf("token %+v of type %s is not the account's", token.Annotations, token.Type)
	}
}

func TestCronJob(t *testing.T) {
	cron := read[batchv1.CronJob](t, base+"/cronjob.yaml")
	job := cron.Spec.JobTemplate.Spec

	if got := cron.Spec.ConcurrencyPolicy; got != batchv1.ForbidConcurrent {
		t.Errorf("concurrencyPolicy %q, want Forbid: two runs would file twice", got)
	}
	for name, got := range map[string]*int64{"startingDeadlineSeconds": cron.Spec.StartingDeadlineSeconds, "activeDeadlineSeconds": job.ActiveDeadlineSeconds} {
		if got == nil || *got <= 0 {
			t.Errorf("no %s", name)
		}
	}
	for name, got := range map[string]*int32{"successfulJobsHistoryLimit": cron.Spec.SuccessfulJobsHistoryLimit, "failedJobsHistoryLimit": cron.Spec.FailedJobsHistoryLimit} {
		if got == nil || *got < 1 {
			t.Errorf("%s keeps nothing to look at", name)
		}
	}
	if got := cron.Spec.TimeZone; got == nil || *got != "Etc/UTC" {
		t.Errorf("timeZone %v, want Etc/UTC: the default run id is the UTC date", got)
	}
	if job.BackoffLimit == nil || *job.BackoffLimit != 1 {
		t.Errorf("backoffLimit %v, want 1", job.BackoffLimit)
	}
}

func TestJobDoesNotRetryWhatARetryCannotMend(t *testing.T) {
	job := read[batchv1.CronJob](t, base+"/cronjob.yaml").Spec.JobTemplate.Spec
	name := "ipamaudit"
	want := &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
		// In this order: what is interrupted by a drain ends with 3, too.
		{
			Action:          batchv1.PodFailurePolicyActionIgnore,
			OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
		},
		{
			Action:      batchv1.PodFailurePolicyActionFailJob,
			OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{ContainerName: &name, Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{2, 3}},
		},
	}}
	if diff := cmp.Diff(want, job.PodFailurePolicy); diff != "" {
		t.Errorf("podFailurePolicy (-want +got):\n%s", diff)
	}
	if got := job.Template.Spec.RestartPolicy; got != corev1.RestartPolicyNever {
		t.Errorf("restartPolicy %q: a podFailurePolicy needs Never", got)
	}
}

func TestPodIsRestricted(t *testing.T) {
	pod := read[batchv1.CronJob](t, base+"/cronjob.yaml").Spec.JobTemplate.Spec.Template.Spec
	if len(pod.Containers) != 1 || len(pod.InitContainers) != 0 {
		t.Fatalf("want one container, got %d and %d init containers", len(pod.Containers), len(pod.InitContainers))
	}
	yes, no, id := true, false, int64(65532)
	wantPod := &corev1.PodSecurityContext{
		RunAsNonRoot: &yes, RunAsUser: &id, RunAsGroup: &id, FSGroup: &id,
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	if diff := cmp.Diff(wantPod, pod.SecurityContext); diff != "" {
		t.Errorf("securityContext of the pod (-want +got):\n%s", diff)
	}
	wantContainer := &corev1.SecurityContext{
		AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}
	container := pod.Containers[0]
	if diff := cmp.Diff(wantContainer, container.SecurityContext); diff != "" {
		t.Errorf("securityContext of the container (-want +got):\n%s", diff)
	}
	if pod.HostNetwork || pod.HostPID || pod.HostIPC {
		t.Error("uses a namespace of the host")
	}
	if pod.ServiceAccountName != "ipamaudit" || pod.AutomountServiceAccountToken == nil || !*pod.AutomountServiceAccountToken {
		t.Error("the pod does not get its account's token")
	}
	requests, limits := container.Resources.Requests, container.Resources.Limits
	if requests.Cpu().IsZero() || requests.Memory().IsZero() || limits.Memory().IsZero() {
		t.Errorf("requests %v and limits %v, want CPU and memory requested and memory limited", requests, limits)
	}
	if requests.Memory().Cmp(*limits.Memory()) > 0 {
		t.Errorf("requests more memory (%s) than the limit (%s)", requests.Memory(), limits.Memory())
	}
}

func TestContainerRunsTheAuditFromItsMounts(t *testing.T) {
	pod := read[batchv1.CronJob](t, base+"/cronjob.yaml").Spec.JobTemplate.Spec.Template.Spec
	container := pod.Containers[0]
	if len(container.Command) > 0 {
		t.Errorf("command %q replaces the image's entrypoint", container.Command)
	}
	want := []string{"run", "--config", "/etc/ipamaudit/config.yaml", "--notify", "--fail-on", "none", "--log-format", "json"}
	if diff := cmp.Diff(want, container.Args); diff != "" {
		t.Errorf("args (-want +got):\n%s", diff)
	}
	volumes := map[string]corev1.Volume{}
	for _, volume := range pod.Volumes {
		volumes[volume.Name] = volume
		if volume.HostPath != nil {
			t.Errorf("volume %s is a path of the host", volume.Name)
		}
	}
	mounted := map[string]string{}
	for _, mount := range container.VolumeMounts {
		if !mount.ReadOnly {
			t.Errorf("%s is mounted writable", mount.Name)
		}
		mounted[mount.MountPath] = mount.Name
	}
	generated := read[kustomization](t, base+"/kustomization.yaml").ConfigMapGenerator[0]
	if config := volumes[mounted["/etc/ipamaudit"]].ConfigMap; config == nil || config.Name != generated.Name {
		t.Errorf("/etc/ipamaudit is %+v, want the generated ConfigMap %s", config, generated.Name)
	}
	tokens := volumes[mounted["/var/run/ipamaudit/tokens"]].Secret
	if tokens == nil || tokens.Optional == nil || !*tokens.Optional {
		t.Errorf("tokens are %+v, want an optional Secret", tokens)
	} else if tokens.DefaultMode == nil || *tokens.DefaultMode != 0o440 {
		t.Error("token files are readable by others: want defaultMode 0440")
	}
}

// manifests are all YAML files that are whole objects: no kustomization, no configuration, no patch.
func manifests(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(base + "/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	paths = append(paths, "examples/hub/token.yaml", "examples/hub/cronjob.yaml", "examples/host-network/namespace.yaml", "examples/host-network/cronjob.yaml")
	return slices.DeleteFunc(paths, func(path string) bool {
		return slices.Contains([]string{"kustomization.yaml", "config.yaml"}, filepath.Base(path))
	})
}

func decode(t *testing.T, path string) any {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(content), "\n---") {
		t.Fatalf("%s: want one object per file", path)
	}
	var meta metav1.TypeMeta
	if err := yaml.Unmarshal(content, &meta); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	kind := kinds[meta.APIVersion+"/"+meta.Kind]
	if kind == nil {
		t.Fatalf("%s: unexpected %s %s", path, meta.APIVersion, meta.Kind)
	}
	object := kind()
	if err := yaml.UnmarshalStrict(content, object); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return object
}

func read[T any](t *testing.T, path string) *T {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	object := new(T)
	if err := yaml.Unmarshal(content, object); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return object
}
