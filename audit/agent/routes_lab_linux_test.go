package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"ipamaudit/audit/collect"
	"ipamaudit/checks"
	"ipamaudit/ipam"
)

// hostAddrs are the router's and the host's addresses.
//
// The story of T296303: host a owns 10.64.75.0/26 and 10.64.75.64/26, host b
// owns 10.64.75.128/26 and borrows 10.64.75.0; host c has nothing.
var hostAddrs = map[string][]string{
	"a": {"10.64.0.1/22", "10.64.0.247/22", "2620:0:860:1::1/64", "2620:0:860:1::247/64"},
	"b": {"10.64.16.1/22", "10.64.16.55/22", "2620:0:860:2::1/64", "2620:0:860:2::55/64"},
	"c": {"10.64.32.1/22", "10.64.32.9/22", "2620:0:860:3::1/64", "2620:0:860:3::9/64"},
}

// pods run on these hosts.
var labPods = map[string][]string{
	"a": {"10.64.75.4", "10.64.75.70", "fd00:75::4"},
	"b": {"10.64.75.0", "10.64.75.130", "fd00:75::1"},
}

var labPools = []netip.Prefix{netip.MustParsePrefix("10.64.75.0/24"), netip.MustParsePrefix("fd00:75::/120")}

func TestRealKernelsAndBIRD(t *testing.T) {
	r4 := map[string][]string{"r": {"10.64.75.0", "10.64.75.0/26", "10.64.75.64/26", "10.64.75.128/26"}}
	peers := func(as uint32, allowed int) func(*ipam.Snapshot) {
		return func(s *ipam.Snapshot) {
			s.BGP.Mesh, s.BGP.ASNumber = false, 64605
			s.Peers = []ipam.BGPPeer{{Name: "tor", PeerIP: "10.64.0.1", ASNumber: as, NumAllowedLocalASNumbers: allowed}}
		}
	}
	for _, tc := range []struct {
		name, program   string
		routerAS        int
		node, router    string // further words for the sessions
		mesh, duplicate bool
		arrive          map[string][]string
		dropped         []string
		topology        func(*ipam.Snapshot)
		carry           ipam.Carry
	}{
		{name: "eBGP, one AS for all nodes", program: "bird", routerAS: 14907, arrive: r4, dropped: []string{"a 10.64.75.0"}, topology: peers(14907, 0), carry: ipam.AtRisk},
		{name: "the same with allow local as", program: "bird", routerAS: 14907, node: "allow local as 1;",
			arrive: map[string][]string{"r": r4["r"], "a": {"10.64.75.0", "10.64.75.128/26"}, "c": {"10.64.75.0"}}, topology: peers(14907, 1), carry: ipam.Carried},
		{name: "iBGP, the router is no reflector", program: "bird", routerAS: 64605, arrive: r4, dropped: []string{"a 10.64.75.0"}, topology: peers(64605, 0), carry: ipam.AtRisk},
		{name: "iBGP, the router is a reflector", program: "bird", routerAS: 64605, router: "rr client;",
			arrive: map[string][]string{"r": r4["r"], "a": {"10.64.75.0"}, "c": {"10.64.75.0"}}},
		{name: "node mesh", program: "bird", mesh: true,
			arrive:   map[string][]string{"a": {"10.64.75.0", "10.64.75.128/26"}, "c": {"10.64.75.0", "10.64.75.0/26", "10.64.75.64/26"}, "b": {"10.64.75.0/26"}},
			topology: func(*ipam.Snapshot) {}, carry: ipam.Carried},
		{name: "duplicate affinity, node mesh", program: "bird", mesh: true, duplicate: true,
			arrive:  map[string][]string{"a": {"10.64.75.128/26"}, "b": {"10.64.75.64/26"}, "c": {"10.64.75.0/26", "10.64.75.64/26"}},
			dropped: []string{"a 10.64.75.0", "b 10.64.75.4"}},
		{name: "IPv6, eBGP with one AS", program: "bird6", routerAS: 14907,
			arrive: map[string][]string{"r": {"fd00:75::1", "fd00:75::/122", "fd00:75::80/122"}}, dropped: []string{"a fd00:75::1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLab(t, tc.program)
			v6 := tc.program == "bird6"
			hosts := storyHosts(l)
			addr := func(host string, i int) string {
				if v6 {
					i += 2
				}
				return bare(hostAddrs[host][i])
			}
			blocks := map[string][]string{"a": {"10.64.75.0/26", "10.64.75.64/26"}, "b": {"10.64.75.128/26"}}
			pool := "10.64.75.0/24"
			if v6 {
				blocks, pool = map[string][]string{"a": {"fd00:75::/122"}, "b": {"fd00:75::80/122"}}, "fd00:75::/120"
			}
			if tc.duplicate {
				blocks["b"] = append(blocks["b"], blocks["a"][0])
			}
			var forRouter strings.Builder
			for _, h := range hosts {
				var sessions strings.Builder
				if tc.mesh {
					for _, other := range hosts {
						if other != h {
							fmt.Fprintf(&sessions, "protocol bgp Mesh_%s from node_peer { source address %s; neighbor %s as 64605; multihop; }\n", other, addr(h, 1), addr(other, 1))
						}
					}
				} else {
					fmt.Fprintf(&sessions, "protocol bgp Global from node_peer { neighbor %s as %d; %s }\n", addr(h, 0), tc.routerAS, tc.node)
					fmt.Fprintf(&forRouter, "protocol bgp %s { local as %d; neighbor %s as 64605; import all; export all; next hop self; connect delay time 1; connect retry time 1; error wait time 1, 2; %s }\n", h, tc.routerAS, addr(h, 1), tc.router)
				}
				l.bird(tc.program, h, birdConfig(bare(hostAddrs[h][1]), 64605, pool, blocks[h], sessions.String()))
			}
			if !tc.mesh {
				l.bird(tc.program, "r", "router id 10.64.0.1;\nprotocol device { scan time 1; }\nprotocol direct { }\nfilter bgp_only { if source = RTS_BGP then accept; reject; }\nprotocol kernel { scan time 1; export filter bgp_only; }\n"+forRouter.String())
			}
			for host, prefixes := range tc.arrive {
				l.eventually(host, prefixes...)
			}
			for h, own := range blocks {
				l.eventually(h, own...)
			}
			// What has not come by now is not on its way: the others have it.
			time.Sleep(time.Second)
			verify(t, l, hosts, tc.dropped)
			if tc.topology != nil {
				s := storySnapshot()
				tc.topology(s)
				s.Seal()
				if got, why := s.CarriesAddress(netip.MustParseAddr("10.64.75.0"), &s.Pools[0], s.Node("a"), s.Node("b")); got != tc.carry {
					t.Errorf("predicted: %s (%s), want %s", got, why, tc.carry)
				}
			}
		})
	}
}

func bare(cidr string) string {
	addr, _, _ := strings.Cut(cidr, "/")
	return addr
}

// storyHosts wires the hosts and gives them their pods.
func storyHosts(l *lab) []string {
	l.t.Helper()
	hosts := []string{"a", "b", "c"}
	l.host("r")
	l.sysctl("r", "net/ipv4/ip_forward", "1")
	l.sysctl("r", "net/ipv6/conf/all/forwarding", "1")
	for _, h := range hosts {
		l.host(h)
		l.wire("r", h, hostAddrs[h]...)
		for _, p := range labPods[h] {
			l.pod(h, p)
		}
	}
	return hosts
}

// TestRealKernelTables has no BIRD: what Felix programs, and what policy rules do.
func TestRealKernelTables(t *testing.T) {
	vxlan := func(l *lab) {
		for i, h := range []string{"a", "b", "c"} {
			l.in(h, "link add vxlan.calico type vxlan id 4096 dstport 4789 local "+bare(hostAddrs[h][1]))
			l.in(h, fmt.Sprintf("addr add 10.64.75.%d/32 dev vxlan.calico", 200+i))
			l.in(h, "link set vxlan.calico up")
		}
		for h, blocks := range map[string][]string{"a": {"10.64.75.0/26", "10.64.75.64/26"}, "b": {"10.64.75.128/26"}} {
			for _, b := range blocks {
				l.in(h, "route add blackhole "+b+" proto 80")
			}
		}
		for _, h := range []string{"b", "c"} {
			l.in(h, "route add 10.64.75.0/26 via 10.64.75.200 dev vxlan.calico onlink proto 80")
			l.in(h, "route add 10.64.75.64/26 via 10.64.75.200 dev vxlan.calico onlink proto 80")
		}
		for _, h := range []string{"a", "c"} {
			l.in(h, "route add 10.64.75.128/26 via 10.64.75.201 dev vxlan.calico onlink proto 80")
			l.in(h, "route add 10.64.75.0/32 via 10.64.75.201 dev vxlan.calico onlink proto 80")
		}
	}
	blackholes := func(l *lab) {
		l.in("a", "route add blackhole 10.64.75.0/26 proto bird")
		l.in("a", "-6 route add blackhole fd00:75::/122 proto bird")
	}
	for _, tc := range []struct {
		name    string
		set     func(l *lab)
		dropped []string
		blind   string // of host a
	}{
		{"VXLAN: Felix knows the borrowed address", vxlan, nil, ""},
		{"VXLAN: Felix is down, the borrowed address has no route", func(l *lab) { vxlan(l); l.in("a", "route del 10.64.75.0/32") }, []string{"a 10.64.75.0"}, ""},
		{"both families", blackholes, []string{"a 10.64.75.0", "a fd00:75::1"}, ""},
		{"a pod's own route is gone", func(l *lab) { blackholes(l); l.in("a", "route del 10.64.75.4") }, []string{"a 10.64.75.0", "a 10.64.75.4", "a fd00:75::1"}, ""},
		{"unreachable and prohibit", func(l *lab) {
			l.in("c", "route add unreachable 10.64.75.0/26")
			l.in("c", "route add prohibit 10.64.75.128/26")
		}, []string{"c 10.64.75.0", "c 10.64.75.130", "c 10.64.75.4"}, ""},
		{"a lower metric saves it", func(l *lab) {
			l.in("c", "route add blackhole 10.64.75.0/26 metric 20")
			l.in("c", "route add 10.64.75.0/26 via 10.64.32.1 metric 10")
		}, nil, ""},
		{"a lower metric drops it", func(l *lab) {
			l.in("c", "route add blackhole 10.64.75.0/26 metric 5")
			l.in("c", "route add 10.64.75.0/26 via 10.64.32.1 metric 10")
		}, []string{"c 10.64.75.0", "c 10.64.75.4"}, ""},
		{"several next hops", func(l *lab) {
			l.in("c", "route add blackhole 10.64.75.0/24")
			l.in("c", "route add 10.64.75.0/26 nexthop via 10.64.32.1 dev eno1 nexthop via 10.64.32.2 dev eno1")
		}, []string{"c 10.64.75.130", "c 10.64.75.70"}, ""},
		{"a rule leads all but marked packets to another table (WireGuard)", func(l *lab) {
			blackholes(l)
			l.in("a", "rule add priority 99 not fwmark 0x100000/0x100000 lookup 1")
			l.in("a", "route add 10.64.75.0/32 via 10.64.0.1 dev eno1 table 1")
			l.in("a", "route add throw 10.64.75.64/26 table 1")
		}, []string{"a fd00:75::1"}, ""},
		{"a rule leads to a table that drops", func(l *lab) {
			l.in("c", "rule add priority 99 lookup 7")
			l.in("c", "route add blackhole 10.64.75.0/25 table 7")
			l.in("c", "route add throw 10.64.75.0/26 table 7")
		}, []string{"c 10.64.75.70"}, ""},
		{"a rule drops by itself", func(l *lab) { l.in("c", "rule add priority 99 to 10.64.75.128/25 prohibit") }, []string{"c 10.64.75.130"}, ""},
		{"main without its default route first (wg-quick)", func(l *lab) {
			blackholes(l)
			l.in("a", "rule add priority 90 lookup main suppress_prefixlength 0")
			l.in("a", "rule add priority 91 lookup 51820")
			l.in("a", "route add default dev eno1 table 51820")
		}, []string{"a 10.64.75.0", "a fd00:75::1"}, ""},
		{"rules about other packets", func(l *lab) {
			blackholes(l)
			l.in("a", "rule add priority 90 from 10.64.0.247 lookup 8")
			l.in("a", "rule add priority 91 to 192.0.2.0/24 lookup 8")
			l.in("a", "route add default via 10.64.0.1 table 8")
		}, []string{"a 10.64.75.0", "a fd00:75::1"}, ""},
		{"a rule for some pods only", func(l *lab) {
			blackholes(l)
			l.in("a", "rule add priority 90 from 10.64.75.4 lookup 8")
			l.in("a", "route add default via 10.64.0.1 table 8")
		}, nil, "policy rule 90"},
		{"a rule by mark", func(l *lab) {
			blackholes(l)
			l.in("a", "rule add priority 90 fwmark 0x1 lookup 8")
			l.in("a", "route add default via 10.64.0.1 table 8")
		}, nil, "fwmark"},
		{"a rule by port", func(l *lab) {
			blackholes(l)
			l.in("a", "rule add priority 90 ipproto tcp dport 80 lookup 8")
			l.in("a", "route add default via 10.64.0.1 table 8")
		}, nil, "policy rule 90"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLab(t)
			hosts := storyHosts(l)
			tc.set(l)
			if tc.blind == "" {
				verify(t, l, hosts, tc.dropped)
				return
			}
			for name, table := range tables(l, "a") {
				if strings.Contains(name, "main table alone") {
					continue
				}
				if !strings.Contains(table.Blind4, tc.blind) || slices.ContainsFunc(table.Routes, func(r ipam.Route) bool { return r.Dst.Addr().Is4() }) {
					t.Errorf("%s: blind %q, want one that names %q, and no routes", name, table.Blind4, tc.blind)
				}
			}
		})
	}
}

// verify compares every way of reading a host's table with what the kernel
// itself answers for every pod's address, and the kernel with what is wanted.
func verify(t *testing.T, l *lab, hosts, dropped []string) {
	t.Helper()
	var truth []string
	asked := 0
	snap := storySnapshot()
	for _, h := range hosts {
		found := tables(l, h)
		for _, addrs := range labPods {
			for _, text := range addrs {
				ip := netip.MustParseAddr(text)
				drops := l.drops(h, ip)
				if drops {
					truth = append(truth, h+" "+text)
				}
				asked++
				for name, table := range found {
					r := table.Lookup(ip)
					if known, why := table.Knows(ip); !known && !(table.Partial && !drops) {
						t.Errorf("%s on %s: %s is not known: %s", name, h, ip, why)
					}
					if got := r != nil && r.Type.Drops(); got != drops && !(strings.Contains(name, "main table alone") && ruled(l, h)) {
						t.Errorf("%s on %s: %s is dropped: %v, the kernel says %v (route %+v)", name, h, ip, got, drops, r)
					}
				}
			}
		}
		snap.Tables = append(snap.Tables, *found["netlink"])
	}
	slices.Sort(truth)
	if diff := cmp.Diff(dropped, truth, cmp.Transformer("nil", func(s []string) []string { return append([]string{}, s...) })); diff != "" {
		t.Errorf("the kernels drop (-want +got):\n%s", diff)
	}
	if asked < 18 {
		t.Errorf("only %d questions were asked", asked)
	}
	// The check says the same, no more and no less.
	snap.Seal()
	var got []string
	for _, res := range checks.All() {
		if res.ID != "blackholed-routes" {
			continue
		}
		for _, f := range res.Run(&checks.Input{Snapshot: snap, Params: res.DefaultParams(), Now: snap.AsOf}).Findings {
			for _, a := range f.Affected {
				got = append(got, f.Subject.Name+" "+a.Name)
			}
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, truth) {
		t.Errorf("blackholed-routes finds %q, the kernels drop %q", got, truth)
	}
}

// ruled reports whether a host has policy rules beyond the kernel's own.
func ruled(l *lab, host string) bool {
	return strings.Count(l.in(host, "rule"), "\n") > 3 || strings.Count(l.in(host, "-6 rule"), "\n") > 2
}

// tables reads one host's table in every way there is.
func tables(l *lab, host string) map[string]*ipam.RouteTable {
	l.t.Helper()
	out := map[string]*ipam.RouteTable{}
	keep := func(name string, t ipam.RouteTable) {
		s := ipam.NewSnapshot()
		t.Node = host
		s.Tables = []ipam.RouteTable{t}
		out[name] = s.Seal().Table(host)
	}
	fail := func(what string, err error) {
		if err != nil {
			l.t.Fatalf("%s on %s: %v", what, host, err)
		}
	}
	for name, text := range map[string]string{
		"ip route, main table alone":    l.in(host, "route") + l.in(host, "-6 route"),
		"ip -j route, main table alone": l.in(host, "-j route") + l.in(host, "-j -6 route"),
	} {
		p, err := collect.ParseRoutes([]byte(text))
		fail(name, err)
		if p.Unknown > 0 {
			l.t.Errorf("%s on %s: not understood: %s", name, host, p.First)
		}
		keep(name, ipam.RouteTable{Kind: ipam.KernelTable, Routes: p.Routes})
	}
	all, err := collect.ParseTables([]byte(l.in(host, "-j route show table all")))
	fail("ip -j route show table all", err)
	printed := Kernel{Tables: all}
	printed.Rules4, err = collect.ParseRules([]byte(l.in(host, "-j -4 rule")))
	fail("ip -j rule", err)
	printed.Rules6, err = collect.ParseRules([]byte(l.in(host, "-j -6 rule")))
	fail("ip -j -6 rule", err)
	var read Kernel
	l.within(host, func() (err error) { read, err = ReadKernel(); return err })
	for name, k := range map[string]Kernel{"ip -j, all tables": printed, "netlink": read} {
		packed, table, err := k.Table(host, labPools)
		fail(name, err)
		keep(name, table)
		again, err := collect.UnpackTable(host, packed)
		fail(name, err)
		keep(name+", published", *again)
		table.Routes, table.Partial = essential(table.Routes), true
		keep(name+", partial", table)
	}
	return out
}

// storySnapshot is what the API servers would say of the lab.
func storySnapshot() *ipam.Snapshot {
	s := ipam.NewSnapshot()
	s.AsOf = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	s.Info.Version = ipam.ParseVersion("v3.29.0")
	for _, r := range ipam.AllResources() {
		s.Coverage.Set(r, ipam.Read, 1, "")
	}
	for _, p := range labPools {
		size := 26
		if p.Addr().Is6() {
			size = 122
		}
		s.Pools = append(s.Pools, ipam.Pool{Name: "pool-" + fmt.Sprint(size), CIDR: p, BlockSize: size, NodeSelector: "all()", AllowedUses: ipam.UseWorkload, IPIPMode: "Never", VXLANMode: "Never"})
	}
	for h, addrs := range hostAddrs {
		s.Nodes = append(s.Nodes, ipam.Node{Name: h, Ready: true, Addresses: []netip.Addr{netip.MustParseAddr(bare(addrs[1])), netip.MustParseAddr(bare(addrs[3]))}})
	}
	for h, addrs := range labPods {
		for i, a := range addrs {
			s.Pods = append(s.Pods, ipam.Pod{Namespace: "default", Name: fmt.Sprintf("%s%d", h, i), NodeName: h, Phase: "Running", StatusIPs: []netip.Addr{netip.MustParseAddr(a)}, Created: s.AsOf.Add(-time.Hour)})
		}
	}
	for owner, blocks := range map[string][]string{"a": {"10.64.75.0/26", "10.64.75.64/26", "fd00:75::/122"}, "b": {"10.64.75.128/26", "fd00:75::80/122"}} {
		for _, b := range blocks {
			s.Blocks = append(s.Blocks, ipam.Block{Name: b, CIDR: netip.MustParsePrefix(b), Owner: ipam.Owner{Type: "host", Name: owner}})
		}
	}
	return s
}
