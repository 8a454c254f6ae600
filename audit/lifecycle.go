package audit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"ipamaudit/checks"
)

// Compare sets the life of every finding of r (State, FirstSeen, Runs, Previous),
// adds the findings that the last run knew and this one does not have, and
// returns the state to remember. prev stays as it is; nil means there is none.
//
// A finding that is not there any more is resolved only if its check looked at
// everything that matters for it; otherwise it is unknown and the state keeps
// it. What this run was not meant to look at (clusters that are not in it,
// checks that are switched off or not selected) is left alone. Comparing twice
// under one run id gives the same states, and counts nothing twice.
func Compare(prev *State, r *Report) *State {
	if prev == nil {
		prev = NewState()
	}
	next := prev.Clone()
	next.Schema, next.RunID, next.UpdatedAt = StateSchema, r.Run.ID, r.Run.FinishedAt
	inRun := make(map[string]bool, len(r.Clusters))
	for i := range r.Clusters {
		inRun[r.Clusters[i].Name] = true
	}
	for i := range r.Clusters {
		c := &r.Clusters[i]
		cs, notice := next.claim(c, inRun)
		if notice != "" {
			r.Notices = append(r.Notices, notice)
		}
		(&comparison{c: c, cs: cs, runID: r.Run.ID, now: asOf(c, r)}).run()
	}
	return next
}

// asOf is the time that a finding of c was seen at.
func asOf(c *ClusterReport, r *Report) time.Time {
	if c.AsOf.IsZero() {
		return r.Run.StartedAt
	}
	return c.AsOf
}

// comparison is of one cluster: cs is what was remembered and becomes what is
// to be remembered.
type comparison struct {
	c     *ClusterReport
	cs    *ClusterState
	runID string
	now   time.Time
}

func (m *comparison) run() {
	// What an earlier run has resolved is forgotten now. What this very run id
	// has resolved before is told again.
	maps.DeleteFunc(m.cs.Findings, func(_ string, rec *FindingRecord) bool {
		return rec.ResolvedRun != "" && rec.ResolvedRun != m.runID
	})
	seen := make(map[string]bool, len(m.c.Findings))
	for i := range m.c.Findings {
		f := &m.c.Findings[i]
		seen[f.Fingerprint] = true
		m.cs.Findings[f.Fingerprint] = m.meet(f, m.cs.Findings[f.Fingerprint])
	}
	open := m.miss(seen)
	sortFindings(m.c.Findings)
	m.countCleanRuns(open)
	m.countFailures()
	m.rememberPools()
	if m.c.GUID != "" {
		m.cs.GUID = m.c.GUID
	}
	if m.c.Status == Complete && !slices.ContainsFunc(m.c.Checks, CheckReport.notSelected) {
		m.cs.LastComplete = m.now
	}
}

// meet sets the life of a finding that is there and returns its new record.
func (m *comparison) meet(f *Finding, rec *FindingRecord) *FindingRecord {
	same := rec == nil || stillThere(rec, f)
	// A run that is repeated is no second look.
	if rec != nil && same && (rec.RunID != m.runID || rec.Runs > 1) {
		f.Severity = checks.Worst(f.Severity, f.IfItStays)
	}
	is := &Previous{Severity: f.Severity, Affected: len(f.Affected)}
	next := &FindingRecord{
		Check: f.Check, Subject: f.Subject, Title: f.Title, Severity: is.Severity, Affected: is.Affected,
		FirstSeen: m.now, LastSeen: m.now, Runs: 1, RunID: m.runID, Sample: sampleOf(f),
	}
	if rec != nil {
		next.FirstSeen = rec.FirstSeen
		switch {
		case rec.RunID == m.runID:
			next.Runs, next.Before = rec.Runs, rec.Before
		case same:
			next.Runs, next.Before = rec.Runs+1, rec.was()
		default: // the same kind of trouble with other things: a first look at these
			next.Before = rec.was()
		}
	}
	f.FirstSeen, f.Runs = next.FirstSeen, next.Runs
	switch {
	case next.Before == nil:
		f.State = StateNew
	case *next.Before == *is:
		f.State = StateOngoing
	default:
		f.State, f.Previous = StateChanged, next.Before
	}
	return next
}

// miss adds the findings that were known and are not there, and returns the
// checks of which some may still be.
func (m *comparison) miss(seen map[string]bool) (open map[string]bool) {
	reports := make(map[string]CheckReport, len(m.c.Checks))
	for _, k := range m.c.Checks {
		reports[k.ID] = k
	}
	open = map[string]bool{}
	for fp, rec := range m.cs.Findings {
		if seen[fp] {
			continue
		}
		k, ok := reports[rec.Check]
		if !ok || k.leftAlone() {
			continue
		}
		f := Finding{
			Fingerprint: fp, FirstSeen: rec.FirstSeen, Runs: rec.Runs, Previous: rec.was(),
			Finding: checks.Finding{
				Check: rec.Check, Severity: rec.Severity, Subject: rec.Subject, Title: rec.Title,
				Affected: []checks.Affected{}, CausedBy: []string{}, Remediation: []checks.Step{},
			},
		}
		if k.sees(rec.Subject, m.c) {
			rec.ResolvedRun = m.runID
			f.State, f.Evidence = StateResolved, checks.Observed
			f.Detail = fmt.Sprintf("Last seen on %s; it is gone.", day(rec.LastSeen))
		} else {
			rec.ResolvedRun = ""
			open[rec.Check] = true
			f.State, f.Evidence = StateUnknown, checks.Inferred
			f.Detail = fmt.Sprintf("Last seen on %s; this run could not look: %s.", day(rec.LastSeen), cmp.Or(k.Reason, "not everything was seen that it hangs on"))
		}
		m.c.Findings = append(m.c.Findings, f)
	}
	return open
}

// countCleanRuns counts the runs in which a check looked at everything and
// found nothing. A run that could not look neither counts nor breaks the row.
func (m *comparison) countCleanRuns(open map[string]bool) {
	if m.cs.CleanRuns == nil {
		m.cs.CleanRuns, m.cs.CleanRun = map[string]int{}, map[string]string{}
	}
	for _, k := range m.c.Checks {
		switch {
		case k.Status == checks.StatusFindings:
			delete(m.cs.CleanRuns, k.ID)
			delete(m.cs.CleanRun, k.ID)
		case k.leftAlone() || !k.looked() || open[k.ID] || m.cs.CleanRun[k.ID] == m.runID:
		default:
			m.cs.CleanRuns[k.ID]++
			m.cs.CleanRun[k.ID] = m.runID
		}
	}
}

func (m *comparison) countFailures() {
	for _, k := range m.c.Checks {
		if k.ID != checks.ClusterAccessID {
			continue
		}
		switch k.Status {
		case checks.StatusFindings:
			m.cs.Failures, m.cs.FailedRun = failuresInARow(m.cs, m.cs.ID, m.runID), m.runID
		case checks.StatusOK:
			m.cs.Failures, m.cs.FailedRun = 0, ""
		case checks.StatusUnknown, checks.StatusSkipped:
		}
	}
}

// rememberPools fills in what each pool was in the run before and remembers
// what it is. A run that read no pools changes nothing.
func (m *comparison) rememberPools() {
	if len(m.c.Pools) == 0 {
		return
	}
	if m.cs.PoolsRun != m.runID {
		m.cs.PoolsBefore, m.cs.PoolsRun = m.cs.Pools, m.runID
	}
	m.cs.Pools = make(map[string]PoolTrend, len(m.c.Pools))
	for i := range m.c.Pools {
		p := &m.c.Pools[i]
		if before, ok := m.cs.PoolsBefore[p.Name]; ok {
			p.Before = &before
		}
		m.cs.Pools[p.Name] = PoolTrend{BlocksFree: p.BlocksFree, Available: p.Available}
	}
}

// notSelected reports whether this run alone was not to make the check.
func (k CheckReport) notSelected() bool {
	return k.Status == checks.StatusSkipped && k.Reason == ReasonNotSelected
}

// leftAlone reports whether nobody wanted the check to look.
func (k CheckReport) leftAlone() bool {
	return k.notSelected() || k.Status == checks.StatusSkipped && k.Reason == ReasonSwitchedOff
}

// looked reports whether the check saw enough to say that something is not there.
func (k CheckReport) looked() bool {
	switch k.Status {
	case checks.StatusSkipped:
		return !k.Lossy
	case checks.StatusOK:
		return !k.Lossy
	case checks.StatusFindings:
		return !k.Lossy && (len(k.Unseen) == 0 || k.Partial)
	default:
		return false
	}
}

// sees reports whether the check saw enough to say that it has nothing against
// subject: with the route tables of some nodes, only what is about these nodes,
// or about nodes that are gone.
func (k CheckReport) sees(subject checks.Subject, c *ClusterReport) bool {
	if !k.looked() {
		return false
	}
	if !k.Routes || len(k.Unseen) == 0 || k.Status == checks.StatusSkipped {
		return true
	}
	if subject.Kind != checks.KindNode {
		return false
	}
	known, exists := c.Tables[subject.Name]
	return known || !exists
}

// was is what the record's finding was when it was seen last.
func (rec *FindingRecord) was() *Previous {
	return &Previous{Severity: rec.Severity, Affected: rec.Affected}
}

// sortFindings puts what is there first, then what may be, then what is gone;
// of what is equally bad causes come before symptoms.
func sortFindings(fs []Finding) {
	order := map[FindingState]int{StateUnknown: 1, StateResolved: 2}
	slices.SortStableFunc(fs, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(order[a.State], order[b.State]),
			cmp.Compare(b.Severity.Rank(), a.Severity.Rank()),
			cmp.Compare(checks.Depth(a.Check), checks.Depth(b.Check)),
			cmp.Compare(a.Check, b.Check),
			cmp.Compare(a.Subject.String(), b.Subject.String()),
			cmp.Compare(a.Fingerprint, b.Fingerprint),
		)
	})
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02") }

// Clone returns a deep copy.
func (s *State) Clone() *State {
	out := *s
	out.Clusters = make(map[string]*ClusterState, len(s.Clusters))
	for name, cs := range s.Clusters {
		c := *cs
		c.CleanRuns, c.CleanRun = maps.Clone(cs.CleanRuns), maps.Clone(cs.CleanRun)
		c.Pools, c.PoolsBefore = maps.Clone(cs.Pools), maps.Clone(cs.PoolsBefore)
		c.Findings = make(map[string]*FindingRecord, len(cs.Findings))
		for fp, rec := range cs.Findings {
			r := *rec
			r.Before, r.Sample = clone(rec.Before), slices.Clone(rec.Sample)
			c.Findings[fp] = &r
		}
		out.Clusters[name] = &c
	}
	out.Tickets = make(map[string]*TicketState, len(s.Tickets))
	for fp, t := range s.Tickets {
		c := *t
		c.Intent = clone(t.Intent)
		out.Tickets[fp] = &c
	}
	out.Messages = make(map[string]*MessageState, len(s.Messages))
	for key, msg := range s.Messages {
		c := *msg
		c.Intent = clone(msg.Intent)
		out.Messages[key] = &c
	}
	out.Channels = make(map[string]*ChannelState, len(s.Channels))
	for name, ch := range s.Channels {
		c := *ch
		c.Untold = make(map[string]*Change, len(ch.Untold))
		for fp, change := range ch.Untold {
			u := *change
			u.Before, u.Was = clone(change.Before), clone(change.Was)
			c.Untold[fp] = &u
		}
		out.Channels[name] = &c
	}
	return &out
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}
