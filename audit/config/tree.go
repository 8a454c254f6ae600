package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// kind is what a setting holds. Its text completes "must be …".
type kind string

const (
	kindSection  kind = "a mapping"
	kindList     kind = "a list of mappings"
	kindTexts    kind = "a list of texts"
	kindLabels   kind = "a mapping of texts"
	kindParams   kind = "a mapping of parameters"
	kindAny      kind = "a value"
	kindText     kind = "text"
	kindSecret   kind = "a secret text" // never echoed
	kindBool     kind = "true or false"
	kindInteger  kind = "a whole number"
	kindNumber   kind = "a number"
	kindDuration kind = `a duration such as "30s", "5m" or "14d"`
	kindTime     kind = `a date such as "2027-03-31" or an RFC 3339 time`
)

// single tells whether the kind is one word, which the environment can set.
func (k kind) single() bool {
	switch k {
	case kindText, kindSecret, kindBool, kindInteger, kindNumber, kindDuration, kindTime:
		return true
	default:
		return false
	}
}

// key describes one setting, or a section of them.
type key struct {
	name     string
	kind     kind
	doc      string
	def      any // a Go value of the field's type; nil: its zero value
	enum     []string
	choices  string   // the enum for people; empty for the ids of checks
	min, max *float64 // of a duration in seconds
	format   string
	required bool
	flag     string
	example  string // YAML
	keys     []*key // of a section, or of the items of a list

	typ   reflect.Type // of the field
	field int          // index in its struct; -1 for a parameter
}

// comment is the documentation with the choices behind it.
func (k *key) comment() string {
	switch {
	case k.choices != "":
		return strings.TrimSpace(k.doc + " (" + k.choices + ")")
	case k.kind == kindList:
		return k.doc + " (sample)"
	}
	return k.doc
}

// child finds a key by its name.
func (k *key) child(name string) *key {
	for _, c := range k.keys {
		if c.name == name {
			return c
		}
	}
	return nil
}

func (k *key) names() []string {
	names := make([]string, len(k.keys))
	for i, c := range k.keys {
		names[i] = c.name
	}
	return names
}

// walk visits the settings outside lists with their paths, sections before their content.
func (k *key) walk(path string, visit func(path string, k *key)) {
	for _, c := range k.keys {
		at := join(path, c.name)
		visit(at, c)
		if c.kind == kindSection {
			c.walk(at, visit)
		}
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func indexed(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// build makes the struct of a section out of the values that were given, defaults for the others.
func (k *key) build(values map[string]any) reflect.Value {
	t := k.typ
	if k.kind == kindList {
		t = t.Elem()
	}
	v := reflect.New(t).Elem()
	for _, c := range k.keys {
		given, ok := values[c.name]
		switch {
		case c.kind == kindSection:
			inner, _ := given.(map[string]any)
			v.Field(c.field).Set(c.build(inner))
		case ok && given != nil:
			v.Field(c.field).Set(reflect.ValueOf(given))
		case c.def != nil:
			v.Field(c.field).Set(reflect.ValueOf(c.def))
		}
	}
	return v
}

// tree is everything that may be configured.
type tree struct {
	root   *key
	specs  []CheckSpec
	params map[string]*key // by check id: a section of its parameters
}

// newTree describes Config, with the checks' ids and parameters filled in. Without specs every id
// and parameter is accepted.
func newTree(specs []CheckSpec) *tree {
	t := &tree{root: sectionOf(reflect.TypeFor[Config]()), params: map[string]*key{}, specs: specs}
	for _, spec := range specs {
		section := &key{kind: kindSection, name: "params"}
		for _, p := range spec.Params {
			section.keys = append(section.keys, p.key())
		}
		t.params[spec.ID] = section
	}
	ids := t.ids()
	t.root.child("checks").child("id").enum = ids
	t.root.child("clusters").child("checks").child("id").enum = ids
	return t
}

// ids is nil without specs.
func (t *tree) ids() []string {
	var ids []string
	for _, spec := range t.specs {
		ids = append(ids, spec.ID)
	}
	return ids
}

// spec is empty for an id without one, as in a Config that was not loaded.
func (t *tree) spec(id string) CheckSpec {
	if t == nil {
		return CheckSpec{}
	}
	for _, spec := range t.specs {
		if spec.ID == id {
			return spec
		}
	}
	return CheckSpec{}
}

func (p ParamSpec) key() *key {
	k := &key{name: p.Name, doc: p.Doc, enum: p.Enum, min: p.Min, max: p.Max, def: p.Default, field: -1}
	k.choices = strings.Join(p.Enum, "|")
	k.kind = map[ParamType]kind{
		ParamNumber: kindNumber, ParamInteger: kindInteger, ParamBool: kindBool,
		ParamDuration: kindDuration, ParamString: kindText,
	}[p.Type]
	if k.kind == "" {
		panic(fmt.Sprintf("parameter %s: unknown type %q", p.Name, p.Type))
	}
	if d, ok := p.Default.(time.Duration); ok {
		k.def = d
	} else if p.Default != nil {
		k.def = k.must(fmt.Sprint(p.Default))
	}
	return k
}

// sectionOf reads the tags of a struct. A wrong tag is a mistake in this package and panics.
func sectionOf(t reflect.Type) *key {
	section := &key{kind: kindSection, typ: t}
	for i := range t.NumField() {
		field := t.Field(i)
		tag := field.Tag
		if name := tag.Get("yaml"); name == "" || name == "-" {
			continue
		}
		k := &key{
			name: tag.Get("yaml"), kind: kindOf(field.Type), doc: tag.Get("doc"), format: tag.Get("format"),
			required: tag.Get("required") == "true", flag: tag.Get("flag"), example: tag.Get("example"),
			typ: field.Type, field: i,
		}
		if enum := tag.Get("enum"); enum != "" {
			k.enum = strings.Split(enum, ",")
			k.choices = strings.ReplaceAll(enum, ",", "|")
		}
		if k.kind == kindSection {
			k.keys = sectionOf(field.Type).keys
		}
		if k.kind == kindList {
			k.keys = sectionOf(field.Type.Elem()).keys
		}
		k.min, k.max = k.limit(tag.Get("min")), k.limit(tag.Get("max"))
		if text := tag.Get("default"); text != "" {
			k.def = k.must(text)
		}
		section.keys = append(section.keys, k)
	}
	return section
}

func kindOf(t reflect.Type) kind {
	switch t {
	case reflect.TypeFor[string]():
		return kindText
	case reflect.TypeFor[Secret]():
		return kindSecret
	case reflect.TypeFor[bool]():
		return kindBool
	case reflect.TypeFor[int]():
		return kindInteger
	case reflect.TypeFor[float64]():
		return kindNumber
	case reflect.TypeFor[time.Duration]():
		return kindDuration
	case reflect.TypeFor[time.Time]():
		return kindTime
	case reflect.TypeFor[[]string]():
		return kindTexts
	case reflect.TypeFor[map[string]string]():
		return kindLabels
	case reflect.TypeFor[map[string]any]():
		return kindParams
	case reflect.TypeFor[any]():
		return kindAny
	}
	if t.Kind() == reflect.Slice {
		return kindList
	}
	return kindSection
}

func (k *key) limit(text string) *float64 {
	if text == "" {
		return nil
	}
	limit, err := strconv.ParseFloat(text, 64)
	if k.kind == kindDuration {
		var d time.Duration
		d, err = parseDuration(text)
		limit = d.Seconds()
	}
	if err != nil {
		panic(fmt.Sprintf("limit of %s: %v", k.name, err))
	}
	return &limit
}

// must parses text that this program wrote.
func (k *key) must(text string) any {
	if k.kind == kindTexts {
		var list []string
		if err := yaml.Unmarshal([]byte(text), &list); err != nil {
			panic(fmt.Sprintf("default of %s: %v", k.name, err))
		}
		return slices.Clip(list)
	}
	v, problem := k.parse(text)
	if problem != "" {
		panic(fmt.Sprintf("default of %s: %s", k.name, problem))
	}
	return v
}
