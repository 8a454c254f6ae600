package notify

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"ipamaudit/audit"
	"ipamaudit/checks"
)

const (
	// maxSummary is below Jira's 255 for the products count differently.
	maxSummary = 250
	// maxSection bounds the tool's part of a description. Jira takes 32,767
	// characters, but Cloud counts after it has converted the text
	// (mozilla/jira-bugzilla-integration#1132).
	maxSection = 20_000
	// maxDescription bounds that part and people's own together.
	maxDescription = 30_000
	// MaxRows is where every table is cut.
	MaxRows = 50
)

// Ticket is what a problem's ticket should say.
type Ticket struct {
	Summary  string
	Labels   []string
	Hash     string
	Severity checks.Severity
	problem  Problem
	// Counters of the tool's line, see Ref.
	revision, reopened int
}

// Ticket makes the ticket of a problem that is present.
func (p Problem) Ticket(policy TicketPolicy) Ticket {
	return Ticket{
		Summary: p.summary(), Hash: p.Seen.Hash, Severity: p.Seen.Severity, problem: p,
		Labels: slices.Concat([]string{StaticLabel}, p.labels(), policy.Labels),
	}
}

// summary names cluster, check and the worst finding, without any figure that
// changes from night to night.
func (p Problem) summary() string {
	if p.baseline != nil {
		return fmt.Sprintf("Calico IPAM audit: baseline of %s", count(len(p.baseline), "problem", "problems"))
	}
	s := "[" + clean(p.Cluster) + "] " + p.Check + ": "
	first := p.Findings[0]
	if len(p.Findings) == 1 {
		return clip(s+clean(first.Title), maxSummary)
	}
	kind := first.Subject.Kind
	if slices.ContainsFunc(p.Findings, func(f audit.Finding) bool { return f.Subject.Kind != kind }) {
		kind = "object"
	}
	return clip(s+"several "+plural(kind)+", first: "+clean(first.Title), maxSummary)
}

func plural(kind string) string {
	switch kind {
	case checks.KindIP:
		return "addresses"
	case checks.KindPool:
		return "pools"
	case checks.KindBlock:
		return "blocks"
	default:
		return strings.ToLower(kind) + "s"
	}
}

// Ref is what the last line of the tool's part of a description tells the next
// run, so that a lost state costs nothing but a search.
type Ref struct {
	Fingerprint string
	Hash        string          // of the content
	SummaryHash string          // of the summary that the tool wrote
	Severity    checks.Severity // written last
	State       RefState
	// Revision counts the tool's edits, Reopened how often it has reopened the ticket.
	Revision, Reopened int
}

// RefState is what a ticket says about its problem.
type RefState string

// The states. RefClosed is kept when people open the ticket again: it is not
// closed a second time.
const (
	RefOpen     RefState = "open"
	RefResolved RefState = "resolved"
	RefClosed   RefState = "closed"
)

// The marks are plain words: Jira Cloud converts wiki markup to its own format
// and back, which plain words survive and macros do not. It may put a backslash
// before a colon, which mark allows for.
var (
	refText   = regexp.MustCompile(`fp=([0-9a-f]{20}) content=([0-9a-f]{16}) summary=([0-9a-f]{16}) severity=([a-z]+) state=(open|resolved|closed) revision=([0-9]{1,9}) reopened=([0-9]{1,9})`)
	statusRow = regexp.MustCompile(`(?m)^\**Status:\** .*$`)
)

// DescriptionWord is a word that every description of the tool has.
const DescriptionWord = "ipamaudit"

const beginLine = "ipamaudit:begin (ipamaudit keeps this part up to date, down to ipamaudit:end; write your own text above or below)"

func (r Ref) line() string {
	return fmt.Sprintf("ipamaudit:end fp=%s content=%s summary=%s severity=%s state=%s revision=%d reopened=%d",
		r.Fingerprint, r.Hash, r.SummaryHash, r.Severity, r.State, r.Revision, r.Reopened)
}

// mark finds the first line with a mark, or the last one: [from, to) in bytes.
func mark(text, word string, find func(text, mark string) int) (from, to int, ok bool) {
	at := find(text, "ipamaudit:"+word)
	if at < 0 {
		at = find(text, `ipamaudit\:`+word)
	}
	if at < 0 {
		return 0, 0, false
	}
	from, to = strings.LastIndexByte(text[:at], '\n')+1, len(text)
	if end := strings.IndexByte(text[at:], '\n'); end >= 0 {
		to = at + end
	}
	return from, to, true
}

// section finds the tool's part of a description: [from, to) in bytes.
func section(description string) (from, to int, ok bool) {
	from, below, ok := mark(description, "begin", strings.Index)
	if !ok {
		return 0, 0, false
	}
	// The first line names the end as well; look below it.
	_, end, ok := mark(description[below:], "end", strings.Index)
	return from, below + end, ok
}

// ParseRef reads what the tool wrote last into a description. It fails where
// people have removed the marks.
func ParseRef(description string) (Ref, bool) {
	from, to, ok := section(description)
	if !ok {
		return Ref{}, false
	}
	m := refText.FindStringSubmatch(strings.ReplaceAll(description[from:to], `\`, ""))
	if m == nil {
		return Ref{}, false
	}
	r := Ref{Fingerprint: m[1], Hash: m[2], SummaryHash: m[3], Severity: checks.Severity(m[4]), State: RefState(m[5])}
	r.Revision, _ = strconv.Atoi(m[6]) // digits, by the expression
	r.Reopened, _ = strconv.Atoi(m[7])
	return r, true
}

// ReplaceSection puts the ticket's content in the place of what the tool wrote
// before and keeps everything around it. It fails where the marks are gone or
// people's text leaves no room.
func ReplaceSection(description string, t Ticket) (string, bool) {
	from, to, ok := section(description)
	if !ok {
		return "", false
	}
	before, after := description[:from], description[to:]
	room := min(maxSection, maxDescription-utf8.RuneCountInString(before+after))
	if room < 2000 {
		return "", false
	}
	old, _ := ParseRef(description)
	t.revision, t.reopened = old.Revision+1, max(t.reopened, old.Reopened)
	return before + t.Section(room) + after, true
}

// MarkGone changes the status in the tool's part of a description and nothing
// else: what was found stays readable. It fails where the marks are gone.
func MarkGone(description, runID string, state RefState) (string, bool) {
	from, to, ok := section(description)
	old, known := ParseRef(description)
	if !ok || !known {
		return "", false
	}
	part := description[from:to]
	if loc := statusRow.FindStringIndex(part); loc != nil {
		part = part[:loc[0]] + "*Status:* not found any more by run " + wiki(runID) + part[loc[1]:]
	}
	last, _, _ := mark(part, "end", strings.LastIndex)
	old.State, old.Revision = state, old.Revision+1
	return description[:from] + part[:last] + old.line() + description[to:], true
}

// Description is that of a new issue; preface stands above the tool's part.
func (t Ticket) Description(preface string) string {
	if preface != "" {
		preface += "\n\n"
	}
	return preface + t.Section(maxSection)
}

// Section is the tool's part of the description in Jira's wiki markup, of at
// most budget runes: marks, status, figures, what was found, what to do, and
// every affected object as far as there is room.
func (t Ticket) Section(budget int) string {
	p := t.problem
	head := []string{beginLine, "", "*Status:* found, first on " + firstSeen(p.Findings), ""}
	foot := []string{"", Ref{Fingerprint: p.Fingerprint, Hash: t.Hash, SummaryHash: hash(t.Summary), Severity: t.Severity,
		State: RefOpen, Revision: t.revision, Reopened: t.reopened}.line()}
	used := utf8.RuneCountInString(strings.Join(head, "\n")+strings.Join(foot, "\n")) + 2
	return strings.Join(slices.Concat(head, cutWiki(t.body(), budget-used), foot), "\n")
}

// Body is the section without its marks, for comments.
func (t Ticket) Body(budget int) string {
	return strings.Join(cutWiki(t.body(), budget), "\n")
}

func (t Ticket) body() []string {
	p := t.problem
	if p.baseline != nil {
		return p.baselineBody()
	}
	lines := []string{
		"||Cluster|" + wiki(p.Cluster) + "|",
		"||Check|" + wiki(p.Check) + "|",
		"||Severity|" + string(t.Severity) + "|",
		"||Findings|" + strconv.Itoa(len(p.Findings)) + "|",
	}
	if c := p.cluster.Calico; c.IPAM != "" {
		lines = append(lines, "||Calico|"+wiki(strings.TrimSpace(c.Version+" "+c.IPAM))+"|")
	}
	lines = append(lines, "", "h3. What was found", "||Severity||Where||What||")
	for _, f := range p.Findings[:min(len(p.Findings), MaxRows)] {
		lines = append(lines, "|"+string(f.Severity)+"|"+wiki(f.Subject.String())+"|"+wiki(f.Title)+"|")
	}
	lines = append(lines, cutNote(len(p.Findings), "findings")...)
	said := map[string]bool{}
	for _, f := range p.Findings[:min(len(p.Findings), 3)] {
		if f.Detail == "" || said[f.Detail] {
			continue
		}
		said[f.Detail] = true
		why := "*" + wiki(f.Subject.String()) + "*: " + wikiText(f.Detail)
		if f.Evidence == checks.Inferred {
			why += " _(inferred, not observed)_"
		}
		lines = append(lines, "", why)
	}
	lines = append(lines, "", "h3. What to do", "")
	for i, s := range mergeSteps(p.Findings) {
		lines = append(lines, fmt.Sprintf("*%d. %s* (%s)", i+1, wiki(s.Title), s.Risk))
		lines = append(lines, codeBlock(s.Commands)...)
		if s.Verify != "" {
			lines = append(lines, "Verify:")
			if looksLikeCommand(s.Verify) {
				lines = append(lines, codeBlock([]string{s.Verify})...)
			} else {
				lines[len(lines)-1] += " " + wiki(s.Verify)
			}
		}
		lines = append(lines, "")
	}
	lines = append(lines, affectedTable(p.Findings)...)
	return append(lines, "", "What this check looks at, and why: {{ipamaudit checks "+wiki(p.Check)+"}}")
}

// affectedTable lists the affected objects of all findings, cut at MaxRows.
func affectedTable(fs []audit.Finding) []string {
	total := 0
	var rows []string
	for _, f := range fs {
		total += len(f.Affected)
		for _, a := range f.Affected {
			if len(rows) == MaxRows {
				break
			}
			name := a.Name
			if a.Namespace != "" {
				name = a.Namespace + "/" + name
			}
			rows = append(rows, "|"+wiki(a.Kind)+"|"+wiki(name)+"|"+cell(wiki(a.Note))+"|"+wiki(f.Subject.String())+"|")
		}
	}
	if total == 0 {
		return nil
	}
	lines := append([]string{"h3. Affected", "||Kind||Name||Note||Finding||"}, rows...)
	return append(lines, cutNote(total, "objects")...)
}

// cell keeps an empty table cell from vanishing.
func cell(s string) string {
	if s == "" {
		return " "
	}
	return s
}

func cutNote(n int, what string) []string {
	if n <= MaxRows {
		return nil
	}
	return []string{fmt.Sprintf("The first %d of %d %s. The JSON report has all of them.", MaxRows, n, what)}
}

// wikiText writes an untrusted paragraph: its line breaks become wiki's.
func wikiText(s string) string {
	var out []string
	for line := range strings.SplitSeq(strings.TrimSpace(s), "\n") {
		for line = clean(line); line != ""; { // wiki clips, a paragraph must not be
			head := clipWords(line)
			out, line = append(out, wiki(head)), strings.TrimSpace(line[len(head):])
		}
	}
	return strings.Join(out, ` \\ `)
}

// clipWords returns the part of s, at most maxCell runes, that ends with a word.
func clipWords(s string) string {
	if utf8.RuneCountInString(s) <= maxCell {
		return s
	}
	head := string([]rune(s)[:maxCell])
	if i := strings.LastIndexByte(head, ' '); i > 0 {
		head = head[:i]
	}
	return head
}

func codeBlock(commands []string) []string {
	if len(commands) == 0 {
		return nil
	}
	lines := []string{"{code:bash}"}
	for _, c := range commands {
		for l := range strings.SplitSeq(c, "\n") {
			lines = append(lines, wikiCode(l))
		}
	}
	return append(lines, "{code}")
}

// looksLikeCommand tells a command from a sentence by its first word.
func looksLikeCommand(s string) bool {
	first, _, _ := strings.Cut(strings.TrimSpace(s), " ")
	return slices.Contains([]string{"kubectl", "calicoctl", "ip", "ipamaudit", "ssh", "for"}, first)
}

// mergeSteps puts the remediation of all findings into one list: the same step
// of several findings is one step with the commands of all. The order of the
// worst finding's steps is kept, for it is a safe one.
func mergeSteps(fs []audit.Finding) []checks.Step {
	var out []checks.Step
	for _, f := range fs {
		at := 0 // a step that is new goes behind the one before it
		for _, s := range f.Remediation {
			i := slices.IndexFunc(out, func(o checks.Step) bool { return o.Title == s.Title && o.Risk == s.Risk })
			if i < 0 {
				s.Commands = slices.Clone(s.Commands)
				out = slices.Insert(out, at, s)
				at++
				continue
			}
			for _, c := range s.Commands {
				if !slices.Contains(out[i].Commands, c) {
					out[i].Commands = append(out[i].Commands, c)
				}
			}
			at = i + 1
		}
	}
	return out
}

// cutWiki keeps the lines that fit into budget runes, closes a code block that
// the cut opens, and says that it cut.
func cutWiki(lines []string, budget int) []string {
	const note = "There is no room for the rest. The JSON report has all of it."
	total := 0
	for _, l := range lines {
		total += utf8.RuneCountInString(l) + 1
	}
	if total <= budget {
		return lines
	}
	budget -= utf8.RuneCountInString(note) + len("{code}") + 3
	var out []string
	inCode := false
	for _, l := range lines {
		if budget -= utf8.RuneCountInString(l) + 1; budget < 0 {
			break
		}
		out = append(out, l)
		switch l {
		case "{code:bash}":
			inCode = true
		case "{code}":
			inCode = false
		}
	}
	if inCode {
		out = append(out, "{code}")
	}
	return append(out, "", note)
}

func firstSeen(fs []audit.Finding) string {
	var first time.Time
	for _, f := range fs {
		if !f.FirstSeen.IsZero() && (first.IsZero() || f.FirstSeen.Before(first)) {
			first = f.FirstSeen
		}
	}
	if first.IsZero() {
		return "this run"
	}
	return first.UTC().Format(time.DateOnly)
}

// CommentRef is the last line of every comment of the tool: a comment is not
// posted again while it is the newest one.
func CommentRef(ref string) string { return "ipamaudit:ref " + ref }

var commentRef = regexp.MustCompile(`ipamaudit\\?:ref ([0-9a-f]+)`)

// ParseCommentRef finds the ref of a comment of the tool.
func ParseCommentRef(body string) (string, bool) {
	m := commentRef.FindStringSubmatch(body)
	if m == nil {
		return "", false
	}
	return m[1], true
}
