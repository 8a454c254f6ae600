package checks

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"ipamaudit/ipam"
)

// large is a healthy cluster n times the size of 5,000 nodes, 20,000 blocks and
// 100,000 pods, as test/scale loads it into a real one.
func large(n float64) *ipam.Snapshot {
	now := time.Date(2026, 12, 1, 6, 0, 0, 0, time.UTC)
	nodes, blocks, perBlock := int(5000*n), int(20_000*n), 5
	s := ipam.NewSnapshot()
	s.Cluster, s.AsOf, s.API = ipam.ClusterRef{Name: "large", ID: "large"}, now, ipam.APIv1
	for _, r := range ipam.AllResources() {
		s.Coverage.Set(r, ipam.Read, 0, "")
	}
	s.Info = ipam.ClusterInfo{Present: true, Version: ipam.ParseVersion("v3.30.2"), Ready: true}
	s.Pools = []ipam.Pool{{Name: "pods", CIDR: netip.MustParsePrefix("10.0.0.0/8"), BlockSize: 26, NodeSelector: "all()", IPIPMode: "Never", VXLANMode: "Never", AllowedUses: ipam.UseWorkload | ipam.UseTunnel}}
	for i := range nodes {
		s.Nodes = append(s.Nodes, ipam.Node{Name: fmt.Sprintf("worker-%05d", i), UID: fmt.Sprint(i), Ready: true, MaxPods: 110, Labels: map[string]string{"zone": fmt.Sprint(i % 3)}})
	}
	for i := range blocks {
		node := s.Nodes[i%nodes].Name
		b := ipam.Block{Name: fmt.Sprint("b", i), CIDR: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 10), byte(i >> 2), byte(i << 6)}), 26), Owner: ipam.Owner{Type: "host", Name: node}}
		ip := b.CIDR.Addr()
		for j := range perBlock {
			pod, handle := fmt.Sprintf("app-%d-%d", i, j), fmt.Sprintf("k8s-pod-network.%032d%032d", i, j)
			s.Pods = append(s.Pods, ipam.Pod{Namespace: fmt.Sprint("team-", i%200), Name: pod, NodeName: node, Phase: "Running", StatusIPs: []netip.Addr{ip}, AnnotatedIPs: []netip.Addr{ip}, CalicoCNI: true, OwnerKind: "ReplicaSet", Created: now.AddDate(0, -1, 0)})
			b.Slots = append(b.Slots, ipam.Slot{Ordinal: uint32(j), Attr: int32(j)})
			b.Attributes = append(b.Attributes, ipam.Attribute{Handle: handle, Namespace: fmt.Sprint("team-", i%200), Pod: pod, Node: node, Timestamp: now.AddDate(0, -1, 0)})
			s.Handles = append(s.Handles, ipam.Handle{Name: handle, ID: handle, Count: 1, Created: now.AddDate(0, -1, 0)})
			ip = ip.Next()
		}
		s.Blocks = append(s.Blocks, b)
		s.Affinities = append(s.Affinities, ipam.Affinity{Name: node + b.Name, Node: node, Type: "host", CIDR: b.CIDR, State: ipam.StateConfirmed, Created: now.AddDate(0, -1, 0)})
	}
	return s.Seal()
}

// BenchmarkChecks is the analysis alone: every check, one after the other.
func BenchmarkChecks(b *testing.B) {
	for _, n := range []float64{0.1, 1, 2, 4} {
		s := large(n)
		b.Run(fmt.Sprintf("%gx", n), func(b *testing.B) {
			for b.Loop() {
				for _, c := range All() {
					if c.ID != ClusterAccessID {
						Evaluate(c, &Input{Snapshot: s, Params: c.DefaultParams(), Now: s.AsOf})
					}
				}
			}
		})
	}
}

// BenchmarkOne is each check by itself.
func BenchmarkOne(b *testing.B) {
	s := large(1)
	for _, c := range All() {
		if c.ID == ClusterAccessID {
			continue
		}
		b.Run(c.ID, func(b *testing.B) {
			for b.Loop() {
				Evaluate(c, &Input{Snapshot: s, Params: c.DefaultParams(), Now: s.AsOf})
			}
		})
	}
}

// BenchmarkSeal is what indexing a snapshot costs.
func BenchmarkSeal(b *testing.B) {
	s := large(1)
	for b.Loop() {
		s.Seal()
	}
}
