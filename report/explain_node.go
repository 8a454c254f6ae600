package report

import (
	"fmt"
	"strings"

	"ipamaudit/audit/explain"
	"ipamaudit/report/text"
)

// storyRows is how many rows a list shows before it counts the rest.
const storyRows = 20

func (p storyPage) node(s *explain.Story, n *explain.Node) {
	use := "not in use"
	if n.InUse {
		use = "in use"
	}
	if n.Exists {
		p.fact("node", strings.Join(n.State, ", "), use)
	} else {
		p.fact("node", "known from IPAM's records, pods or a route table only")
	}
	addresses := make([]string, 0, len(n.Addresses))
	for _, a := range n.Addresses {
		addresses = append(addresses, a.String())
	}
	p.fact("addresses", addresses...)
	for _, t := range n.Tunnels {
		p.fact("tunnel", tunnelItems(n.Name, t)...)
	}
	pods := text.Plural(n.PodsHere, "pod") + " on the pod network"
	if n.PodsHere < 0 {
		pods = "pods were not read"
	}
	maxPods := ""
	if n.MaxPods > 0 {
		maxPods = fmt.Sprintf("at most %d pods", n.MaxPods)
	}
	p.fact("pods", pods, maxPods)
	if len(n.Waiting) > 0 {
		p.factIn(storyIn, yellow, "waiting", "no address yet: "+someNames(n.Waiting))
	}
	p.nodePools(n)
	p.nodeBlocks(n)
	p.uses("borrowed here", "out of other nodes' blocks", n.Borrowed, func(u explain.Use) []string {
		return []string{u.IP.String(), u.Who, fmt.Sprintf("from %s of %s", u.Block, u.Owner)}
	})
	p.uses("lent out", "of its blocks that other nodes use", n.Lent, func(u explain.Use) []string {
		return []string{u.IP.String(), u.Who, fmt.Sprintf("on %s, from %s", u.Node, u.Block)}
	})
	for _, a := range n.Foreign {
		p.prose(storyIn, red, "✖ ", fmt.Sprintf("it claims %s (%s) without owning such a block", a.Name, a.State))
	}
	p.routeTable(s, n.Table)
}

func tunnelItems(node string, t explain.Tunnel) []string {
	out := []string{t.IP.String() + " " + t.Kind}
	switch {
	case t.Block == "":
		out = append(out, "in no block")
	case t.Owner != node:
		out = append(out, "out of block "+t.Block+" of "+ownerOr(t.Owner))
	default:
		out = append(out, "out of its own block "+t.Block)
	}
	if !t.Booked {
		out = append(out, "not booked as a tunnel")
	}
	return out
}

func ownerOr(owner string) string {
	if owner == "" {
		return "nobody"
	}
	return owner
}

func (p storyPage) nodePools(n *explain.Node) {
	p.heading("pools", fmt.Sprintf("at most %s per family", text.Plural(n.Limit, "block")))
	if len(n.Pools) == 0 {
		p.prose(storyIn, yellow, "? ", "no pool serves it, and it has nothing of any")
	}
	rows := make([][]string, 0, len(n.Pools))
	for _, np := range n.Pools {
		free := text.Count(np.Free) + " free"
		if np.Reclaimable > 0 {
			free += ", " + text.Count(np.Reclaimable) + " to take over"
		}
		note := ""
		if !np.Serves {
			note = "does not serve it"
		}
		if n.BlocksUnread {
			rows = append(rows, []string{np.Name, "what it owns there is not known", note})
			continue
		}
		rows = append(rows, []string{
			np.Name, fmt.Sprintf("owns %d", np.Owned),
			needText(np), liveText(np) + " ÷ " + text.Count(np.PerBlock),
			free, note,
		})
	}
	p.rows(storyIn, rows)
}

func needText(np explain.NodePool) string {
	if np.Need == nil {
		return "need not known"
	}
	return fmt.Sprintf("needs %d", *np.Need)
}

func liveText(np explain.NodePool) string {
	switch {
	case np.Need == nil:
		return "? live addresses"
	case np.Live == 1:
		return "1 live address"
	default:
		return text.Int(np.Live) + " live addresses"
	}
}

func (p storyPage) nodeBlocks(n *explain.Node) {
	if len(n.Blocks) == 0 {
		return
	}
	p.heading("blocks", text.Int(len(n.Blocks))+" · # own · o lent · x booked, not in use · ? not known")
	rows := make([][]string, 0, len(n.Blocks))
	for i, b := range n.Blocks {
		if i == storyRows {
			break
		}
		own, lent, other := fmt.Sprintf("%d own", b.Own), fmt.Sprintf("%d lent", b.Lent), fmt.Sprintf("%d not in use", b.Other)
		if b.Unknown > 0 {
			own, lent, other = "? own", "? lent", fmt.Sprintf("%d not known", b.Unknown)
		}
		rows = append(rows, []string{b.CIDR.String(), blockBar(b), own, lent, other, text.Count(b.Room) + " free"})
	}
	p.rows(storyIn, rows, 2, 3, 4)
	p.more(len(n.Blocks), storyRows)
}

// blockBar is 16 signs wide: own, lent and other addresses of a block's size. What
// is there shows, however little.
func blockBar(b explain.NodeBlock) string {
	const width = 16
	var out strings.Builder
	for _, part := range []struct {
		n    int
		sign string
	}{{b.Own, "#"}, {b.Lent, "o"}, {b.Other, "x"}, {b.Unknown, "?"}} {
		if part.n == 0 || b.Size == 0 {
			continue
		}
		k := max(int(uint64(part.n)*width/b.Size), 1)
		out.WriteString(strings.Repeat(part.sign, min(k, width-out.Len())))
	}
	return out.String() + strings.Repeat(".", width-out.Len())
}

func (p storyPage) uses(title, right string, list []explain.Use, row func(explain.Use) []string) {
	if len(list) == 0 {
		return
	}
	noun := " addresses "
	if len(list) == 1 {
		noun = " address "
	}
	p.heading(title, text.Int(len(list))+noun+right)
	rows := make([][]string, 0, len(list))
	for i, u := range list {
		if i == storyRows {
			break
		}
		rows = append(rows, row(u))
	}
	p.rows(storyIn, rows)
	p.more(len(list), storyRows)
}

func (p storyPage) more(n, shown int) {
	if n > shown {
		p.line(storyIn, dim, fmt.Sprintf("… and %s more, all of them with -o json", text.Int(n-shown)))
	}
}

func (p storyPage) routeTable(s *explain.Story, t *explain.Table) {
	if t == nil {
		p.heading("route table", "")
		p.prose(storyIn, yellow, "? ", "not known: what the node does with packets was not seen")
		return
	}
	age := ""
	if !t.AsOf.IsZero() {
		age = ", read " + ago(t.AsOf, s.AsOf)
	}
	p.heading("route table", fmt.Sprintf("%s, %s%s", t.Kind, text.Plural(t.Routes, "route"), age))
	for _, b := range t.Blind {
		p.prose(storyIn, yellow, "? ", b)
	}
	if t.Partial {
		p.prose(storyIn, dim, "", "only what it drops, and what lies inside of that, was published")
	}
	if len(t.Drops) == 0 && len(t.Blind) == 0 {
		p.prose(storyIn, green, "✔ ", "no route in it drops anything")
	}
	shown := 0
	for _, d := range t.Drops {
		if shown == storyRows {
			break
		}
		shown++
		switch {
		case t.PodsUnread:
			p.prose(storyIn, yellow, "? ", "`"+d.Route+"`: whether it hits a live pod is not known")
		case len(d.Hits) > 0:
			ips := make([]string, 0, len(d.Hits))
			for _, ip := range d.Hits {
				ips = append(ips, ip.String())
			}
			p.prose(storyIn, red, "✖ ", "`"+d.Route+"` drops packets for "+someNames(ips))
		case d.Meant:
			p.prose(storyIn, plain, "✔ ", "`"+d.Route+"` hits no live pod, as it should be")
		default:
			p.prose(storyIn, yellow, "● ", "`"+d.Route+"` hits no live pod, and is for no block of this node")
		}
	}
	p.more(len(t.Drops), storyRows)
}

func (p storyPage) blockStory(s *explain.Story, b *explain.Block) {
	if b.Pool != nil {
		p.fact("pool", poolItems(b.Pool)...)
	} else {
		p.fact("pool", "none that was read")
	}
	if b.Exists {
		claimed := ""
		if !b.Claimed.IsZero() {
			claimed = "since " + ago(b.Claimed, s.AsOf)
		}
		p.fact("block", "IPAMBlock "+b.Name, claimed)
		p.fact("owner", ownerText(b.Owner, b.OwnerIs))
	}
	if len(b.Affinities) == 0 && b.Exists {
		p.factIn(storyIn, yellow, "affinity", "none")
	}
	for _, a := range b.Affinities {
		st, note := plain, ""
		if !a.OwnerToo {
			st, note = red, "not the owner that the block names"
		}
		p.factIn(storyIn, st, "affinity", a.Name, "of "+a.Node, a.State, ago(a.Created, s.AsOf), note)
	}
	overlaps := make([]string, 0, len(b.Overlaps))
	for _, o := range b.Overlaps {
		overlaps = append(overlaps, o.String())
	}
	if len(overlaps) > 0 {
		p.factIn(storyIn, red, "overlaps", someNames(overlaps))
	}
	if len(b.Malformed) > 0 {
		p.factIn(storyIn, red, "malformed", b.Malformed...)
	}
	if !b.Exists {
		return
	}
	p.fact("addresses", text.Count(b.Size)+" in all", text.Int(b.Allocated)+" booked", text.Count(b.Reserved)+" reserved", text.Count(b.Room)+" can be given out")
	p.blockMap(b)
	p.blockHolders(b)
}

// blockMap draws up to 1024 addresses, 64 a line.
func (p storyPage) blockMap(b *explain.Block) {
	p.heading("map", "")
	const perLine, group, lines = 64, 16, 16
	ip := b.CIDR.Addr()
	for n := 0; n < len(b.Map); n += perLine {
		if n == perLine*lines {
			p.line(storyIn, dim, fmt.Sprintf("… and %s more addresses, all of them with -o json", text.Int(len(b.Map)-n)))
			break
		}
		row := b.Map[n:min(n+perLine, len(b.Map))]
		var out strings.Builder
		for i, sign := range row {
			if i > 0 && i%group == 0 {
				out.WriteByte(' ')
			}
			out.WriteRune(sign)
		}
		if len(b.Map) > perLine {
			p.line(storyIn, plain, ip.String())
			p.line(storyIn+2, bold, out.String())
			for range perLine {
				ip = ip.Next()
			}
			continue
		}
		p.line(storyIn, bold, out.String())
	}
	if b.Map == "" {
		p.line(storyIn, dim, "too large to be drawn")
	}
	signs := make([]string, 0, len(b.Signs))
	for _, sg := range b.Signs {
		signs = append(signs, fmt.Sprintf("%s %s %s", sg.Sign, text.Int(sg.Count), sg.Means))
	}
	p.items(storyIn, plain, "", signs)
}

func (p storyPage) blockHolders(b *explain.Block) {
	if len(b.ByNode) > 0 {
		nodes := make([]string, 0, len(b.ByNode))
		for _, n := range b.ByNode {
			nodes = append(nodes, fmt.Sprintf("%s (%s)", n.Node, text.Int(n.Count)))
		}
		p.heading("used on", someNames(nodes))
	}
	// What is not simply a pod of the owner is named first.
	var rows [][]string
	for _, own := range []bool{false, true} {
		for _, h := range b.Holders {
			if (h.Sign == "#") == own {
				on := ""
				if h.Node != "" {
					on = "on " + h.Node
				}
				rows = append(rows, []string{h.Sign, h.IP.String(), h.Who, on})
			}
		}
	}
	if len(rows) == 0 {
		return
	}
	p.heading("holders", "")
	p.rows(storyIn, rows[:min(len(rows), storyRows)])
	p.more(len(rows), storyRows)
}

func (p storyPage) pool(s *explain.Story, pool *explain.Pool) {
	p.fact("pool", append(poolItems(&pool.PoolRef), fmt.Sprintf("blocks of /%d", pool.BlockSize))...)
	created := ""
	if !pool.Created.IsZero() {
		created = "created " + ago(pool.Created, s.AsOf)
	}
	manual := ""
	if pool.Manual {
		manual = "only for those who name it"
	}
	export := ""
	if pool.DisableBGPExport {
		export = "not exported by BGP"
	}
	p.fact("for", strings.Join(pool.AllowedUses, ", "), manual, export, created)
	namespaces := ""
	if pool.NamespaceSelector != "" {
		namespaces = "namespaces " + pool.NamespaceSelector
	}
	p.fact("selects", "nodes "+pool.NodeSelector, namespaces)
	if pool.NodesUnread {
		p.factIn(storyIn, yellow, "serves", "not known, nodes were not read")
	} else {
		p.fact("serves", text.Plural(pool.Nodes, "node"), text.Int(pool.InUse)+" of them in use")
	}
	if len(pool.Lacking) > 0 {
		p.factIn(storyIn, yellow, "without", "no block in any pool that serves them: "+someNames(pool.Lacking))
	}
	if len(pool.Overlaps) > 0 {
		p.factIn(storyIn, red, "overlaps", pool.Overlaps...)
	}
	if pool.BlocksUnread {
		return
	}
	u := pool.Usage
	p.heading("arithmetic", "")
	taken := u.Allocated + u.CoolingDown
	usable := u.Addresses - min(u.Reserved, u.Addresses)
	p.rows(storyIn, [][]string{
		{"addresses", bar(taken, usable, 24), text.Percent(taken, usable), fmt.Sprintf("%s of %s booked, %s cooling down, %s reserved, %s can be given out",
			text.Count(u.Allocated), text.Count(u.Addresses), text.Count(u.CoolingDown), text.Count(u.Reserved), text.Count(u.Available))},
		{"blocks", bar(u.Claimed, u.Blocks, 24), text.Percent(u.Claimed, u.Blocks), fmt.Sprintf("%s of %s claimed, %s free, %s to take over",
			text.Count(u.Claimed), text.Count(u.Blocks), text.Count(u.Free), text.Count(u.Reclaimable))},
	}, 2)
	if len(pool.Shares) == 0 {
		return
	}
	p.heading("blocks by node", "")
	rows := make([][]string, 0, len(pool.Shares))
	for i, sh := range pool.Shares {
		if i == storyRows {
			break
		}
		cidrs := make([]string, 0, len(sh.Blocks))
		for _, c := range sh.Blocks {
			cidrs = append(cidrs, c.String())
		}
		owner := ownerText(sh.Owner, sh.OwnerIs)
		lent := fmt.Sprintf("%d lent", sh.Lent)
		if sh.Unknown > 0 {
			lent = "? lent"
		}
		rows = append(rows, []string{owner, text.Plural(len(sh.Blocks), "block"),
			fmt.Sprintf("%d booked", sh.Booked), lent, text.Count(sh.Room) + " free", someNames(cidrs)})
	}
	p.rows(storyIn, rows, 1, 2, 3, 4)
	p.more(len(pool.Shares), storyRows)
}
