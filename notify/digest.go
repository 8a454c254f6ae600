package notify

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"ipamaudit/audit"
	"ipamaudit/checks"
)

// DigestPolicy is what digests are made of and when they are sent.
type DigestPolicy struct {
	// Channel returns where a cluster's findings of a check and severity are told;
	// "" tells them nowhere. Every channel that could be told something of a cluster
	// hears when it could not be audited.
	Channel func(c *audit.ClusterReport, check string, s checks.Severity) string
	// Title defaults to "Calico IPAM audit".
	Title string
	// MinSeverity defaults to medium.
	MinSeverity checks.Severity
	// Always sends a digest although nothing has changed.
	Always bool
	// Heartbeat reports whether a sign of life is due, given when the channel heard
	// last (zero: never); default every 7 days. See EveryWeek.
	Heartbeat func(last, now time.Time) bool
	// Mentions are whom a severity calls when something new has it, something has
	// got worse to it, or (critical) a cluster has failed anew. They are in Slack's
	// own notation: <!here>, <!subteam^S0123>, <@U0123>.
	Mentions map[checks.Severity]string
}

// WithDefaults fills in what is not set.
func (p DigestPolicy) WithDefaults() DigestPolicy {
	if p.Channel == nil {
		p.Channel = func(*audit.ClusterReport, string, checks.Severity) string { return "" }
	}
	p.Title = cmp.Or(p.Title, "Calico IPAM audit")
	p.MinSeverity = cmp.Or(p.MinSeverity, checks.Medium)
	if p.Heartbeat == nil {
		p.Heartbeat = func(last, now time.Time) bool { return now.Sub(last) >= 7*24*time.Hour }
	}
	return p
}

// EveryWeek is a Heartbeat: the first run that starts on or after the day, in UTC.
func EveryWeek(day time.Weekday) func(last, now time.Time) bool {
	return func(last, now time.Time) bool {
		now = now.UTC()
		since := (int(now.Weekday()) - int(day) + 7) % 7
		return last.Before(time.Date(now.Year(), now.Month(), now.Day()-since, 0, 0, 0, 0, time.UTC))
	}
}

// Link is a ticket as messages name it.
type Link struct{ Key, URL string }

// Links finds the ticket of a cluster and check; the zero Link is none.
type Links func(cluster, check string) Link

// Group is the findings of one check in one cluster that have the same news.
type Group struct {
	Cluster, Check string
	Severity       checks.Severity
	Findings       []audit.Finding // worst first
	Link           Link
}

// Digest is what one channel is told of one run.
type Digest struct {
	Channel, RunID string
	Clusters       []*audit.ClusterReport
	Failed         []*audit.ClusterReport
	// Unseen clusters have no finding, and a check that could not look.
	Unseen []*audit.ClusterReport
	// Partial clusters were audited with gaps.
	Partial []*audit.ClusterReport
	// The groups, worst first. Unknown: known from before, and this run could not look.
	New, Worse, Better, Resolved, Unknown, Ongoing []Group
	Healthy                                        []string
	Notices                                        []string
	// Suppressions want somebody's attention.
	Suppressions []audit.SuppressionNotice
	// Lost: more has changed since the last digest than is known.
	Lost   bool
	policy DigestPolicy
	links  Links
	state  *audit.ChannelState
}

// Digests makes one digest per channel, ordered by channel. News are what has
// changed since the last digest that a channel got: channels, which Remember
// keeps, knows what earlier runs could not tell. The notices go into all digests.
func Digests(r *audit.Report, channels map[string]*audit.ChannelState, links Links, notices []string, p DigestPolicy) []Digest {
	p = p.WithDefaults()
	byChannel := map[string]*Digest{}
	for i := range r.Clusters {
		c := &r.Clusters[i]
		for _, ch := range p.channels(c) {
			d := byChannel[ch]
			if d == nil {
				d = &Digest{Channel: ch, RunID: r.Run.ID, Notices: slices.Concat(notices, r.Notices), Suppressions: r.Suppressions, policy: p, links: links, state: channels[ch]}
				if d.state == nil {
					d.state = &audit.ChannelState{}
				}
				if at := d.state.LostAt; !at.IsZero() && at.Before(r.Run.StartedAt) {
					d.Lost = true
					d.Notices = append(d.Notices, "more has changed since the last digest arrived here than was kept: what is ongoing may be new to you")
				}
				byChannel[ch] = d
			}
			d.cluster(c)
		}
	}
	var out []Digest
	for _, d := range byChannel {
		for _, gs := range []*[]Group{&d.New, &d.Worse, &d.Better, &d.Resolved, &d.Unknown, &d.Ongoing} {
			sortGroups(*gs)
		}
		out = append(out, *d)
	}
	slices.SortFunc(out, func(a, b Digest) int { return cmp.Compare(a.Channel, b.Channel) })
	return out
}

// channels are all that may be told something of a cluster.
func (p DigestPolicy) channels(c *audit.ClusterReport) []string {
	var out []string
	for _, id := range append(checkIDs(c), clusterAccess) {
		for _, s := range checks.Severities() {
			if ch := p.Channel(c, id, s); ch != "" && s.AtLeast(p.MinSeverity) && !slices.Contains(out, ch) {
				out = append(out, ch)
			}
		}
	}
	return out
}

// hears reports whether a channel is told of a finding: by what it is, and by
// what it was, so that nobody is left with what has gone elsewhere.
func (p DigestPolicy) hears(channel string, c *audit.ClusterReport, f audit.Finding) bool {
	return p.Channel(c, f.Check, f.Severity) == channel ||
		f.State == audit.StateChanged && f.Previous != nil && p.Channel(c, f.Check, f.Previous.Severity) == channel
}

func (d *Digest) cluster(c *audit.ClusterReport) {
	d.Clusters = append(d.Clusters, c)
	switch c.Status {
	case audit.Failed:
		d.Failed = append(d.Failed, c)
	case audit.Partial:
		d.Partial = append(d.Partial, c)
	case audit.Complete:
	}
	healthy := c.Status == audit.Complete
	for _, f := range d.sinceLast(c) {
		if f.Suppressed != nil || !f.Severity.AtLeast(d.policy.MinSeverity) && !wasWorse(f, d.policy.MinSeverity) {
			continue
		}
		if f.Check == clusterAccess && c.Status == audit.Failed {
			continue // named first of all
		}
		healthy = healthy && f.State == audit.StateResolved
		if d.state.Untold[f.Fingerprint] == nil && !d.policy.hears(d.Channel, c, f) {
			continue
		}
		switch f.State {
		case audit.StateNew:
			d.New = d.into(d.New, c, f)
		case audit.StateChanged:
			if better(f) {
				d.Better = d.into(d.Better, c, f)
			} else {
				d.Worse = d.into(d.Worse, c, f)
			}
		case audit.StateResolved:
			d.Resolved = d.into(d.Resolved, c, f)
		case audit.StateUnknown:
			d.Unknown = d.into(d.Unknown, c, f)
		default:
			d.Ongoing = d.into(d.Ongoing, c, f)
		}
	}
	if healthy && slices.ContainsFunc(c.Checks, func(k audit.CheckReport) bool { return k.Status == checks.StatusUnknown }) {
		// Nothing was found, and not everything was looked at: that is not well.
		d.Unseen = append(d.Unseen, c)
		healthy = false
	}
	if healthy {
		d.Healthy = append(d.Healthy, c.Name)
	}
}

// sinceLast are a cluster's findings as they look to whoever got the last digest.
func (d *Digest) sinceLast(c *audit.ClusterReport) []audit.Finding {
	out := wentBefore(d.state, c, d.policy.MinSeverity)
	for _, f := range c.Findings {
		out = append(out, since(f, d.state.Untold[f.Fingerprint], d.policy.MinSeverity))
	}
	return out
}

// wasWorse lets a finding through that has fallen below the minimum: it is news.
func wasWorse(f audit.Finding, least checks.Severity) bool {
	return f.State == audit.StateChanged && f.Previous != nil && f.Previous.Severity.AtLeast(least)
}

// better reports whether a changed finding is less bad than before.
func better(f audit.Finding) bool {
	p := f.Previous
	switch {
	case p == nil:
		return false
	case p.Severity != f.Severity:
		return f.Severity.Rank() < p.Severity.Rank()
	default:
		return len(f.Affected) < p.Affected
	}
}

func (d *Digest) into(gs []Group, c *audit.ClusterReport, f audit.Finding) []Group {
	i := slices.IndexFunc(gs, func(g Group) bool { return g.Cluster == c.Name && g.Check == f.Check })
	if i < 0 {
		gs = append(gs, Group{Cluster: c.Name, Check: f.Check, Link: d.link(c.Name, f.Check)})
		i = len(gs) - 1
	}
	gs[i].Findings = append(gs[i].Findings, f)
	sortFindings(gs[i].Findings)
	gs[i].Severity = gs[i].Findings[0].Severity
	return gs
}

func (d *Digest) link(cluster, check string) Link {
	if d.links == nil {
		return Link{}
	}
	return d.links(cluster, check)
}

func sortGroups(gs []Group) {
	slices.SortStableFunc(gs, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Severity.Rank(), a.Severity.Rank()),
			cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(checks.Depth(a.Check), checks.Depth(b.Check)), cmp.Compare(a.Check, b.Check))
	})
}

// DigestReason is why a digest is sent.
type DigestReason string

// The reasons. Silence is none.
const (
	Failures  DigestReason = "not everything could be audited"
	News      DigestReason = "something is new, changed or resolved"
	Heartbeat DigestReason = "sign of life"
	Wanted    DigestReason = "a digest of every run is wanted"
	Silence   DigestReason = "nothing has changed"
)

// Decide says why the digest is sent, given when the channel heard last.
func (d Digest) Decide(last, now time.Time) DigestReason {
	switch {
	case len(d.Failed)+len(d.Partial) > 0:
		return Failures
	case d.Lost, len(d.New)+len(d.Worse)+len(d.Better)+len(d.Resolved)+len(d.Unknown) > 0:
		return News
	case d.policy.Heartbeat(last, now):
		return Heartbeat
	case d.policy.Always:
		return Wanted
	default:
		return Silence
	}
}

// The parts of a digest.
const parentPart = "digest"

func clusterPart(name string) string { return "cluster/" + name }

func digestKey(channel, runID, part string) string { return hash("slack/v1", channel, runID, part) }

func (d Digest) message(part string) Message {
	return Message{Key: digestKey(d.Channel, d.RunID, part), RunID: d.RunID, Part: part}
}

// Parent is the digest itself.
func (d Digest) Parent() Message {
	const keep = 800 // for the healthy, the notices and the foot
	m := d.message(parentPart)
	m.Header = d.policy.Title + " · " + d.RunID
	m.Fallback = d.policy.Title + " " + d.RunID + ": " + d.headline()
	c := compose(m)
	first := "*" + mrkdwn(d.headline()) + "*"
	if who := d.policy.Mentions[d.worstNews()]; who != "" {
		first = who + " " + first
	}
	c.add(SectionBlock, first, keep)
	c.list(":rotating_light: *Not audited*", d.failedLines(d.Failed), 20, keep)
	c.list(":warning: *Audited with gaps*", d.failedLines(d.Partial), 10, keep)
	c.list(":new: *New*", groupLines(d.New), 15, keep)
	c.list(":chart_with_upwards_trend: *Worse*", groupLines(d.Worse), 10, keep)
	if cmds, title := firstSafe(d.New, d.Worse, d.Better); cmds != nil {
		c.code(title, cmds, keep)
	}
	c.list(":chart_with_downwards_trend: *Better*", groupLines(d.Better), 10, keep)
	c.list(":white_check_mark: *Resolved*", groupLines(d.Resolved), 10, keep)
	c.list(":grey_question: *Known, and not looked at by this run*", groupLines(d.Unknown), 10, keep)
	c.list(fmt.Sprintf("*Ongoing* (%s)", severityCounts(d.Ongoing)), groupLines(d.Ongoing), 10, keep)
	c.list(":bar_chart: *Fullest pools*", trendLines(trends(d.Clusters, 0.5), len(d.Clusters) > 1), 6, keep)
	c.list(":hourglass: *Suppressions*", suppressionLines(d.Suppressions), 8, keep)
	c.list("*Notes*", bullets(d.Notices), 10, keep/2)
	if line := d.unseenLine(); line != "" {
		c.add(SectionBlock, line, 100)
	}
	if line := d.healthyLine(); line != "" {
		c.add(SectionBlock, line, 100)
	}
	c.add(ContextBlock, mrkdwn("run "+d.RunID), 0)
	return c.m
}

// Replies are the details, one message per cluster that has news.
func (d Digest) Replies() []Message {
	var out []Message
	for _, cl := range d.Clusters {
		if m, ok := d.reply(cl); ok {
			out = append(out, m)
		}
	}
	return out
}

func (d Digest) reply(cl *audit.ClusterReport) (Message, bool) {
	of := func(gs []Group) []Group {
		return slices.DeleteFunc(slices.Clone(gs), func(g Group) bool { return g.Cluster != cl.Name })
	}
	isNew, worse, lessBad, gone, unknown := of(d.New), of(d.Worse), of(d.Better), of(d.Resolved), of(d.Unknown)
	if len(isNew)+len(worse)+len(lessBad)+len(gone)+len(unknown) == 0 && cl.Status == audit.Complete {
		return Message{}, false
	}
	const keep = 200
	m := d.message(clusterPart(cl.Name))
	m.Fallback = "Details of " + cl.Name
	c := compose(m)
	c.add(SectionBlock, slackName(clip(cl.Name, 300))+" "+mrkdwn(clusterFacts(cl)), keep)
	if cl.Error != "" {
		c.code("*Not audited:*", []string{clip(clean(cl.Error), 800)}, keep)
	}
	c.list("*Not looked at*", unknownChecks(cl), 15, keep)
	c.list("*Pools*", trendLines(trends([]*audit.ClusterReport{cl}, 2), false), 5, keep)
	left, said := 0, map[string]bool{}
	for _, gs := range [][]Group{isNew, worse, lessBad} {
		for _, g := range gs {
			for _, f := range g.Findings {
				if !details(c, f, g.Link, said, keep) {
					left++
				}
			}
		}
	}
	if left > 0 {
		c.add(SectionBlock, "… and "+count(left, "more finding", "more findings")+", see the ticket or the report", 0)
	}
	c.list("*Resolved*", groupLines(gone), 10, 0)
	c.list("*Known, and not looked at by this run*", groupLines(unknown), 10, 0)
	return c.m, true
}

// details adds one finding: what, why, what is touched, and the first safe
// command unless said has it already.
func details(c *composer, f audit.Finding, link Link, said map[string]bool, keep int) bool {
	text := fmt.Sprintf("*%s* %s%s %s: %s", f.Severity, linkText(link), f.Check, mrkdwn(f.Subject.String()), mrkdwn(f.Title))
	if f.State == audit.StateChanged && f.Previous != nil {
		text += fmt.Sprintf(" (was %s, %s)", f.Previous.Severity, count(f.Previous.Affected, "object", "objects"))
	}
	if f.Detail != "" {
		text += "\n" + mrkdwn(f.Detail)
	}
	const most = 10
	var names []string
	for _, a := range f.Affected[:min(len(f.Affected), most)] {
		name := a.Name
		if a.Namespace != "" {
			name = a.Namespace + "/" + name
		}
		n := slackName(name)
		if a.Note != "" {
			n += " " + mrkdwn(clip(a.Note, 150))
		}
		names = append(names, n)
	}
	if len(names) > 0 {
		text += "\n• " + strings.Join(names, "\n• ")
	}
	if more := len(f.Affected) - len(names); more > 0 {
		text += "\n… and " + count(more, "more", "more")
	}
	if !c.add(SectionBlock, text, keep) {
		return false
	}
	if s, ok := safeStep(f); ok && !said[s.Title] {
		said[s.Title] = true
		c.code(mrkdwn(s.Title)+":", s.Commands, keep)
	}
	return true
}

func (d Digest) headline() string {
	parts := []string{count(len(d.Clusters), "cluster", "clusters")}
	add := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(len(d.Failed), "not audited")
	add(len(d.Partial), "with gaps")
	add(findings(d.New), "new")
	add(findings(d.Worse), "worse")
	add(findings(d.Better), "better")
	add(findings(d.Resolved), "resolved")
	add(findings(d.Ongoing), "ongoing")
	add(len(d.Unseen), "without findings, not all seen")
	add(len(d.Healthy), "healthy")
	return strings.Join(parts, ", ")
}

func findings(gs []Group) (n int) {
	for _, g := range gs {
		n += len(g.Findings)
	}
	return n
}

// worstNews is the worst severity of what is new or has got worse; a cluster
// that fails anew is as bad as anything in it may be.
func (d Digest) worstNews() checks.Severity {
	var worst checks.Severity
	for _, g := range d.New {
		worst = checks.Worst(worst, g.Severity)
	}
	for _, g := range d.Worse {
		for _, f := range g.Findings {
			if f.Previous == nil || f.Severity.Rank() > f.Previous.Severity.Rank() {
				worst = checks.Worst(worst, f.Severity)
			}
		}
	}
	for _, c := range d.Failed {
		for _, f := range d.sinceLast(c) {
			if f.Check == clusterAccess && f.Suppressed == nil && (f.State == audit.StateNew || f.State == audit.StateChanged) {
				worst = checks.Critical
			}
		}
	}
	return worst
}

func (d Digest) failedLines(cs []*audit.ClusterReport) []string {
	var out []string
	for _, c := range cs {
		why := c.Error
		if why == "" {
			why = strings.Join(unknownIDs(c), ", ")
			if why != "" {
				why = "not looked at: " + why
			}
		}
		out = append(out, "• "+linkText(d.link(c.Name, clusterAccess))+slackName(clip(c.Name, 300))+" "+mrkdwn(clip(why, 300)))
	}
	return out
}

// unseenLine names the clusters without findings in which a check could not
// look, and the checks.
func (d Digest) unseenLine() string {
	if len(d.Unseen) == 0 {
		return ""
	}
	names := make([]string, len(d.Unseen))
	where := map[string]int{}
	for i, c := range d.Unseen {
		names[i] = slackName(c.Name)
		for _, k := range c.Checks {
			if k.Status == checks.StatusUnknown {
				where[k.ID]++
			}
		}
	}
	ids := slices.Sorted(maps.Keys(where))
	for i, id := range ids {
		ids[i] = fmt.Sprintf("%s (%d)", id, where[id])
	}
	text := ":white_circle: *" + count(len(names), "cluster", "clusters") + " without findings, but not everything was looked at*: " + strings.Join(ids, ", ")
	if list := strings.Join(names, " "); len(list) <= 500 {
		text += "\n" + list
	}
	return text
}

// healthyLine names the healthy clusters as long as that is short.
func (d Digest) healthyLine() string {
	n := len(d.Healthy)
	if n == 0 {
		return ""
	}
	text := ":large_green_circle: *" + count(n, "healthy cluster", "healthy clusters") + "*"
	names := make([]string, n)
	for i, h := range d.Healthy {
		names[i] = slackName(h)
	}
	if list := strings.Join(names, " "); len(list) <= 500 {
		text += ": " + list
	}
	return text
}

func groupLines(gs []Group) []string {
	var out []string
	for _, g := range gs {
		f := g.Findings[0]
		l := fmt.Sprintf("• *%s* %s%s %s: %s", g.Severity, linkText(g.Link), slackName(clip(g.Cluster, 300)), g.Check, mrkdwn(f.Title))
		if p := f.Previous; f.State == audit.StateChanged && p != nil && p.Severity != f.Severity {
			l += fmt.Sprintf(" (was %s)", p.Severity)
		} else if f.State == audit.StateChanged && p != nil && p.Affected != len(f.Affected) {
			l += fmt.Sprintf(" (%s, was %d)", count(len(f.Affected), "object", "objects"), p.Affected)
		} else if f.State == audit.StateResolved && p == nil {
			l += " (came and went since the last digest)"
		}
		if more := len(g.Findings) - 1; more > 0 {
			l += fmt.Sprintf(", and %d more", more)
		}
		out = append(out, l)
	}
	return out
}

// suppressionLines has those first that silence nothing any more.
func suppressionLines(ss []audit.SuppressionNotice) []string {
	var out []string
	for _, state := range []audit.SuppressionState{audit.SuppressionExpired, audit.SuppressionExpiring, audit.SuppressionUnused} {
		for _, s := range ss {
			if s.State == state {
				out = append(out, fmt.Sprintf("• %s on %s for %s, %s: %s (%s)", slackName(clip(s.Check, 100)), slackName(clip(s.Cluster, 100)),
					slackName(clip(s.Subject, 200)), mrkdwn(clip(s.Owner, 100)), mrkdwn(s.What()), mrkdwn(clip(s.Origin, 200))))
			}
		}
	}
	return out
}

// linkText is a link and a blank; it stands before untrusted text, so that
// cutting a line never cuts it.
func linkText(l Link) string {
	u, err := url.Parse(l.URL)
	switch {
	case l.Key == "":
		return ""
	case err != nil || u.Host == "" || len(u.String()) > 1000:
		return mrkdwn(l.Key) + " "
	default:
		return "<" + strings.NewReplacer("&", "&amp;", "|", "%7C", "`", "%60").Replace(u.String()) + "|" + mrkdwn(l.Key) + "> "
	}
}

// firstSafe is the first safe step of the worst group that has one.
func firstSafe(lists ...[]Group) (commands []string, title string) {
	for _, gs := range lists {
		for _, g := range gs {
			for _, f := range g.Findings {
				if s, ok := safeStep(f); ok {
					return s.Commands, "First for " + slackName(clip(g.Cluster, 300)) + ": " + mrkdwn(s.Title)
				}
			}
		}
	}
	return nil, ""
}

func safeStep(f audit.Finding) (checks.Step, bool) {
	for _, s := range f.Remediation {
		if s.Risk == checks.Safe && len(s.Commands) > 0 {
			return s, true
		}
	}
	return checks.Step{}, false
}

func clusterFacts(c *audit.ClusterReport) string {
	facts := []string{string(c.Status)}
	if c.Calico.Version != "" {
		facts = append(facts, "Calico "+c.Calico.Version)
	}
	if c.Nodes > 0 {
		facts = append(facts, count(c.Nodes, "node", "nodes"))
	}
	return strings.Join(facts, ", ")
}

func unknownIDs(c *audit.ClusterReport) []string {
	var out []string
	for _, ch := range c.Checks {
		if ch.Status == checks.StatusUnknown {
			out = append(out, ch.ID)
		}
	}
	return out
}

func unknownChecks(c *audit.ClusterReport) []string {
	if c.Status == audit.Failed {
		return nil // all of them, for the reason that stands above
	}
	var out []string
	for _, ch := range c.Checks {
		if ch.Status == checks.StatusUnknown {
			out = append(out, "• "+ch.ID+": "+mrkdwn(ch.Reason))
		}
	}
	return out
}

func severityCounts(gs []Group) string {
	n := map[checks.Severity]int{}
	for _, g := range gs {
		for _, f := range g.Findings {
			n[f.Severity]++
		}
	}
	var parts []string
	for _, s := range checks.Severities() {
		if n[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[s], s))
		}
	}
	return strings.Join(parts, ", ")
}

func bullets(texts []string) []string {
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = "• " + mrkdwn(t)
	}
	return out
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// nothing replaces the reply of an earlier attempt of this run.
func (d Digest) nothing(cluster string) Message {
	m := d.message(clusterPart(cluster))
	m.Fallback = "Details of " + cluster
	c := compose(m)
	c.add(SectionBlock, slackName(clip(cluster, 300))+": the run was repeated and has nothing new to say here.", 0)
	return c.m
}
