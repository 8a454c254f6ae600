package checks

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"ipamaudit/ipam"
)

const kubelet = `Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox "4cdb603019c0": plugin type="calico" failed (add): `

// stuck adds a pod that waits on n1 and an event with the text, age old.
func (l *lab) stuck(text string, age time.Duration) *ipam.Pod {
	p := l.pod("n1", "")
	p.Phase, p.Waiting = "Pending", "ContainerCreating"
	l.event(p.Name, text, age, 40)
	return p
}

func (l *lab) event(pod, text string, age time.Duration, n int) {
	l.Events = append(l.Events, ipam.Event{Namespace: "app", Kind: "Pod", Name: pod, Reason: "FailedCreatePodSandBox", Message: kubelet + text, Count: n, Last: labNow.Add(-age)})
}

// Every literal text has its cause, its words and its steps.
func TestStuckTexts(t *testing.T) {
	for text, id := range map[string]string{
		"cannot allocate new block due to per host block limit":                                                                                  "block-limit",
		"Need to allocate an IPAM block but could not - limit of 20 blocks reached for this node":                                                "block-limit",
		"failed to request IPv4 addresses: Assigned 0 out of 1 requested IPv4 addresses; No more free affine blocks and strict affinity enabled": "strict",
		"failed to request IPv6 addresses: Assigned 0 out of 1 requested IPv6 addresses; No IPs available in pools: [fd00::/64]":                 "exhausted",
		"failed to request 1 IPv4 addresses. IPAM allocated only 0":                                                                              "exhausted",
		`Unable to autoassign an address - pools are likely exhausted. type="ipipTunnelAddress"`:                                                 "exhausted",
		"failed to find or claim a block":                                                                       "auto-allocate",
		"cannot find a qualified ippool, no pools match the required use (Workload)":                            "no-pool",
		"no configured Calico pools for node n1":                                                                "no-pool",
		"IP assignment error: No configured Calico pools.":                                                      "no-pool",
		"the given pool (10.9.0.0/16) does not exist, or is not enabled":                                        "no-pool",
		"error getting IP from IPAM: resource already exists: 10.0.0.0":                                         "address-taken",
		"Failed to assign address fd00::1: resource already exists: fd00::1: Address already assigned in block": "address-taken",
		"Failed to assign address 10.0.0.70: Block host affinity does not match":                                "foreign-block",
		"Attempt to assign from block 10.0.0.64/26 with no affinity":                                            "foreign-block",
		"The provided IP address is not in a configured pool\n":                                                 "foreign-address",
		"error adding host side routes for interface: cali1, error: route (Ifindex: 9, Dst: 10.0.0.0/32, Scope: link) already exists for an interface other than 'cali1'": "host-route",
		"error adding host side routes for interface: xxx, error: failed to add route file exists":                                                                        "host-route",
		"Calico is currently not ready to process requests":                                                                                                               "locked",
		"Max retries hit - excessive concurrent IPAM requests":                                                                                                            "contention",
		"global strict affinity should not be false for Windows node":                                                                                                     "windows-strict",
		`connection is unauthorized: ipamconfigs.crd.projectcalico.org "default" is forbidden`:                                                                            "rights",
		"resource does not exist: Node(nosuch) with error: nodes \"nosuch\" not found":                                                                                    "no-node",
		"live migration target pod is not allowed when KubeVirtVMAddressPersistence is disabled":                                                                          "vm-persistence",
		"failed to allocate for range 0: no IP addresses available in range set: 10.42.5.1-10.42.5.254":                                                                   "host-local",
	} {
		cause := causeOf(stuckCauses(), kubelet+text)
		if cause == nil || cause.id != id {
			t.Errorf("%s: %v, want %s", text, cause, id)
			continue
		}
		l := leakLab()
		l.stuck(text, time.Minute)
		out := l.run(stuckPods())
		want(t, id, out, "high Node/n1")
		for _, s := range out.Findings[0].Remediation {
			if len(s.Commands) == 0 || s.Verify == "" {
				t.Errorf("%s: %+v", id, s)
			}
			if id == "host-local" && strings.Contains(strings.Join(s.Commands, "\n"), "calicoctl") {
				t.Errorf("Calico commands for host-local: %+v", s)
			}
		}
	}
	for _, noise := range []string{
		"Error updating resource Key=IPAMBlock(10-1-90-192-26)", "resource already exists: BlockKey(cidr=10.123.84.64/26)",
		"MountVolume.SetUp failed for volume \"config\"", "Failed to pull image", "",
	} {
		if c := causeOf(stuckCauses(), noise); c != nil {
			t.Errorf("%q is %s", noise, c.id)
		}
	}
}

func TestStuckPods(t *testing.T) {
	const limit = "cannot allocate new block due to per host block limit"
	for _, tc := range []struct {
		name  string
		build func(*lab)
		want  []string
	}{
		{"healthy", func(*lab) {}, nil},
		{"waits", func(l *lab) { l.stuck(limit, time.Minute) }, []string{"high Node/n1"}},
		{"waits for a minute only", func(l *lab) {
			l.stuck(limit, 0).Created = labNow.Add(-time.Minute)
			l.Pods[len(l.Pods)-1].Started = time.Time{}
		}, nil},
		{"waits without a text", func(l *lab) { l.stuck("", time.Minute) }, nil},
		{"waits for an image, the network has failed once", func(l *lab) { l.stuck(limit, 20*time.Minute).Waiting = "ImagePullBackOff" }, nil},
		{"the error is an hour old", func(l *lab) { l.stuck(limit, time.Hour) }, nil},
		{"the event is an earlier pod's", func(l *lab) { l.stuck(limit, 20*time.Minute).Created = labNow.Add(-10 * time.Minute) }, nil},
		{"a newer event speaks of something else", func(l *lab) {
			name := l.stuck(limit, 10*time.Minute).Name
			l.event(name, "error reading kubelet's configuration", time.Minute, 5)
		}, nil},
		{"it runs by now", func(l *lab) { l.pod("n1", "10.0.0.9"); l.event("p7", limit, time.Minute, 1) }, nil},
		{"its container crashes, the network has failed once", func(l *lab) {
			l.pod("n1", "10.0.0.9").Waiting = "CrashLoopBackOff"
			l.event("p7", limit, 5*time.Minute, 1)
		}, nil},
		{"its new sandbox fails on and on", func(l *lab) {
			l.pod("n1", "10.0.0.9").Waiting = "ContainerCreating"
			l.event("p7", limit, time.Minute, 40)
		}, []string{"high Node/n1"}},
		{"not scheduled", func(l *lab) { l.stuck(limit, time.Minute).NodeName = "" }, nil},
		{"being deleted", func(l *lab) { l.stuck(limit, time.Minute).Deleting = true }, nil},
		{"two nodes", func(l *lab) { l.stuck(limit, time.Minute); l.stuck(limit, time.Minute).NodeName = "n2" }, []string{"high Node/n1", "high Node/n2"}},
		{"calico-node crashes for want of an address", func(l *lab) {
			l.Pods = append(l.Pods, ipam.Pod{Namespace: "kube-system", Name: "calico-node-1", NodeName: "n2", HostNetwork: true, Phase: "Running", App: "calico-node",
				Waiting: "CrashLoopBackOff", Message: "back-off 5m0s; Unable to autoassign an address - pools are likely exhausted.", Created: labNow.Add(-longAgo)})
		}, []string{"high Node/n2"}},
		{"calico-node crashes for another reason", func(l *lab) {
			l.Pods = append(l.Pods, ipam.Pod{Namespace: "kube-system", Name: "calico-node-1", NodeName: "n2", HostNetwork: true, Phase: "Running", App: "calico-node", Waiting: "CrashLoopBackOff", Message: "back-off 5m0s"})
		}, nil},
	} {
		l := leakLab()
		tc.build(l)
		want(t, tc.name, l.run(stuckPods()), tc.want...)
	}

	l := leakLab()
	l.stuck(limit, time.Minute)
	l.Events = nil
	l.Coverage.Set(ipam.ResEvents, ipam.Forbidden, 0, "")
	if out := l.run(stuckPods()); out.Status != StatusUnknown {
		t.Errorf("a pod waits and events were not read: %s", out.Status)
	}
	l = leakLab()
	l.Coverage.Set(ipam.ResEvents, ipam.Forbidden, 0, "")
	if out := l.run(stuckPods()); out.Status != StatusOK {
		t.Errorf("no pod waits: %s", out.Status)
	}
}

// Who has the address decides what is to be done: an address in use is never released.
func TestStuckOnAnAddress(t *testing.T) {
	const taken = "error getting IP from IPAM: resource already exists: 10.0.0.20"
	for _, tc := range []struct {
		name    string
		build   func(*lab)
		release bool
		detail  string
	}{
		{"a running pod", func(l *lab) { l.pod("n2", "10.0.0.20") }, false, "is used by pod app/p8 on n2"},
		{"a tunnel", func(l *lab) {
			l.Nodes[1].Tunnels = []ipam.TunnelAddress{{Kind: "ipip", IP: netip.MustParseAddr("10.0.0.20")}}
		}, false, "is the tunnel address of node n2"},
		{"a pod that is gone", func(l *lab) { l.bookPod("10.0.0.20", "n2", "gone", longAgo) }, true, "does not use it any more"},
		{"an earlier sandbox of the same pod", func(l *lab) { l.bookPod("10.0.0.20", "n1", "p7", longAgo) }, true, "earlier sandbox of the same pod"},
		{"booked by hand", func(l *lab) { l.book("10.0.0.20", ipam.Attribute{Handle: "mine"}) }, false, "booked without a pod"},
	} {
		l := leakLab()
		l.stuck(taken, time.Minute)
		tc.build(l)
		out := l.run(stuckPods())
		want(t, tc.name, out, "high Node/n1")
		f := out.Findings[0]
		var b strings.Builder
		for _, s := range f.Remediation {
			b.WriteString(strings.Join(s.Commands, "\n") + "\n")
		}
		if got := strings.Contains(b.String(), "\nrelease 10.0.0.20"); got != tc.release {
			t.Errorf("%s: releases the address: %v\n%s", tc.name, got, b.String())
		}
		if !strings.Contains(f.Detail, "10.0.0.20 ") || !strings.Contains(f.Detail, tc.detail) {
			t.Errorf("%s: %s", tc.name, f.Detail)
		}
	}
}

// More room is no cure for leaks: what leaks comes first.
func TestStuckByLeaks(t *testing.T) {
	l := leakLab()
	l.stuck("cannot allocate new block due to per host block limit", time.Minute)
	l.bookPod("10.0.0.20", "n1", "gone", longAgo)
	steps := l.run(stuckPods()).Findings[0].Remediation
	if len(steps) != 1 || !strings.Contains(steps[0].Title, "leaked-ips") {
		t.Errorf("%+v", steps)
	}
	l = leakLab()
	l.stuck("Assigned 0 out of 1 requested IPv4 addresses; No IPs available in pools: [10.0.0.0/16]", time.Minute)
	l.block("10.0.1.0/26", "gone")
	steps = l.run(stuckPods()).Findings[0].Remediation
	if !strings.Contains(steps[0].Title, "orphan-affinities") {
		t.Errorf("%+v", steps[0])
	}
}
