package notify

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"ipamaudit/audit"
	"ipamaudit/checks"
)

func TestEscapes(t *testing.T) {
	for _, tc := range []struct{ in, wiki, mrkdwn, code string }{
		{"kube-system/coredns-5d78c9869d-x7x2k", "kube-system/coredns-5d78c9869d-x7x2k", "kube-system/coredns-5d78c9869d-x7x2k", "kube-system/coredns-5d78c9869d-x7x2k"},
		{"a {code} [b|c] *d* _e_", `a \{code\} \[b\|c\] \*d\* \_e\_`, "a {code} [b|c] \u200b*\u200bd\u200b*\u200b \u200b_\u200be\u200b_\u200b", "a {code} [b|c] *d* _e_"},
		{"<!channel> & <@U1>", `<\!channel> & <@U1>`, "&lt;!channel&gt; &amp; &lt;@U1&gt;", "&lt;!channel&gt; &amp; &lt;@U1&gt;"},
		{"x\ny\x00z\u202eq", "x y zq", "x y zq", "x y zq"},
		{"fd00:100:ab::1", "fd00:100:ab\\::1", "fd00:\u200b100:\u200bab:\u200b:1", "fd00:100:ab::1"},
		{"`rm`", "{{rm}}", "'rm'", "'rm'"},
		{"hit by `blackhole 10.0.0.0/26 *` here", `hit by {{blackhole 10.0.0.0/26 \*}} here`, "hit by 'blackhole 10.0.0.0/26 \u200b*\u200b' here", "hit by 'blackhole 10.0.0.0/26 *' here"},
		{"one ` and `{x}` ` `", "one ` and `\\{x\\}` ` `", "one ' and '{x}' ' '", "one ' and '{x}' ' '"},
		{"-x- \xff", `\-x\- �`, "-x- �", "-x- �"},
		{"done (/) 10:30", `done \(/) 10:30`, "done (/) 10:30", "done (/) 10:30"},
	} {
		if got := wiki(tc.in); got != tc.wiki {
			t.Errorf("wiki(%q) = %q, want %q", tc.in, got, tc.wiki)
		}
		if got := mrkdwn(tc.in); got != tc.mrkdwn {
			t.Errorf("mrkdwn(%q) = %q, want %q", tc.in, got, tc.mrkdwn)
		}
		if got := slackCode(tc.in); got != tc.code {
			t.Errorf("slackCode(%q) = %q, want %q", tc.in, got, tc.code)
		}
	}
	if got := wikiCode("x {code} {CODE:bash} {noformat} -p '{\"spec\":{}}'"); got != `x { code} { CODE:bash} { noformat} -p '{"spec":{}}'` {
		t.Errorf("wikiCode: %q", got)
	}
}

func problemOf(c *audit.ClusterReport, fs ...audit.Finding) Problem {
	return Problem{Fingerprint: checks.TicketFingerprint("x", c.ID), Cluster: c.Name, Check: "x", Project: "OPS", cluster: c, Findings: fs,
		Seen: Seen{Present: true, Severity: fs[0].Severity, Hash: contentHash(fs)}}
}

// hostile makes findings out of any text.
func hostile(text string, n int) (*audit.ClusterReport, []audit.Finding) {
	c := &audit.ClusterReport{Name: "c-" + text, ID: "id", Status: audit.Partial, Error: text,
		Checks: []audit.CheckReport{{ID: "x", Status: checks.StatusUnknown, Reason: text}}}
	var fs []audit.Finding
	for i := range n {
		s := checks.Subject{Kind: checks.KindNode, Namespace: text, Name: fmt.Sprint(text, i)}
		f := audit.Finding{State: []audit.FindingState{audit.StateNew, audit.StateChanged, audit.StateResolved, audit.StateUnknown, audit.StateOngoing}[i%5],
			Previous: &audit.Previous{Severity: checks.Medium, Affected: n},
			Finding: checks.Finding{Check: "x", Severity: checks.Critical, Subject: s, Title: text, Detail: text + "\n" + text,
				Remediation: []checks.Step{{Title: text, Risk: checks.Safe, Commands: []string{text, "kubectl get " + text}, Verify: "kubectl " + text}}}}
		for j := range n {
			f.Affected = append(f.Affected, checks.Affected{Kind: checks.KindIP, Name: fmt.Sprint(text, j), Note: text})
		}
		fs = append(fs, f)
	}
	return c, fs
}

// checkTicket holds a ticket against Jira's limits and its own form.
func checkTicket(t *testing.T, ticket Ticket) {
	t.Helper()
	if n := utf8.RuneCountInString(ticket.Summary); n > 250 || strings.ContainsAny(ticket.Summary, "\n\r\t") || n == 0 {
		t.Errorf("summary of %d runes: %q", n, ticket.Summary)
	}
	for _, budget := range []int{2000, 5000, maxSection} {
		s := ticket.Section(budget)
		if n := utf8.RuneCountInString(s); n > budget {
			t.Errorf("section of %d runes, budget %d", n, budget)
		}
		if !utf8.ValidString(s) {
			t.Error("section is no UTF-8")
		}
		opened := strings.Count(s, "\n{code:bash}\n")
		if closed := strings.Count(s, "\n{code}\n"); opened != closed {
			t.Errorf("%d code blocks opened, %d closed", opened, closed)
		}
		if n := len(codeMark.FindAllString(s, -1)); n != 2*opened {
			t.Errorf("%d {code, want %d: a value opens or ends a block", n, 2*opened)
		}
		if r, ok := ParseRef(s); !ok || r.Hash != ticket.Hash {
			t.Errorf("ref %+v, %v", r, ok)
		}
		if again, ok := ReplaceSection("above\n"+s+"\nbelow", ticket); !ok || !strings.HasPrefix(again, "above\n") || !strings.HasSuffix(again, "\nbelow") {
			t.Errorf("replaced: %v", ok)
		}
	}
	for _, l := range ticket.Labels {
		if strings.ContainsAny(l, " \t\n") || len(l) > 255 {
			t.Errorf("label %q", l)
		}
	}
}

// codeMark is {code} or {noformat} that is not escaped.
var codeMark = regexp.MustCompile(`(?i)(^|[^\\])\{(code|noformat)`)

var codeFence = regexp.MustCompile("```")

// checkMessage holds a message against Slack's limits.
func checkMessage(t *testing.T, m Message) {
	t.Helper()
	text := utf8.RuneCountInString(m.Header)
	if text > 150 {
		t.Errorf("header of %d", text)
	}
	if len(m.Blocks) == 0 || len(m.Blocks) > 49 {
		t.Errorf("%d blocks", len(m.Blocks))
	}
	for _, b := range m.Blocks {
		n := utf8.RuneCountInString(b.Text)
		if n == 0 || n > 3000 {
			t.Errorf("a block of %d", n)
		}
		if len(codeFence.FindAllString(b.Text, -1))%2 != 0 {
			t.Errorf("an open code block: %.300q", b.Text)
		}
		for _, link := range strings.Split(b.Text, "<")[1:] { // mentions begin like that, too
			if !strings.HasPrefix(link, "https://jira/browse/") {
				t.Errorf("a link or mention that is not ours: %.300q", b.Text)
			}
		}
		if !utf8.ValidString(b.Text) {
			t.Errorf("no UTF-8: %.300q", b.Text)
		}
		for i, r := range b.Text {
			if r == '&' && !strings.HasPrefix(b.Text[i:], "&amp;") && !strings.HasPrefix(b.Text[i:], "&lt;") && !strings.HasPrefix(b.Text[i:], "&gt;") {
				t.Errorf("half an entity: %.300q", b.Text)
			}
		}
		text += n
	}
	raw, err := json.Marshal([]any{m.Header, m.Blocks, m.Fallback, m.Metadata()})
	if err != nil {
		t.Fatal(err)
	}
	if js := len(raw) + 60*len(m.Blocks); text > 9000 || js > 14<<10 {
		t.Errorf("a message of %d characters, %d bytes", text, js)
	}
	if meta, _ := json.Marshal(m.Metadata()); len(meta) > 2048 {
		t.Errorf("metadata of %d bytes", len(meta))
	}
	if n := utf8.RuneCountInString(m.Fallback); n > 4000 || n == 0 {
		t.Errorf("fallback of %d", n)
	}
}

func everything(t *testing.T, text string, n int) {
	t.Helper()
	c, fs := hostile(text, n)
	checkTicket(t, problemOf(c, fs...).Ticket(TicketPolicy{}))
	c.Findings = fs
	r := &audit.Report{Run: audit.RunInfo{ID: text}, Notices: []string{text, text}}
	for i := range n {
		r.Suppressions = append(r.Suppressions, audit.SuppressionNotice{
			Check: text, Cluster: text, Subject: text, Owner: text, Origin: text, State: []audit.SuppressionState{audit.SuppressionExpired, audit.SuppressionUnused}[i%2],
		})
	}
	for i := range n {
		cl := *c
		cl.Name = fmt.Sprint(c.Name, i)
		cl.Status = []audit.ClusterStatus{audit.Complete, audit.Partial, audit.Failed}[i%3]
		r.Clusters = append(r.Clusters, cl)
	}
	links := func(string, string) Link { return Link{"OPS-1", "https://jira/browse/" + text} }
	ds := Digests(r, nil, links, []string{text}, DigestPolicy{Channel: func(*audit.ClusterReport, string, checks.Severity) string { return "C1" }, Title: text})
	for _, d := range ds {
		checkMessage(t, d.Parent())
		for _, m := range d.Replies() {
			checkMessage(t, m)
		}
		checkMessage(t, d.nothing(text))
	}
}

func TestBudgets(t *testing.T) {
	for _, text := range []string{"node-a", strings.Repeat("x", 10_000), strings.Repeat("&", 3000), strings.Repeat("😀`", 900), strings.Repeat("{code}", 500),
		"<!channel> ``` {noformat} \u202e", "<https://evil.example|OPS-1> *b* _i_ ~s~ :fire: [x|https://evil.example] !img! h1. || {color:red}",
		"עברית-node \u2067مرحبا\u2069 \u200f", "👩‍👩‍👧‍👦🏳️‍🌈 e\u0301\u0301\u0301", strings.Repeat("wort ", 2000), strings.Repeat("n", 253), "a\nb\nc", "", strings.Repeat("\"", 800)} {
		for _, n := range []int{1, 3, 40, 60} { // 60: 3,600 findings about 216,000 objects
			if n*len(text) > 50_000 || n > 40 && len(text) > 10 {
				continue
			}
			t.Run(fmt.Sprintf("%.12q %d", text, n), func(t *testing.T) { everything(t, text, n) })
		}
	}
}

func FuzzBudgets(f *testing.F) {
	f.Add("node-a", 3)
	f.Add("<!channel> ``` & {code} 😀 \u202e | \\", 12)
	f.Fuzz(func(t *testing.T, text string, n int) {
		everything(t, text, 1+((n%12)+12)%12)
	})
}

// TestNothingIsLost: what does not fit is counted, and the order is by weight.
func TestNothingIsLost(t *testing.T) {
	c, fs := hostile("node", 60)
	body := strings.Join(problemOf(c, fs...).Ticket(TicketPolicy{}).body(), "\n")
	for _, want := range []string{"The first 50 of 60 findings", "The first 50 of 3600 objects"} {
		if !strings.Contains(body, want) {
			t.Errorf("the ticket lacks %q", want)
		}
	}
	if strings.Index(body, "What to do") > strings.Index(body, "h3. Affected") {
		t.Error("the long table stands before what to do")
	}
	r := &audit.Report{Run: audit.RunInfo{ID: "r"}}
	for i := range 60 {
		r.Clusters = append(r.Clusters, audit.ClusterReport{Name: fmt.Sprintf("c%02d", i), Status: audit.Failed, Error: strings.Repeat("no route to host ", 10)})
	}
	d := Digests(r, nil, nil, nil, DigestPolicy{Channel: func(*audit.ClusterReport, string, checks.Severity) string { return "C1" }})[0]
	if s := d.Parent().String(); !strings.Contains(s, "60 not audited") || !strings.Contains(s, "and 40 more") {
		t.Errorf("digest:\n%s", s)
	}
}

func TestSectionSurvivesCloud(t *testing.T) {
	c, fs := hostile("node", 2)
	ticket := problemOf(c, fs...).Ticket(TicketPolicy{})
	s := ticket.Section(maxSection)
	// What the conversion to ADF and back may do: escape, trim, close up.
	changed := strings.ReplaceAll(strings.ReplaceAll(s, "ipamaudit:", `ipamaudit\:`), "\n\n", "\n")
	r, ok := ParseRef("x\r\n" + strings.ReplaceAll(changed, "\n", "\r\n"))
	if !ok || r.Hash != ticket.Hash || r.State != RefOpen {
		t.Errorf("ref %+v, %v", r, ok)
	}
	gone, ok := MarkGone(s, "2026-12-01", RefResolved)
	if r, _ := ParseRef(gone); !ok || r.State != RefResolved || r.Revision != 1 || !strings.Contains(gone, "not found any more by run 2026-12-01") {
		t.Errorf("marked: %v %+v", ok, r)
	}
	if _, ok := ParseRef("people's"); ok {
		t.Error("a ref out of nothing")
	}
	for _, d := range []string{"", "ipamaudit:end only", beginLine} {
		if _, ok := ReplaceSection(d, ticket); ok {
			t.Errorf("replaced in %q", d)
		}
	}
	if _, ok := ReplaceSection(strings.Repeat("x", 29_000)+"\n"+s, ticket); ok {
		t.Error("no room, and replaced")
	}
}

func TestContentHash(t *testing.T) {
	_, fs := hostile("node", 2)
	base := contentHash(fs)
	for name, change := range map[string]func(*audit.Finding){
		"detail": func(f *audit.Finding) { f.Detail = "7 of 8" }, "title": func(f *audit.Finding) { f.Title = "t" },
		"time": func(f *audit.Finding) { f.FirstSeen = time.Now() }, "runs": func(f *audit.Finding) { f.Runs = 9 },
	} {
		_, fs := hostile("node", 2)
		if change(&fs[0]); contentHash(fs) != base {
			t.Errorf("%s changes the hash", name)
		}
	}
	for name, change := range map[string]func(*audit.Finding){
		"severity": func(f *audit.Finding) { f.Severity = checks.Low }, "subject": func(f *audit.Finding) { f.Subject.Name = "t" },
		"affected": func(f *audit.Finding) { f.Affected = f.Affected[1:] }, "remediation": func(f *audit.Finding) { f.Remediation = nil },
	} {
		_, fs := hostile("node", 2)
		if change(&fs[0]); contentHash(fs) == base {
			t.Errorf("%s does not change the hash", name)
		}
	}
}

func TestMergeSteps(t *testing.T) {
	step := func(title string, cmds ...string) checks.Step {
		return checks.Step{Title: title, Risk: checks.Safe, Commands: cmds}
	}
	got := mergeSteps([]audit.Finding{
		{Finding: checks.Finding{Remediation: []checks.Step{step("add a pool", "a"), step("recreate", "r1")}}},
		{Finding: checks.Finding{Remediation: []checks.Step{step("add a pool", "a"), step("wait", "w"), step("recreate", "r2")}}},
	})
	var s []string
	for _, g := range got {
		s = append(s, g.Title+" "+strings.Join(g.Commands, "+"))
	}
	if strings.Join(s, ", ") != "add a pool a, wait w, recreate r1+r2" {
		t.Errorf("merged: %q", s)
	}
}

// A here-document that loses its indentation is no YAML any more.
func TestCommandsKeepTheirSpaces(t *testing.T) {
	const line = "  name: 'pool'   # two words\t"
	if got := wikiCode(line); got != "  name: 'pool'   # two words" {
		t.Errorf("wiki: %q", got)
	}
	if got := slackCode(line); got != "  name: 'pool'   # two words" {
		t.Errorf("slack: %q", got)
	}
}
