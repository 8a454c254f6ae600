package report

import (
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	pretty "github.com/jedib0t/go-pretty/v6/text"

	"ipamaudit/report/text"
)

// style is the parameter of an ANSI "select graphic rendition" sequence.
type style string

// The styles. Colour only repeats what a word or a sign says.
const (
	plain   style = ""
	bold    style = "1"
	dim     style = "2"
	red     style = "31"
	redBold style = "1;31"
	green   style = "32"
	yellow  style = "33"
	cyan    style = "36"
)

const (
	minWidth, defaultWidth = 60, 100
	// proseWidth bounds the lines of running text: longer ones read badly.
	proseWidth = 112
)

// page collects lines for a terminal. Every text that is handed to it is
// stripped of what a terminal would obey.
type page struct {
	strings.Builder
	width int
	color bool
}

func newPage(opts Options) *page {
	width := opts.Width
	if width <= 0 {
		width = defaultWidth
	}
	return &page{width: max(width, minWidth), color: opts.Color}
}

// paint wraps s, which is clean already, into st.
func (p *page) paint(st style, s string) string {
	if !p.color || st == plain || s == "" {
		return s
	}
	return "\x1b[" + string(st) + "m" + s + "\x1b[0m"
}

func (p *page) blank() { p.WriteByte('\n') }

// line writes s on one line, however long: commands must stay in one piece.
func (p *page) line(indent int, st style, s string) {
	p.WriteString(strings.Repeat(" ", indent))
	p.WriteString(p.paint(st, text.Terminal(s)))
	p.WriteByte('\n')
}

// prose wraps s, one paragraph, behind a sign ("● ") under which later lines hang.
func (p *page) prose(indent int, st style, sign, s string) {
	hang := pretty.StringWidth(sign)
	room := max(min(p.width, proseWidth)-indent-hang, 20)
	for l := range strings.Lines(pretty.WrapSoft(text.Terminal(s), room)) {
		if l = strings.TrimRight(l, " \n"); l == "" {
			continue
		}
		p.WriteString(strings.Repeat(" ", indent) + p.paint(st, sign+l) + "\n")
		sign = strings.Repeat(" ", hang)
	}
}

// paragraphs is prose for text that may have several lines.
func (p *page) paragraphs(indent int, s string) {
	for l := range strings.SplitSeq(text.Lines(s), "\n") {
		p.prose(indent, plain, "", l)
	}
}

// items writes short texts with dots between them behind a sign and breaks
// lines only at the dots.
func (p *page) items(indent int, st style, sign string, items []string) {
	const dot, dotWidth = " · ", 3
	hang := pretty.StringWidth(sign)
	room := min(p.width, proseWidth) - indent - hang
	line, used := "", 0
	flush := func() {
		p.WriteString(strings.Repeat(" ", indent) + p.paint(st, sign+line) + "\n")
		sign, line, used = strings.Repeat(" ", hang), "", 0
	}
	for _, it := range items {
		it = text.Terminal(it)
		w := pretty.StringWidth(it)
		if used > 0 && used+dotWidth+w > room {
			flush()
		}
		if used > 0 {
			line, used = line+dot, used+dotWidth
		}
		line, used = line+it, used+w
	}
	if used > 0 {
		flush()
	}
}

// rule writes "━━ name ━━━━━━━━ right"; what does not fit goes to a second line.
func (p *page) rule(st style, left, right string) {
	left, right = "━━ "+text.Terminal(left)+" ", text.Terminal(right)
	if right != "" {
		right = " " + right
	}
	fill := p.width - pretty.StringWidth(left) - pretty.StringWidth(right)
	if fill < 1 {
		left, fill, right = strings.TrimSpace(left), 0, "\n  "+right
	}
	p.WriteString(p.paint(st, left+strings.Repeat("━", fill)+right) + "\n")
}

// command writes a command ready to be copied. It is never wrapped. A here
// document stands at the left edge, or its closing word would not close it.
func (p *page) command(indent int, command string) {
	command = text.Lines(command)
	hereDoc := strings.Contains(command, "<<")
	if hereDoc {
		indent = 0
		p.blank()
	}
	for l := range strings.SplitSeq(command, "\n") {
		p.WriteString(strings.Repeat(" ", indent) + p.paint(cyan, l) + "\n")
	}
	if hereDoc {
		p.blank()
	}
}

// grid writes rows in aligned columns, two blanks apart, each line indented.
// Cells are clean already.
func (p *page) grid(indent int, rows []table.Row, columns []table.ColumnConfig) {
	for l := range strings.SplitSeq(renderGrid(rows, columns), "\n") {
		p.WriteString(strings.TrimRight(strings.Repeat(" ", indent)+l, " ") + "\n")
	}
}

func renderGrid(rows []table.Row, columns []table.ColumnConfig) string {
	st := table.StyleDefault
	st.Options = table.OptionsNoBordersAndSeparators
	st.Box.PaddingLeft, st.Box.PaddingRight = "", "  "
	t := table.NewWriter()
	t.SetStyle(st)
	t.SetColumnConfigs(columns)
	t.AppendRows(rows)
	t.SuppressTrailingSpaces()
	return t.Render()
}
