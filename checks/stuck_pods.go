package checks

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"ipamaudit/ipam"
)

// stuckPods finds pods that IPAM keeps from starting.
func stuckPods() Check {
	return Check{
		ID:          "stuck-pods",
		Title:       "Pods that cannot start because of IPAM",
		SubjectKind: KindNode,
		What: "Pods that wait for an address, and calico-node pods that crash, while their events (or what the last run of the container left behind) carry an error of IPAM or of the CNI plug-in. " +
			"The finding says which error, what it means, and who holds an address that is asked for.",
		Why: "The pods do not run, and the next ones on the node will not either.",
		How: "A pod on the pod network that is scheduled, has had no address for `minAge`, and whose newest event of the last `eventWindow` has one of the known texts; the same for a calico-node that crashes. " +
			"ContainerCreating without such a text (a volume, an image, an overloaded kubelet) is no matter of IPAM, and neither is a failure that the next try has healed. " +
			"The texts of host-local are told apart: no Calico command helps there.",
		SeverityNote: "Always high.",
		Needs:        []ipam.Resource{ipam.ResPods},
		Uses: []ipam.Resource{ipam.ResEvents, ipam.ResNodes, ipam.ResBlocks, ipam.ResPools, ipam.ResIPAMConfig, ipam.ResClusterInfo,
			ipam.ResAffinities, ipam.ResReservations, ipam.ResNamespaces, ipam.ResDeployments, ipam.ResDaemonSets},
		AnyIPAM: true,
		Params: []Param{
			{Name: "minAge", Type: "duration", Default: "5m", Doc: "how long a pod has to wait"},
			{Name: "eventWindow", Type: "duration", Default: "30m", Doc: "age up to which an event counts"},
		},
		Example: func() []Step {
			var out []Step
			for _, one := range stuckExamples() {
				out = appendSteps(out, one.Steps)
			}
			return out
		},
		Cases: stuckExamples,
		Look:  lines("kubectl -n NAMESPACE describe pod POD", "kubectl get events -A --field-selector reason=FailedCreatePodSandBox"),
		Sign:  "It is this where an event has one of the texts below. ContainerCreating with another one (image, volume, a slow kubelet) is no matter of IPAM.",
		Related: []Related{
			{"leaked-ips", "“Already assigned” or “already exists”, and the pod that has the address is gone?"},
			{"duplicate-ips", "Do two running pods have one address?"},
			{"datastore-locked", "“Not ready to process requests”?"},
			{"node-block-limit", "“Per host block limit”?"},
			{"blockless-nodes", "Do only new nodes fail?"},
			{"pool-config", "“Cannot find a qualified ippool”?"},
		},
		References: []string{
			"https://github.com/projectcalico/calico/issues/4861", "https://github.com/projectcalico/calico/issues/9647",
			"https://github.com/projectcalico/calico/issues/5337", "https://github.com/projectcalico/calico/issues/8435",
			"https://github.com/projectcalico/calico/issues/8180", "https://github.com/projectcalico/calico/issues/11358",
			"https://github.com/projectcalico/calico/issues/6150", "https://github.com/projectcalico/calico/issues/7440",
			"https://github.com/rancher/rke2/issues/4385", "https://github.com/projectcalico/calico/issues/9218",
			"libcalico-go/lib/ipam/ipam.go", "cni-plugin/pkg/ipamplugin/ipam_plugin.go",
		},
		Run: runStuckPods,
	}
}

// stuckPod is one pod that IPAM keeps from starting.
type stuckPod struct {
	pod  *ipam.Pod
	text string
	// ips are the addresses that the text names.
	ips []netip.Addr
}

func runStuckPods(in *Input) Result {
	var res Result
	kind, why := in.IPAM()
	events := networkEvents(in)
	causes := stuckCauses()
	byNode := map[string]map[string][]stuckPod{}
	silent := 0
	for i := range in.Pods {
		p := &in.Pods[i]
		e := events[p.Key()]
		// Past the sandbox a pod has its address, or gets a new one: then only
		// an error that goes on counts.
		waits := p.WaitsForAddress() && beforeSandbox(p) ||
			p.Live() && !p.Deleting && p.Waiting != "" && e != nil && e.Count >= 3 && in.Now.Sub(e.Last) < recentEvent
		crashes := isAgent(p) && p.NodeName != "" && !p.Deleting && !p.Finished() && p.Waiting != ""
		if !waits && !crashes {
			continue
		}
		since := p.Created
		if p.Started.After(since) {
			since = p.Started
		}
		if !crashes && !since.IsZero() && in.Now.Sub(since) < in.Params.Duration("minAge") {
			continue
		}
		text := p.Message
		if e != nil {
			text = e.Message
		}
		cause := causeOf(causes, text)
		switch {
		case cause == nil:
			if text == "" {
				silent++
			}
			continue
		case kind == ipam.NoIPAM && !strings.Contains(text, "calico"):
			continue
		}
		if byNode[p.NodeName] == nil {
			byNode[p.NodeName] = map[string][]stuckPod{}
		}
		byNode[p.NodeName][cause.id] = append(byNode[p.NodeName][cause.id], stuckPod{p, text, addressesIn(text)})
	}
	if kind == ipam.NoIPAM && len(byNode) == 0 {
		return Result{Skip: "no Calico IPAM here: " + why}
	}
	if silent > 0 && !in.Coverage.Read(ipam.ResEvents) {
		res.Unseen = append(res.Unseen, fmt.Sprintf("%s (%s, and why is not known)", ipam.ResEvents, plain(silent, "pod waits", "pods wait")))
	}
	base := newStuckFacts(in, commandsFor(in.Snapshot))
	base.hostLocal = kind == ipam.HostLocal
	for _, node := range sortedKeys(byNode) {
		base.node = node
		res.Findings = append(res.Findings, stuckFinding(base, causes, byNode[node]))
	}
	return res
}

// recentEvent is how old the newest event of an error that goes on can be:
// kubelet tries again every few seconds and drops most of the events.
const recentEvent = 10 * time.Minute

// beforeSandbox reports whether the pod's network may still be missing. A pod
// that pulls an image or whose container crashes is past that.
func beforeSandbox(p *ipam.Pod) bool {
	return p.Waiting == "" || p.Waiting == "ContainerCreating" || p.Waiting == "PodInitializing"
}

// networkEvents maps each pod to the newest event about its network, as far as
// it belongs to this pod and not to an earlier one of its name.
func networkEvents(in *Input) map[string]*ipam.Event {
	newest := map[string]*ipam.Event{}
	for i := range in.Events {
		e := &in.Events[i]
		if e.Kind != "Pod" && e.Kind != "" {
			continue
		}
		key := e.Namespace + "/" + e.Name
		if !e.Last.IsZero() {
			if in.Now.Sub(e.Last) > in.Params.Duration("eventWindow") {
				continue
			}
			if p := in.Pod(e.Namespace, e.Name); p != nil && e.Last.Before(p.Created) {
				continue
			}
		}
		if old := newest[key]; old == nil || e.Last.After(old.Last) {
			newest[key] = e
		}
	}
	return newest
}

func stuckFinding(base stuckFacts, causes []stuckCause, byCause map[string][]stuckPod) Finding {
	in, node := base.in, base.node
	f := Finding{
		Severity: High,
		Subject:  Subject{Kind: KindNode, Name: node},
		Title:    "Pods on node " + node + " cannot start because of IPAM",
	}
	var detail []string
	for _, cause := range causes {
		pods := byCause[cause.id]
		if len(pods) == 0 {
			continue
		}
		line := fmt.Sprintf("%s: %s", plain(len(pods), "pod", "pods"), cause.what)
		facts := base
		facts.pods = pods
		if cause.facts != nil && !base.hostLocal {
			if more := cause.facts(facts); more != "" {
				line += ". " + more
			}
		}
		var named []string
		for _, sp := range pods {
			note := shortText(sp.text)
			for _, ip := range sp.ips {
				if h := heldBy(in, ip, sp.pod); h != "" {
					named = ifNot(named, ip.String()+" "+h)
					note = ip.String() + " " + h + ": " + note
				}
			}
			f.Affected = append(f.Affected, Affected{Kind: KindPod, Namespace: sp.pod.Namespace, Name: sp.pod.Name, Note: note})
		}
		if len(named) > 0 {
			line += ". " + names(named, 5)
		}
		detail = append(detail, line)
		f.Remediation = appendSteps(f.Remediation, cause.steps(facts))
	}
	f.Detail = strings.Join(detail, ". ") + "."
	return f
}

// appendSteps leaves out steps whose title is there already.
func appendSteps(steps, more []Step) []Step {
	for _, s := range more {
		if !slices.ContainsFunc(steps, func(t Step) bool { return t.Title == s.Title }) {
			steps = append(steps, s)
		}
	}
	return steps
}

// shortText is the end of kubelet's sentence, where the plug-in speaks.
func shortText(text string) string {
	for _, mark := range []string{"failed (add): ", "failed (delete): "} {
		if i := strings.LastIndex(text, mark); i >= 0 {
			text = text[i+len(mark):]
		}
	}
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > 240 {
		return string(r[:240]) + "…"
	}
	return text
}

// addressesIn finds the addresses that the plug-in's part of a text names.
func addressesIn(text string) []netip.Addr {
	var out []netip.Addr
	for _, word := range strings.FieldsFunc(shortText(text), func(r rune) bool { return strings.ContainsRune(" ,;()[]'\"", r) }) {
		word = strings.TrimRight(word, ":.")
		ip, err := netip.ParseAddr(word)
		if p, perr := netip.ParsePrefix(word); perr == nil && p.IsSingleIP() {
			ip, err = p.Addr(), nil
		}
		if err == nil && !slices.Contains(out, ip.Unmap()) {
			out = append(out, ip.Unmap())
		}
	}
	return out
}

// heldBy says who has an address that a pod does not get.
func heldBy(in *Input, ip netip.Addr, pod *ipam.Pod) string {
	if u := userOf(in, ip, pod); u != nil {
		return "is used by pod " + podNote(u)
	}
	if t := in.TunnelsAt(ip); len(t) > 0 {
		return "is the tunnel address of node " + t[0].Node.Name
	}
	a, ok := in.AllocationOf(ip)
	if !ok {
		if b := in.BlockOf(ip); b != nil {
			return "is free in block " + b.CIDR.String() + " of " + or(b.Owner.Name, "nobody")
		}
		return ""
	}
	recorded := a.Attr.Namespace + "/" + a.Attr.Pod
	switch h := in.Holder(a); {
	case a.Attr.Namespace == pod.Namespace && a.Attr.Pod == pod.Name:
		return "is booked by an earlier sandbox of the same pod"
	case h.Kind.Leaked():
		return "is booked for " + recorded + ", which does not use it any more"
	case h.Kind == ipam.HeldByWaitingPod:
		return "is booked for " + recorded + ", which waits as well"
	case a.Attr.Pod != "":
		return "is booked for " + recorded
	}
	return "is booked without a pod (" + or(a.Attr.Handle, "no handle") + ")"
}

// userOf is another running pod that uses the address, or nil.
func userOf(in *Input, ip netip.Addr, pod *ipam.Pod) *ipam.Pod {
	for _, p := range in.PodsAt(ip) {
		if p != pod && runsHere(in, p) {
			return p
		}
	}
	return nil
}

// newStuckFacts computes what all nodes share only when a cause asks for it.
func newStuckFacts(in *Input, c commands) stuckFacts {
	return stuckFacts{
		in: in, c: c,
		leaks: sync.OnceValue(func() map[string][]leak {
			if !in.Coverage.Read(ipam.ResBlocks) || !in.Coverage.Read(ipam.ResNodes) {
				return nil
			}
			return leaksByNode(in, defaultGrace, defaultRecordsPerPod)
		}),
		orphans: sync.OnceValue(func() int {
			if !in.Coverage.Read(ipam.ResBlocks) || len(in.Nodes) == 0 || namesDoNotMatch(in) {
				return 0
			}
			orphans, _ := orphansIn(in)
			return len(orphans)
		}),
	}
}

// stuckExamples are the steps for each cause, under the texts that tell of it.
func stuckExamples() []Case {
	facts := newStuckFacts(&Input{Snapshot: ipam.NewSnapshot()}, exampleCommands())
	facts.node, facts.pods = "NODE", []stuckPod{{pod: &ipam.Pod{Namespace: "NAMESPACE", Name: "POD", NodeName: "NODE", OwnerKind: "ReplicaSet"}}}
	var out []Case
	for _, cause := range stuckCauses() {
		out = append(out, Case{When: cause.heading(), See: cause.seeAlso, Steps: cause.steps(facts)})
	}
	return out
}
