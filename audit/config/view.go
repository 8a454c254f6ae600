package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// View is the effective configuration as YAML, secrets masked.
func (c *Config) View() []byte {
	p := printer{}
	p.section(newTree(nil).root, reflect.ValueOf(c).Elem(), "", "")
	return p.text()
}

// Example is a configuration file that shows every setting with its default and its documentation,
// and one sample of each list.
func Example(specs []CheckSpec) []byte {
	t := newTree(specs)
	p := printer{docs: true, tree: t}
	for _, line := range strings.Split(exampleHead, "\n") {
		p.add(line, "")
	}
	p.section(t.root, t.root.build(nil), "", "")
	return p.text()
}

const exampleHead = `# Every setting of ipamaudit with its default. Keep what you change, leave out the rest.
# The lists (clusters, checks, suppressions, ...) show one sample each; they are empty by default.
#
# Settings outside lists can also come from the environment: IPAMAUDIT_ and the path in capitals,
# such as IPAMAUDIT_JIRA_TOKEN_FILE for jira.tokenFile. Flags win over the environment, and that over
# this file. Unknown keys and wrong values are errors: "ipamaudit config validate" lists them all.`

// printer writes one setting a line, its documentation behind it.
type printer struct {
	docs  bool // show documentation, and samples for empty lists
	tree  *tree
	lines []line
}

type line struct{ text, doc string }

func (p *printer) add(text, doc string) { p.lines = append(p.lines, line{text, doc}) }

// section writes the keys of a struct. In a list, first is what the first line begins with ("- ").
func (p *printer) section(k *key, v reflect.Value, indent, first string) {
	for i, c := range k.keys {
		lead := indent
		if i == 0 {
			lead += first
		} else {
			lead += strings.Repeat(" ", len(first))
		}
		if p.docs && indent == "" && first == "" {
			p.add("", "")
			for _, text := range wrap(c.doc, 98) {
				p.add("# "+text, "")
			}
		}
		p.setting(c, v.Field(c.field), lead)
	}
}

func (p *printer) setting(c *key, v reflect.Value, lead string) {
	doc, inner := c.comment(), strings.Repeat(" ", utf8.RuneCountInString(lead)+2)
	if lead == "" {
		doc = "" // stands above the section
	}
	switch {
	case c.kind == kindSection:
		p.add(lead+c.name+":", doc)
		p.section(c, v, inner, "")
	case c.kind != kindList:
		p.add(lead+c.name+": "+p.word(c, v), doc)
	case v.Len() > 0:
		p.add(lead+c.name+":", doc)
		for i := range v.Len() {
			p.section(c, v.Index(i), inner, "- ")
		}
	case !p.docs:
		p.add(lead+c.name+": []", doc)
	case c.child("params") != nil:
		p.add(lead+c.name+":", doc)
		p.sampleChecks(c, inner, lead == "")
	default:
		p.add(lead+c.name+":", doc)
		p.section(c, c.build(nil), inner, "- ")
	}
}

// sampleChecks shows the catalogue with all parameters, or, for a cluster, one of them.
func (p *printer) sampleChecks(c *key, indent string, all bool) {
	specs := p.tree.specs
	if len(specs) == 0 {
		specs = []CheckSpec{{ID: "pool-utilisation"}}
	}
	if !all {
		i := max(0, slices.IndexFunc(specs, func(s CheckSpec) bool { return len(s.Params) > 0 }))
		specs = specs[i : i+1]
	}
	sample := c.build(nil)
	for n, spec := range specs {
		for _, k := range c.keys {
			switch {
			case k.name == "id":
				p.add(indent+"- id: "+spec.ID, "")
			case k.kind == kindParams && len(spec.Params) > 0:
				p.add(indent+"  params:", "")
				for _, param := range p.tree.params[spec.ID].keys {
					p.add(indent+"    "+param.name+": "+flow(plain(param.def)), param.comment())
					if !all {
						break
					}
				}
			case n == 0:
				p.setting(k, sample.Field(k.field), indent+"  ")
			}
		}
	}
}

// word writes a value on one line.
func (p *printer) word(c *key, v reflect.Value) string {
	if p.docs && c.example != "" {
		return c.example
	}
	if c.kind == kindSecret {
		return flow(Secret(v.String()).String())
	}
	return flow(plain(v.Interface()))
}

// plain writes durations and times as people write them.
func plain(v any) any {
	switch v := v.(type) {
	case time.Duration:
		return durationText(v)
	case time.Time:
		return v.Format(time.RFC3339)
	case map[string]any:
		m := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			m[name] = plain(v[name])
		}
		return m
	case map[string]string:
		if v == nil {
			return map[string]string{}
		}
	case []string:
		if v == nil {
			return []string{}
		}
	}
	return v
}

func flow(value any) string {
	var n yaml.Node
	if err := n.Encode(value); err != nil {
		return quote(err.Error()) // cannot happen: values came out of YAML
	}
	if n.Kind != yaml.ScalarNode {
		n.Style = yaml.FlowStyle
	}
	out, err := yaml.Marshal(&n)
	if err != nil {
		return quote(err.Error())
	}
	return strings.TrimSpace(string(out))
}

// text joins the lines. Documentation stands in one column as far as the lines around it allow.
func (p *printer) text() []byte {
	const widest = 46 // a longer line pushes only its own documentation
	var b strings.Builder
	for start := 0; start < len(p.lines); {
		end, column := start, 0
		for end < len(p.lines) && p.lines[end].text != "" {
			if n := utf8.RuneCountInString(p.lines[end].text); n <= widest && p.lines[end].doc != "" {
				column = max(column, n)
			}
			end++
		}
		for _, l := range p.lines[start:end] {
			b.WriteString(l.text)
			if p.docs && l.doc != "" {
				b.WriteString(strings.Repeat(" ", max(0, column-utf8.RuneCountInString(l.text))) + "  # " + l.doc)
			}
			b.WriteByte('\n')
		}
		if end < len(p.lines) {
			b.WriteByte('\n')
			end++
		}
		start = end
	}
	return []byte(b.String())
}

func wrap(text string, width int) []string {
	var lines []string
	for _, word := range strings.Fields(text) {
		last := len(lines) - 1
		if last >= 0 && utf8.RuneCountInString(lines[last])+1+utf8.RuneCountInString(word) <= width {
			lines[last] += " " + word
			continue
		}
		lines = append(lines, word)
	}
	return lines
}
