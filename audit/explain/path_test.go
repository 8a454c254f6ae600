package explain

import (
	"net/netip"
	"testing"
	"time"

	"ipamaudit/ipam"
)

// lab is three nodes with a block each out of pool 10.0.0.0/16; pod d/p runs
// on b with 10.0.1.5, out of b's block. The tables are what each test gives.
func lab(tables map[string][]ipam.Route, change func(*ipam.Snapshot)) Input {
	s := ipam.NewSnapshot()
	for _, r := range ipam.AllResources() {
		s.Coverage.Set(r, ipam.Read, 1, "")
	}
	s.Pools = []ipam.Pool{{Name: "pool", CIDR: pfx("10.0.0.0/16"), BlockSize: 24, AllowedUses: ipam.UseWorkload | ipam.UseTunnel}}
	for i, name := range []string{"a", "b", "c"} {
		host := netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})
		s.Nodes = append(s.Nodes, ipam.Node{Name: name, Ready: true, Addresses: []netip.Addr{host}})
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 0}), 24)
		s.Blocks = append(s.Blocks, ipam.Block{CIDR: cidr, Owner: ipam.Owner{Type: "host", Name: name}})
		s.Affinities = append(s.Affinities, ipam.Affinity{Node: name, Type: "host", CIDR: cidr})
		if r, ok := tables[name]; ok {
			s.Tables = append(s.Tables, ipam.RouteTable{Node: name, Kind: ipam.KernelTable, Routes: r})
		}
	}
	s.Blocks[1].Slots = []ipam.Slot{{Ordinal: 5}}
	s.Blocks[1].Attributes = []ipam.Attribute{{Handle: "h", Namespace: "d", Pod: "p", Node: "b"}}
	s.Pods = []ipam.Pod{{Namespace: "d", Name: "p", NodeName: "b", Phase: "Running", StatusIPs: []netip.Addr{addr("10.0.1.5")}}}
	if change != nil {
		change(s)
	}
	return Input{Snapshot: s.Seal()}
}

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr  { return netip.MustParseAddr(s) }

func via(dst, gateway string) ipam.Route {
	return ipam.Route{Dst: pfx(dst), Type: ipam.Unicast, NextHops: []ipam.NextHop{{Via: addr(gateway), Dev: "eth0"}}, Text: dst + " via " + gateway}
}

func dev(dst, device string) ipam.Route {
	return ipam.Route{Dst: pfx(dst), Type: ipam.Unicast, NextHops: []ipam.NextHop{{Dev: device}}, Text: dst + " dev " + device}
}

func drop(dst string) ipam.Route {
	return ipam.Route{Dst: pfx(dst), Type: ipam.Blackhole, Text: "blackhole " + dst}
}

func spread(dst string, gateways ...string) ipam.Route {
	r := ipam.Route{Dst: pfx(dst), Type: ipam.Unicast, Text: dst + " nexthop"}
	for _, g := range gateways {
		r.NextHops = append(r.NextHops, ipam.NextHop{Via: addr(g), Dev: "eth0"})
	}
	return r
}

// What becomes of a packet for 10.0.1.5 that node a sends.
func TestFate(t *testing.T) {
	home := []ipam.Route{drop("10.0.1.0/24"), dev("10.0.1.5/32", "cali1")}
	for _, tc := range []struct {
		name   string
		tables map[string][]ipam.Route
		change func(*ipam.Snapshot)
		want   Outcome
		at     string
	}{
		{"to the pod's node, which has it", map[string][]ipam.Route{"a": {via("10.0.1.0/24", "192.0.2.2")}, "b": home}, nil, Delivers, "b"},
		{"to the pod's node, of which nothing is known", map[string][]ipam.Route{"a": {via("10.0.1.0/24", "192.0.2.2")}}, nil, Reaches, "b"},
		{"to the pod's node, which drops it", map[string][]ipam.Route{"a": {via("10.0.1.0/24", "192.0.2.2")}, "b": {drop("10.0.1.0/24")}}, nil, Drops, "b"},
		{"dropped here", map[string][]ipam.Route{"a": {drop("10.0.1.0/24")}, "b": home}, nil, Drops, "a"},
		{"a longer prefix saves it", map[string][]ipam.Route{"a": {drop("10.0.1.0/24"), via("10.0.1.5/32", "192.0.2.2")}, "b": home}, nil, Delivers, "b"},
		{"by way of another node that drops it", map[string][]ipam.Route{"a": {via("10.0.1.0/24", "192.0.2.3")}, "b": home, "c": {drop("10.0.1.0/24")}}, nil, Drops, "c"},
		{"by way of another node that passes it on", map[string][]ipam.Route{"a": {via("10.0.1.0/24", "192.0.2.3")}, "b": home, "c": {via("10.0.1.0/24", "192.0.2.2")}}, nil, Delivers, "b"},
		{"by way of another node of which nothing is known", map[string][]ipam.Route{"a": {via("10.0.1.0/24", "192.0.2.3")}, "b": home}, nil, Unclear, "c"},
		{"in a circle", map[string][]ipam.Route{"a": {via("10.0.1.0/24", "192.0.2.3")}, "c": {via("10.0.1.0/24", "192.0.2.1")}}, nil, Astray, "c"},
		{"one of two next hops loses it", map[string][]ipam.Route{"a": {spread("10.0.1.0/24", "192.0.2.2", "192.0.2.3")}, "b": home, "c": {drop("10.0.1.0/24")}}, nil, Drops, "c"},
		{"both next hops lead there", map[string][]ipam.Route{"a": {spread("10.0.1.0/24", "192.0.2.2", "192.0.2.3")}, "b": home, "c": {via("10.0.1.0/24", "192.0.2.2")}}, nil, Delivers, "b"},
		{"to a router", map[string][]ipam.Route{"a": {via("0.0.0.0/0", "198.51.100.1")}, "b": home}, nil, Leaves, "198.51.100.1"},
		{"nothing matches", map[string][]ipam.Route{"a": {dev("192.0.2.0/24", "eth0")}}, nil, NoRoute, "a"},
		{"only a dropping default", map[string][]ipam.Route{"a": {drop("0.0.0.0/0")}}, nil, NoRoute, "a"},
		{"as if the pod ran here", map[string][]ipam.Route{"a": {dev("10.0.1.5/32", "cali9")}, "b": home}, nil, Astray, "a"},
		{"into a tunnel without a peer", map[string][]ipam.Route{"a": {dev("10.0.1.0/24", "wireguard.cali")}, "b": home}, nil, Unclear, "a"},
		{"by VXLAN to the node's tunnel", map[string][]ipam.Route{"a": {via("10.0.1.0/24", "10.0.1.0")}, "b": home},
			func(s *ipam.Snapshot) {
				s.Nodes[1].Tunnels = []ipam.TunnelAddress{{Kind: "vxlan", IP: addr("10.0.1.0")}}
			}, Delivers, "b"},
		{"BIRD's view of a pool that Felix programs", map[string][]ipam.Route{"a": {drop("10.0.1.0/24")}},
			func(s *ipam.Snapshot) { s.Pools[0].VXLANMode, s.Tables[0].Kind = "Always", ipam.BIRDTable }, Unclear, "a"},
		{"policy rules lead elsewhere", map[string][]ipam.Route{"a": {}}, func(s *ipam.Snapshot) { s.Tables[0].Blind4 = "rules" }, Unclear, "a"},
		{"a partial table that does not drop it", map[string][]ipam.Route{"a": {drop("10.0.0.0/24")}}, func(s *ipam.Snapshot) { s.Tables[0].Partial = true }, Unclear, "a"},
		{"a partial table that drops it", map[string][]ipam.Route{"a": {drop("10.0.1.0/24")}}, func(s *ipam.Snapshot) { s.Tables[0].Partial = true }, Drops, "a"},
		{"BIRD has no route", map[string][]ipam.Route{"a": {via("10.0.2.0/24", "192.0.2.3")}},
			func(s *ipam.Snapshot) { s.Tables[0].Kind = ipam.BIRDTable }, Unclear, "a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := lab(tc.tables, tc.change)
			p := in.address(addr("10.0.1.5")).Path
			if p == nil {
				t.Fatal("no path")
			}
			for _, h := range p.Hops {
				for _, n := range h.Nodes {
					if n == "a" {
						if h.Outcome != tc.want || h.At != tc.at {
							t.Errorf("%s at %q, want %s at %q", h.Outcome, h.At, tc.want, tc.at)
						}
						return
					}
				}
			}
			t.Errorf("a is in no group: %+v", p)
		})
	}
}

// A tunnel's address is delivered by the table of local addresses, whatever
// the main one says about the block.
func TestTunnelIsItsNodesOwn(t *testing.T) {
	in := lab(map[string][]ipam.Route{"a": {via("10.0.1.0/24", "192.0.2.2")}, "b": {drop("10.0.1.0/24")}}, func(s *ipam.Snapshot) {
		s.Nodes[1].Tunnels = []ipam.TunnelAddress{{Kind: "ipip", IP: addr("10.0.1.0")}}
	})
	p := in.address(addr("10.0.1.0")).Path
	if p.Worst() != Delivers || p.count(Delivers) != 2 {
		t.Errorf("%+v", p.Hops)
	}
}

// Forty nodes that do the same are one line; what nobody knows is counted.
func TestHopsAreGrouped(t *testing.T) {
	in := lab(map[string][]ipam.Route{
		"a": {drop("10.0.1.0/24")}, "b": {dev("10.0.1.5/32", "cali1")},
	}, func(s *ipam.Snapshot) {
		for i := range 37 {
			name := "n" + string(rune('a'+i%26)) + string(rune('a'+i/26))
			s.Nodes = append(s.Nodes, ipam.Node{Name: name})
			s.Tables = append(s.Tables, ipam.RouteTable{Node: name, Kind: ipam.KernelTable, Routes: []ipam.Route{via("10.0.1.0/24", "192.0.2.2")}})
		}
	})
	p := in.address(addr("10.0.1.5")).Path
	if p.Nodes != 40 || p.Known != 39 || len(p.NoTable) != 1 || p.NoTable[0] != "c" {
		t.Errorf("%d nodes, %d known, without %v", p.Nodes, p.Known, p.NoTable)
	}
	if len(p.Hops) != 2 || p.Hops[0].Outcome != Drops || p.Hops[0].Route != "blackhole 10.0.1.0/24" || p.count(Delivers) != 38 {
		t.Errorf("%+v", p.Hops)
	}
}

func TestInference(t *testing.T) {
	borrow := func(s *ipam.Snapshot) { s.Pods[0].NodeName = "c" }
	noMesh := func(s *ipam.Snapshot) { borrow(s); s.BGP.Mesh = false }
	for _, tc := range []struct {
		name   string
		tables map[string][]ipam.Route
		change func(*ipam.Snapshot)
		want   Expectation
	}{
		{"own block", nil, nil, Expected},
		{"own block, Felix", nil, func(s *ipam.Snapshot) { s.Pools[0].VXLANMode = "Always" }, Expected},
		{"own block, nobody to tell", nil, func(s *ipam.Snapshot) { s.BGP.Mesh = false }, AtRisk},
		{"own block, BGP not read", nil, func(s *ipam.Snapshot) {
			s.Coverage.Set(ipam.ResBGPConfig, ipam.Forbidden, 0, "")
			s.Coverage.Set(ipam.ResBGPPeers, ipam.Forbidden, 0, "")
		}, NotKnown},
		{"own block, no export", nil, func(s *ipam.Snapshot) { s.Pools[0].DisableBGPExport = true }, AtRisk},
		{"the node itself drops it", map[string][]ipam.Route{"b": {drop("10.0.1.0/24")}}, nil, AtRisk},
		{"another node claims the block", nil, func(s *ipam.Snapshot) {
			s.Affinities = append(s.Affinities, ipam.Affinity{Node: "c", Type: "host", CIDR: pfx("10.0.1.0/24")})
		}, AtRisk},
		{"borrowed in a mesh", nil, borrow, Expected},
		{"borrowed without a mesh", nil, noMesh, AtRisk},
		{"borrowed, the owner drops it", map[string][]ipam.Route{"b": {drop("10.0.1.0/24")}}, borrow, AtRisk},
		{"borrowed, the owner has a way", map[string][]ipam.Route{"b": {via("10.0.1.5/32", "192.0.2.3")}}, noMesh, Expected},
		{"the owner is gone", nil, func(s *ipam.Snapshot) { borrow(s); s.Nodes = append(s.Nodes[:1], s.Nodes[2]) }, NotKnown},
		{"no pool", nil, func(s *ipam.Snapshot) { s.Pools = nil }, NotKnown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := lab(tc.tables, tc.change).address(addr("10.0.1.5")).Path
			if p.Inferred == nil || p.Inferred.Verdict != tc.want || p.Inferred.Why == "" {
				t.Errorf("%+v, want %s", p.Inferred, tc.want)
			}
		})
	}
	all := map[string][]ipam.Route{"a": {via("10.0.1.0/24", "192.0.2.2")}, "b": {dev("10.0.1.5/32", "cali1")}, "c": {via("10.0.1.0/24", "192.0.2.2")}}
	in := lab(all, nil)
	a := in.address(addr("10.0.1.5"))
	if a.Path.Inferred != nil {
		t.Errorf("every table is known, and yet inferred: %+v", a.Path.Inferred)
	}
	if v := in.addressVerdict(a); v.Status != OK {
		t.Errorf("%s: %s", v.Status, v.Text)
	}
}

// Who has an address, and whether the record is right.
func TestAddressStates(t *testing.T) {
	for _, tc := range []struct {
		name   string
		ip     string
		change func(*ipam.Snapshot)
		state  State
		wrong  bool
	}{
		{"used as recorded", "10.0.1.5", nil, InUse, false},
		{"booked for another node", "10.0.1.5", func(s *ipam.Snapshot) { s.Blocks[1].Attributes[0].Node = "a" }, InUse, true},
		{"booked for another pod", "10.0.1.5", func(s *ipam.Snapshot) { s.Blocks[1].Attributes[0].Pod = "q" }, InUse, true},
		{"pod gone", "10.0.1.5", func(s *ipam.Snapshot) { s.Pods = nil }, Leaked, true},
		{"pod finished", "10.0.1.5", func(s *ipam.Snapshot) { s.Pods[0].Phase = "Failed" }, Leaked, true},
		{"pod gone, booked just now", "10.0.1.5", func(s *ipam.Snapshot) {
			s.Pods, s.AsOf = nil, time.Unix(1e9, 0)
			s.Blocks[1].Attributes[0].Timestamp = s.AsOf.Add(-time.Minute)
		}, Leaked, false},
		{"not recorded, started just now", "10.0.1.6", func(s *ipam.Snapshot) {
			s.AsOf = time.Unix(1e9, 0)
			s.Pods[0].StatusIPs[0], s.Pods[0].Started = addr("10.0.1.6"), s.AsOf.Add(-time.Second)
		}, InUse, false},
		{"pod starting", "10.0.1.5", func(s *ipam.Snapshot) { s.Pods[0].StatusIPs = nil }, Waiting, false},
		{"pods not read", "10.0.1.5", func(s *ipam.Snapshot) { s.Pods = nil; s.Coverage.Set(ipam.ResPods, ipam.Forbidden, 0, "") }, Unseen, false},
		{"not recorded", "10.0.1.6", func(s *ipam.Snapshot) { s.Pods[0].StatusIPs[0] = addr("10.0.1.6") }, InUse, true},
		{"not recorded, blocks not read", "10.0.1.5", func(s *ipam.Snapshot) { s.Blocks = nil; s.Coverage.Set(ipam.ResBlocks, ipam.Failed, 0, "") }, InUse, false},
		{"in use twice", "10.0.1.5", func(s *ipam.Snapshot) {
			q := s.Pods[0]
			q.Name, q.NodeName = "q", "a"
			s.Pods = append(s.Pods, q)
		}, InUse, true},
		{"free", "10.0.1.7", nil, Free, false},
		{"free, in no block", "10.0.9.7", nil, Free, false},
		{"blocks not read", "10.0.1.7", func(s *ipam.Snapshot) { s.Blocks = nil; s.Coverage.Set(ipam.ResBlocks, ipam.Failed, 0, "") }, Unseen, false},
		{"reserved", "10.0.1.7", func(s *ipam.Snapshot) {
			s.Reservations = []ipam.Reservation{{Name: "r", CIDRs: []netip.Prefix{pfx("10.0.1.7/32")}}}
		}, Reserved, false},
		{"a node's own", "192.0.2.1", nil, NotIPAM, false},
		{"stopped machine", "10.0.1.5", func(s *ipam.Snapshot) { s.Pods = nil; s.Blocks[1].Attributes[0].VMI = "vm" }, Kept, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := lab(nil, tc.change).address(addr(tc.ip))
			if a.State != tc.state || a.Wrong != tc.wrong || a.Says == "" {
				t.Errorf("%s, wrong %t (%s), want %s, wrong %t", a.State, a.Wrong, a.Says, tc.state, tc.wrong)
			}
		})
	}
}
