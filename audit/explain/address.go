package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"ipamaudit/checks"
	"ipamaudit/ipam"
)

// State says in a word how it stands with an address.
type State string

const (
	// InUse: a live pod or a node's tunnel has it.
	InUse State = "in-use"
	// Waiting: booked for a pod that is being started.
	Waiting State = "waiting"
	// Kept: booked on purpose for something that is no running pod.
	Kept State = "kept"
	// CoolingDown: released, and not yet to be given out again.
	CoolingDown State = "cooling-down"
	// Leaked: booked, and nobody has it.
	Leaked State = "leaked"
	// Free: not booked, may be given out.
	Free State = "free"
	// Reserved: not booked, kept back by an IPReservation.
	Reserved State = "reserved"
	// NotIPAM: in no pool and no block.
	NotIPAM State = "not-ipam"
	// Unseen: what decides was not read.
	Unseen State = "unknown"
)

// Address is what is known of one address.
type Address struct {
	IP    netip.Addr `json:"ip"`
	State State      `json:"state"`
	// Says is the state in words: who has it, and whether the record is right.
	Says string `json:"says"`
	// Wrong is true where record and reality disagree.
	Wrong bool `json:"wrong"`

	Pool  *PoolRef  `json:"pool"`
	Block *BlockRef `json:"block"`
	// BorrowedFrom is the node that owns the block, where another one uses the address.
	BorrowedFrom string `json:"borrowedFrom,omitempty"`
	ReservedBy   string `json:"reservedBy,omitempty"`
	// Record is what IPAM booked, nil for nothing.
	Record *Record `json:"record"`
	// Pods use it; Tunnels are devices of nodes that do; Services and Nodes have
	// it as an ingress or host address.
	Pods     []PodRef `json:"pods"`
	Tunnels  []Tunnel `json:"tunnels"`
	Services []string `json:"services"`
	Nodes    []string `json:"nodes"`
	// Path is nil where nobody uses the address: no packet needs to get there.
	Path *Path `json:"path"`
}

// PoolRef names a pool.
type PoolRef struct {
	Name     string       `json:"name"`
	CIDR     netip.Prefix `json:"cidr"`
	Disabled bool         `json:"disabled"`
	// RoutesBy is Felix or BIRD; Encapsulation is none, IPIP or VXLAN with its mode.
	RoutesBy      string `json:"routesBy"`
	Encapsulation string `json:"encapsulation"`
}

// BlockRef names a block.
type BlockRef struct {
	CIDR  netip.Prefix `json:"cidr"`
	Owner string       `json:"owner"`
	// OwnerIs is exists, gone, nobody, virtual, unknown, or "called NAME" where
	// only the case differs.
	OwnerIs string `json:"ownerIs"`
}

// Record is what IPAM booked with an address.
type Record struct {
	Handle string `json:"handle"`
	// HandleExists is nil where handles were not read or none is named.
	HandleExists *bool  `json:"handleExists,omitempty"`
	Type         string `json:"type,omitempty"`
	Pod          string `json:"pod,omitempty"`
	VM           string `json:"vm,omitempty"`
	Service      string `json:"service,omitempty"`
	Node         string `json:"node,omitempty"`
	// Since is zero where the record has no time.
	Since    time.Time `json:"since,omitzero"`
	Released time.Time `json:"released,omitzero"`
}

// PodRef is a pod that has an address.
type PodRef struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Node      string    `json:"node"`
	Phase     string    `json:"phase"`
	Deleting  bool      `json:"deleting"`
	Since     time.Time `json:"since,omitzero"`
}

// Tunnel is a node's tunnel device.
type Tunnel struct {
	Node string     `json:"node"`
	Kind string     `json:"kind"`
	IP   netip.Addr `json:"ip"`
	// Booked is false where IPAM does not record it as a tunnel's.
	Booked bool `json:"booked"`
	// Block is the CIDR it is out of, empty for none; Owner who owns that.
	Block string `json:"block,omitempty"`
	Owner string `json:"owner,omitempty"`
}

func (in Input) explainAddress(s *Story) {
	ip, _ := netip.ParseAddr(s.Subject.Name)
	a := in.address(ip)
	s.Address = &a
	s.Findings = in.concern(in.aboutAddress(a))
	s.Verdict = in.addressVerdict(a)
	for _, p := range a.Pods {
		s.See = append(s.See, checks.Subject{Kind: checks.KindPod, Namespace: p.Namespace, Name: p.Name})
	}
	for _, h := range pathHops(a.Path) {
		if h.Outcome.Bad() {
			s.see(checks.KindNode, h.At)
		}
	}
	if a.Block != nil {
		s.see(checks.KindBlock, a.Block.CIDR.String())
	}
}

func pathHops(p *Path) []Hops {
	if p == nil {
		return nil
	}
	return p.Hops
}

// aboutAddress: the address, its pods, and its block where that is the subject
// (a block that merely holds too little is no fault of its addresses).
func (in Input) aboutAddress(a Address) about {
	return func(kind, namespace, name string, isSubject bool) bool {
		switch kind {
		case checks.KindIP:
			return name == a.IP.String()
		case checks.KindPod:
			return slices.ContainsFunc(a.Pods, func(p PodRef) bool { return p.Namespace == namespace && p.Name == name })
		case checks.KindBlock:
			return isSubject && a.Block != nil && name == a.Block.CIDR.String()
		}
		return false
	}
}

func (in Input) address(ip netip.Addr) Address {
	a := Address{IP: ip, Pods: []PodRef{}, Tunnels: []Tunnel{}, Services: []string{}, Nodes: []string{}}
	a.Pool = in.poolRef(in.PoolOf(ipam.HostPrefix(ip)))
	a.Block = in.blockRef(in.BlockOf(ip))
	for i := range in.Reservations {
		r := &in.Reservations[i]
		if slices.ContainsFunc(r.CIDRs, func(c netip.Prefix) bool { return c.Contains(ip) }) {
			a.ReservedBy = r.Name
		}
	}
	for _, p := range in.PodsAt(ip) {
		a.Pods = append(a.Pods, podRef(p))
	}
	for _, t := range in.TunnelsAt(ip) {
		a.Tunnels = append(a.Tunnels, in.tunnel(t.Node, t.Tunnel))
	}
	a.Services = append(a.Services, servicesAt(in.Snapshot, ip)...)
	a.Nodes = append(a.Nodes, nodesAt(in.Snapshot, ip)...)

	homes, tunnel := homesOf(&a)
	recorded := false
	if alloc, booked := in.AllocationOf(ip); booked {
		a.Block = in.blockRef(alloc.Block)
		a.Record = in.record(alloc.Attr)
		h := in.Holder(alloc)
		in.judge(&a, alloc, h)
		recorded = len(homes) == 0 && h.Kind == ipam.HeldUnknown
		if len(homes) == 0 && (h.Kind.Live() || recorded) && h.NodeName != "" {
			// A second address of a live pod, a tunnel that no annotation shows, or
			// the only thing that is known.
			homes, tunnel = []string{h.NodeName}, alloc.Attr.Tunnel()
		}
	} else {
		in.judgeUnbooked(&a)
	}
	if len(homes) > 0 {
		a.Path = in.path(ip, homes, tunnel)
		a.Path.Recorded = recorded
		if owner := in.ownerNode(a.Block); owner != "" && !slices.Contains(homes, owner) {
			a.BorrowedFrom = owner
		}
	}
	return a
}

func (in Input) poolRef(p *ipam.Pool) *PoolRef {
	if p == nil {
		return nil
	}
	encap := "none"
	switch {
	case p.VXLAN():
		encap = "VXLAN " + p.VXLANMode
	case p.IPIP():
		encap = "IPIP " + p.IPIPMode
	}
	return &PoolRef{Name: p.Name, CIDR: p.CIDR, Disabled: !p.Enabled(), RoutesBy: string(in.RoutesBy(p)), Encapsulation: encap}
}

func (in Input) blockRef(b *ipam.Block) *BlockRef {
	if b == nil {
		return nil
	}
	return &BlockRef{CIDR: b.CIDR, Owner: b.Owner.Name, OwnerIs: in.ownerIs(b.Owner)}
}

func (in Input) ownerIs(o ipam.Owner) string {
	switch {
	case o.Name == "":
		return "nobody"
	case !o.IsHost():
		return "virtual"
	case in.Node(o.Name) != nil:
		return "exists"
	case !in.Coverage.Read(ipam.ResNodes):
		return "unknown"
	}
	if n := in.NodeByFold(o.Name); n != nil {
		return "called " + n.Name
	}
	return "gone"
}

// ownerNode is the Kubernetes name of the node that owns the block, empty
// where no node does.
func (in Input) ownerNode(b *BlockRef) string {
	if b == nil || b.OwnerIs == "nobody" || b.OwnerIs == "virtual" {
		return ""
	}
	if n := in.NodeByFold(b.Owner); n != nil {
		return n.Name
	}
	return in.KubernetesName(b.Owner)
}

func (in Input) record(at *ipam.Attribute) *Record {
	r := &Record{
		Handle: at.Handle, Type: at.Type, VM: at.VMI, Service: at.Service, Node: in.KubernetesName(at.Node),
		Since: at.Timestamp.UTC(), Released: at.ReleasedAt.UTC(),
	}
	if at.Timestamp.IsZero() {
		r.Since = time.Time{}
	}
	if at.ReleasedAt.IsZero() {
		r.Released = time.Time{}
	}
	if at.Pod != "" {
		r.Pod = at.Namespace + "/" + at.Pod
	}
	if at.Handle != "" && in.Coverage.Read(ipam.ResHandles) {
		exists := slices.ContainsFunc(in.Handles, func(h ipam.Handle) bool { return h.ID == at.Handle || strings.EqualFold(h.Name, at.Handle) })
		r.HandleExists = &exists
	}
	return r
}

func podRef(p *ipam.Pod) PodRef {
	return PodRef{Namespace: p.Namespace, Name: p.Name, Node: p.NodeName, Phase: p.Phase, Deleting: p.Deleting, Since: since(p)}
}

func since(p *ipam.Pod) time.Time {
	switch {
	case !p.Started.IsZero():
		return p.Started.UTC()
	case !p.Created.IsZero():
		return p.Created.UTC()
	default:
		return time.Time{}
	}
}

func (in Input) tunnel(n *ipam.Node, t ipam.TunnelAddress) Tunnel {
	out := Tunnel{Node: n.Name, Kind: t.Kind, IP: t.IP}
	if a, ok := in.AllocationOf(t.IP); ok {
		out.Booked = a.Attr.Tunnel()
	}
	if b := in.BlockOf(t.IP); b != nil {
		out.Block, out.Owner = b.CIDR.String(), b.Owner.Name
	}
	return out
}

// homesOf are the nodes that use the address.
func homesOf(a *Address) (homes []string, tunnel bool) {
	for _, p := range a.Pods {
		homes = append(homes, p.Node)
	}
	if len(homes) == 0 {
		for _, t := range a.Tunnels {
			homes, tunnel = append(homes, t.Node), true
		}
	}
	slices.Sort(homes)
	return slices.Compact(homes), tunnel
}

// judge says who holds a booked address.
func (in Input) judge(a *Address, alloc ipam.Allocation, h ipam.Holder) {
	at := alloc.Attr
	a.State = Kept
	recorded := at.Namespace + "/" + at.Pod
	pod := ""
	if h.Pod != nil {
		pod = "pod " + h.Pod.Key() + " on " + h.Pod.NodeName
	}
	switch h.Kind {
	case ipam.HeldByPod:
		a.State, a.Says = InUse, pod+" uses it"
		switch booked := in.NodeByFold(at.Node); {
		case at.Node != "" && h.Node != nil && booked != h.Node:
			a.Wrong = true
			a.Says += fmt.Sprintf(", but it is booked for node %s: when that node goes, Calico frees an address in use", at.Node)
		default:
			a.Says += ", as recorded"
		}
	case ipam.HeldByOtherPod:
		a.State, a.Wrong = InUse, true
		a.Says = fmt.Sprintf("%s uses it, but it is booked for pod %s: Calico may free an address in use", pod, recorded)
	case ipam.HeldBySibling:
		a.State, a.Says = InUse, pod+" is running with another address of the same handle, so Calico keeps this one, too"
	case ipam.HeldByWaitingPod:
		a.State, a.Says = Waiting, fmt.Sprintf("booked for pod %s, which is being started and has no address yet", pod[len("pod "):])
	case ipam.HeldByVM:
		a.Says = fmt.Sprintf("kept for the virtual machine %s/%s while it is stopped or moves", at.Namespace, at.VMI)
	case ipam.HeldByTunnel:
		a.State, a.Says = InUse, "the tunnel of node "+h.NodeName+" uses it"
		if len(in.TunnelsAt(alloc.IP)) == 0 {
			a.Says = "booked for the tunnel of node " + h.NodeName + ", which exists; its annotations do not show the address"
		}
	case ipam.HeldByService:
		a.Says = "booked for a Service of type LoadBalancer"
		if at.Service != "" {
			a.Says += ", " + at.Namespace + "/" + at.Service
		}
		if len(a.Services) > 0 {
			a.Says += "; " + strings.Join(a.Services, ", ") + " has it"
		} else if in.Coverage.Read(ipam.ResServices) {
			a.Says += "; no Service has it"
		}
	case ipam.HeldByWindows:
		a.Says = "kept by Windows' HNS, as in every block of a Windows node"
	case ipam.HeldCoolingDown:
		a.State, a.Says = CoolingDown, "released, and waits before it is given out again"
	case ipam.HeldUnowned:
		a.Says = "booked without a pod or node: by hand, by another orchestrator or by a very old release; Calico never frees it"
	case ipam.LeakedGone:
		a.State, a.Wrong, a.Says = Leaked, true, "booked for pod "+recorded+", which does not exist"
		if h.Pod != nil {
			a.Says = "booked for pod " + recorded + ", which has no node yet: the pod that had it is gone"
		}
	case ipam.LeakedFinished:
		a.State, a.Wrong, a.Says = Leaked, true, fmt.Sprintf("booked for pod %s, which has finished (%s)", recorded, h.Pod.Phase)
	case ipam.LeakedOtherAddress:
		a.State, a.Wrong, a.Says = Leaked, true, fmt.Sprintf("booked for pod %s, which uses %s instead", recorded, orNothing(h.Pod))
	case ipam.LeakedTunnel:
		a.State, a.Wrong, a.Says = Leaked, true, "booked for the tunnel of node "+h.NodeName+", which does not exist"
	default:
		a.State, a.Says = Unseen, "booked; whether anybody uses it is not known, because pods or nodes were not read"
	}
	if h.Kind.Leaked() {
		freed := at.Timestamp
		if h.Kind == ipam.LeakedFinished && h.Pod.Ended.After(freed) {
			freed = h.Pod.Ended
		}
		if in.young(freed, leakAge) {
			a.Wrong = false
			a.Says += fmt.Sprintf("; that is no older than %s, and may be on its way", Age(in.AsOf.Sub(freed)))
		}
	}
	if len(a.Pods) > 1 {
		a.Wrong = true
		a.Says = fmt.Sprintf("%d live pods have it: %s", len(a.Pods), podNames(a.Pods))
	}
	if len(a.Pods) > 0 && len(a.Tunnels) > 0 {
		a.Wrong = true
		a.Says += "; the tunnel of node " + a.Tunnels[0].Node + " has it as well"
	}
}

func orNothing(p *ipam.Pod) string {
	if ips := p.IPs(); len(ips) > 0 {
		return joinAddrs(ips)
	}
	if p.HostNetwork {
		return "the host's network"
	}
	return "no address"
}

func joinAddrs(ips []netip.Addr) string {
	out := make([]string, 0, len(ips))
	for _, ip := range ips {
		out = append(out, ip.String())
	}
	return strings.Join(out, ", ")
}

func podNames(pods []PodRef) string {
	out := make([]string, 0, len(pods))
	for _, p := range pods {
		out = append(out, fmt.Sprintf("%s/%s on %s", p.Namespace, p.Name, p.Node))
	}
	return names(out, 10)
}

// judgeUnbooked says how it stands with an address that IPAM does not record.
func (in Input) judgeUnbooked(a *Address) {
	blocksRead, podsRead := in.Coverage.Read(ipam.ResBlocks), in.Coverage.Read(ipam.ResPods)
	inIPAM := a.Pool != nil || a.Block != nil
	switch {
	case len(a.Pods) > 0:
		a.State, a.Wrong = InUse, inIPAM && blocksRead
		a.Says = "used by pod " + podNames(a.Pods)
		switch {
		case !blocksRead:
			a.Says += "; whether it is booked is not known, because blocks were not read"
		case inIPAM && in.settling(*a):
			a.Wrong = false
			a.Says += ", and no block records it; the pod has only just started, and blocks may have been read before"
		case inIPAM:
			a.Says += ", and no block records it: Calico may give it out a second time"
		default:
			a.Says += "; it is in no pool, so another IPAM gave it out"
		}
	case len(a.Tunnels) > 0:
		a.State, a.Wrong = InUse, inIPAM && blocksRead
		a.Says = "the tunnel of node " + a.Tunnels[0].Node + " uses it"
		if a.Wrong {
			a.Says += ", and no block records it"
		}
	case len(a.Nodes) > 0:
		a.State, a.Says = NotIPAM, "the host address of node "+strings.Join(a.Nodes, ", ")+": Calico IPAM has nothing to do with it"
	case len(a.Services) > 0:
		a.State, a.Says = NotIPAM, "the ingress address of Service "+strings.Join(a.Services, ", ")+", not booked in Calico IPAM"
		if a.Pool != nil {
			a.State = Kept
		}
	case in.InServiceCIDR(ipam.HostPrefix(a.IP)):
		a.State, a.Says = NotIPAM, "in a service range that BGP advertises"
	case !blocksRead:
		a.State, a.Says = Unseen, "whether it is booked is not known, because blocks were not read"
	case a.ReservedBy != "":
		a.State, a.Says = Reserved, "kept back by IPReservation "+a.ReservedBy
	case !podsRead:
		a.State, a.Says = Free, "not booked; whether a pod uses it all the same is not known, because pods were not read"
	case a.Block == nil:
		a.State, a.Says = Free, "not booked, nobody uses it, and no block has been cut there yet"
	default:
		a.State, a.Says = Free, "not booked, and nobody uses it"
	}
}

// addressVerdict is the state, and what the tables say.
func (in Input) addressVerdict(a Address) Verdict {
	v := Verdict{Status: Info, Text: upper(a.Says) + "."}
	if a.State == Unseen {
		v.Status = Doubt
	}
	if a.Wrong {
		v.Status = Problem
	}
	if a.Path == nil {
		return v
	}
	text, status := pathVerdict(a.Path)
	if a.Path.Recorded {
		v.Text += " If it is used on " + first(a.Path.Homes) + " as recorded: " + lower(text)
		return v
	}
	if status == Problem && in.settling(a) {
		status, text = Doubt, text[:len(text)-1]+", but it has only just started: its routes may be on their way."
	}
	v.Text = upper(a.Says) + ". " + text
	if v.Status != Problem {
		v.Status = status
	}
	return v
}

// The ages under which a state is no verdict, because it may be on its way.
const (
	// leakAge is what IPAM's collector and the check leaked-ips give an address.
	leakAge = 20 * time.Minute
	// settleAge is what routes and lists of different moments may lag behind.
	settleAge = time.Minute
)

// young reports whether t is less than age before the snapshot. Where its time
// is a guess nothing is known to be young.
func (in Input) young(t time.Time, age time.Duration) bool {
	return !in.AsOfInferred && !t.IsZero() && in.AsOf.Sub(t) < age
}

// settling reports whether the pods that use the address have only just started.
func (in Input) settling(a Address) bool {
	return len(a.Pods) > 0 && !slices.ContainsFunc(a.Pods, func(p PodRef) bool { return !in.young(p.Since, settleAge) })
}

func pathVerdict(p *Path) (string, Status) {
	lost := p.count(Drops) + p.count(NoRoute) + p.count(Astray)
	unsure := p.count(Unclear) + p.count(Leaves) + len(p.NoTable)
	expect := ""
	if p.Inferred != nil && unsure > 0 && p.Inferred.Verdict != NotKnown {
		expect = map[Expectation]string{Expected: " (it should be so)", AtRisk: " (likely not)"}[p.Inferred.Verdict]
	}
	switch {
	case lost > 0:
		var at []string
		for _, h := range p.Hops {
			if h.Outcome.Bad() && !slices.Contains(at, h.At) {
				at = append(at, h.At)
			}
		}
		text := "Packets for it are lost at " + names(at, 5)
		if unsure > 0 {
			text += fmt.Sprintf("; from %s it is not known", plural(unsure, "node"))
		}
		return text + ".", Problem
	case p.Known == 0:
		status := Doubt
		if p.Inferred != nil && p.Inferred.Verdict == AtRisk {
			status = Problem
		}
		return "No route table is known, so whether packets get there was not seen" + expect + ".", status
	case unsure == p.Nodes:
		return fmt.Sprintf("Whether packets get there was not seen from any of %s%s.", plural(unsure, "node"), expect), Doubt
	case unsure > 0:
		return fmt.Sprintf("Packets get there from %s; from %s it was not seen%s.",
			plural(p.count(Delivers)+p.count(Reaches), "node"), plural(unsure, "node"), expect), Doubt
	case p.NodesUnread:
		return fmt.Sprintf("Packets get there from %s; which others there are was not read.", plural(p.Known, "node")), Doubt
	default:
		return fmt.Sprintf("Packets get there from %s.", all(p.Known)), OK
	}
}

func all(n int) string {
	if n == 1 {
		return "the one node there is"
	}
	return fmt.Sprintf("all %d nodes", n)
}

func lower(s string) string { return strings.ToLower(s[:1]) + s[1:] }

func upper(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
