package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	pretty "github.com/jedib0t/go-pretty/v6/text"

	"ipamaudit/audit"
	"ipamaudit/checks"
	"ipamaudit/report/text"
)

// tableWriter writes what people read in a terminal.
type tableWriter struct{ opts Options }

func (t tableWriter) Write(w io.Writer, r *audit.Report) error {
	p := tablePage{newPage(t.opts), t.opts.Details}
	v := newView(r, t.opts.Details)
	p.head(&v)
	for i := range v.failed {
		p.failedCluster(&v.failed[i])
	}
	for i := range v.open {
		p.openCluster(&v.open[i])
	}
	p.quietClusters(v.quiet)
	p.foot(&v)
	_, err := io.WriteString(w, p.String())
	return err
}

// tablePage is a page that knows how a report is laid out.
type tablePage struct {
	*page
	details bool
}

// limit is how long lists get before they are cut.
func (p tablePage) limit() int {
	if p.details {
		return 50
	}
	return 5
}

func (p tablePage) head(v *view) {
	items := []string{strings.TrimSpace("ipamaudit " + v.Run.Version), "run " + v.Run.ID, v.clusterTotals()}
	p.items(0, bold, "", items)
	for _, n := range v.Said() {
		p.prose(0, yellow, "! ", n)
	}
}

func (p tablePage) foot(v *view) {
	p.blank()
	st := green
	switch {
	case v.Totals.Critical+v.Totals.High+v.Totals.ClustersFailed > 0:
		st = redBold
	case v.Totals.Medium+v.Totals.ChecksUnknown > 0 || len(v.Clusters) == 0:
		st = yellow
	}
	p.rule(st, v.clusterTotals(), "")
	items := []string{v.findingTotals(), text.Plural(v.Totals.ChecksUnknown, "check") + " unknown"}
	if d := v.Run.FinishedAt.Sub(v.Run.StartedAt); d >= 100*time.Millisecond {
		items = append(items, fmt.Sprintf("took %.1f s", d.Seconds()))
	}
	p.items(3, st, "", items)
	if n := v.Totals.Critical + v.Totals.High + v.Totals.Medium + v.Totals.Low; n > 0 && !p.details {
		p.prose(3, dim, "", "all steps in order, with the names filled in: --details (or -o markdown, -o json)")
	}
}

func (p tablePage) failedCluster(c *clusterView) {
	p.blank()
	p.rule(redBold, "✖ "+c.Name, "FAILED: nothing was audited")
	p.prose(3, plain, "", c.Error)
	p.findings(c)
	if len(c.active) == 0 {
		p.prose(3, plain, "→ ", "what to do: ipamaudit checks "+clusterAccess)
	}
	p.tail(c)
}

func (p tablePage) openCluster(c *clusterView) {
	p.blank()
	st := bold
	if len(c.active) > 0 {
		st = bold + ";" + severityStyle(c.active[0].Severity)
	}
	p.rule(st, c.Name, c.tally())
	p.items(3, dim, "", c.facts())
	if len(c.Pools) > 0 {
		p.blank()
		p.pools(c)
	}
	p.findings(c)
	p.tail(c)
}

// findings writes what counts, worst first.
func (p tablePage) findings(c *clusterView) {
	var severity checks.Severity
	// A command that was written once is not repeated in the same cluster: under
	// forty nodes it would hide the nodes.
	written := map[string]string{}
	for _, list := range c.byCheck() {
		if s := list[0].Severity; s != severity {
			severity = s
			p.blank()
			p.line(3, bold+";"+severityStyle(severity), strings.ToUpper(string(severity)))
		} else if p.inFull(s) {
			p.blank()
		}
		p.ofCheck(c, list, written)
	}
}

// inFull reports whether findings of this severity get more than a line each:
// low ones are hygiene, and people came for the others.
func (p tablePage) inFull(s checks.Severity) bool { return s != checks.Low || p.details }

// ofCheck writes the findings of one check at one severity.
func (p tablePage) ofCheck(c *clusterView, list []*audit.Finding, written map[string]string) {
	n := visible(len(list), p.limit())
	for i, f := range list[:n] {
		if !p.inFull(f.Severity) {
			p.prose(3, plain, "● ", strings.Join(append([]string{f.Title}, tableTags(f)...), " · "))
			continue
		}
		if i > 0 {
			p.blank()
		}
		p.finding(c, f)
		// A remedy that several have in common stands below the last of them.
		if p.details || i == n-1 || remedy(f) != remedy(list[i+1]) {
			p.remediation(f, written)
		}
	}
	if rest := list[n:]; len(rest) > 0 {
		names := make([]string, 0, len(rest))
		for _, f := range rest {
			names = append(names, f.Subject.String())
		}
		p.prose(3, dim, "… ", fmt.Sprintf("and %s more %s: %s", text.Int(len(rest)), list[0].Check, cut(names, len(names), 20)))
	}
}

// finding writes all of f but its remediation.
func (p tablePage) finding(c *clusterView, f *audit.Finding) {
	t := tableTags(f)
	if p.details {
		t = append(t, "fingerprint "+f.Fingerprint)
	}
	p.prose(3, bold+";"+severityStyle(f.Severity), "● ", f.Title)
	p.items(5, dim, "", t)
	p.paragraphs(5, f.Detail)
	p.affected(f.Affected)
	if causes := c.causes(f); len(causes) > 0 {
		p.prose(5, plain, "", "because of: "+cut(causes, len(causes), p.limit()))
	}
}

// tableTags are the check, the subject where the title does not name it, and
// what is new.
func tableTags(f *audit.Finding) []string {
	t := tags(f)
	if f.Subject.Name != "" && strings.Contains(f.Title, f.Subject.Name) {
		t = t[1:]
	}
	return append([]string{f.Check}, t...)
}

func (p tablePage) affected(list []checks.Affected) {
	if len(list) == 0 {
		return
	}
	n := visible(len(list), p.limit())
	const indent = 7
	nameMax := min(44, p.width/2)
	width := 0
	for _, a := range list[:n] {
		width = max(width, min(pretty.StringWidth(text.Terminal(affectedName(a))), nameMax))
	}
	rows := make([]table.Row, 0, n)
	for _, a := range list[:n] {
		rows = append(rows, table.Row{text.Terminal(affectedName(a)), text.Terminal(a.Note)})
	}
	p.grid(indent, rows, []table.ColumnConfig{
		{Number: 1, WidthMax: nameMax, WidthMaxEnforcer: pretty.WrapText},
		{Number: 2, WidthMax: max(min(p.width, proseWidth)-indent-width-2, 16), WidthMaxEnforcer: pretty.WrapSoft},
	})
	if more := len(list) - n; more > 0 {
		p.line(indent, dim, fmt.Sprintf("… and %s more, %s in all", text.Int(more), text.Int(len(list))))
	}
}

// remediation writes the next step, or with details all of them in order.
func (p tablePage) remediation(f *audit.Finding, written map[string]string) {
	if p.details {
		for i, s := range f.Remediation {
			p.step(fmt.Sprintf("%d. ", i+1), "("+string(s.Risk)+") "+s.Title, s, true)
		}
		return
	}
	i, withCommands, ok := nextStep(f.Remediation)
	if !ok {
		return
	}
	s := f.Remediation[i]
	title := fmt.Sprintf("next (%s): %s", s.Risk, s.Title)
	if at, again := written[remedy(f)]; again {
		p.prose(5, plain, "→ ", title+", as under "+at+" above")
	} else {
		p.step("→ ", title, s, withCommands)
		written[remedy(f)] = f.Check
	}
	switch more := len(f.Remediation) - 1; {
	case !withCommands && len(s.Commands) > 0:
		p.prose(7, dim, "", "commands and what to mind: ipamaudit checks "+f.Check)
	case more > 0:
		p.prose(7, dim, "", text.Plural(more, "more step")+": --details")
	}
}

// remedy is what remediation shows of f's steps.
func remedy(f *audit.Finding) string {
	i, withCommands, ok := nextStep(f.Remediation)
	switch {
	case !ok:
		return ""
	case withCommands:
		return strings.Join(f.Remediation[i].Commands, "\n")
	default:
		return f.Remediation[i].Title
	}
}

func (p tablePage) step(sign, title string, s checks.Step, withCommands bool) {
	st := plain
	if s.Risk != checks.Safe {
		st = yellow
	}
	p.prose(5, st, sign, title)
	if withCommands {
		for _, c := range s.Commands {
			p.command(7, c)
		}
	}
	if p.details && s.Verify != "" {
		p.line(7, dim, "verify: "+s.Verify)
	}
}

// tail writes what a cluster has besides findings: what is not known first.
func (p tablePage) tail(c *clusterView) {
	doubts, notes := c.doubts(), c.notes()
	if len(doubts)+len(notes) > 0 {
		p.blank()
	}
	for _, s := range doubts {
		p.prose(3, yellow, "? ", s)
	}
	for _, s := range notes {
		p.prose(3, dim, "", s)
	}
}

// quietClusters writes a line for each cluster that has nothing to say.
func (p tablePage) quietClusters(list []clusterView) {
	if len(list) == 0 {
		return
	}
	p.blank()
	p.rule(bold+";"+green, "nothing above low in "+text.Plural(len(list), "cluster"), "")
	const indent = 3
	columns := []table.ColumnConfig{
		{Number: 2, WidthMax: p.width / 3, WidthMaxEnforcer: pretty.WrapText},
		{Number: 4, Align: pretty.AlignRight}, {Number: 5, Align: pretty.AlignRight},
	}
	rows := make([]table.Row, 0, len(list))
	for _, c := range list {
		sign := p.paint(green, "✔")
		if len(c.unknown) > 0 {
			sign = p.paint(yellow, "?")
		}
		rows = append(rows, table.Row{sign, text.Terminal(c.Name), text.Terminal(c.Calico.Version),
			c.nodes(), c.pods()})
	}
	room := min(p.width, proseWidth) - indent - pretty.LongestLineLen(renderGrid(rows, columns)) - 2
	for i := range list {
		rows[i] = append(rows[i], text.Terminal(quietNote(&list[i])))
	}
	p.grid(indent, rows, append(columns, table.ColumnConfig{Number: 6, WidthMax: max(room, 24), WidthMaxEnforcer: pretty.WrapSoft}))
	for _, c := range list {
		for _, s := range c.folded() {
			p.prose(indent+3, dim, "", c.Name+": "+s)
		}
	}
}

// quietNote says what little there is to say of a quiet cluster.
func quietNote(c *clusterView) string {
	var parts []string
	if len(c.unknown) > 0 {
		parts = append(parts, "unknown: "+strings.Join(checkNotes(c.unknown), "; "))
	}
	if len(c.active) > 0 {
		perCheck := make([]string, 0, len(c.active))
		for _, f := range c.active {
			perCheck = append(perCheck, f.Check)
		}
		parts = append(parts, c.tally()+": "+strings.Join(slices.Compact(perCheck), ", "))
	}
	return strings.Join(parts, " · ")
}

func severityStyle(s checks.Severity) style {
	switch s {
	case checks.Critical, checks.High:
		return red
	case checks.Medium:
		return yellow
	default:
		return cyan
	}
}
