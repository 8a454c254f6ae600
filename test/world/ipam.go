package world

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// book is all of a cluster's IPAM at one moment, to be changed and written back.
type book struct {
	*store
	blocks     []*block
	affinities []object
	pools      []object
	nodes      []object
	reserved   []netip.Prefix
	strict     bool
	ready      bool
	grace      string
	version    string
}

// open reads the book.
func (s *store) open(ctx context.Context) (*book, error) {
	b := &book{store: s, ready: true, grace: "15m0s"}
	var err error
	read := func(resource string) []object {
		l, e := s.list(ctx, resource)
		err = errors.Join(err, e)
		return l
	}
	for _, o := range read("ipamblocks") {
		parsed, e := parseBlock(&o)
		if e != nil {
			return nil, fmt.Errorf("block %s: %w", o.GetName(), e)
		}
		b.blocks = append(b.blocks, parsed)
	}
	slices.SortFunc(b.blocks, func(x, y *block) int { return strings.Compare(x.GetName(), y.GetName()) })
	b.affinities, b.pools, b.nodes = read("blockaffinities"), read("ippools"), read("nodes")
	for _, o := range read("ipreservations") {
		cidrs, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "reservedCIDRs")
		for _, c := range cidrs {
			if p, e := netip.ParsePrefix(c); e == nil {
				b.reserved = append(b.reserved, p)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	if o, err := s.singleton(ctx, "ipamconfigs"); err != nil {
		return nil, err
	} else if o != nil {
		b.strict = truth(o, "spec", "strictAffinity")
	}
	if o, err := s.singleton(ctx, "clusterinformations"); err != nil {
		return nil, err
	} else if o != nil {
		b.ready, b.version = truth(o, "spec", "datastoreReady"), text(o, "spec", "calicoVersion")
	}
	if o, err := s.singleton(ctx, "kubecontrollersconfigurations"); err != nil {
		return nil, err
	} else if o != nil {
		if g := text(o, "spec", "controllers", "node", "leakGracePeriod"); g != "" {
			b.grace = g
		}
	}
	return b, nil
}

// save writes the blocks that changed. A block without an owner goes with its
// last address.
func (b *book) save(ctx context.Context) error {
	for _, x := range b.blocks {
		if !x.changed {
			continue
		}
		x.changed = false
		if x.empty() && text(x.object, "spec", "affinity") == "" {
			if err := b.remove(ctx, "ipamblocks", x.GetName()); err != nil {
				return err
			}
			continue
		}
		if err := x.pack(); err != nil {
			return err
		}
		next, err := b.of("ipamblocks", "").Update(ctx, x.object, metav1.UpdateOptions{})
		if err != nil {
			return fmt.Errorf("write block %s: %w", x.GetName(), err)
		}
		x.SetResourceVersion(next.GetResourceVersion())
	}
	return nil
}

// release frees everywhere what match says, and the handles with it.
func (b *book) release(ctx context.Context, match func(ip netip.Addr, attr map[string]any) bool) (int, error) {
	total := 0
	for _, x := range b.blocks {
		for handle, n := range x.release(match) {
			total += n
			if handle == "" {
				continue
			}
			if err := b.lowerHandle(ctx, handle, x.cidr.String(), int64(n)); err != nil {
				return total, err
			}
		}
	}
	return total, b.save(ctx)
}

func (b *book) lowerHandle(ctx context.Context, handle, cidr string, by int64) error {
	name := strings.ToLower(handle)
	o, err := b.of("ipamhandles", "").Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	counts, _, _ := unstructured.NestedMap(o.Object, "spec", "block")
	n, _ := counts[cidr].(int64)
	if n -= by; n > 0 {
		counts[cidr] = n
	} else {
		delete(counts, cidr)
	}
	if len(counts) == 0 {
		return b.remove(ctx, "ipamhandles", name)
	}
	if err := unstructured.SetNestedMap(o.Object, counts, "spec", "block"); err != nil {
		return err
	}
	_, err = b.of("ipamhandles", "").Update(ctx, o, metav1.UpdateOptions{})
	return err
}

// assign books an address of the family for a node: in its own blocks in the
// order of their names, in a new block, or, unless affinity is strict, in
// somebody else's. want is a fixed address, or invalid for any.
func (b *book) assign(ctx context.Context, node *object, v4 bool, use string, pins []string, want netip.Addr, attr map[string]any) (netip.Addr, bool, error) {
	pools := b.serving(node, v4, use, pins)
	inPools := func(x *block) bool {
		return slices.ContainsFunc(pools, func(p netip.Prefix) bool { return p.Contains(x.cidr.Addr()) })
	}
	usable := func(ip netip.Addr) bool {
		return !slices.ContainsFunc(b.reserved, func(r netip.Prefix) bool { return r.Contains(ip) })
	}
	try := func(mine bool) (netip.Addr, bool) {
		for _, x := range b.blocks {
			if (x.owner() == node.GetName()) != mine || !inPools(x) && !want.IsValid() || strings.HasPrefix(text(x.object, "spec", "affinity"), "virtual:") {
				continue
			}
			if mine && !b.claims(node.GetName(), x.cidr) {
				continue
			}
			if ip, ok := x.book(want, usable, attr); ok {
				return ip, true
			}
		}
		return netip.Addr{}, false
	}
	ip, ok := try(true)
	if !ok && !want.IsValid() {
		if x, err := b.claim(ctx, node.GetName(), pools); err != nil {
			return ip, false, err
		} else if x != nil {
			ip, ok = x.book(want, usable, attr)
		}
	}
	if !ok && (!b.strict || want.IsValid()) {
		ip, ok = try(false)
	}
	if !ok {
		return ip, false, nil
	}
	cidr := b.blockOf(ip).cidr.String()
	err := b.create(ctx, "ipamhandles", "IPAMHandle", strings.ToLower(handleOf(attr)), map[string]any{
		"handleID": handleOf(attr), "deleted": false, "block": map[string]any{cidr: int64(1)}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return ip, false, err
	}
	return ip, true, b.save(ctx)
}

func (b *book) blockOf(ip netip.Addr) *block {
	for _, x := range b.blocks {
		if x.cidr.Contains(ip) && x.slots[ordinalOf(x, ip)] != nil {
			return x
		}
	}
	return nil
}

func ordinalOf(x *block, ip netip.Addr) int {
	for i := range x.slots {
		if x.address(i) == ip {
			return i
		}
	}
	return 0
}

// claims reports whether the node has an affinity for the block. Without one
// the allocator does not see the block as its own.
func (b *book) claims(node string, cidr netip.Prefix) bool {
	return slices.ContainsFunc(b.affinities, func(a object) bool {
		return text(&a, "spec", "node") == node && text(&a, "spec", "cidr") == cidr.String()
	})
}

// serving are the pools that the node's pods or tunnels may use, sorted.
func (b *book) serving(node *object, v4 bool, use string, pins []string) []netip.Prefix {
	var out []netip.Prefix
	for i := range b.pools {
		p := &b.pools[i]
		cidr, err := netip.ParsePrefix(text(p, "spec", "cidr"))
		uses, _, _ := unstructured.NestedStringSlice(p.Object, "spec", "allowedUses")
		if err != nil || cidr.Addr().Is4() != v4 || truth(p, "spec", "disabled") || len(uses) > 0 && !slices.Contains(uses, use) {
			continue
		}
		pinned := slices.Contains(pins, p.GetName()) || slices.Contains(pins, cidr.String())
		if len(pins) > 0 && !pinned || len(pins) == 0 && (text(p, "spec", "assignmentMode") == "Manual" || !selects(text(p, "spec", "nodeSelector"), node.GetLabels())) {
			continue
		}
		out = append(out, cidr)
	}
	slices.SortFunc(out, func(x, y netip.Prefix) int { return strings.Compare(x.String(), y.String()) })
	return out
}

// claim makes a new block in the first pool that has a range free, nil where none has.
func (b *book) claim(ctx context.Context, node string, pools []netip.Prefix) (*block, error) {
	for _, pool := range pools {
		bits := b.blockBits(pool)
		for cidr, n := netip.PrefixFrom(pool.Addr(), bits), 0; n < 1<<16 && pool.Contains(cidr.Addr()); n++ {
			taken := slices.ContainsFunc(b.blocks, func(x *block) bool { return x.cidr.Overlaps(cidr) })
			hidden := slices.ContainsFunc(b.reserved, func(r netip.Prefix) bool { return r.Bits() <= bits && r.Contains(cidr.Addr()) })
			if !taken && !hidden {
				return b.make(ctx, node, cidr)
			}
			last := cidr.Addr()
			for range 1 << (last.BitLen() - bits) {
				last = last.Next()
			}
			if !last.IsValid() {
				break
			}
			cidr = netip.PrefixFrom(last, bits)
		}
	}
	return nil, nil //nolint:nilnil // no range is free
}

func (b *book) blockBits(pool netip.Prefix) int {
	for i := range b.pools {
		if p := &b.pools[i]; text(p, "spec", "cidr") == pool.String() {
			if n := number(p, "spec", "blockSize"); n > 0 {
				return int(n)
			}
		}
	}
	if pool.Addr().Is4() {
		return 26
	}
	return 122
}

func (b *book) make(ctx context.Context, node string, cidr netip.Prefix) (*block, error) {
	size := 1 << (cidr.Addr().BitLen() - cidr.Bits())
	free := make([]any, size)
	for i := range free {
		free[i] = int64(i)
	}
	name := objectName(cidr)
	if !b.claims(node, cidr) {
		var deleted any = "false"
		if b.calico.Version == "v3" {
			deleted = false
		}
		spec := map[string]any{"cidr": cidr.String(), "node": node, "state": "confirmed", "deleted": deleted, "type": "host"}
		if err := b.create(ctx, "blockaffinities", "BlockAffinity", node+"-"+name, spec); err != nil {
			return nil, err
		}
	}
	err := b.create(ctx, "ipamblocks", "IPAMBlock", name, map[string]any{
		"cidr": cidr.String(), "affinity": "host:" + node, "strictAffinity": false, "deleted": false,
		"allocations": make([]any, size), "unallocated": free, "attributes": []any{},
	})
	if err != nil {
		return nil, err
	}
	o, err := b.of("ipamblocks", "").Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	x, err := parseBlock(o)
	if err != nil {
		return nil, err
	}
	b.blocks = append(b.blocks, x)
	b.affinities, err = b.list(ctx, "blockaffinities")
	return x, err
}

// selects evaluates the few selectors that the fixtures have.
func selects(selector string, labels map[string]string) bool {
	switch selector {
	case "", "all()":
		return true
	case "!all()":
		return false
	}
	key, value, equal := strings.Cut(selector, " == ")
	if !equal {
		key, value, _ = strings.Cut(selector, " != ")
	}
	return (labels[key] == strings.Trim(value, "'\"")) == equal
}

func stamp() string { return time.Now().UTC().Format("2006-01-02 15:04:05.999999999 -0700 MST") }
