package checks

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"ipamaudit/ipam"
)

// staging is the shape of T296303: four blocks, two nodes with two each, two
// with none that borrow from n1. The mesh is off and peers are external.
func staging() *lab {
	l := newLab(4)
	l.pool("pods", "10.64.75.0/24", 26)
	l.BGP = ipam.BGPConfig{Present: true, Mesh: false, ASNumber: 64605}
	l.Peers = []ipam.BGPPeer{{Name: "cr1", PeerIP: "10.64.0.10", ASNumber: 14907}}
	for cidr, owner := range map[string]string{"10.64.75.0/26": "n1", "10.64.75.64/26": "n1", "10.64.75.128/26": "n2", "10.64.75.192/26": "n2"} {
		l.block(cidr, owner)
	}
	l.pod("n1", "10.64.75.4")
	l.pod("n1", "10.64.75.70")
	l.pod("n2", "10.64.75.130")
	l.pod("n2", "10.64.75.200")
	l.pod("n3", "10.64.75.0")
	return l
}

func TestStagingStory(t *testing.T) {
	want(t, "blockless", staging().run(blocklessNodes()), "high Node/n3", "high Node/n4")
	want(t, "multi-block", staging().run(multiBlockNodes()), "medium Node/n1", "medium Node/n2")
	want(t, "pool", staging().run(poolUtilisation()), "high IPPool/pods")
	want(t, "borrowed, no routes", staging().run(borrowedIPs()), "high Node/n3")
	if out := staging().run(borrowedIPs()); out.Findings[0].Evidence != Inferred {
		t.Errorf("without the owner's table the risk is inferred, not %s", out.Findings[0].Evidence)
	}
	if out := staging().run(blackholedRoutes()); out.Status != StatusUnknown || out.Incomplete {
		t.Errorf("without tables: %s (incomplete %v), want unknown and not incomplete", out.Status, out.Incomplete)
	}

	l := staging()
	l.routes("n1", "blackhole 10.64.75.0/26", "blackhole 10.64.75.64/26", "10.64.75.4", "10.64.75.70", "0.0.0.0/0")
	out := l.run(blackholedRoutes())
	want(t, "blackholed", out, "critical Node/n1")
	f := out.Findings[0]
	if len(f.Affected) != 1 || f.Affected[0].Name != "10.64.75.0" || !strings.Contains(f.Affected[0].Note, "app/p5 on n3") {
		t.Errorf("affected: %+v", f.Affected)
	}
	if len(out.Unseen) != 1 || !strings.Contains(out.Unseen[0], "3 of 4") {
		t.Errorf("unseen: %q", out.Unseen)
	}
	want(t, "borrowed, the owner's table is known", l.run(borrowedIPs()), "medium Node/n3")
}

// Capacity comes before recreating pods, and that before strict affinity,
// which is no cure for a lack of blocks.
func TestRemediationOrder(t *testing.T) {
	text := func(steps []Step) string {
		var b strings.Builder
		for _, s := range steps {
			b.WriteString(strings.Join(s.Commands, "\n") + "\n")
		}
		return b.String()
	}
	borrowed := text(staging().run(borrowedIPs()).Findings[0].Remediation)
	pool, pod, strict := strings.Index(borrowed, "calicoctl create"), strings.Index(borrowed, "\nevict "), strings.Index(borrowed, "strictaffinity=true")
	if pool < 0 || pod < pool || strict < pod {
		t.Errorf("order: create pool at %d, eviction at %d, strict affinity at %d in\n%s", pool, pod, strict, borrowed)
	}
	for _, c := range []Check{poolUtilisation(), blocklessNodes(), multiBlockNodes()} {
		for _, f := range staging().run(c).Findings {
			if strings.Contains(text(f.Remediation), "strictaffinity") {
				t.Errorf("%s recommends strict affinity", c.ID)
			}
		}
	}
	for _, c := range All() {
		for _, s := range c.Example() {
			for _, cmd := range s.Commands {
				if strings.Contains(cmd, "--force") || strings.Contains(cmd, "--grace-period=0") || strings.Contains(cmd, "release --node") {
					t.Errorf("%s: %q", c.ID, cmd)
				}
			}
		}
	}
}

func TestBlockless(t *testing.T) {
	full := func(version string) *lab {
		l := newLab(2)
		l.Info.Version = ipam.ParseVersion(version)
		l.pool("p", "10.0.0.0/26", 26)
		l.block("10.0.0.0/26", "n1")
		l.pod("n1", "10.0.0.0")
		return l
	}
	want(t, "no block, none free", full("v3.27.0").run(blocklessNodes()), "high Node/n2")

	l := full("v3.27.0")
	l.pool("q", "10.1.0.0/24", 26)
	want(t, "a second pool has room", l.run(blocklessNodes()))
	l = full("v3.27.0")
	l.pool("q", "10.1.0.0/24", 26).Disabled = true
	want(t, "the second pool is disabled", l.run(blocklessNodes()), "high Node/n2")
	l = full("v3.27.0")
	l.pool("q", "10.1.0.0/24", 26).Manual = true
	want(t, "the second pool is manual", l.run(blocklessNodes()), "high Node/n2")
	l = full("v3.27.0")
	l.pool("q", "10.1.0.0/24", 26).AllowedUses = ipam.UseLoadBalancer
	want(t, "the second pool is for load balancers", l.run(blocklessNodes()), "high Node/n2")
	l = full("v3.27.0")
	l.pool("q", "10.1.0.0/24", 26).NodeSelector = "zone == 'a'"
	want(t, "the second pool selects other nodes", l.run(blocklessNodes()), "high Node/n2")
	l = full("v3.27.0")
	l.pool("q", "10.1.0.0/26", 26)
	l.Reservations = []ipam.Reservation{{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/25")}}}
	want(t, "the second pool is wholly reserved", l.run(blocklessNodes()), "high Node/n2")

	for name, change := range map[string]func(*ipam.Node){
		"cordoned": func(n *ipam.Node) { n.Unschedulable = true }, "not ready": func(n *ipam.Node) { n.Ready = false },
		"control plane": func(n *ipam.Node) { n.ControlPlane = true }, "tainted": func(n *ipam.Node) { n.Tainted = true },
	} {
		l := full("v3.27.0")
		change(&l.Nodes[1])
		want(t, name, l.run(blocklessNodes()))
		l = full("v3.27.0")
		change(&l.Nodes[1])
		l.pod("n2", "").Phase = "Pending"
		want(t, name+", but a pod waits there", l.run(blocklessNodes()), "high Node/n2")
	}
	l = full("v3.27.0")
	l.Pods = append(l.Pods, ipam.Pod{Namespace: "ingress", Name: "x", NodeName: "n2", HostNetwork: true, Phase: "Running", OwnerKind: "ReplicaSet"})
	want(t, "kept for host-network workloads", l.run(blocklessNodes()))
	l = full("v3.27.0")
	l.Pods = append(l.Pods, ipam.Pod{Namespace: "kube-system", Name: "calico-node-x", NodeName: "n2", HostNetwork: true, Phase: "Running", OwnerKind: "DaemonSet"})
	want(t, "fresh, with calico-node only", l.run(blocklessNodes()), "high Node/n2")

	l = full("v3.32.0")
	l.pool("q", "10.1.0.0/26", 26)
	l.block("10.1.0.0/26", "n1")
	want(t, "v3.32 takes over an empty block of another node", l.run(blocklessNodes()))
	l = full("v3.31.0")
	l.pool("q", "10.1.0.0/26", 26)
	l.block("10.1.0.0/26", "n1")
	want(t, "v3.31 does not", l.run(blocklessNodes()), "high Node/n2")

	l = full("v3.27.0")
	l.pool("six", "fd00::/121", 122)
	l.block("fd00::/122", "n1")
	want(t, "IPv6 has room, IPv4 has none", l.run(blocklessNodes()), "high Node/n2")
}

func TestMultiBlock(t *testing.T) {
	two := func(own int) *lab {
		l := newLab(2)
		l.pool("p", "10.0.0.0/24", 26)
		l.block("10.0.0.0/26", "n1")
		l.block("10.0.0.64/26", "n1")
		l.block("10.0.0.128/26", "n2")
		l.fill("10.0.0.0/26", "n1", min(own, 64))
		if own > 64 {
			l.fill("10.0.0.64/26", "n1", own-64)
		}
		l.pod("n2", "10.0.0.128")
		return l
	}
	want(t, "roomy: waste", two(10).run(multiBlockNodes()), "low Node/n1")
	want(t, "65 addresses need two blocks", two(65).run(multiBlockNodes()))
	want(t, "64 fit into one", two(64).run(multiBlockNodes()), "low Node/n1")
	want(t, "no address at all: one block stays by design", two(0).run(multiBlockNodes()), "low Node/n1")
	l := two(10)
	l.block("10.0.0.192/26", "n2")
	want(t, "no block is free", l.run(multiBlockNodes()), "medium Node/n1", "medium Node/n2")
	l = two(10)
	l.Pools[0].Disabled = true
	want(t, "a disabled pool is being emptied", l.run(multiBlockNodes()))
	l = two(64)
	for i := range 64 {
		l.book(fmt.Sprintf("10.0.0.%d", 64+i), ipam.Attribute{Handle: fmt.Sprint("h", i), Namespace: "x", Pod: fmt.Sprint("gone", i), Node: "n1"})
	}
	want(t, "all its blocks are full, if only of leaks", l.run(multiBlockNodes()))

	// Windows takes four addresses of each block: 61 pods need two.
	l = newLab(1)
	l.Nodes[0].Windows = true
	l.pool("p", "10.0.0.0/24", 26)
	l.block("10.0.0.0/26", "n1")
	l.block("10.0.0.64/26", "n1")
	l.fill("10.0.0.0/26", "n1", 61)
	want(t, "Windows", l.run(multiBlockNodes()))

	// What is lent keeps a block busy and is not the owner's need.
	l = two(1)
	for i := range 63 {
		l.pod("n2", fmt.Sprintf("10.0.0.%d", 64+i))
	}
	out := l.run(multiBlockNodes())
	want(t, "lent", out, "low Node/n1")
	if note := out.Findings[0].Affected[1].Note; !strings.Contains(note, "63 lent") || !strings.Contains(note, "n2 (63)") {
		t.Errorf("borrowers are not named: %q", note)
	}
}

func TestBorrowed(t *testing.T) {
	base := func() *lab {
		l := newLab(2)
		l.pool("p", "10.0.0.0/24", 26)
		l.block("10.0.0.0/26", "n1")
		l.block("10.0.0.64/26", "n2")
		l.pod("n1", "10.0.0.0")
		return l
	}
	l := base()
	l.pod("n2", "10.0.0.1")
	want(t, "borrowed in a mesh", l.run(borrowedIPs()), "medium Node/n2")
	want(t, "nothing borrowed", base().run(borrowedIPs()))
	l = base()
	l.pod("n2", "10.0.0.1")
	l.Blocks[0].Attributes[1].Node = "n1"
	want(t, "booked for n1, runs on n2: misbooked, not borrowed", l.run(borrowedIPs()))
	l = base()
	l.pod("n2", "10.0.0.1")
	l.Blocks[0].Attributes[1].Node = ""
	want(t, "no node recorded: cannot be told", l.run(borrowedIPs()))
	l = base()
	l.book("10.0.0.1", ipam.Attribute{Handle: "h", Namespace: "x", Pod: "gone", Node: "n2"})
	want(t, "leaked", l.run(borrowedIPs()))
	l = base()
	l.pod("n2", "10.0.0.1")
	l.Blocks[0].Owner = ipam.Owner{}
	want(t, "ownerless", l.run(borrowedIPs()))
	l = base()
	l.pod("n2", "10.0.0.1")
	l.Blocks[0].Owner.Name = "deleted-node"
	want(t, "the owner is gone: nobody drops it", l.run(borrowedIPs()))
	l = base()
	l.pod("n1", "10.0.0.1")
	l.Blocks[0].Owner.Name = "N1"
	want(t, "the owner's name differs in case only", l.run(borrowedIPs()))
	l = base()
	l.Nodes[1].Tunnels = []ipam.TunnelAddress{{Kind: "vxlan", IP: netip.MustParseAddr("10.0.0.5")}}
	l.book("10.0.0.5", ipam.Attribute{Handle: "vxlan-tunnel-addr-n2", Type: "vxlanTunnelAddress", Node: "n2"})
	want(t, "a borrowed tunnel address", l.run(borrowedIPs()), "medium Node/n2")
	l = base()
	l.Coverage.Set(ipam.ResPods, ipam.Forbidden, 0, "")
	if out := l.run(borrowedIPs()); out.Status != StatusUnknown || !out.Incomplete {
		t.Errorf("pods forbidden: %s", out.Status)
	}
}

func TestBlackholed(t *testing.T) {
	base := func() *lab {
		l := newLab(2)
		l.pool("p", "10.0.0.0/24", 26)
		l.block("10.0.0.0/26", "n1")
		l.block("10.0.0.64/26", "n2")
		l.pod("n1", "10.0.0.1")
		l.pod("n2", "10.0.0.2")
		return l
	}
	healthy := []string{"blackhole 10.0.0.0/26", "10.0.0.1", "10.0.0.2", "10.0.0.64/26"}
	for _, tc := range []struct {
		name   string
		change func(*lab)
		routes []string
		want   []string
	}{
		{"a blackhole alone is healthy", nil, healthy, nil},
		{"no host route for the borrowed address", nil, []string{"blackhole 10.0.0.0/26", "10.0.0.1", "0.0.0.0/0"}, []string{"critical Node/n1"}},
		{"a wider route does not help", nil, []string{"blackhole 10.0.0.0/26", "10.0.0.1", "10.0.0.0/24"}, []string{"critical Node/n1"}},
		{"unreachable drops as well", nil, []string{"unreachable 10.0.0.0/26", "10.0.0.1"}, []string{"critical Node/n1"}},
		{"a host blackhole shadows the pod", nil, []string{"blackhole 10.0.0.1", "10.0.0.2"}, []string{"critical Node/n1"}},
		{"a default that drops is not Calico's", nil, []string{"unreachable 0.0.0.0/0", "10.0.0.0/24"}, nil},
		{"advertised service range", func(l *lab) { l.BGP.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")} }, []string{"blackhole 10.0.0.0/16"}, nil},
		{"finished pod", func(l *lab) { l.Pods[1].Phase = "Succeeded" }, []string{"blackhole 10.0.0.0/26", "10.0.0.1"}, nil},
		{"pod being deleted", func(l *lab) { l.Pods[1].Deleting = true }, []string{"blackhole 10.0.0.0/26", "10.0.0.1"}, nil},
		{"pod that has just started", func(l *lab) { l.Pods[1].Started = labNow.Add(-5 * time.Second) }, []string{"blackhole 10.0.0.0/26", "10.0.0.1"}, nil},
		{"host-network pod", func(l *lab) { l.Pods[1].HostNetwork = true }, []string{"blackhole 10.0.0.0/26", "10.0.0.1"}, nil},
	} {
		l := base()
		if tc.change != nil {
			tc.change(l)
		}
		l.routes("n1", tc.routes...)
		want(t, tc.name, l.run(blackholedRoutes()), tc.want...)
	}

	// A pod that has only just started is neither lost nor fine.
	y := base()
	y.Pods[1].Started = labNow.Add(-5 * time.Second)
	y.routes("n1", "blackhole 10.0.0.0/26", "10.0.0.1")
	if out := y.run(blackholedRoutes()); out.Status != StatusUnknown {
		t.Errorf("young pod: %s, want unknown", out.Status)
	}
	y.AsOfInferred = true
	want(t, "the snapshot's time is a guess", y.run(blackholedRoutes()), "critical Node/n1")

	// A node that is not the owner and drops the block has a stale affinity.
	l := base()
	l.Affinities = append(l.Affinities, ipam.Affinity{Name: "n2-10-0-0-0-26", Node: "n2", CIDR: netip.MustParsePrefix("10.0.0.0/26"), State: ipam.StateConfirmed})
	l.routes("n2", "blackhole 10.0.0.0/26", "blackhole 10.0.0.64/26", "10.0.0.2")
	out := l.run(blackholedRoutes())
	want(t, "stale affinity", out, "critical Node/n2")
	if cmds := fmt.Sprint(out.Findings[0].Remediation); !strings.Contains(cmds, "delete blockaffinities.crd.projectcalico.org n2-10-0-0-0-26") {
		t.Errorf("remediation: %s", cmds)
	}

	// BIRD's table says nothing about pools that Felix programs.
	l = base()
	l.Pools[0].VXLANMode = "Always"
	l.routes("n1", "blackhole 10.0.0.0/26", "10.0.0.1")
	l.Tables[0].Kind = ipam.BIRDTable
	want(t, "BIRD's view of a VXLAN pool", l.run(blackholedRoutes()))
}

func TestPoolUtilisation(t *testing.T) {
	fill := func(n int) *lab {
		l := newLab(4)
		l.pool("p", "10.0.0.0/22", 26)
		for i := range 4 {
			cidr := fmt.Sprintf("10.0.%d.0/26", i)
			l.block(cidr, fmt.Sprintf("n%d", i+1))
		}
		// More blocks for n1, as many as the addresses need.
		for i := 0; i < 12 && i*64+256 < n; i++ {
			l.block(fmt.Sprintf("10.0.%d.%d/26", i/3, 64+i%3*64), "n1")
		}
		for i := range n {
			b := l.Blocks[i/64].CIDR
			a := b.Addr().As4()
			a[3] += byte(i % 64)
			l.pod(l.Blocks[i/64].Owner.Name, netip.AddrFrom4(a).String())
		}
		return l
	}
	want(t, "10 %", fill(100).run(poolUtilisation()))
	want(t, "69.9 %", fill(716).run(poolUtilisation()))
	want(t, "70 %", fill(717).run(poolUtilisation()), "medium IPPool/p")
	want(t, "85 %", fill(871).run(poolUtilisation()), "high IPPool/p")

	// Strict affinity, no free block, and a node that owns none.
	l := newLab(2)
	l.Config.StrictAffinity = true
	l.pool("p", "10.0.0.0/26", 26)
	l.block("10.0.0.0/26", "n1")
	l.pod("n1", "10.0.0.0")
	want(t, "a node can get nothing", l.run(poolUtilisation()), "critical IPPool/p")
	l = newLab(2)
	l.pool("p", "10.0.0.0/26", 26)
	l.block("10.0.0.0/26", "n1")
	l.pod("n1", "10.0.0.0")
	want(t, "it can borrow", l.run(poolUtilisation()), "high IPPool/p")
	l.pool("q", "10.1.0.0/24", 26)
	want(t, "another pool serves the same nodes", l.run(poolUtilisation()))

	l = newLab(1)
	l.pool("lb", "10.2.0.0/26", 26).AllowedUses = ipam.UseLoadBalancer
	l.pool("p", "10.0.0.0/24", 26)
	b := l.block("10.2.0.0/26", "")
	b.Owner = ipam.Owner{Type: "virtual", Name: "load-balancer"}
	want(t, "a load balancer pool whose one block is claimed", l.run(poolUtilisation()))
	for i := range 60 {
		l.book(fmt.Sprintf("10.2.0.%d", i), ipam.Attribute{Handle: fmt.Sprint("lb-", i), Type: "LoadBalancer"})
	}
	want(t, "94 % of its addresses", l.run(poolUtilisation()), "high IPPool/lb")

	l = newLab(1)
	l.pool("p", "10.0.0.0/24", 26)
	l.pool("static", "10.3.0.0/28", 28).NodeSelector = "!all()"
	l.block("10.3.0.0/28", "n1")
	l.fill("10.3.0.0/28", "n1", 16)
	want(t, "a pool of fixed addresses may be full", l.run(poolUtilisation()), "low IPPool/static")

	l = newLab(1)
	l.pool("six", "fd00::/48", 122)
	l.block("fd00::/122", "n1")
	l.pod("n1", "fd00::1")
	want(t, "2^80 addresses", l.run(poolUtilisation()))
}
