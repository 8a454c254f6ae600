package notify

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"net/url"
	"strings"
)

// runLink is the id of the link to the run, of which a ticket has one.
const runLink = "ipamaudit-run"

// furnish adds to a new ticket what its fields cannot hold. A crash or a lost
// answer leaves it to a later run: the attachment is looked for first, the link
// has an id.
func (t *tickets) furnish(ctx context.Context, a Action) error {
	ts := t.state.Tickets[a.Problem.Fingerprint]
	if ts == nil || !ts.Unfinished || ts.ID == "" || !a.Problem.Seen.Present || a.Issue != nil && a.Issue.Done && a.Kind != Renew {
		return nil
	}
	if over := t.policy.AttachOver; over > 0 && a.Problem.affected() > over {
		name := AttachmentPrefix + a.Problem.Seen.Hash + ".csv"
		if err := t.tracker.Attach(ctx, ts.ID, name, a.Problem.table()); err != nil {
			return fmt.Errorf("attach the list of what is affected to %s: %w", ts.Key, err)
		}
	}
	if to := t.policy.runURL(t.runID); to != "" {
		if err := t.tracker.Link(ctx, ts.ID, runLink, to, "ipamaudit run "+clip(clean(t.runID), 200)); err != nil {
			return fmt.Errorf("link %s to the run: %w", ts.Key, err)
		}
	}
	ts.Unfinished = false
	return t.save(ctx)
}

func (p TicketPolicy) runURL(runID string) string {
	return strings.ReplaceAll(p.RunURL, "{run}", url.PathEscape(runID))
}

func (p Problem) affected() (n int) {
	for _, f := range p.Findings {
		n += len(f.Affected)
	}
	return n
}

// table is all that is affected, as CSV.
func (p Problem) table() []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	row := func(cells ...string) {
		for i, c := range cells {
			// A spreadsheet would run what begins like a formula.
			if c = clean(c); c != "" && strings.ContainsRune("=+-@", rune(c[0])) {
				c = "'" + c
			}
			cells[i] = c
		}
		_ = w.Write(cells) // a buffer takes everything
	}
	row("cluster", "check", "severity", "finding", "kind", "namespace", "name", "note")
	for _, f := range p.Findings {
		for _, o := range f.Affected {
			row(p.Cluster, p.Check, string(f.Severity), f.Subject.String(), o.Kind, o.Namespace, o.Name, o.Note)
		}
	}
	w.Flush()
	return b.Bytes()
}
