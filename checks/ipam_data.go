package checks

import (
	"fmt"
	"strings"

	"ipamaudit/ipam"
)

// ipamData speaks about clusters whose IPAM is not Calico's, or whose data is gone.
func ipamData() Check {
	return Check{
		ID:          "ipam-data",
		Title:       "Clusters without Calico IPAM, or whose IPAM data has vanished",
		SubjectKind: KindCluster,
		What: "Three things that make every other verdict meaningless: the pods get their addresses from another IPAM (host-local, a cloud's own), there is no Calico at all, " +
			"or Calico's blocks and pools were reset or have vanished under running pods.",
		Why: "Empty lists must never read as a healthy cluster. When the data is gone, running pods keep addresses that IPAM hands out again, and nodes withdraw their routes.",
		How: "Pods that carry Calico's annotations and whose addresses are in no block: more than half of them means that the data was lost. " +
			"Pods that lie in their own node's podCIDR and in no block mean host-local; pods without Calico's annotations mean that Calico gives out no addresses here.",
		SeverityNote: "Critical when data was lost (it replaces the findings per address). Low without Calico or for policy-only clusters; low for host-local, medium with pods that wait for an address.",
		Skewed:       true,
		Needs:        []ipam.Resource{ipam.ResPods, ipam.ResNodes},
		Uses:         []ipam.Resource{ipam.ResBlocks, ipam.ResPools, ipam.ResEvents},
		AnyIPAM:      true,
		Example:      func() []Step { return dataLostSteps(exampleCommands()) },
		Cases: func() []Case {
			return []Case{
				{When: "Calico gives out the addresses, and pools or blocks are gone, or younger than the pods (a reinstall)", Steps: dataLostSteps(exampleCommands())},
				{When: "host-local gives them out (HostLocal, or usePodCidr)", Steps: hostLocalSteps("NODE")},
				{When: "host-local, and since an upgrade new pods get addresses in use (`route … already exists`): running sandboxes have no lease", Steps: leaseSteps("NODE")},
			}
		},
		Look: lines(append(append(dataLostSteps(exampleCommands())[0].Commands, "calicoctl ipam check | grep 'no corresponding IPAM allocation'"), exampleCommands().whichIPAM()...)...),
		Sign: "It is this where `Calico` or `calico-ipam` gives out the addresses, and pools or blocks are missing, or there and younger than the pods while most running pods have no allocation (Calico was removed and installed again): **lock first, and restart nothing.** Where `kubectl get crd | grep -c projectcalico.org` counts 0 and kubectl keeps Calico's objects (no etcd of its own), the definitions are gone, too: stop what removes them and apply those of your Calico version before anything else. " +
			"With Calico's own IPAM a pod's address outside its node's podCIDR, or of one family only, is normal. With `HostLocal` or `host-local` each node gives out its own podCIDR, and Calico's blocks and pools, there or not, say nothing about the pods. " +
			"Where neither command tells, look at a node: `grep -A3 ipam /etc/cni/net.d/10-calico.conflist`.",
		Related: []Related{
			{"unallocated-pod-ips", "Are the blocks there, and only some running pods are not booked?"},
			{"datastore-locked", "Is everything there, and no pod starts?"},
			{"cluster-access", "Could the cluster not be read?"},
		},
		References: []string{
			"https://github.com/projectcalico/calico/issues/11755", "https://github.com/projectcalico/calico/issues/12457",
			"https://github.com/projectcalico/calico/issues/11702", "https://github.com/projectcalico/calico/issues/7348",
		},
		Run: runIPAMData,
	}
}

func runIPAMData(in *Input) Result {
	subject := Subject{Kind: KindCluster, Name: in.Cluster.Name}
	kind, why := in.IPAM()
	switch kind {
	case ipam.NoIPAM:
		return Result{Findings: []Finding{{
			Severity: Low, Subject: subject, Title: "Calico gives out no addresses in this cluster",
			Detail:      upperFirst(why) + ". The checks of blocks and addresses do not apply; take the cluster out of the audit if this is intended.",
			Remediation: []Step{whichIPAMStep(commandsFor(in.Snapshot))},
		}}}
	case ipam.HostLocal:
		severity, waiting := Low, 0
		for i := range in.Pods {
			if in.Pods[i].WaitsForAddress() {
				waiting++
			}
		}
		detail := upperFirst(why) + ". The checks of blocks and addresses do not apply; Calico's IPAM objects that may exist here say nothing about the pods."
		if waiting > 0 {
			severity = Medium
			detail += fmt.Sprintf(" %s an address from host-local.", count(uint64(waiting), "pod")+" waiting for")
		}
		return Result{Findings: []Finding{{
			Severity: severity, Evidence: Inferred, Subject: subject, Title: "Addresses come from host-local, not from Calico IPAM",
			Detail: detail,
			Remediation: []Step{whichIPAMStep(commandsFor(in.Snapshot)), {Title: "host-local keeps its leases on each node, one file per address", Commands: []string{countLeases("NODE")},
				Risk: Safe, Verify: "Fewer files than addresses in the node's podCIDR."}},
		}}}
	case ipam.UnknownIPAM:
		return Result{Unseen: []string{"anything to tell the IPAM from (" + why + ")"}}
	case ipam.CalicoIPAM:
	}
	if !in.Coverage.Read(ipam.ResBlocks) {
		return Result{Unseen: []string{string(ipam.ResBlocks)}}
	}
	if lost, figures := in.DataLost(); lost {
		return Result{Findings: []Finding{{
			Severity: Critical, Subject: subject, Title: "Calico IPAM data was reset or has vanished under running pods",
			Detail:      upperFirst(figures) + ". IPAM may give the addresses of running pods to new ones, and nodes may withdraw the routes of their blocks. The findings per address are left out.",
			Remediation: dataLostSteps(commandsFor(in.Snapshot)),
		}}}
	}
	return Result{}
}

// dataLostSteps: one look, then the lock, before anything else is found out:
// every pod that starts may take an address in use. What is restored refers to
// what was restored before it.
func dataLostSteps(c commands) []Step {
	restore := func(resources ...ipam.Resource) string {
		var names []string
		for _, r := range resources {
			names = append(names, string(r))
		}
		files := strings.Join(names, ".yaml ") + ".yaml"
		// A kubectl that validates by itself (before v1.27, and while the API server has not
		// published the schema) refuses the nulls by which a block marks its free addresses.
		return "ls " + files + " && for F in " + files + "; do   # as kubectl get -o yaml wrote them, in this order\n" +
			"  sed -E '/^ +(resourceVersion|uid|creationTimestamp|generation): /d' \"$F\" | kubectl create --validate=false -f - || break\ndone"
	}
	return []Step{
		{
			Title: "See that it is so. Do not restart calico-node or pods yet: what runs has its routes still",
			Commands: []string{
				// AGE shows whether they are younger than the pods.
				"kubectl get " + c.resource(ipam.ResPools) + "," + c.resource(ipam.ResBlocks) + "," + c.resource(ipam.ResAffinities),
			},
			Risk: Safe, Verify: "Pools or blocks are missing under running pods.",
		},
		{
			Title:    "At once, before anything is found out: lock the datastore, so that no new pod takes an address in use (no pod can start meanwhile)",
			Commands: []string{"calicoctl datastore migrate lock"},
			Risk:     Disruptive, Verify: "kubectl get " + c.resource(ipam.ResClusterInfo) + " default -o jsonpath='{.spec.datastoreReady}'   # false",
		},
		{
			Title:    "Now find out who removed them (an operator, a chart, a restore), stop it, and look for a backup",
			Commands: []string{"kubectl get events -A --sort-by=.lastTimestamp | tail -50"},
			Risk:     Safe, Verify: "Nothing removes them again, and you know what backup there is: of etcd, of a tool like Velero, or what kubectl get -o yaml once wrote.",
		},
		{
			Title: "Restore pools, blocks, affinities and handles, in this order. A snapshot of ipamaudit is no such backup: it shows which pools, owners and records there were, but blocks lack their sequence numbers and pools what the audit does not need. " +
				"Without any backup make the pools again as they were",
			Commands: []string{restore(ipam.ResPools, ipam.ResBlocks, ipam.ResAffinities, ipam.ResHandles)},
			Risk:     Disruptive, Verify: "calicoctl ipam check   # in-use IPs without an allocation: those of pods younger than the backup, or all without one",
		},
		{
			Title:    "Only when pools and blocks are back: unlock, and at once recreate, node by node, the pods that the check still lists: until then their addresses may be given out again",
			Commands: []string{"calicoctl ipam check --show-problem-ips", c.unlock()},
			Risk:     Disruptive, Verify: "calicoctl ipam check   # no in-use address without an allocation",
		},
	}
}

// whichIPAMStep asks what the CNI configuration says.
func whichIPAMStep(c commands) Step {
	return Step{
		Title:    "See which IPAM the cluster is configured with; on a node it stands under ipam in the CNI configuration",
		Commands: append(c.whichIPAM(), "grep -A3 ipam /etc/cni/net.d/*.conflist   # on a node"),
		Risk:     Safe, Verify: "It names the IPAM that you expect here.",
	}
}
