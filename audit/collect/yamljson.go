package collect

import (
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// yamlEncoder writes YAML nodes as JSON. Integers keep every digit (sequence
// numbers lie beyond 2^53), timestamps stay the text they were.
type yamlEncoder struct {
	out []byte
	// aliased is the depth of aliases being expanded, spent the nodes they took.
	aliased, spent int
}

func (e *yamlEncoder) node(n *yaml.Node) error {
	if e.aliased > 0 {
		if e.spent++; e.spent > maxAliasNodes {
			return errAliases
		}
	}
	switch n.Kind {
	case yaml.DocumentNode:
		if len(n.Content) != 1 {
			return fmt.Errorf("line %d: a document holds one value", n.Line)
		}
		return e.node(n.Content[0])
	case yaml.AliasNode:
		if e.aliased > 100 {
			return errAliases
		}
		e.aliased++
		defer func() { e.aliased-- }()
		return e.node(n.Alias)
	case yaml.SequenceNode:
		e.out = append(e.out, '[')
		for i, c := range n.Content {
			if i > 0 {
				e.out = append(e.out, ',')
			}
			if err := e.node(c); err != nil {
				return err
			}
		}
		e.out = append(e.out, ']')
		return nil
	case yaml.MappingNode:
		e.out = append(e.out, '{')
		for i := 0; i+1 < len(n.Content); i += 2 {
			if i > 0 {
				e.out = append(e.out, ',')
			}
			k := n.Content[i]
			if k.Kind != yaml.ScalarNode || k.Tag == "!!merge" {
				return fmt.Errorf("line %d: keys must be plain texts", k.Line)
			}
			if err := e.text(k.Value, k.Line); err != nil {
				return err
			}
			e.out = append(e.out, ':')
			if err := e.node(n.Content[i+1]); err != nil {
				return err
			}
		}
		e.out = append(e.out, '}')
		return nil
	default:
		return e.scalar(n)
	}
}

func (e *yamlEncoder) scalar(n *yaml.Node) error {
	switch n.ShortTag() {
	case "!!null":
		e.out = append(e.out, "null"...)
	case "!!bool":
		var v bool
		if err := n.Decode(&v); err != nil {
			return err
		}
		e.out = strconv.AppendBool(e.out, v)
	case "!!int":
		if v, err := strconv.ParseInt(n.Value, 0, 64); err == nil {
			e.out = strconv.AppendInt(e.out, v, 10)
			return nil
		}
		var v uint64
		if err := n.Decode(&v); err != nil {
			return fmt.Errorf("line %d: %q is no integer of 64 bits", n.Line, n.Value)
		}
		e.out = strconv.AppendUint(e.out, v, 10)
	case "!!float":
		var v float64
		if err := n.Decode(&v); err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("line %d: %q is no number", n.Line, n.Value)
		}
		e.out = strconv.AppendFloat(e.out, v, 'g', -1, 64)
	case "!!binary":
		raw, err := base64.StdEncoding.DecodeString(n.Value)
		if err != nil {
			return fmt.Errorf("line %d: invalid !!binary", n.Line)
		}
		return e.text(string(raw), n.Line)
	default:
		return e.text(n.Value, n.Line)
	}
	return nil
}

func (e *yamlEncoder) text(s string, line int) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("line %d: not valid UTF-8", line)
	}
	out, err := jsontext.AppendQuote(e.out, s)
	e.out = out
	return err
}
