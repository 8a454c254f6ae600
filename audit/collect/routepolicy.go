package collect

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ipamaudit/ipam"
)

// PolicyRule is one rule of ip-rule(8): which packets are looked up where.
type PolicyRule struct {
	Priority int
	// Src and Dst are invalid for "all".
	Src, Dst netip.Prefix
	// Not inverts what Src, Dst and When say together.
	Not bool
	// When names what else a packet must have (a mark, an interface, a user …):
	// what a route table's reader cannot know. OnlyMark is true for a mark alone.
	When     string
	OnlyMark bool
	// Action is lookup, nop, goto, or the type of route with which it drops.
	Action string
	// Table is local, main, default, or another name or number.
	Table string
	// Suppress ignores routes of at most this prefix length; -1 for none.
	Suppress int
}

// Tables holds a kernel's routes by the name of their table, as PolicyRule has it.
type Tables map[string][]ipam.Route

// Follow finds the table that packets for pods see on a node: from its pods
// and its own sockets, unmarked. It walks the policy rules of one family in
// order. Rules that are about other packets are passed over; those that may or
// may not catch packets for pods make the family unknown, unless the table
// they lead to has nothing to say about the pools. blind says why, and the
// routes are nil then. Without pools every address counts.
func Follow(rules []PolicyRule, tables Tables, v4 bool, pools []netip.Prefix) (routes []ipam.Route, blind string) {
	pools = slices.DeleteFunc(slices.Clone(pools), func(p netip.Prefix) bool { return p.Addr().Is4() != v4 })
	if len(pools) == 0 {
		family := 6
		if v4 {
			family = 4
		}
		pools = []netip.Prefix{anyPrefix(family)}
	}
	concerns := func(p netip.Prefix) bool {
		return !p.IsValid() || slices.ContainsFunc(pools, p.Overlaps)
	}
	step := 0
	slices.SortStableFunc(rules, func(a, b PolicyRule) int { return cmp.Compare(a.Priority, b.Priority) })
	for _, r := range rules {
		var found []ipam.Route
		switch r.Action {
		case "nop":
			continue
		case "lookup":
			for _, route := range tables[r.Table] {
				if route.Dst.Addr().Is4() == v4 && route.Dst.Bits() > r.Suppress && concerns(route.Dst) {
					found = append(found, route)
				}
			}
		case "blackhole", "unreachable", "prohibit":
			dst := r.Dst
			if !dst.IsValid() || r.Not {
				dst = anyPrefix(map[bool]int{true: 4, false: 6}[v4])
			}
			found = []ipam.Route{{Dst: dst, Type: ipam.RouteType(r.Action), Proto: "rule", Text: fmt.Sprintf("%s %s (policy rule %d)", r.Action, dst, r.Priority)}}
		}
		if r.Action != "goto" && !decides(found, pools) {
			continue
		}
		// Packets from elsewhere than pods, and to elsewhere, are not ours. A
		// socket that has no address yet matches no source.
		if !r.Not && (!concerns(r.Src) || !concerns(r.Dst)) {
			continue
		}
		sure := !r.Src.IsValid() && r.When == "" && (!r.Dst.IsValid() || !r.Not)
		// WireGuard and its like: everything but their own marked packets.
		sure = sure || r.Not && r.OnlyMark && !r.Src.IsValid() && !r.Dst.IsValid()
		if r.When != "" && !r.Not && (r.Table == "main" || r.Table == "local") && r.Action == "lookup" {
			// What it says comes anyway.
			continue
		}
		if !sure || r.Action == "goto" {
			return nil, fmt.Sprintf("policy rule %d sends some packets for pods elsewhere (%s)", r.Priority, r)
		}
		if r.Dst.IsValid() {
			found = within(found, r.Dst)
		}
		for _, route := range found {
			route.Step = step
			routes = append(routes, route)
		}
		step++
	}
	return routes, ""
}

// decides reports whether a table has a say about the pools: a table that
// throws them all, or holds nothing about them, has not.
func decides(routes []ipam.Route, pools []netip.Prefix) bool {
	for _, r := range routes {
		if r.Type == ipam.Throw {
			continue
		}
		for _, pool := range pools {
			thrown := slices.ContainsFunc(routes, func(t ipam.Route) bool {
				return t.Type == ipam.Throw && ipam.Contains(t.Dst, pool) && t.Dst.Bits() >= r.Dst.Bits()
			})
			if r.Dst.Overlaps(pool) && !thrown {
				return true
			}
		}
	}
	return false
}

// within cuts a table to the destinations in dst. Of the routes that contain
// all of it the longest counts.
func within(routes []ipam.Route, dst netip.Prefix) []ipam.Route {
	var out []ipam.Route
	var around *ipam.Route
	for i := range routes {
		r := routes[i]
		switch {
		case ipam.Contains(dst, r.Dst):
			out = append(out, r)
		case ipam.Contains(r.Dst, dst) && (around == nil || cmp.Or(cmp.Compare(r.Dst.Bits(), around.Dst.Bits()), cmp.Compare(around.Metric, r.Metric)) > 0):
			around = &routes[i]
		}
	}
	if around != nil && !slices.ContainsFunc(out, func(r ipam.Route) bool { return r.Dst == dst }) {
		r := *around
		r.Dst, r.Text = dst, ""
		out = append(out, r)
	}
	return out
}

// String prints the rule as ip rule does.
func (r PolicyRule) String() string {
	var b strings.Builder
	if r.Not {
		b.WriteString("not ")
	}
	b.WriteString("from ")
	if r.Src.IsValid() {
		b.WriteString(r.Src.String())
	} else {
		b.WriteString("all")
	}
	if r.Dst.IsValid() {
		b.WriteString(" to " + r.Dst.String())
	}
	if r.When != "" {
		b.WriteString(" " + r.When)
	}
	b.WriteString(" " + r.Action)
	if r.Table != "" {
		b.WriteString(" " + r.Table)
	}
	return b.String()
}

// ParseRules reads ip -j rule (or ip -j -6 rule).
func ParseRules(data []byte) ([]PolicyRule, error) {
	var raw []map[string]jsontext.Value
	if err := json.Unmarshal(data, &raw); err != nil {
		_, message := explain(err)
		return nil, fmt.Errorf("ip -j rule: %s", message)
	}
	var out []PolicyRule
	for _, fields := range raw {
		r := PolicyRule{Action: "lookup", Suppress: -1}
		text := func(name string) string {
			v := strings.Trim(string(fields[name]), `"`)
			delete(fields, name)
			return v
		}
		prefix := func(name string) (netip.Prefix, error) {
			addr, bits := text(name), text(name+"len")
			if addr == "" || addr == "all" {
				return netip.Prefix{}, nil
			}
			if bits != "" {
				addr += "/" + bits
			}
			return parsePrefix(addr)
		}
		var err error
		if r.Priority, err = strconv.Atoi(text("priority")); err != nil {
			return nil, fmt.Errorf("ip -j rule: a rule without priority")
		}
		var err1, err2 error
		r.Src, err1 = prefix("src")
		r.Dst, err2 = prefix("dst")
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("ip -j rule: rule %d: %w", r.Priority, err)
		}
		r.Table = tableName(text("table"))
		if n := text("suppress_prefixlen"); n != "" {
			if r.Suppress, err = strconv.Atoi(n); err != nil {
				return nil, fmt.Errorf("ip -j rule: rule %d: suppress_prefixlen %q", r.Priority, n)
			}
		}
		if _, ok := fields["not"]; ok {
			r.Not = true
			delete(fields, "not")
		}
		for _, action := range []string{"nop", "goto"} {
			if _, ok := fields[action]; ok {
				r.Action = action
				delete(fields, action)
			}
		}
		if action := text("action"); action != "" {
			r.Action = action
		}
		if _, ok := fields["l3mdev"]; ok {
			// Only packets of interfaces inside a VRF, which pods' are not.
			r.Action = "nop"
		}
		for _, name := range []string{"protocol", "unresolved"} {
			delete(fields, name)
		}
		var when []string
		for name, v := range fields {
			when = append(when, name+" "+strings.Trim(string(v), `"`))
		}
		slices.Sort(when)
		r.When = strings.Join(when, " ")
		r.OnlyMark = len(fields["fwmark"]) > 0 && !slices.ContainsFunc(when, func(s string) bool { return !strings.HasPrefix(s, "fwm") })
		out = append(out, r)
	}
	return out, nil
}

// tableName gives the three tables that every kernel has one spelling.
func tableName(name string) string {
	switch name {
	case "254":
		return "main"
	case "255":
		return "local"
	case "253":
		return "default"
	}
	return name
}

// ParseTables reads ip -j route show table all.
func ParseTables(data []byte) (Tables, error) {
	d := jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowDuplicateNames(true))
	out := Tables{}
	family := 4
	for {
		var routes []jsonRoute
		err := json.UnmarshalDecode(d, &routes)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			_, message := explain(err)
			return nil, fmt.Errorf("ip -j route show table all: %s", message)
		}
		for _, r := range routes {
			if r.Dst == "" {
				continue
			}
			table := cmp.Or(tableName(string(r.Table)), "main")
			r.Table = ""
			line := r.line()
			route, verdict := parseLine(strings.Fields(line), &family)
			switch {
			case verdict == notRoute:
				return nil, fmt.Errorf("ip -j route show table all: %s is no route", quoteLine(line))
			case verdict == notOurs, route.Type == ipam.Unicast && len(route.NextHops) == 0:
				continue
			}
			route.Text = line
			out[table] = append(out[table], route)
		}
	}
}
