package collect

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// protoDecoder reads the built-in kinds as the API server stores them, which
// costs both sides a fraction of JSON. It fills the same wire types: their
// fields carry the number of the protobuf field next to its JSON name
// (k8s.io/api/core/v1/generated.proto, k8s.io/apimachinery/…/meta/v1/generated.proto),
//
//	pb:"5"           a field
//	pb:"12,strings"  a map of strings, of which the struct names the keys it wants
//	pb:"1,amounts"   a map of quantities, likewise
//	pb:"-"           JSON only
//
// and everything without a number is skipped unread. It is not safe for
// concurrent use.
type protoDecoder struct {
	plans map[reflect.Type]protoPlan
}

func newProtoDecoder() *protoDecoder { return &protoDecoder{plans: map[reflect.Type]protoPlan{}} }

// protoPlan says where the fields of a struct go: by their number, or by their
// key where the struct stands for a map.
type protoPlan struct {
	byNumber map[protowire.Number]protoField
	byKey    map[string]protoField
}

type protoField struct {
	index []int
	// form is "", "strings" or "amounts".
	form string
}

// decode fills the struct that w points to.
func (d *protoDecoder) decode(raw []byte, w any) error {
	return d.message(raw, reflect.ValueOf(w).Elem())
}

func (d *protoDecoder) plan(t reflect.Type) protoPlan {
	if p, ok := d.plans[t]; ok {
		return p
	}
	p := protoPlan{byNumber: map[protowire.Number]protoField{}, byKey: map[string]protoField{}}
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous {
			continue
		}
		number, form, _ := strings.Cut(f.Tag.Get("pb"), ",")
		if n, err := strconv.ParseInt(number, 10, 32); err == nil {
			p.byNumber[protowire.Number(n)] = protoField{f.Index, form}
		}
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		p.byKey[key] = protoField{index: f.Index}
	}
	d.plans[t] = p
	return p
}

var errWireType = errors.New("unexpected protobuf wire type")

func (d *protoDecoder) message(raw []byte, v reflect.Value) error {
	plan := d.plan(v.Type())
	for len(raw) > 0 {
		number, typ, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return protowire.ParseError(n)
		}
		raw = raw[n:]
		f, wanted := plan.byNumber[number]
		if n = protowire.ConsumeFieldValue(number, typ, raw); n < 0 {
			return protowire.ParseError(n)
		}
		value := raw[:n]
		raw = raw[n:]
		if !wanted {
			continue
		}
		if err := d.field(v.FieldByIndex(f.index), f.form, typ, value); err != nil {
			return fmt.Errorf("field %d: %w", number, err)
		}
	}
	return nil
}

func (d *protoDecoder) field(v reflect.Value, form string, typ protowire.Type, value []byte) error {
	switch typ {
	case protowire.VarintType:
		x, _ := protowire.ConsumeVarint(value)
		switch v.Kind() {
		case reflect.Bool:
			v.SetBool(protowire.DecodeBool(x))
		case reflect.Int:
			v.SetInt(int64(x)) //nolint:gosec // negative numbers are written as their two's complement
		default:
			return errWireType
		}
		return nil
	case protowire.BytesType:
		value, _ = protowire.ConsumeBytes(value)
	default:
		return errWireType
	}
	if form != "" {
		return d.entry(v, form, value)
	}
	return d.value(v, value)
}

// value sets v from the bytes of a string or message.
func (d *protoDecoder) value(v reflect.Value, raw []byte) error {
	switch target := v.Addr().Interface().(type) {
	case *stamp:
		return protoTime(target, raw)
	case *flexNumber:
		return target.UnmarshalJSON(raw)
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(protoString(raw))
		return nil
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		return d.value(v.Elem(), raw)
	case reflect.Slice:
		n := v.Len()
		v.Grow(1)
		v.SetLen(n + 1)
		v.Index(n).SetZero()
		return d.value(v.Index(n), raw)
	case reflect.Struct:
		return d.message(raw, v)
	default:
		return errWireType
	}
}

// entry puts one entry of a map where it belongs: v is a map of strings, or a
// struct that names the keys it wants.
func (d *protoDecoder) entry(v reflect.Value, form string, raw []byte) error {
	key, value, err := protoPair(raw)
	if err != nil {
		return err
	}
	if form == "amounts" {
		if value, _, err = protoPair(value); err != nil { // a Quantity holds its text as field 1
			return err
		}
	}
	if m, ok := v.Addr().Interface().(*map[string]string); ok {
		if *m == nil {
			*m = map[string]string{}
		}
		(*m)[protoString(key)] = protoString(value)
		return nil
	}
	f, wanted := d.plan(v.Type()).byKey[string(key)]
	if !wanted {
		return nil
	}
	return d.value(v.FieldByIndex(f.index), value)
}

// protoPair reads fields 1 and 2 of a message, both bytes.
func protoPair(raw []byte) (first, second []byte, err error) {
	for len(raw) > 0 {
		number, typ, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return nil, nil, protowire.ParseError(n)
		}
		raw = raw[n:]
		if typ != protowire.BytesType {
			return nil, nil, errWireType
		}
		value, n := protowire.ConsumeBytes(raw)
		if n < 0 {
			return nil, nil, protowire.ParseError(n)
		}
		raw = raw[n:]
		switch number {
		case 1:
			first = value
		case 2:
			second = value
		}
	}
	return first, second, nil
}

// protoTime reads Time and MicroTime: seconds and nanoseconds. The zero time is
// an empty message.
func protoTime(s *stamp, raw []byte) error {
	var seconds, nanos uint64
	if len(raw) == 0 {
		return nil
	}
	for len(raw) > 0 {
		number, typ, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return protowire.ParseError(n)
		}
		raw = raw[n:]
		if typ != protowire.VarintType {
			return errWireType
		}
		x, n := protowire.ConsumeVarint(raw)
		if n < 0 {
			return protowire.ParseError(n)
		}
		raw = raw[n:]
		switch number {
		case 1:
			seconds = x
		case 2:
			nanos = x
		}
	}
	s.Time = time.Unix(int64(seconds), int64(nanos)).UTC() //nolint:gosec // as written: two's complement
	return nil
}

// protoString copies a string; unlike JSON, protobuf lets broken UTF-8 pass.
func protoString(raw []byte) string {
	if !utf8.Valid(raw) {
		return strings.ToValidUTF8(string(raw), "\uFFFD")
	}
	return string(raw)
}
