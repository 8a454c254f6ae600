package checks

import (
	"net/netip"
	"strings"
	"testing"

	"ipamaudit/ipam"
)

// fabric is a cluster without node mesh that peers with routers only.
func fabric() *lab {
	l := newLab(3)
	l.pool("p", "10.0.0.0/16", 26)
	l.BGP = ipam.BGPConfig{Present: true, ASNumber: 64512}
	l.Peers = []ipam.BGPPeer{{Name: "tor", PeerIP: "192.0.2.1", ASNumber: 65001}}
	l.block("10.0.0.0/26", "n1")
	l.pod("n1", "10.0.0.1")
	return l
}

func TestIPAMConfig(t *testing.T) {
	const cluster = " Cluster/lab"
	for _, tc := range []struct {
		name string
		make func(*lab)
		want []string
	}{
		{"no mesh, borrowing allowed", func(l *lab) {}, []string{"medium" + cluster}},
		{"strict affinity is a choice", func(l *lab) { l.Config.StrictAffinity = true }, nil},
		{"the node mesh", func(l *lab) { l.BGP.Mesh = true }, nil},
		{"VXLAN", func(l *lab) { l.Pools[0].VXLANMode = "CrossSubnet" }, nil},
		{"IPIP from v3.33", func(l *lab) { l.Pools[0].IPIPMode, l.Info.Version = "Always", ipam.ParseVersion("v3.33.0") }, nil},
		{"IPIP before", func(l *lab) { l.Pools[0].IPIPMode = "Always" }, []string{"medium" + cluster}},
		{"route reflectors", func(l *lab) {
			l.Nodes[0].Labels["rr"], l.Nodes[0].RRClusterID = "true", "244.0.0.1"
			l.Peers = []ipam.BGPPeer{{Name: "rr", PeerSelector: "rr == 'true'"}}
		}, nil},
		{"the own AS is accepted", func(l *lab) { l.Peers[0].NumAllowedLocalASNumbers = 1 }, nil},
		{"a single node borrows from nobody", func(l *lab) { l.Nodes = l.Nodes[:1] }, nil},
		{"the pool is not exported", func(l *lab) { l.Pools[0].DisableBGPExport = true }, nil},
		{"the pool is disabled", func(l *lab) { l.Pools[0].Disabled = true }, nil},
		{"a borrowed address whose owner has its route", func(l *lab) {
			l.pod("n2", "10.0.0.9")
			l.routes("n1", "blackhole 10.0.0.0/26", "10.0.0.1", "10.0.0.9", "0.0.0.0/0")
		}, []string{"low" + cluster}},
		{"a borrowed address whose owner drops it", func(l *lab) {
			l.pod("n2", "10.0.0.9")
			l.routes("n1", "blackhole 10.0.0.0/26", "10.0.0.1", "0.0.0.0/0")
		}, []string{"medium" + cluster}},
		{"Windows without strict affinity", func(l *lab) { l.BGP.Mesh = true; l.Nodes[2].Windows = true }, []string{"high" + cluster}},
		{"Windows without strict affinity, a pod waits there", func(l *lab) {
			l.BGP.Mesh, l.Nodes[2].Windows = true, true
			l.pod("n3", "").Phase = "Pending"
		}, []string{"critical" + cluster}},
		{"Windows with strict affinity", func(l *lab) { l.Config.StrictAffinity, l.Nodes[2].Windows = true, true }, nil},
		{"Windows nodes with another IPAM", func(l *lab) {
			l.BGP.Mesh, l.Nodes[2].Windows = true, true
			l.pod("n3", "172.16.0.4")
		}, nil},
		{"a limit without strict affinity", func(l *lab) { l.BGP.Mesh, l.Config.MaxBlocksPerHost = true, 2 }, []string{"medium" + cluster}},
		{"a limit with it", func(l *lab) {
			l.Config = ipam.Config{StrictAffinity: true, AutoAllocateBlocks: true, MaxBlocksPerHost: 2}
		}, nil},
		{"no automatic blocks, and nodes without", func(l *lab) { l.Config = ipam.Config{StrictAffinity: true} }, []string{"high" + cluster}},
		{"no automatic blocks, all have one", func(l *lab) {
			l.Config = ipam.Config{StrictAffinity: true}
			l.block("10.0.0.64/26", "n2")
			l.block("10.0.0.128/26", "n3")
		}, []string{"low" + cluster}},
		{"no automatic blocks and no strict affinity", func(l *lab) {
			l.BGP.Mesh, l.Config = true, ipam.Config{}
			l.block("10.0.0.64/26", "n2")
			l.block("10.0.0.128/26", "n3")
		}, []string{"high" + cluster}},
	} {
		l := fabric()
		tc.make(l)
		want(t, tc.name, l.run(ipamConfig()), tc.want...)
	}
}

func TestIPAMConfigRemedy(t *testing.T) {
	order := func(text string, parts ...string) bool {
		at := 0
		for _, p := range parts {
			i := strings.Index(text[at:], p)
			if i < 0 {
				return false
			}
			at += i
		}
		return true
	}
	if text := commandText(fabric().run(ipamConfig()).Findings[0].Remediation); strings.Contains(text, "calicoctl create") || !strings.Contains(text, "strictaffinity=true") {
		t.Errorf("blocks are free:\n%s", text)
	}
	if text := commandText(staging().run(ipamConfig()).Findings[0].Remediation); !order(text, "calicoctl create", "--show-borrowed", "strictaffinity=true") {
		t.Errorf("capacity, then the borrowers, then strict affinity:\n%s", text)
	}
	// Strict affinity would keep pods with fixed addresses from starting.
	l := fabric()
	l.pod("n2", "10.0.0.9").RequestedIPs = []netip.Addr{netip.MustParseAddr("10.0.0.9")}
	if text := commandText(l.run(ipamConfig()).Findings[0].Remediation); strings.Contains(text, "strictaffinity") {
		t.Errorf("fixed addresses:\n%s", text)
	}
}

func TestIPAMConfigUnread(t *testing.T) {
	l := fabric()
	l.Coverage.Set(ipam.ResIPAMConfig, ipam.Forbidden, 0, "")
	if out := l.run(ipamConfig()); out.Status != StatusUnknown {
		t.Errorf("forbidden: %s", out.Status)
	}
	l.Coverage.Set(ipam.ResIPAMConfig, ipam.Missing, 0, "")
	if out := l.run(ipamConfig()); len(out.Findings) != 1 || out.Findings[0].Evidence != Inferred || out.Findings[0].Severity != Low || len(out.Unseen) != 1 {
		t.Errorf("not collected: the defaults are assumed, so it is inferred and low: %+v", out)
	}
	l.Coverage.Set(ipam.ResIPAMConfig, ipam.Absent, 0, "")
	if out := l.run(ipamConfig()); len(out.Findings) != 1 || out.Findings[0].Severity != Medium {
		t.Errorf("the API does not serve it, so the defaults hold: %+v", out)
	}
	l = fabric()
	l.BGP = ipam.BGPConfig{Mesh: true}
	l.Coverage.Set(ipam.ResBGPConfig, ipam.Forbidden, 0, "")
	if out := l.run(ipamConfig()); out.Status != StatusUnknown {
		t.Errorf("whether there is a mesh was not seen: %s", out.Status)
	}
	l.Pools[0].VXLANMode = "Always"
	if out := l.run(ipamConfig()); out.Status != StatusOK {
		t.Errorf("VXLAN needs no mesh: %s", out.Status)
	}
	for _, status := range []ipam.ReadStatus{ipam.Forbidden, ipam.Missing} {
		l = fabric()
		l.Peers = nil
		l.Coverage.Set(ipam.ResBGPPeers, status, 0, "")
		if out := l.run(ipamConfig()); out.Status != StatusUnknown || !strings.Contains(out.Reason, "bgppeers were not read") {
			t.Errorf("no mesh, and the peers are %s: %s %s", status, out.Status, out.Reason)
		}
		l.BGP.Mesh = true
		if out := l.run(ipamConfig()); out.Status != StatusOK {
			t.Errorf("the mesh needs no peers: %s", out.Status)
		}
	}
	// Windows nodes need strict affinity where Calico's IPAM serves them.
	l = fabric()
	l.BGP.Mesh, l.Nodes[1].Windows = true, true
	l.pod("n2", "172.30.0.9")
	want(t, "pods of another network", l.run(ipamConfig()))
	l.Pods = nil
	l.Coverage.Set(ipam.ResPods, ipam.Forbidden, 0, "")
	if out := l.run(ipamConfig()); out.Status != StatusUnknown {
		t.Errorf("whose pods they are was not seen: %s", out.Status)
	}
}
