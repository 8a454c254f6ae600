package ipam

import (
	"net/netip"
	"slices"
	"strings"
)

// IsV4 reports whether the pool is of IPv4.
func (p *Pool) IsV4() bool { return p.CIDR.Addr().Is4() }

// Enabled reports whether Calico may allocate from the pool at all.
func (p *Pool) Enabled() bool { return !p.Disabled && !p.Deleting && p.NotAllocatable == "" }

// Selects reports whether the pool's nodeSelector matches the node.
func (p *Pool) Selects(n *Node) bool { return p.nodeSel.Matches(n.Labels) }

// Encapsulated reports whether a tunnel carries the pool's traffic.
func (p *Pool) Encapsulated() bool { return isMode(p.VXLANMode) || isMode(p.IPIPMode) }

// VXLAN reports whether vxlanMode is on.
func (p *Pool) VXLAN() bool { return isMode(p.VXLANMode) }

// IPIP reports whether ipipMode is on.
func (p *Pool) IPIP() bool { return isMode(p.IPIPMode) }

func isMode(m string) bool { return m != "" && !strings.EqualFold(m, "Never") }

// Automatic reports whether the pool gives out addresses without being named:
// enabled and not of assignmentMode Manual.
func (p *Pool) Automatic() bool { return p.Enabled() && !p.Manual }

// Serving returns the pools that the node's pods (use UseWorkload) or tunnels
// may get blocks from without naming a pool, in the order of their CIDRs
// (libcalico-go/lib/ipam/ipam.go: determinePools). Pools for some namespaces
// only (v3.31) count where at least one namespace matches, and only while no
// other pool serves the node.
func (s *Snapshot) Serving(n *Node, v4 bool, use Uses) []*Pool {
	var general, restricted []*Pool
	for i := range s.Pools {
		p := &s.Pools[i]
		if p.IsV4() != v4 || !p.Automatic() || !p.AllowedUses.Has(use) || !p.Selects(n) {
			continue
		}
		switch {
		case p.NamespaceSelector == "" || strings.TrimSpace(p.NamespaceSelector) == "all()":
			general = append(general, p)
		case use != UseWorkload || s.servesNamespace(p):
			restricted = append(restricted, p)
		}
	}
	if len(general) > 0 {
		return general
	}
	return restricted
}

func (s *Snapshot) servesNamespace(p *Pool) bool {
	if !s.Coverage.Read(ResNamespaces) {
		return true
	}
	return slices.ContainsFunc(s.Namespaces, func(ns Namespace) bool { return p.nsSel.Matches(ns.Labels) })
}

// Families returns the address families (true for IPv4) that have an automatic
// workload pool: the families a node needs a block in.
func (s *Snapshot) Families() []bool {
	var v4, v6 bool
	for i := range s.Pools {
		p := &s.Pools[i]
		if p.Automatic() && p.AllowedUses.Has(UseWorkload) {
			v4, v6 = v4 || p.IsV4(), v6 || !p.IsV4()
		}
	}
	var out []bool
	if v4 {
		out = append(out, true)
	}
	if v6 {
		out = append(out, false)
	}
	return out
}

// InUse reports whether the node needs addresses: schedulable and Ready, or
// with pod-network pods that wait for one. Cordoned nodes, the control plane
// and nodes kept for host-network pods are not in use without such pods.
func (s *Snapshot) InUse(n *Node) bool { return s.ix.inUse[n] }

func (s *Snapshot) nodeInUse(n *Node) bool {
	podNetwork, hostWorkload := false, false
	for _, p := range s.PodsOn(n.Name) {
		switch {
		case p.WaitsForAddress():
			return true
		case p.Live():
			podNetwork = true
		case p.HostNetwork && !p.Finished() && p.OwnerKind != "DaemonSet":
			hostWorkload = true
		}
	}
	if n.Unschedulable || !n.Ready || n.Deleting {
		return false
	}
	return podNetwork || !n.ControlPlane && !n.Tainted && !hostWorkload
}

// Free returns the blocks the node could still claim in these pools, and those
// it could take over from other nodes (v3.32).
func (s *Snapshot) Free(pools []*Pool, node string) (free, reclaimable uint64) {
	for _, p := range pools {
		u := s.Usage(p)
		free = satAdd(free, u.Free)
		reclaimable = satAdd(reclaimable, u.Reclaimable-u.ReclaimableOwned[node])
	}
	return free, reclaimable
}

// OwnsIn returns the node's blocks in these pools.
func (s *Snapshot) OwnsIn(node string, pools []*Pool) []*Block {
	var out []*Block
	for _, b := range s.BlocksOf(node) {
		if slices.Contains(pools, b.pool) {
			out = append(out, b)
		}
	}
	return out
}

// HoldsBlocks reports whether the block size fits into the pool at all.
func (p *Pool) HoldsBlocks() bool {
	return p.BlockSize >= p.CIDR.Bits() && p.BlockSize <= p.CIDR.Addr().BitLen()
}

// Usable is the number of addresses a block of this pool gives a node's pods:
// Windows keeps four of each for HNS.
func (p *Pool) Usable(windows bool) uint64 {
	n := pow2(p.CIDR.Addr().BitLen() - p.BlockSize)
	if windows {
		return satSub(n, 4)
	}
	return n
}

// Family prints IPv4 or IPv6.
func Family(v4 bool) string {
	if v4 {
		return "IPv4"
	}
	return "IPv6"
}

// InServiceCIDR reports whether p lies in an advertised service range.
func (s *Snapshot) InServiceCIDR(p netip.Prefix) bool {
	return slices.ContainsFunc(s.BGP.ServiceCIDRs, func(c netip.Prefix) bool { return Contains(c, p) })
}
