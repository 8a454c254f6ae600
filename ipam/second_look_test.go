package ipam

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// world is two nodes with a block each and two pods in each, all booked.
func world() *Snapshot {
	s := NewSnapshot()
	for i, node := range []string{"n1", "n2"} {
		s.Nodes = append(s.Nodes, Node{Name: node, UID: "u" + node})
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 0}), 26)
		b := Block{Name: "b-" + node, UID: "u", CIDR: cidr, Owner: Owner{"host", node}}
		for j, pod := range []string{"a", "b"} {
			ip := netip.AddrFrom4([4]byte{10, 0, byte(i), byte(j)})
			name := pod + "-" + node
			s.Pods = append(s.Pods, Pod{Namespace: "s", Name: name, UID: "u" + name, NodeName: node, Phase: "Running", StatusIPs: []netip.Addr{ip}})
			b.Slots = append(b.Slots, Slot{uint32(j), int32(j)})
			b.Attributes = append(b.Attributes, Attribute{Handle: "H." + name, Namespace: "s", Pod: name, Node: node})
			s.Handles = append(s.Handles, Handle{Name: "h." + name, ID: "H." + name, Count: 1})
		}
		s.Blocks = append(s.Blocks, b)
		s.Affinities = append(s.Affinities, Affinity{Name: node + "-b", Node: node, Type: "host", CIDR: cidr, State: StateConfirmed})
	}
	return s.Seal()
}

// rest lists what a snapshot holds.
func rest(s *Snapshot) (out []string) {
	for _, n := range s.Nodes {
		out = append(out, "node "+n.Name)
	}
	for _, p := range s.Pods {
		out = append(out, "pod "+p.Name)
	}
	for i := range s.Blocks {
		out = append(out, "block "+s.Blocks[i].Name)
		for a := range s.Blocks[i].Allocations() {
			out = append(out, "booked "+a.IP.String())
		}
	}
	for _, a := range s.Affinities {
		out = append(out, "affinity "+a.Name)
	}
	for _, h := range s.Handles {
		out = append(out, "handle "+h.Name)
	}
	return out
}

func lookAgain(first, second *Snapshot, again ...Resource) *Snapshot {
	l := NewSecondLook(first, again)
	// Page by page, in any order.
	for i := range second.Pods {
		l.Pods(second.Pods[i : i+1])
	}
	l.Blocks(second.Blocks)
	l.Affinities(second.Affinities)
	l.Handles(second.Handles)
	l.Nodes(second.Nodes)
	return l.Settled()
}

func TestSecondLook(t *testing.T) {
	everythingOf := func(node string) []string {
		var out []string
		for _, line := range rest(world()) {
			if strings.HasSuffix(line, node) || strings.HasSuffix(line, node+"-b") || strings.Contains(line, "10.0."+string(node[1]-1)+".") {
				out = append(out, line)
			}
		}
		return out
	}
	onePod := []string{"pod a-n1", "booked 10.0.0.0", "handle h.a-n1"}
	for name, tc := range map[string]struct {
		change func(*Snapshot)
		gone   []string
	}{
		"pod deleted":     {func(s *Snapshot) { s.Pods = s.Pods[1:] }, onePod},
		"pod recreated":   {func(s *Snapshot) { s.Pods[0].UID = "another" }, onePod},
		"pod finished":    {func(s *Snapshot) { s.Pods[0].Phase = "Succeeded" }, onePod},
		"address changed": {func(s *Snapshot) { s.Pods[0].StatusIPs = []netip.Addr{netip.MustParseAddr("10.9.9.9")} }, onePod},
		"address taken": {func(s *Snapshot) {
			s.Pods = append(s.Pods, Pod{Namespace: "s", Name: "new", StatusIPs: s.Pods[0].StatusIPs})
		}, onePod},
		"released":       {func(s *Snapshot) { s.Blocks[0].Slots = s.Blocks[0].Slots[1:] }, onePod},
		"rebooked":       {func(s *Snapshot) { s.Blocks[0].Attributes[0].Node = "n9" }, onePod},
		"handle deleted": {func(s *Snapshot) { s.Handles = s.Handles[1:] }, onePod},
		"pod new":        {func(s *Snapshot) { s.Pods = append(s.Pods, Pod{Namespace: "s", Name: "new"}) }, nil},
		"booked for a new pod": {func(s *Snapshot) {
			s.Blocks[0].Slots = append(s.Blocks[0].Slots, Slot{7, 2})
			s.Blocks[0].Attributes = append(s.Blocks[0].Attributes, Attribute{Handle: "H.new", Namespace: "s", Pod: "new"})
		}, nil},
		"block released":   {func(s *Snapshot) { s.Blocks = s.Blocks[1:] }, exceptNode(everythingOf("n1"))},
		"block claimed":    {func(s *Snapshot) { s.Blocks[0].Owner.Name = "n2" }, exceptNode(everythingOf("n1"))},
		"affinity pending": {func(s *Snapshot) { s.Affinities[0].State = StatePending }, exceptNode(everythingOf("n1"))},
		"node deleted":     {func(s *Snapshot) { s.Nodes = s.Nodes[1:] }, everythingOf("n1")},
		"node replaced":    {func(s *Snapshot) { s.Nodes[0].UID = "another" }, everythingOf("n1")},
	} {
		t.Run(name, func(t *testing.T) {
			second := world()
			tc.change(second)
			first := world()
			got := lookAgain(first, second, MovingResources()...)
			want := slices.DeleteFunc(rest(first), func(line string) bool { return slices.Contains(tc.gone, line) })
			if d := cmp.Diff(want, rest(got)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if d := cmp.Diff(rest(world()), rest(first)); d != "" {
				t.Errorf("the first look has changed:\n%s", d)
			}
			for _, p := range got.Pods {
				if _, ok := got.AllocationOf(p.StatusIPs[0]); !ok {
					t.Errorf("pod %s has become unallocated", p.Name)
				}
			}
		})
	}
}

func exceptNode(lines []string) []string {
	return slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "node ") })
}

func TestSecondLookAgrees(t *testing.T) {
	first := world()
	if got := lookAgain(first, world(), MovingResources()...); got != first {
		t.Error("nothing moved, and yet it is another snapshot")
	}
	// What was not read again is not gone.
	second := world()
	second.Handles, second.Blocks, second.Affinities, second.Nodes = nil, nil, nil, nil
	if got := lookAgain(first, second, ResPods); got != first {
		t.Error("lists that were not read again count as gone")
	}
}

// TestSecondLookSpreads: two pods on one address, each with another address of
// its own: what moves one moves all.
func TestSecondLookSpreads(t *testing.T) {
	first, second := world(), world()
	shared := netip.MustParseAddr("10.0.1.1")
	for _, s := range []*Snapshot{first, second} {
		s.Pods[2].StatusIPs = append(s.Pods[2].StatusIPs, shared) // b-n1
		s.Seal()
	}
	second.Blocks[1].Slots = second.Blocks[1].Slots[:1] // releases 10.0.1.1
	got := rest(lookAgain(first, second, MovingResources()...))
	for _, gone := range []string{"pod b-n1", "booked 10.0.0.1", "handle h.b-n1", "pod b-n2"} {
		if slices.Contains(got, gone) {
			t.Errorf("%s is still there", gone)
		}
	}
	if !slices.Contains(got, "pod a-n1") || !slices.Contains(got, "booked 10.0.1.0") {
		t.Errorf("too much is gone: %v", got)
	}
}
