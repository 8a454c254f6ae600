package checks

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"ipamaudit/ipam"
)

// meshed is a cluster of three nodes, of which n1 owns 10.0.0.0/26. Node k has
// the address 192.0.2.k.
func meshed() *lab {
	l := newLab(3)
	l.pool("p", "10.0.0.0/16", 26)
	for i := range l.Nodes {
		l.Nodes[i].Addresses = []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})}
	}
	l.block("10.0.0.0/26", "n1")
	l.pod("n1", "10.0.0.1")
	return l
}

// via gives node's table one route with these gateways.
func (l *lab) via(node, cidr string, gateways ...string) {
	r := ipam.Route{Type: ipam.Unicast, Dst: mustPrefix(cidr), Text: cidr + " via " + strings.Join(gateways, ", ")}
	for _, g := range gateways {
		r.NextHops = append(r.NextHops, ipam.NextHop{Via: netip.MustParseAddr(g), Dev: "eth0"})
	}
	l.Tables = append(l.Tables, ipam.RouteTable{Node: node, Kind: ipam.KernelTable, Source: "test", Routes: []ipam.Route{r}})
}

func TestRouteDisagreement(t *testing.T) {
	const bad = "high IPAMBlock/10.0.0.0/26"
	for _, tc := range []struct {
		name string
		make func(*lab)
		want []string
	}{
		{"to the owner", func(l *lab) { l.via("n2", "10.0.0.0/26", "192.0.2.1") }, nil},
		{"to another node", func(l *lab) { l.via("n2", "10.0.0.0/26", "192.0.2.3") }, []string{bad}},
		{"spread over the owner and another node", func(l *lab) { l.via("n2", "10.0.0.0/26", "192.0.2.3", "192.0.2.1") }, []string{bad}},
		{"to a router", func(l *lab) { l.via("n2", "10.0.0.0/26", "192.0.2.254") }, nil},
		{"spread over two routers", func(l *lab) { l.via("n2", "10.0.0.0/26", "192.0.2.253", "192.0.2.254") }, nil},
		{"to a route reflector that names itself", func(l *lab) {
			l.Nodes[2].RRClusterID = "244.0.0.1"
			l.via("n2", "10.0.0.0/26", "192.0.2.3")
		}, nil},
		{"a wider route", func(l *lab) { l.via("n2", "10.0.0.0/16", "192.0.2.3") }, nil},
		{"through the owner's tunnel address", func(l *lab) {
			l.Nodes[0].Tunnels = []ipam.TunnelAddress{{Kind: "vxlan", IP: netip.MustParseAddr("10.0.0.0")}}
			l.via("n2", "10.0.0.0/26", "10.0.0.0")
		}, nil},
		{"through another node's tunnel address", func(l *lab) {
			l.Nodes[2].Tunnels = []ipam.TunnelAddress{{Kind: "vxlan", IP: netip.MustParseAddr("10.0.0.64")}}
			l.via("n2", "10.0.0.0/26", "10.0.0.64")
		}, []string{bad}},
		{"the owner drops what it has no route for", func(l *lab) { l.routes("n1", "blackhole 10.0.0.0/26") }, nil},
		{"another node drops it", func(l *lab) { l.routes("n2", "blackhole 10.0.0.0/26") }, []string{bad}},
		{"the owner itself sends it away", func(l *lab) { l.via("n1", "10.0.0.0/26", "192.0.2.3") }, []string{bad}},
		{"the block is new", func(l *lab) {
			l.Blocks[0].Created = labNow.Add(-time.Minute)
			l.via("n2", "10.0.0.0/26", "192.0.2.3")
		}, nil},
		{"the block has changed hands since the table was read", func(l *lab) {
			l.Blocks[0].ClaimTime = labNow.Add(-2 * time.Hour)
			l.via("n2", "10.0.0.0/26", "192.0.2.3")
			l.Tables[0].AsOf = labNow.Add(-3 * time.Hour)
		}, nil},
		{"nobody's block", func(l *lab) { l.Blocks[0].Owner = ipam.Owner{}; l.via("n2", "10.0.0.0/26", "192.0.2.3") }, nil},
		{"the owner is gone", func(l *lab) { l.Blocks[0].Owner.Name = "gone"; l.via("n2", "10.0.0.0/26", "192.0.2.3") }, nil},
		{"a block of one address that another node borrows", func(l *lab) {
			l.Pools[0].BlockSize = 32
			l.block("10.0.1.1/32", "n1")
			l.pod("n3", "10.0.1.1")
			l.via("n2", "10.0.1.1/32", "192.0.2.3")
		}, nil},
		{"IPv6, to another node", func(l *lab) {
			l.pool("six", "fd00::/64", 122)
			l.block("fd00::/122", "n1")
			l.Nodes[2].Addresses = append(l.Nodes[2].Addresses, netip.MustParseAddr("2001:db8::3"))
			l.via("n2", "fd00::/122", "2001:db8::3")
		}, []string{"high IPAMBlock/fd00::/122"}},
		{"two nodes, one finding", func(l *lab) {
			l.via("n2", "10.0.0.0/26", "192.0.2.3")
			l.routes("n3", "blackhole 10.0.0.0/26")
		}, []string{bad}},
	} {
		l := meshed()
		tc.make(l)
		want(t, tc.name, l.run(routeDisagreement()), tc.want...)
	}
}

func TestRouteDisagreementCause(t *testing.T) {
	l := meshed()
	l.affinity("10.0.0.0/26", "n3", ipam.StateConfirmed, time.Hour)
	l.via("n2", "10.0.0.0/26", "192.0.2.1", "192.0.2.3")
	out := l.run(routeDisagreement())
	f := out.Findings[0]
	if !strings.Contains(f.Detail, "another affinity for the block, of n3") || !strings.Contains(commandText(f.Remediation), "n3-10-0-0-0-26") {
		t.Errorf("%s\n%s", f.Detail, commandText(f.Remediation))
	}
	if len(out.Unseen) != 1 || !strings.Contains(out.Unseen[0], "2 of 3") {
		t.Errorf("unseen: %q", out.Unseen)
	}
	if out := meshed().run(routeDisagreement()); out.Status != StatusUnknown || out.Incomplete {
		t.Errorf("no tables: %s (incomplete %v)", out.Status, out.Incomplete)
	}
}
