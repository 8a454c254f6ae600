package ipam

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
)

// IsV4 reports whether the pool is of IPv4.
func (p *Pool) IsV4() bool { return p.CIDR.Addr().Is4() }

// DefaultBlockSize is the prefix length of the blocks of a pool of this family
// that names none: 64 addresses (libcalico-go/lib/clientv3/ippool.go).
func DefaultBlockSize(of netip.Addr) int { return of.BitLen() - 6 }

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
	general, restricted := s.poolsOn(n, v4, use)
	if len(general) > 0 {
		return general
	}
	return restricted
}

// poolsOn are the pools that select the node: those for every namespace, and
// those for some.
func (s *Snapshot) poolsOn(n *Node, v4 bool, use Uses) (general, restricted []*Pool) {
	for i := range s.Pools {
		p := &s.Pools[i]
		if p.IsV4() != v4 || !p.Automatic() || !p.AllowedUses.Has(use) || !p.Selects(n) {
			continue
		}
		switch {
		case !p.restricted():
			general = append(general, p)
		case use != UseWorkload || s.servesNamespace(p):
			restricted = append(restricted, p)
		}
	}
	return general, restricted
}

// Share is a set of pools that some of the pods on a node may use together.
type Share struct {
	Pools []*Pool
	// Namespaces are those of the node's pods that may use these pools and no
	// others, sorted; empty where it is all of them.
	Namespaces []string
}

// Shares returns the sets of pools that serve the node's workloads: one for each
// way in which the namespaces with pods on the node may choose (pools for all,
// and those for the namespace). A full pool starves its namespace even while
// another namespace's has room. On a node without pods it is the pools for all,
// if some namespace has nothing else; else all of them together, as where it was
// not read which namespaces have pods.
func (s *Snapshot) Shares(n *Node, v4 bool) []Share {
	general, restricted := s.poolsOn(n, v4, UseWorkload)
	switch {
	case len(general)+len(restricted) == 0:
		return nil
	case len(restricted) == 0:
		return []Share{{Pools: general}}
	case !s.Coverage.Read(ResNamespaces) || !s.Coverage.Read(ResPods):
		return []Share{{Pools: together(general, restricted)}}
	}
	if here := sharesOf(general, restricted, s.namespacesOn(n)); len(here) > 0 {
		return here
	}
	for _, share := range sharesOf(general, restricted, s.Namespaces) {
		if len(share.Pools) == len(general) {
			return []Share{{Pools: general}}
		}
	}
	return []Share{{Pools: together(general, restricted)}}
}

// sharesOf are the different sets that these namespaces may use.
func sharesOf(general, restricted []*Pool, namespaces []Namespace) []Share {
	byPools := map[string]int{}
	var out []Share
	for _, ns := range namespaces {
		mine := slices.Clone(general)
		for _, p := range restricted {
			if p.nsSel.Matches(ns.Labels) {
				mine = together(mine, []*Pool{p})
			}
		}
		if len(mine) == 0 {
			continue // another IPAM's, or pods that name their pool
		}
		key := ""
		for _, p := range mine {
			key += p.Name + "\x00"
		}
		if _, known := byPools[key]; !known {
			byPools[key] = len(out)
			out = append(out, Share{Pools: mine})
		}
		share := &out[byPools[key]]
		share.Namespaces = append(share.Namespaces, ns.Name)
	}
	return out
}

// together are the pools of both lists, each once, in the order of their CIDRs.
func together(a, b []*Pool) []*Pool {
	out := slices.Concat(a, b)
	slices.SortFunc(out, func(x, y *Pool) int { return cmp.Or(comparePrefix(x.CIDR, y.CIDR), cmp.Compare(x.Name, y.Name)) })
	return slices.Compact(out)
}

// namespacesOn are the namespaces of the node's pods that are given a pool by
// namespace and node: they have an address of the pod network or wait for one,
// and name no pool themselves.
func (s *Snapshot) namespacesOn(n *Node) []Namespace {
	var names []string
	for _, p := range s.PodsOn(n.Name) {
		if (p.Live() || p.WaitsForAddress()) && len(p.PoolPins) == 0 && len(p.RequestedIPs) == 0 {
			names = append(names, p.Namespace)
		}
	}
	slices.Sort(names)
	var out []Namespace
	for _, name := range slices.Compact(names) {
		if i, ok := slices.BinarySearchFunc(s.Namespaces, name, func(ns Namespace, name string) int { return cmp.Compare(ns.Name, name) }); ok {
			out = append(out, s.Namespaces[i])
		}
	}
	return out
}

// restricted reports whether the pool serves some namespaces only.
func (p *Pool) restricted() bool {
	return p.NamespaceSelector != "" && strings.TrimSpace(p.NamespaceSelector) != "all()"
}

// HiddenShares are the pools of which nobody can say whom they starve: no block
// of theirs is free while others beside them have some, these others or they
// serve some namespaces only, and which namespaces have pods where was not read.
func (s *Snapshot) HiddenShares() []*Pool {
	if s.Coverage.Read(ResNamespaces) && s.Coverage.Read(ResPods) {
		return nil
	}
	var out []*Pool
	for i := range s.Nodes {
		for _, v4 := range []bool{true, false} {
			general, restricted := s.poolsOn(&s.Nodes[i], v4, UseWorkload)
			if len(restricted) == 0 || len(general)+len(restricted) < 2 {
				continue
			}
			for _, p := range together(general, restricted) {
				if free, reclaimable := s.Free([]*Pool{p}, ""); free+reclaimable == 0 && !slices.Contains(out, p) {
					out = append(out, p)
				}
			}
		}
	}
	return out
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
// and nodes kept for host-network pods are not in use without such pods. n is
// one of the snapshot's own.
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
