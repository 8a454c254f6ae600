package checks

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ipamaudit/ipam"
)

// blockLayout finds blocks that cannot be where they are.
func blockLayout() Check {
	return Check{
		ID:          "block-layout",
		Title:       "Blocks that overlap, have a foreign size, lie outside every pool or are malformed",
		SubjectKind: KindBlock,
		What: "The blocks of a pool are all of the pool's block size, next to each other and never inside each other. " +
			"The check finds blocks that overlap, blocks of another size than their pool's, blocks outside every pool, and blocks whose own book-keeping contradicts itself.",
		Why: "Calico compares blocks by their exact CIDR. Two blocks that overlap are two books for the same addresses: both give them out, and two pods run with one address. " +
			"A block of a foreign size is how that begins: the block that the pool would make in its place has another CIDR and counts as free. " +
			"It happens when a pool's block size is edited in place, when a pool is removed and made again over the same range, and when objects are restored by hand.",
		How: "Every block against every other, and against the pools around it; pools may overlap, so the size has to fit any of them. " +
			"Disabled pools count: a migration leaves them until they are empty. The book-keeping is judged as Calico's validateBlock does.",
		SeverityNote: "Overlapping blocks: critical with an address in use where they overlap, else high. Foreign size: high, medium in a disabled pool. " +
			"Outside every pool: high with live addresses, else low. Malformed: medium, high when an address is both booked and free.",
		Needs:   []ipam.Resource{ipam.ResBlocks, ipam.ResPools},
		Uses:    []ipam.Resource{ipam.ResPods, ipam.ResNodes, ipam.ResAffinities, ipam.ResClusterInfo},
		Example: func() []Step { return layoutCases()[0].Steps },
		Cases:   layoutCases,
		Look:    lines(exampleCommands().pools(), blockSizes(exampleCommands()), exampleCommands().blockOwners(), "calicoctl ipam check | grep -i invalid", podsTwice()),
		Sign: "The blocks of a pool all have its SIZE (26 where it is empty; 122 for IPv6), so the second command counts one size per pool (the rare one is wrong), and lie in its CIDR, none inside another. It is this where one does not, or where `ipam check` calls one invalid. " +
			"WRONG-NODE below owns the block whose size is not the pool's. " +
			"**If the last command prints an address, begin there:** overlapping blocks have given it to two pods, see `duplicate-ips`.",
		Related: []Related{
			{"duplicate-ips", "Have two pods one address already (mend that first)?"},
			{"pool-config", "Do the pools themselves overlap?"},
			{"affinity-conflicts", "Are the sizes right, and two nodes claim one block?"},
			{"unallocated-pod-ips", "Do running pods lie in an enabled pool, and no block has them booked?"},
		},
		References: []string{
			"https://github.com/projectcalico/libcalico-go/issues/1377", "https://github.com/projectcalico/calico/issues/8446",
			"https://github.com/projectcalico/calico/issues/10778", "https://github.com/projectcalico/calico/issues/11702",
			"libcalico-go/lib/ipam/ipam_block_reader_writer.go (findUsableBlock)", "calicoctl/calicoctl/commands/ipam/check.go (validateBlock)",
		},
		Run: runBlockLayout,
	}
}

// blockSizes counts the blocks of each size; among hundreds nobody sees an
// overlap with the eye.
func blockSizes(c commands) string {
	return "kubectl get " + c.resource(ipam.ResBlocks) + " -o custom-columns=CIDR:.spec.cidr --no-headers | sed 's,.*/,/,' | sort | uniq -c   # blocks of each size"
}

// layoutCases are what the check itself says of the smallest cluster that has
// each of its faults.
func layoutCases() []Case {
	smaller := netip.MustParsePrefix("10.0.0.64/27")
	booked := ipam.Slot{}
	var out []Case
	for _, one := range []struct {
		when   string
		spoil  func(*ipam.Snapshot)
		blocks []ipam.Block
	}{
		{"Blocks overlap: one lies inside another", nil, []ipam.Block{exampleBlockOf(exampleBlock, "host:NODE"), exampleBlockOf(smaller, "host:WRONG-NODE", booked)}},
		{"A block has another size than its pool", nil, []ipam.Block{exampleBlockOf(smaller, "host:NODE", booked)}},
		{"A block lies outside every pool, and pods have addresses of it", func(s *ipam.Snapshot) { s.Pools = nil }, []ipam.Block{exampleBlockOf(exampleBlock, "host:NODE", booked)}},
		{"`calicoctl ipam check` calls a block invalid", func(s *ipam.Snapshot) {
			s.Blocks[0].Malformed = []string{"ordinal 3 is neither allocated nor unallocated"}
		}, []ipam.Block{exampleBlockOf(exampleBlock, "host:NODE", booked)}},
		{"A block is empty, and has another size or no pool", nil, []ipam.Block{exampleBlockOf(smaller, "host:NODE")}},
	} {
		s := exampleCluster()
		s.Blocks = one.blocks
		if one.spoil != nil {
			one.spoil(s)
		}
		out = append(out, Case{When: one.when, Steps: said(blockLayout(), s)})
	}
	return out
}

func runBlockLayout(in *Input) Result {
	var res Result
	overlapping, lostPools := map[*ipam.Block]bool{}, unreadable(in, "IPPool")
	for _, group := range overlaps(in) {
		for _, b := range group {
			overlapping[b] = true
		}
		res.Findings = append(res.Findings, overlapFinding(in, group))
	}
	for i := range in.Blocks {
		b := &in.Blocks[i]
		if overlapping[b] || b.Pool() == nil && len(lostPools) > 0 {
			continue // its pool may be one that could not be used; the check says so
		}
		if f, ok := layoutFinding(in, b); ok {
			res.Findings = append(res.Findings, f)
			if b.Pool() == nil && !in.Coverage.Read(ipam.ResPods) {
				res.Unseen = []string{"pods, to tell whether the blocks outside every pool are in use"}
			}
		}
	}
	return res
}

// overlaps groups the blocks that share addresses; the first of each group
// holds all the others.
func overlaps(in *Input) [][]*ipam.Block {
	var out [][]*ipam.Block
	// Seal sorts by address, the wider block first.
	for i := 0; i < len(in.Blocks); {
		group := []*ipam.Block{&in.Blocks[i]}
		for i++; i < len(in.Blocks) && in.Blocks[i].CIDR.Overlaps(group[0].CIDR); i++ {
			group = append(group, &in.Blocks[i])
		}
		if len(group) > 1 {
			out = append(out, group)
		}
	}
	return out
}

func overlapFinding(in *Input, group []*ipam.Block) Finding {
	outer := group[0]
	f := Finding{
		Severity: High,
		Subject:  Subject{Kind: KindBlock, Name: outer.CIDR.String()},
		Title:    "Block " + outer.CIDR.String() + " overlaps other blocks",
	}
	var texts []string
	for _, b := range group {
		texts = append(texts, fmt.Sprintf("%s of %s", b.CIDR, or(b.Owner.Name, "nobody")))
		f.Affected = append(f.Affected, Affected{Kind: KindBlock, Name: b.CIDR.String(), Note: fmt.Sprintf("IPAMBlock %s, owner %s, %s booked%s", b.Name, b.Owner, count(uint64(len(b.Slots)), "address"), sizeNote(in, b))})
	}
	shared, used, twice := sharedAddresses(in, group)
	f.Affected = append(f.Affected, shared...)
	f.Detail = fmt.Sprintf("Each of these blocks gives out the same addresses by its own book: %s", names(texts, 10))
	if used > 0 {
		f.Severity = Critical
		f.Detail += fmt.Sprintf(". %s in use where they overlap, of which %d are booked in more than one block; the others may be given out a second time", count(uint64(used), "address"), twice)
	} else {
		f.Detail += ". No address is in use where they overlap"
	}
	f.Detail += ". Cause: a pool's block size was changed in place, or blocks were made or restored by hand."
	doomed := toReplace(in, group)
	f.Remediation = slices.Concat([]Step{{
		Title:    "See whether two running pods have one address already: the findings of duplicate-ips come first",
		Commands: []string{podsTwice(), commandsFor(in.Snapshot).showBlocks()},
		Risk:     Safe, Verify: "No duplicate address.",
	}}, replaceBlockSteps(in, commandsFor(in.Snapshot), doomed))
	if used > 0 {
		f.Remediation = aside(in, group, doomed, f.Remediation)
	}
	return f
}

// aside keeps new pods away from the nodes whose blocks stay, while those that
// they overlap are still in use: what is drained would land there and might get
// an address that has not been given back yet.
func aside(in *Input, group, doomed []*ipam.Block, steps []Step) []Step {
	on := func(blocks []*ipam.Block) map[string]bool {
		out := map[string]bool{}
		for _, b := range blocks {
			if n := in.NodeByFold(b.Owner.Name); b.Owner.IsHost() && n != nil && !n.Unschedulable {
				out[n.Name] = true
			}
		}
		return out
	}
	moved := on(doomed)
	var cordon, uncordon []string
	for _, name := range sortedKeys(on(group)) {
		if !moved[name] && len(cordon) < commandLimit {
			cordon, uncordon = append(cordon, "kubectl cordon "+Quote(name)), append(uncordon, "kubectl uncordon "+Quote(name))
		}
	}
	drain := slices.IndexFunc(steps, func(s Step) bool { return len(s.Commands) > 0 && strings.HasPrefix(s.Commands[0], "kubectl drain ") })
	if len(cordon) == 0 || drain < 0 {
		return steps
	}
	return append(slices.Insert(steps, drain, Step{
		Title:    "Keep new pods off the nodes whose blocks stay, until the others are gone: what you drain would land there and might get an address that is still in use",
		Commands: cordon, Risk: Disruptive, Verify: "kubectl get nodes   # SchedulingDisabled",
	}), Step{
		Title:    "Let these nodes take pods again",
		Commands: uncordon, Risk: Safe, Verify: "kubectl get nodes   # Ready, without SchedulingDisabled",
	})
}

// sharedAddresses lists the addresses that are booked and lie in more than one
// block of the group; used of them are in use, twice are booked more than once.
func sharedAddresses(in *Input, group []*ipam.Block) (list []Affected, used, twice int) {
	type entry struct {
		books []string
		note  string
		used  bool
	}
	byIP := map[netip.Addr]*entry{}
	for _, b := range group {
		for a := range b.Allocations() {
			if !slices.ContainsFunc(group, func(o *ipam.Block) bool { return o != b && o.CIDR.Contains(a.IP) }) {
				continue
			}
			e := byIP[a.IP]
			if e == nil {
				e = &entry{}
				byIP[a.IP] = e
			}
			e.books = append(e.books, b.CIDR.String())
			h := in.Holder(a)
			switch {
			case h.Kind.Leaked() || h.Kind == ipam.HeldCoolingDown || h.Kind == ipam.HeldByWindows:
			case h.Pod != nil:
				e.used, e.note = true, podNote(h.Pod)
			case h.Kind == ipam.HeldByTunnel:
				e.used, e.note = true, "tunnel of "+h.NodeName
			default:
				e.used = true
			}
		}
	}
	ips := make([]netip.Addr, 0, len(byIP))
	for ip := range byIP {
		ips = append(ips, ip)
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	for _, ip := range ips {
		e := byIP[ip]
		if !e.used && len(e.books) < 2 {
			continue
		}
		if e.used {
			used++
			if len(e.books) > 1 {
				twice++
			}
		}
		list = append(list, Affected{Kind: KindIP, Name: ip.String(), Note: or(e.note, "no pod known") + ", booked in " + strings.Join(e.books, " and ")})
	}
	return list, used, twice
}

// toReplace chooses which blocks of an overlap have to go: those of a foreign
// size; where that does not decide, all but the one that holds most.
func toReplace(in *Input, group []*ipam.Block) []*ipam.Block {
	var foreign []*ipam.Block
	for _, b := range group {
		if foreignSize(in, b.CIDR) != nil {
			foreign = append(foreign, b)
		}
	}
	if len(foreign) > 0 && len(foreign) < len(group) {
		return foreign
	}
	keep := group[0]
	for _, b := range group {
		if len(b.Slots) > len(keep.Slots) {
			keep = b
		}
	}
	return slices.DeleteFunc(slices.Clone(group), func(b *ipam.Block) bool { return b == keep })
}

func sizeNote(in *Input, b *ipam.Block) string {
	if p := foreignSize(in, b.CIDR); p != nil {
		return fmt.Sprintf(", not the /%d of pool %s", p.BlockSize, p.Name)
	}
	return ""
}

// layoutFinding judges a block that overlaps no other.
func layoutFinding(in *Input, b *ipam.Block) (Finding, bool) {
	c := commandsFor(in.Snapshot)
	f := Finding{
		Subject:  Subject{Kind: KindBlock, Name: b.CIDR.String()},
		Affected: []Affected{{Kind: KindBlock, Name: b.CIDR.String(), Note: fmt.Sprintf("IPAMBlock %s, owner %s, %s booked", b.Name, b.Owner, count(uint64(len(b.Slots)), "address"))}},
	}
	var detail []string
	switch foreign, around := foreignSize(in, b.CIDR), poolAcross(in, b.CIDR); {
	case foreign != nil:
		f.Severity, f.Title = High, "Block "+b.CIDR.String()+" has not the block size of its pool"
		if foreign.Disabled {
			f.Severity = Medium
		}
		detail = append(detail, fmt.Sprintf("The block is a /%d, pool %s (%s) is cut into /%d. A block that the pool makes here is not recognised as taken, and the two then give out the same addresses", b.CIDR.Bits(), foreign.Name, foreign.CIDR, foreign.BlockSize))
		f.Remediation = replaceBlockSteps(in, c, []*ipam.Block{b})
	case b.Pool() == nil && around != nil:
		f.Severity, f.Title = High, "Block "+b.CIDR.String()+" reaches beyond its pool"
		detail = append(detail, fmt.Sprintf("The block overlaps pool %s (%s, blocks of /%d) and is larger than it", around.Name, around.CIDR, around.BlockSize))
		f.Remediation = replaceBlockSteps(in, c, []*ipam.Block{b})
	case b.Pool() == nil:
		f.Severity, f.Title = Low, "Block "+b.CIDR.String()+" lies outside every pool"
		live := liveIn(in, b)
		f.Affected = append(f.Affected, live...)
		detail = append(detail, fmt.Sprintf("No pool contains the block; %s booked in it, %d of them in use", count(uint64(len(b.Slots)), "address"), len(live)))
		if len(live) > 0 {
			f.Severity = High
			detail = append(detail, "Without a pool nothing says how their traffic is encapsulated, masqueraded or announced, and their addresses are not given out again")
		}
		if !in.Coverage.Read(ipam.ResPods) && len(b.Slots) > 0 {
			f.Severity, f.Evidence = Medium, Inferred
		}
		f.Remediation = strayBlockSteps(in, c, b)
	}
	if len(b.Malformed) > 0 {
		severity := Medium
		// Calico gives such an address to the next pod that asks (the collector's
		// words for it, see audit/collect).
		if slices.ContainsFunc(b.Malformed, func(m string) bool { return strings.Contains(m, "both allocated and unallocated") }) {
			severity = High
		}
		detail = append(detail, "Its book-keeping contradicts itself: "+names(b.Malformed, 5))
		if f.Severity == "" {
			f.Title = "Block " + b.CIDR.String() + " is malformed"
			f.Remediation = append([]Step{{
				Title:    "Look at the block and at what Calico says about it",
				Commands: []string{"kubectl get " + c.resource(ipam.ResBlocks) + " " + Quote(b.Name) + " -o yaml", "calicoctl ipam check"},
				Risk:     Safe, Verify: "The block is listed as invalid; otherwise it has been written since.",
			}}, replaceBlockSteps(in, c, []*ipam.Block{b})...)
		}
		f.Severity = Worst(f.Severity, severity)
	}
	if f.Severity == "" {
		return f, false
	}
	f.Detail = strings.Join(detail, ". ") + "."
	return f, true
}

// poolAcross is a pool that overlaps a block without containing it.
func poolAcross(in *Input, cidr netip.Prefix) *ipam.Pool {
	for i := range in.Pools {
		if in.Pools[i].CIDR.Overlaps(cidr) {
			return &in.Pools[i]
		}
	}
	return nil
}

// liveIn lists the addresses of the block that running pods and tunnels use.
func liveIn(in *Input, b *ipam.Block) []Affected {
	var out []Affected
	for a := range b.Allocations() {
		h := in.Holder(a)
		switch {
		case !h.Kind.Live():
		case h.Pod != nil:
			out = append(out, Affected{Kind: KindIP, Name: a.IP.String(), Note: podNote(h.Pod)})
		default:
			out = append(out, Affected{Kind: KindIP, Name: a.IP.String(), Note: "tunnel of " + h.NodeName})
		}
	}
	return out
}

// replaceBlockSteps get rid of blocks that may not be there. A node that is
// drained and registers again is the one way on which Calico itself gives
// everything back; a block that nothing is in can go by hand.
func replaceBlockSteps(in *Input, c commands, blocks []*ipam.Block) []Step {
	var owners, cidrs []string
	var empty []*ipam.Block
	for _, b := range blocks {
		cidrs = append(cidrs, b.CIDR.String())
		switch {
		case in != nil && b.Empty():
			empty = append(empty, b)
		case b.Owner.IsHost() && !slices.Contains(owners, b.Owner.Name):
			owners = append(owners, b.Owner.Name)
		}
	}
	steps := []Step{{
		Title:    "See what these blocks hold, and whose they are",
		Commands: []string{c.showBlocks(), c.blockOwners()},
		Risk:     Safe, Verify: "They are still there, and you know what they hold.",
	}}
	if len(empty) > 0 {
		s := Step{
			Title: "Delete what is empty of " + names(cidrs, 5) + "; while the datastore is locked no pod can start",
			Risk:  Destructive, Verify: "A changed object answers Conflict: then look again. " + c.showBlocks() + " no longer lists it.",
		}
		for _, b := range empty[:min(len(empty), 3)] {
			s.Commands = append(s.Commands, c.deleteEmptyBlock(b, affinityOf(in, b))...)
		}
		steps = append(steps, s)
	}
	if len(owners) > 0 {
		s := Step{
			Title: "One node after the other, move the pods away: " + names(owners, 5),
			Risk:  Disruptive, Verify: "kubectl get pods -A -o wide --field-selector spec.nodeName=" + Quote(owners[0]) + "   # only DaemonSets",
		}
		again := Step{
			Title: "Then let the node register again: Calico gives its blocks back, and the new ones have the pool's size",
			Risk:  Disruptive, Verify: c.showBlocks() + "   # lists none of " + names(cidrs, 5),
		}
		for _, o := range owners[:min(len(owners), 3)] {
			s.Commands = append(s.Commands, "kubectl drain "+Quote(o)+" --ignore-daemonsets")
			again.Commands = append(again.Commands,
				"kubectl delete node "+Quote(o)+"   # then wait until "+c.showBlocks()+" lists none of its blocks (up to 20 minutes)",
				"systemctl restart kubelet   # on "+oneLine(o))
		}
		steps = append(steps, s, again)
	}
	if len(steps) == 0 {
		steps = append(steps, Step{
			Title:    "Nobody owns " + names(cidrs, 5) + ": Calico deletes it with its last address; see what they are booked for",
			Commands: []string{"kubectl get " + c.resource(ipam.ResBlocks) + " " + Quote(blocks[0].Name) + " -o yaml", "calicoctl ipam check --show-problem-ips"},
			Risk:     Safe, Verify: c.showBlocks() + "   # lists none of " + names(cidrs, 5),
		})
	}
	return steps
}

// strayBlockSteps: bring the pool back, or move the pods to one that exists.
func strayBlockSteps(in *Input, c commands, b *ipam.Block) []Step {
	if b.Empty() {
		return replaceBlockSteps(in, c, []*ipam.Block{b})
	}
	var pods []*ipam.Pod
	for a := range b.Allocations() {
		if h := in.Holder(a); h.Kind.Live() && h.Pod != nil {
			pods = append(pods, h.Pod)
		}
	}
	steps := []Step{{
		Title:    "See which pools exist. If one was removed by mistake, make it again with the same CIDR and block size; `disabled: true` keeps new pods out",
		Commands: []string{c.pools()},
		Risk:     Safe, Verify: "A pool contains " + b.CIDR.String() + ", or none should.",
	}}
	if del, bare, fixed := recreate(c, pods, commandLimit); len(del)+len(bare)+len(fixed) > 0 {
		steps = append(steps, Step{
			Title:    "Otherwise recreate the pods: they get addresses from a pool that exists, and Calico deletes the block with its last address" + leftOver(bare, fixed),
			Commands: del, Risk: Disruptive, Verify: c.showBlocks() + "   # no longer lists " + b.CIDR.String(),
		})
	}
	return steps
}

// affinityOf is the affinity of the block's owner, nil where there is none.
func affinityOf(in *Input, b *ipam.Block) *ipam.Affinity {
	for _, a := range in.AffinitiesOf(b.CIDR) {
		if a.Node == b.Owner.Name {
			return a
		}
	}
	return nil
}

// oneLine keeps a name inside a shell comment.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '_'
		}
		return r
	}, s)
}
