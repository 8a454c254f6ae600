package fence_test

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"ipamaudit/notify/fake/fence"
)

// says is a server that always gives one answer.
type says struct {
	status int
	body   string
}

func (s says) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: s.status, Header: http.Header{"Content-Type": {"application/json;charset=UTF-8"}},
		Body: io.NopCloser(strings.NewReader(s.body)), Request: r,
	}, nil
}

func send(t *testing.T, f *fence.Fence, server says, method, address, contentType, body string) {
	t.Helper()
	req, err := http.NewRequest(method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := f.Transport(server).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(resp.Body)
	if err != nil || string(got) != server.body {
		t.Errorf("the fence changed the answer: %q, %v", got, err)
	}
}

func TestJiraFence(t *testing.T) {
	f := fence.Jira(t)
	if f == nil {
		t.Skip("no vendor schemas here")
	}
	const created = `{"id":"10001","key":"OPS-1","self":"https://example.atlassian.net/rest/api/2/issue/10001"}`
	for name, c := range map[string]struct {
		server       says
		method, path string
		body, side   string
	}{
		"good":                  {says{201, created}, "POST", "issue", `{"fields":{"summary":"s"}}`, ""},
		"fields as a text":      {says{201, created}, "POST", "issue", `{"fields":"s"}`, "request"},
		"a number for an id":    {says{201, `{"id":10001,"key":"OPS-1","self":"x"}`}, "POST", "issue", `{"fields":{}}`, "response"},
		"a status never given":  {says{200, created}, "POST", "issue", `{"fields":{}}`, "response"},
		"an unknown path":       {says{200, `{}`}, "GET", "issues", "", "request"},
		"an unknown member":     {says{200, `{"issues":[],"isLast":true,"total":0}`}, "GET", "search/jql?jql=x", "", "response"},
		"a limiter's own words": {says{429, `{"code":429}`}, "GET", "myself", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, base := range []string{"http://127.0.0.1", "http://127.0.0.1/ex/jira/1234"} {
				send(t, f, c.server, c.method, base+"/rest/api/2/"+c.path, "application/json", c.body)
				got := f.Take()
				if c.side == "" && len(got) > 0 || c.side != "" && (len(got) != 1 || got[0].Side != c.side) {
					t.Errorf("violations %v, want one of the %s", got, c.side)
				}
			}
		})
	}
}

func TestSlackFence(t *testing.T) {
	f := fence.Slack(t)
	if f == nil {
		t.Skip("no vendor schemas here")
	}
	const ok = `{"ok":true,"channel":"C1","ts":"1.000001","message":{"ts":"1.000001"}}`
	form := func(blocks string) string {
		return url.Values{"token": {"xoxb-1"}, "channel": {"C1"}, "text": {"t"}, "unfurl_links": {"false"}, "blocks": {blocks}}.Encode()
	}
	for name, c := range map[string]struct {
		server     says
		body, side string
	}{
		"good":               {says{200, ok}, form(`[{"type":"section","text":{"type":"mrkdwn","text":"*x*"}}]`), ""},
		"a markdown header":  {says{200, ok}, form(`[{"type":"header","text":{"type":"mrkdwn","text":"x"}}]`), "request"},
		"an unknown member":  {says{200, ok}, form(`[{"type":"divider","color":"red"}]`), "request"},
		"broken JSON":        {says{200, ok}, form(`[{`), "request"},
		"ok without saying":  {says{200, `{"channel":"C1"}`}, form(`[]`), "response"},
		"a message, no time": {says{200, `{"ok":true,"message":{"text":"x"}}`}, form(`[]`), "response"},
	} {
		t.Run(name, func(t *testing.T) {
			send(t, f, c.server, "POST", "http://127.0.0.1/api/chat.postMessage", "application/x-www-form-urlencoded", c.body)
			got := f.Take()
			if c.side == "" && len(got) > 0 || c.side != "" && (len(got) == 0 || got[0].Side != c.side) {
				t.Errorf("violations %v, want one of the %s", got, c.side)
			}
		})
	}
}

func TestNoFence(t *testing.T) {
	var f *fence.Fence
	send(t, f, says{200, "anything"}, "GET", "http://127.0.0.1/rest/api/2/nothing", "", "")
	if f.Take() != nil || f.Checked() != 0 {
		t.Error("a nil fence has something to say")
	}
	t.Setenv(fence.SchemaDirEnv, "/somewhere")
	if fence.SchemaDir() != "/somewhere" {
		t.Error("the environment does not win")
	}
}
