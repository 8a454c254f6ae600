package collect

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ipamaudit/ipam"
)

// The types below read what Calico and Kubernetes have written over the years,
// and write it back in one spelling.

// flexBool is a boolean that BlockAffinity (v1) spells as a string.
type flexBool bool

// UnmarshalJSON accepts true, "true" and their opposites; null and "" are false.
func (b *flexBool) UnmarshalJSON(raw []byte) error {
	text := strings.Trim(string(raw), `"`)
	if text == "null" || text == "" {
		*b = false
		return nil
	}
	v, err := strconv.ParseBool(text)
	*b = flexBool(v)
	return err
}

// stamp is a time in any spelling that Calico or Kubernetes writes. What
// cannot be read is no time at all: an age is evidence, not identity.
type stamp struct{ time.Time }

// UnmarshalJSON never fails.
func (s *stamp) UnmarshalJSON(raw []byte) error {
	text, err := jsontext.AppendUnquote(nil, raw)
	if err == nil {
		s.Time = parseTime(string(text))
	}
	return nil
}

// MarshalJSON writes RFC 3339.
func (s stamp) MarshalJSON() ([]byte, error) {
	return strconv.AppendQuote(nil, s.UTC().Format(time.RFC3339Nano)), nil
}

// parseTime reads RFC 3339 and Go's time.Time.String, with which Calico stamps
// allocations, with or without its monotonic clock reading ("m=+0.5").
func parseTime(text string) time.Time {
	text, _, _ = strings.Cut(text, " m=")
	if date, clock, ok := strings.Cut(text, " "); ok {
		// Nearly every allocation, and ten times faster than by its own layout.
		if clock, ok := strings.CutSuffix(clock, " +0000 UTC"); ok {
			if t, err := time.Parse(time.RFC3339Nano, date+"T"+clock+"Z"); err == nil {
				return t
			}
		}
	}
	layouts := []string{"2006-01-02 15:04:05.999999999 -0700 MST", "2006-01-02 15:04:05.999999999 -0700 -0700", time.DateTime}
	if len(text) > len(time.DateOnly) && text[len(time.DateOnly)] == 'T' {
		layouts = []string{time.RFC3339Nano}
	}
	for _, layout := range layouts {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC()
		}
	}
	return time.Time{}
}

// flexNumber is a number that may be written as a string: AS numbers, also as
// "1.10" (numorstring.ASNumber), and quantities of whole things ("110").
type flexNumber uint32

// UnmarshalJSON accepts 64512, "64512" and "1.10".
func (n *flexNumber) UnmarshalJSON(raw []byte) error {
	text := strings.Trim(string(raw), `"`)
	if text == "null" || text == "" {
		*n = 0
		return nil
	}
	if high, low, ok := strings.Cut(text, "."); ok {
		h, err := strconv.ParseUint(high, 10, 16)
		if err != nil {
			return err
		}
		l, err := strconv.ParseUint(low, 10, 16)
		*n = flexNumber(h<<16 | l)
		return err
	}
	v, err := strconv.ParseUint(text, 10, 32)
	*n = flexNumber(v)
	return err
}

// allocations is IPAMBlock.spec.allocations: one entry per ordinal, null (-1
// here) when it is free, else an index into the attributes.
type allocations []int32

// UnmarshalJSON reads the array by hand: blocks have hundreds of entries,
// nearly all of them null.
func (a *allocations) UnmarshalJSON(raw []byte) error {
	out, err := parseIndexes(raw)
	*a = out
	return err
}

// blockCounts is IPAMHandle.spec.block: how many addresses the handle has in
// which block. Nearly every handle has one in one.
type blockCounts []blockCount

type blockCount struct {
	cidr string
	n    int
}

// UnmarshalJSONFrom reads an object of numbers.
func (c *blockCounts) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	*c = (*c)[:0]
	if d.PeekKind() == 'n' {
		return d.SkipValue()
	}
	open, err := d.ReadToken()
	if err != nil {
		return err
	}
	if open.Kind() != '{' {
		return errNotCounts
	}
	for d.PeekKind() != '}' {
		key, err := d.ReadToken()
		if err != nil {
			return err
		}
		cidr := key.String()
		value, err := d.ReadValue()
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(value))
		if err != nil {
			return fmt.Errorf("%s: %s is no number", cidr, value)
		}
		*c = append(*c, blockCount{cidr, n})
	}
	_, err = d.ReadToken()
	return err
}

// MarshalJSONTo writes the object, in the order of the blocks.
func (c blockCounts) MarshalJSONTo(e *jsontext.Encoder) error {
	counts := make(map[string]int, len(c))
	for _, b := range c {
		counts[b.cidr] += b.n
	}
	return json.MarshalEncode(e, counts, json.Deterministic(true))
}

// ordinals is IPAMBlock.spec.unallocated.
type ordinals []int32

// UnmarshalJSON reads the array by hand, like allocations.
func (o *ordinals) UnmarshalJSON(raw []byte) error {
	out, err := parseIndexes(raw)
	*o = out
	return err
}

func parseIndexes(raw []byte) ([]int32, error) {
	if string(raw) == "null" {
		return nil, nil
	}
	if raw[0] != '[' {
		return nil, errNotIndexes
	}
	out := make([]int32, 0, 64)
	for i := 1; i < len(raw); {
		switch c := raw[i]; {
		case c == 'n':
			out = append(out, freeOrdinal)
			i += len("null")
		case c >= '0' && c <= '9' || c == '-':
			j := i + 1
			for j < len(raw) && (raw[j] >= '0' && raw[j] <= '9') {
				j++
			}
			v, err := strconv.ParseInt(string(raw[i:j]), 10, 32)
			if err != nil || v < 0 {
				v = brokenIndex
			}
			out = append(out, int32(v))
			i = j
		case c == ' ' || c == '\n' || c == '\r' || c == '\t' || c == ',' || c == ']':
			i++
		default:
			return nil, errNotIndexes
		}
	}
	return out, nil
}

// MarshalJSON writes the array as Calico does.
func (a allocations) MarshalJSON() ([]byte, error) {
	out := append(make([]byte, 0, 5*len(a)+2), '[')
	for i, v := range a {
		if i > 0 {
			out = append(out, ',')
		}
		if v == freeOrdinal {
			out = append(out, "null"...)
		} else {
			out = strconv.AppendInt(out, int64(v), 10)
		}
	}
	return append(out, ']'), nil
}

const (
	freeOrdinal = -1
	// brokenIndex stands for an index that is no index: negative or too large.
	brokenIndex = -2
)

var errNotCounts = errors.New("is no object of numbers")

var errNotIndexes = errors.New("is no list of indexes and nulls")

// decodeJSON fills v from raw. Duplicate names are let pass (the API server
// never writes them, and looking for them costs), invalid UTF-8 is not.
func decodeJSON(raw []byte, v any) error {
	return json.Unmarshal(raw, v, jsontext.AllowDuplicateNames(true))
}

// explain turns a decoder's error into the path of the field and a message.
func explain(err error) (field, message string) {
	var semantic *json.SemanticError
	var syntactic *jsontext.SyntacticError
	switch {
	case errors.As(err, &semantic):
		field = fieldPath(semantic.JSONPointer)
		if semantic.Err != nil {
			return field, semantic.Err.Error()
		}
		return field, "unexpected JSON " + semantic.JSONKind.String()
	case errors.As(err, &syntactic):
		return fieldPath(syntactic.JSONPointer), "invalid JSON: " + syntactic.Err.Error()
	default:
		return "", err.Error()
	}
}

// fieldPath turns a JSON pointer into spec.attributes.3.handle_id.
func fieldPath(p jsontext.Pointer) string {
	return strings.Join(slices.Collect(p.Tokens()), ".")
}

// fieldError is an error about one field of an object.
type fieldError struct{ field, message string }

// Error prints field and message.
func (e *fieldError) Error() string { return e.field + ": " + e.message }

// interner shares the memory of strings that thousands of objects repeat: node
// names, namespaces, reasons. The builders of one list may share one.
type interner map[string]string

func (b *Builder) intern(s string) string {
	if s == "" {
		return ""
	}
	if have, ok := b.strings[s]; ok {
		return have
	}
	b.strings[s] = s
	return s
}

// parsePrefix reads a CIDR, or a single address as one.
func parsePrefix(text string) (netip.Prefix, error) {
	text = strings.TrimSpace(text)
	if a, err := netip.ParseAddr(text); err == nil {
		return ipam.HostPrefix(a.Unmap().WithZone("")), nil
	}
	p, _, err := parseCIDR(text)
	return p, err
}

// parseCIDR reads a CIDR. hostBits reports that the address part was not the
// network's.
func parseCIDR(text string) (p netip.Prefix, hostBits bool, err error) {
	p, err = netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, false, fmt.Errorf("%q is no CIDR", text)
	}
	return p.Masked(), p != p.Masked(), nil
}

// parseAddrs reads addresses with or without a mask, skipping what is none.
func parseAddrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, t := range texts {
		t, _, _ = strings.Cut(strings.TrimSpace(t), "/")
		if a, err := netip.ParseAddr(t); err == nil {
			out = append(out, a.Unmap().WithZone(""))
		}
	}
	return out
}

// stringList reads an annotation that holds a JSON list of strings.
func stringList(text string) []string {
	var out []string
	if text == "" || decodeJSON([]byte(text), &out) != nil {
		return nil
	}
	return out
}
