package notify_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"ipamaudit/audit"
	"ipamaudit/checks"
	"ipamaudit/notify"
	fakejira "ipamaudit/notify/fake/jira"
)

// book is what an honest witness knows of a universe, and the rules that it
// holds against it. It looks into the servers' databases, never into the tool.
type book struct {
	violations []violation
	problems   map[string]problemKey // by label
	of         map[string]problemKey // by issue id
	seen       map[problemKey]notify.Seen
	clean      map[problemKey]map[string]bool // the runs in a row that saw nothing
	changes    map[problemKey]int             // what may be commented
	humans     map[string]*human
	read       map[string]int       // of an issue's history
	peace      map[string]string    // issues that the tool must leave alone, and why
	missing    map[string]bool      // ids that a state did not know, of those loaded in this event
	losses     []time.Time          // of the state, also those in which an older one took its place
	restores   int                  // of older states
	began      time.Time            // the first run of this event
	judged     map[string]bool      // openings of tickets, once
	labelled   map[string]time.Time // since when an issue has its label
	takeovers  int
	crashes    int
	deleted    bool // somebody deleted a message
	channel    *channelBook
}

type violation struct{ rule, text string }

func (v violation) String() string { return v.rule + ": " + v.text }

// human is what people did to an issue.
type human struct {
	provoked    int // what may be answered by a comment
	description string
	summary     string
	labels      []string
	priority    string
	assignee    string
}

func newBook() *book {
	baseline := notify.FingerprintLabel(checks.TicketFingerprint(baselineKey.check, "OPS"))
	return &book{
		problems: map[string]problemKey{baseline: baselineKey}, of: map[string]problemKey{}, seen: map[problemKey]notify.Seen{},
		clean: map[problemKey]map[string]bool{}, changes: map[problemKey]int{}, humans: map[string]*human{},
		read: map[string]int{}, peace: map[string]string{}, missing: map[string]bool{}, labelled: map[string]time.Time{},
		channel: newChannelBook(), judged: map[string]bool{},
	}
}

func (b *book) violate(rule, format string, args ...any) {
	b.violations = append(b.violations, violation{rule, fmt.Sprintf(format, args...)})
}

func (b *book) human(id string) *human {
	if b.humans[id] == nil {
		b.humans[id] = &human{}
	}
	return b.humans[id]
}

func (b *book) stateLost() { b.losses = append(b.losses, time.Now()) }

// sees notes what a run that begins knows and sees.
func (b *book) sees(u *universe, loaded *audit.State, r *audit.Report, next *audit.State) {
	if b.began.IsZero() {
		b.began = time.Now()
	}
	known := map[string]bool{}
	for _, ts := range loaded.Tickets {
		known[ts.ID] = true
	}
	for _, i := range u.jira.Issues() {
		if !known[i.ID] {
			b.missing[i.ID] = true
		}
	}
	for _, p := range notify.Problems(r, next, u.options().Tickets) {
		k := problemKey{p.Cluster, p.Check}
		b.problems[notify.FingerprintLabel(p.Fingerprint)] = k
		if p.Alias != "" {
			b.problems[notify.FingerprintLabel(p.Alias)] = k
		}
		if b.seen[k] != p.Seen {
			b.changes[k]++
		}
		b.seen[k] = p.Seen
		switch {
		case p.Seen.Present || p.Seen.Quiet != "" && p.Seen.Quiet != notify.Unknown:
			b.clean[k] = nil
		case p.Seen.Quiet == "":
			if b.clean[k] == nil {
				b.clean[k] = map[string]bool{}
			}
			b.clean[k][r.Run.ID] = true
		}
	}
}

// gone reports whether a problem is really not there, and could be seen not to be.
func (u *universe) gone(k problemKey) bool {
	for n := range u.down {
		if clusterName(n) == k.cluster {
			return false
		}
	}
	return len(u.truth[k]) == 0 && !u.blind[k]
}

// check holds all rules against what there is now. since is when the event began.
func (b *book) check(u *universe, since time.Time) {
	all := u.jira.Issues()
	for _, i := range all {
		b.issue(u, i, since)
	}
	b.single(u, all, since)
	b.digests(u)
	b.channelTold(u, u.wentWell)
	clear(b.missing)
	clear(b.peace)
	b.began = time.Time{}
	for _, i := range all {
		b.read[i.ID] = len(i.History)
		switch {
		case slices.Contains(i.Labels, "ipam-accepted"):
			b.peace[i.ID] = "accepted"
		case !i.Open() && (i.Resolution == "Won't Fix" || i.Resolution == "Duplicate"):
			b.peace[i.ID] = "closed as " + i.Resolution
		}
	}
}

// touched notes what people did between two runs.
func (b *book) touched(u *universe) {
	clear(b.peace)
	for _, i := range u.jira.Issues() {
		b.read[i.ID] = len(i.History)
		switch {
		case slices.Contains(i.Labels, "ipam-accepted"):
			b.peace[i.ID] = "accepted"
		case !i.Open() && (i.Resolution == "Won't Fix" || i.Resolution == "Duplicate"):
			b.peace[i.ID] = "closed as " + i.Resolution
		}
	}
}

// findable are an issue's labels, and what stands for one in a custom field.
func findable(i fakejira.Issue) []string {
	var text string
	_ = json.Unmarshal(i.Fields[fingerprintField], &text)
	return slices.Concat(i.Labels, strings.Fields(text))
}

func (b *book) identify(i fakejira.Issue) (problemKey, bool) {
	if k, ok := b.of[i.ID]; ok {
		return k, true
	}
	labels := findable(i)
	if r, ok := notify.ParseRef(i.Description); ok {
		labels = append(slices.Clone(labels), notify.FingerprintLabel(r.Fingerprint))
	}
	for _, l := range labels {
		if k, ok := b.problems[l]; ok {
			b.of[i.ID] = k
			return k, true
		}
	}
	return problemKey{}, false
}

func (b *book) issue(u *universe, i fakejira.Issue, since time.Time) {
	k, ours := b.identify(i)
	if !ours && i.History[0].By == fakejira.Person {
		return // a copy that people made and took every mark from
	}
	if !ours {
		b.violate("identity", "nobody knows what %s is about: %q %q", i.Key, i.Labels, i.Description)
		return
	}
	h := b.human(i.ID)
	var botComments []string
	for _, c := range i.Comments {
		if c.By == fakejira.Bot {
			botComments = append(botComments, c.Body)
		}
	}
	for _, c := range i.History[min(b.read[i.ID], len(i.History)):] {
		if c.By != fakejira.Bot {
			continue
		}
		if why := b.peace[i.ID]; why != "" {
			b.violate("left in peace", "%s is %s and the tool changed %s", i.Key, why, c.What)
		}
		switch {
		case c.What == "status" && !i.Open():
			if !u.gone(k) || u.hushed[k] && len(u.truth[k]) > 0 {
				b.violate("closed while it lasts", "%s, %v", i.Key, k)
			}
			// An older state may have counted clean runs that a finding ended since: it is
			// all that the tool knows of them.
			if n := u.h.rules.closeAfter; n == 0 || len(b.clean[k]) < n && b.restores == 0 {
				b.violate("closed too early", "%s after %d clean runs", i.Key, len(b.clean[k]))
			}
		case c.What == "comment" && strings.Contains(c.To, "Not found any more") && !u.gone(k):
			b.violate("called gone while it lasts", "%s, %v", i.Key, k)
		case slices.Contains([]string{"priority", "assignee", "components"}, c.What):
			b.violate("human edit", "%s: the tool changed %s", i.Key, c.What)
		}
	}
	// A request of a process that lost its lock cannot be called back from the wire.
	if n := b.changes[k] + h.provoked + b.takeovers; len(botComments) > n {
		b.violate("comment without a change", "%s has %d comments after %d changes:\n%s", i.Key, len(botComments), n, strings.Join(botComments, "\n---\n"))
	}
	for n := 1; n < len(botComments); n++ { // as above
		if botComments[n] == botComments[n-1] && b.takeovers == 0 {
			b.violate("comment twice", "%s: %s", i.Key, botComments[n])
		}
	}
	switch {
	case h.summary != "" && i.Summary != h.summary:
		b.violate("human edit", "%s: the summary is %q, people made it %q", i.Key, i.Summary, h.summary)
	case h.priority != "" && i.Priority != h.priority:
		b.violate("human edit", "%s: priority %s", i.Key, i.Priority)
	case h.assignee != "" && string(i.Fields["assignee"]) != h.assignee:
		b.violate("human edit", "%s: assignee %s", i.Key, i.Fields["assignee"])
	case h.description != "" && around(i.Description) != around(h.description):
		b.violate("human edit", "%s: people's words were %q and are %q", i.Key, around(h.description), around(i.Description))
	}
	// A file that a process without the lock has sent cannot be called back either.
	if len(i.Attachments) > 1+b.takeovers || len(i.RemoteLinks) > 1 {
		b.violate("extras twice", "%s has %d attachments and %d links", i.Key, len(i.Attachments), len(i.RemoteLinks))
	}
	for _, l := range h.labels {
		if !slices.Contains(i.Labels, l) {
			b.violate("human edit", "%s: label %s is gone", i.Key, l)
		}
	}
}

// around is what a description has outside of the tool's part; all of it where
// the marks are not whole.
func around(description string) string {
	begin := strings.Index(description, "ipamaudit:begin (")
	if begin < 0 {
		return description
	}
	end := strings.Index(description[begin:], "ipamaudit:end fp=")
	if end < 0 {
		return description
	}
	rest := description[begin+end:]
	if at := strings.IndexByte(rest, '\n'); at >= 0 {
		return description[:begin] + "…" + rest[at:]
	}
	return description[:begin] + "…"
}

// single: the tool never opens a ticket while it could know of another open one.
func (b *book) single(u *universe, all []fakejira.Issue, since time.Time) {
	type opened struct {
		fakejira.Issue
		at time.Time
	}
	open := map[problemKey][]opened{}
	for _, i := range all {
		if !i.Open() || i.History[0].By != fakejira.Bot {
			continue
		}
		at, by := i.Created, fakejira.Bot
		for _, c := range i.History {
			if c.What == "status" || c.What == "moved" {
				at, by = c.At, c.By
			}
		}
		if by == fakejira.Bot {
			k, _ := b.identify(i)
			open[k] = append(open[k], opened{i, at})
		}
	}
	for k, is := range open {
		slices.SortFunc(is, func(a, b opened) int { return a.at.Compare(b.at) })
		last := is[len(is)-1]
		opening := last.ID + " " + last.at.String()
		if len(is) < 2 || last.at.Before(since) || b.judged[opening] {
			continue
		}
		b.judged[opening] = true
		for _, x := range is[:len(is)-1] {
			if why := b.unknowable(u, x.Issue, last.Issue, last.at); why == "" {
				b.violate("two tickets", "%v: %s opened at %s although %s is open since %s", k, last.Key, last.at.Format(time.DateTime), x.Key, x.at.Format(time.DateTime))
			}
		}
	}
}

// unknowable says why nobody could know of ticket x when another was opened:
// search did not show it, and either the state was lost, or the answer of its
// creation was and search lagged for longer than it is waited for.
func (b *book) unknowable(u *universe, x, other fakejira.Issue, at time.Time) string {
	labelled, described := x.Created, x.Created
	for _, c := range x.History {
		switch {
		case c.What == "labels":
			labelled = c.At
		case c.What == "description" && c.By == fakejira.Person:
			described = c.At
		}
	}
	// A run searches before it creates.
	shown := func(since time.Time) bool { return !since.Add(u.h.rules.lag).After(b.began) }
	byLabel := shown(labelled) && slices.ContainsFunc(findable(x), func(l string) bool {
		return strings.HasPrefix(l, "ipam-fp-") && slices.Contains(findable(other), l)
	})
	r, ours := notify.ParseRef(x.Description)
	byText := shown(described) && ours && x.History[0].By == fakejira.Bot && slices.Contains(findable(other), notify.FingerprintLabel(r.Fingerprint))
	switch {
	case byLabel || byText || !b.missing[x.ID]:
		return ""
	case slices.ContainsFunc(b.losses, func(t time.Time) bool { return !t.Before(x.Created) }):
		return "the state was lost"
	case at.Sub(x.Created) >= lagBudget || b.takeovers > 0 && at.Sub(x.Created) >= lagBudget-5*time.Minute:
		return "search lags for longer than anybody waits"
	}
	return ""
}

// lagBudget is the default of TicketPolicy.IntentLag less the time that a
// request may have been repeated for.
const lagBudget = 10 * time.Minute

// digests: one per run, whatever happened.
func (b *book) digests(u *universe) {
	n := map[string]int{}
	for _, m := range u.slack.Messages(channel) {
		if m.BotID == "" || m.ThreadTS != "" {
			continue
		}
		run, part := origin(m)
		if part != "digest" {
			// Slack puts a reply whose parent was deleted meanwhile into the channel.
			if !b.deleted {
				b.violate("digest", "%s of run %s stands outside of its thread", part, run)
			}
			continue
		}
		// Without the state and without the right to read the channel nobody can know.
		blind := (u.h.rules.noHistory || u.h.rules.webhook) && len(b.losses) > 0
		if n[run]++; n[run] == 2 && !blind {
			b.violate("two digests", "run %s", run)
		}
	}
}

var baselineKey = problemKey{"the fleet", "baseline"}

// inBaseline reports whether an open baseline speaks for a problem.
func (b *book) inBaseline(baselines []fakejira.Issue, k problemKey, seen notify.Seen) bool {
	for _, i := range baselines {
		for _, m := range baselineEntry.FindAllStringSubmatch(i.Description, -1) {
			if i.Open() && b.problems[notify.FingerprintLabel(m[1])] == k && seen.Severity.Rank() <= checks.Severity(m[2]).Rank() {
				return true
			}
		}
	}
	return false
}

var baselineEntry = regexp.MustCompile(`\b([0-9a-f]{20})=(low|medium|high|critical)\b`)

// reopenings are how often the tool has opened a closed ticket again.
func reopenings(i fakejira.Issue) (n int) {
	for _, c := range i.History {
		if c.What == "status" && c.By == fakejira.Bot && slices.Contains([]string{"To Do", "In Progress", "Open", "Reopened"}, c.To) {
			n++
		}
	}
	return n
}

// settled holds what must be true after some nights in which nothing went wrong:
// everything is told, once, and then there is silence.
func (b *book) settled(u *universe) {
	issues := map[problemKey][]fakejira.Issue{}
	for _, i := range u.jira.Issues() {
		k, _ := b.identify(i)
		issues[k] = append(issues[k], i)
	}
	partial := map[string]bool{} // only complete runs of a cluster count
	for k := range u.blind {
		partial[k.cluster] = true
	}
	for _, i := range issues[baselineKey] {
		if _, ours := notify.ParseRef(i.Description); !ours || !i.Open() || b.peace[i.ID] != "" {
			continue
		}
		// A copy that people made and took our label from is theirs.
		if i.History[0].By == fakejira.Person && !slices.ContainsFunc(findable(i), func(l string) bool { return b.problems[l] == baselineKey }) {
			continue
		}
		// One that people moved out of the searched projects, and an older state in
		// the place of the right one, which does not know it.
		if i.Project != "OPS" && b.restores > 0 {
			continue
		}
		for _, m := range baselineEntry.FindAllStringSubmatch(i.Description, -1) {
			k := b.problems[notify.FingerprintLabel(m[1])]
			if seen := b.seen[k]; !seen.Present && seen.Quiet == "" {
				b.violate("never struck off", "%s lists %v", i.Key, k)
			}
		}
	}
	for k, seen := range b.seen {
		var open []fakejira.Issue
		excused := false
		for _, i := range issues[k] {
			switch {
			// People have said that they do not want to hear of it (any more).
			case slices.Contains(i.Labels, "ipam-accepted"), !i.Open() && (i.Resolution == "Won't Fix" || i.Resolution == "Duplicate"),
				!i.Open() && u.h.rules.maxReopens > 0 && reopenings(i) >= u.h.rules.maxReopens:
				excused = true
			case i.Open():
				open = append(open, i)
			}
		}
		if seen.Present && len(open) == 0 && !excused && !b.inBaseline(issues[baselineKey], k, seen) {
			b.violate("never told", "%v has no open ticket", k)
		}
		if len(open) != 1 || excused {
			continue // of several, people were asked to close all but one
		}
		// Nothing but the state knows that a new ticket is not finished.
		if seen.Present && u.h.rules.extras && len(b.losses) == 0 && open[0].History[0].By == fakejira.Bot && len(open[0].RemoteLinks) == 0 {
			b.violate("never finished", "%s has no link to its run", open[0].Key)
		}
		r, ours := notify.ParseRef(open[0].Description)
		switch {
		// People have made the description theirs, or left no room in it: the tool
		// does not write there, it comments.
		case !ours || len(open[0].Description) > 25_000:
		case !seen.Present && open[0].Project != "OPS" && b.restores > 0: // as with a baseline
		// A copy that people made is theirs where they took our label from it, or put
		// it into a project that the audit files nothing in and does not search.
		case open[0].History[0].By == fakejira.Person && (open[0].Project != "OPS" || !slices.ContainsFunc(findable(open[0]), func(l string) bool { return b.problems[l] == k })):
		case seen.Present && (r.State != notify.RefOpen || r.Hash != seen.Hash || r.Severity != seen.Severity):
			b.violate("old content", "%s says %+v, there is %+v", open[0].Key, r, seen)
		case !seen.Present && seen.Quiet == "" && (!partial[k.cluster] || u.h.rules.resolveAfter == 1) && u.h.rules.resolveAfter > 0 && r.State == notify.RefOpen:
			b.violate("never called gone", "%s says %+v of %v", open[0].Key, r, k)
		}
	}
}
