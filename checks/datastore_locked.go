package checks

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"ipamaudit/ipam"
)

// datastoreLocked finds a datastore that is closed to the CNI plug-in.
func datastoreLocked() Check {
	return Check{
		ID:          "datastore-locked",
		Title:       "Calico's datastore is locked",
		SubjectKind: KindCluster,
		What: "ClusterInformation `default` says `datastoreReady: false`. Clean-up and migrations lock the datastore for minutes; " +
			"an upgrade that was interrupted leaves it locked.",
		Why: "While it is locked no pod in the cluster can start or give its address back, garbage collection stands still, and calico-node waits when it restarts. " +
			"What runs goes on running, so it can go unnoticed until the next deployment.",
		How: "The field itself; and whether pods wait for an address for more than `settle`, or have events that say that Calico is not ready. " +
			"One look cannot tell a clean-up from a lock that was forgotten: the second one can.",
		SeverityNote: "Medium at first; critical with pods waiting, or in the second run in a row.",
		Needs:        []ipam.Resource{ipam.ResClusterInfo},
		Uses:         []ipam.Resource{ipam.ResPods, ipam.ResEvents},
		SecondLook:   "that a lock was forgotten while no pod waits",
		Params:       []Param{{Name: "settle", Type: "duration", Default: "2m", Doc: "pods younger than this do not count as waiting"}},
		Example:      func() []Step { return unlockSteps(exampleCommands()) },
		Cases: func() []Case {
			return []Case{
				{When: "No calico-node pod is in its init containers: somebody works on it, or forgot to unlock", Steps: unlockSteps(exampleCommands())},
				{When: "calico-node pods stay in `Init:`: an upgrade or a migration stopped half-way", Steps: slices.Insert(unlockSteps(exampleCommands()), 1, halfWayStep())},
			}
		},
		Sign: "It is this where the first line begins with `false`; then it says which program locked it, and when. A calico-node pod in `Init:` means an upgrade that is not done.",
		Related: []Related{
			{"ipam-data", "Was it locked because pools or blocks vanished (then restore them before you unlock)?"},
			{"stuck-pods", "Is datastoreReady true, and pods still do not start?"},
			{"ipam-gc", "Is datastoreReady true, and leaks stay?"},
		},
		References: []string{
			"https://github.com/projectcalico/cni-plugin/issues/990", "https://github.com/rancher/rancher/issues/23788",
			"https://github.com/projectcalico/cni-plugin/issues/749", "https://github.com/projectcalico/calico/issues/5004",
			"cni-plugin/pkg/plugin/plugin.go (datastoreReady)", "kube-controllers/pkg/controllers/node/ipam.go (datastore is locked, skipping ipam sync)",
		},
		Run: runDatastoreLocked,
	}
}

// notReadyText is what the CNI plug-in answers while the datastore is locked.
const notReadyText = "Calico is currently not ready to process requests"

func runDatastoreLocked(in *Input) Result {
	if in.Info.Ready {
		return Result{}
	}
	f := Finding{
		Severity: Medium, IfItStays: Critical, SecondLook: true,
		Subject:     Subject{Kind: KindCluster, Name: in.Cluster.Name},
		Title:       "Calico's datastore is locked: no pod can start",
		Affected:    []Affected{{Kind: KindCluster, Name: in.Cluster.Name, Note: "ClusterInformation default: datastoreReady false"}},
		Remediation: unlockSteps(commandsFor(in.Snapshot)),
	}
	detail := []string{"ClusterInformation default says datastoreReady: false. Calico's CNI plug-in refuses every pod that starts or stops, and the collector of leaked addresses skips its rounds"}
	settle, stuck, said := in.Params.Duration("settle"), 0, 0
	for i := range in.Pods {
		p := &in.Pods[i]
		if !p.WaitsForAddress() {
			continue
		}
		event := eventSays(in, p, notReadyText)
		if !event && !p.Created.IsZero() && in.Now.Sub(p.Created) < settle {
			continue
		}
		stuck++
		note := "waits for an address on " + p.NodeName
		if event {
			said++
			note += "; its events say that Calico is not ready"
		}
		f.Affected = append(f.Affected, Affected{Kind: KindPod, Namespace: p.Namespace, Name: p.Name, Note: note})
	}
	if stuck > 0 {
		f.Severity, f.SecondLook = Critical, false
		detail = append(detail, fmt.Sprintf("%s for an address, %d with events that say why", count(uint64(stuck), "pod")+" waiting", said))
	} else {
		detail = append(detail, "No pod was seen waiting: it may be a clean-up that is going on right now")
	}
	f.Detail = strings.Join(detail, ". ") + "."
	res := Result{Findings: []Finding{f}}
	if !in.Coverage.Read(ipam.ResPods) {
		res.Unseen = []string{"pods, to tell whether some are waiting"}
	}
	return res
}

// unlockSteps open the datastore again, once nobody works on it.
func unlockSteps(c commands) []Step {
	return []Step{
		{
			Title: "Ask whether somebody is cleaning up or migrating right now, and see that no upgrade is half-way: its init container (upgrade-ipam) locks, too",
			Commands: []string{
				"kubectl get " + c.resource(ipam.ResClusterInfo) + " default -o jsonpath='{.spec.datastoreReady} {.metadata.managedFields[*].manager} {.metadata.managedFields[*].time}{\"\\n\"}'",
				"kubectl get pods -A -l k8s-app=calico-node -o wide",
			},
			Risk: Safe, Verify: "Nobody does, and no calico-node pod is in its init containers.",
		},
		{
			Title:    "Before you unlock see that IPAM knows the addresses of all that runs",
			Commands: []string{"calicoctl ipam check --show-problem-ips | grep -E 'no (IPAM|corresponding IPAM) allocation'   # no answer at all: calicoctl is not of the cluster's version"},
			Risk:     Safe, Verify: "It counts 0. What it lists may be given out once more as soon as the datastore is open: with few of them recreate these pods at once (unallocated-pod-ips), with many leave it locked (ipam-data).",
		},
		{
			Title:    "Unlock the datastore",
			Commands: []string{c.unlock()},
			Risk:     Disruptive, Verify: "kubectl get " + c.resource(ipam.ResClusterInfo) + " default -o jsonpath='{.spec.datastoreReady}'   # true; pods that waited start within a minute or two",
		},
		{
			Title:    "Only where calicoctl is not at hand: the same with kubectl",
			Commands: []string{"kubectl patch " + c.resource(ipam.ResClusterInfo) + ` default --type merge -p '{"spec":{"datastoreReady":true}}'`},
			Risk:     Disruptive, Verify: "kubectl get " + c.resource(ipam.ResClusterInfo) + " default -o jsonpath='{.spec.datastoreReady}'   # true",
		},
	}
}

// halfWayStep looks why upgrade-ipam does not get through. It locks the
// datastore, books what host-local had given out on its node, and unlocks; when
// it fails it starts over (cni-plugin/pkg/upgrade/migrate.go).
func halfWayStep() Step {
	return Step{
		Title:    "Read why it does not get through, and mend that: it tries again by itself, and unlocks when it is done",
		Commands: []string{"kubectl -n NAMESPACE logs CALICO-NODE-POD -c upgrade-ipam --tail=20"},
		Risk:     Safe, Verify: "The pod leaves Init, and the datastore is ready; then nothing is left to do. Only where it cannot get through go on.",
	}
}

// older reports whether t is known and at least age before the snapshot.
func older(in *Input, t time.Time, age time.Duration) bool {
	return !t.IsZero() && in.Now.Sub(t) >= age
}
