package checks

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"ipamaudit/ipam"
)

// oneNode is a node that owns n full blocks of a pool with small ones.
func oneNode(size, blocks int) *lab {
	l := newLab(2)
	l.pool("p", "10.0.0.0/20", size)
	addr := mustPrefix("10.0.0.0/20").Addr()
	per := 1 << (32 - size)
	for range blocks {
		cidr := fmt.Sprintf("%s/%d", addr, size)
		l.block(cidr, "n1")
		l.fill(cidr, "n1", per)
		for range per {
			addr = addr.Next()
		}
	}
	return l
}

// leak makes the last n pods vanish; their addresses stay booked.
func (l *lab) leak(n int) { l.Pods = l.Pods[:len(l.Pods)-n] }

func TestNodeBlockLimit(t *testing.T) {
	for _, tc := range []struct {
		name string
		make func() *lab
		want []string
	}{
		{"nineteen blocks", func() *lab { return oneNode(32, 19) }, nil},
		{"twenty, all full", func() *lab { return oneNode(32, 20) }, []string{"high Node/n1"}},
		{"nineteen and an affinity that has no block yet", func() *lab {
			l := oneNode(32, 19)
			l.affinity("10.0.9.0/32", "n1", ipam.StateConfirmed, 0)
			return l
		}, []string{"high Node/n1"}},
		{"twenty of a disabled pool", func() *lab { l := oneNode(32, 20); l.Pools[0].Disabled = true; return l }, nil},
		{"twenty in two pools that serve it", func() *lab {
			l := oneNode(32, 10)
			l.pool("q", "10.1.0.0/24", 32)
			for i := range 10 {
				l.block(fmt.Sprintf("10.1.0.%d/32", i), "n1")
				l.pod("n1", fmt.Sprintf("10.1.0.%d", i))
			}
			return l
		}, []string{"high Node/n1"}},
		{"twenty of a pool that pods are pinned to", func() *lab {
			l := oneNode(32, 20)
			l.Pools[0].NodeSelector = "!all()"
			l.pool("q", "10.1.0.0/16", 26)
			return l
		}, []string{"high Node/n1"}},
		{"per family: ten of each", func() *lab {
			l := oneNode(32, 10)
			l.pool("six", "fd00::/64", 128)
			for i := range 10 {
				l.block(fmt.Sprintf("fd00::%d/128", i), "n1")
			}
			return l
		}, nil},
		{"an empty one among them", func() *lab {
			l := oneNode(29, 20)
			l.MaxPods(300)
			l.leak(8)
			l.Blocks[19].Slots, l.Blocks[19].Attributes = nil, nil
			return l
		}, []string{"medium Node/n1"}},
		{"limit one, half full", func() *lab {
			l := oneNode(26, 0)
			l.Config = ipam.Config{StrictAffinity: true, AutoAllocateBlocks: true, MaxBlocksPerHost: 1}
			l.block("10.0.0.0/26", "n1")
			l.fill("10.0.0.0/26", "n1", 30)
			return l
		}, []string{"low Node/n1"}},
		{"limit two, and they hold all that kubelet allows", func() *lab {
			l := oneNode(26, 1)
			l.Config = ipam.Config{StrictAffinity: true, AutoAllocateBlocks: true, MaxBlocksPerHost: 2}
			l.block("10.0.0.64/26", "n1")
			l.fill("10.0.0.64/26", "n1", 60)
			l.MaxPods(128)
			return l
		}, nil},
		{"full, and kubelet is full, too", func() *lab { l := oneNode(32, 20); l.MaxPods(20); return l }, nil},
		{"full, kubelet is full, and a pod waits", func() *lab { l := oneNode(32, 20); l.MaxPods(20); l.pod("n1", "").Phase = "Pending"; return l }, []string{"high Node/n1"}},
		{"full and cordoned", func() *lab { l := oneNode(32, 20); l.Nodes[0].Unschedulable = true; return l }, []string{"medium Node/n1"}},
	} {
		want(t, tc.name, tc.make().run(nodeBlockLimit()), tc.want...)
	}
}

// MaxPods sets kubelet's maximum everywhere.
func (l *lab) MaxPods(n int) {
	for i := range l.Nodes {
		l.Nodes[i].MaxPods = n
	}
}

// Where leaks are the cause the limit stays as it is.
func TestNodeBlockLimitRemedy(t *testing.T) {
	raises := func(text string) bool {
		return strings.Contains(text, `"maxBlocksPerHost":`) || strings.Contains(text, "max-blocks-per-host")
	}
	l := oneNode(32, 20)
	l.Config.StrictAffinity = true
	if text := commandText(l.run(nodeBlockLimit()).Findings[0].Remediation); !raises(text) {
		t.Errorf("all in use: the limit may be raised:\n%s", text)
	}
	l = oneNode(32, 20)
	if text := commandText(l.run(nodeBlockLimit()).Findings[0].Remediation); raises(text) {
		t.Errorf("Calico accepts a limit together with strict affinity only:\n%s", text)
	}
	l = oneNode(32, 20)
	l.Config.StrictAffinity = true
	l.leak(10)
	if steps := l.run(nodeBlockLimit()).Findings[0].Remediation; raises(commandText(steps)) || !strings.Contains(steps[0].Title, "leaked-ips") {
		t.Errorf("half are leaks:\n%+v", steps)
	}
	l.Coverage.Set(ipam.ResPods, ipam.Forbidden, 0, "")
	if out := l.run(nodeBlockLimit()); len(out.Unseen) == 0 || raises(commandText(out.Findings[0].Remediation)) {
		t.Errorf("pods not read: %+v", out.Unseen)
	}
	for version, flag := range map[string]string{"v3.30.0": "--max-blocks-per-host=21", "v3.29.9": "kubectl patch ipamconfigs"} {
		l := oneNode(32, 20)
		l.MaxPods(21)
		l.Config.StrictAffinity = true
		l.Info.Version = ipam.ParseVersion(version)
		if text := commandText(l.run(nodeBlockLimit()).Findings[0].Remediation); !strings.Contains(text, flag) {
			t.Errorf("%s: no %q in\n%s", version, flag, text)
		}
	}
}

func TestNodeCapacity(t *testing.T) {
	for _, tc := range []struct {
		name string
		make func() *lab
		want []string
	}{
		{"64 × 20", func() *lab { return oneNode(26, 1) }, nil},
		{"1 × 20, little used", func() *lab { return oneNode(32, 3) }, []string{"low IPPool/p"}},
		{"1 × 20, sixteen used", func() *lab { return oneNode(32, 16) }, []string{"high IPPool/p"}},
		{"1 × 20, fifteen used", func() *lab { return oneNode(32, 15) }, []string{"low IPPool/p"}},
		{"8 × 20 holds what kubelet allows", func() *lab { return oneNode(29, 3) }, nil},
		{"64 × 2 = 128 for 127 pods", func() *lab {
			l := oneNode(26, 1)
			l.Config.MaxBlocksPerHost = 2
			l.MaxPods(127)
			return l
		}, nil},
		{"64 × 2 = 128 for 128 pods and a tunnel", func() *lab {
			l := oneNode(26, 1)
			l.Config.MaxBlocksPerHost = 2
			l.MaxPods(128)
			l.Nodes[0].Tunnels = []ipam.TunnelAddress{{Kind: "vxlan", IP: mustPrefix("10.0.0.9/32").Addr()}}
			return l
		}, []string{"low IPPool/p"}},
		{"of 33 pods one is on the host's network", func() *lab {
			l := oneNode(27, 1)
			l.Config.MaxBlocksPerHost = 1
			l.MaxPods(33)
			for _, n := range []string{"n1", "n2"} {
				l.Pods = append(l.Pods, ipam.Pod{Namespace: "kube-system", Name: "calico-node-" + n, NodeName: n, HostNetwork: true, Phase: "Running"})
			}
			return l
		}, nil},
		{"Windows keeps four of each block", func() *lab {
			l := oneNode(26, 0)
			l.Config.MaxBlocksPerHost = 1
			l.MaxPods(61)
			l.Nodes[0].Windows = true
			return l
		}, []string{"low IPPool/p"}},
		{"a second pool with larger blocks serves the node as well", func() *lab { l := oneNode(32, 3); l.pool("q", "10.1.0.0/16", 26); return l }, nil},
		{"leaks, not the ceiling, keep the pod waiting", func() *lab {
			l := oneNode(32, 20)
			l.leak(15)
			l.pod("n1", "").Phase = "Pending"
			return l
		}, []string{"low IPPool/p"}},
		{"a pod waits at the ceiling", func() *lab {
			l := oneNode(32, 20)
			l.leak(8)
			l.pod("n1", "").Phase = "Pending"
			return l
		}, []string{"high IPPool/p"}},
		{"both families fall short", func() *lab { l := oneNode(32, 3); l.pool("six", "fd00::/64", 128); return l }, []string{"low IPPool/p", "low IPPool/six"}},
		{"fixed addresses only", func() *lab { l := oneNode(32, 3); l.Pools[0].NodeSelector = "!all()"; return l }, nil},
	} {
		want(t, tc.name, tc.make().run(nodeCapacity()), tc.want...)
	}
	l := oneNode(26, 1)
	l.MaxPods(0)
	if out := l.run(nodeCapacity()); out.Status != StatusUnknown {
		t.Errorf("kubelet's maximum is not known: %s", out.Status)
	}
}

// A finding never asks for a lower block limit than the one in force, whatever
// the node needs.
func TestBlockLimitOnlyRises(t *testing.T) {
	pool := &ipam.Pool{Name: "p", CIDR: netip.MustParsePrefix("10.0.0.0/16"), BlockSize: 26}
	number := regexp.MustCompile(`(?:maxBlocksPerHost":|max-blocks-per-host=)(\d+)`)
	for _, limit := range []int{0, 1, 4, 20, 30, 255} {
		for _, need := range []int{0, 1, 110, 5000} {
			for _, version := range []string{"v3.17.0", "v3.30.0"} {
				cfg := ipam.Config{StrictAffinity: true, MaxBlocksPerHost: limit}
				found := 0
				for _, s := range roomPerNodeSteps(commands{version: ipam.ParseVersion(version), group: "crd.projectcalico.org"}, cfg, pool, need) {
					for _, m := range number.FindAllStringSubmatch(strings.Join(s.Commands, "\n"), -1) {
						found++
						if n, _ := strconv.Atoi(m[1]); n <= cfg.BlockLimit() {
							t.Errorf("%s: limit %d, %d addresses needed: asks for %d", version, limit, need, n)
						}
					}
				}
				if found != 1 {
					t.Errorf("%s: limit %d, %d addresses needed: %d commands", version, limit, need, found)
				}
			}
		}
	}
}
