package checks

import (
	"fmt"
	"slices"
	"strings"

	"ipamaudit/ipam"
)

// ipamConfig finds settings that contradict each other or the cluster.
func ipamConfig() Check {
	return Check{
		ID:          "ipam-config",
		Title:       "IPAM settings that contradict each other or do not fit the cluster",
		SubjectKind: KindCluster,
		What: "Strict affinity, the block limit and automatic allocation of blocks are one object for the whole cluster. " +
			"calicoctl refuses combinations that cannot work; `kubectl edit` does not. Others are valid and do not fit: " +
			"Windows nodes need strict affinity, and borrowing needs a network that carries host routes. " + limitRule,
		Why: "Without strict affinity Calico refuses every pod on a Windows node. Without a node mesh or route reflectors a borrowed address never becomes known to the block's owner, " +
			"which drops the traffic: nothing happens until the day the pool has no free block, and then pods are unreachable from single nodes. " +
			"With automatic allocation off a node without a block can start no pod, however many blocks are free.",
		How: "IPAMConfig (IPAMConfiguration in `projectcalico.org/v3`) with Calico's defaults where it does not exist; the node mesh, peers and encapsulation for each pool; the nodes' operating systems. " +
			"Strict affinity is never a finding by itself, nor is borrowing where Felix, the mesh or reflectors carry the routes. " +
			"Where route tables show that every borrowed address has its route, the network evidently carries them: then it is low.",
		SeverityNote: "Windows without strict affinity: high, critical with pods waiting on such a node. Borrowing into blackholes: medium. " +
			"Automatic allocation off: low, high with nodes in use that own no block or without strict affinity. A block limit without strict affinity: medium. Low at most where IPAMConfig was not collected.",
		Needs: []ipam.Resource{ipam.ResNodes, ipam.ResPools},
		Uses: []ipam.Resource{ipam.ResIPAMConfig, ipam.ResBGPConfig, ipam.ResBGPPeers, ipam.ResBGPFilters, ipam.ResFelixConfig, ipam.ResClusterInfo,
			ipam.ResBlocks, ipam.ResPods, ipam.ResNamespaces},
		Example: func() []Step { return settingsCases()[0].Steps },
		Cases:   settingsCases,
		Look: lines(append(settingsStep(exampleCommands()).Commands,
			"kubectl get nodes -l kubernetes.io/os=windows",
			"kubectl get "+exampleCommands().resource(ipam.ResBGPConfig)+` default -o jsonpath='{.spec.nodeToNodeMeshEnabled}{"\n"}'   # NotFound or empty: the mesh is on`)...),
		Sign: "It is this where one of the headings below fits. Strict affinity by itself is no fault, neither on nor off.",
		Related: []Related{
			{"node-block-limit", "Does one node start no pod, with all its blocks full?"},
			{"node-capacity", "Does every node take fewer pods than kubelet allows?"},
			{"borrowed-ips", "Is it single addresses out of other nodes' blocks?"},
			{"blockless-nodes", "Does a node own no block, and none is free?"},
		},
		References: []string{
			"https://github.com/projectcalico/calico/issues/1138", "https://phabricator.wikimedia.org/T296303",
			"https://github.com/projectcalico/calico/issues/4404", "https://github.com/rancher/rke2/issues/1691",
			"https://github.com/projectcalico/calico/issues/1577", "https://github.com/projectcalico/calico/issues/8435",
			"libcalico-go/lib/ipam/ipam.go (SetIPAMConfig)",
		},
		Run: runIPAMConfig,
	}
}

// settingsCases are what the check itself says of each of its faults alone.
func settingsCases() []Case {
	var out []Case
	for _, one := range []struct {
		when  string
		spoil func(*ipam.Snapshot)
	}{
		{"There are Windows nodes, and StrictAffinity is false: nothing is to be done about BGP or the node mesh", func(s *ipam.Snapshot) {
			s.Nodes[1].Windows = true
		}},
		{"StrictAffinity is false, there is no node mesh, and no route reflector: what is borrowed cannot be reached", func(s *ipam.Snapshot) { s.BGP.Mesh = false }},
		{"AutoAllocateBlocks is false, and nodes without a block start no pod", func(s *ipam.Snapshot) {
			s.Config.AutoAllocateBlocks, s.Config.StrictAffinity = false, true
		}},
		{"MaxBlocksPerHost is set, and StrictAffinity is false: calicoctl refuses every change", func(s *ipam.Snapshot) { s.Config.MaxBlocksPerHost = 1 }},
	} {
		s := exampleCluster()
		one.spoil(s)
		out = append(out, Case{When: one.when, Steps: said(ipamConfig(), s)})
	}
	return out
}

// setting is one thing that is wrong with the settings. Without severity it is
// one that may be wrong: its detail says what was not seen.
type setting struct {
	severity Severity
	detail   string
	affected []Affected
	steps    []Step
}

func runIPAMConfig(in *Input) Result {
	var res Result
	var found []setting
	if s := in.Coverage.Get(ipam.ResIPAMConfig).Status; s == ipam.Forbidden || s == ipam.Failed {
		// Somebody has settings that we may not see: the defaults would be a guess.
		return Result{Unseen: []string{string(ipam.ResIPAMConfig)}}
	}
	for _, look := range []func(*Input) (setting, bool){windowsSetting, autoAllocateSetting, borrowSetting, limitSetting} {
		switch s, ok := look(in); {
		case ok && s.severity == "":
			res.Unseen = append(res.Unseen, s.detail)
		case ok:
			found = append(found, s)
		}
	}
	if len(found) == 0 {
		return res
	}
	slices.SortStableFunc(found, func(a, b setting) int { return b.severity.Rank() - a.severity.Rank() })
	f := Finding{
		Severity: found[0].severity,
		Subject:  Subject{Kind: KindCluster, Name: in.Cluster.Name},
		Title:    "IPAM settings do not fit this cluster",
	}
	f.Remediation = []Step{settingsStep(commandsFor(in.Snapshot))}
	var detail []string
	for _, s := range found {
		detail = append(detail, s.detail)
		f.Affected = append(f.Affected, s.affected...)
		for _, step := range s.steps {
			if !slices.ContainsFunc(f.Remediation, func(o Step) bool { return o.Title == step.Title }) {
				f.Remediation = append(f.Remediation, step)
			}
		}
	}
	if in.Coverage.Get(ipam.ResIPAMConfig).Status == ipam.Missing {
		// Strict affinity may well be on: nobody looked.
		f.Severity, f.Evidence = Low, Inferred
		detail = append(detail, "IPAMConfig was not collected and Calico's defaults were assumed, so this is low until somebody looks")
		res.Unseen = append(res.Unseen, string(ipam.ResIPAMConfig))
	}
	f.Detail = strings.Join(detail, ". ") + "."
	res.Findings = []Finding{f}
	return res
}

// settingsStep looks at the settings.
func settingsStep(c commands) Step {
	return Step{
		Title:    "See what the settings are",
		Commands: []string{c.showConfiguration(), "kubectl get " + c.resource(ipam.ResIPAMConfig) + " default -o yaml   # NotFound: Calico's defaults"},
		Risk:     Safe, Verify: "You know them: somebody may have changed them since they were audited.",
	}
}

// windowsSetting: calico-ipam refuses pods on Windows without strict affinity
// (cni-plugin/pkg/ipamplugin: global strict affinity should not be false for Windows node).
func windowsSetting(in *Input) (setting, bool) {
	if in.Config.StrictAffinity {
		return setting{}, false
	}
	s := setting{severity: High}
	// Pods tell whether Calico's IPAM serves these nodes, and whether one waits.
	blind := !in.Coverage.Read(ipam.ResPods) || !in.Coverage.Read(ipam.ResBlocks)
	var windows []string
	for i := range in.Nodes {
		n := &in.Nodes[i]
		if !n.Windows || servedElsewhere(in, n) {
			continue
		}
		windows = append(windows, n.Name)
		s.affected = append(s.affected, Affected{Kind: KindNode, Name: n.Name, Note: "Windows: starts no pod without strict affinity"})
		for _, p := range waiting(in, n.Name) {
			s.severity = Critical
			s.affected = append(s.affected, Affected{Kind: KindPod, Namespace: p.Namespace, Name: p.Name, Note: "waits for an address on " + n.Name})
		}
	}
	if len(windows) == 0 {
		return setting{}, false
	}
	if blind {
		return setting{detail: fmt.Sprintf("pods and ipamblocks, to tell whether the Windows nodes (%s) get their addresses from Calico, which needs strict affinity for that", names(windows, 5))}, true
	}
	s.detail = fmt.Sprintf("Strict affinity is off, and there are Windows nodes (%s): Calico's IPAM refuses every pod there (“global strict affinity should not be false for Windows node”)",
		names(windows, 5))
	s.steps = append(roomBeforeStrict(in), strictSteps(commandsFor(in.Snapshot), in)...)
	return s, true
}

// servedElsewhere reports whether the node's pods evidently get their addresses
// elsewhere: it has some, and none is in a block.
func servedElsewhere(in *Input, n *ipam.Node) bool {
	addresses := 0
	for _, p := range in.PodsOn(n.Name) {
		for _, ip := range p.IPs() {
			if _, ok := in.AllocationOf(ip); ok {
				return false
			}
			addresses++
		}
	}
	return addresses > 0 && in.Coverage.Read(ipam.ResBlocks)
}

// autoAllocateSetting: nodes may not claim blocks by themselves.
func autoAllocateSetting(in *Input) (setting, bool) {
	if in.Config.AutoAllocateBlocks {
		return setting{}, false
	}
	s := setting{severity: Low, detail: "autoAllocateBlocks is false: no node claims a block by itself, however many are free"}
	if in.Coverage.Read(ipam.ResBlocks) {
		var lacking []string
		for _, g := range groupsFor(in, ipam.UseWorkload) {
			for _, n := range g.lacking {
				if !slices.Contains(lacking, n.Name) {
					lacking = append(lacking, n.Name)
					s.affected = append(s.affected, Affected{Kind: KindNode, Name: n.Name, Note: "owns no block and may claim none"})
				}
			}
		}
		if len(lacking) > 0 {
			s.severity = High
			slices.Sort(lacking)
			s.detail += fmt.Sprintf("; %s in use without a block (%s)", count(uint64(len(lacking)), "node"), names(lacking, 5))
		}
	}
	if !in.Config.StrictAffinity {
		s.severity = High
		s.detail += ". Calico refuses this together with strict affinity off: the object was changed past calicoctl"
	}
	c := commandsFor(in.Snapshot)
	s.steps = []Step{{
		Title:    "Let nodes claim blocks again, unless somebody assigns them by hand here",
		Commands: []string{c.patchIPAMConfig(`{"spec":{"autoAllocateBlocks":true}}`)},
		Risk:     Safe, Verify: "calicoctl ipam show --show-configuration   # AutoAllocateBlocks true",
	}}
	return s, true
}

// limitSetting: a block limit without strict affinity, which SetIPAMConfig refuses.
func limitSetting(in *Input) (setting, bool) {
	if in.Config.StrictAffinity || in.Config.MaxBlocksPerHost <= 0 {
		return setting{}, false
	}
	c := commandsFor(in.Snapshot)
	return setting{
		severity: Medium,
		detail: fmt.Sprintf("maxBlocksPerHost is %d and strict affinity is off, which Calico refuses (“MaxBlocksPerHost requires StrictAffinity to be enabled”): the object was changed past calicoctl, and calicoctl refuses other changes until they fit",
			in.Config.MaxBlocksPerHost),
		steps: []Step{{
			Title:    fmt.Sprintf("Take the limit away (nodes may own %d blocks again), or switch strict affinity on as well", ipam.DefaultBlockLimit),
			Commands: []string{c.patchIPAMConfig(`{"spec":{"maxBlocksPerHost":0}}`)},
			Risk:     Safe, Verify: "calicoctl ipam show --show-configuration   # no limit, or a limit and StrictAffinity true",
		}},
	}, true
}

// borrowSetting: nodes may borrow, and the network does not carry host routes.
func borrowSetting(in *Input) (setting, bool) {
	if in.Config.StrictAffinity {
		return setting{}, false
	}
	pool, why := borrowRisk(in)
	if pool == nil {
		return setting{detail: why}, why != ""
	}
	c := commandsFor(in.Snapshot)
	s := setting{severity: Medium, affected: []Affected{{Kind: KindPool, Name: pool.Name, Note: "BGP carries its routes"}}}
	s.detail = fmt.Sprintf("Strict affinity is off, so nodes borrow addresses as soon as no block is free, and %s. The owner of a block then drops the traffic to the addresses that others borrow from it", why)
	borrowed, carried, fixed := borrowedNow(in)
	switch {
	case borrowed > 0 && carried == borrowed:
		s.severity = Low
		s.detail += fmt.Sprintf(". %s borrowed now, and the owners' route tables have a way to each: this network carries them", count(uint64(borrowed), "address"))
	case borrowed > 0:
		s.detail += fmt.Sprintf(". %s borrowed now, see borrowed-ips", count(uint64(borrowed), "address"))
	case in.Coverage.Read(ipam.ResBlocks) && in.Coverage.Read(ipam.ResPods):
		s.detail += ". Nothing is borrowed at present"
	default:
		s.detail += ". Whether anything is borrowed was not seen"
	}
	s.steps = roomBeforeStrict(in)
	if borrowed > fixed {
		s.steps = append(s.steps, Step{
			Title:    "Recreate the pods that borrow: strict affinity heals nothing that exists. The findings of borrowed-ips name them",
			Commands: []string{c.showBorrowed()}, Risk: Safe, Verify: c.showBorrowed() + "   # empty",
		})
	}
	if fixed > 0 {
		s.detail += fmt.Sprintf(". %d of them are fixed by annotation: with strict affinity such pods start on the block's owner only", fixed)
		s.steps = append(s.steps, routingStep(c, "Pods with fixed addresses borrow on purpose here: let the network carry host routes instead of forbidding it"))
		return s, true
	}
	s.steps = append(s.steps, routingStep(c, "Either let the network carry host routes"))
	s.steps = append(s.steps, strictSteps(c, in)...)
	return s, true
}

// borrowRisk is a pool whose host routes would not reach a block's owner, and
// why; without a pool the reason is why that is not known of one.
func borrowRisk(in *Input) (*ipam.Pool, string) {
	var nodes []*ipam.Node
	for i := range in.Nodes {
		if !in.Nodes[i].Windows {
			nodes = append(nodes, &in.Nodes[i])
		}
	}
	if len(nodes) < 2 {
		return nil, ""
	}
	unknown := ""
	for i := range in.Pools {
		p := &in.Pools[i]
		// Where a pool is not exported at all, BGP carries no route of it anyway.
		if !p.Enabled() || !p.AllowedUses.Has(ipam.UseWorkload) || p.DisableBGPExport {
			continue
		}
		if by := in.RoutesBy(p); by != ipam.BIRD && by != ipam.Unsure {
			continue
		}
		for k, owner := range nodes {
			// The answer depends on the owner's peers; any other node will do as borrower.
			switch carry, why := in.CarriesHostRoute(p, owner, nodes[(k+1)%len(nodes)]); carry {
			case ipam.AtRisk:
				return p, why
			case ipam.CarryUnknown:
				unknown = "how borrowed addresses of pool " + p.Name + " are routed: " + why
			case ipam.Carried:
			}
		}
	}
	return nil, unknown
}

// borrowedNow counts the borrowed addresses, those of them to which the
// owner's table has a way, and those that are fixed by annotation.
func borrowedNow(in *Input) (borrowed, carried, fixed int) {
	for _, uses := range borrowedBy(in) {
		for _, u := range uses {
			borrowed++
			if u.holder.Pod != nil && fixedAddress(u.holder.Pod, u.alloc.IP) {
				fixed++
			}
			t := in.Table(u.owner.Name)
			if t == nil || t.Kind != ipam.KernelTable {
				continue
			}
			if r := t.Lookup(u.alloc.IP); r != nil && !r.Type.Drops() && r.Dst.IsSingleIP() {
				carried++
			}
		}
	}
	return borrowed, carried, fixed
}

// roomBeforeStrict adds capacity where nodes lack a block and none is free:
// with strict affinity they could start no pod.
func roomBeforeStrict(in *Input) []Step {
	if !in.Coverage.Read(ipam.ResBlocks) {
		return capacitySteps(commandsFor(in.Snapshot), nil, nil)[:1]
	}
	for _, g := range groupsFor(in, ipam.UseWorkload) {
		free, reclaimable := g.free(in)
		if free+reclaimable == 0 || uint64(len(g.lacking)) > free+reclaimable {
			return capacitySteps(commandsFor(in.Snapshot), g.pools[0], nil)
		}
	}
	return nil
}
