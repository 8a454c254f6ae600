package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"ipamaudit/checks"
	"ipamaudit/ipam"
)

// Pool is what is known of a pool.
type Pool struct {
	PoolRef
	BlockSize         int       `json:"blockSize"`
	NodeSelector      string    `json:"nodeSelector"`
	NamespaceSelector string    `json:"namespaceSelector,omitempty"`
	AllowedUses       []string  `json:"allowedUses"`
	Manual            bool      `json:"manual"`
	DisableBGPExport  bool      `json:"disableBGPExport"`
	NotAllocatable    string    `json:"notAllocatable,omitempty"`
	Deleting          bool      `json:"deleting,omitempty"`
	Created           time.Time `json:"created,omitzero"`

	Usage Usage `json:"usage"`
	// Overlaps are other pools that share addresses with it.
	Overlaps []string `json:"overlaps"`
	// NodesUnread is true where nodes were not read.
	NodesUnread bool `json:"nodesUnread,omitempty"`
	// BlocksUnread is true where blocks were not read: then usage and lacking tell nothing.
	BlocksUnread bool `json:"blocksUnread,omitempty"`
	// Nodes are those it selects, InUse of them need addresses, Lacking of
	// these own no block of it.
	Nodes   int      `json:"nodes"`
	InUse   int      `json:"inUse"`
	Lacking []string `json:"lacking"`
	// Shares are the owners of its blocks, those with most blocks first.
	Shares []Share `json:"shares"`
}

// Usage is a pool's arithmetic; counts are capped at 2^53.
type Usage struct {
	Addresses   uint64 `json:"addresses"`
	Reserved    uint64 `json:"reserved"`
	Allocated   uint64 `json:"allocated"`
	CoolingDown uint64 `json:"coolingDown"`
	Available   uint64 `json:"available"`
	Blocks      uint64 `json:"blocks"`
	Claimed     uint64 `json:"blocksClaimed"`
	Free        uint64 `json:"blocksFree"`
	Reclaimable uint64 `json:"blocksReclaimable"`
}

// Share is what one owner has of a pool.
type Share struct {
	Owner   string         `json:"owner"`
	OwnerIs string         `json:"ownerIs"`
	Blocks  []netip.Prefix `json:"blocks"`
	Booked  int            `json:"booked"`
	Lent    int            `json:"lent"`
	// Unknown are booked without anybody knowing who uses them.
	Unknown int    `json:"unknown,omitempty"`
	Room    uint64 `json:"room"`
}

func (in Input) explainPool(s *Story) {
	var p *ipam.Pool
	for i := range in.Pools {
		if in.Pools[i].Name == s.Subject.Name {
			p = &in.Pools[i]
		}
	}
	u := in.Usage(p)
	out := Pool{
		PoolRef: *in.poolRef(p), BlockSize: p.BlockSize, NodeSelector: cmp.Or(p.NodeSelector, "all()"), NamespaceSelector: p.NamespaceSelector,
		AllowedUses: uses(p.AllowedUses), Manual: p.Manual, DisableBGPExport: p.DisableBGPExport, NotAllocatable: p.NotAllocatable,
		Deleting: p.Deleting, NodesUnread: !in.Coverage.Read(ipam.ResNodes), BlocksUnread: !in.Coverage.Read(ipam.ResBlocks), Overlaps: []string{}, Lacking: []string{},
		Usage: Usage{u.Addresses, u.Reserved, u.Allocated, u.CoolingDown, u.Available, u.Blocks, u.Claimed, u.Free, u.Reclaimable},
	}
	if !p.Created.IsZero() {
		out.Created = p.Created.UTC()
	}
	for i := range in.Pools {
		if o := &in.Pools[i]; o != p && o.CIDR.Overlaps(p.CIDR) {
			out.Overlaps = append(out.Overlaps, o.Name+" "+o.CIDR.String())
		}
	}
	workload := p.AllowedUses.Has(ipam.UseWorkload)
	for i := range in.Nodes {
		n := &in.Nodes[i]
		if !p.Selects(n) {
			continue
		}
		out.Nodes++
		if !in.InUse(n) {
			continue
		}
		out.InUse++
		// Pods may get blocks of any pool that serves the node.
		serving := in.Serving(n, p.IsV4(), ipam.UseWorkload)
		if workload && !out.BlocksUnread && slices.Contains(serving, p) && len(in.OwnsIn(n.Name, serving)) == 0 {
			out.Lacking = append(out.Lacking, n.Name)
		}
	}
	out.Shares = in.shares(p)
	s.Pool = &out
	s.Findings = in.concern(func(kind, _, name string, isSubject bool) bool {
		switch kind {
		case checks.KindPool:
			return name == p.Name || name == p.CIDR.String()
		case checks.KindBlock:
			c, err := netip.ParsePrefix(name)
			return isSubject && err == nil && ipam.Contains(p.CIDR, c)
		}
		return false
	})
	s.Verdict = poolVerdict(&out, in)
	for _, n := range out.Lacking {
		s.see(checks.KindNode, n)
	}
}

func uses(u ipam.Uses) []string {
	out := []string{}
	for _, one := range []struct {
		use  ipam.Uses
		name string
	}{{ipam.UseWorkload, "Workload"}, {ipam.UseTunnel, "Tunnel"}, {ipam.UseLoadBalancer, "LoadBalancer"}} {
		if u.Has(one.use) {
			out = append(out, one.name)
		}
	}
	return out
}

func (in Input) shares(p *ipam.Pool) []Share {
	byOwner := map[ipam.Owner]*Share{}
	for i := range in.Blocks {
		b := &in.Blocks[i]
		if b.Pool() != p {
			continue
		}
		sh := byOwner[b.Owner]
		if sh == nil {
			sh = &Share{Owner: b.Owner.Name, OwnerIs: in.ownerIs(b.Owner), Blocks: []netip.Prefix{}}
			byOwner[b.Owner] = sh
		}
		sh.Blocks = append(sh.Blocks, b.CIDR)
		sh.Booked += len(b.Slots)
		sh.Room += in.Room(b)
		owner := in.ownerNode(in.blockRef(b))
		for a := range b.Allocations() {
			switch h := in.Holder(a); {
			case h.Kind == ipam.HeldUnknown:
				sh.Unknown++
			case h.Kind.Live() && h.NodeName != owner:
				sh.Lent++
			}
		}
	}
	out := make([]Share, 0, len(byOwner))
	for _, sh := range byOwner {
		out = append(out, *sh)
	}
	slices.SortFunc(out, func(a, b Share) int {
		return cmp.Or(cmp.Compare(len(b.Blocks), len(a.Blocks)), cmp.Compare(a.Owner, b.Owner))
	})
	return out
}

func poolVerdict(p *Pool, in Input) Verdict {
	v := Verdict{Status: OK}
	var says []string
	switch {
	case p.Deleting:
		says = append(says, "being deleted")
	case p.NotAllocatable != "":
		says = append(says, "not allocatable ("+p.NotAllocatable+")")
	case p.Disabled:
		says = append(says, "disabled: what is booked stays, nothing new is given out")
	case p.Manual:
		says = append(says, "serves only who names it")
	}
	if !slices.Contains(p.AllowedUses, "Workload") {
		says = append(says, "not for pods")
	}
	v.Text = fmt.Sprintf("%s of %s usable addresses and %s of %s blocks are taken",
		figure(p.Usage.Allocated+p.Usage.CoolingDown), figure(p.Usage.Addresses-p.Usage.Reserved), figure(p.Usage.Claimed), figure(p.Usage.Blocks))
	if len(says) > 0 {
		v.Status = Info
		v.Text = upper(strings.Join(says, ", ")) + ". " + v.Text
	}
	if p.Usage.Free == 0 {
		v.Text += ", no block is free"
		if p.Usage.Reclaimable > 0 {
			v.Text += fmt.Sprintf(" (%s could be taken over)", plural(int(min(p.Usage.Reclaimable, 1<<30)), "block"))
		}
	}
	v.Text += "."
	if n := len(p.Lacking); n > 0 {
		v.Text += fmt.Sprintf(" %s in use without a block: %s.", plural(n, "node"), names(p.Lacking, 5))
		if p.Usage.Free+p.Usage.Reclaimable == 0 {
			v.Status = Problem
		}
	}
	if !in.Coverage.Read(ipam.ResBlocks) {
		v = Verdict{Doubt, "Blocks were not read, so how much of the pool is taken is not known."}
	}
	return v
}

// figure prints a count with groups of three; the cap as "over 9e15".
func figure(n uint64) string {
	if n >= ipam.MaxCount {
		return "over 9e15"
	}
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
