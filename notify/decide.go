// Package notify tells people: one ticket per cluster and check in Jira, one
// digest per channel and run in Slack. It decides (why would we speak?), plans
// (which actions?) and applies (one by one, each remembered), in that order; the
// first two are pure. What talks to the outside are notify/jira and notify/slack.
package notify

import "ipamaudit/checks"

// Reason is why something is said about a problem, or why not.
type Reason string

// Reasons to speak.
const (
	// New: nobody was told of it yet.
	New Reason = "new"
	// Changed: its content is other than what was written last.
	Changed Reason = "changed"
	// Escalated: it is worse than what was written last.
	Escalated Reason = "escalated"
	// Back: people were told that it is gone, and it is there again.
	Back Reason = "back"
	// Resolved: it was written about, and a run that could look does not see it.
	Resolved Reason = "resolved"
)

// Reasons to be silent.
const (
	// NoChange: what was written last still holds.
	NoChange Reason = "no change"
	// Unknown: this run could not look. Nothing is resolved by it.
	Unknown Reason = "unknown"
	// Suppressed: the configuration silences it.
	Suppressed Reason = "suppressed"
	// SecondLook: too few runs in a row have seen it.
	SecondLook Reason = "second look pending"
	// BelowMinimum: it is there and not bad enough.
	BelowMinimum Reason = "below the minimum severity"
)

// Speaks reports whether the reason is one to speak.
func (r Reason) Speaks() bool {
	switch r {
	case New, Changed, Escalated, Back, Resolved:
		return true
	default:
		return false
	}
}

// Told is what people were told last about a problem. The zero value: nothing.
type Told struct {
	Ever     bool
	Resolved bool
	// Severity and Hash are of the last content; empty where that is not known.
	Severity checks.Severity
	Hash     string
}

// Seen is what this run saw of a problem.
type Seen struct {
	// Present: it is there, counts, is bad enough and was seen often enough.
	Present  bool
	Severity checks.Severity
	Hash     string
	// Quiet is why a problem that may be there is not Present: Unknown,
	// Suppressed, SecondLook or BelowMinimum. It is empty when the run looked and
	// there is nothing.
	Quiet Reason
}

// Decide compares what people know with what this run saw.
func Decide(told Told, seen Seen) Reason {
	switch {
	case seen.Present && !told.Ever:
		return New
	case seen.Present && told.Resolved:
		return Back
	case seen.Present && told.Severity != "" && seen.Severity.Rank() > told.Severity.Rank():
		return Escalated
	case seen.Present && seen.Hash != told.Hash:
		return Changed
	case seen.Present:
		return NoChange
	case seen.Quiet != "":
		return seen.Quiet
	case told.Ever && !told.Resolved:
		return Resolved
	default:
		return NoChange
	}
}
