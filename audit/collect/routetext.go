package collect

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"ipamaudit/ipam"
)

// A file of routes/ is a node's own output, or one of ours: then comments say
// what ip route does not.
const directive = "# ipamaudit: "

// FormatTable prints a table so that ParseRoutes reads the same one again.
func FormatTable(t *ipam.RouteTable) []byte {
	var b bytes.Buffer
	say := func(key, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%s%s %s\n", directive, key, strings.Join(strings.Fields(value), " "))
		}
	}
	say("kind", string(t.Kind))
	if !t.AsOf.IsZero() {
		say("read", t.AsOf.UTC().Format(time.RFC3339Nano))
	}
	say("blind4", t.Blind4)
	say("blind6", t.Blind6)
	if t.Partial {
		say("partial", "yes")
	}
	steps := 0
	for _, r := range t.Routes {
		steps = max(steps, r.Step)
	}
	for step := range steps + 1 {
		var routes []ipam.Route
		for _, r := range t.Routes {
			if r.Step == step {
				routes = append(routes, r)
			}
		}
		if steps > 0 {
			say("step", strconv.Itoa(step))
		}
		b.Write(FormatRoutes(routes))
	}
	return b.Bytes()
}

// directive reads one of FormatTable's comments. What it does not know it
// passes over: it is a comment.
func (p *Parsed) directive(line string) {
	line, ok := strings.CutPrefix(line, directive)
	if !ok {
		return
	}
	key, value, _ := strings.Cut(line, " ")
	switch key {
	case "kind":
		if value == string(ipam.BIRDTable) {
			p.Kind = ipam.BIRDTable
		}
	case "read":
		p.Read = parseTime(value)
	case "blind4":
		p.Blind4 = value
	case "blind6":
		p.Blind6 = value
	case "partial":
		p.Partial = true
	case "step":
		var n int
		// More tables than anybody has would only cost memory.
		if _, err := fmt.Sscanf(value, "%d", &n); err == nil && n >= 0 && n < 256 {
			p.step = n
		}
	}
}

// table makes the model's table of what was parsed.
func (p *Parsed) table(node, source string) ipam.RouteTable {
	t := ipam.RouteTable{Node: node, Kind: p.Kind, Source: source, AsOf: p.Read, Routes: p.Routes, Blind4: p.Blind4, Blind6: p.Blind6, Partial: p.Partial}
	if t.Kind == "" {
		t.Kind = ipam.KernelTable
	}
	return t
}
