package collect

import (
	"bytes"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// fastJSON fills the wire types from JSON at several times the library's speed,
// for saved snapshots and for the lists of custom resources, which have no
// protobuf. It never judges: whatever is not plain (escaped text, a name twice,
// an unexpected type, a syntax error) makes it give up, and the library decodes
// the object anew and words the error. So it has to be right only where it
// succeeds, which FuzzFastJSON compares. It is not safe for concurrent use.
type fastJSON struct {
	plans map[reflect.Type]jsonPlan
}

func newFastJSON() *fastJSON { return &fastJSON{plans: map[reflect.Type]jsonPlan{}} }

// jsonPlan says where the members of an object go.
type jsonPlan struct {
	fields map[string]jsonField
}

type jsonField struct {
	index []int
	// bit marks the field as seen.
	bit uint64
}

// decode fills the struct that w points to, or reports that it gave up and left
// it empty.
func (d *fastJSON) decode(raw []byte, w any) bool {
	v, s := reflect.ValueOf(w).Elem(), jsonScanner{raw: raw}
	if !utf8.Valid(raw) || !s.is('{') || !d.object(&s, v) || !s.atEnd() {
		v.SetZero()
		return false
	}
	return true
}

func (d *fastJSON) plan(t reflect.Type) jsonPlan {
	if p, ok := d.plans[t]; ok {
		return p
	}
	p := jsonPlan{fields: map[string]jsonField{}}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || !f.IsExported() || name == "" {
			continue
		}
		p.fields[name] = jsonField{f.Index, 1 << len(p.fields)}
	}
	d.plans[t] = p
	return p
}

// object fills a struct; the opening bracket has been read.
func (d *fastJSON) object(s *jsonScanner, v reflect.Value) bool {
	plan := d.plan(v.Type())
	if len(plan.fields) > 64 {
		return false
	}
	var seen uint64
	for first := true; ; first = false {
		key, more, ok := s.member(first)
		if !ok || !more {
			return ok
		}
		f, wanted := plan.fields[string(key)]
		if !wanted {
			if !s.skip() {
				return false
			}
			continue
		}
		if seen&f.bit != 0 || !d.value(s, v.FieldByIndex(f.index)) {
			return false
		}
		seen |= f.bit
	}
}

// value fills v, which is zero.
func (d *fastJSON) value(s *jsonScanner, v reflect.Value) bool {
	switch target := v.Addr().Interface().(type) {
	case *string:
		if s.null() {
			return true
		}
		text, ok := s.text()
		*target = string(text)
		return ok
	case *stamp:
		if s.null() {
			return true
		}
		text, ok := s.text()
		if ok {
			target.Time = parseTime(string(text))
		}
		return ok
	case *allocations:
		return s.indexes((*[]int32)(target))
	case *ordinals:
		return s.indexes((*[]int32)(target))
	case *blockCounts:
		return s.counts(target)
	case *[]attribute:
		return list(s, target, func(a *attribute) bool { return s.is('{') && d.object(s, reflect.ValueOf(a).Elem()) })
	case *map[string]string:
		return s.texts(target)
	case interface{ UnmarshalJSON(raw []byte) error }:
		raw, ok := s.scalar()
		return ok && target.UnmarshalJSON(raw) == nil
	}
	if s.null() {
		return true
	}
	switch v.Kind() {
	case reflect.Bool:
		b, ok := s.boolean()
		v.SetBool(b)
		return ok
	case reflect.Int:
		n, ok := s.integer()
		v.SetInt(n)
		return ok
	case reflect.Struct:
		return s.is('{') && d.object(s, v)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return d.value(s, v.Elem())
	case reflect.Slice:
		return d.slice(s, v)
	default:
		return false
	}
}

func (d *fastJSON) slice(s *jsonScanner, v reflect.Value) bool {
	if !s.is('[') {
		return false
	}
	v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	for n := 0; ; n++ {
		more, ok := s.element(n == 0)
		if !ok || !more {
			return ok
		}
		v.Grow(1)
		v.SetLen(n + 1)
		v.Index(n).SetZero()
		if !d.value(s, v.Index(n)) {
			return false
		}
	}
}

// list is slice for a type that is known here.
func list[T any](s *jsonScanner, out *[]T, value func(*T) bool) bool {
	if s.null() {
		*out = nil
		return true
	}
	if !s.is('[') {
		return false
	}
	*out = (*out)[:0]
	for first := true; ; first = false {
		more, ok := s.element(first)
		if !ok || !more {
			return ok
		}
		var zero T
		*out = append(*out, zero)
		if !value(&(*out)[len(*out)-1]) {
			return false
		}
	}
}

// jsonScanner reads one JSON text, whose UTF-8 is known to be valid. Every
// method reports whether it found what it looks for, and nothing is to be done
// with it after one did not.
type jsonScanner struct {
	raw []byte
	pos int
}

func (s *jsonScanner) space() {
	for s.pos < len(s.raw) {
		switch s.raw[s.pos] {
		case ' ', '\n', '\t', '\r':
			s.pos++
		default:
			return
		}
	}
}

// peek is the next byte after white space, or 0.
func (s *jsonScanner) peek() byte {
	s.space()
	if s.pos == len(s.raw) {
		return 0
	}
	return s.raw[s.pos]
}

func (s *jsonScanner) atEnd() bool {
	s.space()
	return s.pos == len(s.raw)
}

// is takes c if it comes next.
func (s *jsonScanner) is(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.pos++
	return true
}

func (s *jsonScanner) literal(text string) bool {
	s.space()
	if !bytes.HasPrefix(s.raw[s.pos:], []byte(text)) {
		return false
	}
	s.pos += len(text)
	return true
}

func (s *jsonScanner) null() bool { return s.peek() == 'n' && s.literal("null") }

// member takes the next name of an object and its colon; more is false at the
// closing bracket.
func (s *jsonScanner) member(first bool) (name []byte, more, ok bool) {
	if s.is('}') {
		return nil, false, true
	}
	if !first && !s.is(',') {
		return nil, false, false
	}
	name, ok = s.text()
	return name, true, ok && s.is(':')
}

// element is member for arrays.
func (s *jsonScanner) element(first bool) (more, ok bool) {
	if s.is(']') {
		return false, true
	}
	return true, first || s.is(',')
}

// text takes a string without escapes and control characters.
func (s *jsonScanner) text() ([]byte, bool) {
	if !s.is('"') {
		return nil, false
	}
	for i, c := range s.raw[s.pos:] {
		switch {
		case c == '"':
			out := s.raw[s.pos : s.pos+i]
			s.pos += i + 1
			return out, true
		case c == '\\' || c < ' ':
			return nil, false
		}
	}
	return nil, false
}

func (s *jsonScanner) boolean() (value, ok bool) {
	if s.peek() == 't' {
		return true, s.literal("true")
	}
	return false, s.literal("false")
}

// integer takes a number without fraction and exponent.
func (s *jsonScanner) integer() (int64, bool) {
	s.space()
	start := s.pos
	if s.pos < len(s.raw) && s.raw[s.pos] == '-' {
		s.pos++
	}
	digits := s.pos
	for s.pos < len(s.raw) && s.raw[s.pos] >= '0' && s.raw[s.pos] <= '9' {
		s.pos++
	}
	if n := s.pos - digits; n == 0 || n > 1 && s.raw[digits] == '0' || s.pos < len(s.raw) && bytes.IndexByte([]byte(".eE"), s.raw[s.pos]) >= 0 {
		return 0, false
	}
	n, err := strconv.ParseInt(string(s.raw[start:s.pos]), 10, strconv.IntSize)
	return n, err == nil
}

// scalar takes a string, whole number or literal as it is written.
func (s *jsonScanner) scalar() ([]byte, bool) {
	c := s.peek()
	start := s.pos
	var ok bool
	switch {
	case c == '"':
		_, ok = s.text()
	case c == 't', c == 'f':
		_, ok = s.boolean()
	case c == 'n':
		ok = s.null()
	default:
		_, ok = s.integer()
	}
	return s.raw[start:s.pos], ok
}

// skip takes any value; what has escapes or brackets the library looks through.
func (s *jsonScanner) skip() bool {
	start := s.pos
	if _, ok := s.scalar(); ok {
		return true
	}
	s.pos = start
	if c := s.peek(); c != '"' && c != '{' && c != '[' {
		return false
	}
	start = s.pos
	if !s.beyond() {
		return false
	}
	return jsontext.Value(s.raw[start:s.pos]).IsValid(jsontext.AllowDuplicateNames(true))
}

// beyond moves past an object, array or string by its quotes and brackets alone.
func (s *jsonScanner) beyond() bool {
	for depth := 0; ; {
		s.pos += plain(s.raw[s.pos:])
		if s.pos == len(s.raw) {
			return false
		}
		switch s.raw[s.pos] {
		case '"':
			if !s.beyondText() {
				return false
			}
		case '{', '[':
			depth++
			s.pos++
		default:
			depth--
			s.pos++
		}
		if depth == 0 {
			return true
		}
		if depth < 0 {
			return false
		}
	}
}

// beyondText moves past a string with its escapes.
func (s *jsonScanner) beyondText() bool {
	for s.pos++; ; {
		i := bytes.IndexByte(s.raw[s.pos:], '"')
		if i < 0 {
			return false
		}
		if j := bytes.IndexByte(s.raw[s.pos:s.pos+i], '\\'); j >= 0 {
			if s.pos += j + 2; s.pos > len(s.raw) {
				return false
			}
			continue
		}
		s.pos += i + 1
		return true
	}
}

// indexes takes an array of indexes and nulls.
func (s *jsonScanner) indexes(out *[]int32) bool {
	return list(s, out, func(v *int32) bool {
		if s.null() {
			*v = freeOrdinal
			return true
		}
		n, ok := s.integer()
		*v = int32(n)
		return ok && n >= 0 && n <= 1<<31-1
	})
}

// counts takes an object of numbers.
func (s *jsonScanner) counts(out *blockCounts) bool {
	if s.null() {
		*out = nil
		return true
	}
	if !s.is('{') {
		return false
	}
	*out = (*out)[:0]
	for first := true; ; first = false {
		cidr, more, ok := s.member(first)
		if !ok || !more {
			return ok
		}
		n, ok := s.integer()
		if !ok {
			return false
		}
		*out = append(*out, blockCount{string(cidr), int(n)})
	}
}

// texts takes an object of strings.
func (s *jsonScanner) texts(out *map[string]string) bool {
	if s.null() {
		return true
	}
	if !s.is('{') {
		return false
	}
	m := map[string]string{}
	for first := true; ; first = false {
		key, more, ok := s.member(first)
		if !ok || !more {
			*out = m
			return ok
		}
		value, ok := s.text()
		if !ok {
			return false
		}
		m[string(key)] = string(value)
	}
}
