package checks

import (
	"net/netip"
	"strings"
	"testing"

	"ipamaudit/ipam"
)

// twoTenants is a cluster whose pools are each for one namespace: a's four
// blocks are claimed, b's are free. Pods of a run on n1 to n4, n5 is b's.
func twoTenants() *lab {
	l := newLab(5)
	l.pool("for-a", "10.1.0.0/24", 26).NamespaceSelector = "team == 'a'"
	l.pool("for-b", "10.2.0.0/24", 26).NamespaceSelector = "team == 'b'"
	l.Namespaces = []ipam.Namespace{
		{Name: "app", Labels: map[string]string{"team": "a"}}, {Name: "b", Labels: map[string]string{"team": "b"}}, {Name: "idle", Labels: map[string]string{"team": "idle"}},
	}
	for i, cidr := range []string{"10.1.0.0/26", "10.1.0.64/26", "10.1.0.128/26", "10.1.0.192/26"} {
		node := l.Nodes[i].Name
		l.block(cidr, node)
		l.pod(node, strings.TrimSuffix(cidr, "/26"))
	}
	l.block("10.2.0.0/26", "n5")
	l.pod("n5", "10.2.0.0").Namespace = "b"
	return l
}

// A full pool starves the namespace that it is for, whatever room another
// namespace's pool has on the same nodes.
func TestPoolsForNamespaces(t *testing.T) {
	for _, tc := range []struct {
		name                string
		change              func(*lab)
		blockless, utilised string
	}{
		{"a has a block on every node where it runs", func(*lab) {}, "", "for-a high"},
		{"a pod of a came to n5 and borrowed", func(l *lab) { l.pod("n5", "10.1.0.1") }, "n5 high", "for-a high"},
		{"it waits there", func(l *lab) { p := l.pod("n5", ""); p.Phase, p.Waiting = "Pending", "ContainerCreating" }, "n5 high", "for-a high"},
		{"it names b's pool", func(l *lab) { p := l.pod("n5", "10.2.0.1"); p.PoolPins = []string{"for-b"} }, "", "for-a high"},
		{"a may use a pool for all", func(l *lab) { l.pool("for-all", "10.3.0.0/24", 26); l.pod("n5", "10.1.0.1") }, "", ""},
		{"a may use two pools", func(l *lab) {
			l.pool("more-for-a", "10.3.0.0/24", 26).NamespaceSelector = "team == 'a'"
			l.pod("n5", "10.1.0.1")
		}, "", ""},
		{"the pool for all is full, and a has one of its own with room", func(l *lab) {
			*l = *newLab(1)
			l.pool("for-all", "10.1.0.0/26", 26)
			l.pool("for-a", "10.2.0.0/24", 26).NamespaceSelector = "team == 'a'"
			l.Namespaces = []ipam.Namespace{{Name: "app", Labels: map[string]string{"team": "a"}}, {Name: "b"}}
			l.Reservations = []ipam.Reservation{{Name: "all", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/26")}}}
			l.block("10.2.0.0/26", "n1")
			l.pod("n1", "10.2.0.0")
		}, "", ""},
		{"and b, which runs elsewhere, has no other", func(l *lab) {
			*l = *newLab(2)
			l.pool("for-all", "10.1.0.0/26", 26)
			l.pool("for-a", "10.2.0.0/24", 26).NamespaceSelector = "team == 'a'"
			l.Namespaces = []ipam.Namespace{{Name: "app", Labels: map[string]string{"team": "a"}}, {Name: "b"}}
			l.block("10.1.0.0/26", "n1")
			l.pod("n1", "10.1.0.0").Namespace = "b"
		}, "n2 high", "for-all high"},
		{"a full pool for a namespace without pods", func(l *lab) {
			*l = *newLab(1)
			l.pool("for-a", "10.1.0.0/26", 26).NamespaceSelector = "team == 'a'"
			l.pool("for-b", "10.2.0.0/24", 26).NamespaceSelector = "team == 'b'"
			l.Namespaces = []ipam.Namespace{{Name: "app", Labels: map[string]string{"team": "b"}}, {Name: "idle", Labels: map[string]string{"team": "a"}}}
			l.block("10.1.0.0/26", "n1")
			l.block("10.2.0.0/26", "n1")
			l.pod("n1", "10.2.0.0")
		}, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := twoTenants()
			tc.change(l)
			for _, want := range []struct {
				check Check
				loud  string
			}{{blocklessNodes(), tc.blockless}, {poolUtilisation(), tc.utilised}} {
				var got []string
				for _, f := range l.run(want.check).Findings {
					if f.Severity.AtLeast(Medium) {
						got = append(got, f.Subject.Name+" "+string(f.Severity))
					}
				}
				if strings.Join(got, ", ") != want.loud {
					t.Errorf("%s: %q, want %q", want.check.ID, got, want.loud)
				}
			}
		})
	}
}

// Who is starved cannot be told without the namespaces' labels, or the pods:
// that is unknown, and no calm. Where nothing is full nothing is missed.
func TestPoolsForUnreadNamespaces(t *testing.T) {
	for _, unread := range []ipam.Resource{ipam.ResNamespaces, ipam.ResPods} {
		for _, c := range []Check{blocklessNodes(), poolUtilisation()} {
			l := twoTenants()
			l.Coverage.Set(unread, ipam.Forbidden, 0, "")
			if unread == ipam.ResPods {
				l.Pods = nil
			}
			if out := l.run(c); out.Status != StatusUnknown || !strings.Contains(strings.Join(out.Unseen, ", "), "for-a") {
				t.Errorf("%s without %s: %s, unseen %q", c.ID, unread, out.Status, out.Unseen)
			}
			l = twoTenants()
			l.Blocks = l.Blocks[:2]
			l.Coverage.Set(unread, ipam.Forbidden, 0, "")
			if out := l.run(c); unread == ipam.ResNamespaces && out.Status != StatusOK {
				t.Errorf("%s without %s and with room: %s, unseen %q", c.ID, unread, out.Status, out.Unseen)
			}
		}
	}
}
