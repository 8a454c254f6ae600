package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"ipamaudit/audit/collect"
	"ipamaudit/ipam"
)

var usualRules = []collect.PolicyRule{
	{Priority: 0, Action: "lookup", Table: "local", Suppress: -1},
	{Priority: 32766, Action: "lookup", Table: "main", Suppress: -1},
}

// node is a kernel with so many blocks of other nodes, two of its own, and pods.
func node(remote, pods int) Kernel {
	k := Kernel{Rules4: usualRules, Rules6: usualRules, Tables: collect.Tables{}}
	add := func(r ipam.Route) { k.Tables["main"] = append(k.Tables["main"], r) }
	add(ipam.Route{Dst: netip.MustParsePrefix("0.0.0.0/0"), Type: ipam.Unicast, Proto: "dhcp", NextHops: []ipam.NextHop{{Via: netip.MustParseAddr("192.0.2.1"), Dev: "eno1"}}})
	base := netip.MustParseAddr("10.0.0.0").As4()
	block := func(i int) netip.Prefix {
		a := base
		a[1], a[2], a[3] = byte(i>>10), byte(i>>2), byte(i<<6)
		return netip.PrefixFrom(netip.AddrFrom4(a), 26)
	}
	for i := range remote {
		via := netip.AddrFrom4([4]byte{172, 16, byte(i * 7919 >> 8), byte(i * 7919)})
		add(ipam.Route{Dst: block(i + 2), Type: ipam.Unicast, Proto: "80", NextHops: []ipam.NextHop{{Via: via, Dev: "vxlan.calico"}}})
	}
	for i := range 2 {
		add(ipam.Route{Dst: block(i), Type: ipam.Blackhole, Proto: "80"})
	}
	for i := range pods {
		ip := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
		add(ipam.Route{Dst: netip.PrefixFrom(ip, 32), Type: ipam.Unicast, Proto: "boot", NextHops: []ipam.NextHop{{Dev: fmt.Sprintf("cali%011x", i*2654435761%(1<<44))}}})
	}
	return k
}

var pools = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}

// TestSizes holds the agent to what docs/routes.md promises of it.
func TestSizes(t *testing.T) {
	for _, tc := range []struct {
		name             string
		blocks, pods, at int
		partial          bool
	}{
		{"a small cluster", 20, 30, 1 << 10, false},
		{"a node full of pods", 200, 110, 4 << 10, false},
		{"5,000 nodes with 20,000 blocks", 20000, 20, 1 << 10, true},
		{"5,000 nodes with 20,000 blocks, full of pods", 20000, 110, 3 << 10, true},
	} {
		packed, table, err := node(tc.blocks, tc.pods).Table("n", pools)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d bytes, %d routes", tc.name, len(packed), len(table.Routes))
		if len(packed) > tc.at || table.Partial != tc.partial {
			t.Errorf("%s: %d bytes, want at most %d; partial %v", tc.name, len(packed), tc.at, table.Partial)
		}
		s := ipam.NewSnapshot()
		s.Tables = []ipam.RouteTable{table}
		got := s.Seal().Table("n")
		for ip, want := range map[string]ipam.RouteType{"10.0.0.3": ipam.Unicast, "10.0.0.126": ipam.Blackhole} {
			a := netip.MustParseAddr(ip)
			if r := got.Lookup(a); r == nil || r.Type != want {
				t.Errorf("%s: %s: %+v, want %s", tc.name, ip, r, want)
			}
			if known, why := got.Knows(a); !known {
				t.Errorf("%s: %s is not known: %s", tc.name, ip, why)
			}
		}
		if known, _ := got.Knows(netip.MustParseAddr("10.0.1.1")); known == tc.partial {
			t.Errorf("%s: the way to another node's block is known: %v", tc.name, known)
		}
	}
}

// TestWrites: one when it starts, one when the table changed and it was quiet
// long enough, one to show that it lives.
func TestWrites(t *testing.T) {
	now := time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)
	pods, fail, writes := 5, false, 0
	a := &Agent{
		Node: "n", Read: func() (Kernel, error) { return node(10, pods), nil },
		Pools: func(context.Context) ([]netip.Prefix, error) { return pools, nil },
		Publish: func(context.Context, []byte, time.Time, int) error {
			if fail {
				return errors.New("no")
			}
			writes++
			return nil
		},
		Poll: DefaultPoll, Quiet: DefaultQuiet, Heartbeat: DefaultHeartbeat, PoolsEvery: DefaultPoolsEvery, Log: slog.New(slog.DiscardHandler),
	}
	run := func(d time.Duration, each func()) int {
		before := writes
		for end := now.Add(d); now.Before(end); now = now.Add(a.Poll) {
			each()
			a.Tick(t.Context(), now)
		}
		return writes - before
	}
	quiet, busy := func() {}, func() { pods = (pods + 1) % 100 }
	if n := run(time.Minute, quiet); n != 1 {
		t.Errorf("%d writes when it starts", n)
	}
	if n := run(time.Hour, quiet); n != 4 {
		t.Errorf("%d writes in an hour without changes, want 4", n)
	}
	if n := run(time.Hour, busy); n < 11 || n > 13 {
		t.Errorf("%d writes in an hour with a change every 30 s, want about 12", n)
	}
	fail = true
	tries := 0
	publish := a.Publish
	a.Publish = func(ctx context.Context, b []byte, at time.Time, n int) error { tries++; return publish(ctx, b, at, n) }
	run(time.Hour, busy)
	if tries < 5 || tries > 20 {
		t.Errorf("%d tries in an hour in which the API server refuses", tries)
	}
	fail = false
	if n := run(15*time.Minute, busy); n == 0 {
		t.Error("it never writes again")
	}
}

func TestPublisherSpeaksForItsOwnNode(t *testing.T) {
	client := fake.NewClientset()
	extra := map[string]authv1.ExtraValue{}
	client.PrependReactor("create", "selfsubjectreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authv1.SelfSubjectReview{Status: authv1.SelfSubjectReviewStatus{UserInfo: authv1.UserInfo{Extra: extra}}}, nil
	})
	if _, err := NewPublisher(t.Context(), client, "ns", "a"); err == nil {
		t.Error("a token without a node is let pass")
	}
	extra["authentication.kubernetes.io/node-name"] = authv1.ExtraValue{"b"}
	if _, err := NewPublisher(t.Context(), client, "ns", "a"); err == nil {
		t.Error("the token of another node is let pass")
	}
	extra["authentication.kubernetes.io/node-name"] = authv1.ExtraValue{"a"}
	extra["authentication.kubernetes.io/node-uid"] = authv1.ExtraValue{"uid-a"}
	p, err := NewPublisher(t.Context(), client, "ns", "a")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := p.Publish(t.Context(), []byte("x"), time.Now(), 1); err != nil {
			t.Fatal(err)
		}
	}
	cm, err := client.CoreV1().ConfigMaps("ns").Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil || string(cm.BinaryData[collect.AgentKey]) != "x" || cm.OwnerReferences[0].UID != "uid-a" || cm.Annotations[collect.AgentReadAt] == "" {
		t.Errorf("%+v %v", cm, err)
	}
}

// BenchmarkLook is what one look at the kernel costs an agent beside reading it.
func BenchmarkLook(b *testing.B) {
	for name, k := range map[string]Kernel{"110 pods, 200 blocks": node(200, 110), "110 pods, 20000 blocks": node(20000, 110)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := k.Table("n", pools); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
