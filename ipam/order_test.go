package ipam

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// sortOnce has to do what the library's stable sort does.
func TestSortOnce(t *testing.T) {
	type value struct{ key, place int }
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test's
	for n := range 60 {
		list := make([]value, n)
		for i := range list {
			list[i] = value{random.IntN(n/2 + 1), i}
		}
		want := slices.Clone(list)
		slices.SortStableFunc(want, func(a, b value) int { return a.key - b.key })
		sortOnce(list, func(a, b *value) int { return a.key - b.key })
		if !slices.Equal(list, want) {
			t.Fatalf("%v, want %v", list, want)
		}
	}
}

// The API server lists in the order of etcd's keys, the separator included.
func TestCompareKeys(t *testing.T) {
	keys := [][2]string{{"app", "x"}, {"app-2", "a"}, {"app.b", "a"}, {"app", "a"}, {"b", "a"}, {"app0", "a"}, {"", "n"}}
	for _, a := range keys {
		for _, b := range keys {
			if got, want := CompareKeys(a[0], a[1], b[0], b[1]), strings.Compare(a[0]+"/"+a[1], b[0]+"/"+b[1]); got != want {
				t.Errorf("%v and %v: %d, want %d", a, b, got, want)
			}
		}
	}
}

// Two objects for one block are broken data, and what either books is booked.
func TestAllocationsOfTwins(t *testing.T) {
	s := NewSnapshot()
	one, other := testBlock("10.0.0.0/26", "host:a", 1), testBlock("10.0.0.0/26", "host:b", 1)
	one.Name, other.Name = "one", "other"
	other.Slots = []Slot{{Ordinal: 9}}
	s.Blocks = []Block{other, one}
	sealed(s)
	for ip, block := range map[string]string{"10.0.0.0": "one", "10.0.0.9": "other"} {
		addr := one.CIDR.Addr()
		for addr.String() != ip {
			addr = addr.Next()
		}
		a, ok := s.AllocationOf(addr)
		if !ok || a.Block.Name != block {
			t.Errorf("%s: %v, %+v, want block %s", ip, ok, a.Block, block)
		}
	}
	if _, ok := s.AllocationOf(one.CIDR.Addr().Next()); ok {
		t.Error("10.0.0.1 is booked by neither")
	}
}
