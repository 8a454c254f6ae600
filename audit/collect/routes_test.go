package collect

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ipamaudit/ipam"
)

// spell prints a route shortly: "blackhole 10.0.0.0/26 proto bird metric 7 > via dev".
func spell(r ipam.Route) string {
	s := fmt.Sprintf("%s %s", r.Type, r.Dst)
	if r.Proto != "" {
		s += " " + r.Proto
	}
	if r.Metric != 0 {
		s += fmt.Sprintf(" m%d", r.Metric)
	}
	for _, h := range r.NextHops {
		s += " >"
		if h.Via.IsValid() {
			s += h.Via.String()
		}
		s += "@" + h.Dev
	}
	return s
}

func TestParseRoutes(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     []string
		unknown  int
	}{
		{"plain", "default via 10.64.0.1 dev eno1 onlink \n10.64.75.6 dev cali12ab scope link linkdown\n10.64.75.64/26 via 10.64.0.3 dev eth0 proto bird metric 32 \n",
			[]string{"unicast 0.0.0.0/0 >10.64.0.1@eno1", "unicast 10.64.75.6/32 >@cali12ab", "unicast 10.64.75.64/26 bird m32 >10.64.0.3@eth0"}, 0},
		{"drops", "blackhole 10.64.75.0/26 proto bird\nblackhole 10.0.2.1 proto 12\nunreachable 10.1.0.0/16\nprohibit 10.2.0.0/16 metric 5\nthrow 10.3.0.0/16\n",
			[]string{"blackhole 10.64.75.0/26 bird", "blackhole 10.0.2.1/32 12", "unreachable 10.1.0.0/16", "prohibit 10.2.0.0/16 m5", "throw 10.3.0.0/16"}, 0},
		{"IPv6", "blackhole fd00:10:244::40/122 dev lo proto bird metric 1024 pref medium\nfd00::1 dev cali1 proto 80 metric 1024 pref medium\ndefault via fe80::1 dev eth0 proto ra metric 100 pref medium\nunreachable default dev lo metric 4294967295 error -101 pref medium",
			[]string{"blackhole fd00:10:244::40/122 bird m1024", "unicast fd00::1/128 80 m1024 >@cali1", "unicast ::/0 ra m100 >fe80::1@eth0", "unreachable ::/0 m4294967295"}, 0},
		{"next hop lines", "10.0.0.0/26 proto bird metric 32 \n\tnexthop via 10.1.0.2 dev eth0 weight 1 \n\tnexthop via 10.1.0.3 dev eth1 weight 1 \n10.0.1.1 dev cali1 scope link",
			[]string{"unicast 10.0.0.0/26 bird m32 >10.1.0.2@eth0 >10.1.0.3@eth1", "unicast 10.0.1.1/32 >@cali1"}, 0},
		{"ip -o", "10.0.0.0/26 proto bird \\\tnexthop via 10.1.0.2 dev eth0 weight 1 \\\tnexthop via 10.1.0.3 dev eth1 weight 1 ",
			[]string{"unicast 10.0.0.0/26 bird >10.1.0.2@eth0 >10.1.0.3@eth1"}, 0},
		{"via inet6", "default via inet6 fe80::1 dev eth0 proto bgp\n10.0.0.0/26 via inet6 fe80::2%eth0 dev eth0",
			[]string{"unicast 0.0.0.0/0 bgp >fe80::1@eth0", "unicast 10.0.0.0/26 >fe80::2@eth0"}, 0},
		{"ip -N", "6 10.64.75.0/26 proto 12 \n10.0.0.0/8 via 10.1.0.1 dev eth0 proto 3",
			[]string{"blackhole 10.64.75.0/26 12", "unicast 10.0.0.0/8 3 >10.1.0.1@eth0"}, 0},
		{"ip -d", "unicast 10.0.0.0/8 via 10.1.0.1 dev eth0 proto boot scope global", []string{"unicast 10.0.0.0/8 boot >10.1.0.1@eth0"}, 0},
		{"table all", "default via 10.1.0.1 dev eth0 table 100\n\tnexthop via 10.9.9.9 dev x\nblackhole 10.0.0.0/26 table 42 proto bird\n10.0.0.0/26 via 10.1.0.2 dev eth0 proto bird\nlocal 10.1.0.9 dev eth0 table local proto kernel scope host src 10.1.0.9\nbroadcast 10.1.0.255 dev eth0 table local proto kernel\nmulticast ff00::/8 dev eth0 table local proto kernel metric 256 pref medium\nblackhole 10.5.0.0/16 table main",
			[]string{"unicast 10.0.0.0/26 bird >10.1.0.2@eth0", "local 10.1.0.9/32 kernel", "blackhole 10.5.0.0/16"}, 0},
		{"dead next hops", "10.0.0.0/26 via 10.1.0.2 dev eth0 proto bird dead linkdown\n10.0.1.0/26 proto bird \n\tnexthop via 10.1.0.2 dev eth0 weight 1 dead linkdown \n\tnexthop via 10.1.0.3 dev eth1 weight 1 \n10.0.2.0/26 proto bird \n\tnexthop via 10.1.0.2 dev eth0 dead \nblackhole 10.0.2.0/24",
			[]string{"unicast 10.0.1.0/26 bird >10.1.0.3@eth1", "blackhole 10.0.2.0/24"}, 0},
		{"route -n", "Kernel IP routing table\nDestination     Gateway         Genmask         Flags Metric Ref    Use Iface\n0.0.0.0         10.64.0.1       0.0.0.0         UG    100    0        0 eno1\n10.64.75.0      0.0.0.0         255.255.255.192 U     0      0        0 *\n10.64.75.4      0.0.0.0         255.255.255.255 UH    0      0        0 cali1\n10.9.0.0        -               255.255.0.0     !     0      -        0 -\n",
			[]string{"unicast 0.0.0.0/0 m100 >10.64.0.1@eno1", "blackhole 10.64.75.0/26", "unicast 10.64.75.4/32 >@cali1", "unreachable 10.9.0.0/16"}, 0},
		{"route -6 -n", "Kernel IPv6 routing table\nDestination                    Next Hop                   Flag Met Ref Use If\nfd00::/64                      ::                         U    256 1     0 eth0\n::/0                           fe80::1                    UG   1024 1    0 eth0\n",
			[]string{"unicast fd00::/64 m256 >@eth0", "unicast ::/0 m1024 >fe80::1@eth0"}, 0},
		{"one after the other", "10.0.0.0/26 via 10.1.0.2 dev eth0\n\nblackhole fd00::/122 dev lo proto bird metric 1024 pref medium\nKernel IP routing table\nDestination Gateway Genmask Flags Metric Ref Use Iface\n10.5.0.0 0.0.0.0 255.255.0.0 U 0 0 0 *\n",
			[]string{"unicast 10.0.0.0/26 >10.1.0.2@eth0", "blackhole fd00::/122 bird m1024", "blackhole 10.5.0.0/16"}, 0},
		{"noise", "Defaulted container \"calico-node\" out of: calico-node\r\n# node1\r\n10.0.0.0/26 via 10.1.0.2 dev eth0\r\n10.0.0.0/99 dev x\r\n",
			[]string{"unicast 10.0.0.0/26 >10.1.0.2@eth0"}, 2},
		{"json", `[{"type":"blackhole","dst":"10.64.75.0/26","protocol":"bird","flags":[]},{"dst":"10.64.75.5","gateway":"10.64.0.2","dev":"eth0","protocol":"80","flags":["onlink"]},{},{"dst":"default","via":{"family":"inet6","host":"fe80::1"},"dev":"eth0","metric":7,"flags":[]}]`,
			[]string{"blackhole 10.64.75.0/26 bird", "unicast 10.64.75.5/32 80 >10.64.0.2@eth0", "unicast 0.0.0.0/0 m7 >fe80::1@eth0"}, 0},
		{"json arrays", "[{\"dst\":\"10.0.0.0/26\",\"protocol\":12,\"flags\":[],\"nexthops\":[{\"gateway\":\"10.1.0.2\",\"dev\":\"eth0\",\"weight\":1,\"flags\":[\"dead\"]},{\"gateway\":\"10.1.0.3\",\"dev\":\"eth1\",\"flags\":[]}]}]\n[{\"type\":\"blackhole\",\"dst\":\"fd00::/122\",\"dev\":\"lo\",\"metric\":1024,\"flags\":[],\"pref\":\"medium\"},{\"dst\":\"default\",\"gateway\":\"fe80::1\",\"dev\":\"eth0\",\"pref\":\"medium\"},{\"dst\":\"10.7.0.0/16\",\"table\":\"100\",\"dev\":\"x\"},{\"dst\":\"10.8.0.0/16\",\"dev\":\"x\",\"flags\":[\"dead\",\"linkdown\"]}]\n[]",
			[]string{"unicast 10.0.0.0/26 12 >10.1.0.3@eth1", "blackhole fd00::/122 m1024", "unicast ::/0 >fe80::1@eth0"}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := ParseRoutes([]byte(tc.in))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range p.Routes {
				got = append(got, spell(r))
			}
			if g, w := strings.Join(got, "\n"), strings.Join(tc.want, "\n"); g != w {
				t.Errorf("got\n%s\nwant\n%s", g, w)
			}
			if p.Unknown != tc.unknown {
				t.Errorf("%d unknown lines (first %d: %q), want %d", p.Unknown, p.FirstLine, p.First, tc.unknown)
			}
			sameAgain(t, p.Routes)
		})
	}
}

// sameAgain checks that printed routes are read as they were.
func sameAgain(t testing.TB, routes []ipam.Route) {
	t.Helper()
	if len(routes) == 0 {
		return
	}
	text := FormatRoutes(routes)
	p, err := ParseRoutes(text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	want, got := map[string]int{}, map[string]int{}
	for _, r := range routes {
		want[spell(r)]++
	}
	for _, r := range p.Routes {
		got[spell(r)]++
	}
	for k, n := range want {
		if got[k] != n {
			t.Errorf("%q was printed so that it is not read again:\n%s", k, text)
		}
	}
}

// TestUnknownTables: a table that was not understood is unknown, never empty.
func TestUnknownTables(t *testing.T) {
	for name, in := range map[string]string{
		"empty":       "",
		"blank":       " \n\t\n",
		"nothing":     "hello\nworld\n",
		"empty json":  "[]",
		"old json":    "[ { } ]",
		"cut json":    `[{"dst":"10.0.0.0/26","dev":"x"},{"dst":"10.0`,
		"interrupted": "10.0.0.0/26 via 10.1.0.2 dev eth0\nDump was interrupted and may be inconsistent.\n",
		"failed":      "RTNETLINK answers: Operation not permitted\n",
		"no shell":    "Error: something\n",
		"other table": "10.0.0.0/26 via 10.1.0.2 dev eth0 table 100\n",
	} {
		if p, err := ParseRoutes([]byte(in)); err == nil || !strings.Contains(err.Error(), "not known") {
			t.Errorf("%s: %v %v", name, p.Routes, err)
		}
	}
}

func TestRouteFilesOfASnapshot(t *testing.T) {
	s, err := readDir(t, map[string]string{
		"nodes.json":          `{"apiVersion":"v1","kind":"NodeList","items":[]}`,
		"routes/a.txt":        "10.0.0.0/26 via 10.1.0.2 dev eth0 proto bird\n",
		"routes/a.json":       `[{"dst":"10.0.0.0/26","gateway":"10.1.0.2","dev":"eth0","protocol":"bird","flags":[]},{"type":"blackhole","dst":"fd00::/122","flags":[]}]`,
		"routes/empty.txt":    "",
		"routes/half.txt":     "10.0.0.0/26 via 10.1.0.2 dev eth0\nwhat is this\n",
		"routes/notes.md":     "ignored",
		"deep/routes/b.c.txt": "blackhole 10.0.0.0/26",
	})
	if err != nil {
		t.Fatal(err)
	}
	var nodes []string
	for _, table := range s.Tables {
		nodes = append(nodes, fmt.Sprintf("%s:%d", table.Node, len(table.Routes)))
	}
	if got := strings.Join(nodes, " "); got != "a:2 b.c:1 half:1" {
		t.Errorf("tables %s", got)
	}
	var rejected []string
	for _, e := range s.Rejected {
		rejected = append(rejected, e.Error())
	}
	want := "routes/empty.txt: route table empty: it is empty, so the node's table is not known\nroutes/half.txt: route table half: 1 lines were not understood, the first is line 2: \"what is this\""
	if got := strings.Join(rejected, "\n"); got != want {
		t.Errorf("rejected\n%s\nwant\n%s", got, want)
	}
	if s.RouteSource != "files" || s.Ignored != 1 {
		t.Errorf("%q %d", s.RouteSource, s.Ignored)
	}
	if r := s.Table("a").Lookup(netip.MustParseAddr("10.0.0.5")); r == nil || r.Type != ipam.Unicast {
		t.Errorf("%+v", r)
	}
}

func TestRouteFilesSource(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "a.txt", "10.0.0.0/26 dev x")
	writeFile(t, dir, "b.txt", "")
	writeFile(t, dir, "stranger.txt", "10.0.0.0/26 dev x")
	tables, err := RouteFiles{dir}.Tables(context.Background(), Scope{Nodes: []string{"a", "b", "c", "../a", ""}})
	if len(tables) != 1 || tables[0].Node != "a" || tables[0].AsOf.IsZero() {
		t.Errorf("%+v", tables)
	}
	if err == nil || !strings.Contains(err.Error(), "b.txt") || strings.Contains(err.Error(), "\n") {
		t.Errorf("err %v", err)
	}
	if _, err := (RouteFiles{filepath.Join(dir, "none")}).Tables(context.Background(), Scope{}); err == nil {
		t.Error("no error for a directory that is not there")
	}
}

func FuzzParseRoutes(f *testing.F) {
	for _, s := range []string{
		"default via 10.64.0.1 dev eno1 onlink\nblackhole 10.64.75.0/26 proto bird",
		"10.0.0.0/26 proto bird \\\tnexthop via 10.1.0.2 dev eth0",
		"10.0.0.0/26\n\tnexthop via inet6 fe80::1 dev eth0\n\tnexthop dev x dead",
		`[{"dst":"default","via":{"family":"inet6","host":"fe80::1"},"dev":"e","nexthops":[{"gateway":"::1"}]}]`,
		"0.0.0.0 10.64.0.1 0.0.0.0 UG 100 0 0 eno1\nfd00::/64 :: U 256 1 0 eth0",
		"default dev x\nfd00::/64 dev y\ndefault dev z",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ParseRoutes(data)
		if err != nil {
			return
		}
		for _, r := range p.Routes {
			if !r.Dst.IsValid() || r.Type == "" || r.Dst != r.Dst.Masked() {
				t.Fatalf("bad route %+v", r)
			}
		}
		if bytes.ContainsAny(data, "\v\f\x85\xa0") || !isPrintable(data) {
			return
		}
		sameAgain(t, p.Routes)
	})
}

// isPrintable keeps white space that only Go splits at out of the fuzzer's way.
func isPrintable(data []byte) bool {
	for _, c := range data {
		if c > 126 || c < 32 && c != '\n' && c != '\t' && c != '\r' {
			return false
		}
	}
	return true
}

func TestSampleRoutesParseWhole(t *testing.T) {
	shared := sharedDir(t)
	var files []string
	for _, pattern := range []string{"cases/*/cluster/routes/*", "real/*/routes/*", "real/t293729-other/*.ip-j-route.json"} {
		found, err := filepath.Glob(filepath.Join(shared, pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) < 10 {
		t.Fatalf("only %d files", len(files))
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		p, err := ParseRoutes(data)
		if err != nil || p.Unknown > 0 {
			t.Errorf("%s: %v, %d unknown: %s", file, err, p.Unknown, p.First)
		}
		if strings.HasSuffix(file, ".txt") {
			if n := len(strings.Split(strings.TrimSpace(string(data)), "\n")); n != len(p.Routes) && !contains(data, "nexthop") {
				t.Errorf("%s: %d routes of %d lines", file, len(p.Routes), n)
			}
		}
		sameAgain(t, p.Routes)
	}
}
