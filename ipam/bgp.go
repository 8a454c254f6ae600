package ipam

import (
	"net/netip"
	"slices"
	"strings"
)

// BGPPeer is a BGPPeer object.
type BGPPeer struct {
	Name string
	// Node or NodeSelector say which nodes have the peer; neither: all.
	Node, NodeSelector string
	// PeerIP (with or without a port) or PeerSelector say who it is.
	PeerIP, PeerSelector string
	// ASNumber is the peer's; LocalASNumber replaces the node's towards it.
	ASNumber, LocalASNumber  uint32
	NumAllowedLocalASNumbers int
	// Filters name BGPFilters, which are tried in this order.
	Filters []string
	// Workloads is true where the peers are pods (localWorkloadSelector, v3.30).
	Workloads bool

	address          netip.Addr
	nodeSel, peerSel *Selector
}

// seal parses what the look-ups need.
func (p *BGPPeer) seal() {
	if ap, err := netip.ParseAddrPort(p.PeerIP); err == nil {
		p.address = ap.Addr().Unmap()
	} else if a, err := netip.ParseAddr(strings.Trim(p.PeerIP, "[]")); err == nil {
		p.address = a.Unmap()
	}
	if p.NodeSelector != "" {
		p.nodeSel, _ = ParseSelector(p.NodeSelector)
	}
	if p.PeerSelector != "" {
		p.peerSel, _ = ParseSelector(p.PeerSelector)
	}
}

// Address is PeerIP without its port; invalid where the peer has none.
func (p *BGPPeer) Address() netip.Addr { return p.address }

// appliesTo reports whether the node runs the peering. A selector that cannot
// be parsed selects nothing.
func (p *BGPPeer) appliesTo(n *Node) bool {
	switch {
	case p.Node != "":
		return strings.EqualFold(p.Node, n.Name)
	case p.NodeSelector != "":
		return p.nodeSel != nil && p.nodeSel.Matches(n.Labels)
	}
	return true
}

// BGPFilter is a BGPFilter object (v3.26).
type BGPFilter struct {
	Name                                   string
	ExportV4, ImportV4, ExportV6, ImportV6 []BGPFilterRule
}

// BGPFilterRule is one rule; the first that matches a route decides.
type BGPFilterRule struct {
	// CIDR is invalid where the rule is for every prefix.
	CIDR netip.Prefix
	// Operator is In, NotIn, Equal or NotEqual.
	Operator string
	// MinLength and MaxLength limit what lies In the CIDR; -1 where not set.
	MinLength, MaxLength int
	// Source is RemotePeers for routes that were learnt by BGP, or empty.
	Source string
	// PeerType is eBGP, iBGP or empty.
	PeerType string
	// Opaque is true where the rule also asks for an interface, communities, an
	// AS path or a priority, which a snapshot does not hold.
	Opaque bool
	Reject bool
}

type filterVerdict int

const (
	accepted filterVerdict = iota
	rejected
	// undecidable is the third answer: a rule may or may not match.
	undecidable
)

// matches says whether the rule is about the route, as confd's BIRD filters
// are (confd/pkg/resource/template/template_funcs.go): In means inside or
// equal, with the prefix length between the CIDR's own and the host's by default.
func (r *BGPFilterRule) matches(route netip.Prefix, learned, ebgp bool) bool {
	switch {
	case r.Source == "RemotePeers" && !learned,
		r.PeerType == "eBGP" && !ebgp, r.PeerType == "iBGP" && ebgp:
		return false
	case !r.CIDR.IsValid():
		return true
	}
	low, high := r.CIDR.Bits(), route.Addr().BitLen()
	if r.MinLength >= 0 {
		low = r.MinLength
	}
	if r.MaxLength >= 0 {
		high = r.MaxLength
	}
	in := Contains(r.CIDR, route) && route.Bits() >= low && route.Bits() <= high
	switch r.Operator {
	case "NotIn":
		return !in
	case "Equal":
		return route == r.CIDR
	case "NotEqual":
		return route != r.CIDR
	default:
		return in
	}
}

// filter runs a local host route through named filters on export, or the same
// route as BGP brings it through those on import. What no rule decides is
// accepted: Calico's own filters let host routes of exported pools pass.
func (s *Snapshot) filter(names []string, route netip.Prefix, export, ebgp bool) filterVerdict {
	maybe := false
	for _, name := range names {
		i := slices.IndexFunc(s.Filters, func(f BGPFilter) bool { return f.Name == name })
		if i < 0 {
			continue
		}
		f := &s.Filters[i]
		rules := f.ImportV4
		switch v4 := route.Addr().Is4(); {
		case v4 && export:
			rules = f.ExportV4
		case !v4 && export:
			rules = f.ExportV6
		case !v4:
			rules = f.ImportV6
		}
		for j := range rules {
			r := &rules[j]
			switch {
			case !r.matches(route, !export, ebgp):
			case r.Opaque:
				maybe = maybe || r.Reject
			case maybe:
				if r.Reject {
					return rejected
				}
				return undecidable
			case r.Reject:
				return rejected
			default:
				return accepted
			}
		}
	}
	if maybe {
		return undecidable
	}
	return accepted
}
