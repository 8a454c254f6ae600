package ipam

import (
	"fmt"
	"strings"
)

// Kind says which IPAM gives the cluster's pods their addresses.
type Kind string

// The kinds of the report's calico.ipam.
const (
	CalicoIPAM  Kind = "calico-ipam"
	HostLocal   Kind = "host-local"
	NoIPAM      Kind = "none"
	UnknownIPAM Kind = "unknown"
)

// podCensus counts the addresses of live pods by what is known of them.
type podCensus struct {
	// total addresses of live pods; recorded of them are booked in a block, own
	// of these for the pod itself and not for one of long ago; local lie in their
	// own node's podCIDR; annotated belong to pods that Calico's CNI plug-in has
	// annotated.
	total, recorded, own, local, annotated int
	// unrecorded are those of annotated pods that no block books.
	unrecorded int
}

func (s *Snapshot) census() podCensus {
	var c podCensus
	lost := map[string]bool{} // whose addresses those of their pods are is not known
	for _, name := range s.Unusable(ResNodes) {
		lost[name] = true
	}
	for i := range s.Pods {
		p := &s.Pods[i]
		if !p.Live() || p.NoIPAM || lost[p.NodeName] {
			continue
		}
		node := s.ix.nodes[p.NodeName]
		for _, ip := range p.IPs() {
			c.total++
			a, booked := s.AllocationOf(ip)
			if booked {
				c.recorded++
				if a.Attr.Pod == "" || a.Attr.Pod == p.Name && a.Attr.Namespace == p.Namespace {
					c.own++
				}
			}
			if p.CalicoCNI {
				c.annotated++
				if !booked {
					c.unrecorded++
				}
			}
			if node == nil {
				continue
			}
			for _, cidr := range node.PodCIDRs {
				if cidr.Contains(ip) {
					c.local++
					break
				}
			}
		}
	}
	return c
}

// IPAM tells which IPAM is in use, and why it thinks so. Pods that lie in
// their own node's podCIDR and are in no block mean host-local
// (projectcalico/calico#11702, #7348); pods without Calico's annotations mean
// that Calico gives out no addresses here.
func (s *Snapshot) IPAM() (Kind, string) {
	return s.ix.kind, s.ix.kindWhy
}

func (s *Snapshot) detectIPAM(c podCensus) (Kind, string) {
	hostLocalConf := false
	for _, conf := range s.CNIConfigs {
		compact := strings.Join(strings.Fields(conf), "")
		hostLocalConf = hostLocalConf || strings.Contains(compact, `"type":"host-local"`) && !strings.Contains(compact, `"type":"calico-ipam"`)
	}
	if !s.Coverage.Read(ResPods) {
		if hostLocalConf {
			return HostLocal, "the CNI configuration names host-local (pods were not read)"
		}
		if len(s.Blocks) > 0 {
			return CalicoIPAM, "there are blocks (pods were not read)"
		}
		return UnknownIPAM, "pods were not read"
	}
	switch {
	case hostLocalConf && 10*c.recorded < 9*c.total:
		return HostLocal, "the CNI configuration names host-local"
	case c.total == 0:
		if len(s.Blocks) > 0 || len(s.Pools) > 0 {
			return CalicoIPAM, "there are pools or blocks and no pod-network pods"
		}
		if s.hostLocalEvents() {
			return HostLocal, "events carry host-local's error text"
		}
		if s.Coverage.Get(ResBlocks).Status == Absent || !s.Info.Present && s.calicoWorkloads() == 0 {
			return NoIPAM, "no pool, no block and no pod-network pod"
		}
		return UnknownIPAM, "no pool, no block and no pod-network pod to tell from"
	case 2*c.recorded >= c.total:
		return CalicoIPAM, fmt.Sprintf("%d of %d pod addresses are in blocks", c.recorded, c.total)
	case 10*c.local >= 9*c.total && 10*c.own < c.total && !s.Coverage.Refused(ResBlocks):
		if c.annotated == 0 {
			return NoIPAM, fmt.Sprintf("%d of %d pod addresses lie in their own node's podCIDR and no pod carries Calico's annotations", c.local, c.total)
		}
		return HostLocal, fmt.Sprintf("%d of %d pod addresses lie in their own node's podCIDR and %d are booked for their pods", c.local, c.total, c.own)
	case c.annotated == 0 && c.recorded == 0 && !s.Coverage.Refused(ResBlocks):
		if s.hostLocalEvents() {
			return HostLocal, "events carry host-local's error text"
		}
		return NoIPAM, fmt.Sprintf("none of %d pod addresses belongs to a pod with Calico's annotations", c.total)
	case c.annotated == 0 && c.recorded == 0:
		return UnknownIPAM, "blocks were not read and no pod carries Calico's annotations"
	default:
		return CalicoIPAM, fmt.Sprintf("%d of %d pod addresses belong to pods with Calico's annotations", c.annotated, c.total)
	}
}

// hostLocalEvents reports whether host-local's error text occurs
// (containernetworking/plugins: host-local/backend/allocator).
func (s *Snapshot) hostLocalEvents() bool {
	for i := range s.Events {
		if strings.Contains(s.Events[i].Message, "failed to allocate for range 0") {
			return true
		}
	}
	return false
}

func (s *Snapshot) calicoWorkloads() int {
	n := 0
	for _, w := range s.Workloads {
		if w.Kind == "DaemonSet" {
			n++
		}
	}
	return n
}

// DataLost reports whether Calico IPAM's data was reset or has vanished under
// running pods, and the figures: more than half of the addresses of pods that
// Calico attached are in no block (projectcalico/calico#11755, #12457). It
// needs blocks and pods to have been read.
func (s *Snapshot) DataLost() (lost bool, why string) { return s.ix.lost, s.ix.lostWhy }

func (s *Snapshot) dataLost(c podCensus) (lost bool, why string) {
	if !s.Coverage.Read(ResBlocks) || !s.Coverage.Read(ResPods) {
		return false, ""
	}
	if kind, _ := s.IPAM(); kind != CalicoIPAM {
		return false, ""
	}
	if c.annotated == 0 || 2*c.unrecorded <= c.annotated {
		return false, ""
	}
	// What may be booked in a block that could not be used is not lost.
	if c.unrecorded <= s.unreadableRoom() {
		return false, ""
	}
	// A handful of strays in a tiny cluster is unallocated-pod-ips' business,
	// unless IPAM is empty altogether.
	if len(s.Blocks) > 0 && c.unrecorded < 10 {
		return false, ""
	}
	return true, fmt.Sprintf("%d of %d addresses of running pods are in no block; %d blocks and %d pools exist", c.unrecorded, c.annotated, len(s.Blocks), len(s.Pools))
}

// unreadableRoom is the most addresses that the blocks which could not be used
// may hold: as many as the largest blocks of the pools.
func (s *Snapshot) unreadableRoom() int {
	rejected := len(s.Unusable(ResBlocks))
	if rejected == 0 {
		return 0
	}
	largest := uint64(64)
	for i := range s.Pools {
		largest = max(largest, s.Pools[i].Usable(false))
	}
	return rejected * int(min(largest, 1<<20))
}
