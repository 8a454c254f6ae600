package checks

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"ipamaudit/ipam"
)

// TestTablesThatDoNotTell: a table may be older than the pod, or blind.
func TestTablesThatDoNotTell(t *testing.T) {
	now := time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)
	hole := ipam.Route{Dst: netip.MustParsePrefix("10.0.0.0/26"), Type: ipam.Blackhole}
	for _, tc := range []struct {
		name     string
		table    ipam.RouteTable
		started  time.Time
		findings int
		partial  bool
		unseen   string
	}{
		{"read after the pod started", ipam.RouteTable{AsOf: now.Add(-10 * time.Minute), Routes: []ipam.Route{hole}}, now.Add(-time.Hour), 1, true, ""},
		{"no age: the snapshot's", ipam.RouteTable{Routes: []ipam.Route{hole}}, now.Add(-time.Hour), 1, true, ""},
		{"older than the pod", ipam.RouteTable{AsOf: now.Add(-2 * time.Hour), Routes: []ipam.Route{hole}}, now.Add(-time.Hour), 0, false, "before the table was read"},
		{"blind for the family", ipam.RouteTable{AsOf: now, Blind4: "policy rule 90 sends some packets elsewhere"}, now.Add(-time.Hour), 0, false, "policy rule 90"},
		{"blind for the other family", ipam.RouteTable{AsOf: now, Blind6: "no IPv6 here", Routes: []ipam.Route{hole}}, now.Add(-time.Hour), 1, true, ""},
	} {
		s := ipam.NewSnapshot()
		s.AsOf = now
		for _, r := range ipam.AllResources() {
			s.Coverage.Set(r, ipam.Read, 1, "")
		}
		s.Nodes = []ipam.Node{{Name: "a", Ready: true}, {Name: "b", Ready: true}}
		s.Pods = []ipam.Pod{{Namespace: "s", Name: "p", NodeName: "b", Phase: "Running", StatusIPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Started: tc.started}}
		tc.table.Node, tc.table.Kind = "a", ipam.KernelTable
		s.Tables = []ipam.RouteTable{tc.table}
		s.Seal()
		c := blackholedRoutes()
		res := c.Run(&Input{Snapshot: s, Params: c.DefaultParams(), Now: now})
		unseen := strings.Join(res.Unseen, "; ")
		if len(res.Findings) != tc.findings || res.Partial != tc.partial || !strings.Contains(unseen, tc.unseen) {
			t.Errorf("%s: %d findings, partial %v, unseen %q", tc.name, len(res.Findings), res.Partial, unseen)
		}
	}
}
