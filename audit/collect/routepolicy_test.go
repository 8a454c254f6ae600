package collect

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"ipamaudit/ipam"
)

// TestFollow asks, for sets of rules as ip -j rule prints them, where a packet
// for a pod goes. 10.0.0.0/16 is the pool.
func TestFollow(t *testing.T) {
	const usual = `{"priority":0,"src":"all","table":"local"},{"priority":32766,"src":"all","table":"main"},{"priority":32767,"src":"all","table":"default"}`
	tables, err := ParseTables([]byte(`[
	 {"type":"local","dst":"10.0.0.9","dev":"eth0","table":"local"},
	 {"type":"broadcast","dst":"10.0.0.255","dev":"eth0","table":"local"},
	 {"dst":"default","gateway":"192.0.2.1","dev":"eth0"},
	 {"type":"blackhole","dst":"10.0.1.0/26","protocol":"bird"},
	 {"dst":"10.0.1.4","dev":"cali1","scope":"link"},
	 {"dst":"10.0.2.0/26","gateway":"192.0.2.2","dev":"eth0","protocol":"bird"},
	 {"dst":"198.51.100.0/24","dev":"eth1"},
	 {"dst":"10.0.2.7","dev":"wireguard.cali","table":"1"},
	 {"type":"throw","dst":"10.0.1.0/26","table":"1"},
	 {"dst":"default","dev":"wg0","table":"51820"},
	 {"type":"throw","dst":"10.0.0.0/8","table":"250"},
	 {"dst":"default","dev":"egress","table":"250"},
	 {"dst":"198.51.100.0/24","dev":"eth1","table":"7"},
	 {"type":"blackhole","dst":"10.0.0.0/8","table":"9"}
	]`))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name  string
		rules string
		// ways are "ADDRESS TYPE DEVICE"; blind is part of the reason.
		ways  []string
		blind string
	}{
		{"no rules of anybody's", "", []string{"10.0.0.9 local", "10.0.1.4 unicast cali1", "10.0.1.5 blackhole", "10.0.2.7 unicast eth0", "10.0.9.9 unicast eth0"}, ""},
		{"WireGuard: all but its own packets", `{"priority":99,"not":null,"src":"all","fwmark":"0x100000","fwmask":"0x100000","table":"1"}`,
			[]string{"10.0.2.7 unicast wireguard.cali", "10.0.2.8 unicast eth0", "10.0.1.5 blackhole", "10.0.1.4 unicast cali1"}, ""},
		{"wg-quick: main without its default, then everything", `{"priority":10,"src":"all","table":"main","suppress_prefixlen":0},{"priority":11,"not":null,"src":"all","fwmark":"0xca6c","table":"51820"}`,
			[]string{"10.0.1.5 blackhole", "10.0.2.7 unicast eth0", "10.0.9.9 unicast wg0"}, ""},
		{"for another destination", `{"priority":10,"src":"all","dst":"198.51.100.0","dstlen":24,"table":"9"}`, []string{"10.0.9.9 unicast eth0"}, ""},
		{"for a part of the pool", `{"priority":10,"src":"all","dst":"10.0.2.0","dstlen":26,"table":"9"}`, []string{"10.0.2.7 blackhole", "10.0.9.9 unicast eth0"}, ""},
		{"a rule that drops a part of the pool", `{"priority":10,"src":"all","dst":"10.0.2.4","dstlen":30,"action":"prohibit"}`, []string{"10.0.2.7 prohibit", "10.0.2.9 unicast eth0"}, ""},
		{"from the host's second address", `{"priority":10,"src":"198.51.100.7","table":"51820"}`, []string{"10.0.2.7 unicast eth0"}, ""},
		{"from some pods", `{"priority":10,"src":"10.0.1.0","srclen":26,"table":"51820"}`, nil, "policy rule 10"},
		{"from some pods, to a table that throws the pool back (egress gateway)", `{"priority":10,"src":"10.0.1.4","table":"250"}`, []string{"10.0.9.9 unicast eth0"}, ""},
		{"by mark, to a table that knows no pool", `{"priority":10,"src":"all","fwmark":"0x1","table":"7"}`, []string{"10.0.9.9 unicast eth0"}, ""},
		{"by mark, to the main table", `{"priority":10,"src":"all","fwmark":"0x80","fwmask":"0x80","table":"main"}`, []string{"10.0.9.9 unicast eth0"}, ""},
		{"by mark, to a table with a default route", `{"priority":10,"src":"all","fwmark":"0x1","table":"51820"}`, nil, "fwmark 0x1"},
		{"by interface", `{"priority":10,"src":"all","iif":"eth1","table":"9"}`, nil, "iif eth1"},
		{"by user", `{"priority":10,"src":"all","uid_start":1,"uid_end":5,"table":"9"}`, nil, "uid_end 5"},
		{"not to the pool", `{"priority":10,"not":null,"src":"all","dst":"10.0.0.0","dstlen":16,"table":"9"}`, nil, "not from all to 10.0.0.0/16"},
		{"a jump", `{"priority":10,"src":"all","goto":32766}`, nil, "goto"},
		{"nothing, and VRFs", `{"priority":10,"src":"all","nop":null},{"priority":1000,"src":"all","l3mdev":null}`, []string{"10.0.9.9 unicast eth0"}, ""},
		{"a table that is empty", `{"priority":10,"src":"all","table":"77"}`, []string{"10.0.9.9 unicast eth0"}, ""},
	} {
		rules := usual
		if tc.rules != "" {
			rules += "," + tc.rules
		}
		parsed, err := ParseRules([]byte("[" + rules + "]"))
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		routes, blind := Follow(parsed, tables, true, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16"), netip.MustParsePrefix("fd00::/64")})
		if tc.blind != "" {
			if !strings.Contains(blind, tc.blind) || routes != nil {
				t.Errorf("%s: %q, want one that names %q", tc.name, blind, tc.blind)
			}
			continue
		}
		if blind != "" {
			t.Errorf("%s: %s", tc.name, blind)
			continue
		}
		// The model's answer, and the same after a file has kept it.
		table := ipam.RouteTable{Node: "n", Kind: ipam.KernelTable, Routes: routes}
		again, err := ParseRoutes(FormatTable(&table))
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		for _, from := range []ipam.RouteTable{table, again.table("n", "x")} {
			s := ipam.NewSnapshot()
			s.Tables = []ipam.RouteTable{from}
			s.Seal()
			for _, way := range tc.ways {
				f := strings.Fields(way)
				r := s.Table("n").Lookup(netip.MustParseAddr(f[0]))
				got := f[0]
				if r != nil {
					got += " " + string(r.Type)
					if len(r.NextHops) > 0 && r.Type == ipam.Unicast {
						got += " " + r.NextHops[0].Dev
					}
				}
				if got != way {
					t.Errorf("%s: %s, want %s", tc.name, got, way)
				}
			}
			for _, r := range from.Routes {
				if r.Dst.Overlaps(netip.MustParsePrefix("198.51.100.0/24")) && r.Dst.Bits() > 0 {
					t.Errorf("%s: %s does not concern the pools", tc.name, r.Dst)
				}
			}
		}
	}
}

func TestParseRulesRefuses(t *testing.T) {
	for _, text := range []string{"", "{", `[{"src":"all"}]`, `[{"priority":1,"src":"nonsense"}]`, `[{"priority":1,"src":"all","suppress_prefixlen":"x"}]`} {
		if _, err := ParseRules([]byte(text)); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
	if _, err := ParseTables([]byte(`[{"dst":"nonsense","dev":"x"}]`)); err == nil {
		t.Error("a route that is none: no error")
	}
}

func TestPackedTableIsTheSame(t *testing.T) {
	table := ipam.RouteTable{Node: "n", Kind: ipam.KernelTable, Blind6: "policy rule 10\nsends packets elsewhere", Partial: true}
	for i := range 300 {
		table.Routes = append(table.Routes, ipam.Route{
			Dst: netip.MustParsePrefix(fmt.Sprintf("10.0.%d.0/26", i%256)), Type: ipam.Unicast, Proto: "bird", Step: i / 256,
			NextHops: []ipam.NextHop{{Via: netip.MustParseAddr("192.0.2.1"), Dev: "eth0"}},
		})
	}
	data, err := PackTable(table)
	if err != nil {
		t.Fatal(err)
	}
	table.AsOf = parseTime("2026-01-01T00:00:00Z")
	again, err := PackTable(table)
	if err != nil || !bytes.Equal(again, data) {
		t.Errorf("the age changes the bytes (%v)", err)
	}
	got, err := UnpackTable("n", data)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Routes) != 300 || got.Routes[299].Step != 1 || !got.Partial || got.Blind6 != "policy rule 10 sends packets elsewhere" || got.Kind != ipam.KernelTable {
		t.Errorf("%d routes, %+v", len(got.Routes), got.Blind6)
	}
	for name, bad := range map[string][]byte{"nothing": nil, "no gzip": []byte("10.0.0.0/26 dev x"), "cut off": data[:len(data)-5]} {
		if _, err := UnpackTable("n", bad); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
