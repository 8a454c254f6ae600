package notify

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"ipamaudit/audit"
)

// dryRun writes the plan as people would see its effects, and performs nothing.
func dryRun(ctx context.Context, r *audit.Report, t *tickets, m *messages, o Options, c Clients) string {
	var b strings.Builder
	if len(t.projects()) > 0 {
		planTickets(ctx, &b, t, c.NoTracker)
	} else {
		b.WriteString("Tickets: none, no project is configured.\n")
	}
	digests := Digests(r, m.state.Channels, t.out.links, t.out.notices(), o.Digest)
	if len(digests) == 0 {
		b.WriteString("\nMessages: none, no channel is configured.\n")
	}
	if len(digests) > 0 && c.NoMessenger != nil {
		fmt.Fprintf(&b, "\nMessages (planned from the state of earlier runs, Slack was not asked: %s; nothing was sent)\n", oneLine(c.NoMessenger))
	}
	for _, d := range digests {
		planMessages(ctx, &b, m, d)
	}
	return b.String()
}

func planTickets(ctx context.Context, b *strings.Builder, t *tickets, noTracker error) {
	plan, source := Tickets{}, "from the state of earlier runs, Jira was not asked"
	if noTracker != nil {
		source += ": " + oneLine(noTracker)
	}
	var err error
	if t.tracker != nil {
		plan, err = t.plan(ctx)
		source = "as " + t.tracker.String() + " is now"
	}
	if t.tracker == nil || err != nil {
		if err != nil {
			t.out.fail(fmt.Errorf("dry run: read Jira: %w", err))
			source = "from the state of earlier runs, Jira could not be read: " + oneLine(err)
		}
		plan = PlanTickets(t.problems, remembered(t.state, t.problems), t.state, t.policy, t.now())
	}
	t.out.Notices = append(t.out.Notices, plan.Notices...)
	fmt.Fprintf(b, "Tickets (planned %s; nothing was written)\n", clean(source))
	silent := 0
	for _, a := range plan.Actions {
		ts := &audit.TicketState{Key: "new in " + a.Problem.Project}
		if a.Issue != nil {
			ts = &audit.TicketState{Key: a.Issue.Key, URL: a.Issue.URL}
		} else if !a.Kind.Writes() {
			ts = nil
		}
		t.out.ticket(a, ts, nil)
		if a.Kind == None {
			silent++
			continue
		}
		writeAction(b, a, t.policy, t.runID)
	}
	if silent > 0 {
		fmt.Fprintf(b, "\n  %s would stay as they are.\n", count(silent, "ticket", "tickets"))
	}
	for _, n := range plan.Notices {
		fmt.Fprintf(b, "\n  Note: %s\n", clean(n))
	}
}

func writeAction(b *strings.Builder, a Action, p TicketPolicy, runID string) {
	where := a.Problem.Project
	if a.Issue != nil {
		where = a.Issue.Key
	}
	fmt.Fprintf(b, "\n  %s %s: %s in %s (%s)\n", strings.ToUpper(string(a.Kind)), clean(where), a.Problem.Check, clean(a.Problem.Cluster), a.Reason)
	if a.Why != "" {
		fmt.Fprintf(b, "    Why: %s\n", clean(a.Why))
	}
	if a.Comment != "" {
		b.WriteString("    Comment:\n" + indent(a.Comment))
	}
	switch a.Kind {
	case Create, Renew:
		fmt.Fprintf(b, "    Summary: %s\n    Labels: %s\n    Description:\n%s", a.Ticket.Summary,
			strings.Join(a.Ticket.Labels, " "), indent(a.Ticket.Description("")))
		if over := p.AttachOver; over > 0 && a.Problem.affected() > over {
			fmt.Fprintf(b, "    Attachment: the list of %d objects\n", a.Problem.affected())
		}
		if to := p.runURL(runID); to != "" {
			fmt.Fprintf(b, "    Link: %s\n", clean(to))
		}
	case Update, Reopen:
		b.WriteString("    Description, the tool's part:\n" + indent(a.Ticket.Section(maxSection)))
	default: // the comment, or the reason, says it
	}
}

func planMessages(ctx context.Context, b *strings.Builder, m *messages, d Digest) {
	parent := d.Parent()
	reason, sent := m.reason(d)
	if !sent && m.messenger != nil {
		_, err := m.messenger.Find(ctx, d.Channel, "", parent.Key, m.now().Add(-lookBack))
		sent = err == nil
		if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrCannotLook) {
			m.out.fail(fmt.Errorf("dry run: read Slack: %w", err))
		}
	}
	if reason == Silence && !sent {
		fmt.Fprintf(b, "\nMessage to %s: none, %s.\n", clean(d.Channel), reason)
		return
	}
	what := "new message"
	if sent {
		what = "update of this run's message"
	}
	fmt.Fprintf(b, "\nMessage to %s (%s; %s; not sent)\n%s", clean(d.Channel), what, reason, indent(parent.String()))
	for _, reply := range d.Replies() {
		fmt.Fprintf(b, "\n  Reply in its thread, %s\n%s", reply.Part, indent(reply.String()))
	}
}

func indent(s string) string {
	return "      " + strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n      ") + "\n"
}

// remembered makes a Remote of what earlier runs knew.
func remembered(st *audit.State, problems []Problem) Remote {
	r := Remote{Missing: map[string]bool{}}
	for _, p := range problems {
		ts := st.Tickets[p.Fingerprint]
		if ts == nil || ts.ID == "" {
			continue
		}
		ref := Ref{Fingerprint: p.Fingerprint, Hash: ts.ContentHash, SummaryHash: hash(""), Severity: ts.Severity, State: RefOpen, Reopened: ts.Reopened}
		if ts.Resolved {
			ref.State = RefResolved
		}
		r.Issues = append(r.Issues, Issue{
			ID: ts.ID, Key: ts.Key, URL: ts.URL, Labels: append(p.labels(), StaticLabel),
			Description: beginLine + "\n" + ref.line(),
		})
	}
	return r
}
