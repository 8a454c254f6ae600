package checks

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ipamaudit/ipam"
)

// nodeBlockLimit finds nodes that own as many blocks as one node may.
func nodeBlockLimit() Check {
	return Check{
		ID:          "node-block-limit",
		Title:       "Nodes that own as many blocks as one node may",
		SubjectKind: KindNode,
		What: "A node may own `maxBlocksPerHost` blocks per address family, 20 where nothing is set. A node at that number claims no further block, " +
			"however many are free. " + limitRule,
		Why: "When its blocks are full as well, the next pod there fails with “cannot allocate new block due to per host block limit”. Calico does not even borrow then. " +
			"The usual cause is not the limit but addresses that were never released: a higher limit only feeds them.",
		How: "Per node and family: the blocks and affinities it owns in the pools that may serve it (in one pool alone where pods are pinned to it), against the limit, " +
			"and the addresses left in them. A node whose blocks hold all that kubelet allows, or that kubelet has filled, needs no further block.",
		SeverityNote: "High when no address is left in a node in use, medium from `usedPercent`, or when the node takes no pods; low with room left.",
		Needs:        []ipam.Resource{ipam.ResBlocks, ipam.ResPools, ipam.ResNodes},
		Uses:         []ipam.Resource{ipam.ResPods, ipam.ResAffinities, ipam.ResIPAMConfig, ipam.ResReservations, ipam.ResNamespaces, ipam.ResClusterInfo},
		Decides:      []ipam.Resource{ipam.ResIPAMConfig},
		Params:       []Param{percentParam("usedPercent", 90, "share of taken addresses in the node's blocks from which it is medium")},
		Example: func() []Step {
			return append([]Step{releaseFirst(exampleCommands())}, roomPerNodeSteps(exampleCommands(), ipam.Config{}, nil, 0)...)
		},
		Cases: func() []Case {
			c, in := exampleCommands(), &Input{Snapshot: ipam.NewSnapshot()}
			return []Case{
				{When: "Far more is booked than used: leaks fill the blocks", Steps: append([]Step{releaseFirst(c)}, collectorSteps(c, in, "leaked addresses")...)},
				{When: "Nothing leaks: running pods fill the blocks", Steps: roomPerNodeSteps(c, ipam.Config{}, nil, 0)},
			}
		},
		Look: lines(releaseFirst(exampleCommands()).Commands...),
		Sign: "It is this where a node owns as many blocks as MaxBlocksPerHost says (20 where that is 0 or missing). **If “not actually in use” is far above 0, nothing is wrong with the limit:** release first (`leaked-ips`), a higher one would only leak as well.",
		Related: []Related{
			{"node-capacity", "Do running pods fill all the blocks, and nothing leaks?"},
			{"leaked-ips", "Are more addresses booked than pods run?"},
			{"blockless-nodes", "Does the node own fewer blocks than the limit, or none?"},
		},
		References: []string{
			"https://github.com/projectcalico/calico/issues/4861", "https://github.com/harvester/harvester/issues/3089",
			"https://github.com/projectcalico/calico/issues/9462", "https://github.com/projectcalico/libcalico-go/pull/1368",
			"libcalico-go/lib/ipam/ipam.go (AutoAssign: maxNumBlocks)",
		},
		Run: runNodeBlockLimit,
	}
}

// limitRule is what Calico does about the limit and strict affinity
// (libcalico-go/lib/ipam/ipam.go: SetIPAMConfig refuses, AutoAssign obeys).
const limitRule = "`maxBlocksPerHost` goes together with strict affinity: calicoctl refuses a limit without it, kubectl does not, and the allocator obeys the limit either way."

// limitUse is what one node owns of one set of pools that a request may draw from.
type limitUse struct {
	pools  []*ipam.Pool
	blocks []*ipam.Block
	// unmade are affinities without a block: they count against the limit, too.
	unmade int
	room   uint64
	// own, lent and idle addresses: the node's live ones, those live elsewhere,
	// and those that nobody uses.
	own, lent, idle int
	size            uint64
}

func (u limitUse) owned() int { return len(u.blocks) + u.unmade }

func runNodeBlockLimit(in *Input) Result {
	if in.Coverage.Refused(ipam.ResIPAMConfig) {
		return Result{} // the default limit would be a guess
	}
	var res Result
	unmade := unmadeByNode(in)
	for i := range in.Nodes {
		n := &in.Nodes[i]
		var at []limitUse
		severity := Severity("")
		for _, pools := range requestSets(in, n) {
			u := useOf(in, n, pools, unmade[n.Name])
			if u.owned() < in.Config.BlockLimit() {
				continue
			}
			if s := judgeLimit(in, n, u); s != "" {
				severity = Worst(severity, s)
				at = append(at, u)
			}
		}
		if len(at) > 0 {
			res.Findings = append(res.Findings, limitFinding(in, n, severity, at))
		}
	}
	if len(res.Findings) > 0 && !in.Coverage.Read(ipam.ResPods) {
		res.Unseen = []string{"pods, to tell leaked addresses from those in use"}
	}
	return res
}

// requestSets are the sets of pools that a request on the node may draw from:
// those that serve it, per family, and each other pool it owns blocks of, since
// pods may be pinned to it.
func requestSets(in *Input, n *ipam.Node) [][]*ipam.Pool {
	var out [][]*ipam.Pool
	serving := map[*ipam.Pool]bool{}
	for _, v4 := range []bool{true, false} {
		pools := in.Serving(n, v4, ipam.UseWorkload)
		if len(pools) == 0 {
			continue
		}
		out = append(out, pools)
		for _, p := range pools {
			serving[p] = true
		}
	}
	for _, b := range in.BlocksOf(n.Name) {
		p := b.Pool()
		if p == nil || serving[p] || !p.Enabled() || !p.AllowedUses.Has(ipam.UseWorkload) {
			continue
		}
		serving[p] = true
		out = append(out, []*ipam.Pool{p})
	}
	return out
}

// unmadeByNode sorts affinities that have no block by Kubernetes' node name.
func unmadeByNode(in *Input) map[string][]netip.Prefix {
	out := map[string][]netip.Prefix{}
	for i := range in.Affinities {
		a := &in.Affinities[i]
		if a.Type == "host" && in.BlockAt(a.CIDR) == nil && a.State != ipam.StatePendingDeletion {
			out[in.KubernetesName(a.Node)] = append(out[in.KubernetesName(a.Node)], a.CIDR)
		}
	}
	return out
}

func useOf(in *Input, n *ipam.Node, pools []*ipam.Pool, unmade []netip.Prefix) limitUse {
	u := limitUse{pools: pools, blocks: in.OwnsIn(n.Name, pools)}
	for _, cidr := range unmade {
		if slices.ContainsFunc(pools, func(p *ipam.Pool) bool { return ipam.Contains(p.CIDR, cidr) }) {
			u.unmade++
		}
	}
	seen := map[*ipam.Pod]bool{}
	for _, b := range u.blocks {
		u.room += in.Room(b)
		u.size += b.Size()
		if n.Windows {
			u.size -= min(4, b.Size())
		}
		for a := range b.Allocations() {
			switch h := in.Holder(a); {
			case h.Kind == ipam.HeldByWindows:
			case h.Kind.Live() && h.NodeName == n.Name:
				u.own++
			case h.Kind.Live():
				u.lent++
			case h.Kind == ipam.HeldByWaitingPod && !seen[h.Pod]:
				// One record per waiting pod is how every start begins.
				seen[h.Pod] = true
				u.own++
			case h.Kind == ipam.HeldUnknown:
				u.own++
			default:
				u.idle++
			}
		}
	}
	return u
}

// needs is what the node could ask for at most: what kubelet allows, less the
// pods on the host's network, plus the tunnels in these pools; 0 is unknown.
func needs(in *Input, n *ipam.Node, pools []*ipam.Pool) int {
	if n.MaxPods <= 0 {
		return 0
	}
	need := n.MaxPods
	for _, p := range in.PodsOn(n.Name) {
		if p.HostNetwork && !p.Finished() {
			need--
		}
	}
	for _, t := range n.Tunnels {
		if slices.ContainsFunc(pools, func(p *ipam.Pool) bool { return p.CIDR.Contains(t.IP) }) {
			need++
		}
	}
	return max(need, 1)
}

// kubeletFull reports whether kubelet takes no further pod on the node.
func kubeletFull(in *Input, n *ipam.Node) bool {
	if n.MaxPods <= 0 {
		return false
	}
	running := 0
	for _, p := range in.PodsOn(n.Name) {
		if !p.Finished() {
			running++
		}
	}
	return running >= n.MaxPods
}

func judgeLimit(in *Input, n *ipam.Node, u limitUse) Severity {
	stuck := len(waiting(in, n.Name)) > 0
	switch {
	case u.room == 0 && stuck:
		return High
	case u.room == 0 && kubeletFull(in, n):
		return ""
	case u.room == 0 && in.InUse(n):
		return High
	case u.room == 0:
		return Medium
	}
	if need := needs(in, n, u.pools); need > 0 && u.size >= uint64(need) && u.idle == 0 {
		return ""
	}
	if percent(u.size-min(u.room, u.size), u.size) >= in.Params.Float("usedPercent") {
		return Medium
	}
	return Low
}

func limitFinding(in *Input, n *ipam.Node, severity Severity, at []limitUse) Finding {
	f := Finding{
		Severity: severity, Subject: Subject{Kind: KindNode, Name: n.Name},
		Title: "Node " + n.Name + " owns as many blocks as a node may",
	}
	limit := fmt.Sprintf("maxBlocksPerHost is %d", in.Config.MaxBlocksPerHost)
	if in.Config.MaxBlocksPerHost <= 0 {
		limit = fmt.Sprintf("maxBlocksPerHost is not set, which means %d", ipam.DefaultBlockLimit)
	}
	detail := []string{upperFirst(limit) + " per address family"}
	leaks := false
	for _, u := range at {
		detail = append(detail, fmt.Sprintf("%s of %s with %s: %d its own, %d lent to other nodes, %d that nobody uses, %s left",
			count(uint64(u.owned()), "block"), poolNames(u.pools), count(u.size, "address"), u.own, u.lent, u.idle, figure(u.room)))
		per := max(u.size/uint64(max(len(u.blocks), 1)), 1)
		if enough := (uint64(u.own) + per - 1) / per; u.idle+u.lent > 0 && enough < uint64(u.owned()) {
			leaks = true
			detail = append(detail, fmt.Sprintf("Its own addresses would fit into %s (%d ÷ %d, rounded up): the limit is not the cause", count(max(enough, 1), "block"), u.own, per))
		}
		for _, b := range u.blocks {
			f.Affected = append(f.Affected, Affected{Kind: KindBlock, Name: b.CIDR.String(), Note: fmt.Sprintf("%s booked, %s left", count(uint64(len(b.Slots)), "address"), figure(in.Room(b)))})
		}
	}
	stuck := waiting(in, n.Name)
	for _, p := range stuck {
		f.Affected = append(f.Affected, Affected{Kind: KindPod, Namespace: p.Namespace, Name: p.Name, Note: "waits for an address"})
	}
	if len(stuck) > 0 {
		detail = append(detail, count(uint64(len(stuck)), "pod")+" waiting for an address here")
	}
	f.Detail = strings.Join(detail, ". ") + "."

	c := commandsFor(in.Snapshot)
	pods := in.Coverage.Read(ipam.ResPods)
	if leaks || !pods || at[0].idle > 0 {
		f.Remediation = append(f.Remediation, releaseFirst(c))
	}
	if !leaks && pods {
		f.Remediation = append(f.Remediation, roomPerNodeSteps(c, in.Config, at[0].pools[0], needs(in, n, at[0].pools))...)
	}
	return f
}

// releaseFirst points to the findings that free addresses: a higher limit
// would only feed the leak.
func releaseFirst(c commands) Step {
	return Step{
		Title:    "See limit, block sizes and blocks, and how much is booked that nobody uses. This step only looks: release that first, as leaked-ips, orphan-affinities and multi-block-nodes say, before you raise a limit",
		Commands: []string{c.showConfiguration(), c.blockSizes(), c.blocksPerNode(), c.compareUse()},
		Risk:     Safe, Verify: c.showBlocks() + "   # once it is released the node's blocks have free addresses again",
	}
}

// roomPerNodeSteps give one node more addresses: more blocks, where Calico
// accepts a limit, or larger ones. A further pool alone would not help, since
// blocks of all pools count against the limit.
func roomPerNodeSteps(c commands, cfg ipam.Config, like *ipam.Pool, need int) []Step {
	sum := Step{
		Title: "Do the sum: the addresses of a block (64 with blockSize 26, 1 with 32) × the blocks that a node may own, against the pods that kubelet allows there",
		Commands: []string{
			"kubectl get " + c.resource(ipam.ResIPAMConfig) + ` default -o jsonpath='{.spec.strictAffinity} {.spec.maxBlocksPerHost}{"\n"}'   # NotFound: strict affinity off, 20 blocks`,
			"kubectl get nodes -o custom-columns=NAME:.metadata.name,PODS:.status.capacity.pods",
		},
		Risk: Safe, Verify: "The limit, or 20 where it is 0 or missing, times the addresses of a block is less than the pods that need one.",
	}
	more := Step{
		Title:    "Only with strict affinity on, else go on with the next step: allow more blocks per node than now; check with pool-utilisation first that the pools have that many",
		Commands: c.blockLimitToSet(),
		Risk:     Safe, Verify: "calicoctl ipam show --show-configuration   # MaxBlocksPerHost is higher than before",
	}
	if like == nil {
		return append([]Step{sum, more}, largerBlocksSteps(c, cfg, nil, need, true)...)
	}
	size := like.Usable(false)
	enough := (uint64(max(need, 1)) + size - 1) / size
	blocks := max(enough, uint64(cfg.BlockLimit())+1)
	sum.Title = fmt.Sprintf("Do the sum: a block has %s here and a node may own %s, so it gets %s; %s would do for %s (%d ÷ %d, rounded up)",
		count(size, "usable address"), count(uint64(cfg.BlockLimit()), "block"), figure(size*uint64(cfg.BlockLimit())), count(enough, "block"), count(uint64(max(need, 1)), "address"), max(need, 1), size)
	steps := []Step{sum}
	if cfg.StrictAffinity && blocks <= 256 {
		more.Title = fmt.Sprintf("Only with strict affinity on, and where step 1 does not show a limit above %d, else go on with the next step: allow more blocks per node; check with pool-utilisation first that the pools have that many", cfg.BlockLimit())
		more.Commands = []string{c.blockLimit(int(blocks))}
		more.Verify = fmt.Sprintf("calicoctl ipam show --show-configuration   # MaxBlocksPerHost %d", blocks)
		steps = append(steps, more)
	}
	return append(steps, largerBlocksSteps(c, cfg, like, need, len(steps) > 1)...)
}

// largerBlocksSteps move to a pool with larger blocks, or may do so where the
// limit was raised instead. The old pool has to be disabled: otherwise its blocks
// go on counting.
func largerBlocksSteps(c commands, cfg ipam.Config, like *ipam.Pool, need int, instead bool) []Step {
	move, disable := "Move", "Then disable"
	if instead {
		// One without the other would disable the only pool.
		move, disable = "Or move", "Only if you moved, and with a free block in the new pool: disable"
	}
	var larger *ipam.Pool
	name := "OLD-POOL"
	if like != nil {
		p := *like
		// Calico accepts /20 to /32 and /116 to /128.
		widest := 20
		if !p.IsV4() {
			widest = 116
		}
		for p.BlockSize > widest && (p.BlockSize == like.BlockSize || p.Usable(false)*uint64(cfg.BlockLimit()) < uint64(max(need, 1))) {
			p.BlockSize--
		}
		larger, name = &p, like.Name
	}
	return []Step{
		{
			Title:    move + " to larger blocks. The size of a pool cannot be changed: add a pool with another range",
			Commands: c.addPool(larger), Risk: Safe,
			Verify: "calicoctl ipam show   # lists the new pool with free addresses",
		},
		{
			Title: disable + " the old pool, so that its blocks no longer count; running pods keep their addresses until they are recreated",
			// Pasted without the step before, it must not disable the only pool.
			Commands: []string{"kubectl get " + c.resource(ipam.ResPools) + " " + Quote(newPoolName(larger)) + " && " + c.disablePool(name)}, Risk: Disruptive,
			Verify: c.showBlocks() + "   # new pods are in blocks of the new pool",
		},
	}
}
