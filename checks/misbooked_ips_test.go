package checks

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"ipamaudit/ipam"
)

func TestMisbookedIPs(t *testing.T) {
	for _, tc := range []struct {
		name  string
		build func(l *lab, p *ipam.Pod, at *ipam.Attribute)
		want  bool
	}{
		{"right", func(*lab, *ipam.Pod, *ipam.Attribute) {}, false},
		{"booked for another node", func(_ *lab, _ *ipam.Pod, at *ipam.Attribute) { at.Node = "n2" }, true},
		{"booked for a node that does not exist", func(_ *lab, _ *ipam.Pod, at *ipam.Attribute) { at.Node = "old-name" }, true},
		{"booked for a pod that is gone", func(_ *lab, _ *ipam.Pod, at *ipam.Attribute) { at.Pod = "gone" }, true},
		{"booked for another pod, which waits", func(l *lab, _ *ipam.Pod, at *ipam.Attribute) {
			at.Pod = "waiting"
			l.Pods = append(l.Pods, ipam.Pod{Namespace: "app", Name: "waiting", NodeName: "n1", Phase: "Pending"})
		}, true},
		{"differs in case", func(_ *lab, _ *ipam.Pod, at *ipam.Attribute) { at.Node = "N1" }, false},
		{"mapped by orchRefs", func(l *lab, _ *ipam.Pod, at *ipam.Attribute) {
			at.Node = "ip-1"
			l.CalicoNodes = []ipam.CalicoNode{{Name: "ip-1", KubernetesName: "n1"}}
		}, false},
		{"no node recorded", func(_ *lab, _ *ipam.Pod, at *ipam.Attribute) { at.Node = "" }, false},
		{"no pod recorded: nothing collects it", func(_ *lab, _ *ipam.Pod, at *ipam.Attribute) { at.Pod, at.Node = "", "n2" }, false},
		{"borrowed, but booked for the right node", func(l *lab, p *ipam.Pod, at *ipam.Attribute) { p.NodeName, at.Node = "n2", "n2" }, false},
		{"the pod is being deleted", func(_ *lab, p *ipam.Pod, at *ipam.Attribute) { p.Deleting, at.Node = true, "n2" }, false},
		{"the pod has finished", func(_ *lab, p *ipam.Pod, at *ipam.Attribute) { p.Phase, at.Node = "Succeeded", "n2" }, false},
		{"the pod is a minute old", func(_ *lab, p *ipam.Pod, at *ipam.Attribute) { p.Created, at.Node = labNow.Add(-time.Minute), "n2" }, false},
		{"a virtual machine that moved", func(_ *lab, p *ipam.Pod, at *ipam.Attribute) {
			p.VMI, at.VMI, at.Pod, at.Node = "vm", "vm", "virt-launcher-a", "n2"
		}, false},
		{"an old release's virtual machine", func(_ *lab, p *ipam.Pod, at *ipam.Attribute) { p.VMI, at.Pod = "vm", "virt-launcher-a" }, false},
		{"only an old annotation has the address", func(l *lab, p *ipam.Pod, at *ipam.Attribute) {
			at.Pod = "gone"
			p.AnnotatedIPs, p.StatusIPs = p.StatusIPs, []netip.Addr{netip.MustParseAddr("10.0.0.1")}
		}, false},
	} {
		l := leakLab()
		p := l.pod("n1", "10.0.0.20")
		b := &l.Blocks[0]
		tc.build(l, p, &b.Attributes[len(b.Attributes)-1])
		out := l.run(misbookedIPs())
		if !tc.want {
			want(t, tc.name, out)
			continue
		}
		want(t, tc.name, out, "critical Cluster/lab")
		if f := out.Findings[0]; len(f.Affected) != 1 || f.Affected[0].Name != "10.0.0.20" || f.Evidence != Observed {
			t.Errorf("%s: %+v", tc.name, f)
		}
	}
}

// The collector is kept off before anything else, and on again at the end.
func TestMisbookedRemediation(t *testing.T) {
	l := leakLab()
	l.pod("n1", "10.0.0.20")
	l.Blocks[0].Attributes[len(l.Blocks[0].Attributes)-1].Node = "n2"
	steps := l.run(misbookedIPs()).Findings[0].Remediation
	first, last := steps[1].Commands[1], steps[len(steps)-1].Commands[0]
	if !strings.Contains(first, `"leakGracePeriod":"0s"`) || !strings.Contains(last, `"leakGracePeriod":"15m0s"`) {
		t.Errorf("first %q, last %q", first, last)
	}
	l.KubeCtrl.LeakGracePeriod = 0
	for _, s := range l.run(misbookedIPs()).Findings[0].Remediation {
		for _, c := range s.Commands {
			if strings.Contains(c, "leakGracePeriod") {
				t.Errorf("the collector was off before and must stay off: %s", c)
			}
		}
	}
}
