package checks

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"ipamaudit/ipam"
)

// misbookedIPs finds live addresses that the collector will take for leaked.
func misbookedIPs() Check {
	return Check{
		ID:          "misbooked-ips",
		Title:       "Addresses in use that are booked for another node or another pod",
		SubjectKind: KindCluster,
		What: "A running pod has an address that IPAM has booked for it under another node's name, as a re-imaged machine with a stale nodename file does, " +
			"or that IPAM has booked for another pod.",
		Why: "Calico's collector believes the record: it sees a pod that has moved or gone, frees the address about 15 minutes later, and IPAM gives it to the next pod while the first one still uses it.",
		How: "The record names a pod and a node; the running pod that has the address decides. Names of nodes are compared as Calico maps them, and without regard to case. " +
			"Records of virtual machines, tunnels and Services, records that name no pod (nothing collects them), pods younger than `minAge`, pods that are being deleted, and pods whose record is right are left alone. It is not the same as a borrowed address, which is booked for the right node.",
		SeverityNote: "Always critical: a live address may be given out twice.",
		Skewed:       true,
		Needs:        []ipam.Resource{ipam.ResBlocks, ipam.ResPods},
		Uses:         []ipam.Resource{ipam.ResNodes, ipam.ResCalicoNodes, ipam.ResKubeCtrl, ipam.ResClusterInfo, ipam.ResDaemonSets},
		Params:       []Param{{Name: "minAge", Type: "duration", Default: "10m", Doc: "age below which a pod is not judged, since blocks and pods are read one after the other"}},
		Example: func() []Step {
			return misbookedSteps(exampleCommands(), &Input{Snapshot: ipam.NewSnapshot()}, []string{"NODE"}, []string{"ADDRESS"}, []*ipam.Pod{{Namespace: "NAMESPACE", Name: "POD", OwnerKind: "ReplicaSet"}})
		},
		Sign: "It is this where a running pod has the address and `ipam show` names another pod or node. **The collector may free such an address within minutes.**",
		Related: []Related{
			{"duplicate-ips", "Do two running pods have the address already?"},
			{"borrowed-ips", "Is the record right, and only the block another node's?"},
			{"leaked-ips", "Does no running pod have the address, and no node's tunnel?"},
		},
		References: []string{
			"https://github.com/projectcalico/calico/issues/12257", "https://github.com/projectcalico/calico/pull/13538",
			"https://github.com/projectcalico/calico/issues/8180", "https://github.com/projectcalico/kube-controllers/issues/412",
			"kube-controllers/pkg/controllers/node/ipam.go (allocationIsValid)",
		},
		Run: runMisbookedIPs,
	}
}

func runMisbookedIPs(in *Input) Result {
	if namesDoNotMatch(in) {
		return Result{Unseen: []string{unmatchedNames}}
	}
	var rows []Affected
	var pods []*ipam.Pod
	var nodes, ips []string
	otherNode, otherPod, lost := 0, 0, unreadable(in, "Pod")
	for i := range in.Blocks {
		for a := range in.Blocks[i].Allocations() {
			h := in.Holder(a)
			p := h.Pod
			if h.Kind != ipam.HeldByPod && h.Kind != ipam.HeldByOtherPod || a.Attr.Pod == "" || a.Attr.VMI != "" || p.VMI != "" || !runsHere(in, p) || !slices.Contains(usedIPs(p), a.IP) ||
				!p.Created.IsZero() && in.Now.Sub(p.Created) < in.Params.Duration("minAge") {
				continue
			}
			var note string
			switch recorded := in.KubernetesName(a.Attr.Node); {
			case h.Kind == ipam.HeldByOtherPod && lost[a.Attr.Namespace+"/"+a.Attr.Pod]:
				continue // it is there, and may have the address as well
			case h.Kind == ipam.HeldByOtherPod:
				otherPod++
				note = "booked for pod " + a.Attr.Namespace + "/" + a.Attr.Pod
				if recorded != "" {
					note += " on " + recorded
				}
			case recorded != "" && !strings.EqualFold(recorded, p.NodeName):
				otherNode++
				nodes = ifNot(nodes, p.NodeName)
				note = "booked for node " + recorded
			default:
				continue
			}
			pods, ips = append(pods, p), append(ips, a.IP.String())
			rows = append(rows, Affected{Kind: KindIP, Name: a.IP.String(), Note: podNote(p) + ", " + note + ", in block " + a.Block.CIDR.String()})
		}
	}
	if len(rows) == 0 {
		return Result{}
	}
	detail := []string{plain(len(rows), "address in use is", "addresses in use are") + " not booked for the pod and node that use them"}
	if otherNode > 0 {
		slices.Sort(nodes)
		detail = append(detail, fmt.Sprintf("%s booked for another node than the one that the pod runs on (%s): a stale /var/lib/calico/nodename is the usual cause", plain(otherNode, "is", "are"), names(nodes, 5)))
	}
	if otherPod > 0 {
		detail = append(detail, plain(otherPod, "is", "are")+" booked for another pod than the one that runs with it")
	}
	if grace := in.KubeCtrl.LeakGracePeriod; grace > 0 {
		detail = append(detail, fmt.Sprintf("The collector frees such an address %s after it first sees it, at once where the recorded node does not exist", grace.Round(time.Second)))
	}
	return Result{Findings: []Finding{{
		Severity: Critical,
		Subject:  Subject{Kind: KindCluster, Name: in.Cluster.Name},
		Title:    "Addresses in use are booked for another node or pod, and Calico will free them",
		Detail:   strings.Join(detail, ". ") + ".",
		Affected: rows, Remediation: misbookedSteps(commandsFor(in.Snapshot), in, nodes, ips, pods),
	}}}
}

// misbookedSteps: keep the collector off, make the node book under its own
// name, then recreate the pods, then let the collector work again. Without the
// first step the pods may lose their addresses halfway.
func misbookedSteps(c commands, in *Input, nodes, ips []string, pods []*ipam.Pod) []Step {
	look := Step{
		Title:    "See for which pod and node the addresses are booked, and which pods run with them",
		Commands: []string{"kubectl get " + c.resource(ipam.ResBlocks) + " -o yaml | grep -E 'cidr:|node:|pod:'", "kubectl get pods -A -o wide --field-selector=status.phase=Running"},
		Risk:     Safe, Verify: "The records still name another node or pod than the one that runs.",
	}
	if len(ips) > 0 {
		look.Commands = nil
		for _, ip := range ips[:min(len(ips), 3)] {
			look.Commands = append(look.Commands, "calicoctl ipam show --ip="+ip, podWith(ip))
		}
	}
	steps := []Step{look}
	grace := in.KubeCtrl.LeakGracePeriod
	period := "kubectl get " + c.resource(ipam.ResKubeCtrl) + " default -o jsonpath='{.spec.controllers.node.leakGracePeriod}'"
	hold := grace > 0 && !c.version.Lacks(ipam.GracePeriodSetting)
	if hold {
		steps = append(steps, Step{
			Title:    "Only if step 1 shows a running pod with the address: keep the collector from freeing it meanwhile. It is off for the whole cluster then, so leaks pile up until the last step",
			Commands: []string{period + "   # write it down; empty means 15m0s", c.leakGracePeriod(0)},
			Risk:     Disruptive, Verify: period + "   # 0s",
		})
	}
	if len(nodes) > 0 {
		s := Step{
			Title: "Make the node book under its own name: look at its nodename file; calico-node writes it anew when it starts",
			Risk:  Disruptive, Verify: "The file holds the name of the node.",
		}
		for _, n := range nodes[:min(len(nodes), commandLimit)] {
			s.Commands = append(s.Commands,
				"kubectl debug node/"+Quote(n)+" -it --image=busybox -- cat /host/var/lib/calico/nodename   # starts a pod there, and must print "+Quote(n),
				restartAgent(n))
		}
		steps = append(steps, s)
	}
	// A fixed address is given back and booked again, for the right node.
	owned := slices.DeleteFunc(sortedPods(pods), func(p *ipam.Pod) bool { return p.OwnerKind == "" || p.OwnerKind == "Node" })
	if _, bare, _ := recreate(c, pods, 0); len(owned)+len(bare) > 0 {
		steps = append(steps, Step{
			Title: "Recreate the pods: they come back with addresses that are booked for them" + leftOver(bare, nil),
			Risk:  Disruptive, Commands: c.evict(owned, commandLimit), Verify: "calicoctl ipam show --ip=ADDRESS   # for each new one: the record names the node that the pod runs on",
		})
	}
	if hold {
		steps = append(steps, Step{
			Title:    "If you switched the collector off: switch it on again, with the value that it had",
			Commands: []string{c.leakGracePeriod(grace) + "   # what step 2 printed"},
			Risk:     Safe, Verify: period + "   # " + grace.String(),
		})
	}
	return steps
}
