package ipam

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// pfx and ip keep test tables readable.
func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func ip(s string) netip.Addr    { return netip.MustParseAddr(s) }

// testPool is a pool with Calico's defaults.
func testPool(name, cidr string, size int) Pool {
	return Pool{Name: name, CIDR: pfx(cidr), BlockSize: size, AllowedUses: UseWorkload | UseTunnel, NodeSelector: "all()"}
}

// testBlock is a block of host:owner with n pod allocations from the first ordinal.
func testBlock(cidr, owner string, n int) Block {
	b := Block{Name: cidr, CIDR: pfx(cidr)}
	if owner != "" {
		b.Owner = ParseOwner(owner)
	}
	for i := range n {
		b.Slots = append(b.Slots, Slot{uint32(i), int32(i)})
		b.Attributes = append(b.Attributes, Attribute{Handle: fmt.Sprintf("k8s-pod-network.%s-%d", cidr, i), Namespace: "d", Pod: fmt.Sprintf("p%d", i), Node: b.Owner.Name})
	}
	return b
}

func sealed(s *Snapshot) *Snapshot {
	for _, r := range AllResources() {
		s.Coverage.Set(r, Read, 0, "")
	}
	return s.Seal()
}

func TestPoolUsage(t *testing.T) {
	for _, tc := range []struct {
		name     string
		pool     Pool
		blocks   []Block
		reserved []string
		want     PoolUsage
	}{
		{"the staging pool: four of four blocks", testPool("p", "10.64.75.0/24", 26),
			[]Block{testBlock("10.64.75.0/26", "host:a", 10), testBlock("10.64.75.64/26", "host:a", 15), testBlock("10.64.75.128/26", "host:b", 10), testBlock("10.64.75.192/26", "host:b", 6)}, nil,
			PoolUsage{Addresses: 256, Allocated: 41, Available: 215, Blocks: 4, Claimed: 4}},
		{"a reservation over one whole block and half of another", testPool("p", "10.0.0.0/24", 26), nil, []string{"10.0.0.0/26", "10.0.0.64/27"},
			PoolUsage{Addresses: 256, Reserved: 96, Available: 160, Blocks: 4, Free: 3}},
		{"two reservations that only together cover a block", testPool("p", "10.0.0.0/24", 26), nil, []string{"10.0.0.0/27", "10.0.0.32/27"},
			PoolUsage{Addresses: 256, Reserved: 64, Available: 192, Blocks: 4, Free: 3}},
		{"a reserved block that is claimed and partly used", testPool("p", "10.0.0.0/24", 26), []Block{testBlock("10.0.0.0/26", "host:a", 4)}, []string{"10.0.0.0/26"},
			PoolUsage{Addresses: 256, Reserved: 60, Allocated: 4, Available: 192, Blocks: 4, Claimed: 1, Free: 3}},
		{"a reservation wider than the pool", testPool("p", "10.0.0.0/24", 26), nil, []string{"10.0.0.0/8"},
			PoolUsage{Addresses: 256, Reserved: 256, Blocks: 4}},
		{"a foreign block over several slots and small ones sharing one", testPool("p", "10.233.64.0/18", 21),
			[]Block{testBlock("10.233.96.0/19", "host:a", 0), testBlock("10.233.96.0/21", "host:b", 0), testBlock("10.233.64.0/26", "host:c", 0), testBlock("10.233.64.64/26", "host:c", 0)}, nil,
			PoolUsage{Addresses: 16384, Available: 16384, Blocks: 8, Claimed: 5, Free: 3}},
		{"a block larger than the pool", testPool("p", "10.0.0.0/24", 26), []Block{testBlock("10.0.0.0/20", "host:a", 0)}, nil,
			PoolUsage{Addresses: 256, Available: 256, Blocks: 4, Claimed: 4}},
		{"an IPv6 pool of 2^80 addresses", testPool("p", "fd00::/48", 122), []Block{testBlock("fd00::40/122", "host:a", 3)}, []string{"fd00::/122"},
			PoolUsage{Addresses: MaxCount, Reserved: 64, Allocated: 3, Available: MaxCount, Blocks: MaxCount, Claimed: 1, Free: MaxCount}},
		{"an IPv6 pool that fits", testPool("p", "fd00::/120", 122), []Block{testBlock("fd00::40/122", "host:a", 64)}, nil,
			PoolUsage{Addresses: 256, Allocated: 64, Available: 192, Blocks: 4, Claimed: 1, Free: 3}},
		{"blocks of a single address", testPool("p", "10.0.0.0/30", 32), []Block{testBlock("10.0.0.1/32", "host:a", 1)}, nil,
			PoolUsage{Addresses: 4, Allocated: 1, Available: 3, Blocks: 4, Claimed: 1, Free: 3}},
	} {
		s := NewSnapshot()
		s.Pools, s.Blocks = []Pool{tc.pool}, tc.blocks
		for _, r := range tc.reserved {
			s.Reservations = append(s.Reservations, Reservation{CIDRs: []netip.Prefix{pfx(r)}})
		}
		sealed(s)
		got := s.Usage(&s.Pools[0])
		got.ReclaimableOwned = nil
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", tc.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", tc.name, got, tc.want)
		}
	}
}

func TestCoolingDownIsNeitherFreeNorAllocated(t *testing.T) {
	s := NewSnapshot()
	b := testBlock("10.0.0.0/26", "host:a", 2)
	b.Attributes[1] = Attribute{ReleasedAt: time.Unix(1, 0)}
	s.Pools, s.Blocks = []Pool{testPool("p", "10.0.0.0/24", 26)}, []Block{b}
	sealed(s)
	if u := s.Usage(&s.Pools[0]); u.Allocated != 1 || u.CoolingDown != 1 || u.Available != 254 {
		t.Errorf("allocated %d, cooling %d, available %d", u.Allocated, u.CoolingDown, u.Available)
	}
}

// From v3.32 a node takes over another's empty block after a minute; not its
// own, not a fresh one, and not one whose affinity is gone.
func TestReclaimable(t *testing.T) {
	now := time.Date(2026, 3, 1, 6, 0, 0, 0, time.UTC)
	build := func(version string, age time.Duration, affinity bool) *Snapshot {
		s := NewSnapshot()
		s.AsOf, s.Info.Version = now, ParseVersion(version)
		b := testBlock("10.0.0.0/26", "host:a", 0)
		b.ClaimTime = now.Add(-age)
		s.Pools, s.Blocks = []Pool{testPool("p", "10.0.0.0/26", 26)}, []Block{b}
		s.Nodes = []Node{{Name: "a"}, {Name: "b"}}
		if affinity {
			s.Affinities = []Affinity{{Name: "a-x", Node: "a", CIDR: pfx("10.0.0.0/26"), State: StateConfirmed}}
		}
		return sealed(s)
	}
	for _, tc := range []struct {
		name string
		s    *Snapshot
		node string
		want uint64
	}{
		{"v3.32, old, for another node", build("v3.32.0", time.Hour, true), "b", 1},
		{"v3.32, for its owner", build("v3.32.0", time.Hour, true), "a", 0},
		{"v3.31 never does", build("v3.31.9", time.Hour, true), "b", 0},
		{"claimed seconds ago", build("v3.33.0", 20*time.Second, true), "b", 0},
		{"without its affinity", build("v3.33.0", time.Hour, false), "b", 0},
		{"unknown version", build("", time.Hour, true), "b", 0},
	} {
		pools := tc.s.Serving(tc.s.Node(tc.node), true, UseWorkload)
		if _, got := tc.s.Free(pools, tc.node); got != tc.want {
			t.Errorf("%s: %d reclaimable, want %d", tc.name, got, tc.want)
		}
	}
}

func TestBlockOfPrefersTheMostSpecific(t *testing.T) {
	s := NewSnapshot()
	s.Blocks = []Block{testBlock("10.233.96.0/19", "host:a", 0), testBlock("10.233.96.0/21", "host:b", 0)}
	for i := range 200 {
		s.Blocks = append(s.Blocks, testBlock(fmt.Sprintf("10.233.%d.%d/26", 104+i/4, i%4*64), "host:c", 0))
	}
	sealed(s)
	for addr, want := range map[string]string{"10.233.96.1": "10.233.96.0/21", "10.233.104.70": "10.233.104.64/26", "10.233.127.255": "10.233.127.192/26", "10.233.103.1": "10.233.96.0/21"} {
		if got := s.BlockOf(ip(addr)); got == nil || got.CIDR.String() != want {
			t.Errorf("BlockOf(%s) = %v, want %s", addr, got, want)
		}
	}
	if got := s.BlockOf(ip("10.233.95.255")); got != nil {
		t.Errorf("BlockOf outside = %v", got.CIDR)
	}
}

func TestLookupTakesTheLongestPrefixAndTheLowestMetric(t *testing.T) {
	s := NewSnapshot()
	s.Tables = []RouteTable{{Node: "n", Kind: KernelTable, Routes: []Route{
		{Dst: pfx("0.0.0.0/0"), Type: Unicast}, {Dst: pfx("10.33.92.0/24"), Type: Unicast},
		{Dst: pfx("10.33.92.0/26"), Type: Blackhole}, {Dst: pfx("10.33.92.4/32"), Type: Unicast},
		{Dst: pfx("fd00::/122"), Type: Blackhole, Metric: 1024}, {Dst: pfx("fd00::/122"), Type: Unicast, Metric: 100},
	}}}
	sealed(s)
	for addr, want := range map[string]string{
		"10.33.92.15": "10.33.92.0/26 blackhole", "10.33.92.4": "10.33.92.4/32 unicast", "10.33.92.64": "10.33.92.0/24 unicast",
		"8.8.8.8": "0.0.0.0/0 unicast", "fd00::1": "fd00::/122 unicast",
	} {
		r := s.Table("n").Lookup(ip(addr))
		if got := r.Dst.String() + " " + string(r.Type); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
	if r := s.Table("n").Lookup(ip("fd01::1")); r != nil {
		t.Errorf("fd01::1: %v, want no route", r)
	}
}
