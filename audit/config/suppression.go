package config

import (
	"fmt"
	"path"
	"strings"
	"time"
)

// Suppression silences findings that somebody has accepted for a while. Patterns are those of
// path.Match, but * also crosses slashes.
type Suppression struct {
	Check   string    `yaml:"check" default:"*" format:"glob" example:"multi-block-nodes" doc:"pattern for the check"`
	Cluster string    `yaml:"cluster" default:"*" format:"glob" example:"lab-*" doc:"pattern for the cluster"`
	Subject string    `yaml:"subject" default:"*" format:"glob" example:"Node/gpu-*" doc:"pattern for the subject: KIND/NAME or KIND/NAMESPACE/NAME"`
	Reason  string    `yaml:"reason" required:"true" example:"\"batch nodes come and go; NET-42\"" doc:"why this is accepted"`
	Owner   string    `yaml:"owner" required:"true" example:"team-network" doc:"who answers for it"`
	Until   time.Time `yaml:"until" required:"true" example:"2027-03-31" doc:"date (its end in UTC) or RFC 3339 time; the finding comes back then"`

	// Origin is where it is written, such as "suppressions[2] (config.yaml:57)".
	Origin string `yaml:"-"`
}

// Expired tells whether the suppression no longer holds.
func (s Suppression) Expired(now time.Time) bool { return now.After(s.Until) }

// matches ignores time.
func (s Suppression) matches(check, cluster, subject string) bool {
	return glob(s.Check, check) && glob(s.Cluster, cluster) && glob(s.Subject, subject)
}

// glob is path.Match with the slash made an ordinary character.
func glob(pattern, text string) bool {
	plain := func(s string) string { return strings.ReplaceAll(s, "/", "\x00") }
	ok, err := path.Match(plain(pattern), plain(text))
	return ok && err == nil
}

// hasPattern tells a pattern from a plain text.
func hasPattern(s string) bool { return strings.ContainsAny(s, `*?[\`) }

// Suppressions are tried in the order of the file.
type Suppressions []Suppression

// Match is the first suppression in force for a finding.
func (s Suppressions) Match(check, cluster, subject string, now time.Time) (Suppression, bool) {
	for _, one := range s {
		if !one.Expired(now) && one.matches(check, cluster, subject) {
			return one, true
		}
	}
	return Suppression{}, false
}

// SuppressionState says why a suppression wants attention.
type SuppressionState string

// The states that [Suppressions.Review] reports.
const (
	SuppressionExpired  SuppressionState = "expired"
	SuppressionExpiring SuppressionState = "expiring" // within seven days
	SuppressionUnused   SuppressionState = "unused"
)

// expiryNotice is long enough for a working week to pass before the finding comes back.
const expiryNotice = 7 * 24 * time.Hour

// SuppressionNote is one suppression that wants attention.
type SuppressionNote struct {
	Suppression Suppression
	State       SuppressionState
}

// Review lists the suppressions that are expired, about to expire, or unused. The keys of used are
// the Origins that matched in this run; nil leaves "unused" out, as a run must that did not look at
// everything.
func (s Suppressions) Review(now time.Time, used map[string]bool) []SuppressionNote {
	var notes []SuppressionNote
	for _, one := range s {
		switch {
		case one.Expired(now):
			notes = append(notes, SuppressionNote{one, SuppressionExpired})
		case used != nil && !used[one.Origin]:
			notes = append(notes, SuppressionNote{one, SuppressionUnused})
		case one.Expired(now.Add(expiryNotice)):
			notes = append(notes, SuppressionNote{one, SuppressionExpiring})
		}
	}
	return notes
}

// validate also sets the origins. Check ids without a pattern character must exist, if ids is not nil.
func (s Suppressions) validate(ids []string, now time.Time, f *findings) {
	for i := range s {
		one, at := &s[i], fmt.Sprintf("suppressions[%d]", i)
		where := f.at(at, "")
		one.Origin = fmt.Sprintf("%s (%s:%d)", at, where.File, where.Line)
		if one.Check == "*" && one.Cluster == "*" && one.Subject == "*" &&
			!f.mentions(at, "check", "cluster", "subject") {
			f.fail(at, "would silence everything: narrow check, cluster or subject")
		}
		if ids != nil && !hasPattern(one.Check) {
			f.oneOf(at+".check", one.Check, ids)
		}
		if now.IsZero() || one.Until.IsZero() {
			continue
		}
		until := one.Until.Format(time.RFC3339)
		switch {
		case one.Expired(now):
			f.warn(at, "expired at %s and silences nothing: %s decides whether to renew or remove it", until, quote(one.Owner))
		case one.Expired(now.Add(expiryNotice)):
			f.warn(at, "expires at %s: %s decides whether to renew it", until, quote(one.Owner))
		}
	}
}
