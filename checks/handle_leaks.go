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

// handleLeaks compares handles with what blocks say.
func handleLeaks() Check {
	return Check{
		ID:          "handle-leaks",
		Title:       "Handles without addresses, and addresses whose handle is missing",
		SubjectKind: KindCluster,
		What: "Handles left over are not dangerous: no traffic and no pod depends on them. An IPAMHandle is the index from a container (or tunnel, or Service) to its addresses. A handle that no block mentions is left over. " +
			"An allocation that names a handle which does not exist is worse: it can only be released by its address.",
		Why: "Handles left over bloat the datastore and slow every list; nothing collects them. For an allocation without its handle Calico believes the address to be released already, so it stays booked for ever once its pod is gone.",
		How: "Handle IDs of all allocations against the IDs of all handle objects, without regard to case (objects have lower-case names). The handle of Windows' reserved addresses has no object by design. " +
			"Handles and allocations younger than `grace` are left out: they are made one after the other, and read one after the other.",
		SeverityNote: "Not dangerous to running pods; an allocation without its handle keeps its address for ever. Medium with an allocation whose handle is missing, or when more handles are left over than `mediumHandles` and than twice the pods; low otherwise.",
		Skewed:       true,
		Needs:        []ipam.Resource{ipam.ResBlocks, ipam.ResHandles},
		Uses:         []ipam.Resource{ipam.ResPods, ipam.ResClusterInfo},
		SecondLook:   "that a handle is left over",
		Params: []Param{
			{Name: "grace", Type: "duration", Default: "20m", Doc: "age below which a handle or allocation is not judged"},
			{Name: "mediumHandles", Type: "integer", Default: 1000, Min: ptr(0.0), Max: ptr(1e9), Doc: "handles left over from which it is medium (and more than twice the pods)"},
		},
		Example: func() []Step { return handleCases()[0].Steps },
		Cases:   handleCases,
		Sign:    "It is this where “handles with no matching IPs” or “handles mentioned in blocks with no matching handle resource” counts more than a few; `calicoctl ipam check --show-problem-ips | grep 'in use in a block'` names the latter.",
		Related: []Related{
			{"orphan-affinities", "Are their nodes gone, or do nodes come and go by the minute (autoscaling)?"},
			{"leaked-ips", "Is it addresses that stay booked, and their handles exist?"},
			{"ipam-gc", "Does nothing at all get collected?"},
		},
		References: []string{
			"https://github.com/projectcalico/calico/issues/8548", "https://github.com/projectcalico/calico/issues/10759",
			"https://github.com/projectcalico/calico/issues/6988", "calicoctl/calicoctl/commands/ipam/check.go (handles)",
		},
		Run: runHandleLeaks,
	}
}

// handleKey makes handle IDs comparable: Calico cuts old ones at the first CR
// (sanitizeHandle) and lower-cases object names.
func handleKey(id string) string {
	id, _, _ = strings.Cut(id, "\r")
	return strings.ToLower(id)
}

// handleCases are the steps for each of the two sums that `ipam check` prints.
func handleCases() []Case {
	c, s := exampleCommands(), exampleCluster()
	s.Pods, s.Blocks = nil, []ipam.Block{exampleBlockOf(exampleBlock, "host:NODE", ipam.Slot{})}
	in := &Input{Snapshot: s.Seal()}
	return []Case{
		{When: "“handles with no matching IPs”", Steps: handleSteps(c, in, []*ipam.Handle{{Name: "k8s-pod-network.c0ffee", ID: "k8s-pod-network.c0ffee"}}, nil, "")},
		{When: "“handles mentioned in blocks with no matching handle resource”", Steps: handleSteps(c, in, nil, slices.Collect(s.Blocks[0].Allocations()), "")},
	}
}

func runHandleLeaks(in *Input) Result {
	var res Result
	grace := in.Params.Duration("grace")
	young := func(t time.Time) bool { return !t.IsZero() && in.Now.Sub(t) < grace }
	have := make(map[string]bool, len(in.Handles))
	for i := range in.Handles {
		h := &in.Handles[i]
		id := handleKey(h.ID)
		have[id] = true
		if h.Name != id {
			have[handleKey(h.Name)] = true
		}
	}
	for name := range unreadable(in, "IPAMHandle") {
		have[handleKey(name)] = true
	}
	used := make(map[string]bool, len(in.Handles))
	var missing []ipam.Allocation
	for i := range in.Blocks {
		for a := range in.Blocks[i].Allocations() {
			if a.Attr.Handle == "" || a.Attr.WindowsReserved() {
				continue
			}
			id := handleKey(a.Attr.Handle)
			used[id] = true
			if !have[id] && !young(a.Attr.Timestamp) {
				missing = append(missing, a)
			}
		}
	}
	var leaked []*ipam.Handle
	if n := unreadableBlocks(in); n > 0 {
		res.Unseen = append(res.Unseen, plain(n, "block that could not be used: its handles may", "blocks that could not be used: their handles may")+" look left over")
	} else {
		for i := range in.Handles {
			h := &in.Handles[i]
			if !used[handleKey(h.ID)] && !used[handleKey(h.Name)] && !young(h.Created) {
				leaked = append(leaked, h)
			}
		}
	}
	if len(leaked)+len(missing) == 0 {
		return res
	}
	f := Finding{
		Severity: Low, SecondLook: true,
		Subject: Subject{Kind: KindCluster, Name: in.Cluster.Name},
		Title:   "Handles and addresses in IPAM do not match",
	}
	detail := []string{fmt.Sprintf("%s for %s", plain(len(in.Handles), "handle", "handles"), plain(len(used), "handle ID in blocks", "handle IDs in blocks"))}
	if len(missing) > 0 {
		f.Severity = Medium
		detail = append(detail, plain(len(missing), "allocation names a handle that does", "allocations name a handle that does")+" not exist: Calico will never free them by itself")
	}
	if len(leaked) > 0 {
		line := plain(len(leaked), "handle has", "handles have") + " no address any more"
		if oldest := oldestHandle(leaked); !oldest.IsZero() {
			line += ", the oldest " + bookedSince(oldest)
		}
		detail = append(detail, line)
	}
	pods := 0
	for i := range in.Pods {
		if in.Pods[i].Live() {
			pods++
		}
	}
	if len(leaked) > max(in.Params.Int("mediumHandles"), 2*pods) {
		f.Severity = Medium
		line := fmt.Sprintf("That is more than %d", in.Params.Int("mediumHandles"))
		if in.Coverage.Read(ipam.ResPods) {
			line += fmt.Sprintf(" and more than twice the %s", plain(pods, "pod", "pods"))
		}
		detail = append(detail, line)
	}
	f.Detail = strings.Join(detail, ". ") + "."
	for _, a := range missing {
		who := a.Attr.Namespace + "/" + a.Attr.Pod
		if a.Attr.Pod == "" {
			who = cmp.Or(a.Attr.Type, "no pod recorded")
		}
		f.Affected = append(f.Affected, Affected{Kind: KindIP, Name: a.IP.String(), Note: who + " on " + cmp.Or(a.Attr.Node, "unknown") + ", handle " + a.Attr.Handle + " does not exist"})
	}
	for _, h := range leaked {
		f.Affected = append(f.Affected, Affected{Kind: "IPAMHandle", Name: h.ID, Note: strings.TrimSpace("no address " + bookedSince(h.Created))})
	}
	f.Remediation = handleSteps(commandsFor(in.Snapshot), in, leaked, missing, releaseRisk(in))
	res.Findings = []Finding{f}
	return res
}

func oldestHandle(list []*ipam.Handle) time.Time {
	var oldest time.Time
	for _, h := range list {
		if !h.Created.IsZero() && (oldest.IsZero() || h.Created.Before(oldest)) {
			oldest = h.Created
		}
	}
	return oldest
}

// handleSteps removes handles left over: through calicoctl's report where that
// works (it lists them since v3.24), else one by one.
func handleSteps(c commands, in *Input, leaked []*ipam.Handle, missing []ipam.Allocation, risk string) []Step {
	steps := []Step{{
		Title:    "See what calicoctl says of handles",
		Commands: []string{"calicoctl ipam check | grep -i handle"},
		Risk:     Safe, Verify: "Its counts are about the same.",
	}}
	byReport := len(leaked) > 0 && risk == "" && !c.version.Lacks(ipam.HandlesInReport)
	if byReport {
		steps = append(steps, c.reportSteps("Let calicoctl delete what its own reports list (handles, and leaked addresses with them)", "calicoctl ipam check | grep -i handle   # 0 handles with no matching IPs")...)
	}
	if len(leaked) > 0 {
		title := "Delete the handles left over one by one: the ID of a container never comes back"
		if byReport {
			title = "Where that does not work delete them one by one: calicoctl v3.24 fails with “operation Delete is not supported on IPAMHandleKey”, and then this works; or where there are so many that the lock would last too long: this needs none. The ID of a container never comes back"
		}
		s := Step{
			Title: title,
			Risk:  Destructive, Verify: "kubectl get " + c.resource(ipam.ResHandles) + " --no-headers | wc -l   # about as many as allocations",
		}
		// The handle of a tunnel or virtual machine is used again: those only through calicoctl.
		var plainOnes []*ipam.Handle
		for _, h := range leaked {
			if !reusedHandle(h.ID) {
				plainOnes = append(plainOnes, h)
			}
		}
		for _, h := range plainOnes[:min(len(plainOnes), commandLimit)] {
			s.Commands = append(s.Commands, c.deleteHandle(h.Name))
		}
		if len(plainOnes) > commandLimit {
			s.Commands = append(s.Commands, fmt.Sprintf("# … and %d more, see the list of affected handles: with their names in handles.txt, one a line, xargs -n 50 kubectl delete %s <handles.txt", len(plainOnes)-commandLimit, c.resource(ipam.ResHandles)))
		}
		if len(plainOnes) > 0 {
			steps = append(steps, s)
		}
	}
	if len(missing) > 0 {
		var unused []netip.Addr
		for _, a := range missing {
			if in.Holder(a).Kind.Leaked() {
				unused = append(unused, a.IP)
			}
		}
		hold := []Step{{
			Title:    "Those without a handle that are in use stay until their pods are gone; then release them one by one",
			Commands: []string{"calicoctl ipam check --show-problem-ips"},
			Risk:     Safe, Verify: "Those that the finding lists with their pods are released, and it counts no handle without a resource.",
		}}
		if len(unused) > 0 {
			title := "Release the addresses that have no handle and no user, one by one: no collector frees them. Those of running pods wait until the pod is gone"
			if byReport {
				title = "Only where they are still booked: release the addresses that have no handle and no user, one by one. Those of running pods wait until the pod is gone"
			}
			hold = releaseEach(c, title, unused)
		}
		steps = append(steps, hold...)
	}
	return steps
}

// reusedHandle reports whether the handle's ID comes back: tunnels' and
// Services' are made from names; only those of containers are unique.
func reusedHandle(id string) bool {
	at := ipam.Attribute{Handle: id}
	if at.Tunnel() || at.LoadBalancer() {
		return true
	}
	_, container, ok := strings.Cut(id, ".")
	return !ok || strings.Trim(container, "0123456789abcdef") != ""
}
