package checks

import (
	"fmt"
	"slices"
	"strings"

	"ipamaudit/ipam"
)

// borrowedIPs finds addresses used on one node out of another node's block.
func borrowedIPs() Check {
	return Check{
		ID:          "borrowed-ips",
		Title:       "Addresses that a node borrows from another node's block",
		SubjectKind: KindNode,
		What: "A running pod (or a tunnel) whose address lies in a block that belongs to another node. Calico borrows when no free block is left and strict affinity is off, " +
			"and when a pod asks for a fixed address.",
		Why: "The owner drops its whole block except for routes it knows. Where BGP does not bring it the borrowed address' host route, " +
			"the owner and its pods cannot reach the borrowed pod, and nothing alerts.",
		How: "IPAM's record, the running pod and the node it really runs on must agree, and the block's owner is another node that exists. Without the owner's route table the topology decides how bad it is: " +
			"Felix (VXLAN; IPIP from v3.33), a node mesh or a route reflector carry host routes; external peers alone usually do not. " +
			"Addresses booked for the wrong node, leaked, ownerless, virtual, cooling down or without a recorded node belong to other checks.",
		SeverityNote: "Medium; low where only virtual machines have moved and the network carries their routes; high (inferred) where the topology cannot carry the host route and no route table says otherwise. Lost traffic itself is `blackholed-routes`.",
		Skewed:       true,
		Needs:        []ipam.Resource{ipam.ResBlocks, ipam.ResPods, ipam.ResNodes},
		Uses:         []ipam.Resource{ipam.ResPools, ipam.ResIPAMConfig, ipam.ResBGPConfig, ipam.ResBGPPeers, ipam.ResBGPFilters, ipam.ResFelixConfig, ipam.ResClusterInfo},
		Decides:      []ipam.Resource{ipam.ResPools, ipam.ResBGPConfig, ipam.ResBGPPeers},
		Example: func() []Step {
			return borrowedSteps(exampleCommands(), nil, nil, "NODE", nil)
		},
		Cases: func() []Case {
			c := exampleCommands()
			return []Case{
				{When: "Addresses that no annotation fixes", Steps: borrowedSteps(c, nil, nil, "NODE", nil)},
				{When: "Fixed (static) addresses, by the annotation ipAddrs", Steps: fixedSteps(c, "Let the network carry their host routes: they come back to the same block", "OWNER", "NODE", "ADDRESS")},
			}
		},
		Look: lines(exampleCommands().showBorrowed(), exampleCommands().showBlocks()),
		Sign: "Each row is an address that BORROWING-NODE takes out of BLOCK OWNER's block, for want of a free one. With a node mesh, route reflectors or VXLAN that works; whether traffic is lost tells `ip route get ADDRESS` on the owner.",
		Related: []Related{
			{"blackholed-routes", "Is traffic lost: does `ip route get ADDRESS` on the block's owner print “Invalid argument”?"},
			{"misbooked-ips", "Does the record name another node than the pod's?"},
			{"blockless-nodes", "Does the node own no block at all?"},
		},
		References: []string{
			"https://phabricator.wikimedia.org/T296303", "https://github.com/projectcalico/calico/issues/3246",
			"https://github.com/projectcalico/calico/issues/4287", "https://github.com/projectcalico/calico/issues/1138",
			"confd/etc/calico/confd/templates/bird_aggr.cfg.template", "felix/calc/l3_route_resolver.go",
		},
		Run: runBorrowedIPs,
	}
}

// borrowedUse is one borrowed address.
type borrowedUse struct {
	liveUse
	owner *ipam.Node
}

// fixed reports whether a new pool would not change the address: the pod asks
// for it, or its virtual machine keeps it.
func (u borrowedUse) fixed() bool {
	return u.holder.Pod != nil && (len(u.holder.Pod.RequestedIPs) > 0 || u.holder.Pod.VMI != "")
}

// borrowedBy sorts the borrowed addresses by the node that borrows.
func borrowedBy(in *Input) map[string][]borrowedUse {
	out := map[string][]borrowedUse{}
	for i := range in.Blocks {
		b := &in.Blocks[i]
		if !b.Owner.IsHost() {
			continue
		}
		owner := in.NodeByFold(b.Owner.Name)
		if owner == nil {
			continue
		}
		for a := range b.Allocations() {
			if a.Attr.Node == "" {
				continue
			}
			h := in.Holder(a)
			switch h.Kind {
			case ipam.HeldByPod, ipam.HeldBySibling, ipam.HeldByTunnel:
			default:
				continue
			}
			if h.Node == nil || h.Node == owner || in.NodeByFold(a.Attr.Node) != h.Node {
				continue
			}
			out[h.NodeName] = append(out[h.NodeName], borrowedUse{liveUse{a, h}, owner})
		}
	}
	return out
}

func runBorrowedIPs(in *Input) Result {
	var res Result
	byNode := borrowedBy(in)
	c := commandsFor(in.Snapshot)
	for i := range in.Nodes {
		n := &in.Nodes[i]
		uses := byNode[n.Name]
		if len(uses) == 0 {
			continue
		}
		res.Findings = append(res.Findings, borrowedFinding(in, c, n, uses))
	}
	return res
}

func borrowedFinding(in *Input, c commands, n *ipam.Node, uses []borrowedUse) Finding {
	f := Finding{
		Severity: Medium,
		Subject:  Subject{Kind: KindNode, Name: n.Name},
		Title:    "Node " + n.Name + " borrows addresses from other nodes' blocks",
	}
	owners := map[string]int{}
	var risk, carried, unseen []string
	fixed, machines := 0, 0
	note := func(list *[]string, s string) {
		if !slices.Contains(*list, s) {
			*list = append(*list, s)
		}
	}
	for _, u := range uses {
		owners[u.owner.Name]++
		what := "tunnel of " + n.Name
		if u.holder.Pod != nil {
			what = u.holder.Pod.Key()
			if u.holder.Pod.VMI != "" {
				machines++
				what += ", a virtual machine that has moved here"
			}
			if fixedAddress(u.holder.Pod, u.alloc.IP) {
				fixed++
				what += ", fixed by annotation"
			}
		}
		verdict := verdictOf(in, n, u)
		switch verdict.carry {
		case ipam.AtRisk:
			note(&risk, verdict.why)
		case ipam.CarryUnknown:
			note(&unseen, verdict.why)
		default:
			note(&carried, verdict.why)
		}
		f.Affected = append(f.Affected, Affected{Kind: KindIP, Name: u.alloc.IP.String(),
			Note: fmt.Sprintf("%s, from block %s of %s (%s)", what, u.alloc.Block.CIDR, u.owner.Name, verdict.short)})
	}
	var from []string
	for name, k := range owners {
		from = append(from, fmt.Sprintf("%s (%d)", name, k))
	}
	slices.Sort(from)
	detail := []string{fmt.Sprintf("%s in use here out of blocks of %s", count(uint64(len(uses)), "address"), names(from, 5)), whyBorrowed(in, n, fixed, machines, len(uses))}
	if machines == len(uses) {
		f.Severity = Low
	}
	if len(risk) > 0 {
		f.Severity, f.Evidence = High, Inferred
		detail = append(detail, "Likely unreachable from the owner: "+strings.Join(risk, "; ")+". No route table of the owner was seen that says otherwise")
	}
	for _, s := range append(carried, unseen...) {
		detail = append(detail, upperFirst(s))
	}
	f.Detail = strings.Join(detail, ". ") + "."
	f.Remediation = borrowedSteps(c, in, firstPool(uses), n.Name, uses)
	return f
}

// carryVerdict is what is known of the way from the owner to a borrowed address.
type carryVerdict struct {
	carry ipam.Carry
	why   string
	short string
}

func verdictOf(in *Input, n *ipam.Node, u borrowedUse) carryVerdict {
	p := u.alloc.Block.Pool()
	// BIRD's table speaks for the pools that BIRD programs; a blind one for none.
	if t := in.Table(u.owner.Name); t != nil && t.Blind(u.alloc.IP) == "" && (t.Kind == ipam.KernelTable || p != nil && in.RoutesBy(p) == ipam.BIRD) {
		if r := t.Lookup(u.alloc.IP); r != nil && r.Type.Drops() {
			return carryVerdict{ipam.Carried, "the owner's route table shows that it drops some of them: see blackholed-routes", "dropped by the owner"}
		}
		return carryVerdict{ipam.Carried, "the owner's route table has a way to those that it does not drop", "owner has a route"}
	}
	if p == nil && !in.Coverage.Read(ipam.ResPools) {
		return carryVerdict{ipam.CarryUnknown, "the blocks' pools were not read", "owner's route unknown"}
	}
	if p == nil {
		return carryVerdict{ipam.CarryUnknown, "block " + u.alloc.Block.CIDR.String() + " is in no pool", "owner's route unknown"}
	}
	carry, why := in.CarriesAddress(u.alloc.IP, p, u.owner, n)
	short := map[ipam.Carry]string{ipam.Carried: "host route carried", ipam.AtRisk: "host route at risk", ipam.CarryUnknown: "owner's route unknown"}[carry]
	return carryVerdict{carry, why, short}
}

// whyBorrowed says why Calico borrowed: no block free now, a fixed address, or
// none free back then.
func whyBorrowed(in *Input, n *ipam.Node, fixed, machines, total int) string {
	switch total {
	case fixed:
		return "The pods ask for these addresses by annotation"
	case machines:
		return "Virtual machines keep their address when they move"
	}
	if !in.Coverage.Read(ipam.ResPools) || in.Coverage.Refused(ipam.ResReservations) {
		return "Whether a block is free was not seen"
	}
	for _, v4 := range []bool{true, false} {
		pools := in.Serving(n, v4, ipam.UseWorkload)
		if len(pools) == 0 {
			continue
		}
		if free, reclaimable := in.Free(pools, n.Name); free+reclaimable == 0 {
			return fmt.Sprintf("Cause: no block is free in %s and strict affinity is %s, so Calico borrows", poolNames(pools), strictness(in))
		}
	}
	return fmt.Sprintf("Blocks are free now; they were not, or the addresses were fixed, when these pods started (strict affinity is %s)", strictness(in))
}

// strictness spells strict affinity.
func strictness(in *Input) string {
	switch {
	case in.Coverage.Refused(ipam.ResIPAMConfig):
		return "not known"
	case in.Config.StrictAffinity:
		return "on"
	}
	return "off"
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func firstPool(uses []borrowedUse) *ipam.Pool { return uses[0].alloc.Block.Pool() }

// borrowedSteps: capacity, then recreate the borrowers, then forbid borrowing.
// In any other order pods borrow again, or hang instead of being unreachable.
// Fixed addresses survive all that, so their routes come first, and nothing
// else where all are fixed. in may be nil.
func borrowedSteps(c commands, in *Input, p *ipam.Pool, node string, uses []borrowedUse) []Step {
	var steps []Step
	if i := slices.IndexFunc(uses, borrowedUse.fixed); i >= 0 {
		var fixed []*ipam.Pod
		for _, u := range uses {
			if u.fixed() {
				fixed = append(fixed, u.holder.Pod)
			}
		}
		_, _, keys := recreate(c, fixed, 0)
		u := uses[i]
		steps = fixedSteps(c, "Fixed addresses come back to the same block: "+names(keys, 5)+" need their route carried instead", u.owner.Name, u.holder.NodeName, u.alloc.IP.String())
		if !slices.ContainsFunc(uses, func(u borrowedUse) bool { return !u.fixed() }) {
			return steps
		}
	}
	steps = append(steps, capacitySteps(c, p, nil)...)
	var pods []*ipam.Pod
	var tunnels []string
	for _, u := range uses {
		if u.holder.Pod != nil {
			pods = append(pods, u.holder.Pod)
			continue
		}
		for _, t := range u.holder.Node.Tunnels {
			if t.IP == u.alloc.IP {
				tunnels = append(tunnels, t.Kind)
			}
		}
	}
	del, bare, fixed := recreate(c, pods, commandLimit)
	if uses == nil {
		del = c.evict([]*ipam.Pod{{Namespace: "NAMESPACE", Name: "POD"}}, 1)
	}
	if len(del)+len(bare) > 0 {
		steps = append(steps, Step{
			Title: "Once a block is free, recreate the borrowing pods: they get addresses from " + node + "'s own block" + leftOver(bare, nil),
			Risk:  Disruptive, Commands: del,
			Verify: c.showBorrowed() + "   # lists none of " + node,
		})
	}
	if len(tunnels) > 0 {
		// Through a restart alone calico-node keeps an address that is booked
		// for its tunnel (node/pkg/allocateip: ensureHostTunnelAddress).
		restart := restartCalicoNode(node, "Once a block is free, let calico-node take a tunnel address from it: without the annotation it gives its old one back when it starts")
		restart.Commands = append(c.forgetTunnels(node, tunnels), restart.Commands...)
		restart.Verify = c.showBorrowed() + "   # lists no tunnel of " + node
		steps = append(steps, restart)
	}
	if len(fixed) > 0 {
		return steps
	}
	return append(steps, strictSteps(c, in)...)
}

// fixedSteps bring the route of a fixed address to the block's owner, whatever
// the network is.
func fixedSteps(c commands, title, owner, node, ip string) []Step {
	return slices.Insert(meshSteps(c, owner, node, ip), 1, routingStep(c, title))
}

// meshSteps find the half of a mesh that lacks the host route, and mend that; a
// new pool or an eviction would bring the same address back.
func meshSteps(c commands, owner, node, ip string) []Step {
	return []Step{
		{
			Title: "See whether " + node + " has the route, and " + owner + " a session that brings it (a node mesh, a route reflector)",
			Commands: []string{
				"ip route show " + ip + "   # on " + node + ": “dev cali…”; on " + owner + ": “via …”, which is missing",
				"calicoctl node status   # as root, on both: each has the other (or the reflector) as Established",
			},
			Risk: Safe, Verify: "All is there but the “via …” on " + owner + ". A session that is not Established is the cause itself: see to BGP between the two (TCP port 179) first.",
		},
		{
			Title:    "In a mesh restart calico-node on " + node + ", which should announce the route, then on " + owner + ", which should learn it",
			Commands: []string{restartAgent(node), restartAgent(owner) + "   # if a minute later it still has no way"},
			Risk:     Disruptive, Verify: "ip route get " + ip + "   # on " + owner + ": a way, not \"Invalid argument\"",
		},
		{
			Title:    "Else schedule the pod onto the owner of its address' block, or give it a fixed address out of a block of " + node,
			Commands: []string{c.blockOwners()},
			Risk:     Safe, Verify: "The owner of the block is the node that the pod runs on.",
		},
	}
}

// routingStep makes BGP carry host routes; it leaves IPAM alone.
func routingStep(c commands, title string) Step {
	cmds := []string{"calicoctl get bgppeers -o wide   # none, or all of the nodes' own AS: there is no eBGP peer to patch"}
	if !c.version.Lacks(ipam.OwnASAllowed) {
		cmds = append(cmds, `calicoctl patch bgppeer PEER -p '{"spec":{"numAllowedLocalASNumbers":1}}'   # for each eBGP peer; since v3.23`)
	}
	return Step{
		Title:    title + " (accept the own AS from eBGP peers, or let the routers override it, or add a route reflector or the node mesh)",
		Commands: cmds, Risk: Disruptive,
		Verify: "ip route get ADDRESS   # on the owner: a way, not \"Invalid argument\"",
	}
}

// strictSteps look once more and then forbid borrowing. They are last: strict
// affinity heals nothing that exists, and without a free block it turns
// unreachable pods into pods that do not start. So it does for pods with fixed
// addresses anywhere but on the owner of their block; in may be nil.
func strictSteps(c commands, in *Input) []Step {
	last := "Last, when nothing is borrowed, every node has a block, and no pod with a fixed address (ipAddrs) may have to start outside its address' block: forbid borrowing. It changes no running pod; nodes without a block start none, and fixed addresses start on their block's owner only"
	if pods := pinnedPods(in); len(pods) > 0 {
		last += ". Here " + plain(len(pods), "pod has a fixed address: ", "pods have fixed addresses: ") + names(pods, 5)
	}
	return []Step{
		{
			Title:    "Before strict affinity see that nothing is borrowed, that every node has a block, and which pods have fixed addresses",
			Commands: []string{c.showBorrowed(), c.nodesAgainstOwners(), podsWithFixed()},
			Risk:     Safe, Verify: "The table has no rows (else recreate these pods first, borrowed-ips says how), and no line begins with <: a node without a block starts no pod under strict affinity, unless one is free for it. No pod has a fixed address, or each of these always runs on its block's owner.",
		},
		{
			Title:    last,
			Commands: []string{c.strictAffinity()},
			Risk:     Disruptive, Verify: c.showConfiguration() + "   # StrictAffinity true",
		},
	}
}

// pinnedPods are the pods that ask for a fixed address.
func pinnedPods(in *Input) []string {
	if in == nil {
		return nil
	}
	var out []string
	for i := range in.Pods {
		if p := &in.Pods[i]; p.Live() && len(p.RequestedIPs) > 0 {
			out = append(out, p.Key())
		}
	}
	slices.Sort(out)
	return out
}

// podsWithFixed lists the pods that ask for a fixed address, with their nodes.
func podsWithFixed() string {
	return `kubectl get pods -A -o custom-columns='NAMESPACE:.metadata.namespace,POD:.metadata.name,NODE:.spec.nodeName,FIXED:.metadata.annotations.cni\.projectcalico\.org/ipAddrs' | grep -v '<none> *$'   # the pods with fixed addresses`
}
