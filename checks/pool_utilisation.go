package checks

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"ipamaudit/ipam"
)

// poolUtilisation watches addresses and blocks of every pool, and of the pools
// that serve a node together.
func poolUtilisation() Check {
	return Check{
		ID:          "pool-utilisation",
		Title:       "Pools that run out of addresses or of blocks",
		SubjectKind: KindPool,
		What: "A pool runs out in two ways. Its **addresses** can be used up, and, long before that, its **blocks**: " +
			"every node takes at least one block (64 addresses for IPv4 by default), so a /24 serves four nodes even if each runs one pod. " +
			"The check counts both, for each pool and for all pools that can serve the same node together.",
		Why: "Without a free block a new node borrows single addresses from other nodes' blocks, which some networks cannot route, or, " +
			"with strict affinity, starts no pod at all. `calicoctl ipam show` prints 13 % used on such a cluster and nothing alerts.",
		How: "Addresses: allocated ÷ (addresses − reserved), with IPReservations and cool-down taken into account. " +
			"Blocks: those that no IPAMBlock overlaps and no reservation covers wholly; from Calico v3.32 also other nodes' empty blocks older than a minute, " +
			"which Calico takes over. Disabled, deleting and manual pools serve nobody. Nodes are grouped by the pools whose selector and allowed uses serve them; " +
			"a full pool is no alarm while another pool serves the same nodes, and the same namespaces of their pods where a pool has a `namespaceSelector`.",
		SeverityNote: "Critical when a node in use can get no address at all; high without a free block in all the pools a node may use, or from `highPercent` of the addresses; " +
			"medium from `mediumPercent`, or when fewer than `scarcePercent` of the blocks are free. Pools for load balancers only are judged by addresses; " +
			"a pool that selects no node (fixed addresses) is low at most.",
		Needs:   []ipam.Resource{ipam.ResBlocks, ipam.ResPools, ipam.ResNodes},
		Uses:    []ipam.Resource{ipam.ResPods, ipam.ResReservations, ipam.ResIPAMConfig, ipam.ResClusterInfo, ipam.ResAffinities, ipam.ResNamespaces},
		Decides: []ipam.Resource{ipam.ResPods, ipam.ResReservations, ipam.ResIPAMConfig},
		Params: []Param{
			percentParam("mediumPercent", 70, "share of usable addresses from which it is medium"),
			percentParam("highPercent", 85, "share of usable addresses from which it is high"),
			percentParam("scarcePercent", 10, "share of free blocks below which it is medium"),
			{Name: "headroom", Type: "number", Default: 1.5, Min: ptr(1.0), Max: ptr(10.0), Doc: "factor of the sizing rule nodes × pods per node × headroom"},
		},
		Example: func() []Step { return capacitySteps(exampleCommands(), nil, nil) },
		Sign: "**Compare first:** if far more is booked than used (“not actually in use”), the pool is full of leaks, and room would only leak as well: go to `leaked-ips`. " +
			"Else count the blocks. A pool has 2^(blockSize − prefix length) of them, four in a /24 with blockSize 26; when as many are listed no node gets a further one, however few addresses are in use.",
		Related: []Related{
			{"blockless-nodes", "Do only new nodes fail?"},
			{"orphan-affinities", "Do nodes that are gone hold the blocks?"},
			{"multi-block-nodes", "Do nodes own more blocks than they need?"},
			{"leaked-ips", "Are more addresses booked than pods run?"},
			{"node-block-limit", "Does one node fail, while blocks are free?"},
		},
		References: []string{
			"https://phabricator.wikimedia.org/T296303", "https://github.com/projectcalico/calico/issues/7382",
			"https://github.com/projectcalico/calico/issues/5088", "https://github.com/projectcalico/calico/issues/13331",
			"libcalico-go/lib/ipam/ipam.go (findUsableBlock)",
		},
		Run: runPoolUtilisation,
	}
}

func runPoolUtilisation(in *Input) Result {
	verdicts := map[*ipam.Pool]*poolVerdict{}
	for _, use := range []ipam.Uses{ipam.UseWorkload, ipam.UseTunnel} {
		for _, g := range groupsFor(in, use) {
			// Tunnel use is only judged where it has pools of its own.
			if use == ipam.UseTunnel && slices.ContainsFunc(g.pools, func(p *ipam.Pool) bool { return p.AllowedUses.Has(ipam.UseWorkload) }) {
				continue
			}
			gv := judgeGroup(in, g)
			for _, p := range g.pools {
				v := verdicts[p]
				if v == nil {
					v = &poolVerdict{}
					verdicts[p] = v
				}
				v.add(in, p, g, gv)
			}
		}
	}
	res := Result{Unseen: hiddenShares(in)}
	hidden := in.HiddenShares()
	for i := range in.Pools {
		p := &in.Pools[i]
		if !p.Enabled() || p.NamespaceSelector != "" && slices.Contains(hidden, p) {
			continue // the unseen name it
		}
		v := verdicts[p]
		if v == nil {
			v = judgeAlone(in, p)
		}
		if v.severity == "" {
			continue
		}
		res.Findings = append(res.Findings, poolFinding(in, p, v))
	}
	return res
}

// groupVerdict is what can be said of the pools of one group together.
type groupVerdict struct {
	severity Severity
	reasons  []string
	// starved nodes in use can get no address at all.
	starved []string
}

// poolVerdict collects what the groups of a pool say.
type poolVerdict struct {
	severity Severity
	reasons  []string
	starved  []string
	nodes    int
	lacking  []string
	groups   []*group
}

func (v *poolVerdict) add(in *Input, p *ipam.Pool, g *group, gv groupVerdict) {
	v.nodes += len(g.nodes)
	v.lacking = append(v.lacking, nodeNames(g.lacking)...)
	v.groups = append(v.groups, g)
	// A pool with room of its own is no finding where its neighbours are full:
	// it is what the nodes live on.
	own := judgeOwn(in, p)
	severity := gv.severity
	if severity != Critical && own.severity.Rank() < severity.Rank() {
		severity = own.severity
	}
	if severity == "" {
		return
	}
	if severity.Rank() > v.severity.Rank() {
		v.severity = severity
	}
	for _, r := range gv.reasons {
		if !slices.Contains(v.reasons, r) {
			v.reasons = append(v.reasons, r)
		}
	}
	v.starved = append(v.starved, gv.starved...)
}

// judgeGroup looks at all pools of a group together.
func judgeGroup(in *Input, g *group) groupVerdict {
	var gv groupVerdict
	var usable, allocated, available uint64
	for _, p := range g.pools {
		u := in.Usage(p)
		usable, allocated, available = min(usable+u.Usable(), ipam.MaxCount), min(allocated+u.Allocated+u.CoolingDown, ipam.MaxCount), min(available+u.Available, ipam.MaxCount)
	}
	free, reclaimable := g.free(in)
	together := ""
	if len(g.pools) > 1 {
		together = " in the " + strconv.Itoa(len(g.pools)) + " pools that serve these nodes (" + poolNames(g.pools) + ")"
	}
	gv.severity, gv.reasons = byAddresses(in, allocated, usable, together)
	// A pool that could not be used may serve these nodes, too.
	if len(unreadable(in, "IPPool")) > 0 {
		return gv
	}
	if free+reclaimable == 0 {
		gv.severity = Worst(gv.severity, High)
		gv.reasons = append(gv.reasons, "no block is free"+together)
	} else if scarce, why := g.scarce(in, in.Params.Float("scarcePercent")); scarce {
		gv.severity = Worst(gv.severity, Medium)
		gv.reasons = append(gv.reasons, "blocks are scarce"+together+": "+why)
	}
	for _, n := range g.nodes {
		if starved(in, g, n, available) {
			gv.starved = append(gv.starved, n.Name)
		}
	}
	if len(gv.starved) > 0 {
		gv.severity = Critical
		why := "no address is left"
		if available > 0 {
			why = "no block is free and strict affinity forbids borrowing"
		}
		gv.reasons = append(gv.reasons, fmt.Sprintf("%s can get no address: %s", names(gv.starved, 5), why))
	}
	return gv
}

// starved reports whether a node in use can get no address from the group: no
// room in its own blocks, no block to claim or take over, and nothing to borrow.
func starved(in *Input, g *group, n *ipam.Node, available uint64) bool {
	if !in.Coverage.Read(ipam.ResPods) {
		return false // nothing here may need an address
	}
	owned := in.OwnsIn(n.Name, g.pools)
	for _, b := range owned {
		if in.Room(b) > 0 {
			return false
		}
	}
	if free, reclaimable := in.Free(g.pools, n.Name); free+reclaimable > 0 {
		return false
	}
	if !in.Config.StrictAffinity && available > 0 {
		return false
	}
	// A node that kubelet has filled needs nothing more.
	if n.MaxPods > 0 && len(owned) > 0 {
		running := 0
		for _, p := range in.PodsOn(n.Name) {
			if !p.Finished() {
				running++
			}
		}
		if running >= n.MaxPods {
			return false
		}
	}
	return true
}

func byAddresses(in *Input, allocated, usable uint64, together string) (Severity, []string) {
	share := percent(allocated, usable)
	reason := []string{fmt.Sprintf("%s %% of the usable addresses are taken%s", trimFloat(share), together)}
	switch {
	case share >= in.Params.Float("highPercent"):
		return High, reason
	case share >= in.Params.Float("mediumPercent"):
		return Medium, reason
	}
	return "", nil
}

// judgeOwn is what the pool alone would be.
func judgeOwn(in *Input, p *ipam.Pool) poolVerdict {
	u := in.Usage(p)
	var v poolVerdict
	v.severity, v.reasons = byAddresses(in, u.Allocated+u.CoolingDown, u.Usable(), "")
	avail := u.Free + u.Reclaimable
	switch {
	case avail == 0:
		v.severity = High
	case float64(avail)*100 < in.Params.Float("scarcePercent")*float64(u.Blocks):
		v.severity = Worst(v.severity, Medium)
	case v.severity == "" && float64(avail)*100 < 2*in.Params.Float("scarcePercent")*float64(u.Blocks):
		// Together the pools may be scarce though each is a little above the line.
		v.severity = Medium
	}
	return v
}

// judgeAlone judges a pool that serves no node: by addresses only.
func judgeAlone(in *Input, p *ipam.Pool) *poolVerdict {
	u := in.Usage(p)
	v := &poolVerdict{}
	v.severity, v.reasons = byAddresses(in, u.Allocated+u.CoolingDown, u.Usable(), "")
	loadBalancer := p.AllowedUses.Has(ipam.UseLoadBalancer) && !p.AllowedUses.Has(ipam.UseWorkload)
	if v.severity != "" && !loadBalancer {
		// A pool of fixed addresses is often exactly as large as what uses it.
		v.severity = Low
	}
	return v
}

func poolFinding(in *Input, p *ipam.Pool, v *poolVerdict) Finding {
	f := Finding{
		Severity: v.severity,
		Subject:  Subject{Kind: KindPool, Name: p.Name},
		Title:    "Pool " + p.Name + " (" + p.CIDR.String() + ") is running out",
		Detail:   upperFirst(strings.Join(v.reasons, "; ")) + ". " + poolArithmetic(in, p, v),
	}
	slices.Sort(v.starved)
	for _, n := range slices.Compact(v.starved) {
		f.Affected = append(f.Affected, Affected{Kind: KindNode, Name: n, Note: "can get no address"})
	}
	slices.Sort(v.lacking)
	for _, n := range slices.Compact(v.lacking) {
		if !slices.Contains(v.starved, n) {
			f.Affected = append(f.Affected, Affected{Kind: KindNode, Name: n, Note: "owns no block here"})
		}
	}
	var surplus []string
	for _, g := range v.groups {
		for _, s := range surplusIn(in, g, liveByNode(in)) {
			surplus = append(surplus, s.node.Name)
		}
	}
	slices.Sort(surplus)
	f.Remediation = capacitySteps(commandsFor(in.Snapshot), p, slices.Compact(surplus))
	return f
}

// poolArithmetic spells the figures out: addresses, blocks, what still fits,
// and what the sizing rule asks for.
func poolArithmetic(in *Input, p *ipam.Pool, v *poolVerdict) string {
	u := in.Usage(p)
	parts := []string{fmt.Sprintf("Addresses: %s of %s usable allocated (%s %%), %s reserved, %s cooling down, %s available",
		figure(u.Allocated), figure(u.Usable()), trimFloat(percent(u.Allocated, u.Usable())), figure(u.Reserved), figure(u.CoolingDown), figure(u.Available))}
	blocks := fmt.Sprintf("Blocks of /%d: %s of %s claimed, %s free", p.BlockSize, figure(u.Claimed), figure(u.Blocks), figure(u.Free))
	if whole := u.Blocks - min(u.Blocks, u.Claimed+u.Free); whole > 0 && !u.Saturated() {
		blocks += fmt.Sprintf(", %s wholly reserved", figure(whole))
	}
	if u.Reclaimable > 0 {
		blocks += fmt.Sprintf(", %s empty and reclaimable", figure(u.Reclaimable))
	}
	parts = append(parts, blocks)
	if v.nodes > 0 {
		room := min(u.Free+u.Reclaimable, ipam.MaxCount)
		// Nodes that lack a block take the first free ones.
		more := uint64(0)
		if room > uint64(len(v.lacking)) {
			more = room - uint64(len(v.lacking))
		}
		parts = append(parts, fmt.Sprintf("It serves %s in use, %s without a block; %s and %s still fit",
			count(uint64(v.nodes), "node"), figure(uint64(len(v.lacking))), count(more, "more node"), count(u.Available, "more address")))
		if in.Coverage.Read(ipam.ResPods) {
			perNode := podsPerNode(in, v)
			need := uint64(math.Ceil(float64(v.nodes) * perNode * in.Params.Float("headroom")))
			parts = append(parts, fmt.Sprintf("The rule nodes × pods per node × %s asks for %d × %s × %s = %s addresses, and one block per node for %s",
				trimFloat(in.Params.Float("headroom")), v.nodes, trimFloat(perNode), trimFloat(in.Params.Float("headroom")), figure(need), count(uint64(v.nodes), "block")))
		}
	}
	return strings.Join(parts, ". ") + "."
}

func podsPerNode(in *Input, v *poolVerdict) float64 {
	pods, nodes := 0, 0
	for _, g := range v.groups {
		for _, n := range g.nodes {
			nodes++
			for _, p := range in.PodsOn(n.Name) {
				if p.Live() {
					pods++
				}
			}
		}
	}
	if nodes == 0 {
		return 0
	}
	return float64(pods) / float64(nodes)
}

// capacitySteps is the order that hurts nobody: give back what is not needed,
// then add a pool. Strict affinity is no cure for a lack of blocks.
func capacitySteps(c commands, p *ipam.Pool, surplus []string) []Step {
	steps := []Step{{
		Title:    "Compare what is booked with what runs, and see which blocks hold little",
		Commands: []string{c.compareUse(), c.showBlocks(), c.blockOwners()},
		Risk:     Safe, Verify: "About as much is booked as is used, so room is what lacks; if much is not in use, leaked-ips comes first. The tables list each block with its use, and its owner.",
	}}
	if len(surplus) > 0 {
		steps = append(steps, Step{
			Title:    "Free the surplus blocks of " + names(surplus, 5) + " first: the findings of multi-block-nodes say how",
			Commands: []string{c.blocksPerNode()},
			Risk:     Safe, Verify: "A block is given back when " + c.showBlocks() + " no longer lists it.",
		})
	}
	return append(steps, Step{
		Title:    "Add a pool: new blocks come from it at once, running pods are not touched",
		Commands: c.addPool(p),
		Risk:     Safe, Verify: "calicoctl ipam show   # lists the new pool with free addresses",
	})
}

func percentParam(name string, def float64, doc string) Param {
	return Param{Name: name, Type: "number", Default: def, Min: ptr(0.0), Max: ptr(100.0), Doc: doc}
}

func ptr(f float64) *float64 { return &f }
