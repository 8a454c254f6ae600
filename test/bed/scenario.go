package bed

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Kubestage returns a small cluster in the state that gave ipamaudit its name
// (phabricator.wikimedia.org/T296303): the pool 10.64.75.0/24 has four blocks,
// kubestage1001 and kubestage1002 own two each and need one, kubestage1003 and
// kubestage1004 came later, own none and borrow ten addresses from
// kubestage1001's blocks. No node mesh, strict affinity off.
func Kubestage(api CalicoAPI) []*unstructured.Unstructured {
	s := scenario{api: api, since: time.Now().Add(-48 * time.Hour).UTC().Truncate(time.Second)}
	s.calico("ClusterInformation", "default", object{"clusterGUID": "bbc3c390e9974f15b8d74b8579a275a4", "calicoVersion": "v3.30.2", "clusterType": "typha,k8s,bgp,kdd", "datastoreReady": true})
	s.calico("BGPConfiguration", "default", object{"asNumber": int64(64605), "nodeToNodeMeshEnabled": false})
	s.calico("BGPPeer", "cr1", object{"asNumber": int64(14907), "peerIP": "10.64.0.10"})
	s.calico("BGPPeer", "cr2", object{"asNumber": int64(14907), "peerIP": "10.64.16.11"})
	s.calico("KubeControllersConfiguration", "default", object{"controllers": object{"node": object{"leakGracePeriod": "15m0s", "syncLabels": "Enabled"}}})
	s.calico("IPPool", "kubestage-pods", object{"cidr": "10.64.75.0/24", "blockSize": int64(26), "ipipMode": "Never", "vxlanMode": "Never", "natOutgoing": false, "nodeSelector": "all()"})
	s.node("kubestage1001", "10.64.0.247/22")
	s.node("kubestage1002", "10.64.16.202/22")
	s.node("kubestage1003", "10.64.16.55/22")
	s.node("kubestage1004", "10.64.32.17/22")
	s.calicoWorkloads(4)
	s.block("kubestage1001", "10.64.75.0/26",
		holding{"kubestage1001", ips("10.64.75.1", 9)},
		holding{"kubestage1003", ips("10.64.75.0", 1)})
	s.block("kubestage1001", "10.64.75.64/26",
		holding{"kubestage1001", ips("10.64.75.65", 5)},
		holding{"kubestage1003", ips("10.64.75.70", 5)},
		holding{"kubestage1004", ips("10.64.75.75", 4)})
	s.block("kubestage1002", "10.64.75.128/26", holding{"kubestage1002", ips("10.64.75.129", 6)})
	s.block("kubestage1002", "10.64.75.192/26", holding{"kubestage1002", ips("10.64.75.193", 6)})
	return s.objects
}

type object = map[string]any

// holding is addresses of one block that pods of one node have.
type holding struct {
	node      string
	addresses []netip.Addr
}

func ips(first string, n int) []netip.Addr {
	out := []netip.Addr{netip.MustParseAddr(first)}
	for len(out) < n {
		out = append(out, out[len(out)-1].Next())
	}
	return out
}

type scenario struct {
	api     CalicoAPI
	since   time.Time // when everything was allocated
	objects []*unstructured.Unstructured
}

func (s *scenario) add(apiVersion, kind, namespace, name string, fields object) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: fields}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	s.objects = append(s.objects, o)
	return o
}

func (s *scenario) v3() bool { return s.api == CalicoV3 }

func (s *scenario) calico(kind, name string, spec object) {
	if s.v3() {
		s.add(string(CalicoV3), kind, "", name, object{"spec": spec})
		return
	}
	o := s.add(string(CalicoV1), kind, "", name, object{"spec": spec})
	o.SetAnnotations(map[string]string{"projectcalico.org/metadata": "{}"})
}

func (s *scenario) node(name, address string) {
	ip, _, _ := strings.Cut(address, "/")
	o := s.add("v1", "Node", "", name, object{
		"status": object{
			"addresses":   []any{object{"type": "InternalIP", "address": ip}, object{"type": "Hostname", "address": name}},
			"capacity":    object{"cpu": "48", "memory": "128Gi", "pods": "110"},
			"allocatable": object{"cpu": "48", "memory": "128Gi", "pods": "110"},
			"conditions": []any{object{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status",
				"lastHeartbeatTime": s.time(), "lastTransitionTime": s.time()}},
		},
	})
	o.SetAnnotations(map[string]string{"projectcalico.org/IPv4Address": address})
	o.SetLabels(map[string]string{"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"})
}

func (s *scenario) time() string { return s.since.Format(time.RFC3339) }

// block adds a block with its affinity, and pod, allocation and handle for
// each address that is held in it.
func (s *scenario) block(owner, cidr string, held ...holding) {
	prefix := netip.MustParsePrefix(cidr)
	size := 1 << (prefix.Addr().BitLen() - prefix.Bits())
	index := map[netip.Addr]int64{}
	attributes := []any{}
	const sequence = int64(1796023705639847000) // as Calico starts them: nanoseconds, beyond what a float64 holds
	sequences := object{}
	for _, h := range held {
		for _, ip := range h.addresses {
			pod := h.node + "-app-" + strings.ReplaceAll(ip.String(), ".", "-")
			container := fmt.Sprintf("%x", sha256.Sum256([]byte(pod)))
			handle := "k8s-pod-network." + container
			index[ip] = int64(len(attributes))
			attributes = append(attributes, object{"handle_id": handle, "secondary": object{
				"namespace": "lab", "node": h.node, "pod": pod, "timestamp": s.since.String(),
			}})
			s.pod(pod, h.node, ip.String(), container)
			s.calico("IPAMHandle", handle, object{"handleID": handle, "block": object{cidr: int64(1)}, "deleted": false})
		}
	}
	allocations, unallocated := []any{}, []any{}
	ip := prefix.Addr()
	for ordinal := range size {
		if i, ok := index[ip]; ok {
			allocations = append(allocations, i)
			sequences[strconv.Itoa(ordinal)] = sequence + i
		} else {
			allocations = append(allocations, nil)
			unallocated = append(unallocated, int64(ordinal))
		}
		ip = ip.Next()
	}
	name := strings.NewReplacer(".", "-", ":", "-", "/", "-").Replace(cidr)
	s.calico("IPAMBlock", name, object{
		"cidr": cidr, "affinity": "host:" + owner, "strictAffinity": false, "deleted": false,
		"allocations": allocations, "unallocated": unallocated, "attributes": attributes,
		"sequenceNumber": sequence + int64(size), "sequenceNumberForAllocation": sequences,
	})
	var deleted any = "false"
	if s.v3() {
		deleted = false
	}
	s.calico("BlockAffinity", owner+"-"+name, object{"cidr": cidr, "deleted": deleted, "node": owner, "state": "confirmed", "type": "host"})
}

func (s *scenario) pod(name, node, ip, container string) {
	o := s.add("v1", "Pod", "lab", name, object{
		"spec":   object{"nodeName": node, "containers": []any{object{"name": "app", "image": "registry.invalid/app:1"}}},
		"status": object{"phase": "Running", "podIP": ip, "podIPs": []any{object{"ip": ip}}, "startTime": s.time()},
	})
	o.SetAnnotations(map[string]string{
		"cni.projectcalico.org/containerID": container,
		"cni.projectcalico.org/podIP":       ip + "/32",
		"cni.projectcalico.org/podIPs":      ip + "/32",
	})
}

// calicoWorkloads adds calico-node and calico-kube-controllers, all available.
func (s *scenario) calicoWorkloads(nodes int64) {
	template := func(app string, hostNetwork bool) (object, object) {
		labels := object{"k8s-app": app}
		return object{"matchLabels": labels}, object{
			"metadata": object{"labels": labels},
			"spec":     object{"hostNetwork": hostNetwork, "containers": []any{object{"name": app, "image": "registry.invalid/" + app + ":v3.30.2"}}},
		}
	}
	selector, pods := template("calico-node", true)
	s.add("apps/v1", "DaemonSet", "kube-system", "calico-node", object{
		"spec": object{"selector": selector, "template": pods},
		"status": object{"currentNumberScheduled": nodes, "desiredNumberScheduled": nodes, "numberReady": nodes, "numberAvailable": nodes,
			"updatedNumberScheduled": nodes, "numberMisscheduled": int64(0), "observedGeneration": int64(1)},
	})
	selector, pods = template("calico-kube-controllers", true)
	s.add("apps/v1", "Deployment", "kube-system", "calico-kube-controllers", object{
		"spec": object{"replicas": int64(1), "selector": selector, "template": pods},
		"status": object{"replicas": int64(1), "readyReplicas": int64(1), "availableReplicas": int64(1), "updatedReplicas": int64(1), "observedGeneration": int64(1),
			"conditions": []any{object{"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable", "message": "", "lastUpdateTime": s.time(), "lastTransitionTime": s.time()}}},
	})
}
