package fakeslack_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/slack-go/slack"

	fakeslack "ipamaudit/notify/fake/slack"
)

func plain(text string) *slack.TextBlockObject {
	return slack.NewTextBlockObject(slack.PlainTextType, text, false, false)
}

func mrkdwn(text string) *slack.TextBlockObject {
	return slack.NewTextBlockObject(slack.MarkdownType, text, false, false)
}

func times[T any](n int, item func(int) T) []T {
	out := []T{}
	for i := range n {
		out = append(out, item(i))
	}
	return out
}

func table(rows, columns int, text string) slack.Block {
	t := slack.NewTableBlock("")
	for range rows {
		t.AddRow(times(columns, func(int) slack.TableCell { return slack.NewTableRawTextCell(text) })...)
	}
	return t
}

// Each limit, just kept and just broken.
func TestLimits(t *testing.T) {
	x := func(n int) string { return strings.Repeat("é", n) } // characters, not bytes
	context := func(n int) slack.Block {
		return slack.NewContextBlock("", times(n, func(int) slack.MixedElement { return mrkdwn("x") })...)
	}
	fields := func(n, length int) slack.Block {
		return slack.NewSectionBlock(nil, times(n, func(int) *slack.TextBlockObject { return mrkdwn(x(length)) }), nil)
	}
	button := func(n, text, value, id int) slack.Block {
		return slack.NewActionBlock("", times(n, func(i int) slack.BlockElement {
			return slack.NewButtonBlockElement(fmt.Sprintf("%d%s", i%10, x(id-1)), x(value), plain(x(text)))
		})...)
	}
	for name, c := range map[string]struct {
		good, bad []slack.Block
		want      string
	}{
		"blocks": {
			times(50, func(int) slack.Block { return slack.NewDividerBlock() }),
			times(51, func(int) slack.Block { return slack.NewDividerBlock() }),
			"invalid_blocks [ERROR] no more than 50 items allowed [json-pointer:/blocks]",
		},
		"section": {
			[]slack.Block{section(x(3000))}, []slack.Block{section("x"), section(x(3001))},
			"invalid_blocks [ERROR] must be less than 3001 characters [json-pointer:/blocks/1/text/text]",
		},
		"empty section": {
			[]slack.Block{section("x")}, []slack.Block{section("")},
			"invalid_blocks [ERROR] must be more than 0 characters [json-pointer:/blocks/0/text/text]",
		},
		"fields":       {[]slack.Block{fields(10, 1)}, []slack.Block{fields(11, 1)}, "no more than 10 items"},
		"field":        {[]slack.Block{fields(1, 2000)}, []slack.Block{fields(1, 2001)}, "less than 2001 characters"},
		"header":       {[]slack.Block{slack.NewHeaderBlock(plain(x(150)))}, []slack.Block{slack.NewHeaderBlock(plain(x(151)))}, "less than 151 characters"},
		"context":      {[]slack.Block{context(10)}, []slack.Block{context(11)}, "no more than 10 items"},
		"actions":      {[]slack.Block{button(25, 1, 1, 1)}, []slack.Block{button(26, 1, 1, 1)}, "no more than 25 items"},
		"button":       {[]slack.Block{button(1, 75, 1, 1)}, []slack.Block{button(1, 76, 1, 1)}, "less than 76 characters"},
		"button value": {[]slack.Block{button(1, 1, 2000, 1)}, []slack.Block{button(1, 1, 2001, 1)}, "less than 2001 characters"},
		"action id":    {[]slack.Block{button(1, 1, 1, 255)}, []slack.Block{button(1, 1, 1, 256)}, "less than 256 characters"},
		"markdown": {
			[]slack.Block{slack.NewMarkdownBlock("", x(6000)), slack.NewMarkdownBlock("", x(6000))},
			[]slack.Block{slack.NewMarkdownBlock("", x(6000)), slack.NewMarkdownBlock("", x(6001))}, "less than 12001 characters",
		},
		"table rows":    {[]slack.Block{table(100, 1, "x")}, []slack.Block{table(101, 1, "x")}, "no more than 100 items"},
		"table columns": {[]slack.Block{table(1, 20, "x")}, []slack.Block{table(1, 21, "x")}, "no more than 20 items"},
		"table text":    {[]slack.Block{table(100, 10, "0123456789")}, []slack.Block{table(100, 10, "0123456789a")}, "less than 10001 characters"},
		"table cell":    {[]slack.Block{table(1, 1, " ")}, []slack.Block{table(1, 1, "")}, "more than 0 characters"},
		"two tables":    {[]slack.Block{table(1, 1, "x")}, []slack.Block{table(1, 1, "x"), table(1, 1, "x")}, "invalid_attachments"},
		"sum of text": {
			times(5, func(int) slack.Block { return section(strings.Repeat("x", 2000)) }), times(5, func(int) slack.Block { return section(strings.Repeat("x", 2001)) }), "msg_blocks_too_long",
		},
		"sum of JSON": {
			times(49, func(int) slack.Block { return fields(1, 50) }), times(49, func(int) slack.Block { return fields(10, 1) }), "msg_blocks_too_long",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, fakeslack.Config{})
			good := p.post(slack.MsgOptionText("x", false), slack.MsgOptionBlocks(c.good...))
			_, _, err := p.PostMessage(channel, slack.MsgOptionText("x", false), slack.MsgOptionBlocks(c.bad...))
			if !strings.Contains(all(err), c.want) {
				t.Errorf("got %q, want %q", all(err), c.want)
			}
			_, _, _, err = p.UpdateMessage(channel, good, slack.MsgOptionText("x", false), slack.MsgOptionBlocks(c.bad...))
			if !strings.Contains(all(err), c.want) {
				t.Errorf("update: got %q, want %q", all(err), c.want)
			}
			if sent := p.Messages(channel); len(sent) != 1 || sent[0].Edits != 0 {
				t.Errorf("a refused message is there: %+v", sent)
			}
		})
	}
}

func TestTextAndMetadata(t *testing.T) {
	p := start(t, fakeslack.Config{})
	if _, _, err := p.PostMessage(channel); all(err) != "no_text " {
		t.Errorf("nothing: %v", err)
	}
	p.fence.Take() // the schema says so as well
	p.post(slack.MsgOptionText(strings.Repeat("x", 40001), false))
	if n := len(p.Messages(channel)[0].Text); n != 40000 {
		t.Errorf("%d characters are left", n)
	}
	for want, m := range map[string]slack.SlackMetadata{
		"invalid_metadata_schema": {EventType: "x", EventPayload: map[string]any{"a": nil}},
		"metadata_too_large":      {EventType: "x", EventPayload: map[string]any{"a": strings.Repeat("x", 2048)}},
	} {
		_, _, err := p.PostMessage(channel, slack.MsgOptionText("x", false), slack.MsgOptionMetadata(m))
		if all(err) != want+" " {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	p.fence.Take() // null is no value
}

func TestBadBlocks(t *testing.T) {
	p := start(t, fakeslack.Config{})
	for want, b := range map[string]slack.Block{
		"must be a valid enum value": slack.NewHeaderBlock(mrkdwn("x")),
		"unsupported type: video2":   slack.RichTextBlock{Type: "video2"},
		"no fewer than 1 items":      slack.NewRichTextBlock(""),
	} {
		_, _, err := p.PostMessage(channel, slack.MsgOptionText("x", false), slack.MsgOptionBlocks(b))
		if !strings.Contains(all(err), want) {
			t.Errorf("got %q, want %q", all(err), want)
		}
		if p.fence != nil && len(p.fence.Take()) == 0 && want != "no fewer than 1 items" {
			t.Errorf("the fence let %q through", want)
		}
	}
	code := slack.NewRichTextBlock("", &slack.RichTextPreformatted{
		Type: slack.RTEPreformatted, Elements: []slack.RichTextSectionElement{slack.NewRichTextSectionTextElement(strings.Repeat("x", 10001), nil)},
	})
	if _, _, err := p.PostMessage(channel, slack.MsgOptionText("x", false), slack.MsgOptionBlocks(code)); all(err) != "msg_blocks_too_long " {
		t.Errorf("rich text counts too: %v", err)
	}
}
