package ipam

import (
	"net/netip"
	"testing"
	"time"
)

// Who holds an address: each row is one record in a block and the pods around it.
func TestHolder(t *testing.T) {
	const h = "k8s-pod-network.c1"
	rec := func(a Attribute) Attribute {
		if a.Handle == "" && a.ReleasedAt.IsZero() {
			a.Handle = h
		}
		return a
	}
	pod := func(name, node, phase string, ips ...string) Pod {
		p := Pod{Namespace: "d", Name: name, NodeName: node, Phase: phase}
		for _, s := range ips {
			p.StatusIPs = append(p.StatusIPs, ip(s))
		}
		return p
	}
	deleting := func(p Pod, released bool) Pod { p.Deleting, p.Released = true, released; return p }
	hostNet := func(p Pod) Pod { p.HostNetwork = true; return p }
	virt := func(p Pod) Pod { p.VMI = "vm"; return p }
	for _, tc := range []struct {
		name string
		attr Attribute
		pods []Pod
		want HolderKind
		node string
	}{
		{"its pod runs with it", Attribute{Namespace: "d", Pod: "p", Node: "a"}, []Pod{pod("p", "a", "Running", "10.0.0.0")}, HeldByPod, "a"},
		{"booked for a, runs on b: the pod's node counts", Attribute{Namespace: "d", Pod: "p", Node: "a"}, []Pod{pod("p", "b", "Running", "10.0.0.0")}, HeldByPod, "b"},
		{"another pod runs with it", Attribute{Namespace: "d", Pod: "p", Node: "a"}, []Pod{pod("q", "b", "Running", "10.0.0.0")}, HeldByOtherPod, "b"},
		{"record names no pod, one runs with it", Attribute{Node: "a"}, []Pod{pod("q", "b", "Running", "10.0.0.0")}, HeldByPod, "b"},
		{"pod gone", Attribute{Namespace: "d", Pod: "p", Node: "a"}, nil, LeakedGone, "a"},
		{"finished pod still shows it", Attribute{Namespace: "d", Pod: "p", Node: "a"}, []Pod{pod("p", "a", "Succeeded", "10.0.0.0")}, LeakedFinished, "a"},
		{"failed pod", Attribute{Namespace: "d", Pod: "p", Node: "a"}, []Pod{pod("p", "a", "Failed", "10.0.0.0")}, LeakedFinished, "a"},
		{"terminating, network still there", Attribute{Namespace: "d", Pod: "p", Node: "a"}, []Pod{deleting(pod("p", "a", "Running", "10.0.0.0"), false)}, HeldByPod, "a"},
		{"terminating, network gone", Attribute{Namespace: "d", Pod: "p", Node: "a"}, []Pod{deleting(pod("p", "a", "Running", "10.0.0.0"), true)}, LeakedFinished, "a"},
		{"pod has another address", Attribute{Namespace: "d", Pod: "p", Node: "a"}, []Pod{pod("p", "a", "Running", "10.0.0.9")}, LeakedOtherAddress, "a"},
		{"pod waits for its address", Attribute{Namespace: "d", Pod: "p", Node: "a"}, []Pod{pod("p", "a", "Pending")}, HeldByWaitingPod, "a"},
		{"recreated and not scheduled yet", Attribute{Namespace: "d", Pod: "p", Node: "a"}, []Pod{pod("p", "", "Pending")}, LeakedGone, ""},
		{"host-network pod of that name", Attribute{Namespace: "d", Pod: "p", Node: "a"}, []Pod{hostNet(pod("p", "a", "Running", "192.0.2.1"))}, LeakedOtherAddress, "a"},
		{"IPIP tunnel of a live node", Attribute{Node: "a", Type: "ipipTunnelAddress"}, nil, HeldByTunnel, "a"},
		{"tunnel by handle only", Attribute{Handle: "vxlan-v6-tunnel-addr-b"}, nil, HeldByTunnel, "b"},
		{"tunnel of a node that differs in case", Attribute{Node: "A", Type: "wireguardV6TunnelAddress"}, nil, HeldByTunnel, "a"},
		{"tunnel of a dead node", Attribute{Node: "gone", Type: "vxlanTunnelAddress"}, nil, LeakedTunnel, "gone"},
		{"Windows reservation", Attribute{Handle: "windows-reserved-ipam-handle"}, nil, HeldByWindows, ""},
		{"load balancer", Attribute{Handle: "lb-abc", Type: "LoadBalancer", Namespace: "d"}, nil, HeldByService, ""},
		{"cooling down", Attribute{ReleasedAt: time.Unix(1, 0)}, nil, HeldCoolingDown, ""},
		{"nobody recorded", Attribute{Handle: "manual"}, nil, HeldUnowned, ""},
		{"stopped VM", Attribute{Namespace: "d", Pod: "virt-launcher-vm-x", Node: "a", VMI: "vm"}, nil, HeldByVM, "a"},
		{"VM in migration", Attribute{Namespace: "d", Pod: "virt-launcher-vm-x", Node: "a", VMI: "vm"}, []Pod{virt(pod("virt-launcher-vm-y", "b", "Running", "10.0.0.0"))}, HeldByPod, "b"},
	} {
		s := NewSnapshot()
		s.Nodes = []Node{{Name: "a"}, {Name: "b"}}
		s.Pods = tc.pods
		b := Block{CIDR: pfx("10.0.0.0/26"), Owner: Owner{"host", "a"}, Slots: []Slot{{0, 0}}, Attributes: []Attribute{rec(tc.attr)}}
		s.Blocks = []Block{b}
		sealed(s)
		a, ok := s.AllocationOf(ip("10.0.0.0"))
		if !ok {
			t.Fatalf("%s: not allocated", tc.name)
		}
		if got := s.Holder(a); got.Kind != tc.want || got.NodeName != tc.node {
			t.Errorf("%s: kind %d on %q, want %d on %q", tc.name, got.Kind, got.NodeName, tc.want, tc.node)
		}
	}
}

// An IPv6 address that status does not list is no leak while its sibling of the
// same handle is in use (projectcalico/calico#5044).
func TestSiblingOfALiveHandle(t *testing.T) {
	s := NewSnapshot()
	s.Nodes = []Node{{Name: "a"}}
	s.Pods = []Pod{{Namespace: "d", Name: "p", NodeName: "a", Phase: "Running", StatusIPs: []netip.Addr{ip("10.0.0.0")}}}
	at := Attribute{Handle: "h", Namespace: "d", Pod: "p", Node: "a"}
	s.Blocks = []Block{
		{CIDR: pfx("10.0.0.0/26"), Slots: []Slot{{0, 0}}, Attributes: []Attribute{at}},
		{CIDR: pfx("fd00::/122"), Slots: []Slot{{5, 0}}, Attributes: []Attribute{at}},
	}
	sealed(s)
	a, _ := s.AllocationOf(ip("fd00::5"))
	if got := s.Holder(a); got.Kind != HeldBySibling {
		t.Errorf("kind %d, want HeldBySibling", got.Kind)
	}
}

func TestPodsNotReadIsUnknown(t *testing.T) {
	s := NewSnapshot()
	s.Blocks = []Block{testBlock("10.0.0.0/26", "host:a", 1)}
	s.Coverage.Set(ResPods, Forbidden, 0, "")
	s.Seal()
	a, _ := s.AllocationOf(ip("10.0.0.0"))
	if got := s.Holder(a); got.Kind != HeldUnknown {
		t.Errorf("kind %d, want HeldUnknown", got.Kind)
	}
}

func TestCarriesHostRoute(t *testing.T) {
	plain, vxlan, ipip := testPool("plain", "10.0.0.0/24", 26), testPool("vxlan", "10.0.1.0/24", 26), testPool("ipip", "10.0.2.0/24", 26)
	vxlan.VXLANMode, ipip.IPIPMode = "CrossSubnet", "Always"
	hidden := plain
	hidden.DisableBGPExport = true
	external := BGPPeer{Name: "tor", PeerIP: "192.0.2.1", ASNumber: 14907}
	allowing := external
	allowing.NumAllowedLocalASNumbers = 1
	ibgp := allowing
	ibgp.ASNumber = 64512
	for _, tc := range []struct {
		name    string
		pool    Pool
		version string
		mesh    bool
		peers   []BGPPeer
		rr      bool
		unread  bool
		want    Carry
	}{
		{"the staging story: external peers only", plain, "v3.17.0", false, []BGPPeer{external}, false, false, AtRisk},
		{"node mesh", plain, "v3.17.0", true, nil, false, false, Carried},
		{"VXLAN needs no BGP", vxlan, "v3.17.0", false, nil, false, false, Carried},
		{"IPIP is BIRD's up to v3.32", ipip, "v3.32.1", false, []BGPPeer{external}, false, false, AtRisk},
		{"IPIP is Felix's from v3.33", ipip, "v3.33.0", false, []BGPPeer{external}, false, false, Carried},
		{"eBGP that accepts the own AS", plain, "v3.23.0", false, []BGPPeer{allowing}, false, false, Carried},
		{"one of two peers accepts it", plain, "v3.23.0", false, []BGPPeer{external, allowing}, false, false, AtRisk},
		{"iBGP to a router: accepting the own AS does not help", plain, "v3.23.0", false, []BGPPeer{ibgp}, false, false, AtRisk},
		{"route reflector nodes", plain, "v3.23.0", false, []BGPPeer{{Name: "rr", PeerSelector: "has(route-reflector)"}}, true, false, Carried},
		{"a selector that leads nowhere", plain, "v3.23.0", false, []BGPPeer{{Name: "rr", PeerSelector: "has(nothing)"}}, true, false, AtRisk},
		{"no peer at all", plain, "v3.23.0", false, nil, false, false, AtRisk},
		{"export disabled, in a mesh", hidden, "v3.23.0", true, nil, false, false, AtRisk},
		{"BGP not read", plain, "v3.23.0", false, nil, false, true, CarryUnknown},
	} {
		s := NewSnapshot()
		s.Info.Version, s.BGP.Mesh, s.BGP.ASNumber, s.Peers = ParseVersion(tc.version), tc.mesh, 64512, tc.peers
		s.Pools = []Pool{tc.pool}
		s.Nodes = []Node{{Name: "a"}, {Name: "b"}}
		if tc.rr {
			s.Nodes = append(s.Nodes, Node{Name: "rr", Labels: map[string]string{"route-reflector": "true"}, RRClusterID: "1.0.0.1"})
		}
		sealed(s)
		if tc.unread {
			s.Coverage.Set(ResBGPConfig, Forbidden, 0, "")
			s.Coverage.Set(ResBGPPeers, Forbidden, 0, "")
		}
		if got, why := s.CarriesHostRoute(&s.Pools[0], s.Node("a"), s.Node("b")); got != tc.want || why == "" {
			t.Errorf("%s: %s (%s), want %s", tc.name, got, why, tc.want)
		}
	}
}

func TestVersion(t *testing.T) {
	for text, want := range map[string]string{"v3.32.1": "v3.32.1", "3.17": "v3.17.0", "v3.33.0-0.dev-12": "v3.33.0", "": "unknown", "master": "unknown", "v3.x": "unknown"} {
		if got := ParseVersion(text).String(); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	if v := ParseVersion(""); v.AtLeast(3, 0) || v.Before(9, 0) {
		t.Error("an unknown version is neither new nor old")
	}
}
