package checks

import (
	"net/netip"
	"testing"
	"time"

	"ipamaudit/ipam"
)

func TestUnallocatedPodIPs(t *testing.T) {
	for _, tc := range []struct {
		name  string
		build func(*lab)
		want  bool
	}{
		{"healthy", func(*lab) {}, false},
		{"free in its block", func(l *lab) { l.twin("n1", "10.0.0.40") }, true},
		{"no block there", func(l *lab) { l.twin("n1", "10.0.9.1") }, true},
		{"cooling down", func(l *lab) {
			l.book("10.0.0.40", ipam.Attribute{ReleasedAt: labNow.Add(-time.Minute)})
			l.twin("n1", "10.0.0.40")
		}, true},
		{"IPv6", func(l *lab) { l.pool("six", "fd00::/64", 122); l.block("fd00::/122", "n1"); l.twin("n1", "fd00::9") }, true},
		{"outside every pool", func(l *lab) { l.twin("n1", "192.0.2.1") }, false},
		{"in a disabled pool", func(l *lab) { l.pool("old", "10.9.0.0/16", 26).Disabled = true; l.twin("n1", "10.9.0.1") }, false},
		{"host network", func(l *lab) { l.twin("n1", "10.0.0.40").HostNetwork = true }, false},
		{"bypasses IPAM", func(l *lab) { l.twin("n1", "10.0.0.40").NoIPAM = true }, false},
		{"finished", func(l *lab) { l.twin("n1", "10.0.0.40").Phase = "Failed" }, false},
		{"being deleted", func(l *lab) { l.twin("n1", "10.0.0.40").Deleting = true }, false},
		{"a minute old", func(l *lab) { l.twin("n1", "10.0.0.40").Created = labNow.Add(-time.Minute) }, false},
		{"on a node that is gone", func(l *lab) { l.twin("gone", "10.0.0.40") }, false},
		{"of host-local", func(l *lab) {
			l.Nodes[0].PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.9.0/24")}
			l.twin("n1", "10.0.9.1").CalicoCNI = false
		}, false},
		{"in a node's podCIDR, but of Calico's", func(l *lab) {
			l.Nodes[0].PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.9.0/24")}
			l.twin("n1", "10.0.9.1")
		}, true},
	} {
		l := leakLab()
		tc.build(l)
		if tc.want {
			want(t, tc.name, l.run(unallocatedPodIPs()), "critical Cluster/lab")
		} else {
			want(t, tc.name, l.run(unallocatedPodIPs()))
		}
	}
}

func TestUnallocatedUnread(t *testing.T) {
	for _, r := range []ipam.Resource{ipam.ResBlocks, ipam.ResPods, ipam.ResPools} {
		l := leakLab()
		l.Coverage.Set(r, ipam.Forbidden, 0, "")
		if out := l.run(unallocatedPodIPs()); out.Status != StatusUnknown {
			t.Errorf("%s forbidden: %s", r, out.Status)
		}
	}
	// The address may be booked in the block that could not be used.
	l := leakLab()
	l.twin("n1", "10.0.9.1")
	l.Rejected = []ipam.ObjectError{{Kind: "IPAMBlock", Name: "10-0-9-0-26", Message: "broken"}}
	if out := l.run(unallocatedPodIPs()); out.Status != StatusUnknown {
		t.Errorf("with a broken block: %s, %d findings", out.Status, len(out.Findings))
	}
}
