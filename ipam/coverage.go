package ipam

import (
	"slices"
	"strings"
)

// Resource names a kind of object the auditor reads, by the plural that the
// API server and kubectl use. IPAMConfig (crd.projectcalico.org/v1) and
// IPAMConfiguration (projectcalico.org/v3) are one resource here.
type Resource string

// The resources a snapshot may hold.
const (
	ResBlocks       Resource = "ipamblocks"
	ResAffinities   Resource = "blockaffinities"
	ResHandles      Resource = "ipamhandles"
	ResIPAMConfig   Resource = "ipamconfigs"
	ResPools        Resource = "ippools"
	ResReservations Resource = "ipreservations"
	ResClusterInfo  Resource = "clusterinformations"
	ResBGPConfig    Resource = "bgpconfigurations"
	ResBGPPeers     Resource = "bgppeers"
	ResBGPFilters   Resource = "bgpfilters"
	ResFelixConfig  Resource = "felixconfigurations"
	ResKubeCtrl     Resource = "kubecontrollersconfigurations"
	ResNodes        Resource = "nodes"
	ResPods         Resource = "pods"
	ResNamespaces   Resource = "namespaces"
	ResServices     Resource = "services"
	ResEvents       Resource = "events"
	ResDeployments  Resource = "deployments"
	ResDaemonSets   Resource = "daemonsets"
	// ResCalicoNodes are Calico's own Node objects, which only the etcd
	// datastore has: they map Calico's node names to Kubernetes' (orchRefs).
	ResCalicoNodes Resource = "caliconodes"
	// ResConfigMaps are only looked at for the CNI configuration in a saved
	// snapshot (calico-config, kube-flannel-cfg); they are never collected live.
	ResConfigMaps Resource = "configmaps"
)

// AllResources lists every resource in the order in which reports name them.
func AllResources() []Resource {
	return []Resource{
		ResBlocks, ResAffinities, ResHandles, ResIPAMConfig, ResPools, ResReservations,
		ResClusterInfo, ResBGPConfig, ResBGPPeers, ResBGPFilters, ResFelixConfig, ResKubeCtrl,
		ResNodes, ResPods, ResNamespaces, ResServices, ResEvents, ResDeployments, ResDaemonSets,
		ResCalicoNodes, ResConfigMaps,
	}
}

// Optional reports whether a missing r means Calico's defaults or less
// evidence rather than "unknown" (CONTRACT: singletons with defaults and
// optional kinds).
func (r Resource) Optional() bool {
	switch r {
	case ResIPAMConfig, ResBGPConfig, ResKubeCtrl, ResReservations, ResBGPPeers, ResBGPFilters,
		ResFelixConfig, ResEvents, ResDeployments, ResDaemonSets, ResNamespaces, ResServices,
		ResCalicoNodes, ResConfigMaps, ResClusterInfo:
		return true
	default:
		return false
	}
}

// ParseResource maps the names people write (singular or plural, with an API
// group behind a dot, any case) to a Resource. ok is false for names that are
// none of ours.
func ParseResource(name string) (r Resource, ok bool) {
	plural, _, _ := strings.Cut(strings.ToLower(name), ".")
	switch plural {
	case "ipamconfigurations", "ipamconfiguration", "ipamconfig":
		return ResIPAMConfig, true
	case "blockaffinity":
		return ResAffinities, true
	}
	for _, candidate := range []string{plural, plural + "s", plural + "es"} {
		if slices.Contains(AllResources(), Resource(candidate)) {
			return Resource(candidate), true
		}
	}
	return "", false
}

// ReadStatus tells how the reading of a resource went.
type ReadStatus string

const (
	// Read: the API answered, or the snapshot holds the kind.
	Read ReadStatus = "read"
	// Forbidden: asked for and refused.
	Forbidden ReadStatus = "forbidden"
	// Absent: the API does not serve it.
	Absent ReadStatus = "absent"
	// Failed: asked for and not answered, or not whole.
	Failed ReadStatus = "failed"
	// Missing: nobody collected it.
	Missing ReadStatus = "missing"
)

// ResourceCoverage is what is known of one resource's reading.
type ResourceCoverage struct {
	Resource Resource   `json:"resource"`
	Status   ReadStatus `json:"status"`
	// Items counts the objects read, soft-deleted ones included.
	Items int `json:"items"`
	// Assumed is true where Calico's defaults, or less evidence, stand in for
	// what was not read.
	Assumed bool `json:"assumed"`
	// Detail is the error, or the number of objects that could not be used.
	Detail string `json:"detail,omitempty"`
}

// Coverage maps each resource to how its reading went. Resources that are not
// in the map are Missing.
type Coverage map[Resource]ResourceCoverage

// Get returns the coverage of r; Missing when nothing is known.
func (c Coverage) Get(r Resource) ResourceCoverage {
	if rc, ok := c[r]; ok {
		return rc
	}
	return ResourceCoverage{Resource: r, Status: Missing, Assumed: r.Optional()}
}

// Read reports whether r was read.
func (c Coverage) Read(r Resource) bool { return c.Get(r).Status == Read }

// Refused reports whether r was asked for and not, or not wholly, answered:
// somebody has it, and Calico's defaults in its place would be a guess.
func (c Coverage) Refused(r Resource) bool {
	s := c.Get(r).Status
	return s == Forbidden || s == Failed
}

// Set records the outcome for r, filling in Resource and Assumed.
func (c Coverage) Set(r Resource, status ReadStatus, items int, detail string) {
	c[r] = ResourceCoverage{
		Resource: r, Status: status, Items: items, Detail: detail,
		Assumed: status != Read && r.Optional(),
	}
}

// List returns the coverage of every resource in AllResources' order.
func (c Coverage) List() []ResourceCoverage {
	out := make([]ResourceCoverage, 0, len(AllResources()))
	for _, r := range AllResources() {
		rc := c.Get(r)
		switch {
		case (r == ResCalicoNodes || r == ResConfigMaps) && rc.Status != Read:
			continue // only some snapshots hold these
		case r == ResServices && rc.Status == Missing:
			continue // no check asks for them, only the story of one address
		}
		out = append(out, rc)
	}
	return out
}
