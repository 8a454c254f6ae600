package collect

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ipamaudit/ipam"
)

// jsonRoute is one object of ip -j route.
type jsonRoute struct {
	Type     string     `json:"type"`
	Dst      string     `json:"dst"`
	Protocol flexText   `json:"protocol"`
	Metric   flexNumber `json:"metric"`
	Table    flexText   `json:"table"`
	Pref     string     `json:"pref"`
	Error    flexText   `json:"error"`
	jsonHop  `json:",inline"`
	NextHops []jsonHop `json:"nexthops"`
}

type jsonHop struct {
	Gateway string   `json:"gateway"`
	Dev     string   `json:"dev"`
	Flags   []string `json:"flags"`
	Via     struct {
		Family string `json:"family"`
		Host   string `json:"host"`
	} `json:"via"`
}

// flexText is a name that ip -N prints as a number.
type flexText string

// UnmarshalJSON accepts strings and numbers.
func (t *flexText) UnmarshalJSON(raw []byte) error {
	*t = flexText(strings.Trim(string(raw), `"`))
	return nil
}

// json reads ip -j route: arrays of objects, one after the other.
func (p *Parsed) json(data []byte) error {
	d := jsontext.NewDecoder(bytes.NewReader(data), jsontext.AllowDuplicateNames(true))
	family := 4
	for n := 1; ; n++ {
		var routes []jsonRoute
		err := json.UnmarshalDecode(d, &routes)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			field, message := explain(err)
			return fmt.Errorf("array %d: %s: %s; the node's table is not known", n, orElse(field, "it"), message)
		}
		for i, r := range routes {
			if r.Dst == "" {
				continue // old iproute2 prints {} for what it filters
			}
			line := r.line()
			fields := strings.Fields(line)
			route, verdict := parseLine(fields, &family)
			switch verdict {
			case notRoute:
				p.unknown(i+1, line)
			case notOurs:
			case isRoute:
				if route.Type == ipam.Unicast && len(route.NextHops) == 0 {
					continue
				}
				route.Text = line
				p.Routes = append(p.Routes, route)
			}
		}
	}
}

// line spells the route as ip -o route does, so that both formats are read by
// one set of rules and evidence looks the same.
func (r *jsonRoute) line() string {
	var b strings.Builder
	word := func(parts ...string) {
		for _, s := range parts {
			if b.Len() > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(s)
		}
	}
	if r.Type != "" && r.Type != "unicast" {
		word(r.Type)
	}
	word(r.Dst)
	hop := func(h *jsonHop) {
		switch {
		case h.Via.Host != "":
			word("via", h.Via.Family, h.Via.Host)
		case h.Gateway != "":
			word("via", h.Gateway)
		}
		if h.Dev != "" {
			word("dev", h.Dev)
		}
	}
	hop(&r.jsonHop)
	if r.Protocol != "" {
		word("proto", string(r.Protocol))
	}
	if r.Metric != 0 {
		word("metric", strconv.FormatUint(uint64(r.Metric), 10))
	}
	if r.Table != "" {
		word("table", string(r.Table))
	}
	if r.Error != "" {
		word("error", string(r.Error))
	}
	for _, f := range r.Flags {
		word(f)
	}
	if r.Pref != "" {
		word("pref", r.Pref)
	}
	for i := range r.NextHops {
		word("\\", "nexthop")
		hop(&r.NextHops[i])
		for _, f := range r.NextHops[i].Flags {
			word(f)
		}
	}
	return b.String()
}

// FormatRoutes prints routes so that ParseRoutes reads the same ones again.
func FormatRoutes(routes []ipam.Route) []byte {
	var b bytes.Buffer
	for _, family4 := range []bool{true, false} {
		for _, r := range routes {
			if r.Dst.Addr().Is4() == family4 {
				b.WriteString(formatRoute(r))
				b.WriteByte('\n')
			}
		}
	}
	return b.Bytes()
}

// formatRoute is the line the node printed, or one that says the same.
func formatRoute(r ipam.Route) string {
	if r.Text != "" {
		// A bare IPv6 default is only known by the lines before it.
		family := 4
		fields := strings.Fields(strings.ReplaceAll(r.Text, `\`, " "))
		if len(fields) > 0 {
			if again, v := parseLine(fields, &family); v == isRoute && sameRoute(again, r) {
				return r.Text
			}
		}
	}
	dst := r.Dst.String()
	j := jsonRoute{Type: string(r.Type), Dst: dst, Protocol: flexText(r.Proto), Metric: flexNumber(r.Metric)}
	for _, h := range r.NextHops {
		jh := jsonHop{Dev: h.Dev}
		switch {
		case !h.Via.IsValid():
		case h.Via.Is4() != r.Dst.Addr().Is4():
			jh.Via.Host, jh.Via.Family = h.Via.String(), "inet6"
			if h.Via.Is4() {
				jh.Via.Family = "inet"
			}
		default:
			jh.Gateway = h.Via.String()
		}
		j.NextHops = append(j.NextHops, jh)
	}
	if r.Dst.Addr().Is6() {
		j.Pref = "medium"
	}
	if len(j.NextHops) == 1 {
		j.jsonHop, j.NextHops = j.NextHops[0], nil
	}
	return j.line()
}

func sameRoute(a, b ipam.Route) bool {
	return a.Dst == b.Dst && a.Type == b.Type && a.Metric == b.Metric && a.Proto == b.Proto && len(mergeRoutes([]ipam.Route{a}, []ipam.Route{b})) == 1
}
