package fakeslack

import (
	"fmt"
	"slices"
)

// Say posts a message as a person; threadTS is "" or the parent's.
func (s *Server) Say(channelID, text, threadTS string) (ts string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &Message{Channel: channelID, User: "U0PERSON", Text: text, ThreadTS: threadTS}
	s.store(m)
	return m.TS
}

// Delete removes a message. If it has replies they stay, under a tombstone.
func (s *Server) Delete(channelID, ts string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.message(channelID, ts)
	if m == nil {
		return fmt.Errorf("fake Slack: there is no message %s in %s", ts, channelID)
	}
	m.Deleted = true
	return nil
}

// SetChannel replaces a channel of the same id or adds it: archive it, throw the
// bot out, rename it.
func (s *Server) SetChannel(c Channel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, have := range s.channels {
		if have.ID == c.ID {
			*have = c
			return
		}
	}
	s.channels = append(s.channels, &c)
}

// SetScopes replaces the scopes of the token.
func (s *Server) SetScopes(scopes ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scopes = slices.Clone(scopes)
}

// RevokeToken makes the server refuse every token.
func (s *Server) RevokeToken() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revoked = true
}

// Messages returns copies of a channel's messages ("" for all channels), oldest
// first, replies among them, without those that were deleted.
func (s *Server) Messages(channelID string) []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Message
	for _, m := range s.messages {
		if (channelID == "" || m.Channel == channelID) && !m.Deleted {
			out = append(out, m.clone())
		}
	}
	return out
}

// Thread returns copies of a message and its replies, oldest first.
func (s *Server) Thread(channelID, ts string) []Message {
	return slices.DeleteFunc(s.Messages(channelID), func(m Message) bool { return m.TS != ts && m.ThreadTS != ts })
}
