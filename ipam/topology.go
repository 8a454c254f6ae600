package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Programmer is who writes a pool's routes to remote blocks and borrowed
// addresses into the kernels.
type Programmer string

// The programmers.
const (
	// Felix works from the datastore: borrowed addresses always get their route.
	Felix Programmer = "Felix"
	// BIRD works from BGP: a borrowed address has a route where BGP carries its /32.
	BIRD Programmer = "BIRD"
	// Nobody: the two settings of programClusterRoutes (v3.33) leave the pool to neither.
	Nobody Programmer = "nobody"
	// Unsure: what decides was refused.
	Unsure Programmer = "unknown"
)

// RoutesBy tells who programs the pool's routes. VXLAN is always Felix. Up to
// v3.32 everything else is BIRD, but for IPIP in v3.31 and v3.32 where Felix
// has it enabled and BGP disabled. From v3.33 FelixConfiguration and
// BGPConfiguration each name the classes of pools they program, IPIP being
// Felix's and the rest BIRD's by default (felix/dataplane/linux/route_mgr.go,
// confd/pkg/backends/calico/bgp_processor.go).
func (s *Snapshot) RoutesBy(p *Pool) Programmer {
	if p.VXLAN() {
		return Felix
	}
	hidden := s.Coverage.Refused(ResFelixConfig) || s.Coverage.Refused(ResBGPConfig)
	switch v := s.Info.Version; {
	case !v.Known() && s.Coverage.Refused(ResClusterInfo) && (hidden || p.IPIP()),
		hidden && (v.Has(RouteClasses) || p.IPIP() && v.Has(FelixMayRouteIPIP)):
		return Unsure
	}
	felix, bgp := s.Felix.ProgramClusterRoutes, s.BGP.ProgramClusterRoutes
	if s.Info.Version.Has(RouteClasses) {
		switch {
		case programs(bgp, "EnabledNoEncapOnly", p.IPIP()):
			return BIRD
		case programs(felix, "EnabledIPIPOnly", p.IPIP()):
			return Felix
		}
		return Nobody
	}
	if p.IPIP() && s.Info.Version.Has(FelixMayRouteIPIP) && felix == "Enabled" && bgp == "Disabled" {
		return Felix
	}
	return BIRD
}

// programs reads a v3.33 value of programClusterRoutes, def where it is not set.
func programs(value, def string, ipip bool) bool {
	if value == "" {
		value = def
	}
	return value == "Enabled" || ipip && value == "EnabledIPIPOnly" || !ipip && value == "EnabledNoEncapOnly"
}

// Carry says whether the owner of a block learns the host route of an address
// that another node borrows.
type Carry string

const (
	// Carried: by Felix, the node mesh, a route reflector, an allowed own AS or
	// routers that see different AS numbers.
	Carried Carry = "carried"
	// AtRisk: nothing in the configuration brings the host route to the owner.
	AtRisk Carry = "at risk"
	// CarryUnknown: the objects that decide were not read, or decide by what a
	// snapshot does not hold.
	CarryUnknown Carry = "unknown"
)

// CarriesHostRoute predicts, without route tables, whether host routes of this
// pool that the borrower announces reach the block's owner. It takes the
// pool's first address for all of them; CarriesAddress is exact where
// BGPFilters tell addresses apart.
func (s *Snapshot) CarriesHostRoute(p *Pool, owner, borrower *Node) (Carry, string) {
	return s.CarriesAddress(p.CIDR.Addr(), p, owner, borrower)
}

// CarriesAddress predicts, without route tables, whether the host route of a
// borrowed address reaches the block's owner. An AtRisk answer is inferred,
// never proof (projectcalico/calico#3246, #4287; T296303).
func (s *Snapshot) CarriesAddress(ip netip.Addr, p *Pool, owner, borrower *Node) (Carry, string) {
	switch by := s.RoutesBy(p); {
	case by == Felix:
		return Carried, "Felix programs the routes of pool " + p.Name + " from IPAM itself"
	case by == Unsure:
		return CarryUnknown, "whether Felix or BIRD programs the routes of pool " + p.Name + " is not known: " + s.refused(ResClusterInfo, ResFelixConfig, ResBGPConfig)
	case by == Nobody:
		return AtRisk, "programClusterRoutes leaves the routes of pool " + p.Name + " to neither Felix nor BIRD"
	case !s.Coverage.Read(ResBGPConfig) && !s.Coverage.Read(ResBGPPeers):
		return CarryUnknown, "bgpconfigurations and bgppeers were not read"
	case p.DisableBGPExport:
		return AtRisk, "pool " + p.Name + " has disableBGPExport, so no node announces the borrowed address"
	case s.Coverage.Refused(ResBGPConfig):
		return CarryUnknown, "whether the nodes peer with each other is not known: " + s.refused(ResBGPConfig)
	case s.inMesh(owner) && s.inMesh(borrower):
		return Carried, "the node-to-node mesh carries host routes"
	case !s.Coverage.Read(ResBGPPeers):
		return CarryUnknown, "the node-to-node mesh does not join these nodes and bgppeers were not read"
	case owner == nil || borrower == nil:
		return CarryUnknown, "the nodes are not known"
	}
	a := announcement{s: s, host: HostPrefix(ip), from: borrower, to: owner}
	if carry, why := a.throughNodes(); carry != AtRisk {
		return carry, why
	}
	carry, why := a.throughRouters()
	if carry == AtRisk && (len(s.Unusable(ResBGPPeers))+len(s.Unusable(ResNodes)) > 0) {
		return CarryUnknown, "some of the bgppeers or nodes could not be used, and one may carry host routes"
	}
	return carry, why
}

// refused names those of the resources that were asked for in vain.
func (s *Snapshot) refused(list ...Resource) string {
	var out []string
	for _, r := range list {
		if s.Coverage.Refused(r) {
			out = append(out, fmt.Sprintf("%s (%s)", r, s.Coverage.Get(r).Status))
		}
	}
	return strings.Join(out, ", ") + " not read"
}

// announcement is one host route on its way through BGP.
type announcement struct {
	s        *Snapshot
	host     netip.Prefix
	from, to *Node
}

// throughNodes follows sessions between the cluster's own nodes: directly to
// the owner, or through route reflectors.
func (a *announcement) throughNodes() (Carry, string) {
	type hop struct {
		at, before *Node
		external   bool // an eBGP session lies behind
	}
	queue := []hop{{at: a.from}}
	seen := map[*Node]bool{a.from: true}
	undecided := ""
	for len(queue) > 0 {
		h := queue[0]
		queue = queue[1:]
		for _, next := range append([]*Node{a.to}, a.s.ix.reflectors...) {
			if seen[next] || h.before != nil && !reflects(h.before, h.at, next) {
				continue
			}
			sess, ok := a.s.session(h.at, next)
			if !ok {
				continue
			}
			ebgp := a.s.as(h.at, sess.peer) != a.s.as(next, sess.peer)
			if next == a.to && (ebgp || h.external) && h.before != nil && a.loops(sess.peer) {
				continue // the owner finds its own AS number in the path
			}
			switch a.filters(sess.peer, ebgp, true, true) {
			case rejected:
				continue
			case undecidable:
				undecided = fmt.Sprintf("BGPFilters of BGPPeer %s decide by what the snapshot does not hold", sess.name())
				continue
			case accepted:
			}
			if next == a.to {
				if h.before == nil {
					return Carried, "the nodes peer with each other (" + sess.name() + ")"
				}
				return Carried, "route reflectors carry host routes (" + sess.name() + ")"
			}
			seen[next] = true
			queue = append(queue, hop{next, h.at, h.external || ebgp})
		}
	}
	if undecided != "" {
		return CarryUnknown, undecided
	}
	return AtRisk, ""
}

// throughRouters judges the way out to routers that are no nodes of the
// cluster and back again: they do not show whether they send it back.
func (a *announcement) throughRouters() (Carry, string) {
	out, in := a.routers(a.from), a.routers(a.to)
	if len(in) == 0 || len(out) == 0 {
		return AtRisk, "the node-to-node mesh is off and no BGPPeer carries host routes between the nodes"
	}
	sent, undecided := 0, false
	for _, p := range out {
		switch a.filters(p, a.external(a.from, p), true, false) {
		case accepted:
			sent++
		case undecidable:
			undecided = true
		case rejected:
		}
	}
	if sent == 0 && !undecided {
		return AtRisk, fmt.Sprintf("BGPFilters keep %s from announcing %s", a.from.Name, a.host)
	}
	back, filtered := 0, ""
	for _, p := range in {
		switch v := a.filters(p, a.external(a.to, p), false, true); {
		case v == rejected:
			filtered = fmt.Sprintf("BGPFilters of BGPPeer %s reject %s on %s", p.Name, a.host, a.to.Name)
		case v == undecidable:
			undecided = true
		// Only eBGP drops a route for carrying the node's own AS number; an iBGP
		// router that is no reflector never passes it on at all.
		case a.external(a.to, p) && !a.loops(p):
			back++
		}
	}
	same := a.s.as(a.from, nil) == a.s.as(a.to, nil)
	switch {
	case back == len(in) && !undecided && same:
		return Carried, "every BGPPeer accepts the nodes' own AS number (numAllowedLocalASNumbers)"
	case back == len(in) && !undecided:
		return Carried, "the nodes have AS numbers of their own, so that routers may send host routes from one to the other"
	case filtered != "":
		return AtRisk, filtered
	case undecided:
		return CarryUnknown, "BGPFilters decide by what the snapshot does not hold"
	}
	return AtRisk, fmt.Sprintf("the node-to-node mesh is off and the nodes only peer with external routers (%d BGPPeer), which usually do not send a node's host route back to its own AS", len(in))
}

// loops reports whether the owner, hearing of the route over eBGP, finds its
// own AS number in the path and drops it for that.
func (a *announcement) loops(p *BGPPeer) bool {
	if a.s.as(a.to, p) != a.s.as(a.from, p) {
		return false
	}
	// numAllowedLocalASNumbers exists since v3.23.
	return p == nil || p.NumAllowedLocalASNumbers == 0 || a.s.Info.Version.Lacks(OwnASAllowed)
}

// external reports whether the session of a node with a router is eBGP.
func (a *announcement) external(n *Node, p *BGPPeer) bool {
	return p.ASNumber != 0 && p.ASNumber != a.s.as(n, p)
}

// routers are the node's peers outside the cluster, of the route's family.
func (a *announcement) routers(n *Node) []*BGPPeer {
	var out []*BGPPeer
	for i := range a.s.Peers {
		p := &a.s.Peers[i]
		ip := p.Address()
		if p.PeerSelector != "" || p.Workloads || !p.appliesTo(n) || ip.IsValid() && ip.Is4() != a.host.Addr().Is4() {
			continue
		}
		if ip.IsValid() && a.s.nodeAt(ip) != nil {
			continue
		}
		out = append(out, p)
	}
	return out
}

// filters runs the host route through a session's BGPFilters, on the
// announcing end, the receiving end, or both. The mesh has none.
func (a *announcement) filters(p *BGPPeer, ebgp, export, imported bool) filterVerdict {
	if p == nil || len(p.Filters) == 0 {
		return accepted
	}
	if !a.s.Coverage.Read(ResBGPFilters) {
		return undecidable
	}
	verdict := accepted
	for _, dir := range []struct{ run, export bool }{{export, true}, {imported, false}} {
		if !dir.run {
			continue
		}
		switch a.s.filter(p.Filters, a.host, dir.export, ebgp) {
		case rejected:
			return rejected
		case undecidable:
			verdict = undecidable
		case accepted:
		}
	}
	return verdict
}

// reflects reports whether the reflector at passes on to next what it heard
// from before: everything but what one reflector of its own cluster told it
// for another. Calico makes every peer a client that has another cluster id.
func reflects(before, at, next *Node) bool {
	if at.RRClusterID == "" {
		return false
	}
	return before.RRClusterID != at.RRClusterID || next.RRClusterID != at.RRClusterID
}

// inMesh reports whether the node takes part in the node-to-node mesh, which
// route reflectors do not.
func (s *Snapshot) inMesh(n *Node) bool { return s.BGP.Mesh && (n == nil || n.RRClusterID == "") }

// as is the node's AS number towards a peer: the peer's localASNumber, the
// node's annotation, BGPConfiguration node.NAME, then the cluster's.
func (s *Snapshot) as(n *Node, p *BGPPeer) uint32 {
	if p != nil && p.LocalASNumber != 0 {
		return p.LocalASNumber
	}
	if n.ASNumber != 0 {
		return n.ASNumber
	}
	if as := s.BGP.NodeASNumbers[n.Name]; as != 0 {
		return as
	}
	if s.BGP.ASNumber != 0 {
		return s.BGP.ASNumber
	}
	return DefaultASNumber
}

// DefaultASNumber is the AS of a cluster that names none.
const DefaultASNumber = 64512

// session is a BGP session between two nodes; peer is nil in the mesh.
type session struct{ peer *BGPPeer }

func (x session) name() string {
	if x.peer == nil {
		return "node-to-node mesh"
	}
	return "BGPPeer " + x.peer.Name
}

// session finds the session between two nodes. A BGPPeer with a peerSelector
// makes both ends peer; one with the peer's address only its own end.
func (s *Snapshot) session(a, b *Node) (session, bool) {
	if s.inMesh(a) && s.inMesh(b) {
		return session{}, true
	}
	var fromA, fromB *BGPPeer
	for i := range s.Peers {
		p := &s.Peers[i]
		switch {
		case p.peerSel != nil:
			if p.appliesTo(a) && p.peerSel.Matches(b.Labels) || p.appliesTo(b) && p.peerSel.Matches(a.Labels) {
				return session{p}, true
			}
		case !p.Address().IsValid():
		default:
			if p.appliesTo(a) && slices.Contains(b.Addresses, p.Address()) {
				fromA = p
			}
			if p.appliesTo(b) && slices.Contains(a.Addresses, p.Address()) {
				fromB = p
			}
		}
	}
	return session{fromA}, fromA != nil && fromB != nil
}

// nodeAt returns the node that has the address, or nil.
func (s *Snapshot) nodeAt(ip netip.Addr) *Node { return s.ix.nodesByIP[ip] }
