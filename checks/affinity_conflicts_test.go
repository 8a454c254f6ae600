package checks

import (
	"strings"
	"testing"
	"time"

	"ipamaudit/ipam"
)

// affinity adds one that no block of the lab brought along.
func (l *lab) affinity(cidr, node, state string, age time.Duration) *ipam.Affinity {
	p := mustPrefix(cidr)
	l.Affinities = append(l.Affinities, ipam.Affinity{Name: node + "-" + blockName(p), Node: node, Type: "host", CIDR: p, State: state, Created: labNow.Add(-age)})
	return &l.Affinities[len(l.Affinities)-1]
}

func TestAffinityConflicts(t *testing.T) {
	const day = 24 * time.Hour
	for _, tc := range []struct {
		name string
		make func(*lab)
		want []string
	}{
		{"all agree", func(l *lab) {}, nil},
		{"two confirmed affinities, in use", func(l *lab) { l.affinity("10.0.0.0/26", "n2", ipam.StateConfirmed, day) }, []string{"critical IPAMBlock/10.0.0.0/26"}},
		{"two, nothing in use", func(l *lab) { l.affinity("10.0.0.64/26", "n1", ipam.StateConfirmed, day) }, []string{"high IPAMBlock/10.0.0.64/26"}},
		{"two, only leaked addresses in it", func(l *lab) {
			l.book("10.0.0.70", ipam.Attribute{Handle: "h", Namespace: "app", Pod: "gone", Node: "n2"})
			l.affinity("10.0.0.64/26", "n1", ipam.StateConfirmed, day)
		}, []string{"high IPAMBlock/10.0.0.64/26"}},
		{"the second is pending, which BIRD leaves out from v3.24", func(l *lab) { l.affinity("10.0.0.0/26", "n2", ipam.StatePending, day) }, []string{"high IPAMBlock/10.0.0.0/26"}},
		{"the second is pending, before v3.24", func(l *lab) {
			l.Info.Version = ipam.ParseVersion("v3.22.0")
			l.affinity("10.0.0.0/26", "n2", ipam.StatePending, day)
		}, []string{"critical IPAMBlock/10.0.0.0/26"}},
		{"the second is pending, version unknown", func(l *lab) {
			l.Info.Version = ipam.Version{}
			l.affinity("10.0.0.0/26", "n2", ipam.StatePending, day)
		}, []string{"critical IPAMBlock/10.0.0.0/26"}},
		{"the second is in deletion, which BIRD keeps", func(l *lab) { l.affinity("10.0.0.0/26", "n2", ipam.StatePendingDeletion, day) }, []string{"critical IPAMBlock/10.0.0.0/26"}},
		{"VXLAN: Felix follows the block", func(l *lab) {
			l.Pools[0].VXLANMode = "Always"
			l.affinity("10.0.0.0/26", "n2", ipam.StateConfirmed, day)
		}, []string{"high IPAMBlock/10.0.0.0/26"}},
		{"a claim that is seconds old", func(l *lab) { l.affinity("10.0.0.0/26", "n2", ipam.StatePending, 20*time.Second) }, nil},
		{"the second is of a node that is gone", func(l *lab) { l.affinity("10.0.0.0/26", "gone", ipam.StateConfirmed, day) }, nil},
		{"the younger one is right, since the block says so", func(l *lab) {
			l.Affinities[0].Created = labNow.Add(-100 * time.Second)
			l.affinity("10.0.0.0/26", "n2", ipam.StateConfirmed, 8*day)
		}, []string{"critical IPAMBlock/10.0.0.0/26"}},

		{"an affinity without block", func(l *lab) { l.affinity("10.0.3.0/26", "n1", ipam.StateConfirmed, day) }, []string{"medium IPAMBlock/10.0.3.0/26"}},
		{"in deletion, without block", func(l *lab) { l.affinity("10.0.3.0/26", "n1", ipam.StatePendingDeletion, day) }, []string{"medium IPAMBlock/10.0.3.0/26"}},
		{"pending for two hours", func(l *lab) { l.affinity("10.0.3.0/26", "n1", ipam.StatePending, 2*time.Hour) }, []string{"medium IPAMBlock/10.0.3.0/26"}},
		{"pending, nobody knows since when", func(l *lab) { l.affinity("10.0.3.0/26", "n1", ipam.StatePending, 0).Created = time.Time{} }, []string{"low IPAMBlock/10.0.3.0/26"}},
		{"made a moment ago", func(l *lab) { l.affinity("10.0.3.0/26", "n1", ipam.StateConfirmed, time.Minute) }, nil},
		{"without block, of a node that is gone", func(l *lab) { l.affinity("10.0.3.0/26", "gone", ipam.StateConfirmed, day) }, nil},
		{"without block, of a foreign size", func(l *lab) { l.affinity("10.0.3.0/25", "n1", ipam.StateConfirmed, day) }, []string{"high IPAMBlock/10.0.3.0/25"}},
		{"without block, over another node's block", func(l *lab) { l.affinity("10.0.0.64/28", "n1", ipam.StateConfirmed, day) }, []string{"high IPAMBlock/10.0.0.64/28"}},
		{"without block, claimed twice", func(l *lab) {
			l.affinity("10.0.3.0/26", "n1", ipam.StateConfirmed, day)
			l.affinity("10.0.3.0/26", "n2", ipam.StateConfirmed, day)
		}, []string{"high IPAMBlock/10.0.3.0/26"}},
		{"IPv6, without block", func(l *lab) { l.affinity("fd00::1:0/122", "n1", ipam.StateConfirmed, day) }, []string{"medium IPAMBlock/fd00::1:0/122"}},

		{"the owner's affinity is pending", func(l *lab) { l.Affinities[0].State = ipam.StatePending }, []string{"medium IPAMBlock/10.0.0.0/26"}},
		{"the owner's affinity is in deletion, in use", func(l *lab) { l.Affinities[0].State = ipam.StatePendingDeletion }, []string{"medium IPAMBlock/10.0.0.0/26"}},
		{"the owner's affinity is in deletion, empty", func(l *lab) { l.Affinities[1].State = ipam.StatePendingDeletion }, []string{"low IPAMBlock/10.0.0.64/26"}},
		{"the owner's affinity is gone", func(l *lab) { l.Affinities = l.Affinities[1:] }, []string{"medium IPAMBlock/10.0.0.0/26"}},
		{"the owner's affinity is gone, empty", func(l *lab) { l.Affinities = l.Affinities[:1] }, []string{"low IPAMBlock/10.0.0.64/26"}},
		{"the owner's affinity is gone, the block is new", func(l *lab) {
			l.Affinities = l.Affinities[1:]
			l.Blocks[0].Created = labNow.Add(-time.Minute)
		}, nil},

		{"nobody's empty block", func(l *lab) { l.block("10.0.2.0/26", "") }, []string{"low IPAMBlock/10.0.2.0/26"}},
		{"nobody's block with an address", func(l *lab) { l.block("10.0.2.0/26", ""); l.book("10.0.2.5", ipam.Attribute{}) }, []string{"medium IPAMBlock/10.0.2.0/26"}},
		{"nobody's empty block, blocks are scarce", func(l *lab) {
			l.Pools[0].CIDR = mustPrefix("10.0.0.0/24")
			l.block("10.0.0.128/26", "")
			l.block("10.0.0.192/26", "n1")
		}, []string{"medium IPAMBlock/10.0.0.128/26"}},
		{"nobody's block outside every pool is block-layout's", func(l *lab) { l.block("10.9.2.0/26", ""); l.pod("n1", "10.9.2.5") }, nil},
		{"a load balancer's block", func(l *lab) {
			l.block("10.0.2.0/26", "").Owner = ipam.Owner{Type: "virtual", Name: "load-balancer"}
			l.affinity("10.0.2.0/26", "load-balancer", ipam.StateConfirmed, day).Type = "virtual"
		}, nil},

		{"a node's name in another case", func(l *lab) {
			l.Blocks[0].Owner.Name, l.Affinities[0].Node = "N1", "N1"
		}, []string{"high IPAMBlock/10.0.0.0/26"}},
		{"orchRefs name the node", func(l *lab) {
			l.Blocks[0].Owner.Name, l.Affinities[0].Node = "calico-n1", "calico-n1"
			l.CalicoNodes = []ipam.CalicoNode{{Name: "calico-n1", KubernetesName: "n1"}}
		}, nil},
	} {
		l := newLab(2)
		l.pool("p", "10.0.0.0/16", 26)
		l.block("10.0.0.0/26", "n1")
		l.block("10.0.0.64/26", "n2")
		l.pod("n1", "10.0.0.3")
		tc.make(l)
		want(t, tc.name, l.run(affinityConflicts()), tc.want...)
	}
}

// Only what the block does not name may be deleted.
func TestAffinityConflictsRemedy(t *testing.T) {
	l := newLab(2)
	l.pool("p", "10.0.0.0/16", 26)
	l.block("10.0.0.0/26", "n1")
	l.pod("n1", "10.0.0.3")
	l.affinity("10.0.0.0/26", "n2", ipam.StateConfirmed, time.Hour)
	out := l.run(affinityConflicts())
	text := commandText(out.Findings[0].Remediation)
	if !strings.Contains(text, "delete blockaffinities.crd.projectcalico.org n2-10-0-0-0-26") || strings.Contains(text, "delete blockaffinities.crd.projectcalico.org n1") || strings.Contains(text, "delete ipamblocks") {
		t.Errorf("commands:\n%s", text)
	}
	if f := out.Findings[0]; !strings.Contains(f.Detail, "n2 has an affinity for it too") || len(f.Affected) != 4 {
		t.Errorf("%s\n%+v", f.Detail, f.Affected)
	}
	l = newLab(2)
	l.pool("p", "10.0.0.0/16", 26)
	l.affinity("10.0.0.0/26", "n2", ipam.StatePendingDeletion, 30*24*time.Hour)
	if out := l.run(affinityConflicts()); out.Findings[0].Evidence != Inferred {
		t.Errorf("how long it has been in deletion is not recorded, so it is inferred: %s", out.Findings[0].Evidence)
	}
	l.Coverage.Set(ipam.ResAffinities, ipam.Forbidden, 0, "")
	if out := l.run(affinityConflicts()); out.Status != StatusUnknown {
		t.Errorf("affinities forbidden: %s", out.Status)
	}
}
