package notify

import (
	"strings"
	"testing"
	"time"

	"ipamaudit/audit"
	"ipamaudit/checks"
)

// TestPlanTickets is the table of what becomes of a ticket; the clock stands at
// 2026-12-10T02:00Z, the problem is high with the content of one node.
func TestPlanTickets(t *testing.T) {
	now := time.Date(2026, 12, 10, 2, 0, 0, 0, time.UTC)
	c := &audit.ClusterReport{Name: "prod", ID: "uid", Status: audit.Complete, AsOf: now}
	f := audit.Finding{Runs: 1, State: audit.StateOngoing, Finding: checks.Finding{
		Check: "blackholed-routes", Severity: checks.High, Subject: checks.Subject{Kind: checks.KindNode, Name: "a"}, Title: "drops"}}
	fp := checks.TicketFingerprint(f.Check, c.ID)
	present := Problem{Fingerprint: fp, Cluster: c.Name, Check: f.Check, Project: "OPS", cluster: c, Findings: []audit.Finding{f},
		Seen: Seen{Present: true, Severity: checks.High, Hash: contentHash([]audit.Finding{f})}}
	with := func(change func(*Problem)) Problem { p := present; change(&p); return p }
	absent := with(func(p *Problem) { p.Seen, p.Findings = Seen{}, nil })
	quiet := func(r Reason) Problem {
		return with(func(p *Problem) { p.Seen, p.Findings = Seen{Quiet: r}, nil })
	}
	issue := func(change func(*Issue, *Ref)) []Issue {
		i := Issue{ID: "7", Key: "OPS-7", Status: "To Do", Labels: []string{StaticLabel, FingerprintLabel(fp)}}
		r := Ref{Fingerprint: fp, Hash: present.Seen.Hash, SummaryHash: hash("s"), Severity: checks.High, State: RefOpen}
		change(&i, &r)
		if i.Description == "" {
			i.Description = beginLine + "\n" + r.line()
		}
		return []Issue{i}
	}
	same := issue(func(*Issue, *Ref) {})
	other := issue(func(_ *Issue, r *Ref) { r.Hash = "0123456789abcdef" })
	gone := issue(func(_ *Issue, r *Ref) { r.State = RefResolved })
	mine := issue(func(i *Issue, _ *Ref) { i.Description = "people's" })
	closed := func(ago time.Duration, resolution string) []Issue {
		return issue(func(i *Issue, _ *Ref) {
			i.Done, i.Status, i.Resolution, i.ResolvedAt = true, "Done", resolution, now.Add(-ago)
		})
	}
	known := func(change func(*audit.TicketState)) *audit.TicketState {
		ts := &audit.TicketState{ID: "7", Key: "OPS-7", ContentHash: present.Seen.Hash, Severity: checks.High}
		change(ts)
		return ts
	}
	intent := func(ago time.Duration) *audit.TicketState {
		return &audit.TicketState{Intent: &audit.Intent{Op: "create", StartedAt: now.Add(-ago)}}
	}
	day := 24 * time.Hour

	for _, tc := range []struct {
		name    string
		problem Problem
		issues  []Issue
		state   *audit.TicketState
		policy  TicketPolicy
		remote  func(*Remote)
		want    ActionKind
		why     string // part of it
		comment string // part of it; "-" for none
	}{
		{name: "new", problem: present, want: Create, comment: "-"},
		{name: "no project", problem: with(func(p *Problem) { p.Project = "" }), want: None},
		{name: "same", problem: present, issues: same, want: None, comment: "-"},
		{name: "changed", problem: present, issues: other, want: Update, comment: "-"},
		{name: "escalated", problem: present, issues: issue(func(_ *Issue, r *Ref) { r.Severity, r.Hash = checks.Medium, "0123456789abcdef" }), want: Update, comment: "Worse"},
		{name: "milder", problem: present, issues: issue(func(_ *Issue, r *Ref) { r.Severity, r.Hash = checks.Critical, "0123456789abcdef" }), want: Update, comment: "-"},
		{name: "back", problem: present, issues: gone, want: Update, comment: "back"},
		{name: "label gone, found by id", problem: present, state: known(func(*audit.TicketState) {}), want: Update, why: "labels",
			issues: issue(func(i *Issue, _ *Ref) { i.Labels = nil })},
		{name: "description is people's, label gone", problem: present, want: Update, why: "labels", comment: "-",
			state:  known(func(ts *audit.TicketState) { ts.CommentedHash = present.Seen.Hash }),
			issues: issue(func(i *Issue, _ *Ref) { i.Labels, i.Description = nil, "people's" })},
		{name: "description is people's", problem: present, issues: mine, want: Comment, comment: "What was found"},
		{name: "description is people's, commented", problem: present, issues: mine, want: None, comment: "-",
			state: known(func(ts *audit.TicketState) { ts.CommentedHash = present.Seen.Hash })},
		{name: "description is people's, back", problem: present, issues: mine, want: Comment,
			state: known(func(ts *audit.TicketState) { ts.CommentedHash, ts.Resolved = present.Seen.Hash, true })},

		{name: "resolved", problem: absent, issues: same, want: CommentResolved, comment: "Not found any more"},
		{name: "resolved, to be said later", problem: with(func(p *Problem) { p.Seen, p.CleanRuns = Seen{}, 1 }), issues: same, policy: TicketPolicy{ResolveAfter: 2}, want: None, comment: "-"},
		{name: "resolved, said in time", problem: with(func(p *Problem) { p.Seen, p.CleanRuns = Seen{}, 2 }), issues: same, policy: TicketPolicy{ResolveAfter: 2}, want: CommentResolved},
		{name: "resolved, never said", problem: with(func(p *Problem) { p.Seen, p.CleanRuns = Seen{}, 9 }), issues: same, policy: TicketPolicy{ResolveAfter: -1}, want: None},
		{name: "resolved and said", problem: absent, issues: gone, want: None, comment: "-"},
		{name: "resolved, closing is off", problem: with(func(p *Problem) { p.Seen, p.CleanRuns = Seen{}, 99 }), issues: gone, want: None},
		{name: "resolved, too few clean runs", problem: with(func(p *Problem) { p.Seen, p.CleanRuns = Seen{}, 2 }), issues: gone, policy: TicketPolicy{CloseAfter: 3}, want: None},
		{name: "resolved, clean long enough", problem: with(func(p *Problem) { p.Seen, p.CleanRuns = Seen{}, 3 }), issues: gone, policy: TicketPolicy{CloseAfter: 3}, want: Close, comment: "-"},
		{name: "resolved and closed at once", problem: with(func(p *Problem) { p.Seen, p.CleanRuns = Seen{}, 1 }), issues: same, policy: TicketPolicy{CloseAfter: 1}, want: Close, comment: "Not found any more"},
		{name: "people opened what was closed", problem: with(func(p *Problem) { p.Seen, p.CleanRuns = Seen{}, 9 }), policy: TicketPolicy{CloseAfter: 3}, want: None,
			issues: issue(func(_ *Issue, r *Ref) { r.State = RefClosed })},
		{name: "not closed, description is people's", problem: with(func(p *Problem) { p.Seen, p.CleanRuns = Seen{}, 9 }), issues: mine, policy: TicketPolicy{CloseAfter: 3}, want: CommentResolved},
		{name: "closed and gone", problem: absent, issues: closed(day, "Done"), want: None},
		{name: "nothing and no ticket", problem: absent, want: None},

		{name: "unknown", problem: quiet(Unknown), issues: same, want: None, comment: "-"},
		{name: "suppressed", problem: quiet(Suppressed), issues: same, want: None, comment: "-"},
		{name: "second look", problem: quiet(SecondLook), want: None},
		{name: "below the minimum", problem: quiet(BelowMinimum), issues: same, want: None, comment: "-"},
		{name: "accepted", problem: with(func(p *Problem) { p.Seen.Severity, p.Seen.Hash = checks.Critical, "x" }), want: Skip, why: "accepted", comment: "-",
			issues: issue(func(i *Issue, _ *Ref) { i.Labels = append(i.Labels, "ipam-accepted") })},

		{name: "closed yesterday", problem: present, issues: closed(day, "Done"), want: Reopen, comment: "Reopened"},
		{name: "closed without a resolution", problem: present, policy: TicketPolicy{Reopen: ReopenAlways}, want: Reopen,
			issues: issue(func(i *Issue, _ *Ref) { i.Done = true })},
		{name: "closed without a resolution, when", problem: present, issues: issue(func(i *Issue, _ *Ref) { i.Done = true }), want: Renew},
		{name: "closed long ago", problem: present, issues: closed(20*day, "Done"), want: Renew, comment: "-"},
		{name: "closed after the look", problem: present, issues: closed(-time.Hour, "Done"), want: Skip, why: "after this run"},
		{name: "closed, never reopened", problem: present, issues: closed(day, "Done"), policy: TicketPolicy{Reopen: ReopenNever}, want: Renew},
		{name: "won't do, other apostrophe", problem: present, issues: closed(day, "WON\u2019T DO"), want: Skip, why: "closed as"},
		{name: "reopened too often", problem: present, issues: closed(day, "Done"), want: Comment, comment: "not reopened any more",
			state: known(func(ts *audit.TicketState) { ts.Reopened = 3 })},
		{name: "reopened without limit", problem: present, issues: closed(day, "Done"), policy: TicketPolicy{MaxReopens: -1}, want: Reopen,
			state: known(func(ts *audit.TicketState) { ts.Reopened = 30 })},
		{name: "reopened too often and said", problem: present, issues: closed(day, "Done"), want: None,
			state: known(func(ts *audit.TicketState) { ts.Reopened, ts.CommentedHash = 3, present.Seen.Hash })},

		{name: "young intent", problem: present, state: intent(5 * time.Minute), want: Skip, why: "a moment ago"},
		{name: "old intent", problem: present, state: intent(time.Hour), want: Create},
		{name: "young intent, found", problem: present, state: intent(5 * time.Minute), issues: same, want: None},
		{name: "young intent of a renewal", problem: present, issues: closed(20*day, "Done"), state: intent(time.Minute), want: Skip, why: "a moment ago"},
		{name: "missing for the first time", problem: present, state: known(func(ts *audit.TicketState) { ts.MissingSince = now }), want: Skip, why: "cannot be seen",
			remote: func(r *Remote) { r.Missing["7"] = true }},
		{name: "missing since yesterday", problem: present, state: known(func(ts *audit.TicketState) { ts.MissingSince = now.Add(-day) }), want: Create,
			remote: func(r *Remote) { r.Missing["7"], r.SearchEmpty = true, true }},
		{name: "project refused", problem: present, issues: other, want: Skip, why: "no screen", remote: func(r *Remote) { r.Refused["OPS"] = "no screen" }},
		{name: "search is empty, nothing is known", problem: present, want: Create, remote: func(r *Remote) { r.SearchEmpty = true }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			st := audit.NewState()
			if tc.state != nil {
				st.Tickets[fp] = tc.state
			}
			remote := Remote{Issues: tc.issues, Missing: map[string]bool{}, Refused: map[string]string{}}
			if tc.remote != nil {
				tc.remote(&remote)
			}
			plan := PlanTickets([]Problem{tc.problem}, remote, st, tc.policy, now)
			a := Action{Kind: None}
			if len(plan.Actions) > 0 {
				a = plan.Actions[0]
			}
			if a.Kind != tc.want || !strings.Contains(a.Why, tc.why) {
				t.Errorf("%s (%s, %s), want %s (%s)", a.Kind, a.Reason, a.Why, tc.want, tc.why)
			}
			switch {
			case tc.comment == "-" && a.Comment != "":
				t.Errorf("comment %q", a.Comment)
			case tc.comment != "-" && tc.comment != "" && !strings.Contains(a.Comment, tc.comment):
				t.Errorf("comment %q, want %q in it", a.Comment, tc.comment)
			}
			if a.Kind == Close || a.Kind == CommentResolved {
				if tc.problem.Seen.Present || tc.problem.Seen.Quiet != "" {
					t.Error("resolved without a look")
				}
			}
		})
	}
}

func TestLooked(t *testing.T) {
	report := func(st checks.Status) []audit.CheckReport { return []audit.CheckReport{{ID: "x", Status: st}} }
	for _, tc := range []struct {
		name   string
		report audit.ClusterReport
		check  string
		want   Reason
	}{
		{"ok", audit.ClusterReport{Status: audit.Complete, Checks: report(checks.StatusOK)}, "x", ""},
		{"ok in a partial cluster", audit.ClusterReport{Status: audit.Partial, Checks: report(checks.StatusOK)}, "x", ""},
		{"unknown", audit.ClusterReport{Status: audit.Partial, Checks: report(checks.StatusUnknown)}, "x", Unknown},
		{"skipped", audit.ClusterReport{Status: audit.Complete, Checks: report(checks.StatusSkipped)}, "x", Unknown},
		{"findings, none left", audit.ClusterReport{Status: audit.Complete, Checks: report(checks.StatusFindings)}, "x", Unknown},
		{"failed", audit.ClusterReport{Status: audit.Failed, Checks: report(checks.StatusOK)}, "x", Unknown},
		{"not run", audit.ClusterReport{Status: audit.Complete}, "x", Unknown},
		{"access, answered", audit.ClusterReport{Status: audit.Partial}, "cluster-access", ""},
		{"access, failed", audit.ClusterReport{Status: audit.Failed}, "cluster-access", Unknown},
	} {
		p := problem(&tc.report, tc.check, audit.NewState(), TicketPolicy{}.WithDefaults())
		if p.Seen.Present || p.Seen.Quiet != tc.want {
			t.Errorf("%s: %+v, want %q", tc.name, p.Seen, tc.want)
		}
	}
}
