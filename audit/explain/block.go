package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"ipamaudit/checks"
	"ipamaudit/ipam"
)

// Block is what is known of a block.
type Block struct {
	CIDR netip.Prefix `json:"cidr"`
	// Exists is false where only affinities name the block.
	Exists  bool      `json:"exists"`
	Name    string    `json:"name,omitempty"`
	Pool    *PoolRef  `json:"pool"`
	Owner   string    `json:"owner"`
	OwnerIs string    `json:"ownerIs"`
	Claimed time.Time `json:"claimed,omitzero"`
	// Affinities are the nodes' claims to exactly this block.
	Affinities []Affinity `json:"affinities"`
	// Overlaps are other blocks that share addresses with it; Malformed what
	// Calico would reject it for.
	Overlaps  []netip.Prefix `json:"overlaps"`
	Malformed []string       `json:"malformed"`

	Size      uint64 `json:"size"`
	Allocated int    `json:"allocated"`
	Reserved  uint64 `json:"reserved"`
	Room      uint64 `json:"room"`
	// Map has a sign for each address, see Legend; empty for blocks beyond 4096.
	Map string `json:"map,omitempty"`
	// Signs are the meanings of the signs that the map has.
	Signs []Sign `json:"signs"`
	// ByNode says on which nodes its addresses are used.
	ByNode []NodeCount `json:"byNode"`
	// Holders lists every booked address.
	Holders []HolderOf `json:"holders"`
}

// Affinity is a node's claim to a block.
type Affinity struct {
	Name    string    `json:"name"`
	Node    string    `json:"node"`
	State   string    `json:"state"`
	Created time.Time `json:"created,omitzero"`
	// OwnerToo is true where the block names the same owner.
	OwnerToo bool `json:"ownerToo"`
}

// Sign is a kind of holder, its sign in the map, and how many there are.
type Sign struct {
	Sign  string `json:"sign"`
	Means string `json:"means"`
	Count int    `json:"count"`
}

// NodeCount counts addresses used on a node.
type NodeCount struct {
	Node  string `json:"node"`
	Count int    `json:"count"`
}

// HolderOf is a booked address and who has it.
type HolderOf struct {
	IP   netip.Addr `json:"ip"`
	Sign string     `json:"sign"`
	Who  string     `json:"who"`
	Node string     `json:"node,omitempty"`
}

// maxMap is the largest block that is drawn.
const maxMap = 4096

// The signs of the map.
const (
	signOwn      = '#'
	signLent     = 'o'
	signTunnel   = 't'
	signWaiting  = 'w'
	signKept     = 'k'
	signLeaked   = 'x'
	signCooling  = 'c'
	signUnknown  = '?'
	signReserved = 'r'
	signStray    = '!'
	signFree     = '.'
)

// legend lists the signs in the order in which people read them.
func legend() []Sign {
	return []Sign{
		{Sign: string(signOwn), Means: "pod of the owner"},
		{Sign: string(signLent), Means: "lent to another node"},
		{Sign: string(signTunnel), Means: "tunnel"},
		{Sign: string(signWaiting), Means: "for a pod being started"},
		{Sign: string(signKept), Means: "kept (service, VM, Windows, by hand)"},
		{Sign: string(signLeaked), Means: "leaked"},
		{Sign: string(signCooling), Means: "cooling down"},
		{Sign: string(signUnknown), Means: "booked, holder not known"},
		{Sign: string(signReserved), Means: "reserved"},
		{Sign: string(signStray), Means: "used and not booked"},
		{Sign: string(signFree), Means: "free"},
	}
}

func (in Input) explainBlock(s *Story) {
	cidr, _ := netip.ParsePrefix(s.Subject.Name)
	b := in.BlockAt(cidr)
	out := Block{
		CIDR: cidr, Exists: b != nil, Pool: in.poolRef(in.PoolOf(cidr)), OwnerIs: "nobody",
		Affinities: []Affinity{}, Overlaps: []netip.Prefix{}, Malformed: []string{}, Signs: []Sign{}, ByNode: []NodeCount{}, Holders: []HolderOf{},
	}
	for i := range in.Blocks {
		if o := &in.Blocks[i]; o.CIDR.Overlaps(cidr) && o.CIDR != cidr {
			out.Overlaps = append(out.Overlaps, o.CIDR)
		}
	}
	owner := ""
	if b != nil {
		owner = b.Owner.Name
		out.Name, out.Owner, out.OwnerIs = b.Name, owner, in.ownerIs(b.Owner)
		out.Claimed = b.ClaimTime.UTC()
		if b.ClaimTime.IsZero() {
			out.Claimed = b.Created.UTC()
		}
		if b.ClaimTime.IsZero() && b.Created.IsZero() {
			out.Claimed = time.Time{}
		}
		out.Malformed = append(out.Malformed, b.Malformed...)
		out.Size, out.Allocated, out.Reserved, out.Room = b.Size(), len(b.Slots), in.ReservedIn(b), in.Room(b)
		in.drawBlock(b, &out)
	}
	for _, a := range in.AffinitiesOf(cidr) {
		out.Affinities = append(out.Affinities, Affinity{a.Name, a.Node, stateOf(a), a.Created.UTC(), a.Node == owner})
	}
	s.Block = &out
	s.Findings = in.concern(func(kind, _, name string, _ bool) bool {
		if kind == checks.KindBlock {
			return name == cidr.String()
		}
		ip, err := netip.ParseAddr(name)
		return kind == checks.KindIP && err == nil && cidr.Contains(ip)
	})
	s.Verdict = blockVerdict(&out, in)
	s.see(checks.KindNode, in.ownerNode(in.blockRef(b)))
	for _, n := range out.ByNode {
		s.see(checks.KindNode, n.Node)
	}
	if out.Pool != nil {
		s.see(checks.KindPool, out.Pool.Name)
	}
}

// holderSign says who has a booked address: the sign, words, and the node.
func (in Input) holderSign(b *ipam.Block, a ipam.Allocation) HolderOf {
	h := in.Holder(a)
	at := a.Attr
	out := HolderOf{IP: a.IP, Node: h.NodeName, Sign: string(signKept)}
	owner := in.ownerNode(in.blockRef(b))
	switch {
	case h.Kind == ipam.HeldByTunnel:
		out.Sign, out.Who = string(signTunnel), "tunnel of "+h.NodeName
	case h.Kind.Live():
		out.Sign, out.Who = string(signLent), h.Pod.Key()
	case h.Kind == ipam.HeldByWaitingPod:
		out.Sign, out.Who = string(signWaiting), h.Pod.Key()
	case h.Kind == ipam.HeldByVM:
		out.Who = "virtual machine " + at.Namespace + "/" + at.VMI
	case h.Kind == ipam.HeldByService:
		out.Who, out.Node = "Service "+cmp.Or(at.Service, "of type LoadBalancer"), ""
	case h.Kind == ipam.HeldByWindows:
		out.Who = "Windows HNS"
	case h.Kind == ipam.HeldCoolingDown:
		out.Sign, out.Who = string(signCooling), "nobody, released"
	case h.Kind == ipam.HeldUnowned:
		out.Who = "handle " + at.Handle
	case h.Kind.Leaked():
		out.Sign, out.Who = string(signLeaked), "nobody, booked for "+bookedName(at)
	default:
		out.Sign, out.Who = string(signUnknown), "booked for "+bookedName(at)
	}
	if h.Kind.Live() && h.NodeName == owner {
		if out.Sign == string(signLent) {
			out.Sign = string(signOwn)
		}
	} else if h.Kind == ipam.HeldByTunnel {
		out.Sign = string(signLent)
	}
	return out
}

func bookedName(at *ipam.Attribute) string {
	switch {
	case at.Pod != "":
		return at.Namespace + "/" + at.Pod
	case at.Tunnel():
		return "a tunnel of " + cmp.Or(at.Node, at.Handle)
	default:
		return cmp.Or(at.Handle, "nobody")
	}
}

// drawBlock fills in the map, the signs, and who has what.
func (in Input) drawBlock(b *ipam.Block, out *Block) {
	signs := map[string]int{}
	byNode := map[string]int{}
	at := map[netip.Addr]string{}
	for a := range b.Allocations() {
		h := in.holderSign(b, a)
		out.Holders = append(out.Holders, h)
		at[a.IP] = h.Sign
		switch h.Sign {
		case string(signOwn), string(signLent), string(signTunnel):
			byNode[h.Node]++
		}
	}
	if out.Size <= maxMap {
		var picture []byte
		for i, ip := uint64(0), b.CIDR.Addr(); i < out.Size; i, ip = i+1, ip.Next() {
			sign := at[ip]
			switch {
			case sign != "":
			case len(in.PodsAt(ip)) > 0 || len(in.TunnelsAt(ip)) > 0:
				sign = string(signStray)
			case in.Reserved(ip):
				sign = string(signReserved)
			default:
				sign = string(signFree)
			}
			picture = append(picture, sign...)
			signs[sign]++
		}
		out.Map = string(picture)
	} else {
		for _, s := range at {
			signs[s]++
		}
	}
	for _, s := range legend() {
		if s.Count = signs[s.Sign]; s.Count > 0 {
			out.Signs = append(out.Signs, s)
		}
	}
	out.ByNode = sortedCounts(byNode)
}

// sortedCounts lists the largest first.
func sortedCounts(m map[string]int) []NodeCount {
	out := make([]NodeCount, 0, len(m))
	for n, c := range m {
		out = append(out, NodeCount{n, c})
	}
	slices.SortFunc(out, func(a, b NodeCount) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Node, b.Node)) })
	return out
}

func (b *Block) signCount(sign rune) int {
	for _, s := range b.Signs {
		if s.Sign == string(sign) {
			return s.Count
		}
	}
	return 0
}

func blockVerdict(b *Block, in Input) Verdict {
	switch {
	case b.Exists:
	case !in.Coverage.Read(ipam.ResBlocks):
		return Verdict{Doubt, "Blocks were not read; an affinity names this one."}
	case len(b.Affinities) == 1:
		return Verdict{Problem, fmt.Sprintf("No such block exists, only an affinity of %s (%s).", b.Affinities[0].Node, b.Affinities[0].State)}
	default:
		return Verdict{Problem, fmt.Sprintf("No such block exists, only %d affinities.", len(b.Affinities))}
	}
	v := Verdict{Status: OK}
	switch b.OwnerIs {
	case "exists":
		v.Text = "Owned by " + b.Owner
	case "nobody":
		v.Status, v.Text = Info, "Owned by nobody"
	case "virtual":
		v.Text = "A virtual block of " + b.Owner
	case "unknown":
		v.Status, v.Text = Doubt, "Owned by "+b.Owner+"; whether that node exists is not known"
	case "gone":
		v.Status, v.Text = Problem, "Owned by "+b.Owner+", which does not exist"
	default:
		v.Status, v.Text = Problem, "Owned by "+b.Owner+"; the node is "+b.OwnerIs
	}
	v.Text += fmt.Sprintf(", %d of %d addresses booked", b.Allocated, b.Size)
	if lent := b.signCount(signLent); lent > 0 {
		v.Text += fmt.Sprintf(", %d of them lent to other nodes", lent)
	}
	if n := b.signCount(signUnknown); n > 0 {
		v.Status = worse(v.Status, Doubt)
		v.Text += fmt.Sprintf("; who has %d of them is not known", n)
	}
	v.Text += "."
	if n := b.signCount(signLeaked); n > 0 {
		v.Text += fmt.Sprintf(" %s leaked.", plural(n, "address"))
	}
	if n := b.signCount(signStray); n > 0 {
		v.Status = Problem
		v.Text += fmt.Sprintf(" %s used and not booked.", plural(n, "address"))
	}
	others := 0
	for _, a := range b.Affinities {
		if !a.OwnerToo {
			others++
		}
	}
	if others > 0 {
		v.Status = Problem
		v.Text += " Another node claims it as well."
	}
	if len(b.Malformed)+len(b.Overlaps) > 0 {
		v.Status = Problem
	}
	return v
}
