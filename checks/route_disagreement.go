package checks

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"ipamaudit/ipam"
)

// routeDisagreement finds nodes that send a block's traffic to another node
// than its owner.
func routeDisagreement() Check {
	return Check{
		ID:          "route-disagreement",
		Title:       "Nodes that route a block to another node than its owner",
		SubjectKind: KindBlock,
		What: "The routing tables of the nodes against IPAM: a node whose route for a block leads to another node than the one that owns it, " +
			"that has several next hops of which one is wrong, or that drops a block it does not own.",
		Why: "With two affinities for one block both nodes announce it, and the others spread their traffic over both: half of the connections to the block fail, " +
			"depending on the source. A route that was left behind sends all of it astray.",
		How: "For every node whose kernel table is known: the route for exactly the block's CIDR. Its next hops are compared with the owner's addresses and tunnel addresses. " +
			"A next hop that is no node of this cluster is a router and says nothing, nor does one that is a route reflector; a default or wider route is not looked at. " +
			"Blocks that changed hands within `settle` before the table was read, blocks that nobody owns and owners that are gone are left out.",
		SeverityNote: "Always high, and observed. Without any route table the check is unknown; with tables of some nodes it speaks for those and says how many it did not see.",
		Skewed:       true,
		Needs:        []ipam.Resource{ipam.ResBlocks, ipam.ResNodes},
		Uses:         []ipam.Resource{ipam.ResAffinities, ipam.ResPools, ipam.ResPods, ipam.ResBGPConfig, ipam.ResFelixConfig, ipam.ResClusterInfo},
		NeedsRoutes:  true,
		Params:       []Param{{Name: "settle", Type: "duration", Default: "10m", Doc: "blocks that were claimed less than this before the table was read are left out"}},
		Example: func() []Step {
			return disagreementSteps(exampleCommands(), netip.MustParsePrefix("10.0.0.64/26"), []string{"NODE"}, nil)
		},
		Look: lines(append([]string{"ip route show " + exampleBlock.String() + "   # on the nodes that lose traffic, and on the owner"}, lookAtClaims(exampleCommands(), exampleBlock).Commands...)...),
		Sign: "It is this where a node's next hop is not the owner's address, or where there are several (`nexthop`). On the owner itself a blackhole is right.",
		Related: []Related{
			{"affinity-conflicts", "Do two BlockAffinities name the block?"},
			{"blackholed-routes", "Does one node drop the traffic, rather than send it astray?"},
			{"duplicate-ips", "Is it one address, not a whole block?"},
		},
		References: []string{
			"https://github.com/projectcalico/calico/issues/6486", "https://github.com/projectcalico/calico/issues/6001",
			"https://github.com/projectcalico/node/issues/1032", "confd/etc/calico/confd/templates/bird_aggr.cfg.template", "man ip-route(8)",
		},
		Run: runRouteDisagreement,
	}
}

// astray is one node's wrong way to a block.
type astray struct {
	node *ipam.Node
	what string
	// wrong are the nodes it leads to; none where the block is dropped.
	wrong []*ipam.Node
}

func runRouteDisagreement(in *Input) Result {
	addresses := nodeAddresses(in)
	byBlock := map[*ipam.Block][]astray{}
	known, expected := 0, 0
	for i := range in.Nodes {
		n := &in.Nodes[i]
		if n.Windows {
			continue
		}
		expected++
		t := in.Table(n.Name)
		if t == nil || t.Kind != ipam.KernelTable {
			continue
		}
		known++
		routes := exactRoutes(t)
		for k := range in.Blocks {
			b := &in.Blocks[k]
			r := routes[b.CIDR]
			if r == nil || !b.Owner.IsHost() || in.BlockAt(b.CIDR) != b {
				continue
			}
			owner := in.NodeByFold(b.Owner.Name)
			if owner == nil || movedSince(in, b, t) {
				continue
			}
			if a, bad := judgeRoute(in, n, owner, b, r, addresses); bad {
				byBlock[b] = append(byBlock[b], a)
			}
		}
	}
	var res Result
	for i := range in.Blocks {
		if list := byBlock[&in.Blocks[i]]; len(list) > 0 {
			res.Findings = append(res.Findings, disagreementFinding(in, &in.Blocks[i], list))
		}
	}
	if missing := expected - known; missing > 0 || known == 0 {
		what := fmt.Sprintf("route tables of %d of %d nodes", missing, expected)
		if known == 0 {
			what = "route tables (of no node)"
		}
		res.Unseen = []string{what}
	}
	return res
}

// nodeAddresses maps every address a next hop may have to the nodes that have
// it: BGP or internal addresses, and tunnels.
func nodeAddresses(in *Input) map[netip.Addr][]*ipam.Node {
	out := map[netip.Addr][]*ipam.Node{}
	for i := range in.Nodes {
		n := &in.Nodes[i]
		for _, a := range n.Addresses {
			out[a] = append(out[a], n)
		}
		for _, t := range n.Tunnels {
			out[t.IP] = append(out[t.IP], n)
		}
	}
	return out
}

// exactRoutes keeps the route that the kernel uses for each prefix: the first
// after Seal has sorted them by metric.
func exactRoutes(t *ipam.RouteTable) map[netip.Prefix]*ipam.Route {
	out := make(map[netip.Prefix]*ipam.Route, len(t.Routes))
	for i := range t.Routes {
		if r := &t.Routes[i]; out[r.Dst] == nil {
			out[r.Dst] = r
		}
	}
	return out
}

// movedSince reports whether the block may have changed hands around or after
// the time the table was read: then the two tell of different moments.
func movedSince(in *Input, b *ipam.Block, t *ipam.RouteTable) bool {
	read := t.AsOf
	if read.IsZero() {
		read = in.Now
	}
	settle := in.Params.Duration("settle")
	return slices.ContainsFunc([]time.Time{b.Created, b.ClaimTime}, func(c time.Time) bool {
		return !c.IsZero() && read.Sub(c) < settle
	})
}

func judgeRoute(in *Input, n, owner *ipam.Node, b *ipam.Block, r *ipam.Route, addresses map[netip.Addr][]*ipam.Node) (astray, bool) {
	a := astray{node: n}
	if r.Type.Drops() {
		// The owner's own blackhole is healthy, and so is that of a service range.
		if n == owner || b.CIDR.IsSingleIP() || in.InServiceCIDR(b.CIDR) {
			return a, false
		}
		a.what = "drops the block: `" + routeText(r) + "`"
		return a, true
	}
	right := false
	for _, h := range r.NextHops {
		if !h.Via.IsValid() {
			continue
		}
		at := addresses[h.Via]
		switch {
		case len(at) == 0:
			// A router.
		case slices.Contains(at, owner):
			right = true
		case slices.ContainsFunc(at, func(o *ipam.Node) bool { return o.RRClusterID != "" || o == n || usesAddressOf(in, b, o) }):
			// A reflector that announces itself as next hop, or the node that
			// borrows the one address of this block.
		default:
			a.wrong = append(a.wrong, at[0])
		}
	}
	if len(a.wrong) == 0 {
		return a, false
	}
	var hops []string
	for _, w := range a.wrong {
		hops = append(hops, w.Name)
	}
	a.what = "sends it to " + strings.Join(hops, " and ")
	if right {
		a.what = fmt.Sprintf("spreads it over %s and the owner", strings.Join(hops, " and "))
	}
	a.what += ": `" + routeText(r) + "`"
	return a, true
}

// usesAddressOf reports whether the block is a single address that the node's
// pod or tunnel uses: then the way there is right, whoever owns the block.
func usesAddressOf(in *Input, b *ipam.Block, n *ipam.Node) bool {
	if !b.CIDR.IsSingleIP() {
		return false
	}
	al, ok := in.AllocationOf(b.CIDR.Addr())
	return ok && in.Holder(al).Node == n
}

func disagreementFinding(in *Input, b *ipam.Block, list []astray) Finding {
	f := Finding{
		Severity: High,
		Subject:  Subject{Kind: KindBlock, Name: b.CIDR.String()},
		Title:    "Nodes route block " + b.CIDR.String() + " to another node than its owner",
	}
	var texts, nodes []string
	var stale []*ipam.Affinity
	for _, a := range list {
		f.Affected = append(f.Affected, Affected{Kind: KindNode, Name: a.node.Name, Note: a.what})
		texts = append(texts, a.node.Name+" "+a.what)
		nodes = append(nodes, a.node.Name)
		for _, w := range append(slices.Clone(a.wrong), a.node) {
			if s := staleAffinity(in, w, b); s != nil && !slices.Contains(stale, s) {
				stale = append(stale, s)
			}
		}
	}
	used := liveIn(in, b)
	f.Detail = fmt.Sprintf("The block belongs to %s. %s. %s in use in it", b.Owner.Name, names(texts, 5), plain(len(used), "address", "addresses"))
	switch {
	case len(stale) > 0:
		var who []string
		for _, s := range stale {
			who = append(who, fmt.Sprintf("%s (%s, %s)", s.Node, s.Name, s.State))
		}
		f.Detail += ". Cause: another affinity for the block, of " + strings.Join(who, ", ") + "; see affinity-conflicts"
	case in.Coverage.Read(ipam.ResAffinities):
		f.Detail += ". No second affinity exists: the route was left behind, or somebody else announces the block"
	}
	f.Detail += "."
	f.Affected = append(f.Affected, used...)
	f.Remediation = disagreementSteps(commandsFor(in.Snapshot), b.CIDR, nodes, stale)
	return f
}

func disagreementSteps(c commands, cidr netip.Prefix, nodes []string, stale []*ipam.Affinity) []Step {
	steps := []Step{lookAtClaims(c, cidr), {
		Title:    "Look at the route on " + names(nodes, 5),
		Commands: []string{"ip route show " + cidr.String()},
		Risk:     Safe, Verify: "One next hop, the owner's address; on the owner a blackhole.",
	}}
	if len(stale) > 0 {
		return append(steps, deleteAffinitySteps(c, stale, "the block names another owner")...)
	}
	restart := restartCalicoNode(nodes[0], "Restart calico-node there, one node after the other: it writes its routes afresh")
	for _, n := range nodes[1:min(len(nodes), 3)] {
		restart.Commands = append(restart.Commands, restartCalicoNode(n, "").Commands...)
	}
	return append(steps, restart)
}
