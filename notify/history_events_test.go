package notify_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"ipamaudit/checks"
	"ipamaudit/notify"
)

// A history is what happened to a fleet, its tickets and its channel, event by
// event. Everything random is in the events, so a history can be run again, and
// made shorter while it still breaks a rule.
type history struct {
	seed   uint64
	rules  setup
	events []event
}

// setup is what does not change during a history.
type setup struct {
	dataCenter   bool
	reopen       notify.ReopenMode
	maxReopens   int
	resolveAfter int
	closeAfter   int
	maxNew       int
	lag          time.Duration // of search
	noHistory    bool          // the bot may not read the channel
	editWindow   time.Duration // of the Slack workspace; 0 is for ever
	webhook      bool          // there is no bot in Slack, only an incoming webhook
	field        bool          // tickets are found by a custom field
	extras       bool          // new tickets get a list and a link
}

// event is one thing that happens. Which of the fields count depends on what.
type event struct {
	what     string
	cluster  int
	check    int
	node     int
	severity checks.Severity
	ticket   int // the n-th of those that exist, modulo
	wait     time.Duration
	adopt    bool
	faults   []fault
}

// fault is what becomes of the n-th call of a run: requests to Jira and Slack
// and saves of the state count alike.
type fault struct {
	call int
	kind string
	// second are the faults of the run that begins while this call hangs.
	second []fault
}

func (f fault) String() string {
	if len(f.second) == 0 {
		return fmt.Sprintf("%s@%d", f.kind, f.call)
	}
	return fmt.Sprintf("%s@%d%v", f.kind, f.call, f.second)
}

func (e event) String() string {
	problem := fmt.Sprintf("prod-%d %s", e.cluster, checkIDs[e.check])
	switch e.what {
	case "run":
		if e.adopt {
			return fmt.Sprintf("after %s run --adopt with %v", e.wait, e.faults)
		}
		return fmt.Sprintf("after %s run with %v", e.wait, e.faults)
	case "find":
		return fmt.Sprintf("find %s %s on node-%d", e.severity, problem, e.node)
	case "fix", "suppress", "blind", "see":
		return fmt.Sprintf("%s %s", e.what, problem)
	case "down", "up":
		return fmt.Sprintf("%s prod-%d", e.what, e.cluster)
	case "lose state", "restore state", "delete digest", "say in channel":
		return e.what
	default:
		return fmt.Sprintf("%s (ticket %d)", e.what, e.ticket)
	}
}

func (h history) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %+v\n", h.seed, h.rules)
	for i, e := range h.events {
		fmt.Fprintf(&b, "  %2d. %s\n", i+1, e)
	}
	return b.String()
}

var (
	checkIDs = []string{"blackholed-routes", "blockless-nodes"}
	// What may become of a call. A crash ends the process there.
	httpFaults = []string{
		"crash before", "crash after", "refused", "lost before", "lost after", "500 before", "500 after",
		"503", "503 later", "429", "429 later", "429 date", "429 long", "hang before", "hang after", "html 401", "expired",
		"drop labels", "second run", "taken over",
	}
	saveFaults = []string{"crash before", "crash after", "disk full", "second run"}
)

// newHistory makes the history of a seed.
func newHistory(seed uint64) history {
	r := rand.New(rand.NewPCG(seed, 0x1BA5))
	h := history{seed: seed, rules: setup{
		dataCenter: r.IntN(3) == 0,
		reopen:     pick(r, []notify.ReopenMode{notify.ReopenWithin, notify.ReopenAlways, notify.ReopenNever}),
		maxReopens: pick(r, []int{1, 3, -1}), resolveAfter: pick(r, []int{1, 1, 2, -1}), closeAfter: pick(r, []int{0, 0, 1, 2}),
		maxNew: pick(r, []int{2, 20, 20}), lag: pick(r, []time.Duration{0, 0, 5 * time.Second, 90 * time.Second, 8 * time.Minute, 30 * time.Hour}),
		noHistory: r.IntN(8) == 0, editWindow: pick(r, []time.Duration{0, 0, 0, time.Minute}), webhook: r.IntN(6) == 0,
		field: r.IntN(6) == 0, extras: r.IntN(4) == 0,
	}}
	for range 4 + r.IntN(28) {
		h.events = append(h.events, newEvent(r))
	}
	return h
}

func newEvent(r *rand.Rand) event {
	e := event{cluster: r.IntN(3), check: r.IntN(len(checkIDs)), node: r.IntN(3), ticket: r.IntN(6)}
	switch n := r.IntN(100); {
	case n < 45:
		e.what = "run"
		e.wait = pick(r, []time.Duration{0, 20 * time.Second, 3 * time.Minute, 15 * time.Minute, 24 * time.Hour, 24 * time.Hour, 24 * time.Hour, 20 * 24 * time.Hour})
		e.faults, e.adopt = newFaults(r, 0), r.IntN(6) == 0
	case n < 60:
		e.what, e.severity = "find", pick(r, []checks.Severity{checks.Critical, checks.High, checks.High, checks.Medium, checks.Low})
	case n < 72:
		e.what = pick(r, []string{"fix", "fix", "fix", "blind", "see", "suppress"})
	case n < 80:
		e.what = pick(r, []string{"down", "up", "up"})
	case n < 84:
		e.what = pick(r, []string{"lose state", "restore state"})
	case n < 87:
		e.what = pick(r, []string{"delete digest", "say in channel"})
	default:
		e.what = pick(r, []string{
			"close as Done", "close as Won't Fix", "close as Duplicate", "close as Fixed", "reopen", "delete", "move", "clone",
			"remove all labels", "remove static label", "accept", "no longer accept", "write above and below", "rewrite description",
			"cut the end off", "edit summary", "add label", "set priority", "comment", "assign",
		})
	}
	return e
}

func newFaults(r *rand.Rand, depth int) []fault {
	var out []fault
	n := pick(r, []int{0, 0, 0, 1, 1, 2, 3, 8})
	for range n {
		f := fault{call: 1 + r.IntN(40), kind: pick(r, httpFaults)}
		if r.IntN(4) == 0 {
			f.kind = pick(r, saveFaults)
		}
		if f.kind == "second run" || f.kind == "taken over" {
			if depth > 0 {
				f.kind = "crash after"
			} else {
				f.second = newFaults(r, depth+1)
			}
		}
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b fault) int { return a.call - b.call })
	return out
}

func pick[T any](r *rand.Rand, of []T) T { return of[r.IntN(len(of))] }

// shrink makes a history shorter while fails still says yes.
func shrink(h history, fails func(history) bool, attempts int) history {
	try := func(c history) bool {
		if attempts--; attempts < 0 || !fails(c) {
			return false
		}
		h = c
		return true
	}
	for size := len(h.events) / 2; size >= 1; {
		changed := false
		for at := 0; at+size <= len(h.events); {
			c := h
			c.events = slices.Delete(slices.Clone(h.events), at, at+size)
			if try(c) {
				changed = true
			} else {
				at += size
			}
		}
		if !changed || size > len(h.events) {
			size /= 2
		}
	}
	for i := range h.events {
		for at := 0; at < len(h.events[i].faults); {
			c := h
			c.events = slices.Clone(h.events)
			c.events[i].faults = slices.Delete(slices.Clone(h.events[i].faults), at, at+1)
			if !try(c) {
				at++
			}
		}
	}
	c := h
	c.rules.lag = 0
	try(c)
	c = h
	c.rules.dataCenter, c.rules.noHistory, c.rules.editWindow, c.rules.webhook = false, false, 0, false
	try(c)
	c = h
	c.rules.field, c.rules.extras = false, false
	try(c)
	return h
}
