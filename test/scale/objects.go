package scale

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// since is when everything was made.
var since = time.Date(2026, 11, 1, 6, 0, 0, 0, time.UTC)

// uid looks like one, and is another for every text.
func uid(of string) string {
	h := fnv.New128a()
	h.Write([]byte(of))
	s := fmt.Sprintf("%x", h.Sum(nil))
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// controllers is the Deployment without which nothing collects leaked addresses.
func controllers() *appsv1.Deployment {
	const name = "calico-kube-controllers"
	labels := map[string]string{"k8s-app": name}
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "calico-system", UID: types.UID(uid(name)), CreationTimestamp: metav1.NewTime(since), Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: name, Image: "quay.io/calico/kube-controllers:v3.30.2"}}}},
		},
		Status: appsv1.DeploymentStatus{Replicas: 1, ReadyReplicas: 1, AvailableReplicas: 1},
	}
}

func nodeName(n int) string { return fmt.Sprintf("worker-%05d.prod.example.com", n) }

func node(n int) *corev1.Node {
	name := nodeName(n)
	ip := netip.AddrFrom4([4]byte{172, 16, byte(n >> 8), byte(n)}).String()
	at := metav1.NewTime(since)
	o := &corev1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(uid(name)), CreationTimestamp: at,
			Labels: map[string]string{
				"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "node.kubernetes.io/instance-type": "m6i.4xlarge",
				"topology.kubernetes.io/region": "eu-west-1", "topology.kubernetes.io/zone": "eu-west-1" + string(rune('a'+n%3)), "rack": fmt.Sprintf("r%03d", n/40),
			},
			Annotations: map[string]string{"projectcalico.org/IPv4Address": ip + "/16", "node.alpha.kubernetes.io/ttl": "0", "volumes.kubernetes.io/controller-managed-attach-detach": "true"},
		},
		Spec: corev1.NodeSpec{ProviderID: "aws:///eu-west-1a/i-" + uid(name)[:8]},
		Status: corev1.NodeStatus{
			Capacity:    corev1.ResourceList{"cpu": resource.MustParse("16"), "memory": resource.MustParse("64Gi"), "pods": resource.MustParse("110")},
			Allocatable: corev1.ResourceList{"cpu": resource.MustParse("15800m"), "memory": resource.MustParse("62Gi"), "pods": resource.MustParse("110")},
			Addresses:   []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}, {Type: corev1.NodeHostName, Address: name}},
			NodeInfo: corev1.NodeSystemInfo{
				OperatingSystem: "linux", Architecture: "amd64", KubeletVersion: "v1.36.3", KernelVersion: "6.18.0", OSImage: "Debian GNU/Linux 13",
				ContainerRuntimeVersion: "containerd://2.1.0", MachineID: uid("m" + name), SystemUUID: uid("s" + name), BootID: uid("b" + name),
			},
		},
	}
	for _, kind := range []corev1.NodeConditionType{"MemoryPressure", "DiskPressure", "PIDPressure", "Ready"} {
		status := corev1.ConditionFalse
		if kind == "Ready" {
			status = corev1.ConditionTrue
		}
		o.Status.Conditions = append(o.Status.Conditions, corev1.NodeCondition{Type: kind, Status: status, Reason: "KubeletReports", Message: "kubelet reports on " + string(kind), LastHeartbeatTime: at, LastTransitionTime: at})
	}
	for i := range 20 {
		image := fmt.Sprintf("registry.example.com/team-%d/app-%d", (n+i)%40, i)
		o.Status.Images = append(o.Status.Images, corev1.ContainerImage{Names: []string{image + "@sha256:" + strings.Repeat(uid(image)[:8], 8), image + ":1.2.3"}, SizeBytes: 123456789})
	}
	return o
}

func pod(n int, node string, ip netip.Addr) *corev1.Pod {
	app := fmt.Sprintf("app-%d", n%1000)
	name := fmt.Sprintf("%s-7d4f8c7b9-%05x", app, n)
	container := strings.ReplaceAll(uid(name)+uid("c"+name), "-", "")
	at := metav1.NewTime(since)
	yes, seconds, mode := true, int64(3607), int32(420)
	const fields = `{"f:metadata":{"f:generateName":{},"f:labels":{".":{},"f:app":{},"f:pod-template-hash":{}},"f:ownerReferences":{".":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{".":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:resources":{}}},"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}`
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, GenerateName: app + "-7d4f8c7b9-", Namespace: fmt.Sprintf("team-%d", n%200), UID: types.UID(uid(name)), CreationTimestamp: at,
			Labels:          map[string]string{"app": app, "pod-template-hash": "7d4f8c7b9"},
			Annotations:     map[string]string{"cni.projectcalico.org/containerID": container, "cni.projectcalico.org/podIP": ip.String() + "/32", "cni.projectcalico.org/podIPs": ip.String() + "/32"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: app + "-7d4f8c7b9", UID: types.UID(uid(app)), Controller: &yes, BlockOwnerDeletion: &yes}},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", Operation: "Update", APIVersion: "v1", Time: &at, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(fields)}},
		},
		Spec: corev1.PodSpec{
			NodeName: node, ServiceAccountName: "default", RestartPolicy: "Always", DNSPolicy: "ClusterFirst", SchedulerName: "default-scheduler",
			Volumes: []corev1.Volume{{Name: "kube-api-access-x", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: &mode, Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{ExpirationSeconds: &seconds, Path: "token"}},
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
			}}}}},
			Containers: []corev1.Container{{
				Name: "app", Image: "registry.example.com/" + app + ":1.2.3", Env: []corev1.EnvVar{{Name: "MODE", Value: "production"}}, ImagePullPolicy: "IfNotPresent",
				Resources:    corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi")}, Limits: corev1.ResourceList{"memory": resource.MustParse("256Mi")}},
				VolumeMounts: []corev1.VolumeMount{{Name: "kube-api-access-x", ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}}, TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: "File",
			}},
			Tolerations: []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute"}},
		},
		Status: corev1.PodStatus{
			Phase: "Running", PodIP: ip.String(), PodIPs: []corev1.PodIP{{IP: ip.String()}}, StartTime: &at, QOSClass: "Burstable",
			Conditions:        []corev1.PodCondition{{Type: "Ready", Status: "True", LastTransitionTime: at}, {Type: "PodScheduled", Status: "True", LastTransitionTime: at}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "app", Ready: true, Image: "registry.example.com/" + app + ":1.2.3", ImageID: "registry.example.com/" + app + "@sha256:" + container, ContainerID: "containerd://" + container, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}}}},
		},
	}
}
