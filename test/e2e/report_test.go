package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"
)

// The parts of the JSON report that these tests look at. They are spelled out
// here, not imported: the report is a public interface.
type (
	report struct {
		Schema   string
		Clusters []cluster
		Totals   struct{ Critical, High, Medium, Low, ClustersFailed, ChecksUnknown int }
	}
	cluster struct {
		Name, ID, Status, Error string
		AsOf                    time.Time
		Coverage                struct {
			Resources []resource
			Routes    struct {
				Nodes  int
				Source string
			}
		}
		Calico      struct{ Version, API, IPAM string }
		Pools       []map[string]any
		Nodes, Pods int
		Checks      []check
		Findings    []finding
	}
	resource struct {
		Resource, Status, Detail string
		Items                    int
		Assumed                  bool
	}
	check struct {
		ID, Status, Reason string
		Unseen             []string
	}
	finding struct {
		Fingerprint, Check, Severity, EvidenceLevel string
		Subject                                     object
		Title, Detail, State                        string
		Affected                                    []object
	}
	object struct{ Kind, Namespace, Name, Note string }
)

// audit runs `ipamaudit run … -o json` and decodes the report.
func audit(t *testing.T, args ...string) (report, result) {
	t.Helper()
	res := ipamaudit(t, append([]string{"run", "-o", "json"}, args...)...)
	return decodeReport(t, res), res
}

func decodeReport(t *testing.T, res result) report {
	t.Helper()
	var r report
	if err := json.Unmarshal([]byte(res.stdout), &r); err != nil {
		t.Fatalf("stdout is no JSON report: %v\nexit code %d\nstdout: %.500s\nstderr:\n%s", err, res.code, res.stdout, res.stderr)
	}
	if r.Schema != "ipamaudit/v1" {
		t.Fatalf("schema %q, want ipamaudit/v1", r.Schema)
	}
	return r
}

// auditOne is audit for a single cluster.
func auditOne(t *testing.T, args ...string) (cluster, result) {
	t.Helper()
	r, res := audit(t, args...)
	if len(r.Clusters) != 1 {
		t.Fatalf("the report has %d clusters, want 1", len(r.Clusters))
	}
	return r.Clusters[0], res
}

func (r report) cluster(t *testing.T, name string) cluster {
	t.Helper()
	i := slices.IndexFunc(r.Clusters, func(c cluster) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("the report has no cluster %q: %+v", name, r.Clusters)
	}
	return r.Clusters[i]
}

// statuses maps each check to its status.
func (c cluster) statuses() map[string]string {
	out := map[string]string{}
	for _, check := range c.Checks {
		out[check.ID] = check.Status
	}
	return out
}

// coverage maps each resource to how its reading went.
func (c cluster) coverage() map[string]string {
	out := map[string]string{}
	for _, r := range c.Coverage.Resources {
		out[r.Resource] = r.Status
	}
	return out
}

// headlines are the findings in one line each, without what a cluster's
// identity or the hour changes.
func (c cluster) headlines() []string {
	var out []string
	for _, f := range c.Findings {
		out = append(out, fmt.Sprintf("%s %s %s %s/%s: %s (%d affected)", f.Check, f.Severity, f.EvidenceLevel, f.Subject.Kind, f.Subject.Name, f.Title, len(f.Affected)))
	}
	slices.Sort(out)
	return out
}

// has reports whether there is a finding of this check about this subject with
// one of the severities.
func (c cluster) has(check, subject string, severities ...string) bool {
	return slices.ContainsFunc(c.Findings, func(f finding) bool {
		return f.Check == check && f.Subject.Name == subject && slices.Contains(severities, f.Severity)
	})
}

// wantKubestage checks the diagnosis of bed.Kubestage, seen without any route
// table: everything that the checks can tell without, and no word of calm about
// the rest.
func wantKubestage(t *testing.T, c cluster) {
	t.Helper()
	for _, want := range []struct {
		check, subject string
		severities     []string
	}{
		{"multi-block-nodes", "kubestage1001", []string{"medium", "high"}},
		{"multi-block-nodes", "kubestage1002", []string{"medium", "high"}},
		{"blockless-nodes", "kubestage1003", []string{"high", "critical"}},
		{"blockless-nodes", "kubestage1004", []string{"high", "critical"}},
		{"borrowed-ips", "kubestage1003", []string{"high"}}, // external peers, no node mesh
		{"borrowed-ips", "kubestage1004", []string{"high"}},
		{"pool-utilisation", "kubestage-pods", []string{"high"}},
	} {
		if !c.has(want.check, want.subject, want.severities...) {
			t.Errorf("%s: no %v finding of %s about %s; there are:\n%v", c.Name, want.severities, want.check, want.subject, c.headlines())
		}
	}
	if got := c.statuses()["blackholed-routes"]; got != "unknown" {
		t.Errorf("%s: blackholed-routes is %q without a route table, want unknown", c.Name, got)
	}
	for _, f := range c.Findings {
		if f.Check == "ipam-data" || f.Check == "leaked-ips" || f.Check == "unallocated-pod-ips" || f.Check == "misbooked-ips" {
			t.Errorf("%s: false alarm: %s: %s", c.Name, f.Check, f.Title)
		}
	}
	if c.Nodes != 4 || c.Pods != 36 {
		t.Errorf("%s: %d nodes and %d pods, want 4 and 36", c.Name, c.Nodes, c.Pods)
	}
}
