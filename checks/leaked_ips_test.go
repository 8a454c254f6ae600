package checks

import (
	"net/netip"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"ipamaudit/ipam"
)

// leakLab is a roomy cluster of two nodes with a block and a few pods each.
func leakLab() *lab {
	l := newLab(2)
	l.pool("p", "10.0.0.0/16", 26)
	l.block("10.0.0.0/26", "n1")
	l.block("10.0.0.64/26", "n2")
	l.fill("10.0.0.0/26", "n1", 3)
	l.fill("10.0.0.64/26", "n2", 3)
	return l
}

// bookPod books an address for a pod that need not exist.
func (l *lab) bookPod(ip, node, pod string, age time.Duration) {
	at := ipam.Attribute{Handle: "k8s-pod-network.h" + ip, Namespace: "app", Pod: pod, Node: node}
	if age > 0 {
		at.Timestamp = labNow.Add(-age)
	}
	l.book(ip, at)
}

const longAgo = 48 * time.Hour

func TestLeakedIPs(t *testing.T) {
	for _, tc := range []struct {
		name  string
		build func(*lab)
		want  []string
	}{
		{"healthy", func(*lab) {}, nil},
		{"one pod gone", func(l *lab) { l.bookPod("10.0.0.9", "n1", "gone", longAgo) }, []string{"low Node/n1"}},
		{"two pods gone", func(l *lab) {
			l.bookPod("10.0.0.9", "n1", "gone", longAgo)
			l.bookPod("10.0.0.10", "n1", "gone2", longAgo)
		}, []string{"medium Node/n1"}},
		{"one on each node", func(l *lab) {
			l.bookPod("10.0.0.9", "n1", "gone", longAgo)
			l.bookPod("10.0.0.70", "n2", "gone2", longAgo)
		}, []string{"low Node/n1", "low Node/n2"}},
		{"gone for minutes", func(l *lab) { l.bookPod("10.0.0.9", "n1", "gone", 19*time.Minute) }, nil},
		{"no time recorded, in an old block", func(l *lab) { l.bookPod("10.0.0.9", "n1", "gone", 0) }, []string{"low Node/n1"}},
		{"no time recorded, in a new block", func(l *lab) {
			l.block("10.0.1.0/26", "n1").Created = labNow.Add(-5 * time.Minute)
			l.bookPod("10.0.1.9", "n1", "gone", 0)
		}, nil},
		{"no time recorded, with a new handle", func(l *lab) {
			l.bookPod("10.0.0.9", "n1", "gone", 0)
			l.Handles = []ipam.Handle{{Name: "k8s-pod-network.h10.0.0.9", ID: "k8s-pod-network.h10.0.0.9", Created: labNow.Add(-time.Minute)}}
		}, nil},
		{"finished", func(l *lab) { l.pod("n1", "10.0.0.9").Phase = "Succeeded" }, []string{"low Node/n1"}},
		{"finished a minute ago", func(l *lab) {
			p := l.pod("n1", "10.0.0.9")
			p.Phase, p.Ended = "Succeeded", labNow.Add(-time.Minute)
		}, nil},
		{"finished, and its address is another pod's", func(l *lab) {
			l.pod("n1", "10.0.0.9")
			l.Pods = append(l.Pods, ipam.Pod{Namespace: "app", Name: "job", NodeName: "n1", Phase: "Failed", StatusIPs: []netip.Addr{netip.MustParseAddr("10.0.0.9")}})
		}, nil},
		{"the record names a pod that is gone, another runs with it", func(l *lab) {
			l.bookPod("10.0.0.9", "n1", "gone", longAgo)
			l.Pods = append(l.Pods, ipam.Pod{Namespace: "app", Name: "q", NodeName: "n1", Phase: "Running", StatusIPs: []netip.Addr{netip.MustParseAddr("10.0.0.9")}})
		}, nil},
		{"a pod being deleted that still has its network", func(l *lab) { l.pod("n1", "10.0.0.9").Deleting = true }, nil},
		{"one record too many of a live pod", func(l *lab) { l.bookPod("10.0.0.9", "n1", "p1", longAgo) }, nil},
		{"five records too many of a live pod", func(l *lab) {
			for _, ip := range []string{"10.0.0.9", "10.0.0.10", "10.0.0.11", "10.0.0.12", "10.0.0.13"} {
				l.bookPod(ip, "n1", "p1", longAgo)
			}
		}, []string{"medium Node/n1"}},
		{"the pod was recreated on the other node", func(l *lab) { l.bookPod("10.0.0.70", "n2", "p1", longAgo) }, []string{"low Node/n2"}},
		{"the pod was recreated on the other node just now", func(l *lab) {
			l.bookPod("10.0.0.70", "n2", "p1", longAgo)
			l.Pods[0].Created = labNow.Add(-time.Minute)
		}, nil},
		{"four records of a waiting pod", func(l *lab) {
			p := l.pod("n1", "")
			p.Phase = "Pending"
			name := p.Name
			for _, ip := range []string{"10.0.0.9", "10.0.0.10", "10.0.0.11", "10.0.0.12"} {
				l.bookPod(ip, "n1", name, longAgo)
			}
		}, nil},
		{"six records of a waiting pod, four of them old", func(l *lab) {
			p := l.pod("n1", "")
			p.Phase = "Pending"
			name := p.Name
			for i, ip := range []string{"10.0.0.9", "10.0.0.10", "10.0.0.11", "10.0.0.12", "10.0.0.13", "10.0.0.14"} {
				l.bookPod(ip, "n1", name, map[bool]time.Duration{true: longAgo, false: time.Minute}[i < 4])
			}
		}, nil},
		{"a pod waits for the address", func(l *lab) {
			l.bookPod("10.0.0.70", "n2", "gone", longAgo)
			p := l.pod("n1", "")
			p.Phase, p.RequestedIPs = "Pending", []netip.Addr{netip.MustParseAddr("10.0.0.70")}
		}, []string{"high Node/n2"}},
		{"the node is at its block limit", func(l *lab) {
			l.Config.StrictAffinity, l.Config.MaxBlocksPerHost = true, 1
			l.bookPod("10.0.0.9", "n1", "gone", longAgo)
			l.bookPod("10.0.0.10", "n1", "gone-too", longAgo)
		}, []string{"high Node/n1"}},
		{"the pool has no block left", func(l *lab) {
			l.Pools[0].CIDR = netip.MustParsePrefix("10.0.0.0/25")
			l.bookPod("10.0.0.9", "n1", "gone", longAgo)
			l.bookPod("10.0.0.10", "n1", "gone-too", longAgo)
		}, []string{"high Node/n1"}},
		{"the pool has no block left, and one address would change nothing", func(l *lab) {
			l.Pools[0].CIDR = netip.MustParsePrefix("10.0.0.0/25")
			l.bookPod("10.0.0.9", "n1", "gone", longAgo)
		}, []string{"low Node/n1"}},
		{"booked by hand", func(l *lab) {
			l.book("10.0.0.9", ipam.Attribute{})
			l.book("10.0.0.10", ipam.Attribute{Handle: "mine"})
		}, nil},
		{"a stopped virtual machine", func(l *lab) {
			l.book("10.0.0.9", ipam.Attribute{Handle: "k8s-pod-network.app-vm", Namespace: "app", Pod: "virt-launcher-vm-x", Node: "n1", VMI: "vm", Timestamp: labNow.Add(-longAgo)})
		}, nil},
		{"reserved by Windows", func(l *lab) { l.book("10.0.0.9", ipam.Attribute{Handle: "windows-reserved-ipam-handle"}) }, nil},
		{"a Service's address", func(l *lab) {
			b := l.block("10.0.1.0/26", "")
			b.Owner = ipam.Owner{Type: "virtual", Name: "load-balancer"}
			l.book("10.0.1.0", ipam.Attribute{Handle: "lb-abc", Type: "LoadBalancer", Namespace: "app"})
		}, nil},
		{"cooling down", func(l *lab) { l.book("10.0.0.9", ipam.Attribute{ReleasedAt: labNow.Add(-time.Minute)}) }, nil},
		{"an IPv6 tunnel of a live node", func(l *lab) {
			l.pool("six", "fd00::/64", 122)
			l.block("fd00::/122", "n1")
			l.book("fd00::1", ipam.Attribute{Handle: "vxlan-v6-tunnel-addr-n1", Node: "n1", Type: "vxlanV6TunnelAddress"})
		}, nil},
		{"IPv6 that status does not list, same handle", func(l *lab) {
			l.pool("six", "fd00::/64", 122)
			l.block("fd00::/122", "n1")
			l.book("fd00::1", ipam.Attribute{Handle: "k8s-pod-network.p1", Namespace: "app", Pod: "p1", Node: "n1", Timestamp: labNow.Add(-longAgo)})
		}, nil},
		{"IPv6, pod gone", func(l *lab) {
			l.pool("six", "fd00::/64", 122)
			l.block("fd00::/122", "n1")
			l.bookPod("fd00::1", "n1", "gone", longAgo)
		}, []string{"low Node/n1"}},
		{"in the block of a node that is gone: orphan-affinities", func(l *lab) {
			l.block("10.0.1.0/26", "gone")
			l.bookPod("10.0.1.1", "gone", "x", longAgo)
			l.bookPod("10.0.1.2", "n1", "y", longAgo)
		}, nil},
		{"recorded for a node that is gone, in n1's block", func(l *lab) { l.bookPod("10.0.0.9", "gone", "x", longAgo) }, []string{"low Node/n1"}},
		{"a node under flannel migration", func(l *lab) { l.Nodes[0].FlannelMigration = true; l.bookPod("10.0.0.9", "n1", "gone", longAgo) }, nil},
		{"the pod's object could not be read", func(l *lab) {
			l.bookPod("10.0.0.9", "n1", "odd", longAgo)
			l.Rejected = []ipam.ObjectError{{Kind: "Pod", Name: "app/odd", Message: "broken"}}
		}, nil},
	} {
		l := leakLab()
		tc.build(l)
		out := l.run(leakedIPs())
		want(t, tc.name, out, tc.want...)
		for _, f := range out.Findings {
			if f.Evidence != Inferred {
				t.Errorf("%s: one look proves nothing, yet it is %s", tc.name, f.Evidence)
			}
		}
	}
}

func TestLeakedIPsUnread(t *testing.T) {
	for _, r := range []ipam.Resource{ipam.ResBlocks, ipam.ResPods, ipam.ResNodes} {
		for _, status := range []ipam.ReadStatus{ipam.Forbidden, ipam.Failed, ipam.Absent, ipam.Missing} {
			l := leakLab()
			l.bookPod("10.0.0.9", "n1", "gone", longAgo)
			l.Coverage.Set(r, status, 0, "")
			if out := l.run(leakedIPs()); out.Status == StatusOK || out.Status == StatusFindings {
				t.Errorf("%s %s: %s", r, status, out.Status)
			}
		}
	}
}

// What leaks is stopped first, releasing by hand comes last, and calicoctl's
// report is not trusted where it would free what is in use.
func TestLeakedIPsRemediation(t *testing.T) {
	commandsOf := func(l *lab) string {
		out := l.run(leakedIPs())
		if len(out.Findings) == 0 {
			t.Fatal("nothing found")
		}
		var b strings.Builder
		for _, s := range out.Findings[0].Remediation {
			b.WriteString(strings.Join(s.Commands, "\n") + "\n")
		}
		return b.String()
	}
	l := leakLab()
	l.Workloads = []ipam.Workload{{Kind: "Deployment", Namespace: "calico-system", Name: "calico-kube-controllers", Desired: 1, Available: 1}}
	l.bookPod("10.0.0.9", "n1", "gone", longAgo)
	text := commandsOf(l)
	restart, lock, report, unlock := strings.Index(text, "rollout restart"), strings.Index(text, "migrate lock"), strings.Index(text, "--from-report"), strings.Index(text, "migrate unlock")
	if restart < 0 || lock < restart || report < lock || unlock < report {
		t.Errorf("order: restart %d, lock %d, release %d, unlock %d in\n%s", restart, lock, report, unlock, text)
	}
	for name, build := range map[string]func(*lab){
		"an IPv6 tunnel": func(l *lab) {
			l.book("fd00::1", ipam.Attribute{Handle: "vxlan-v6-tunnel-addr-n1", Node: "n1", Type: "vxlanV6TunnelAddress"})
		},
		"a record by hand": func(l *lab) { l.book("10.0.0.20", ipam.Attribute{Handle: "mine"}) },
		"a stopped VM": func(l *lab) {
			l.book("10.0.0.20", ipam.Attribute{Handle: "h", Namespace: "app", Pod: "v", Node: "n1", VMI: "vm"})
		},
		"IPv6 missing in status": func(l *lab) {
			l.book("fd00::1", ipam.Attribute{Handle: "k8s-pod-network.p1", Namespace: "app", Pod: "p1", Node: "n1"})
		},
		"an old calicoctl": func(l *lab) { l.Info.Version = ipam.ParseVersion("v3.14.2") },
	} {
		l := leakLab()
		l.pool("six", "fd00::/64", 122)
		l.block("fd00::/122", "n1")
		l.bookPod("10.0.0.9", "n1", "gone", longAgo)
		build(l)
		text := commandsOf(l)
		if strings.Contains(text, "--from-report") || !strings.Contains(text, "\nrelease 10.0.0.9") {
			t.Errorf("with %s:\n%s", name, text)
		}
		if look, release := strings.Index(text, "grep -wF"), strings.Index(text, "ipam release --ip"); look < 0 || release < look {
			t.Errorf("with %s: released before anybody looked:\n%s", name, text)
		}
	}

	l = leakLab()
	p := l.pod("n1", "")
	p.Phase = "Pending"
	for _, ip := range []string{"10.0.0.9", "10.0.0.10", "10.0.0.11", "10.0.0.12", "10.0.0.13"} {
		l.bookPod(ip, "n1", p.Name, longAgo)
	}
	text = commandsOf(l)
	if describe, del := strings.Index(text, "describe pod"), strings.Index(text, "delete pod"); describe < 0 || del < describe {
		t.Errorf("the source is not stopped first:\n%s", text)
	}

	l = leakLab()
	l.Info.Ready = false
	l.bookPod("10.0.0.9", "n1", "gone", longAgo)
	if text := commandsOf(l); !strings.HasPrefix(text, "kubectl get clusterinformations") {
		t.Errorf("with a locked datastore the lock comes first:\n%s", text)
	}
}

// An address is only released by a shell that has just seen that it is booked
// for a pod or a tunnel, and that nothing uses it; a pod that asks for it does
// not use it.
func TestReleaseIsGuarded(t *testing.T) {
	const (
		record = "IP 10.0.0.7 is in use\\nHandle ID: k8s-pod-network.c0ffee\\nActive Owner Attributes:\\n  namespace: shop\\n  node: n1\\n"
		ofPod  = `printf '` + record + `  pod: web-0\n'`
		unused = `case "$*" in *" pods "*ipAddrs*|*" pods "*"annotations}"*) echo '["10.0.0.7"]';; *) echo 10.0.0.77 110.0.0.7 fd00::7;; esac`
	)
	for _, tc := range []struct {
		name, kubectl, show string
		released            bool
	}{
		{"nothing uses it", unused, ofPod, true},
		{"a tunnel of a node that is gone", unused, `printf '` + record + `  type: vxlanTunnelAddress\n'`, true},
		{"an old calicoctl prints the record on one line", unused, `echo 'Attributes: map[namespace:shop node:n1 pod:web-0]'`, true},
		{"a pod has it", `case "$*" in *" pods "*) echo 10.0.0.6 10.0.0.7;; esac`, ofPod, false},
		{"a node's tunnel has it", `case "$*" in *nodes*) echo 'projectcalico.org/IPv4VXLANTunnelAddr: 10.0.0.7';; esac`, ofPod, false},
		{"a Service has it", `case "$*" in *services*) echo '- ip: 10.0.0.7';; esac`, ofPod, false},
		{"the API server does not answer for pods", `case "$*" in *" pods "*) return 1;; esac`, ofPod, false},
		{"the API server does not answer for nodes", `case "$*" in *nodes*) return 1;; esac`, ofPod, false},
		{"calicoctl does not answer", unused, "return 1", false},
		{"it is not assigned", unused, "echo 10.0.0.7 is not assigned", false},
		{"Windows reserves it", unused, `printf 'IP 10.0.0.7 is in use\nHandle ID: windows-reserved-ipam-handle\nActive Owner Attributes:\n  note: windows host rsvd\n'`, false},
		{"it is a Service's", unused, `printf 'Active Owner Attributes:\n  namespace: shop\n  service: front\n  type: loadBalancer\n'`, false},
		{"it is kept for a virtual machine", unused, ofPod + `; printf '  vmi-name: vm\n'`, false},
		{"it was booked by hand", unused, `echo 'No Active Owner attributes defined'`, false},
		{"an old record without a pod", unused, `echo 'Attributes: map[namespace: node:n1 pod:]'`, false},
	} {
		script := "kubectl() { " + tc.kubectl + "\n}\ncalicoctl() { case \"$2\" in show) " + tc.show + ";; *) echo \"calicoctl $*\";; esac; }\n" + exampleCommands().releaseFunction() + "\nrelease 10.0.0.7\n"
		out, err := exec.Command("bash", "-euo", "pipefail", "-c", script).CombinedOutput()
		want := "not released: 10.0.0.7\n"
		if tc.released {
			want = "calicoctl ipam release --ip=10.0.0.7\n"
		}
		if err != nil || string(out) != want {
			t.Errorf("%s: %v, %q, want %q", tc.name, err, out, want)
		}
	}
}

// A command of a page that would take a guess for a setting runs only when the
// reader has set it: a pool without the old one's encapsulation cuts its pods
// off, and a lower limit stops pods that start today.
func TestPagesGuessNoSettings(t *testing.T) {
	guess := regexp.MustCompile(`(ipipMode|vxlanMode|natOutgoing|blockSize): [A-Za-z0-9]|maxBlocksPerHost":[1-9]|max-blocks-per-host=[0-9]`)
	for _, c := range All() {
		if g := guess.FindString(c.Markdown()); g != "" {
			t.Errorf("%s: the page guesses %q", c.ID, g)
		}
	}
	c := exampleCommands()
	set := strings.NewReplacer("NEW_CIDR= ", "NEW_CIDR=10.9.0.0/16 ", "BLOCK_SIZE= ", "BLOCK_SIZE=26 ", "IPIP_MODE= ", "IPIP_MODE=Always ", "VXLAN_MODE= ", "VXLAN_MODE=Never ",
		"NAT_OUTGOING= ", "NAT_OUTGOING=true ", "NODE_SELECTOR= ", `NODE_SELECTOR="zone == 'a'" `, "BLOCKS_PER_NODE= ", "BLOCKS_PER_NODE=40 ")
	for _, tc := range []struct {
		cmds []string
		want string
	}{
		{c.addPool(nil), "vxlanMode: Never\n  natOutgoing: true\n  nodeSelector: >-\n    zone == 'a'\n"},
		{c.blockLimitToSet(), `{"spec":{"maxBlocksPerHost":40}}`},
	} {
		for _, filled := range []bool{false, true} {
			script := strings.Join(tc.cmds, "\n")
			if filled {
				script = set.Replace(script)
			}
			out, err := exec.Command("bash", "-c", "kubectl() { [ $1 = get ] || echo \"ran: $*\"; }\ncalicoctl() { echo \"ran: $*\"; cat; }\n"+script).CombinedOutput()
			if ran := strings.Contains(string(out), "ran: "); ran != filled || (err == nil) != filled || filled && !strings.Contains(string(out), tc.want) {
				t.Errorf("values set: %v, %v:\n%s\n%s", filled, err, script, out)
			}
		}
	}
}
