package notify

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"ipamaudit/audit"
)

// ActionKind is what is done to a ticket.
type ActionKind string

// The actions. None and Skip write nothing; Skip has something that people
// should know about it.
const (
	Create          ActionKind = "create"
	Update          ActionKind = "update"           // the tool's part of the description, and labels that are gone
	Comment         ActionKind = "comment"          // where the description is not ours to change
	Reopen          ActionKind = "reopen"           // and update
	Renew           ActionKind = "renew"            // a new ticket that names the closed one
	CommentResolved ActionKind = "comment resolved" // and say so in the description
	Close           ActionKind = "close"
	None            ActionKind = "none"
	Skip            ActionKind = "skip"
)

// Writes reports whether the action changes anything in Jira.
func (k ActionKind) Writes() bool { return k != None && k != Skip }

// Action is what becomes of one problem's ticket.
type Action struct {
	Kind    ActionKind
	Reason  Reason
	Why     string // for people, empty where Reason says it all
	Problem Problem
	Ticket  Ticket // of a problem that is present
	// Issue is the ticket there is; nil for none.
	Issue *Issue
	// Comment is posted before the rest, unless it was already: CommentRef.
	Comment    string
	CommentRef string
	// ref is what the issue says, ours whether it still says so.
	ref  Ref
	ours bool
	// edited is the whole new description, where it is not made from Ticket.
	edited string
}

// Tickets is the plan for all tickets, in the order of the problems.
type Tickets struct {
	Actions []Action
	// Notices are for people: duplicates, tickets over the cap, the brake.
	Notices []string
	// Overflow counts the problems left without a ticket by the cap.
	Overflow int
}

// Remote is what Jira said.
type Remote struct {
	// Issues are the tool's: from searches, and known ones read by their id.
	Issues []Issue
	// Missing are ids of known tickets that a read did not find.
	Missing map[string]bool
	// Searched are the projects in which all tickets were searched for;
	// SearchEmpty: there are none.
	Searched    []string
	SearchEmpty bool
	// Refused are the projects where no ticket can be kept, and why.
	Refused map[string]string
}

// PlanTickets is pure: problems as Problems lists them, what Jira said, what was
// remembered, and the time. It never plans a write for a problem that this run
// did not see or could not look at.
func PlanTickets(problems []Problem, remote Remote, st *audit.State, p TicketPolicy, now time.Time) Tickets {
	p = p.WithDefaults()
	pl := planner{remote: remote, policy: p, now: now, braked: brake(problems, remote, st, p, now)}
	pl.readBaselines(problems, st)
	for _, problem := range problems {
		ts := st.Tickets[problem.Fingerprint]
		if ts == nil {
			ts = &audit.TicketState{}
		}
		if a := pl.action(problem, ts); a.Kind != None || a.Issue != nil {
			pl.out.Actions = append(pl.out.Actions, a)
		}
	}
	pl.adopt(st)
	if pl.covered > 0 {
		pl.out.Notices = append(pl.out.Notices, fmt.Sprintf("%s of the baseline still there, without a ticket of its own",
			count(pl.covered, "problem is", "problems are")))
	}
	if pl.braked {
		pl.out.Notices = append(pl.out.Notices, brakeNotice)
	}
	if pl.out.Overflow > 0 {
		pl.out.Notices = append(pl.out.Notices, fmt.Sprintf(
			"%d more problems have no ticket yet: a run creates at most %d, the worst first", pl.out.Overflow, p.MaxNew))
	}
	return pl.out
}

const brakeNotice = "no ticket was created: tickets are known from earlier runs and Jira's search shows none of them. " +
	"Check the token, the permission to browse the project, and its issue security"

// brake reports whether the search cannot be believed: it is empty and tickets
// are known that should be in it. Creating now would make every one twice.
func brake(problems []Problem, remote Remote, st *audit.State, p TicketPolicy, now time.Time) bool {
	if !remote.SearchEmpty {
		return false
	}
	for _, problem := range problems {
		ts := st.Tickets[problem.Fingerprint]
		if ts == nil || ts.ID == "" {
			continue
		}
		if remote.Missing[ts.ID] && !deleted(ts, p, now) {
			return true
		}
		if i := byID(remote.Issues, ts.ID); i != nil && remote.hides(i) {
			return true
		}
	}
	return false
}

// hides reports whether the search should have shown an issue: it is open, has
// its label, and was not moved to a project of people's.
func (r Remote) hides(i *Issue) bool {
	dash := strings.LastIndexByte(i.Key, '-')
	return !i.Done && dash > 0 && slices.Contains(r.Searched, i.Key[:dash]) && slices.Contains(i.Labels, StaticLabel)
}

// deleted reports whether a ticket has been invisible for so long that it must
// have been deleted: one read may also fail for a permission.
func deleted(ts *audit.TicketState, p TicketPolicy, now time.Time) bool {
	return !ts.MissingSince.IsZero() && now.Sub(ts.MissingSince) >= p.MissingGrace
}

func byID(issues []Issue, id string) *Issue {
	if i := slices.IndexFunc(issues, func(i Issue) bool { return i.ID == id }); i >= 0 {
		return &issues[i]
	}
	return nil
}

type planner struct {
	remote  Remote
	policy  TicketPolicy
	now     time.Time
	braked  bool
	created int
	out     Tickets
	// What is in a baseline, and what is to come into one.
	baselines baselines
	adopted   []Problem
	covered   int
}

func (pl *planner) action(p Problem, ts *audit.TicketState) Action {
	issue := pl.canonical(p, ts)
	told := toldBy(ts, issue)
	a := Action{Kind: None, Reason: Decide(told, p.Seen), Problem: p, Issue: issue}
	if issue != nil {
		a.ref, a.ours = ParseRef(issue.Description)
	}
	if p.Seen.Present {
		a.Ticket = p.Ticket(pl.policy)
	}
	switch {
	case issue != nil && slices.Contains(issue.Labels, pl.policy.AcceptedLabel):
		return a.skip("accepted: the ticket has the label " + pl.policy.AcceptedLabel)
	case p.Seen.Present && pl.remote.Refused[p.Project] != "":
		return a.skip(pl.remote.Refused[p.Project])
	case p.Seen.Present && issue == nil:
		return pl.absent(a, ts)
	case p.Seen.Present && issue.Done:
		return pl.closed(a, ts)
	case p.Seen.Present:
		return pl.open(a, ts, told)
	case p.Seen.Quiet != "":
		return a // it may still be there: whatever the ticket says stays
	case issue == nil || issue.Done:
		return a
	}
	return pl.gone(a, told)
}

func (a Action) skip(why string) Action {
	a.Kind, a.Why = Skip, why
	return a
}

// absent plans for a problem without a ticket.
func (pl *planner) absent(a Action, ts *audit.TicketState) Action {
	switch {
	case a.Problem.Project == "":
		return a
	case ts.ID != "" && pl.remote.Missing[ts.ID] && !deleted(ts, pl.policy, pl.now):
		return a.skip(ts.Key + " cannot be seen: deleted, or hidden from this account. If it stays so, the next run files a new ticket")
	}
	if a.Problem.baseline == nil {
		switch {
		case pl.inBaseline(a.Problem):
			return a
		case pl.baselines.pending:
			return a.skip("a baseline may have been created a moment ago and search does not show it yet: the next run looks again")
		case pl.policy.Adopt && ts.Intent == nil && !pl.baselines.open[a.Problem.Project]:
			pl.adopted = append(pl.adopted, a.Problem)
			return a
		}
	}
	a.Kind = Create
	return pl.creating(a, ts)
}

// creating lets an action that creates an issue pass, or says what holds it back.
func (pl *planner) creating(a Action, ts *audit.TicketState) Action {
	switch {
	case ts.Intent != nil && pl.now.Sub(ts.Intent.StartedAt) < pl.policy.IntentLag:
		return a.skip("a ticket may have been created a moment ago and search does not show it yet: the next run looks again")
	case pl.braked:
		return a.skip(brakeNotice)
	case pl.created >= pl.policy.MaxNew:
		pl.out.Overflow++
		return a.skip(fmt.Sprintf("over the limit of %d new tickets in one run", pl.policy.MaxNew))
	}
	pl.created++
	return a
}

// open plans for a problem whose ticket is open.
func (pl *planner) open(a Action, ts *audit.TicketState, told Told) Action {
	p := a.Problem
	switch a.Reason {
	case Escalated:
		a.say("escalated", fmt.Sprintf("*Worse:* %s is now *%s*, it was %s.", p.Check, p.Seen.Severity, told.Severity))
	case Back:
		a.say("back", "*It is back:* the audit finds it again.")
	default: // nothing that mails people
	}
	_, ours := ReplaceSection(a.Issue.Description, a.Ticket)
	switch {
	case !ours && (ts.CommentedHash != p.Seen.Hash || told.Resolved):
		// The description is people's now. They get the content once, as a comment.
		a.Kind, a.Why = Comment, "the description no longer has the tool's part, or no room for it"
		a.say("content", a.Ticket.Body(maxSection/2), p.Seen.Hash)
	case ours && a.Reason.Speaks():
		a.Kind = Update
	case missingLabels(a.Ticket, a.Issue) != nil:
		a.Kind, a.Why = Update, "labels were removed that the ticket is found by"
	}
	return a
}

// say sets the comment. Its reference holds what it depends on, first the
// revision of the description, which the action goes on to change: the same
// comment is recognised after a crash, and a later one is not taken for it.
func (a *Action) say(kind, body string, of ...string) {
	a.CommentRef = hash(kind, a.Problem.Fingerprint, a.ref.Revision, of)
	a.Comment = body + "\n\n" + CommentRef(a.CommentRef)
}

// closed plans for a problem that is there although its ticket is closed.
func (pl *planner) closed(a Action, ts *audit.TicketState) Action {
	i, c, times := a.Issue, a.Problem.cluster, max(ts.Reopened, a.ref.Reopened)
	within := !i.ResolvedAt.IsZero() && pl.now.Sub(i.ResolvedAt) <= pl.policy.ReopenWindow
	reopen := pl.policy.Reopen == ReopenAlways || pl.policy.Reopen == ReopenWithin && within
	switch {
	case pl.policy.wontFix(i.Resolution):
		return a.skip("closed as " + i.Resolution)
	case i.ResolvedAt.After(c.AsOf) && !c.AsOf.IsZero():
		return a.skip("closed after this run had looked")
	case reopen && pl.policy.MaxReopens >= 0 && times >= pl.policy.MaxReopens:
		a.Why = fmt.Sprintf("reopened %d times already, and closed while the problem lasts", times)
		if ts.CommentedHash != a.Problem.Seen.Hash {
			a.Kind = Comment
			a.say("still", "The audit still finds this. It is not reopened any more.\n\n"+a.Ticket.Body(maxSection/2), a.Problem.Seen.Hash)
		}
		return a
	case reopen:
		a.Kind, a.Why = Reopen, "closed, and still found"
		a.say("reopen", "*Reopened:* the audit still finds this.", i.ResolvedAt.UTC().String(), strconv.Itoa(times))
		a.Ticket.reopened = times + 1
		return a
	case a.Problem.Project == "":
		return a
	}
	a.Kind, a.Why = Renew, i.Key+" was closed, and the problem is still found"
	return pl.creating(a, ts)
}

// gone plans for an open ticket whose problem a run that looked did not see.
func (pl *planner) gone(a Action, told Told) Action {
	n, after := a.Problem.CleanRuns, pl.policy.ResolveAfter
	if a.Reason == Resolved && after > 0 && (after == 1 || n >= after) {
		a.Kind = CommentResolved
		a.say("resolved", "*Not found any more:* the audit looked at everything and does not find this now.")
	}
	// People's own descriptions, and tickets that people opened again after the
	// tool closed them, are left to people.
	if pl.policy.CloseAfter > 0 && n >= pl.policy.CloseAfter && a.ours && a.ref.State != RefClosed {
		a.Kind, a.Why = Close, fmt.Sprintf("not found in %d complete runs in a row", n)
	}
	return a
}

// toldBy is what a ticket tells people. The ticket itself knows best; the state
// is asked where people have changed it or Jira was not read.
func toldBy(ts *audit.TicketState, issue *Issue) Told {
	if issue == nil {
		return Told{}
	}
	if r, ok := ParseRef(issue.Description); ok {
		return Told{Ever: true, Resolved: r.State != RefOpen, Severity: r.Severity, Hash: r.Hash}
	}
	return Told{Ever: true, Resolved: ts.Resolved, Severity: ts.Severity, Hash: ts.ContentHash}
}

// canonical chooses the problem's ticket among all that are its: an open
// one before a closed one, of open ones the oldest, of closed ones the newest.
func (pl *planner) canonical(p Problem, ts *audit.TicketState) *Issue {
	var own []Issue
	for _, i := range pl.remote.Issues {
		if i.ID == ts.ID || p.owns(i) {
			own = append(own, i)
		}
	}
	if len(own) == 0 {
		return nil
	}
	slices.SortFunc(own, func(a, b Issue) int {
		age := compareIDs(a.ID, b.ID)
		switch {
		case a.Done && b.Done:
			return -age
		case a.Done:
			return 1
		case b.Done:
			return -1
		}
		return age
	})
	var open []string
	for _, i := range own {
		if !i.Done {
			open = append(open, i.Key)
		}
	}
	if len(open) > 1 {
		pl.out.Notices = append(pl.out.Notices, fmt.Sprintf(
			"%s in %s has several open tickets: %s is kept up to date, please close %s as duplicates",
			p.Check, p.Cluster, open[0], strings.Join(open[1:], ", ")))
	}
	return &own[0]
}

// compareIDs compares decimal ids as numbers of any length.
func compareIDs(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

func missingLabels(t Ticket, i *Issue) []string {
	var out []string
	for _, l := range append(t.problem.labels(), StaticLabel) {
		if !slices.Contains(i.Labels, l) {
			out = append(out, l)
		}
	}
	return out
}
