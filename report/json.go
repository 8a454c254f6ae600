package report

import (
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"ipamaudit/audit"
	"ipamaudit/report/text"
)

// jsonWriter writes audit.Report as it stands; schema.json describes it.
type jsonWriter struct{}

func (jsonWriter) Write(w io.Writer, r *audit.Report) error {
	if err := writeJSON(w, withLists(r)); err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	return nil
}

// writeJSON encodes v with two blanks of indent, with "<" as "<", and with every
// character that a terminal would obey as an escape: people pipe this to less.
// The report of a large fleet is never held as a whole.
func writeJSON(w io.Writer, v any) error {
	out := &invisible{w: w}
	err := json.MarshalWrite(out, v, jsonv1.DefaultOptionsV1(), jsontext.EscapeForHTML(false), jsontext.EscapeForJS(false), jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	_, err = out.Write([]byte("\n"))
	return err
}

// invisible escapes control and format characters on their way to w.
// Outside of strings an indented JSON document has none but line breaks.
type invisible struct {
	w io.Writer
	// rest is the beginning of a character that the next write ends.
	rest, out []byte
}

func (v *invisible) Write(doc []byte) (int, error) {
	written := len(doc)
	if len(v.rest) > 0 {
		doc = append(v.rest, doc...)
		v.rest = nil
	}
	v.out = v.out[:0]
	for len(doc) > 0 {
		// Nearly everything is plain ASCII.
		n := 0
		for n < len(doc) && (doc[n] >= ' ' && doc[n] < 0x7F || doc[n] == '\n') {
			n++
		}
		v.out = append(v.out, doc[:n]...)
		if doc = doc[n:]; len(doc) == 0 {
			break
		}
		if !utf8.FullRune(doc) {
			v.rest = slices.Clone(doc)
			break
		}
		r, n := utf8.DecodeRune(doc)
		switch {
		case !text.Invisible(r):
			v.out = append(v.out, doc[:n]...)
		case r > 0xFFFF: // a surrogate pair, RFC 8259 section 7
			r -= 0x10000
			v.out = fmt.Appendf(v.out, `\u%04x\u%04x`, 0xD800+r>>10, 0xDC00+r&0x3FF)
		default:
			v.out = fmt.Appendf(v.out, `\u%04x`, r)
		}
		doc = doc[n:]
	}
	if _, err := v.w.Write(v.out); err != nil {
		return 0, err
	}
	return written, nil
}

// withLists returns a copy of r in which no list is nil, so that readers find
// [] and never null. r itself is left alone.
func withLists(r *audit.Report) *audit.Report {
	out := *r
	out.Clusters = list(r.Clusters)
	for i := range out.Clusters {
		c := &out.Clusters[i]
		c.Coverage.Resources = list(c.Coverage.Resources)
		c.Pools, c.Checks, c.Findings = list(c.Pools), list(c.Checks), list(c.Findings)
		for j := range c.Findings {
			f := &c.Findings[j]
			f.Affected, f.CausedBy = list(f.Affected), list(f.CausedBy)
			f.Remediation = list(f.Remediation)
			for k := range f.Remediation {
				f.Remediation[k].Commands = list(f.Remediation[k].Commands)
			}
		}
	}
	return &out
}

func list[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return slices.Clone(s)
}
