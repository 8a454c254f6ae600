package notify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"

	"ipamaudit/audit"
)

// tickets keeps the tickets of one run.
type tickets struct {
	tracker  Tracker
	policy   TicketPolicy
	problems []Problem
	runID    string
	state    *audit.State
	save     func(context.Context) error
	now      func() time.Time
	patience time.Duration // for search to show what an ambiguous create may have made
	log      *slog.Logger
	out      *Outcome
	// unverified is true until a created issue was read back with its label.
	unverified bool
}

// plan reads Jira and plans. Whatever the first plan would touch is read again,
// by its id or its label, and planned anew: searches lag, decisions must not.
func (t *tickets) plan(ctx context.Context) (Tickets, error) {
	remote, err := t.observe(ctx)
	if err != nil {
		return Tickets{}, err
	}
	t.missing(remote)
	read := reads{}
	for {
		plan := PlanTickets(t.problems, remote, t.state, t.policy, t.now())
		before := len(read)
		for _, a := range plan.Actions {
			if err := t.refresh(ctx, a, &remote, read); err != nil {
				return Tickets{}, err
			}
		}
		if len(read) == before {
			return plan, nil
		}
		// What was read may lead to another issue, which was not read yet.
	}
}

// reads are the ids and labels that were read anew, each once.
type reads map[string]bool

func (r reads) first(what string) bool {
	if r[what] {
		return false
	}
	r[what] = true
	return true
}

// observe asks for the whole state of our tickets: preflight, one search, and a
// read by id of every known ticket that the search does not show.
func (t *tickets) observe(ctx context.Context) (Remote, error) {
	remote := Remote{Missing: map[string]bool{}, Refused: map[string]string{}}
	var usable []string
	for _, project := range t.projects() {
		err := t.tracker.Preflight(ctx, t.policy.Blank(project))
		switch {
		case err == nil:
			usable = append(usable, project)
		case errors.Is(err, ErrUnauthenticated), errors.Is(err, ErrUnreachable), ctx.Err() != nil:
			return remote, err
		default:
			remote.Refused[project] = fmt.Sprintf("no ticket can be kept in project %s: %v", project, err)
			t.out.fail(err)
		}
	}
	if len(usable) > 0 {
		where := usable
		if len(t.knownIDs()) == 0 {
			where = nil // the state may be lost, and people may have moved what it knew
		}
		issues, err := t.tracker.Search(ctx, where, t.policy.ReopenWindow+24*time.Hour, t.knownIDs())
		if err != nil {
			return remote, err
		}
		issues = slices.DeleteFunc(issues, func(i Issue) bool { return !i.tools() })
		remote.Issues, remote.Searched, remote.SearchEmpty = issues, usable, len(issues) == 0
	}
	for _, id := range t.knownIDs() {
		if byID(remote.Issues, id) == nil {
			if err := t.read(ctx, id, &remote); err != nil {
				return remote, err
			}
		}
	}
	return remote, nil
}

func (t *tickets) projects() []string { return projectsOf(t.problems) }

func projectsOf(problems []Problem) []string {
	var out []string
	for _, p := range problems {
		out = append(out, p.Projects...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (t *tickets) knownIDs() []string {
	var out []string
	for _, p := range t.problems {
		if ts := t.state.Tickets[p.Fingerprint]; ts != nil && ts.ID != "" {
			out = append(out, ts.ID)
		}
	}
	for _, project := range t.projects() {
		if ts := t.state.Tickets[baselineFingerprint(project)]; ts != nil && ts.ID != "" {
			out = append(out, ts.ID)
		}
	}
	return out
}

// refresh reads what an action rests on: the issue that it would write to, or
// that would be remembered instead of the known one, and before an issue is
// created all that have its label, in any project and status.
func (t *tickets) refresh(ctx context.Context, a Action, remote *Remote, read reads) error {
	fp := a.Problem.Fingerprint
	var ids []string
	if a.Kind == Create || a.Kind == Renew {
		for _, fingerprint := range a.Problem.fingerprints() {
			if !read.first(fingerprint) {
				continue
			}
			found, err := t.tracker.Find(ctx, fingerprint)
			if err != nil {
				return err
			}
			for _, i := range found {
				ids = append(ids, i.ID)
			}
		}
	}
	if a.Issue != nil {
		ts := t.state.Tickets[fp]
		switch {
		case ts == nil || ts.ID == "":
			ids = append(ids, a.Issue.ID)
		case ts.ID != a.Issue.ID:
			ids = append(ids, a.Issue.ID, ts.ID)
		case a.Kind.Writes() || ts.Intent != nil:
			ids = append(ids, a.Issue.ID)
		}
	}
	for _, id := range ids {
		if read.first(id) {
			if err := t.read(ctx, id, remote); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *tickets) read(ctx context.Context, id string, remote *Remote) error {
	issue, err := t.tracker.Get(ctx, id)
	switch {
	case err == nil:
		remote.put(issue)
	case errors.Is(err, ErrNotFound):
		remote.Missing[id] = true
		remote.Issues = slices.DeleteFunc(remote.Issues, func(i Issue) bool { return i.ID == id })
	default:
		return err
	}
	return nil
}

func (r *Remote) put(i Issue) {
	if old := byID(r.Issues, i.ID); old != nil {
		*old = i
		return
	}
	r.Issues = append(r.Issues, i)
}

// apply performs the plan, action by action; the failure of one is not that of
// the next, unless nothing can be believed or remembered any more.
func (t *tickets) apply(ctx context.Context, plan Tickets) {
	t.unverified = true
	for _, a := range plan.Actions {
		if ctx.Err() != nil {
			t.out.fail(fmt.Errorf("tickets: the run ended before all were kept: %w", ctx.Err()))
			return
		}
		err := t.one(ctx, a)
		t.out.ticket(a, t.state.Tickets[a.Problem.Fingerprint], err)
		if err == nil {
			continue
		}
		err = fmt.Errorf("ticket for %s in %s: %w", a.Problem.Check, a.Problem.Cluster, err)
		t.out.fail(err)
		t.log.ErrorContext(ctx, "ticket failed", "cluster", a.Problem.Cluster, "check", a.Problem.Check, "action", a.Kind, "error", err)
		if fatal(err) {
			t.out.stopped = errors.Is(err, errState)
			return
		}
	}
}

// errUnverified stops all further creates of a run.
var errUnverified = errors.New("the created issue does not show its labels: tickets would be filed again every night. " +
	"Put the field Labels on the create screen and let this account browse what it creates")

func fatal(err error) bool {
	return errors.Is(err, ErrUnauthenticated) || errors.Is(err, audit.ErrLostLock) || errors.Is(err, errState) || errors.Is(err, errUnverified)
}

// errState says that nothing can be remembered, so nothing more may be done.
var errState = errors.New("the state could not be saved")

func (t *tickets) one(ctx context.Context, a Action) error {
	if a.Issue != nil {
		if err := t.adopt(ctx, a); err != nil {
			return err
		}
	}
	switch a.Kind {
	case Create, Renew:
		return t.create(ctx, a)
	case Update, Comment, Reopen, CommentResolved, Close:
		if err := t.change(ctx, a); err != nil {
			return err
		}
	case None:
	case Skip:
		return nil
	}
	return t.furnish(ctx, a)
}

// ticketState returns what is remembered of the problem's ticket, making room.
func (t *tickets) ticketState(p Problem) *audit.TicketState {
	ts := t.state.Tickets[p.Fingerprint]
	if ts == nil {
		ts = &audit.TicketState{Cluster: p.Cluster, Check: p.Check}
		t.state.Tickets[p.Fingerprint] = ts
	}
	return ts
}

// adopt remembers the issue that is there, whoever found it. An issue that is
// open ends the intent that may have made it.
func (t *tickets) adopt(ctx context.Context, a Action) error {
	ts := t.ticketState(a.Problem)
	before := *ts
	if ts.ID != a.Issue.ID {
		*ts = audit.TicketState{Cluster: ts.Cluster, Check: ts.Check, Intent: ts.Intent, Unfinished: ts.Unfinished && ts.Intent != nil}
	}
	ts.ID, ts.Key, ts.URL = a.Issue.ID, a.Issue.Key, a.Issue.URL
	ts.MissingSince = time.Time{}
	if !a.Issue.Done {
		ts.Intent = nil
	}
	if r, ok := ParseRef(a.Issue.Description); ok {
		ts.ContentHash, ts.Severity, ts.Resolved = r.Hash, r.Severity, r.State != RefOpen
		ts.Reopened = max(ts.Reopened, r.Reopened)
	}
	if *ts == before {
		return nil
	}
	return t.save(ctx)
}

func (t *tickets) create(ctx context.Context, a Action) error {
	ts := t.ticketState(a.Problem)
	attempt := 1
	if ts.Intent != nil {
		attempt = ts.Intent.Attempt + 1
	}
	ts.Intent = &audit.Intent{Op: string(a.Kind), RunID: t.runID, StartedAt: t.now(), Attempt: attempt}
	ts.Unfinished = t.policy.AttachOver > 0 || t.policy.RunURL != ""
	if err := t.save(ctx); err != nil {
		return err
	}
	preface := ""
	if a.Kind == Renew {
		preface = fmt.Sprintf("Follows %s, which was closed (%s) while the problem lasts.", a.Issue.Key, cmp.Or(wiki(a.Issue.Resolution), wiki(a.Issue.Status)))
	}
	n := t.policy.Blank(a.Problem.Project)
	n.Summary, n.Description, n.Labels = a.Ticket.Summary, a.Ticket.Description(preface), a.Ticket.Labels
	n.Priority = t.policy.Priorities[a.Ticket.Severity]
	issue, err := t.tracker.Create(ctx, n)
	switch {
	case errors.Is(err, ErrAmbiguous):
		issue, err = t.await(ctx, a, err)
		if err != nil {
			return err // the intent stays for the next run
		}
	case err != nil:
		ts.Intent = nil // refused: nothing was created
		return errors.Join(err, t.save(ctx))
	}
	*ts = audit.TicketState{
		Cluster: a.Problem.Cluster, Check: a.Problem.Check, ID: issue.ID, Key: issue.Key, URL: issue.URL,
		ContentHash: a.Ticket.Hash, Severity: a.Ticket.Severity, Unfinished: ts.Unfinished,
	}
	if err := t.save(ctx); err != nil {
		return err
	}
	if err := t.verify(ctx, a, issue.ID); err != nil {
		return err
	}
	return t.furnish(ctx, a)
}

// await looks for the issue that a create may have made, until patience ends.
func (t *tickets) await(ctx context.Context, a Action, cause error) (Issue, error) {
	var old string
	if a.Issue != nil {
		old = a.Issue.ID
	}
	look := func() (Issue, error) {
		found, err := t.tracker.Find(ctx, a.Problem.Fingerprint)
		if errors.Is(err, ErrUnauthenticated) {
			return Issue{}, backoff.Permanent(err)
		}
		for _, i := range found {
			if !i.Done && i.ID != old && a.Problem.owns(i) {
				return i, nil
			}
		}
		return Issue{}, cmp.Or(err, errNotShown)
	}
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = min(time.Second, t.patience/4), 20*time.Second
	issue, err := backoff.Retry(ctx, look, backoff.WithBackOff(b), backoff.WithMaxElapsedTime(t.patience))
	if err != nil {
		return Issue{}, fmt.Errorf("%w; the next run looks for the ticket before it files one: %w", cause, err)
	}
	return issue, nil
}

var errNotShown = errors.New("search does not show it yet")

// verify reads the first created issue of a run back: a label that Jira drops
// without a word would mean a duplicate every night (jiralert#73).
func (t *tickets) verify(ctx context.Context, a Action, id string) error {
	if !t.unverified {
		return nil
	}
	issue, err := t.tracker.Get(ctx, id)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("read the created issue back: %w", err)
	}
	if err != nil || missingLabels(a.Ticket, &issue) != nil {
		return errUnverified
	}
	t.unverified = false
	return nil
}

// change performs what is done to an issue that exists: the comment first, then
// the status, then the description, whose last line is what the next run goes
// by. So a crash in between repeats the rest and nothing else.
func (t *tickets) change(ctx context.Context, a Action) error {
	id, ts := a.Issue.ID, t.ticketState(a.Problem)
	if a.Comment != "" {
		if _, err := t.tracker.Comment(ctx, id, a.CommentRef, a.Comment); err != nil {
			return fmt.Errorf("comment on %s: %w", a.Issue.Key, err)
		}
	}
	if a.Kind == Reopen {
		if err := t.tracker.Reopen(ctx, id, t.policy.ReopenVia); err != nil {
			return fmt.Errorf("reopen %s: %w", a.Issue.Key, err)
		}
		ts.Reopened = max(ts.Reopened, a.ref.Reopened) + 1
	}
	if edit, ok := t.edit(a); ok {
		if err := t.tracker.Edit(ctx, id, edit); err != nil {
			return fmt.Errorf("update %s: %w", a.Issue.Key, err)
		}
	}
	if a.Kind == Close { // after the edit: closed issues cannot be edited in many workflows
		if err := t.tracker.Close(ctx, id, t.policy.CloseVia, t.policy.CloseResolution); err != nil {
			return fmt.Errorf("close %s: %w", a.Issue.Key, err)
		}
	}
	ts.Resolved = a.Kind == CommentResolved || a.Kind == Close
	if !ts.Resolved {
		ts.ContentHash, ts.Severity = a.Ticket.Hash, a.Ticket.Severity
	}
	if a.Kind == Comment || a.Kind == Reopen && !a.ours {
		ts.CommentedHash = a.Ticket.Hash
	}
	return t.save(ctx)
}

// edit is what changes in the issue's fields. People's words stay: around the
// tool's part of the description, and in a summary that is not as it was written.
func (t *tickets) edit(a Action) (Edit, bool) {
	var e Edit
	var ok bool
	if a.edited != "" {
		return Edit{Description: a.edited}, true
	}
	switch a.Kind {
	case Update, Reopen:
		e.Description, ok = ReplaceSection(a.Issue.Description, a.Ticket)
		if ok && a.ref.SummaryHash == hash(a.Issue.Summary) && a.Issue.Summary != a.Ticket.Summary {
			e.Summary = a.Ticket.Summary
		}
		e.AddLabels = missingLabels(a.Ticket, a.Issue)
		return e, ok || e.AddLabels != nil
	case CommentResolved:
		e.Description, ok = MarkGone(a.Issue.Description, t.runID, RefResolved)
	case Close:
		e.Description, ok = MarkGone(a.Issue.Description, t.runID, RefClosed)
	default: // a comment is all
	}
	return e, ok
}

// renamed carries what is remembered over when a cluster's id becomes known or
// the cluster was built anew under its old name: cluster and check are the same.
func renamed(st *audit.State, problems []Problem) {
	for _, p := range problems {
		if st.Tickets[p.Fingerprint] != nil {
			continue
		}
		for fp, ts := range st.Tickets {
			if ts.Cluster == p.Cluster && ts.Check == p.Check {
				st.Tickets[p.Fingerprint] = ts
				delete(st.Tickets, fp)
				break
			}
		}
	}
}

// missing notes since when known tickets cannot be seen.
func (t *tickets) missing(remote Remote) {
	for _, p := range t.problems {
		ts := t.state.Tickets[p.Fingerprint]
		if ts != nil && remote.Missing[ts.ID] && ts.MissingSince.IsZero() {
			ts.MissingSince = t.now()
		}
	}
}
