package checks

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"ipamaudit/ipam"
)

// tunnelLab has two nodes with a booked tunnel address each; mode is ipip or vxlan.
func tunnelLab(mode string) *lab {
	l := newLab(2)
	p := l.pool("p", "10.0.0.0/16", 26)
	kind := mode + "TunnelAddress"
	if mode == "vxlan" {
		p.VXLANMode = "Always"
	} else {
		p.IPIPMode = "Always"
	}
	for i, ip := range []string{"10.0.0.0", "10.0.0.64"} {
		n := &l.Nodes[i]
		l.block(ip+"/26", n.Name)
		l.book(ip, ipam.Attribute{Handle: mode + "-tunnel-addr-" + n.Name, Node: n.Name, Type: kind})
		n.Tunnels = []ipam.TunnelAddress{{Kind: mode, IP: netip.MustParseAddr(ip)}}
		l.Pods = append(l.Pods, ipam.Pod{Namespace: "calico-system", Name: "calico-node-" + n.Name, NodeName: n.Name, HostNetwork: true, Phase: "Running", App: "calico-node", OwnerKind: "DaemonSet"})
	}
	return l
}

func (l *lab) retunnel(node int, ip string) { l.Nodes[node].Tunnels[0].IP = netip.MustParseAddr(ip) }

func TestTunnelIPs(t *testing.T) {
	for _, tc := range []struct {
		name  string
		mode  string
		build func(*lab)
		want  []string
	}{
		{"healthy", "vxlan", func(*lab) {}, nil},
		{"not booked", "vxlan", func(l *lab) { l.retunnel(1, "10.0.0.99") }, []string{"critical Node/n2"}},
		{"not booked, no block there", "ipip", func(l *lab) { l.retunnel(1, "10.0.9.9") }, []string{"critical Node/n2"}},
		{"not booked, in a disabled pool", "ipip", func(l *lab) { l.pool("old", "10.9.0.0/16", 26).Disabled = true; l.retunnel(1, "10.9.0.9") }, []string{"low Node/n2"}},
		{"outside every pool", "ipip", func(l *lab) { l.retunnel(1, "192.0.2.9") }, nil},
		{"booked for a pod that is gone", "ipip", func(l *lab) { l.bookPod("10.0.0.99", "n2", "x", longAgo); l.retunnel(1, "10.0.0.99") }, []string{"critical Node/n2"}},
		{"used by a running pod: duplicate-ips", "ipip", func(l *lab) { l.pod("n2", "10.0.0.99"); l.retunnel(1, "10.0.0.99") }, nil},
		{"cooling down", "ipip", func(l *lab) {
			l.book("10.0.0.99", ipam.Attribute{ReleasedAt: labNow})
			l.retunnel(1, "10.0.0.99")
		}, []string{"critical Node/n2"}},
		{"on two nodes", "ipip", func(l *lab) { l.retunnel(1, "10.0.0.0") }, []string{"critical Node/n1", "critical Node/n2"}},
		{"booked for a node that is gone", "ipip", func(l *lab) {
			l.book("10.0.0.99", ipam.Attribute{Handle: "ipip-tunnel-addr-old", Node: "old", Type: "ipipTunnelAddress"})
			l.retunnel(1, "10.0.0.99")
		}, []string{"critical Node/n2"}},
		{"booked under another case", "ipip", func(l *lab) {
			l.book("10.0.0.99", ipam.Attribute{Handle: "ipip-tunnel-addr-N2", Node: "N2", Type: "ipipTunnelAddress"})
			l.retunnel(1, "10.0.0.99")
		}, nil},
		{"an old record without attributes", "ipip", func(l *lab) { l.book("10.0.0.99", ipam.Attribute{}); l.retunnel(1, "10.0.0.99") }, nil},
		{"borrowed VXLAN before v3.30", "vxlan", func(l *lab) { borrowTunnel(l, "vxlan") }, []string{"high Node/n2"}},
		{"borrowed VXLAN, version unknown", "vxlan", func(l *lab) { l.Info.Version = ipam.Version{}; borrowTunnel(l, "vxlan") }, []string{"high Node/n2"}},
		{"borrowed VXLAN in v3.30", "vxlan", func(l *lab) { l.Info.Version = ipam.ParseVersion("v3.30.1"); borrowTunnel(l, "vxlan") }, []string{"medium Node/n2"}},
		{"borrowed IPIP in a node mesh", "ipip", func(l *lab) { borrowTunnel(l, "ipip") }, []string{"medium Node/n2"}},
		{"borrowed IPIP without a mesh", "ipip", func(l *lab) {
			l.BGP = ipam.BGPConfig{Present: true}
			l.Peers = []ipam.BGPPeer{{Name: "tor", PeerIP: "192.0.2.1", ASNumber: 65000}}
			borrowTunnel(l, "ipip")
		}, []string{"high Node/n2"}},
		{"missing", "vxlan", func(l *lab) { l.Nodes[1].Tunnels = nil }, []string{"high Node/n2"}},
		{"missing IPv6", "vxlan", func(l *lab) { l.pool("six", "fd00::/64", 122).VXLANMode = "Always" }, []string{"high Node/n1", "high Node/n2"}},
		{"no IPv6 IPIP exists", "ipip", func(l *lab) { l.pool("six", "fd00::/64", 122).IPIPMode = "Always" }, nil},
		{"missing, the pool selects no node", "vxlan", func(l *lab) { l.Pools[0].NodeSelector = "!all()"; l.Nodes[1].Tunnels = nil }, nil},
		{"missing, the pool is for workloads only", "vxlan", func(l *lab) { l.Pools[0].AllowedUses = ipam.UseWorkload; l.Nodes[1].Tunnels = nil }, nil},
		{"missing, the pool is disabled", "vxlan", func(l *lab) { l.Pools[0].Disabled = true; l.Nodes[1].Tunnels = nil }, nil},
		{"missing on Windows", "vxlan", func(l *lab) { l.Nodes[1].Windows = true; l.Nodes[1].Tunnels = nil }, nil},
		{"missing on a new node", "vxlan", func(l *lab) { l.Nodes[1].Created = labNow.Add(-10 * time.Minute); l.Nodes[1].Tunnels = nil }, nil},
		{"missing on a node that is not ready", "vxlan", func(l *lab) { l.Nodes[1].Ready = false; l.Nodes[1].Tunnels = nil }, nil},
		{"missing where calico-node is not", "vxlan", func(l *lab) { l.Pods = l.Pods[:1]; l.Nodes[1].Tunnels = nil }, nil},
		{"WireGuard on the node's own address", "vxlan", func(l *lab) {
			l.Nodes[1].Tunnels = append(l.Nodes[1].Tunnels, ipam.TunnelAddress{Kind: "wireguard", IP: netip.MustParseAddr("192.0.2.2")})
		}, nil},
		{"WireGuard, not booked", "vxlan", func(l *lab) {
			l.Nodes[1].Tunnels = append(l.Nodes[1].Tunnels, ipam.TunnelAddress{Kind: "wireguard", IP: netip.MustParseAddr("10.0.0.80")})
		}, []string{"critical Node/n2"}},
	} {
		l := tunnelLab(tc.mode)
		tc.build(l)
		want(t, tc.name, l.run(tunnelIPs()), tc.want...)
	}
	for _, r := range []ipam.Resource{ipam.ResBlocks, ipam.ResNodes, ipam.ResPools} {
		l := tunnelLab("vxlan")
		l.Coverage.Set(r, ipam.Forbidden, 0, "")
		if out := l.run(tunnelIPs()); out.Status != StatusUnknown {
			t.Errorf("%s forbidden: %s", r, out.Status)
		}
	}
	l := tunnelLab("vxlan")
	l.retunnel(1, "10.0.9.9")
	l.Rejected = []ipam.ObjectError{{Kind: "IPAMBlock", Name: "x"}}
	if out := l.run(tunnelIPs()); out.Status != StatusUnknown {
		t.Errorf("it may be booked in the broken block: %s", out.Status)
	}
}

// borrowTunnel gives n2 a tunnel address out of n1's block.
func borrowTunnel(l *lab, mode string) {
	l.book("10.0.0.11", ipam.Attribute{Handle: mode + "-tunnel-addr-n2", Node: "n2", Type: mode + "TunnelAddress"})
	l.retunnel(1, "10.0.0.11")
}

// calico-node keeps a borrowed address through a restart: the annotation has to
// go first, and nothing releases an address in use.
func TestTunnelRemediation(t *testing.T) {
	l := tunnelLab("vxlan")
	borrowTunnel(l, "vxlan")
	var b strings.Builder
	for _, s := range l.run(tunnelIPs()).Findings[0].Remediation {
		b.WriteString(strings.Join(s.Commands, "\n") + "\n")
	}
	text := b.String()
	annotate, restart := strings.Index(text, "projectcalico.org/IPv4VXLANTunnelAddr-"), strings.Index(text, "k8s-app=calico-node")
	if annotate < 0 || restart < annotate || strings.Contains(text, "ipam release") {
		t.Error(text)
	}
}
