package audit

import (
	"fmt"
	"strconv"
	"strings"

	"ipamaudit/checks"
)

// Exit codes of a run. 2 (usage, configuration, no input) is the caller's.
const (
	ExitOK         = 0
	ExitFindings   = 1
	ExitUsage      = 2
	ExitIncomplete = 3
	ExitNotify     = 4
)

// maxNamed is how many clusters or checks the sentence about an exit code names.
const maxNamed = 3

// ExitCode returns the exit code of the run and, in one line for people, why it
// is that one. failOn is the lowest severity that makes it 1; "" means that
// findings never do. "Could not look" comes before "could not tell", and that
// before "found something".
func (r *Report) ExitCode(failOn checks.Severity, notifyFailed bool) (code int, why string) {
	found := r.foundSentence(failOn)
	switch incomplete := r.incompleteReasons(); {
	case len(incomplete) > 0:
		why = "audit incomplete: " + cut(incomplete, "; ")
		if notifyFailed {
			why += "; a notification failed"
		}
		if found != "" {
			why += "; besides, " + found
		}
		return ExitIncomplete, why
	case notifyFailed:
		why = "a notification failed"
		if found != "" {
			why += "; besides, " + found
		}
		return ExitNotify, why
	case found != "":
		return ExitFindings, found
	default:
		return ExitOK, r.calmSentence(failOn)
	}
}

// incompleteReasons names every cluster that failed and every check that could
// not look.
func (r *Report) incompleteReasons() []string {
	var failed, partial []string
	for i := range r.Clusters {
		c := &r.Clusters[i]
		if c.Status == Failed {
			failed = append(failed, fmt.Sprintf("cluster %s could not be audited (%s)", plain(c.Name), plain(c.Error)))
			continue
		}
		for _, k := range c.Checks {
			if k.Incomplete {
				reason := k.Reason
				if reason == "" {
					reason = "not seen: " + cut(k.Unseen, ", ")
				}
				partial = append(partial, fmt.Sprintf("%s on %s: %s", k.ID, plain(c.Name), plain(reason)))
			}
		}
	}
	return append(failed, partial...)
}

// foundSentence says what was found at or above failOn, empty for nothing.
func (r *Report) foundSentence(failOn checks.Severity) string {
	if failOn == "" {
		return ""
	}
	var counts []string
	for _, s := range checks.Severities() {
		if n := r.Totals.of(s); n > 0 && s.AtLeast(failOn) {
			counts = append(counts, fmt.Sprintf("%d %s", n, s))
		}
	}
	if len(counts) == 0 {
		return ""
	}
	worst, where := r.worst()
	return fmt.Sprintf("found %s at or above %s; the worst: %s on %s: %s",
		strings.Join(counts, ", "), failOn, worst.Check, plain(where), plain(worst.Title))
}

// worst is the first finding of the highest severity that counts.
func (r *Report) worst() (worst *Finding, cluster string) {
	for i := range r.Clusters {
		c := &r.Clusters[i]
		for j := range c.Findings {
			f := &c.Findings[j]
			if f.Counts() && (worst == nil || f.Severity.Rank() > worst.Severity.Rank()) {
				worst, cluster = f, c.Name
			}
		}
	}
	return worst, cluster
}

func (r *Report) calmSentence(failOn checks.Severity) string {
	t := r.Totals
	var s strings.Builder
	if len(r.Clusters) == 1 {
		fmt.Fprintf(&s, "audited %s", plain(r.Clusters[0].Name))
	} else {
		fmt.Fprintf(&s, "audited %d clusters", len(r.Clusters))
	}
	switch all := t.Critical + t.High + t.Medium + t.Low; {
	case all == 0:
		s.WriteString(": nothing found")
	case failOn == "":
		fmt.Fprintf(&s, ": %d critical, %d high, %d medium, %d low, which never fail this run (--fail-on none)", t.Critical, t.High, t.Medium, t.Low)
	default:
		fmt.Fprintf(&s, ": nothing at or above %s", failOn)
	}
	if n := r.suppressed(); n > 0 {
		fmt.Fprintf(&s, ", %d suppressed", n)
	}
	if t.ChecksUnknown > 0 {
		fmt.Fprintf(&s, "; unknown, not calm: %s", cut(r.unknownChecks(), ", "))
	}
	return s.String()
}

// suppressed is the number of findings that are there and count for nothing.
func (r *Report) suppressed() (n int) {
	for i := range r.Clusters {
		for j := range r.Clusters[i].Findings {
			if f := &r.Clusters[i].Findings[j]; f.Suppressed != nil && f.State != StateResolved && f.State != StateUnknown {
				n++
			}
		}
	}
	return n
}

func (r *Report) unknownChecks() []string {
	var out []string
	for i := range r.Clusters {
		for _, k := range r.Clusters[i].Checks {
			if k.Status == checks.StatusUnknown {
				out = append(out, fmt.Sprintf("%s on %s", k.ID, plain(r.Clusters[i].Name)))
			}
		}
	}
	return out
}

// of returns the count of one severity.
func (t Totals) of(s checks.Severity) int {
	switch s {
	case checks.Critical:
		return t.Critical
	case checks.High:
		return t.High
	case checks.Medium:
		return t.Medium
	case checks.Low:
		return t.Low
	default:
		return 0
	}
}

func cut(list []string, sep string) string {
	if len(list) <= maxNamed {
		return strings.Join(list, sep)
	}
	return fmt.Sprintf("%s%sand %d more", strings.Join(list[:maxNamed], sep), sep, len(list)-maxNamed)
}

// plain keeps a name or error on one line and control characters out of the
// terminal.
func plain(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n' || r == '\t':
			b.WriteByte(' ')
		case !strconv.IsPrint(r):
			q := strconv.QuoteRune(r)
			b.WriteString(q[1 : len(q)-1])
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
