package checks

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"ipamaudit/ipam"
)

// blackholedRoutes finds running pods whose packets a node throws away.
func blackholedRoutes() Check {
	return Check{
		ID:          "blackholed-routes",
		Title:       "Nodes whose routing table drops packets for running pods",
		SubjectKind: KindNode,
		What: "A node whose own routing table sends the packets for a running pod into a blackhole (or an unreachable or prohibit route). " +
			"A blackhole for a node's own block is healthy: it is there for addresses nobody uses. It hurts where a pod uses one of them and no longer prefix says where it is.",
		Why: "Everything on that node, pods included, loses its traffic to that pod, silently. Other nodes may reach it, so it looks like an application fault.",
		How: "For every node whose table is known, not only the block's owner: the longest prefix that contains the address of a running pod, as the kernel chooses it. " +
			"Pods that are finished or being deleted are left out, as are blackholes for advertised service ranges and a default route that drops.",
		SeverityNote: "Always critical, and observed. Without any route table the check is unknown; with tables of some nodes it speaks for those and says how many it did not see.",
		Skewed:       true,
		Needs:        []ipam.Resource{ipam.ResPods, ipam.ResNodes},
		Uses:         []ipam.Resource{ipam.ResBlocks, ipam.ResPools, ipam.ResAffinities, ipam.ResBGPConfig, ipam.ResFelixConfig, ipam.ResClusterInfo},
		NeedsRoutes:  true,
		Params:       []Param{{Name: "settle", Type: "duration", Default: "1m", Doc: "a drop that only hits pods which started less than this before the table was read is unknown, not critical: their routes may be on their way"}},
		Example:      func() []Step { return blackholeCases()[0].Steps },
		Cases:        blackholeCases,
		Look: lines(append([]string{podWith("ADDRESS") + "   # nothing, and no pod that waits because a route for it “already exists”: it is not this", serviceRanges(exampleCommands()) + "   # blackholes for these are right",
			exampleCommands().showBorrowed() + " | grep -wF ADDRESS   # BLOCK OWNER: run the others there, and where it cannot be reached"}, lookStep("DROPPER", "ADDRESS").Commands...)...),
		Sign: "Only for the address of a pod: “RTNETLINK answers: Invalid argument” then is it, the node drops what is meant for it, since the longest prefix that matches is a blackhole. " + longestPrefix + " " +
			"**Healthy, leave them:** a blackhole for a whole block on its owner, where each pod has a route of its own, and one for a range of Services (cluster, external or load balancer IPs). `ip route get` of a service IP says nothing about the Service: pods' packets to it are rewritten to a pod's address before they are routed.",
		Related: []Related{
			{"affinity-conflicts", "Does the node that drops claim a block which names another owner?"},
			{"borrowed-ips", "Is no route table at hand, and the address in another node's block?"},
			{"route-disagreement", "Do half of the connections fail, rather than all of one node?"},
			{"duplicate-ips", "Does the traffic arrive, at the wrong pod?"},
		},
		References: []string{
			"https://phabricator.wikimedia.org/T296303", "https://github.com/projectcalico/calico/issues/3246",
			"https://github.com/projectcalico/calico/issues/2612", "https://github.com/projectcalico/calico/issues/2624",
			"https://github.com/projectcalico/calico/issues/6486", "man ip-route(8)",
		},
		Run: runBlackholedRoutes,
	}
}

// podAddress is an address of a running pod.
type podAddress struct {
	ip    netip.Addr
	pod   *ipam.Pod
	young bool
	// since is when the pod started; zero where that is not known.
	since time.Time
}

// runningAddresses lists the addresses whose loss would be noticed, in order.
// Those of pods that have only just started are marked: their routes may be on
// their way. Where the snapshot's time is a guess nothing is known to be young.
func runningAddresses(in *Input) []podAddress {
	settle := in.Params.Duration("settle")
	var out []podAddress
	for i := range in.Pods {
		p := &in.Pods[i]
		if p.Deleting {
			continue
		}
		since := p.Started
		if since.IsZero() {
			since = p.Created
		}
		young := !in.AsOfInferred && !since.IsZero() && in.Now.Sub(since) < settle
		for _, ip := range p.IPs() {
			out = append(out, podAddress{ip, p, young, since})
		}
	}
	slices.SortFunc(out, func(a, b podAddress) int {
		return cmp.Or(a.ip.Compare(b.ip), comparePods(a.pod, b.pod))
	})
	return out
}

// drop is one address that a table loses.
type drop struct {
	podAddress
	route *ipam.Route
	block *ipam.Block
}

func runBlackholedRoutes(in *Input) Result {
	var res Result
	if len(in.Tables) == 0 {
		res.Unseen = append(res.Unseen, "route tables (of no node)")
		return res
	}
	addresses := runningAddresses(in)
	known, expected, young := 0, 0, 0
	blind := map[string]int{}
	settle := in.Params.Duration("settle")
	families := map[bool]bool{}
	for _, a := range addresses {
		families[a.ip.Is4()] = true
	}
	for i := range in.Nodes {
		n := &in.Nodes[i]
		if n.Windows {
			continue
		}
		expected++
		t := in.Table(n.Name)
		if t == nil {
			continue
		}
		sees := len(families) == 0
		for _, family := range []struct {
			v4    bool
			blind string
		}{{true, t.Blind4}, {false, t.Blind6}} {
			switch {
			case !families[family.v4]:
			case family.blind != "":
				blind[family.blind]++
			default:
				sees = true
			}
		}
		if sees {
			known++
		} else {
			expected--
		}
		drops := dropsOf(in, t, addresses)
		settled := slices.DeleteFunc(slices.Clone(drops), func(d drop) bool {
			// A table that is older than the pod says nothing about it.
			return d.young || !t.AsOf.IsZero() && !d.since.IsZero() && t.AsOf.Sub(d.since) < settle
		})
		young += len(drops) - len(settled)
		if len(settled) > 0 {
			res.Findings = append(res.Findings, blackholeFinding(in, n, t, settled))
		}
	}
	// The tables of some nodes suffice for a verdict on those; an address that
	// may or may not be lost does not.
	res.Partial = known > 0 && young == 0
	if known == 0 {
		res.Unseen = append(res.Unseen, "route tables (of no node)")
	} else if known < expected {
		res.Unseen = append(res.Unseen, fmt.Sprintf("route tables of %d of %d nodes", expected-known, expected))
	}
	for _, why := range slices.Sorted(maps.Keys(blind)) {
		res.Unseen = append(res.Unseen, fmt.Sprintf("where %s sends packets for pods: %s", count(uint64(blind[why]), "node"), why))
	}
	if young > 0 {
		res.Unseen = append(res.Unseen, fmt.Sprintf("whether the routes to %s of pods that started less than %s before the table was read are on their way", count(uint64(young), "address"), settle))
	}
	return res
}

func dropsOf(in *Input, t *ipam.RouteTable, addresses []podAddress) []drop {
	var out []drop
	for _, r := range t.Dropping() {
		if r.Dst.Bits() == 0 || in.InServiceCIDR(r.Dst) {
			continue
		}
		from, _ := slices.BinarySearchFunc(addresses, r.Dst.Addr(), func(a podAddress, ip netip.Addr) int { return a.ip.Compare(ip) })
		for _, a := range addresses[from:] {
			if !r.Dst.Contains(a.ip) {
				break
			}
			if t.Lookup(a.ip) != r {
				continue
			}
			b := in.BlockOf(a.ip)
			if t.Kind == ipam.BIRDTable && b != nil && b.Pool() != nil && in.RoutesBy(b.Pool()) == ipam.Felix {
				continue
			}
			out = append(out, drop{a, r, b})
		}
	}
	slices.SortFunc(out, func(a, b drop) int { return a.ip.Compare(b.ip) })
	return out
}

func blackholeFinding(in *Input, n *ipam.Node, t *ipam.RouteTable, drops []drop) Finding {
	f := Finding{
		Severity: Critical,
		Subject:  Subject{Kind: KindNode, Name: n.Name},
		Title:    "Node " + n.Name + " drops traffic to running pods",
	}
	var causes []string
	cause := func(s string) {
		if !slices.Contains(causes, s) {
			causes = append(causes, s)
		}
	}
	nodes := map[string]bool{}
	for _, d := range drops {
		nodes[d.pod.NodeName] = true
		f.Affected = append(f.Affected, Affected{Kind: KindIP, Name: d.ip.String(), Note: podNote(d.pod) + ", hit by `" + routeText(d.route) + "`" + blockNote(d.block)})
		cause(dropCause(in, n, d))
	}
	age := ""
	if !t.AsOf.IsZero() && in.AsOf.Sub(t.AsOf) > time.Hour {
		age = fmt.Sprintf(" (table read %s before the snapshot)", in.AsOf.Sub(t.AsOf).Round(time.Minute))
	}
	f.Detail = fmt.Sprintf("The longest matching prefix in the %s table of %s is a dropping route for %s of pods on %s%s. %s. Everything on %s loses its traffic to them; `ip route get ADDRESS` there says \"Invalid argument\".",
		t.Kind, n.Name, count(uint64(len(drops)), "address"), count(uint64(len(nodes)), "node"), age, strings.Join(causes, ". "), n.Name)
	f.Remediation = blackholeSteps(in, n, drops)
	return f
}

func routeText(r *ipam.Route) string {
	if t := strings.Join(strings.Fields(r.Text), " "); t != "" {
		return t
	}
	return string(r.Type) + " " + r.Dst.String()
}

func blockNote(b *ipam.Block) string {
	if b == nil {
		return ", in no known block"
	}
	return ", block " + b.CIDR.String() + " of " + or(b.Owner.Name, "nobody")
}

// dropCause says why the node has the dropping route and lacks a better one.
func dropCause(in *Input, n *ipam.Node, d drop) string {
	switch {
	case d.route.Dst.IsSingleIP():
		return "The blackhole is a host route: blocks of a single address shadow their own pod (projectcalico/calico#2624)"
	case d.block == nil:
		return fmt.Sprintf("No block is known for %s", d.route.Dst)
	case in.NodeByFold(d.block.Owner.Name) == n && d.pod.NodeName == n.Name:
		return fmt.Sprintf("%s owns block %s and runs the pod, but has no route to it: Felix has not programmed it", n.Name, d.block.CIDR)
	case in.NodeByFold(d.block.Owner.Name) == n:
		return fmt.Sprintf("%s owns block %s, drops what it has no route for, and has not learnt the host routes of the addresses that other nodes borrow", n.Name, d.block.CIDR)
	default:
		if a := staleAffinity(in, n, d.block); a != nil {
			return fmt.Sprintf("%s holds an affinity (%s, %s) for block %s, which belongs to %s", n.Name, a.Name, a.State, d.block.CIDR, or(d.block.Owner.Name, "nobody"))
		}
		return fmt.Sprintf("%s drops block %s, which belongs to %s", n.Name, d.block.CIDR, or(d.block.Owner.Name, "nobody"))
	}
}

// staleAffinity is the node's affinity for a block of another owner.
func staleAffinity(in *Input, n *ipam.Node, b *ipam.Block) *ipam.Affinity {
	for _, a := range in.AffinitiesOf(b.CIDR) {
		if in.NodeByFold(a.Node) == n && a.Node != b.Owner.Name {
			return a
		}
	}
	return nil
}

// blackholeSteps picks the remedies that fit the causes: a stale affinity is
// deleted, a pod without its local route is recreated, a borrowed address
// needs capacity first; a fixed address needs its route carried.
func blackholeSteps(in *Input, n *ipam.Node, drops []drop) []Step {
	c := commandsFor(in.Snapshot)
	steps := []Step{lookStep(n.Name, drops[0].ip.String())}
	var stale []*ipam.Affinity
	var local, single []*ipam.Pod
	var small *ipam.Pool
	byBorrower := map[string][]borrowedUse{}
	foreign := false
	for _, d := range drops {
		switch {
		case d.route.Dst.IsSingleIP():
			single = append(single, d.pod)
			if d.block != nil {
				small = d.block.Pool()
			}
		case d.pod.NodeName == n.Name:
			local = append(local, d.pod)
		case d.block != nil && in.NodeByFold(d.block.Owner.Name) != n:
			if a := staleAffinity(in, n, d.block); a != nil && !slices.Contains(stale, a) {
				stale = append(stale, a)
			} else if a == nil {
				foreign = true
			}
		case d.block != nil:
			byBorrower[d.pod.NodeName] = append(byBorrower[d.pod.NodeName], borrowedUse{liveUse{ipam.Allocation{IP: d.ip, Block: d.block}, ipam.Holder{Pod: d.pod, NodeName: d.pod.NodeName}}, n})
		default:
			foreign = true
		}
	}
	for _, a := range stale {
		steps = append(steps, Step{
			Title:    "Delete the stale affinity: the block itself names another owner",
			Commands: []string{"kubectl get " + c.resource(ipam.ResAffinities) + " " + Quote(a.Name) + " -o jsonpath='{.spec.node} {.spec.cidr} {.spec.state}{\"\\n\"}'", c.deleteAffinity(a.Name)},
			Risk:     Destructive, Verify: "ip route get " + drops[0].ip.String() + "   # on " + n.Name + ": a way within a minute",
		})
	}
	if foreign {
		steps = append(steps, rewriteRoutes(n.Name, drops[0].ip.String()))
	}
	if len(local) > 0 {
		steps = append(steps, recreateLocal(c, n.Name, drops[0].ip.String(), local))
	}
	if len(single) > 0 {
		steps = append(steps, singleBlockSteps(c, in.Config, small, n, drops[0].ip.String(), single)...)
	}
	if len(byBorrower) > 0 {
		steps = append(steps, borrowedRemedy(in, c, n.Name, byBorrower)...)
	}
	return steps
}

// blackholeCases are the steps for each cause.
func blackholeCases() []Case {
	c := exampleCommands()
	look := lookStep("DROPPER", "ADDRESS")
	pods := []*ipam.Pod{{Namespace: "NAMESPACE", Name: "POD", OwnerKind: "ReplicaSet"}}
	return []Case{
		{When: "The pod borrows its address (`ipam show --show-borrowed` lists it), and no annotation fixes it", See: "borrowed-ips",
			Steps: append([]Step{look, carryStep(c)}, borrowedSteps(c, nil, nil, "POD-NODE", nil)...)},
		{When: "Fixed address, and a node mesh (or IPIP) that should carry its route", Steps: meshSteps(c, "OWNER", "POD-NODE", "ADDRESS")},
		{When: "Fixed address, and eBGP peers (switches, ToR) instead of a mesh", Steps: []Step{look, carryStep(c)}},
		{When: "`blackhole 10.0.2.1` (no mask): blocks of one address (blockSize 32, IPv6: 128)", See: "node-capacity", Steps: singleBlockSteps(c, ipam.Config{}, nil, &ipam.Node{Name: "NODE"}, "ADDRESS", pods)},
		{When: "The node owns the block and runs the pod itself", Steps: []Step{look, recreateLocal(c, "DROPPER", "ADDRESS", pods)}},
		{When: "The block belongs to another node, and no affinity of the node that drops claims it", See: "affinity-conflicts",
			Steps: []Step{lookAtClaims(c, exampleBlock), rewriteRoutes("DROPPER", "ADDRESS")}},
	}
}

// recreateLocal is for pods whose own node has no route to them.
func recreateLocal(c commands, node, ip string, pods []*ipam.Pod) Step {
	del, bare, _ := recreate(c, pods, commandLimit)
	return Step{
		Title: "Recreate the pods whose own host route is missing" + leftOver(bare, nil),
		Risk:  Disruptive, Commands: del, Verify: "ip route get " + ip + "   # on " + node,
	}
}

// rewriteRoutes lets calico-node drop routes that were left behind.
func rewriteRoutes(node, ip string) Step {
	return Step{
		Title:    "Restart calico-node on " + node + ": it rewrites its routes from the datastore",
		Commands: []string{restartAgent(node)},
		Risk:     Disruptive, Verify: "ip route get " + ip + "   # on " + node,
	}
}

// kubeletPods is how many pods kubelet allows by default.
const kubeletPods = 110

// singleBlockSteps: the blackhole of a block of one address is its pod's own
// host route. BIRD's templates have left such blocks out since some release
// after v3.14 (projectcalico/calico#2624, #3635).
func singleBlockSteps(c commands, cfg ipam.Config, small *ipam.Pool, n *ipam.Node, ip string, pods []*ipam.Pod) []Step {
	node := n.Name
	steps := []Step{{
		Title:    "See that the pool's blocks hold one address (SIZE 32, or 128), and that the blackhole takes the place of the pod's own route",
		Commands: []string{c.blockSizes(), "ip route show " + ip + "   # on " + node + ": blackhole, without a mask, where “dev cali…” should be"},
		Risk:     Safe, Verify: "Both are so; with larger blocks it is not this.",
	}, {
		Title:    "Upgrade Calico, where it is as old as v3.14: current releases write no blackhole for such a block, and this alone cures it",
		Commands: []string{"kubectl get " + c.resource(ipam.ResClusterInfo) + ` default -o jsonpath='{.spec.calicoVersion}{"\n"}'   # what is installed`},
		Risk:     Disruptive, Verify: "ip route show " + ip + "   # on " + node + ": no blackhole any more",
	}}
	steps = append(steps, largerBlocksSteps(c, cfg, small, max(n.MaxPods, kubeletPods), true)...)
	del, bare, fixed := recreate(c, pods, commandLimit)
	return append(steps, Step{
		Title: "Then recreate the pods, those that wait as well" + leftOver(bare, fixed),
		Risk:  Disruptive, Commands: del, Verify: "ip route get " + ip + "   # on " + node + ": a way, if the pod still has the address",
	})
}

// borrowedRemedy merges the steps for all borrowers into one order. Where an
// address is fixed these begin with its route themselves.
func borrowedRemedy(in *Input, c commands, owner string, byBorrower map[string][]borrowedUse) []Step {
	var all []borrowedUse
	var who []string
	for name, uses := range byBorrower {
		who = append(who, name)
		all = append(all, uses...)
	}
	slices.Sort(who)
	slices.SortFunc(all, func(a, b borrowedUse) int { return a.alloc.IP.Compare(b.alloc.IP) })
	steps := borrowedSteps(c, in, all[0].alloc.Block.Pool(), strings.Join(who, ", "), all)
	if slices.ContainsFunc(all, borrowedUse.fixed) {
		return steps
	}
	return append([]Step{carryStep(c)}, steps...)
}

// serviceRanges are the ranges that Calico announces for Services; nodes have
// blackholes for them on purpose (confd's bird templates).
func serviceRanges(c commands) string {
	return "kubectl get " + c.resource(ipam.ResBGPConfig) + " default -o jsonpath='{.spec.serviceClusterIPs} {.spec.serviceExternalIPs} {.spec.serviceLoadBalancerIPs}{\"\\n\"}'"
}

// carryStep is the mildest cure.
func carryStep(c commands) Step {
	return routingStep(c, "Where eBGP peers are listed let the network carry host routes, which touches no pod")
}

// longestPrefix says how to read `ip route show match`, which prints a table in
// the order of its prefixes: neither the first line nor the last one decides.
const longestPrefix = "Of the lines that `ip route show match` prints the one with the longest prefix counts (no mask is /32, or /128), wherever it stands; `ip route get` is the verdict."

func lookStep(node, ip string) Step {
	return Step{
		Title: "Look with your own eyes, on " + node,
		Commands: []string{
			"ip route get " + ip + "   # \"Invalid argument\" = dropped",
			"ip route show match " + ip,
		},
		Risk: Safe, Verify: longestPrefix,
	}
}
