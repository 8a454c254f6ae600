package ipam

// Feature is something that came, or changed, with a release of Calico and that
// a verdict or a command hangs on.
type Feature string

// The features, in the order of their releases.
const (
	// ConfigureCommand: `calicoctl ipam configure`.
	ConfigureCommand Feature = "ipam configure"
	// ReleaseFromReport: `calicoctl ipam release --from-report`.
	ReleaseFromReport Feature = "release from report"
	// GracePeriodSetting: leakGracePeriod in KubeControllersConfiguration.
	GracePeriodSetting Feature = "leakGracePeriod"
	// EmptyBlocksCollected: the collector gives an empty block of a node with
	// several back.
	EmptyBlocksCollected Feature = "empty blocks are collected"
	// SeveralReports: --from-report may be given more than once, and only what all
	// reports list is released.
	SeveralReports Feature = "several reports"
	// EvictionV1: made for a Kubernetes whose policy/v1 knows evictions (1.22).
	EvictionV1 Feature = "evictions of policy/v1"
	// OwnASAllowed: BGPPeer.numAllowedLocalASNumbers.
	OwnASAllowed Feature = "numAllowedLocalASNumbers"
	// HandlesInReport: reports of `calicoctl ipam check` list leaked handles.
	HandlesInReport Feature = "leaked handles in reports"
	// PendingNotAnnounced: BIRD leaves pending affinities out.
	PendingNotAnnounced Feature = "pending affinities are not announced"
	// BlockLimitFlag: `calicoctl ipam configure --max-blocks-per-host`.
	BlockLimitFlag Feature = "--max-blocks-per-host"
	// BorrowedVXLANTunnels: Felix programs routes to borrowed VXLAN tunnel addresses.
	BorrowedVXLANTunnels Feature = "routes to borrowed VXLAN tunnels"
	// FelixMayRouteIPIP: Felix programs IPIP pools where it is enabled and BGP is not.
	FelixMayRouteIPIP Feature = "Felix may program IPIP"
	// EmptyBlocksReclaimed: a node without a block takes another node's empty one.
	EmptyBlocksReclaimed Feature = "empty blocks are reclaimed"
	// RouteClasses: programClusterRoutes names classes of pools; IPIP is Felix's by default.
	RouteClasses Feature = "classes of programClusterRoutes"
)

// Area is the part of Calico that a change is in.
type Area string

// The areas, in the order of docs/calico-versions.md.
const (
	AreaAllocation Area = "Allocation and reclaim"
	AreaCollector  Area = "Collector (kube-controllers)"
	AreaRouting    Area = "Routes"
	AreaObjects    Area = "Objects and settings"
	AreaCalicoctl  Area = "calicoctl"
	AreaMetrics    Area = "Metrics"
)

// Areas lists them.
func Areas() []Area {
	return []Area{AreaAllocation, AreaCollector, AreaRouting, AreaObjects, AreaCalicoctl, AreaMetrics}
}

// Change says in which release something came and where that can be read.
type Change struct {
	// Feature is the name that code asks for it by; empty where nothing hangs on it.
	Feature      Feature
	Major, Minor int
	Area         Area
	// What tells people.
	What string
	// Source is a file of github.com/projectcalico/calico, or an issue or pull request.
	Source string
}

// Changes is the one place that knows what changed in which release, in the
// order of the releases.
func Changes() []Change {
	const (
		collector = "kube-controllers/pkg/controllers/node/ipam.go"
		metrics   = "kube-controllers/pkg/controllers/node/metrics.go"
		allocator = "libcalico-go/lib/ipam/ipam.go"
		configure = "calicoctl/calicoctl/commands/ipam/configure.go"
		release   = "calicoctl/calicoctl/commands/ipam/release.go"
		check     = "calicoctl/calicoctl/commands/ipam/check.go"
	)
	return []Change{
		{ConfigureCommand, 3, 14, AreaCalicoctl, "`ipam configure --strictaffinity`; before, IPAMConfig is patched", "projectcalico/calicoctl#2119"},
		{ReleaseFromReport, 3, 18, AreaCalicoctl, "`ipam check -o FILE` and `ipam release --from-report=FILE`", release},
		{GracePeriodSetting, 3, 20, AreaCollector, "leakGracePeriod in KubeControllersConfiguration (15 minutes; 0 switches the collector off)", "api/pkg/apis/projectcalico/v3/kubecontrollersconfig.go"},
		{EmptyBlocksCollected, 3, 21, AreaCollector, "an empty block of a node that has several goes back; before, a block was kept for ever", collector + " (checkEmptyBlocks)"},
		{SeveralReports, 3, 21, AreaCalicoctl, "`--from-report` may be given more than once: only what all reports list is released", release},
		{"", 3, 21, AreaObjects, "CalicoNodeStatus: BIRD's routes of a node through the API", "api/pkg/apis/projectcalico/v3/nodestatus.go"},
		{EvictionV1, 3, 22, AreaObjects, "made for Kubernetes 1.22, whose policy/v1 knows evictions", "kubernetes/kubernetes#100724"},
		{"", 3, 23, AreaCollector, "an empty block has to have been seen empty for the grace period", collector},
		{OwnASAllowed, 3, 23, AreaRouting, "BGPPeer.numAllowedLocalASNumbers: eBGP peers may bring the own AS back", "api/pkg/apis/projectcalico/v3/bgppeer.go"},
		{"", 3, 23, AreaMetrics, "`ipam_allocations_in_use`, `ipam_allocations_borrowed`, `ipam_blocks`, `ipam_allocations_gc_candidates`, `ipam_allocations_gc_reclamations` and `ipam_ippool_size`, by pool and node; before: `ipam_allocations_per_node`, `ipam_allocations_borrowed_per_node`, `ipam_blocks_per_node`", metrics},
		{HandlesInReport, 3, 24, AreaCalicoctl, "reports of `ipam check` list handles left over, and `release` deletes them", check},
		{PendingNotAnnounced, 3, 24, AreaRouting, "BIRD leaves pending affinities out; before, it announced and dropped their blocks", "projectcalico/calico#6867"},
		{"", 3, 24, AreaCalicoctl, "`ipam split`", "calicoctl/calicoctl/commands/ipam/split.go"},
		{"", 3, 26, AreaRouting, "BGPFilter", "api/pkg/apis/projectcalico/v3/bgpfilter.go"},
		{"", 3, 28, AreaCollector, "a node's empty block goes back whatever room its other blocks have; before, they had to have three addresses free", collector},
		{"", 3, 29, AreaCollector, "addresses of evicted pods count as leaked", collector},
		{"", 3, 30, AreaObjects, "blocks and pools of load balancers (owner `virtual:load-balancer`, allowedUses LoadBalancer), assignmentMode of pools", "api/pkg/apis/projectcalico/v3/ippool.go"},
		{BlockLimitFlag, 3, 30, AreaCalicoctl, "`ipam configure --max-blocks-per-host`; before, IPAMConfig is patched", configure},
		{BorrowedVXLANTunnels, 3, 30, AreaRouting, "Felix programs routes to borrowed VXLAN tunnel addresses", "projectcalico/calico#9662"},
		{FelixMayRouteIPIP, 3, 31, AreaRouting, "Felix programs IPIP pools where it is enabled and BGP is not", "felix/dataplane/linux/route_mgr.go"},
		{"", 3, 31, AreaAllocation, "namespaceSelector of pools; the allocator finds a node's affinities by label", allocator},
		{EmptyBlocksReclaimed, 3, 32, AreaAllocation, "a node that finds no free block takes another node's empty one that was claimed more than a minute ago", allocator + " (EmptyBlockMinReclaimAge)"},
		{"", 3, 32, AreaObjects, "native objects of projectcalico.org/v3 instead of crd.projectcalico.org/v1; a pool's CIDR and block size cannot be changed past validation any more", "libcalico-go/lib/backend/k8s/discovery.go"},
		{"", 3, 32, AreaAllocation, "virtual machines keep their addresses (kubeVirtVMAddressPersistence)", allocator},
		{RouteClasses, 3, 33, AreaRouting, "programClusterRoutes names classes of pools; IPIP is Felix's by default", "confd/pkg/backends/calico/bgp_processor.go"},
		{"", 3, 33, AreaAllocation, "released addresses cool down (ipCooldownSeconds), and the collector sweeps them", allocator},
		{"", 3, 33, AreaCalicoctl, "`ipam configure`: any one option will do, `--ip-cooldown-seconds` is new", configure},
		{"", 3, 33, AreaMetrics, "`ipam_ippool_reserved`", metrics},
	}
}

// Since is the release that brought a feature, 0.0 for one that is not listed.
func (f Feature) Since() (major, minor int) {
	for _, c := range Changes() {
		if c.Feature == f && f != "" {
			return c.Major, c.Minor
		}
	}
	return 0, 0
}

// Has reports whether the version is known and has the feature.
func (v Version) Has(f Feature) bool {
	major, minor := f.Since()
	return major > 0 && v.AtLeast(major, minor)
}

// Lacks reports whether the version is known and too old for the feature. A
// version that is not known neither has nor lacks it.
func (v Version) Lacks(f Feature) bool { return v.Known() && !v.Has(f) }
