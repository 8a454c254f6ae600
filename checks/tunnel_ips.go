package checks

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"ipamaudit/ipam"
)

// tunnelIPs looks at the addresses of the nodes' tunnel devices.
func tunnelIPs() Check {
	return Check{
		ID:          "tunnel-ips",
		Title:       "Tunnel addresses that are missing, used twice, not booked, or borrowed",
		SubjectKind: KindNode,
		What: "Every node that an IPIP or VXLAN pool selects has a tunnel device with an address from IPAM, and WireGuard has one too. " +
			"The check finds nodes without the address their pools ask for, addresses on two nodes, addresses that IPAM has not booked for the node's tunnel, and addresses out of another node's block.\n\n" +
			"Why from the 65th node on: a /20 holds 64 blocks of /26, one for each of 64 nodes, and the 65th node's tunnel address is borrowed out of another's block. Calico before v3.30 programs no VXLAN route for a single address.\n\n" +
			"By cause: no block is free: make room first, then restart calico-node, or it borrows again. A block is free: restart. " +
			"Borrowed over VXLAN before v3.30, and no room to be had: upgrade. On two nodes, not booked, or missing with a block free: restart.",
		Why: "Without a tunnel address a node cannot talk through the tunnel. One that is not booked is given to a pod sooner or later. " +
			"One out of another node's block is only routed where somebody programs a route for the single address: older releases do not for VXLAN, and the replies go to the block's owner.",
		How: "The nodes' annotations against the blocks. Only addresses inside an IP pool are judged (WireGuard may use the node's own address). " +
			"Missing is judged per enabled pool with a tunnel that selects the node and is meant for tunnel addresses, on Linux nodes that are Ready and older than `minAge`, where calico-node runs or crashes. A pool that selects no node asks for nothing. " +
			"An address that a running pod uses as well is `duplicate-ips`.",
		SeverityNote: "Critical for an address on two nodes, one that is not booked, and one that is booked for something else, since it may be given out twice; high for a missing one, and for a borrowed one where its route is not known to be carried " +
			"(VXLAN before v3.30; IPIP without a node mesh); medium for other borrowed ones.",
		Skewed:  true,
		Needs:   []ipam.Resource{ipam.ResNodes, ipam.ResBlocks, ipam.ResPools},
		Uses:    []ipam.Resource{ipam.ResPods, ipam.ResClusterInfo, ipam.ResBGPConfig, ipam.ResBGPPeers, ipam.ResBGPFilters, ipam.ResFelixConfig, ipam.ResDaemonSets, ipam.ResAffinities, ipam.ResReservations, ipam.ResIPAMConfig},
		Decides: []ipam.Resource{ipam.ResPods},
		Params:  []Param{{Name: "minAge", Type: "duration", Default: "30m", Doc: "age below which a node is not judged"}},
		Example: func() []Step {
			return tunnelSteps(exampleCommands(), &Input{Snapshot: ipam.NewSnapshot()}, "NODE", nil, nil)
		},
		Cases: func() []Case {
			c, in := exampleCommands(), &Input{Snapshot: ipam.NewSnapshot()}
			return []Case{
				{When: "The node has no tunnel address, or one that is not booked for it alone", Steps: tunnelSteps(c, in, "NODE", nil, nil)},
				{When: "It lies in another node's block (the 65th node of a pool with 64 blocks, say)", Steps: slices.Insert(tunnelSteps(c, in, "NODE", nil, []string{"vxlan"}), 1, capacitySteps(c, nil, nil)...)},
			}
		},
		Sign: "It is this where the node has no tunnel address though a pool asks for one, where `ipam show` says “not assigned” or names something else than this node's tunnel, or where the last command prints another node's block.",
		Related: []Related{
			{"duplicate-ips", "Does a running pod have the tunnel's address, too?"},
			{"blockless-nodes", "Does calico-node crash because no block is free?"},
			{"pool-config", "Does no pool with a tunnel select the node (nodeSelector `!all()`)?"},
			{"blackholed-routes", "Are the tunnel addresses right, and one node drops the traffic?"},
		},
		References: []string{
			"https://github.com/projectcalico/calico/issues/7192", "https://github.com/projectcalico/calico/issues/3589",
			"https://github.com/projectcalico/calico/issues/5595", "https://github.com/projectcalico/calico/issues/6160",
			"https://github.com/projectcalico/calico/pull/9662", "https://github.com/projectcalico/calico/issues/8181",
			"node/pkg/allocateip/allocateip.go", "felix/calc/l3_route_resolver.go",
		},
		Run: runTunnelIPs,
	}
}

// tunnelFault is one thing wrong with one tunnel address of a node.
type tunnelFault struct {
	severity Severity
	row      Affected
	why      string
	// noBlock is true where a free block is what is lacking.
	noBlock bool
	// borrowed is the kind of a tunnel that keeps its address through a restart.
	borrowed string
	pool     *ipam.Pool
}

func runTunnelIPs(in *Input) Result {
	var res Result
	lost := unreadableBlocks(in)
	minAge := in.Params.Duration("minAge")
	doubtful := 0
	for i := range in.Nodes {
		n := &in.Nodes[i]
		if n.Deleting || n.FlannelMigration || !n.Created.IsZero() && in.Now.Sub(n.Created) < minAge {
			continue
		}
		var faults []tunnelFault
		for _, t := range n.Tunnels {
			p := poolOf(in, t.IP)
			if p == nil {
				continue
			}
			f, unsure := judgeTunnel(in, n, t, p, lost)
			if unsure {
				doubtful++
			}
			if f.severity != "" {
				f.pool = p
				faults = append(faults, f)
			}
		}
		faults = append(faults, missingTunnels(in, n)...)
		if len(faults) > 0 {
			res.Findings = append(res.Findings, tunnelFinding(in, n, faults))
		}
	}
	if doubtful > 0 {
		res.Unseen = append(res.Unseen, fmt.Sprintf("%s that could not be used: %s may be booked there", plain(lost, "block", "blocks"), plain(doubtful, "tunnel address", "tunnel addresses")))
	}
	return res
}

// judgeTunnel finds the worst that can be said of one tunnel address.
func judgeTunnel(in *Input, n *ipam.Node, t ipam.TunnelAddress, p *ipam.Pool, lostBlocks int) (f tunnelFault, unsure bool) {
	ip := t.IP.String()
	fault := func(s Severity, note, why string) (tunnelFault, bool) {
		return tunnelFault{severity: s, row: Affected{Kind: KindIP, Name: ip, Note: t.Kind + " tunnel of " + n.Name + ", " + note}, why: why}, false
	}
	var others []string
	for _, o := range in.TunnelsAt(t.IP) {
		if o.Node != n {
			others = append(others, o.Node.Name)
		}
	}
	if len(others) > 0 {
		slices.Sort(others)
		return fault(Critical, "also on "+names(others, 5), fmt.Sprintf("%s %s is also the tunnel address of %s: packets for one of them arrive at the other", t.Kind, ip, names(others, 5)))
	}
	if slices.ContainsFunc(in.PodsAt(t.IP), func(q *ipam.Pod) bool { return runsHere(in, q) && slices.Contains(usedIPs(q), t.IP) }) {
		// duplicate-ips speaks: one problem, one finding.
		return tunnelFault{}, false
	}
	a, ok := in.AllocationOf(t.IP)
	switch {
	case !ok && in.BlockOf(t.IP) == nil && lostBlocks > 0:
		return tunnelFault{}, true
	case !ok && !p.Enabled():
		// Nothing is given out of this pool; calico-node takes another address when it restarts.
		return fault(Low, "not booked, in pool "+p.Name+", which gives out nothing", fmt.Sprintf("%s %s is not booked, but pool %s is not enabled and gives it to nobody", t.Kind, ip, p.Name))
	case !ok:
		return fault(Critical, "not booked", fmt.Sprintf("%s %s is in use and not booked: IPAM takes it for free and may give it to a pod", t.Kind, ip))
	case a.Attr.CoolingDown():
		return fault(Critical, "booked as released", fmt.Sprintf("%s %s is in use and booked as released: after the cool-down IPAM may give it to a pod", t.Kind, ip))
	case !a.Attr.Tunnel() && a.Attr.Pod != "" && !in.Coverage.Read(ipam.ResPods):
		// Where the pod runs duplicate-ips speaks, which one cannot see.
		return tunnelFault{}, false
	case !a.Attr.Tunnel() && a.Attr.Pod != "":
		return fault(Critical, "booked for pod "+a.Attr.Namespace+"/"+a.Attr.Pod, fmt.Sprintf("%s %s is booked for pod %s/%s, and free again when that pod's record goes", t.Kind, ip, a.Attr.Namespace, a.Attr.Pod))
	case !a.Attr.Tunnel():
		return tunnelFault{}, false
	}
	if name := in.KubernetesName(a.Attr.Node); name != "" && !strings.EqualFold(name, n.Name) {
		return fault(Critical, "booked for node "+name, fmt.Sprintf("%s %s is booked for node %s and will be freed with it", t.Kind, ip, name))
	}
	owner := a.Block.Owner
	if !owner.IsHost() || strings.EqualFold(in.KubernetesName(owner.Name), n.Name) {
		return tunnelFault{}, false
	}
	o := in.NodeByFold(owner.Name)
	if o == nil {
		// The block of a node that is gone: orphan-affinities.
		return tunnelFault{}, false
	}
	severity, way := borrowedTunnel(in, p, t, o, n)
	f, _ = fault(severity, fmt.Sprintf("borrowed from block %s of %s", a.Block.CIDR, o.Name),
		fmt.Sprintf("%s %s comes out of block %s of %s. %s", t.Kind, ip, a.Block.CIDR, o.Name, way))
	f.borrowed = t.Kind
	if free, reclaimable := in.Free(in.Serving(n, t.IP.Is4(), ipam.UseTunnel), n.Name); free+reclaimable == 0 {
		f.noBlock = true
		f.why += ". Cause: no block is free for this node"
	}
	return f, false
}

// borrowedTunnel tells whether the single address is routed to its node. Felix
// programs borrowed VXLAN tunnel addresses since projectcalico/calico#9662
// (v3.30); before, only block routes.
func borrowedTunnel(in *Input, p *ipam.Pool, t ipam.TunnelAddress, owner, n *ipam.Node) (Severity, string) {
	switch {
	case strings.HasPrefix(t.Kind, "vxlan") && in.Info.Version.Has(ipam.BorrowedVXLANTunnels):
		return Medium, fmt.Sprintf("Calico %s programs a route for it", in.Info.Version)
	case strings.HasPrefix(t.Kind, "vxlan"):
		version := "Calico " + in.Info.Version.String()
		if !in.Info.Version.Known() {
			version = "A Calico before v3.30 (the version is not known)"
		}
		return High, version + " programs block routes only, so replies to this node go to the block's owner"
	}
	switch carry, why := in.CarriesAddress(t.IP, p, owner, n); carry {
	case ipam.AtRisk:
		return High, upperFirst(why)
	default:
		return Medium, upperFirst(why)
	}
}

// missingTunnels finds the tunnels that enabled pools ask of the node and that
// it has no address for (node/pkg/allocateip: determineEnabledPoolCIDRs).
func missingTunnels(in *Input, n *ipam.Node) []tunnelFault {
	if n.Windows || !n.Ready || !agentOn(in, n) {
		return nil
	}
	var out []tunnelFault
	seen := map[string]bool{}
	for i := range in.Pools {
		p := &in.Pools[i]
		kind := ""
		switch {
		case !p.Enabled() || !p.AllowedUses.Has(ipam.UseTunnel) || !p.Selects(n):
		case p.VXLAN() && p.IsV4():
			kind = "vxlan"
		case p.VXLAN():
			kind = "vxlan-v6"
		case p.IPIP() && p.IsV4():
			kind = "ipip"
		}
		if kind == "" || seen[kind] || slices.ContainsFunc(n.Tunnels, func(t ipam.TunnelAddress) bool { return t.Kind == kind }) {
			continue
		}
		seen[kind] = true
		f := tunnelFault{severity: High, pool: p, row: Affected{Kind: KindNode, Name: n.Name, Note: "no " + kind + " tunnel address, which pool " + p.Name + " asks for"},
			why: fmt.Sprintf("It has no %s tunnel address, which pool %s asks for", kind, p.Name)}
		serving := in.Serving(n, p.IsV4(), ipam.UseTunnel)
		if free, reclaimable := in.Free(serving, n.Name); len(in.OwnsIn(n.Name, serving)) == 0 && free+reclaimable == 0 {
			f.noBlock = true
			f.why += ". Cause: it owns no block and none is free"
		}
		out = append(out, f)
	}
	return out
}

// agentOn reports whether calico-node is on the node. Nodes without it (virtual
// kubelets, another network) have no tunnel; where pods were not read, an
// address that Calico has annotated tells.
func agentOn(in *Input, n *ipam.Node) bool {
	if !in.Coverage.Read(ipam.ResPods) {
		return len(n.Tunnels) > 0
	}
	return slices.ContainsFunc(in.PodsOn(n.Name), func(p *ipam.Pod) bool {
		return isAgent(p) && !p.Finished() && !p.Deleting && (p.Started.IsZero() || in.Now.Sub(p.Started) > 10*time.Minute)
	})
}

// isAgent reports whether the pod is calico-node (or canal, which runs it).
func isAgent(p *ipam.Pod) bool {
	return p.App == "calico-node" || p.App == "canal" || p.App == "calico-node-windows"
}

func tunnelFinding(in *Input, n *ipam.Node, faults []tunnelFault) Finding {
	f := Finding{
		Subject: Subject{Kind: KindNode, Name: n.Name},
		Title:   "Node " + n.Name + " has a wrong tunnel address, or none",
	}
	var why []string
	var pool *ipam.Pool
	var borrowed []string
	for _, fault := range faults {
		f.Severity = Worst(f.Severity, fault.severity)
		f.Affected = append(f.Affected, fault.row)
		why = append(why, fault.why)
		if fault.noBlock {
			pool = fault.pool
		}
		borrowed = ifNot(borrowed, fault.borrowed)
	}
	f.Detail = strings.Join(why, ". ") + "."
	f.Remediation = tunnelSteps(commandsFor(in.Snapshot), in, n.Name, pool, borrowed)
	return f
}

// tunnelSteps: capacity where a block is lacking, then calico-node takes or
// books its address when it starts (node/pkg/allocateip:
// ensureHostTunnelAddress). An address that is booked for its tunnel is kept,
// borrowed or not, as long as the node's annotation names it.
func tunnelSteps(c commands, in *Input, node string, lacking *ipam.Pool, borrowed []string) []Step {
	steps := []Step{{
		Title: "See which tunnel addresses the node has, and for what IPAM has booked them",
		Commands: []string{"kubectl get node " + Quote(node) + " -o yaml | grep -iE 'tunnel|wireguard'", "calicoctl ipam show --ip=ADDRESS   # each of them",
			"kubectl get " + c.resource(ipam.ResBlocks) + ` -o jsonpath='{range .items[*]}{.spec.cidr} {.spec.affinity} {.spec.attributes[*].handle_id}{"\n"}{end}' | grep -E ` + Quote("tunnel-addr-"+node+"( |$)") + " | cut -d' ' -f1,2   # the block of its tunnels, and whose it is"},
		Risk: Safe, Verify: "You know what is wrong with which one; a block of another node means that the address is borrowed.",
	}}
	if lacking != nil {
		steps = append(steps, capacitySteps(c, lacking, nil)...)
	}
	s := Step{
		Title:    "Restart calico-node there: it books its tunnel address when it starts, and takes another one where this one is not its own",
		Commands: []string{restartAgent(node)},
		Risk:     Disruptive, Verify: "kubectl get node " + Quote(node) + " -o yaml | grep -iE 'tunnel|wireguard'   # then calicoctl ipam show --ip=ADDRESS: booked for this tunnel",
	}
	if len(borrowed) > 0 {
		s.Title = "Once a block is free, let calico-node take an address from it: without the annotation it gives its old one back when it starts. The node's tunnel is down for that moment"
		s.Commands = slices.Concat(c.forgetTunnels(node, borrowed), s.Commands)
		s.Verify = c.showBorrowed() + "   # lists no tunnel of " + node
	}
	return append(steps, s)
}
