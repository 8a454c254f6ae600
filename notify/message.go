package notify

import (
	"encoding/json"
	"strings"
	"unicode/utf8"
)

// Slack's limits, with some room: at most 50 blocks; 3000 characters in a
// section; 150 in a header. The limit over all blocks is not documented: 9,597
// characters in 15,561 bytes were accepted and 11,341 in 17,694 refused
// (slackapi/bolt-js#2867).
const (
	maxBlocks      = 45
	maxBlockText   = 2900
	maxHeader      = 150
	maxMessageText = 9_000
	maxMessageJSON = 14 << 10
	maxFallback    = 700 // before escaping; an update takes 4,000
	// blockJSON is more than the JSON around any block's text.
	blockJSON = 90
)

// BlockKind is a kind of Slack block.
type BlockKind string

// The kinds that messages are made of.
const (
	SectionBlock BlockKind = "section" // mrkdwn
	ContextBlock BlockKind = "context" // mrkdwn, small
	DividerBlock BlockKind = "divider"
)

// Block is one block of a message.
type Block struct {
	Kind BlockKind
	Text string // mrkdwn, escaped
}

// Message is one Slack message; messages made here are within Slack's limits.
type Message struct {
	// Key finds the message again, RunID and Part say which one it is.
	Key, RunID, Part string
	// Header is plain text; empty for none.
	Header string
	Blocks []Block
	// Fallback is for notifications and clients that show no blocks.
	Fallback string
}

// MetadataEvent is the event type of the metadata of every message; its payload
// is Metadata.
const MetadataEvent = "ipamaudit_digest"

// Metadata holds no secrets: every app in the workspace may read it.
func (m Message) Metadata() map[string]any {
	// Slack refuses metadata that is too large and does not say from where on.
	return map[string]any{"v": 1, "key": m.Key, "run_id": clip(m.RunID, 60), "part": clip(m.Part, 80), "hash": m.Hash()}
}

// Hash is over what a reader sees.
func (m Message) Hash() string { return hash("message/v1", m.Header, m.Blocks) }

// String is the message as a person would read it.
func (m Message) String() string {
	var b strings.Builder
	if m.Header != "" {
		b.WriteString("# " + m.Header + "\n")
	}
	for _, bl := range m.Blocks {
		if bl.Kind == DividerBlock {
			b.WriteString("---\n")
			continue
		}
		b.WriteString(bl.Text + "\n")
	}
	return strings.NewReplacer("\u200b", "", "&lt;", "<", "&gt;", ">", "&amp;", "&").Replace(b.String())
}

// composer adds blocks to a message as long as there is room.
type composer struct {
	m      Message
	blocks int // left
	text   int // left, in runes
	json   int // left, in bytes
}

func compose(m Message) *composer {
	m.Header, m.Fallback = clip(clean(m.Header), maxHeader), clip(clean(m.Fallback), maxFallback)
	m.Fallback = escapeSlack(m.Fallback)
	c := &composer{m: m, blocks: maxBlocks, text: maxMessageText, json: maxMessageJSON}
	c.text -= utf8.RuneCountInString(m.Header)
	c.json -= jsonLen(m.Header) + jsonLen(m.Fallback) + 1200 // metadata
	return c
}

func jsonLen(s string) int {
	b, err := json.Marshal(s)
	if err != nil {
		return 6 * len(s)
	}
	return len(b)
}

// add adds a block when it fits and leaves keep runes free, and reports whether
// it did. A text that no block can hold is cut.
func (c *composer) add(kind BlockKind, text string, keep int) bool {
	text = cutEscaped(text, maxBlockText)
	n, j := utf8.RuneCountInString(text), jsonLen(text)+blockJSON
	// A rune of what is kept free may take two bytes on average, and a block some more.
	if c.blocks-1 < keep/400 || c.text-n < keep || c.json-j < 2*keep {
		return false
	}
	c.blocks, c.text, c.json = c.blocks-1, c.text-n, c.json-j
	c.m.Blocks = append(c.m.Blocks, Block{kind, text})
	return true
}

// list adds a title and lines in as few sections as hold them, at most most
// lines, and says how many it left out.
func (c *composer) list(title string, lines []string, most, keep int) {
	if len(lines) == 0 {
		return
	}
	const room = 100 // for what says how many were left out
	left := len(lines)
	text := title
	flush := func(next string) bool {
		if !c.add(SectionBlock, text, keep+room) {
			return false
		}
		text = next
		return true
	}
	for i, l := range lines {
		l = cutEscaped(l, maxBlockText/2)
		if i == most {
			break
		}
		if utf8.RuneCountInString(text)+1+utf8.RuneCountInString(l) > maxBlockText-room {
			if !flush(l) {
				break
			}
		} else if !c.fits(text+"\n"+l, keep+room) {
			break
		} else {
			text += "\n" + l
		}
		left--
	}
	if left > 0 {
		text += "\n… and " + count(left, "more", "more")
	}
	c.add(SectionBlock, text, keep)
}

func (c *composer) fits(text string, keep int) bool {
	return c.text-utf8.RuneCountInString(text) >= keep && c.json-jsonLen(text)-blockJSON >= 2*keep
}

// code adds commands as one block. A command is shown whole or not at all: half
// a command is worse than none.
func (c *composer) code(title string, commands []string, keep int) {
	var lines []string
	size := 0
	for _, cmd := range commands {
		for l := range strings.SplitSeq(cmd, "\n") {
			l = slackCode(l)
			if size += utf8.RuneCountInString(l) + 1; size > maxBlockText/2 {
				lines = append(lines, "# more in the ticket or the report")
				break
			}
			lines = append(lines, l)
		}
	}
	if len(lines) > 0 && size <= maxBlockText || len(lines) > 1 {
		c.add(SectionBlock, title+"\n```\n"+strings.Join(lines, "\n")+"\n```", keep)
	}
}

// cutEscaped cuts escaped mrkdwn without leaving half an entity, an open code
// span or an open code block.
func cutEscaped(s string, limit int) string {
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	s = string([]rune(s)[:limit-8])
	if i := strings.LastIndexByte(s, '&'); i >= 0 && !strings.Contains(s[i:], ";") {
		s = s[:i]
	}
	switch {
	case strings.Count(s, "```")%2 == 1:
		return strings.TrimRight(s, "`") + "\n```"
	case strings.Count(strings.ReplaceAll(s, "```", ""), "`")%2 == 1:
		return s + "…`"
	}
	return s + "…"
}
