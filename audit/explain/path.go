package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"ipamaudit/ipam"
)

// Outcome is what becomes of a packet for an address.
type Outcome string

const (
	// Drops: a route throws it away.
	Drops Outcome = "drops"
	// NoRoute: nothing but perhaps a dropping default matches.
	NoRoute Outcome = "no-route"
	// Astray: a node that does not hold the address keeps it, or it goes in a circle.
	Astray Outcome = "astray"
	// Unclear: it ends where what was read does not say how it goes on.
	Unclear Outcome = "unclear"
	// Leaves: it goes to a router outside of the cluster; what that does is not seen.
	Leaves Outcome = "leaves"
	// Reaches: it comes to the node that holds the address, whose own table is not known.
	Reaches Outcome = "reaches"
	// Delivers: every table on the way leads to whoever uses the address.
	Delivers Outcome = "delivers"
)

// outcomes are in the order in which people want to read them: worst first.
func outcomes() []Outcome {
	return []Outcome{Drops, NoRoute, Astray, Unclear, Leaves, Reaches, Delivers}
}

func (o Outcome) rank() int { return slices.Index(outcomes(), o) }

// Bad reports whether the packet is known to be lost.
func (o Outcome) Bad() bool { return o == Drops || o == NoRoute || o == Astray }

// Path is the way to an address from every node.
type Path struct {
	// Homes are the nodes that a packet must reach; two of them is a problem of its own.
	Homes []string `json:"homes"`
	// Recorded is true where only IPAM's record says that they use the address,
	// because pods were not read.
	Recorded bool `json:"recorded,omitempty"`
	// Hops groups the nodes whose table is known by what becomes of a packet.
	Hops []Hops `json:"hops"`
	// Known of Nodes have a table.
	Known int `json:"known"`
	Nodes int `json:"nodes"`
	// NoTable are the others.
	NoTable []string `json:"noTable"`
	// NodesUnread is true where nodes were not read: then there may be more of them.
	NodesUnread bool `json:"nodesUnread,omitempty"`
	// Oldest is the time of the oldest table, where it was read well before the snapshot.
	Oldest time.Time `json:"oldest,omitzero"`
	// Inferred is what to expect where tables are missing, nil where none is.
	Inferred *Inference `json:"inferred,omitempty"`
}

// Hops are nodes with one outcome.
type Hops struct {
	Outcome Outcome  `json:"outcome"`
	Nodes   []string `json:"nodes"`
	// At is the node where it is decided, or the routers that it leaves for;
	// Route is the line of the table that decides, empty where nodes differ in it.
	At    string `json:"at,omitempty"`
	Route string `json:"route,omitempty"`
	// Via are the nodes it passes on the way to At, first to last.
	Via []string `json:"via,omitempty"`
	Why string   `json:"why,omitempty"`
}

// Expectation is an inferred verdict.
type Expectation string

// What may be expected without a table.
const (
	Expected Expectation = "delivered"
	AtRisk   Expectation = "at risk"
	NotKnown Expectation = "unknown"
)

// Inference is an expectation and its reason. It is never proof.
type Inference struct {
	Verdict Expectation `json:"verdict"`
	Why     string      `json:"why"`
}

// count is the number of nodes with this outcome.
func (p *Path) count(o Outcome) int {
	n := 0
	for _, h := range p.Hops {
		if h.Outcome == o {
			n += len(h.Nodes)
		}
	}
	return n
}

// Worst is the worst outcome, empty without a known table.
func (p *Path) Worst() Outcome {
	if len(p.Hops) == 0 {
		return ""
	}
	return p.Hops[0].Outcome
}

// fate is what becomes of a packet that one node sends.
type fate struct {
	Outcome
	at, route, why string
	via            []string
}

// walker follows packets for one address from table to table.
type walker struct {
	in     Input
	ip     netip.Addr
	pool   *ipam.Pool
	block  *ipam.Block
	homes  []string
	tunnel bool
	byAddr map[netip.Addr]string
}

// path describes the way to an address that somebody uses on homes.
func (in Input) path(ip netip.Addr, homes []string, tunnel bool) *Path {
	w := walker{in: in, ip: ip, pool: in.PoolOf(ipam.HostPrefix(ip)), block: in.BlockOf(ip), homes: homes, tunnel: tunnel, byAddr: map[netip.Addr]string{}}
	p := &Path{Homes: homes, Hops: []Hops{}, NoTable: []string{}, NodesUnread: !in.Coverage.Read(ipam.ResNodes)}
	var nodes []string
	for i := range in.Nodes {
		n := &in.Nodes[i]
		nodes = append(nodes, n.Name)
		for _, a := range n.Addresses {
			w.byAddr[a] = n.Name
		}
		for _, t := range n.Tunnels {
			w.byAddr[t.IP] = n.Name
		}
	}
	for i := range in.Tables {
		if in.Node(in.Tables[i].Node) == nil {
			nodes = append(nodes, in.Tables[i].Node)
		}
	}
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)
	for _, n := range nodes {
		t := in.Table(n)
		if t == nil {
			p.NoTable = append(p.NoTable, n)
			continue
		}
		if known, _ := t.Knows(ip); known {
			p.Known++
		}
		if !t.AsOf.IsZero() && in.AsOf.Sub(t.AsOf) > time.Hour && (p.Oldest.IsZero() || t.AsOf.Before(p.Oldest)) {
			p.Oldest = t.AsOf.UTC()
		}
		p.add(n, w.fate(n, nil))
	}
	p.Nodes = len(nodes)
	slices.SortStableFunc(p.Hops, func(a, b Hops) int { return cmp.Compare(a.Outcome.rank(), b.Outcome.rank()) })
	if len(p.NoTable) > 0 || p.count(Unclear)+p.count(Leaves)+p.count(Reaches) > 0 {
		p.Inferred = w.infer()
	}
	return p
}

// add puts the node with those that share its fate.
func (p *Path) add(node string, f fate) {
	for i := range p.Hops {
		h := &p.Hops[i]
		if h.Outcome != f.Outcome {
			continue
		}
		// Where all is well the single routes do not matter; elsewhere nodes
		// belong together that lose it in the same place for the same reason.
		same := h.At == f.at && h.Why == f.why && slices.Equal(h.Via, f.via) && h.Route == f.route
		if f.Outcome == Delivers || f.Outcome == Reaches {
			same = h.At == f.at
		}
		if f.Outcome == Leaves {
			same = h.Why == f.why
		}
		if !same {
			continue
		}
		h.Nodes = append(h.Nodes, node)
		if h.Route != f.route {
			h.Route = ""
		}
		if f.Outcome == Leaves && !slices.Contains(strings.Split(h.At, ", "), f.at) {
			// Each rack has its own router.
			h.At += ", " + f.at
		}
		return
	}
	p.Hops = append(p.Hops, Hops{Outcome: f.Outcome, Nodes: []string{node}, At: f.at, Route: f.route, Via: f.via, Why: f.why})
}

// fate follows the packet from a node; passed are the nodes it came through.
func (w *walker) fate(node string, passed []string) fate {
	home := slices.Contains(w.homes, node)
	if home && w.tunnel {
		// The kernel's table of local addresses comes before the main one.
		return fate{Outcome: Delivers, at: node, why: "it is the node's own address"}
	}
	t := w.in.Table(node)
	if t != nil && t.Kind == ipam.BIRDTable && w.pool != nil && w.in.RoutesBy(w.pool) == ipam.Felix {
		return fate{Outcome: Unclear, at: node, why: "only BIRD's view is known, and Felix programs the routes of pool " + w.pool.Name}
	}
	if t == nil {
		if home {
			return fate{Outcome: Reaches, at: node}
		}
		return fate{Outcome: Unclear, at: node, why: "its route table is not known"}
	}
	if known, why := t.Knows(w.ip); !known {
		if home {
			return fate{Outcome: Reaches, at: node}
		}
		return fate{Outcome: Unclear, at: node, why: why}
	}
	r := t.Lookup(w.ip)
	if r == nil {
		if t.Kind == ipam.BIRDTable {
			return fate{Outcome: Unclear, at: node, why: "BIRD has no route for it, and only BIRD's view is known"}
		}
		return fate{Outcome: NoRoute, at: node, why: "its table has no route that matches, not even a default"}
	}
	f := fate{at: node, route: routeText(r)}
	switch {
	case r.Type.Drops() && r.Dst.Bits() == 0:
		f.Outcome, f.why = NoRoute, "nothing but a dropping default matches"
	case r.Type.Drops():
		f.Outcome, f.why = Drops, w.whyDrop(node, r)
	case r.Type == ipam.Throw:
		f.Outcome, f.why = Unclear, "policy rules send it to another table"
	case r.Type == ipam.Local && home:
		f.Outcome = Delivers
	case r.Type == ipam.Local:
		f.Outcome, f.why = Astray, "it takes the address for its own"
	case len(r.NextHops) == 0:
		f.Outcome, f.why = Unclear, "the route names no next hop"
	default:
		f = w.worstHop(node, home, r, passed)
	}
	return f
}

// worstHop follows each way of a route; with several the worst one counts,
// because some packets take it.
func (w *walker) worstHop(node string, home bool, r *ipam.Route, passed []string) fate {
	var worst fate
	for i, h := range r.NextHops {
		f := w.hop(node, home, r, h, passed)
		if i == 0 || f.rank() < worst.rank() {
			worst = f
		}
	}
	if n := len(r.NextHops); n > 1 && worst.Outcome != Delivers {
		worst.why = strings.TrimSuffix(fmt.Sprintf("by one of %d next hops; %s", n, worst.why), "; ")
	}
	return worst
}

func (w *walker) hop(node string, home bool, r *ipam.Route, h ipam.NextHop, passed []string) fate {
	here := fate{at: node, route: routeText(r)}
	next, isNode := w.byAddr[h.Via]
	switch {
	case home && !h.Via.IsValid() && r.Dst.IsSingleIP():
		here.Outcome = Delivers
	case home:
		here.Outcome, here.why = Astray, "the pod runs here, and there is no local route to it"
	case !h.Via.IsValid() && isTunnel(h.Dev):
		here.Outcome, here.why = Unclear, "it goes into "+h.Dev+", whose other end the table does not show"
	case !h.Via.IsValid() && r.Dst.IsSingleIP():
		here.Outcome, here.why = Astray, "it has a local route, as if the pod ran here"
	case !h.Via.IsValid():
		here.Outcome, here.at, here.why = Leaves, h.Dev, "it looks for the address on the network of "+h.Dev
	case !isNode:
		here.Outcome, here.at, here.why = Leaves, h.Via.String(), "what becomes of it there is not seen"
	case next == node || slices.Contains(passed, next):
		here.Outcome, here.why = Astray, "packets go in a circle with "+next
	default:
		f := w.fate(next, append(slices.Clone(passed), node))
		if f.at != next || len(f.via) > 0 {
			f.via = append([]string{next}, f.via...)
		}
		if f.route == "" {
			f.route = here.route
		}
		return f
	}
	return here
}

func isTunnel(dev string) bool {
	return strings.HasPrefix(dev, "tunl") || strings.HasPrefix(dev, "vxlan") || strings.HasPrefix(dev, "wireguard") || strings.HasPrefix(dev, "wg")
}

// whyDrop says why a node has the dropping route.
func (w *walker) whyDrop(node string, r *ipam.Route) string {
	host := fmt.Sprintf("no /%d for it", w.ip.BitLen())
	if r.Dst.IsSingleIP() {
		return "the dropping route is for this very address"
	}
	if w.block == nil {
		return host
	}
	if o := w.in.NodeByFold(w.block.Owner.Name); w.block.Owner.IsHost() && o != nil && o.Name == node {
		return host + "; it owns the block and has not learnt that the address is used elsewhere"
	}
	for _, a := range w.in.AffinitiesOf(w.block.CIDR) {
		if w.in.KubernetesName(a.Node) == node {
			return fmt.Sprintf("%s; it holds an affinity (%s) for the block, which belongs to %s", host, stateOf(a), cmp.Or(w.block.Owner.Name, "nobody"))
		}
	}
	return host
}

func stateOf(a *ipam.Affinity) string { return cmp.Or(a.State, ipam.StateConfirmed) }

func routeText(r *ipam.Route) string {
	if t := strings.Join(strings.Fields(r.Text), " "); t != "" {
		return t
	}
	return string(r.Type) + " " + r.Dst.String()
}

// infer says what to expect where no table tells.
func (w *walker) infer() *Inference {
	if w.pool == nil {
		return &Inference{NotKnown, "the address is in no pool that was read, so nothing says how its route should come about"}
	}
	if w.block == nil {
		return &Inference{NotKnown, "no block holds the address, so no node announces it as part of one"}
	}
	for _, h := range w.homes {
		if w.in.Table(h) != nil && w.fate(h, nil).Bad() {
			return &Inference{AtRisk, h + ", which uses the address, loses the packets for it itself"}
		}
	}
	for _, a := range w.in.AffinitiesOf(w.block.CIDR) {
		if a.Node != w.block.Owner.Name && a.Type != "virtual" {
			return &Inference{AtRisk, fmt.Sprintf("%s holds an affinity (%s) for block %s of %s as well, and may drop what is meant for it", a.Node, stateOf(a), w.block.CIDR, cmp.Or(w.block.Owner.Name, "nobody"))}
		}
	}
	if !w.block.Owner.IsHost() {
		return &Inference{NotKnown, "no node owns the block, so other nodes reach the address by a host route only"}
	}
	owner := w.in.NodeByFold(w.block.Owner.Name)
	if owner == nil {
		return &Inference{NotKnown, fmt.Sprintf("the block's owner %s is not among the nodes, so other nodes reach the address by a host route only", w.block.Owner.Name)}
	}
	by := w.in.RoutesBy(w.pool)
	if slices.Contains(w.homes, owner.Name) {
		switch {
		case by == ipam.Unsure || by == ipam.BIRD && w.in.Coverage.Refused(ipam.ResBGPConfig):
			return &Inference{NotKnown, "the address is out of the node's own block, and the settings that say how its route spreads were refused"}
		case by == ipam.Nobody:
			return &Inference{AtRisk, "programClusterRoutes leaves the routes of pool " + w.pool.Name + " to neither Felix nor BIRD"}
		case by == ipam.Felix:
			return &Inference{Expected, "the address is out of the node's own block, and Felix programs the way to it on every node"}
		case !w.in.Coverage.Read(ipam.ResBGPConfig) && !w.in.Coverage.Read(ipam.ResBGPPeers):
			return &Inference{NotKnown, "the address is out of the node's own block, and how BGP spreads its route was not read"}
		case w.pool.DisableBGPExport:
			return &Inference{AtRisk, "pool " + w.pool.Name + " has disableBGPExport, so BIRD announces none of its blocks"}
		case !w.in.BGP.Mesh && w.in.Coverage.Read(ipam.ResBGPPeers) && len(w.in.Peers) == 0 && len(w.in.Nodes) > 1:
			return &Inference{AtRisk, "the node-to-node mesh is off and there is no BGPPeer, so no node learns the block's route"}
		}
		return &Inference{Expected, "the address is out of the node's own block, which BIRD announces as a whole; nothing that was read speaks against it"}
	}
	if w.in.Table(owner.Name) != nil {
		switch f := w.fate(owner.Name, nil); {
		case f.Bad():
			return &Inference{AtRisk, fmt.Sprintf("a node without a host route of its own sends it to %s, which owns the block, and there it is lost", owner.Name)}
		case f.Outcome == Delivers || f.Outcome == Reaches:
			return &Inference{Expected, fmt.Sprintf("borrowed from %s, which owns the block and has a way to it", owner.Name)}
		}
		return &Inference{NotKnown, fmt.Sprintf("a node without a host route of its own sends it to %s, which owns the block; what happens there is not clear", owner.Name)}
	}
	home := w.in.Node(first(w.homes))
	switch carry, why := w.in.CarriesAddress(w.ip, w.pool, owner, home); carry {
	case ipam.Carried:
		return &Inference{Expected, "borrowed from " + owner.Name + ", but " + why}
	case ipam.AtRisk:
		return &Inference{AtRisk, fmt.Sprintf("borrowed: %s owns the block and probably drops what is meant for %s: %s", owner.Name, w.ip, why)}
	default:
		return &Inference{NotKnown, fmt.Sprintf("borrowed from %s, and %s", owner.Name, why)}
	}
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}
