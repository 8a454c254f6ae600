package checks

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"ipamaudit/ipam"
)

// lab builds small clusters for tests, with everything read.
type lab struct {
	*ipam.Snapshot
	pods int
}

var labNow = time.Date(2026, 3, 1, 6, 0, 0, 0, time.UTC)

// newLab has nodes n1…, schedulable and Ready, and nothing else.
func newLab(nodes int) *lab {
	l := &lab{Snapshot: ipam.NewSnapshot()}
	l.AsOf, l.Cluster = labNow, ipam.ClusterRef{Name: "lab", ID: "lab-id"}
	l.API, l.Info.Version = ipam.APIv1, ipam.ParseVersion("v3.27.0")
	for i := range nodes {
		l.Nodes = append(l.Nodes, ipam.Node{Name: fmt.Sprintf("n%d", i+1), Ready: true, Labels: map[string]string{}, MaxPods: 110})
	}
	for _, r := range ipam.AllResources() {
		l.Coverage.Set(r, ipam.Read, 0, "")
	}
	return l
}

// pool adds an IPPool with Calico's defaults and returns it for changes before run.
func (l *lab) pool(name, cidr string, size int) *ipam.Pool {
	l.Pools = append(l.Pools, ipam.Pool{Name: name, CIDR: netip.MustParsePrefix(cidr), BlockSize: size, NodeSelector: "all()",
		IPIPMode: "Never", VXLANMode: "Never", AllowedUses: ipam.UseWorkload | ipam.UseTunnel})
	return &l.Pools[len(l.Pools)-1]
}

// block adds a block and its affinity; owner "" is nobody.
func (l *lab) block(cidr, owner string) *ipam.Block {
	b := ipam.Block{Name: strings.NewReplacer(".", "-", ":", "-", "/", "-").Replace(cidr), CIDR: netip.MustParsePrefix(cidr), UID: "uid-" + cidr, ResourceVersion: "1", Created: labNow.Add(-240 * time.Hour)}
	if owner != "" {
		b.Owner = ipam.Owner{Type: "host", Name: owner}
		l.Affinities = append(l.Affinities, ipam.Affinity{Name: owner + "-" + b.Name, Node: owner, Type: "host", CIDR: b.CIDR, State: ipam.StateConfirmed, Created: labNow.Add(-240 * time.Hour)})
	}
	l.Blocks = append(l.Blocks, b)
	return &l.Blocks[len(l.Blocks)-1]
}

// pod runs a Deployment's pod with ip on node and books the address for it in
// the block that contains it.
func (l *lab) pod(node, ip string) *ipam.Pod {
	l.pods++
	p := ipam.Pod{Namespace: "app", Name: fmt.Sprintf("p%d", l.pods), NodeName: node, Phase: "Running", CalicoCNI: true,
		OwnerKind: "ReplicaSet", OwnerName: "app", Created: labNow.Add(-48 * time.Hour), Started: labNow.Add(-48 * time.Hour)}
	if ip != "" {
		addr := netip.MustParseAddr(ip)
		p.StatusIPs = []netip.Addr{addr}
		l.book(ip, ipam.Attribute{Handle: "k8s-pod-network." + p.Name, Namespace: p.Namespace, Pod: p.Name, Node: node, Timestamp: labNow.Add(-48 * time.Hour)})
	}
	l.Pods = append(l.Pods, p)
	return &l.Pods[len(l.Pods)-1]
}

// fill books n pods on node from the first address of the block on.
func (l *lab) fill(block, node string, n int) {
	a := netip.MustParsePrefix(block).Addr()
	for range n {
		l.pod(node, a.String())
		a = a.Next()
	}
}

// book records an allocation in the block that contains ip.
func (l *lab) book(ip string, at ipam.Attribute) {
	addr := netip.MustParseAddr(ip)
	for i := range l.Blocks {
		b := &l.Blocks[i]
		if !b.CIDR.Contains(addr) {
			continue
		}
		ordinal := uint32(0)
		for a := b.CIDR.Addr(); a != addr; a = a.Next() {
			ordinal++
		}
		b.Slots = append(b.Slots, ipam.Slot{Ordinal: ordinal, Attr: int32(len(b.Attributes))})
		slices.SortFunc(b.Slots, func(x, y ipam.Slot) int { return int(x.Ordinal) - int(y.Ordinal) })
		b.Attributes = append(b.Attributes, at)
		return
	}
}

// routes gives a node a table: "blackhole 10.0.0.0/26" or "10.0.0.4 cali1".
func (l *lab) routes(node string, lines ...string) {
	t := ipam.RouteTable{Node: node, Kind: ipam.KernelTable, Source: "test"}
	for _, line := range lines {
		f := strings.Fields(line)
		r := ipam.Route{Type: ipam.Unicast, Text: line}
		if f[0] == "blackhole" || f[0] == "unreachable" || f[0] == "prohibit" {
			r.Type, f = ipam.RouteType(f[0]), f[1:]
		}
		if p, err := netip.ParsePrefix(f[0]); err == nil {
			r.Dst = p
		} else {
			r.Dst = ipam.HostPrefix(netip.MustParseAddr(f[0]))
		}
		t.Routes = append(t.Routes, r)
	}
	l.Tables = append(l.Tables, t)
}

// run seals the cluster and evaluates the check with its default parameters.
func (l *lab) run(c Check) Outcome {
	l.Seal()
	return Evaluate(c, &Input{Snapshot: l.Snapshot, Params: c.DefaultParams(), Now: l.AsOf})
}

// want compares findings, written as "severity kind/name", with what is expected.
func want(t *testing.T, name string, out Outcome, expected ...string) {
	t.Helper()
	got := make([]string, 0, len(out.Findings))
	for _, f := range out.Findings {
		got = append(got, string(f.Severity)+" "+f.Subject.Kind+"/"+f.Subject.Name)
		if f.Title == "" || f.Detail == "" || len(f.Remediation) == 0 {
			t.Errorf("%s: %s: title, detail or remediation is empty: %+v", name, f.Subject, f)
		}
	}
	if !slices.Equal(got, expected) {
		t.Errorf("%s: got %q, want %q (%s %s)", name, got, expected, out.Status, out.Reason)
		for _, f := range out.Findings {
			t.Logf("  %s: %s", f.Subject, f.Detail)
		}
	}
}

func mustPrefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// commandText is every command of the steps, in order.
func commandText(steps []Step) string {
	var b strings.Builder
	for _, s := range steps {
		b.WriteString(strings.Join(s.Commands, "\n") + "\n")
	}
	return b.String()
}
