package fence

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Slack stands between a client and a Slack: messages and blocks are held
// against JSON Schemas made from the types that Slack publishes for JavaScript.
// They know shapes, not lengths. The test fails for every violation; without
// the schemas the fence is nil.
func Slack(t testing.TB) *Fence {
	t.Helper()
	return stand(t, loadSlack)
}

type slackRules struct{ blocks, post *jsonschema.Schema }

var loadSlack = onceByDir(func(dir string) (rules, error) {
	blocks, err := compile(dir, "slack-blocks.schema.json")
	if err != nil {
		return nil, err
	}
	post, err := compile(dir, "slack-post-message.schema.json")
	if err != nil {
		return nil, err
	}
	return slackRules{blocks, post}, nil
})

func compile(dir, name string) (*jsonschema.Schema, error) {
	raw, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return nil, fmt.Errorf("read Slack's schema: %w", err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, fmt.Errorf("read Slack's schema %s: %w", name, err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(name, doc); err != nil {
		return nil, fmt.Errorf("read Slack's schema %s: %w", name, err)
	}
	schema, err := c.Compile(name)
	if err != nil {
		return nil, fmt.Errorf("compile Slack's schema %s: %w", name, err)
	}
	return schema, nil
}

func (s slackRules) request(r *http.Request, body []byte) error {
	switch {
	case strings.HasPrefix(r.URL.Path, "/services/"):
		var hook struct {
			Blocks json.RawMessage `json:"blocks"`
		}
		if err := json.Unmarshal(body, &hook); err != nil {
			return fmt.Errorf("the webhook's payload: %w", err)
		}
		return s.checkBlocks(hook.Blocks)
	case strings.HasSuffix(r.URL.Path, "/chat.postMessage"), strings.HasSuffix(r.URL.Path, "/chat.update"):
		message, err := arguments(r, body)
		if err != nil {
			return err
		}
		// chat.update has no schema of its own: a post with a ts.
		delete(message, "ts")
		if err := s.post.Validate(message); err != nil {
			return fmt.Errorf("the message: %w", err)
		}
		if blocks, has := message["blocks"]; has {
			return s.blocks.Validate(blocks)
		}
	}
	return nil
}

// arguments makes of a form the object that the schema describes.
func arguments(r *http.Request, body []byte) (map[string]any, error) {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind == "application/json" {
		var message map[string]any
		if err := json.Unmarshal(body, &message); err != nil {
			return nil, fmt.Errorf("the arguments: %w", err)
		}
		return message, nil
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, fmt.Errorf("the arguments: %w", err)
	}
	form.Del("token")
	message := map[string]any{}
	for name := range form {
		value := form.Get(name)
		switch name {
		case "blocks", "attachments", "metadata":
			parsed, err := jsonschema.UnmarshalJSON(strings.NewReader(value))
			if err != nil {
				return nil, fmt.Errorf("argument %s is no JSON: %w", name, err)
			}
			message[name] = parsed
		case "unfurl_links", "unfurl_media", "mrkdwn", "link_names", "reply_broadcast", "as_user":
			yes, err := strconv.ParseBool(value)
			if err != nil {
				return nil, fmt.Errorf("argument %s: %w", name, err)
			}
			message[name] = yes
		default:
			message[name] = value
		}
	}
	return message, nil
}

func (s slackRules) response(r *http.Request, _ []byte, answer *http.Response, body []byte) error {
	if answer.StatusCode != http.StatusOK || strings.HasPrefix(r.URL.Path, "/services/") {
		return nil
	}
	type message struct {
		TS     string          `json:"ts"`
		Blocks json.RawMessage `json:"blocks"`
	}
	var out struct {
		OK       *bool     `json:"ok"`
		Error    string    `json:"error"`
		Message  *message  `json:"message"`
		Messages []message `json:"messages"`
	}
	if err := json.Unmarshal(body, &out); err != nil {
		return fmt.Errorf("the answer: %w", err)
	}
	if out.OK == nil || *out.OK == (out.Error != "") {
		return fmt.Errorf("an answer has ok and, unless it is true, error: %s", body)
	}
	if out.Message != nil {
		out.Messages = append(out.Messages, *out.Message)
	}
	for _, m := range out.Messages {
		if m.TS == "" {
			return fmt.Errorf("a message has no ts: %s", body)
		}
		if err := s.checkBlocks(m.Blocks); err != nil {
			return err
		}
	}
	return nil
}

func (s slackRules) checkBlocks(raw json.RawMessage) error {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	blocks, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return fmt.Errorf("the blocks: %w", err)
	}
	if err := s.blocks.Validate(blocks); err != nil {
		return fmt.Errorf("the blocks: %w", err)
	}
	return nil
}
