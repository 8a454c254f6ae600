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

// leakedIPs finds booked addresses that nobody uses any more.
func leakedIPs() Check {
	return Check{
		ID:          "leaked-ips",
		Title:       "Addresses that stay booked though no pod uses them",
		SubjectKind: KindNode,
		What: "An address that IPAM has booked for a pod that does not exist any more, that has finished, or that runs elsewhere with another address; " +
			"and many addresses booked for one pod, which is what a CNI call leaves behind that fails after the address was assigned and is tried again.",
		Why: "Leaks fill pools that are almost empty in truth, keep nodes at their block limit, keep blocks from being given back, and keep pods with a fixed address from starting.",
		How: "The rules of Calico's own collector in kube-controllers, with one difference: an address that a running pod uses is never a leak, whatever the record says. " +
			"Nothing is a leak before `grace` has passed since it was booked, since its pod ended or since its successor was made: the collector needs up to 20 minutes. " +
			"Records without a pod (booked by hand), of virtual machines, tunnels, Services and Windows, cooling addresses, and a second address of a handle in use are none. " +
			"A live pod may have a few records too many; from `recordsPerPod` on they count. Addresses in blocks of nodes that no longer exist belong to `orphan-affinities`.",
		SeverityNote: "Medium; low for fewer than `mediumFrom` addresses of a family on a node; with more, high when they keep the node at its block limit or when their pool is used up to `highPercent` or has no free block; always high when a pod waits for one of them. " +
			"One look at two lists that were read one after the other proves nothing, so it is inferred.",
		Skewed:     true,
		Needs:      []ipam.Resource{ipam.ResBlocks, ipam.ResPods, ipam.ResNodes},
		Uses:       []ipam.Resource{ipam.ResPools, ipam.ResHandles, ipam.ResIPAMConfig, ipam.ResClusterInfo, ipam.ResDeployments, ipam.ResReservations},
		Decides:    []ipam.Resource{ipam.ResPools, ipam.ResIPAMConfig},
		SecondLook: "that an address is leaked",
		Params: []Param{
			{Name: "grace", Type: "duration", Default: "20m", Doc: "age below which an unused address is left to Calico's collector"},
			{Name: "recordsPerPod", Type: "integer", Default: 5, Min: ptr(1.0), Max: ptr(10000.0), Doc: "unused records of one live pod from which they count as leaked"},
			{Name: "mediumFrom", Type: "integer", Default: 2, Min: ptr(1.0), Max: ptr(100000.0), Doc: "leaked addresses of one family on a node from which it is medium"},
			percentParam("highPercent", 85, "share of used addresses of their pool from which leaks are high"),
		},
		Example: func() []Step {
			in, c := &Input{Snapshot: ipam.NewSnapshot()}, exampleCommands()
			return slices.Concat(oneAddressSteps(c, exampleAddress), collectorSteps(c, in, "leaked addresses"), releaseSteps(c, "", nil))
		},
		Cases: func() []Case {
			in, c := &Input{Snapshot: ipam.NewSnapshot()}, exampleCommands()
			return []Case{
				{When: "One address is wanted now: a pod waits for it", Steps: oneAddressSteps(c, exampleAddress)},
				{When: "Many records for one pod that never starts (`FailedCreatePodSandBox`, again and again)", Steps: retrySteps(c)},
				{When: "Many of them fill a node or a pool", Steps: append(collectorSteps(c, in, "leaked addresses"), releaseSteps(c, "", nil)...)},
			}
		},
		Look: lines("calicoctl ipam check --show-problem-ips | grep -E 'leaked|not actually in use'", "calicoctl ipam show --ip="+exampleAddress.String()+"   # the pod that it is booked for", podWith(exampleAddress.String())),
		Sign: "It is this where “Found N IPs that are allocated in IPAM but not actually in use” is not 0: each line above it, `ADDRESS leaked; attrs Main:HANDLE Extra:…`, names node and pod. " +
			"**These are not leaks, never release them:** IPv6 tunnel addresses; four of each Windows block (`windows-reserved-ipam-handle`); addresses of Services (LoadBalancer), of stopped virtual machines, and those booked by hand. " +
			"Those of the last 20 minutes (a drain, a reboot, a DaemonSet) go by themselves. For one address: no pod has it, or one that is Completed (Succeeded, Failed).",
		Related: []Related{
			{"stuck-pods", "Do the pod's events say something else than “already assigned” or “already exists”?"},
			{"misbooked-ips", "Does a running pod have the address, and the record names another?"},
			{"duplicate-ips", "Do two running pods have it?"},
			{"orphan-affinities", "Is its node gone, too?"},
			{"handle-leaks", "Is it handles, not addresses?"},
		},
		References: []string{
			"https://github.com/projectcalico/calico/issues/5339", "https://github.com/projectcalico/calico/issues/5004",
			"https://github.com/projectcalico/calico/issues/5093", "https://github.com/harvester/harvester/issues/3089",
			"https://github.com/projectcalico/calico/issues/5044", "https://github.com/projectcalico/calico/issues/4861",
			"kube-controllers/pkg/controllers/node/ipam.go (allocationIsValid)", "calicoctl/calicoctl/commands/ipam/check.go",
		},
		Run: runLeakedIPs,
	}
}

// defaultGrace is what Calico's collector takes: 15 minutes and its interval.
const defaultGrace = 20 * time.Minute

// defaultRecordsPerPod is from how many unused records on a live pod leaks.
const defaultRecordsPerPod = 5

// leak is one leaked address.
type leak struct {
	alloc  ipam.Allocation
	holder ipam.Holder
	// retried is true for the records that a live pod's failing CNI calls left.
	retried bool
}

// reason says in a few words why nobody uses the address.
func (l leak) reason() string {
	switch {
	case l.retried && l.holder.Kind == ipam.HeldByWaitingPod:
		return "the pod still waits for an address"
	case l.holder.Kind == ipam.LeakedFinished:
		return "the pod has finished"
	case l.holder.Kind == ipam.LeakedOtherAddress && l.retried:
		return "the pod uses another address"
	case l.holder.Kind == ipam.LeakedOtherAddress:
		return "the pod runs elsewhere with another address"
	case l.holder.Kind == ipam.LeakedTunnel:
		return "tunnel of node " + l.holder.NodeName + ", which is gone"
	}
	return "the pod is gone"
}

// leaksByNode sorts the leaked addresses by the node they weigh on. Those in
// blocks of nodes that no longer exist are left out.
func leaksByNode(in *Input, grace time.Duration, recordsPerPod int) map[string][]leak {
	out := map[string][]leak{}
	perPod := map[string][]leak{}
	unreadPods := unreadable(in, "Pod")
	handles := map[string]time.Time{}
	for _, h := range in.Handles {
		handles[strings.ToLower(h.ID)] = h.Created
	}
	for i := range in.Blocks {
		for a := range in.Blocks[i].Allocations() {
			h := in.Holder(a)
			if !h.Kind.Leaked() && h.Kind != ipam.HeldByWaitingPod {
				continue
			}
			node := leakNode(in, a)
			if node == nil || node.FlannelMigration || unreadPods[a.Attr.Namespace+"/"+a.Attr.Pod] {
				continue
			}
			if t := unusedSince(a, h, handles); !t.IsZero() && in.Now.Sub(t) < grace {
				continue
			}
			onItsNode := h.Pod != nil && strings.EqualFold(in.KubernetesName(a.Attr.Node), h.Pod.NodeName)
			if h.Kind == ipam.HeldByWaitingPod || h.Kind == ipam.LeakedOtherAddress && (onItsNode || a.Attr.Node == "") {
				perPod[h.Pod.Key()] = append(perPod[h.Pod.Key()], leak{a, h, true})
				continue
			}
			out[node.Name] = append(out[node.Name], leak{a, h, false})
		}
	}
	for _, list := range perPod {
		if len(list) < recordsPerPod {
			continue
		}
		for _, l := range list {
			node := leakNode(in, l.alloc)
			out[node.Name] = append(out[node.Name], l)
		}
	}
	for _, list := range out {
		slices.SortFunc(list, func(a, b leak) int { return a.alloc.IP.Compare(b.alloc.IP) })
	}
	return out
}

// leakNode is the node on which a leaked address weighs: the recorded one, or
// the owner of the block where that one is gone. It is nil in blocks of nodes
// that no longer exist.
func leakNode(in *Input, a ipam.Allocation) *ipam.Node {
	owner := a.Block.Owner
	if owner.IsHost() && nodeGone(in, owner.Name) {
		return nil
	}
	if n := in.NodeByFold(a.Attr.Node); n != nil && a.Attr.Node != "" {
		return n
	}
	if owner.IsHost() {
		return in.NodeByFold(owner.Name)
	}
	return nil
}

// unusedSince is the earliest moment from which the address can have been
// unused; zero where nothing tells.
func unusedSince(a ipam.Allocation, h ipam.Holder, handles map[string]time.Time) time.Time {
	t := a.Attr.Timestamp
	if t.IsZero() {
		t = handles[strings.ToLower(a.Attr.Handle)]
	}
	if t.IsZero() {
		t = a.Block.Created
		if a.Block.ClaimTime.After(t) {
			t = a.Block.ClaimTime
		}
	}
	if h.Pod == nil {
		return t
	}
	after := h.Pod.Ended
	switch {
	case h.Kind == ipam.HeldByWaitingPod:
		after = time.Time{}
	case h.Kind != ipam.LeakedFinished:
		// The pod that exists now is a successor, or got its address now.
		after = h.Pod.Created
	}
	if after.After(t) {
		return after
	}
	return t
}

func runLeakedIPs(in *Input) Result {
	var res Result
	byNode := leaksByNode(in, in.Params.Duration("grace"), in.Params.Int("recordsPerPod"))
	if len(byNode) == 0 {
		return res
	}
	c := commandsFor(in.Snapshot)
	risk := releaseRisk(in)
	wanted := waitedFor(in)
	perPool := map[*ipam.Pool]int{}
	for _, list := range byNode {
		for _, l := range list {
			perPool[l.alloc.Block.Pool()]++
		}
	}
	for i := range in.Nodes {
		n := &in.Nodes[i]
		if list := byNode[n.Name]; len(list) > 0 {
			res.Findings = append(res.Findings, leakFinding(in, c, n, list, perPool, wanted, risk))
		}
	}
	return res
}

// waitedFor maps the fixed addresses that waiting pods ask for to these pods.
func waitedFor(in *Input) map[netip.Addr]*ipam.Pod {
	out := map[netip.Addr]*ipam.Pod{}
	for i := range in.Pods {
		p := &in.Pods[i]
		if p.WaitsForAddress() {
			for _, ip := range p.RequestedIPs {
				out[ip] = p
			}
		}
	}
	return out
}

func leakFinding(in *Input, c commands, n *ipam.Node, list []leak, perPool map[*ipam.Pool]int, wanted map[netip.Addr]*ipam.Pod, risk string) Finding {
	f := Finding{
		Severity: Medium, Evidence: Inferred, SecondLook: true,
		Subject: Subject{Kind: KindNode, Name: n.Name},
		Title:   "Node " + n.Name + " holds addresses that no pod uses",
	}
	// So few change nothing about a pool or a limit; only who waits for one is hurt.
	few := perFamily(list) < in.Params.Int("mediumFrom")
	if few {
		f.Severity = Low
	}
	reasons, retried := map[string]int{}, map[string]int{}
	var ips, blocked []netip.Addr
	var pools []*ipam.Pool
	var high []string
	for _, l := range list {
		reasons[l.reason()]++
		if l.retried {
			retried[l.holder.Pod.Key()]++
		}
		ips = append(ips, l.alloc.IP)
		note := leakNote(in, n, l)
		if p := wanted[l.alloc.IP]; p != nil {
			blocked = append(blocked, l.alloc.IP)
			note += "; " + p.Key() + " waits for it"
			high = append(high, fmt.Sprintf("Pod %s asks for %s and cannot start before it is released", p.Key(), l.alloc.IP))
		}
		f.Affected = append(f.Affected, Affected{Kind: KindIP, Name: l.alloc.IP.String(), Note: note, Same: sameBooking(l.alloc)})
		if p := l.alloc.Block.Pool(); p != nil && !slices.Contains(pools, p) {
			pools = append(pools, p)
		}
	}
	booked := 0
	for _, b := range in.BlocksOf(n.Name) {
		booked += len(b.Slots)
	}
	detail := []string{fmt.Sprintf("%s booked here without a user: %s", plain(len(list), "address", "addresses"), tally(reasons))}
	if blocks := in.BlocksOf(n.Name); len(blocks) > 0 {
		detail[0] += fmt.Sprintf(". The node's %s %s booked in all", plain(len(blocks), "block has", "blocks have"), plain(booked, "address", "addresses"))
	}
	for _, key := range topKeys(retried, 5) {
		detail = append(detail, fmt.Sprintf("%s are booked for pod %s alone: its CNI calls fail after the address was assigned, and each retry leaks one more", plain(retried[key], "address", "addresses"), key))
	}
	if limit := atBlockLimit(in, n); limit != "" && !few {
		high = append(high, limit)
	}
	for _, p := range pools {
		u := in.Usage(p)
		line := fmt.Sprintf("Pool %s is used to %s %%", p.Name, trimFloat(percent(u.Allocated+u.CoolingDown, u.Usable())))
		if k := uint64(perPool[p]); k <= u.Allocated {
			line += fmt.Sprintf("; without %s to %s %%", plain(int(k), "leaked address", "leaked addresses"), trimFloat(percent(u.Allocated-k+u.CoolingDown, u.Usable())))
		}
		if p.Enabled() && !few && (percent(u.Allocated+u.CoolingDown, u.Usable()) >= in.Params.Float("highPercent") || u.Free+u.Reclaimable == 0) {
			high = append(high, fmt.Sprintf("%s, with %s of %s blocks free", line, figure(u.Free+u.Reclaimable), figure(u.Blocks)))
			continue
		}
		detail = append(detail, line)
	}
	if len(high) > 0 {
		f.Severity = High
		detail = append(detail, high...)
	}
	if !in.Info.Ready {
		detail = append(detail, "The datastore is locked, and Calico collects nothing meanwhile")
	}
	f.Detail = strings.Join(detail, ". ") + "."
	f.Remediation = leakSteps(c, in, list, ips, blocked, risk)
	return f
}

// perFamily is the number of leaks in the address family that has more: a
// dual-stack pod leaves one address of each, which is one leak.
func perFamily(list []leak) int {
	four := 0
	for _, l := range list {
		if l.alloc.IP.Is4() {
			four++
		}
	}
	return max(four, len(list)-four)
}

// atBlockLimit says that the node may claim no further block, if it is so.
func atBlockLimit(in *Input, n *ipam.Node) string {
	if in.Coverage.Refused(ipam.ResIPAMConfig) {
		return ""
	}
	for _, v4 := range []bool{true, false} {
		owned := 0
		for _, b := range in.BlocksOf(n.Name) {
			if b.CIDR.Addr().Is4() == v4 {
				owned++
			}
		}
		if limit := in.Config.BlockLimit(); owned >= limit {
			return fmt.Sprintf("The node owns %d %s blocks and may own %d, so they keep its next pods from starting", owned, ipam.Family(v4), limit)
		}
	}
	return ""
}

func leakNote(in *Input, n *ipam.Node, l leak) string {
	at := l.alloc.Attr
	who := at.Namespace + "/" + at.Pod
	if at.Pod == "" {
		who = cmp.Or(at.Type, at.Handle)
	}
	parts := []string{who + ": " + l.reason()}
	if s := bookedSince(at.Timestamp); s != "" {
		parts = append(parts, "booked "+s)
	} else {
		parts = append(parts, "no time recorded")
	}
	if name := in.KubernetesName(at.Node); name != n.Name && name != "" {
		parts = append(parts, "recorded for node "+name)
	}
	if o := l.alloc.Block.Owner; o.IsHost() && in.NodeByFold(o.Name) != n {
		parts = append(parts, "in block "+l.alloc.Block.CIDR.String()+" of "+o.Name)
	}
	return strings.Join(parts, ", ")
}

// sameBooking tells one booking of an address from the next.
func sameBooking(a ipam.Allocation) string { return a.IP.String() + " " + a.Attr.Handle }

// tally prints "14 × the pod is gone, 2 × the pod has finished", most first.
func tally(m map[string]int) string {
	parts := make([]string, 0, len(m))
	for _, k := range topKeys(m, len(m)) {
		parts = append(parts, fmt.Sprintf("%d × %s", m[k], k))
	}
	return strings.Join(parts, ", ")
}

// topKeys are up to limit keys, those with the highest count first.
func topKeys(m map[string]int, limit int) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int { return cmp.Or(cmp.Compare(m[b], m[a]), cmp.Compare(a, b)) })
	return keys[:min(limit, len(keys))]
}

// oneAddressSteps give back a single address that somebody waits for.
func oneAddressSteps(c commands, ip netip.Addr) []Step {
	steps := releaseEach(c, "Only if nothing uses it: release it. That can be done at once, without the collector; a pod that waits for it starts by itself", []netip.Addr{ip})
	steps[0].Title = "For one address that is wanted now: see who holds it, and whether anything uses it"
	steps[0].Commands = slices.Concat([]string{"calicoctl ipam show --ip=" + ip.String() + "   # the pod that it is booked for", podWith(ip.String()) + "   # does a pod have it? Completed ones do not count"}, steps[0].Commands)
	steps[0].Verify = "The pod of the record is gone or has finished, and the last two commands print nothing."
	return steps
}

// retrySteps end what leaves a record behind with every try.
func retrySteps(c commands) []Step {
	return []Step{
		{
			Title:    "See why the pod does not start: its first error that is not about addresses (iptables or portmap missing, a chained plug-in, a full disk) comes after the address was booked, and each try books another",
			Commands: []string{"kubectl -n NAMESPACE describe pod POD"},
			Risk:     Safe, Verify: "You know the error. Where all of them are about addresses it is another case.",
		},
		{
			Title:    "Count the records of each pod",
			Commands: []string{"kubectl get " + c.resource(ipam.ResBlocks) + ` -o jsonpath='{range .items[*].spec.attributes[*]}{.secondary.namespace}/{.secondary.pod}{"\n"}{end}' | sort | uniq -c | sort -rn | head`},
			Risk:     Safe, Verify: "One pod has far more than the others: it is this.",
		},
		{
			Title:    "Mend the error. Until then scale the workload to 0, so that it makes no more records; Calico's collector frees those that are there once the pod is gone",
			Commands: []string{"kubectl -n NAMESPACE scale deployment WORKLOAD --replicas=0   # or statefulset; a DaemonSet: cordon does not stop it, mend the node"},
			Risk:     Disruptive, Verify: "20 minutes later the count is 0; if not, it is the next case.",
		},
	}
}

// leakSteps: stop what leaks, free what a pod waits for, let the collector do
// its work, and only then release by hand.
func leakSteps(c commands, in *Input, list []leak, ips, blocked []netip.Addr, risk string) []Step {
	var steps []Step
	seen := map[string]bool{}
	for _, l := range list {
		if !l.retried || seen[l.holder.Pod.Key()] || len(seen) >= 3 {
			continue
		}
		p := l.holder.Pod
		seen[p.Key()] = true
		steps = append(steps, Step{
			Title:    "Stop the source first: see why the CNI calls of " + p.Key() + " fail after the address was assigned (missing iptables modules, a chained plug-in, a full disk), else they leak on",
			Commands: []string{"kubectl -n " + Quote(p.Namespace) + " describe pod " + Quote(p.Name)},
			Risk:     Safe, Verify: "The pod runs and its records do not grow.",
		})
	}
	if len(blocked) > 0 {
		steps = append(steps, releaseEach(c, "Release the address that a pod waits for, once nothing is seen to use it", blocked)...)
	}
	var waiting []*ipam.Pod
	for _, l := range list {
		if l.holder.Kind == ipam.HeldByWaitingPod {
			waiting = append(waiting, l.holder.Pod)
		}
	}
	again := Step{
		Title: "Then recreate the pod: the collector leaves the records of a pod that waits alone, and takes them when it is gone",
		Risk:  Disruptive, Verify: "The new pod has an address.",
	}
	for _, p := range sortedPods(waiting) {
		if p.OwnerKind != "" && p.OwnerKind != "Node" && len(again.Commands) < commandLimit {
			again.Commands = append(again.Commands, c.deletePod(p.Namespace, p.Name))
		}
	}
	if len(again.Commands) > 0 {
		steps = append(steps, again)
	}
	steps = append(steps, collectorSteps(c, in, "leaked addresses")...)
	return append(steps, releaseSteps(c, risk, ips)...)
}
