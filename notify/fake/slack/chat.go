package fakeslack

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"
)

func (s *Server) authTest(args) reply {
	return reply{
		"url": "https://example.slack.com/", "team": "Example", "user": "ipam-bot",
		"team_id": TeamID, "user_id": BotUserID, "bot_id": BotID, "is_enterprise_install": false,
	}
}

// Lengths of the text argument: a post is cut there, an update is refused
// (seratch/ChatGPT-in-Slack#102, F3-Nation/archive-slackblast#64).
const (
	maxPostText   = 40000
	maxUpdateText = 4000
)

func (s *Server) postMessage(in args) reply {
	c := s.channel(in.Get("channel"), true)
	switch {
	case c == nil:
		return refuse("channel_not_found")
	case c.Archived:
		return refuse("is_archived")
	case c.NotMember && !s.has(ChatWritePublic):
		return refuse("not_in_channel")
	}
	m := &Message{Channel: c.ID, User: BotUserID, BotID: BotID}
	out := reply{}
	text := in.Get("text")
	if utf8.RuneCountInString(text) > maxPostText {
		text = string([]rune(text)[:maxPostText])
		out["warning"] = "message_truncated"
		out["response_metadata"] = map[string]any{"warnings": []string{"message_truncated"}}
	}
	m.Text = text
	if refusal := m.fill(in); refusal != nil {
		return refusal
	}
	if m.Text == "" && m.Blocks == nil && in.Get("attachments") == "" {
		return refuse("no_text")
	}
	// A reply to a message that is gone is posted beside the thread, without a word.
	if parent := s.message(c.ID, in.Get("thread_ts")); parent != nil && !parent.Deleted {
		m.ThreadTS = parent.TS
		if parent.ThreadTS != "" {
			m.ThreadTS = parent.ThreadTS
		}
	}
	s.store(m)
	out["channel"], out["ts"], out["message"] = c.ID, m.TS, m.view(true)
	return out
}

func (s *Server) store(m *Message) {
	m.TS, m.Posted = s.newTS(), s.cfg.Now()
	s.messages = append(s.messages, m)
}

// fill takes blocks and metadata from the arguments.
func (m *Message) fill(in args) reply {
	if raw := in.Get("blocks"); raw != "" {
		if refusal := checkBlocks(raw); refusal != nil {
			return refusal
		}
		if raw != "[]" {
			m.Blocks = json.RawMessage(raw)
		}
	}
	if raw := in.Get("metadata"); raw != "" {
		if code := checkMetadata(raw); code != "" {
			return refuse(code)
		}
		if raw != "{}" {
			m.Metadata = json.RawMessage(raw)
		}
	}
	return nil
}

// updateMessage replaces text, blocks and metadata: what is not sent again is
// gone. Whether Slack keeps metadata that was left out is not documented, so a
// client must not count on it.
func (s *Server) updateMessage(in args) reply {
	c := s.channel(in.Get("channel"), false)
	if c == nil {
		return refuse("channel_not_found")
	}
	m := s.message(c.ID, in.Get("ts"))
	switch {
	case m == nil || m.Deleted:
		return refuse("message_not_found")
	case m.BotID != BotID || m.Webhook:
		return refuse("cant_update_message")
	case c.Archived:
		return refuse("is_archived")
	case s.cfg.EditWindow > 0 && s.cfg.Now().Sub(m.Posted) > s.cfg.EditWindow:
		return refuse("edit_window_closed")
	case utf8.RuneCountInString(in.Get("text")) > maxUpdateText:
		return refuse("msg_too_long")
	}
	draft := m.clone()
	draft.Text, draft.Blocks, draft.Metadata = in.Get("text"), nil, nil
	if refusal := draft.fill(in); refusal != nil {
		return refusal
	}
	if draft.Text == "" && draft.Blocks == nil {
		return refuse("no_text")
	}
	draft.Edits++
	*m = draft
	return reply{"channel": c.ID, "ts": m.TS, "text": m.Text, "message": m.view(true)}
}

func (s *Server) permalink(in args) reply {
	c := s.channel(in.Get("channel"), false)
	if c == nil {
		return refuse("channel_not_found")
	}
	m := s.message(c.ID, in.Get("message_ts"))
	if m == nil || m.Deleted {
		return refuse("message_not_found")
	}
	link := fmt.Sprintf("https://example.slack.com/archives/%s/p%s", c.ID, strings.ReplaceAll(m.TS, ".", ""))
	if m.ThreadTS != "" {
		link += "?thread_ts=" + m.ThreadTS + "&cid=" + c.ID
	}
	return reply{"channel": c.ID, "permalink": link}
}

// webhook is the incoming webhook: it answers text, and neither a ts nor JSON.
func (s *Server) webhook(w http.ResponseWriter, r *http.Request) {
	say := func(status int, text string) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text))
	}
	if r.URL.Path != webhookPath || r.Method != http.MethodPost {
		say(http.StatusNotFound, "no_service")
		return
	}
	var in struct {
		Text   string          `json:"text"`
		Blocks json.RawMessage `json:"blocks"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		say(http.StatusBadRequest, "invalid_payload")
		return
	}
	c := s.channels[0]
	if c.Archived {
		say(http.StatusGone, "channel_is_archived")
		return
	}
	if string(in.Blocks) == "null" {
		in.Blocks = nil
	}
	if in.Blocks != nil {
		if refusal := checkBlocks(string(in.Blocks)); refusal != nil {
			say(http.StatusBadRequest, fmt.Sprint(refusal["error"]))
			return
		}
	}
	if in.Text == "" && in.Blocks == nil {
		say(http.StatusBadRequest, "no_text")
		return
	}
	s.store(&Message{Channel: c.ID, User: BotUserID, BotID: BotID, Text: in.Text, Blocks: in.Blocks, Webhook: true})
	say(http.StatusOK, "ok")
}
