package ipam

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// RouteType is the kernel's type of a route.
type RouteType string

// The types that matter: a packet is forwarded, delivered to the host itself,
// or dropped in one of three ways (ip-route(8)).
const (
	Unicast     RouteType = "unicast"
	Local       RouteType = "local"
	Blackhole   RouteType = "blackhole"
	Unreachable RouteType = "unreachable"
	Prohibit    RouteType = "prohibit"
	// Throw ends the look-up in this table; policy rules go on elsewhere.
	Throw RouteType = "throw"
)

// Drops reports whether the route loses the packet.
func (t RouteType) Drops() bool { return t == Blackhole || t == Unreachable || t == Prohibit }

// NextHop is one way out of a route.
type NextHop struct {
	// Via is the gateway; invalid when the destination is on link.
	Via netip.Addr `json:"via,omitzero"`
	Dev string     `json:"dev,omitempty"`
}

// Route is one line of a node's table.
type Route struct {
	Dst      netip.Prefix
	Type     RouteType
	NextHops []NextHop
	// Proto is as printed: bird, 12, 80, kernel, boot…
	Proto string
	// Metric decides among routes of one prefix: the lowest wins.
	Metric uint32
	// Text is the line as the node printed it.
	Text string
	// Step is the place of the route's table among those that the node's policy
	// rules consult one after the other: a later one only counts where no
	// earlier one has a route for the address. Zero where one table is all.
	Step int
}

// TableKind says whose view a table is.
type TableKind string

const (
	// KernelTable is the kernel's main table: what really happens to packets.
	KernelTable TableKind = "kernel"
	// BIRDTable is BIRD's best routes (CalicoNodeStatus): meaningless for pools that Felix programs.
	BIRDTable TableKind = "bird"
)

// RouteTable is what one node does with packets for pods. Both families may be in it.
type RouteTable struct {
	// Node is the Kubernetes node name.
	Node string
	Kind TableKind
	// Source says where it came from: a file name, "agent", "exec".
	Source string
	// AsOf is when it was read; zero when not known (then the snapshot's time).
	AsOf   time.Time
	Routes []Route
	// Blind4 and Blind6 say why nothing is known of a family: it was not read,
	// or policy rules send packets where the table does not follow. Empty where
	// it is known; a blind family has no routes.
	Blind4, Blind6 string
	// Partial is true where routes were left out that neither drop nor lie
	// inside a prefix that is dropped (see Knows).
	Partial bool

	steps []step
}

// step is the longest-prefix index of the routes of one Step.
type step struct {
	byPrefix           map[netip.Prefix]int
	lengths4, lengths6 []int
}

// seal sorts the routes and builds the longest-prefix index. Of several routes
// for one prefix the lowest metric wins, the first printed among equals.
func (t *RouteTable) seal() {
	slices.SortStableFunc(t.Routes, func(a, b Route) int {
		return cmp.Or(a.Dst.Addr().Compare(b.Dst.Addr()), cmp.Compare(a.Dst.Bits(), b.Dst.Bits()), cmp.Compare(a.Step, b.Step), cmp.Compare(a.Metric, b.Metric))
	})
	t.steps = nil
	for i, r := range t.Routes {
		for len(t.steps) <= r.Step {
			t.steps = append(t.steps, step{byPrefix: map[netip.Prefix]int{}})
		}
		s := &t.steps[r.Step]
		if _, ok := s.byPrefix[r.Dst]; ok {
			continue
		}
		s.byPrefix[r.Dst] = i
		lengths := &s.lengths4
		if !r.Dst.Addr().Is4() {
			lengths = &s.lengths6
		}
		if !slices.Contains(*lengths, r.Dst.Bits()) {
			*lengths = append(*lengths, r.Dst.Bits())
		}
	}
	desc := func(a, b int) int { return b - a }
	for i := range t.steps {
		slices.SortFunc(t.steps[i].lengths4, desc)
		slices.SortFunc(t.steps[i].lengths6, desc)
	}
}

// Lookup returns the route of the longest prefix that contains ip, as the
// kernel chooses it; nil when none does. Ask Knows first whether that means
// anything.
func (t *RouteTable) Lookup(ip netip.Addr) *Route {
	var thrown *Route
	for i := range t.steps {
		j, ok := t.steps[i].lookup(ip)
		if !ok {
			continue
		}
		r := &t.Routes[j]
		if r.Type != Throw {
			return r
		}
		thrown = r
	}
	return thrown
}

func (s *step) lookup(ip netip.Addr) (int, bool) {
	lengths := s.lengths4
	if !ip.Is4() {
		lengths = s.lengths6
	}
	for _, n := range lengths {
		p, err := ip.Prefix(n)
		if err != nil {
			continue
		}
		if i, ok := s.byPrefix[p]; ok {
			return i, true
		}
	}
	return 0, false
}

// Knows reports whether Lookup's answer for ip is the node's own, and if not,
// why. A partial table answers for host routes, for what is dropped, and for
// what lies inside a prefix that is dropped; of other addresses it only knows
// that this node does not drop them.
func (t *RouteTable) Knows(ip netip.Addr) (known bool, why string) {
	if why := t.Blind(ip); why != "" {
		return false, why
	}
	if !t.Partial {
		return true, ""
	}
	if r := t.Lookup(ip); r != nil && (r.Type.Drops() || r.Dst.IsSingleIP()) {
		return true, ""
	}
	for i := range t.Routes {
		if t.Routes[i].Type.Drops() && t.Routes[i].Dst.Contains(ip) {
			return true, ""
		}
	}
	return false, "the table is too large to be published whole; it only shows what is dropped"
}

// Blind says why nothing is known of ip's family, or nothing.
func (t *RouteTable) Blind(ip netip.Addr) string {
	if ip.Is4() {
		return t.Blind4
	}
	return t.Blind6
}

// Dropping yields the routes that lose packets, in address order.
func (t *RouteTable) Dropping() []*Route {
	var out []*Route
	for i := range t.Routes {
		if t.Routes[i].Type.Drops() {
			out = append(out, &t.Routes[i])
		}
	}
	return out
}
