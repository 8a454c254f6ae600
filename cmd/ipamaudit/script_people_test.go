package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"

	"github.com/rogpeppe/go-internal/testscript"

	fakejira "ipamaudit/notify/fake/jira"
	fakeslack "ipamaudit/notify/fake/slack"
)

// people are the Jira and the Slack that a script talks to.
type people struct {
	jira  *fakejira.Server
	slack *fakeslack.Server
	// passed counts the requests that came through the proxy.
	passed atomic.Int32
}

type peopleKey struct{}

// scriptPeople: people starts a Jira and a Slack and puts their addresses into
// $JIRA and $SLACK. The project is OPS, the channel C0CALICO.
func scriptPeople(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: people")
	}
	p := ts.Value(peopleKey{}).(*people)
	var err error
	p.jira, err = fakejira.Start(fakejira.Config{Flavour: fakejira.DataCenter, Token: "jira-hunter2"})
	ts.Check(err)
	ts.Defer(func() { p.jira.Close() })
	p.slack, err = fakeslack.Start(fakeslack.Config{Token: "xoxb-hunter2"})
	ts.Check(err)
	ts.Defer(func() { p.slack.Close() })
	ts.Setenv("JIRA", p.jira.URL())
	ts.Setenv("SLACK", p.slack.APIURL())
}

// scriptTold: told TICKETS MESSAGES compares what was filed and posted so far.
func scriptTold(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: told TICKETS MESSAGES")
	}
	p := ts.Value(peopleKey{}).(*people)
	tickets, messages := fmt.Sprint(len(p.jira.Issues())), fmt.Sprint(len(p.slack.Messages("C0CALICO")))
	if tickets != args[0] || messages != args[1] {
		ts.Fatalf("%s tickets and %s messages, want %s and %s", tickets, messages, args[0], args[1])
	}
}

// scriptProxy: proxy starts an HTTP proxy, puts its address into $PROXY, and
// makes http://jira.test/ and http://slack.test/ the people of the script. There
// is no other way to them.
func scriptProxy(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: proxy")
	}
	p := ts.Value(peopleKey{}).(*people)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.passed.Add(1)
		switch r.URL.Host {
		case "jira.test":
			p.jira.ServeHTTP(w, r)
		case "slack.test":
			p.slack.ServeHTTP(w, r)
		default:
			http.Error(w, "no way to "+r.URL.Host, http.StatusBadGateway)
		}
	}))
	ts.Defer(srv.Close)
	ts.Setenv("PROXY", srv.URL)
}

// scriptProxied: proxied N wants at least N requests to have come that way.
func scriptProxied(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: proxied N")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	if n := int(ts.Value(peopleKey{}).(*people).passed.Load()); n < want {
		ts.Fatalf("%d requests came through the proxy, want %d", n, want)
	}
}
