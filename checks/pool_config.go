package checks

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ipamaudit/ipam"
)

// poolConfig finds pools that contradict each other or do not serve what uses them.
func poolConfig() Check {
	return Check{
		ID:          "pool-config",
		Title:       "Pools that overlap, miss nodes, or cannot serve what uses them",
		SubjectKind: KindPool,
		What: "Pools that overlap; nodes that no enabled pool selects (one finding for the cluster); pods and namespaces pinned by annotation to a pool that is disabled, does not exist or is not for pods; " +
			"pods in a pool whose selector does not match their node; pools that can hold no block; and pools of different block sizes that serve the same nodes.",
		Why: "calicoctl refuses overlapping pools, `kubectl apply` on the raw object does not, and then two pools disagree on how one address is encapsulated and masqueraded. " +
			"A node without a pool looks Ready, and every pod on it fails with “cannot find a qualified ippool” or “no configured Calico pools for node”. " +
			"A pin to a disabled pool bites when the pod is next recreated, often months after a migration.",
		How: "The pools' CIDRs against each other; each node's labels against the selectors of the enabled pools that assign automatically; the annotations of pods and namespaces against the pools. " +
			"An annotation takes precedence over a selector by design, and a pool that selects no node serves fixed addresses: neither is a finding. " +
			"Cordoned nodes, the control plane and nodes for host-network pods need no pool.",
		SeverityNote: "Overlapping: high, medium where one of them is disabled. Node without a pool: critical with pods waiting there, else high; low where all its pods are pinned. " +
			"Pin that cannot be served: high with pods waiting, medium with running ones, low without any. A pool that can hold no block: high. Pool that does not select the node, one family without a pool, mixed block sizes: low.",
		Needs: []ipam.Resource{ipam.ResPools, ipam.ResNodes},
		Uses:  []ipam.Resource{ipam.ResPods, ipam.ResNamespaces, ipam.ResBlocks, ipam.ResClusterInfo},
		Example: func() []Step {
			return append(overlapSteps(exampleCommands(), "POOL"), selectSteps(exampleCommands(), []string{"NODE"})...)
		},
		Cases: func() []Case {
			c := exampleCommands()
			return []Case{
				{When: "Two pools overlap", Steps: overlapSteps(c, "POOL")},
				{When: "No enabled pool selects the node (`cannot find a qualified ippool`)", Steps: selectSteps(c, []string{"NODE"})},
				{When: "An annotation names a pool that is disabled or gone (`does not exist, or is not enabled`)", Steps: pinSteps(c, []string{annotationsOf("NAMESPACE", "POD"), annotationsOf("", "NAMESPACE")})},
				{When: "An annotation puts pods into a pool whose selector does not match their node", Steps: unpinSteps()},
			}
		},
		Look: lines(exampleCommands().pools(), "kubectl get node NODE --show-labels", annotationsOf("NAMESPACE", "POD"), annotationsOf("", "NAMESPACE")),
		Sign: "An annotation `ipv4pools`, `ipv6pools` or `ipAddrs` of pod or namespace overrides the pools' selectors: a pod in a pool that does not select its node is healthy then. It is this where two CIDRs overlap, where no row with DISABLED `<none>` or `false` selects the node's labels (an empty SELECTOR selects all), or where the annotation names no such row.",
		Related: []Related{
			{"pool-utilisation", "Does an enabled pool select the node, and is it full?"},
			{"block-layout", "Are the pools right, and old blocks do not fit them?"},
			{"blockless-nodes", "Does a pool select the node, and no block is free?"},
		},
		References: []string{
			"https://github.com/projectcalico/libcalico-go/issues/862", "https://github.com/projectcalico/calico/issues/7440",
			"https://github.com/projectcalico/calico/issues/4308", "https://github.com/projectcalico/calico/issues/4656",
			"https://github.com/projectcalico/calico/issues/6150", "https://github.com/projectcalico/calico/issues/4287",
			"libcalico-go/lib/ipam/ipam.go (determinePools)",
		},
		Run: runPoolConfig,
	}
}

// remark is one thing that is wrong with one subject.
type remark struct {
	subject  Subject
	severity Severity
	evidence Evidence
	title    string
	detail   string
	affected []Affected
	steps    []Step
}

func runPoolConfig(in *Input) Result {
	var res Result
	pins := pinsOf(in)
	var all []remark
	for _, look := range []func(*Input, *pinned) []remark{overlappingPools, nodesWithoutPool, brokenPins, poolsWithoutBlocks, unreadableSelectors, unselectedPods, familyWithoutPool, mixedSizes} {
		all = append(all, look(in, pins)...)
	}
	var order []Subject
	bySubject := map[Subject][]remark{}
	for _, r := range all {
		if bySubject[r.subject] == nil {
			order = append(order, r.subject)
		}
		bySubject[r.subject] = append(bySubject[r.subject], r)
	}
	for _, s := range order {
		list := bySubject[s]
		slices.SortStableFunc(list, func(a, b remark) int { return b.severity.Rank() - a.severity.Rank() })
		f := Finding{Severity: list[0].severity, Evidence: list[0].evidence, Subject: s, Title: list[0].title}
		var detail []string
		for _, r := range list {
			detail = append(detail, r.detail)
			f.Affected = append(f.Affected, r.affected...)
			f.Remediation = append(f.Remediation, r.steps...)
		}
		f.Detail = strings.Join(detail, ". ") + "."
		res.Findings = append(res.Findings, f)
	}
	if !in.Coverage.Read(ipam.ResPods) {
		res.Unseen = append(res.Unseen, "pods, for pins to pools that cannot serve them")
	}
	return res
}

// pinned knows which pods and namespaces name their pools.
type pinned struct {
	namespaces map[string][]string
	// byCNI is true where the CNI configuration itself names pools.
	byCNI bool
}

func pinsOf(in *Input) *pinned {
	p := &pinned{namespaces: map[string][]string{}}
	for i := range in.Namespaces {
		if ns := &in.Namespaces[i]; len(ns.PoolPins) > 0 {
			p.namespaces[ns.Name] = ns.PoolPins
		}
	}
	p.byCNI = slices.ContainsFunc(in.CNIConfigs, func(c string) bool {
		return strings.Contains(c, "ipv4_pools") || strings.Contains(c, "ipv6_pools")
	})
	return p
}

// of returns the pools that the pod names; its own annotation comes before the
// namespace's (cni-plugin: annotations take precedence).
func (p *pinned) of(pod *ipam.Pod) []string {
	if len(pod.PoolPins) > 0 {
		return pod.PoolPins
	}
	return p.namespaces[pod.Namespace]
}

// chooses reports whether the pod itself says where its address comes from.
func (p *pinned) chooses(pod *ipam.Pod) bool {
	return p.byCNI || len(p.of(pod)) > 0 || len(pod.RequestedIPs) > 0 || pod.NoIPAM
}

func poolSubject(name string) Subject { return Subject{Kind: KindPool, Name: name} }

func overlappingPools(in *Input, _ *pinned) []remark {
	var out []remark
	// Sorted by address, the wider pool first: the later one lies in the earlier.
	for i := range in.Pools {
		for j := i + 1; j < len(in.Pools); j++ {
			outer, inner := &in.Pools[i], &in.Pools[j]
			if !outer.CIDR.Overlaps(inner.CIDR) {
				continue
			}
			r := remark{
				subject: poolSubject(inner.Name), severity: High, title: "Pool " + inner.Name + " overlaps pool " + outer.Name,
				detail: fmt.Sprintf("%s (%s, blocks of /%d) and %s (%s, blocks of /%d) overlap, which Calico's own validation refuses: the object was made past it. "+
					"The two may disagree on encapsulation, NAT and block size of one address",
					outer.Name, outer.CIDR, outer.BlockSize, inner.Name, inner.CIDR, inner.BlockSize),
				affected: []Affected{poolRow(outer), poolRow(inner)},
				steps:    overlapSteps(commandsFor(in.Snapshot), inner.Name),
			}
			if !outer.Enabled() || !inner.Enabled() {
				r.severity = Medium
				r.detail += ". One of them gives out no addresses at present"
			}
			if outer.BlockSize != inner.BlockSize {
				r.detail += ". Their block sizes differ, so their blocks can overlap, too"
			}
			out = append(out, r)
		}
	}
	return out
}

func poolRow(p *ipam.Pool) Affected {
	note := fmt.Sprintf("%s, blocks of /%d", p.CIDR, p.BlockSize)
	if !p.Enabled() {
		note += ", not enabled"
	}
	return Affected{Kind: KindPool, Name: p.Name, Note: note}
}

func overlapSteps(c commands, name string) []Step {
	return []Step{
		{
			Title:    "Compare the pools: which one is meant to be, and what differs",
			Commands: []string{c.pools(), c.showBlocks()},
			Risk:     Safe, Verify: "You know which of the two is to stay.",
		},
		{
			Title:    "Disable the other one (here the inner one): running pods keep their addresses, new ones come from the pool that stays",
			Commands: []string{c.disablePool(name)},
			Risk:     Disruptive, Verify: "kubectl get " + c.resource(ipam.ResPools) + " " + Quote(name) + " -o jsonpath='{.spec.disabled}'   # true. Delete it only when no pod has an address in it",
		},
	}
}

// nodesWithoutPool is one finding for all nodes that no pool serves.
func nodesWithoutPool(in *Input, pins *pinned) []remark {
	if len(unreadable(in, "IPPool")) > 0 {
		return nil // it may be the one that selects them
	}
	r := remark{
		subject: Subject{Kind: KindCluster, Name: in.Cluster.Name}, title: "Nodes that no enabled pool selects",
	}
	anyAutomatic := len(in.Families()) > 0
	var nodes []string
	for i := range in.Nodes {
		n := &in.Nodes[i]
		if len(in.Serving(n, true, ipam.UseWorkload))+len(in.Serving(n, false, ipam.UseWorkload)) > 0 || !in.InUse(n) || servedElsewhere(in, n) {
			continue
		}
		severity, chosen, other := High, 0, 0
		var stuck []Affected
		for _, p := range in.PodsOn(n.Name) {
			switch {
			case !p.Live():
			case pins.chooses(p):
				chosen++
			case p.WaitsForAddress():
				severity = Critical
				stuck = append(stuck, Affected{Kind: KindPod, Namespace: p.Namespace, Name: p.Name, Note: "waits for an address on " + n.Name})
			default:
				other++
			}
		}
		if len(stuck) == 0 && other == 0 && (chosen > 0 || !anyAutomatic && len(in.Pools) > 0 && slices.ContainsFunc(in.Pools, func(p ipam.Pool) bool { return p.Enabled() && p.Manual })) {
			severity = Low
		}
		r.severity = Worst(r.severity, severity)
		nodes = append(nodes, n.Name)
		r.affected = append(r.affected, Affected{Kind: KindNode, Name: n.Name, Note: fmt.Sprintf("no pool; %d pods name their pool, %d do not", chosen, other+len(stuck))})
		r.affected = append(r.affected, stuck...)
	}
	if len(nodes) == 0 {
		return nil
	}
	if !in.Coverage.Read(ipam.ResPods) || !in.Coverage.Read(ipam.ResNamespaces) {
		// Pods may all be pinned, nobody looked.
		r.evidence = Inferred
	}
	var selectors []string
	for i := range in.Pools {
		p := &in.Pools[i]
		switch {
		case !p.AllowedUses.Has(ipam.UseWorkload):
		case p.Automatic():
			selectors = append(selectors, fmt.Sprintf("%s: %s", p.Name, p.NodeSelector))
		case p.Manual && p.Enabled():
			selectors = append(selectors, p.Name+": assigns by name only")
		default:
			selectors = append(selectors, p.Name+": not enabled")
		}
	}
	r.detail = fmt.Sprintf("No enabled pool for pods selects %s, so only pods that name a pool themselves can start there. %s", names(nodes, 5), poolsSay(selectors))
	r.steps = selectSteps(commandsFor(in.Snapshot), nodes)
	return []remark{r}
}

func poolsSay(selectors []string) string {
	if len(selectors) == 0 {
		return "There is no pool for pods"
	}
	return "The pools select: " + names(selectors, 10)
}

func selectSteps(c commands, nodes []string) []Step {
	look := []string{c.pools()}
	var label []string
	for _, n := range nodes[:min(len(nodes), 3)] {
		look = append(look, "kubectl get node "+Quote(n)+" --show-labels")
		label = append(label, "kubectl label node "+Quote(n)+" KEY=VALUE   # as the pool's selector says")
	}
	return []Step{
		{Title: "Compare the nodes' labels with the pools' selectors", Commands: look, Risk: Safe, Verify: "You know which label is missing, or which pool should be enabled."},
		{
			Title:    "Give the nodes the label, or widen a selector, or enable a pool; pods that wait are tried again by themselves",
			Commands: label, Risk: Safe,
			Verify: "kubectl get pods -A -o wide --field-selector spec.nodeName=" + Quote(nodes[0]) + "   # no ContainerCreating",
		},
	}
}

// brokenPins are annotations that name a pool which cannot serve pods.
func brokenPins(in *Input, pins *pinned) []remark {
	type users struct {
		waiting, running []*ipam.Pod
		namespaces       []string
	}
	byPin := map[string]*users{}
	get := func(pin string) *users {
		if byPin[pin] == nil {
			byPin[pin] = &users{}
		}
		return byPin[pin]
	}
	for ns, list := range pins.namespaces {
		for _, pin := range list {
			get(pin).namespaces = append(get(pin).namespaces, ns)
		}
	}
	for i := range in.Pods {
		p := &in.Pods[i]
		if !p.Live() || p.Deleting {
			continue
		}
		for _, pin := range pins.of(p) {
			if p.WaitsForAddress() {
				get(pin).waiting = append(get(pin).waiting, p)
			} else {
				get(pin).running = append(get(pin).running, p)
			}
		}
	}
	keys := make([]string, 0, len(byPin))
	for pin := range byPin {
		keys = append(keys, pin)
	}
	slices.Sort(keys)
	var out []remark
	for _, pin := range keys {
		u := byPin[pin]
		pool := poolNamed(in, pin)
		var why string
		switch {
		case pool == nil && len(unreadable(in, "IPPool")) > 0:
			continue // pins may name a pool by its CIDR
		case pool == nil:
			why = "does not exist"
		case !pool.Enabled():
			why = "is not enabled"
		case !pool.AllowedUses.Has(ipam.UseWorkload):
			why = "is not for pods (allowedUses)"
		default:
			continue
		}
		name := pin
		if pool != nil {
			name = pool.Name
		}
		slices.Sort(u.namespaces)
		r := remark{
			subject: poolSubject(name), severity: Low, title: "Pool " + name + " " + why + ", but pods are pinned to it",
			detail: fmt.Sprintf("The pool %s %s. Pinned to it by annotation: %s waiting, %s running, %s", pin, why,
				count(uint64(len(u.waiting)), "pod"), count(uint64(len(u.running)), "pod"), count(uint64(len(u.namespaces)), "namespace")),
		}
		switch {
		case len(u.waiting) > 0:
			r.severity = High
			r.detail += ". Calico refuses them: the given pool does not exist, or is not enabled"
		case len(u.running) > 0:
			r.severity = Medium
			r.detail += ". They run on; when they are recreated they do not start"
		}
		var cmds []string
		for _, ns := range u.namespaces {
			r.affected = append(r.affected, Affected{Kind: "Namespace", Name: ns, Note: "annotation names " + pin})
			cmds = append(cmds, annotationsOf("", ns))
		}
		for _, p := range u.waiting {
			r.affected = append(r.affected, Affected{Kind: KindPod, Namespace: p.Namespace, Name: p.Name, Note: "waits for an address on " + p.NodeName})
		}
		for _, p := range u.running {
			r.affected = append(r.affected, Affected{Kind: KindPod, Namespace: p.Namespace, Name: p.Name, Note: "runs on " + p.NodeName})
		}
		for _, p := range append(slices.Clone(u.waiting), u.running...) {
			if len(cmds) < 3 {
				cmds = append(cmds, annotationsOf(p.Namespace, p.Name))
			}
		}
		r.steps = pinSteps(commandsFor(in.Snapshot), cmds[:min(len(cmds), 5)])
		out = append(out, r)
	}
	return out
}

// annotationsOf prints the annotations of a pod, or of a namespace, which is in none.
func annotationsOf(namespace, name string) string {
	get := "kubectl get namespace " + Quote(name)
	if namespace != "" {
		get = "kubectl -n " + Quote(namespace) + " get pod " + Quote(name)
	}
	return get + ` -o jsonpath='{.metadata.annotations}{"\n"}'`
}

// pinSteps mend an annotation that names a pool; look prints who has it.
func pinSteps(c commands, look []string) []Step {
	return []Step{
		{
			Title:    "See who names the pool: the pod template of a workload, or its namespace (cni.projectcalico.org/ipv4pools, ipv6pools)",
			Commands: look, Risk: Safe, Verify: "You know where the annotation comes from.",
		},
		{
			Title:    "Name a pool that is enabled there, or take the annotation away; then the workload is recreated by its controller",
			Commands: []string{c.pools()},
			Risk:     Disruptive, Verify: "The pods have addresses of the pool that is named.",
		},
	}
}

// unpinSteps take an annotation away that overrides the pools' selectors.
func unpinSteps() []Step {
	return []Step{
		{
			Title:    "Ask whether it is meant: the annotation overrides the selector by design, and nothing is broken by that",
			Commands: []string{annotationsOf("NAMESPACE", "POD"), annotationsOf("", "NAMESPACE")},
			Risk:     Safe, Verify: "You know who set it, on pod template or namespace. If it is meant, leave it.",
		},
		{
			Title:    "Only if it is not meant: take it away from the namespace, or from the pod template where it stands there. Pods change pools when they are next recreated",
			Commands: []string{"kubectl annotate namespace NAMESPACE cni.projectcalico.org/ipv4pools-"},
			Risk:     Disruptive, Verify: "A new pod has an address of a pool that selects its node.",
		},
	}
}

// poolNamed finds the pool that an annotation names, by name or CIDR.
func poolNamed(in *Input, pin string) *ipam.Pool {
	cidr, _ := netip.ParsePrefix(pin)
	for i := range in.Pools {
		if p := &in.Pools[i]; p.Name == pin || cidr.IsValid() && p.CIDR == cidr.Masked() {
			return p
		}
	}
	return nil
}

// poolsWithoutBlocks cannot be cut into a single block.
func poolsWithoutBlocks(in *Input, _ *pinned) []remark {
	var out []remark
	for i := range in.Pools {
		p := &in.Pools[i]
		if !p.Enabled() || p.HoldsBlocks() {
			continue
		}
		c, like := commandsFor(in.Snapshot), *p
		like.BlockSize = ipam.DefaultBlockSize(p.CIDR.Addr())
		out = append(out, remark{
			subject: poolSubject(p.Name), severity: High, title: "Pool " + p.Name + " can hold no block",
			detail:   fmt.Sprintf("Its block size /%d does not fit into %s", p.BlockSize, p.CIDR),
			affected: []Affected{poolRow(p)},
			steps: []Step{{
				Title: "The block size of a pool cannot be changed: add a pool that fits and disable this one",
				// Pasted without its range, it must not disable the only pool.
				Commands: append(c.addPool(&like), "kubectl get "+c.resource(ipam.ResPools)+" "+Quote(newPoolName(&like))+" && "+c.disablePool(p.Name)),
				Risk:     Disruptive, Verify: "calicoctl ipam show   # the new pool has free addresses",
			}},
		})
	}
	return out
}

// unreadableSelectors serve nobody in this audit.
func unreadableSelectors(in *Input, _ *pinned) []remark {
	var out []remark
	for i := range in.Pools {
		p := &in.Pools[i]
		_, err := ipam.ParseSelector(p.NodeSelector)
		if err == nil || !p.Enabled() {
			continue
		}
		out = append(out, remark{
			subject: poolSubject(p.Name), severity: Low, evidence: Inferred, title: "The node selector of pool " + p.Name + " could not be read",
			detail:   fmt.Sprintf("%v; the audit counts the pool as serving no node", err),
			affected: []Affected{poolRow(p)},
			steps: []Step{{
				Title:    "See whether Calico accepts the selector",
				Commands: []string{"calicoctl get ippool " + Quote(p.Name) + " -o yaml"},
				Risk:     Safe, Verify: "The selector is what was meant.",
			}},
		})
	}
	return out
}

// unselectedPods have an address of a pool that does not select their node,
// without having asked for it.
func unselectedPods(in *Input, pins *pinned) []remark {
	if !in.Coverage.Read(ipam.ResPods) || !in.Coverage.Read(ipam.ResNamespaces) {
		return nil
	}
	byPool := map[*ipam.Pool][]Affected{}
	for i := range in.Blocks {
		p := in.Blocks[i].Pool()
		if p == nil || !p.Automatic() || !selectorReadable(p) {
			continue
		}
		for a := range in.Blocks[i].Allocations() {
			h := in.Holder(a)
			if h.Kind != ipam.HeldByPod || h.Node == nil || p.Selects(h.Node) || pins.chooses(h.Pod) {
				continue
			}
			byPool[p] = append(byPool[p], Affected{Kind: KindIP, Name: a.IP.String(), Note: podNote(h.Pod)})
		}
	}
	var out []remark
	for i := range in.Pools {
		p := &in.Pools[i]
		if len(byPool[p]) == 0 {
			continue
		}
		out = append(out, remark{
			subject: poolSubject(p.Name), severity: Low, title: "Pods have addresses of pool " + p.Name + ", which does not select their node",
			detail:   fmt.Sprintf("%s of pods on nodes that the selector %s does not match, and no annotation asks for the pool: labels or the selector were changed after they started", count(uint64(len(byPool[p])), "address"), p.NodeSelector),
			affected: byPool[p],
			steps: []Step{{
				Title:    "Nothing is broken: the pods get addresses of the right pool when they are next recreated. If the selector is wrong, correct it",
				Commands: []string{"kubectl get " + commandsFor(in.Snapshot).resource(ipam.ResPools) + " " + Quote(p.Name) + " -o jsonpath='{.spec.nodeSelector}{\"\\n\"}'", "kubectl get nodes --show-labels"},
				Risk:     Safe, Verify: "The selector matches the nodes that the pool is meant for.",
			}},
		})
	}
	return out
}

func selectorReadable(p *ipam.Pool) bool {
	_, err := ipam.ParseSelector(p.NodeSelector)
	return err == nil
}

// familyWithoutPool: the node has a pool of one family and none of the other,
// which other nodes have.
func familyWithoutPool(in *Input, _ *pinned) []remark {
	if len(in.Families()) < 2 {
		return nil
	}
	r := remark{subject: Subject{Kind: KindCluster, Name: in.Cluster.Name}, severity: Low, title: "Nodes that pools of one address family only select"}
	var nodes []string
	for i := range in.Nodes {
		n := &in.Nodes[i]
		four, six := len(in.Serving(n, true, ipam.UseWorkload)) > 0, len(in.Serving(n, false, ipam.UseWorkload)) > 0
		if four == six || !in.InUse(n) {
			continue
		}
		nodes = append(nodes, n.Name)
		r.affected = append(r.affected, Affected{Kind: KindNode, Name: n.Name, Note: "no pool for " + ipam.Family(!four)})
	}
	if len(nodes) == 0 {
		return nil
	}
	r.detail = fmt.Sprintf("%s: pools of one address family select them, pools of the other do not. Where the CNI configuration asks for both, no pod starts there", names(nodes, 5))
	r.steps = selectSteps(commandsFor(in.Snapshot), nodes)
	return []remark{r}
}

// mixedSizes: pools of different block sizes serve the same nodes.
func mixedSizes(in *Input, _ *pinned) []remark {
	var out []remark
	seen := map[*ipam.Pool]bool{}
	for _, g := range groupsFor(in, ipam.UseWorkload) {
		for _, p := range g.pools[1:] {
			first := g.pools[0]
			if p.BlockSize == first.BlockSize || seen[p] {
				continue
			}
			seen[p] = true
			out = append(out, remark{
				subject: poolSubject(p.Name), severity: Low, title: "Pool " + p.Name + " has another block size than pool " + first.Name + ", which serves the same nodes",
				detail:   fmt.Sprintf("Blocks of /%d and of /%d count alike against the block limit, so how many addresses a node can have depends on where its blocks come from", p.BlockSize, first.BlockSize),
				affected: []Affected{poolRow(first), poolRow(p)},
				steps: []Step{{
					Title:    "Keep one size for the pools of a node, with selectors or when the next pool is added; the size of an existing pool cannot be changed",
					Commands: []string{"kubectl get " + commandsFor(in.Snapshot).resource(ipam.ResPools) + " -o custom-columns=NAME:.metadata.name,CIDR:.spec.cidr,SIZE:.spec.blockSize,SELECTOR:.spec.nodeSelector"},
					Risk:     Safe, Verify: "Pools that serve the same nodes have one block size.",
				}},
			})
		}
	}
	return out
}
