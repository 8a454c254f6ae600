package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"ipamaudit/audit"
	"ipamaudit/checks"
	"ipamaudit/ipam"
	"ipamaudit/report/text"
)

// markdownLimit is where lists of affected objects are cut.
const markdownLimit = 50

// markdownWriter writes GitHub-flavoured Markdown for a wiki or a pull request:
// the table's order, all steps, and nothing in it that a name could turn into
// markup.
type markdownWriter struct{}

func (markdownWriter) Write(w io.Writer, r *audit.Report) error {
	var m markdownPage
	v := newView(r, false)
	m.head(&v)
	for i := range v.failed {
		m.cluster(&v.failed[i])
	}
	for i := range v.open {
		m.cluster(&v.open[i])
	}
	m.quietClusters(v.quiet)
	_, err := io.WriteString(w, strings.TrimRight(m.String(), "\n")+"\n")
	return err
}

// markdownPage collects blocks with a blank line after each.
type markdownPage struct{ strings.Builder }

// block writes s, which is Markdown already.
func (m *markdownPage) block(s string) { m.WriteString(s + "\n\n") }

func (m *markdownPage) heading(level int, s string) {
	m.block(strings.Repeat("#", level) + " " + s)
}

// list writes plain texts as a list.
func (m *markdownPage) list(items []string) {
	if len(items) == 0 {
		return
	}
	for _, it := range items {
		m.WriteString("- " + text.Markdown(it) + "\n")
	}
	m.WriteString("\n")
}

// table writes cells that are Markdown already. A colon in align ("--:") sets
// a column to the right.
func (m *markdownPage) table(head, align []string, rows [][]string) {
	row := func(cells []string) { m.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	row(head)
	row(align)
	for _, r := range rows {
		row(r)
	}
	m.WriteString("\n")
}

func (m *markdownPage) head(v *view) {
	m.heading(1, "Calico IPAM audit "+text.Markdown(v.Run.ID))
	m.block(text.Markdown(v.clusterTotals()) + "  \n**" + text.Markdown(v.findingTotals()) + "**; " +
		text.Plural(v.Totals.ChecksUnknown, "check") + " unknown")
	m.list(v.Said())
}

func (m *markdownPage) cluster(c *clusterView) {
	name := text.Markdown(c.Name)
	if c.Status == audit.Failed {
		m.heading(2, "❌ "+name+": FAILED, nothing was audited")
		m.block(text.MarkdownFence("text", c.Error))
	} else {
		m.heading(2, severitySign(c)+" "+name+": "+text.Markdown(c.tally()))
		m.block(text.Markdown(strings.Join(c.facts(), " · ")))
		m.pools(c.Pools)
	}
	for _, g := range c.groups() {
		m.group(c, g)
	}
	if c.Status == audit.Failed && len(c.active) == 0 {
		m.block("What to do: " + text.MarkdownCode("ipamaudit checks "+clusterAccess))
	}
	if doubts := c.doubts(); len(doubts) > 0 {
		m.block("**Not known**")
		m.list(doubts)
	}
	if notes := c.notes(); len(notes) > 0 {
		m.block("**Also**")
		m.list(notes)
	}
}

func (m *markdownPage) pools(pools []audit.PoolReport) {
	if len(pools) == 0 {
		return
	}
	var rows [][]string
	for _, p := range pools {
		usable := p.Addresses - min(p.Reserved, p.Addresses)
		rows = append(rows, []string{text.MarkdownCell(p.Name), text.MarkdownCell(p.CIDR),
			text.Percent(p.Allocated, usable), text.Count(p.Allocated), text.Count(usable), text.Count(p.Available),
			text.Percent(p.BlocksClaimed, p.Blocks), text.Count(p.BlocksClaimed), text.Count(p.Blocks), text.Count(p.BlocksFree),
			strings.Join(poolNotes(p), ", ")})
	}
	m.table([]string{"Pool", "CIDR", "Addresses", "used", "of", "free", "Blocks", "claimed", "of", "free", ""},
		[]string{"---", "---", "--:", "--:", "--:", "--:", "--:", "--:", "--:", "--:", "---"}, rows)
}

// group is the findings of one check at one severity under one title.
type group struct {
	severity     checks.Severity
	check, title string
	findings     []*audit.Finding
}

// groups cuts the active findings into groups, in their order.
func (c *clusterView) groups() []group {
	var out []group
	for _, f := range c.active {
		i := slices.IndexFunc(out, func(g group) bool {
			return g.severity == f.Severity && g.check == f.Check && g.title == f.Title
		})
		if i < 0 {
			i, out = len(out), append(out, group{f.Severity, f.Check, f.Title, nil})
		}
		out[i].findings = append(out[i].findings, f)
	}
	return out
}

func (m *markdownPage) group(c *clusterView, g group) {
	m.heading(3, fmt.Sprintf("%s: %s (%s)", strings.ToUpper(string(g.severity)), text.Markdown(g.title), text.MarkdownCode(g.check)))
	n := visible(len(g.findings), markdownLimit)
	for i, f := range g.findings[:n] {
		m.finding(c, f)
		if i == n-1 || !sameSteps(f.Remediation, g.findings[i+1].Remediation) {
			m.steps(f.Remediation)
		}
	}
	if rest := g.findings[n:]; len(rest) > 0 {
		m.block(fmt.Sprintf("… and %s more: %s", text.Int(len(rest)), text.Markdown(cut(subjects(rest), len(rest), 20))))
	}
}

func (m *markdownPage) finding(c *clusterView, f *audit.Finding) {
	m.block("**" + text.Markdown(strings.Join(tags(f), " · ")) + "**")
	for l := range strings.SplitSeq(text.Lines(f.Detail), "\n") {
		if l = text.Markdown(l); l != "" {
			m.block(l)
		}
	}
	if n := visible(len(f.Affected), markdownLimit); n > 0 {
		rows := make([][]string, 0, n)
		for _, a := range f.Affected[:n] {
			rows = append(rows, []string{text.MarkdownCell(affectedName(a)), text.Markdown(a.Note)})
		}
		m.table([]string{"Affected", ""}, []string{"---", "---"}, rows)
		if more := len(f.Affected) - n; more > 0 {
			m.block(fmt.Sprintf("… and %s more, %s in all", text.Int(more), text.Int(len(f.Affected))))
		}
	}
	if causes := c.causes(f); len(causes) > 0 {
		m.block("Because of: " + text.Markdown(cut(causes, len(causes), markdownLimit)))
	}
}

// steps writes the remediation in order. Titles are paragraphs and not list
// items: a fence inside an item would have to be indented, and so would a here
// document in it.
func (m *markdownPage) steps(steps []checks.Step) {
	for i, s := range steps {
		m.block(fmt.Sprintf("**Step %d** (%s): %s", i+1, s.Risk, text.Markdown(s.Title)))
		if len(s.Commands) > 0 {
			m.block(text.MarkdownFence("sh", strings.Join(s.Commands, "\n")))
		}
		if s.Verify != "" {
			m.block("Verify: " + text.Markdown(s.Verify))
		}
	}
}

func sameSteps(a, b []checks.Step) bool {
	return fmt.Sprintf("%q", a) == fmt.Sprintf("%q", b)
}

func (m *markdownPage) quietClusters(list []clusterView) {
	if len(list) == 0 {
		return
	}
	m.heading(2, "✅ Nothing above low in "+text.Plural(len(list), "cluster"))
	rows := make([][]string, 0, len(list))
	for _, c := range list {
		notes := append([]string{quietNote(&c)}, c.folded()...)
		nodes, pods := text.Int(c.Nodes), text.Int(c.Pods)
		if c.unread(ipam.ResNodes) {
			nodes = "?"
		}
		if c.unread(ipam.ResPods) {
			pods = "?"
		}
		rows = append(rows, []string{text.MarkdownCell(c.Name), text.Markdown(c.Calico.Version), nodes, pods,
			text.Markdown(strings.TrimPrefix(strings.Join(notes, "; "), "; "))})
	}
	m.table([]string{"Cluster", "Calico", "Nodes", "Pods", ""}, []string{"---", "---", "--:", "--:", "---"}, rows)
}

func severitySign(c *clusterView) string {
	switch {
	case c.count(checks.Critical)+c.count(checks.High) > 0:
		return "🔴"
	case c.count(checks.Medium) > 0 || c.Status == audit.Partial || len(c.stale) > 0:
		return "🟠"
	default:
		return "🔵"
	}
}
