// Package audit runs the checks over a fleet of clusters, compares the outcome
// with the last run and makes the Report that every output is written from.
package audit

import (
	"fmt"
	"slices"
	"time"

	"ipamaudit/checks"
	"ipamaudit/ipam"
)

// Schema names the JSON report's format.
const Schema = "ipamaudit/v1"

// Report is the outcome of one run: the JSON report is this type.
type Report struct {
	Schema   string          `json:"schema"`
	Run      RunInfo         `json:"run"`
	Clusters []ClusterReport `json:"clusters"`
	Totals   Totals          `json:"totals"`
	// Notices are things people should hear that are no findings: a cluster that
	// is not what it was, a state that was started afresh.
	Notices []string `json:"notices,omitempty"`
	// Suppressions are those that want somebody's attention.
	Suppressions []SuppressionNotice `json:"suppressions,omitempty"`
}

// Said is all that people should hear that is no finding.
func (r *Report) Said() []string {
	out := slices.Clone(r.Notices)
	for _, s := range r.Suppressions {
		out = append(out, s.String())
	}
	return out
}

// SuppressionNotice is a suppression that ends soon, has ended, or silences
// nothing any more.
type SuppressionNotice struct {
	// The patterns it was written with.
	Check   string `json:"check"`
	Cluster string `json:"cluster"`
	Subject string `json:"subject"`
	Owner   string `json:"owner"`
	// Until is when it ends, State why it is named.
	Until time.Time        `json:"until"`
	State SuppressionState `json:"state"`
	// Origin is where it is written: suppressions[2] (config.yaml:57).
	Origin string `json:"origin"`
}

// SuppressionState is why a suppression wants attention.
type SuppressionState string

// The states.
const (
	SuppressionExpired  SuppressionState = "expired"
	SuppressionExpiring SuppressionState = "expiring"
	SuppressionUnused   SuppressionState = "unused"
)

// What says what is to be done about it.
func (s SuppressionNotice) What() string {
	switch s.State {
	case SuppressionExpired:
		return "expired at " + s.Until.Format(time.RFC3339) + " and silences nothing: renew or remove it"
	case SuppressionUnused:
		return "matched nothing in this run: remove it if the problem is gone"
	default:
		return "expires at " + s.Until.Format(time.RFC3339)
	}
}

// String is one line.
func (s SuppressionNotice) String() string {
	return fmt.Sprintf("suppression of %s on %s for %s by %s %s (%s)", s.Check, s.Cluster, s.Subject, s.Owner, s.What(), s.Origin)
}

// RunInfo tells one run from another. Two runs over the same input differ only here.
type RunInfo struct {
	// ID groups the messages of a run; the UTC date by default.
	ID         string    `json:"id"`
	StartedAt  time.Time `json:"startedAt"`
	FinishedAt time.Time `json:"finishedAt"`
	Version    string    `json:"version"`
}

// ClusterStatus says how much of a cluster was audited.
type ClusterStatus string

const (
	// Complete: everything that the enabled checks need was read.
	Complete ClusterStatus = "complete"
	// Partial: something that an enabled check needs was not read, or a check failed.
	Partial ClusterStatus = "partial"
	// Failed: nothing could be audited.
	Failed ClusterStatus = "failed"
)

// ClusterReport is one cluster's part of the report.
type ClusterReport struct {
	Name   string        `json:"name"`
	ID     string        `json:"id"`
	Status ClusterStatus `json:"status"`
	Error  string        `json:"error,omitempty"`
	AsOf   time.Time     `json:"asOf,omitzero"`
	// Labels are the configured ones (team, environment).
	Labels   map[string]string `json:"labels,omitempty"`
	Coverage CoverageReport    `json:"coverage"`
	Calico   CalicoReport      `json:"calico"`
	Pools    []PoolReport      `json:"pools"`
	Nodes    int               `json:"nodes"`
	Pods     int               `json:"pods"`
	Checks   []CheckReport     `json:"checks"`
	Findings []Finding         `json:"findings"`
	// GUID is Calico's clusterGUID: with it a pinned id is recognised again
	// where the better one could not be read.
	GUID string `json:"-"`
	// Tables has every node that exists, true where its route table is known.
	Tables map[string]bool `json:"-"`
}

// CoverageReport says what was read.
type CoverageReport struct {
	Resources []ipam.ResourceCoverage `json:"resources"`
	Routes    RouteCoverage           `json:"routes"`
	// Rejected are objects that could not be used; the first 20 are named.
	Rejected      int      `json:"rejected,omitempty"`
	RejectedFirst []string `json:"rejectedFirst,omitempty"`
	// Ignored counts unknown kinds and files of a saved snapshot.
	Ignored int `json:"ignored,omitempty"`
}

// RouteCoverage says whose route tables are known.
type RouteCoverage struct {
	// Nodes is the number of nodes with a table.
	Nodes int `json:"nodes"`
	// Source is files, agent, exec, caliconodestatus; empty for none.
	Source string `json:"source"`
}

// CalicoReport is what the cluster runs.
type CalicoReport struct {
	Version          string `json:"version"`
	API              string `json:"api"`
	IPAM             string `json:"ipam"`
	StrictAffinity   bool   `json:"strictAffinity"`
	MaxBlocksPerHost int    `json:"maxBlocksPerHost"`
}

// PoolReport is the arithmetic of one pool. Counts are capped at 2^53.
type PoolReport struct {
	Name          string `json:"name"`
	CIDR          string `json:"cidr"`
	BlockSize     int    `json:"blockSize"`
	Disabled      bool   `json:"disabled"`
	Addresses     uint64 `json:"addresses"`
	Reserved      uint64 `json:"reserved"`
	Allocated     uint64 `json:"allocated"`
	CoolingDown   uint64 `json:"coolingDown"`
	Available     uint64 `json:"available"`
	Blocks        uint64 `json:"blocks"`
	BlocksClaimed uint64 `json:"blocksClaimed"`
	BlocksFree    uint64 `json:"blocksFree"`
	Saturated     bool   `json:"saturated,omitempty"`
	// Before is what the pool was in the last run, nil where that is not known.
	Before *PoolTrend `json:"-"`
}

// CheckReport is the outcome of one check.
type CheckReport struct {
	ID     string        `json:"id"`
	Status checks.Status `json:"status"`
	Reason string        `json:"reason,omitempty"`
	Unseen []string      `json:"unseen,omitempty"`
	// Incomplete is true where a required resource was not read (exit code 3).
	Incomplete bool `json:"-"`
	// Partial: what is in Unseen does not put the rest in doubt (see checks.Result).
	Partial bool `json:"-"`
	// Lossy: objects of a kind that it needs could not be used. What is not found
	// any more may hide in them.
	Lossy bool `json:"-"`
	// Routes is true where route tables are what the check looks at.
	Routes bool `json:"-"`
}

// FindingState compares a finding with the last run.
type FindingState string

// The states of a finding's life.
const (
	StateNew      FindingState = "new"
	StateOngoing  FindingState = "ongoing"
	StateChanged  FindingState = "changed"
	StateResolved FindingState = "resolved"
	// StateUnknown: it was there, and this run could not look.
	StateUnknown FindingState = "unknown"
)

// Finding is a check's finding and its life.
type Finding struct {
	Fingerprint string `json:"fingerprint"`
	checks.Finding
	// State is set by Compare.
	State FindingState `json:"state"`
	// FirstSeen is in the snapshots' time, so that equal input makes equal reports.
	FirstSeen time.Time `json:"firstSeen,omitzero"`
	// Runs counts the consecutive runs that saw it, this one included.
	Runs       int          `json:"runs,omitempty"`
	Previous   *Previous    `json:"previous"`
	Suppressed *Suppression `json:"suppressed"`
}

// Counts reports whether the finding counts in totals, exit codes, metrics and
// notifications: it is there now and nobody suppressed it.
func (f *Finding) Counts() bool {
	return f.Suppressed == nil && f.State != StateResolved && f.State != StateUnknown
}

// Previous is what a changed, resolved or unknown finding was.
type Previous struct {
	Severity checks.Severity `json:"severity"`
	Affected int             `json:"affected"`
}

// Suppression is why a finding is silent.
type Suppression struct {
	Reason string `json:"reason"`
	Owner  string `json:"owner"`
	// Until is a date or time in RFC 3339.
	Until string `json:"until"`
}

// Totals count what is there now and not suppressed.
type Totals struct {
	Critical       int `json:"critical"`
	High           int `json:"high"`
	Medium         int `json:"medium"`
	Low            int `json:"low"`
	ClustersFailed int `json:"clustersFailed"`
	ChecksUnknown  int `json:"checksUnknown"`
}
