package config

import (
	"encoding/json"
	"fmt"
)

// Schema is the JSON Schema (2020-12) of the configuration file, for editors and for the CI of those
// who keep it in Git. What takes two settings to judge is left to Load.
func Schema(specs []CheckSpec) ([]byte, error) {
	t := newTree(specs)
	schema := t.section(t.root)
	schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	schema["title"] = "ipamaudit configuration"
	out, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("configuration schema: %w", err)
	}
	return append(out, '\n'), nil
}

type object = map[string]any

func (t *tree) section(k *key) object {
	properties, required := object{}, []string{}
	for _, c := range k.keys {
		properties[c.name] = t.schema(c)
		if c.required {
			required = append(required, c.name)
		}
	}
	// null: all lines of a section commented out.
	s := object{"type": []string{"object", "null"}, "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		s["required"] = required
		s["type"] = "object"
	}
	if k.child("params") != nil && len(t.specs) > 0 {
		var rules []object
		for _, spec := range t.specs {
			rules = append(rules, object{
				"if":   object{"properties": object{"id": object{"const": spec.ID}}},
				"then": object{"properties": object{"params": t.section(t.params[spec.ID])}},
			})
		}
		s["allOf"] = rules
	}
	return s
}

func (t *tree) schema(k *key) object {
	var s object
	switch k.kind {
	case kindSection:
		s = t.section(k)
	case kindList:
		s = object{"type": []string{"array", "null"}, "items": t.section(&key{keys: k.keys})}
	case kindTexts:
		s = object{"type": "array", "items": t.schema(&key{kind: kindText, format: k.format, required: true})}
	case kindLabels:
		s = object{"type": []string{"object", "null"}, "additionalProperties": object{"type": "string"}}
	case kindParams:
		s = object{"type": []string{"object", "null"}}
	case kindAny:
		s = object{"not": object{"type": "null"}}
	case kindBool:
		s = object{"type": "boolean"}
	case kindInteger:
		s = limits(k, object{"type": "integer"})
	case kindNumber:
		s = limits(k, object{"type": "number"})
	case kindDuration:
		s = object{"type": "string", "pattern": `^(0|(\d+y)?(\d+w)?(\d+d)?(\d+h)?(\d+m)?(\d+s)?(\d+ms)?)$`, "minLength": 1}
	case kindTime:
		s = object{"type": "string", "pattern": `^\d{4}-\d\d-\d\d(T.+)?$`}
	default:
		s = object{"type": "string"}
		text(k, s)
	}
	if k.doc != "" {
		s["description"] = k.doc
	}
	switch {
	case k.def == nil:
	case k.kind == kindDuration:
		s["default"] = plain(k.def)
	default:
		s["default"] = k.def
	}
	return s
}

func limits(k *key, s object) object {
	if k.min != nil {
		s["minimum"] = *k.min
	}
	if k.max != nil {
		s["maximum"] = *k.max
	}
	return s
}

func text(k *key, s object) {
	if k.enum != nil {
		s["enum"] = k.enum
		return
	}
	if k.required {
		s["minLength"] = 1
	}
	if pattern := formats[k.format].pattern; pattern != nil {
		s["pattern"] = pattern.String()
		if !k.required {
			s["pattern"] = "^$|" + pattern.String() // empty is as good as not set
		}
	}
}
