package checks

import "ipamaudit/ipam"

// notCalicoIPAM is the reason to skip block-based checks on a cluster whose
// pods do not get their addresses from Calico IPAM, or whose IPAM data is
// gone; empty where they do, or where that cannot be told. The check ipam-data
// speaks in their place.
func notCalicoIPAM(s *ipam.Snapshot) string {
	switch kind, why := s.IPAM(); kind {
	case ipam.HostLocal:
		return "addresses come from host-local here: " + why
	case ipam.NoIPAM:
		return "no Calico IPAM here: " + why
	default:
	}
	if lost, _ := s.DataLost(); lost {
		return "IPAM data was lost, see ipam-data"
	}
	return ""
}
