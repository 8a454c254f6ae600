// Package text makes text from clusters fit to print. Names, notes and error
// messages come from people and machines we do not know: a pod's name, a
// kubelet's message or a proxy's error page may hold terminal escapes, bidi
// overrides (CVE-2021-42574), Markdown or HTML. Whoever prints one, prints it
// through this package.
package text

import (
	"regexp"
	"strings"
	"unicode"
)

// escapes are the terminal sequences of ECMA-48: CSI, OSC, the other string
// sequences, and two-byte escapes. They go as a whole, so that "\x1b[31mred"
// becomes "red" and not "[31mred".
var escapes = regexp.MustCompile(
	`(?:\x1b\[|\x{9b})[0-?]*[\x20-\x2f]*[\x40-\x7e]` +
		`|(?:\x1b\]|\x{9d})[^\x07\x1b\x{9c}]*(?:\x07|\x1b\\|\x{9c})` +
		`|\x1b[PX^_][^\x1b]*\x1b\\` +
		`|\x1b[\x20-\x2f]*[0-~]`)

// Terminal returns s as one line without anything that moves a cursor, changes
// a colour, hides or reorders text: control characters, escape sequences and
// format characters (bidi overrides, zero-width characters, tags) are dropped,
// and so are the noncharacters that XML forbids;
// line breaks and tabs become a space, invalid UTF-8 becomes U+FFFD.
func Terminal(s string) string {
	return strings.Join(strings.Fields(Lines(s)), " ")
}

// Lines is Terminal for text of several lines: line breaks (as "\n") and
// leading blanks stay, blanks at a line's end go.
func Lines(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = escapes.ReplaceAllString(s, "")
	s = lineBreaks.Replace(s)
	s = strings.Map(printable, s)
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Trim(strings.Join(lines, "\n"), "\n")
}

var lineBreaks = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n", "\t", "    ")

func printable(r rune) rune {
	if r != '\n' && Invisible(r) {
		return -1
	}
	return r
}

// Invisible reports whether Terminal would drop r: formats that must keep the
// data as it is (JSON) escape such runes instead.
func Invisible(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs, unicode.Zl, unicode.Zp, unicode.Noncharacter_Code_Point)
}
