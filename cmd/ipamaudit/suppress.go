package main

import (
	"fmt"
	"time"

	"ipamaudit/audit"
	"ipamaudit/audit/config"
)

// suppressor is the configured suppressions as the run asks for them.
type suppressor struct {
	list config.Suppressions
	now  time.Time
	used map[string]bool
}

func newSuppressor(list config.Suppressions, now time.Time) *suppressor {
	return &suppressor{list: list, now: now, used: map[string]bool{}}
}

// Suppress implements audit.Suppressor.
func (s *suppressor) Suppress(cluster string, f *audit.Finding) *audit.Suppression {
	subject := f.Subject.Kind + "/" + f.Subject.Name
	if f.Subject.Namespace != "" {
		subject = f.Subject.Kind + "/" + f.Subject.Namespace + "/" + f.Subject.Name
	}
	m, ok := s.list.Match(f.Check, cluster, subject, s.now)
	if !ok {
		return nil
	}
	s.used[m.Origin] = true
	return &audit.Suppression{Reason: m.Reason, Owner: m.Owner, Until: m.Until.UTC().Format(time.RFC3339)}
}

// Review implements audit.Suppressor.
func (s *suppressor) Review(lookedAtEverything bool) []string {
	used := s.used
	if !lookedAtEverything {
		used = nil
	}
	var out []string
	for _, n := range s.list.Review(s.now, used) {
		what := fmt.Sprintf("suppression of %s on %s for %s by %s", n.Suppression.Check, n.Suppression.Cluster, n.Suppression.Subject, n.Suppression.Owner)
		switch n.State {
		case config.SuppressionExpired:
			what += " expired at " + n.Suppression.Until.Format(time.RFC3339) + " and silences nothing: renew or remove it"
		case config.SuppressionExpiring:
			what += " expires at " + n.Suppression.Until.Format(time.RFC3339)
		case config.SuppressionUnused:
			what += " matched nothing in this run: remove it if the problem is gone"
		}
		out = append(out, what+" ("+n.Suppression.Origin+")")
	}
	return out
}
