package audit

import (
	"net/netip"
	"testing"

	"ipamaudit/ipam"
)

// A pool whose blocks were not seen is not empty.
func TestPoolsWithoutBlocks(t *testing.T) {
	for _, st := range []ipam.ReadStatus{ipam.Read, ipam.Forbidden, ipam.Failed, ipam.Absent, ipam.Missing} {
		s := ipam.NewSnapshot()
		s.Pools = []ipam.Pool{{Name: "p", CIDR: netip.MustParsePrefix("10.0.0.0/16"), BlockSize: 26}}
		s.Coverage.Set(ipam.ResPools, ipam.Read, 1, "")
		s.Coverage.Set(ipam.ResBlocks, st, 0, "")
		if got := len(poolReports(s.Seal())); got != map[bool]int{true: 1, false: 0}[st == ipam.Read] {
			t.Errorf("blocks %s: %d pools with figures", st, got)
		}
	}
}
