package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	pretty "github.com/jedib0t/go-pretty/v6/text"

	"ipamaudit/audit/explain"
	"ipamaudit/checks"
	"ipamaudit/report/text"
)

// WriteAnswerJSON writes an answer as it stands, with every character that a
// terminal would obey as an escape.
func WriteAnswerJSON(w io.Writer, a *explain.Answer) error {
	if err := writeJSON(w, a); err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	return nil
}

// WriteAnswer writes an answer for people. command is how they asked, up to
// the subject ("ipamaudit explain --from x"), for the commands that go on from here.
func WriteAnswer(w io.Writer, a *explain.Answer, command string, opts Options) error {
	p := storyPage{newPage(opts), opts, command}
	var others []string
	for _, s := range a.Silent {
		if s.Failed {
			p.prose(0, redBold, "✖ ", s.Cluster+" could not be read, and may know it: "+s.Why)
		} else {
			others = append(others, s.Cluster)
		}
	}
	for i := range a.Stories {
		if p.Len() > 0 {
			p.blank()
		}
		p.story(&a.Stories[i])
	}
	if len(others) > 0 {
		p.blank()
		p.prose(0, dim, "", "not known in "+someNames(others))
	}
	_, err := io.WriteString(w, p.String())
	return err
}

// storyPage is a page that knows how a story is laid out.
type storyPage struct {
	*page
	opts  Options
	again string
}

const (
	// labelWidth is the column of labels.
	labelWidth = 12
	storyIn    = 3
	// fewNames is how many names a line lists before it counts the rest.
	fewNames = 12
)

func (p storyPage) story(s *explain.Story) {
	sign, st := verdictStyle(s.Verdict.Status)
	p.rule(bold+";"+st, storyName(s.Subject), s.Cluster)
	p.prose(storyIn, bold+";"+st, sign, s.Verdict.Text)
	p.items(storyIn, dim, "", []string{"Calico " + s.Calico, "as of " + text.Minute(s.AsOf)})
	p.blank()
	switch {
	case s.Address != nil:
		p.address(s, s.Address)
	case s.Pod != nil:
		p.pod(s, s.Pod)
	case s.Node != nil:
		p.node(s, s.Node)
	case s.Block != nil:
		p.blockStory(s, s.Block)
	case s.Pool != nil:
		p.pool(s, s.Pool)
	}
	p.storyFindings(s)
	p.unknown(s)
	p.goOn(s)
}

// storyName is the subject in people's words.
func storyName(s checks.Subject) string {
	name := s.Name
	if s.Namespace != "" {
		name = s.Namespace + "/" + name
	}
	switch s.Kind {
	case checks.KindIP:
		return "address " + name
	case checks.KindPool:
		return "pool " + name
	case checks.KindBlock:
		return "block " + name
	default:
		return strings.ToLower(s.Kind) + " " + name
	}
}

func verdictStyle(s explain.Status) (sign string, st style) {
	switch s {
	case explain.OK:
		return "✔ ", green
	case explain.Problem:
		return "✖ ", red
	case explain.Doubt:
		return "? ", yellow
	default:
		return "● ", cyan
	}
}

// fact writes a label and what there is to say behind it; nothing for nothing.
func (p storyPage) fact(label string, items ...string) {
	p.factIn(storyIn, plain, label, items...)
}

func (p storyPage) factIn(indent int, st style, label string, items ...string) {
	var said []string
	for _, it := range items {
		if it != "" {
			said = append(said, it)
		}
	}
	if len(said) == 0 {
		return
	}
	sign := pretty.Pad(label, labelWidth, ' ')
	p.wrapItems(indent, st, sign, said)
}

// wrapItems is items that keeps a name longer than a line in one piece, so that
// it can be copied, and wraps a sentence.
func (p storyPage) wrapItems(indent int, st style, sign string, items []string) {
	room := min(p.width, proseWidth) - indent - pretty.StringWidth(sign)
	if !slices.ContainsFunc(items, func(it string) bool { return pretty.StringWidth(text.Terminal(it)) > room }) {
		p.items(indent, st, sign, items)
		return
	}
	for _, it := range items {
		if pretty.StringWidth(text.Terminal(it)) > room && !strings.Contains(it, " ") {
			p.WriteString(strings.Repeat(" ", indent) + p.paint(st, sign+text.Terminal(it)) + "\n")
		} else {
			p.prose(indent, st, sign, it)
		}
		sign = strings.Repeat(" ", pretty.StringWidth(sign))
	}
}

func (p storyPage) heading(s, right string) {
	p.blank()
	p.prose(storyIn, bold, "", strings.TrimSpace(strings.ToUpper(s)+" "+right))
}

// storyFindings writes what is wrong, worst first, and what would fix it.
func (p storyPage) storyFindings(s *explain.Story) {
	if len(s.Findings) == 0 {
		return
	}
	p.heading("what the checks say", "")
	for i := range s.Findings {
		f := &s.Findings[i]
		st := severityStyle(f.Severity)
		t := []string{string(f.Severity), f.Check}
		if f.Evidence == checks.Inferred {
			t = append(t, "inferred")
		}
		if f.Accepted != "" {
			t = append(t, "accepted: "+f.Accepted)
		}
		p.prose(storyIn, st, "● ", f.Title+" ("+strings.Join(t, ", ")+")")
		if f.Severity.AtLeast(checks.Medium) {
			p.paragraphs(storyIn+2, f.Detail)
		} else if len(f.Remediation) > 0 {
			p.line(storyIn+2, dim, "what to do: ipamaudit checks "+f.Check)
		}
	}
	p.fixes(s.Findings)
}

// fixes writes each finding's steps in their order; what a finding above has
// said already is only referred to.
func (p storyPage) fixes(findings []explain.Finding) {
	said := map[string]int{}
	n := 0
	for _, f := range findings {
		if !f.Severity.AtLeast(checks.Medium) || f.Accepted != "" {
			continue
		}
		news := false
		for _, step := range f.Remediation {
			news = news || said[stepKey(step)] == 0
		}
		if !news {
			continue
		}
		p.heading("what would fix it", f.Check+", in this order")
		for _, step := range f.Remediation {
			if at := said[stepKey(step)]; at > 0 {
				p.prose(storyIn, dim, "→  ", fmt.Sprintf("as in step %d", at))
				continue
			}
			n++
			said[stepKey(step)] = n
			p.step(n, step)
		}
	}
}

// isCommand reports whether a verification is a command, to be kept in one piece.
func isCommand(s string) bool {
	word, _, _ := strings.Cut(s, " ")
	return word == "kubectl" || word == "calicoctl" || word == "ip" || word == "ipamaudit"
}

func stepKey(s checks.Step) string {
	if len(s.Commands) > 0 {
		return strings.Join(s.Commands, "\n")
	}
	return s.Title
}

func (p storyPage) step(n int, s checks.Step) {
	st := plain
	if s.Risk != checks.Safe {
		st = yellow
	}
	p.prose(storyIn, st, fmt.Sprintf("%d. ", n), fmt.Sprintf("(%s) %s", s.Risk, s.Title))
	for _, c := range s.Commands {
		p.command(storyIn+3, c)
	}
	switch {
	case s.Verify == "":
	case isCommand(s.Verify):
		p.line(storyIn+3, dim, "then: "+s.Verify)
	default:
		p.prose(storyIn+3, dim, "then: ", s.Verify)
	}
}

func (p storyPage) unknown(s *explain.Story) {
	if len(s.Unknown) == 0 {
		return
	}
	p.heading("not known", "")
	for _, u := range s.Unknown {
		p.prose(storyIn, yellow, "? ", u)
	}
}

// goOn writes commands that lead on.
func (p storyPage) goOn(s *explain.Story) {
	if len(s.See) == 0 || p.again == "" {
		return
	}
	p.heading("go on with", "")
	for i, to := range s.See {
		if i == 4 {
			break
		}
		p.command(storyIn, p.again+" "+shellSafe(explain.Argument(to)))
	}
}

// shellSafe quotes a word where a shell would read more into it.
func shellSafe(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:@%+=,", r)
	}) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// ago prints a time and how long before the snapshot it was.
func ago(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	if d := now.Sub(t); d >= 0 {
		return fmt.Sprintf("%s (%s ago)", text.Minute(t), explain.Age(d))
	}
	return text.Minute(t)
}

// someNames lists a few names in full and counts the rest.
func someNames(list []string) string {
	if len(list) <= fewNames {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %s more", strings.Join(list[:fewNames], ", "), text.Int(len(list)-fewNames))
}

// rows writes a grid whose last column wraps.
func (p storyPage) rows(indent int, rows [][]string, right ...int) {
	if len(rows) == 0 {
		return
	}
	columns := len(rows[0])
	used := 0
	configs := make([]table.ColumnConfig, 0, columns)
	for c := range columns - 1 {
		w := 0
		for _, r := range rows {
			w = max(w, pretty.StringWidth(text.Terminal(r[c])))
		}
		config := table.ColumnConfig{Number: c + 1, WidthMax: min(w, 48), WidthMaxEnforcer: pretty.WrapText}
		for _, n := range right {
			if n == c {
				config.Align = pretty.AlignRight
			}
		}
		used += min(w, 48) + 2
		configs = append(configs, config)
	}
	configs = append(configs, table.ColumnConfig{Number: columns, WidthMax: max(min(p.width, proseWidth)-indent-used, 16), WidthMaxEnforcer: pretty.WrapSoft})
	out := make([]table.Row, 0, len(rows))
	for _, r := range rows {
		row := make(table.Row, 0, columns)
		for _, cell := range r {
			row = append(row, text.Terminal(cell))
		}
		out = append(out, row)
	}
	p.grid(indent, out, configs)
}
