package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"ipamaudit/checks"
	"ipamaudit/ipam"
)

// Node is what is known of a node.
type Node struct {
	Name string `json:"name"`
	// Exists is false where only IPAM, a pod or a route table names the node.
	Exists bool `json:"exists"`
	// InUse: it needs addresses. State says what it is in words ("Ready", "cordoned").
	InUse     bool         `json:"inUse"`
	State     []string     `json:"state"`
	Addresses []netip.Addr `json:"addresses"`
	Tunnels   []Tunnel     `json:"tunnels"`
	// PodsHere are on the pod network; Waiting of them have no address yet.
	// PodsHere is -1 where pods were not read.
	PodsHere int      `json:"pods"`
	MaxPods  int      `json:"maxPods,omitempty"`
	Waiting  []string `json:"waiting"`
	// BlocksUnread is true where blocks were not read: then what it owns, needs
	// and could claim tells nothing.
	BlocksUnread bool `json:"blocksUnread,omitempty"`
	// Pools are those that serve it or that it has addresses or blocks of.
	Pools []NodePool `json:"pools"`
	// Limit is the number of blocks it may own per family.
	Limit  int         `json:"limit"`
	Blocks []NodeBlock `json:"blocks"`
	// Borrowed are addresses used here out of other nodes' blocks, Lent those
	// of its blocks that other nodes use.
	Borrowed []Use `json:"borrowed"`
	Lent     []Use `json:"lent"`
	// Foreign are its affinities for blocks that it does not own.
	Foreign []Affinity `json:"foreign"`
	// Table is nil where its route table is not known.
	Table *Table `json:"table"`
}

// NodePool is a pool from the node's point of view.
type NodePool struct {
	PoolRef
	// Serves is true where its pods may get blocks of it without naming it.
	Serves bool `json:"serves"`
	// Owned blocks, and Need: its Live addresses over PerBlock, rounded up; nil
	// where pods were not read.
	Owned    int    `json:"owned"`
	Need     *int   `json:"need"`
	Live     int    `json:"live"`
	PerBlock uint64 `json:"perBlock"`
	// Free blocks it could claim, Reclaimable ones it could take over.
	Free        uint64 `json:"free"`
	Reclaimable uint64 `json:"reclaimable"`
}

// NodeBlock is a block that the node owns.
type NodeBlock struct {
	CIDR netip.Prefix `json:"cidr"`
	// Own are the node's addresses, Lent those that other nodes use, Other what
	// is booked without being used; Room can still be given out.
	Own   int `json:"own"`
	Lent  int `json:"lent"`
	Other int `json:"other"`
	// Unknown is what is booked for nobody knows whom: pods were not read.
	Unknown int    `json:"unknown,omitempty"`
	Room    uint64 `json:"room"`
	Size    uint64 `json:"size"`
}

// Use is an address that is used on another node than the one that owns it.
type Use struct {
	IP netip.Addr `json:"ip"`
	// Who uses it, on Node; Owner owns Block.
	Who   string       `json:"who"`
	Node  string       `json:"node"`
	Block netip.Prefix `json:"block"`
	Owner string       `json:"owner"`
}

// Table is a node's route table.
type Table struct {
	Kind   string    `json:"kind"`
	Source string    `json:"source"`
	AsOf   time.Time `json:"asOf,omitzero"`
	Routes int       `json:"routes"`
	// PodsUnread is true where pods were not read: then nobody knows what drops hit.
	PodsUnread bool `json:"podsUnread,omitempty"`
	// Blind says for which family nothing is known, and why ("IPv6: …").
	Blind []string `json:"blind"`
	// Partial is true where only dropping routes and what is inside of them were published.
	Partial bool `json:"partial,omitempty"`
	// Drops are its dropping routes, those that hit live addresses first.
	Drops []DropRoute `json:"drops"`
}

// DropRoute is a dropping route and the live addresses that it loses.
type DropRoute struct {
	Route string       `json:"route"`
	Hits  []netip.Addr `json:"hits"`
	// Meant is true where the route is for a block of the node or a service
	// range, which is how it should be, as long as it hits nobody.
	Meant bool `json:"meant"`
}

func (in Input) explainNode(s *Story) {
	name := s.Subject.Name
	n := in.Node(name)
	out := Node{
		Name: name, Exists: n != nil, Limit: in.Config.BlockLimit(),
		State: []string{}, Addresses: []netip.Addr{}, Tunnels: []Tunnel{}, Waiting: []string{}, Pools: []NodePool{},
		Blocks: []NodeBlock{}, Borrowed: []Use{}, Lent: []Use{}, Foreign: []Affinity{},
		BlocksUnread: !in.Coverage.Read(ipam.ResBlocks),
	}
	if n != nil {
		out.InUse, out.State, out.MaxPods = in.InUse(n), nodeState(n), n.MaxPods
		out.Addresses = append(out.Addresses, n.Addresses...)
		for _, t := range n.Tunnels {
			out.Tunnels = append(out.Tunnels, in.tunnel(n, t))
		}
	}
	for _, p := range in.PodsOn(name) {
		if p.Live() {
			out.PodsHere++
		}
		if p.WaitsForAddress() {
			out.Waiting = append(out.Waiting, p.Key())
		}
	}
	if !in.Coverage.Read(ipam.ResPods) {
		out.PodsHere = -1
	}
	live := in.nodeUses(&out)
	in.nodePools(n, &out, live)
	for i := range in.Affinities {
		a := &in.Affinities[i]
		if out.BlocksUnread || in.KubernetesName(a.Node) != name || a.Type == "virtual" {
			continue
		}
		if b := in.BlockAt(a.CIDR); b == nil || b.Owner.Name != a.Node {
			out.Foreign = append(out.Foreign, Affinity{Name: a.CIDR.String(), Node: a.Node, State: stateOf(a), Created: a.Created.UTC()})
		}
	}
	out.Table = in.table(name)
	s.Node = &out
	s.Findings = in.concern(in.aboutNode(&out))
	s.Verdict = in.nodeVerdict(&out)
	for _, b := range out.Blocks {
		s.see(checks.KindBlock, b.CIDR.String())
	}
	for _, u := range out.Borrowed {
		s.see(checks.KindNode, u.Owner)
	}
	if out.Table != nil {
		for _, d := range out.Table.Drops {
			if len(d.Hits) > 0 {
				s.see(checks.KindIP, d.Hits[0].String())
			}
		}
	}
}

func nodeState(n *ipam.Node) []string {
	var out []string
	add := func(is bool, word string) {
		if is {
			out = append(out, word)
		}
	}
	add(n.Ready, "Ready")
	add(!n.Ready, "not Ready")
	add(n.Unschedulable, "cordoned")
	add(n.Tainted, "tainted")
	add(n.ControlPlane, "control plane")
	add(n.Windows, "Windows")
	add(n.Deleting, "being deleted")
	add(n.FlannelMigration, "migrating from flannel")
	return out
}

// nodeUses fills in blocks, borrowed and lent, and returns the live addresses
// used here per pool.
func (in Input) nodeUses(out *Node) map[*ipam.Pool]int {
	live := map[*ipam.Pool]int{}
	for i := range in.Blocks {
		b := &in.Blocks[i]
		owner := in.ownerNode(in.blockRef(b))
		mine := owner == out.Name
		nb := NodeBlock{CIDR: b.CIDR, Room: in.Room(b), Size: b.Size()}
		for a := range b.Allocations() {
			h := in.Holder(a)
			if h.Kind == ipam.HeldUnknown {
				nb.Unknown++
				continue
			}
			if !h.Kind.Live() {
				nb.Other++
				continue
			}
			here := h.NodeName == out.Name
			if here {
				live[b.Pool()]++
			}
			switch {
			case here && mine:
				nb.Own++
			case here && owner != "":
				out.Borrowed = append(out.Borrowed, in.use(a, h, b, owner))
			case mine:
				nb.Lent++
				out.Lent = append(out.Lent, in.use(a, h, b, owner))
			}
		}
		if mine {
			out.Blocks = append(out.Blocks, nb)
		}
	}
	return live
}

func (in Input) use(a ipam.Allocation, h ipam.Holder, b *ipam.Block, owner string) Use {
	who := "tunnel of " + h.NodeName
	if h.Pod != nil {
		who = h.Pod.Key()
	}
	return Use{IP: a.IP, Who: who, Node: h.NodeName, Block: b.CIDR, Owner: owner}
}

func (in Input) nodePools(n *ipam.Node, out *Node, live map[*ipam.Pool]int) {
	serving := map[*ipam.Pool]bool{}
	if n != nil {
		for _, v4 := range []bool{true, false} {
			for _, p := range in.Serving(n, v4, ipam.UseWorkload) {
				serving[p] = true
			}
		}
	}
	for i := range in.Pools {
		p := &in.Pools[i]
		owned := len(in.OwnsIn(out.Name, []*ipam.Pool{p}))
		if !serving[p] && owned == 0 && live[p] == 0 {
			continue
		}
		np := NodePool{PoolRef: *in.poolRef(p), Serves: serving[p], Owned: owned, Live: live[p], PerBlock: p.Usable(n != nil && n.Windows)}
		if np.PerBlock > 0 && in.Coverage.Read(ipam.ResPods) {
			need := int((uint64(np.Live) + np.PerBlock - 1) / np.PerBlock)
			np.Need = &need
		}
		np.Free, np.Reclaimable = in.Free([]*ipam.Pool{p}, out.Name)
		out.Pools = append(out.Pools, np)
	}
}

// table reads the node's table for routes that drop live addresses.
func (in Input) table(name string) *Table {
	t := in.Table(name)
	if t == nil {
		return nil
	}
	out := &Table{Kind: string(t.Kind), Source: t.Source, Routes: len(t.Routes), PodsUnread: !in.Coverage.Read(ipam.ResPods), Drops: []DropRoute{}}
	if !t.AsOf.IsZero() {
		out.AsOf = t.AsOf.UTC()
	}
	out.Blind, out.Partial = []string{}, t.Partial
	if t.Blind4 != "" {
		out.Blind = append(out.Blind, "IPv4: "+t.Blind4)
	}
	if t.Blind6 != "" {
		out.Blind = append(out.Blind, "IPv6: "+t.Blind6)
	}
	hits := map[*ipam.Route][]netip.Addr{}
	for i := range in.Pods {
		p := &in.Pods[i]
		if p.Deleting {
			continue
		}
		for _, ip := range p.IPs() {
			r := t.Lookup(ip)
			if r == nil || !r.Type.Drops() || r.Dst.Bits() == 0 {
				continue
			}
			pool := in.PoolOf(ipam.HostPrefix(ip))
			if t.Kind == ipam.BIRDTable && pool != nil && in.RoutesBy(pool) == ipam.Felix {
				continue
			}
			hits[r] = append(hits[r], ip)
		}
	}
	for _, r := range t.Dropping() {
		d := DropRoute{Route: routeText(r), Hits: append([]netip.Addr{}, hits[r]...), Meant: in.InServiceCIDR(r.Dst)}
		slices.SortFunc(d.Hits, netip.Addr.Compare)
		d.Hits = slices.Compact(d.Hits)
		if b := in.BlockAt(r.Dst); b != nil && in.ownerNode(in.blockRef(b)) == name {
			d.Meant = true
		}
		out.Drops = append(out.Drops, d)
	}
	slices.SortStableFunc(out.Drops, func(a, b DropRoute) int { return len(b.Hits) - len(a.Hits) })
	return out
}

// aboutNode: the node, its blocks where they are the subject, and the
// addresses of its pods.
func (in Input) aboutNode(n *Node) about {
	here := map[string]bool{}
	for _, p := range in.PodsOn(n.Name) {
		for _, ip := range p.IPs() {
			here[ip.String()] = true
		}
	}
	return func(kind, namespace, name string, isSubject bool) bool {
		switch kind {
		case checks.KindNode:
			return name == n.Name
		case checks.KindBlock:
			return isSubject && slices.ContainsFunc(n.Blocks, func(b NodeBlock) bool { return b.CIDR.String() == name })
		case checks.KindPod:
			p := in.Pod(namespace, name)
			return p != nil && p.NodeName == n.Name
		case checks.KindIP:
			return here[name]
		}
		return false
	}
}

func (in Input) nodeVerdict(n *Node) Verdict {
	free := uint64(0)
	serves := 0
	for _, p := range n.Pools {
		if p.Serves {
			serves++
			free += p.Free + p.Reclaimable
		}
	}
	v := Verdict{Status: OK}
	switch {
	case !n.Exists && !in.Coverage.Read(ipam.ResNodes):
		v.Status, v.Text = Doubt, "Whether the node exists is not known, because nodes were not read"
	case !n.Exists && in.NodeByFold(n.Name) != nil:
		v.Status, v.Text = Problem, "No node has this name; one is called "+in.NodeByFold(n.Name).Name
	case !n.Exists:
		v.Status, v.Text = Problem, "The node does not exist"
	case n.InUse:
		v.Text = "In use"
	default:
		v.Status, v.Text = Info, "Not in use"
	}
	switch {
	case !in.Coverage.Read(ipam.ResBlocks):
		v.Text += "; blocks were not read"
		v.Status = worse(v.Status, Doubt)
	case len(n.Blocks) == 0 && serves > 0 && free == 0 && n.InUse:
		v.Status = Problem
		v.Text += ", owns no block, and none is free"
	default:
		v.Text += ", owns " + blocks(len(n.Blocks))
	}
	v.Text += "."
	if n.InUse && serves == 0 && in.Coverage.Read(ipam.ResPools) {
		v.Status = Problem
		v.Text += " No enabled pool serves it."
	}
	switch w := len(n.Waiting); {
	case w == 1:
		v.Text += " 1 pod waits for an address."
	case w > 1:
		v.Text += fmt.Sprintf(" %d pods wait for an address.", w)
	}
	if len(n.Borrowed) > 0 {
		v.Text += fmt.Sprintf(" %s used here out of other nodes' blocks.", plural(len(n.Borrowed), "address"))
	}
	if n.Table == nil {
		v.Status = worse(v.Status, Doubt)
		v.Text += " Its route table is not known."
		return v
	}
	lost := 0
	for _, d := range n.Table.Drops {
		lost += len(d.Hits)
	}
	if lost > 0 {
		v.Status = Problem
		v.Text += fmt.Sprintf(" It drops packets for %s of live pods.", plural(lost, "address"))
	}
	if n.Table.blindFor(n.Pools) {
		v.Text += " Part of its route table is not known."
		v.Status = worse(v.Status, Doubt)
	}
	if n.Table.PodsUnread {
		v.Text += " Pods were not read, so what its table does to them is not known."
		v.Status = worse(v.Status, Doubt)
	}
	return v
}

// blindFor reports whether nothing is known of a family that the node has pools of.
func (t *Table) blindFor(pools []NodePool) bool {
	return slices.ContainsFunc(pools, func(p NodePool) bool {
		return slices.ContainsFunc(t.Blind, func(b string) bool { return strings.HasPrefix(b, ipam.Family(p.CIDR.Addr().Is4())+":") })
	})
}

func blocks(n int) string {
	if n == 0 {
		return "no block"
	}
	return plural(n, "block")
}
