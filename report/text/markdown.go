package text

import (
	"regexp"
	"strings"
)

// Markdown returns s as one line of GitHub-flavoured Markdown that shows s
// literally, in prose and in table cells alike: no markup, no HTML, no column.
func Markdown(s string) string {
	return numbered.ReplaceAllString(marked.ReplaceAllString(markup.Replace(Terminal(s)), `\$1`), `$1\$2$3`)
}

var markup = strings.NewReplacer(
	`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "|", `\|`, "~", `\~`, "#", `\#`, "$", `\$`,
	"&", "&amp;", "<", "&lt;", ">", "&gt;",
)

// What would begin a list, a rule or a heading's underline.
var (
	marked   = regexp.MustCompile(`^([-+=])`)
	numbered = regexp.MustCompile(`^(\d+)([.)])(\s|$)`)
)

// MarkdownCode returns s as an inline code span. Inside a table use MarkdownCell.
func MarkdownCode(s string) string {
	s = Terminal(s)
	if s == "" {
		return ""
	}
	tick := strings.Repeat("`", longestRun(s)+1)
	if strings.HasPrefix(s, "`") || strings.HasSuffix(s, "`") {
		s = " " + s + " "
	}
	return tick + s + tick
}

// MarkdownCell is MarkdownCode for table cells. GitHub splits cells before it
// looks for code, so text with a pipe or backslash is shown as escaped prose.
func MarkdownCell(s string) string {
	if strings.ContainsAny(s, `|\`) {
		return Markdown(s)
	}
	return MarkdownCode(s)
}

// MarkdownFence returns s as a fenced code block whose fence is longer than
// any run of backticks inside, so that nothing in s can end it.
func MarkdownFence(language, s string) string {
	s = Lines(s)
	fence := strings.Repeat("`", max(3, longestRun(s)+1))
	return fence + language + "\n" + s + "\n" + fence
}

// longestRun counts the longest run of backticks in s.
func longestRun(s string) int {
	longest, run := 0, 0
	for _, r := range s {
		if r != '`' {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	return longest
}
