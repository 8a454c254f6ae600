package fakejira

import (
	"slices"
	"strings"
)

// token is a piece of JQL. Only a token that was not quoted can be a keyword.
type token struct {
	text   string
	quoted bool
	symbol bool // an operator, a bracket, a comma
	at     int  // character in the query, from 1
}

func (t token) is(keyword string) bool {
	return !t.quoted && strings.EqualFold(t.text, keyword)
}

const symbols = `()=!<>~,`

func lex(jql string) ([]token, error) {
	var out []token
	runes := []rune(jql)
	for n := 0; n < len(runes); {
		switch r := runes[n]; {
		case r == ' ' || r == '\t' || r == '\n' || r == '\r':
			n++
		case r == '"' || r == '\'':
			text, next, err := quoted(runes, n)
			if err != nil {
				return nil, err
			}
			out = append(out, token{text: text, quoted: true, at: n + 1})
			n = next
		case strings.ContainsRune(symbols, r):
			text := string(r)
			if n+1 < len(runes) && slices.Contains([]string{"!=", ">=", "<=", "!~"}, string(runes[n:n+2])) {
				text = string(runes[n : n+2])
			}
			out = append(out, token{text: text, symbol: true, at: n + 1})
			n += len(text)
		default:
			start := n
			for n < len(runes) && !strings.ContainsRune(symbols+" \t\r\n\"'", runes[n]) {
				n++
			}
			out = append(out, token{text: string(runes[start:n]), at: start + 1})
		}
	}
	return out, nil
}

func quoted(runes []rune, start int) (text string, next int, err error) {
	var b strings.Builder
	for n := start + 1; n < len(runes); n++ {
		switch {
		case runes[n] == runes[start]:
			return b.String(), n + 1, nil
		case runes[n] == '\\' && n+1 < len(runes):
			n++
			if !strings.ContainsRune(`\"'nrt `, runes[n]) {
				return "", 0, refuse("Error in the JQL Query: '\\%c' is an illegal JQL escape sequence. (line 1, character %d)", runes[n], n)
			}
			b.WriteString(strings.NewReplacer("n", "\n", "r", "\r", "t", "\t").Replace(string(runes[n])))
		default:
			b.WriteRune(runes[n])
		}
	}
	return "", 0, refuse("Error in the JQL Query: The quoted string '%s' has not been completed. (line 1, character %d)",
		string(runes[start+1:]), start+1)
}

// reserved are words that JQL wants quoted even where they are values: a project
// DO or INT is a real one (prometheus-community/jiralert#14).
func reserved(word string) bool {
	const list = " a abort access add after alias all alter an and any are as asc at audit avg be before begin between boolean " +
		"break but by byte catch cf char character check checkpoint collate collation column commit connect continue count create " +
		"current date decimal declare decrement default defaults define delete delimiter desc difference distinct divide do double " +
		"drop else empty encoding end equals escape exclusive exec execute exists explain false fetch field file first float for from " +
		"function go goto grant greater group having identified if immediate in increment index initial inner inout input insert int " +
		"integer intersect intersection into is isempty isnull it join last left less like limit lock long max min minus mode modify " +
		"modulo more multiply next no noaudit not notin nowait null number object of on option or order outer output power previous " +
		"prior privileges public raise raw remainder rename resource return returns revoke right row rowid rownum rows select session " +
		"set share size sqrt start strict string subtract such sum synonym table that the their then there these they this to trans " +
		"transaction trigger true uid union unique update user validate values view was when whenever where while will with "
	return strings.Contains(list, " "+strings.ToLower(word)+" ")
}
