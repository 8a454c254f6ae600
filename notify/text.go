package notify

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// clean makes one line out of an untrusted value: no controls, no line breaks,
// no invalid UTF-8, and none of the invisible characters that turn text around
// or hide in it (U+202E and its kin). The zero-width joiner stays, emoji need it.
func clean(s string) string { return strings.Join(strings.Fields(visible(s)), " ") }

// visible is clean that keeps every space: a command must come out as it went
// in, indented here-documents above all.
func visible(s string) string {
	return strings.TrimRight(strings.Map(func(r rune) rune {
		switch {
		case r == '\u200d':
			return r
		case unicode.IsControl(r), unicode.IsSpace(r):
			return ' '
		case unicode.Is(unicode.Cf, r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD")), " ")
}

// clip cuts s to at most limit runes, the last of which is an ellipsis then.
func clip(s string, limit int) string {
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	return string([]rune(s)[:limit-1]) + "…"
}

// maxCell bounds one value inside a line. Kubernetes names have at most 253
// characters and are never cut by it.
const maxCell = 600

// wiki writes an untrusted value for Jira's wiki markup outside of {code}.
// https://jira.atlassian.com/secure/WikiRendererHelpAction.jspa
// What stands between backquotes, a command as a rule, is shown in Jira's way.
func wiki(s string) string {
	parts := strings.Split(clip(clean(s), maxCell), "`")
	if len(parts)%2 == 0 {
		return wikiEscape(strings.Join(parts, "`"))
	}
	var b strings.Builder
	for i, p := range parts {
		switch {
		case i%2 == 0:
			b.WriteString(wikiEscape(p))
		case p == "" || p != strings.TrimSpace(p) || strings.ContainsAny(p, "{}"):
			b.WriteString("`" + wikiEscape(p) + "`")
		default:
			b.WriteString("{{" + wikiEscape(p) + "}}")
		}
	}
	return b.String()
}

func wikiEscape(s string) string {
	runes := []rune(s)
	var b strings.Builder
	for i, r := range runes {
		switch {
		case strings.ContainsRune(`{}[]*_+^~!|#\?`, r):
			b.WriteByte('\\')
		case r == '(' || r == ':' || r == ';': // emoticons: (x) :) ;)
			if i+1 < len(runes) && !unicode.IsSpace(runes[i+1]) && !isWord(runes[i+1]) || r == '(' {
				b.WriteByte('\\')
			}
		case r == '-' && !(i > 0 && isWord(runes[i-1]) && i+1 < len(runes) && isWord(runes[i+1])):
			b.WriteByte('\\') // strikes through at the edge of a word only
		}
		b.WriteRune(r)
	}
	return b.String()
}

func isWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// wikiCode writes lines for the inside of {code}, where nothing can be escaped:
// only the words that would end it are broken.
func wikiCode(s string) string {
	return codeWord.ReplaceAllString(clip(visible(s), 4*maxCell), "{ $1")
}

var codeWord = regexp.MustCompile(`(?i)\{(code|noformat)`)

// mrkdwn writes an untrusted value for Slack. Escaping & < > is all that Slack
// asks for, and it also takes the power from <!channel>
// (https://docs.slack.dev/messaging/formatting-message-text#escaping). Marks of
// bold, italic and strike at the edge of a word get an invisible neighbour, and
// so do the colons of an IPv6 address: "fd00:100:ab::1" holds two emoji.
func mrkdwn(s string) string {
	runes := []rune(strings.ReplaceAll(clip(clean(s), maxCell), "`", "'"))
	var b strings.Builder
	for i, r := range runes {
		inside := i > 0 && isWord(runes[i-1]) && i+1 < len(runes) && isWord(runes[i+1])
		switch {
		case strings.ContainsRune("*_~", r) && !inside:
			b.WriteString("\u200b" + string(r) + "\u200b")
		case r == ':' && i+1 < len(runes) && runes[i+1] != ' ' && strings.ContainsRune(string(runes[i+1:]), ':'):
			b.WriteString(":\u200b")
		default:
			b.WriteRune(r)
		}
	}
	return escapeSlack(b.String())
}

// slackName writes a name as a code span, which Slack leaves as it is: names
// must be readable in full and survive copying.
func slackName(s string) string { return "`" + slackCode(s) + "`" }

// slackCode writes one line for the inside of a code span or a ``` block.
func slackCode(s string) string {
	return escapeSlack(strings.ReplaceAll(visible(s), "`", "'"))
}

func escapeSlack(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}
