package fakejira_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	jira "github.com/andygrunwald/go-jira"

	"ipamaudit/notify/fake/fence"
	fakejira "ipamaudit/notify/fake/jira"
)

const (
	user  = "ipam-bot@example.com"
	token = "api-token-that-nobody-must-see"
)

// clock is a clock that a test moves.
type clock struct{ at time.Time }

func newClock() *clock                   { return &clock{time.Date(2026, 3, 2, 2, 0, 0, 0, time.UTC)} }
func (c *clock) now() time.Time          { return c.at }
func (c *clock) advance(d time.Duration) { c.at = c.at.Add(d) }

// peer is a server and the real client that talks to it.
type peer struct {
	*fakejira.Server
	t      *testing.T
	client *jira.Client
	fence  *fence.Fence
}

// start runs a fake; the traffic with a Cloud goes through the vendor's schema.
func start(t *testing.T, cfg fakejira.Config) *peer {
	t.Helper()
	cfg.User, cfg.Token = user, token
	s, err := fakejira.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	p := &peer{Server: s, t: t}
	p.client = p.login(token)
	return p
}

// login makes a client with another token.
func (p *peer) login(token string) *jira.Client {
	p.t.Helper()
	cloud := p.flavour() == fakejira.Cloud
	if cloud && p.fence == nil {
		p.fence = fence.Jira(p.t)
	}
	transport := p.fence.Transport(nil)
	var hc *http.Client
	if cloud {
		hc = (&jira.BasicAuthTransport{Username: user, Password: token, Transport: transport}).Client()
	} else {
		hc = (&jira.PATAuthTransport{Token: token, Transport: transport}).Client()
	}
	hc.Timeout = 5 * time.Second
	c, err := jira.NewClient(hc, p.URL())
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

func (p *peer) flavour() fakejira.Flavour {
	if strings.Contains(p.t.Name(), "DataCenter") {
		return fakejira.DataCenter
	}
	return fakejira.Cloud
}

// raw sends a request that go-jira has no method for.
func (p *peer) raw(method, path string, body any) (status int, answer []byte, header http.Header) {
	p.t.Helper()
	req, err := p.client.NewRequestWithContext(context.Background(), method, path, body)
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := p.client.Do(req, nil)
	if resp == nil {
		p.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, answer, resp.Header
}

// want sends a request and decodes the answer, which must have this status.
func (p *peer) want(status int, method, path string, body, out any) {
	p.t.Helper()
	got, answer, _ := p.raw(method, path, body)
	if got != status {
		p.t.Fatalf("%s %s: status %d, want %d: %s", method, path, got, status, answer)
	}
	if out != nil {
		if err := json.Unmarshal(answer, out); err != nil {
			p.t.Fatalf("%s %s: %v: %s", method, path, err, answer)
		}
	}
}

func ticket(labels ...string) *jira.Issue {
	return &jira.Issue{Fields: &jira.IssueFields{
		Project: jira.Project{Key: "OPS"}, Type: jira.IssueType{Name: "Task"},
		Summary: "pool is full", Description: "h3. What\n{code:bash}\ncalicoctl get ippool\n{code}\n", Labels: labels,
	}}
}

func (p *peer) create(labels ...string) *jira.Issue {
	p.t.Helper()
	i, _, err := p.client.Issue.Create(ticket(labels...))
	if err != nil {
		p.t.Fatal(err)
	}
	return i
}

// refused creates an issue that the server must not take and returns what it said.
func (p *peer) refused(fields map[string]any) map[string]string {
	p.t.Helper()
	full := map[string]any{"project": map[string]any{"key": "OPS"}, "issuetype": map[string]any{"name": "Task"}, "summary": "s"}
	for k, v := range fields {
		full[k] = v
		if v == nil {
			delete(full, k)
		}
	}
	var e struct {
		Errors map[string]string `json:"errors"`
	}
	before := len(p.Issues())
	p.want(http.StatusBadRequest, http.MethodPost, "rest/api/2/issue", map[string]any{"fields": full}, &e)
	if after := len(p.Issues()); after != before {
		p.t.Fatalf("a refused create left %d issues behind", after-before)
	}
	return e.Errors
}

func keys(issues []jira.Issue) string {
	var k []string
	for _, i := range issues {
		k = append(k, i.Key)
	}
	return strings.Join(k, " ")
}

// message is all that Jira said in an error of go-jira.
func message(err error) string {
	var e *jira.Error
	if !errors.As(err, &e) {
		return err.Error()
	}
	out := strings.Join(e.ErrorMessages, "; ")
	for field, text := range e.Errors {
		out += "; " + field + ": " + text
	}
	return out
}

func reader(s string) io.Reader { return bytes.NewBufferString(s) }
