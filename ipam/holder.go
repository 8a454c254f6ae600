package ipam

import (
	"net/netip"
	"slices"
	"strings"
)

// HolderKind says who really holds a booked address.
type HolderKind uint8

const (
	// HeldUnknown: pods were not read, nobody can tell.
	HeldUnknown HolderKind = iota
	// HeldByPod: the recorded pod is live and uses the address.
	HeldByPod
	// HeldByOtherPod: another live pod uses the address than the record names.
	HeldByOtherPod
	// HeldBySibling: the recorded pod is live and uses another address of the
	// same handle, so Calico keeps both (projectcalico/calico#5044).
	HeldBySibling
	// HeldByWaitingPod: the recorded pod is live and has no address yet.
	HeldByWaitingPod
	// HeldByVM: a KubeVirt machine keeps its address while it is stopped or moves.
	HeldByVM
	// HeldByTunnel: a tunnel address of a node that exists.
	HeldByTunnel
	// HeldByService: a Service of type LoadBalancer.
	HeldByService
	// HeldByWindows: reserved by HNS in every block of a Windows node.
	HeldByWindows
	// HeldCoolingDown: released, and waiting before it is given out again (v3.33).
	HeldCoolingDown
	// HeldUnowned: no pod and no node is recorded: booked by hand, by another
	// orchestrator or by a very old release. Never collected, never a leak.
	HeldUnowned
	// LeakedGone: the recorded pod does not exist.
	LeakedGone
	// LeakedFinished: the recorded pod has finished.
	LeakedFinished
	// LeakedOtherAddress: the recorded pod is live and uses other addresses only.
	LeakedOtherAddress
	// LeakedTunnel: a tunnel address of a node that does not exist.
	LeakedTunnel
)

// Leaked reports whether nobody uses the address any more.
func (k HolderKind) Leaked() bool { return k >= LeakedGone }

// Live reports whether a running pod or a tunnel uses the address.
func (k HolderKind) Live() bool {
	return k == HeldByPod || k == HeldByOtherPod || k == HeldBySibling || k == HeldByTunnel
}

// Holder is who really holds a booked address.
type Holder struct {
	Kind HolderKind
	// Pod holds the address (or is the recorded one, for HeldByWaitingPod and leaks).
	Pod *Pod
	// Node is where the address is used: the pod's or the tunnel's node. It may
	// be nil when the node was not read.
	Node *Node
	// NodeName is Node's name even where the node object is not known.
	NodeName string
}

// Holder decides who holds a booked address, by the rules of Calico's own
// collector (kube-controllers/pkg/controllers/node/ipam.go: allocationIsValid)
// with one difference: a running pod that has the address always wins.
func (s *Snapshot) Holder(a Allocation) Holder {
	if a.nth > 0 && a.nth <= len(a.Block.holders) {
		return a.Block.holders[a.nth-1]
	}
	return s.holder(a)
}

func (s *Snapshot) holder(a Allocation) Holder {
	at := a.Attr
	switch {
	case at.CoolingDown():
		return Holder{Kind: HeldCoolingDown}
	case at.WindowsReserved():
		return Holder{Kind: HeldByWindows}
	case at.LoadBalancer() || a.Block.Owner.Type == "virtual":
		return Holder{Kind: HeldByService}
	case at.Tunnel():
		return s.tunnelHolder(a)
	}
	if !s.Coverage.Read(ResPods) {
		return Holder{Kind: HeldUnknown, NodeName: s.KubernetesName(at.Node)}
	}
	var other *Pod
	for _, p := range s.ix.podsByIP[a.IP] {
		if p.Namespace == at.Namespace && p.Name == at.Pod {
			return s.podHolder(HeldByPod, p)
		}
		if other == nil || p.Phase == "Running" && other.Phase != "Running" {
			other = p
		}
	}
	if at.VMI != "" {
		return s.vmHolder(a, other)
	}
	if other != nil {
		if at.Pod == "" {
			// The record names nobody; whoever runs with the address holds it.
			return s.podHolder(HeldByPod, other)
		}
		return s.podHolder(HeldByOtherPod, other)
	}
	if at.Pod == "" {
		return Holder{Kind: HeldUnowned, NodeName: s.KubernetesName(at.Node)}
	}
	p := s.Pod(at.Namespace, at.Pod)
	switch {
	case p == nil:
		return Holder{Kind: LeakedGone, Node: s.Node(at.Node), NodeName: s.KubernetesName(at.Node)}
	case p.Finished():
		return s.podHolder(LeakedFinished, p)
	case p.Live() && len(p.IPs()) == 0:
		return s.podHolder(HeldByWaitingPod, p)
	case s.usesHandle(p, at.Handle):
		return s.podHolder(HeldBySibling, p)
	case !p.Live() && !p.HostNetwork:
		// Not scheduled: a pod of the same name was recreated and waits for a node.
		return s.podHolder(LeakedGone, p)
	default:
		return s.podHolder(LeakedOtherAddress, p)
	}
}

// usesHandle reports whether one of the pod's addresses is booked under the handle.
func (s *Snapshot) usesHandle(p *Pod, handle string) bool {
	return handle != "" && slices.ContainsFunc(p.IPs(), func(ip netip.Addr) bool {
		a, ok := s.AllocationOf(ip)
		return ok && a.Attr.Handle == handle
	})
}

func (s *Snapshot) podHolder(kind HolderKind, p *Pod) Holder {
	return Holder{Kind: kind, Pod: p, Node: s.ix.nodes[p.NodeName], NodeName: p.NodeName}
}

func (s *Snapshot) tunnelHolder(a Allocation) Holder {
	// The node whose annotation carries the address is where it is used, whoever is recorded.
	for _, t := range s.ix.tunnels[a.IP] {
		return Holder{Kind: HeldByTunnel, Node: t.Node, NodeName: t.Node.Name}
	}
	name := a.Attr.Node
	if name == "" {
		for _, p := range []string{"ipip-tunnel-addr-", "vxlan-tunnel-addr-", "vxlan-v6-tunnel-addr-", "wireguard-tunnel-addr-", "wireguard-v6-tunnel-addr-"} {
			if rest, ok := strings.CutPrefix(a.Attr.Handle, p); ok {
				name = rest
			}
		}
	}
	kube := s.KubernetesName(name)
	if !s.Coverage.Read(ResNodes) {
		return Holder{Kind: HeldUnknown, NodeName: kube}
	}
	if n := s.NodeByFold(name); n != nil {
		return Holder{Kind: HeldByTunnel, Node: n, NodeName: n.Name}
	}
	return Holder{Kind: LeakedTunnel, NodeName: kube}
}

func (s *Snapshot) vmHolder(a Allocation, other *Pod) Holder {
	if other != nil {
		return s.podHolder(HeldByPod, other)
	}
	for _, p := range s.ix.nodePods[s.KubernetesName(a.Attr.Node)] {
		if p.VMI != "" && p.VMI == a.Attr.VMI && p.Namespace == a.Attr.Namespace && p.Live() {
			return s.podHolder(HeldBySibling, p)
		}
	}
	return Holder{Kind: HeldByVM, Node: s.Node(a.Attr.Node), NodeName: s.KubernetesName(a.Attr.Node)}
}
