package world

import (
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// block is an IPAMBlock, taken apart.
type block struct {
	*object
	cidr netip.Prefix
	// slots has an attribute per ordinal, nil where the address is free.
	slots []map[string]any
	// free are the ordinals that are free, in the order in which they are given out.
	free    []int
	changed bool
}

func parseBlock(o *object) (*block, error) {
	cidr, err := netip.ParsePrefix(text(o, "spec", "cidr"))
	if err != nil {
		return nil, err
	}
	b := &block{object: o, cidr: cidr}
	attributes, _, _ := unstructured.NestedSlice(o.Object, "spec", "attributes")
	allocations, _, _ := unstructured.NestedSlice(o.Object, "spec", "allocations")
	for _, a := range allocations {
		i, booked := a.(int64)
		if !booked || int(i) >= len(attributes) {
			b.slots = append(b.slots, nil)
			continue
		}
		attr, _ := attributes[i].(map[string]any)
		b.slots = append(b.slots, attr)
	}
	order, _, _ := unstructured.NestedSlice(o.Object, "spec", "unallocated")
	for _, n := range order {
		if i, ok := n.(int64); ok {
			b.free = append(b.free, int(i))
		}
	}
	return b, nil
}

// address is the one at an ordinal.
func (b *block) address(ordinal int) netip.Addr {
	ip := b.cidr.Addr()
	for range ordinal {
		ip = ip.Next()
	}
	return ip
}

// owner is the node that the block belongs to, empty for none.
func (b *block) owner() string {
	name, _ := strings.CutPrefix(text(b.object, "spec", "affinity"), "host:")
	return name
}

// empty reports whether nobody but Windows has an address in it.
func (b *block) empty() bool {
	return !slices.ContainsFunc(b.slots, func(a map[string]any) bool { return a != nil && handleOf(a) != "windows-reserved-ipam-handle" })
}

// book gives out an address: this one, or the next that is free and usable.
func (b *block) book(want netip.Addr, usable func(netip.Addr) bool, attr map[string]any) (netip.Addr, bool) {
	for i, ordinal := range b.free {
		ip := b.address(ordinal)
		if want.IsValid() && ip != want || !usable(ip) {
			continue
		}
		b.free = slices.Delete(b.free, i, i+1)
		b.slots[ordinal], b.changed = attr, true
		return ip, true
	}
	return netip.Addr{}, false
}

// release frees what match says, and returns how often each handle was freed.
func (b *block) release(match func(ip netip.Addr, attr map[string]any) bool) map[string]int {
	freed := map[string]int{}
	for i, attr := range b.slots {
		if attr == nil || !match(b.address(i), attr) {
			continue
		}
		freed[handleOf(attr)]++
		b.slots[i], b.changed = nil, true
		b.free = append(b.free, i)
	}
	return freed
}

// pack writes slots and free back into the object.
func (b *block) pack() error {
	var attributes []any
	allocations := make([]any, len(b.slots))
	for i, attr := range b.slots {
		if attr != nil {
			allocations[i] = int64(len(attributes))
			attributes = append(attributes, attr)
		}
	}
	order := make([]any, len(b.free))
	for i, n := range b.free {
		order[i] = int64(n)
	}
	if attributes == nil {
		attributes = []any{}
	}
	for field, v := range map[string][]any{"attributes": attributes, "allocations": allocations, "unallocated": order} {
		if err := unstructured.SetNestedSlice(b.Object, v, "spec", field); err != nil {
			return err
		}
	}
	return nil
}

func handleOf(attr map[string]any) string { s, _ := attr["handle_id"].(string); return s }

// secondary is one of the attributes that say for whom an address is booked.
func secondary(attr map[string]any, key string) string {
	m, _ := attr["secondary"].(map[string]any)
	s, _ := m[key].(string)
	return s
}

// objectName is the name of the block of a CIDR (libcalico-go/lib/names/cidr.go).
func objectName(cidr netip.Prefix) string {
	return strings.NewReplacer(".", "-", ":", "-", "/", "-").Replace(cidr.String())
}

// Handles adds the handles that a block names to into: the count by CIDR, as an
// IPAMHandle has it.
func Handles(o *unstructured.Unstructured, into map[string]map[string]any) {
	b, err := parseBlock(o)
	if err != nil {
		return
	}
	for _, attr := range b.slots {
		id := handleOf(attr)
		if id == "" {
			continue
		}
		if into[id] == nil {
			into[id] = map[string]any{}
		}
		n, _ := into[id][b.cidr.String()].(int64)
		into[id][b.cidr.String()] = n + 1
	}
}
