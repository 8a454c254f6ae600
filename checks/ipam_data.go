package checks

import (
	"fmt"

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
			Remediation: []Step{{Title: "If Calico IPAM is expected here, see what the CNI configuration says on a node", Commands: []string{"cat /etc/cni/net.d/*.conflist"}, Risk: Safe, Verify: `"ipam": {"type": "calico-ipam"}`}},
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
			Remediation: []Step{{Title: "host-local keeps its leases on each node, one file per address", Commands: []string{"ls /var/lib/cni/networks/*/ | wc -l   # on the node"},
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

func dataLostSteps(c commands) []Step {
	return []Step{
		{
			Title: "See what is left, and who removed the rest (an operator, a chart, a restore)",
			Commands: []string{
				"kubectl get " + c.resource(ipam.ResPools) + "," + c.resource(ipam.ResBlocks) + "," + c.resource(ipam.ResAffinities),
				"kubectl get events -A --sort-by=.lastTimestamp | tail -50",
			},
			Risk: Safe, Verify: "You know whether a backup of these objects exists.",
		},
		{
			Title:    "Stop new pods from taking addresses in use: lock the datastore (no pod can start meanwhile)",
			Commands: []string{"calicoctl datastore migrate lock"},
			Risk:     Disruptive, Verify: "kubectl get " + c.resource(ipam.ResClusterInfo) + " default -o jsonpath='{.spec.datastoreReady}'   # false",
		},
		{
			Title:    "Restore the pools, blocks, affinities and handles from a backup; without one restore the pools, unlock, and recreate every pod node by node",
			Commands: []string{"calicoctl datastore migrate unlock"},
			Risk:     Disruptive, Verify: "calicoctl ipam check   # no in-use address without an allocation",
		},
	}
}
