package checks

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"ipamaudit/ipam"
)

// orphanAffinities finds what nodes that no longer exist have left in IPAM.
func orphanAffinities() Check {
	return Check{
		ID:          "orphan-affinities",
		Title:       "Blocks, affinities and addresses of nodes that no longer exist",
		SubjectKind: KindCluster,
		What: "Blocks and block affinities whose owner is no node of the cluster any more, with every address that is still booked in them, " +
			"and addresses in ownerless blocks that are recorded for such nodes. One finding, however many nodes there are.",
		Why: "A block that belongs to nobody cannot be claimed: a cluster that replaces its nodes often runs out of blocks while it hardly uses an address, " +
			"and then new nodes get none.",
		How: "Owners are compared with the nodes as Calico maps the names (orchRefs where Calico's Node objects were read). A name that differs only in case is a mismatch and no orphan " +
			"(`affinity-conflicts`), owners of the type `virtual` are no nodes, and a name under which pods of an existing node run is that node's (`misbooked-ips`). " +
			"Where the newest trace of a node is younger than `grace` the collector has not had its time yet.",
		SeverityNote: "Medium; high when the pools they sit in have no free block left for the nodes that use them. That the collector will not come round by itself is inferred: the ticket waits for the second look.",
		Skewed:       true,
		Needs:        []ipam.Resource{ipam.ResBlocks, ipam.ResNodes},
		Uses:         []ipam.Resource{ipam.ResAffinities, ipam.ResPods, ipam.ResPools, ipam.ResCalicoNodes, ipam.ResReservations, ipam.ResClusterInfo, ipam.ResDeployments},
		Decides:      []ipam.Resource{ipam.ResPools},
		SecondLook:   "that the collector will not come round (a node may have vanished minutes ago)",
		Params:       []Param{{Name: "grace", Type: "duration", Default: "20m", Doc: "age of a gone node's newest trace below which it is left to Calico's collector"}},
		Example:      func() []Step { return orphanCases()[0].Steps },
		Cases:        orphanCases,
		Look:         lines(exampleCommands().nodesAgainstOwners(), "kubectl get nodes -o wide", exampleCommands().blockOwners()),
		Sign:         "It is this where `>` marks an owner (not `load-balancer`, to which the blocks of Services belong). Calico takes back what a node leaves within about 20 minutes; what is still there then is this.",
		Related: []Related{
			{"ipam-gc", "Does the collector not run, or do nothing?"},
			{"multi-block-nodes", "Do the owners exist, and hold too many blocks?"},
			{"blockless-nodes", "Does a node own no block meanwhile?"},
			{"pool-utilisation", "Is the pool short of blocks, and all owners exist?"},
			{"affinity-conflicts", "Does a node of that name exist, in other case?"},
		},
		References: []string{
			"https://github.com/projectcalico/calico/issues/2713", "https://github.com/projectcalico/calico/issues/4502",
			"https://github.com/projectcalico/calico/issues/7839", "https://github.com/projectcalico/calico/issues/7192",
			"https://github.com/projectcalico/kube-controllers/issues/564", "https://github.com/projectcalico/cni-plugin/issues/920",
			"https://github.com/projectcalico/kube-controllers/issues/412", "kube-controllers/pkg/controllers/node/ipam.go (syncDelete)",
		},
		Run: runOrphanAffinities,
	}
}

// orphanCases are the steps for each thing that a node leaves behind.
func orphanCases() []Case {
	b := exampleBlockOf(exampleBlock, "host:NODE")
	a := &ipam.Affinity{Name: "node-" + b.Name, CIDR: b.CIDR, UID: uidOfAffinity}
	var out []Case
	for _, one := range []struct {
		when   string
		left   orphan
		ghosts []*ipam.Pod
	}{
		{"Its blocks are empty", orphan{blocks: []*ipam.Block{&b}, affinities: []*ipam.Affinity{a}}, nil},
		{"Addresses are booked in them: tunnels, or pods that are gone", orphan{strays: []ipam.Allocation{{IP: exampleAddress}}}, nil},
		{"A pod object still names it (`Can't cleanup node yet`)", orphan{}, []*ipam.Pod{{Namespace: "NAMESPACE", Name: "POD", NodeName: "NODE"}}},
		{"It has an affinity, and no block", orphan{affinities: []*ipam.Affinity{a}}, nil},
	} {
		one.left.name = "NODE"
		out = append(out, Case{When: one.when, Steps: orphanSteps(exampleCommands(), &Input{Snapshot: ipam.NewSnapshot().Seal()}, []*orphan{&one.left}, "", one.ghosts)})
	}
	return out
}

// orphan is what one gone node has left.
type orphan struct {
	name       string
	blocks     []*ipam.Block
	affinities []*ipam.Affinity
	// strays are addresses recorded for it in ownerless blocks.
	strays []ipam.Allocation
	// ghosts are pod objects that still name it.
	ghosts []*ipam.Pod
	newest time.Time
	// pods and tunnels are its own addresses, used those of running pods on
	// other nodes, other what is booked by hand or reserved.
	pods, tunnels, used, other int
}

func (o *orphan) trace(t time.Time) {
	if t.After(o.newest) {
		o.newest = t
	}
}

// owns reports whether one of its blocks is the one at cidr.
func (o *orphan) owns(cidr netip.Prefix) bool {
	return slices.ContainsFunc(o.blocks, func(b *ipam.Block) bool { return b.CIDR == cidr })
}

// addresses is the number of addresses booked in its blocks.
func (o *orphan) addresses() int { return o.pods + o.tunnels + o.used + o.other }

// orphansIn collects what gone nodes have left, sorted by name, and the names
// that look gone but under which pods of existing nodes run.
func orphansIn(in *Input) (orphans []*orphan, alive map[string]string) {
	byName := map[string]*orphan{}
	get := func(name string) *orphan {
		o := byName[name]
		if o == nil {
			o = &orphan{name: name}
			byName[name] = o
		}
		return o
	}
	alive = map[string]string{}
	for i := range in.Blocks {
		b := &in.Blocks[i]
		mine := b.Owner.IsHost() && nodeGone(in, b.Owner.Name)
		if mine {
			o := get(b.Owner.Name)
			o.blocks = append(o.blocks, b)
			o.trace(b.Created)
			o.trace(b.ClaimTime)
		}
		if !mine && b.Owner != (ipam.Owner{}) {
			continue
		}
		for a := range b.Allocations() {
			h := in.Holder(a)
			if h.Kind == ipam.HeldByPod && h.Node != nil && nodeGone(in, a.Attr.Node) {
				alive[a.Attr.Node] = h.NodeName
			}
			switch {
			case mine:
				get(b.Owner.Name).add(a, h)
			case h.Kind.Leaked() && nodeGone(in, a.Attr.Node):
				o := get(a.Attr.Node)
				o.strays = append(o.strays, a)
				o.trace(a.Attr.Timestamp)
			}
		}
	}
	for i := range in.Affinities {
		a := &in.Affinities[i]
		if a.Type == "virtual" || !nodeGone(in, a.Node) {
			continue
		}
		o := get(a.Node)
		o.affinities = append(o.affinities, a)
		o.trace(a.Created)
	}
	for i := range in.Pods {
		p := &in.Pods[i]
		if o := byName[p.NodeName]; o != nil && !p.HostNetwork && !p.Finished() {
			o.ghosts = append(o.ghosts, p)
		}
	}
	for name, o := range byName {
		if alive[name] == "" {
			orphans = append(orphans, o)
		}
	}
	slices.SortFunc(orphans, func(a, b *orphan) int { return strings.Compare(a.name, b.name) })
	return orphans, alive
}

// add counts an address of one of the orphan's own blocks.
func (o *orphan) add(a ipam.Allocation, h ipam.Holder) {
	switch {
	case a.Attr.Tunnel():
		o.tunnels++
	case h.Kind.Live() && h.Node != nil:
		o.used++
	case a.Attr.Pod != "":
		o.pods++
	default:
		o.other++
	}
	// What others did in its block later tells nothing of the node.
	if a.Attr.Node == o.name {
		o.trace(a.Attr.Timestamp)
	}
}

func runOrphanAffinities(in *Input) Result {
	var res Result
	if noNode(in) {
		if !hostsOwn(in) && in.Coverage.Read(ipam.ResAffinities) {
			return res
		}
		return Result{Unseen: []string{noNodeListed}}
	}
	if namesDoNotMatch(in) {
		return Result{Unseen: []string{unmatchedNames}}
	}
	if !in.Coverage.Read(ipam.ResAffinities) {
		res.Unseen = append(res.Unseen, string(ipam.ResAffinities))
	}
	all, alive := orphansIn(in)
	for _, name := range sortedKeys(alive) {
		res.Unseen = append(res.Unseen, fmt.Sprintf("whether %s is gone (no node has this name, but pods booked under it run on %s)", name, alive[name]))
	}
	var old []*orphan
	young := 0
	for _, o := range all {
		if !o.newest.IsZero() && in.Now.Sub(o.newest) < in.Params.Duration("grace") {
			young++
			continue
		}
		old = append(old, o)
	}
	if len(old) > 0 {
		res.Findings = []Finding{orphanFinding(in, old, young)}
	}
	return res
}

// noNodeListed is what is not seen where the list of nodes is empty.
const noNodeListed = "any node (the list is empty)"

// noNode reports whether the nodes were read and there are none: a cluster
// that is scaled to zero, in which nothing runs that could collect, or a list
// that is not to be trusted.
func noNode(in *Input) bool { return in.Coverage.Read(ipam.ResNodes) && len(in.Nodes) == 0 }

// hostsOwn reports whether a block or an affinity names a node as its owner.
func hostsOwn(in *Input) bool {
	return slices.ContainsFunc(in.Blocks, func(b ipam.Block) bool { return b.Owner.IsHost() }) ||
		slices.ContainsFunc(in.Affinities, func(a ipam.Affinity) bool { return a.Type != "virtual" })
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func orphanFinding(in *Input, orphans []*orphan, young int) Finding {
	// The ones that hold most come first in every list that is cut.
	slices.SortStableFunc(orphans, func(a, b *orphan) int {
		return cmp.Or(cmp.Compare(len(b.blocks), len(a.blocks)), cmp.Compare(b.addresses(), a.addresses()), cmp.Compare(a.name, b.name))
	})
	f := Finding{
		Severity: Medium, Evidence: Inferred, SecondLook: true,
		Subject: Subject{Kind: KindCluster, Name: in.Cluster.Name},
		Title:   "Nodes that no longer exist still hold blocks and addresses",
	}
	var blocks, affinities, foreign, pods, tunnels, used, other, strays int
	var ghosts []*ipam.Pod
	var pools []*ipam.Pool
	var rows, ipRows []Affected
	inPool, lost := map[*ipam.Pool]int{}, unreadable(in, "IPAMBlock")
	for _, o := range orphans {
		f.Affected = append(f.Affected, Affected{Kind: KindNode, Name: o.name, Note: o.note(), Same: o.name})
		blocks += len(o.blocks)
		pods, tunnels, used, other, strays = pods+o.pods, tunnels+o.tunnels, used+o.used, other+o.other, strays+len(o.strays)
		ghosts = append(ghosts, o.ghosts...)
		for _, b := range o.blocks {
			if p := b.Pool(); p != nil {
				inPool[p]++
				if !slices.Contains(pools, p) {
					pools = append(pools, p)
				}
			}
			rows = append(rows, Affected{Kind: KindBlock, Name: b.CIDR.String(), Note: "owner " + o.name + ", " + plain(len(b.Slots), "address", "addresses") + " booked", Same: o.name})
			for a := range b.Allocations() {
				ipRows = append(ipRows, Affected{Kind: KindIP, Name: a.IP.String(), Note: orphanNote(in, a), Same: o.name})
			}
		}
		for _, a := range o.affinities {
			if o.owns(a.CIDR) {
				continue
			}
			note := "no block is there"
			switch b := in.BlockAt(a.CIDR); {
			case b != nil:
				foreign++
				note = "the block is " + cmp.Or(b.Owner.Name, "nobody") + "'s"
			case lost[blockName(a.CIDR)]:
				note = "its block could not be used"
			default:
				affinities++
			}
			rows = append(rows, Affected{Kind: KindBlock, Name: a.CIDR.String(), Note: "affinity of " + o.name + " (" + cmp.Or(a.State, ipam.StateConfirmed) + "), " + note, Same: o.name})
		}
		for _, a := range o.strays {
			ipRows = append(ipRows, Affected{Kind: KindIP, Name: a.IP.String(), Note: orphanNote(in, a), Same: o.name})
		}
	}
	f.Affected = append(append(f.Affected, rows...), ipRows...)
	detail := []string{fmt.Sprintf("%s of %s that no longer exist", plain(blocks, "block", "blocks"), plain(len(orphans), "node", "nodes"))}
	if affinities > 0 {
		detail[0] += fmt.Sprintf(", and %s without a block", plain(affinities, "affinity", "affinities"))
	}
	if foreign > 0 {
		detail[0] += fmt.Sprintf(", and %s for blocks that are not theirs", plain(foreign, "affinity", "affinities"))
	}
	detail = append(detail, fmt.Sprintf("Booked in them: %s of pods, %s of tunnels, %d booked otherwise", plain(pods, "address", "addresses"), plain(tunnels, "address", "addresses"), other))
	if strays > 0 {
		detail = append(detail, plain(strays, "address", "addresses")+" in ownerless blocks are recorded for them")
	}
	if used > 0 {
		detail = append(detail, fmt.Sprintf("%s in use by running pods on other nodes, which keep their block: recreate these pods last", plain(used, "more is", "more are")))
	}
	if len(ghosts) > 0 {
		detail = append(detail, fmt.Sprintf("%s still there (%s); Calico waits for them before it cleans up", plain(len(ghosts), "pod object of these nodes is", "pod objects of these nodes are"), names(podKeys(ghosts), 5)))
	}
	for _, p := range pools {
		u := in.Usage(p)
		detail = append(detail, fmt.Sprintf("Pool %s: %d of %s blocks are theirs, %s free", p.Name, inPool[p], figure(u.Blocks), figure(u.Free+u.Reclaimable)))
	}
	if starved := starvedPools(in, pools); starved != "" {
		f.Severity = High
		detail = append(detail, "No block is left in "+starved+" for the nodes that live on it")
	}
	if young > 0 {
		detail = append(detail, fmt.Sprintf("%s left their last trace less than %s ago and are not counted", plain(young, "more node", "more nodes"), in.Params.Duration("grace")))
	}
	if !in.Coverage.Read(ipam.ResPods) {
		detail = append(detail, "Pods were not read: whether any of the addresses is in use is not known")
	}
	f.Detail = strings.Join(detail, ". ") + "."
	f.Remediation = orphanSteps(commandsFor(in.Snapshot), in, orphans, releaseRisk(in), ghosts)
	return f
}

// note is what the node has left, in figures.
func (o *orphan) note() string {
	parts := []string{plain(len(o.blocks), "block", "blocks")}
	if n := len(o.affinities); n != len(o.blocks) {
		parts = append(parts, plain(n, "affinity", "affinities"))
	}
	parts = append(parts, plain(o.pods, "pod address", "pod addresses"), plain(o.tunnels, "tunnel address", "tunnel addresses"))
	if o.used > 0 {
		parts = append(parts, fmt.Sprintf("%d in use by others", o.used))
	}
	if len(o.strays) > 0 {
		parts = append(parts, fmt.Sprintf("%d in ownerless blocks", len(o.strays)))
	}
	if !o.newest.IsZero() {
		parts = append(parts, "last trace "+o.newest.UTC().Format(time.DateOnly))
	}
	return strings.Join(parts, ", ")
}

func orphanNote(in *Input, a ipam.Allocation) string {
	h := in.Holder(a)
	who := a.Attr.Namespace + "/" + a.Attr.Pod
	switch {
	case a.Attr.Tunnel():
		who = cmp.Or(a.Attr.Type, a.Attr.Handle)
	case h.Kind.Live() && h.Pod != nil && h.Node != nil:
		who = "in use by " + podNote(h.Pod)
	case h.Kind.Live() && h.Pod != nil:
		who += ", whose object still exists"
	case a.Attr.Pod == "":
		who = cmp.Or(a.Attr.Handle, "no owner recorded")
	}
	return who + ", in " + a.Block.CIDR.String() + " of " + cmp.Or(a.Block.Owner.Name, "nobody, recorded for "+a.Attr.Node)
}

func podKeys(pods []*ipam.Pod) []string {
	out := make([]string, len(pods))
	for i, p := range pods {
		out[i] = p.Key()
	}
	slices.Sort(out)
	return out
}

// starvedPools names those of the pools whose nodes have no block left to
// claim, in them or in any other pool that serves them.
func starvedPools(in *Input, pools []*ipam.Pool) string {
	var out []string
	groups := groupsFor(in, ipam.UseWorkload)
	for _, p := range pools {
		if !p.Enabled() {
			continue
		}
		served := false
		for _, g := range groups {
			if !slices.Contains(g.pools, p) {
				continue
			}
			served = true
			if free, reclaimable := g.free(in); free+reclaimable == 0 {
				out = ifNot(out, p.Name)
			}
		}
		if u := in.Usage(p); !served && u.Free+u.Reclaimable == 0 {
			out = ifNot(out, p.Name)
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// orphanSteps: be sure that the nodes are gone, remove what still names them,
// let the collector do it, and only then by hand.
func orphanSteps(c commands, in *Input, orphans []*orphan, risk string, ghosts []*ipam.Pod) []Step {
	var list []string
	for _, o := range orphans {
		list = append(list, o.name)
	}
	steps := []Step{{
		Title:    "Make sure that the machines are gone for good and were not just taken out of Kubernetes: " + names(list, 5),
		Commands: []string{"kubectl get nodes -o wide"},
		Risk:     Safe, Verify: "None of them is listed, and none runs at the provider.",
	}}
	if len(ghosts) > 0 {
		still := "kubectl get pods -A --field-selector spec.nodeName=" + Quote(ghosts[0].NodeName)
		steps = append(steps, Step{
			Title:    "See which pod objects still name a node that is gone",
			Commands: []string{still},
			Risk:     Safe, Verify: "It lists some. Where it lists none only a tunnel's address is left: then addresses are what is to be released, not pods.",
		})
		s := Step{
			Title: "Delete the pod objects that still name a node that is gone; where one stays in Terminating look for a finalizer",
			Risk:  Disruptive, Verify: still + "   # none",
		}
		for _, p := range ghosts[:min(len(ghosts), commandLimit)] {
			s.Commands = append(s.Commands, c.deletePod(p.Namespace, p.Name))
		}
		steps = append(steps, s)
	}
	// It goes by the blocks and what is booked in them.
	if slices.ContainsFunc(orphans, func(o *orphan) bool { return len(o.blocks)+len(o.strays)+len(o.ghosts) > 0 }) || len(ghosts) > 0 {
		steps = append(steps, collectorSteps(c, in, "blocks of deleted nodes")...)
	}
	var ips []netip.Addr
	var empty []surplusBlock
	var bare []*ipam.Affinity
	lost := unreadable(in, "IPAMBlock")
	for _, o := range orphans {
		for _, b := range o.blocks {
			for a := range b.Allocations() {
				if h := in.Holder(a); h.Kind.Leaked() {
					ips = append(ips, a.IP)
				}
			}
			sb := surplusBlock{block: b}
			for _, a := range o.affinities {
				if a.CIDR == b.CIDR {
					sb.affinity = a
				}
			}
			if len(b.Slots) == 0 {
				empty = append(empty, sb)
			}
		}
		for _, a := range o.affinities {
			// Without its affinity nobody could ever take such a block over.
			if !o.owns(a.CIDR) && (in.BlockAt(a.CIDR) != nil || !lost[blockName(a.CIDR)]) {
				bare = append(bare, a)
			}
		}
		for _, a := range o.strays {
			ips = append(ips, a.IP)
		}
	}
	if len(ips) > 0 {
		steps = append(steps, releaseSteps(c, risk, ips)...)
	}
	if len(bare) > 0 {
		s := Step{
			Title: "Delete the affinities without a block of their own: the collector looks at blocks only and never finds them",
			Risk:  Destructive, Verify: "kubectl get " + c.resource(ipam.ResAffinities) + " " + Quote(bare[0].Name) + "   # NotFound",
		}
		for _, a := range bare[:min(len(bare), commandLimit)] {
			s.Commands = append(s.Commands, c.deleteAffinity(a.Name))
		}
		steps = append(steps, s)
	}
	if len(empty) > 0 {
		s := Step{
			Title: "Only if empty blocks stay (collector off, old or absent): delete block and affinity by hand; while the datastore is locked no pod can start",
			Risk:  Destructive, Verify: "A changed object answers Conflict: then start again from the first step. " + c.showBlocks() + " no longer lists the block.",
		}
		for _, b := range empty[:min(len(empty), 3)] {
			s.Commands = append(s.Commands, c.deleteEmptyBlock(b.block, b.affinity)...)
		}
		if len(empty) > 3 {
			s.Commands = append(s.Commands, fmt.Sprintf("# … and %d more, see the list of affected blocks", len(empty)-3))
		}
		steps = append(steps, s)
	}
	return steps
}
