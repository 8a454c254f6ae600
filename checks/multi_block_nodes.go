package checks

import (
	"fmt"
	"slices"
	"strings"

	"ipamaudit/ipam"
)

// multiBlockNodes finds nodes that hold more blocks than they need.
func multiBlockNodes() Check {
	return Check{
		ID:          "multi-block-nodes",
		Title:       "Nodes that own more blocks than their live addresses need",
		SubjectKind: KindNode,
		What: "A node that owns more blocks of a pool than its own pods and tunnel addresses fill. It claimed them while it ran more pods, " +
			"for instance when a neighbour was down, and a block that still holds one address is never given back.",
		Why: "The surplus is what other nodes lack: with all blocks claimed they borrow, or start no pod. While the pool is roomy it is only waste.",
		How: "Need = addresses of this pool that pods and tunnels use on the node ÷ usable addresses of a block, rounded up, and at least one, since Calico always leaves a node its last block. " +
			"Addresses lent to other nodes keep a block busy but are not its owner's need. Nodes whose blocks are all full are left alone, as are disabled pools (a migration empties them).",
		SeverityNote: "Low while the pools that serve the node are roomy; medium when blocks are scarce: fewer free than nodes lack one, or under `scarcePercent` of the blocks.",
		Needs:        []ipam.Resource{ipam.ResBlocks, ipam.ResPools, ipam.ResNodes, ipam.ResPods},
		Uses:         []ipam.Resource{ipam.ResReservations, ipam.ResClusterInfo, ipam.ResAffinities},
		Decides:      []ipam.Resource{ipam.ResReservations},
		Params:       []Param{percentParam("scarcePercent", 10, "share of free blocks below which blocks are scarce")},
		Example:      func() []Step { return surplusCases()[0].Steps },
		Cases:        surplusCases,
		Look:         lines(exampleCommands().blocksPerNode(), exampleCommands().showBlocks(), exampleCommands().showBorrowed()),
		Sign:         "It is this where a node owns several blocks though what its pods use would fit into fewer. Others' addresses that are borrowed from a block keep it busy.",
		Related: []Related{
			{"blockless-nodes", "Does a node own no block, and none is free?"},
			{"pool-utilisation", "Are the blocks in good use, and the pool short all the same?"},
			{"orphan-affinities", "Is the owner a node that no longer exists?"},
			{"leaked-ips", "Do the blocks hold addresses of pods that are gone?"},
		},
		References: []string{
			"https://phabricator.wikimedia.org/T296303", "https://github.com/projectcalico/calico/issues/7987",
			"https://github.com/projectcalico/calicoctl/issues/1378", "kube-controllers/pkg/controllers/node/ipam.go (empty blocks)",
		},
		Run: runMultiBlockNodes,
	}
}

// surplusCases are the steps by what is in the block that can be spared.
func surplusCases() []Case {
	b := exampleBlockOf(exampleBlock, "host:NODE")
	use := func(node string) []liveUse {
		return []liveUse{{holder: ipam.Holder{Kind: ipam.HeldByPod, NodeName: node, Pod: &ipam.Pod{Namespace: "NAMESPACE", Name: "POD", NodeName: node, OwnerKind: "ReplicaSet"}}}}
	}
	var out []Case
	for _, one := range []struct {
		when      string
		own, lent []liveUse
	}{
		{"The block that can be spared is empty", nil, nil},
		{"Pods of its node are in it", use("NODE"), nil},
		{"Pods of other nodes borrow from it", nil, use("BORROWER")},
	} {
		spare := surplusBlock{block: &b, affinity: &ipam.Affinity{Name: "node-" + b.Name, UID: uidOfAffinity}, own: one.own, lent: one.lent}
		out = append(out, Case{When: one.when, Steps: multiBlockSteps(exampleCommands(), "NODE", []surplusBlock{spare})})
	}
	return out
}

// surplus is what one node holds too much of in one group's pool.
type surplus struct {
	node *ipam.Node
	pool *ipam.Pool
	// owned and need are numbers of blocks; live is the number of addresses.
	owned, need, live int
	blocks            []surplusBlock
}

// surplusBlock is a block that the node could do without.
type surplusBlock struct {
	block    *ipam.Block
	affinity *ipam.Affinity
	// own are the owner's live addresses in it, lent those of other nodes,
	// other what is booked without being used.
	own, lent []liveUse
	other     int
}

// surplusIn finds the surplus of every node in the group's pools.
func surplusIn(in *Input, g *group, live map[string][]liveUse) []surplus {
	var out []surplus
	for i := range in.Nodes {
		n := &in.Nodes[i]
		for _, p := range g.pools {
			if !p.Selects(n) {
				continue
			}
			owned := in.OwnsIn(n.Name, []*ipam.Pool{p})
			if len(owned) < 2 || !slices.ContainsFunc(owned, func(b *ipam.Block) bool { return !b.Full() }) {
				continue
			}
			used := 0
			for _, u := range live[n.Name] {
				if u.alloc.Block.Pool() == p {
					used++
				}
			}
			perBlock := int(p.Usable(n.Windows))
			need := max(1, (used+perBlock-1)/perBlock)
			if len(owned) <= need {
				continue
			}
			s := surplus{node: n, pool: p, owned: len(owned), need: need, live: used}
			s.blocks = pickSurplus(in, n, owned, len(owned)-need)
			out = append(out, s)
		}
	}
	return out
}

// pickSurplus chooses the blocks to give up: empty ones first, then the last
// in the order in which Calico fills a node's blocks (the affinities' names),
// because recreated pods go to the first one with room.
func pickSurplus(in *Input, n *ipam.Node, owned []*ipam.Block, howMany int) []surplusBlock {
	var all []surplusBlock
	for _, b := range owned {
		sb := surplusBlock{block: b}
		for _, a := range in.AffinitiesOf(b.CIDR) {
			if a.Node == b.Owner.Name {
				sb.affinity = a
			}
		}
		for a := range b.Allocations() {
			h := in.Holder(a)
			switch {
			case h.Kind == ipam.HeldByWindows:
			case h.Kind.Live() && h.NodeName == n.Name:
				sb.own = append(sb.own, liveUse{a, h})
			case h.Kind.Live():
				sb.lent = append(sb.lent, liveUse{a, h})
			default:
				sb.other++
			}
		}
		all = append(all, sb)
	}
	slices.SortStableFunc(all, func(a, b surplusBlock) int {
		if a.block.Empty() != b.block.Empty() {
			if a.block.Empty() {
				return -1
			}
			return 1
		}
		return strings.Compare(b.block.Name, a.block.Name)
	})
	return all[:howMany]
}

func runMultiBlockNodes(in *Input) Result {
	live := liveByNode(in)
	byNode := map[*ipam.Node][]surplus{}
	severity := map[*ipam.Node]Severity{}
	why := map[*ipam.Node]string{}
	seen := map[string]bool{}
	for _, g := range groupsFor(in, ipam.UseWorkload) {
		scarce, reason := g.scarce(in, in.Params.Float("scarcePercent"))
		for _, s := range surplusIn(in, g, live) {
			sev := Low
			if scarce {
				sev = Medium
			}
			if sev.Rank() > severity[s.node].Rank() {
				severity[s.node], why[s.node] = sev, reason
			}
			if key := s.node.Name + "\x00" + s.pool.Name; !seen[key] {
				seen[key] = true
				byNode[s.node] = append(byNode[s.node], s)
			}
		}
	}
	var res Result
	c := commandsFor(in.Snapshot)
	for i := range in.Nodes {
		n := &in.Nodes[i]
		list := byNode[n]
		if len(list) == 0 {
			continue
		}
		var detail []string
		var affected []Affected
		var blocks []surplusBlock
		for _, s := range list {
			detail = append(detail, fmt.Sprintf("%s of pool %s for %s: %s would do (%d ÷ %s usable per block, rounded up)",
				count(uint64(s.owned), "block"), s.pool.Name, count(uint64(s.live), "live address"), figure(uint64(s.need)), s.live, figure(s.pool.Usable(n.Windows))))
			blocks = append(blocks, s.blocks...)
			for _, b := range in.OwnsIn(n.Name, []*ipam.Pool{s.pool}) {
				affected = append(affected, blockRow(in, n, b, s.blocks))
			}
		}
		detail = append(detail, "Blocks: "+why[n])
		res.Findings = append(res.Findings, Finding{
			Severity:    severity[n],
			Subject:     Subject{Kind: KindNode, Name: n.Name},
			Title:       "Node " + n.Name + " owns more blocks than it needs",
			Detail:      strings.Join(detail, ". ") + ".",
			Affected:    affected,
			Remediation: multiBlockSteps(c, n.Name, blocks),
		})
	}
	return res
}

func blockRow(in *Input, n *ipam.Node, b *ipam.Block, surplus []surplusBlock) Affected {
	own, lent, other := 0, 0, 0
	borrowers := map[string]int{}
	for a := range b.Allocations() {
		switch h := in.Holder(a); {
		case h.Kind.Live() && h.NodeName == n.Name:
			own++
		case h.Kind.Live():
			lent++
			borrowers[h.NodeName]++
		default:
			other++
		}
	}
	note := fmt.Sprintf("%d own, %d lent, %d not in use", own, lent, other)
	if lent > 0 {
		var who []string
		for name, k := range borrowers {
			who = append(who, fmt.Sprintf("%s (%d)", name, k))
		}
		slices.Sort(who)
		note += "; borrowers to move first: " + names(who, 5)
	}
	if slices.ContainsFunc(surplus, func(s surplusBlock) bool { return s.block == b }) {
		note += "; can be given up"
	}
	return Affected{Kind: KindBlock, Name: b.CIDR.String(), Note: note}
}

// multiBlockSteps empties and returns the surplus blocks of one node. Order:
// borrowers leave for nodes that own blocks, then the owner's pods move
// together, then the empty block goes back. calicoctl has no command for the
// last step.
func multiBlockSteps(c commands, node string, blocks []surplusBlock) []Step {
	var empty, busy []surplusBlock
	for _, b := range blocks {
		if len(b.own)+len(b.lent)+b.other == 0 {
			empty = append(empty, b)
		} else {
			busy = append(busy, b)
		}
	}
	steps := []Step{{
		Title:    "See what the node's blocks hold, and who borrows from them",
		Commands: []string{c.showBlocks(), c.showBorrowed()},
		Risk:     Safe, Verify: "They hold less than they could, now as well.",
	}}
	if len(busy) > 0 {
		steps = append(steps, emptyingSteps(c, node, busy)...)
	}
	steps = append(steps, returnSteps(c, node, append(empty, busy...))...)
	if who := borrowersOf(busy); len(who) > 0 {
		uncordon := make([]string, len(who))
		for i, b := range who {
			uncordon[i] = "kubectl uncordon " + Quote(b)
		}
		steps = append(steps, Step{
			Title: "Let pods onto the borrowing nodes again: with a block free, the first one there claims it", Commands: uncordon,
			Risk: Safe, Verify: "kubectl get nodes   # none of them SchedulingDisabled",
		})
	}
	return steps
}

// borrowersOf are the nodes whose pods sit in the blocks of another, sorted.
func borrowersOf(blocks []surplusBlock) []string {
	var out []string
	for _, b := range blocks {
		for _, u := range b.lent {
			out = append(out, u.holder.NodeName)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func emptyingSteps(c commands, node string, busy []surplusBlock) []Step {
	var own, lent []*ipam.Pod
	var cidrs []string
	other := 0
	for _, b := range busy {
		cidrs = append(cidrs, b.block.CIDR.String())
		other += b.other
		for _, u := range b.own {
			if u.holder.Pod != nil {
				own = append(own, u.holder.Pod)
			}
		}
		for _, u := range b.lent {
			if u.holder.Pod != nil {
				lent = append(lent, u.holder.Pod)
			}
		}
	}
	borrowers := borrowersOf(busy)
	var steps []Step
	if len(lent) > 0 {
		cmds := make([]string, 0, len(borrowers)+len(lent))
		for _, b := range borrowers {
			cmds = append(cmds, "kubectl cordon "+Quote(b))
		}
		del, bare, fixed := recreate(c, lent, commandLimit)
		steps = append(steps, Step{
			Title: "Move the pods that borrow from " + strings.Join(cidrs, ", ") + " to nodes with blocks of their own (adding a pool instead, see pool-utilisation, spares all this)" + leftOver(bare, fixed),
			Risk:  Disruptive, Commands: append(cmds, del...),
			Verify: c.showBorrowed() + "   # lists none of them any more",
		})
	}
	if len(own) > 0 {
		del, bare, fixed := recreate(c, own, commandLimit)
		steps = append(steps, Step{
			Title: "Recreate " + node + "'s own pods in " + strings.Join(cidrs, ", ") + ": they come back in its first block with room" + leftOver(bare, fixed),
			Risk:  Disruptive, Commands: del,
			Verify: c.showBlocks() + "   # 0 in use in " + strings.Join(cidrs, ", "),
		})
	}
	if other > 0 {
		steps = append(steps, Step{
			Title:    fmt.Sprintf("Find out what else is booked there (%s that no running pod uses)", count(uint64(other), "address")),
			Commands: []string{"calicoctl ipam check --show-problem-ips"},
			Risk:     Safe, Verify: "Leaked addresses are released by kube-controllers within about 20 minutes; tunnel addresses stay.",
		})
	}
	return steps
}

func leftOver(bare, fixed []string) string {
	var out string
	if len(bare) > 0 {
		out += " (no controller would recreate " + names(bare, 5) + ": move by hand)"
	}
	if len(fixed) > 0 {
		out += " (" + names(fixed, 5) + " would come back with the same fixed address)"
	}
	return out
}

func returnSteps(c commands, node string, blocks []surplusBlock) []Step {
	var cidrs []string
	for _, b := range blocks {
		cidrs = append(cidrs, b.block.CIDR.String()+" (IPAMBlock "+b.block.Name+")")
	}
	list := names(cidrs, 5)
	var steps []Step
	if !c.version.Lacks(ipam.EmptyBlocksCollected) {
		steps = append(steps, Step{
			Title:    "Wait: kube-controllers gives an empty block back 15 to 22 minutes after it became empty, and leaves the node one: " + list,
			Commands: []string{c.showBlocks()},
			Risk:     Safe, Verify: "kubectl get " + c.resource(ipam.ResBlocks) + " " + Quote(blocks[0].block.Name) + "   # NotFound",
		})
	}
	title := "Only if it does not (collector off or absent): delete the empty block by hand"
	if len(steps) == 0 {
		title = "Calico before v3.21 keeps an empty block for ever: delete it by hand"
	}
	manual := Step{
		Title: title + "; while the datastore is locked no pod can start",
		Risk:  Destructive, Verify: "A changed object answers Conflict: then start again from the first step. " + c.showBlocks() + " no longer lists the block.",
	}
	for _, b := range blocks[:min(len(blocks), 3)] {
		manual.Commands = append(manual.Commands, c.deleteEmptyBlock(b.block, b.affinity)...)
	}
	return append(steps, manual)
}
