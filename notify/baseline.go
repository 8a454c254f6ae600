package notify

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"ipamaudit/audit"
	"ipamaudit/checks"
)

// The baseline is one ticket per project for all that a first run finds, so that
// a fleet with a history does not begin with a hundred tickets. While it is open
// its problems have no tickets of their own, unless they get worse; one that is
// gone is struck off, and files a ticket when it comes back. It is kept in the
// ticket alone: closing it ends it.
const (
	baselineCheck   = "baseline"
	baselineCluster = "the fleet"
)

func baselineFingerprint(project string) string {
	return checks.TicketFingerprint(baselineCheck, project)
}

// baselines are those that are open, by the fingerprints of their problems.
type baselines struct {
	severity map[string]checks.Severity
	open     map[string]bool // by project
	// pending: one may have been created a moment ago and search does not show it.
	pending bool
}

var knownProblem = regexp.MustCompile(`\b([0-9a-f]{20})=(low|medium|high|critical)\b`)

func (pl *planner) readBaselines(problems []Problem, st *audit.State) {
	pl.baselines = baselines{severity: map[string]checks.Severity{}, open: map[string]bool{}}
	for _, project := range projectsOf(problems) {
		fp := baselineFingerprint(project)
		if ts := st.Tickets[fp]; ts != nil && ts.Intent != nil && pl.now.Sub(ts.Intent.StartedAt) < pl.policy.IntentLag {
			pl.baselines.pending = true
		}
		for _, i := range pl.remote.Issues {
			from, to, whole := section(i.Description)
			if i.Done || !whole || !(Problem{Fingerprint: fp}).owns(i) {
				continue // where people took the marks away it cannot be kept, and is none
			}
			pl.baselines.open[project] = true
			for _, m := range knownProblem.FindAllStringSubmatch(strings.ReplaceAll(i.Description[from:to], `\`, ""), -1) {
				pl.baselines.severity[m[1]] = checks.Severity(m[2])
			}
			pl.strike(i, project, problems)
		}
	}
}

// entry is what the baselines say of a problem; "" is nothing.
func (b baselines) entry(p Problem) (fingerprint string, s checks.Severity) {
	for _, fp := range p.fingerprints() {
		if s, in := b.severity[fp]; in {
			return fp, s
		}
	}
	return "", ""
}

// strike takes what is gone off a baseline. What is not in this run stays.
func (pl *planner) strike(i Issue, project string, problems []Problem) {
	from, to, _ := section(i.Description)
	ours, gone := i.Description[from:to], 0
	for _, p := range problems {
		fp, s := pl.baselines.entry(p)
		if fp == "" || p.Seen.Present || p.Seen.Quiet != "" {
			continue
		}
		struck := strings.ReplaceAll(ours, fp+"="+string(s), fp+"=gone")
		if struck != ours {
			ours, gone = struck, gone+1
			delete(pl.baselines.severity, fp)
		}
	}
	if gone > 0 && !slices.Contains(i.Labels, pl.policy.AcceptedLabel) {
		p := Problem{Fingerprint: baselineFingerprint(project), Cluster: baselineCluster, Check: baselineCheck, Project: project}
		pl.out.Actions = append(pl.out.Actions, Action{
			Kind: Update, Reason: Resolved, Why: fmt.Sprintf("%d of its problems are gone", gone), Problem: p, Issue: &i, edited: i.Description[:from] + ours + i.Description[to:],
		})
	}
}

// inBaseline reports whether a problem without a ticket is left to a baseline.
func (pl *planner) inBaseline(p Problem) bool {
	fp, s := pl.baselines.entry(p)
	if fp == "" || p.Seen.Severity.Rank() > s.Rank() {
		return false
	}
	pl.covered++
	return true
}

// adopt plans the baseline of each project, of what would have got a ticket.
func (pl *planner) adopt(st *audit.State) {
	byProject := map[string][]Problem{}
	for _, p := range pl.adopted {
		byProject[p.Project] = append(byProject[p.Project], p)
	}
	for _, project := range slices.Sorted(maps.Keys(byProject)) {
		ps := byProject[project]
		p := Problem{
			Fingerprint: baselineFingerprint(project), Cluster: baselineCluster, Check: baselineCheck, Project: project, baseline: ps,
			Seen: Seen{Present: true, Severity: ps[0].Seen.Severity}, cluster: &audit.ClusterReport{},
		}
		for _, one := range ps {
			p.Seen.Hash = hash(p.Seen.Hash, one.Fingerprint, one.Seen.Severity)
		}
		ts := st.Tickets[p.Fingerprint]
		if ts == nil {
			ts = &audit.TicketState{}
		}
		pl.out.Actions = append(pl.out.Actions, pl.action(p, ts))
	}
}

// baselineBody lists the problems, and for the next runs their fingerprints.
func (p Problem) baselineBody() []string {
	lines := []string{
		"What the first audit found, before there were tickets. While this ticket is open none of it gets a ticket of its own, " +
			"unless it gets worse or comes back after it was gone. Close it to have the rest filed one by one.",
		"", "||Severity||Cluster||Check||Findings||First||",
	}
	var known []string
	for n, one := range p.baseline {
		known = append(known, one.Fingerprint+"="+string(one.Seen.Severity))
		if n < 2*MaxRows {
			lines = append(lines, "|"+string(one.Seen.Severity)+"|"+wiki(one.Cluster)+"|"+wiki(one.Check)+"|"+
				strconv.Itoa(len(one.Findings))+"|"+wiki(one.Findings[0].Title)+"|")
		}
	}
	if more := len(p.baseline) - 2*MaxRows; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more: the JSON report has all of them.", more))
	}
	return slices.Concat([]string{"Known: " + strings.Join(known, " "), ""}, lines)
}
