package ipam

import (
	"net/netip"
	"slices"
	"time"

	"go4.org/netipx"
)

// PoolUsage is the arithmetic of one pool. Every count is capped at MaxCount.
type PoolUsage struct {
	// Addresses in the pool; Reserved of them are kept back by IPReservations
	// and not allocated; Allocated are booked (cool-down excluded).
	Addresses, Reserved, Allocated, CoolingDown, Available uint64
	// Blocks the pool can be cut into; Claimed of them overlap an IPAMBlock;
	// Free are neither claimed nor wholly reserved.
	Blocks, Claimed, Free uint64
	// Reclaimable are claimed blocks that a node in need may take over: another
	// node's empty block claimed more than a minute ago (v3.32,
	// libcalico-go/lib/ipam: EmptyBlockMinReclaimAge). Keyed by owner, because a
	// node cannot reclaim from itself.
	Reclaimable      uint64
	ReclaimableOwned map[string]uint64
}

// Saturated reports whether a count was capped.
func (u PoolUsage) Saturated() bool { return u.Addresses >= MaxCount }

// Usable is the number of addresses that can be given out at all.
func (u PoolUsage) Usable() uint64 { return satSub(u.Addresses, u.Reserved) }

// Usage returns the arithmetic of the pool, computed by Seal.
func (s *Snapshot) Usage(p *Pool) PoolUsage { return s.ix.usage[p] }

// buildUsage computes every pool's figures.
func (s *Snapshot) buildUsage() {
	s.ix.usage = make(map[*Pool]PoolUsage, len(s.Pools))
	for i := range s.Pools {
		p := &s.Pools[i]
		s.ix.usage[p] = s.poolUsage(p)
	}
}

func (s *Snapshot) poolUsage(p *Pool) PoolUsage {
	u := PoolUsage{
		Addresses:        prefixSize(p.CIDR),
		Blocks:           pow2(p.BlockSize - p.CIDR.Bits()),
		ReclaimableOwned: map[string]uint64{},
	}
	claimed := slotSet{}
	reservedAllocated := uint64(0)
	for _, b := range s.blocksWithin(p.CIDR) {
		claimed.add(p, b.CIDR)
		if b.pool != p {
			continue
		}
		for a := range b.Allocations() {
			if a.Attr.CoolingDown() {
				u.CoolingDown++
			} else {
				u.Allocated++
			}
			if s.Reserved(a.IP) {
				reservedAllocated++
			}
		}
		if s.Reclaimable(b) {
			u.Reclaimable++
			u.ReclaimableOwned[s.KubernetesName(b.Owner.Name)]++
		}
	}
	u.Claimed = claimed.count()
	var reservedSlots uint64
	for _, r := range s.ix.reserved {
		from, to, ok := overlap(p.CIDR, r)
		if !ok {
			continue
		}
		u.Reserved = satAdd(u.Reserved, satAdd(toU128(to).sub(toU128(from)).count(), 1))
		reservedSlots = satAdd(reservedSlots, claimed.unclaimedInside(p, from, to))
	}
	u.Reserved = satSub(u.Reserved, reservedAllocated)
	u.Free = satSub(satSub(u.Blocks, u.Claimed), reservedSlots)
	u.Available = satSub(satSub(u.Usable(), u.Allocated), u.CoolingDown)
	return u
}

// Reserved reports whether an IPReservation covers ip.
func (s *Snapshot) Reserved(ip netip.Addr) bool {
	i, _ := slices.BinarySearchFunc(s.ix.reserved, ip, func(r netipx.IPRange, ip netip.Addr) int { return r.To().Compare(ip) })
	return i < len(s.ix.reserved) && s.ix.reserved[i].Contains(ip)
}

// ReservedIn counts the reserved addresses of p that are not allocated.
func (s *Snapshot) ReservedIn(b *Block) uint64 {
	n := uint64(0)
	for _, r := range s.ix.reserved {
		if from, to, ok := overlap(b.CIDR, r); ok {
			n = satAdd(n, satAdd(toU128(to).sub(toU128(from)).count(), 1))
		}
	}
	for a := range b.Allocations() {
		if s.Reserved(a.IP) {
			n--
		}
	}
	return n
}

// Room is the number of addresses of the block that can still be given out.
func (s *Snapshot) Room(b *Block) uint64 {
	return satSub(satSub(b.Size(), uint64(len(b.Slots))), s.ReservedIn(b))
}

// emptyBlockMinReclaimAge is Calico's guard against taking a block that its
// owner has just claimed (libcalico-go/lib/ipam/ipam.go).
const emptyBlockMinReclaimAge = time.Minute

// Reclaimable reports whether another node may take the block over: Calico
// v3.32 or later, empty, owned by a host, claimed over a minute ago, and with
// its affinity in place.
func (s *Snapshot) Reclaimable(b *Block) bool {
	if !s.Info.Version.Has(EmptyBlocksReclaimed) || !b.Owner.IsHost() || !b.Empty() {
		return false
	}
	since := b.ClaimTime
	if since.IsZero() {
		since = b.Created
	}
	if !since.IsZero() && s.AsOf.Sub(since) < emptyBlockMinReclaimAge {
		return false
	}
	if !s.Coverage.Read(ResAffinities) {
		return true
	}
	return slices.ContainsFunc(s.AffinitiesOf(b.CIDR), func(a *Affinity) bool { return a.Node == b.Owner.Name })
}

// blocksWithin returns the blocks that overlap cidr: those inside it, and the
// rare larger one around it.
func (s *Snapshot) blocksWithin(cidr netip.Prefix) []*Block {
	from, _ := slices.BinarySearchFunc(s.Blocks, cidr.Addr(), func(b Block, a netip.Addr) int { return b.CIDR.Addr().Compare(a) })
	var out []*Block
	for i := from; i < len(s.Blocks) && cidr.Contains(s.Blocks[i].CIDR.Addr()); i++ {
		out = append(out, &s.Blocks[i])
	}
	for _, n := range s.ix.blockLengths {
		if n >= cidr.Bits() {
			continue
		}
		if p, err := cidr.Addr().Prefix(n); err == nil && s.ix.blocks[p] != nil {
			out = append(out, s.ix.blocks[p])
		}
	}
	return out
}

// overlap is the part of r inside p.
func overlap(p netip.Prefix, r netipx.IPRange) (from, to netip.Addr, ok bool) {
	if p.Addr().BitLen() != r.From().BitLen() {
		return from, to, false
	}
	from, to = p.Addr(), lastAddr(p)
	if r.From().Compare(from) > 0 {
		from = r.From()
	}
	if r.To().Compare(to) < 0 {
		to = r.To()
	}
	return from, to, from.Compare(to) <= 0
}

// slotSet is the set of a pool's block-sized slots that blocks occupy.
// Blocks of foreign sizes may cover several slots or share one.
type slotSet struct{ spans []slotSpan }

type slotSpan struct{ first, last u128 }

func slotOf(p *Pool, a netip.Addr) u128 {
	return toU128(a).sub(toU128(p.CIDR.Addr())).rsh(p.CIDR.Addr().BitLen() - p.BlockSize)
}

func (s *slotSet) add(p *Pool, block netip.Prefix) {
	from, to, ok := overlap(p.CIDR, netipx.RangeOfPrefix(block))
	if !ok {
		return
	}
	span := slotSpan{slotOf(p, from), slotOf(p, to)}
	// Blocks come in address order: a span can only touch the last one. The
	// larger block around the pool comes last and swallows everything.
	for n := len(s.spans); n > 0; n = len(s.spans) {
		last := &s.spans[n-1]
		if span.first.cmp(last.last) > 0 {
			break
		}
		if last.first.cmp(span.first) <= 0 {
			if span.last.cmp(last.last) > 0 {
				last.last = span.last
			}
			return
		}
		if last.last.cmp(span.last) > 0 {
			span.last = last.last
		}
		s.spans = s.spans[:n-1]
	}
	s.spans = append(s.spans, span)
}

func (s *slotSet) count() uint64 {
	n := uint64(0)
	for _, sp := range s.spans {
		n = satAdd(n, satAdd(sp.last.sub(sp.first).count(), 1))
	}
	return n
}

// unclaimedInside counts the slots that lie wholly in from..to and are not in the set.
func (s *slotSet) unclaimedInside(p *Pool, from, to netip.Addr) uint64 {
	shift := p.CIDR.Addr().BitLen() - p.BlockSize
	first, last := slotOf(p, from), slotOf(p, to)
	base := toU128(p.CIDR.Addr())
	// Drop the slots at both ends that are only partly reserved.
	if off := toU128(from).sub(base); off.rsh(shift).lsh(shift) != off {
		first = first.add(1)
	}
	if off := toU128(to).sub(base).add(1); off.rsh(shift).lsh(shift) != off {
		if last.cmp(u128{}) == 0 {
			return 0
		}
		last = last.sub(u128{0, 1})
	}
	if first.cmp(last) > 0 {
		return 0
	}
	n := satAdd(last.sub(first).count(), 1)
	for _, sp := range s.spans {
		a, b := sp.first, sp.last
		if first.cmp(a) > 0 {
			a = first
		}
		if last.cmp(b) < 0 {
			b = last
		}
		if a.cmp(b) <= 0 {
			n = satSub(n, satAdd(b.sub(a).count(), 1))
		}
	}
	return n
}
