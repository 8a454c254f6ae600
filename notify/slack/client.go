// Package slack sends digests to Slack, over slack-go: as a bot, or through an
// incoming webhook, which can neither find, edit nor thread. Both implement
// notify.Messenger.
package slack

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	api "github.com/slack-go/slack"
	"golang.org/x/time/rate"

	"ipamaudit/notify"
)

// Options are how Slack is reached.
type Options struct {
	// Token is a bot token (xoxb-…) with chat:write, and channels:history (or
	// groups:history) to find its own messages again.
	Token string
	// APIURL replaces https://slack.com/api/ and ends with a slash.
	APIURL string
	// Transport sends the requests, usually a notify.Transport.
	Transport http.RoundTripper
	// Pace is the least time between two posts to one channel; default 1.1 s,
	// Slack allows about one a second.
	Pace time.Duration
}

// Client implements notify.Messenger as a bot.
type Client struct {
	api   *api.Client
	token string
	pace  time.Duration
	me    *api.AuthTestResponse

	mu       sync.Mutex
	channels map[string]*rate.Limiter
}

var _ notify.Messenger = (*Client)(nil)

// New makes a client; it does not connect.
func New(o Options) (*Client, error) {
	if o.Token == "" {
		return nil, errors.New("slack: no token")
	}
	if o.Transport == nil {
		o.Transport = notify.NewTransport(notify.TransportOptions{Secrets: notify.SecretForms("", o.Token)})
	}
	if o.Pace == 0 {
		o.Pace = 1100 * time.Millisecond
	}
	// No OptionRetry: the transport repeats what was not processed (429), and
	// slack-go's other retries would post twice.
	opts := []api.Option{api.OptionHTTPClient(notify.Client(o.Transport))}
	if o.APIURL != "" {
		opts = append(opts, api.OptionAPIURL(o.APIURL))
	}
	return &Client{api: api.New(o.Token, opts...), token: o.Token, pace: o.Pace, channels: map[string]*rate.Limiter{}}, nil
}

// String implements notify.Messenger.
func (c *Client) String() string { return "Slack" }

// Threads implements notify.Messenger.
func (c *Client) Threads() bool { return true }

// Preflight implements notify.Messenger.
func (c *Client) Preflight(ctx context.Context) error {
	if c.me != nil {
		return nil
	}
	me, err := c.api.AuthTestContext(notify.Harmless(ctx))
	if err != nil {
		return c.fail("auth.test", err, false)
	}
	c.me = me
	return nil
}

// Post implements notify.Messenger.
func (c *Client) Post(ctx context.Context, channel, thread string, m notify.Message) (notify.Posted, error) {
	if err := c.limiter(channel).Wait(ctx); err != nil {
		return notify.Posted{}, fmt.Errorf("slack: wait for the turn in %s: %w", channel, err)
	}
	opts := content(m)
	if thread != "" {
		opts = append(opts, api.MsgOptionTS(thread))
	}
	id, ts, err := c.api.PostMessageContext(ctx, channel, opts...)
	if err != nil {
		return notify.Posted{}, c.fail("chat.postMessage", err, true)
	}
	return notify.Posted{Channel: id, TS: ts}, nil
}

// Update implements notify.Messenger.
func (c *Client) Update(ctx context.Context, channel, ts string, m notify.Message) error {
	_, _, _, err := c.api.UpdateMessageContext(notify.Harmless(ctx), channel, ts, content(m)...)
	return c.fail("chat.update", err, false)
}

// Permalink implements notify.Messenger.
func (c *Client) Permalink(ctx context.Context, channel, ts string) string {
	link, err := c.api.GetPermalinkContext(notify.Harmless(ctx), &api.PermalinkParameters{Channel: channel, Ts: ts})
	if err != nil {
		return ""
	}
	return link
}

// conversationID tells an id from a name; only posting takes names.
var conversationID = regexp.MustCompile(`^[CGD][A-Z0-9]{5,}$`)

const (
	historyPage  = 100
	historyPages = 5
)

// Find implements notify.Messenger. It knows its own messages by their metadata
// or, without the scope metadata.message:read, by the id of their first block.
func (c *Client) Find(ctx context.Context, channel, thread, key string, since time.Time) (notify.Posted, error) {
	if !conversationID.MatchString(channel) {
		return notify.Posted{}, fmt.Errorf("slack: channel %s is named, not given by its id: %w", channel, notify.ErrCannotLook)
	}
	if err := c.Preflight(ctx); err != nil {
		return notify.Posted{}, err
	}
	cursor := ""
	for range historyPages {
		msgs, next, err := c.page(ctx, channel, thread, cursor, fmt.Sprintf("%d.000000", since.Unix()))
		if err != nil {
			return notify.Posted{}, err
		}
		for _, m := range msgs {
			if c.own(m) && carries(m, key) {
				return notify.Posted{Channel: channel, TS: m.Timestamp}, nil
			}
		}
		if next == "" {
			return notify.Posted{}, notify.ErrNotFound
		}
		cursor = next
	}
	return notify.Posted{}, fmt.Errorf("slack: channel %s: too many messages since %s: %w", channel, since.UTC().Format(time.RFC3339), notify.ErrCannotLook)
}

func (c *Client) page(ctx context.Context, channel, thread, cursor, oldest string) ([]api.Message, string, error) {
	if thread != "" {
		msgs, more, next, err := c.api.GetConversationRepliesContext(notify.Harmless(ctx), &api.GetConversationRepliesParameters{
			ChannelID: channel, Timestamp: thread, Cursor: cursor, Limit: historyPage, IncludeAllMetadata: true,
		})
		if err != nil || !more {
			next = ""
		}
		return msgs, next, c.fail("conversations.replies", err, false)
	}
	resp, err := c.api.GetConversationHistoryContext(notify.Harmless(ctx), &api.GetConversationHistoryParameters{
		ChannelID: channel, Cursor: cursor, Oldest: oldest, Limit: historyPage, IncludeAllMetadata: true,
	})
	if err != nil {
		return nil, "", c.fail("conversations.history", err, false)
	}
	if !resp.HasMore {
		return resp.Messages, "", nil
	}
	return resp.Messages, resp.ResponseMetaData.NextCursor, nil
}

func (c *Client) own(m api.Message) bool {
	return m.BotID != "" && m.BotID == c.me.BotID || m.User != "" && m.User == c.me.UserID
}

func carries(m api.Message, key string) bool {
	if m.Metadata.EventType == notify.MetadataEvent && m.Metadata.EventPayload["key"] == key {
		return true
	}
	return slices.ContainsFunc(m.Blocks.BlockSet, func(b api.Block) bool { return strings.HasPrefix(b.ID(), blockID(key, "")) })
}

// limiter paces the posts to one channel.
func (c *Client) limiter(channel string) *rate.Limiter {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.channels[channel]
	if l == nil {
		l = rate.NewLimiter(rate.Every(c.pace), 1)
		c.channels[channel] = l
	}
	return l
}

// fail makes an error one of notify's and says all that Slack said. posting: a
// lost answer leaves open whether the message is there.
func (c *Client) fail(method string, err error, posting bool) error {
	if err == nil {
		return nil
	}
	var kind error
	var said api.SlackErrorResponse
	var status api.StatusCodeError
	var limited *api.RateLimitedError
	text := err.Error()
	switch {
	case errors.As(err, &said):
		text, kind = describe(said), kindOf(said.Err)
		if posting && slices.Contains([]string{"internal_error", "fatal_error", "service_unavailable", "request_timeout"}, said.Err) {
			kind = notify.ErrAmbiguous
		}
	case errors.As(err, &limited): // not processed
	case errors.As(err, &status):
		if posting && status.Code >= http.StatusInternalServerError {
			kind = notify.ErrAmbiguous
		}
	case posting && !notify.NotSent(err):
		kind = notify.ErrAmbiguous
	}
	cause := notify.Redact(fmt.Errorf("slack: %s: %s", method, text), c.token)
	if kind == nil {
		return cause
	}
	return fmt.Errorf("%w: %w", cause, kind)
}

func kindOf(code string) error {
	switch code {
	case "message_not_found", "thread_not_found":
		return notify.ErrNotFound
	case "cant_update_message", "edit_window_closed":
		return notify.ErrRefused
	case "missing_scope", "not_in_channel", "channel_not_found", "method_not_supported_for_channel_type", "not_allowed_token_type":
		return notify.ErrCannotLook
	case "invalid_auth", "not_authed", "token_revoked", "token_expired", "account_inactive":
		return notify.ErrUnauthenticated
	default:
		return nil
	}
}

func describe(r api.SlackErrorResponse) string {
	parts := []string{r.Err}
	parts = append(parts, r.ResponseMetadata.Messages...)
	if r.Needed != "" {
		parts = append(parts, "needs the scope "+r.Needed+", has "+r.Provided)
	}
	return strings.Join(parts, "; ")
}
