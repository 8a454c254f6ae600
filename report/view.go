package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ipamaudit/audit"
	"ipamaudit/checks"
	"ipamaudit/ipam"
	"ipamaudit/report/text"
)

// view is a report in the order in which people read it: what could not be
// audited, then what is wrong (worst first), then what is well.
type view struct {
	*audit.Report
	failed, open, quiet []clusterView
}

// clusterView is a cluster with its findings and checks sorted into drawers.
// Texts in it are still as they came from the cluster.
type clusterView struct {
	*audit.ClusterReport
	// active are the findings that count, worst first, then by check.
	active []*audit.Finding
	// suppressed, resolved and stale count nowhere. Stale ones were there before
	// and this run could not look.
	suppressed, resolved, stale []*audit.Finding
	// unknown checks found nothing because they could not look; partly are those
	// with a verdict that did not see everything.
	unknown, partly []audit.CheckReport
	ok, skipped     []audit.CheckReport
	byFingerprint   map[string]*audit.Finding
}

// newView sorts r. With details healthy clusters are shown in full.
func newView(r *audit.Report, details bool) view {
	v := view{Report: r}
	for i := range r.Clusters {
		switch c := newClusterView(&r.Clusters[i]); {
		case c.Status == audit.Failed:
			v.failed = append(v.failed, c)
		case !details && c.isQuiet():
			v.quiet = append(v.quiet, c)
		default:
			v.open = append(v.open, c)
		}
	}
	slices.SortStableFunc(v.failed, byName)
	slices.SortStableFunc(v.open, worstFirst)
	slices.SortStableFunc(v.quiet, worstFirst)
	return v
}

func newClusterView(r *audit.ClusterReport) clusterView {
	c := clusterView{ClusterReport: r, byFingerprint: map[string]*audit.Finding{}}
	for i := range r.Findings {
		f := &r.Findings[i]
		c.byFingerprint[f.Fingerprint] = f
		switch {
		case f.Counts():
			c.active = append(c.active, f)
		case f.State == audit.StateResolved:
			c.resolved = append(c.resolved, f)
		case f.Suppressed != nil:
			c.suppressed = append(c.suppressed, f)
		default:
			c.stale = append(c.stale, f)
		}
	}
	slices.SortStableFunc(c.active, func(a, b *audit.Finding) int {
		return cmp.Or(b.Severity.Rank()-a.Severity.Rank(), checks.Depth(a.Check)-checks.Depth(b.Check), strings.Compare(a.Check, b.Check))
	})
	for _, ch := range r.Checks {
		switch ch.Status {
		case checks.StatusUnknown:
			c.unknown = append(c.unknown, ch)
		case checks.StatusSkipped:
			c.skipped = append(c.skipped, ch)
		case checks.StatusOK:
			c.ok = append(c.ok, ch)
		case checks.StatusFindings: // they speak for themselves
		}
		if ch.Status != checks.StatusUnknown && len(ch.Unseen) > 0 {
			c.partly = append(c.partly, ch)
		}
	}
	return c
}

// isQuiet reports whether one line will do: nothing above low, and nothing
// required left unread.
func (c *clusterView) isQuiet() bool {
	incomplete := slices.ContainsFunc(c.unknown, func(ch audit.CheckReport) bool { return ch.Incomplete })
	low := len(c.active) == 0 || c.active[0].Severity == checks.Low
	return c.Status == audit.Complete && low && len(c.stale) == 0 &&
		c.Coverage.Rejected == 0 && !incomplete
}

// count is the number of findings of this severity that count.
func (c *clusterView) count(s checks.Severity) int {
	n := 0
	for _, f := range c.active {
		if f.Severity == s {
			n++
		}
	}
	return n
}

// tally prints "1 critical · 2 high", or what stands in for it.
func (c *clusterView) tally() string {
	var parts []string
	for _, s := range checks.Severities() {
		if n := c.count(s); n > 0 {
			parts = append(parts, text.Int(n)+" "+string(s))
		}
	}
	if len(parts) == 0 {
		return "no findings"
	}
	return strings.Join(parts, " · ")
}

func byName(a, b clusterView) int { return strings.Compare(a.Name, b.Name) }

func worstFirst(a, b clusterView) int {
	for _, s := range checks.Severities() {
		if d := b.count(s) - a.count(s); d != 0 {
			return d
		}
	}
	if a.Status != b.Status {
		return strings.Compare(string(b.Status), string(a.Status)) // partial before complete
	}
	return byName(a, b)
}

// byCheck cuts the active findings into runs of equal severity and check.
func (c *clusterView) byCheck() [][]*audit.Finding {
	var out [][]*audit.Finding
	for _, f := range c.active {
		if n := len(out); n > 0 && out[n-1][0].Severity == f.Severity && out[n-1][0].Check == f.Check {
			out[n-1] = append(out[n-1], f)
			continue
		}
		out = append(out, []*audit.Finding{f})
	}
	return out
}

// causes names the findings that explain f.
func (c *clusterView) causes(f *audit.Finding) []string {
	var out []string
	for _, fp := range f.CausedBy {
		if by, ok := c.byFingerprint[fp]; ok {
			out = append(out, by.Subject.String()+" ("+by.Check+")")
		} else {
			out = append(out, "finding "+fp)
		}
	}
	return out
}

// facts are the headline's figures: what runs here and how much of it was seen.
func (c *clusterView) facts() []string {
	version := c.Calico.Version
	if version == "" {
		version = "version unknown"
	}
	strict := "off"
	switch {
	case c.refused(ipam.ResIPAMConfig):
		strict = "not read"
	case c.Calico.StrictAffinity:
		strict = "on"
	}
	facts := []string{string(c.Status), "Calico " + version, cmp.Or(c.Calico.IPAM, "IPAM unknown"), "strictAffinity " + strict,
		c.nodes(), c.pods(), c.routes()}
	if !c.AsOf.IsZero() {
		facts = append(facts, "as of "+text.Minute(c.AsOf))
	}
	keys := make([]string, 0, len(c.Labels))
	for k := range c.Labels {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		facts = append(facts, k+" "+c.Labels[k])
	}
	return facts
}

// refused reports whether a resource was asked for and not answered: what the
// report says of it is then a default, not what was seen.
func (c *clusterView) refused(r ipam.Resource) bool {
	return slices.ContainsFunc(c.Coverage.Resources, func(rc ipam.ResourceCoverage) bool {
		return rc.Resource == r && (rc.Status == ipam.Forbidden || rc.Status == ipam.Failed)
	})
}

// unread reports whether a resource was not read, for whatever reason.
func (c *clusterView) unread(r ipam.Resource) bool {
	return slices.ContainsFunc(c.Coverage.Resources, func(rc ipam.ResourceCoverage) bool { return rc.Resource == r && rc.Status != ipam.Read })
}

// nodes and pods are their numbers, in words; none was counted where they were not read.
func (c *clusterView) nodes() string {
	if c.unread(ipam.ResNodes) {
		return "nodes not read"
	}
	return text.Plural(c.Nodes, "node")
}

func (c *clusterView) pods() string {
	if c.unread(ipam.ResPods) {
		return "pods not read"
	}
	return text.Plural(c.Pods, "pod")
}

func (c *clusterView) routes() string {
	if c.Coverage.Routes.Nodes == 0 {
		return "no route tables"
	}
	s := fmt.Sprintf("route tables of %s of %s", text.Int(c.Coverage.Routes.Nodes), text.Plural(c.Nodes, "node"))
	if c.Coverage.Routes.Source != "" {
		s += " (" + c.Coverage.Routes.Source + ")"
	}
	return s
}

// doubts are sentences about what this run does not know of the cluster.
func (c *clusterView) doubts() []string {
	var out []string
	if c.Status == audit.Failed { // its error says why; the list would only repeat it
		if n := len(c.unknown); n > 0 {
			out = append(out, text.Plural(n, "check")+" unknown")
		}
	} else {
		out = append(checkNotes(c.unknown), append(partlyNotes(c.partly), c.gaps()...)...)
	}
	if n := len(c.stale); n > 0 {
		out = append(out, fmt.Sprintf("%s of earlier runs not looked at, still open: %s",
			text.Plural(n, "finding"), cut(subjects(c.stale), n, 5)))
	}
	return out
}

// gaps are sentences about what was asked for and not read.
func (c *clusterView) gaps() []string {
	var out []string
	for _, rc := range c.Coverage.Resources {
		switch {
		case rc.Status == ipam.Read && rc.Detail != "":
			out = append(out, fmt.Sprintf("%s: %s", rc.Resource, rc.Detail))
		case rc.Status == ipam.Read, assumedQuietly(rc):
		default:
			s := fmt.Sprintf("%s not read: %s", rc.Resource, rc.Status)
			if rc.Detail != "" {
				s += ", " + rc.Detail
			}
			if rc.Assumed {
				s += " (Calico's defaults are assumed)"
			}
			out = append(out, s)
		}
	}
	if n := c.Coverage.Rejected; n > 0 {
		out = append(out, fmt.Sprintf("%s could not be used: %s", text.Plural(n, "object"), cut(c.Coverage.RejectedFirst, n, 5)))
	}
	return out
}

// assumedQuietly: nobody refused an answer, and Calico has a default.
func assumedQuietly(rc ipam.ResourceCoverage) bool {
	return rc.Assumed && (rc.Status == ipam.Missing || rc.Status == ipam.Absent)
}

// checkNotes prints each check with its reason: "blackholed-routes: not seen: …".
func checkNotes(list []audit.CheckReport) []string {
	out := make([]string, 0, len(list))
	for _, ch := range list {
		reason := ch.Reason
		if reason == "" {
			reason = "not seen: " + strings.Join(ch.Unseen, ", ")
		}
		out = append(out, ch.ID+": "+reason)
	}
	return out
}

func partlyNotes(list []audit.CheckReport) []string {
	out := make([]string, 0, len(list))
	for _, ch := range list {
		out = append(out, ch.ID+": not all seen: "+strings.Join(ch.Unseen, ", "))
	}
	return out
}

// foldedChecks is one line for the checks that have nothing to say. Equal
// reasons for skipping are said once.
func (c *clusterView) foldedChecks() string {
	var parts []string
	if len(c.ok) > 0 {
		parts = append(parts, "ok: "+strings.Join(ids(c.ok), ", "))
	}
	for left := c.skipped; len(left) > 0; {
		reason := left[0].Reason
		var same, rest []audit.CheckReport
		for _, ch := range left {
			if ch.Reason == reason {
				same = append(same, ch)
			} else {
				rest = append(rest, ch)
			}
		}
		s := "skipped: " + strings.Join(ids(same), ", ")
		if reason != "" {
			s += " (" + reason + ")"
		}
		parts, left = append(parts, s), rest
	}
	return strings.Join(parts, " · ")
}

func ids(list []audit.CheckReport) []string {
	out := make([]string, 0, len(list))
	for _, ch := range list {
		out = append(out, ch.ID)
	}
	return out
}

// notes are the lines for what is no finding, no doubt and yet not nothing.
func (c *clusterView) notes() []string {
	out := c.folded()
	var assumed []string
	for _, rc := range c.Coverage.Resources {
		if assumedQuietly(rc) {
			assumed = append(assumed, string(rc.Resource))
		}
	}
	if len(assumed) > 0 {
		out = append(out, "not read, defaults assumed or done without: "+strings.Join(assumed, ", "))
	}
	if s := c.foldedChecks(); s != "" {
		out = append(out, s)
	}
	return out
}

// folded are the lines for findings that count nowhere.
func (c *clusterView) folded() []string {
	var out []string
	for rest := c.suppressed; len(rest) > 0; {
		var same, other []*audit.Finding
		for _, f := range rest {
			if *f.Suppressed == *rest[0].Suppressed {
				same = append(same, f)
			} else {
				other = append(other, f)
			}
		}
		s := rest[0].Suppressed
		line := fmt.Sprintf("%d suppressed", len(same))
		if s.Until != "" {
			line += " until " + s.Until
		}
		if s.Owner != "" {
			line += " by " + s.Owner
		}
		out = append(out, fmt.Sprintf("%s: %s: %s", line, cmp.Or(s.Reason, "no reason given"), cut(subjects(same), len(same), 5)))
		rest = other
	}
	if n := len(c.resolved); n > 0 {
		out = append(out, fmt.Sprintf("%d resolved since the last run: %s", n, cut(subjects(c.resolved), n, 5)))
	}
	return out
}

func subjects(fs []*audit.Finding) []string {
	out := make([]string, 0, len(fs))
	for _, f := range fs {
		out = append(out, f.Subject.String()+" ("+f.Check+")")
	}
	return out
}

// cut joins the first limit names and says how many of total it left out. One
// more than the limit is shown: "… and 1 more" takes as much room.
func cut(names []string, total, limit int) string {
	shown := names[:visible(len(names), limit)]
	s := strings.Join(shown, ", ")
	if more := total - len(shown); more > 0 {
		s += fmt.Sprintf(" … and %s more", text.Int(more))
	}
	return s
}

// visible is how many of n entries a list with this limit shows.
func visible(n, limit int) int {
	if n <= limit+1 {
		return n
	}
	return limit
}

// life says what is new about f: "ongoing since 2026-11-28", "changed: medium → high".
func life(f *audit.Finding) string {
	since := ""
	if !f.FirstSeen.IsZero() {
		since = " since " + text.Date(f.FirstSeen)
	}
	switch f.State {
	case audit.StateOngoing:
		return "ongoing" + since
	case audit.StateChanged:
		return "changed" + changes(f) + ", open" + since
	default:
		return string(f.State)
	}
}

func changes(f *audit.Finding) string {
	if f.Previous == nil {
		return ""
	}
	var was []string
	if f.Previous.Severity != f.Severity {
		was = append(was, fmt.Sprintf("%s → %s", f.Previous.Severity, f.Severity))
	}
	if f.Previous.Affected != len(f.Affected) {
		was = append(was, fmt.Sprintf("%s → %s affected", text.Int(f.Previous.Affected), text.Int(len(f.Affected))))
	}
	if len(was) == 0 {
		return ""
	}
	return ": " + strings.Join(was, ", ")
}

// tags are what is said of a finding besides its title and check.
func tags(f *audit.Finding) []string {
	out := []string{f.Subject.String()}
	if s := life(f); s != "" {
		out = append(out, s)
	}
	if f.Evidence == checks.Inferred {
		out = append(out, "inferred, not observed")
	}
	return out
}

// affectedName prints "IP 10.64.75.0" or "Pod lab/web-0".
func affectedName(a checks.Affected) string {
	return checks.Subject{Kind: a.Kind, Namespace: a.Namespace, Name: a.Name}.String()
}

// nextStep picks the step to show where only one is: the first with a command
// to copy. A step that is not safe ends the search and shows no command, since
// a later one must not be done before it. ok is false where there are none.
func nextStep(steps []checks.Step) (index int, withCommands, ok bool) {
	for i, s := range steps {
		if s.Risk != checks.Safe {
			return i, false, true
		}
		if len(s.Commands) > 0 {
			return i, true, true
		}
	}
	return 0, false, len(steps) > 0
}

// clusterTotals prints "5 clusters: 1 failed, 1 partial, 3 complete".
func (v *view) clusterTotals() string {
	n := map[audit.ClusterStatus]int{}
	for _, c := range v.Clusters {
		n[c.Status]++
	}
	var parts []string
	for _, s := range []audit.ClusterStatus{audit.Failed, audit.Partial, audit.Complete} {
		if n[s] > 0 {
			parts = append(parts, text.Int(n[s])+" "+string(s))
		}
	}
	clusters := text.Plural(len(v.Clusters), "cluster")
	switch {
	case len(parts) == 0:
		return "no clusters"
	case len(v.Clusters) == 1:
		return clusters + ", " + string(v.Clusters[0].Status)
	case len(parts) == 1:
		return clusters + ", all " + string(v.Clusters[0].Status)
	}
	return clusters + ": " + strings.Join(parts, ", ")
}

// findingTotals prints "1 critical, 0 high, 2 medium, 3 low".
func (v *view) findingTotals() string {
	t := v.Totals
	return fmt.Sprintf("%s critical, %s high, %s medium, %s low", text.Int(t.Critical), text.Int(t.High), text.Int(t.Medium), text.Int(t.Low))
}
