package world

import (
	"net/netip"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func aBlock(t *testing.T) *block {
	t.Helper()
	pod := func(name string) map[string]any {
		return map[string]any{"handle_id": "k8s-pod-network." + name, "secondary": map[string]any{"namespace": "app", "pod": name, "node": "n1"}}
	}
	b, err := parseBlock(&unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"cidr": "10.0.0.0/30", "affinity": "host:n1", "allocations": []any{int64(1), nil, int64(0), nil}, "unallocated": []any{int64(3), int64(1)},
		"attributes": []any{pod("b"), pod("a")},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What is taken apart and put together again is the same, and addresses are
// given out in the order in which they became free.
func TestBlock(t *testing.T) {
	b := aBlock(t)
	usable := func(netip.Addr) bool { return true }
	if ip, ok := b.book(netip.Addr{}, usable, map[string]any{"handle_id": "c"}); !ok || ip.String() != "10.0.0.3" {
		t.Errorf("the first free address is %s, %v", ip, ok)
	}
	if ip, ok := b.book(netip.MustParseAddr("10.0.0.0"), usable, nil); ok {
		t.Errorf("%s was given out twice", ip)
	}
	freed := b.release(func(ip netip.Addr, attr map[string]any) bool { return secondary(attr, "pod") == "a" })
	if freed["k8s-pod-network.a"] != 1 || len(freed) != 1 {
		t.Errorf("freed %v", freed)
	}
	if err := b.pack(); err != nil {
		t.Fatal(err)
	}
	again, err := parseBlock(b.object)
	if err != nil {
		t.Fatal(err)
	}
	if handleOf(again.slots[2]) != "k8s-pod-network.b" || handleOf(again.slots[3]) != "c" || again.slots[0] != nil || len(again.free) != 2 || again.free[1] != 0 {
		t.Errorf("packed wrongly: %v, free %v", again.slots, again.free)
	}
	if again.owner() != "n1" || again.empty() {
		t.Error("owner or emptiness are lost")
	}
}

// The collector's rules, against pods that are there, elsewhere, or gone.
func TestLeaked(t *testing.T) {
	pod := unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"namespace": "app", "name": "a"}, "spec": map[string]any{"nodeName": "n1"},
		"status": map[string]any{"podIPs": []any{map[string]any{"ip": "10.0.0.0"}}}}}
	node := unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "n1"}}}
	b := &book{nodes: []object{node}}
	attr := func(pod, node, kind string) map[string]any {
		m := map[string]any{"node": node, "type": kind}
		if pod != "" {
			m["pod"], m["namespace"] = pod, "app"
		}
		return map[string]any{"handle_id": "h", "secondary": m}
	}
	for name, tc := range map[string]struct {
		attr map[string]any
		ip   string
		want bool
	}{
		"it runs":                         {attr("a", "n1", ""), "10.0.0.0", false},
		"it has another address":          {attr("a", "n1", ""), "10.0.0.1", true},
		"it is booked for another node":   {attr("a", "n2", ""), "10.0.0.0", true},
		"it is gone":                      {attr("b", "n1", ""), "10.0.0.2", true},
		"a tunnel":                        {attr("", "n1", "ipipTunnelAddress"), "10.0.0.3", false},
		"a tunnel of a node that is gone": {attr("", "n2", "ipipTunnelAddress"), "10.0.0.3", true},
		"booked by hand":                  {attr("", "n1", ""), "10.0.0.3", false},
	} {
		if got := b.leaked([]object{pod}, netip.MustParseAddr(tc.ip), tc.attr); got != tc.want {
			t.Errorf("%s: leaked is %v", name, got)
		}
	}
}

func TestSelects(t *testing.T) {
	labels := map[string]string{"zone": "a"}
	for selector, want := range map[string]bool{"": true, "all()": true, "!all()": false, "zone == 'a'": true, "zone == 'b'": false, "zone != 'b'": true, "rack == 'a'": false} {
		if got := selects(selector, labels); got != want {
			t.Errorf("%q: %v", selector, got)
		}
	}
}
