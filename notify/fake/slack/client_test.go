package fakeslack_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/slack-go/slack"

	"ipamaudit/notify/fake/fence"
	fakeslack "ipamaudit/notify/fake/slack"
)

const (
	token   = "xoxb-token-that-nobody-must-see"
	channel = "C0CALICO"
)

type clock struct{ at time.Time }

func newClock() *clock                   { return &clock{time.Date(2026, 3, 2, 2, 0, 0, 0, time.UTC)} }
func (c *clock) now() time.Time          { return c.at }
func (c *clock) advance(d time.Duration) { c.at = c.at.Add(d) }

type peer struct {
	*fakeslack.Server
	*slack.Client
	t     *testing.T
	fence *fence.Fence
	http  *http.Client
}

func start(t *testing.T, cfg fakeslack.Config) *peer {
	t.Helper()
	cfg.Token = token
	s, err := fakeslack.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	p := &peer{Server: s, t: t, fence: fence.Slack(t)}
	p.http = &http.Client{Timeout: 5 * time.Second, Transport: p.fence.Transport(nil)}
	p.login(token)
	return p
}

func (p *peer) login(token string) {
	p.Client = slack.New(token, slack.OptionHTTPClient(p.http), slack.OptionAPIURL(p.APIURL()))
}

func (p *peer) post(options ...slack.MsgOption) string {
	p.t.Helper()
	_, ts, err := p.PostMessage(channel, options...)
	if err != nil {
		p.t.Fatal(all(err))
	}
	return ts
}

// all is everything that Slack said.
func all(err error) string {
	var e slack.SlackErrorResponse
	if errors.As(err, &e) {
		return e.Err + " " + strings.Join(e.ResponseMetadata.Messages, "; ")
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

func metadata(key string) slack.MsgOption {
	return slack.MsgOptionMetadata(slack.SlackMetadata{EventType: "ipam_digest", EventPayload: map[string]any{"v": 1, "run_key": key}})
}

func section(text string) slack.Block {
	return slack.NewSectionBlock(slack.NewTextBlockObject(slack.MarkdownType, text, false, false), nil, nil)
}

func TestDigestLife(t *testing.T) {
	c := newClock()
	p := start(t, fakeslack.Config{Now: c.now})
	who, err := p.AuthTest()
	if err != nil || who.BotID != fakeslack.BotID || !strings.Contains(who.Header.Get("X-OAuth-Scopes"), fakeslack.ChatWrite) {
		t.Errorf("%+v, %v", who, err)
	}
	info, err := p.GetConversationInfo(&slack.GetConversationInfoInput{ChannelID: channel})
	if err != nil || info.Name != "calico-ipam" || !info.IsMember {
		t.Errorf("%+v, %v", info, err)
	}

	// Posts in the same instant have their own ts.
	first := p.post(slack.MsgOptionText("night 1", false), slack.MsgOptionBlocks(section("*night 1*")), metadata("run-1"), slack.MsgOptionDisableLinkUnfurl())
	second := p.post(slack.MsgOptionText("noise", false))
	if first == second {
		t.Errorf("both have %s", first)
	}
	reply := p.post(slack.MsgOptionText("details", false), slack.MsgOptionTS(first), metadata("run-1/a"))
	p.Say(channel, "thanks", first)

	// Found again by metadata; replies are not in the history.
	history, err := p.GetConversationHistory(&slack.GetConversationHistoryParameters{ChannelID: channel, IncludeAllMetadata: true})
	if err != nil || len(history.Messages) != 2 {
		t.Fatalf("%+v, %v", history, err)
	}
	if m := history.Messages[1]; m.Timestamp != first || m.Metadata.EventPayload["run_key"] != "run-1" || m.BotID != fakeslack.BotID || m.ReplyCount != 2 {
		t.Errorf("%+v", m)
	}
	thread, _, _, err := p.GetConversationReplies(&slack.GetConversationRepliesParameters{ChannelID: channel, Timestamp: first, IncludeAllMetadata: true})
	if err != nil || len(thread) != 3 || thread[1].Timestamp != reply || thread[1].ThreadTimestamp != first || thread[1].Metadata.EventPayload["run_key"] != "run-1/a" || thread[2].BotID != "" {
		t.Errorf("%+v, %v", thread, err)
	}

	// Edited in place. What is not sent again is gone.
	c.advance(time.Hour)
	if _, ts, _, err := p.UpdateMessage(channel, first, slack.MsgOptionText("night 1, again", false), slack.MsgOptionBlocks(section("again")), metadata("run-1")); err != nil || ts != first {
		t.Errorf("%s, %v", ts, all(err))
	}
	if m := p.Thread(channel, first)[0]; m.Text != "night 1, again" || m.Edits != 1 || !bytes.Contains(m.Metadata, []byte("run-1")) {
		t.Errorf("%+v", m)
	}
	if _, _, _, err := p.UpdateMessage(channel, first, slack.MsgOptionText("bare", false)); err != nil {
		t.Error(all(err))
	}
	if m := p.Thread(channel, first)[0]; m.Blocks != nil || m.Metadata != nil {
		t.Errorf("%+v", m)
	}

	link, err := p.GetPermalink(&slack.PermalinkParameters{Channel: channel, Ts: reply})
	if err != nil || !strings.Contains(link, "/archives/C0CALICO/p") || !strings.Contains(link, "thread_ts="+first) {
		t.Errorf("%s, %v", link, err)
	}
	if n := p.Count("POST", "api/chat.postMessage"); n != 3 {
		t.Errorf("%d posts", n)
	}
}

func TestHistoryWindowsAndPages(t *testing.T) {
	c := newClock()
	p := start(t, fakeslack.Config{Now: c.now})
	var posted []string
	for range 5 {
		posted = append(posted, p.post(slack.MsgOptionText("x", false)))
		c.advance(time.Minute)
	}
	read := func(in slack.GetConversationHistoryParameters) (ts []string) {
		t.Helper()
		in.ChannelID = channel
		for {
			h, err := p.GetConversationHistory(&in)
			if err != nil {
				t.Fatal(all(err))
			}
			for _, m := range h.Messages {
				ts = append(ts, m.Timestamp)
			}
			if !h.HasMore {
				return ts
			}
			in.Cursor = h.ResponseMetaData.NextCursor
		}
	}
	if got := read(slack.GetConversationHistoryParameters{Limit: 2}); len(got) != 5 || got[0] != posted[4] || got[4] != posted[0] {
		t.Errorf("newest first: %v", got)
	}
	if got := read(slack.GetConversationHistoryParameters{Oldest: posted[2]}); len(got) != 2 {
		t.Errorf("oldest is exclusive: %v", got)
	}
	if got := read(slack.GetConversationHistoryParameters{Oldest: posted[2], Latest: posted[3], Inclusive: true}); len(got) != 2 || got[0] != posted[3] {
		t.Errorf("inclusive: %v", got)
	}
}

func TestWebhook(t *testing.T) {
	p := start(t, fakeslack.Config{})
	message := &slack.WebhookMessage{Text: "degraded mode", Blocks: &slack.Blocks{BlockSet: []slack.Block{section("*degraded*")}}}
	if err := slack.PostWebhookCustomHTTP(p.WebhookURL(), p.http, message); err != nil {
		t.Error(err)
	}
	sent := p.Messages("")
	if len(sent) != 1 || !sent[0].Webhook || sent[0].Text != "degraded mode" {
		t.Fatalf("%+v", sent)
	}
	if _, _, _, err := p.UpdateMessage(channel, sent[0].TS, slack.MsgOptionText("x", false)); all(err) != "cant_update_message " {
		t.Errorf("a webhook's message: %v", err)
	}
	for body, want := range map[string]string{
		`{"text":"ok?"}`: "200 ok", `{}`: "400 no_text", `nonsense`: "400 invalid_payload",
		`{"blocks":[{"type":"section","text":{"type":"mrkdwn","text":""}}]}`: "400 invalid_blocks",
	} {
		resp, err := http.Post(p.WebhookURL(), "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		said, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if got := strings.Fields(resp.Status)[0] + " " + string(said); got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
	if err := slack.PostWebhookContext(context.Background(), p.WebhookURL()+"x", message); err == nil {
		t.Error("another webhook's address works")
	}
}
