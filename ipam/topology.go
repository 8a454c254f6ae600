package ipam

import (
	"fmt"
	"slices"
	"strings"
)

// Programmer is who writes a pool's routes to remote blocks and borrowed
// addresses into the kernels.
type Programmer string

// The two programmers.
const (
	// Felix works from the datastore: borrowed addresses always get their route.
	Felix Programmer = "Felix"
	// BIRD works from BGP: a borrowed address has a route where BGP carries its /32.
	BIRD Programmer = "BIRD"
)

// RoutesBy tells who programs the pool's routes. VXLAN is always Felix; IPIP
// is Felix from v3.33 unless BGPConfiguration.programClusterRoutes takes it
// back, and in v3.31 and v3.32 where Felix has it enabled and BGP disabled;
// everything else is BIRD (felix/dataplane/linux/route_mgr.go,
// confd/templates/bird*.template).
func (s *Snapshot) RoutesBy(p *Pool) Programmer {
	switch {
	case p.VXLAN():
		return Felix
	case p.IPIP() && s.Info.Version.AtLeast(3, 33):
		if s.BGP.ProgramClusterRoutes == "Enabled" || s.BGP.ProgramClusterRoutes == "EnabledIPIPOnly" {
			return BIRD
		}
		return Felix
	case p.IPIP() && s.Info.Version.AtLeast(3, 31):
		if s.Felix.ProgramClusterRoutes == "Enabled" && s.BGP.ProgramClusterRoutes == "Disabled" {
			return Felix
		}
	}
	return BIRD
}

// Carry is the answer to "does the owner of a block learn the host route of an
// address that another node borrows?"
type Carry string

const (
	// Carried: by Felix, the node mesh, a route reflector or an allowed own AS.
	Carried Carry = "carried"
	// AtRisk: only external peers, which usually do not send a node's own
	// routes back to its peers of the same AS.
	AtRisk Carry = "at risk"
	// CarryUnknown: the BGP objects were not read.
	CarryUnknown Carry = "unknown"
)

// CarriesHostRoute predicts, without route tables, whether a host route of a
// borrowed address in this pool reaches the block's owner. An AtRisk answer is
// inferred, never proof (projectcalico/calico#3246, #4287; T296303).
func (s *Snapshot) CarriesHostRoute(p *Pool, owner, borrower *Node) (Carry, string) {
	switch {
	case s.RoutesBy(p) == Felix:
		return Carried, "Felix programs the routes of pool " + p.Name + " from IPAM itself"
	case !s.Coverage.Read(ResBGPConfig) && !s.Coverage.Read(ResBGPPeers):
		return CarryUnknown, "BGPConfiguration and BGPPeers were not read"
	case p.DisableBGPExport:
		return AtRisk, "pool " + p.Name + " has disableBGPExport, so no node announces the borrowed address"
	case s.BGP.Mesh:
		return Carried, "the node-to-node mesh carries host routes"
	case !s.Coverage.Read(ResBGPPeers):
		return CarryUnknown, "the node-to-node mesh is off and BGPPeers were not read"
	}
	external, allowsOwnAS := 0, 0
	for i := range s.Peers {
		peer := &s.Peers[i]
		if owner != nil && !peerAppliesTo(peer, owner) {
			continue
		}
		if peer.PeerSelector != "" {
			if s.reflects(peer, owner, borrower) {
				return Carried, "route reflectors carry host routes (BGPPeer " + peer.Name + ")"
			}
			continue
		}
		external++
		// Only eBGP drops a route for carrying the node's own AS number; an iBGP
		// router that is no reflector never passes it on at all.
		if peer.NumAllowedLocalASNumbers > 0 && peer.ASNumber != 0 && peer.ASNumber != s.BGP.ASNumber {
			allowsOwnAS++
		}
	}
	switch {
	case external == 0:
		return AtRisk, "the node-to-node mesh is off and no BGPPeer carries host routes between the nodes"
	case allowsOwnAS == external:
		return Carried, "every BGPPeer accepts the nodes' own AS number (numAllowedLocalASNumbers)"
	default:
		return AtRisk, fmt.Sprintf("the node-to-node mesh is off and the nodes only peer with external routers (%d BGPPeer), which usually do not send a node's host route back to its own AS", external)
	}
}

// reflects reports whether the peer leads to route reflectors of this cluster:
// nodes with a cluster id that the selector matches, or a selector that matches
// the borrower itself.
func (s *Snapshot) reflects(peer *BGPPeer, owner, borrower *Node) bool {
	sel, err := ParseSelector(peer.PeerSelector)
	if err != nil {
		return false
	}
	if borrower != nil && sel.Matches(borrower.Labels) || owner != nil && sel.Matches(owner.Labels) && owner.RRClusterID != "" {
		return true
	}
	return slices.ContainsFunc(s.Nodes, func(n Node) bool { return n.RRClusterID != "" && sel.Matches(n.Labels) })
}

// peerAppliesTo reports whether the node runs the peering.
func peerAppliesTo(peer *BGPPeer, n *Node) bool {
	if peer.Node != "" {
		return strings.EqualFold(peer.Node, n.Name)
	}
	if peer.NodeSelector != "" {
		sel, err := ParseSelector(peer.NodeSelector)
		return err == nil && sel.Matches(n.Labels)
	}
	return true
}
