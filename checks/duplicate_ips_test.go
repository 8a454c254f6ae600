package checks

import (
	"net/netip"
	"strings"
	"testing"

	"ipamaudit/ipam"
)

// twin adds a second pod with an address that is booked already.
func (l *lab) twin(node, ip string) *ipam.Pod {
	p := *l.pod(node, "")
	p.StatusIPs = []netip.Addr{netip.MustParseAddr(ip)}
	l.Pods[len(l.Pods)-1] = p
	return &l.Pods[len(l.Pods)-1]
}

func TestDuplicateIPs(t *testing.T) {
	for _, tc := range []struct {
		name  string
		build func(*lab)
		want  []string
	}{
		{"healthy", func(*lab) {}, nil},
		{"two pods on two nodes", func(l *lab) { l.twin("n2", "10.0.0.0") }, []string{"critical IP/10.0.0.0"}},
		{"two pods on one node", func(l *lab) { l.twin("n1", "10.0.0.0") }, []string{"critical IP/10.0.0.0"}},
		{"two pairs", func(l *lab) { l.twin("n1", "10.0.0.2"); l.twin("n1", "10.0.0.0") }, []string{"critical IP/10.0.0.0", "critical IP/10.0.0.2"}},
		{"one of them has finished", func(l *lab) { l.twin("n2", "10.0.0.0").Phase = "Succeeded" }, nil},
		{"one of them is being deleted", func(l *lab) { l.twin("n2", "10.0.0.0").Deleting = true }, nil},
		{"one of them does not run yet", func(l *lab) { l.twin("n2", "10.0.0.0").Phase = "Pending" }, nil},
		{"one of them is on a node that is gone", func(l *lab) { l.twin("gone", "10.0.0.0") }, nil},
		{"one of them uses the host's network", func(l *lab) { l.twin("n2", "10.0.0.0").HostNetwork = true }, nil},
		{"outside every pool", func(l *lab) { l.twin("n1", "192.0.2.1"); l.twin("n2", "192.0.2.1") }, nil},
		{"one virtual machine in migration", func(l *lab) {
			l.Pods[0].VMI = "vm"
			l.twin("n2", "10.0.0.0").VMI = "vm"
		}, nil},
		{"two virtual machines", func(l *lab) {
			l.Pods[0].VMI = "vm"
			l.twin("n2", "10.0.0.0").VMI = "vm2"
		}, []string{"critical IP/10.0.0.0"}},
		{"an old annotation within one family", func(l *lab) {
			l.twin("n2", "10.0.0.70").AnnotatedIPs = []netip.Addr{netip.MustParseAddr("10.0.0.0")}
		}, nil},
		{"IPv6 that only the annotation has", func(l *lab) {
			l.pool("six", "fd00::/64", 122)
			l.Pods[0].AnnotatedIPs = []netip.Addr{netip.MustParseAddr("10.0.0.0"), netip.MustParseAddr("fd00::1")}
			l.twin("n2", "fd00::1")
		}, []string{"critical IP/fd00::1"}},
		{"a tunnel", func(l *lab) {
			l.Nodes[1].Tunnels = []ipam.TunnelAddress{{Kind: "ipip", IP: netip.MustParseAddr("10.0.0.0")}}
		}, []string{"critical IP/10.0.0.0"}},
	} {
		l := leakLab()
		tc.build(l)
		want(t, tc.name, l.run(duplicateIPs()), tc.want...)
	}
	for _, r := range []ipam.Resource{ipam.ResPods, ipam.ResPools, ipam.ResNodes} {
		l := leakLab()
		l.Coverage.Set(r, ipam.Failed, 0, "")
		if out := l.run(duplicateIPs()); out.Status != StatusUnknown {
			t.Errorf("%s failed: %s", r, out.Status)
		}
	}
}

// The party that the address is not booked for gives way.
func TestDuplicateRemediation(t *testing.T) {
	l := leakLab()
	booked := l.Pods[0].Name
	other := l.twin("n2", "10.0.0.0").Name
	var all string
	for _, s := range l.run(duplicateIPs()).Findings[0].Remediation {
		all += strings.Join(s.Commands, "\n") + "\n"
	}
	if !strings.Contains(all, "evict app "+other) || strings.Contains(all, "evict app "+booked+"\n") {
		t.Errorf("want only %s to be deleted, not %s:\n%s", other, booked, all)
	}

	l = leakLab()
	l.Nodes[0].Tunnels = []ipam.TunnelAddress{{Kind: "ipip", IP: netip.MustParseAddr("10.0.0.0")}}
	all = ""
	for _, s := range l.run(duplicateIPs()).Findings[0].Remediation {
		all += strings.Join(s.Commands, "\n") + "\n"
	}
	if !strings.Contains(all, "k8s-app=calico-node") || strings.Contains(all, "evict app "+booked) {
		t.Errorf("the tunnel has to give way, not the pod that the address is booked for:\n%s", all)
	}

	// Booked for the tunnel: the pod gives way.
	l = newLab(1)
	l.pool("p", "10.0.0.0/16", 26)
	l.block("10.0.0.0/26", "n1")
	l.book("10.0.0.0", ipam.Attribute{Handle: "ipip-tunnel-addr-n1", Node: "n1", Type: "ipipTunnelAddress"})
	l.Nodes[0].Tunnels = []ipam.TunnelAddress{{Kind: "ipip", IP: netip.MustParseAddr("10.0.0.0")}}
	name := l.twin("n1", "10.0.0.0").Name
	all = ""
	for _, s := range l.run(duplicateIPs()).Findings[0].Remediation {
		all += strings.Join(s.Commands, "\n") + "\n"
	}
	if !strings.Contains(all, "evict app "+name) || strings.Contains(all, "k8s-app=calico-node") {
		t.Errorf("the pod has to give way:\n%s", all)
	}
}
