package main

import (
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
func (s *suppressor) Review(lookedAtEverything bool) []audit.SuppressionNotice {
	used := s.used
	if !lookedAtEverything {
		used = nil
	}
	var out []audit.SuppressionNotice
	for _, n := range s.list.Review(s.now, used) {
		one := n.Suppression
		out = append(out, audit.SuppressionNotice{
			Check: one.Check, Cluster: one.Cluster, Subject: one.Subject, Owner: one.Owner, Until: one.Until,
			State: audit.SuppressionState(n.State), Origin: one.Origin,
		})
	}
	return out
}
