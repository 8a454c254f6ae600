package audit

import "ipamaudit/ipam"

// poolReports is the arithmetic of every pool, in the snapshot's order. Without
// the blocks there is none: every pool would look empty.
func poolReports(s *ipam.Snapshot) []PoolReport {
	if !s.Coverage.Read(ipam.ResBlocks) {
		return []PoolReport{}
	}
	out := make([]PoolReport, 0, len(s.Pools))
	for i := range s.Pools {
		p := &s.Pools[i]
		u := s.Usage(p)
		out = append(out, PoolReport{
			Name: p.Name, CIDR: p.CIDR.String(), BlockSize: p.BlockSize, Disabled: p.Disabled,
			Addresses: u.Addresses, Reserved: u.Reserved, Allocated: u.Allocated,
			CoolingDown: u.CoolingDown, Available: u.Available,
			Blocks: u.Blocks, BlocksClaimed: u.Claimed, BlocksFree: u.Free,
			Saturated: u.Saturated(),
		})
	}
	return out
}
