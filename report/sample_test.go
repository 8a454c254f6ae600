package report

import (
	"fmt"
	"time"

	"ipamaudit/audit"
	"ipamaudit/checks"
	"ipamaudit/ipam"
)

// sample is a fleet of six with everything that a report can hold: a cluster
// that failed, the kubestage story of phabricator.wikimedia.org/T296303, a
// partial cluster whose names were chosen by an enemy, one with hygiene only,
// and two healthy ones.
func sample() *audit.Report {
	start := time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)
	return &audit.Report{
		Schema:   audit.Schema,
		Run:      audit.RunInfo{ID: "2026-11-30", StartedAt: start, FinishedAt: start.Add(14200 * time.Millisecond), Version: "v0.1.0"},
		Clusters: []audit.ClusterReport{hygiene(), kubestage(), labGone(), nasty(), healthy("prod-eu-1", 40, 1204), healthyNoRoutes()},
		Totals:   audit.Totals{Critical: 1, High: 5, Medium: 2, Low: 2, ClustersFailed: 1, ChecksUnknown: 4},
		Notices:  []string{`cluster "lab-2" is another cluster than in the last run`},
		Suppressions: []audit.SuppressionNotice{{
			Check: "multi-block-nodes", Cluster: "lab-*", Subject: "*", Owner: "team-network", Until: at("2026-11-01T23:59:59Z"),
			State: audit.SuppressionExpired, Origin: "suppressions[0] (config.yaml:57)",
		}},
	}
}

func healthy(name string, nodes, pods int) audit.ClusterReport {
	return audit.ClusterReport{
		Name: name, ID: "7d0b2c0e-0000-4000-8000-" + name, Status: audit.Complete, AsOf: at("2026-11-30T08:00:05Z"),
		Labels: map[string]string{"team": "platform", "environment": "prod"},
		Coverage: audit.CoverageReport{
			Resources: readAll(), Routes: audit.RouteCoverage{Nodes: nodes, Source: "files"}},
		Calico: audit.CalicoReport{Version: "v3.32.1", API: "projectcalico.org/v3", IPAM: "calico-ipam", StrictAffinity: true, MaxBlocksPerHost: 20},
		Pools: []audit.PoolReport{{Name: "default-ipv4-ippool", CIDR: "10.244.0.0/16", BlockSize: 26, Addresses: 65536, Reserved: 64,
			Allocated: uint64(pods), CoolingDown: 12, Available: uint64(65536 - 64 - 12 - pods), Blocks: 1024, BlocksClaimed: uint64(nodes), BlocksFree: uint64(1023 - nodes)}},
		Nodes: nodes, Pods: pods,
		Checks: []audit.CheckReport{ok("blackholed-routes"), ok("blockless-nodes"), ok("borrowed-ips"), ok("multi-block-nodes"), ok("pool-utilisation")},
	}
}

func healthyNoRoutes() audit.ClusterReport {
	c := healthy("prod-eu-2", 12, 310)
	c.Coverage.Routes = audit.RouteCoverage{}
	c.Checks[0] = audit.CheckReport{ID: "blackholed-routes", Status: checks.StatusUnknown,
		Reason: "not seen: route tables of 12 nodes", Unseen: []string{"route tables of 12 nodes"}}
	suppressed := finding("multi-block-nodes", c.ID, checks.Medium, checks.KindNode, "worker-07")
	suppressed.Title = "Node owns more blocks than its pods need"
	suppressed.Suppressed = &audit.Suppression{Reason: "burst pool, agreed in CHG-1042", Owner: "team-net", Until: "2026-12-31"}
	second := suppressed
	second.Subject.Name, second.Fingerprint = "worker-08", checks.Fingerprint("multi-block-nodes", c.ID, checks.Subject{Kind: checks.KindNode, Name: "worker-08"})
	resolved := finding("borrowed-ips", c.ID, checks.Medium, checks.KindNode, "worker-03")
	resolved.Title, resolved.State = "Node runs pods on addresses of other nodes' blocks", audit.StateResolved
	c.Findings = []audit.Finding{suppressed, second, resolved}
	return c
}

// hygiene is a cluster with nothing above low.
func hygiene() audit.ClusterReport {
	c := healthy("dev", 3, 41)
	c.Calico.StrictAffinity = false
	f := finding("multi-block-nodes", c.ID, checks.Low, checks.KindNode, "dev-2")
	f.Title = "Node dev-2 owns more blocks than it needs"
	f.Detail = "dev-2 owns 2 blocks of default-ipv4-ippool for 14 live addresses; 1 would do. 1,019 blocks are free."
	f.Remediation = []checks.Step{{Title: "Nothing to do while the pool is roomy", Risk: checks.Safe}}
	c.Findings = []audit.Finding{f}
	c.Checks[3] = found("multi-block-nodes")
	return c
}

func kubestage() audit.ClusterReport {
	const id = "bbc3c390-e997-4f15-b8d7-4b8579a275a4"
	pool := finding("pool-utilisation", id, checks.High, checks.KindPool, "kubestage-pods")
	pool.Title = "Pool kubestage-pods has no free block"
	pool.Detail = "0 of 4 blocks are free while 32 of 256 addresses (12 %) are used. The next node that joins gets no block.\n" +
		"4 nodes × 16 pods per node × 1.5 asks for 96 addresses in at least 4 blocks; 2 nodes hold 2 blocks each."
	pool.Affected = []checks.Affected{
		{Kind: checks.KindNode, Name: "kubestage1003", Note: "no block, 5 borrowed addresses"},
		{Kind: checks.KindNode, Name: "kubestage1004", Note: "no block, 5 borrowed addresses"}}
	pool.Remediation = []checks.Step{addPool(), strictAffinity()}

	hole := finding("blackholed-routes", id, checks.Critical, checks.KindNode, "kubestage1001")
	hole.Title = "Node kubestage1001 drops traffic to addresses of running pods"
	hole.Detail = "The longest match for each of these addresses in the table of kubestage1001 is a blackhole: 10.64.75.0/26 and 10.64.75.64/26, " +
		"both proto bird. kubestage1001 owns the blocks and knows no /32 for what others borrowed out of them; the node mesh is off."
	hole.Affected = []checks.Affected{
		{Kind: checks.KindIP, Name: "10.64.75.0", Note: "lab/kubestage1003-app-000 on kubestage1003; blackhole 10.64.75.0/26"},
		{Kind: checks.KindIP, Name: "10.64.75.70", Note: "lab/kubestage1003-app-070 on kubestage1003; blackhole 10.64.75.64/26"},
		{Kind: checks.KindIP, Name: "10.64.75.71", Note: "lab/kubestage1003-app-071 on kubestage1003; blackhole 10.64.75.64/26"},
		{Kind: checks.KindIP, Name: "10.64.75.72", Note: "lab/kubestage1003-app-072 on kubestage1003; blackhole 10.64.75.64/26"},
		{Kind: checks.KindIP, Name: "10.64.75.73", Note: "lab/kubestage1003-app-073 on kubestage1003; blackhole 10.64.75.64/26"},
		{Kind: checks.KindIP, Name: "10.64.75.74", Note: "lab/kubestage1004-app-074 on kubestage1004; blackhole 10.64.75.64/26"},
		{Kind: checks.KindIP, Name: "10.64.75.75", Note: "lab/kubestage1004-app-075 on kubestage1004; blackhole 10.64.75.64/26"}}
	hole.CausedBy = []string{pool.Fingerprint}
	hole.Remediation = []checks.Step{addPool(), recreate("kubestage1003-app-000"), strictAffinity()}

	out := []audit.Finding{hole, pool}
	for _, node := range []string{"kubestage1003", "kubestage1004"} {
		f := finding("blockless-nodes", id, checks.High, checks.KindNode, node)
		f.Title = "Node " + node + " owns no block and none is free"
		f.Detail = node + " is Ready, runs 5 pods with borrowed addresses and owns no block of kubestage-pods; 0 of 4 blocks are free."
		f.CausedBy = []string{pool.Fingerprint}
		f.Remediation = []checks.Step{addPool(), recreate(node + "-app-000")}
		out = append(out, f)
	}
	borrowed := finding("borrowed-ips", id, checks.High, checks.KindNode, "kubestage1003")
	borrowed.Title, borrowed.Evidence = "Node kubestage1003 borrows addresses from other nodes' blocks", checks.Inferred
	borrowed.State, borrowed.FirstSeen = audit.StateChanged, at("2026-11-27T08:00:00Z")
	borrowed.Previous = &audit.Previous{Severity: checks.Medium, Affected: 2}
	borrowed.Detail = "5 addresses out of 2 blocks of kubestage1001: no block was free and strict affinity is off."
	borrowed.Affected = []checks.Affected{{Kind: checks.KindIP, Name: "10.64.75.0", Note: "lab/kubestage1003-app-000, block 10.64.75.0/26 of kubestage1001"}}
	borrowed.Remediation = []checks.Step{recreate("kubestage1003-app-000"), strictAffinity()}
	for _, node := range []string{"kubestage1001", "kubestage1002"} {
		f := finding("multi-block-nodes", id, checks.Medium, checks.KindNode, node)
		f.Title, f.State, f.FirstSeen = "Node "+node+" owns more blocks than it needs", audit.StateOngoing, at("2026-11-21T08:00:00Z")
		f.Runs = 9
		f.Detail = node + " owns 2 blocks of kubestage-pods for 16 live addresses; 1 would do."
		f.Remediation = []checks.Step{{Title: "See which pods keep the second block", Risk: checks.Safe,
			Commands: []string{"calicoctl ipam show --show-blocks"}, Verify: "calicoctl ipam show --show-blocks lists one block for " + node}}
		out = append(out, f)
	}
	out = append(out, borrowed)
	return audit.ClusterReport{
		Name: "kubestage", ID: id, Status: audit.Complete, AsOf: at("2026-11-30T07:50:00Z"), Labels: map[string]string{"team": "serviceops"},
		Coverage: audit.CoverageReport{Resources: readAll(), Routes: audit.RouteCoverage{Nodes: 4, Source: "files"}},
		Calico:   audit.CalicoReport{Version: "v3.33.0", API: "crd.projectcalico.org/v1", IPAM: "calico-ipam", MaxBlocksPerHost: 20},
		Pools: []audit.PoolReport{{Name: "kubestage-pods", CIDR: "10.64.75.0/24", BlockSize: 26, Addresses: 256, Allocated: 32,
			Available: 224, Blocks: 4, BlocksClaimed: 4}},
		Nodes: 4, Pods: 32,
		Checks: []audit.CheckReport{found("blackholed-routes"), found("blockless-nodes"), found("borrowed-ips"),
			found("multi-block-nodes"), found("pool-utilisation")},
		Findings: out,
	}
}

func labGone() audit.ClusterReport {
	c := audit.ClusterReport{Name: "lab-gone", ID: "lab-gone", Status: audit.Failed,
		Error: `list ippools: Get "https://192.0.2.10:6443/apis/crd.projectcalico.org/v1/ippools?limit=500": dial tcp 192.0.2.10:6443: connect: connection refused`,
	}
	f := finding("cluster-access", c.ID, checks.High, checks.KindCluster, "lab-gone")
	f.Title = "Cluster lab-gone could not be audited"
	f.State, f.FirstSeen, f.Runs = audit.StateOngoing, at("2026-11-29T08:00:00Z"), 2
	f.Detail = "The API server did not answer for the second night in a row; what was found before still stands."
	f.Remediation = []checks.Step{
		{Title: "Ask the API server from where the audit runs", Risk: checks.Safe,
			Commands: []string{"kubectl --context lab-gone get --raw /readyz"}, Verify: "it answers ok"},
		{Title: "Repeat the audit of this cluster", Risk: checks.Safe,
			Commands: []string{"ipamaudit run --context lab-gone"}, Verify: "its status is complete"}}
	stale := finding("pool-utilisation", c.ID, checks.High, checks.KindPool, "lab-pool")
	stale.Title, stale.State, stale.FirstSeen = "Pool has no free block", audit.StateUnknown, at("2026-11-20T08:00:00Z")
	c.Findings = []audit.Finding{f, stale}
	c.Checks = []audit.CheckReport{unread("blackholed-routes"), unread("pool-utilisation"), found("cluster-access")}
	return c
}

// nasty is a partial cluster full of text that wants out of its cell.
func nasty() audit.ClusterReport {
	const name = "edge\x1b[31m|<script>alert(1)</script>\u202egnp.exe"
	c := audit.ClusterReport{Name: name, ID: "edge-1", Status: audit.Partial, AsOf: at("2026-11-30T08:00:09Z"),
		Coverage: audit.CoverageReport{Resources: readAll(), Routes: audit.RouteCoverage{Nodes: 1, Source: "agent"},
			Rejected: 2, RejectedFirst: []string{"IPAMBlock \x1b]8;;http://evil.example\x07click\x1b]8;;\x07", "IPPool `|` with\nnewline"}},
		Calico: audit.CalicoReport{Version: "v3.28.0\u009b2J", API: "crd.projectcalico.org/v1", IPAM: "calico-ipam", MaxBlocksPerHost: 20},
		Pools: []audit.PoolReport{
			{Name: "pods-v6", CIDR: "2001:db8:42::/48", BlockSize: 122, Addresses: 1 << 53, Allocated: 1204, Available: 1 << 53,
				Blocks: 1 << 53, BlocksClaimed: 31, BlocksFree: 1 << 53, Saturated: true},
			{Name: "pods|v4", CIDR: "10.96.0.0/12", BlockSize: 26, Disabled: true, Addresses: 1048576, Reserved: 4096, Allocated: 801204,
				CoolingDown: 310, Available: 242966, Blocks: 16384, BlocksClaimed: 12519, BlocksFree: 3801}},
		Nodes: 3, Pods: 2211,
		Checks: []audit.CheckReport{
			{ID: "blackholed-routes", Status: checks.StatusOK, Unseen: []string{"route tables of 2 nodes"}},
			{ID: "blockless-nodes", Status: checks.StatusUnknown, Reason: "not read: pods (forbidden)", Unseen: []string{"pods (forbidden)"}, Incomplete: true},
			found("multi-block-nodes"), ok("pool-utilisation"),
			{ID: "tunnel-ips", Status: checks.StatusSkipped, Reason: "switched off"}},
	}
	c.Coverage.Resources[13] = ipam.ResourceCoverage{Resource: ipam.ResPods, Status: ipam.Forbidden,
		Detail: `pods is forbidden: User "system:serviceaccount:ipamaudit:ipamaudit" cannot list resource "pods"`}
	c.Coverage.Resources[3] = ipam.ResourceCoverage{Resource: ipam.ResIPAMConfig, Status: ipam.Missing, Assumed: true}
	f := finding("multi-block-nodes", c.ID, checks.High, checks.KindNode, "node\u202e1\x07")
	f.Title = "Node | owns <b>more</b> blocks `than` its pods need"
	f.Detail = "# not a heading\n- not a list\n``` not a fence\n\x1b[2J\x1b[Hnot a clear screen, 日本語 stays"
	for i := range 50 {
		f.Affected = append(f.Affected, checks.Affected{Kind: checks.KindPod, Namespace: "shop", Name: fmt.Sprintf("pod-%02d", i),
			Note: "10.96.0." + fmt.Sprint(i) + " | `x`"})
	}
	f.Remediation = []checks.Step{{Title: "Read the <blocks>", Risk: checks.Safe, Commands: []string{"echo '```' '\x1b[31mred'\u202e | cat"}, Verify: "it prints | and ```"}}
	low := finding("ipam-config", c.ID, checks.Low, checks.KindCluster, name)
	low.Title = "Strict affinity is off"
	c.Findings = []audit.Finding{f, low}
	return c
}

func addPool() checks.Step {
	return checks.Step{Title: "Add a pool, so that there are free blocks before anything moves", Risk: checks.Safe,
		Commands: []string{"calicoctl create -f - <<'EOF'\napiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata:\n  name: kubestage-pods-2\n" +
			"spec:\n  cidr: 10.64.76.0/24\n  blockSize: 26\n  nodeSelector: all()\nEOF"},
		Verify: "calicoctl ipam show shows the new pool"}
}

func recreate(pod string) checks.Step {
	return checks.Step{Title: "Recreate the pods that run on borrowed addresses", Risk: checks.Disruptive,
		Commands: []string{"kubectl -n lab delete pod " + pod}, Verify: "calicoctl ipam check --show-all-ips lists none of them as borrowed"}
}

func strictAffinity() checks.Step {
	return checks.Step{Title: "Forbid borrowing from now on", Risk: checks.Disruptive,
		Commands: []string{"calicoctl ipam configure --strictaffinity=true"}, Verify: "calicoctl ipam show --show-configuration says StrictAffinity true"}
}

func finding(check, clusterID string, s checks.Severity, kind, name string) audit.Finding {
	subject := checks.Subject{Kind: kind, Name: name}
	return audit.Finding{
		Fingerprint: checks.Fingerprint(check, clusterID, subject),
		Finding:     checks.Finding{Check: check, Severity: s, Evidence: checks.Observed, Subject: subject},
		State:       audit.StateNew, FirstSeen: at("2026-11-30T08:00:00Z"), Runs: 1,
	}
}

func ok(id string) audit.CheckReport { return audit.CheckReport{ID: id, Status: checks.StatusOK} }
func found(id string) audit.CheckReport {
	return audit.CheckReport{ID: id, Status: checks.StatusFindings}
}
func unread(id string) audit.CheckReport {
	return audit.CheckReport{ID: id, Status: checks.StatusUnknown, Reason: "the cluster could not be read", Incomplete: true}
}

func readAll() []ipam.ResourceCoverage {
	out := make([]ipam.ResourceCoverage, 0, len(ipam.AllResources()))
	for _, r := range ipam.AllResources() {
		out = append(out, ipam.ResourceCoverage{Resource: r, Status: ipam.Read, Items: 4})
	}
	return out
}

func at(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		panic(err)
	}
	return t
}
