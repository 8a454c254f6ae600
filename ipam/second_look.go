package ipam

import (
	"cmp"
	"net/netip"
	"slices"
	"sort"
	"strings"
)

// SecondLook compares lists that were read once more with a snapshot whose
// lists were read one after the other. What both looks show alike was so at the
// moment between them, all of it at the same time; what they do not is in
// motion, and with everything that hangs on it says nothing about faults.
//
// It keeps only what differs: the second lists pass through page by page. It is
// not safe for concurrent use.
type SecondLook struct {
	first *Snapshot
	// seen holds a mark for each object of the lists that were read again.
	seen map[Resource][]bool

	pods, handles, nodes map[string]bool
	ips                  map[netip.Addr]bool
	cidrs                map[netip.Prefix]bool
}

// NewSecondLook begins a second look at s, of which the resources are read again.
func NewSecondLook(s *Snapshot, again []Resource) *SecondLook {
	l := &SecondLook{
		first: s, seen: map[Resource][]bool{},
		pods: map[string]bool{}, handles: map[string]bool{}, nodes: map[string]bool{},
		ips: map[netip.Addr]bool{}, cidrs: map[netip.Prefix]bool{},
	}
	for _, r := range again {
		switch r {
		case ResPods:
			l.seen[r] = make([]bool, len(s.Pods))
		case ResBlocks:
			l.seen[r] = make([]bool, len(s.Blocks))
		case ResAffinities:
			l.seen[r] = make([]bool, len(s.Affinities))
		case ResHandles:
			l.seen[r] = make([]bool, len(s.Handles))
		case ResNodes:
			l.seen[r] = make([]bool, len(s.Nodes))
		default: // nothing else is looked at twice
		}
	}
	return l
}

// MovingResources are those that change all the time while they are read, and
// that a SecondLook compares.
func MovingResources() []Resource {
	return []Resource{ResBlocks, ResAffinities, ResHandles, ResNodes, ResPods}
}

// find returns the first look's copy of an object and marks it as seen.
func find[T any](l *SecondLook, r Resource, list []T, order func(*T) int) *T {
	i, ok := sort.Find(len(list), func(i int) int { return -order(&list[i]) })
	if !ok {
		return nil
	}
	if seen := l.seen[r]; seen != nil {
		seen[i] = true
	}
	return &list[i]
}

// Pods takes some of the pods of the second look.
func (l *SecondLook) Pods(list []Pod) {
	for i := range list {
		p := &list[i]
		old := find(l, ResPods, l.first.Pods, func(o *Pod) int {
			return CompareKeys(o.Namespace, o.Name, p.Namespace, p.Name)
		})
		if old == nil || !samePod(old, p) {
			l.movePod(old)
			l.movePod(p)
		}
	}
}

func samePod(a, b *Pod) bool {
	return a.UID == b.UID && a.NodeName == b.NodeName && a.HostNetwork == b.HostNetwork && a.Phase == b.Phase &&
		a.Deleting == b.Deleting && a.Released == b.Released &&
		slices.Equal(a.StatusIPs, b.StatusIPs) && slices.Equal(a.AnnotatedIPs, b.AnnotatedIPs)
}

func (l *SecondLook) movePod(p *Pod) {
	if p == nil {
		return
	}
	l.pods[p.Key()] = true
	for _, list := range [][]netip.Addr{p.StatusIPs, p.AnnotatedIPs} {
		for _, ip := range list {
			l.ips[ip] = true
		}
	}
}

// Blocks takes some of the blocks of the second look.
func (l *SecondLook) Blocks(list []Block) {
	for i := range list {
		b := &list[i]
		old := find(l, ResBlocks, l.first.Blocks, func(o *Block) int {
			return cmp.Or(comparePrefix(o.CIDR, b.CIDR), cmp.Compare(o.Name, b.Name))
		})
		switch {
		case old == nil || old.UID != b.UID || old.Owner != b.Owner:
			l.moveBlock(old)
			l.moveBlock(b)
		case old.ResourceVersion == "" || old.ResourceVersion != b.ResourceVersion:
			l.compareAllocations(old, b)
		}
	}
}

func (l *SecondLook) compareAllocations(a, b *Block) {
	before := make(map[netip.Addr]*Attribute, len(a.Slots))
	for x := range a.Allocations() {
		before[x.IP] = x.Attr
	}
	for x := range b.Allocations() {
		if old := before[x.IP]; old != nil && *old == *x.Attr {
			delete(before, x.IP)
			continue
		}
		l.moveAllocation(x.IP, x.Attr)
	}
	for ip, attr := range before {
		l.moveAllocation(ip, attr)
	}
}

func (l *SecondLook) moveBlock(b *Block) {
	if b == nil {
		return
	}
	l.cidrs[b.CIDR] = true
	for a := range b.Allocations() {
		l.moveAllocation(a.IP, a.Attr)
	}
}

func (l *SecondLook) moveAllocation(ip netip.Addr, a *Attribute) {
	l.ips[ip] = true
	if a.Pod != "" {
		l.pods[a.Namespace+"/"+a.Pod] = true
	}
	if a.Handle != "" {
		l.handles[strings.ToLower(a.Handle)] = true
	}
}

// Affinities takes some of the affinities of the second look.
func (l *SecondLook) Affinities(list []Affinity) {
	for i := range list {
		a := &list[i]
		old := find(l, ResAffinities, l.first.Affinities, func(o *Affinity) int {
			return cmp.Or(comparePrefix(o.CIDR, a.CIDR), cmp.Compare(o.Node, a.Node), cmp.Compare(o.Name, a.Name))
		})
		if old == nil || old.UID != a.UID || old.State != a.State || old.Type != a.Type {
			l.cidrs[a.CIDR] = true
		}
	}
}

// Handles takes some of the handles of the second look.
func (l *SecondLook) Handles(list []Handle) {
	for i := range list {
		h := &list[i]
		old := find(l, ResHandles, l.first.Handles, func(o *Handle) int { return cmp.Compare(o.Name, h.Name) })
		if old == nil || old.ID != h.ID || old.Count != h.Count || !old.Created.Equal(h.Created) {
			l.handles[strings.ToLower(h.ID)] = true
		}
	}
}

// Nodes takes some of the nodes of the second look.
func (l *SecondLook) Nodes(list []Node) {
	for i := range list {
		n := &list[i]
		old := find(l, ResNodes, l.first.Nodes, func(o *Node) int { return cmp.Compare(o.Name, n.Name) })
		switch {
		case old == nil || old.UID != n.UID || old.Deleting != n.Deleting:
			l.nodes[n.Name] = true
		case !slices.Equal(old.Tunnels, n.Tunnels):
			l.moveTunnels(old)
		}
		if old == nil || !slices.Equal(old.Tunnels, n.Tunnels) {
			l.moveTunnels(n)
		}
	}
}

func (l *SecondLook) moveTunnels(n *Node) {
	for _, t := range n.Tunnels {
		l.ips[t.IP] = true
	}
}

// Settled returns the first look without what is in motion and what hangs on
// it, or the first look itself where both agree. Call it when the lists have
// been read to their ends.
func (l *SecondLook) Settled() *Snapshot {
	for i, seen := range l.seen[ResPods] {
		if !seen {
			l.movePod(&l.first.Pods[i])
		}
	}
	for i, seen := range l.seen[ResBlocks] {
		if !seen {
			l.moveBlock(&l.first.Blocks[i])
		}
	}
	for i, seen := range l.seen[ResAffinities] {
		if !seen {
			l.cidrs[l.first.Affinities[i].CIDR] = true
		}
	}
	for i, seen := range l.seen[ResHandles] {
		if !seen {
			l.handles[strings.ToLower(l.first.Handles[i].ID)] = true
		}
	}
	for i, seen := range l.seen[ResNodes] {
		if !seen {
			l.nodes[l.first.Nodes[i].Name] = true
		}
	}
	if l.moving() == 0 {
		return l.first
	}
	// What hangs on a moving thing moves, too, until nothing is added.
	for before := 0; before != l.moving(); {
		before = l.moving()
		l.spread()
	}
	return l.without()
}

func (l *SecondLook) moving() int {
	return len(l.pods) + len(l.handles) + len(l.nodes) + len(l.ips) + len(l.cidrs)
}

// spread carries motion one step: from nodes to their blocks and tunnels, from
// blocks to their addresses, and between an address, its pod and its handle.
func (l *SecondLook) spread() {
	s := l.first
	for i := range s.Nodes {
		if l.nodes[s.Nodes[i].Name] {
			l.moveTunnels(&s.Nodes[i])
		}
	}
	for i := range s.Affinities {
		if a := &s.Affinities[i]; l.nodes[s.KubernetesName(a.Node)] {
			l.cidrs[a.CIDR] = true
		}
	}
	for i := range s.Blocks {
		b := &s.Blocks[i]
		if b.Owner.IsHost() && l.nodes[s.KubernetesName(b.Owner.Name)] {
			l.cidrs[b.CIDR] = true
		}
		whole := l.cidrs[b.CIDR]
		for a := range b.Allocations() {
			if whole || l.movesAllocation(a) {
				l.moveAllocation(a.IP, a.Attr)
			}
		}
	}
	for i := range s.Pods {
		if p := &s.Pods[i]; l.movesPod(p) {
			l.movePod(p)
		}
	}
}

func (l *SecondLook) movesAllocation(a Allocation) bool {
	return l.ips[a.IP] ||
		a.Attr.Handle != "" && l.handles[strings.ToLower(a.Attr.Handle)] ||
		a.Attr.Node != "" && l.nodes[l.first.KubernetesName(a.Attr.Node)] ||
		a.Attr.Pod != "" && l.pods[a.Attr.Namespace+"/"+a.Attr.Pod]
}

func (l *SecondLook) movesPod(p *Pod) bool {
	if l.nodes[p.NodeName] || l.pods[p.Key()] {
		return true
	}
	for _, list := range [][]netip.Addr{p.StatusIPs, p.AnnotatedIPs} {
		if slices.ContainsFunc(list, l.movesIP) {
			return true
		}
	}
	return false
}

func (l *SecondLook) movesIP(ip netip.Addr) bool {
	if l.ips[ip] {
		return true
	}
	if len(l.cidrs) == 0 {
		return false
	}
	b := l.first.BlockOf(ip)
	return b != nil && l.cidrs[b.CIDR]
}

// without builds the snapshot of what rests.
func (l *SecondLook) without() *Snapshot {
	out := *l.first
	out.ix = index{}
	out.Pods = keep(l.first.Pods, func(p *Pod) bool { return !l.pods[p.Key()] })
	out.Affinities = keep(l.first.Affinities, func(a *Affinity) bool { return !l.cidrs[a.CIDR] })
	out.Handles = keep(l.first.Handles, func(h *Handle) bool { return !l.handles[strings.ToLower(h.ID)] })
	out.Blocks = keep(l.first.Blocks, func(b *Block) bool { return !l.cidrs[b.CIDR] })
	for i := range out.Blocks {
		b := &out.Blocks[i]
		moves := func(s Slot) bool { return l.ips[addrAt(b.CIDR, uint64(s.Ordinal))] }
		if slices.ContainsFunc(b.Slots, moves) {
			b.Slots = slices.DeleteFunc(slices.Clone(b.Slots), moves)
		}
	}
	out.Nodes = keep(l.first.Nodes, func(n *Node) bool { return !l.nodes[n.Name] })
	for i := range out.Nodes {
		n := &out.Nodes[i]
		moves := func(t TunnelAddress) bool { return l.ips[t.IP] }
		if slices.ContainsFunc(n.Tunnels, moves) {
			n.Tunnels = slices.DeleteFunc(slices.Clone(n.Tunnels), moves)
		}
	}
	// Sealing sorts and completes what it finds.
	out.Pools, out.Tables = slices.Clone(out.Pools), slices.Clone(out.Tables)
	return out.Seal()
}

func keep[T any](list []T, rests func(*T) bool) []T {
	out := make([]T, 0, len(list))
	for i := range list {
		if rests(&list[i]) {
			out = append(out, list[i])
		}
	}
	return out
}
