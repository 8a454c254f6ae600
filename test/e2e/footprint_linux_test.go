package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"ipamaudit/test/bed"
)

// TestAgentFootprint runs the agent as the DaemonSet does, in a network
// namespace with as many real routes as a node of a cluster of 5,000 has, while
// pods come and go, and measures what docs/routes.md says that it costs.
func TestAgentFootprint(t *testing.T) {
	needs(t, "agent")
	bed.NeedsNamespace(t)
	c := bed.New(t, bed.Options{Name: "kubestage", Calico: bed.CalicoV1})
	pool := func(name, cidr string, blockSize int64) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": string(bed.CalicoV1), "kind": "IPPool", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"cidr": cidr, "blockSize": blockSize, "ipipMode": "Never", "vxlanMode": "Always", "nodeSelector": "all()"},
		}}
	}
	if err := c.Load(t.Context(), append(bed.Kubestage(bed.CalicoV1), pool("large", "10.128.0.0/9", 26), pool("large-v6", "fd00:10:128::/64", 122))); err != nil {
		t.Fatal(err)
	}
	manifests := render(t, "deploy/agent")
	if err := c.Apply(t.Context(), false, manifests...); err != nil {
		t.Fatal(err)
	}
	request, limit := agentMemory(t, manifests)
	token, _ := agentPod(t, c, "kubestage1001")
	admin, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		blocks, pods int
		dual         bool
	}{{20, 20, false}, {200, 110, false}, {20000, 110, false}, {20000, 110, true}} {
		t.Run(fmt.Sprintf("%d blocks and %d pods, dual stack %t", tc.blocks, tc.pods, tc.dual), func(t *testing.T) {
			ns := bed.NewNamespace(t)
			fill(t, ns, tc.blocks, tc.pods, tc.dual)
			account := c.As(token)
			account.Host = ns.Service(t, c)
			kc := kubeconfig(t, c.ContextAs(account))
			path, err := program()
			if err != nil {
				t.Fatal(err)
			}
			agent := exec.CommandContext(t.Context(), "ip", "netns", "exec", ns.Name, path, "agent", "--node", "kubestage1001", "--namespace", agentNamespace,
				"--kubeconfig", kc, "--poll", "1s", "--quiet", "1s", "--log-format", "text")
			agent.Env = []string{"HOME=" + t.TempDir(), "PATH=" + os.Getenv("PATH"), "GOMEMLIMIT=" + strconv.Itoa(limit)}
			var log bytes.Buffer
			agent.Stdout, agent.Stderr = &log, &log
			if err := agent.Start(); err != nil {
				t.Fatal(err)
			}
			// Each second a pod, a look and a write: an hour of the usual pace.
			const looks = 12
			for i := range looks {
				time.Sleep(time.Second)
				ns.IP(t, fmt.Sprintf("route replace blackhole 10.128.0.%d/32", 128+i%100))
			}
			peak, cpu := footprint(t, agent.Process.Pid)
			_ = agent.Process.Kill()
			_ = agent.Wait()
			cm, err := admin.CoreV1().ConfigMaps(agentNamespace).Get(t.Context(), "kubestage1001", metav1.GetOptions{})
			if err != nil {
				t.Fatalf("%v; the agent says:\n%s", err, log.String())
			}
			t.Logf("%d bytes of table, %d bytes of object; %d MiB at its peak (request %d, limit %d), %s of CPU for each of %d looks and writes",
				len(cm.BinaryData["routes.gz"]), cm.Size(), peak>>20, request>>20, limit>>20, (cpu / looks).Round(time.Millisecond), looks)
			if peak > limit*3/4 {
				t.Errorf("the limit of %d MiB leaves too little room", limit>>20)
			}
			if tc.blocks < 1000 && peak > request*5/4 {
				t.Errorf("it needs more than the %d MiB that it asks for", request>>20)
			}
		})
	}
}

// agentMemory is what the DaemonSet asks for and may have, in bytes.
func agentMemory(t *testing.T, manifests []*unstructured.Unstructured) (request, limit int) {
	t.Helper()
	set := only[appsv1.DaemonSet](t, manifests, "DaemonSet")
	r := set.Spec.Template.Spec.Containers[0].Resources
	return int(r.Requests.Memory().Value()), int(r.Limits.Memory().Value())
}

// footprint is the most memory that a process ever had, and the CPU time that it took.
func footprint(t *testing.T, pid int) (peak int, cpu time.Duration) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if kib, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kib), "kB")))
			if err != nil {
				t.Fatal(err)
			}
			peak = n << 10
		}
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const tick = 10 * time.Millisecond    // USER_HZ
	for _, field := range fields[11:13] { // utime, stime
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		cpu += time.Duration(n) * tick
	}
	return peak, cpu
}

// fill makes the routes of a node: one to each block of the others, two blocks
// of its own that are dropped, and one to each pod; with dual stack as many of IPv6.
func fill(t *testing.T, ns *bed.Namespace, blocks, pods int, dual bool) {
	t.Helper()
	var batch strings.Builder
	for i := range blocks {
		block := fmt.Sprintf("10.%d.%d.%d/26", 128+(i+2)>>10, (i+2)>>2&255, (i+2)<<6&255)
		fmt.Fprintf(&batch, "route add %s via %s proto 80\n", block, ns.Outside)
		if dual {
			fmt.Fprintf(&batch, "route add fd00:10:128::%x:%x/122 via fe80::1 dev eth0 proto 80\n", (i+2)>>10, (i+2)<<6&0xffff)
		}
	}
	if dual {
		fmt.Fprint(&batch, "route add blackhole fd00:10:128::/122 proto 80\nroute add blackhole fd00:10:128::40/122 proto 80\n")
		for i := range pods {
			fmt.Fprintf(&batch, "route add fd00:10:128::%x/128 dev eth0\n", i+1)
		}
	}
	fmt.Fprintf(&batch, "route add blackhole 10.128.0.0/26 proto 80\nroute add blackhole 10.128.0.64/26 proto 80\nroute add default via %s\n", ns.Outside)
	for i := range pods {
		fmt.Fprintf(&batch, "route add 10.128.0.%d/32 dev eth0 scope link\n", i)
	}
	path := filepath.Join(t.TempDir(), "routes")
	if err := os.WriteFile(path, []byte(batch.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	ns.IP(t, "-batch "+path)
}
