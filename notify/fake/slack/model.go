package fakeslack

import (
	"encoding/json"
	"slices"
	"time"
)

// Message is one message as the server stores it.
type Message struct {
	Channel  string // id
	TS       string // unique in the workspace
	ThreadTS string // the parent's TS; "" for a message that is no reply
	User     string
	BotID    string // BotID when it is the bot's, "" when a person's
	Text     string
	Blocks   json.RawMessage // nil for none
	Metadata json.RawMessage // {"event_type":…,"event_payload":{…}}, nil for none
	Posted   time.Time
	Edits    int
	Deleted  bool // its replies are still there
	Webhook  bool // came through the incoming webhook
}

func (m *Message) clone() Message {
	c := *m
	c.Blocks, c.Metadata = slices.Clone(m.Blocks), slices.Clone(m.Metadata)
	return c
}

// view is the message as the API shows it.
func (m *Message) view(withMetadata bool) map[string]any {
	v := map[string]any{"type": "message", "user": m.User, "text": m.Text, "ts": m.TS, "team": TeamID}
	if m.BotID != "" {
		v["bot_id"] = m.BotID
	}
	if m.ThreadTS != "" {
		v["thread_ts"], v["parent_user_id"] = m.ThreadTS, BotUserID
	}
	if m.Blocks != nil {
		v["blocks"] = m.Blocks
	}
	if m.Metadata != nil && withMetadata {
		v["metadata"] = m.Metadata
	}
	if m.Edits > 0 && m.Blocks == nil {
		v["edited"] = map[string]any{"user": m.User, "ts": m.TS}
	}
	if m.Deleted {
		v["subtype"], v["text"] = "tombstone", "This message was deleted."
		delete(v, "blocks")
		delete(v, "metadata")
	}
	return v
}
