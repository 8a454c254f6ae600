package checks

import (
	"net/netip"
	"testing"

	"ipamaudit/ipam"
)

// One block that could not be used is neither lost data nor a reason for calm:
// what its pods are booked in is not known.
func TestAnUnusableBlockIsNoLostData(t *testing.T) {
	l := newLab(2)
	l.pool("p", "10.0.0.0/24", 26)
	l.block("10.0.0.0/26", "n1")
	l.fill("10.0.0.0/26", "n1", 4)
	for i := range 20 {
		p := l.pod("n2", "")
		p.StatusIPs = append(p.StatusIPs, l.Blocks[0].CIDR.Addr())
		a := p.StatusIPs[0].As4()
		a[3] = byte(64 + i)
		p.StatusIPs[0] = netip.AddrFrom4(a)
	}
	want(t, "the block of twenty pods is gone", l.run(ipamData()), "critical Cluster/lab")

	l.Rejected = []ipam.ObjectError{{Kind: "IPAMBlock", Name: "10-0-0-64-26", Message: "affinity is a number"}}
	want(t, "the block of twenty pods could not be used", l.run(ipamData()))
	if out := l.run(multiBlockNodes()); out.Status != StatusUnknown || !out.Incomplete {
		t.Errorf("multi-block-nodes: %s (incomplete %v), want unknown and incomplete", out.Status, out.Incomplete)
	}
}

// What was refused and could turn a finding into calm leaves the check unknown.
func TestRefusedResourcesThatDecide(t *testing.T) {
	for _, c := range All() {
		for _, r := range c.Decides {
			l := newLab(2)
			l.pool("p", "10.0.0.0/24", 26)
			l.block("10.0.0.0/26", "n1")
			l.pod("n1", "10.0.0.1")
			l.Coverage.Set(r, ipam.Forbidden, 0, "")
			if out := l.run(c); out.Status == StatusOK || out.Status == StatusSkipped {
				t.Errorf("%s is %s although %s was refused (unseen %q)", c.ID, out.Status, r, out.Unseen)
			}
		}
	}
}
