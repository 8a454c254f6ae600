package checks

import (
	"net/netip"
	"strings"
	"testing"

	"ipamaudit/ipam"
)

func TestBlockLayout(t *testing.T) {
	for _, tc := range []struct {
		name string
		make func(*lab)
		want []string
	}{
		{"all as the pool says", func(l *lab) {}, nil},
		{"a smaller block inside, its address in use", func(l *lab) { l.block("10.0.0.0/28", "n2") }, []string{"critical IPAMBlock/10.0.0.0/26"}},
		{"a smaller block inside, the addresses in use lie elsewhere", func(l *lab) { l.block("10.0.0.32/28", "n2") }, []string{"high IPAMBlock/10.0.0.0/26"}},
		{"a smaller block inside, only a leak where they overlap", func(l *lab) {
			l.block("10.0.0.32/28", "n2")
			l.book("10.0.0.33", ipam.Attribute{Handle: "h", Namespace: "app", Pod: "gone", Node: "n1"})
		}, []string{"high IPAMBlock/10.0.0.0/26"}},
		{"one wide block over several is one finding", func(l *lab) { l.block("10.0.0.0/24", "n2"); l.block("10.0.0.128/26", "n2") }, []string{"critical IPAMBlock/10.0.0.0/24"}},
		{"one CIDR in two objects", func(l *lab) { l.block("10.0.0.0/26", "n2").Name = "other" }, []string{"critical IPAMBlock/10.0.0.0/26"}},
		{"neighbours do not overlap", func(l *lab) { l.block("10.0.0.128/26", "n2"); l.block("10.0.0.192/26", "n2") }, nil},
		{"of the old size", func(l *lab) { l.block("10.0.1.0/27", "n2") }, []string{"high IPAMBlock/10.0.1.0/27"}},
		{"of the old size, in a disabled pool", func(l *lab) { l.Pools[0].Disabled = true; l.block("10.0.1.0/27", "n2") }, []string{"medium IPAMBlock/10.0.1.0/27"}},
		{"IPv6, of another size", func(l *lab) { l.pool("six", "fd00:10::/64", 122); l.block("fd00:10::/124", "n2") }, []string{"high IPAMBlock/fd00:10::/124"}},
		{"pools overlap, one of them has this size", func(l *lab) { l.pool("q", "10.0.0.0/20", 27); l.block("10.0.1.0/27", "n2") }, nil},
		{"a disabled pool with blocks of its size is a migration", func(l *lab) { l.Pools[0].Disabled = true }, nil},
		{"outside every pool, empty", func(l *lab) { l.block("10.9.0.0/26", "n1") }, []string{"low IPAMBlock/10.9.0.0/26"}},
		{"outside every pool, a leak", func(l *lab) {
			l.block("10.9.0.0/26", "n1")
			l.book("10.9.0.1", ipam.Attribute{Handle: "h", Namespace: "app", Pod: "gone", Node: "n1"})
		}, []string{"low IPAMBlock/10.9.0.0/26"}},
		{"outside every pool, in use", func(l *lab) { l.block("10.9.0.0/26", ""); l.pod("n1", "10.9.0.1") }, []string{"high IPAMBlock/10.9.0.0/26"}},
		{"larger than its pool", func(l *lab) { l.pool("q", "10.9.0.0/26", 26); l.block("10.9.0.0/24", "n1") }, []string{"high IPAMBlock/10.9.0.0/24"}},
		{"a load balancer's block in its pool", func(l *lab) {
			l.pool("lb", "10.5.0.0/24", 29).AllowedUses = ipam.UseLoadBalancer
			l.block("10.5.0.0/29", "").Owner = ipam.Owner{Type: "virtual", Name: "load-balancer"}
		}, nil},
		{"malformed", func(l *lab) {
			l.Blocks[1].Malformed = []string{"2 ordinals are neither allocated nor unallocated"}
		}, []string{"medium IPAMBlock/10.0.0.64/26"}},
		{"malformed, an address booked and free", func(l *lab) {
			l.Blocks[0].Malformed = []string{"ordinal 3 is both allocated and unallocated"}
		}, []string{"high IPAMBlock/10.0.0.0/26"}},
	} {
		l := newLab(2)
		l.pool("p", "10.0.0.0/16", 26)
		l.block("10.0.0.0/26", "n1")
		l.block("10.0.0.64/26", "n2")
		l.pod("n1", "10.0.0.3")
		tc.make(l)
		want(t, tc.name, l.run(blockLayout()), tc.want...)
	}
}

// A pool that can hold no block is one thing that is wrong, not one for each of
// the blocks that it once had.
func TestNonsenseBlockSize(t *testing.T) {
	for _, size := range []int{8, 40} {
		l := newLab(2)
		l.pool("p", "10.0.0.0/16", 26)
		for i, node := range []string{"n1", "n2"} {
			l.block(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 0}), 26).String(), node)
		}
		l.Pools[0].BlockSize = size
		want(t, "blocks", l.run(blockLayout()))
		want(t, "the pool", l.run(poolConfig()), "high IPPool/p")
	}
}

func TestBlockLayoutDetails(t *testing.T) {
	l := newLab(2)
	l.pool("p", "172.27.90.0/24", 28)
	l.block("172.27.90.0/29", "n1")
	l.block("172.27.90.0/28", "n2")
	l.pod("n1", "172.27.90.2")
	f := l.run(blockLayout()).Findings[0]
	if len(f.Affected) != 3 || f.Affected[2].Name != "172.27.90.2" || !strings.Contains(f.Affected[2].Note, "booked in 172.27.90.0/29") {
		t.Errorf("affected: %+v", f.Affected)
	}
	// The /29 has the foreign size, so its owner is the one to register again.
	if text := commandText(f.Remediation); !strings.Contains(text, "kubectl drain n1") || strings.Contains(text, "drain n2") {
		t.Errorf("commands:\n%s", text)
	}

	l = newLab(1)
	l.pool("p", "10.0.0.0/16", 26)
	l.block("10.9.0.0/26", "n1")
	l.pod("n1", "10.9.0.1")
	l.Coverage.Set(ipam.ResPods, ipam.Forbidden, 0, "")
	if out := l.run(blockLayout()); len(out.Unseen) != 1 || out.Findings[0].Severity != Medium || out.Findings[0].Evidence != Inferred {
		t.Errorf("pods not read: %+v", out)
	}
	l.Coverage.Set(ipam.ResPools, ipam.Missing, 0, "")
	if out := l.run(blockLayout()); out.Status != StatusUnknown {
		t.Errorf("pools not read: %s", out.Status)
	}
}
