package checks

import (
	"net/netip"
	"slices"
	"strings"

	"ipamaudit/ipam"
)

// releaseRisk names what `calicoctl ipam check` would call leaked though it is
// in use or kept on purpose, so that `ipam release --from-report` would free
// it; empty when there is nothing of the kind
// (calicoctl/calicoctl/commands/ipam/check.go: in use is what pods' status, the
// IPv4 tunnel annotations and Services' ingress name).
func releaseRisk(in *Input) string {
	var sixes, siblings, machines, byHand int
	for i := range in.Blocks {
		for a := range in.Blocks[i].Allocations() {
			switch h := in.Holder(a); h.Kind {
			case ipam.HeldByTunnel:
				if !a.IP.Is4() {
					sixes++
				}
			case ipam.HeldBySibling:
				siblings++
			case ipam.HeldByPod, ipam.HeldByOtherPod:
				if len(h.Pod.StatusIPs) > 0 && !slices.Contains(h.Pod.StatusIPs, a.IP) {
					siblings++
				}
			case ipam.HeldByVM:
				machines++
			case ipam.HeldUnowned:
				byHand++
			default:
			}
		}
	}
	var what []string
	for _, k := range []struct {
		n         int
		one, many string
	}{
		{sixes, "IPv6 tunnel address", "IPv6 tunnel addresses"},
		{siblings, "address of a running pod that its status does not list", "addresses of running pods that their status does not list"},
		{machines, "address kept for a virtual machine", "addresses kept for virtual machines"},
		{byHand, "address booked by hand", "addresses booked by hand"},
	} {
		if k.n > 0 {
			what = append(what, plain(k.n, k.one, k.many))
		}
	}
	return strings.Join(what, ", ")
}

// releaseSteps gives leaked addresses back by hand. Where calicoctl's own
// report is to be trusted it decides what is released, with the datastore
// locked; else each address is looked at and released by itself.
func releaseSteps(c commands, risk string, ips []netip.Addr) []Step {
	if risk == "" && !c.version.Lacks(ipam.ReleaseFromReport) {
		return c.reportSteps("Only if it stays: let calicoctl find what is leaked and release that and no more", "calicoctl ipam check --show-problem-ips   # lists none of them")
	}
	why := "Only if it stays: make sure that nothing uses the addresses, then release them one by one"
	if risk != "" {
		why += ". Not from calicoctl's report: it would also release " + risk
	}
	return releaseEach(c, why, ips)
}

// reportSteps let calicoctl release what its reports list: two of them, an hour
// apart, so that nothing that was in use at either time is released.
func (c commands) reportSteps(title, verify string) []Step {
	locked := ". While the datastore is locked no pod can start, and each address and handle of the report takes a request: with tens of thousands that is long, so choose a quiet hour. Unlock it in any case. calicoctl has to be of the cluster's own version"
	if c.firstReport() == "" {
		return []Step{{Title: title + locked, Commands: c.releaseFromReport(), Risk: Destructive, Verify: verify}}
	}
	return []Step{
		{
			Title:    title + ". First write down what is leaked now, without a lock, and read it; then wait for an hour",
			Commands: []string{c.firstReport()},
			// What calicoctl counts as leaked though it is none, see releaseRisk.
			Risk: Safe, Verify: "None of the lines with “leaked” is an IPv6 tunnel, a virtual machine's or without a pod or tunnel: these are no leaks, and would be released as well. The file is an hour old before you go on.",
		},
		{
			Title:    "Only an hour later: release what is leaked still; only what both reports list is released" + locked,
			Commands: c.releaseFromReport(),
			Risk:     Destructive, Verify: verify,
		},
	}
}

// releaseEach looks for users of the addresses and releases them one by one.
func releaseEach(c commands, title string, ips []netip.Addr) []Step {
	some := ips[:min(len(ips), commandLimit)]
	look := Step{Title: "See that nothing uses the addresses any more", Risk: Safe, Commands: c.usersOf(some), Verify: "Neither command prints anything."}
	s := Step{Title: title, Risk: Destructive, Verify: "calicoctl ipam show --ip=ADDRESS   # not assigned"}
	if len(some) > 0 {
		s.Commands = append(s.Commands, c.releaseFunction())
	}
	for _, ip := range some {
		s.Commands = append(s.Commands, releaseIP(ip))
	}
	if len(ips) > len(some) {
		s.Commands = append(s.Commands, "# … and "+plain(len(ips)-len(some), "more address", "more addresses")+", see the list of affected addresses")
	}
	if len(some) > 0 {
		s.Verify = "calicoctl ipam show --ip=" + some[0].String() + "   # not assigned"
	}
	return []Step{look, s}
}

// findCollector lists the collector in whatever namespace it is.
const findCollector = "kubectl get deployments -A -l k8s-app=calico-kube-controllers"

// collectorSteps ask why kube-controllers has not cleaned up by itself.
func collectorSteps(c commands, in *Input, what string) []Step {
	// The operator's namespace is calico-system, the manifests' kube-system.
	ns, name, where, get := "NAMESPACE", "calico-kube-controllers", " (the first column is its NAMESPACE)", findCollector
	w, _ := collector(in)
	if w != nil {
		ns, name, where = Quote(w.Namespace), Quote(w.Name), ""
		get = "kubectl -n " + ns + " get deployment " + name
	}
	switch {
	case !in.Info.Ready:
		return []Step{
			{
				Title:    "The datastore is locked, and nothing is collected meanwhile: find out who locked it",
				Commands: []string{"kubectl get " + c.resource(ipam.ResClusterInfo) + " default -o yaml"},
				Risk:     Safe, Verify: "Nobody works on it any more.",
			},
			{
				Title:    "Unlock it when nobody works on it any more",
				Commands: []string{c.unlock()},
				Risk:     Disruptive, Verify: "kubectl get " + c.resource(ipam.ResClusterInfo) + " default -o jsonpath='{.spec.datastoreReady}'   # true",
			},
		}
	case in.Coverage.Read(ipam.ResDeployments) && w == nil:
		return []Step{{
			Title:    "calico-kube-controllers is not deployed, so nothing collects " + what + ": deploy it from the manifest of the cluster's Calico version",
			Commands: []string{findCollector},
			Risk:     Safe, Verify: get + "   # 1/1; " + what + " go within 30 minutes",
		}}
	}
	collected := c.compareUse() + "   # 30 minutes later less is not in use"
	if strings.HasPrefix(what, "blocks") {
		collected = c.nodesAgainstOwners() + "; 30 minutes later no >"
	}
	return []Step{
		{
			Title:    "calico-kube-controllers collects " + what + " by itself within about 20 minutes: see whether it runs, and why it does not",
			Commands: []string{get, "kubectl -n " + ns + " logs deployment/" + name + " --since=2h | grep -iE 'leak|garbage|cleanup|locked' | tail -50"},
			Risk:     Safe, Verify: "It is 1/1" + where + ", and its log says what it does with them.",
		},
		{
			Title:    "Restart it if it has stalled: it counts afresh. Policy and pods are not touched",
			Commands: []string{"kubectl -n " + ns + " rollout restart deployment " + name},
			Risk:     Disruptive, Verify: collected,
		},
	}
}
