package checks

import (
	"testing"
	"time"

	"ipamaudit/ipam"
)

// Which findings wait for a second look: what a list cannot tell by itself.
func TestWhatOneLookCannotKnow(t *testing.T) {
	day := 24 * time.Hour
	for _, tc := range []struct {
		name  string
		check Check
		make  func(*lab)
		waits bool
	}{
		{"leaks", leakedIPs(), func(l *lab) {
			l.book("10.0.0.9", ipam.Attribute{Handle: "h", Namespace: "app", Pod: "gone", Node: "n1", Timestamp: labNow.Add(-day)})
		}, true},
		{"a node that has vanished", orphanAffinities(), func(l *lab) { l.block("10.0.2.0/26", "gone") }, true},
		{"a deletion that hangs", affinityConflicts(), func(l *lab) { l.affinity("10.0.3.0/26", "n1", ipam.StatePendingDeletion, day) }, true},
		{"two owners", affinityConflicts(), func(l *lab) { l.affinity("10.0.0.0/26", "n2", ipam.StateConfirmed, day) }, false},
		{"locked, nobody waits", datastoreLocked(), func(l *lab) { l.Info.Ready = false }, true},
		{"locked, a pod waits", datastoreLocked(), func(l *lab) { l.Info.Ready = false; l.pod("n1", "").Phase = "Pending" }, false},
		{"no collector", ipamGC(), func(l *lab) { l.KubeCtrl.LeakGracePeriod = 0 }, false},
	} {
		l := newLab(2)
		l.pool("p", "10.0.0.0/16", 26)
		l.block("10.0.0.0/26", "n1")
		l.fill("10.0.0.0/26", "n1", 3)
		tc.make(l)
		out := l.run(tc.check)
		if len(out.Findings) != 1 || out.Findings[0].SecondLook != tc.waits {
			t.Errorf("%s: %+v, want one that waits: %v", tc.name, out.Findings, tc.waits)
		}
	}
}
