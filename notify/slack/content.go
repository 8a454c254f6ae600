package slack

import (
	api "github.com/slack-go/slack"

	"ipamaudit/notify"
)

// content is a message in Slack's form. An update sends all of it again: what is
// left out is gone.
func content(m notify.Message) []api.MsgOption {
	return []api.MsgOption{
		api.MsgOptionText(m.Fallback, false), // escaped already
		api.MsgOptionBlocks(blocks(m)...),
		api.MsgOptionMetadata(api.SlackMetadata{EventType: notify.MetadataEvent, EventPayload: m.Metadata()}),
		api.MsgOptionDisableLinkUnfurl(),
		api.MsgOptionDisableMediaUnfurl(),
	}
}

func blocks(m notify.Message) []api.Block {
	id := blockID(m.Key, m.Hash())
	var out []api.Block
	if m.Header != "" {
		out = append(out, api.NewHeaderBlock(api.NewTextBlockObject(api.PlainTextType, m.Header, false, false), api.HeaderBlockOptionBlockID(id)))
		id = ""
	}
	for _, b := range m.Blocks {
		switch b.Kind {
		case notify.DividerBlock:
			out = append(out, api.NewDividerBlock())
		case notify.ContextBlock:
			out = append(out, api.NewContextBlock(id, text(b.Text)))
		case notify.SectionBlock:
			s := api.NewSectionBlock(text(b.Text), nil, nil)
			s.BlockID, s.Expand = id, true // no "See more" in the middle of a list
			out = append(out, s)
		}
		id = ""
	}
	return out
}

// text is mrkdwn in which Slack looks for nothing of its own: no channel names,
// no bare links.
func text(s string) *api.TextBlockObject {
	return api.NewTextBlockObject(api.MarkdownType, s, false, true)
}

// blockID marks a message as the one with this key. It changes with the content,
// as Slack asks for in updates.
func blockID(key, hash string) string { return "ipamaudit-" + key + "-" + hash }
