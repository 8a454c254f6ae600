package notify

import (
	"cmp"
	"strings"
	"time"

	"ipamaudit/audit"
	"ipamaudit/checks"
)

// ReopenMode says what happens to a closed ticket whose problem is still there.
type ReopenMode string

// The modes. Where a ticket is not reopened a new one is filed that names it.
const (
	ReopenNever  ReopenMode = "never"
	ReopenWithin ReopenMode = "within" // if it was closed within TicketPolicy.ReopenWindow
	ReopenAlways ReopenMode = "always"
)

// TicketPolicy is how tickets are kept. The zero value is usable but for Project.
type TicketPolicy struct {
	// Project returns the project of a new ticket; "" files none.
	Project func(c *audit.ClusterReport, check string, s checks.Severity) string
	// IssueType defaults to Task. It and what follows is set at creation only and
	// never touched again.
	IssueType  string
	Priorities map[checks.Severity]string
	Components []string
	Labels     []string
	// Assignee is an account id on Cloud, a user name on Data Center.
	Assignee string
	// Fields are further fields by id (customfield_10010), as the API wants them.
	Fields map[string]any
	// AttachOver attaches the list of what is affected to a new ticket that is
	// about more objects than so many; 0 never does.
	AttachOver int
	// RunURL is linked from a new ticket, with the run's id for {run}; "" is none.
	RunURL string

	// MinSeverity defaults to medium.
	MinSeverity checks.Severity
	// After is how many runs in a row must see a finding before it is filed; one
	// that a single look cannot prove waits for the second in any case.
	After func(check string) int
	// Adopt files one baseline per project instead of a ticket for each problem.
	Adopt bool
	// MaxNew caps the tickets created in one run; default 20.
	MaxNew int

	Reopen       ReopenMode    // default within
	ReopenWindow time.Duration // default 14 days
	MaxReopens   int           // default 3, negative is no limit; then the ticket is commented once and stays closed
	// ReopenVia is the name of a transition or status; default any to an open one.
	ReopenVia string
	// WontFix are resolutions that mean: we know, be silent. Default Won't Do,
	// Won't Fix, Declined, Duplicate.
	WontFix []string
	// AcceptedLabel on a ticket silences it; default ipam-accepted.
	AcceptedLabel string

	// ResolveAfter is how many clean runs it takes to say in the ticket that the
	// problem is gone; default 1, negative is never. From 2 on only complete runs
	// of the cluster count.
	ResolveAfter int
	// CloseAfter closes a ticket after so many complete clean runs in a row; 0,
	// the default, leaves closing to people.
	CloseAfter int
	// CloseVia is the name of a transition or status; default any to a done one.
	CloseVia string
	// CloseResolution is given where the transition asks for one; default Done.
	CloseResolution string

	// IntentLag is how long search may take to show a created issue; default 10 min.
	IntentLag time.Duration
	// MissingGrace is how long a known ticket may be invisible before it counts as
	// deleted; default 20 h, which is two nights.
	MissingGrace time.Duration
}

// WithDefaults fills in what is not set.
func (p TicketPolicy) WithDefaults() TicketPolicy {
	if p.Project == nil {
		p.Project = func(*audit.ClusterReport, string, checks.Severity) string { return "" }
	}
	if p.After == nil {
		p.After = func(string) int { return 1 }
	}
	if p.WontFix == nil {
		p.WontFix = []string{"Won't Do", "Won't Fix", "Declined", "Duplicate"}
	}
	p.IssueType = cmp.Or(p.IssueType, "Task")
	p.MinSeverity = cmp.Or(p.MinSeverity, checks.Medium)
	p.MaxNew = cmp.Or(p.MaxNew, 20)
	p.Reopen = cmp.Or(p.Reopen, ReopenWithin)
	p.ReopenWindow = cmp.Or(p.ReopenWindow, 14*24*time.Hour)
	p.MaxReopens = cmp.Or(p.MaxReopens, 3)
	p.ResolveAfter = cmp.Or(p.ResolveAfter, 1)
	p.AcceptedLabel = cmp.Or(p.AcceptedLabel, "ipam-accepted")
	p.CloseResolution = cmp.Or(p.CloseResolution, "Done")
	p.IntentLag = cmp.Or(p.IntentLag, 10*time.Minute)
	p.MissingGrace = cmp.Or(p.MissingGrace, 20*time.Hour)
	return p
}

// Blank is a new issue of a project without what is a problem's own.
func (p TicketPolicy) Blank(project string) NewIssue {
	n := NewIssue{
		Project: project, Type: p.IssueType, Components: p.Components, Assignee: p.Assignee, Fields: p.Fields,
		Attach: p.AttachOver > 0, Link: p.RunURL != "",
	}
	for _, s := range checks.Severities() {
		n.Priority = cmp.Or(n.Priority, p.Priorities[s])
	}
	return n
}

// wontFix compares resolutions as people write them: case and the form of the
// apostrophe do not matter.
func (p TicketPolicy) wontFix(resolution string) bool {
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "\u2019", "'")) }
	for _, w := range p.WontFix {
		if plain(w) == plain(resolution) {
			return true
		}
	}
	return false
}

// StaticLabel is on every ticket of the tool.
const StaticLabel = "calico-ipam-audit"

// FingerprintLabel is what a ticket is found by. It has no characters that JQL or
// Jira's label rules could mind.
func FingerprintLabel(fingerprint string) string { return labelPrefix + fingerprint }

const labelPrefix = "ipam-fp-"
