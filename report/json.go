package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"ipamaudit/audit"
	"ipamaudit/report/text"
)

// jsonWriter writes audit.Report as it stands; schema.json describes it.
type jsonWriter struct{}

func (jsonWriter) Write(w io.Writer, r *audit.Report) error {
	b, err := marshal(r)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	return err
}

// marshal encodes r with two blanks of indent, with "<" as "<", and with every
// character that a terminal would obey as an escape: people pipe this to less.
func marshal(r *audit.Report) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(withLists(r)); err != nil {
		return nil, fmt.Errorf("encode the report: %w", err)
	}
	return escapeInvisible(buf.Bytes()), nil
}

// escapeInvisible rewrites control and format characters as \uXXXX. Outside of
// strings an indented JSON document has none but line breaks.
func escapeInvisible(doc []byte) []byte {
	out := make([]byte, 0, len(doc))
	for len(doc) > 0 {
		r, n := utf8.DecodeRune(doc)
		switch {
		case r == '\n' || !text.Invisible(r):
			out = append(out, doc[:n]...)
		case r > 0xFFFF: // a surrogate pair, RFC 8259 section 7
			r -= 0x10000
			out = fmt.Appendf(out, `\u%04x\u%04x`, 0xD800+r>>10, 0xDC00+r&0x3FF)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		doc = doc[n:]
	}
	return out
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
