package notify_test

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ipamaudit/notify/fake/fence"
)

var historySeed = flag.Uint64("history.seed", 0, "run the history of this seed alone, and tell all of it")

// TestHistories lets fleets, tickets, channels, people and networks go through
// random histories and holds the promises against each: at most one open ticket
// per problem, none closed while the problem lasts, no comment without a change,
// no human edit lost, at most one digest per run.
//
// A step is a call of the tool (to Jira, Slack or its state) or an event between
// two runs: a crash can strike at each. IPAMAUDIT_SOAK_STEPS sets how many are
// made; the default is a tenth of a million, or what a minute allows.
func TestHistories(t *testing.T) {
	fences := [2]*fence.Fence{fence.Jira(t), fence.Slack(t)}
	if *historySeed != 0 {
		h := newHistory(*historySeed)
		u := live(t, h, fences, t.Logf)
		t.Logf("%s%d steps, violations: %v", h, u.steps, u.book.violations)
		if len(u.book.violations) > 0 {
			t.Fail()
		}
		return
	}
	want, limit := 100_000, 45*time.Second
	if testing.Short() {
		want = 5_000
	}
	if s := os.Getenv("IPAMAUDIT_SOAK_STEPS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		want, limit = n, 24*time.Hour
	}
	// The daily test walks the same histories every day; a soak goes elsewhere.
	first := uint64(1)
	if os.Getenv("IPAMAUDIT_SOAK_STEPS") != "" {
		first = uint64(time.Now().UnixNano())
	}
	if s := os.Getenv("IPAMAUDIT_SOAK_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		first = n
	}
	begin, steps, crashes, events, seed := time.Now(), 0, 0, 0, first
	for ; steps < want && time.Since(begin) < limit; seed++ {
		h := newHistory(seed)
		u := live(t, h, fences, nil)
		if steps/100_000 != (steps+u.steps)/100_000 {
			t.Logf("%d steps, %s", steps+u.steps, time.Since(begin).Round(time.Second))
		}
		steps, crashes, events = steps+u.steps, crashes+u.book.crashes, events+len(h.events)
		if len(u.book.violations) > 0 {
			report(t, h, u, fences)
			break
		}
	}
	t.Logf("%d histories from seed %d: %d events, %d steps, %d crashes; %d requests through the fences, %s",
		seed-first, first, events, steps, crashes, fences[0].Checked()+fences[1].Checked(), time.Since(begin).Round(time.Second))
}

func report(t *testing.T, h history, u *universe, fences [2]*fence.Fence) {
	t.Helper()
	rule := u.book.violations[0].rule
	h = shrink(h, func(c history) bool {
		for _, v := range live(t, c, fences, nil).book.violations {
			if v.rule == rule {
				return true
			}
		}
		return false
	}, 600)
	var told strings.Builder
	u = live(t, h, fences, func(format string, args ...any) { fmt.Fprintf(&told, format+"\n", args...) })
	t.Errorf("a history breaks the rule %q; -history.seed=%d shows all of it, this is the shortest that does:\n%s\n%s\n%v",
		rule, h.seed, h, told.String(), u.book.violations)
}

// live lets a history happen, in a bubble whose clock runs only while everybody waits.
func live(t *testing.T, h history, fences [2]*fence.Fence, trace func(string, ...any)) *universe {
	t.Helper()
	var u *universe
	synctest.Test(t, func(*testing.T) {
		u = newUniverse(h, fences)
		if trace != nil {
			u.trace = trace
		}
		time.Sleep(2 * time.Hour)
		for n, e := range h.events {
			u.trace("%s %d. %s", time.Now().UTC().Format(time.DateTime), n+1, e)
			u.book.touched(u)
			since := time.Now()
			if e.what == "delete digest" {
				u.book.deleted = true
			}
			u.happen(e)
			if e.what == "run" {
				u.book.check(u, since)
				u.backUp()
			}
			if len(u.book.violations) > 0 {
				return
			}
		}
		u.rest()
	})
	return u
}

// rest ends a history: nothing goes wrong any more, and after some nights all
// is told and silent.
func (u *universe) rest() {
	u.trace("the storm is over")
	u.jira.SetSearchLag(0)
	u.h.rules.lag = 0
	u.book.touched(u)
	night := func() {
		time.Sleep(24 * time.Hour)
		since := time.Now()
		u.trace("%s a calm night", since.UTC().Format(time.DateTime))
		u.run(nil, false, true)
		u.book.check(u, since)
	}
	for range 6 {
		if night(); len(u.book.violations) > 0 {
			return
		}
	}
	u.book.settled(u)
	writes := func() int {
		n := u.slack.Count("POST", "api/chat.update") + u.jira.Count("POST", "rest/api/2/issue") + u.jira.Count("PUT", "rest/api/2/issue/*") +
			u.jira.Count("POST", "rest/api/2/issue/*/comment") + u.jira.Count("POST", "rest/api/2/issue/*/transitions")
		n += u.jira.Count("POST", "rest/api/2/issue/*/attachments") + u.jira.Count("POST", "rest/api/2/issue/*/remotelink")
		if len(u.down)+len(u.blind) == 0 { // else there is a digest every day
			n += u.slack.Count("POST", "api/chat.postMessage") + u.slack.Count("POST", "services/...")
		}
		return n
	}
	before := writes()
	night()
	if n := writes() - before; n > 0 {
		u.book.violate("no silence", "%d writes in a night without a change", n)
	}
}
