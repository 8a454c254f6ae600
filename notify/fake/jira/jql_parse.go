package fakejira

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// query is a compiled JQL query.
type query struct {
	matches func(*Issue) bool
	compare func(a, b *Issue) int
	bounded bool // it restricts something
}

// jqlError is what Jira says of a query that it refuses, in Jira's own spelling.
type jqlError string

func (e jqlError) Error() string { return string(e) }

func refuse(format string, a ...any) error { return jqlError(fmt.Sprintf(format, a...)) }

// compile reads the JQL that a client which looks for its own tickets would
// send. Anything else is an error that names the clause: a fake that guessed
// would hide the mistake.
func (s *Server) compile(jql string, c *call) (query, error) {
	tokens, err := lex(jql)
	if err != nil {
		return query{}, err
	}
	p := &parser{server: s, call: c, tokens: tokens}
	q := query{matches: func(*Issue) bool { return true }}
	if !p.done() && !p.peek().is("order") {
		if q.matches, err = p.or(); err != nil {
			return query{}, err
		}
		q.bounded = true
	}
	if q.compare, err = p.orderBy(); err != nil {
		return query{}, err
	}
	if !p.done() {
		return query{}, refuse("Error in the JQL Query: Expecting either 'OR' or 'AND' but got '%s'. (line 1, character %d)",
			p.peek().text, p.peek().at)
	}
	return q, nil
}

type parser struct {
	server *Server
	call   *call
	tokens []token
	next   int
}

type predicate = func(*Issue) bool

func (p *parser) done() bool { return p.next >= len(p.tokens) }

func (p *parser) peek() token {
	if p.done() {
		return token{}
	}
	return p.tokens[p.next]
}

func (p *parser) take() token {
	t := p.peek()
	p.next++
	return t
}

func (p *parser) takeIf(word string) bool {
	if !p.done() && p.peek().is(word) {
		p.next++
		return true
	}
	return false
}

func (p *parser) or() (predicate, error) {
	left, err := p.and()
	for err == nil && p.takeIf("or") {
		var right predicate
		if right, err = p.and(); err == nil {
			a := left
			left = func(i *Issue) bool { return a(i) || right(i) }
		}
	}
	return left, err
}

func (p *parser) and() (predicate, error) {
	left, err := p.not()
	for err == nil && p.takeIf("and") {
		var right predicate
		if right, err = p.not(); err == nil {
			a := left
			left = func(i *Issue) bool { return a(i) && right(i) }
		}
	}
	return left, err
}

func (p *parser) not() (predicate, error) {
	if p.takeIf("not") || p.takeIf("!") {
		inner, err := p.not()
		return func(i *Issue) bool { return !inner(i) }, err
	}
	if p.takeIf("(") {
		inner, err := p.or()
		if err != nil {
			return nil, err
		}
		if !p.takeIf(")") {
			return nil, refuse("Error in the JQL Query: Expecting ')' before the end of the query.")
		}
		return inner, nil
	}
	return p.clause()
}

// clause reads field, operator and operands.
func (p *parser) clause() (predicate, error) {
	if p.done() {
		return nil, refuse("Error in the JQL Query: Expecting a field name at the end of the query.")
	}
	first := p.next
	field := p.take()
	if field.symbol || !field.quoted && reserved(field.text) {
		return nil, refuse("Error in the JQL Query: Expecting a field name but got '%s'. (line 1, character %d)", field.text, field.at)
	}
	op, operands, err := p.operation()
	if err != nil {
		return nil, err
	}
	match, err := p.server.clause(p.call, strings.ToLower(field.text), op, operands)
	if err != nil {
		return nil, fmt.Errorf("%w (clause: %s)", err, p.text(first, p.next))
	}
	return match, nil
}

func (p *parser) text(from, to int) string {
	var words []string
	for _, t := range p.tokens[from:min(to, len(p.tokens))] {
		if t.quoted {
			t.text = `"` + t.text + `"`
		}
		words = append(words, t.text)
	}
	return strings.Join(words, " ")
}

func (p *parser) operation() (op string, operands []string, err error) {
	switch {
	case p.takeIf("is"):
		op = "is"
		if p.takeIf("not") {
			op = "is not"
		}
		if !p.takeIf("empty") && !p.takeIf("null") {
			return "", nil, refuse("Error in the JQL Query: the operator '%s' takes EMPTY or NULL, not '%s'.", op, p.peek().text)
		}
		return op, nil, nil
	case p.takeIf("in"):
		op = "in"
	case p.takeIf("not"):
		if !p.takeIf("in") {
			return "", nil, refuse("Error in the JQL Query: Expecting 'IN' after 'NOT' but got '%s'.", p.peek().text)
		}
		op = "not in"
	case p.peek().symbol && slices.Contains([]string{"=", "!=", ">", ">=", "<", "<=", "~", "!~"}, p.peek().text):
		op = p.take().text
		value, err := p.value()
		return op, []string{value}, err
	default:
		return "", nil, refuse("Error in the JQL Query: Expecting operator but got '%s'. The valid operators are "+
			"'=', '!=', '<', '>', '<=', '>=', '~', '!~', 'IN', 'NOT IN', 'IS' and 'IS NOT'.", p.peek().text)
	}
	if !p.takeIf("(") {
		return "", nil, refuse("Error in the JQL Query: the operator '%s' takes a list in brackets.", op)
	}
	for {
		value, err := p.value()
		if err != nil {
			return "", nil, err
		}
		operands = append(operands, value)
		if p.takeIf(")") {
			return op, operands, nil
		}
		if !p.takeIf(",") {
			return "", nil, refuse("Error in the JQL Query: Expecting ')' or ',' but got '%s'.", p.peek().text)
		}
	}
}

func (p *parser) value() (string, error) {
	if p.done() || p.peek().symbol {
		return "", refuse("Error in the JQL Query: Expecting a value but got '%s'.", p.peek().text)
	}
	t := p.take()
	if !t.quoted && reserved(t.text) {
		return "", refuse("Error in the JQL Query: '%s' is a reserved JQL word. You must surround it in quotation marks to use it in a query. "+
			"(line 1, character %d)", t.text, t.at)
	}
	if p.peek().is("(") && !t.quoted {
		return "", refuse("this server does not know the JQL function '%s()'", t.text)
	}
	return t.text, nil
}

// orderBy reads the order; without one the newest issue comes first.
func (p *parser) orderBy() (func(a, b *Issue) int, error) {
	newest := func(a, b *Issue) int { return -byID(a, b) }
	if !p.takeIf("order") {
		return newest, nil
	}
	if !p.takeIf("by") {
		return nil, refuse("Error in the JQL Query: Expecting 'by' but got '%s'.", p.peek().text)
	}
	var keys []func(a, b *Issue) int
	for {
		name := p.take().text
		key, known := orderKeys()[strings.ToLower(name)]
		if !known {
			return nil, refuse("Not able to sort using field '%s'.", name)
		}
		if p.takeIf("desc") {
			ascending := key
			key = func(a, b *Issue) int { return -ascending(a, b) }
		} else {
			p.takeIf("asc")
		}
		keys = append(keys, key)
		if !p.takeIf(",") {
			break
		}
	}
	if len(keys) > 7 {
		return nil, refuse("The order by clause must not have more than 7 fields.")
	}
	return func(a, b *Issue) int {
		for _, key := range keys {
			if n := key(a, b); n != 0 {
				return n
			}
		}
		return newest(a, b)
	}, nil
}

func orderKeys() map[string]func(a, b *Issue) int {
	resolved := func(a, b *Issue) int { return a.Resolved.Compare(b.Resolved) }
	return map[string]func(a, b *Issue) int{
		"key": byID, "issuekey": byID, "id": byID,
		"created":  func(a, b *Issue) int { return a.Created.Compare(b.Created) },
		"updated":  func(a, b *Issue) int { return a.Updated.Compare(b.Updated) },
		"resolved": resolved, "resolutiondate": resolved,
		"status": func(a, b *Issue) int { return cmp.Compare(a.Status, b.Status) },
	}
}

// byID orders by age: ids are decimal and only grow.
func byID(a, b *Issue) int {
	return cmp.Or(cmp.Compare(len(a.ID), len(b.ID)), cmp.Compare(a.ID, b.ID))
}
