package checks

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"ipamaudit/ipam"
)

// duplicateIPs finds addresses that two parties use at once.
func duplicateIPs() Check {
	return Check{
		ID:          "duplicate-ips",
		Title:       "Addresses that two running pods, or a pod and a tunnel, use at once",
		SubjectKind: KindIP,
		What:        "One address on two running pods, or on a running pod and on the tunnel device of a node.",
		Why:         "Packets reach one of the two at random, or only one at all: time-outs, wrong answers and failing probes that no log explains.",
		How: "Only pods that run, are not being deleted and use the pod network are compared, on nodes that exist, and only addresses inside an IP pool. " +
			"Finished pods keep their address in status and do not count; nor do two pods of one virtual machine in migration. " +
			"What status says counts; the annotation only for a family that status lacks.",
		SeverityNote: "Always critical.",
		Skewed:       true,
		Needs:        []ipam.Resource{ipam.ResPods, ipam.ResPools},
		Uses:         []ipam.Resource{ipam.ResNodes, ipam.ResBlocks, ipam.ResDaemonSets, ipam.ResClusterInfo},
		Example:      func() []Step { return duplicateCases()[0].Steps },
		Cases:        duplicateCases,
		Look:         lines(append([]string{podsTwice()}, lookAtUsers(exampleAddress).Commands...)...),
		Sign: "The first command finds addresses that two pods have; put yours into the others. It is this where they print two users of one address: two pods, or a pod and the tunnel of a node. " +
			"`ipam show` says for whom it is booked: **that one stays, the other gives way.**",
		Related: []Related{
			{"stuck-pods", "Does the second pod not start, whatever its event says (`already exists for an interface other than`, say)?"},
			{"unallocated-pod-ips", "Does only one pod run with it, and `ipam show` says “not assigned”?"},
			{"blackholed-routes", "Does `ip route show ADDRESS` on the node print `blackhole` (blockSize 32)?"},
			{"leaked-ips", "Does one pod want the address, and the pod it is booked for is gone?"},
			{"misbooked-ips", "Does only one pod run with it, and it is booked for another pod or node?"},
			{"tunnel-ips", "Do two nodes' tunnels have it, and no pod?"},
			{"block-layout", "Do two blocks contain it (their sizes differ)?"},
		},
		References: []string{
			"https://github.com/projectcalico/calico/issues/13858", "https://github.com/projectcalico/calico/issues/3589",
			"https://github.com/projectcalico/calicoctl/issues/1295", "https://github.com/projectcalico/libcalico-go/issues/1377",
			"https://github.com/projectcalico/libcalico-go/issues/1040",
		},
		Run: runDuplicateIPs,
	}
}

// duplicateCases are the steps for each pair of users and each booking.
func duplicateCases() []Case {
	pod := &ipam.Pod{Namespace: "NAMESPACE", Name: "POD", OwnerKind: "ReplicaSet"}
	other := &ipam.Pod{Namespace: "NAMESPACE", Name: "OTHER-POD", OwnerKind: "ReplicaSet"}
	tunnel := []ipam.TunnelHolder{{Node: &ipam.Node{Name: "NODE"}, Tunnel: ipam.TunnelAddress{Kind: "ipip", IP: exampleAddress}}}
	forPod := ipam.Attribute{Namespace: pod.Namespace, Pod: pod.Name}
	forTunnel := ipam.Attribute{Handle: "ipip-tunnel-addr-NODE", Node: "NODE", Type: "ipipTunnelAddress"}
	var out []Case
	for _, one := range []struct {
		when    string
		pods    []*ipam.Pod
		tunnels []ipam.TunnelHolder
		booked  []ipam.Attribute
	}{
		{"Two pods have it, and it is booked for one of them", []*ipam.Pod{pod, other}, nil, []ipam.Attribute{forPod}},
		{"Two pods have it, and it is not assigned (booked for neither)", []*ipam.Pod{pod, other}, nil, nil},
		{"A pod and a node's tunnel (tunl0, vxlan.calico) have it, and it is booked for the pod", []*ipam.Pod{pod}, tunnel, []ipam.Attribute{forPod}},
		{"A pod and a node's tunnel have it, and it is booked for the tunnel", []*ipam.Pod{other}, tunnel, []ipam.Attribute{forTunnel}},
		{"A pod and a node's tunnel have it, and it is not assigned", []*ipam.Pod{other}, tunnel, nil},
	} {
		s := exampleCluster()
		b := exampleBlockOf(netip.PrefixFrom(exampleAddress, exampleBlock.Bits()).Masked(), "host:NODE")
		b.Attributes = one.booked
		for i := range one.booked {
			b.Slots = append(b.Slots, ipam.Slot{Ordinal: uint32(exampleAddress.As4()[3]), Attr: int32(i)})
		}
		s.Blocks = []ipam.Block{b}
		out = append(out, Case{When: one.when, Steps: duplicateSteps(exampleCommands(), &Input{Snapshot: s.Seal()}, exampleAddress, one.pods, one.tunnels)})
	}
	return out
}

func runDuplicateIPs(in *Input) Result {
	var res Result
	if !in.Coverage.Read(ipam.ResNodes) {
		res.Unseen = append(res.Unseen, string(ipam.ResNodes)+" (tunnel addresses)")
	}
	users := map[netip.Addr][]*ipam.Pod{}
	for i := range in.Pods {
		p := &in.Pods[i]
		if !runsHere(in, p) {
			continue
		}
		for _, ip := range usedIPs(p) {
			if len(in.PodsAt(ip)) < 2 && len(in.TunnelsAt(ip)) == 0 {
				continue // nearly every address
			}
			if poolOf(in, ip) != nil && !slices.ContainsFunc(users[ip], func(q *ipam.Pod) bool { return sameMachine(p, q) }) {
				users[ip] = append(users[ip], p)
			}
		}
	}
	ips := make([]netip.Addr, 0, len(users))
	for ip := range users {
		ips = append(ips, ip)
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	c := commandsFor(in.Snapshot)
	for _, ip := range ips {
		if tunnels := in.TunnelsAt(ip); len(users[ip]) > 1 || len(tunnels) > 0 {
			res.Findings = append(res.Findings, duplicateFinding(in, c, ip, users[ip], tunnels))
		}
	}
	return res
}

// sameMachine reports whether both pods run one virtual machine: during a live
// migration they share its address (projectcalico/calico#11865).
func sameMachine(p, q *ipam.Pod) bool {
	return p.VMI != "" && p.VMI == q.VMI && p.Namespace == q.Namespace
}

func duplicateFinding(in *Input, c commands, ip netip.Addr, pods []*ipam.Pod, tunnels []ipam.TunnelHolder) Finding {
	f := Finding{
		Severity: Critical,
		Subject:  Subject{Kind: KindIP, Name: ip.String()},
		Title:    "Address " + ip.String() + " is in use twice",
	}
	var who []string
	for _, p := range pods {
		note := podNote(p)
		if p.Waiting != "" {
			note += ", " + p.Waiting
		}
		if recordedFor(in, ip, p) {
			note += ", booked for it"
		}
		who = append(who, "pod "+podNote(p))
		f.Affected = append(f.Affected, Affected{Kind: KindIP, Name: ip.String(), Note: note})
	}
	for _, t := range tunnels {
		who = append(who, "the "+t.Tunnel.Kind+" tunnel of node "+t.Node.Name)
		f.Affected = append(f.Affected, Affected{Kind: KindIP, Name: ip.String(), Note: t.Tunnel.Kind + " tunnel of node " + t.Node.Name})
	}
	detail := []string{fmt.Sprintf("%d use it at once: %s", len(who), strings.Join(who, ", "))}
	switch booked := bookings(in, ip); {
	case !in.Coverage.Read(ipam.ResBlocks):
		detail = append(detail, "Blocks were not read: whom IPAM has booked it for is not known")
	case len(booked) == 0:
		detail = append(detail, "IPAM has not booked it at all and may give it out once more")
	case len(booked) == 1:
		detail = append(detail, "IPAM has booked it for "+booked[0])
	default:
		detail = append(detail, fmt.Sprintf("IPAM has booked it %d times, in blocks that overlap: %s", len(booked), strings.Join(booked, "; ")))
	}
	f.Detail = strings.Join(detail, ". ") + "."
	f.Remediation = duplicateSteps(c, in, ip, pods, tunnels)
	return f
}

// recordedFor reports whether some block books the address for the pod.
func recordedFor(in *Input, ip netip.Addr, p *ipam.Pod) bool {
	for a := range allocationsAt(in, ip) {
		if a.Attr.Namespace == p.Namespace && a.Attr.Pod == p.Name {
			return true
		}
	}
	return false
}

// bookings says for whom every block that contains the address books it.
func bookings(in *Input, ip netip.Addr) []string {
	var out []string
	for a := range allocationsAt(in, ip) {
		who := "pod " + a.Attr.Namespace + "/" + a.Attr.Pod
		switch {
		case a.Attr.Tunnel():
			who = "the tunnel of node " + or(in.KubernetesName(a.Attr.Node), "unknown")
		case a.Attr.CoolingDown():
			who = "nobody (released and cooling down)"
		case a.Attr.Pod == "":
			who = or(a.Attr.Handle, "nobody in particular")
		}
		out = append(out, who+" (block "+a.Block.CIDR.String()+")")
	}
	return out
}

// allocationsAt yields the booking of ip in every block that contains it:
// more than one where blocks overlap.
func allocationsAt(in *Input, ip netip.Addr) func(yield func(ipam.Allocation) bool) {
	return func(yield func(ipam.Allocation) bool) {
		for i := range in.Blocks {
			if !in.Blocks[i].CIDR.Contains(ip) {
				continue
			}
			for a := range in.Blocks[i].Allocations() {
				if a.IP == ip && !yield(a) {
					return
				}
			}
		}
	}
}

// duplicateSteps: the party that IPAM has not booked the address for gives
// way. Deleting the other one first would free an address that is in use.
func duplicateSteps(c commands, in *Input, ip netip.Addr, pods []*ipam.Pod, tunnels []ipam.TunnelHolder) []Step {
	steps := []Step{lookAtUsers(ip)}
	var booked, others []*ipam.Pod
	for _, p := range pods {
		if recordedFor(in, ip, p) {
			booked = append(booked, p)
		} else {
			others = append(others, p)
		}
	}
	tunnelBooked := false
	for a := range allocationsAt(in, ip) {
		tunnelBooked = tunnelBooked || a.Attr.Tunnel()
	}
	if len(tunnels) > 0 && !tunnelBooked {
		var cmds []string
		for _, t := range tunnels {
			cmds = append(cmds, restartAgent(t.Node.Name))
		}
		steps = append(steps, Step{
			Title:    "Restart calico-node there: it takes another tunnel address, since this one is not booked for it. Before the pod: deleting that first would free an address in use",
			Commands: cmds, Risk: Disruptive,
			Verify: "kubectl get node " + Quote(tunnels[0].Node.Name) + " -o yaml | grep -i tunnel   # another address",
		})
	}
	if len(booked) > 1 || len(booked) == 1 && len(others) == 0 && tunnelBooked {
		// Booked twice: all but one give way.
		others = append(others, booked[min(1, len(booked)-1):]...)
	}
	if len(others) == 0 && !(len(tunnels) > 0 && !tunnelBooked) {
		others = pods[min(1, len(pods)):]
	}
	if del, bare, fixed := recreate(c, others, commandLimit); len(del)+len(bare)+len(fixed) > 0 {
		steps = append(steps, Step{
			Title: "Recreate the pod that the address is not booked for: it comes back with one of its own" + leftOver(bare, fixed),
			Risk:  Disruptive, Commands: del, Verify: podWith(ip.String()) + "   # one pod at most",
		})
	}
	return steps
}

// lookAtUsers shows the pods and tunnels that have the address, and whose it is.
func lookAtUsers(ip netip.Addr) Step {
	return Step{
		Title:    "See who has the address and for whom IPAM has booked it",
		Commands: []string{podWith(ip.String()), tunnelWith(ip.String()), "calicoctl ipam show --ip=" + ip.String()},
		Risk:     Safe, Verify: "The booking names one of them, or it is not assigned.",
	}
}
