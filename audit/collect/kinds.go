package collect

import (
	"strings"

	"ipamaudit/ipam"
)

// The Calico API groups (CALICO libcalico-go/lib/backend/k8s/discovery.go).
const (
	groupV1 = "crd.projectcalico.org"
	groupV3 = "projectcalico.org"
)

func groupOf(apiVersion string) string {
	g, _, ok := strings.Cut(apiVersion, "/")
	if !ok {
		return ""
	}
	return g
}

// resourceOf recognises an object by its apiVersion and kind.
func resourceOf(apiVersion, kind string) (ipam.Resource, bool) {
	switch groupOf(apiVersion) {
	case groupV1, groupV3:
		return calicoResource(groupOf(apiVersion), kind)
	case "":
		switch kind {
		case "Node":
			return ipam.ResNodes, true
		case "Pod":
			return ipam.ResPods, true
		case "Namespace":
			return ipam.ResNamespaces, true
		case "Service":
			return ipam.ResServices, true
		case "Event":
			return ipam.ResEvents, true
		case "ConfigMap":
			return ipam.ResConfigMaps, true
		}
	case "events.k8s.io":
		if kind == "Event" {
			return ipam.ResEvents, true
		}
	case "apps", "extensions":
		switch kind {
		case "Deployment":
			return ipam.ResDeployments, true
		case "DaemonSet":
			return ipam.ResDaemonSets, true
		}
	}
	return "", false
}

// knownVersion reports whether an object of one of our kinds has a version whose
// fields are known. Of another one nothing can be read, and nothing be guessed.
func knownVersion(apiVersion string) bool {
	switch apiVersion {
	case "", "v1", ipam.APIv1, ipam.APIv3, "apps/v1", "events.k8s.io/v1",
		"apps/v1beta1", "apps/v1beta2", "extensions/v1beta1", "events.k8s.io/v1beta1": // in old dumps
		return true
	}
	return false
}

func calicoResource(group, kind string) (ipam.Resource, bool) {
	switch kind {
	case "IPAMBlock":
		return ipam.ResBlocks, true
	case "BlockAffinity":
		return ipam.ResAffinities, true
	case "IPAMHandle":
		return ipam.ResHandles, true
	case "IPAMConfig", "IPAMConfiguration":
		return ipam.ResIPAMConfig, true
	case "IPPool":
		return ipam.ResPools, true
	case "IPReservation":
		return ipam.ResReservations, true
	case "ClusterInformation":
		return ipam.ResClusterInfo, true
	case "BGPConfiguration":
		return ipam.ResBGPConfig, true
	case "BGPPeer":
		return ipam.ResBGPPeers, true
	case "BGPFilter":
		return ipam.ResBGPFilters, true
	case "FelixConfiguration":
		return ipam.ResFelixConfig, true
	case "KubeControllersConfiguration":
		return ipam.ResKubeCtrl, true
	case "Node":
		if group == groupV3 {
			return ipam.ResCalicoNodes, true
		}
	}
	return "", false
}

// kindOf is the kind and apiVersion under which a snapshot stores a resource;
// api is the group of the Calico kinds.
func kindOf(r ipam.Resource, api string) (apiVersion, kind string) {
	if api == "" {
		api = ipam.APIv1
	}
	switch r {
	case ipam.ResBlocks:
		return api, "IPAMBlock"
	case ipam.ResAffinities:
		return api, "BlockAffinity"
	case ipam.ResHandles:
		return api, "IPAMHandle"
	case ipam.ResIPAMConfig:
		if api == ipam.APIv3 {
			return api, "IPAMConfiguration"
		}
		return api, "IPAMConfig"
	case ipam.ResPools:
		return api, "IPPool"
	case ipam.ResReservations:
		return api, "IPReservation"
	case ipam.ResClusterInfo:
		return api, "ClusterInformation"
	case ipam.ResBGPConfig:
		return api, "BGPConfiguration"
	case ipam.ResBGPPeers:
		return api, "BGPPeer"
	case ipam.ResBGPFilters:
		return api, "BGPFilter"
	case ipam.ResFelixConfig:
		return api, "FelixConfiguration"
	case ipam.ResKubeCtrl:
		return api, "KubeControllersConfiguration"
	case ipam.ResCalicoNodes:
		return ipam.APIv3, "Node"
	case ipam.ResNodes:
		return "v1", "Node"
	case ipam.ResPods:
		return "v1", "Pod"
	case ipam.ResNamespaces:
		return "v1", "Namespace"
	case ipam.ResServices:
		return "v1", "Service"
	case ipam.ResEvents:
		return "v1", "Event"
	case ipam.ResConfigMaps:
		return "v1", "ConfigMap"
	case ipam.ResDeployments:
		return "apps/v1", "Deployment"
	case ipam.ResDaemonSets:
		return "apps/v1", "DaemonSet"
	}
	return "", ""
}

// isCalico reports whether a resource lives in Calico's API groups.
func isCalico(r ipam.Resource) bool {
	api, _ := kindOf(r, ipam.APIv1)
	return groupOf(api) == groupV1 || groupOf(api) == groupV3
}

// resourceOfFile recognises a file that is named after a resource:
// ipamblocks.yaml, ipamblocks.crd.projectcalico.org.json, ipamblocks.empty.json.
// group is Calico's API group when the name says it.
func resourceOfFile(path string) (r ipam.Resource, group string, ok bool) {
	base := path[strings.LastIndexByte(path, '/')+1:]
	for _, ext := range []string{".yaml", ".yml", ".json"} {
		base = strings.TrimSuffix(base, ext)
	}
	r, ok = ipam.ParseResource(base)
	if !ok {
		return "", "", false
	}
	_, rest, _ := strings.Cut(strings.ToLower(base), ".")
	switch {
	case strings.HasPrefix(rest, groupV1):
		group = groupV1
	case strings.HasPrefix(rest, groupV3):
		group = groupV3
		if r == ipam.ResNodes {
			r = ipam.ResCalicoNodes
		}
	case strings.HasPrefix(strings.ToLower(base), "ipamconfigurations"):
		// Only projectcalico.org/v3 has this plural.
		group = groupV3
	}
	return r, group, true
}
