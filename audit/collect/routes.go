package collect

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"ipamaudit/ipam"
)

// Parsed is what ParseRoutes made of one node's output.
type Parsed struct {
	Routes []ipam.Route
	// Unknown counts the lines that were not understood; First is the first of
	// them and FirstLine its number.
	Unknown   int
	First     string
	FirstLine int
	// What comments of FormatTable say; zero for a node's own output.
	Kind           ipam.TableKind
	Read           time.Time
	Blind4, Blind6 string
	Partial        bool

	step int
}

// ParseRoutes reads what a node prints of its routes: ip route, ip -6 route,
// ip route show table all, ip -N, -o and -d, ip -j route and route -n, and any
// sequence of these. Only the tables main and local count. The error says that
// the table is not known: nothing was printed, nothing was understood, or the
// dump was cut short.
func ParseRoutes(data []byte) (Parsed, error) {
	var p Parsed
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	switch trimmed := bytes.TrimSpace(data); {
	case len(trimmed) == 0:
		return p, fmt.Errorf("it is empty, so the node's table is not known")
	case trimmed[0] == '[' || trimmed[0] == '{':
		if err := p.json(trimmed); err != nil {
			return p, err
		}
	default:
		if err := p.text(string(data)); err != nil {
			return p, err
		}
	}
	if len(p.Routes) == 0 && p.Blind4 == "" && p.Blind6 == "" {
		if p.Unknown > 0 {
			return p, fmt.Errorf("nothing in it is a route (line %d: %s), so the node's table is not known", p.FirstLine, quoteLine(p.First))
		}
		return p, fmt.Errorf("it holds no route, so the node's table is not known")
	}
	return p, nil
}

func quoteLine(s string) string {
	if len(s) > 80 {
		s = s[:80]
	}
	return strconv.Quote(s)
}

func (p *Parsed) unknown(line int, text string) {
	if p.Unknown == 0 {
		p.First, p.FirstLine = text, line
	}
	p.Unknown++
}

// text reads every line-based format. Each line says by itself which one it is
// in, so outputs may follow one another.
func (p *Parsed) text(data string) error {
	family := 4
	var current *ipam.Route // the route that nexthop lines belong to
	var lost bool           // the last route was one that does not count
	for i, raw := range strings.Split(data, "\n") {
		line := strings.TrimRight(raw, " \t\r")
		fields := strings.Fields(strings.ReplaceAll(line, `\`, " "))
		switch {
		case len(fields) == 0:
			continue
		case strings.HasPrefix(fields[0], "#"):
			p.directive(line)
			continue
		case strings.HasPrefix(line, "Dump ") || strings.HasPrefix(line, "RTNETLINK answers") || strings.HasPrefix(line, "Error:") || strings.HasPrefix(line, "Cannot "):
			return fmt.Errorf("line %d: the command failed (%s), so the node's table is not known", i+1, quoteLine(line))
		case fields[0] == "nexthop":
			if current == nil && !lost {
				p.unknown(i+1, line)
			}
			if current != nil {
				hops, _ := nextHops(fields)
				current.NextHops = append(current.NextHops, hops...)
				current.Text += " \\ " + strings.Join(fields, " ")
			}
			continue
		case strings.HasPrefix(line, "Kernel IPv6"):
			family = 6
			continue
		case strings.HasPrefix(line, "Kernel IP "):
			family = 4
			continue
		case fields[0] == "Destination" || fields[0] == "cache":
			continue
		}
		p.dropHopless(current)
		current, lost = nil, false
		r, verdict := parseLine(fields, &family)
		switch verdict {
		case notRoute:
			p.unknown(i+1, line)
		case notOurs:
			lost = true
		case isRoute:
			r.Text, r.Step = strings.Join(strings.Fields(line), " "), p.step
			p.Routes = append(p.Routes, r)
			current = &p.Routes[len(p.Routes)-1]
		}
	}
	p.dropHopless(current)
	return nil
}

// dropHopless forgets the last route when all its next hops turned out dead:
// the kernel passes over it and takes the next shorter prefix.
func (p *Parsed) dropHopless(r *ipam.Route) {
	if r != nil && r.Type == ipam.Unicast && len(r.NextHops) == 0 {
		p.Routes = p.Routes[:len(p.Routes)-1]
	}
}

type verdict int

const (
	notRoute verdict = iota
	// notOurs is a route, but of another table, a broadcast one, or dead.
	notOurs
	isRoute
)

// parseLine reads one line of ip route or route -n. family is that of a bare
// "default": the last one that was seen.
func parseLine(fields []string, family *int) (ipam.Route, verdict) {
	if r, ok := parseNetstat(fields); ok {
		return r, isRoute
	}
	r := ipam.Route{Type: ipam.Unicast}
	typ, known := routeType(fields[0])
	if known {
		fields = fields[1:]
		if len(fields) == 0 {
			return r, notRoute
		}
		r.Type = typ
	}
	text, rest := fields[0], fields[1:]
	if text != "default" {
		dst, err := parsePrefix(text)
		if err != nil {
			return r, notRoute
		}
		r.Dst = dst
		*family = 4
		if dst.Addr().Is6() {
			*family = 6
		}
	} else {
		r.Dst = defaultRoute(rest, *family)
	}
	table := ""
	for i := 0; i+1 < len(rest); i++ {
		if rest[i] == "nexthop" {
			break
		}
		switch rest[i] {
		case "proto":
			r.Proto = rest[i+1]
		case "metric":
			m, err := strconv.ParseUint(rest[i+1], 10, 32)
			if err != nil {
				return r, notRoute
			}
			r.Metric = uint32(m)
		case "table":
			table = rest[i+1]
		}
	}
	if !ourTable(table) || r.Type == "" {
		return r, notOurs
	}
	hops, dead := nextHops(rest)
	if r.Type == ipam.Unicast {
		r.NextHops = hops
		// Next hops may still follow on lines of their own.
		if dead || len(hops) == 0 && slices.Contains(rest, "dev") {
			return r, notOurs
		}
	}
	return r, isRoute
}

func ourTable(table string) bool {
	switch table {
	case "", "main", "254", "local", "255":
		return true
	}
	return false
}

// routeType reads a route's type by name or (ip -N) by number, as
// linux/rtnetlink.h numbers them. Types that carry no unicast packet are "".
func routeType(s string) (ipam.RouteType, bool) {
	switch s {
	case "unicast", "1":
		return ipam.Unicast, true
	case "local", "2":
		return ipam.Local, true
	case "blackhole", "6":
		return ipam.Blackhole, true
	case "unreachable", "7":
		return ipam.Unreachable, true
	case "prohibit", "8":
		return ipam.Prohibit, true
	case "throw", "9":
		return ipam.Throw, true
	case "broadcast", "3", "anycast", "4", "multicast", "5", "nat", "10", "xresolve", "11":
		return "", true
	}
	return "", false
}

// defaultRoute tells 0.0.0.0/0 from ::/0: by the gateway, by what only IPv6
// prints, else by the lines before it.
func defaultRoute(rest []string, family int) netip.Prefix {
	for i, f := range rest {
		switch {
		case f == "via" && i+2 < len(rest) && (rest[i+1] == "inet6" || rest[i+1] == "inet"):
			// The family of the gateway is named only where it differs from the route's.
			family = 4
			if rest[i+1] == "inet" {
				family = 6
			}
			return anyPrefix(family)
		case f == "via" && i+1 < len(rest):
			if gw, err := netip.ParseAddr(rest[i+1]); err == nil && gw.Is4() {
				return anyPrefix(4)
			}
			return anyPrefix(6)
		case f == "pref" || f == "error":
			return anyPrefix(6)
		}
	}
	return anyPrefix(family)
}

func anyPrefix(family int) netip.Prefix {
	if family == 6 {
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
}

// nextHops reads "via A dev D …" and any number of "nexthop via A dev D …".
// Dead ones are left out, since the kernel does not use them; dead says that
// there was nothing else.
func nextHops(fields []string) (hops []ipam.NextHop, dead bool) {
	var hop ipam.NextHop
	alive := true
	flush := func() {
		if hop.Dev == "" && !hop.Via.IsValid() {
			return
		}
		if alive {
			hops = append(hops, hop)
		} else {
			dead = true
		}
		hop, alive = ipam.NextHop{}, true
	}
	for i := 0; i < len(fields); i++ {
		next := ""
		if i+1 < len(fields) {
			next = fields[i+1]
		}
		switch fields[i] {
		case "nexthop":
			flush()
		case "via":
			if next == "inet6" || next == "inet" {
				i++
				if i+1 < len(fields) {
					next = fields[i+1]
				}
			}
			if a, err := netip.ParseAddr(next); err == nil {
				hop.Via = a.Unmap().WithZone("")
				i++
			}
		case "dev":
			hop.Dev = next
			i++
		case "dead":
			alive = false
		}
	}
	flush()
	return hops, dead && len(hops) == 0
}

// parseNetstat reads a line of route -n or netstat -rn, IPv4 (Destination
// Gateway Genmask Flags Metric Ref Use Iface) or IPv6 (Destination Next-Hop
// Flags Metric Ref Use Iface).
func parseNetstat(f []string) (ipam.Route, bool) {
	r := ipam.Route{Type: ipam.Unicast}
	var flags, metric, dev string
	var gateway string
	switch {
	case len(f) == 8:
		dst, err1 := netip.ParseAddr(f[0])
		mask, err2 := netip.ParseAddr(f[2])
		if err1 != nil || err2 != nil || !dst.Is4() || !mask.Is4() {
			return r, false
		}
		ones, ok := maskBits(mask)
		if !ok {
			return r, false
		}
		r.Dst = netip.PrefixFrom(dst, ones).Masked()
		gateway, flags, metric, dev = f[1], f[3], f[4], f[7]
	case len(f) == 7 && strings.Contains(f[0], ":") && strings.Contains(f[0], "/"):
		dst, err := netip.ParsePrefix(f[0])
		_, err2 := netip.ParseAddr(f[1])
		if err != nil || err2 != nil || !strings.ContainsAny(f[2], "U!") {
			return r, false
		}
		r.Dst = dst.Masked()
		gateway, flags, metric, dev = f[1], f[2], f[3], f[6]
	default:
		return r, false
	}
	if m, err := strconv.ParseUint(metric, 10, 32); err == nil {
		r.Metric = uint32(m)
	}
	switch {
	case strings.Contains(flags, "!"):
		r.Type = ipam.Unreachable
	case dev == "*" || dev == "-":
		// A blackhole has no interface; that is all route -n tells of it.
		r.Type = ipam.Blackhole
	default:
		hop := ipam.NextHop{Dev: dev}
		if gw, err := netip.ParseAddr(gateway); err == nil && !gw.IsUnspecified() {
			hop.Via = gw
		}
		r.NextHops = []ipam.NextHop{hop}
	}
	return r, true
}

// maskBits is the prefix length of a netmask.
func maskBits(mask netip.Addr) (int, bool) {
	b := mask.As4()
	v := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	ones := 0
	for v&(1<<31) != 0 {
		ones++
		v <<= 1
	}
	return ones, v == 0
}

// mergeRoutes joins two views of one table without doubling what both hold.
func mergeRoutes(a, b []ipam.Route) []ipam.Route {
	same := func(r ipam.Route) func(ipam.Route) bool {
		return func(o ipam.Route) bool {
			return o.Dst == r.Dst && o.Step == r.Step && o.Type == r.Type && o.Metric == r.Metric && slices.Equal(o.NextHops, r.NextHops)
		}
	}
	byDst := map[netip.Prefix][]ipam.Route{}
	for _, r := range a {
		byDst[r.Dst] = append(byDst[r.Dst], r)
	}
	for _, r := range b {
		if !slices.ContainsFunc(byDst[r.Dst], same(r)) {
			a = append(a, r)
			byDst[r.Dst] = append(byDst[r.Dst], r)
		}
	}
	return a
}
