package fakejira

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// clause compiles one comparison. Jira checks the names in it: an unknown
// project, status or resolution is an error, an unknown label is no hit.
func (s *Server) clause(c *call, field, op string, operands []string) (predicate, error) {
	if m := customFieldClause.FindStringSubmatch(field); m != nil {
		return contains(field, op, operands, func(i *Issue) string {
			var text string
			_ = json.Unmarshal(i.Fields["customfield_"+m[1]], &text) // no text, no word
			return text
		})
	}
	switch field {
	case "project":
		for _, v := range operands {
			if s.project(v) == nil && !s.isProjectName(v) {
				return nil, unknownValue(v, field)
			}
		}
		return anyOf(field, op, operands, func(i *Issue) []string {
			p := s.project(i.Project)
			return []string{p.Key, p.Name, p.id}
		}, strings.EqualFold)
	case "key", "issuekey", "issue", "id":
		for _, v := range operands {
			if s.find(v) == nil {
				return nil, refuse("An issue with key '%s' does not exist for field '%s'.", v, field)
			}
		}
		return anyOf(field, op, operands, func(i *Issue) []string { return append([]string{i.ID, i.Key}, i.PreviousKeys...) }, strings.EqualFold)
	case "labels":
		return anyOf(field, op, operands, func(i *Issue) []string { return i.Labels }, func(a, b string) bool { return a == b })
	case "description":
		return contains(field, op, operands, func(i *Issue) string { return i.Description })
	case "issuetype", "type":
		if err := known(field, operands, s.allTypes()); err != nil {
			return nil, err
		}
		return anyOf(field, op, operands, func(i *Issue) []string { return []string{i.Type} }, strings.EqualFold)
	case "status":
		if err := known(field, operands, s.allStatuses()); err != nil {
			return nil, err
		}
		return anyOf(field, op, operands, func(i *Issue) []string { return []string{i.Status} }, strings.EqualFold)
	case "statuscategory":
		names := map[Category][]string{ToDo: {"new", "To Do", "2"}, InProgress: {"indeterminate", "In Progress", "4"}, Done: {"done", "3"}}
		if err := known(field, operands, slices.Concat(names[ToDo], names[InProgress], names[Done])); err != nil {
			return nil, err
		}
		return anyOf(field, op, operands, func(i *Issue) []string { return names[i.Category] }, strings.EqualFold)
	case "resolution":
		if err := known(field, operands, append(slices.Clone(s.cfg.Resolutions), "Unresolved")); err != nil {
			return nil, err
		}
		return anyOf(field, op, operands, func(i *Issue) []string {
			switch {
			case i.Resolution != "":
				return []string{i.Resolution}
			case slices.ContainsFunc(operands, func(v string) bool { return strings.EqualFold(v, "Unresolved") }):
				return []string{"Unresolved"}
			}
			return nil
		}, strings.EqualFold)
	case "resolved", "resolutiondate":
		return s.date(field, op, operands, func(i *Issue) time.Time { return i.Resolved })
	case "created", "createddate":
		return s.date(field, op, operands, func(i *Issue) time.Time { return i.Created })
	case "updated", "updateddate":
		return s.date(field, op, operands, func(i *Issue) time.Time { return i.Updated })
	}
	return nil, refuse("Field '%s' does not exist or you do not have permission to view it.", field)
}

var customFieldClause = regexp.MustCompile(`^cf\[(\d+)\]$`)

// contains is the search for a word in a text. How Jira takes text apart is not
// documented; this takes no chances and leaves what a colon joins together.
func contains(field, op string, operands []string, of func(*Issue) string) (predicate, error) {
	words := func(text string) []string {
		return strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return r != ':' && !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	}
	if op != "~" {
		return nil, unsupported(op, field)
	}
	want := words(operands[0])
	if len(want) != 1 {
		return nil, refuse("this server searches texts for one word, not for '%s'", operands[0])
	}
	return func(i *Issue) bool { return slices.Contains(words(of(i)), want[0]) }, nil
}

func (s *Server) isProjectName(name string) bool {
	return slices.ContainsFunc(s.projects, func(p *project) bool { return strings.EqualFold(p.Name, name) })
}

func known(field string, operands, names []string) error {
	for _, v := range operands {
		if !slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, v) }) {
			return unknownValue(v, field)
		}
	}
	return nil
}

func unknownValue(value, field string) error {
	return refuse("The value '%s' does not exist for the field '%s'.", value, field)
}

// anyOf compares a field that has any number of values. The negative operators
// leave out issues whose field is empty, as Jira's do: that is how "resolution
// != X" loses what is unresolved (prometheus/alertmanager#4295).
func anyOf(field, op string, operands []string, values func(*Issue) []string, same func(a, b string) bool) (predicate, error) {
	hit := func(i *Issue) bool {
		return slices.ContainsFunc(values(i), func(have string) bool {
			return slices.ContainsFunc(operands, func(want string) bool { return same(have, want) })
		})
	}
	switch op {
	case "=", "in":
		return hit, nil
	case "!=", "not in":
		return func(i *Issue) bool { return len(values(i)) > 0 && !hit(i) }, nil
	case "is":
		return func(i *Issue) bool { return len(values(i)) == 0 }, nil
	case "is not":
		return func(i *Issue) bool { return len(values(i)) > 0 }, nil
	}
	return nil, unsupported(op, field)
}

func unsupported(op, field string) error {
	return refuse("The operator '%s' is not supported by the '%s' field.", op, field)
}

func (s *Server) date(field, op string, operands []string, of func(*Issue) time.Time) (predicate, error) {
	switch op {
	case "is":
		return func(i *Issue) bool { return of(i).IsZero() }, nil
	case "is not":
		return func(i *Issue) bool { return !of(i).IsZero() }, nil
	case "in", "not in", "~", "!~":
		return nil, unsupported(op, field)
	}
	limit, err := s.when(operands[0])
	if err != nil {
		return nil, refuse("Date value '%s' for field '%s' is invalid. Valid formats include: 'yyyy/MM/dd HH:mm', "+
			"'yyyy-MM-dd HH:mm', 'yyyy/MM/dd', 'yyyy-MM-dd', or a period format e.g. '-5d', '4w 2d'.", operands[0], field)
	}
	return func(i *Issue) bool {
		at := of(i)
		if at.IsZero() {
			return false
		}
		n := at.Compare(limit)
		switch op {
		case "=":
			return n == 0
		case "!=":
			return n != 0
		case ">":
			return n > 0
		case ">=":
			return n >= 0
		case "<":
			return n < 0
		default:
			return n <= 0
		}
	}, nil
}

var period = regexp.MustCompile(`^([+-]?)(\d+)([wdhm])$`)

// when reads a period from now or a date. Dates are in the user's time zone,
// which here is UTC.
func (s *Server) when(text string) (time.Time, error) {
	if m := period.FindStringSubmatch(text); m != nil {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			return time.Time{}, fmt.Errorf("period %q: %w", text, err)
		}
		unit := map[string]time.Duration{"w": 7 * 24 * time.Hour, "d": 24 * time.Hour, "h": time.Hour, "m": time.Minute}[m[3]]
		if m[1] == "-" {
			n = -n
		}
		return s.now().Add(time.Duration(n) * unit), nil
	}
	for _, layout := range []string{"2006-01-02 15:04", "2006/01/02 15:04", "2006-01-02", "2006/01/02"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is neither a period nor a date", text)
}
