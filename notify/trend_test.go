package notify

import (
	"strings"
	"testing"
	"time"

	"ipamaudit/audit"
	"ipamaudit/checks"
)

func TestTrend(t *testing.T) {
	pool := func(name string, free, blocks, available, addresses uint64, before *audit.PoolTrend) audit.PoolReport {
		return audit.PoolReport{Name: name, Blocks: blocks, BlocksFree: free, Addresses: addresses, Available: available, Before: before}
	}
	off := pool("off", 0, 64, 0, 4096, nil)
	off.Disabled = true
	r := &audit.Report{Clusters: []audit.ClusterReport{
		{Name: "prod-1", Status: audit.Complete, Pools: []audit.PoolReport{
			pool("roomy", 60, 64, 4000, 4096, nil), off, {Name: "empty"},
			pool("shrinks", 20, 64, 1100, 4096, &audit.PoolTrend{BlocksFree: 25, Available: 1100}),
		}},
		{Name: "prod-2", Status: audit.Complete, Pools: []audit.PoolReport{
			pool("full", 0, 64, 30, 4096, &audit.PoolTrend{BlocksFree: 0, Available: 12}),
			pool("v6", 1<<40, 1<<50, 1<<53, 1<<53, nil),
		}},
	}}
	d := Digests(r, nil, nil, nil, DigestPolicy{Channel: func(*audit.ClusterReport, string, checks.Severity) string { return "C1" }})[0]
	got := d.Parent().String()
	want := strings.Join([]string{
		":bar_chart: *Fullest pools*",
		"• `prod-2` full: → 0 of 64 blocks free, ↗ 30 of 4096 addresses free (was 12)",
		"• `prod-2` v6: 10¹² and more of 10¹² and more blocks free, 10¹² and more of 10¹² and more addresses free",
		"• `prod-1` shrinks: ↘ 20 of 64 blocks free (was 25), → 1100 of 4096 addresses free",
		"",
	}, "\n")
	if !strings.Contains(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	for _, not := range []string{"roomy", "off", "empty"} {
		if strings.Contains(got, not) {
			t.Errorf("%s needs nobody's attention:\n%s", not, got)
		}
	}
}

func TestSuppressionsHaveASection(t *testing.T) {
	until := time.Date(2026, 12, 5, 23, 59, 59, 0, time.UTC)
	r := &audit.Report{
		Clusters: []audit.ClusterReport{{Name: "prod-1", Status: audit.Complete}},
		Notices:  []string{"a notice"},
		Suppressions: []audit.SuppressionNotice{
			{Check: "leaked-ips", Cluster: "lab-*", Subject: "*", Owner: "kim", State: audit.SuppressionUnused, Origin: "suppressions[0] (c.yaml:7)"},
			{Check: "*", Cluster: "prod-1", Subject: "Node/gpu-1", Owner: "team-network", Until: until, State: audit.SuppressionExpiring, Origin: "suppressions[1] (c.yaml:9)"},
			{Check: "block-layout", Cluster: "*", Subject: "*", Owner: "kim", Until: until, State: audit.SuppressionExpired, Origin: "suppressions[2] (c.yaml:11)"},
		},
	}
	d := Digests(r, nil, nil, nil, DigestPolicy{Channel: func(*audit.ClusterReport, string, checks.Severity) string { return "C1" }})[0]
	want := strings.Join([]string{
		":hourglass: *Suppressions*",
		"• `block-layout` on `*` for `*`, kim: expired at 2026-12-05T23:59:59Z and silences nothing: renew or remove it (suppressions[2] (c.yaml:11))",
		"• `*` on `prod-1` for `Node/gpu-1`, team-network: expires at 2026-12-05T23:59:59Z (suppressions[1] (c.yaml:9))",
		"• `leaked-ips` on `lab-*` for `*`, kim: matched nothing in this run: remove it if the problem is gone (suppressions[0] (c.yaml:7))",
		"*Notes*",
		"• a notice",
		"",
	}, "\n")
	if got := d.Parent().String(); !strings.Contains(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}
