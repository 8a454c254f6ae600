package notify

import (
	"strings"
	"testing"

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
