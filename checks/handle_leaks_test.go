package checks

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"ipamaudit/ipam"
)

// handleLab has a handle for each of its allocations.
func handleLab() *lab {
	l := leakLab()
	for i := range l.Blocks {
		for _, at := range l.Blocks[i].Attributes {
			l.handle(at.Handle, longAgo)
		}
	}
	return l
}

func (l *lab) handle(id string, age time.Duration) {
	l.Handles = append(l.Handles, ipam.Handle{Name: strings.ToLower(id), ID: id, Created: labNow.Add(-age)})
}

func TestHandleLeaks(t *testing.T) {
	for _, tc := range []struct {
		name  string
		build func(*lab)
		want  []string
	}{
		{"healthy", func(*lab) {}, nil},
		{"a handle left over", func(l *lab) { l.handle("k8s-pod-network.dead", longAgo) }, []string{"low Cluster/lab"}},
		{"a new handle whose address is not booked yet", func(l *lab) { l.handle("k8s-pod-network.new", time.Minute) }, nil},
		{"a missing handle", func(l *lab) { l.bookPod("10.0.0.9", "n1", "x", longAgo) }, []string{"medium Cluster/lab"}},
		{"a missing handle of a new allocation", func(l *lab) { l.bookPod("10.0.0.9", "n1", "x", time.Minute) }, nil},
		{"Windows' handle has no object", func(l *lab) { l.book("10.0.0.9", ipam.Attribute{Handle: "windows-reserved-ipam-handle"}) }, nil},
		{"no handle recorded", func(l *lab) { l.book("10.0.0.9", ipam.Attribute{}) }, nil},
		{"cooling down", func(l *lab) { l.book("10.0.0.9", ipam.Attribute{ReleasedAt: labNow}) }, nil},
		{"the case of a Service's handle differs", func(l *lab) {
			l.book("10.0.0.9", ipam.Attribute{Handle: "lb-AbC", Type: "LoadBalancer"})
			l.Handles = append(l.Handles, ipam.Handle{Name: "lb-abc", ID: "lb-AbC", Created: labNow.Add(-longAgo)})
		}, nil},
		{"an old handle with a carriage return", func(l *lab) {
			l.book("10.0.0.9", ipam.Attribute{Handle: "k8s-pod-network.cr"})
			l.Handles = append(l.Handles, ipam.Handle{Name: "k8s-pod-network.cr", ID: "k8s-pod-network.cr\r\neth0", Created: labNow.Add(-longAgo)})
		}, nil},
		{"the handle's object could not be read", func(l *lab) {
			l.bookPod("10.0.0.9", "n1", "x", longAgo)
			l.Rejected = []ipam.ObjectError{{Kind: "IPAMHandle", Name: "k8s-pod-network.h10.0.0.9"}}
		}, nil},
		{"more than a thousand left over", func(l *lab) {
			for i := range 1001 {
				l.handle(fmt.Sprintf("k8s-pod-network.%04x", i), longAgo)
			}
		}, []string{"medium Cluster/lab"}},
	} {
		l := handleLab()
		tc.build(l)
		want(t, tc.name, l.run(handleLeaks()), tc.want...)
	}
	for _, r := range []ipam.Resource{ipam.ResBlocks, ipam.ResHandles} {
		l := handleLab()
		l.Coverage.Set(r, ipam.Forbidden, 0, "")
		if out := l.run(handleLeaks()); out.Status != StatusUnknown {
			t.Errorf("%s forbidden: %s", r, out.Status)
		}
	}
	l := handleLab()
	l.handle("k8s-pod-network.dead", longAgo)
	l.Rejected = []ipam.ObjectError{{Kind: "IPAMBlock", Name: "x"}}
	if out := l.run(handleLeaks()); out.Status != StatusUnknown {
		t.Errorf("a broken block may name the handle: %s", out.Status)
	}
}

// Handles of tunnels and Services come back and are not deleted by name; old
// releases of calicoctl get kubectl commands only.
func TestHandleRemediation(t *testing.T) {
	run := func(version string) string {
		l := handleLab()
		l.Info.Version = ipam.ParseVersion(version)
		l.handle("k8s-pod-network.dead", longAgo)
		l.handle("vxlan-tunnel-addr-n1", longAgo)
		l.handle("k8s-pod-network.app-vm", longAgo)
		var b strings.Builder
		for _, s := range l.run(handleLeaks()).Findings[0].Remediation {
			b.WriteString(strings.Join(s.Commands, "\n") + "\n")
		}
		return b.String()
	}
	text := run("v3.22.0")
	if strings.Contains(text, "--from-report") || !strings.Contains(text, "kubectl delete ipamhandles.crd.projectcalico.org k8s-pod-network.dead") {
		t.Error(text)
	}
	if strings.Contains(text, "vxlan-tunnel") || strings.Contains(text, "app-vm") {
		t.Errorf("deletes handles that are used again:\n%s", text)
	}
	if text := run("v3.27.0"); !strings.Contains(text, "--from-report") {
		t.Error(text)
	}
}
