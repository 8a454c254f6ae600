package config

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSuppressionMatch(t *testing.T) {
	future := testNow.Add(time.Hour)
	for _, tc := range []struct {
		name                    string
		s                       Suppression
		check, cluster, subject string
		want                    bool
	}{
		{"all three", Suppression{Check: "leaked-ips", Cluster: "lab-*", Subject: "Node/gpu-?"}, "leaked-ips", "lab-1", "Node/gpu-7", true},
		{"other check", Suppression{Check: "leaked-ips", Cluster: "*", Subject: "*"}, "leaked-ipsx", "lab", "Node/a", false},
		{"other cluster", Suppression{Check: "*", Cluster: "lab-*", Subject: "*"}, "leaked-ips", "prod-lab-1", "Node/a", false},
		{"star crosses slashes", Suppression{Check: "*", Cluster: "lab", Subject: "Pod/*"}, "leaked-ips", "lab", "Pod/ns/name", true},
		{"block", Suppression{Check: "*", Cluster: "*", Subject: "IPAMBlock/10.0.*"}, "block-layout", "lab", "IPAMBlock/10.0.3.0/26", true},
		{"context as cluster", Suppression{Check: "*", Cluster: "arn:aws:*/prod", Subject: "*"}, "leaked-ips", "arn:aws:eks:eu:1:cluster/prod", "Node/a", true},
		{"class", Suppression{Check: "*", Cluster: "lab-[0-3]", Subject: "*"}, "leaked-ips", "lab-4", "Node/a", false},
		{"whole text", Suppression{Check: "*", Cluster: "*", Subject: "Node/a"}, "leaked-ips", "lab", "Node/ab", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.s.Until = future
			all := Suppressions{{Check: "none", Until: future}, tc.s}
			got, ok := all.Match(tc.check, tc.cluster, tc.subject, testNow)
			if ok != tc.want || ok && got != tc.s {
				t.Errorf("%v, %+v", ok, got)
			}
			if _, ok := all.Match(tc.check, tc.cluster, tc.subject, future.Add(time.Second)); ok {
				t.Error("matches after its end")
			}
		})
	}
}

// TestUntil: a day counts to its end, in UTC.
func TestUntil(t *testing.T) {
	c := mustLoad(t, `
suppressions:
  - {check: leaked-ips, reason: a, owner: b, until: 2026-12-01}
  - {check: leaked-ips, reason: a, owner: b, until: 2026-12-01T10:00:00+02:00}
`, Options{})
	want := []time.Time{
		time.Date(2026, 12, 1, 23, 59, 59, 0, time.UTC),
		time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC),
	}
	for i, s := range c.Suppressions {
		if !s.Until.Equal(want[i]) {
			t.Errorf("%d: %s, want %s", i, s.Until, want[i])
		}
		if s.Expired(want[i]) || !s.Expired(want[i].Add(time.Second)) {
			t.Errorf("%d ends at the wrong time", i)
		}
	}
}

func TestSuppressionReview(t *testing.T) {
	day := 24 * time.Hour
	all := Suppressions{
		{Origin: "expired", Until: testNow.Add(-day)},
		{Origin: "soon", Until: testNow.Add(6 * day)},
		{Origin: "soon and unused", Until: testNow.Add(6 * day)},
		{Origin: "used", Until: testNow.Add(8 * day)},
		{Origin: "unused", Until: testNow.Add(8 * day)},
	}
	review := func(used map[string]bool) map[string]SuppressionState {
		got := map[string]SuppressionState{}
		for _, n := range all.Review(testNow, used) {
			got[n.Suppression.Origin] = n.State
		}
		return got
	}
	want := map[string]SuppressionState{
		"expired": SuppressionExpired, "soon": SuppressionExpiring,
		"soon and unused": SuppressionUnused, "unused": SuppressionUnused,
	}
	if diff := cmp.Diff(want, review(map[string]bool{"soon": true, "used": true})); diff != "" {
		t.Error(diff)
	}
	want = map[string]SuppressionState{"expired": SuppressionExpired, "soon": SuppressionExpiring, "soon and unused": SuppressionExpiring}
	if diff := cmp.Diff(want, review(nil)); diff != "" {
		t.Errorf("a run that did not look at everything: %s", diff)
	}
}
