package main

import (
	"fmt"

	"github.com/rogpeppe/go-internal/testscript"

	fakejira "ipamaudit/notify/fake/jira"
	fakeslack "ipamaudit/notify/fake/slack"
)

// people are the Jira and the Slack that a script talks to.
type people struct {
	jira  *fakejira.Server
	slack *fakeslack.Server
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
