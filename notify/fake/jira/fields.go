package fakejira

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf16"
)

// changes is what a create, an edit or a transition wants of an issue: the two
// ways to say it, and where they are said.
type changes struct {
	Fields     map[string]json.RawMessage              `json:"fields"`
	Update     map[string][]map[string]json.RawMessage `json:"update"`
	Properties []struct {
		Key   string          `json:"key"`
		Value json.RawMessage `json:"value"`
	} `json:"properties"`
}

// Limits of Jira, in the UTF-16 units that Java counts.
const (
	maxSummary  = 255
	maxLabel    = 255
	maxText     = 32767
	maxProperty = 32768
	maxKey      = 255
)

// fieldRules checks and stores the fields of one request. It collects all
// mistakes, as Jira does, and the caller throws the issue away if there are any.
type fieldRules struct {
	server  *Server
	project *project
	issue   *Issue
	errors  map[string]string
}

func (r *fieldRules) refuse(field, message string) { r.errors[field] = message }

// apply runs over both forms of a change. project and issuetype are the caller's.
func (r *fieldRules) apply(c changes) {
	for _, id := range slices.Sorted(maps.Keys(c.Fields)) {
		if _, twice := c.Update[id]; twice {
			r.refuse(id, fmt.Sprintf("Field '%s' cannot appear in both 'fields' and 'update'", id))
			continue
		}
		r.set(id, c.Fields[id])
	}
	for _, id := range slices.Sorted(maps.Keys(c.Update)) {
		if id == "comment" {
			continue // the caller's
		}
		for _, operation := range c.Update[id] {
			for _, verb := range slices.Sorted(maps.Keys(operation)) {
				r.operate(id, verb, operation[verb])
			}
		}
	}
}

func (r *fieldRules) operate(id, verb string, value json.RawMessage) {
	switch {
	case verb == "set":
		r.set(id, value)
	case (id == "labels" || id == "components") && (verb == "add" || verb == "remove"):
		if r.offScreen(id) {
			return
		}
		list := &r.issue.Labels
		read := func() (string, bool) { return r.label(value) }
		if id == "components" {
			list = &r.issue.Components
			read = func() (string, bool) { return r.component(value) }
		}
		name, ok := read()
		if !ok {
			return
		}
		*list = slices.DeleteFunc(slices.Clone(*list), func(have string) bool { return have == name })
		if verb == "add" {
			*list = append(*list, name)
		}
	default:
		r.refuse(id, fmt.Sprintf("Field '%s' does not support update '%s'", id, verb))
	}
}

func (r *fieldRules) offScreen(id string) bool {
	if slices.Contains(r.project.OffScreen, id) {
		r.refuse(id, notOnScreen(id))
		return true
	}
	return false
}

func notOnScreen(id string) string {
	return fmt.Sprintf("Field '%s' cannot be set. It is not on the appropriate screen, or unknown.", id)
}

var customField = regexp.MustCompile(`^customfield_\d+$`)

func (r *fieldRules) set(id string, value json.RawMessage) {
	if r.offScreen(id) {
		return
	}
	isNull := string(value) == "null"
	switch id {
	case "summary":
		r.summary(value)
	case "description":
		if isNull {
			r.issue.Description = ""
		} else if text, ok := r.text(id, value); ok {
			r.issue.Description = text
		}
	case "labels":
		r.labels(value)
	case "priority":
		r.priority(value)
	case "components":
		r.components(value)
	case "assignee", "reporter":
		if isNull || r.userRef(id, value) {
			r.store(id, value)
		}
	case "parent", "duedate", "environment", "fixVersions", "versions", "security", "timetracking":
		r.store(id, value)
	default:
		r.custom(id, value)
	}
}

func (r *fieldRules) store(id string, value json.RawMessage) {
	if r.issue.Fields == nil {
		r.issue.Fields = map[string]json.RawMessage{}
	}
	if string(value) == "null" {
		delete(r.issue.Fields, id)
		return
	}
	r.issue.Fields[id] = value
}

func (r *fieldRules) summary(value json.RawMessage) {
	var text string
	if json.Unmarshal(value, &text) != nil {
		r.refuse("summary", "Operation value must be a string")
		return
	}
	switch {
	case strings.TrimSpace(text) == "":
		r.refuse("summary", "You must specify a summary of the issue.")
	case strings.ContainsAny(text, "\r\n"):
		r.refuse("summary", "The summary is invalid because it contains newline characters.")
	case length(text) > maxSummary && r.server.cfg.Flavour == Cloud:
		r.refuse("summary", "Summary can't exceed 255 characters.")
	case length(text) > maxSummary:
		r.refuse("summary", "Summary must be less than 255 characters.")
	default:
		r.issue.Summary = strings.TrimSpace(text)
	}
}

// text reads the description, a comment or another long text.
func (r *fieldRules) text(id string, value json.RawMessage) (string, bool) {
	var text string
	if json.Unmarshal(value, &text) != nil {
		r.refuse(id, "Operation value must be a string")
		return "", false
	}
	if r.server.cost(text) > maxText {
		r.refuse(id, "The entered text is too long. It exceeds the allowed limit of 32,767 characters.")
		return "", false
	}
	return text, true
}

// cost is the length that the limit of a text is held against. Cloud counts
// after it made ADF of the wiki text, which is why cutting a little below the
// limit still failed for others (mozilla/jira-bugzilla-integration#1132): here
// each line costs ten more, a stand-in and not the vendor's sum.
func (s *Server) cost(text string) int {
	n := length(text)
	if s.cfg.Flavour == Cloud {
		n += 10 * strings.Count(text, "\n")
	}
	return n
}

func length(text string) int { return len(utf16.Encode([]rune(text))) }

func (r *fieldRules) labels(value json.RawMessage) {
	var list []json.RawMessage
	if string(value) != "null" && json.Unmarshal(value, &list) != nil {
		r.refuse("labels", "data was not an array")
		return
	}
	r.issue.Labels = nil
	for _, raw := range list {
		if name, ok := r.label(raw); ok && !slices.Contains(r.issue.Labels, name) {
			r.issue.Labels = append(r.issue.Labels, name)
		}
	}
}

func (r *fieldRules) label(value json.RawMessage) (string, bool) {
	var name string
	switch cloud := r.server.cfg.Flavour == Cloud; {
	case json.Unmarshal(value, &name) != nil:
		r.refuse("labels", "string expected at index 0")
	case strings.ContainsAny(name, " \t\r\n\u00a0") && cloud:
		r.refuse("labels", "The label '"+name+"' can't contain spaces.")
	case strings.ContainsAny(name, " \t\r\n\u00a0"):
		r.refuse("labels", "The label '"+name+"' contains spaces which is invalid.")
	case length(name) > maxLabel:
		r.refuse("labels", "The label '"+name+"' exceeds the maximum length for single labels of 255 characters.")
	default:
		return name, name != ""
	}
	return "", false
}

// ref is how the API refers to a thing with a name.
type ref struct {
	ID        string `json:"id"`
	Key       string `json:"key"`
	Name      string `json:"name"`
	Value     string `json:"value"`
	AccountID string `json:"accountId"`
}

func (r *fieldRules) priority(value json.RawMessage) {
	var want ref
	if json.Unmarshal(value, &want) != nil {
		r.refuse("priority", "Could not find valid 'id' or 'name' in priority object.")
		return
	}
	for _, name := range r.server.cfg.Priorities {
		if strings.EqualFold(name, want.Name) || r.server.priorityID(name) == want.ID {
			r.issue.Priority = name
			return
		}
	}
	if want.Name != "" {
		r.refuse("priority", "Priority name '"+want.Name+"' is not valid")
		return
	}
	r.refuse("priority", "The priority selected is invalid.")
}

func (r *fieldRules) components(value json.RawMessage) {
	var list []json.RawMessage
	if json.Unmarshal(value, &list) != nil {
		r.refuse("components", "data was not an array")
		return
	}
	r.issue.Components = nil
	for _, raw := range list {
		if name, ok := r.component(raw); ok {
			r.issue.Components = append(r.issue.Components, name)
		}
	}
}

func (r *fieldRules) component(value json.RawMessage) (string, bool) {
	var want ref
	if json.Unmarshal(value, &want) != nil {
		r.refuse("components", "expected Object")
		return "", false
	}
	for _, name := range r.project.Components {
		if name == want.Name || want.ID != "" && r.server.componentID(r.project, name) == want.ID {
			return name, true
		}
	}
	if want.Name != "" {
		r.refuse("components", "Component name '"+want.Name+"' is not valid")
	} else {
		r.refuse("components", "Component id '"+want.ID+"' is not valid")
	}
	return "", false
}

// userRef checks that a user is named as the flavour names users.
func (r *fieldRules) userRef(id string, value json.RawMessage) bool {
	var want ref
	switch err := json.Unmarshal(value, &want); {
	case err != nil:
		r.refuse(id, "data was not an object")
	case r.server.cfg.Flavour == Cloud && want.AccountID == "" && want.ID == "":
		r.refuse(id, "expected 'accountId' property to be provided")
	case r.server.cfg.Flavour == DataCenter && want.Name == "":
		r.refuse(id, "expected 'name' property to be provided")
	default:
		return true
	}
	return false
}

func (r *fieldRules) custom(id string, value json.RawMessage) {
	at := slices.IndexFunc(r.project.Fields, func(f Field) bool { return f.ID == id })
	if at < 0 || !customField.MatchString(id) {
		r.refuse(id, notOnScreen(id))
		return
	}
	if string(value) == "null" {
		r.store(id, value)
		return
	}
	f := r.project.Fields[at]
	var text string
	var number float64
	var list []string
	var option ref
	switch f.Kind {
	case Text, "":
		if json.Unmarshal(value, &text) != nil {
			r.refuse(id, "Operation value must be a string")
			return
		}
	case Number:
		if json.Unmarshal(value, &number) != nil {
			r.refuse(id, "Operation value must be a number")
			return
		}
	case Labels:
		if json.Unmarshal(value, &list) != nil {
			r.refuse(id, "data was not an array")
			return
		}
	case Select:
		if json.Unmarshal(value, &option) != nil {
			r.refuse(id, "Specify a valid 'id' or 'name' for "+f.Name)
			return
		}
		if !slices.Contains(f.Options, option.Value) {
			r.refuse(id, "Option value '"+option.Value+"' is not valid")
			return
		}
	case User:
		if !r.userRef(id, value) {
			return
		}
	}
	r.store(id, value)
}

// required checks what a new issue must not lack.
func (r *fieldRules) required() {
	if _, refused := r.errors["summary"]; r.issue.Summary == "" && !refused {
		r.refuse("summary", "You must specify a summary of the issue.")
	}
	for _, f := range r.project.Fields {
		_, has := r.issue.Fields[f.ID]
		if _, refused := r.errors[f.ID]; f.Required && !has && !refused {
			r.refuse(f.ID, f.Name+" is required.")
		}
	}
	if _, has := r.issue.Fields["parent"]; r.issue.Type == subTask && !has {
		r.refuse("parent", "Issue type is a sub-task but parent issue key or id not specified.")
	}
}

// properties checks and stores the properties that came with a create or edit.
func (r *fieldRules) properties(c changes) {
	for _, p := range c.Properties {
		if message := badProperty(p.Key, p.Value); message != "" {
			r.refuse("properties", message)
			continue
		}
		if r.issue.Properties == nil {
			r.issue.Properties = map[string]json.RawMessage{}
		}
		r.issue.Properties[p.Key] = p.Value
	}
}

func badProperty(key string, value json.RawMessage) string {
	switch {
	case key == "" || length(key) > maxKey:
		return "The key of an entity property must be between 1 and 255 characters long."
	case !json.Valid(value):
		return "The value of the property must be a valid, non-empty JSON."
	case length(string(value)) > maxProperty:
		return "The value of the property must be at most 32768 characters long."
	}
	return ""
}
