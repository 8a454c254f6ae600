package ipam

import (
	"fmt"
	"strings"
)

// Selector is a parsed Calico selector (libcalico-go/lib/selector): all(),
// has(k), !has(k), k == 'v', k != 'v', k in {…}, k not in {…}, k contains 'v',
// k starts with 'v', k ends with 'v', global(), && || ! and parentheses.
type Selector struct {
	text string
	eval func(labels map[string]string) bool
}

// String is the text the selector was parsed from.
func (s *Selector) String() string { return s.text }

// Matches evaluates the selector. A nil Selector (one that could not be
// parsed) matches nothing.
func (s *Selector) Matches(labels map[string]string) bool { return s != nil && s.eval(labels) }

// ParseSelector parses text. An empty text is all(), as Calico reads a pool's nodeSelector.
func ParseSelector(text string) (*Selector, error) {
	p := &selectorParser{in: text}
	if strings.TrimSpace(text) == "" {
		return &Selector{text: "all()", eval: func(map[string]string) bool { return true }}, nil
	}
	if err := p.tokenize(); err != nil {
		return nil, fmt.Errorf("selector %q: %w", text, err)
	}
	eval, err := p.or()
	if err == nil && p.pos < len(p.toks) {
		err = fmt.Errorf("unexpected %q", p.toks[p.pos].text)
	}
	if err != nil {
		return nil, fmt.Errorf("selector %q: %w", text, err)
	}
	return &Selector{text: text, eval: eval}, nil
}

type selectorToken struct {
	kind byte // 'w' word, 's' string, 'o' operator
	text string
}

type selectorParser struct {
	in   string
	toks []selectorToken
	pos  int
}

type evalFunc = func(map[string]string) bool

func (p *selectorParser) tokenize() error {
	in := p.in
	for i := 0; i < len(in); {
		c := in[i]
		switch {
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			i++
		case c == '\'' || c == '"':
			end := strings.IndexByte(in[i+1:], c)
			if end < 0 {
				return fmt.Errorf("unterminated string at %d", i)
			}
			p.toks = append(p.toks, selectorToken{'s', in[i+1 : i+1+end]})
			i += end + 2
		case strings.HasPrefix(in[i:], "&&"), strings.HasPrefix(in[i:], "||"), strings.HasPrefix(in[i:], "=="), strings.HasPrefix(in[i:], "!="):
			p.toks = append(p.toks, selectorToken{'o', in[i : i+2]})
			i += 2
		case strings.IndexByte("(){},!", c) >= 0:
			p.toks = append(p.toks, selectorToken{'o', string(c)})
			i++
		case isWordByte(c):
			j := i
			for j < len(in) && isWordByte(in[j]) {
				j++
			}
			p.toks = append(p.toks, selectorToken{'w', in[i:j]})
			i = j
		default:
			return fmt.Errorf("unexpected %q at %d", string(c), i)
		}
	}
	return nil
}

func isWordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_./-", c) >= 0
}

func (p *selectorParser) peek(kind byte, text string) bool {
	return p.pos < len(p.toks) && p.toks[p.pos].kind == kind && p.toks[p.pos].text == text
}

func (p *selectorParser) accept(kind byte, text string) bool {
	if p.peek(kind, text) {
		p.pos++
		return true
	}
	return false
}

func (p *selectorParser) expect(text string) error {
	if p.accept('o', text) {
		return nil
	}
	return fmt.Errorf("expected %q at token %d", text, p.pos+1)
}

func (p *selectorParser) next(kind byte, what string) (string, error) {
	if p.pos < len(p.toks) && p.toks[p.pos].kind == kind {
		p.pos++
		return p.toks[p.pos-1].text, nil
	}
	return "", fmt.Errorf("expected %s at token %d", what, p.pos+1)
}

func (p *selectorParser) or() (evalFunc, error) {
	return p.chain("||", p.and, func(a, b bool) bool { return a || b })
}
func (p *selectorParser) and() (evalFunc, error) {
	return p.chain("&&", p.unary, func(a, b bool) bool { return a && b })
}

func (p *selectorParser) chain(op string, sub func() (evalFunc, error), join func(a, b bool) bool) (evalFunc, error) {
	left, err := sub()
	if err != nil {
		return nil, err
	}
	for p.accept('o', op) {
		right, err := sub()
		if err != nil {
			return nil, err
		}
		l := left
		left = func(m map[string]string) bool { return join(l(m), right(m)) }
	}
	return left, nil
}

func (p *selectorParser) unary() (evalFunc, error) {
	if p.accept('o', "!") {
		f, err := p.unary()
		if err != nil {
			return nil, err
		}
		return func(m map[string]string) bool { return !f(m) }, nil
	}
	if p.accept('o', "(") {
		f, err := p.or()
		if err != nil {
			return nil, err
		}
		return f, p.expect(")")
	}
	return p.term()
}

func (p *selectorParser) term() (evalFunc, error) {
	word, err := p.next('w', "a label or a function")
	if err != nil {
		return nil, err
	}
	if p.accept('o', "(") {
		switch word {
		case "all":
			return func(map[string]string) bool { return true }, p.expect(")")
		case "global":
			return func(map[string]string) bool { return false }, p.expect(")")
		case "has":
			label, err := p.next('w', "a label")
			if err != nil {
				return nil, err
			}
			return func(m map[string]string) bool { _, ok := m[label]; return ok }, p.expect(")")
		default:
			return nil, fmt.Errorf("unknown function %s()", word)
		}
	}
	return p.comparison(word)
}

func (p *selectorParser) comparison(label string) (evalFunc, error) {
	onValue := func(test func(have, want string) bool) (evalFunc, error) {
		want, err := p.next('s', "a quoted value")
		if err != nil {
			return nil, err
		}
		return func(m map[string]string) bool { have, ok := m[label]; return ok && test(have, want) }, nil
	}
	switch {
	case p.accept('o', "=="):
		return onValue(func(have, want string) bool { return have == want })
	case p.accept('o', "!="):
		// A missing label is not equal to anything (libcalico-go: LabelNeValueNode).
		eq, err := onValue(func(have, want string) bool { return have == want })
		if err != nil {
			return nil, err
		}
		return func(m map[string]string) bool { return !eq(m) }, nil
	case p.accept('w', "contains"):
		return onValue(strings.Contains)
	case p.accept('w', "starts"):
		if !p.accept('w', "with") {
			return nil, fmt.Errorf("expected \"with\" after \"starts\"")
		}
		return onValue(strings.HasPrefix)
	case p.accept('w', "ends"):
		if !p.accept('w', "with") {
			return nil, fmt.Errorf("expected \"with\" after \"ends\"")
		}
		return onValue(strings.HasSuffix)
	case p.accept('w', "in"):
		return p.set(label, false)
	case p.accept('w', "not"):
		if !p.accept('w', "in") {
			return nil, fmt.Errorf("expected \"in\" after \"not\"")
		}
		return p.set(label, true)
	}
	return nil, fmt.Errorf("expected an operator after label %q", label)
}

func (p *selectorParser) set(label string, negate bool) (evalFunc, error) {
	if err := p.expect("{"); err != nil {
		return nil, err
	}
	values := map[string]bool{}
	for !p.accept('o', "}") {
		v, err := p.next('s', "a quoted value")
		if err != nil {
			return nil, err
		}
		values[v] = true
		if !p.accept('o', ",") && !p.peek('o', "}") {
			return nil, fmt.Errorf("expected \",\" or \"}\" at token %d", p.pos+1)
		}
	}
	return func(m map[string]string) bool {
		have, ok := m[label]
		return (ok && values[have]) != negate
	}, nil
}
