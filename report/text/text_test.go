package text_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"ipamaudit/report/text"
)

func TestTerminal(t *testing.T) {
	for name, tt := range map[string]struct{ in, want string }{
		"plain":                   {"kube-system/calico-node-x2v7p", "kube-system/calico-node-x2v7p"},
		"colour":                  {"\x1b[1;31mred\x1b[0m", "red"},
		"colour, eight bits":      {"\u009b31mred", "red"},
		"clear screen":            {"a\x1b[2J\x1b[Hb", "ab"},
		"hyperlink":               {"\x1b]8;;http://evil.example\x07click\x1b]8;;\x1b\\", "click"},
		"window title, unclosed":  {"\x1b]0;title", "0;title"},
		"device control":          {"\x1bPq#0;2\x1b\\x", "x"},
		"character set":           {"\x1b(0lqk", "lqk"},
		"escape at the end":       {"x\x1b", "x"},
		"bell, backspace, delete": {"a\x07b\x08c\x7fd", "abcd"},
		"right-to-left override":  {"gpj.\u202eexe", "gpj.exe"},
		"isolates":                {"a\u2066b\u2069c", "abc"},
		"zero width":              {"a\u200bb\ufeffc\u2060d", "abcd"},
		"tags":                    {"a\U000e0041b", "ab"},
		"noncharacter":            {"a\uffffb", "ab"},
		"line breaks":             {"a\r\nb\nc\u2028d\te", "a b c d e"},
		"invalid UTF-8":           {"a\xffb", "a\ufffdb"},
		"letters of all scripts":  {"日本語 ünïcode עברית", "日本語 ünïcode עברית"},
		"blanks around":           {"  a  b ", "a b"},
	} {
		if got := text.Terminal(tt.in); got != tt.want {
			t.Errorf("%s: Terminal(%q) = %q, want %q", name, tt.in, got, tt.want)
		}
	}
}

func TestLinesKeepsShape(t *testing.T) {
	const in = "\napiVersion: v1\r\nmetadata:\n\tname: \x1b[31mx \n\n"
	if got, want := text.Lines(in), "apiVersion: v1\nmetadata:\n    name: x"; got != want {
		t.Errorf("Lines = %q, want %q", got, want)
	}
}

func TestMarkdown(t *testing.T) {
	for in, want := range map[string]string{
		"a|b":                      `a\|b`,
		"`x` *y* _z_ ~s~":          "\\`x\\` \\*y\\* \\_z\\_ \\~s\\~",
		"<script>&amp;":            "&lt;script&gt;&amp;amp;",
		"[x](javascript:alert(1))": `\[x\](javascript:alert(1))`,
		"# heading":                `\# heading`,
		"- item":                   `\- item`,
		"+ item":                   `\+ item`,
		"===":                      `\===`,
		"1. item":                  `1\. item`,
		"10.64.75.0/24":            "10.64.75.0/24",
		"2026-11-30":               "2026-11-30",
		"a\nb":                     "a b",
		`a\|b`:                     `a\\\|b`,
	} {
		if got := text.Markdown(in); got != want {
			t.Errorf("Markdown(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestMarkdownCode(t *testing.T) {
	for in, want := range map[string]string{
		"":       "",
		"a":      "`a`",
		"a`b":    "``a`b``",
		"`a``":   "``` `a`` ```",
		"a\n`b`": "`` a `b` ``",
	} {
		if got := text.MarkdownCode(in); got != want {
			t.Errorf("MarkdownCode(%q) = %q, want %q", in, got, want)
		}
	}
	for in, want := range map[string]string{"a b": "`a b`", "a|b": `a\|b`, `a\`: `a\\`} {
		if got := text.MarkdownCell(in); got != want {
			t.Errorf("MarkdownCell(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestMarkdownFenceCannotBeClosedFromInside(t *testing.T) {
	if got, want := text.MarkdownFence("sh", "echo\n```\n````\nrm"), "`````sh\necho\n```\n````\nrm\n`````"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCount(t *testing.T) {
	for in, want := range map[uint64]string{
		0: "0", 7: "7", 999: "999", 1000: "1,000", 65536: "65,536", 1048576: "1,048,576", 4294967296: "4,294,967,296",
		1 << 40: "1.1e12", 1<<53 - 1: "9.0e15", 1 << 53: "≥ 9.0e15", 1<<64 - 1: "≥ 9.0e15",
	} {
		if got := text.Count(in); got != want {
			t.Errorf("Count(%d) = %q, want %q", in, got, want)
		}
	}
}

func TestPercentNeverRoundsToAnExtreme(t *testing.T) {
	for _, tt := range []struct {
		part, whole uint64
		want        string
	}{
		{0, 0, "–"}, {0, 4, "0 %"}, {1, 1 << 53, "<1 %"}, {32, 256, "12 %"}, {65535, 65536, "99 %"}, {1<<53 - 1, 1 << 53, "99 %"}, {4, 4, "100 %"}, {5, 4, "100 %"},
	} {
		if got := text.Percent(tt.part, tt.whole); got != tt.want {
			t.Errorf("Percent(%d, %d) = %q, want %q", tt.part, tt.whole, got, tt.want)
		}
	}
}

func FuzzSanitisers(f *testing.F) {
	for _, s := range []string{"\x1b[31mred", "\x1b]8;;x\x07", "a|`b`<c>", "\u202e", "\xff\x9b", "```\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		one := text.Terminal(s)
		if !utf8.ValidString(one) || strings.ContainsFunc(one, text.Invisible) {
			t.Errorf("Terminal(%q) = %q", s, one)
		}
		if again := text.Terminal(one); again != one {
			t.Errorf("Terminal is not stable: %q, then %q", one, again)
		}
		if md := text.Markdown(s); strings.ContainsAny(md, "<>\n") || strings.Contains(strings.ReplaceAll(md, `\\`, ""), "|") && !strings.Contains(md, `\|`) {
			t.Errorf("Markdown(%q) = %q", s, md)
		}
		fenced := text.MarkdownFence("", s)
		fence := fenced[:strings.IndexByte(fenced, '\n')]
		if strings.Count(fenced, fence) != 2 {
			t.Errorf("MarkdownFence(%q) = %q", s, fenced)
		}
	})
}
