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
}

// TableKind says whose view a table is.
type TableKind string

const (
	// KernelTable is the kernel's main table: what really happens to packets.
	KernelTable TableKind = "kernel"
	// BIRDTable is BIRD's best routes (CalicoNodeStatus): meaningless for pools that Felix programs.
	BIRDTable TableKind = "bird"
)

// RouteTable is what one node does with packets. Both families may be in it.
type RouteTable struct {
	// Node is the Kubernetes node name.
	Node string
	Kind TableKind
	// Source says where it came from: a file name, "agent", "exec".
	Source string
	// AsOf is when it was read; zero when not known (then the snapshot's time).
	AsOf   time.Time
	Routes []Route

	byPrefix map[netip.Prefix]int
	lengths4 []int
	lengths6 []int
}

// seal sorts the routes and builds the longest-prefix index. Of several routes
// for one prefix the lowest metric wins, the first printed among equals.
func (t *RouteTable) seal() {
	slices.SortStableFunc(t.Routes, func(a, b Route) int {
		return cmp.Or(a.Dst.Addr().Compare(b.Dst.Addr()), cmp.Compare(a.Dst.Bits(), b.Dst.Bits()), cmp.Compare(a.Metric, b.Metric))
	})
	t.byPrefix = make(map[netip.Prefix]int, len(t.Routes))
	for i, r := range t.Routes {
		if _, ok := t.byPrefix[r.Dst]; ok {
			continue
		}
		t.byPrefix[r.Dst] = i
		lengths := &t.lengths4
		if !r.Dst.Addr().Is4() {
			lengths = &t.lengths6
		}
		if !slices.Contains(*lengths, r.Dst.Bits()) {
			*lengths = append(*lengths, r.Dst.Bits())
		}
	}
	desc := func(a, b int) int { return b - a }
	slices.SortFunc(t.lengths4, desc)
	slices.SortFunc(t.lengths6, desc)
}

// Lookup returns the route of the longest prefix that contains ip, as the
// kernel chooses it; nil when none does.
func (t *RouteTable) Lookup(ip netip.Addr) *Route {
	lengths := t.lengths4
	if !ip.Is4() {
		lengths = t.lengths6
	}
	for _, n := range lengths {
		p, err := ip.Prefix(n)
		if err != nil {
			continue
		}
		if i, ok := t.byPrefix[p]; ok {
			return &t.Routes[i]
		}
	}
	return nil
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
