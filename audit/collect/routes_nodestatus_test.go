package collect

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"ipamaudit/ipam"
)

var nodeStatuses = schema.GroupVersionResource{Group: groupV1, Version: "v1", Resource: "caliconodestatuses"}

func statusSample(t *testing.T, node string, change func(o map[string]any)) *unstructured.Unstructured {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "nodestatus", node+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var o map[string]any
	if err := decodeJSON(raw, &o); err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(raw); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(u.Object)
	}
	return u
}

func set(o map[string]any, value any, path ...string) {
	if err := unstructured.SetNestedField(o, value, path...); err != nil {
		panic(err)
	}
}

func statusSource(objects ...runtime.Object) (*NodeStatus, *fake.FakeDynamicClient) {
	c := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{nodeStatuses: "CalicoNodeStatusList"}, objects...)
	return &NodeStatus{client: c, Wait: 2 * time.Second, Poll: time.Millisecond, now: func() time.Time { return parseTime("2026-11-30T08:00:00Z") }}, c
}

func scopeOf(nodes ...string) Scope { return Scope{Nodes: nodes} }

func TestNodeStatusSamples(t *testing.T) {
	fresh := func(o map[string]any) { set(o, "2026-11-30T07:59:55Z", "status", "lastUpdated") }
	s, _ := statusSource(statusSample(t, "kubestage1001", fresh), statusSample(t, "kubestage1003", fresh))
	tables, err := s.Tables(t.Context(), scopeOf("kubestage1001", "kubestage1002", "kubestage1003"))
	if err != nil || len(tables) != 2 {
		t.Fatalf("%d tables, %v", len(tables), err)
	}
	snap := ipam.NewSnapshot()
	snap.Tables = tables
	snap.Seal()
	for _, tc := range []struct {
		node, ip string
		want     ipam.RouteType
		dev      string
	}{
		{"kubestage1001", "10.64.75.0", ipam.Blackhole, ""},
		{"kubestage1001", "10.64.75.1", ipam.Unicast, "califda6f4b18c2"},
		{"kubestage1001", "10.64.75.200", ipam.Unicast, "eno1"},
		{"kubestage1003", "10.64.75.0", ipam.Unicast, "cali23b90496a40"},
	} {
		table := snap.Table(tc.node)
		r := table.Lookup(netip.MustParseAddr(tc.ip))
		if r == nil || r.Type != tc.want || tc.dev != "" && r.NextHops[0].Dev != tc.dev || r.Text == "" {
			t.Errorf("%s to %s: %+v", tc.node, tc.ip, r)
		}
		if table.Kind != ipam.BIRDTable || table.AsOf != parseTime("2026-11-30T07:59:55Z") {
			t.Errorf("%s: %s as of %s", tc.node, table.Kind, table.AsOf)
		}
		if known, why := table.Knows(netip.MustParseAddr("fd00::1")); known || !strings.Contains(why, "BIRD6") {
			t.Errorf("%s claims to know IPv6 (%s)", tc.node, why)
		}
	}
}

// TestNodeStatusKnowsItsLimits: what does not say anything is no table.
func TestNodeStatusKnowsItsLimits(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(o map[string]any)
		want   string
	}{
		{"never filled", func(o map[string]any) { set(o, map[string]any{}, "status") }, "has not filled"},
		{"BIRD is not ready", func(o map[string]any) {
			set(o, "2026-11-30T07:59:55Z", "status", "lastUpdated")
			set(o, "NotReady", "status", "agent", "birdV4", "state")
		}, "not ready"},
		{"BIRD lists nothing", func(o map[string]any) {
			set(o, "2026-11-30T07:59:55Z", "status", "lastUpdated")
			set(o, []any{}, "status", "routes", "routesV4")
		}, "does not run here"},
		{"not refreshed", func(o map[string]any) { set(o, "2026-11-30T07:50:00Z", "status", "lastUpdated") }, "has not refreshed"},
		{"a route nobody understands", func(o map[string]any) {
			set(o, "2026-11-30T07:59:55Z", "status", "lastUpdated")
			set(o, []any{map[string]any{"type": "FIB", "destination": "somewhere"}}, "status", "routes", "routesV4")
		}, "not understood"},
	} {
		s, _ := statusSource(statusSample(t, "kubestage1001", tc.change))
		tables, err := s.Tables(t.Context(), scopeOf("kubestage1001"))
		if len(tables) != 0 || err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %d tables, %v, want %q", tc.name, len(tables), err, tc.want)
		}
	}
	s, _ := statusSource(statusSample(t, "kubestage1001", func(o map[string]any) { set(o, []any{"BGP"}, "spec", "classes") }))
	if tables, err := s.Tables(t.Context(), scopeOf("kubestage1001")); len(tables) != 0 || err != nil {
		t.Errorf("an object for other classes: %d tables, %v", len(tables), err)
	}
}

// statusesOf names the objects that exist.
func statusesOf(t *testing.T, c *fake.FakeDynamicClient) []string {
	t.Helper()
	list, err := c.Resource(nodeStatuses).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range list.Items {
		names = append(names, o.GetName())
	}
	return names
}

func TestNodeStatusMakesAndDeletes(t *testing.T) {
	left := statusSample(t, "kubestage1001", func(o map[string]any) {
		set(o, "ipamaudit-20261129-020000-gone", "metadata", "name")
		set(o, "gone", "spec", "node")
		set(o, "2026-11-29T02:00:00Z", "metadata", "creationTimestamp")
		set(o, map[string]any{"app.kubernetes.io/managed-by": "ipamaudit"}, "metadata", "labels")
	})
	theirs := statusSample(t, "kubestage1003", func(o map[string]any) { set(o, "2026-11-30T07:59:55Z", "status", "lastUpdated") })
	for _, tc := range []struct {
		name   string
		fill   bool
		refuse bool
		cancel bool
		tables int
		err    string
	}{
		{"filled", true, false, false, 2, ""},
		{"nobody fills it", false, false, false, 1, "has not filled"},
		{"may not make it", false, true, false, 1, "forbidden"},
		{"cancelled while waiting", false, false, true, 1, "canceled"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, c := statusSource(left.DeepCopy(), theirs.DeepCopy())
			s.Create, s.Wait = true, 50*time.Millisecond
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var made []string
			c.PrependReactor("create", "caliconodestatuses", func(a clienttesting.Action) (bool, runtime.Object, error) {
				if tc.refuse {
					return true, nil, apierrors.NewForbidden(nodeStatuses.GroupResource(), "", errors.New("no"))
				}
				o := a.(clienttesting.CreateAction).GetObject().(*unstructured.Unstructured)
				made = append(made, o.GetName())
				if tc.fill {
					set(o.Object, statusSample(t, "kubestage1001", nil).Object["status"], "status")
					set(o.Object, "2026-11-30T07:59:58Z", "status", "lastUpdated")
				}
				if tc.cancel {
					cancel()
				}
				return false, nil, nil
			})
			tables, err := s.Tables(ctx, scopeOf("kubestage1001", "kubestage1003"))
			if len(tables) != tc.tables || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%d tables, %v", len(tables), err)
			}
			if !tc.refuse && (len(made) != 1 || !strings.HasSuffix(made[0], "-kubestage1001")) {
				t.Errorf("made %q", made)
			}
			if got := statusesOf(t, c); !slices.Equal(got, []string{"audit-kubestage1003"}) {
				t.Errorf("left behind: %q", got)
			}
		})
	}
}
