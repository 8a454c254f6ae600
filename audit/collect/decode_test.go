package collect

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"ipamaudit/ipam"
)

const v1 = "crd.projectcalico.org/v1"

// obj is one object in JSON.
func obj(apiVersion, kind, name, rest string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q},%s}`, apiVersion, kind, name, rest)
}

func addrs(texts ...string) (out []netip.Addr) {
	for _, t := range texts {
		out = append(out, netip.MustParseAddr(t))
	}
	return out
}

func block(spec string) string { return obj(v1, "IPAMBlock", "b", `"spec":{`+spec+`}`) }

func TestBlocks(t *testing.T) {
	// A /30 keeps the lists short.
	const good = `"cidr":"10.0.0.0/30","allocations":[0,null,0,1],"unallocated":[1],"attributes":[{"handle_id":"h0","secondary":{"node":"n","namespace":"s","pod":"p","timestamp":"2026-11-30 07:28:39.2 +0000 UTC"}},{"handle_id":null,"secondary":null}]`
	for _, tc := range []struct {
		name, json string
		owner      ipam.Owner
		slots      string
		malformed  string
	}{
		{"owner", block(good + `,"affinity":"host:n1"`), ipam.Owner{Type: "host", Name: "n1"}, "0:0 2:0 3:1", ""},
		{"owner with a colon", block(good + `,"affinity":"host:n:1"`), ipam.Owner{Type: "host", Name: "n:1"}, "0:0 2:0 3:1", ""},
		{"virtual owner", block(good + `,"affinity":"virtual:load-balancer"`), ipam.Owner{Type: "virtual", Name: "load-balancer"}, "0:0 2:0 3:1", ""},
		{"no owner", block(good), ipam.Owner{}, "0:0 2:0 3:1", ""},
		{"null owner", block(good + `,"affinity":null`), ipam.Owner{}, "0:0 2:0 3:1", ""},
		{"empty owner", block(good + `,"affinity":""`), ipam.Owner{}, "0:0 2:0 3:1", ""},
		{"hostAffinity of old", block(good + `,"hostAffinity":"n2"`), ipam.Owner{Type: "host", Name: "n2"}, "0:0 2:0 3:1", ""},
		{"huge sequence numbers", block(good + `,"sequenceNumber":18446744073709551615,"sequenceNumberForAllocation":{"0":1796023705639847785}`), ipam.Owner{}, "0:0 2:0 3:1", ""},
		{"short allocations", block(`"cidr":"10.0.0.0/30","allocations":[0],"unallocated":[],"attributes":[{}]`), ipam.Owner{}, "0:0", "1 allocations for 4 addresses"},
		{"long allocations", block(`"cidr":"10.0.0.0/31","allocations":[0,null,0],"unallocated":[1],"attributes":[{}]`), ipam.Owner{}, "0:0", "3 allocations for 2 addresses"},
		{"index out of range", block(`"cidr":"10.0.0.0/31","allocations":[7,-3],"unallocated":[],"attributes":[{}]`), ipam.Owner{}, "0:-1 1:-1", "ordinal 0 points to attributes 7 of 1"},
		{"index beyond 32 bits", block(`"cidr":"10.0.0.0/31","allocations":[99999999999,null],"unallocated":[1],"attributes":[]`), ipam.Owner{}, "0:-1", "ordinal 0 points"},
		{"both", block(`"cidr":"10.0.0.0/31","allocations":[0,null],"unallocated":[0,1],"attributes":[{}]`), ipam.Owner{}, "0:0", "both allocated and unallocated"},
		{"neither", block(`"cidr":"10.0.0.0/31","allocations":[0,null],"unallocated":[],"attributes":[{}]`), ipam.Owner{}, "0:0", "neither"},
		{"twice", block(`"cidr":"10.0.0.0/31","allocations":[0,null],"unallocated":[1,1],"attributes":[{}]`), ipam.Owner{}, "0:0", "twice"},
		{"outside", block(`"cidr":"10.0.0.0/31","allocations":[0,null],"unallocated":[1,9],"attributes":[{}]`), ipam.Owner{}, "0:0", "outside"},
		{"host bits", block(`"cidr":"10.0.0.1/31","allocations":[0,null],"unallocated":[1],"attributes":[{}]`), ipam.Owner{}, "0:0", "not the network address"},
		{"IPv6", block(`"cidr":"fd00:10:244::40/127","allocations":[null,0],"unallocated":[0],"attributes":[{}],"affinity":"host:n"`), ipam.Owner{Type: "host", Name: "n"}, "1:0", ""},
		{"null lists", block(`"cidr":"10.0.0.0/31","allocations":[null,null],"unallocated":[0,1],"attributes":null`), ipam.Owner{}, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := read(t, tc.json)
			if len(s.Blocks) != 1 {
				t.Fatalf("blocks: %+v, rejected %v", s.Blocks, s.Rejected)
			}
			b := s.Blocks[0]
			if b.Owner != tc.owner {
				t.Errorf("owner %v", b.Owner)
			}
			var slots []string
			for _, sl := range b.Slots {
				slots = append(slots, fmt.Sprintf("%d:%d", sl.Ordinal, sl.Attr))
			}
			if got := strings.Join(slots, " "); got != tc.slots {
				t.Errorf("slots %s, want %s", got, tc.slots)
			}
			if got := strings.Join(b.Malformed, "; "); (tc.malformed == "") != (got == "") || !strings.Contains(got, tc.malformed) {
				t.Errorf("malformed %q, want %q", got, tc.malformed)
			}
		})
	}
}

func TestAttributes(t *testing.T) {
	s := read(t, block(`"cidr":"10.0.0.0/30","allocations":[0,1,2,null],"unallocated":[3],"attributes":[
	 {"handle_id":"k8s-pod-network.abc\r\neth0","secondary":{"namespace":"s","pod":"p","node":"n","timestamp":"2026-11-30 07:28:39.2 +0000 UTC m=+0.123","vmi-name":"vm"}},
	 {"releasedAt":"2026-11-30T07:00:00Z"},
	 {"handle_id":"lb-x","secondary":{"type":"LoadBalancer","service":"s/web","timestamp":"nonsense"}}]`))
	a := s.Blocks[0].Attributes
	want := []ipam.Attribute{
		{Handle: "k8s-pod-network.abc", Namespace: "s", Pod: "p", Node: "n", VMI: "vm", Timestamp: time.Date(2026, 11, 30, 7, 28, 39, 2e8, time.UTC)},
		{ReleasedAt: time.Date(2026, 11, 30, 7, 0, 0, 0, time.UTC)},
		{Handle: "lb-x", Type: "LoadBalancer", Service: "s/web"},
	}
	if !slices.Equal(a, want) {
		t.Errorf("got %+v", a)
	}
	if !a[1].CoolingDown() {
		t.Error("not cooling down")
	}
	if want := time.Date(2026, 11, 30, 7, 28, 39, 2e8, time.UTC); !s.AsOf.Equal(want) || !s.AsOfInferred {
		t.Errorf("as of %v", s.AsOf)
	}
}

func TestSoftDeleted(t *testing.T) {
	for _, deleted := range []string{`"deleted":true`, `"deleted":"true"`, `"Deleted":true`} {
		for kind, spec := range map[string]string{
			"IPAMBlock":     `"cidr":"10.0.0.0/31","allocations":[null,null],"unallocated":[0,1],"attributes":[]`,
			"BlockAffinity": `"cidr":"10.0.0.0/31","node":"n"`,
			"IPAMHandle":    `"handleID":"h","block":{}`,
		} {
			s := read(t, obj(v1, kind, "x", `"spec":{`+spec+`,`+deleted+`}`))
			if len(s.Blocks)+len(s.Affinities)+len(s.Handles) != 0 {
				t.Errorf("%s with %s counts", kind, deleted)
			}
			r, _ := resourceOf(v1, kind)
			if c := s.Coverage.Get(r); c.Status != ipam.Read || c.Items != 1 {
				t.Errorf("%s with %s: %+v", kind, deleted, c)
			}
			live := strings.ReplaceAll(strings.ReplaceAll(deleted, `"true"`, `"false"`), `:true`, `:false`)
			s = read(t, obj(v1, kind, "x", `"spec":{`+spec+`,`+live+`}`))
			if len(s.Blocks)+len(s.Affinities)+len(s.Handles) != 1 {
				t.Errorf("%s with %s is lost", kind, live)
			}
		}
	}
}

func TestDefaultsOnRead(t *testing.T) {
	s := read(t, strings.Join([]string{
		obj(v1, "IPPool", "p4", `"spec":{"cidr":"10.0.0.0/16"}`),
		obj(v1, "IPPool", "p6", `"spec":{"cidr":"fd00::/64","allowedUses":["LoadBalancer"],"assignmentMode":"Manual","disabled":true},"status":{"conditions":[{"type":"Allocatable","status":"False","reason":"CIDROverlap"}]}`),
		obj(v1, "IPPool", "old", `"spec":{"cidr":"10.1.0.0/16","ipip":{"enabled":true,"mode":"cross-subnet"}}`),
		obj(v1, "BlockAffinity", "a", `"spec":{"cidr":"10.0.0.0/26","node":"n"}`),
		obj(v1, "IPAMConfig", "default", `"spec":{"strictAffinity":true}`),
		obj(v1, "ClusterInformation", "default", `"spec":{"clusterGUID":"guid","calicoVersion":"v3.32.1"}`),
		obj(v1, "BGPConfiguration", "default", `"spec":{"asNumber":"1.10","serviceClusterIPs":[{"cidr":"10.96.0.0/12"}],"serviceLoadBalancerIPs":[{"cidr":"192.0.2.1/32"}]}`),
		obj(v1, "BGPConfiguration", "node.n1", `"spec":{"nodeToNodeMeshEnabled":false}`),
		obj(v1, "KubeControllersConfiguration", "default", `"spec":{"controllers":{"node":{"leakGracePeriod":"0s"}}}`),
		obj(v1, "FelixConfiguration", "default", `"spec":{"programClusterRoutes":"Enabled"}`),
		obj(v1, "IPReservation", "r", `"spec":{"reservedCIDRs":["10.0.0.0/30","10.0.1.7"]}`),
		obj(v1, "IPAMHandle", "h", `"spec":{"handleID":"H\r\neth0","block":{"10.0.0.0/26":2,"10.0.0.64/26":1}}`),
	}, "\n"))
	p4 := ipam.Pool{
		Name: "p4", CIDR: netip.MustParsePrefix("10.0.0.0/16"), BlockSize: 26, NodeSelector: "all()",
		IPIPMode: "Never", VXLANMode: "Never", AllowedUses: ipam.UseWorkload | ipam.UseTunnel,
	}
	got := s.Pools[0]
	if got.Name != p4.Name || got.CIDR != p4.CIDR || got.BlockSize != 26 || got.NodeSelector != "all()" || got.IPIPMode != "Never" || got.AllowedUses != p4.AllowedUses || got.Manual || got.Disabled {
		t.Errorf("p4 %+v", got)
	}
	if old := s.Pools[1]; old.IPIPMode != "CrossSubnet" {
		t.Errorf("old %+v", old)
	}
	if p6 := s.Pools[2]; p6.BlockSize != 122 || p6.AllowedUses != ipam.UseLoadBalancer || !p6.Manual || !p6.Disabled || p6.NotAllocatable != "CIDROverlap" {
		t.Errorf("p6 %+v", p6)
	}
	if a := s.Affinities[0]; a.Type != "host" || a.State != ipam.StateConfirmed {
		t.Errorf("affinity %+v", a)
	}
	if want := (ipam.Config{StrictAffinity: true, AutoAllocateBlocks: true, Present: true}); s.Config != want {
		t.Errorf("config %+v", s.Config)
	}
	if !s.Info.Ready || s.Info.GUID != "guid" || !s.Info.Version.AtLeast(3, 32) || s.Cluster.ID != "guid" {
		t.Errorf("info %+v, cluster %+v", s.Info, s.Cluster)
	}
	if !s.BGP.Mesh || s.BGP.ASNumber != 1<<16|10 || len(s.BGP.ServiceCIDRs) != 2 {
		t.Errorf("bgp %+v: node.n1 is not the default", s.BGP)
	}
	if s.KubeCtrl.LeakGracePeriod != 0 || !s.KubeCtrl.Present {
		t.Errorf("kube-controllers %+v", s.KubeCtrl)
	}
	if s.Felix.ProgramClusterRoutes != "Enabled" {
		t.Errorf("felix %+v", s.Felix)
	}
	if len(s.Reservations[0].CIDRs) != 2 || s.Reservations[0].CIDRs[1].Bits() != 32 {
		t.Errorf("reservation %+v", s.Reservations)
	}
	if s.Handles[0].Count != 3 || s.Handles[0].ID != "H" {
		t.Errorf("handle %+v", s.Handles)
	}
	if s.API != ipam.APIv1 || len(s.Rejected) > 0 {
		t.Errorf("api %s, rejected %v", s.API, s.Rejected)
	}
}

func TestNodesAndPods(t *testing.T) {
	s := read(t, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1","uid":"u","labels":{"node-role.kubernetes.io/control-plane":"","kubernetes.io/os":"windows","projectcalico.org/node-network-during-migration":"calico"},
	 "annotations":{"projectcalico.org/IPv4Address":"10.64.0.247/22","projectcalico.org/IPv4IPIPTunnelAddr":"10.0.0.1","projectcalico.org/IPv6VXLANTunnelAddr":"fd00::1","projectcalico.org/IPv4WireguardInterfaceAddr":"10.0.0.2","projectcalico.org/ASNumber":"64512","projectcalico.org/RouteReflectorClusterID":"1.0.0.1"}},
	 "spec":{"unschedulable":true,"podCIDR":"10.244.0.0/24"},
	 "status":{"capacity":{"pods":"110"},"addresses":[{"type":"InternalIP","address":"10.64.0.99"},{"type":"InternalIP","address":"2001:db8::1"}],"conditions":[{"type":"Ready","status":"True"}]}}
	{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"s","uid":"pu","deletionTimestamp":"2026-01-01T00:00:00Z","labels":{"k8s-app":"calico-node","kubevirt.io/domain":"vm1"},
	 "annotations":{"cni.projectcalico.org/podIP":"10.0.0.5/32","cni.projectcalico.org/podIPs":"10.0.0.5/32,fd00::5/128","cni.projectcalico.org/ipAddrs":"[\"10.0.0.5\"]","cni.projectcalico.org/ipv4pools":"[\"p4\"]","cni.projectcalico.org/ipv6pools":"not json","cni.projectcalico.org/ipAddrsNoIpam":"[\"10.9.9.9\"]"},
	 "ownerReferences":[{"kind":"Other","name":"o"},{"kind":"ReplicaSet","name":"rs","controller":true}]},
	 "spec":{"nodeName":"n1"},
	 "status":{"phase":"Running","podIP":"10.0.0.5","podIPs":[{"ip":"10.0.0.5"}],"startTime":"2026-01-01T00:00:00Z",
	  "initContainerStatuses":[{"restartCount":1,"state":{"terminated":{}}}],
	  "containerStatuses":[{"restartCount":2,"state":{"waiting":{"reason":"CrashLoopBackOff","message":"back-off"}},"lastState":{"terminated":{"message":"Unable to autoassign an address"}}}]}}
	{"apiVersion":"v1","kind":"Pod","metadata":{"name":"gone","namespace":"s","annotations":{"cni.projectcalico.org/podIP":""}},"spec":{"hostNetwork":true},"status":{"phase":"Failed","reason":"Evicted"}}`)
	n := s.Nodes[0]
	if !slices.Equal(n.Addresses, addrs("10.64.0.247", "2001:db8::1")) {
		t.Errorf("addresses %v: the BGP address, and InternalIP only for the other family", n.Addresses)
	}
	if len(n.Tunnels) != 3 || n.Tunnels[1].Kind != "vxlan-v6" || n.Tunnels[2].Kind != "wireguard" {
		t.Errorf("tunnels %v", n.Tunnels)
	}
	if !n.Ready || !n.Unschedulable || !n.ControlPlane || !n.Windows || !n.FlannelMigration || n.MaxPods != 110 || n.ASNumber != 64512 || n.RRClusterID != "1.0.0.1" || len(n.PodCIDRs) != 1 {
		t.Errorf("node %+v", n)
	}
	gone, p := s.Pods[0], s.Pods[1]
	if !p.Deleting || p.Released || !p.CalicoCNI || !p.NoIPAM || p.App != "calico-node" || p.VMI != "vm1" || p.OwnerKind != "ReplicaSet" || p.Restarts != 3 {
		t.Errorf("pod %+v", p)
	}
	if p.Waiting != "CrashLoopBackOff" || p.Message != "back-off; Unable to autoassign an address" {
		t.Errorf("waiting %q %q", p.Waiting, p.Message)
	}
	if !slices.Equal(p.AnnotatedIPs, addrs("10.0.0.5", "fd00::5")) || !slices.Equal(p.RequestedIPs, addrs("10.0.0.5")) || !slices.Equal(p.PoolPins, []string{"p4"}) {
		t.Errorf("addresses %+v", p)
	}
	if !gone.Released || !gone.HostNetwork || gone.Reason != "Evicted" {
		t.Errorf("gone %+v", gone)
	}
}

func TestEventsKept(t *testing.T) {
	event := func(reason, message string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Event","metadata":{"name":%q,"namespace":"s"},"involvedObject":{"kind":"Pod","name":"p","namespace":"s"},"reason":%q,"message":%q,"count":7,"lastTimestamp":"2026-03-01T05:59:00Z"}`, reason+message, reason, message)
	}
	for message, kept := range map[string]bool{
		"cannot allocate new block due to per host block limit":                  true,
		"cannot find a qualified ippool":                                         true,
		"global strict affinity should not be false for Windows node":            true,
		"failed to request 1 IPv4 addresses. IPAM allocated only 0":              true,
		"error getting IP from IPAM: Address already assigned in block":          true,
		"error adding host side routes for interface: cali1":                     true,
		"failed to allocate for range 0: no IP addresses available in range set": true,
		"IP assignment error: No configured Calico pools.":                       true,
		"Unable to autoassign an address - pools are likely exhausted.":          true,
		"failed to find or claim a block":                                        true,
		"Failed to pull image \"x\"":                                             false,
		"MountVolume.SetUp failed for volume \"data\"":                           false,
	} {
		s := read(t, event("Failed", message))
		if got := len(s.Events) == 1; got != kept {
			t.Errorf("%q kept: %v", message, got)
		}
		if c := s.Coverage.Get(ipam.ResEvents); c.Items != 1 || c.Status != ipam.Read {
			t.Errorf("%q: %+v", message, c)
		}
	}
	s := read(t, event("FailedCreatePodSandBox", "anything"))
	if len(s.Events) != 1 || s.Events[0].Count != 7 || s.Events[0].Last.IsZero() {
		t.Errorf("%+v", s.Events)
	}
	s = read(t, `{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"e","namespace":"s"},"regarding":{"kind":"Pod","name":"p"},"reason":"FailedKillPod","note":"x","series":{"count":9,"lastObservedTime":"2026-03-01T05:59:00.5Z"}}`)
	if e := s.Events[0]; e.Name != "p" || e.Message != "x" || e.Count != 9 {
		t.Errorf("%+v", e)
	}
}

func TestWorkloads(t *testing.T) {
	s := read(t, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"calico-kube-controllers","namespace":"kube-system"},"spec":{"template":{"spec":{"containers":[{"image":"i","env":[{"name":"ENABLED_CONTROLLERS","value":"node"},{"name":"ETCD_KEY","value":"x"}]}]}}},"status":{"availableReplicas":0,"conditions":[{"type":"Progressing","status":"False","lastTransitionTime":"2026-01-01T00:00:00Z"},{"type":"Available","status":"False","lastTransitionTime":"2026-02-01T00:00:00Z"}]}}
	{"apiVersion":"apps/v1","kind":"DaemonSet","metadata":{"name":"x","namespace":"kube-system","labels":{"k8s-app":"canal"}},"status":{"desiredNumberScheduled":3,"numberAvailable":2}}
	{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"s"},"spec":{"replicas":9}}`)
	if len(s.Workloads) != 2 {
		t.Fatalf("%+v", s.Workloads)
	}
	if w := s.Workloads[0]; !w.UnavailableSince.Equal(time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)) || w.Desired != 1 || w.Available != 0 || w.Image != "i" || len(w.Env) != 1 || w.Env["ENABLED_CONTROLLERS"] != "node" {
		t.Errorf("%+v", w)
	}
	if w := s.Workloads[1]; w.Kind != "DaemonSet" || w.Desired != 3 || w.Available != 2 {
		t.Errorf("%+v", w)
	}
	if c := s.Coverage.Get(ipam.ResDeployments); c.Items != 2 {
		t.Errorf("%+v", c)
	}
}

// TestRejected: an object that cannot be used says which and why, and loses
// nobody else.
func TestRejected(t *testing.T) {
	good := obj(v1, "IPPool", "good", `"spec":{"cidr":"10.0.0.0/16"}`)
	for _, tc := range []struct{ name, json, where string }{
		{"type", obj(v1, "IPPool", "bad", `"spec":{"cidr":["10.0.0.0/16"]}`), "stdin, document 1: IPPool bad: spec.cidr: "},
		{"cidr", obj(v1, "IPPool", "bad", `"spec":{"cidr":"10.0.0.0"}`), `spec.cidr: "10.0.0.0" is no CIDR`},
		{"bad cidr", obj(v1, "IPPool", "bad", `"spec":{"cidr":"10.0.0.0/99"}`), `stdin, document 1: IPPool bad: spec.cidr: "10.0.0.0/99" is no CIDR`},
		{"no name", `{"apiVersion":"crd.projectcalico.org/v1","kind":"IPPool","metadata":{},"spec":{"cidr":"10.0.0.0/16"}}`, "metadata.name: is missing"},
		{"invalid JSON", `{"apiVersion":"crd.projectcalico.org/v1","kind":"IPPool","metadata":{"name":"bad"},"spec":{"cidr":"10.0.0.0/16" "x"}}`, "stdin, document 1: IPPool bad: spec: invalid JSON"},
		{"not UTF-8", "{\"apiVersion\":\"crd.projectcalico.org/v1\",\"kind\":\"IPPool\",\"metadata\":{\"name\":\"b\xff\"},\"spec\":{\"cidr\":\"10.9.0.0/16\"}}", "metadata.name: invalid JSON: invalid UTF-8"},
		{"a version of another time", obj("crd.projectcalico.org/v2", "IPPool", "bad", `"spec":{"cidr":"10.9.0.0/16"}`), `IPPool bad: apiVersion: "crd.projectcalico.org/v2" is a version that this ipamaudit does not know`},
		{"grace", obj(v1, "KubeControllersConfiguration", "default", `"spec":{"controllers":{"node":{"leakGracePeriod":"soon"}}}`), `KubeControllersConfiguration default: spec.controllers.node.leakGracePeriod: "soon" is no duration`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := read(t, tc.json+"\n"+good)
			if len(s.Rejected) != 1 || !strings.Contains(s.Rejected[0].Error(), tc.where) {
				t.Errorf("rejected %v, want %q", s.Rejected, tc.where)
			}
			if len(s.Pools) != 1 || s.Pools[0].Name != "good" {
				t.Errorf("the good pool was lost: %+v", s.Pools)
			}
			if c := s.Coverage.Get(ipam.ResPools); tc.name != "grace" && (c.Status != ipam.Read || c.Detail != "1 of 2 objects could not be used") {
				t.Errorf("%+v", c)
			}
		})
	}
	s := read(t, good+obj(v1, "KubeControllersConfiguration", "default", `"spec":{"controllers":{"node":{"leakGracePeriod":"soon"}}}`))
	if c := s.Coverage.Get(ipam.ResKubeCtrl); c.Status != ipam.Failed || s.KubeCtrl.Present {
		t.Errorf("every object was rejected, yet %+v", c)
	}
}

func TestGroupsAndCopies(t *testing.T) {
	pool := func(api, cidr, version string) string {
		return fmt.Sprintf(`{"apiVersion":%q,"kind":"IPPool","metadata":{"name":"p","resourceVersion":%q},"spec":{"cidr":%q}}`, api, version, cidr)
	}
	for _, tc := range []struct{ name, json, cidr, api string }{
		{"v3 alone", pool(ipam.APIv3, "10.3.0.0/16", "1"), "10.3.0.0/16", ipam.APIv3},
		{"v1 wins", pool(ipam.APIv3, "10.3.0.0/16", "9") + pool(ipam.APIv1, "10.1.0.0/16", "1"), "10.1.0.0/16", ipam.APIv1},
		{"newer copy wins", pool(ipam.APIv1, "10.1.0.0/16", "2") + pool(ipam.APIv1, "10.2.0.0/16", "10"), "10.2.0.0/16", ipam.APIv1},
		{"first copy wins", pool(ipam.APIv1, "10.1.0.0/16", "2") + pool(ipam.APIv1, "10.2.0.0/16", "2"), "10.1.0.0/16", ipam.APIv1},
		{"pools of v3, group v1", pool(ipam.APIv3, "10.3.0.0/16", "1") + `{"apiVersion":"crd.projectcalico.org/v1","kind":"IPAMBlockList","items":[]}`, "10.3.0.0/16", ipam.APIv1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := read(t, tc.json)
			if len(s.Pools) != 1 || s.Pools[0].CIDR.String() != tc.cidr || s.API != tc.api {
				t.Errorf("%+v %s", s.Pools, s.API)
			}
		})
	}
	_, err := FromReader(t.Context(), strings.NewReader(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"kube-system","uid":"a"}}{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"kube-system","uid":"b"}}`), Options{})
	if err == nil || !strings.Contains(err.Error(), "two clusters") {
		t.Errorf("mixed clusters: %v", err)
	}
}
