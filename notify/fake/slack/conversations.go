package fakeslack

import (
	"encoding/base64"
	"slices"
	"strconv"
)

// readable finds a channel whose messages the bot may read.
func (s *Server) readable(in args) (*Channel, reply) {
	c := s.channel(in.Get("channel"), false)
	switch {
	case c == nil:
		return nil, refuse("channel_not_found")
	case c.Private && !s.has(GroupsHistory):
		return nil, s.missingScope(GroupsHistory)
	case !c.Private && !s.has(ChannelsHistory):
		return nil, s.missingScope(ChannelsHistory)
	case c.NotMember:
		return nil, refuse("not_in_channel")
	}
	return c, nil
}

// history is the channel without its replies, newest first.
func (s *Server) history(in args) reply {
	c, refusal := s.readable(in)
	if refusal != nil {
		return refusal
	}
	var found []*Message
	for _, m := range slices.Backward(s.messages) {
		if m.Channel == c.ID && m.ThreadTS == "" && within(m.TS, in) && (!m.Deleted || s.repliesTo(m) > 0) {
			found = append(found, m)
		}
	}
	out := s.page(found, in)
	out["pin_count"] = 0
	return out
}

// replies is a thread, the parent first.
func (s *Server) replies(in args) reply {
	c, refusal := s.readable(in)
	if refusal != nil {
		return refusal
	}
	parent := s.message(c.ID, in.Get("ts"))
	if parent == nil || parent.Deleted && s.repliesTo(parent) == 0 {
		return refuse("thread_not_found")
	}
	found := []*Message{parent}
	for _, m := range s.messages {
		if m.Channel == c.ID && m.ThreadTS == parent.TS && !m.Deleted && within(m.TS, in) {
			found = append(found, m)
		}
	}
	return s.page(found, in)
}

func (s *Server) repliesTo(parent *Message) int {
	n := 0
	for _, m := range s.messages {
		if m.Channel == parent.Channel && m.ThreadTS == parent.TS && !m.Deleted {
			n++
		}
	}
	return n
}

// within holds a ts against oldest and latest; both are exclusive unless
// inclusive is set.
func within(ts string, in args) bool {
	oldest, latest := in.Get("oldest"), in.Get("latest")
	at := seconds(ts)
	if in.flag("inclusive") && (ts == oldest || ts == latest) {
		return true
	}
	return (oldest == "" || at > seconds(oldest)) && (latest == "" || at < seconds(latest))
}

// seconds reads a ts, or the whole or fractional seconds that clients send too,
// as microseconds.
func seconds(ts string) int64 {
	f, err := strconv.ParseFloat(ts, 64)
	if err != nil {
		return 0
	}
	return int64(f*1e6 + 0.5)
}

// page cuts the messages by limit and cursor. Metadata comes only when it was
// asked for and the scope is there.
func (s *Server) page(found []*Message, in args) reply {
	limit := 100
	if n, err := strconv.Atoi(in.Get("limit")); err == nil && n > 0 {
		limit = min(n, 999)
	}
	start := 0
	if raw := in.Get("cursor"); raw != "" {
		decoded, err := base64.StdEncoding.DecodeString(raw)
		after := slices.IndexFunc(found, func(m *Message) bool { return m.TS == string(decoded) })
		if err != nil || after < 0 {
			return refuse("invalid_cursor")
		}
		start = after + 1
	}
	end := min(start+limit, len(found))
	withMetadata := in.flag("include_all_metadata") && s.has(MetadataRead)
	views := []any{}
	for _, m := range found[start:end] {
		v := m.view(withMetadata)
		if n := s.repliesTo(m); n > 0 {
			v["reply_count"], v["thread_ts"] = n, m.TS
		}
		views = append(views, v)
	}
	out := reply{"messages": views, "has_more": end < len(found)}
	if end < len(found) {
		out["response_metadata"] = map[string]any{"next_cursor": base64.StdEncoding.EncodeToString([]byte(found[end-1].TS))}
	}
	return out
}

func (s *Server) info(in args) reply {
	c := s.channel(in.Get("channel"), false)
	switch {
	case c == nil:
		return refuse("channel_not_found")
	case c.Private && !s.has(GroupsRead):
		return s.missingScope(GroupsRead)
	case !c.Private && !s.has(ChannelsRead):
		return s.missingScope(ChannelsRead)
	}
	return reply{"channel": map[string]any{
		"id": c.ID, "name": c.Name, "is_channel": !c.Private, "is_group": c.Private, "is_private": c.Private,
		"is_member": !c.NotMember, "is_archived": c.Archived, "created": 1700000000,
	}}
}
