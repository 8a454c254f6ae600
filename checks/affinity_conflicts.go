package checks

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"ipamaudit/ipam"
)

// affinityConflicts finds blocks and affinities that contradict each other.
func affinityConflicts() Check {
	return Check{
		ID:          "affinity-conflicts",
		Title:       "Blocks and affinities that contradict each other",
		SubjectKind: KindBlock,
		What: "A block says which node owns it, and a BlockAffinity says the same from the node's side. The check compares the two: " +
			"several nodes with an affinity for one block, an affinity whose block does not exist, a block whose owner has no affinity or that nobody owns, " +
			"an affinity that stays pending or in deletion, and a node name that differs from Kubernetes' only in its case.",
		Why: "BIRD announces and blackholes what the **affinities** say, the allocator gives out what the **blocks** say. " +
			"With two affinities for one block both nodes announce it and the wrong one drops its traffic. An affinity without a block keeps a range blackholed that another node may own. " +
			"A block without its affinity is given back by nobody.",
		How: "Per CIDR: the block's owner against all affinities for it, in any state. The block decides which affinity is right, never an object's age or name. " +
			"What is younger than `settle` is left alone: every claim is pending for a moment. Nodes that no longer exist belong to `orphan-affinities`. " +
			"How long an affinity has been in deletion is not recorded, so that is inferred.",
		SeverityNote: "Several affinities for one block: critical where BIRD programs the routes, the block is in use and the wrong affinity takes part (from v3.24 a pending one does not), else high. " +
			"Affinity without a block: medium, high when it overlaps blocks, has a foreign size or several nodes claim it. A name that differs only in case: high. " +
			"Owner without affinity or a pending one: medium. Nobody's block: low, medium when it holds addresses or blocks are scarce.",
		Skewed:     true,
		Needs:      []ipam.Resource{ipam.ResBlocks, ipam.ResAffinities, ipam.ResNodes},
		Uses:       []ipam.Resource{ipam.ResPools, ipam.ResPods, ipam.ResClusterInfo, ipam.ResBGPConfig, ipam.ResFelixConfig, ipam.ResReservations},
		Decides:    []ipam.Resource{ipam.ResPools},
		SecondLook: "that a deletion hangs",
		Params: []Param{
			{Name: "settle", Type: "duration", Default: "10m", Doc: "affinities and blocks younger than this are left alone"},
			percentParam("scarcePercent", 10, "share of free blocks below which an ownerless block is medium"),
		},
		Example: func() []Step {
			return affinityCases()[0].Steps
		},
		Cases: affinityCases,
		Look: lines(append([]string{"kubectl get " + exampleCommands().resource(ipam.ResAffinities) + " -o custom-columns=CIDR:.spec.cidr --no-headers | sort | uniq -d   # blocks that several nodes claim",
			"kubectl get " + exampleCommands().resource(ipam.ResAffinities) + " -o custom-columns=NODE:.spec.node,CIDR:.spec.cidr,STATE:.spec.state,SINCE:.metadata.creationTimestamp --no-headers | grep -vw confirmed   # younger than 10 minutes, or no state (an old release): healthy"},
			lookAtClaims(exampleCommands(), exampleBlock).Commands...)...),
		Sign: "It is this where the block's owner (third command) and its affinities (fourth) differ: another node, several of them, a state that is not `confirmed` for long, or one of the two is missing. **The block decides who is right,** not the younger affinity and not the older one.",
		Related: []Related{
			{"route-disagreement", "Do blocks and affinities agree, and only the nodes' routes lead elsewhere?"},
			{"orphan-affinities", "Is the other owner a node that no longer exists?"},
			{"blackholed-routes", "Does one node alone claim it, and the pod borrows its address from there (`calicoctl ipam show --show-borrowed` lists it)?"},
			{"block-layout", "Do the blocks have several sizes, or overlap?"},
		},
		References: []string{
			"https://github.com/projectcalico/calico/issues/6001", "https://github.com/projectcalico/calico/issues/6486",
			"https://github.com/projectcalico/calico/issues/4471", "https://github.com/projectcalico/libcalico-go/issues/778",
			"https://github.com/projectcalico/libcalico/issues/193", "https://github.com/projectcalico/calico/issues/6867",
			"confd/etc/calico/confd/templates/bird_aggr.cfg.template", "libcalico-go/lib/ipam/ipam_block_reader_writer.go (releaseBlockAffinity)",
		},
		Run: runAffinityConflicts,
	}
}

// affinityCases are what the check itself says of the smallest cluster that has
// each of its faults.
func affinityCases() []Case {
	block := func(owner string, slots ...ipam.Slot) []ipam.Block {
		return []ipam.Block{exampleBlockOf(exampleBlock, owner, slots...)}
	}
	affinity := func(node, state string) []ipam.Affinity {
		return []ipam.Affinity{{Name: strings.ToLower(node) + "-" + blockName(exampleBlock), Node: node, Type: "host", CIDR: exampleBlock, State: state, Created: time.Unix(0, 0), UID: uidOfAffinity}}
	}
	var out []Case
	for _, one := range []struct {
		when       string
		blocks     []ipam.Block
		affinities []ipam.Affinity
	}{
		{"The block names another owner", block("host:NODE", ipam.Slot{}), append(affinity("NODE", ipam.StateConfirmed), affinity("WRONG-NODE", ipam.StateConfirmed)...)},
		{"The block answers NotFound, and an affinity claims it (of a node that was removed and came back, say)", nil, affinity("WRONG-NODE", ipam.StatePendingDeletion)},
		{"The block names the node, and its affinity is pending", block("host:NODE", ipam.Slot{}), affinity("NODE", ipam.StatePending)},
		{"The block names the node, nothing is in it, and its affinity is pendingDeletion", block("host:NODE"), affinity("NODE", ipam.StatePendingDeletion)},
		{"The block names the node, and the node has no affinity for it", block("host:NODE", ipam.Slot{}), nil},
		{"The block has no owner, and nothing is in it", block(""), nil},
	} {
		s := exampleCluster()
		s.Blocks, s.Affinities = one.blocks, one.affinities
		out = append(out, Case{When: one.when, Steps: said(affinityConflicts(), s)})
	}
	return out
}

// claims is one CIDR with the block of that CIDR, if any, and the affinities
// for it of nodes that exist.
type claims struct {
	cidr  netip.Prefix
	block *ipam.Block
	// own is the affinity of the block's owner; others are all the rest. What
	// has not settled yet is left out of others.
	own    *ipam.Affinity
	others []*ipam.Affinity
}

// conflict is one thing that is wrong with a claim.
type conflict struct {
	severity Severity
	evidence Evidence
	title    string
	detail   string
	steps    []Step
	// unseen is what would have told how bad it is.
	unseen []ipam.Resource
}

func runAffinityConflicts(in *Input) Result {
	var res Result
	scarce := scarcePools(in, in.Params.Float("scarcePercent"))
	for _, cl := range allClaims(in) {
		found := cl.conflicts(in, scarce)
		if len(found) == 0 {
			continue
		}
		// The worst one gives the title; equal ones keep the order they are looked for in.
		slices.SortStableFunc(found, func(a, b conflict) int { return b.severity.Rank() - a.severity.Rank() })
		f := Finding{
			Severity: found[0].severity, Evidence: found[0].evidence, SecondLook: found[0].evidence == Inferred,
			Subject:     Subject{Kind: KindBlock, Name: cl.cidr.String()},
			Title:       found[0].title,
			Affected:    cl.affected(in),
			Remediation: []Step{lookAtClaims(commandsFor(in.Snapshot), cl.cidr)},
		}
		var detail []string
		for _, c := range found {
			detail = append(detail, c.detail)
			f.Remediation = append(f.Remediation, c.steps...)
			for _, r := range c.unseen {
				if text := fmt.Sprintf("%s (%s)", r, in.Coverage.Get(r).Status); in.Coverage.Refused(r) && !slices.Contains(res.Unseen, text) {
					res.Unseen = append(res.Unseen, text)
				}
			}
		}
		f.Detail = strings.Join(detail, ". ") + "."
		res.Findings = append(res.Findings, f)
	}
	return res
}

// allClaims sorts blocks and affinities by CIDR.
func allClaims(in *Input) []*claims {
	byCIDR := map[netip.Prefix]*claims{}
	get := func(p netip.Prefix) *claims {
		if byCIDR[p] == nil {
			byCIDR[p] = &claims{cidr: p}
		}
		return byCIDR[p]
	}
	for i := range in.Blocks {
		b := &in.Blocks[i]
		if cl := get(b.CIDR); cl.block == nil {
			cl.block = b
		}
	}
	for i := range in.Affinities {
		a := &in.Affinities[i]
		cl := get(a.CIDR)
		switch {
		case a.Type == "host" && in.NodeByFold(a.Node) == nil:
			// orphan-affinities
		case cl.block != nil && strings.EqualFold(a.Node, cl.block.Owner.Name) && a.Type == cl.block.Owner.Type:
			cl.addOwn(a)
		case unsettled(in, a.Created):
		default:
			cl.others = append(cl.others, a)
		}
	}
	out := make([]*claims, 0, len(byCIDR))
	for _, cl := range byCIDR {
		out = append(out, cl)
	}
	slices.SortFunc(out, func(a, b *claims) int { return comparePrefixes(a.cidr, b.cidr) })
	return out
}

// addOwn keeps the affinity that is spelt as the block spells its owner. One
// of another case is a claim of its own.
func (cl *claims) addOwn(a *ipam.Affinity) {
	switch {
	case cl.own == nil:
		cl.own = a
	case a.Node == cl.own.Node:
	case a.Node == cl.block.Owner.Name:
		cl.own, cl.others = a, append(cl.others, cl.own)
	default:
		cl.others = append(cl.others, a)
	}
}

// unsettled reports whether something made at this time may still be on its
// way. What has no time is settled.
func unsettled(in *Input, made time.Time) bool {
	return !made.IsZero() && in.Now.Sub(made) < in.Params.Duration("settle")
}

func (cl *claims) conflicts(in *Input, scarce map[*ipam.Pool]bool) []conflict {
	if cl.block == nil {
		if len(cl.others) == 0 || unreadable(in, "IPAMBlock")[blockName(cl.cidr)] {
			return nil // the block is there, it only could not be used
		}
		return append([]conflict{cl.withoutBlock(in)}, cl.misspelt(in)...)
	}
	var out []conflict
	if len(cl.others) > 0 {
		out = append(out, cl.duplicate(in))
	}
	switch owner := cl.block.Owner; {
	case owner == (ipam.Owner{}):
		if c, ok := cl.ownerless(in, scarce); ok && len(cl.others) == 0 {
			out = append(out, c)
		}
	case !owner.IsHost() || in.NodeByFold(owner.Name) == nil:
		// A load balancer's block, or one of a node that is gone.
	case cl.own == nil && unreadable(in, "BlockAffinity")[owner.Name+"-"+blockName(cl.cidr)]:
		// It is there and could not be used; the check says so.
	case cl.own == nil:
		if c, ok := cl.ownerWithoutAffinity(in); ok {
			out = append(out, c)
		}
	default:
		out = append(out, cl.ownState(in)...)
	}
	return append(out, cl.misspelt(in)...)
}

// duplicate: affinities of nodes that the block does not name.
func (cl *claims) duplicate(in *Input) conflict {
	c := commandsFor(in.Snapshot)
	owner := "nobody"
	if cl.block.Owner.Name != "" {
		owner = cl.block.Owner.Name
	}
	used := inUse(in, cl.block)
	out := conflict{
		severity: High,
		title:    fmt.Sprintf("Block %s is claimed by more than its owner", cl.cidr),
		detail:   fmt.Sprintf("The block names %s as owner, %s", owner, cl.claimText()),
		steps:    deleteAffinitySteps(c, cl.others, "the block names "+owner+" as owner"),
	}
	var by ipam.Programmer
	switch p := cl.block.Pool(); {
	case p != nil:
		by = in.RoutesBy(p)
	case in.Coverage.Read(ipam.ResPools):
		by = ipam.BIRD // outside every pool: nobody encapsulates
	default:
		by = ipam.Unsure
	}
	switch {
	case cl.block.Owner == (ipam.Owner{}) && used == 0:
		out.severity = Medium
	case by == ipam.Unsure:
		out.unseen = []ipam.Resource{ipam.ResClusterInfo, ipam.ResFelixConfig, ipam.ResBGPConfig}
		out.detail += ". What the block's pool and the settings say about its routes was not seen, so neither was whether traffic is lost"
	case by != ipam.BIRD:
		out.detail += fmt.Sprintf(". Felix programs the routes of pool %s from the blocks, so the traffic finds its way; the allocator of the wrong node does not", cl.block.Pool().Name)
	case cl.cidr.IsSingleIP():
	case !slices.ContainsFunc(cl.others, func(a *ipam.Affinity) bool { return takesPart(in, a) }):
		out.detail += ". From Calico v3.24 BIRD leaves pending affinities out"
	case used > 0:
		out.severity = Critical
		out.detail += fmt.Sprintf(". BIRD on each of these nodes announces the block and drops what it has no route for: %s in use there lose traffic on the wrong node and from those that follow its announcement", count(uint64(used), "address"))
	default:
		out.detail += ". BIRD on each of these nodes announces the block; no address in it is in use yet"
	}
	if cl.block.Owner == (ipam.Owner{}) {
		out.title = fmt.Sprintf("Block %s names no owner, but a node has an affinity for it", cl.cidr)
	}
	return out
}

// takesPart reports whether BIRD acts on the affinity: pending ones are left
// out from v3.24 (projectcalico/calico#6867), pendingDeletion ones are not.
func takesPart(in *Input, a *ipam.Affinity) bool {
	return a.State != ipam.StatePending || !in.Info.Version.Has(ipam.PendingNotAnnounced)
}

// inUse counts the addresses of the block that somebody uses or may use.
func inUse(in *Input, b *ipam.Block) int {
	n := 0
	for a := range b.Allocations() {
		if h := in.Holder(a); !h.Kind.Leaked() && h.Kind != ipam.HeldCoolingDown && h.Kind != ipam.HeldByWindows {
			n++
		}
	}
	return n
}

func (cl *claims) claimText() string {
	var texts []string
	for _, a := range cl.others {
		texts = append(texts, fmt.Sprintf("%s has an affinity for it too (%s, %s%s)", a.Node, a.Name, a.State, since(a.Created)))
	}
	return strings.Join(texts, ", ")
}

// since prints the day and time something was made; a date stays the same from
// one night to the next, an age does not.
func since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return ", made " + t.UTC().Format("2006-01-02 15:04")
}

// withoutBlock: affinities for a block that does not exist.
func (cl *claims) withoutBlock(in *Input) conflict {
	c := commandsFor(in.Snapshot)
	out := conflict{
		severity: Medium,
		title:    fmt.Sprintf("An affinity for %s has no block", cl.cidr),
		steps:    deleteAffinitySteps(c, cl.others, "no block "+blockName(cl.cidr)+" exists (the look above still answers NotFound)"),
	}
	var texts, overlaps []string
	nodes, undated := map[string]bool{}, true
	inferred := true
	for _, a := range cl.others {
		nodes[a.Node] = true
		undated = undated && a.State == ipam.StatePending && a.Created.IsZero()
		inferred = inferred && (a.State == ipam.StatePendingDeletion || a.Created.IsZero())
		texts = append(texts, fmt.Sprintf("%s claims %s (%s, %s%s)", a.Node, cl.cidr, a.State, a.Name, since(a.Created)))
	}
	for i := range in.Blocks {
		if in.Blocks[i].CIDR.Overlaps(cl.cidr) {
			overlaps = append(overlaps, fmt.Sprintf("%s of %s", in.Blocks[i].CIDR, or(in.Blocks[i].Owner.Name, "nobody")))
		}
	}
	if inferred {
		out.evidence = Inferred
	}
	out.detail = strings.Join(texts, ", ") + ", but there is no such block"
	if !slices.ContainsFunc(cl.others, func(a *ipam.Affinity) bool { return !takesPart(in, a) }) && !cl.cidr.IsSingleIP() {
		out.detail += ": where BIRD programs the routes the node drops what it sends there"
	}
	switch {
	case len(overlaps) > 0:
		out.severity = High
		out.detail += ". It overlaps " + count(uint64(len(overlaps)), "block") + " (" + names(overlaps, 5) + ")"
	case foreignSize(in, cl.cidr) != nil:
		out.severity = High
		out.detail += fmt.Sprintf(". Pool %s has blocks of /%d: the block would be made in the wrong size on demand", foreignSize(in, cl.cidr).Name, foreignSize(in, cl.cidr).BlockSize)
	case len(nodes) > 1:
		out.severity = High
	case undated, cl.others[0].Type != "host":
		out.severity = Low
	}
	return out
}

// ownerless: nobody owns the block. One outside every pool that still holds
// live addresses is block-layout's.
func (cl *claims) ownerless(in *Input, scarce map[*ipam.Pool]bool) (conflict, bool) {
	b := cl.block
	if b.Pool() == nil && in.Coverage.Read(ipam.ResPools) {
		return conflict{}, false
	}
	held, waiting, live := 0, 0, []*ipam.Pod{}
	for a := range b.Allocations() {
		switch h := in.Holder(a); h.Kind {
		case ipam.HeldByWindows:
		case ipam.HeldCoolingDown:
			waiting++
		default:
			held++
			if h.Kind.Live() && h.Pod != nil {
				live = append(live, h.Pod)
			}
		}
	}
	c := commandsFor(in.Snapshot)
	out := conflict{severity: Low, title: fmt.Sprintf("Block %s belongs to nobody", cl.cidr)}
	out.detail = fmt.Sprintf("The block has no owner; %s in it", count(uint64(held), "address")+" booked")
	switch {
	case held > 0:
		out.severity = Medium
		out.detail += ". Calico deletes it when its last address is released; until then nobody announces it as a whole"
	case waiting > 0:
		out.detail += fmt.Sprintf(", %d cooling down: Calico deletes it with the last of them", waiting)
	case scarce[b.Pool()]:
		out.severity = Medium
		out.detail += ". Blocks are scarce, and this one is out of everybody's reach"
	default:
		out.detail += ". No node can claim it"
	}
	if held+waiting == 0 {
		out.steps = []Step{{
			Title:    "Delete the empty block; while the datastore is locked no pod can start",
			Commands: c.deleteEmptyBlock(b, nil), Risk: Destructive,
			Verify: "A changed object answers Conflict: then look again. " + c.showBlocks() + " no longer lists it.",
		}}
		return out, true
	}
	if del, bare, fixed := recreate(c, live, commandLimit); len(del)+len(bare)+len(fixed) > 0 {
		out.steps = append(out.steps, Step{
			Title:    "Recreate the pods in it: they get addresses from a block of their own node" + leftOver(bare, fixed),
			Commands: del, Risk: Disruptive, Verify: c.showBlocks() + "   # fewer in use in " + cl.cidr.String(),
		})
	}
	out.steps = append(out.steps, Step{
		Title:    "Find out what the other addresses were booked for: no collector releases what names no pod, and it may be a reservation made by hand",
		Commands: []string{"kubectl get " + c.resource(ipam.ResBlocks) + " " + Quote(b.Name) + " -o jsonpath='{.spec.attributes}{\"\\n\"}'", "calicoctl ipam check --show-problem-ips"},
		Risk:     Safe, Verify: "Every address has a user or a reason; an IPReservation is the way to keep addresses back.",
	})
	return out, true
}

// ownerWithoutAffinity: the block names a node, the node has no affinity for it.
func (cl *claims) ownerWithoutAffinity(in *Input) (conflict, bool) {
	b := cl.block
	if unsettled(in, b.Created) || unsettled(in, b.ClaimTime) {
		return conflict{}, false
	}
	c := commandsFor(in.Snapshot)
	out := conflict{severity: Medium, title: fmt.Sprintf("The owner of block %s has no affinity for it", cl.cidr)}
	out.detail = fmt.Sprintf("The block names %s as owner, but %s has no affinity for it: BIRD announces no route for the block as a whole, no other node can take it over, and the collector does not give it back", b.Owner.Name, b.Owner.Name)
	used := inUse(in, b)
	if used == 0 {
		// The collector may have been half-way through releasing it.
		out.severity, out.evidence = Low, Inferred
	}
	var pods []*ipam.Pod
	tunnel := false
	for a := range b.Allocations() {
		h := in.Holder(a)
		if h.Kind.Live() && h.Pod != nil {
			pods = append(pods, h.Pod)
		}
		tunnel = tunnel || h.Kind == ipam.HeldByTunnel
	}
	if del, bare, fixed := recreate(c, pods, commandLimit); len(del)+len(bare)+len(fixed) > 0 {
		out.steps = append(out.steps, Step{
			Title:    "Recreate the pods in it: they get addresses from another block" + leftOver(bare, fixed),
			Commands: del, Risk: Disruptive, Verify: c.showBlocks() + "   # fewer in use in " + cl.cidr.String(),
		})
	}
	if tunnel {
		out.steps = append(out.steps, restartCalicoNode(b.Owner.Name, "Let calico-node take a tunnel address from another block"))
	}
	out.steps = append(out.steps, Step{
		Title:    "When nothing is left in it, delete the block; while the datastore is locked no pod can start",
		Commands: c.deleteEmptyBlock(b, nil), Risk: Destructive,
		Verify: "A changed object answers Conflict: then look again. " + c.showBlocks() + " no longer lists it.",
	})
	return out, true
}

// ownState: the right affinity, stuck in the wrong state.
func (cl *claims) ownState(in *Input) []conflict {
	a := cl.own
	if a.State == ipam.StateConfirmed || unsettled(in, a.Created) {
		return nil
	}
	c := commandsFor(in.Snapshot)
	out := conflict{severity: Medium}
	used := inUse(in, cl.block)
	verify := "kubectl get " + c.resource(ipam.ResAffinities) + " " + Quote(a.Name) + " -o jsonpath='{.spec.state}{\"\\n\"}'   # confirmed, or NotFound"
	switch {
	case a.State == ipam.StatePending && a.Created.IsZero():
		out.severity, out.evidence = Low, Inferred
		fallthrough
	case a.State == ipam.StatePending:
		out.title = fmt.Sprintf("The claim of block %s was never completed", cl.cidr)
		out.detail = fmt.Sprintf("The affinity of its owner %s is pending%s: the claim was interrupted", a.Node, since(a.Created))
		out.steps = []Step{{
			Title:    "Let " + a.Node + " allocate again: its next allocation from the block confirms the affinity. Recreate a pod there that its controller brings back on the same node (of a DaemonSet, say)",
			Commands: append([]string{"kubectl get pods -A --field-selector spec.nodeName=" + Quote(a.Node)}, c.evict([]*ipam.Pod{{Namespace: "NAMESPACE", Name: "POD"}}, 1)...),
			Risk:     Disruptive, Verify: verify,
		}}
	default:
		out.evidence = Inferred
		out.title = fmt.Sprintf("The release of block %s was never completed", cl.cidr)
		out.detail = fmt.Sprintf("The affinity of its owner %s is in state %q%s while the block exists with %s in use; since when is not recorded", a.Node, a.State, since(a.Created), count(uint64(used), "address"))
		if used == 0 {
			out.severity = Low
		}
		out.steps = []Step{
			{
				Title:    "See whether it completes by itself within some minutes, as it does where kube-controllers runs",
				Commands: []string{"kubectl get pods -A -l k8s-app=calico-kube-controllers"},
				Risk:     Safe, Verify: verify,
			},
			{
				Title:    "Only if it does not: restart kube-controllers, which tries again. Policy and pods are not touched",
				Commands: []string{"kubectl delete pod -A -l k8s-app=calico-kube-controllers"},
				Risk:     Disruptive, Verify: verify,
			},
		}
		if used == 0 {
			out.steps = append(out.steps, Step{
				Title:    "Only if it still does not: delete the empty block by hand; while the datastore is locked no pod can start",
				Commands: c.deleteEmptyBlock(cl.block, a), Risk: Destructive,
				Verify: "A changed object answers Conflict: then look again. " + c.showBlocks() + " no longer lists it.",
			})
		}
	}
	return []conflict{out}
}

// misspelt: IPAM writes the node's name in another case than Kubernetes. For
// Calico's collector that node does not exist, so it frees what lives there
// (projectcalico/calico#1441).
func (cl *claims) misspelt(in *Input) []conflict {
	var pairs []string
	node := ""
	check := func(name string) {
		if n := in.NodeByFold(name); n != nil && in.Node(name) == nil && name != "" {
			if p := fmt.Sprintf("%q in IPAM is %q in Kubernetes", name, n.Name); !slices.Contains(pairs, p) {
				pairs, node = append(pairs, p), n.Name
			}
		}
	}
	if cl.block != nil && cl.block.Owner.IsHost() {
		check(cl.block.Owner.Name)
	}
	for _, a := range append(slices.Clone(cl.others), cl.own) {
		if a != nil {
			check(a.Node)
		}
	}
	if len(pairs) == 0 {
		return nil
	}
	return []conflict{{
		severity: High,
		title:    fmt.Sprintf("The owner of block %s is written in another case than the node's name", cl.cidr),
		detail:   "Names differ in case: " + strings.Join(pairs, ", ") + ". For Calico's collector that node does not exist, and it releases the addresses of a node that does not exist",
		steps: []Step{
			{
				Title:    "See which name Calico uses on " + node + ": it must be the node's name in Kubernetes, in lower case",
				Commands: []string{"cat /var/lib/calico/nodename   # on " + oneLine(node), "grep -h nodename /etc/cni/net.d/*.conflist   # on " + oneLine(node)},
				Risk:     Safe, Verify: "Both print " + node + ".",
			},
			{
				Title:    "Correct the name (NODENAME of the calico-node DaemonSet, the nodename file), restart calico-node, then recreate the node's pods: they are booked under the right name",
				Commands: []string{"kubectl cordon " + Quote(node), "kubectl drain " + Quote(node) + " --ignore-daemonsets", "kubectl uncordon " + Quote(node)},
				Risk:     Disruptive, Verify: "kubectl get " + commandsFor(in.Snapshot).resource(ipam.ResAffinities) + " -o custom-columns=NODE:.spec.node,CIDR:.spec.cidr   # only names that kubectl get nodes prints",
			},
		},
	}}
}

func (cl *claims) affected(in *Input) []Affected {
	var out []Affected
	if cl.block != nil {
		out = append(out, Affected{Kind: KindBlock, Name: cl.cidr.String(), Note: fmt.Sprintf("IPAMBlock %s, owner %s", cl.block.Name, cl.block.Owner)})
	}
	row := func(a *ipam.Affinity, note string) {
		out = append(out, Affected{Kind: KindNode, Name: a.Node, Note: fmt.Sprintf("BlockAffinity %s, %s%s%s", a.Name, a.State, since(a.Created), note)})
	}
	if cl.own != nil {
		row(cl.own, "; the one that the block names")
	}
	for _, a := range cl.others {
		if cl.block == nil {
			row(a, "; no block")
		} else {
			row(a, "; not the owner")
		}
	}
	if cl.block == nil {
		return out
	}
	for a := range cl.block.Allocations() {
		switch h := in.Holder(a); {
		case h.Kind == ipam.HeldByWindows || h.Kind == ipam.HeldCoolingDown || h.Kind.Leaked():
		case h.Pod != nil:
			out = append(out, Affected{Kind: KindIP, Name: a.IP.String(), Note: podNote(h.Pod)})
		case h.Kind == ipam.HeldByTunnel:
			out = append(out, Affected{Kind: KindIP, Name: a.IP.String(), Note: "tunnel of " + h.NodeName})
		default:
			out = append(out, Affected{Kind: KindIP, Name: a.IP.String(), Note: "booked, no pod known"})
		}
	}
	return out
}

func lookAtClaims(c commands, cidr netip.Prefix) Step {
	return Step{
		Title: "Look at the block's owner and at all affinities for it: the block decides",
		Commands: []string{
			"kubectl get " + c.resource(ipam.ResBlocks) + " " + Quote(blockName(cidr)) + ` -o jsonpath='{.spec.affinity}{"\n"}'`,
			"kubectl get " + c.resource(ipam.ResAffinities) + " -o custom-columns=NAME:.metadata.name,NODE:.spec.node,CIDR:.spec.cidr,STATE:.spec.state,SINCE:.metadata.creationTimestamp | grep -F " + Quote(cidr.String()),
		},
		Risk: Safe, Verify: "They still contradict each other; if not, it has healed by itself.",
	}
}

// deleteAffinitySteps deletes affinities that nobody needs. It touches no block
// and no address.
func deleteAffinitySteps(c commands, list []*ipam.Affinity, why string) []Step {
	s := Step{Title: "Delete what is wrong, if its SINCE is more than 10 minutes ago: " + why, Risk: Destructive}
	var nodes []string
	for _, a := range list {
		s.Commands = append(s.Commands, c.deleteAffinity(a.Name))
		if !slices.Contains(nodes, a.Node) {
			nodes = append(nodes, a.Node)
		}
	}
	s.Verify = "ip route show " + list[0].CIDR.String() + "   # on " + names(nodes, 5) + ": no blackhole any more. Blocks and addresses are not touched"
	return []Step{s}
}

// foreignSize is a pool around the block whose block size is another one, nil
// where one of the pools around it has this size.
func foreignSize(in *Input, cidr netip.Prefix) *ipam.Pool {
	var foreign *ipam.Pool
	for i := range in.Pools {
		p := &in.Pools[i]
		// A pool that can hold no block is one finding of pool-config, not one for each block.
		if !ipam.Contains(p.CIDR, cidr) || !p.HoldsBlocks() {
			continue
		}
		if p.BlockSize == cidr.Bits() {
			return nil
		}
		if foreign == nil || p.CIDR.Bits() > foreign.CIDR.Bits() {
			foreign = p
		}
	}
	return foreign
}
