package checks

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ipamaudit/ipam"
)

// unallocatedPodIPs finds addresses in use that IPAM believes to be free.
func unallocatedPodIPs() Check {
	return Check{
		ID:          "unallocated-pod-ips",
		Title:       "Running pods with addresses that IPAM does not record",
		SubjectKind: KindCluster,
		What:        "A running pod whose address lies inside an enabled pool, while no block has it booked (or has it as released and cooling down).",
		Why:         "IPAM takes the address for free and gives it to a new pod: two pods with one address, or a new pod that fails because the route exists already.",
		How: "Pods that run, are not being deleted and use the pod network, on nodes that exist. Pods younger than `minAge` are left out: blocks and pods are read one after the other. " +
			"So are pods that bypass IPAM (ipAddrsNoIpam), pods of another IPAM (no annotation of Calico's and an address of their own node's podCIDR), and addresses in disabled pools, from which nothing is given out. " +
			"When more than half of all addresses are missing the data is lost as a whole, and `ipam-data` says so once.",
		SeverityNote: "Always critical: a live address may be given out twice.",
		Skewed:       true,
		Needs:        []ipam.Resource{ipam.ResBlocks, ipam.ResPods, ipam.ResPools},
		Uses:         []ipam.Resource{ipam.ResNodes, ipam.ResClusterInfo},
		Params:       []Param{{Name: "minAge", Type: "duration", Default: "10m", Doc: "age below which a pod is not judged"}},
		Example: func() []Step {
			return unallocatedSteps(exampleCommands(), []netip.Addr{netip.MustParseAddr("10.0.0.7")}, []*ipam.Pod{{Namespace: "NAMESPACE", Name: "POD", OwnerKind: "ReplicaSet"}})
		},
		Sign: "It is this where lines say “in active IPAM pool but has no IPAM allocation”. These pods run: **nothing is to be released.**",
		Related: []Related{
			{"ipam-data", "Are most of the pods not booked, or blocks and pools gone?"},
			{"misbooked-ips", "Is the address booked, for another pod or node?"},
			{"duplicate-ips", "Do two running pods have it already?"},
			{"block-layout", "Do the pods lie in no enabled pool?"},
			{"tunnel-ips", "Is it a node's tunnel address, and no pod's?"},
		},
		References: []string{
			"https://github.com/projectcalico/calico/issues/1542", "https://github.com/projectcalico/calico/issues/1406",
			"https://github.com/projectcalico/calico/issues/8446", "https://github.com/projectcalico/calico/issues/7348",
			"calicoctl/calicoctl/commands/ipam/check.go (in use, but not allocated)",
		},
		Run: runUnallocatedPodIPs,
	}
}

func runUnallocatedPodIPs(in *Input) Result {
	var res Result
	var rows []Affected
	var pods []*ipam.Pod
	var ips []netip.Addr
	noBlock, doubtful := 0, 0
	lost, lostNames := unreadableBlocks(in), unreadable(in, "IPAMBlock")
	perPool, perNode := map[string]int{}, map[string]int{}
	for i := range in.Pods {
		p := &in.Pods[i]
		if !runsHere(in, p) || p.NoIPAM || !p.Created.IsZero() && in.Now.Sub(p.Created) < in.Params.Duration("minAge") {
			continue
		}
		for _, ip := range usedIPs(p) {
			pool := poolOf(in, ip)
			if pool == nil || !pool.Enabled() || otherIPAM(in, p, ip) {
				continue
			}
			a, ok := in.AllocationOf(ip)
			if ok && !a.Attr.CoolingDown() {
				continue
			}
			b := in.BlockOf(ip)
			note := podNote(p)
			switch {
			case ok:
				note += ", booked as released and cooling down"
			case lost > 0 && (b == nil || inUnreadable(ip, lostNames)):
				// It may well be booked in the block that could not be read.
				doubtful++
				continue
			case b == nil:
				noBlock++
				note += ", no block there"
			default:
				note += ", free in block " + b.CIDR.String() + " of " + or(b.Owner.Name, "nobody")
			}
			pods, ips = append(pods, p), append(ips, ip)
			perPool[pool.Name]++
			perNode[p.NodeName]++
			rows = append(rows, Affected{Kind: KindIP, Name: ip.String(), Note: note})
		}
	}
	if doubtful > 0 {
		res.Unseen = append(res.Unseen, fmt.Sprintf("%s that could not be used: %s may be booked there", plain(lost, "block", "blocks"), plain(doubtful, "address of a running pod", "addresses of running pods")))
	}
	if len(rows) == 0 {
		return res
	}
	detail := []string{
		fmt.Sprintf("%s of running pods %s not recorded: %s", plain(len(rows), "address", "addresses"), map[bool]string{true: "is", false: "are"}[len(rows) == 1], splitOf("pool", perPool)),
		"They run on " + splitOf("node", perNode),
	}
	if noBlock > 0 {
		detail = append(detail, fmt.Sprintf("%d of them lie where there is no block at all: blocks were removed under running pods, or never made", noBlock))
	}
	res.Findings = []Finding{{
		Severity: Critical,
		Subject:  Subject{Kind: KindCluster, Name: in.Cluster.Name},
		Title:    "Running pods have addresses that IPAM takes for free",
		Detail:   strings.Join(detail, ". ") + ".",
		Affected: rows, Remediation: unallocatedSteps(commandsFor(in.Snapshot), ips, pods),
	}}
	return res
}

// otherIPAM reports whether the pod's address was given out by host-local:
// Calico has not annotated it, and it lies in its own node's podCIDR.
func otherIPAM(in *Input, p *ipam.Pod, ip netip.Addr) bool {
	n := in.Node(p.NodeName)
	return !p.CalicoCNI && n != nil && slices.ContainsFunc(n.PodCIDRs, func(c netip.Prefix) bool { return c.Contains(ip) })
}

// splitOf prints "node a (12), b (3) and 4 more", most first.
func splitOf(noun string, m map[string]int) string {
	parts := make([]string, 0, len(m))
	for _, k := range topKeys(m, len(m)) {
		parts = append(parts, fmt.Sprintf("%s (%d)", k, m[k]))
	}
	return noun + " " + names(parts, 5)
}

// unallocatedSteps recreates the pods: nothing in IPAM can book an address
// for a pod that runs.
func unallocatedSteps(c commands, ips []netip.Addr, pods []*ipam.Pod) []Step {
	look := Step{
		Title:    "See what IPAM says, and who has removed blocks or edited a pool: leave blocks and pools alone until that is known",
		Commands: []string{"calicoctl ipam check --show-problem-ips   # in-use IPs without an allocation"},
		Risk:     Safe, Verify: "It lists the same addresses.",
	}
	for _, ip := range ips[:min(len(ips), 3)] {
		look.Commands = append(look.Commands, "calicoctl ipam show --ip="+ip.String()+"   # not assigned")
	}
	steps := []Step{look}
	del, bare, fixed := recreate(c, pods, commandLimit)
	s := Step{
		Title: "Recreate the pods, node by node: each comes back with an address that is booked. IPAM cannot book an address for a pod that runs" + leftOver(bare, fixed),
		Risk:  Disruptive, Commands: del, Verify: "calicoctl ipam check | grep 'no corresponding IPAM allocation'   # counts fewer, and 0 in the end",
	}
	return append(steps, s)
}

// inUnreadable reports whether a block that could not be used, and overlaps one
// that could, would hold the address by its name.
func inUnreadable(ip netip.Addr, names map[string]bool) bool {
	for bits := ip.BitLen(); bits > 0; bits-- {
		if p, err := ip.Prefix(bits); err == nil && names[blockName(p)] {
			return true
		}
	}
	return false
}
