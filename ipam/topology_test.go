package ipam

import (
	"net/netip"
	"strings"
	"testing"
)

// TestRoutesBy has a row for every row of "who programs what", and one for
// each way to move it.
func TestRoutesBy(t *testing.T) {
	plain, ipip, vxlan := testPool("plain", "10.0.0.0/24", 26), testPool("ipip", "10.0.1.0/24", 26), testPool("vxlan", "10.0.2.0/24", 26)
	ipip.IPIPMode, vxlan.VXLANMode = "CrossSubnet", "Always"
	for _, tc := range []struct {
		version, felix, bgp string
		pool                Pool
		want                Programmer
	}{
		{"v3.17.0", "", "", plain, BIRD},
		{"v3.33.0", "", "", plain, BIRD},
		{"v3.17.0", "", "", ipip, BIRD},
		{"v3.32.1", "", "", ipip, BIRD},
		{"v3.32.1", "Enabled", "", ipip, BIRD},
		{"v3.32.1", "Enabled", "Disabled", ipip, Felix},
		{"v3.32.1", "Enabled", "Disabled", plain, BIRD},
		{"v3.30.0", "Enabled", "Disabled", ipip, BIRD},
		{"v3.33.0", "", "", ipip, Felix},
		{"v3.33.0", "", "Enabled", ipip, BIRD},
		{"v3.33.0", "", "EnabledIPIPOnly", ipip, BIRD},
		{"v3.33.0", "", "EnabledNoEncapOnly", ipip, Felix},
		{"v3.33.0", "Disabled", "", ipip, Nobody},
		{"v3.33.0", "Enabled", "Disabled", plain, Felix},
		{"v3.33.0", "EnabledNoEncapOnly", "EnabledIPIPOnly", plain, Felix},
		{"v3.33.0", "", "EnabledIPIPOnly", plain, Nobody},
		{"v3.17.0", "", "", vxlan, Felix},
		{"v3.33.0", "Disabled", "Enabled", vxlan, Felix},
		{"", "", "", ipip, BIRD},
	} {
		s := NewSnapshot()
		s.Info.Version, s.Felix.ProgramClusterRoutes, s.BGP.ProgramClusterRoutes = ParseVersion(tc.version), tc.felix, tc.bgp
		if got := s.RoutesBy(&tc.pool); got != tc.want {
			t.Errorf("%s pool in %q with Felix %q, BGP %q: %s, want %s", tc.pool.Name, tc.version, tc.felix, tc.bgp, got, tc.want)
		}
	}
}

// TestRefusedTopology: what decides and was refused decides nothing. Missing, it
// is Calico's default.
func TestRefusedTopology(t *testing.T) {
	plain, ipip, vxlan := testPool("plain", "10.0.0.0/24", 26), testPool("ipip", "10.0.1.0/24", 26), testPool("vxlan", "10.0.2.0/24", 26)
	ipip.IPIPMode, vxlan.VXLANMode = "CrossSubnet", "Always"
	for _, tc := range []struct {
		refused Resource
		version string
		pool    Pool
		by      Programmer
		carry   Carry
	}{
		{ResBGPConfig, "v3.30.0", plain, BIRD, CarryUnknown},
		{ResBGPConfig, "v3.30.0", vxlan, Felix, Carried},
		{ResBGPConfig, "v3.33.0", plain, Unsure, CarryUnknown},
		{ResFelixConfig, "v3.30.0", ipip, BIRD, Carried},
		{ResFelixConfig, "v3.32.0", ipip, Unsure, CarryUnknown},
		{ResFelixConfig, "v3.32.0", plain, BIRD, Carried},
		{ResFelixConfig, "v3.33.0", plain, Unsure, CarryUnknown},
		{ResClusterInfo, "", ipip, Unsure, CarryUnknown},
		{ResClusterInfo, "v3.30.0", ipip, BIRD, Carried}, // calico-node's image told
		{ResClusterInfo, "", plain, BIRD, Carried},
		{ResBGPPeers, "v3.30.0", plain, BIRD, Carried}, // the mesh needs none
	} {
		s := NewSnapshot()
		for _, r := range []Resource{ResBGPConfig, ResBGPPeers, ResFelixConfig, ResClusterInfo} {
			s.Coverage.Set(r, Read, 1, "")
		}
		s.Nodes = []Node{{Name: "a"}, {Name: "b"}}
		s.Info.Version = ParseVersion(tc.version)
		s.Coverage.Set(tc.refused, Forbidden, 0, "")
		s.Seal()
		carry, why := s.CarriesHostRoute(&tc.pool, &s.Nodes[0], &s.Nodes[1])
		if by := s.RoutesBy(&tc.pool); by != tc.by || carry != tc.carry {
			t.Errorf("without %s, %s pool in %q: %s, %s (%s); want %s, %s", tc.refused, tc.pool.Name, tc.version, by, carry, why, tc.by, tc.carry)
		}
		if carry == CarryUnknown && !strings.Contains(why, string(tc.refused)) {
			t.Errorf("without %s: the reason does not name it: %s", tc.refused, why)
		}
		s.Coverage.Set(tc.refused, Missing, 0, "")
		if by := s.RoutesBy(&tc.pool); by == Unsure {
			t.Errorf("%s was not collected: %s", tc.refused, by)
		}
	}
}

func deny(op, cidr string, low, high int) BGPFilterRule {
	return BGPFilterRule{Operator: op, CIDR: netip.MustParsePrefix(cidr), MinLength: low, MaxLength: high, Reject: true}
}

// TestCarriesAddress has a row for each way in which the owner may or may not
// learn the host route of a borrowed address.
func TestCarriesAddress(t *testing.T) {
	rack := func(n *Node, name string, as uint32) { n.Labels["rack"], n.ASNumber = name, as }
	tor := BGPPeer{Name: "tor", PeerIP: "192.0.2.1:179", ASNumber: 14907}
	allow := func(p BGPPeer) BGPPeer { p.NumAllowedLocalASNumbers = 1; return p }
	filtered := func(p BGPPeer, names ...string) BGPPeer { p.Filters = names; return p }
	rr := BGPPeer{Name: "rr", PeerSelector: "has(rr)"}
	reflectors := func(s *Snapshot) {
		s.Peers = []BGPPeer{rr}
		s.Nodes = append(s.Nodes, Node{Name: "r1", Labels: map[string]string{"rr": ""}, RRClusterID: "244.0.0.1"})
	}
	for _, tc := range []struct {
		name string
		set  func(s *Snapshot)
		want Carry
	}{
		{"eBGP, one AS for all nodes (the T296303 setting)", func(s *Snapshot) { s.Peers = []BGPPeer{tor} }, AtRisk},
		{"the same, accepting the own AS", func(s *Snapshot) { s.Peers = []BGPPeer{allow(tor)} }, Carried},
		{"the same, before v3.23", func(s *Snapshot) { s.Peers, s.Info.Version = []BGPPeer{allow(tor)}, ParseVersion("v3.22.0") }, AtRisk},
		{"the owner's peer accepts it; the borrower's need not", func(s *Snapshot) {
			mine, yours := allow(tor), tor
			mine.Node, yours.Node = "owner", "borrower"
			s.Peers = []BGPPeer{mine, yours}
		}, Carried},
		{"iBGP to a router that is no reflector", func(s *Snapshot) { tor := tor; tor.ASNumber = 64512; s.Peers = []BGPPeer{allow(tor)} }, AtRisk},
		{"iBGP by the cluster's own number", func(s *Snapshot) {
			tor := allow(tor)
			tor.ASNumber, s.BGP.ASNumber = 65001, 65001
			s.Peers = []BGPPeer{tor}
		}, AtRisk},
		{"an AS number per rack, in two racks", func(s *Snapshot) {
			s.Peers = []BGPPeer{tor}
			rack(&s.Nodes[0], "a", 65001)
			rack(&s.Nodes[1], "b", 65002)
		}, Carried},
		{"an AS number per rack, in one rack", func(s *Snapshot) {
			s.Peers = []BGPPeer{tor}
			rack(&s.Nodes[0], "a", 65001)
			rack(&s.Nodes[1], "a", 65001)
		}, AtRisk},
		{"an AS number per node, by BGPConfiguration", func(s *Snapshot) {
			s.Peers, s.BGP.NodeASNumbers = []BGPPeer{tor}, map[string]uint32{"borrower": 65009}
		}, Carried},
		{"a local AS towards the router that is the same for all", func(s *Snapshot) {
			tor := tor
			tor.LocalASNumber = 65100
			s.Peers = []BGPPeer{tor}
			rack(&s.Nodes[0], "a", 65001)
			rack(&s.Nodes[1], "b", 65002)
		}, AtRisk},
		{"node mesh", func(s *Snapshot) { s.BGP.Mesh = true }, Carried},
		{"node mesh; filters are for peers only", func(s *Snapshot) {
			s.BGP.Mesh, s.Peers = true, []BGPPeer{filtered(tor, "no hosts")}
		}, Carried},
		{"node mesh, but the owner is a reflector and has no peers", func(s *Snapshot) { s.BGP.Mesh, s.Nodes[0].RRClusterID = true, "1.1.1.1" }, AtRisk},
		{"reflector nodes", reflectors, Carried},
		{"reflector nodes that the owner does not peer with", func(s *Snapshot) { reflectors(s); s.Peers[0].NodeSelector = `rack == "b"` }, AtRisk},
		{"a node that looks like a reflector and has no cluster id", func(s *Snapshot) { reflectors(s); s.Nodes[2].RRClusterID = "" }, AtRisk},
		{"two reflectors of one cluster, one for each node", func(s *Snapshot) {
			reflectors(s)
			s.Nodes = append(s.Nodes, Node{Name: "r2", Labels: map[string]string{"rr": ""}, RRClusterID: "244.0.0.1"})
			s.Nodes[2].Labels["pod"], s.Nodes[3].Labels["pod"] = "1", "2"
			s.Peers = []BGPPeer{{Name: "a", Node: "owner", PeerSelector: `pod == "1"`}, {Name: "b", Node: "borrower", PeerSelector: `pod == "2"`}, {Name: "between", NodeSelector: "has(rr)", PeerSelector: "has(rr)"}}
		}, Carried},
		{"three reflectors of one cluster in a chain", func(s *Snapshot) {
			for _, r := range []string{"1", "2", "3"} {
				s.Nodes = append(s.Nodes, Node{Name: "r" + r, Labels: map[string]string{"n": r}, RRClusterID: "244.0.0.1"})
			}
			s.Peers = []BGPPeer{
				{Name: "a", Node: "owner", PeerSelector: `n == "1"`}, {Name: "b", Node: "borrower", PeerSelector: `n == "3"`},
				{Name: "c", Node: "r1", PeerSelector: `n == "2"`}, {Name: "d", Node: "r2", PeerSelector: `n == "3"`},
			}
		}, AtRisk},
		{"the reflector by its address, configured on both ends", func(s *Snapshot) {
			reflectors(s)
			s.Nodes[2].Addresses = []netip.Addr{ip("192.0.2.9")}
			s.Peers = []BGPPeer{{Name: "rr", NodeSelector: "!has(rr)", PeerIP: "192.0.2.9", ASNumber: 64512}, {Name: "clients-o", Node: "r1", PeerIP: "192.0.2.10", ASNumber: 64512}, {Name: "clients-b", Node: "r1", PeerIP: "192.0.2.11", ASNumber: 64512}}
		}, Carried},
		{"the reflector by its address, on one end only", func(s *Snapshot) {
			reflectors(s)
			s.Nodes[2].Addresses = []netip.Addr{ip("192.0.2.9")}
			s.Peers = []BGPPeer{{Name: "rr", NodeSelector: "!has(rr)", PeerIP: "192.0.2.9", ASNumber: 64512}}
		}, AtRisk},
		{"a reflector in another AS hands the own AS back", func(s *Snapshot) { reflectors(s); s.Nodes[2].ASNumber = 65001 }, AtRisk},
		{"nodes that peer with each other by selector", func(s *Snapshot) { s.Peers = []BGPPeer{{Name: "all", NodeSelector: "all()", PeerSelector: "all()"}} }, Carried},
		{"a peer selector that leads nowhere", func(s *Snapshot) { s.Peers = []BGPPeer{{Name: "none", PeerSelector: "has(nothing)"}} }, AtRisk},
		{"a selector that cannot be parsed", func(s *Snapshot) { s.Peers = []BGPPeer{{Name: "broken", PeerSelector: "has("}} }, AtRisk},
		{"peers that are pods", func(s *Snapshot) {
			s.Peers = []BGPPeer{{Name: "pods", ASNumber: 65001, Workloads: true, NumAllowedLocalASNumbers: 1}}
		}, AtRisk},
		{"an IPv6 peer carries no IPv4", func(s *Snapshot) { tor := allow(tor); tor.PeerIP = "2001:db8::1"; s.Peers = []BGPPeer{tor} }, AtRisk},
		{"the owner has no peer", func(s *Snapshot) { tor := allow(tor); tor.Node = "borrower"; s.Peers = []BGPPeer{tor} }, AtRisk},
		{"no peer at all", func(*Snapshot) {}, AtRisk},
		{"a filter that lets only blocks out", func(s *Snapshot) { s.Peers = []BGPPeer{filtered(allow(tor), "blocks only")} }, AtRisk},
		{"a filter that lets no host route in", func(s *Snapshot) { s.Peers = []BGPPeer{filtered(allow(tor), "none in")} }, AtRisk},
		{"a filter for another prefix", func(s *Snapshot) { s.Peers = []BGPPeer{filtered(allow(tor), "elsewhere")} }, Carried},
		{"a filter for longer prefixes of another length", func(s *Snapshot) { s.Peers = []BGPPeer{filtered(allow(tor), "lengths")} }, Carried},
		{"a filter for what peers announced, on export", func(s *Snapshot) { s.Peers = []BGPPeer{filtered(allow(tor), "no transit")} }, Carried},
		{"a filter for iBGP, on eBGP", func(s *Snapshot) { s.Peers = []BGPPeer{filtered(allow(tor), "iBGP")} }, Carried},
		{"a filter that does not exist", func(s *Snapshot) { s.Peers = []BGPPeer{filtered(allow(tor), "gone")} }, Carried},
		{"a filter by interface", func(s *Snapshot) { s.Peers = []BGPPeer{filtered(allow(tor), "opaque")} }, CarryUnknown},
		{"a filter by interface, and one that rejects anyway", func(s *Snapshot) { s.Peers = []BGPPeer{filtered(allow(tor), "opaque", "no hosts")} }, AtRisk},
		{"filters were not read", func(s *Snapshot) {
			s.Peers = []BGPPeer{filtered(allow(tor), "elsewhere")}
			s.Coverage.Set(ResBGPFilters, Forbidden, 0, "")
		}, CarryUnknown},
		{"reflectors behind a filter", func(s *Snapshot) { reflectors(s); s.Peers[0].Filters = []string{"no hosts"} }, AtRisk},
		{"export disabled", func(s *Snapshot) { s.BGP.Mesh, s.Pools[0].DisableBGPExport = true, true }, AtRisk},
		{"peers not read", func(s *Snapshot) { s.Coverage.Set(ResBGPPeers, Forbidden, 0, "") }, CarryUnknown},
		{"programmed by nobody", func(s *Snapshot) {
			s.BGP.Mesh, s.Info.Version, s.BGP.ProgramClusterRoutes = true, ParseVersion("v3.33.0"), "Disabled"
		}, AtRisk},
	} {
		s := NewSnapshot()
		s.Info.Version, s.BGP.Mesh = ParseVersion("v3.29.0"), false
		s.Pools = []Pool{testPool("p", "10.0.0.0/24", 26)}
		s.Nodes = []Node{
			{Name: "owner", Labels: map[string]string{"rack": "a"}, Addresses: []netip.Addr{ip("192.0.2.10")}},
			{Name: "borrower", Labels: map[string]string{"rack": "b"}, Addresses: []netip.Addr{ip("192.0.2.11")}},
		}
		s.Filters = []BGPFilter{
			{Name: "no hosts", ExportV4: []BGPFilterRule{deny("In", "10.0.0.0/24", 27, 32)}, ImportV4: []BGPFilterRule{deny("In", "10.0.0.0/24", 27, 32)}},
			{Name: "blocks only", ExportV4: []BGPFilterRule{{Operator: "In", CIDR: netip.MustParsePrefix("10.0.0.0/24"), MinLength: -1, MaxLength: 26}, {Reject: true}}},
			{Name: "none in", ImportV4: []BGPFilterRule{deny("NotIn", "10.0.0.0/24", -1, 26)}},
			{Name: "elsewhere", ExportV4: []BGPFilterRule{deny("In", "10.9.0.0/16", -1, -1), deny("Equal", "10.0.0.0/26", -1, -1)}, ImportV6: []BGPFilterRule{{Reject: true}}},
			{Name: "lengths", ImportV4: []BGPFilterRule{deny("In", "10.0.0.0/24", -1, 31)}},
			{Name: "no transit", ExportV4: []BGPFilterRule{{Source: "RemotePeers", Reject: true}}},
			{Name: "iBGP", ExportV4: []BGPFilterRule{{PeerType: "iBGP", Reject: true}}},
			{Name: "opaque", ImportV4: []BGPFilterRule{{Opaque: true, Reject: true}}},
		}
		s.Coverage.Set(ResBGPConfig, Read, 0, "")
		s.Coverage.Set(ResBGPPeers, Read, 0, "")
		s.Coverage.Set(ResBGPFilters, Read, 0, "")
		tc.set(s)
		s.Seal()
		if got, why := s.CarriesAddress(ip("10.0.0.5"), &s.Pools[0], s.Node("owner"), s.Node("borrower")); got != tc.want || why == "" {
			t.Errorf("%s: %s (%s), want %s", tc.name, got, why, tc.want)
		}
	}
}
