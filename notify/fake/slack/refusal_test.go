package fakeslack_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/slack-go/slack"

	fakeslack "ipamaudit/notify/fake/slack"
	"ipamaudit/notify/fake/wire"
)

func TestPostRefusals(t *testing.T) {
	channels := []fakeslack.Channel{
		{ID: channel, Name: "calico-ipam"}, {ID: "C0PUBLIC", Name: "public", NotMember: true},
		{ID: "G0SECRET", Name: "secret", Private: true, NotMember: true}, {ID: "C0OLD", Name: "old", Archived: true},
	}
	for name, c := range map[string]struct {
		scopes  []string
		channel string
		want    string
	}{
		"by id":              {fakeslack.AllScopes(), channel, ""},
		"by name":            {fakeslack.AllScopes(), "#calico-ipam", ""},
		"unknown":            {fakeslack.AllScopes(), "#nope", "channel_not_found"},
		"private":            {fakeslack.AllScopes(), "G0SECRET", "channel_not_found"},
		"archived":           {fakeslack.AllScopes(), "C0OLD", "is_archived"},
		"public, not joined": {fakeslack.AllScopes(), "C0PUBLIC", ""},
		"not in channel":     {[]string{fakeslack.ChatWrite}, "C0PUBLIC", "not_in_channel"},
		"missing scope":      {[]string{fakeslack.ChannelsRead}, channel, "missing_scope"},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, fakeslack.Config{Channels: channels, Scopes: c.scopes})
			_, _, err := p.PostMessage(c.channel, slack.MsgOptionText("x", false))
			if strings.TrimSpace(all(err)) != c.want {
				t.Errorf("got %v, want %q", err, c.want)
			}
			var e slack.SlackErrorResponse
			if c.want == "missing_scope" && (!errors.As(err, &e) || e.Needed != fakeslack.ChatWrite || e.Provided != fakeslack.ChannelsRead) {
				t.Errorf("%+v", e)
			}
		})
	}
}

func TestTokens(t *testing.T) {
	p := start(t, fakeslack.Config{})
	p.login("xoxb-other")
	if _, err := p.AuthTest(); all(err) != "invalid_auth " {
		t.Error(err)
	}
	p.login("")
	if _, err := p.AuthTest(); all(err) != "not_authed " {
		t.Error(err)
	}
	p.login(token)
	p.RevokeToken()
	if _, err := p.AuthTest(); all(err) != "token_revoked " {
		t.Error(err)
	}
	for _, r := range p.Requests() {
		if strings.Contains(r.Body, "xoxb") || strings.Contains(r.Header.Get("Authorization"), "xoxb") {
			t.Errorf("the log has a token: %+v", r)
		}
	}
}

func TestReadingNeedsScopesAndMembership(t *testing.T) {
	p := start(t, fakeslack.Config{})
	p.post(slack.MsgOptionText("x", false), metadata("run-1"))
	read := func() (*slack.GetConversationHistoryResponse, error) {
		return p.GetConversationHistory(&slack.GetConversationHistoryParameters{ChannelID: channel, IncludeAllMetadata: true})
	}
	p.SetScopes(fakeslack.ChatWrite, fakeslack.ChannelsHistory)
	if h, err := read(); err != nil || h.Messages[0].Metadata.EventType != "" {
		t.Errorf("metadata without its scope: %+v, %v", h, err)
	}
	p.SetScopes(fakeslack.ChatWrite)
	if _, err := read(); all(err) != "missing_scope " {
		t.Error(err)
	}
	p.SetScopes(fakeslack.AllScopes()...)
	p.SetChannel(fakeslack.Channel{ID: channel, Name: "calico-ipam", NotMember: true})
	if _, err := read(); all(err) != "not_in_channel " {
		t.Error(err)
	}
	if _, err := p.GetConversationHistory(&slack.GetConversationHistoryParameters{ChannelID: "#calico-ipam"}); all(err) != "channel_not_found " {
		t.Errorf("history by name: %v", err)
	}
}

func TestUpdateRefusals(t *testing.T) {
	c := newClock()
	p := start(t, fakeslack.Config{Now: c.now, EditWindow: time.Hour})
	mine, theirs := p.post(slack.MsgOptionText("x", false)), p.Say(channel, "hello", "")
	update := func(ts string) string {
		_, _, _, err := p.UpdateMessage(channel, ts, slack.MsgOptionText("y", false))
		return strings.TrimSpace(all(err))
	}
	if got := update(mine); got != "" {
		t.Errorf("mine: %s", got)
	}
	if got := update(theirs); got != "cant_update_message" {
		t.Errorf("theirs: %s", got)
	}
	if got := update("1.000001"); got != "message_not_found" {
		t.Errorf("unknown: %s", got)
	}
	if _, _, _, err := p.UpdateMessage(channel, mine, slack.MsgOptionText(strings.Repeat("x", 4001), false)); all(err) != "msg_too_long " {
		t.Errorf("too long: %v", err)
	}
	c.advance(2 * time.Hour)
	if got := update(mine); got != "edit_window_closed" {
		t.Errorf("late: %s", got)
	}

	// A deleted parent: no update, and a reply stands alone.
	if err := p.Delete(channel, mine); err != nil {
		t.Fatal(err)
	}
	if got := update(mine); got != "message_not_found" {
		t.Errorf("deleted: %s", got)
	}
	_, _, m, err := p.PostMessageWithResponseContext(context.Background(), channel, slack.MsgOptionText("late details", false), slack.MsgOptionTS(mine))
	if err != nil || m.ThreadTimestamp != "" {
		t.Errorf("%+v, %v", m, err)
	}
	if _, _, _, err := p.GetConversationReplies(&slack.GetConversationRepliesParameters{ChannelID: channel, Timestamp: mine}); all(err) != "thread_not_found " {
		t.Error(err)
	}
}

func TestFaults(t *testing.T) {
	const path = "api/chat.postMessage"
	for name, c := range map[string]struct {
		fault  wire.Fault
		posted int
		check  func(error) bool
	}{
		"ratelimited": {wire.Fault{Kind: wire.RateLimited, RetryAfter: "3"}, 0, func(err error) bool {
			var e *slack.RateLimitedError
			return errors.As(err, &e) && e.RetryAfter == 3*time.Second
		}},
		"429 alone":        {wire.Fault{Kind: wire.RateLimited}, 0, isStatus(429)},
		"503":              {wire.Fault{Kind: wire.Unavailable}, 0, isStatus(503)},
		"internal error":   {fakeslack.Refusal("chat.postMessage", "internal_error", 1), 0, func(err error) bool { return all(err) == "internal_error " }},
		"commit, then cut": {wire.Fault{Kind: wire.CommitThenReset}, 1, func(err error) bool { return err != nil }},
		"commit, then 500": {wire.Fault{Kind: wire.CommitThenServerError}, 1, isStatus(500)},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, fakeslack.Config{})
			c.fault.Path, c.fault.Times = path, 1
			p.Inject(c.fault)
			_, _, err := p.PostMessage(channel, slack.MsgOptionText("x", false))
			if !c.check(err) || len(p.Messages(channel)) != c.posted {
				t.Errorf("%v, %d posted", err, len(p.Messages(channel)))
			}
			p.post(slack.MsgOptionText("y", false))
		})
	}
}

func isStatus(code int) func(error) bool {
	return func(err error) bool {
		var e slack.StatusCodeError
		return errors.As(err, &e) && e.Code == code
	}
}

func TestCommitThenHang(t *testing.T) {
	p := start(t, fakeslack.Config{})
	p.Inject(wire.Fault{Path: "api/chat.postMessage", Times: 1, Kind: wire.CommitThenHang})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, _, err := p.PostMessageContext(ctx, channel, slack.MsgOptionText("x", false))
		done <- err
	}()
	for len(p.Messages(channel)) == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestPace(t *testing.T) {
	c := newClock()
	p := start(t, fakeslack.Config{Now: c.now, Pace: time.Second})
	p.post(slack.MsgOptionText("x", false))
	_, _, err := p.PostMessage(channel, slack.MsgOptionText("y", false))
	var e *slack.RateLimitedError
	if !errors.As(err, &e) || e.RetryAfter != time.Second {
		t.Errorf("%v", err)
	}
	c.advance(time.Second)
	p.post(slack.MsgOptionText("y", false))
}
