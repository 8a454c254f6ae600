package slack

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	api "github.com/slack-go/slack"

	"ipamaudit/notify"
)

// Webhook implements notify.Messenger through an incoming webhook: it posts to
// the webhook's one channel, whatever channel is named, and learns no id. So
// there are no threads and no updates, and a lost answer stays lost.
type Webhook struct {
	url    string
	client *http.Client
}

var _ notify.Messenger = (*Webhook)(nil)

// NewWebhook makes a Webhook; its URL is a secret.
func NewWebhook(webhookURL string, transport http.RoundTripper) (*Webhook, error) {
	if u, err := url.Parse(webhookURL); err != nil || u.Host == "" {
		return nil, errors.New("slack: the webhook's URL is none") // naming it would show the secret
	}
	if transport == nil {
		transport = notify.NewTransport(notify.TransportOptions{Secrets: WebhookSecrets(webhookURL)})
	}
	return &Webhook{url: webhookURL, client: notify.Client(transport)}, nil
}

// WebhookSecrets are the parts of a webhook's URL that must not be shown.
func WebhookSecrets(webhookURL string) []string {
	u, err := url.Parse(webhookURL)
	if err != nil || len(u.Path) < 2 {
		return []string{webhookURL}
	}
	return []string{webhookURL, u.EscapedPath(), u.Path}
}

// String implements notify.Messenger.
func (w *Webhook) String() string { return "Slack, by an incoming webhook" }

// Threads implements notify.Messenger.
func (w *Webhook) Threads() bool { return false }

// Preflight implements notify.Messenger; a webhook cannot be tried without posting.
func (w *Webhook) Preflight(context.Context) error { return nil }

// Post implements notify.Messenger. slack-go's PostWebhook would drop what Slack
// says about a refusal (slack-go/slack#956).
func (w *Webhook) Post(ctx context.Context, channel, _ string, m notify.Message) (notify.Posted, error) {
	body, err := json.Marshal(api.WebhookMessage{Text: m.Fallback, Blocks: &api.Blocks{BlockSet: blocks(m)}})
	if err != nil {
		return notify.Posted{}, fmt.Errorf("slack: webhook: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return notify.Posted{}, notify.Redact(fmt.Errorf("slack: webhook: %w", err), WebhookSecrets(w.url)...)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := w.client.Do(req)
	if err != nil {
		err = notify.Redact(fmt.Errorf("slack: webhook: %w", err), WebhookSecrets(w.url)...)
		if notify.NotSent(err) {
			return notify.Posted{}, err
		}
		return notify.Posted{}, fmt.Errorf("%w: %w", err, notify.ErrAmbiguous)
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(io.LimitReader(resp.Body, 200))
	if err != nil {
		said = nil
	}
	if resp.StatusCode == http.StatusOK && strings.TrimSpace(string(said)) == "ok" {
		return notify.Posted{Channel: channel}, nil
	}
	err = notify.Redact(fmt.Errorf("slack: webhook: %s %s", resp.Status, strings.TrimSpace(string(said))), WebhookSecrets(w.url)...)
	if resp.StatusCode >= http.StatusInternalServerError || resp.StatusCode == http.StatusOK {
		// Slack says "ok"; a 200 with anything else is the page of some proxy, or was cut off.
		return notify.Posted{}, fmt.Errorf("%w: %w", err, notify.ErrAmbiguous)
	}
	return notify.Posted{}, err
}

// Update implements notify.Messenger.
func (w *Webhook) Update(context.Context, string, string, notify.Message) error {
	return notify.ErrRefused
}

// Find implements notify.Messenger.
func (w *Webhook) Find(context.Context, string, string, string, time.Time) (notify.Posted, error) {
	return notify.Posted{}, notify.ErrCannotLook
}

// Permalink implements notify.Messenger.
func (w *Webhook) Permalink(context.Context, string, string) string { return "" }
