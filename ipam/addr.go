package ipam

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// MaxCount caps every count of addresses and blocks: 2^53, the largest integer
// that survives a JSON reader (the report says "saturated" there).
const MaxCount uint64 = 1 << 53

// pow2 is 2^n, saturated at MaxCount.
func pow2(n int) uint64 {
	if n >= 53 {
		return MaxCount
	}
	if n < 0 {
		return 0
	}
	return 1 << n
}

// prefixSize is the number of addresses in p, saturated at MaxCount.
func prefixSize(p netip.Prefix) uint64 { return pow2(p.Addr().BitLen() - p.Bits()) }

// satAdd adds without passing MaxCount.
func satAdd(a, b uint64) uint64 { return min(a+b, MaxCount) }

// satSub subtracts down to zero; a saturated count stays saturated.
func satSub(a, b uint64) uint64 {
	if a >= MaxCount {
		return MaxCount
	}
	if b > a {
		return 0
	}
	return a - b
}

// u128 is an address as a number.
type u128 struct{ hi, lo uint64 }

func toU128(a netip.Addr) u128 {
	b := a.As16()
	return u128{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

func (u u128) addr(is4 bool) netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], u.hi)
	binary.BigEndian.PutUint64(b[8:], u.lo)
	a := netip.AddrFrom16(b)
	if is4 {
		return a.Unmap()
	}
	return a
}

func (u u128) add(n uint64) u128 {
	lo, carry := bits.Add64(u.lo, n, 0)
	return u128{u.hi + carry, lo}
}

// sub is u-v; callers make sure that u >= v.
func (u u128) sub(v u128) u128 {
	lo, borrow := bits.Sub64(u.lo, v.lo, 0)
	hi, _ := bits.Sub64(u.hi, v.hi, borrow)
	return u128{hi, lo}
}

func (u u128) cmp(v u128) int {
	switch {
	case u.hi != v.hi && u.hi < v.hi, u.hi == v.hi && u.lo < v.lo:
		return -1
	case u == v:
		return 0
	default:
		return 1
	}
}

// rsh shifts right by n bits (0..128).
func (u u128) rsh(n int) u128 {
	switch {
	case n <= 0:
		return u
	case n >= 128:
		return u128{}
	case n >= 64:
		return u128{0, u.hi >> (n - 64)}
	default:
		return u128{u.hi >> n, u.lo>>n | u.hi<<(64-n)}
	}
}

// count is u as a count, saturated.
func (u u128) count() uint64 {
	if u.hi != 0 {
		return MaxCount
	}
	return min(u.lo, MaxCount)
}

// addrAt is the n-th address of p.
func addrAt(p netip.Prefix, n uint64) netip.Addr {
	return toU128(p.Addr()).add(n).addr(p.Addr().Is4())
}

// lastAddr is the last address of p.
func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Addr().As16()
	off := p.Bits()
	if p.Addr().Is4() {
		off += 96
	}
	for i := off; i < 128; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	a := netip.AddrFrom16(b)
	if p.Addr().Is4() {
		return a.Unmap()
	}
	return a
}

// HostPrefix is the /32 or /128 of a.
func HostPrefix(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// Contains reports whether outer holds all of inner.
func Contains(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Addr().BitLen() == inner.Addr().BitLen() && outer.Contains(inner.Addr())
}

// lsh shifts left by n bits (0..128).
func (u u128) lsh(n int) u128 {
	switch {
	case n <= 0:
		return u
	case n >= 128:
		return u128{}
	case n >= 64:
		return u128{u.lo << (n - 64), 0}
	default:
		return u128{u.hi<<n | u.lo>>(64-n), u.lo << n}
	}
}
