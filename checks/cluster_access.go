package checks

import (
	"fmt"
	"strings"
)

// ClusterAccessID is the check whose findings the runner makes itself: where a
// cluster could not be read there is no snapshot to look at.
const ClusterAccessID = "cluster-access"

// accessCriticalNights is how many nights in a row without an audit are critical.
const accessCriticalNights = 3

func clusterAccess() Check {
	return Check{
		ID:          ClusterAccessID,
		Title:       "Clusters that could not be audited",
		SubjectKind: KindCluster,
		What:        "A cluster that gave no answer, refused the credentials, took longer than its timeout, or whose saved snapshot cannot be read.",
		Why: "A cluster that is silent because nobody could look at it is indistinguishable from a healthy one, unless somebody says so. " +
			"Until it can be read again every problem it had is unknown: nothing is reported as resolved and no ticket is closed.",
		How: "The runner collects every cluster with its own client and timeout. When that fails as a whole, this finding stands in place of the checks. " +
			"A cluster of which some resources could not be read is audited as far as possible: the checks that need them are unknown, and this finding is not made.",
		SeverityNote: fmt.Sprintf("high; critical from the %s night in a row. A run that is repeated under the same run id is the same night.", ordinal(accessCriticalNights)),
		AnyIPAM:      true,
		Example: func() []Step {
			return accessSteps(AccessFailure{Cluster: "CLUSTER", Kubectl: "kubectl --context CONTEXT"})
		},
		Sign: "“readyz check passed”: the API server answers, and it is credentials or rights. A timeout: the network, a firewall or the address in the kubeconfig. A certificate error: its CA.",
		Related: []Related{
			{"ipam-data", "Does the API server answer, and Calico's blocks are not there?"},
			{"datastore-locked", "Does it answer, and no pod starts?"},
		},
		References: []string{"https://kubernetes.io/docs/reference/using-api/health-checks/"},
		Run:        func(*Input) Result { return Result{Skip: "made by the runner"} },
	}
}

// AccessFailure is what is known of a cluster that could not be audited.
type AccessFailure struct {
	Cluster, Error string
	// Nights in a row, this one included.
	Nights int
	// Kubectl is how people reach the cluster; empty means by its name.
	Kubectl string
	// Saved is the path of the snapshot that could not be read; empty for a live cluster.
	Saved string
}

// ClusterAccessFinding is the finding of ClusterAccessID.
func ClusterAccessFinding(a AccessFailure) Finding {
	f := Finding{
		Check: ClusterAccessID, Severity: High, Evidence: Observed,
		Subject: Subject{Kind: KindCluster, Name: a.Cluster},
		Title:   "The cluster could not be audited",
		Detail: fmt.Sprintf("The audit failed: %s. It is the %s night in a row. What was known of this cluster before is unknown until it can be read again.",
			strings.TrimRight(a.Error, ". \n"), ordinal(max(a.Nights, 1))),
		Affected:    []Affected{{Kind: KindCluster, Name: a.Cluster}},
		Remediation: accessSteps(a),
	}
	if a.Nights >= accessCriticalNights {
		f.Severity = Critical
	}
	normalise(&f)
	return f
}

func accessSteps(a AccessFailure) []Step {
	if a.Saved != "" {
		return []Step{{
			Title:    "See whether the saved snapshot is there and whole; if it is not, take a new one with ipamaudit snapshot",
			Commands: []string{"ls -l -- " + Quote(a.Saved), "ipamaudit run --from " + Quote(a.Saved)},
			Risk:     Safe,
			Verify:   "The last line of ipamaudit run no longer names this cluster as failed.",
		}}
	}
	kubectl := a.Kubectl
	if kubectl == "" {
		kubectl = "kubectl --context " + Quote(a.Cluster)
	}
	return []Step{
		{
			Title:    "See whether the API server answers, from where the auditor runs",
			Commands: []string{kubectl + " get --raw '/readyz?verbose'"},
			Risk:     Safe,
			Verify:   "It prints “readyz check passed”. A timeout points to the network, a firewall or the address in the kubeconfig; a certificate error to its CA.",
		},
		{
			Title: "Check the credentials: whether they have expired, and what they may read",
			Commands: []string{
				kubectl + " auth can-i --list",
				"ipamaudit doctor",
			},
			Risk:   Safe,
			Verify: "doctor says that every resource of this cluster can be read. “Unauthorized” means that the token or certificate has to be renewed; “forbidden” that the ClusterRole is missing.",
		},
		{
			Title:    "Audit again",
			Commands: []string{again("")},
			Risk:     Safe,
			Verify:   "The cluster is complete in the report; the next run that remembers (--notify or --save-state) reports this finding as resolved.",
		},
	}
}

// ordinal prints "1st", "2nd", "3rd", "11th".
func ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprintf("%d%s", n, suffix)
}
