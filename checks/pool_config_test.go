package checks

import (
	"net/netip"
	"strings"
	"testing"

	"ipamaudit/ipam"
)

// zones has a pool per zone; n1 is in zone a, n2 in zone b.
func zones() *lab {
	l := newLab(2)
	for i, z := range []string{"a", "b"} {
		l.Nodes[i].Labels["zone"] = z
		l.pool("zone-"+z, "10."+string(rune('0'+i))+".0.0/16", 26).NodeSelector = "zone == '" + z + "'"
	}
	l.block("10.0.0.0/26", "n1")
	l.block("10.1.0.0/26", "n2")
	l.pod("n1", "10.0.0.1")
	l.pod("n2", "10.1.0.1")
	return l
}

func TestPoolConfig(t *testing.T) {
	third := func(l *lab) {
		l.Nodes = append(l.Nodes, ipam.Node{Name: "n3", Ready: true, Labels: map[string]string{}, MaxPods: 110})
	}
	for _, tc := range []struct {
		name string
		make func(*lab)
		want []string
	}{
		{"each node has its pool", func(l *lab) {}, nil},
		{"a pool inside another", func(l *lab) { l.pool("in", "10.0.128.0/17", 26) }, []string{"high IPPool/in"}},
		{"two pools of one range", func(l *lab) { l.pool("again", "10.1.0.0/16", 26) }, []string{"high IPPool/zone-b"}},
		{"the inner one is disabled", func(l *lab) { l.pool("in", "10.0.128.0/17", 26).Disabled = true }, []string{"medium IPPool/in"}},
		{"IPv6 pools that overlap", func(l *lab) { l.pool("x", "fd00::/48", 122); l.pool("y", "fd00::/64", 122) }, []string{"high IPPool/y"}},
		{"a node without label", third, []string{"high Cluster/lab"}},
		{"a node without label, a pod waits there", func(l *lab) { third(l); l.pod("n3", "").Phase = "Pending" }, []string{"critical Cluster/lab"}},
		{"a cordoned node without label", func(l *lab) { third(l); l.Nodes[2].Unschedulable = true }, nil},
		{"a control-plane node without label", func(l *lab) { third(l); l.Nodes[2].ControlPlane = true }, nil},
		{"a node without label whose pods name their pool", func(l *lab) { third(l); l.pod("n3", "10.0.0.7").PoolPins = []string{"zone-a"} }, []string{"low Cluster/lab"}},
		{"a node without label with another IPAM", func(l *lab) { third(l); l.pod("n3", "172.16.0.7") }, nil},
		{"all pools are disabled", func(l *lab) { l.Pools[0].Disabled, l.Pools[1].Disabled = true, true }, []string{"high Cluster/lab"}},
		{"pools that assign by name only", func(l *lab) {
			for i := range l.Pools {
				l.Pools[i].Manual, l.Pods[i].PoolPins = true, []string{l.Pools[i].Name}
			}
		}, []string{"low Cluster/lab"}},
		{"a pool for fixed addresses", func(l *lab) { l.pool("static", "10.9.0.0/24", 26).NodeSelector = "!all()" }, nil},
		{"a pod with a fixed address elsewhere", func(l *lab) { l.pod("n2", "10.0.0.9").RequestedIPs = []netip.Addr{netip.MustParseAddr("10.0.0.9")} }, nil},
		{"a pod pinned to the other zone's pool", func(l *lab) { l.pod("n2", "10.0.0.9").PoolPins = []string{"zone-a"} }, nil},
		{"a namespace pinned to the other zone's pool", func(l *lab) {
			l.pod("n2", "10.0.0.9")
			l.Namespaces = []ipam.Namespace{{Name: "app", PoolPins: []string{"zone-a", "zone-b"}}}
		}, nil},
		{"a pod of the other zone's pool, and nothing asks for it", func(l *lab) { l.pod("n2", "10.0.0.9") }, []string{"low IPPool/zone-a"}},
		{"the CNI configuration names pools", func(l *lab) {
			l.pod("n2", "10.0.0.9")
			l.CNIConfigs = []string{`{"ipam":{"type":"calico-ipam","ipv4_pools":["zone-a"]}}`}
		}, nil},
		{"a disabled pool with running pods is a migration", func(l *lab) {
			l.pool("old", "10.8.0.0/16", 26).Disabled = true
			l.block("10.8.0.0/26", "n1")
			l.pod("n1", "10.8.0.1")
		}, nil},
		{"a running pod pinned to a disabled pool", func(l *lab) {
			l.pool("old", "10.8.0.0/16", 26).Disabled = true
			l.block("10.8.0.0/26", "n1")
			l.pod("n1", "10.8.0.1").PoolPins = []string{"10.8.0.0/16"}
		}, []string{"medium IPPool/old"}},
		{"a waiting pod pinned to a disabled pool", func(l *lab) {
			l.pool("old", "10.8.0.0/16", 26).Disabled = true
			l.pod("n1", "").PoolPins = []string{"old"}
		}, []string{"high IPPool/old"}},
		{"a namespace without pods pinned to a pool that does not exist", func(l *lab) {
			l.Namespaces = []ipam.Namespace{{Name: "empty", PoolPins: []string{"gone"}}}
		}, []string{"low IPPool/gone"}},
		{"a pod's own pin comes before the namespace's", func(l *lab) {
			l.Namespaces = []ipam.Namespace{{Name: "app", PoolPins: []string{"gone"}}}
			for i := range l.Pods {
				l.Pods[i].PoolPins = []string{l.Pools[i].Name}
			}
		}, []string{"low IPPool/gone"}},
		{"a finished pod's pin", func(l *lab) {
			p := l.pod("n1", "")
			p.Phase, p.PoolPins = "Succeeded", []string{"gone"}
		}, nil},
		{"pinned to a pool for load balancers", func(l *lab) {
			l.pool("lb", "10.7.0.0/24", 26).AllowedUses = ipam.UseLoadBalancer
			l.Pods[0].PoolPins = []string{"lb"}
		}, []string{"medium IPPool/lb"}},
		{"blocks larger than the pool", func(l *lab) { l.pool("tiny", "10.9.0.0/28", 26) }, []string{"high IPPool/tiny", "low IPPool/zone-a", "low IPPool/zone-b"}[:1]},
		{"two sizes for the same nodes", func(l *lab) { l.pool("q", "10.9.0.0/24", 28).NodeSelector = "zone == 'a'" }, []string{"low IPPool/q"}},
		{"one zone has no IPv6", func(l *lab) { l.pool("six", "fd00::/64", 122).NodeSelector = "zone == 'a'" }, []string{"low Cluster/lab"}},
		{"a selector that cannot be read", func(l *lab) { l.pool("odd", "10.9.0.0/24", 26).NodeSelector = "zone ===" }, []string{"low IPPool/odd"}},
	} {
		l := zones()
		tc.make(l)
		want(t, tc.name, l.run(poolConfig()), tc.want...)
	}
}

func TestPoolConfigNames(t *testing.T) {
	l := zones()
	l.Nodes = append(l.Nodes, ipam.Node{Name: "n3", Ready: true, Labels: map[string]string{}})
	f := l.run(poolConfig()).Findings[0]
	if len(f.Affected) != 1 || f.Affected[0].Name != "n3" || strings.Contains(commandText(f.Remediation), "n1") {
		t.Errorf("only the node without pool is affected: %+v", f.Affected)
	}
	l = zones()
	l.Coverage.Set(ipam.ResPods, ipam.Forbidden, 0, "")
	if out := l.run(poolConfig()); out.Status != StatusUnknown {
		t.Errorf("pods not read: %s", out.Status)
	}
}
