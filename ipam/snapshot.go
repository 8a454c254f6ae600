package ipam

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"go4.org/netipx"
)

// ClusterRef names a cluster: Name is configured, ID is what stays when it is
// renamed (UID of namespace kube-system, else Calico's clusterGUID, else the name).
type ClusterRef struct{ Name, ID string }

// Snapshot is one cluster at one moment. Collectors fill the exported fields
// and call Seal once; after that it is read-only and safe for concurrent use.
type Snapshot struct {
	Cluster ClusterRef
	// AsOf is the "now" of the snapshot.
	AsOf time.Time
	// AsOfInferred is true where AsOf is only the newest time found in the
	// objects: then every age is the least it can be.
	AsOfInferred bool
	// API is the group that holds the IPAM objects: APIv1 or APIv3; empty when neither does.
	API      string
	Coverage Coverage

	Pools        []Pool
	Blocks       []Block
	Affinities   []Affinity
	Handles      []Handle
	Reservations []Reservation
	Config       Config
	Info         ClusterInfo
	BGP          BGPConfig
	Felix        FelixConfig
	Peers        []BGPPeer
	Filters      []BGPFilter
	KubeCtrl     KubeControllers
	Nodes        []Node
	Pods         []Pod
	Namespaces   []Namespace
	Services     []Service
	Events       []Event
	Workloads    []Workload
	CalicoNodes  []CalicoNode
	// CNIConfigs are the CNI configurations found in ConfigMaps.
	CNIConfigs []string
	Tables     []RouteTable
	// RouteSource is "files", "agent"…; empty where no source was configured.
	RouteSource string

	// Rejected are objects that could not be used; Ignored counts unknown kinds and files.
	Rejected []ObjectError
	Ignored  int

	ix index
}

// NewSnapshot returns a snapshot with Calico's defaults in place of the singletons.
func NewSnapshot() *Snapshot {
	return &Snapshot{
		Coverage: Coverage{},
		Config:   Config{AutoAllocateBlocks: true},
		Info:     ClusterInfo{Ready: true},
		BGP:      BGPConfig{Mesh: true},
		KubeCtrl: KubeControllers{LeakGracePeriod: 15 * time.Minute},
	}
}

// Forget drops what is known of a resource, down to Calico's defaults. The
// snapshot has to be sealed afterwards.
func (s *Snapshot) Forget(r Resource) {
	fresh := NewSnapshot()
	workloads := func(kind string) []Workload {
		return slices.DeleteFunc(slices.Clone(s.Workloads), func(w Workload) bool { return w.Kind == kind })
	}
	switch r {
	case ResBlocks:
		s.Blocks = nil
	case ResAffinities:
		s.Affinities = nil
	case ResHandles:
		s.Handles = nil
	case ResIPAMConfig:
		s.Config = fresh.Config
	case ResPools:
		s.Pools = nil
	case ResReservations:
		s.Reservations = nil
	case ResClusterInfo:
		s.Info = fresh.Info
	case ResBGPConfig:
		s.BGP = fresh.BGP
	case ResBGPPeers:
		s.Peers = nil
	case ResBGPFilters:
		s.Filters = nil
	case ResFelixConfig:
		s.Felix = fresh.Felix
	case ResKubeCtrl:
		s.KubeCtrl = fresh.KubeCtrl
	case ResNodes:
		s.Nodes = nil
	case ResPods:
		s.Pods = nil
	case ResNamespaces:
		s.Namespaces = nil
	case ResServices:
		s.Services = nil
	case ResEvents:
		s.Events = nil
	case ResDeployments:
		s.Workloads = workloads("Deployment")
	case ResDaemonSets:
		s.Workloads = workloads("DaemonSet")
	case ResCalicoNodes:
		s.CalicoNodes = nil
	case ResConfigMaps:
		s.CNIConfigs = nil
	}
}

// index holds what Seal computes.
type index struct {
	nodes     map[string]*Node // by Kubernetes name
	nodesFold map[string]*Node // by lower-case Kubernetes name
	nodesByIP map[netip.Addr]*Node
	// reflectors are the nodes with a route reflector cluster id.
	reflectors []*Node
	calico     map[string]string
	pods       map[podKey]*Pod
	podsByIP   map[netip.Addr][]*Pod
	tunnels    map[netip.Addr][]TunnelHolder
	tables     map[string]*RouteTable
	nodePods   map[string][]*Pod
	inUse      map[*Node]bool
	reserved   []netipx.IPRange
	usage      map[*Pool]PoolUsage
	blocksOf   map[string][]*Block // by Kubernetes name (or Calico name when the node is gone)
	affinity   map[netip.Prefix][]*Affinity
	blocks     map[netip.Prefix]*Block
	// blockLengths are the prefix lengths that blocks have, longest first.
	blockLengths []int
	kind         Kind
	kindWhy      string
	lost         bool
	lostWhy      string
}

type podKey struct{ namespace, name string }

// TunnelHolder is a node and the tunnel address it uses.
type TunnelHolder struct {
	Node   *Node
	Tunnel TunnelAddress
}

// Seal sorts every list (so that two runs over one input agree), builds the
// indexes and returns s.
func (s *Snapshot) Seal() *Snapshot {
	sortOnce(s.Pools, func(a, b *Pool) int { return cmp.Or(comparePrefix(a.CIDR, b.CIDR), cmp.Compare(a.Name, b.Name)) })
	sortOnce(s.Blocks, func(a, b *Block) int { return cmp.Or(comparePrefix(a.CIDR, b.CIDR), cmp.Compare(a.Name, b.Name)) })
	sortOnce(s.Affinities, func(a, b *Affinity) int {
		return cmp.Or(comparePrefix(a.CIDR, b.CIDR), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Name, b.Name))
	})
	byName := cmp.Compare[string]
	sortOnce(s.Handles, func(a, b *Handle) int { return byName(a.Name, b.Name) })
	sortOnce(s.Nodes, func(a, b *Node) int { return byName(a.Name, b.Name) })
	sortOnce(s.Pods, func(a, b *Pod) int { return CompareKeys(a.Namespace, a.Name, b.Namespace, b.Name) })
	sortOnce(s.Peers, func(a, b *BGPPeer) int { return byName(a.Name, b.Name) })
	sortOnce(s.Filters, func(a, b *BGPFilter) int { return byName(a.Name, b.Name) })
	sortOnce(s.Services, func(a, b *Service) int { return cmp.Or(byName(a.Namespace, b.Namespace), byName(a.Name, b.Name)) })
	sortOnce(s.Namespaces, func(a, b *Namespace) int { return byName(a.Name, b.Name) })
	sortOnce(s.Events, func(a, b *Event) int {
		return cmp.Or(byName(a.Namespace, b.Namespace), byName(a.Name, b.Name), byName(a.Message, b.Message), a.Last.Compare(b.Last))
	})
	sortOnce(s.Workloads, func(a, b *Workload) int {
		return cmp.Or(byName(a.Namespace, b.Namespace), byName(a.Name, b.Name), byName(a.Kind, b.Kind))
	})
	sortOnce(s.Tables, func(a, b *RouteTable) int { return cmp.Or(byName(a.Node, b.Node), byName(a.Source, b.Source)) })
	sortOnce(s.Rejected, func(a, b *ObjectError) int { return byName(a.Error(), b.Error()) })
	s.buildIndex()
	return s
}

// sortOnce sorts a list of large values that mostly comes in order. Values that
// compare equal keep theirs.
func sortOnce[T any](list []T, compare func(a, b *T) int) {
	sorted := true
	for i := 1; i < len(list) && sorted; i++ {
		sorted = compare(&list[i-1], &list[i]) <= 0
	}
	if sorted {
		return
	}
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(compare(&list[a], &list[b]), a-b) })
	// Each cycle of the permutation moves its values once.
	for start := range order {
		if order[start] == start {
			continue
		}
		first, to := list[start], start
		for from := order[to]; from != start; to, from = from, order[from] {
			list[to], order[to] = list[from], to
		}
		list[to], order[to] = first, to
	}
}

// CompareKeys orders namespace/name as etcd does, and so every list of the API
// server: nothing is to be sorted then.
func CompareKeys(aNamespace, aName, bNamespace, bName string) int {
	if aNamespace == bNamespace {
		return cmp.Compare(aName, bName)
	}
	n := min(len(aNamespace), len(bNamespace))
	if c := cmp.Compare(aNamespace[:n], bNamespace[:n]); c != 0 {
		return c
	}
	if len(aNamespace) < len(bNamespace) {
		return cmp.Compare('/', bNamespace[n])
	}
	return cmp.Compare(aNamespace[n], '/')
}

func comparePrefix(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

func (s *Snapshot) buildIndex() {
	ix := &s.ix
	ix.nodes = make(map[string]*Node, len(s.Nodes))
	ix.nodesFold = make(map[string]*Node, len(s.Nodes))
	ix.nodesByIP = make(map[netip.Addr]*Node, len(s.Nodes))
	ix.tunnels = map[netip.Addr][]TunnelHolder{}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		ix.nodes[n.Name] = n
		ix.nodesFold[strings.ToLower(n.Name)] = n
		for _, ip := range n.Addresses {
			ix.nodesByIP[ip] = n
		}
		if n.RRClusterID != "" {
			ix.reflectors = append(ix.reflectors, n)
		}
		for _, t := range n.Tunnels {
			ix.tunnels[t.IP] = append(ix.tunnels[t.IP], TunnelHolder{n, t})
		}
	}
	for i := range s.Peers {
		s.Peers[i].seal()
	}
	ix.calico = make(map[string]string, len(s.CalicoNodes))
	for _, c := range s.CalicoNodes {
		ix.calico[c.Name] = c.KubernetesName
	}

	ix.pods = make(map[podKey]*Pod, len(s.Pods))
	ix.podsByIP = make(map[netip.Addr][]*Pod, len(s.Pods))
	ix.nodePods = make(map[string][]*Pod, len(s.Nodes))
	// Nearly every address has one pod: the lists of one share their memory.
	one := make([]*Pod, len(s.Pods))
	for i := range s.Pods {
		p := &s.Pods[i]
		one[i] = p
		ix.pods[podKey{p.Namespace, p.Name}] = p
		if p.NodeName != "" {
			ix.nodePods[p.NodeName] = append(ix.nodePods[p.NodeName], p)
		}
		for _, ip := range p.IPs() {
			if there := ix.podsByIP[ip]; there != nil {
				ix.podsByIP[ip] = append(there, p)
			} else {
				ix.podsByIP[ip] = one[i : i+1 : i+1]
			}
		}
	}
	ix.inUse = make(map[*Node]bool, len(s.Nodes))
	for i := range s.Nodes {
		ix.inUse[&s.Nodes[i]] = s.nodeInUse(&s.Nodes[i])
	}

	for i := range s.Pools {
		p := &s.Pools[i]
		p.nodeSel, _ = ParseSelector(p.NodeSelector)
		if p.NamespaceSelector != "" {
			p.nsSel, _ = ParseSelector(p.NamespaceSelector)
		}
	}
	ix.blocksOf = make(map[string][]*Block)
	ix.blocks = make(map[netip.Prefix]*Block, len(s.Blocks))
	for i := range s.Blocks {
		b := &s.Blocks[i]
		b.pool, b.twin, b.holders = s.PoolOf(b.CIDR), nil, nil
		if first := ix.blocks[b.CIDR]; first == nil {
			ix.blocks[b.CIDR] = b
		} else {
			b.twin, first.twin = first.twin, b
		}
		if !slices.Contains(ix.blockLengths, b.CIDR.Bits()) {
			ix.blockLengths = append(ix.blockLengths, b.CIDR.Bits())
		}
		if b.Owner.IsHost() {
			name := s.KubernetesName(b.Owner.Name)
			ix.blocksOf[name] = append(ix.blocksOf[name], b)
		}
	}
	slices.SortFunc(ix.blockLengths, func(a, b int) int { return b - a })
	ix.affinity = make(map[netip.Prefix][]*Affinity, len(s.Affinities))
	for i := range s.Affinities {
		a := &s.Affinities[i]
		ix.affinity[a.CIDR] = append(ix.affinity[a.CIDR], a)
	}
	var reserved netipx.IPSetBuilder
	for _, r := range s.Reservations {
		for _, c := range r.CIDRs {
			reserved.AddPrefix(c)
		}
	}
	if set, err := reserved.IPSet(); err == nil {
		ix.reserved = set.Ranges()
	}

	ix.tables = make(map[string]*RouteTable, len(s.Tables))
	for i := range s.Tables {
		t := &s.Tables[i]
		t.seal()
		ix.tables[t.Node] = t
	}
	s.buildUsage()
	for i := range s.Blocks {
		b := &s.Blocks[i]
		b.holders = make([]Holder, len(b.Slots))
		for a := range b.Allocations() {
			b.holders[a.nth-1] = s.holder(a)
		}
	}
	c := s.census()
	ix.kind, ix.kindWhy = s.detectIPAM(c)
	ix.lost, ix.lostWhy = s.dataLost(c)
}

// Unusable are the names, as far as they are known, of the objects of r that were
// there and could not be used. A name stands for each fault that was met.
func (s *Snapshot) Unusable(r Resource) []string {
	var out []string
	for _, e := range s.Rejected {
		if k, ok := ParseResource(e.Kind); ok && k == r {
			out = append(out, e.Name)
		}
	}
	return out
}

// KubernetesName maps a name from IPAM to the Kubernetes node name: through
// orchRefs where Calico Node objects exist, else unchanged.
func (s *Snapshot) KubernetesName(calicoName string) string {
	if k, ok := s.ix.calico[calicoName]; ok && k != "" {
		return k
	}
	return calicoName
}

// Node returns the node that IPAM calls name, or nil when it does not exist.
// A name that differs only in case is no match (see NodeByFold).
func (s *Snapshot) Node(name string) *Node { return s.ix.nodes[s.KubernetesName(name)] }

// NodeByFold returns the node whose name equals name but for its case.
func (s *Snapshot) NodeByFold(name string) *Node {
	return s.ix.nodesFold[strings.ToLower(s.KubernetesName(name))]
}

// Pod returns the pod, or nil.
func (s *Snapshot) Pod(namespace, name string) *Pod { return s.ix.pods[podKey{namespace, name}] }

// PodsAt returns the live pods that use ip (see Pod.IPs).
func (s *Snapshot) PodsAt(ip netip.Addr) []*Pod { return s.ix.podsByIP[ip] }

// PodsOn returns every pod scheduled to the node.
func (s *Snapshot) PodsOn(node string) []*Pod { return s.ix.nodePods[node] }

// TunnelsAt returns the nodes whose annotations claim ip as tunnel address.
func (s *Snapshot) TunnelsAt(ip netip.Addr) []TunnelHolder { return s.ix.tunnels[ip] }

// Table returns the node's routing table, or nil when it is not known.
func (s *Snapshot) Table(node string) *RouteTable { return s.ix.tables[node] }

// BlocksOf returns the blocks affine to the node, by its Kubernetes name.
func (s *Snapshot) BlocksOf(node string) []*Block { return s.ix.blocksOf[node] }

// AffinitiesOf returns the affinities for exactly this block.
func (s *Snapshot) AffinitiesOf(cidr netip.Prefix) []*Affinity { return s.ix.affinity[cidr] }

// AllocationOf returns what IPAM books for ip; ok is false when nothing is booked.
func (s *Snapshot) AllocationOf(ip netip.Addr) (a Allocation, ok bool) {
	for _, n := range slices.Backward(s.ix.blockLengths) {
		if n > ip.BitLen() {
			continue
		}
		p, _ := ip.Prefix(n)
		for b := s.ix.blocks[p]; b != nil; b = b.twin {
			if i, ok := b.find(ip); ok {
				return b.allocation(i), true
			}
		}
	}
	return Allocation{}, false
}

// BlockOf returns the most specific block that contains ip, or nil.
func (s *Snapshot) BlockOf(ip netip.Addr) *Block {
	for _, n := range s.ix.blockLengths {
		if n > ip.BitLen() {
			continue
		}
		p, _ := ip.Prefix(n)
		if b, ok := s.ix.blocks[p]; ok {
			return b
		}
	}
	return nil
}

// BlockAt returns the block with exactly this CIDR, or nil.
func (s *Snapshot) BlockAt(cidr netip.Prefix) *Block { return s.ix.blocks[cidr] }

// PoolOf returns the most specific pool that contains all of p, or nil.
func (s *Snapshot) PoolOf(p netip.Prefix) *Pool {
	var best *Pool
	for i := range s.Pools {
		c := &s.Pools[i]
		if Contains(c.CIDR, p) && (best == nil || c.CIDR.Bits() > best.CIDR.Bits()) {
			best = c
		}
	}
	return best
}

// IPs are the addresses a live pod uses: those of status and those that
// Calico's CNI plug-in annotated (status lacks IPv6 on single-stack
// Kubernetes, projectcalico/calico#5044). Pods that are host-networked, not
// scheduled or finished use none (libcalico-go: IsFinished, projectcalico/libcalico-go#1040).
func (p *Pod) IPs() []netip.Addr {
	if !p.Live() {
		return nil
	}
	out := slices.Clip(p.StatusIPs) // what is appended goes elsewhere
	for _, ip := range p.AnnotatedIPs {
		if !slices.Contains(out, ip) {
			out = append(out, ip)
		}
	}
	return out
}

// Live reports whether the pod can hold an address: pod network, scheduled,
// not finished. A pod being deleted is finished once its annotation podIP is
// empty (libcalico-go/lib/backend/k8s/conversion: IsFinished).
func (p *Pod) Live() bool {
	return !p.HostNetwork && p.NodeName != "" && !p.Finished()
}

// Finished reports whether the pod has given its network back.
func (p *Pod) Finished() bool {
	return p.Phase == "Succeeded" || p.Phase == "Failed" || p.Deleting && p.Released
}

// WaitsForAddress reports whether the pod is scheduled to the pod network and
// has no address yet.
func (p *Pod) WaitsForAddress() bool {
	return p.Live() && !p.Deleting && len(p.IPs()) == 0
}
