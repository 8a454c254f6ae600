package fakejira_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	fakejira "ipamaudit/notify/fake/jira"
	"ipamaudit/notify/fake/wire"
)

const createPath = "rest/api/2/issue"

func TestFaultsAreNotProcessedUnlessTheySayCommit(t *testing.T) {
	for kind, want := range map[wire.Kind]struct {
		status int // 0: no answer
		issues int
	}{
		wire.RateLimited:           {429, 0},
		wire.Unavailable:           {503, 0},
		wire.UnauthorizedHTML:      {401, 0},
		wire.ServerError:           {500, 0},
		wire.Reset:                 {0, 0},
		wire.CommitThenServerError: {500, 1},
		wire.CommitThenReset:       {201, 1},
	} {
		t.Run(string(kind), func(t *testing.T) {
			p := start(t, fakejira.Config{})
			p.Inject(wire.Fault{Method: http.MethodPost, Path: createPath, Times: 1, Kind: kind, RetryAfter: "7"})
			_, resp, err := p.client.Issue.Create(ticket("ipamaudit"))
			if err == nil {
				t.Fatal("the client noticed nothing")
			}
			status := 0
			if resp != nil {
				status = resp.StatusCode
			}
			if n := len(p.Issues()); status != want.status || n != want.issues {
				t.Errorf("status %d and %d issues, want %+v (%v)", status, n, want, err)
			}
			if kind == wire.RateLimited && (resp.Header.Get("Retry-After") != "7" || resp.Header.Get("RateLimit-Reason") == "") {
				t.Errorf("headers %v", resp.Header)
			}
			if log := p.Requests(); len(log) != 1 || log[0].Fault != kind {
				t.Errorf("log %+v", log)
			}
			p.create("ipamaudit") // the next one passes
			if p.PendingFaults() != 0 {
				t.Error("the fault is still there")
			}
		})
	}
}

func TestCommitThenHang(t *testing.T) {
	p := start(t, fakejira.Config{})
	p.Inject(wire.Fault{Method: http.MethodPost, Path: createPath, Kind: wire.CommitThenHang, Times: 1})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		_, _, err := p.client.Issue.CreateWithContext(ctx, ticket("ipamaudit"))
		done <- err
	}()
	for len(p.Issues()) == 0 { // the server has done its part
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if log := p.Requests(); log[0].Status != 0 {
		t.Errorf("log %+v", log)
	}
}

func TestRetryAfterDateAndNone(t *testing.T) {
	p := start(t, fakejira.Config{Flavour: fakejira.DataCenter})
	date := wire.RetryDate(time.Date(2026, 3, 2, 2, 0, 30, 0, time.UTC))
	p.Inject(
		wire.Fault{Path: "rest/api/2/myself", Kind: wire.RateLimited, Times: 1, RetryAfter: date},
		wire.Fault{Path: "rest/api/2/myself", Kind: wire.RateLimited, Times: 1},
	)
	for _, want := range []string{"Mon, 02 Mar 2026 02:00:30 GMT", ""} {
		status, _, header := p.raw(http.MethodGet, "rest/api/2/myself", nil)
		if got := header.Get("Retry-After"); status != 429 || got != want {
			t.Errorf("%d, Retry-After %q, want %q", status, got, want)
		}
	}
}

func TestFaultsHitWhatTheyAreAimedAt(t *testing.T) {
	p := start(t, fakejira.Config{})
	p.Inject(wire.Fault{Method: http.MethodPost, Path: createPath, Body: "fp-2", After: 1, Times: 1, Kind: wire.ServerError})
	p.create("fp-1")
	p.create("fp-2") // let through
	p.want(201, http.MethodPost, "rest/api/2/issue/OPS-1/comment", map[string]any{"body": "about fp-2"}, nil)
	if _, resp, err := p.client.Issue.Create(ticket("fp-2")); err == nil || resp.StatusCode != http.StatusInternalServerError {
		t.Errorf("%v", err)
	}
	if n := p.Count(http.MethodPost, createPath); n != 3 {
		t.Errorf("%d creates", n)
	}
	if n := p.Count("", "rest/api/2/issue/*/comment"); n != 1 {
		t.Errorf("%d comments", n)
	}
	if n := p.Count("", "rest/api/2/..."); n != 4 {
		t.Errorf("%d requests", n)
	}
}

func TestDropLabels(t *testing.T) {
	p := start(t, fakejira.Config{})
	p.Inject(wire.Fault{Method: http.MethodPost, Path: createPath, Times: 1, Kind: fakejira.DropLabels})
	p.create("ipamaudit")
	if i, _ := p.Issue("OPS-1"); len(i.Labels) != 0 {
		t.Errorf("labels %v", i.Labels)
	}
	if len(p.Find("ipamaudit")) != 0 {
		t.Error("found what has no label")
	}
}

func TestCloudTakesAnExpiredTokenForAnonymous(t *testing.T) {
	p := start(t, fakejira.Config{})
	p.create("ipamaudit")
	expired := func(what string) {
		t.Helper()
		got, resp, err := p.client.Issue.SearchV2JQL(mine, nil)
		if err != nil || len(got) != 0 || resp.Header.Get("X-Seraph-Loginreason") != "AUTHENTICATED_FAILED" {
			t.Errorf("%s: search: %v, %v", what, got, err)
		}
	}
	p.Inject(wire.Fault{Times: 1, Kind: fakejira.ExpiredToken})
	expired("fault")
	p.ExpireToken()
	expired("state")
	p.want(401, http.MethodGet, "rest/api/2/myself", nil, nil)
	p.want(404, http.MethodGet, "rest/api/2/issue/OPS-1", nil, nil)
	if _, resp, err := p.client.Issue.Create(ticket()); err == nil || resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("create: %v", err)
	}
	p.RenewToken()
	p.want(200, http.MethodGet, "rest/api/2/issue/OPS-1", nil, nil)

	p.client = p.login("another token")
	expired("wrong token")
}

func TestDataCenterRefusesABadToken(t *testing.T) {
	p := start(t, fakejira.Config{Flavour: fakejira.DataCenter})
	p.client = p.login("another token")
	for _, path := range []string{"rest/api/2/myself", "rest/api/2/search?jql=project%3DOPS"} {
		if status, body, _ := p.raw(http.MethodGet, path, nil); status != 401 {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

func TestTheLogHasNoSecrets(t *testing.T) {
	p := start(t, fakejira.Config{})
	p.create("ipamaudit")
	log := p.Requests()
	if len(log) != 1 || log[0].Header.Get("Authorization") != "Basic "+wire.Redacted || log[0].Status != 201 || !strings.Contains(log[0].Body, "pool is full") {
		t.Errorf("%+v", log)
	}
}

func TestCloseEndsWhatHangs(t *testing.T) {
	s, err := fakejira.Start(fakejira.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s.Inject(wire.Fault{Kind: wire.Hang})
	done := make(chan error, 1)
	go func() {
		resp, err := http.Get(s.URL() + "rest/api/2/myself")
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		done <- err
	}()
	for s.Count("", "") == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; err == nil {
		t.Error("a request that hangs got an answer")
	}
}
