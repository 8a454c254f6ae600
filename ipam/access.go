package ipam

// GroupResource is a resource as the API server's authorizer knows it.
type GroupResource struct{ Group, Resource string }

// Served returns where r can be read: Calico's kinds live in one of two
// groups, and IPAMConfig has another plural in the second. Resources that are
// never read from an API server return nothing.
func (r Resource) Served() []GroupResource {
	const v1, v3 = "crd.projectcalico.org", "projectcalico.org"
	switch r {
	case ResIPAMConfig:
		return []GroupResource{{v1, "ipamconfigs"}, {v3, "ipamconfigurations"}}
	case ResNodes, ResPods, ResNamespaces, ResServices, ResEvents:
		return []GroupResource{{"", string(r)}}
	case ResDeployments, ResDaemonSets:
		return []GroupResource{{"apps", string(r)}}
	case ResCalicoNodes, ResConfigMaps:
		return nil
	default:
		return []GroupResource{{v1, string(r)}, {v3, string(r)}}
	}
}
