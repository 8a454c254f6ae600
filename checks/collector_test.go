package checks

import (
	"strings"
	"testing"
	"time"

	"ipamaudit/ipam"
)

func TestDatastoreLocked(t *testing.T) {
	waits := func(l *lab, age time.Duration) {
		p := l.pod("n1", "")
		p.Phase, p.Created = "Pending", labNow.Add(-age)
	}
	for _, tc := range []struct {
		name string
		make func(*lab)
		want []string
	}{
		{"open", func(l *lab) { l.Info.Ready = true; waits(l, time.Hour) }, nil},
		{"locked, nobody waits", func(l *lab) {}, []string{"medium Cluster/lab"}},
		{"locked, a pod waits", func(l *lab) { waits(l, time.Hour) }, []string{"critical Cluster/lab"}},
		{"locked, a pod has just been made", func(l *lab) { waits(l, 5*time.Second) }, []string{"medium Cluster/lab"}},
		{"locked, a pod's events say why", func(l *lab) {
			waits(l, 5*time.Second)
			l.Events = []ipam.Event{{Namespace: "app", Name: "p2", Message: `plugin type="calico" failed (add): ` + notReadyText}}
		}, []string{"critical Cluster/lab"}},
	} {
		l := newLab(1)
		l.Info.Ready = false
		l.pool("p", "10.0.0.0/16", 26)
		l.block("10.0.0.0/26", "n1")
		l.pod("n1", "10.0.0.1")
		tc.make(l)
		out := l.run(datastoreLocked())
		want(t, tc.name, out, tc.want...)
		for _, f := range out.Findings {
			if text := commandText(f.Remediation); !strings.Contains(text, "datastore migrate unlock") || strings.Contains(text, "migrate lock") || f.IfItStays != Critical {
				t.Errorf("%s: %q\n%s", tc.name, f.IfItStays, text)
			}
		}
	}
	l := newLab(1)
	l.pool("p", "10.0.0.0/16", 26)
	l.Coverage.Set(ipam.ResClusterInfo, ipam.Forbidden, 0, "")
	if out := l.run(datastoreLocked()); out.Status != StatusUnknown {
		t.Errorf("not read: %s", out.Status)
	}
}

// busy is a cluster with a collector and one pod on n1.
func busy() *lab {
	l := newLab(2)
	l.pool("p", "10.0.0.0/16", 26)
	l.block("10.0.0.0/26", "n1")
	l.pod("n1", "10.0.0.1")
	l.Workloads = []ipam.Workload{{Kind: "Deployment", Namespace: "calico-system", Name: "calico-kube-controllers", Desired: 1, Available: 1}}
	return l
}

// leaked books an address for a pod that does not exist.
func (l *lab) leaked(ip, node string, age time.Duration) {
	l.book(ip, ipam.Attribute{Handle: "k8s-pod-network.x" + ip, Namespace: "app", Pod: "gone-" + ip, Node: node, Timestamp: labNow.Add(-age)})
	l.Handles = append(l.Handles, ipam.Handle{ID: "k8s-pod-network.x" + ip})
}

func TestIPAMGC(t *testing.T) {
	const cluster = " Cluster/lab"
	for _, tc := range []struct {
		name string
		make func(*lab)
		want []string
	}{
		{"it runs and there is nothing to do", func(l *lab) {}, nil},
		{"absent", func(l *lab) { l.Workloads = nil }, []string{"medium" + cluster}},
		{"absent, and addresses leak", func(l *lab) { l.Workloads = nil; l.leaked("10.0.0.5", "n1", time.Hour) }, []string{"high" + cluster}},
		{"absent, and blocks of a deleted node remain", func(l *lab) { l.Workloads = nil; l.block("10.0.1.0/26", "gone") }, []string{"high" + cluster}},
		{"no Deployment, but its pod runs", func(l *lab) {
			l.Workloads = nil
			p := l.pod("n1", "10.0.0.9")
			p.App = "calico-kube-controllers"
		}, nil},
		{"scaled to zero", func(l *lab) { l.Workloads[0].Desired, l.Workloads[0].Available = 0, 0 }, []string{"medium" + cluster}},
		{"not available", func(l *lab) { l.Workloads[0].Available = 0 }, []string{"medium" + cluster}},
		{"away for two minutes, as an upgrade does it", func(l *lab) {
			l.Workloads[0].Available, l.Workloads[0].UnavailableSince = 0, labNow.Add(-2*time.Minute)
			l.leaked("10.0.0.5", "n1", 30*time.Minute)
		}, nil},
		{"away for two minutes, and it had stalled before", func(l *lab) {
			l.Workloads[0].Available, l.Workloads[0].UnavailableSince = 0, labNow.Add(-2*time.Minute)
			for _, ip := range []string{"10.0.0.5", "10.0.0.6", "10.0.0.7"} {
				l.leaked(ip, "n1", 2*time.Hour)
			}
		}, []string{"medium" + cluster}},
		{"away for an hour", func(l *lab) {
			l.Workloads[0].Available, l.Workloads[0].UnavailableSince = 0, labNow.Add(-time.Hour)
			l.leaked("10.0.0.5", "n1", 30*time.Minute)
		}, []string{"high" + cluster}},
		{"scaled to zero nodes: nothing is there to run it", func(l *lab) {
			l.Workloads[0].Available, l.Nodes, l.Pods = 0, nil, nil
		}, nil},
		{"grace 0", func(l *lab) { l.KubeCtrl = ipam.KubeControllers{Present: true} }, []string{"medium" + cluster}},
		{"without the node controller", func(l *lab) { l.Workloads[0].Env = map[string]string{"ENABLED_CONTROLLERS": "loadbalancer"} }, []string{"medium" + cluster}},
		{"with it", func(l *lab) { l.Workloads[0].Env = map[string]string{"ENABLED_CONTROLLERS": "loadbalancer, node"} }, nil},
		{"one leak of two hours", func(l *lab) { l.leaked("10.0.0.5", "n1", 2*time.Hour) }, []string{"low" + cluster}},
		{"three leaks of two hours", func(l *lab) {
			for _, ip := range []string{"10.0.0.5", "10.0.0.6", "10.0.0.7"} {
				l.leaked(ip, "n1", 2*time.Hour)
			}
		}, []string{"medium" + cluster}},
		{"a leak of five minutes", func(l *lab) { l.leaked("10.0.0.5", "n1", 5*time.Minute) }, nil},
		{"a leak without age", func(l *lab) {
			l.book("10.0.0.5", ipam.Attribute{Handle: "h", Namespace: "app", Pod: "gone", Node: "n1"})
		}, nil},
		{"a leak younger than a long grace", func(l *lab) {
			l.KubeCtrl.LeakGracePeriod = 2 * time.Hour
			l.leaked("10.0.0.5", "n1", 3*time.Hour)
		}, nil},
		{"its handle is missing: the collector takes it for released", func(l *lab) { l.leaked("10.0.0.5", "n1", 2*time.Hour); l.Handles = nil }, nil},
		{"a record without pod", func(l *lab) { l.book("10.0.0.5", ipam.Attribute{Timestamp: labNow.Add(-2 * time.Hour)}) }, nil},
		{"a finished pod", func(l *lab) { l.Pods[0].Phase = "Succeeded" }, nil},
		{"the datastore is locked", func(l *lab) { l.Info.Ready = false; l.leaked("10.0.0.5", "n1", 2*time.Hour) }, nil},
		{"a block of a deleted node", func(l *lab) {
			l.block("10.0.1.0/26", "gone")
			l.book("10.0.1.0", ipam.Attribute{Type: "vxlanTunnelAddress", Handle: "vxlan-tunnel-addr-gone", Node: "gone", Timestamp: labNow.Add(-90 * time.Minute)})
		}, []string{"medium" + cluster}},
		{"a block of a node that lived for minutes", func(l *lab) { l.block("10.0.1.0/26", "gone").Created = labNow.Add(-6 * time.Minute) }, nil},
		{"a deleted node of which a pod object remains", func(l *lab) { l.block("10.0.1.0/26", "gone"); l.pod("gone", "10.0.1.4") }, nil},
		{"a deleted node with a record of unknown source", func(l *lab) {
			l.block("10.0.1.0/26", "gone")
			l.book("10.0.1.4", ipam.Attribute{Handle: "manual", Node: "gone"})
		}, nil},
		{"the Calico name of a node that exists", func(l *lab) {
			l.block("10.0.1.0/26", "calico-n2")
			l.CalicoNodes = []ipam.CalicoNode{{Name: "calico-n2", KubernetesName: "n2"}}
		}, nil},
	} {
		l := busy()
		tc.make(l)
		want(t, tc.name, l.run(ipamGC()), tc.want...)
	}
	l := busy()
	l.leaked("10.0.0.5", "n1", 2*time.Hour)
	if f := l.run(ipamGC()).Findings[0]; f.Evidence != Inferred || !strings.Contains(commandText(f.Remediation), "kubectl -n calico-system rollout restart deployment calico-kube-controllers") {
		t.Errorf("%+v", f)
	}
	for _, r := range []ipam.Resource{ipam.ResDeployments, ipam.ResBlocks, ipam.ResNodes, ipam.ResPods} {
		l := busy()
		l.Coverage.Set(r, ipam.Forbidden, 0, "")
		if out := l.run(ipamGC()); out.Status != StatusUnknown {
			t.Errorf("without %s: %s", r, out.Status)
		}
	}
	// With addresses left behind, these tell whether that is a stall.
	for _, r := range []ipam.Resource{ipam.ResHandles, ipam.ResClusterInfo} {
		for _, status := range []ipam.ReadStatus{ipam.Forbidden, ipam.Failed} {
			l := busy()
			for _, ip := range []string{"10.0.0.5", "10.0.0.6", "10.0.0.7"} {
				l.leaked(ip, "n1", 2*time.Hour)
			}
			l.Coverage.Set(r, status, 0, "")
			if out := l.run(ipamGC()); out.Status != StatusUnknown || !strings.Contains(out.Reason, string(r)) {
				t.Errorf("without %s (%s): %s %s", r, status, out.Status, out.Reason)
			}
		}
	}
}
