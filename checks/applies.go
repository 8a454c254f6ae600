package checks

import "ipamaudit/ipam"

// notCalicoIPAM is the reason to skip block-based checks on a cluster whose
// pods do not get their addresses from Calico IPAM; empty where they do, or
// where that cannot be told.
func notCalicoIPAM(s *ipam.Snapshot) string { return "" }
