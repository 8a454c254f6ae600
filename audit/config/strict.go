package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	maxFile  = 4 << 20 // bytes; a thousand clusters need a tenth
	maxNodes = 200_000 // after aliases are followed: the limit of a YAML bomb
	maxDepth = 20      // of values whose shape is free
)

// reader turns a file, the environment and flags into values of the right Go types. Everything it
// does not like goes to f.
type reader struct {
	tree  *tree
	f     *findings
	nodes int
}

// readFile reads no more than a configuration can need.
func readFile(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("configuration: %s is larger than %d MiB", file, maxFile>>20)
	}
	return data, nil
}

// yamlLine finds the place in the parser's messages: "yaml: line 3: did not find …".
var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?`)

// document reads the one document of a file as a tree that still knows its lines.
func (r *reader) document(data []byte) map[string]any {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc, next yaml.Node
	err := decoder.Decode(&doc)
	if errors.Is(err, io.EOF) {
		r.f.warn("", "is empty: every setting has its default")
		return nil
	}
	if err == nil {
		if err = decoder.Decode(&next); errors.Is(err, io.EOF) {
			err = nil
		} else if err == nil {
			r.f.failAt(Problem{File: r.f.file, Line: next.Line, Message: "a second document starts here: only one is allowed"})
		}
	}
	if err != nil {
		match := yamlLine.FindStringSubmatch(err.Error())
		line, _ := strconv.Atoi(match[1])
		r.f.failAt(Problem{File: r.f.file, Line: line, Message: "is not YAML: " + err.Error()[len(match[0]):]})
		return nil
	}
	values, _ := r.value(&doc, r.tree.root, "").(map[string]any)
	if r.nodes > maxNodes {
		// What was found until then is noise.
		r.f.problems = []Problem{{File: r.f.file, Message: fmt.Sprintf("its aliases expand to more than %d values", maxNodes)}}
	}
	return values
}

// value reads one node as its key says; nil if it is empty or wrong.
func (r *reader) value(n *yaml.Node, k *key, path string) any {
	n = r.resolve(n)
	if n == nil {
		return nil
	}
	if _, ok := r.f.origins[path]; !ok && path != "" {
		r.f.origins[path] = origin{file: r.f.file, line: n.Line}
	}
	if n.ShortTag() == "!!null" && n.Kind == yaml.ScalarNode {
		// A section whose lines are all commented out is common; a setting without value is not.
		if k.kind != kindSection && k.kind != kindList && k.kind != kindParams && k.kind != kindLabels {
			r.f.fail(path, "has no value: give one or remove the key")
		}
		return nil
	}
	switch k.kind {
	case kindSection:
		if values := r.section(n, k, path); values != nil {
			return values
		}
		return nil
	case kindList:
		return r.list(n, k, path)
	case kindTexts:
		return r.texts(n, k, path)
	case kindLabels:
		return r.labels(n, k, path)
	case kindParams, kindAny:
		if k.kind == kindParams && n.Kind != yaml.MappingNode {
			return r.wrongKind(n, k, path)
		}
		return r.free(n, path, 0)
	default:
		return r.single(n, k, path)
	}
}

// resolve follows documents and aliases and counts what it sees; nil once that is too much.
func (r *reader) resolve(n *yaml.Node) *yaml.Node {
	for {
		if r.nodes++; r.nodes > maxNodes {
			return nil
		}
		switch {
		case n.Kind == yaml.AliasNode:
			n = n.Alias
		case n.Kind == yaml.DocumentNode && len(n.Content) > 0:
			n = n.Content[0]
		default:
			return n
		}
	}
}

type entry struct {
	key, value *yaml.Node
}

// entries lists a mapping, merge keys (<<) expanded: own keys win, then the first merged.
func (r *reader) entries(n *yaml.Node, path string, depth int) []entry {
	var own, merged []entry
	lines := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := r.resolve(n.Content[i]), n.Content[i+1]
		if name == nil {
			return nil
		}
		if name.ShortTag() == "!!merge" {
			merged = append(merged, r.merge(value, path, depth)...)
			continue
		}
		if name.Kind != yaml.ScalarNode {
			r.f.failAt(Problem{File: r.f.file, Line: name.Line, Path: path, Message: "a key must be one word"})
			continue
		}
		if first, ok := lines[name.Value]; ok {
			r.f.failAt(Problem{File: r.f.file, Line: name.Line, Path: join(path, printable(name.Value)), Message: fmt.Sprintf("is set twice, first in line %d", first)})
			continue
		}
		lines[name.Value] = name.Line
		own = append(own, entry{name, value})
	}
	for _, e := range merged {
		if _, ok := lines[e.key.Value]; !ok {
			lines[e.key.Value] = e.key.Line
			own = append(own, e)
		}
	}
	return own
}

func (r *reader) merge(n *yaml.Node, path string, depth int) []entry {
	line := n.Line
	if n = r.resolve(n); n == nil {
		return nil
	}
	var all []entry
	switch {
	case depth > maxDepth:
		r.f.failAt(Problem{File: r.f.file, Line: line, Path: path, Message: "merges are nested too deeply"})
	case n.Kind == yaml.MappingNode:
		return r.entries(n, path, depth+1)
	case n.Kind == yaml.SequenceNode:
		for _, item := range n.Content {
			all = append(all, r.merge(item, path, depth+1)...)
		}
	default:
		r.f.failAt(Problem{File: r.f.file, Line: line, Path: path, Message: "<< wants the alias of a mapping"})
	}
	return all
}

func (r *reader) section(n *yaml.Node, k *key, path string) map[string]any {
	if n.Kind != yaml.MappingNode {
		r.wrongKind(n, k, path)
		return nil
	}
	values := map[string]any{}
	entries := r.entries(n, path, 0)
	for _, e := range entries {
		name := e.key.Value
		c := k.child(name)
		if c == nil {
			r.unknown(e.key, k, path)
			continue
		}
		at := join(path, name)
		r.f.origins[at] = origin{file: r.f.file, line: e.key.Line}
		if c.kind == kindParams {
			c = r.params(c, entries)
		}
		if v := r.value(e.value, c, at); v != nil {
			values[name] = v
		}
	}
	for _, c := range k.keys {
		_, given := values[c.name]
		if c.required && !given && r.nodes <= maxNodes {
			r.f.fail(join(path, c.name), "is required")
		}
	}
	return values
}

// params is the section of a check's parameters, by the id beside it.
func (r *reader) params(free *key, siblings []entry) *key {
	for _, e := range siblings {
		if e.key.Value != "id" {
			continue
		}
		if id := r.resolve(e.value); id != nil && r.tree.params[id.Value] != nil {
			return r.tree.params[id.Value]
		}
	}
	return free // unknown id: reported there
}

// unknown reports a key that does not exist, with what was probably meant: a neighbour, or a key of
// this very name that lives elsewhere.
func (r *reader) unknown(name *yaml.Node, k *key, path string) {
	p := Problem{File: r.f.file, Line: name.Line, Path: join(path, printable(name.Value)), Message: "unknown key"}
	if len(r.f.problems) >= mostShown {
		r.f.failAt(p) // nobody will read a suggestion, and they take their time
		return
	}
	if p.Suggestion = Nearest(name.Value, k.names()); p.Suggestion != "" {
		r.f.named[join(path, p.Suggestion)] = true
	} else {
		var homes []string
		r.tree.root.walk("", func(at string, c *key) {
			if c.name == name.Value && at != path {
				homes = append(homes, at)
			}
		})
		if len(homes) == 1 {
			p.Suggestion = homes[0]
		}
	}
	if p.Suggestion == "" {
		p.Message += "; known here: " + strings.Join(k.names(), ", ")
		if len(k.keys) == 0 {
			p.Message = "unknown key; nothing can be set here"
		}
	}
	r.f.failAt(p)
}

func (r *reader) list(n *yaml.Node, k *key, path string) any {
	if n.Kind != yaml.SequenceNode {
		return r.wrongKind(n, k, path)
	}
	list := reflect.MakeSlice(k.typ, 0, len(n.Content))
	item := &key{kind: kindSection, keys: k.keys}
	for i, content := range n.Content {
		at := indexed(path, i)
		r.f.origins[at] = origin{file: r.f.file, line: content.Line}
		values, ok := r.value(content, item, at).(map[string]any)
		if !ok && r.nodes <= maxNodes {
			r.f.fail(at, "is empty")
		}
		list = reflect.Append(list, k.build(values))
	}
	return list.Interface()
}

func (r *reader) texts(n *yaml.Node, k *key, path string) any {
	if n.Kind != yaml.SequenceNode {
		return r.wrongKind(n, k, path)
	}
	texts := make([]string, 0, len(n.Content))
	item := &key{kind: kindText, format: k.format, enum: k.enum, required: true}
	for i, content := range n.Content {
		if text, ok := r.value(content, item, indexed(path, i)).(string); ok {
			texts = append(texts, text)
		}
	}
	return texts
}

func (r *reader) labels(n *yaml.Node, k *key, path string) any {
	if n.Kind != yaml.MappingNode {
		return r.wrongKind(n, k, path)
	}
	labels := map[string]string{}
	item := &key{kind: kindText}
	for _, e := range r.entries(n, path, 0) {
		at := join(path, printable(e.key.Value))
		if problem := item.checkText(e.key.Value); problem != "" {
			r.f.fail(at, "its name %s", problem)
		}
		if text, ok := r.value(e.value, item, at).(string); ok {
			labels[e.key.Value] = text
		}
	}
	return labels
}

// free reads a value of any shape: fields of Jira, parameters of a check that is not known.
func (r *reader) free(n *yaml.Node, path string, depth int) any {
	if n = r.resolve(n); n == nil {
		return nil
	}
	if depth > maxDepth {
		r.f.fail(path, "is nested too deeply")
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for _, e := range r.entries(n, path, 0) {
			m[e.key.Value] = r.free(e.value, path, depth+1)
		}
		return m
	case yaml.SequenceNode:
		list := make([]any, 0, len(n.Content))
		for _, content := range n.Content {
			list = append(list, r.free(content, path, depth+1))
		}
		return list
	default:
		if n.ShortTag() == "!!timestamp" {
			return n.Value // JSON has no dates
		}
		var v any
		if err := n.Decode(&v); err != nil {
			r.f.fail(path, "cannot be read: %v", err)
		}
		return v
	}
}

// yamlTags are the types of YAML that a kind takes. Texts must be texts: a version 1.10 without
// quotes is the number 1.1 to the next reader of the file.
var yamlTags = map[kind][]string{
	kindText:     {"!!str", "!!timestamp"},
	kindSecret:   {"!!str", "!!timestamp"},
	kindDuration: {"!!str"},
	kindTime:     {"!!str", "!!timestamp"},
	kindBool:     {"!!bool"},
	kindInteger:  {"!!int"},
	kindNumber:   {"!!int", "!!float"},
}

func (r *reader) single(n *yaml.Node, k *key, path string) any {
	if n.Kind != yaml.ScalarNode || !slices.Contains(yamlTags[k.kind], n.ShortTag()) {
		return r.wrongKind(n, k, path)
	}
	return r.word(n.Value, k, path)
}

// word reads one word of the file, the environment or a flag.
func (r *reader) word(text string, k *key, path string) any {
	v, problem := k.parse(text)
	if problem == "" {
		return v
	}
	p := r.f.at(path, problem)
	if k.enum != nil {
		p.Suggestion = Nearest(text, k.enum)
	}
	r.f.named[path] = true
	r.f.failAt(p)
	return nil
}

func (r *reader) wrongKind(n *yaml.Node, k *key, path string) any {
	got := "a list"
	switch {
	case n.Kind == yaml.MappingNode:
		got = "a mapping"
	case n.Kind == yaml.ScalarNode && k.kind == kindSecret:
		got = "a number or the like: put it in quotes"
	case n.Kind == yaml.ScalarNode && k.kind == kindText:
		got = quote(n.Value) + " without quotes"
	case n.Kind == yaml.ScalarNode:
		got = quote(n.Value)
	}
	if path == "" {
		r.f.failAt(Problem{File: r.f.file, Line: n.Line, Message: fmt.Sprintf("must be %s, not %s", k.kind, got)})
		return nil
	}
	r.f.fail(path, "must be %s, not %s", k.kind, got)
	return nil
}

// printable makes a name of the file safe to print.
func printable(name string) string {
	if q := quote(name); q != `"`+name+`"` {
		return q
	}
	return name
}
