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

// Change says in which release a feature came and where that can be read.
type Change struct {
	Feature      Feature
	Major, Minor int
	// Source is a file of github.com/projectcalico/calico, or an issue or pull request.
	Source string
}

// Changes is the one place that knows what changed in which release.
func Changes() []Change {
	return []Change{
		{ConfigureCommand, 3, 14, "projectcalico/calicoctl#2119"},
		{ReleaseFromReport, 3, 18, "calicoctl/calicoctl/commands/ipam/release.go"},
		{GracePeriodSetting, 3, 20, "api/pkg/apis/projectcalico/v3/kubecontrollersconfig.go"},
		{EmptyBlocksCollected, 3, 21, "kube-controllers/pkg/controllers/node/ipam.go (checkEmptyBlocks)"},
		{SeveralReports, 3, 21, "calicoctl/calicoctl/commands/ipam/release.go"},
		{EvictionV1, 3, 22, "kubernetes/kubernetes#100724; Calico's requirements page: v3.22 is for 1.21 to 1.23"},
		{OwnASAllowed, 3, 23, "api/pkg/apis/projectcalico/v3/bgppeer.go"},
		{HandlesInReport, 3, 24, "calicoctl/calicoctl/commands/ipam/check.go"},
		{PendingNotAnnounced, 3, 24, "projectcalico/calico#6867"},
		{BlockLimitFlag, 3, 30, "calicoctl/calicoctl/commands/ipam/configure.go"},
		{BorrowedVXLANTunnels, 3, 30, "projectcalico/calico#9662"},
		{FelixMayRouteIPIP, 3, 31, "felix/dataplane/linux/route_mgr.go"},
		{EmptyBlocksReclaimed, 3, 32, "libcalico-go/lib/ipam/ipam.go (EmptyBlockMinReclaimAge)"},
		{RouteClasses, 3, 33, "confd/pkg/backends/calico/bgp_processor.go"},
	}
}

// Has reports whether the version is known and has the feature.
func (v Version) Has(f Feature) bool {
	for _, c := range Changes() {
		if c.Feature == f {
			return v.AtLeast(c.Major, c.Minor)
		}
	}
	return false
}

// Lacks reports whether the version is known and too old for the feature. A
// version that is not known neither has nor lacks it.
func (v Version) Lacks(f Feature) bool { return v.Known() && !v.Has(f) }
