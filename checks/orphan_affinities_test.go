package checks

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"ipamaudit/ipam"
)

func TestOrphanAffinities(t *testing.T) {
	for _, tc := range []struct {
		name  string
		build func(*lab)
		want  []string
	}{
		{"healthy", func(*lab) {}, nil},
		{"a block of a gone node", func(l *lab) { l.block("10.0.1.0/26", "gone"); l.bookPod("10.0.1.1", "gone", "x", longAgo) }, []string{"medium Cluster/lab"}},
		{"an empty block of a gone node", func(l *lab) { l.block("10.0.1.0/26", "gone") }, []string{"medium Cluster/lab"}},
		{"an affinity without a block", func(l *lab) {
			l.Affinities = append(l.Affinities, ipam.Affinity{Name: "gone-x", Node: "gone", Type: "host", CIDR: netip.MustParsePrefix("10.0.1.0/26")})
		}, []string{"medium Cluster/lab"}},
		{"only tunnels left, IPv6 too", func(l *lab) {
			l.pool("six", "fd00::/64", 122)
			l.block("10.0.1.0/26", "gone")
			l.block("fd00::/122", "gone")
			l.book("10.0.1.0", ipam.Attribute{Handle: "wireguard-tunnel-addr-gone", Node: "gone", Type: "wireguardTunnelAddress"})
			l.book("fd00::1", ipam.Attribute{Handle: "vxlan-v6-tunnel-addr-gone", Node: "gone", Type: "vxlanV6TunnelAddress"})
		}, []string{"medium Cluster/lab"}},
		{"no block left", func(l *lab) {
			l.Pools[0].CIDR = netip.MustParsePrefix("10.0.0.0/24")
			l.block("10.0.0.128/26", "gone")
			l.block("10.0.0.192/26", "gone2")
			l.bookPod("10.0.0.129", "gone", "x", longAgo)
		}, []string{"high Cluster/lab"}},
		{"no block left, but v3.32 takes empty ones over", func(l *lab) {
			l.Info.Version = ipam.ParseVersion("v3.32.0")
			l.Pools[0].CIDR = netip.MustParsePrefix("10.0.0.0/24")
			l.block("10.0.0.128/26", "gone")
			l.block("10.0.0.192/26", "gone2")
			l.bookPod("10.0.0.129", "gone", "x", longAgo)
		}, []string{"medium Cluster/lab"}},
		{"no block left in this pool, another serves the nodes", func(l *lab) {
			l.Pools[0].CIDR = netip.MustParsePrefix("10.0.0.0/24")
			l.pool("q", "10.1.0.0/16", 26)
			l.block("10.0.0.128/26", "gone")
			l.block("10.0.0.192/26", "gone2")
		}, []string{"medium Cluster/lab"}},
		{"no block left in a disabled pool", func(l *lab) {
			l.Pools[0].CIDR, l.Pools[0].Disabled = netip.MustParsePrefix("10.0.0.0/24"), true
			l.block("10.0.0.128/26", "gone")
			l.block("10.0.0.192/26", "gone2")
		}, []string{"medium Cluster/lab"}},
		{"vanished minutes ago", func(l *lab) {
			b := l.block("10.0.1.0/26", "gone")
			b.Created = labNow.Add(-10 * time.Minute)
			l.Affinities[len(l.Affinities)-1].Created = b.Created
			l.bookPod("10.0.1.1", "gone", "x", 6*time.Minute)
		}, nil},
		{"an old block with an address booked minutes ago", func(l *lab) { l.block("10.0.1.0/26", "gone"); l.bookPod("10.0.1.1", "gone", "x", 6*time.Minute) }, nil},
		{"an old block in which another node booked minutes ago", func(l *lab) { l.block("10.0.1.0/26", "gone"); l.pod("n1", "10.0.1.1") }, []string{"medium Cluster/lab"}},
		{"differs only in case", func(l *lab) { l.block("10.0.1.0/26", "N1") }, nil},
		{"load balancers", func(l *lab) {
			l.block("10.0.1.0/26", "").Owner = ipam.Owner{Type: "virtual", Name: "load-balancer"}
			l.Affinities = append(l.Affinities, ipam.Affinity{Name: "lb", Node: "load-balancer", Type: "virtual", CIDR: netip.MustParsePrefix("10.0.1.0/26")})
		}, nil},
		{"mapped by orchRefs", func(l *lab) {
			l.CalicoNodes = []ipam.CalicoNode{{Name: "ip-1", KubernetesName: "n1"}}
			l.block("10.0.1.0/26", "ip-1")
		}, nil},
		{"an ownerless block with addresses of a gone node", func(l *lab) { l.block("10.0.1.0/26", ""); l.bookPod("10.0.1.1", "gone", "x", longAgo) }, []string{"medium Cluster/lab"}},
		{"an ownerless block booked by hand", func(l *lab) { l.block("10.0.1.0/26", ""); l.book("10.0.1.1", ipam.Attribute{}) }, nil},
		{"a name under which pods of n1 run", func(l *lab) {
			l.block("10.0.1.0/26", "stale")
			l.pod("n1", "10.0.1.1")
			b := &l.Blocks[len(l.Blocks)-1]
			b.Attributes[0].Node = "stale"
		}, nil},
		{"the node's object could not be read", func(l *lab) {
			l.block("10.0.1.0/26", "odd")
			l.Rejected = []ipam.ObjectError{{Kind: "Node", Name: "odd", Message: "broken"}}
		}, nil},
	} {
		l := leakLab()
		tc.build(l)
		want(t, tc.name, l.run(orphanAffinities()), tc.want...)
	}
}

// An affinity of a gone node, without a block of that node: the collector never
// finds it, and only deleting it helps, unless its block could not be used.
func TestAffinitiesOfGoneNodes(t *testing.T) {
	const del, collect = "kubectl delete blockaffinities.crd.projectcalico.org gone-x", "get deployment calico-kube-controllers"
	for _, tc := range []struct {
		name, detail, note string
		deletes            bool
		build              func(*lab)
	}{
		{"no block there", "1 affinity without a block", "no block is there", true, func(*lab) {}},
		{"another node's block", "1 affinity for blocks that are not theirs", "the block is n1's", true, func(l *lab) { l.block("10.0.1.0/26", "n1") }},
		{"nobody's block", "1 affinity for blocks that are not theirs", "the block is nobody's", true, func(l *lab) { l.block("10.0.1.0/26", "") }},
		{"a block that could not be used", "0 blocks of 1 node", "its block could not be used", false, func(l *lab) {
			l.Rejected = []ipam.ObjectError{{Kind: "IPAMBlock", Name: "10-0-1-0-26", Message: "broken"}}
		}},
	} {
		l := busy()
		tc.build(l)
		l.Affinities = append(l.Affinities, ipam.Affinity{Name: "gone-x", Node: "gone", Type: "host", CIDR: netip.MustParsePrefix("10.0.1.0/26")})
		out := l.run(orphanAffinities())
		want(t, tc.name, out, "medium Cluster/lab")
		f := out.Findings[0]
		cmds := commandText(f.Remediation)
		if !strings.Contains(f.Detail, tc.detail) || strings.Contains(cmds, del) != tc.deletes || strings.Contains(cmds, collect) || !strings.Contains(f.Affected[1].Note, tc.note) {
			t.Errorf("%s: %s\n%v\n%s", tc.name, f.Detail, f.Affected, cmds)
		}
	}
}

// Without any node nothing says that the others are gone, and nothing runs that
// could collect; where no node owns anything there is nothing to ask.
func TestClusterWithoutNodes(t *testing.T) {
	for _, c := range []Check{orphanAffinities(), ipamGC()} {
		l := busy()
		l.Workloads[0].Available, l.Nodes, l.Pods = 0, nil, nil
		l.leaked("10.0.0.5", "n1", 2*time.Hour)
		if out := l.run(c); out.Status != StatusUnknown || !strings.Contains(out.Reason, noNodeListed) {
			t.Errorf("%s with blocks: %s %s %+v", c.ID, out.Status, out.Reason, out.Findings)
		}
		l.Blocks, l.Affinities = nil, nil
		if out := l.run(c); out.Status != StatusOK {
			t.Errorf("%s without blocks: %s %s", c.ID, out.Status, out.Reason)
		}
	}
}

// Two hundred and forty gone nodes are one finding with the figures.
func TestOrphansAreOneFinding(t *testing.T) {
	l := newLab(4)
	l.pool("p", "10.0.0.0/18", 26)
	a := netip.MustParseAddr("10.0.0.0")
	for i := range 240 {
		cidr := netip.PrefixFrom(a, 26).String()
		l.block(cidr, fmt.Sprintf("gone-%03d", i))
		l.bookPod(a.String(), fmt.Sprintf("gone-%03d", i), "x", longAgo)
		for range 64 {
			a = a.Next()
		}
	}
	out := l.run(orphanAffinities())
	want(t, "240 orphans", out, "medium Cluster/lab")
	f := out.Findings[0]
	if !strings.Contains(f.Detail, "240 blocks of 240 nodes") || len(f.Affected) != 3*240 {
		t.Errorf("%d affected, %s", len(f.Affected), f.Detail)
	}
	if strings.Contains(f.Title, "240") {
		t.Errorf("a count in the title: %s", f.Title)
	}
}

func TestOrphansUnread(t *testing.T) {
	for _, r := range []ipam.Resource{ipam.ResBlocks, ipam.ResNodes, ipam.ResAffinities} {
		l := leakLab()
		l.Coverage.Set(r, ipam.Forbidden, 0, "")
		if out := l.run(orphanAffinities()); out.Status != StatusUnknown {
			t.Errorf("%s forbidden: %s", r, out.Status)
		}
	}
	l := leakLab()
	l.block("10.0.1.0/26", "gone")
	l.Coverage.Set(ipam.ResPods, ipam.Forbidden, 0, "")
	want(t, "without pods the orphans still show", l.run(orphanAffinities()), "medium Cluster/lab")

	// No name matches, yet pods run in the blocks: orchRefs are what is missing.
	l = leakLab()
	for i := range l.Blocks {
		l.Blocks[i].Owner.Name = "ip-" + l.Blocks[i].Owner.Name
		for j := range l.Blocks[i].Attributes {
			l.Blocks[i].Attributes[j].Node = l.Blocks[i].Owner.Name
		}
	}
	for _, c := range []Check{orphanAffinities(), misbookedIPs()} {
		if out := l.run(c); out.Status != StatusUnknown {
			t.Errorf("%s: %s with %d findings where no name matches", c.ID, out.Status, len(out.Findings))
		}
	}
}
