package fakeslack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"
)

// Limits of a message. Lengths are in characters.
const (
	maxBlocks       = 50
	maxSection      = 3000
	maxSectionField = 2000
	maxFields       = 10
	maxHeader       = 150
	maxElements     = 10 // of a context
	maxActions      = 25
	maxButtonText   = 75
	maxButtonValue  = 2000
	maxURL          = 3000
	maxID           = 255 // block_id, action_id
	maxMarkdown     = 12000
	maxTableRows    = 100
	maxTableColumns = 20
	maxTableText    = 10000

	// The sum over the blocks that are neither markdown nor table. The limit is
	// not documented: 9,597 characters in 15,561 bytes were accepted, 11,341 in
	// 17,694 refused (slackapi/bolt-js#2867). The fake refuses in between.
	maxSumText = 10000
	maxSumJSON = 16000

	maxMetadata = 2048 // undocumented; what is below is safe
)

// blockCheck collects what is wrong with the blocks of a message.
type blockCheck struct {
	errors   []string
	sumText  int
	sumJSON  int
	markdown int
	tables   int
	cells    int
	ids      map[string]bool
}

// checkBlocks is nil when Slack would take the blocks, else Slack's answer.
func checkBlocks(raw string) reply {
	var blocks []json.RawMessage
	if json.Unmarshal([]byte(raw), &blocks) != nil {
		return refuse("invalid_blocks_format")
	}
	check := &blockCheck{ids: map[string]bool{}}
	if len(blocks) > maxBlocks {
		check.fail("/blocks", "no more than %d items allowed", maxBlocks)
	}
	for n, b := range blocks {
		check.block(fmt.Sprintf("/blocks/%d", n), b)
	}
	switch {
	case len(check.errors) > 0:
		messages := make([]string, len(check.errors))
		for n, e := range check.errors {
			messages[n] = "[ERROR] " + e
		}
		return reply{"ok": false, "error": "invalid_blocks", "errors": check.errors, "response_metadata": map[string]any{"messages": messages}}
	case check.tables > 1:
		return reply{"ok": false, "error": "invalid_attachments", "response_metadata": map[string]any{"messages": []string{"[ERROR] only one table per message"}}}
	case check.sumText > maxSumText || check.sumJSON > maxSumJSON:
		return refuse("msg_blocks_too_long")
	}
	return nil
}

func (c *blockCheck) fail(pointer, format string, a ...any) {
	c.errors = append(c.errors, fmt.Sprintf(format, a...)+" [json-pointer:"+pointer+"]")
}

// text is a text object.
type text struct {
	Type string  `json:"type"`
	Text *string `json:"text"`
}

// block is what all kinds of block have that is limited.
type block struct {
	Type     string            `json:"type"`
	ID       string            `json:"block_id"`
	Text     json.RawMessage   `json:"text"`
	Fields   []text            `json:"fields"`
	Elements []json.RawMessage `json:"elements"`
	Rows     [][]cell          `json:"rows"`
	ImageURL string            `json:"image_url"`
	AltText  string            `json:"alt_text"`
}

type cell struct {
	Type     string          `json:"type"`
	Text     *string         `json:"text"`
	Elements json.RawMessage `json:"elements"`
}

func (c *blockCheck) block(at string, raw json.RawMessage) {
	var b block
	if err := json.Unmarshal(raw, &b); err != nil {
		c.fail(at, "failed to parse block")
		return
	}
	c.id(at+"/block_id", b.ID)
	if b.ID != "" && c.ids[b.ID] {
		c.fail(at+"/block_id", "block_id already exists")
	}
	c.ids[b.ID] = true
	if b.Type != "markdown" && b.Type != "table" {
		c.sumJSON += len(compact(raw))
	}
	switch b.Type {
	case "section":
		c.section(at, b)
	case "header":
		c.textObject(at+"/text", b.Text, maxHeader, "plain_text")
	case "context":
		c.count(at+"/elements", len(b.Elements), maxElements)
		for n, e := range b.Elements {
			var t text
			if json.Unmarshal(e, &t) == nil && t.Type != "image" {
				c.textObject(fmt.Sprintf("%s/elements/%d", at, n), e, maxSection, "mrkdwn", "plain_text")
			}
		}
	case "actions":
		c.count(at+"/elements", len(b.Elements), maxActions)
		for n, e := range b.Elements {
			c.action(fmt.Sprintf("%s/elements/%d", at, n), e)
		}
	case "markdown":
		var t string
		if json.Unmarshal(b.Text, &t) != nil || t == "" {
			c.fail(at+"/text", "must be more than 0 characters")
		}
		if c.markdown += utf8.RuneCountInString(t); c.markdown > maxMarkdown {
			c.fail(at+"/text", "must be less than %d characters", maxMarkdown+1)
		}
	case "rich_text":
		c.richText(b.Elements)
		if len(b.Elements) == 0 {
			c.fail(at+"/elements", "no fewer than 1 items allowed")
		}
	case "table":
		c.table(at, b)
	case "image":
		c.short(at+"/image_url", b.ImageURL, maxURL)
		c.short(at+"/alt_text", b.AltText, maxSectionField)
	case "divider":
	default:
		c.fail(at+"/type", "unsupported type: %s", b.Type)
	}
}

func (c *blockCheck) section(at string, b block) {
	if b.Text == nil && len(b.Fields) == 0 {
		c.fail(at, "missing required field: text")
	}
	if b.Text != nil {
		c.textObject(at+"/text", b.Text, maxSection, "mrkdwn", "plain_text")
	}
	if len(b.Fields) > maxFields {
		c.fail(at+"/fields", "no more than %d items allowed", maxFields)
	}
	for n, f := range b.Fields {
		c.length(fmt.Sprintf("%s/fields/%d/text", at, n), f.Text, maxSectionField)
	}
}

func (c *blockCheck) textObject(at string, raw json.RawMessage, limit int, types ...string) {
	var t text
	if json.Unmarshal(raw, &t) != nil {
		c.fail(at, "must provide an object")
		return
	}
	for _, allowed := range types {
		if t.Type == allowed {
			c.length(at+"/text", t.Text, limit)
			return
		}
	}
	c.fail(at+"/type", "must be a valid enum value: %s", strings.Join(types, ", "))
}

// length checks a text that must not be empty, and counts it.
func (c *blockCheck) length(at string, t *string, limit int) {
	if t == nil || *t == "" {
		c.fail(at, "must be more than 0 characters")
		return
	}
	n := utf8.RuneCountInString(*t)
	c.sumText += n
	if n > limit {
		c.fail(at, "must be less than %d characters", limit+1)
	}
}

func (c *blockCheck) short(at, value string, limit int) {
	if utf8.RuneCountInString(value) > limit {
		c.fail(at, "must be less than %d characters", limit+1)
	}
}

func (c *blockCheck) id(at, value string) { c.short(at, value, maxID) }

func (c *blockCheck) count(at string, n, limit int) {
	if n == 0 {
		c.fail(at, "no fewer than 1 items allowed")
	}
	if n > limit {
		c.fail(at, "no more than %d items allowed", limit)
	}
}

func (c *blockCheck) action(at string, raw json.RawMessage) {
	var e struct {
		Type     string          `json:"type"`
		Text     json.RawMessage `json:"text"`
		ActionID string          `json:"action_id"`
		Value    string          `json:"value"`
		URL      string          `json:"url"`
	}
	if json.Unmarshal(raw, &e) != nil || e.Type != "button" {
		return // the other elements have no limit that a digest would meet
	}
	c.textObject(at+"/text", e.Text, maxButtonText, "plain_text")
	c.id(at+"/action_id", e.ActionID)
	c.short(at+"/value", e.Value, maxButtonValue)
	c.short(at+"/url", e.URL, maxURL)
	if _, err := url.Parse(e.URL); err != nil {
		c.fail(at+"/url", "invalid url")
	}
}

// richText adds up every text below a rich_text block.
func (c *blockCheck) richText(elements []json.RawMessage) {
	for _, raw := range elements {
		var e struct {
			Text     string            `json:"text"`
			Elements []json.RawMessage `json:"elements"`
		}
		if json.Unmarshal(raw, &e) == nil {
			c.sumText += utf8.RuneCountInString(e.Text)
			c.richText(e.Elements)
		}
	}
}

func (c *blockCheck) table(at string, b block) {
	c.tables++
	if len(b.Rows) == 0 {
		c.fail(at+"/rows", "no fewer than 1 items allowed")
	}
	if len(b.Rows) > maxTableRows {
		c.fail(at+"/rows", "no more than %d items allowed", maxTableRows)
	}
	for r, row := range b.Rows {
		if len(row) > maxTableColumns {
			c.fail(fmt.Sprintf("%s/rows/%d", at, r), "no more than %d items allowed", maxTableColumns)
		}
		for n, cell := range row {
			if cell.Type == "raw_text" && (cell.Text == nil || *cell.Text == "") {
				c.fail(fmt.Sprintf("%s/rows/%d/%d/text", at, r, n), "must be more than 0 characters")
			}
			if cell.Text != nil {
				c.cells += utf8.RuneCountInString(*cell.Text)
			}
			c.cells += utf8.RuneCount(cell.Elements)
		}
	}
	if c.cells > maxTableText {
		c.fail(at+"/rows", "must be less than %d characters", maxTableText+1)
	}
}

func compact(raw json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}

// checkMetadata is "" or Slack's error code.
func checkMetadata(raw string) string {
	var m struct {
		EventType    string                     `json:"event_type"`
		EventPayload map[string]json.RawMessage `json:"event_payload"`
	}
	switch {
	case json.Unmarshal([]byte(raw), &m) != nil:
		return "invalid_metadata_format"
	case raw == "{}":
		return ""
	case m.EventType == "" || m.EventPayload == nil:
		return "invalid_metadata_schema"
	case len(raw) > maxMetadata:
		return "metadata_too_large"
	}
	for _, value := range m.EventPayload {
		if string(value) == "null" {
			return "invalid_metadata_schema"
		}
	}
	return ""
}
