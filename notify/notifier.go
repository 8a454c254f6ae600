package notify

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"ipamaudit/audit"
)

// Options are how people are told.
type Options struct {
	Tickets TicketPolicy
	Digest  DigestPolicy
	// DryRun plans and writes nothing; the plan is in Outcome.Plan.
	DryRun bool
	// Patience is how long a lost answer is looked for; default 2 minutes.
	Patience time.Duration
	// Now is the clock; nil is the real one.
	Now func() time.Time
}

// Clients are the places to tell people. Either may be nil: there it is not.
type Clients struct {
	Tracker   Tracker
	Messenger Messenger
	// NoTracker and NoMessenger say why one that is wanted is not there: its token
	// could not be read. The other one hears of it.
	NoTracker, NoMessenger error
}

// Outcome is what was done.
type Outcome struct {
	Tickets  []TicketResult
	Messages []MessageResult
	// Notices are for people and went into the digest.
	Notices []string
	// Errors went wrong; Run returns them joined.
	Errors []error
	// Plan is the text of a dry run.
	Plan string
	// stopped: nothing more may be done.
	stopped bool
}

// TicketResult is what became of one problem's ticket.
type TicketResult struct {
	Cluster, Check string
	Key, URL       string
	Action         ActionKind
	Reason         Reason
	Why            string
	Error          string
}

// MessageResult is what became of one message.
type MessageResult struct {
	Channel, Part string
	TS, Permalink string
	Action        string // posted, updated, unchanged, withheld, or why there is none
	Error         string
}

func (o *Outcome) fail(err error) { o.Errors = append(o.Errors, err) }

func (o *Outcome) ticket(a Action, ts *audit.TicketState, err error) {
	res := TicketResult{Cluster: a.Problem.Cluster, Check: a.Problem.Check, Action: a.Kind, Reason: a.Reason, Why: a.Why}
	if ts != nil {
		res.Key, res.URL = ts.Key, ts.URL
	}
	if err != nil {
		res.Error = oneLine(err)
	}
	o.Tickets = append(o.Tickets, res)
}

// links finds tickets for the digest.
func (o *Outcome) links(cluster, check string) Link {
	for _, t := range o.Tickets {
		if t.Cluster == cluster && t.Check == check {
			return Link{t.Key, t.URL}
		}
	}
	return Link{}
}

// oneLine makes an error readable in one line of a digest or a log.
func oneLine(err error) string { return clip(clean(err.Error()), 400) }

// Run tells people about a report: Jira first, for the digest names the tickets,
// then Slack. What fails in Slack undoes nothing in Jira, and the other way the
// digest says what failed. Every write is remembered through the store at once;
// the caller holds its lock. The state is that after the report's lifecycle and
// is changed in place, except by a dry run. The error joins all that went wrong;
// the Outcome is valid with it.
func Run(ctx context.Context, r *audit.Report, st *audit.State, store audit.Store, o Options, c Clients, log *slog.Logger) (Outcome, error) {
	o.Tickets, o.Digest = o.Tickets.WithDefaults(), o.Digest.WithDefaults()
	o.Patience = cmp.Or(o.Patience, 2*time.Minute)
	if o.Now == nil {
		o.Now = time.Now
	}
	save := func(ctx context.Context) error {
		// What was written must be remembered even when the run is being ended.
		if err := store.Save(context.WithoutCancel(ctx), st); err != nil {
			return fmt.Errorf("%w in %s: %w", errState, store, err)
		}
		return nil
	}
	if o.DryRun {
		copied, err := clone(st)
		if err != nil {
			return Outcome{}, err
		}
		st, save = copied, func(context.Context) error { return nil }
	}
	out := Outcome{}
	renamed(st, Problems(r, st, o.Tickets))
	t := &tickets{
		tracker: c.Tracker, policy: o.Tickets, problems: Problems(r, st, o.Tickets), runID: r.Run.ID,
		state: st, save: save, now: o.Now, patience: o.Patience, log: log, out: &out,
	}
	m := &messages{messenger: c.Messenger, state: st, save: save, now: o.Now, patience: o.Patience, log: log, out: &out}
	if c.Messenger != nil {
		m.settle(ctx, r.Run.ID)
	}
	m.asOf = Remember(r, st, o.Digest, o.Now())
	if o.DryRun {
		out.Plan = dryRun(ctx, r, t, m, o, c)
		return out, errors.Join(out.Errors...)
	}
	if c.NoTracker != nil {
		out.fail(fmt.Errorf("no ticket was touched: %w", c.NoTracker))
	}
	if c.NoMessenger != nil {
		out.fail(fmt.Errorf("no digest was sent: %w", c.NoMessenger))
	}
	// What this run knows survives it, whatever happens from here on.
	if err := save(ctx); err != nil {
		return out, err
	}
	if c.Tracker != nil {
		keepTickets(ctx, t)
	} else {
		t.remember()
	}
	if c.Messenger != nil && !out.stopped {
		sendDigests(ctx, r, m, o)
	}
	prune(st, o.Now())
	if !out.stopped {
		if err := save(ctx); err != nil {
			out.fail(err)
		}
	}
	return out, errors.Join(out.Errors...)
}

func keepTickets(ctx context.Context, t *tickets) {
	plan, err := t.plan(ctx)
	if err != nil {
		err = fmt.Errorf("no ticket was touched: %w", err)
		t.out.fail(err)
		t.log.ErrorContext(ctx, "tickets failed", "jira", t.tracker.String(), "error", err)
		t.remember()
		return
	}
	t.out.Notices = append(t.out.Notices, plan.Notices...)
	t.apply(ctx, plan)
}

// remember notes the tickets of earlier runs, whose links still hold.
func (t *tickets) remember() {
	for _, p := range t.problems {
		if ts := t.state.Tickets[p.Fingerprint]; ts != nil {
			t.out.ticket(Action{Kind: None, Problem: p}, ts, nil)
		}
	}
}

func sendDigests(ctx context.Context, r *audit.Report, m *messages, o Options) {
	digests := Digests(r, m.state.Channels, m.out.links, m.out.notices(), o.Digest)
	if len(digests) == 0 {
		return
	}
	if err := m.messenger.Preflight(ctx); err != nil {
		err = fmt.Errorf("no digest was sent: %w", err)
		m.out.fail(err)
		m.log.ErrorContext(ctx, "digests failed", "slack", m.messenger.String(), "error", err)
		return
	}
	for _, d := range digests {
		if m.send(ctx, d); m.out.stopped {
			return
		}
	}
}

// notices are what the digest says besides the report: also what failed so far.
func (o *Outcome) notices() []string {
	out := append([]string(nil), o.Notices...)
	for _, err := range o.Errors {
		out = append(out, oneLine(err))
	}
	return out
}

func clone(st *audit.State) (*audit.State, error) {
	b, err := json.Marshal(st)
	if err != nil {
		return nil, fmt.Errorf("copy the state for a dry run: %w", err)
	}
	out := audit.NewState()
	if err := json.Unmarshal(b, out); err != nil {
		return nil, fmt.Errorf("copy the state for a dry run: %w", err)
	}
	return out, nil
}
