package checks

import (
	"fmt"
	"strings"

	"ipamaudit/ipam"
)

// blocklessNodes finds nodes that own no block and cannot get one.
func blocklessNodes() Check {
	return Check{
		ID:          "blockless-nodes",
		Title:       "Nodes in use that own no block and can claim none",
		SubjectKind: KindNode,
		What: "A node that owns no block in any pool that serves it, at a moment when no block is left to claim. " +
			"Having no block is normal as long as one is free: Calico claims the first with the first pod.",
		Why: "The next pod there borrows an address from another node's block, which some networks cannot route, " +
			"or, with strict affinity, stays in ContainerCreating. The node looks Ready all the time.",
		How: "Per address family: the pools that are enabled, assign automatically, allow workloads and select the node. Where some of them are for some namespaces only (`namespaceSelector`), each namespace with pods on the node is looked at by itself. The node owns no block in any of them and " +
			"none is free (unclaimed and not wholly reserved; from Calico v3.32 also another node's empty block older than a minute). " +
			"Cordoned nodes, the control plane, tainted nodes and nodes with host-network workloads only are left out unless a pod waits there for an address.",
		SeverityNote: "Always high. Silent while a block is free.",
		Needs:        []ipam.Resource{ipam.ResBlocks, ipam.ResPools, ipam.ResNodes},
		Uses:         []ipam.Resource{ipam.ResPods, ipam.ResReservations, ipam.ResIPAMConfig, ipam.ResClusterInfo, ipam.ResAffinities, ipam.ResNamespaces},
		Decides:      []ipam.Resource{ipam.ResPods, ipam.ResReservations},
		Example: func() []Step {
			return blocklessSteps(exampleCommands(), nil, "NODE", nil, "they would borrow addresses that the blocks' owners may drop")
		},
		Look: lines(exampleCommands().nodesAgainstOwners(), exampleCommands().compareUse(), exampleCommands().showBlocks()),
		Sign: "It is this where `<` marks the node and no block is free: a pool has 2^(blockSize − prefix length) blocks, four in a /24 with blockSize 26, and as many are listed. While one is free the node's first pod claims it, and nothing is wrong.",
		Related: []Related{
			{"block-layout", "Do blocks differ in size (a /19 among /21s), or lie inside each other?"},
			{"pool-utilisation", "Do nodes with blocks fail, too?"},
			{"orphan-affinities", "Do nodes that are gone hold blocks?"},
			{"multi-block-nodes", "Do other nodes own more blocks than they need?"},
			{"pool-config", "Does no enabled pool select the node?"},
			{"node-block-limit", "Does the node own many blocks, all full?"},
		},
		References: []string{
			"https://phabricator.wikimedia.org/T296303", "https://github.com/projectcalico/calico/issues/5088",
			"https://github.com/projectcalico/calico/issues/3246", "libcalico-go/lib/ipam/ipam.go (AutoAssign)",
		},
		Run: runBlocklessNodes,
	}
}

func runBlocklessNodes(in *Input) Result {
	res := Result{Unseen: hiddenShares(in)}
	var live map[string][]liveUse
	if len(unreadable(in, "IPPool")) > 0 {
		return res // a block may be free there
	}
	for i := range in.Nodes {
		n := &in.Nodes[i]
		if !in.InUse(n) {
			continue
		}
		var families, figures []string
		var pools []*ipam.Pool
		for _, v4 := range []bool{true, false} {
			for _, share := range in.Shares(n, v4) {
				if len(in.OwnsIn(n.Name, share.Pools)) > 0 {
					continue
				}
				if free, reclaimable := in.Free(share.Pools, n.Name); free+reclaimable > 0 {
					continue
				}
				families = append(families, ipam.Family(v4))
				pools = append(pools, share.Pools...)
				figures = append(figures, shareFigures(in, share, v4))
			}
		}
		if len(families) == 0 {
			continue
		}
		if live == nil {
			live = liveByNode(in)
		}
		res.Findings = append(res.Findings, blocklessFinding(in, n, families, figures, pools, live[n.Name]))
	}
	return res
}

// shareFigures prints "IPv4, 0 of 4 blocks free in pool-a (4 claimed)", and for
// whom where that is not everybody.
func shareFigures(in *Input, share ipam.Share, v4 bool) string {
	var claimed, blocks uint64
	for _, p := range share.Pools {
		claimed, blocks = claimed+in.Usage(p).Claimed, blocks+in.Usage(p).Blocks
	}
	text := fmt.Sprintf("%s, 0 of %s free in %s (%s claimed)", ipam.Family(v4), count(blocks, "block"), poolNames(share.Pools), figure(claimed))
	if len(share.Namespaces) > 0 {
		text += ", which is all that pods of " + names(share.Namespaces, 5) + " may use"
	}
	return text
}

func blocklessFinding(in *Input, n *ipam.Node, families, figures []string, pools []*ipam.Pool, uses []liveUse) Finding {
	var borrowed, waiting []Affected
	for _, u := range uses {
		if u.alloc.Block.Owner.IsHost() && u.holder.Pod != nil {
			borrowed = append(borrowed, Affected{Kind: KindIP, Name: u.alloc.IP.String(), Note: u.holder.Pod.Key() + ", borrowed from " + u.alloc.Block.Owner.Name})
		}
	}
	for _, p := range in.PodsOn(n.Name) {
		if p.WaitsForAddress() {
			waiting = append(waiting, Affected{Kind: KindPod, Namespace: p.Namespace, Name: p.Name, Note: "waits for an address"})
		}
	}
	next := "The next pod here borrows an address from another node's block"
	switch {
	case in.Coverage.Refused(ipam.ResIPAMConfig):
		next = "Whether the next pod here borrows an address from another node's block or gets none, strict affinity says, which was not read"
	case in.Config.StrictAffinity:
		next = "With strict affinity the next pod here gets no address and stays in ContainerCreating"
	}
	detail := []string{"Owns no block and can claim none: " + strings.Join(figures, "; "), next}
	if len(borrowed) > 0 {
		detail = append(detail, "Already borrowed here: "+count(uint64(len(borrowed)), "pod address"))
	}
	if len(waiting) > 0 {
		detail = append(detail, fmt.Sprintf("%s for an address", count(uint64(len(waiting)), "pod")+" waiting"))
	}
	evidence := Observed
	if !in.Coverage.Read(ipam.ResPods) {
		// Nodes with nothing but pods in the host's network need no block.
		evidence = Inferred
		detail = append(detail, "Pods were not read: that some here need addresses is assumed")
	}
	var surplus []string
	for _, g := range groupsFor(in, ipam.UseWorkload) {
		if poolNames(g.pools) == poolNames(pools) {
			for _, s := range surplusIn(in, g, liveByNode(in)) {
				surplus = append(surplus, s.node.Name)
			}
		}
	}
	return Finding{
		Severity:    High,
		Evidence:    evidence,
		Subject:     Subject{Kind: KindNode, Name: n.Name},
		Title:       "Node " + n.Name + " owns no block and none is free",
		Detail:      strings.Join(detail, ". ") + ".",
		Affected:    append(waiting, borrowed...),
		Remediation: blocklessSteps(commandsFor(in.Snapshot), pools[0], n.Name, surplus, borrowingHurts(in, n, pools)),
	}
}

// blocklessSteps gives the node a block: capacity, nothing else helps. Where
// pods would borrow without harm they may keep coming meanwhile; where they
// would be unreachable, or hang, the scheduler is better kept away.
func blocklessSteps(c commands, p *ipam.Pool, node string, surplus []string, harm string) []Step {
	steps := capacitySteps(c, p, surplus)
	if harm == "" {
		return steps
	}
	return append(steps, Step{
		Title:    "As long as that takes, keep new pods off the node: " + harm,
		Commands: []string{"kubectl cordon " + Quote(node)},
		Risk:     Disruptive, Verify: "kubectl get node " + Quote(node) + "   # SchedulingDisabled",
	}, Step{
		Title:    "When a block is free, let pods onto the node again: the first one claims it",
		Commands: []string{"kubectl uncordon " + Quote(node)},
		Risk:     Safe, Verify: "kubectl get " + c.resource(ipam.ResAffinities) + " -o custom-columns=NODE:.spec.node,CIDR:.spec.cidr | grep -w " + Quote(node),
	})
}

// borrowingHurts says what would happen to the next pod on a node without a
// block; empty where it borrows an address that everybody can reach.
func borrowingHurts(in *Input, n *ipam.Node, pools []*ipam.Pool) string {
	if in.Config.StrictAffinity {
		return "they would hang in ContainerCreating"
	}
	for _, p := range pools {
		for i := range in.Blocks {
			b := &in.Blocks[i]
			owner := in.NodeByFold(b.Owner.Name)
			if b.Pool() != p || owner == nil || owner == n {
				continue
			}
			if carry, _ := in.CarriesHostRoute(p, owner, n); carry == ipam.AtRisk {
				return "they would borrow addresses that the blocks' owners may drop"
			}
			break // one owner stands for all: the topology is the same
		}
	}
	return ""
}
