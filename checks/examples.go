package checks

import (
	"net/netip"
	"time"

	"ipamaudit/ipam"
)

// The names on the pages.
var (
	exampleAddress = netip.MustParseAddr("10.0.0.7")
	exampleBlock   = netip.MustParsePrefix("10.0.0.64/26")
)

// exampleCluster is the smallest cluster in which checks can say something: a
// pool, two nodes and a pod, all of it read and old enough.
func exampleCluster() *ipam.Snapshot {
	made := time.Unix(0, 0)
	s := ipam.NewSnapshot()
	s.API, s.AsOf = ipam.APIv1, made.Add(time.Hour)
	s.Pools = []ipam.Pool{{Name: "POOL", CIDR: netip.MustParsePrefix("10.0.0.0/16"), BlockSize: exampleBlock.Bits(), NodeSelector: "all()", AllowedUses: ipam.UseWorkload}}
	s.Nodes = []ipam.Node{{Name: "NODE"}, {Name: "WRONG-NODE"}}
	s.Pods = []ipam.Pod{{Namespace: "NAMESPACE", Name: "POD", NodeName: "NODE", Phase: "Running", OwnerKind: "ReplicaSet", StatusIPs: []netip.Addr{exampleBlock.Addr()}}}
	for _, r := range ipam.AllResources() {
		s.Coverage.Set(r, ipam.Read, 0, "")
	}
	return s
}

// What a page cannot know: a command that lacks it refuses to run. They end the
// shell's single quotes and begin them again.
const (
	uidOfBlock    = `'"${BLOCK_UID:?set it first: metadata.uid of the IPAMBlock}"'`
	uidOfAffinity = `'"${AFFINITY_UID:?set it first: metadata.uid of the BlockAffinity}"'`
)

// exampleBlockOf is a block of the example; its slots belong to the pod.
func exampleBlockOf(cidr netip.Prefix, owner string, slots ...ipam.Slot) ipam.Block {
	return ipam.Block{
		Name: blockName(cidr), CIDR: cidr, Owner: ipam.ParseOwner(owner), Created: time.Unix(0, 0), UID: uidOfBlock, Slots: slots,
		Attributes: []ipam.Attribute{{Handle: "HANDLE", Namespace: "NAMESPACE", Pod: "POD", Node: "NODE"}},
	}
}

// said are the steps of what a check says of the cluster.
func said(c Check, s *ipam.Snapshot) []Step {
	var out []Step
	for _, f := range c.Run(&Input{Snapshot: s.Seal(), Params: c.DefaultParams(), Now: s.AsOf}).Findings {
		out = append(out, f.Remediation...)
	}
	return out
}
