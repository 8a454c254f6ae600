package notify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"ipamaudit/audit"
)

const (
	// lookBack is how far a message of this run can lie back: the id of a run is
	// its date by default.
	lookBack = 48 * time.Hour
	// inFlight is how long a post whose answer was lost may still be on its way:
	// a request is held back by up to four Retry-Afters of a minute, and its process
	// may have lost the lock meanwhile.
	inFlight = 5 * time.Minute
	// keepMessages is how long messages are remembered.
	keepMessages = 30 * 24 * time.Hour
)

// messages sends the digests of one run.
type messages struct {
	messenger Messenger
	state     *audit.State
	save      func(context.Context) error
	now       func() time.Time
	patience  time.Duration
	log       *slog.Logger
	out       *Outcome
	asOf      time.Time // when it was noted what has changed
}

// send brings one digest to its channel: the parent, then a reply per cluster
// that has news. A repeated run updates what it sent before.
func (s *messages) send(ctx context.Context, d Digest) {
	parent := d.Parent()
	if reason, sent := s.reason(d); reason == Silence && !sent {
		s.out.Messages = append(s.out.Messages, MessageResult{Channel: d.Channel, Part: parentPart, Action: string(Silence)})
		return
	}
	ms, fresh, ok := s.part(ctx, place{channel: d.Channel}, parent, true)
	if !ok || ms.TS == "" || !s.messenger.Threads() {
		return
	}
	thread := place{channel: d.Channel, id: ms.Channel, thread: ms.TS}
	replies := d.Replies()
	now := map[string]bool{}
	for _, m := range replies {
		now[m.Part] = true
	}
	for _, c := range d.Clusters { // what an earlier attempt of this run said and no longer holds
		m := d.nothing(c.Name)
		if s.state.Messages[messageKey(d.Channel, m)] != nil && !now[m.Part] {
			replies = append(replies, m)
		}
	}
	for _, m := range replies {
		if ctx.Err() != nil {
			s.out.fail(fmt.Errorf("digest for %s: the run ended before all details were sent: %w", d.Channel, ctx.Err()))
			return
		}
		if _, _, ok := s.part(ctx, thread, m, !fresh); !ok && s.out.stopped {
			return
		}
	}
}

// reason is why the digest is sent, and whether it was already.
func (s *messages) reason(d Digest) (DigestReason, bool) {
	var last time.Time
	for key, ms := range s.state.Messages {
		if ms.RunID != d.RunID && ms.ThreadTS == "" && ms.PostedAt.After(last) && strings.HasPrefix(key, d.Channel+"|") {
			last = ms.PostedAt
		}
	}
	_, sent := s.state.Messages[messageKey(d.Channel, d.Parent())]
	return d.Decide(last, s.now()), sent
}

// place is where a message goes.
type place struct {
	channel string // as configured, a name perhaps
	id      string // what Slack calls it, once known; edits and look-ups need it
	thread  string // ts of the parent
}

func (p place) at() string { return cmp.Or(p.id, p.channel) }

func messageKey(channel string, m Message) string { return channel + "|" + m.RunID + "|" + m.Part }

// part delivers one message and notes what became of it.
func (s *messages) part(ctx context.Context, p place, m Message, look bool) (ms *audit.MessageState, fresh, ok bool) {
	ms, action, err := s.deliver(ctx, p, m, look)
	res := MessageResult{Channel: p.channel, Part: m.Part, Action: action}
	if ms != nil {
		res.TS, res.Permalink = ms.TS, ms.Permalink
	}
	if err != nil {
		err = fmt.Errorf("digest for %s, %s: %w", p.channel, m.Part, err)
		res.Error = oneLine(err)
		s.out.fail(err)
		s.out.stopped = errors.Is(err, errState)
		s.log.ErrorContext(ctx, "message failed", "channel", p.channel, "part", m.Part, "error", err)
	}
	s.out.Messages = append(s.out.Messages, res)
	return ms, action == posted, err == nil
}

// What became of a message.
const (
	posted    = "posted"
	updated   = "updated"
	unchanged = "unchanged"
	withheld  = "withheld"
)

func (s *messages) deliver(ctx context.Context, p place, m Message, look bool) (*audit.MessageState, string, error) {
	key := messageKey(p.channel, m)
	ms := s.state.Messages[key]
	if ms != nil && ms.TS == "" && ms.Intent == nil {
		if ms.Hash == m.Hash() {
			s.arrived(p, m)
		}
		return ms, unchanged, nil // a webhook took it; there is no way to change it
	}
	if ms != nil {
		p.id = cmp.Or(ms.Channel, p.id)
	}
	if look && (ms == nil || ms.TS == "") {
		where, err := s.messenger.Find(ctx, p.at(), p.thread, m.Key, s.now().Add(-lookBack))
		switch {
		case err == nil:
			ms = &audit.MessageState{Channel: where.Channel, TS: where.TS, ThreadTS: p.thread, RunID: m.RunID, PostedAt: s.now()}
			s.state.Messages[key] = ms
			if err := s.save(ctx); err != nil {
				return ms, withheld, err
			}
		case errors.Is(err, ErrCannotLook) && ms != nil:
			return ms, withheld, fmt.Errorf("an earlier attempt may have sent it and this account cannot look (give it the scope channels:history): %w", err)
		case errors.Is(err, ErrNotFound) && ms != nil && s.now().Sub(ms.Intent.StartedAt) < inFlight:
			return ms, withheld, errors.New("an earlier attempt may have sent it a moment ago")
		case errors.Is(err, ErrCannotLook), errors.Is(err, ErrNotFound):
			ms = nil
		default:
			return ms, withheld, err
		}
	}
	if ms != nil && ms.TS != "" {
		done, action, err := s.update(ctx, p, m, ms)
		if done {
			return ms, action, err
		}
	}
	return s.post(ctx, p, m)
}

// update replaces a message; it is not done where people have deleted it.
func (s *messages) update(ctx context.Context, p place, m Message, ms *audit.MessageState) (done bool, action string, err error) {
	if ms.Hash == m.Hash() {
		s.arrived(p, m)
		return true, unchanged, nil
	}
	err = s.messenger.Update(ctx, p.at(), ms.TS, m)
	switch {
	case err == nil:
		ms.Hash = m.Hash()
		s.arrived(p, m)
		return true, updated, s.save(ctx)
	case errors.Is(err, ErrNotFound):
		return false, "", nil
	case errors.Is(err, ErrRefused) && !strings.HasSuffix(m.Part, again):
		// Slack lets nobody edit it any more: the new content goes into its thread.
		m.Part, m.Key = m.Part+again, hash(m.Key, again)
		p.thread = cmp.Or(p.thread, ms.TS)
		_, action, err = s.deliver(ctx, p, m, true)
		return true, action, err
	}
	return true, withheld, err
}

const again = "/again"

// post sends a message once. An answer that is lost is looked for, never asked
// for again: chat.postMessage knows no idempotency.
func (s *messages) post(ctx context.Context, p place, m Message) (*audit.MessageState, string, error) {
	key := messageKey(p.channel, m)
	ms := &audit.MessageState{Channel: p.at(), ThreadTS: p.thread, RunID: m.RunID,
		Intent: &audit.Intent{Op: "post", RunID: m.RunID, StartedAt: s.now(), Attempt: 1}}
	s.state.Messages[key] = ms
	if err := s.save(ctx); err != nil {
		return ms, withheld, err
	}
	where, err := s.messenger.Post(ctx, p.at(), p.thread, m)
	if errors.Is(err, ErrAmbiguous) {
		where, err = s.await(ctx, p, m, err)
		if err != nil {
			return ms, withheld, err // the intent stays
		}
	}
	if err != nil {
		delete(s.state.Messages, key)
		return nil, withheld, errors.Join(err, s.save(ctx))
	}
	ms.Channel = cmp.Or(where.Channel, ms.Channel)
	ms.TS, ms.Hash, ms.PostedAt, ms.Intent = where.TS, m.Hash(), s.now(), nil
	s.arrived(p, m)
	if err := s.save(ctx); err != nil {
		return ms, posted, err
	}
	if p.thread == "" && ms.TS != "" {
		ms.Permalink = s.messenger.Permalink(ctx, ms.Channel, ms.TS)
	}
	return ms, posted, nil
}

func (s *messages) await(ctx context.Context, p place, m Message, cause error) (Posted, error) {
	since := s.now().Add(-lookBack)
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = min(time.Second, s.patience/4), 10*time.Second
	where, err := backoff.Retry(ctx, func() (Posted, error) {
		where, err := s.messenger.Find(ctx, p.at(), p.thread, m.Key, since)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return where, backoff.Permanent(err)
		}
		return where, err
	}, backoff.WithBackOff(b), backoff.WithMaxElapsedTime(min(s.patience, 30*time.Second)))
	if err != nil {
		return Posted{}, fmt.Errorf("%w; it is not sent again: %w", cause, err)
	}
	return where, nil
}

// prune forgets old messages, but for the last digest of each channel: the sign
// of life is counted from it.
func prune(st *audit.State, now time.Time) {
	last := map[string]time.Time{}
	for _, ms := range st.Messages {
		if ms.ThreadTS == "" && ms.PostedAt.After(last[ms.Channel]) {
			last[ms.Channel] = ms.PostedAt
		}
	}
	for key, ms := range st.Messages {
		at := ms.PostedAt
		if ms.Intent != nil {
			at = ms.Intent.StartedAt
		}
		if now.Sub(at) > keepMessages && (ms.ThreadTS != "" || !at.Equal(last[ms.Channel])) {
			delete(st.Messages, key)
		}
	}
}
