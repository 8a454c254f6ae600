package checks

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ipamaudit/ipam"
)

// stuckCause is one reason why IPAM keeps pods from starting, and the texts by
// which it is known.
type stuckCause struct {
	id string
	// texts are parts of the message; any of them will do. In one that holds
	// an asterisk both sides have to occur, in this order.
	texts []string
	// what says it in words; seeAlso is the check that looks for what is behind it.
	what, seeAlso string
	// facts adds figures of this cluster; it may be nil.
	facts func(stuckFacts) string
	steps func(stuckFacts) []Step
}

// heading is that of the cause's steps on the page.
func (c stuckCause) heading() string {
	texts := make([]string, len(c.texts))
	for i, t := range c.texts {
		texts[i] = "`" + strings.TrimSpace(strings.ReplaceAll(t, "*", "…")) + "`"
	}
	return strings.Join(texts, " · ")
}

// stuckFacts is what is known of the pods that one cause holds up on one node.
type stuckFacts struct {
	in   *Input
	c    commands
	node string
	pods []stuckPod
	// hostLocal is true where addresses do not come from Calico IPAM.
	hostLocal bool
	// leaks are the leaked addresses by node, orphans the number of gone nodes
	// that still hold blocks.
	leaks   func() map[string][]leak
	orphans func() int
}

// stuckCauses are all known causes, the most specific first
// (libcalico-go/lib/ipam, cni-plugin/pkg/ipamplugin, node/pkg/allocateip,
// containernetworking/plugins: host-local).
func stuckCauses() []stuckCause {
	return []stuckCause{
		{
			id: "host-local", what: "host-local, not Calico IPAM, has no address left in the node's range",
			texts: []string{"failed to allocate for range 0", "no IP addresses available in range set"},
			steps: func(f stuckFacts) []Step { return hostLocalSteps(f.node) },
		},
		{
			id: "locked", seeAlso: "datastore-locked", what: "the datastore is locked, so no pod can start anywhere",
			texts: []string{"Calico is currently not ready to process requests"},
			steps: func(f stuckFacts) []Step { return unlockSteps(f.c) },
		},
		{
			id: "block-limit", seeAlso: "node-block-limit", what: "the node's blocks are full and it may not claim another one",
			texts: []string{"per host block limit", "blocks per host limit", "blocks reached for this node"},
			facts: blockLimitFacts, steps: blockLimitSteps,
		},
		{
			id: "windows-strict", seeAlso: "ipam-config", what: "Calico IPAM starts no pod on Windows without strict affinity",
			texts: []string{"global strict affinity should not be false for Windows node"},
			steps: func(f stuckFacts) []Step { return strictSteps(f.c, f.in) },
		},
		{
			id: "address-taken", seeAlso: "leaked-ips", what: "the pod asks for an address that is booked already",
			texts: []string{"Address already assigned in block", "error getting IP from IPAM: resource already exists: ", "Failed to assign address*resource already exists"},
			steps: takenSteps,
		},
		{
			id: "foreign-block", what: "the pod asks for an address in a block of another node, which strict affinity forbids",
			texts: []string{"Block host affinity does not match", "Attempt to assign from block"},
			facts: foreignBlockFacts,
			steps: func(f stuckFacts) []Step {
				return append([]Step{{
					Title:    "Let pods with fixed addresses run where their block is: schedule them onto its owner, or give each node's pods addresses of its own block (a pool with blocks of one address lets each address go anywhere)",
					Commands: []string{f.c.blockOwners()},
					Risk:     Safe, Verify: "The owner of the block is the node that the pod runs on.",
				}}, f.recreateSteps("Then recreate them")...)
			},
		},
		{
			id: "foreign-address", what: "the pod asks for an address that is in no pool",
			texts: []string{"The provided IP address is not in a configured pool"},
			steps: func(f stuckFacts) []Step { return []Step{f.annotationStep("names an address of an enabled pool")} },
		},
		{
			id: "host-route", what: "the node has a route for the address on another interface: a pod there still uses it, or its route was left behind",
			texts: []string{"error adding host side routes*already exists", "error adding host side routes*file exists"},
			facts: hostRouteFacts, steps: hostRouteSteps,
		},
		{
			id: "no-pool", seeAlso: "pool-config", what: "no enabled pool serves the pod: by selector, use, family or annotation",
			texts: []string{"cannot find a qualified ippool", "no configured Calico pools", "No configured Calico pools", "does not exist, or is not enabled"},
			facts: noPoolFacts, steps: noPoolSteps,
		},
		{
			id: "strict", seeAlso: "pool-utilisation", what: "the node has no room in its blocks, no block is free, and strict affinity forbids to borrow",
			texts: []string{"No more free affine blocks and strict affinity enabled"},
			facts: roomFacts, steps: roomSteps,
		},
		{
			id: "auto-allocate", seeAlso: "ipam-config", what: "the node's blocks are full, and IPAM may not claim new ones (autoAllocateBlocks is false)",
			texts: []string{"failed to find or claim a block"},
			steps: func(f stuckFacts) []Step {
				return []Step{{
					Title:    "Let IPAM claim blocks again",
					Commands: []string{fmt.Sprintf(`kubectl patch %s default --type merge -p '{"spec":{"autoAllocateBlocks":true}}'`, f.c.resource(ipam.ResIPAMConfig))},
					Risk:     Safe, Verify: "The pods start.",
				}}
			},
		},
		{
			id: "exhausted", seeAlso: "pool-utilisation", what: "IPAM could give no address out of the pools that serve the node",
			texts: []string{"No IPs available in pools", "IPAM allocated only 0", "Assigned 0 out of", "pools are likely exhausted", "Unable to autoassign an address"},
			facts: roomFacts, steps: roomSteps,
		},
		{
			id: "no-node", seeAlso: "misbooked-ips", what: "IPAM knows no node of the name that the plug-in uses: its nodename file is stale",
			texts: []string{"resource does not exist: Node("},
			steps: func(f stuckFacts) []Step {
				return []Step{
					{
						Title:    "See which names the nodes have: the error gives one that Calico does not know",
						Commands: []string{"kubectl get nodes", "calicoctl get nodes"},
						Risk:     Safe, Verify: "The name in the error is in neither list.",
					},
					{
						Title:    "Look at the nodename file of the node (this starts a pod there, which shows the node's files)",
						Commands: []string{"kubectl debug node/" + Quote(f.node) + " -it --image=busybox -- cat /host/var/lib/calico/nodename"},
						Risk:     Disruptive, Verify: "It is another name than " + oneLine(f.node) + ".",
					},
					{
						Title:    "Restart calico-node there: it writes the file anew when it starts",
						Commands: []string{restartAgent(f.node)},
						Risk:     Disruptive, Verify: "The pods start.",
					},
				}
			},
		},
		{
			id: "rights", what: "the CNI plug-in may not read or write IPAM's objects: a matter of RBAC, not of addresses",
			texts: []string{"connection is unauthorized: ipam", "connection is unauthorized: block", "connection is unauthorized: ippool", "ipamconfigs.crd.projectcalico.org*forbidden", "ipamblocks.crd.projectcalico.org*forbidden"},
			steps: func(f stuckFacts) []Step {
				return []Step{{
					Title:    "Apply the ClusterRoles of the Calico version that is installed",
					Commands: []string{"kubectl get clusterroles -o name | grep -E 'calico|canal'", "kubectl auth can-i list " + f.c.resource(ipam.ResBlocks) + " --as=system:serviceaccount:" + Quote(calicoNamespace(f.in)) + ":calico-node"},
					Risk:     Safe, Verify: "It prints yes, for the account that the error names.",
				}}
			},
		},
		{
			id: "vm-persistence", what: "a live migration needs kubeVirtVMAddressPersistence, which is off",
			texts: []string{"KubeVirtVMAddressPersistence is disabled"},
			steps: func(f stuckFacts) []Step {
				return []Step{settingsStep(f.c), {
					Title:    "Let virtual machines keep their addresses (Calico v3.32)",
					Commands: []string{fmt.Sprintf(`kubectl patch %s default --type merge -p '{"spec":{"kubeVirtVMAddressPersistence":"Enabled"}}'`, f.c.resource(ipam.ResIPAMConfig))},
					Risk:     Disruptive, Verify: "calicoctl ipam show --show-configuration",
				}}
			},
		},
		{
			id: "contention", what: "too many nodes changed the same blocks at once; usually the next try succeeds",
			texts: []string{"Max retries hit"},
			steps: func(f stuckFacts) []Step {
				return []Step{{
					Title:    "See whether free blocks run short, which makes all nodes try the same ones, and whether the API server is slow",
					Commands: []string{f.c.showBlocks(), "kubectl get --raw '/readyz?verbose'"},
					Risk:     Safe, Verify: "The pods start within minutes.",
				}}
			},
		},
	}
}

// causeOf finds the cause that a text speaks of, or nil.
func causeOf(causes []stuckCause, text string) *stuckCause {
	if text == "" {
		return nil
	}
	for i := range causes {
		for _, t := range causes[i].texts {
			first, second, _ := strings.Cut(t, "*")
			if at := strings.Index(text, first); at >= 0 && strings.Contains(text[at+len(first):], second) {
				return &causes[i]
			}
		}
	}
	return nil
}

func (f stuckFacts) kubePods() []*ipam.Pod {
	out := make([]*ipam.Pod, len(f.pods))
	for i, sp := range f.pods {
		out[i] = sp.pod
	}
	return out
}

// recreateSteps deletes the stuck pods, fixed addresses or not: they have no
// address to lose.
func (f stuckFacts) recreateSteps(title string) []Step {
	s := Step{Title: title, Risk: Disruptive, Verify: "The new pods run."}
	for _, p := range f.kubePods() {
		if p.OwnerKind != "" && p.OwnerKind != "Node" && len(s.Commands) < commandLimit {
			s.Commands = append(s.Commands, f.c.deletePod(p.Namespace, p.Name))
		}
	}
	if len(s.Commands) == 0 {
		return nil
	}
	return []Step{s}
}

// annotationStep asks to mend the annotations that pods inherit.
func (f stuckFacts) annotationStep(should string) Step {
	s := Step{
		Title: "Change the annotation in the pod's template, in its namespace, or in the CNI configuration, so that it " + should,
		Risk:  Safe, Verify: "New pods start.",
	}
	seen := map[string]bool{}
	for _, p := range f.kubePods() {
		if len(s.Commands) < 5 {
			s.Commands = append(s.Commands, "kubectl -n "+Quote(p.Namespace)+" get pod "+Quote(p.Name)+" -o yaml | grep -E 'ipv[46]pools|ipAddrs'")
		}
		seen[p.Namespace] = true
	}
	for _, ns := range sortedKeys(seen) {
		s.Commands = append(s.Commands, "kubectl get namespace "+Quote(ns)+" -o yaml | grep -E 'ipv[46]pools'")
	}
	return s
}

// ownedBlocks counts the node's blocks, their addresses and how many of these
// are booked.
func (f stuckFacts) ownedBlocks() (blocks int, size, booked uint64) {
	for _, b := range f.in.BlocksOf(f.node) {
		blocks++
		size += b.Size()
		booked += uint64(len(b.Slots))
	}
	return blocks, size, booked
}

// leaked counts the leaked addresses that weigh on the node.
func (f stuckFacts) leaked() int { return len(f.leaks()[f.node]) }

func blockLimitFacts(f stuckFacts) string {
	blocks, size, booked := f.ownedBlocks()
	if blocks == 0 {
		return ""
	}
	limit := fmt.Sprintf("the limit is %d per family", f.in.Config.BlockLimit())
	if f.in.Coverage.Refused(ipam.ResIPAMConfig) {
		limit = "the limit was not read"
	}
	s := fmt.Sprintf("It owns %s of %s (%d booked); %s", plain(blocks, "block", "blocks"), plain(int(size), "address", "addresses"), booked, limit)
	if n := f.leaked(); n > 0 {
		s += fmt.Sprintf("; %s", plain(n, "address is leaked", "addresses are leaked"))
	}
	return s
}

func blockLimitSteps(f stuckFacts) []Step {
	if f.leaked() > 0 {
		return []Step{leaksFirst(f.c)}
	}
	if f.in.Node(f.node) == nil { // nothing was read of it: both may be
		return append([]Step{releaseFirst(f.c)}, roomPerNodeSteps(f.c, f.in.Config, nil, 0)...)
	}
	off := Step{
		Title:    "Nothing on it is seen to leak: until that is done keep new pods off the node",
		Commands: []string{"kubectl cordon " + Quote(f.node)},
		Risk:     Disruptive, Verify: "kubectl get node " + Quote(f.node) + "   # SchedulingDisabled",
	}
	var pool *ipam.Pool
	if n := f.in.Node(f.node); n != nil {
		for _, p := range f.in.Serving(n, true, ipam.UseWorkload) {
			if pool == nil || p.BlockSize > pool.BlockSize {
				pool = p
			}
		}
	}
	need := 0
	for _, p := range f.in.PodsOn(f.node) {
		if p.Live() {
			need++
		}
	}
	return slices.Insert(roomPerNodeSteps(f.c, f.in.Config, pool, need), 1, off)
}

// leaksFirst sends people to what fills the node.
func leaksFirst(c commands) Step {
	return Step{
		Title:    "Release the leaked addresses first: the findings of leaked-ips say how. More room would only leak as well",
		Commands: []string{c.compareUse()},
		Risk:     Safe, Verify: "The last sum, what is not in use, goes down, and the pods start by themselves.",
	}
}

// roomFacts tells what is left in the pools that serve the node.
func roomFacts(f stuckFacts) string {
	n := f.in.Node(f.node)
	if n == nil || !f.in.Coverage.Read(ipam.ResPools) || !f.in.Coverage.Read(ipam.ResBlocks) {
		return ""
	}
	var parts []string
	for _, v4 := range []bool{true, false} {
		for _, p := range f.in.Serving(n, v4, ipam.UseWorkload) {
			u := f.in.Usage(p)
			parts = append(parts, fmt.Sprintf("pool %s: %s of %s blocks free, %s of %s addresses available", p.Name, figure(u.Free+u.Reclaimable), figure(u.Blocks), figure(u.Available), figure(u.Usable())))
		}
	}
	blocks, _, _ := f.ownedBlocks()
	parts = append(parts, fmt.Sprintf("the node owns %s", plain(blocks, "block", "blocks")))
	if n := f.orphans(); n > 0 {
		parts = append(parts, plain(n, "node that no longer exists still holds blocks", "nodes that no longer exist still hold blocks"))
	}
	return upperFirst(strings.Join(parts, "; "))
}

// roomSteps: what orphans and leaks hold comes first, then new capacity.
func roomSteps(f stuckFacts) []Step {
	var steps []Step
	if f.orphans() > 0 {
		steps = append(steps, Step{
			Title:    "Take back first what nodes that no longer exist still hold: the finding of orphan-affinities says how",
			Commands: []string{f.c.nodesAgainstOwners()},
			Risk:     Safe, Verify: "Blocks are free again, and the pods start by themselves.",
		})
	}
	if f.leaked() > 0 {
		steps = append(steps, leaksFirst(f.c))
	}
	var pool *ipam.Pool
	if n := f.in.Node(f.node); n != nil {
		if serving := f.in.Serving(n, true, ipam.UseWorkload); len(serving) > 0 {
			pool = serving[0]
		}
	}
	return append(steps, capacitySteps(f.c, pool, nil)...)
}

// takenSteps depends on who has the address: a running pod keeps it.
func takenSteps(f stuckFacts) []Step {
	var steps []Step
	var leaked []netip.Addr
	used := false
	for _, sp := range f.pods {
		for _, ip := range sp.ips {
			a, booked := f.in.AllocationOf(ip)
			switch {
			case userOf(f.in, ip, sp.pod) != nil || len(f.in.TunnelsAt(ip)) > 0:
				used = true
			case !f.in.Coverage.Read(ipam.ResBlocks) || !booked || slices.Contains(leaked, ip):
			case f.in.Holder(a).Kind.Leaked(), a.Attr.Namespace == sp.pod.Namespace && a.Attr.Pod == sp.pod.Name:
				leaked = append(leaked, ip)
			}
		}
	}
	if used || len(leaked) == 0 {
		steps = append(steps, f.annotationStep("names a free address: the one that is asked for is in use, and releasing it would give it out twice"))
	}
	if len(leaked) > 0 {
		steps = append(steps, releaseEach(f.c, "Release the address, which nobody uses any more, once nothing is seen to use it; the pod then takes it by itself", leaked)...)
	}
	return steps
}

func foreignBlockFacts(f stuckFacts) string {
	var parts []string
	for _, sp := range f.pods {
		for _, ip := range append(slices.Clone(sp.ips), sp.pod.RequestedIPs...) {
			if b := f.in.BlockOf(ip); b != nil {
				parts = ifNot(parts, fmt.Sprintf("%s lies in block %s of %s", ip, b.CIDR, or(b.Owner.Name, "nobody")))
			}
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("%s; strict affinity is %s", names(parts, 5), strictness(f.in))
}

// hostRouteFacts names the addresses whose block holds no other: an old BIRD
// makes a blackhole of each (projectcalico/calico#2624).
func hostRouteFacts(f stuckFacts) string {
	var parts []string
	for _, sp := range f.pods {
		for _, ip := range sp.ips {
			if b := f.in.BlockOf(ip); b != nil && b.CIDR.IsSingleIP() {
				parts = ifNot(parts, b.CIDR.String())
			}
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "Blocks of one address: " + names(parts, 5) + "; an old Calico makes a blackhole of each, see blackholed-routes"
}

// hostRouteSteps: the pod that IPAM has not booked the address for gives way.
func hostRouteSteps(f stuckFacts) []Step {
	look := Step{
		Title: "See which interface on the node has the address (DST in the message), which pod has it, and for whom it is booked",
		Risk:  Safe, Verify: "`blackhole`: blocks of one address, see blackholed-routes. A running pod has it and it is not assigned: unallocated-pod-ips, that pod gives way. A running pod has it and it is booked for that one, or no pod has it (the route was left behind): the waiting pod gives way.",
	}
	var old []*ipam.Pod
	for _, sp := range f.pods {
		for _, ip := range sp.ips {
			if len(look.Commands) < commandLimit {
				look.Commands = append(look.Commands, "ip route show "+ip.String()+"   # on node "+f.node+": the interface that has it, or blackhole", podWith(ip.String()), "calicoctl ipam show --ip="+ip.String())
			}
			if u := userOf(f.in, ip, sp.pod); u != nil && !f.hostLocal && !recordedFor(f.in, ip, u) {
				old = append(old, u)
			}
		}
	}
	if len(look.Commands) == 0 {
		look.Commands = []string{
			"ip route show DST   # on node " + f.node + ": the interface that has it, or blackhole",
			"kubectl get pods -A -o wide --field-selector spec.nodeName=" + Quote(f.node) + " | grep -wF -e DST",
			"calicoctl ipam show --ip=DST",
		}
	}
	steps := []Step{look}
	if del, bare, fixed := recreate(f.c, old, commandLimit); len(del)+len(bare)+len(fixed) > 0 {
		return append(steps, Step{
			Title: "Recreate the pod that uses the address without its being booked for it" + leftOver(bare, fixed),
			Risk:  Disruptive, Commands: del, Verify: "The waiting pod starts.",
		})
	}
	return append(steps, f.recreateSteps("Else recreate the waiting pod: it gets another address")...)
}

// noPoolFacts names what the pods ask for and what there is.
func noPoolFacts(f stuckFacts) string {
	var parts []string
	pins := map[string]bool{}
	for _, p := range f.kubePods() {
		for _, pin := range p.PoolPins {
			pins[pin] = true
		}
		for i := range f.in.Namespaces {
			if ns := &f.in.Namespaces[i]; ns.Name == p.Namespace {
				for _, pin := range ns.PoolPins {
					pins[pin] = true
				}
			}
		}
	}
	for _, pin := range sortedKeys(pins) {
		for i := range f.in.Pools {
			p := &f.in.Pools[i]
			if (p.Name == pin || p.CIDR.String() == pin) && !p.Enabled() {
				parts = append(parts, fmt.Sprintf("they are pinned to pool %s (%s), which is not enabled", p.Name, p.CIDR))
			}
		}
	}
	if n := f.in.Node(f.node); n != nil && f.in.Coverage.Read(ipam.ResPools) {
		serving := append(f.in.Serving(n, true, ipam.UseWorkload), f.in.Serving(n, false, ipam.UseWorkload)...)
		if len(serving) == 0 {
			parts = append(parts, "no enabled pool for workloads selects node "+f.node)
		} else {
			parts = append(parts, "the node is served by "+poolNames(serving))
		}
	}
	return upperFirst(strings.Join(parts, "; "))
}

func noPoolSteps(f stuckFacts) []Step {
	var steps []Step
	pinned := slices.ContainsFunc(f.pods, func(sp stuckPod) bool { return strings.Contains(sp.text, "the given pool") || len(sp.pod.PoolPins) > 0 })
	if pinned || f.in.Node(f.node) == nil {
		steps = append(steps, f.annotationStep("names a pool that exists and is enabled"))
		steps = append(steps, f.recreateSteps("Then recreate the pods")...)
	}
	if n := f.in.Node(f.node); n == nil || len(f.in.Serving(n, true, ipam.UseWorkload))+len(f.in.Serving(n, false, ipam.UseWorkload)) == 0 {
		steps = append(steps, Step{
			Title: "Compare the pools' nodeSelector with the node's labels, and add the label that is missing (or a pool that selects the node)",
			Commands: []string{
				f.c.pools(),
				"kubectl get node " + Quote(f.node) + " --show-labels",
			},
			Risk: Safe, Verify: "A selector of an enabled pool matches the labels, and the pods start.",
		})
	}
	if len(steps) == 0 {
		steps = append(steps, f.annotationStep("names a pool that exists and is enabled"))
	}
	return steps
}
