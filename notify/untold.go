package notify

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"ipamaudit/audit"
	"ipamaudit/checks"
)

// maxUntold is how many changes are kept for a channel. A night in which more
// changes and no digest arrives is told of as such.
const maxUntold = 500

// Remember notes for every channel what a run has changed, until a digest with
// it has arrived there. Run does so itself; a run that tells nobody and saves
// its state calls it, for the next one will compare with that state.
// It returns the moment up to which the digests of this run know what has changed.
func Remember(r *audit.Report, st *audit.State, p DigestPolicy, now time.Time) time.Time {
	p, now = p.WithDefaults(), afterAll(st, now)
	inRun := map[string]bool{}
	for i := range r.Clusters {
		c := &r.Clusters[i]
		for _, name := range p.channels(c) {
			ch := st.Channels[name]
			if ch == nil {
				ch = &audit.ChannelState{}
				st.Channels[name] = ch
			}
			if !inRun[name] && ch.ToldRun != r.Run.ID {
				forget(ch)
			}
			inRun[name] = true
			for _, f := range c.Findings {
				if ch.Untold[f.Fingerprint] != nil || p.hears(name, c, f) {
					owe(ch, c.Name, f, p.MinSeverity, now)
				}
			}
		}
	}
	pruneChannels(st, inRun, now)
	return now
}

// afterAll is now, or a moment after all that is remembered: clocks go back.
func afterAll(st *audit.State, now time.Time) time.Time {
	for _, ch := range st.Channels {
		last := later(ch.ToldAsOf, ch.LostAt)
		for _, u := range ch.Untold {
			last = later(last, u.At)
		}
		if !now.After(last) {
			now = last.Add(1)
		}
	}
	return now
}

// forget drops what the last digest has told.
func forget(ch *audit.ChannelState) {
	for fp, u := range ch.Untold {
		if !u.Hidden && !u.At.After(ch.ToldAsOf) {
			delete(ch.Untold, fp)
		}
	}
	if !ch.LostAt.After(ch.ToldAsOf) {
		ch.LostAt = time.Time{}
	}
}

// owe notes what this run knows of a finding.
func owe(ch *audit.ChannelState, cluster string, f audit.Finding, least checks.Severity, now time.Time) {
	is, gone := audit.Previous{Severity: f.Severity, Affected: len(f.Affected)}, f.State == audit.StateResolved
	if gone && f.Previous != nil {
		is = *f.Previous
	}
	u := ch.Untold[f.Fingerprint]
	switch {
	case f.State == audit.StateUnknown:
		return // it is what it was, as far as anybody knows
	case u == nil && (f.State == audit.StateOngoing || !is.Severity.AtLeast(least) && !wasWorse(f, least)):
		return
	case gone && f.Suppressed != nil:
		delete(ch.Untold, f.Fingerprint) // nobody wants to hear of it
		return
	case u == nil && len(ch.Untold) >= maxUntold:
		ch.LostAt = now
		return
	case u == nil:
		u = &audit.Change{At: now}
		if f.State != audit.StateNew {
			u.Before, u.Was = f.Previous, f.Previous
		}
	case u.Gone && !gone: // back, which is as good as new
		u.Was, u.Before, u.At = worst(u.Previous, u.Before), nil, now
	case (u.Gone != gone || u.Previous != is) && u.Before == nil:
		u.Was, u.At = worst(u.Previous, u.Was), now
	case u.Gone != gone || u.Previous != is:
		u.Was, u.At = worst(u.Previous, nil), now
	case u.Hidden && f.Suppressed == nil:
		u.At = now
	}
	u.Cluster, u.Check, u.Subject, u.Title = cluster, f.Check, f.Subject, f.Title
	u.Previous, u.Gone, u.Hidden = is, gone, f.Suppressed != nil
	if ch.Untold == nil {
		ch.Untold = map[string]*audit.Change{}
	}
	ch.Untold[f.Fingerprint] = u
}

// worst is what somebody may believe who heard of either.
func worst(p audit.Previous, other *audit.Previous) *audit.Previous {
	if other != nil {
		p.Severity = checks.Worst(p.Severity, other.Severity)
	}
	return &p
}

// pruneChannels drops what will never be told: findings that were forgotten, and
// channels that nobody is told anything in any more.
func pruneChannels(st *audit.State, inRun map[string]bool, now time.Time) {
	for name, ch := range st.Channels {
		last := ch.ToldAsOf
		for fp, u := range ch.Untold {
			last = later(last, u.At)
			switch cs := st.Clusters[u.Cluster]; {
			case cs == nil, !u.Gone && cs.Findings[fp] == nil:
				delete(ch.Untold, fp)
			case u.Gone && now.Sub(u.At) > keepMessages:
				delete(ch.Untold, fp)
				ch.LostAt = now
			}
		}
		if !inRun[name] && now.Sub(last) > keepMessages {
			delete(st.Channels, name)
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// since is a finding as it looks to somebody who heard last what it was before
// the change.
func since(f audit.Finding, u *audit.Change, least checks.Severity) audit.Finding {
	switch {
	case u == nil || f.State == audit.StateUnknown:
	case f.State == audit.StateResolved:
		f.Previous = u.Before
		if u.Before != nil {
			f.Severity = checks.Worst(f.Severity, u.Before.Severity)
		}
	case u.Before == nil && u.Was != nil && u.Was.Severity.AtLeast(least) && !f.Severity.AtLeast(least):
		f.State, f.Previous = audit.StateChanged, u.Was // as good as gone
	case u.Before == nil:
		f.State, f.Previous = audit.StateNew, nil
	default:
		f.State, f.Previous = audit.StateChanged, u.Before
		if *u.Before == u.Previous {
			f.Previous = u.Was // it changed and changed back
		}
	}
	return f
}

// wentBefore are the untold findings of a cluster that an earlier run found gone.
func wentBefore(ch *audit.ChannelState, c *audit.ClusterReport, least checks.Severity) []audit.Finding {
	var out []audit.Finding
	for fp, u := range ch.Untold {
		if !u.Gone || u.Cluster != c.Name || slices.ContainsFunc(c.Findings, func(f audit.Finding) bool { return f.Fingerprint == fp }) {
			continue
		}
		out = append(out, since(audit.Finding{
			Fingerprint: fp, State: audit.StateResolved,
			Finding: checks.Finding{Check: u.Check, Severity: u.Severity, Subject: u.Subject, Title: u.Title},
		}, u, least))
	}
	slices.SortFunc(out, func(a, b audit.Finding) int { return cmp.Compare(a.Fingerprint, b.Fingerprint) })
	return out
}

// settle looks for the digests of earlier runs whose answers were lost: what
// such a one has told need not be told again.
func (s *messages) settle(ctx context.Context, runID string) {
	for _, key := range slices.Sorted(maps.Keys(s.state.Messages)) {
		ms := s.state.Messages[key]
		channel, ok := strings.CutSuffix(key, "|"+ms.RunID+"|"+parentPart)
		if !ok || ms.Intent == nil || ms.TS != "" || ms.RunID == runID || s.now().Sub(ms.Intent.StartedAt) > keepMessages {
			continue
		}
		where, err := s.messenger.Find(ctx, cmp.Or(ms.Channel, channel), "", digestKey(channel, ms.RunID, parentPart), ms.Intent.StartedAt.Add(-time.Minute))
		switch {
		case err == nil:
			s.told(channel, ms.RunID, ms.Intent.StartedAt)
			ms.Channel, ms.TS, ms.PostedAt, ms.Intent = where.Channel, where.TS, ms.Intent.StartedAt, nil
		case errors.Is(err, ErrNotFound), errors.Is(err, ErrCannotLook):
		default:
			s.log.WarnContext(ctx, "an earlier digest could not be looked for, what it said is said again", "channel", channel, "error", err)
			return
		}
	}
}

// arrived notes that a message is where it should be.
func (s *messages) arrived(p place, m Message) {
	if strings.TrimSuffix(m.Part, again) == parentPart {
		s.told(p.channel, m.RunID, s.asOf)
	}
}

// told notes that a channel has got the digest of a run.
func (s *messages) told(channel, runID string, asOf time.Time) {
	if ch := s.state.Channels[channel]; ch != nil && asOf.After(ch.ToldAsOf) {
		ch.ToldRun, ch.ToldAsOf = runID, asOf
	}
}
