// Package ipam models the Calico IPAM of one cluster: pools, blocks,
// affinities, handles, nodes, pods and routes as read at one moment, and the
// questions an auditor asks of them (who owns this address, which pools serve
// this node, how many blocks are free, where does this node send a packet).
//
// It knows nothing of API servers, files or reports: package collect fills a
// Snapshot, package checks reads it. Shapes and rules follow Calico's source
// (github.com/projectcalico/calico); each rule names its file.
package ipam

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// The API groups that can hold Calico's IPAM objects.
const (
	APIv1 = "crd.projectcalico.org/v1"
	APIv3 = "projectcalico.org/v3"
)

// Uses is a set of what a pool may be used for (IPPool.spec.allowedUses).
type Uses uint8

// The uses Calico knows (api/pkg/apis/projectcalico/v3/ippool.go).
const (
	UseWorkload Uses = 1 << iota
	UseTunnel
	UseLoadBalancer
)

// Has reports whether u contains all of want.
func (u Uses) Has(want Uses) bool { return u&want == want }

// Pool is an IPPool with Calico's read defaults applied
// (libcalico-go/lib/clientv3/ippool.go: convertIpPoolFromStorage).
type Pool struct {
	Name string
	CIDR netip.Prefix
	// BlockSize is the prefix length of a block: 26 for IPv4, 122 for IPv6 by default.
	BlockSize int
	// NodeSelector is "all()" by default.
	NodeSelector string
	// NamespaceSelector is empty when the pool serves every namespace.
	NamespaceSelector string
	Disabled          bool
	DisableBGPExport  bool
	NATOutgoing       bool
	// IPIPMode and VXLANMode are Never, Always or CrossSubnet.
	IPIPMode, VXLANMode string
	AllowedUses         Uses
	// Manual pools (assignmentMode: Manual) only serve those who name them.
	Manual bool
	// NotAllocatable is the reason of an Allocatable=False condition (v3.32), else empty.
	NotAllocatable string
	Deleting       bool
	Created        time.Time

	nodeSel, nsSel *Selector
}

// Owner is the affinity of a block or allocation owner: type "host" or
// "virtual" and a name. The zero Owner means that nobody owns the block.
type Owner struct{ Type, Name string }

// ParseOwner splits "host:node1" at the first colon. An empty string is no owner.
func ParseOwner(affinity string) Owner {
	typ, name, ok := strings.Cut(affinity, ":")
	if !ok {
		return Owner{}
	}
	return Owner{Type: typ, Name: name}
}

// IsHost reports whether a node owns the block.
func (o Owner) IsHost() bool { return o.Type == "host" && o.Name != "" }

// String prints the owner as Calico writes it, "none" for the zero Owner.
func (o Owner) String() string {
	if o == (Owner{}) {
		return "none"
	}
	return o.Type + ":" + o.Name
}

// Block is an IPAMBlock that is not soft-deleted.
type Block struct {
	// Name is the object's name. Never derive the CIDR from it.
	Name  string
	CIDR  netip.Prefix
	Owner Owner
	// ClaimTime is affinityClaimTime (v3.32), else zero.
	ClaimTime time.Time
	Created   time.Time
	// UID and ResourceVersion guard remediation commands against changed objects.
	UID, ResourceVersion string
	// Slots are the allocated ordinals in ascending order.
	Slots []Slot
	// Attributes as the block lists them; Slots point into it.
	Attributes []Attribute
	// Malformed lists what Calico's own validateBlock would reject.
	Malformed []string

	pool *Pool
	// holders has one entry for each slot (Snapshot.Seal).
	holders []Holder
	// twin is another block of the same CIDR, which only broken data has.
	twin *Block
}

// Slot is one allocated ordinal of a block and the index of its attributes
// (-1 when the index is out of range).
type Slot struct {
	Ordinal uint32
	Attr    int32
}

// Attribute is what IPAM recorded with an allocation
// (libcalico-go/lib/backend/model/block.go).
type Attribute struct {
	// Handle is handle_id cut at the first CR, as Calico does (sanitizeHandle).
	Handle                string
	Namespace, Pod, Node  string
	Type, Service, VMI    string
	Timestamp, ReleasedAt time.Time
}

// Tunnel reports whether the attribute books a node's tunnel address.
func (a *Attribute) Tunnel() bool {
	if strings.HasSuffix(a.Type, "TunnelAddress") {
		return true
	}
	for _, p := range []string{"ipip-tunnel-addr-", "vxlan-tunnel-addr-", "vxlan-v6-tunnel-addr-", "wireguard-tunnel-addr-", "wireguard-v6-tunnel-addr-"} {
		if strings.HasPrefix(a.Handle, p) {
			return true
		}
	}
	return false
}

// WindowsReserved reports whether the attribute books one of the addresses
// that HNS takes of every block of a Windows node (3 first, 1 last).
func (a *Attribute) WindowsReserved() bool {
	return strings.HasPrefix(a.Handle, "windows-reserved-ipam-handle")
}

// LoadBalancer reports whether the attribute books a Service's address.
func (a *Attribute) LoadBalancer() bool {
	return strings.EqualFold(a.Type, "LoadBalancer") || strings.HasPrefix(a.Handle, "lb-")
}

// CoolingDown reports whether the address was released and waits (v3.33).
func (a *Attribute) CoolingDown() bool { return !a.ReleasedAt.IsZero() && a.Handle == "" }

// Allocation is one booked address.
type Allocation struct {
	IP    netip.Addr
	Block *Block
	// Attr is never nil; it is empty when the block's index was broken.
	Attr *Attribute
	// nth slot of the block, from 1; 0 in an Allocation that was not read from it.
	nth int
}

var noAttribute Attribute

// allocation is the i-th booked address of b.
func (b *Block) allocation(i int) Allocation {
	s := b.Slots[i]
	a := Allocation{IP: addrAt(b.CIDR, uint64(s.Ordinal)), Block: b, Attr: &noAttribute, nth: i + 1}
	if s.Attr >= 0 && int(s.Attr) < len(b.Attributes) {
		a.Attr = &b.Attributes[s.Attr]
	}
	return a
}

// find returns the index of the slot that books ip.
func (b *Block) find(ip netip.Addr) (int, bool) {
	if !b.CIDR.Contains(ip) {
		return 0, false
	}
	at := toU128(ip).sub(toU128(b.CIDR.Addr())).count()
	return slices.BinarySearchFunc(b.Slots, at, func(s Slot, at uint64) int { return cmp.Compare(uint64(s.Ordinal), at) })
}

// Size is the number of addresses of the block, saturated at MaxCount.
func (b *Block) Size() uint64 { return prefixSize(b.CIDR) }

// Full reports whether no address of the block is free.
func (b *Block) Full() bool { return uint64(len(b.Slots)) >= b.Size() }

// Pool is the pool that contains the block, or nil.
func (b *Block) Pool() *Pool { return b.pool }

// Allocations yields the booked addresses in ascending order.
func (b *Block) Allocations() iter.Seq[Allocation] {
	return func(yield func(Allocation) bool) {
		for i := range b.Slots {
			if !yield(b.allocation(i)) {
				return
			}
		}
	}
}

// Empty reports whether Calico counts the block as empty: nothing but Windows
// reservations in it (libcalico-go/lib/ipam/ipam_block.go: empty).
func (b *Block) Empty() bool {
	for a := range b.Allocations() {
		if !a.Attr.WindowsReserved() {
			return false
		}
	}
	return true
}

// The states of an affinity; the empty state of old objects is confirmed.
const (
	StateConfirmed       = "confirmed"
	StatePending         = "pending"
	StatePendingDeletion = "pendingDeletion"
)

// Affinity is a BlockAffinity that is not soft-deleted.
type Affinity struct {
	Name string
	// Node is spec.node; Type is "host" or "virtual".
	Node, Type string
	CIDR       netip.Prefix
	State      string
	Created    time.Time
	UID        string
}

// Handle is an IPAMHandle that is not soft-deleted.
type Handle struct {
	// Name is the object's name (lower case); ID is spec.handleID.
	Name, ID string
	// Count is the number of addresses the handle claims to hold.
	Count   int
	Created time.Time
}

// Reservation is an IPReservation.
type Reservation struct {
	Name  string
	CIDRs []netip.Prefix
}

// Config is the IPAM singleton with defaults applied
// (libcalico-go/lib/ipam/ipam_types.go: IPAMConfig).
type Config struct {
	StrictAffinity     bool
	AutoAllocateBlocks bool
	// MaxBlocksPerHost is as written: 0 means the built-in limit of 20 (see BlockLimit).
	MaxBlocksPerHost  int
	IPCooldownSeconds int
	// Present is false where the object is absent and the defaults were assumed.
	Present bool
}

// DefaultBlockLimit is what maxBlocksPerHost 0 means, per address family
// (libcalico-go/lib/ipam/ipam.go, since libcalico-go#1368).
const DefaultBlockLimit = 20

// BlockLimit is the number of blocks one node may own per family.
func (c Config) BlockLimit() int {
	if c.MaxBlocksPerHost > 0 {
		return c.MaxBlocksPerHost
	}
	return DefaultBlockLimit
}

// ClusterInfo is ClusterInformation "default".
type ClusterInfo struct {
	Present bool
	GUID    string
	Version Version
	// Ready is datastoreReady; true when not said.
	Ready bool
}

// BGPConfig is BGPConfiguration "default".
type BGPConfig struct {
	Present bool
	// Mesh is nodeToNodeMeshEnabled; absent means true.
	Mesh bool
	// ASNumber is the cluster's; NodeASNumbers are those of BGPConfiguration node.NAME.
	ASNumber      uint32
	NodeASNumbers map[string]uint32
	// ProgramClusterRoutes is the v3.32 field, empty when not set.
	ProgramClusterRoutes string
	// ServiceCIDRs are the advertised service, external and load balancer ranges:
	// blackholes for them are intended.
	ServiceCIDRs []netip.Prefix
}

// FelixConfig is FelixConfiguration "default".
type FelixConfig struct {
	Present              bool
	ProgramClusterRoutes string
}

// KubeControllers is KubeControllersConfiguration "default".
type KubeControllers struct {
	Present bool
	// LeakGracePeriod is 15 min by default; 0 switches the collector off.
	LeakGracePeriod time.Duration
}

// TunnelAddress is an address a node's annotations say its tunnel device has.
type TunnelAddress struct {
	// Kind is ipip, vxlan, vxlan-v6, wireguard or wireguard-v6.
	Kind string
	IP   netip.Addr
}

// Node is a Kubernetes node with what Calico annotates.
type Node struct {
	Name    string
	UID     string
	Labels  map[string]string
	Created time.Time
	// Addresses are the BGP addresses (projectcalico.org/IPv4Address, IPv6Address), else InternalIP.
	Addresses     []netip.Addr
	Tunnels       []TunnelAddress
	ASNumber      uint32
	RRClusterID   string
	Unschedulable bool
	// Tainted is true with a NoSchedule or NoExecute taint of the cluster's own
	// (node.kubernetes.io/… ones come and go with the node's condition).
	Tainted      bool
	Ready        bool
	ControlPlane bool
	Windows      bool
	Deleting     bool
	PodCIDRs     []netip.Prefix
	// MaxPods is status.capacity.pods; 0 when not known.
	MaxPods int
	// FlannelMigration nodes are skipped by Calico's collector.
	FlannelMigration bool
}

// Pod is what matters of a pod.
type Pod struct {
	Namespace, Name, UID string
	NodeName             string
	HostNetwork          bool
	// Phase is Pending, Running, Succeeded, Failed or Unknown.
	Phase string
	// Reason is status.reason, e.g. Evicted.
	Reason   string
	Deleting bool
	Created  time.Time
	// StatusIPs are status.podIPs (or podIP); AnnotatedIPs are those of
	// cni.projectcalico.org/podIPs (or podIP).
	StatusIPs, AnnotatedIPs []netip.Addr
	// Released is true where the annotation podIP is present and empty: the CNI
	// plug-in has removed the network.
	Released bool
	// CalicoCNI is true where Calico's CNI plug-in annotated the pod.
	CalicoCNI bool
	// RequestedIPs are cni.projectcalico.org/ipAddrs; PoolPins are ipv4pools and ipv6pools.
	RequestedIPs []netip.Addr
	PoolPins     []string
	// NoIPAM pods (ipAddrsNoIpam) bypass IPAM.
	NoIPAM bool
	// OwnerKind and OwnerName are the controller's.
	OwnerKind, OwnerName string
	// App is the label k8s-app, for Calico's own pods.
	App string
	// VMI is the KubeVirt machine of a virt-launcher pod, else empty.
	VMI string
	// Waiting is the waiting reason of the first container that waits
	// (ContainerCreating, CrashLoopBackOff…), Message its text.
	Waiting, Message string
	Restarts         int
	// Ended is when the last container of a finished pod ended, or for when the
	// deletion of the pod was asked; zero where neither is known.
	Ended time.Time
	// Started is status.startTime.
	Started time.Time
}

// Key is namespace/name.
func (p *Pod) Key() string { return p.Namespace + "/" + p.Name }

// Event is a Kubernetes event whose text speaks of networking.
type Event struct {
	Namespace, Kind, Name string
	Reason, Message       string
	Count                 int
	Last                  time.Time
}

// Workload is a Deployment or DaemonSet of Calico's own.
type Workload struct {
	Kind, Namespace, Name string
	Desired, Available    int
	// UnavailableSince is since when a Deployment says that it is not available;
	// zero where it does not say so.
	UnavailableSince time.Time
	// Env are the literal environment variables of its containers.
	Env map[string]string
	// Image of the first container.
	Image string
}

// Namespace is a namespace with the annotations Calico reads.
type Namespace struct {
	Name, UID string
	Labels    map[string]string
	PoolPins  []string
}

// Service is a Service with load balancer addresses.
type Service struct {
	Namespace, Name, Type string
	IngressIPs            []netip.Addr
}

// CalicoNode maps a Calico node name to Kubernetes' name (etcd datastore, orchRefs).
type CalicoNode struct{ Name, KubernetesName string }

// ObjectError is an object that could not be used. It is counted and reported;
// it never loses its neighbours.
type ObjectError struct {
	// Where is the file and document, or the API path.
	Where string
	// Kind and Name as far as known.
	Kind, Name string
	// Field is the path of the offending field.
	Field   string
	Message string
}

// Error prints where, what and why.
func (e ObjectError) Error() string {
	parts := make([]string, 0, 4)
	if e.Where != "" {
		parts = append(parts, e.Where)
	}
	if e.Kind != "" {
		parts = append(parts, strings.TrimSpace(e.Kind+" "+e.Name))
	}
	if e.Field != "" {
		parts = append(parts, e.Field)
	}
	return strings.Join(append(parts, e.Message), ": ")
}
