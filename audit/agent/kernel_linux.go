package agent

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ipamaudit/audit/collect"
	"ipamaudit/ipam"
)

// ReadKernel reads the policy rules and all route tables of the network
// namespace that the process is in. It needs no privilege.
func ReadKernel() (Kernel, error) {
	// A dump that the kernel had to interrupt may lack routes: it is taken again.
	const tries = 5
	for try := 1; ; try++ {
		k, err := readKernel()
		if err == nil || try == tries || !errors.Is(err, netlink.ErrDumpInterrupted) {
			return k, err
		}
	}
}

func readKernel() (Kernel, error) {
	k := Kernel{Tables: collect.Tables{}}
	interfaces, err := net.Interfaces()
	if err != nil {
		return k, fmt.Errorf("list interfaces: %w", err)
	}
	devs := make(map[int]string, len(interfaces))
	for _, i := range interfaces {
		devs[i.Index] = i.Name
	}
	for _, family := range []struct {
		number int
		rules  *[]collect.PolicyRule
	}{{netlink.FAMILY_V4, &k.Rules4}, {netlink.FAMILY_V6, &k.Rules6}} {
		routes, err := netlink.RouteListFiltered(family.number, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		if family.number == netlink.FAMILY_V6 && errors.Is(err, unix.EAFNOSUPPORT) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return k, fmt.Errorf("read the routes: %w", err)
		}
		for i := range routes {
			if r, ok := routeOf(&routes[i], family.number, devs); ok {
				table := tableName(routes[i].Table)
				k.Tables[table] = append(k.Tables[table], r)
			}
		}
		// After the routes: a rule that comes between would lead to a table that was not seen.
		if *family.rules, err = readRules(family.number); err != nil {
			return k, fmt.Errorf("read the policy rules: %w", err)
		}
	}
	return k, nil
}

func tableName(number int) string {
	switch number {
	case unix.RT_TABLE_MAIN:
		return "main"
	case unix.RT_TABLE_LOCAL:
		return "local"
	case unix.RT_TABLE_DEFAULT:
		return "default"
	}
	return strconv.Itoa(number)
}

// routeOf is nothing for routes that carry no unicast packet and for those
// whose every next hop is dead, which the kernel passes over.
func routeOf(r *netlink.Route, family int, devs map[int]string) (ipam.Route, bool) {
	types := map[int]ipam.RouteType{
		unix.RTN_UNICAST: ipam.Unicast, unix.RTN_LOCAL: ipam.Local, unix.RTN_BLACKHOLE: ipam.Blackhole,
		unix.RTN_UNREACHABLE: ipam.Unreachable, unix.RTN_PROHIBIT: ipam.Prohibit, unix.RTN_THROW: ipam.Throw,
	}
	typ, ok := types[r.Type]
	dst := prefixOf(r.Dst)
	if !dst.IsValid() {
		dst = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if family == netlink.FAMILY_V6 {
			dst = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
	}
	// Exceptions that the kernel learnt from ICMP are no routes of anybody's.
	if !ok || r.Flags&unix.RTM_F_CLONED != 0 {
		return ipam.Route{}, false
	}
	out := ipam.Route{Dst: dst, Type: typ, Proto: r.Protocol.String(), Metric: uint32(r.Priority)}
	if typ != ipam.Unicast {
		return out, true
	}
	hop := func(flags int, gw net.IP, via netlink.Destination, link int) {
		if flags&unix.RTNH_F_DEAD != 0 {
			return
		}
		h := ipam.NextHop{Dev: devs[link], Via: addrOf(gw)}
		if v, ok := via.(*netlink.Via); ok && v != nil {
			h.Via = addrOf(v.Addr)
		}
		if h.Dev != "" || h.Via.IsValid() {
			out.NextHops = append(out.NextHops, h)
		}
	}
	if len(r.MultiPath) == 0 {
		hop(r.Flags, r.Gw, r.Via, r.LinkIndex)
	}
	for _, m := range r.MultiPath {
		hop(m.Flags, m.Gw, m.Via, m.LinkIndex)
	}
	return out, len(out.NextHops) > 0
}

func prefixOf(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(addrOf(n.IP), bits).Masked()
}

func addrOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}
