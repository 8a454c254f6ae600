package checks

import (
	"fmt"
	"strings"
	"time"

	"ipamaudit/ipam"
)

// ipamGC finds clusters in which nothing collects leaked addresses.
func ipamGC() Check {
	return Check{
		ID:          "ipam-gc",
		Title:       "Garbage collection of addresses is absent or has stalled",
		SubjectKind: KindCluster,
		What: "calico-kube-controllers releases addresses whose pod is gone, and the blocks of nodes that were deleted. " +
			"It may not be deployed, be scaled to zero, have its node controller or its grace period switched off, or be running and yet not getting anything done.",
		Why: "Every CNI call that fails and every node that disappears leaves addresses behind. Without the collector they pile up until nodes reach their block limit or the pool has no block left. " +
			"All the leaks that are found then have this one cause.",
		How: "Absent: Deployments were read and calico-kube-controllers is not there, wants no replica, has none available for longer than the grace period, or runs without the node controller; or `leakGracePeriod` is 0. " +
			"Stalled: it is available, the datastore is not locked, and there are leaked addresses or blocks of deleted nodes which it would release and which were booked more than `stalledAfter` ago. " +
			"What the collector leaves alone by design does not count: finished pods, records without pod or handle, nodes that still have a pod object. " +
			"When a pod or node vanished is not recorded, so stalled is inferred.",
		SeverityNote: "Absent: high with addresses or blocks left behind, else medium. Stalled: medium; with one or two addresses low at first and medium in the second run in a row. " +
			"Without Deployments: unknown. Without any node: nothing can run, and whose the blocks are is unknown.",
		Skewed: true,
		Uses: []ipam.Resource{ipam.ResDeployments, ipam.ResKubeCtrl, ipam.ResBlocks, ipam.ResHandles, ipam.ResNodes, ipam.ResPods,
			ipam.ResClusterInfo, ipam.ResPools},
		SecondLook: "that the collector has stalled or is down",
		Params:     []Param{{Name: "stalledAfter", Type: "duration", Default: "1h", Doc: "age of what is left behind from which the collector has stalled; at least twice its grace period"}},
		Example: func() []Step {
			return append(restartCollectorSteps(exampleCommands(), "NAMESPACE", "calico-kube-controllers"), graceStep(exampleCommands()))
		},
		Cases: func() []Case {
			c, w := exampleCommands(), &ipam.Workload{Namespace: "NAMESPACE", Name: "calico-kube-controllers"}
			return []Case{
				{When: "It runs, and frees nothing", Steps: restartCollectorSteps(c, w.Namespace, w.Name)},
				{When: "leakGracePeriod is `0s`", Steps: []Step{graceStep(c)}},
				{When: "It is at `0/0`", Steps: []Step{scaleStep(w)}},
				{When: "It is not listed", Steps: []Step{deployStep()}},
				{When: "It runs without its node controller", Steps: []Step{enableControllerStep(w)}},
			}
		},
		Look: lines(append([]string{
			findCollector,
			"kubectl get " + exampleCommands().resource(ipam.ResKubeCtrl) + ` default -o jsonpath='{.spec.controllers.node.leakGracePeriod}{"\n"}'   # empty: 15 minutes`,
		}, restartCollectorSteps(exampleCommands(), "NAMESPACE", "calico-kube-controllers")[0].Commands...)...),
		Sign: "It is this where it is not `1/1`, where the period is `0s`, or where its log has no line about a leak, or the same one again and again, while `calicoctl ipam check` counts leaks that are older than an hour.",
		Related: []Related{
			{"datastore-locked", "Does the collector log “datastore is locked”?"},
			{"orphan-affinities", "Do only the blocks of nodes that are gone stay?"},
			{"leaked-ips", "Do you need one address back now?"},
			{"handle-leaks", "Is it handles, not addresses?"},
		},
		References: []string{
			"https://github.com/projectcalico/calico/issues/8643", "https://github.com/projectcalico/calico/issues/4259",
			"https://github.com/projectcalico/calico/issues/7839", "https://github.com/projectcalico/kube-controllers/issues/564",
			"kube-controllers/pkg/controllers/node/ipam.go (checkAllocations, allocationIsValid)",
		},
		Run: runIPAMGC,
	}
}

// fewLeaks is the number of leaked addresses below which the first look alone
// does not speak of a stall.
const fewLeaks = 3

// remains is what dead pods and nodes have left behind.
type remains struct {
	leaks  []Affected
	blocks []Affected
	nodes  map[string]bool
	// collectable of them are what the collector would have released by now.
	collectable int
	// doubtful are those that it would have, if they have a handle and no pod:
	// what says so was not read, or could not be used.
	doubtful int
}

func (r remains) any() bool { return len(r.leaks)+len(r.blocks) > 0 }

func (r remains) text() string {
	var parts []string
	if len(r.leaks) > 0 {
		parts = append(parts, count(uint64(len(r.leaks)), "address")+" booked for pods that no longer exist")
	}
	if len(r.blocks) > 0 {
		parts = append(parts, fmt.Sprintf("%s of %s deleted from Kubernetes", count(uint64(len(r.blocks)), "block"), count(uint64(len(r.nodes)), "node")))
	}
	return "left behind: " + strings.Join(parts, "; ")
}

func runIPAMGC(in *Input) Result {
	var unseen []string
	for _, r := range []ipam.Resource{ipam.ResDeployments, ipam.ResBlocks, ipam.ResNodes, ipam.ResPods} {
		if !in.Coverage.Read(r) {
			unseen = append(unseen, string(r))
		}
	}
	if s := in.Coverage.Get(ipam.ResKubeCtrl).Status; s == ipam.Forbidden || s == ipam.Failed {
		unseen = append(unseen, string(ipam.ResKubeCtrl))
	}
	c := commandsFor(in.Snapshot)
	left := leftBehind(in)
	f := Finding{
		Subject:  Subject{Kind: KindCluster, Name: in.Cluster.Name},
		Affected: append(append([]Affected{}, left.blocks...), left.leaks...),
	}
	w, running := collector(in)
	var steps []Step
	why := ""
	switch {
	case in.KubeCtrl.LeakGracePeriod == 0:
		why, steps = "leakGracePeriod is 0 in KubeControllersConfiguration default, which switches the collector off", []Step{graceStep(c)}
	case !in.Coverage.Read(ipam.ResDeployments):
		return Result{Unseen: unseen}
	case w == nil && !running:
		why, steps = "no calico-kube-controllers Deployment exists", []Step{deployStep()}
	case w != nil && w.Desired == 0 && !running:
		why, steps = "Deployment "+w.Namespace+"/"+w.Name+" is scaled to zero", []Step{scaleStep(w)}
	case w != nil && withoutNodeController(w):
		why = "Deployment " + w.Namespace + "/" + w.Name + " runs without the node controller (ENABLED_CONTROLLERS=" + w.Env["ENABLED_CONTROLLERS"] + ")"
		steps = []Step{enableControllerStep(w)}
	case w != nil && w.Available == 0 && !running && !noNode(in) && !restarting(in, w):
		why, steps = "Deployment "+w.Namespace+"/"+w.Name+" has no replica available", restartCollectorSteps(c, w.Namespace, w.Name)
		// Where it does not say since when, it may only just be restarting.
		f.Evidence, f.SecondLook = Inferred, true
	}
	if why != "" {
		f.Severity, f.Title = Medium, "Nothing collects leaked addresses"
		f.Detail = upperFirst(why) + ": addresses of pods and nodes that are gone are never released."
		if left.any() {
			f.Severity = High
			f.Detail += " " + upperFirst(left.text()) + "."
		}
		f.Remediation = steps
		return Result{Findings: []Finding{f}, Unseen: unseen}
	}
	if noNode(in) && hostsOwn(in) {
		unseen = append(unseen, noNodeListed)
	}
	if left.doubtful > 0 {
		unseen = append(unseen, fmt.Sprintf("some of the %s or %s: whether the collector should have released %s cannot be told", ipam.ResHandles, ipam.ResPods, plain(left.doubtful, "address", "addresses")))
	}
	if in.Coverage.Refused(ipam.ResClusterInfo) && left.collectable > 0 {
		// It waits while the datastore is locked.
		return Result{Unseen: append(unseen, string(ipam.ResClusterInfo))}
	}
	if left.collectable == 0 || !in.Info.Ready {
		return Result{Unseen: unseen}
	}
	namespace, name := "NAMESPACE", "calico-kube-controllers"
	if w != nil {
		namespace, name = w.Namespace, w.Name
	} else if p := collectorPod(in); p != nil {
		namespace = p.Namespace
	}
	f.SecondLook = true
	f.Severity, f.IfItStays, f.Evidence, f.Title = Medium, Medium, Inferred, "The collector of leaked addresses has stalled"
	if len(left.blocks) == 0 && left.collectable < fewLeaks {
		// Pods that were deleted by force leave such a record for twenty minutes.
		f.Severity = Low
	}
	state := "is available"
	if w != nil && w.Available == 0 && !running {
		state = "is restarting"
	}
	f.Detail = fmt.Sprintf("%s %s and the datastore is open. %s. %d of these are its business and were booked more than %s ago; since when nobody uses them is not recorded.",
		name, state, upperFirst(left.text()), left.collectable, spell(stalledAfter(in)))
	f.Remediation = restartCollectorSteps(c, namespace, name)
	return Result{Findings: []Finding{f}, Unseen: unseen}
}

// restarting reports whether the collector has been away for less time than it
// gives every address: an upgrade stops it before it starts the new one, and
// nothing is collected later for that.
func restarting(in *Input, w *ipam.Workload) bool {
	return !w.UnavailableSince.IsZero() && in.Now.Sub(w.UnavailableSince) < in.KubeCtrl.LeakGracePeriod
}

// collector finds the Deployment, and whether a pod of it runs wherever it
// came from.
func collector(in *Input) (w *ipam.Workload, running bool) {
	for i := range in.Workloads {
		if in.Workloads[i].Kind == "Deployment" && strings.Contains(in.Workloads[i].Name, "kube-controllers") {
			w = &in.Workloads[i]
			break
		}
	}
	return w, collectorPod(in) != nil
}

func collectorPod(in *Input) *ipam.Pod {
	for i := range in.Pods {
		p := &in.Pods[i]
		if p.App == "calico-kube-controllers" && p.Phase == "Running" && p.Waiting == "" && !p.Deleting {
			return p
		}
	}
	return nil
}

// withoutNodeController reports whether the environment names controllers and
// leaves out the one that collects.
func withoutNodeController(w *ipam.Workload) bool {
	list := w.Env["ENABLED_CONTROLLERS"]
	if list == "" {
		return false
	}
	for _, name := range strings.Split(list, ",") {
		if strings.TrimSpace(name) == "node" {
			return false
		}
	}
	return true
}

// stalledAfter is the age from which something should long have been released.
func stalledAfter(in *Input) time.Duration {
	return max(in.Params.Duration("stalledAfter"), 2*in.KubeCtrl.LeakGracePeriod)
}

// leftBehind lists leaked addresses and blocks of nodes that are gone.
func leftBehind(in *Input) remains {
	r := remains{nodes: map[string]bool{}}
	if noNode(in) || !in.Coverage.Read(ipam.ResNodes) || !in.Coverage.Read(ipam.ResPods) || !in.Coverage.Read(ipam.ResBlocks) {
		return r
	}
	handles := handleIDs(in)
	blocked := blockedNodes(in)
	age, grace := stalledAfter(in), in.KubeCtrl.LeakGracePeriod
	lostPods, lostHandles := unreadable(in, "Pod"), unreadable(in, "IPAMHandle")
	for i := range in.Blocks {
		b := &in.Blocks[i]
		if b.Owner.IsHost() && in.NodeByFold(b.Owner.Name) == nil {
			if !nodeGone(in, b.Owner.Name) {
				continue // its object could not be used
			}
			r.nodes[b.Owner.Name] = true
			r.blocks = append(r.blocks, Affected{Kind: KindBlock, Name: b.CIDR.String(), Note: "of " + b.Owner.Name + ", which no longer exists", Same: b.Owner.Name})
			if !blocked[in.KubernetesName(b.Owner.Name)] && older(in, lastTouched(b), age) {
				r.collectable++
			}
			continue
		}
		for a := range b.Allocations() {
			h := in.Holder(a)
			// LeakedOtherAddress and finished pods are left alone, as the collector
			// does or may do; so are records younger than its grace.
			if h.Kind != ipam.LeakedGone && h.Kind != ipam.LeakedTunnel || !older(in, a.Attr.Timestamp, grace) {
				continue
			}
			r.leaks = append(r.leaks, Affected{Kind: KindIP, Name: a.IP.String(), Note: strings.Trim(a.Attr.Namespace+"/"+a.Attr.Pod, "/") + ", booked for " + or(a.Attr.Node, "no node"), Same: sameBooking(a)})
			if lostPods[a.Attr.Namespace+"/"+a.Attr.Pod] || lostHandles[strings.ToLower(a.Attr.Handle)] {
				r.doubtful++
				continue
			}
			if h.Node != nil && h.Node.FlannelMigration || a.Attr.Handle == "" || handles != nil && !handles[strings.ToLower(a.Attr.Handle)] {
				continue
			}
			if h.Node == nil && blocked[in.KubernetesName(a.Attr.Node)] {
				continue
			}
			switch {
			case !older(in, a.Attr.Timestamp, age):
			case handles == nil:
				r.doubtful++
			default:
				r.collectable++
			}
		}
	}
	return r
}

// lastTouched is the newest time recorded in a block; zero when there is none.
func lastTouched(b *ipam.Block) time.Time {
	newest := b.Created
	if b.ClaimTime.After(newest) {
		newest = b.ClaimTime
	}
	for i := range b.Attributes {
		for _, t := range []time.Time{b.Attributes[i].Timestamp, b.Attributes[i].ReleasedAt} {
			if t.After(newest) {
				newest = t
			}
		}
	}
	return newest
}

// blockedNodes are nodes that the collector keeps although they are gone,
// because of an address that it does not dare to release: one that a pod
// object still holds, or that names neither pod nor tunnel.
func blockedNodes(in *Input) map[string]bool {
	out, lost := map[string]bool{}, unreadable(in, "Pod")
	for i := range in.Blocks {
		for a := range in.Blocks[i].Allocations() {
			switch h := in.Holder(a); {
			case lost[a.Attr.Namespace+"/"+a.Attr.Pod]:
				out[in.KubernetesName(a.Attr.Node)] = true
			case h.Kind.Leaked() && h.Kind != ipam.LeakedFinished, h.Kind == ipam.HeldByWindows, h.Kind == ipam.HeldCoolingDown:
			default:
				out[in.KubernetesName(a.Attr.Node)] = true
			}
		}
	}
	return out
}

// handleIDs are the handles that exist, in lower case; nil where they were not read.
func handleIDs(in *Input) map[string]bool {
	if !in.Coverage.Read(ipam.ResHandles) {
		return nil
	}
	out := make(map[string]bool, len(in.Handles))
	for i := range in.Handles {
		out[strings.ToLower(in.Handles[i].ID)] = true
	}
	return out
}

func restartCollectorSteps(c commands, namespace, name string) []Step {
	ns := "kubectl -n " + Quote(namespace) + " "
	return []Step{
		{
			Title:    "See what the collector says: “datastore is locked”, “Can't cleanup node yet” and errors of the API server have other causes than a stall",
			Commands: []string{ns + "logs deployment/" + Quote(name) + " --since=1h | grep -iE 'ipam|leak|gc|error' | tail -50", ns + "get pods -o wide -l k8s-app=calico-kube-controllers"},
			Risk:     Safe, Verify: "You know whether it works, waits or fails.",
		},
		{
			Title:    "Restart it: it counts afresh and releases what it confirms after its grace period. Policy and pods are not touched",
			Commands: []string{ns + "rollout restart deployment " + Quote(name), ns + "rollout status deployment " + Quote(name)},
			Risk:     Disruptive, Verify: c.showBlocks() + "   # after about 20 minutes the blocks of nodes that are gone are no longer listed",
		},
	}
}

func graceStep(c commands) Step {
	return Step{
		Title:    "Switch the collector on again: 15 minutes is Calico's default",
		Commands: []string{"kubectl patch " + c.resource(ipam.ResKubeCtrl) + ` default --type merge -p '{"spec":{"controllers":{"node":{"leakGracePeriod":"15m0s"}}}}'`},
		Risk:     Safe, Verify: c.showBlocks() + "   # after about 20 minutes less is in use",
	}
}

func deployStep() Step {
	return Step{
		Title: "Deploy calico-kube-controllers the way Calico was installed here: the operator makes it by itself, the manifests contain it, charts have it switched off at times",
		Commands: []string{
			"kubectl get installations.operator.tigera.io,tigerastatus   # NotFound: not installed by the operator",
			"kubectl get deployments -A | grep -iE 'calico|tigera'",
		},
		Risk: Safe, Verify: "kubectl get deployments -A | grep kube-controllers   # 1/1; after about 20 minutes leaked addresses are released",
	}
}

func scaleStep(w *ipam.Workload) Step {
	return Step{
		Title:    "Find out who scaled it to zero (an operator that is stopped, a clean-up that was interrupted), then scale it up",
		Commands: []string{"kubectl -n " + Quote(w.Namespace) + " scale deployment " + Quote(w.Name) + " --replicas=1"},
		Risk:     Safe, Verify: "kubectl -n " + Quote(w.Namespace) + " rollout status deployment " + Quote(w.Name),
	}
}

func enableControllerStep(w *ipam.Workload) Step {
	return Step{
		Title:    "Add “node” to ENABLED_CONTROLLERS where the Deployment is defined (manifest, chart or operator)",
		Commands: []string{"kubectl -n " + Quote(w.Namespace) + " get deployment " + Quote(w.Name) + ` -o jsonpath='{.spec.template.spec.containers[0].env}{"\n"}'`},
		Risk:     Safe, Verify: "The list contains node, and the pod was recreated.",
	}
}

// spell prints a duration without empty minutes and seconds: "1h", "15m".
func spell(d time.Duration) string {
	s := strings.TrimSuffix(d.String(), "0s")
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return or(s, "0s")
}
