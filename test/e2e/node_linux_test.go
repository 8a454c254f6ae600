package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"ipamaudit/test/bed"
)

// realNode is the node of Kubestage that TestNode runs: the owner of the blocks
// that others borrow from.
const realNode = "kubestage1001"

// TestNode tells the story with nothing played on the owner of the blocks: a
// kubelet, containerd and runc run its pods, and the kernel has its routes.
func TestNode(t *testing.T) {
	bed.NeedsNode(t)
	needs(t, "run", "explain", "agent")
	image := shippedImage(t)
	c := bed.New(t, bed.Options{Name: "kubestage", Calico: bed.CalicoV1, Node: realNode, Audit: true})
	if err := c.Load(t.Context(), bed.Kubestage(bed.CalicoV1)); err != nil {
		t.Fatal(err)
	}
	kube, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		t.Fatal(err)
	}
	pods, err := kube.CoreV1().Pods("lab").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	n := &storyNode{Node: c.StartNode(t, image), kube: kube, owned: map[string]bool{}}
	t.Logf("a node with real pods after %s", time.Since(start).Round(time.Millisecond))
	for _, block := range []string{"10.64.75.0/26", "10.64.75.64/26"} {
		n.Namespace.IP(t, "route add blackhole "+block+" proto bird")
		for _, pod := range pods.Items {
			if netip.MustParsePrefix(block).Contains(netip.MustParseAddr(pod.Status.PodIP)) {
				n.owned[pod.Status.PodIP] = pod.Spec.NodeName == realNode
			}
		}
	}

	t.Run("exec", func(t *testing.T) {
		rules := only[rbacv1.ClusterRole](t, render(t, "deploy/kustomize"), "ClusterRole").Rules
		account, err := c.ServiceAccount(t.Context(), "laptop", "root", append(slices.Clone(rules), rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/exec"}, Verbs: []string{"create", "get"}}))
		if err != nil {
			t.Fatal(err)
		}
		n.tell(t, c, account, "exec", "{exec: {enabled: true}}")
	})
	in := newInstallation(t, n, bed.Context{Name: "hub", Config: c.Admin()})
	in.install(t)
	in.paste(t, "docs/routes.md", "kubectl apply -k deploy/agent")
	token, err := c.Token(t.Context(), auditNamespace, "ipamaudit", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	account := c.As(token)
	manifests := render(t, "deploy/agent")
	t.Run("the agent's DaemonSet", func(t *testing.T) {
		n.published(t, "") // after up to agent.DefaultPoll, so that many agents do not write at once
		_, limit := agentMemory(t, manifests)
		n.confined(t, "agent", limit)
		n.hurry(t)
		n.tell(t, c, account, "agent", "{agent: {namespace: "+agentNamespace+"}}")
	})
	t.Run("the CronJob", func(t *testing.T) { in.nightly(t) })
	t.Run("a hub", func(t *testing.T) { in.hub(t, c) })
	t.Run("on the host's network", func(t *testing.T) { in.hostNetwork(t) })
	t.Run("rights", func(t *testing.T) {
		role := only[rbacv1.Role](t, render(t, "deploy/kustomize"), "Role")
		wantRights(t, c, "system:serviceaccount:ipamaudit:ipamaudit", role.Rules)
		wantRights(t, c, "system:serviceaccount:ipamaudit-agent:ipamaudit-agent", only[rbacv1.ClusterRole](t, manifests, "ClusterRole").Rules)
	})
}

// shippedImage is the image that `make image` makes, under the name that the
// manifests have for it.
func shippedImage(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("there is no make to build the image with")
	}
	cron := only[batchv1.CronJob](t, render(t, "deploy/kustomize"), "CronJob").Spec.JobTemplate.Spec.Template.Spec.Containers[0].Image
	agent := only[appsv1.DaemonSet](t, render(t, "deploy/agent"), "DaemonSet").Spec.Template.Spec.Containers[0].Image
	if cron != agent {
		t.Fatalf("the CronJob runs %s, the agent %s", cron, agent)
	}
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "make", "image", "BIN="+dir, "IMAGE="+cron, "ARCH="+runtime.GOARCH)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("make image: %v\n%s", err, out)
	}
	return filepath.Join(dir, "ipamaudit-linux-"+runtime.GOARCH+".tar")
}

// storyNode is the real node of the story.
type storyNode struct {
	*bed.Node
	kube  kubernetes.Interface
	owned map[string]bool // the addresses of pods in its blocks, false for those that others borrow
}

// dropped are the addresses that the kernel drops packets for.
func (n *storyNode) dropped(t *testing.T) []string {
	t.Helper()
	var out []string
	for ip := range n.owned {
		if _, err := n.Namespace.TryIP(t.Context(), "route get "+ip); err != nil {
			if !strings.Contains(err.Error(), "Invalid argument") { // what a blackhole answers
				t.Fatal(err)
			}
			out = append(out, ip)
		}
	}
	slices.Sort(out)
	return out
}

// tell audits while routes come and go: at each step the audit must say of each
// pod's address what the kernel does with it.
func (n *storyNode) tell(t *testing.T, c *bed.Cluster, account *rest.Config, source, routes string) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "config.yaml")
	text := fmt.Sprintf("clusters:\n  - name: kubestage\n    kubeconfig: %s\n    routes: %s\n", kubeconfig(t, c.ContextAs(account)), routes)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const own, foreign = "10.64.75.4", "10.64.75.70"
	veth := n.Namespace.IP(t, "route show "+own)
	if !strings.Contains(veth, " dev cali") {
		t.Fatalf("the route to a pod of its own is %q", veth)
	}
	var borrowed []string
	for ip, owned := range n.owned {
		if !owned {
			borrowed = append(borrowed, ip)
		}
	}
	via := " via " + n.Namespace.Outside.String() + " proto bird"
	for _, step := range []struct {
		name    string
		routes  func()
		dropped []string
	}{
		{"what others borrow has no route", nil, slices.Sorted(slices.Values(borrowed))},
		{"each has one", func() {
			for _, ip := range borrowed {
				n.Namespace.IP(t, "route add "+ip+"/32"+via)
			}
		}, nil},
		{"one has none", func() { n.Namespace.IP(t, "route del "+foreign+"/32") }, []string{foreign}},
		{"nor has a pod of its own", func() { n.Namespace.IP(t, "route del "+own+"/32") }, []string{own, foreign}},
	} {
		if step.routes != nil {
			before := n.table(t)
			step.routes()
			if source == "agent" {
				n.published(t, before)
			}
		}
		if kernel := n.dropped(t); !slices.Equal(kernel, step.dropped) {
			t.Fatalf("%s: the kernel drops %q, want %q", step.name, kernel, step.dropped)
		}
		n.wantDropped(t, step.name, config, source, step.dropped)
		for _, ip := range []string{own, foreign} {
			if drops, want := n.explainedAsDropped(t, config, ip), slices.Contains(step.dropped, ip); drops != want {
				t.Errorf("%s: explain %s says that it is dropped: %v, the kernel: %v", step.name, ip, drops, want)
			}
		}
	}
	n.Namespace.IP(t, "route add "+strings.Join(strings.Fields(veth), " "))
	for _, ip := range borrowed {
		_, err := n.Namespace.TryIP(t.Context(), "route del "+ip+"/32"+via)
		if err != nil && ip != foreign {
			t.Error(err)
		}
	}
}

func (n *storyNode) wantDropped(t *testing.T, step, config, source string, want []string) {
	t.Helper()
	got, _ := auditOne(t, "--config", config, "--check", "blackholed-routes")
	if got.Coverage.Routes.Source != source || got.Coverage.Routes.Nodes != 1 {
		t.Fatalf("%s: routes %+v", step, got.Coverage.Routes)
	}
	var dropped []string
	for _, f := range got.Findings {
		if f.Subject.Name != realNode || f.Severity != "critical" {
			t.Errorf("%s: %s %s/%s: %s", step, f.Severity, f.Subject.Kind, f.Subject.Name, f.Title)
		}
		for _, o := range f.Affected {
			dropped = append(dropped, o.Name)
		}
	}
	slices.Sort(dropped)
	if !slices.Equal(dropped, want) {
		t.Errorf("%s: the audit says that %q are dropped, the kernel drops %q", step, dropped, want)
	}
}

func (n *storyNode) explainedAsDropped(t *testing.T, config, ip string) bool {
	t.Helper()
	s, _ := explained(t, "--config", config, ip)
	for _, hops := range s.Address.Path.Hops {
		if slices.Contains(hops.Nodes, realNode) {
			return hops.Outcome == "drops" && strings.HasPrefix(hops.Route, "blackhole ")
		}
	}
	t.Fatalf("explain %s knows no way from %s: %+v", ip, realNode, s.Address.Path)
	return false
}

// table is what the node's agent has published last, packed.
func (n *storyNode) table(t *testing.T) string {
	t.Helper()
	cm, err := n.kube.CoreV1().ConfigMaps(agentNamespace).Get(t.Context(), realNode, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return string(cm.BinaryData["routes.gz"])
}

// published waits until the agent has published another table.
func (n *storyNode) published(t *testing.T, before string) {
	t.Helper()
	eventually(t, "the agent publishes", func() error {
		if n.table(t) == before {
			return fmt.Errorf("not yet; it says: %s", n.log(t, agentNamespace))
		}
		return nil
	})
}

// log is what the pods of a namespace on the node say.
func (n *storyNode) log(t *testing.T, namespace string) string {
	t.Helper()
	pods, err := n.kube.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + realNode})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, pod := range pods.Items {
		log, err := n.kube.CoreV1().Pods(namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(t.Context())
		if err != nil {
			log = []byte(err.Error()) // it may not have started
		}
		fmt.Fprintf(&out, "%s (%s): %s\n", pod.Name, pod.Status.Phase, log)
	}
	return out.String()
}

// hurry has the agent look and write more often than the shipped one.
func (n *storyNode) hurry(t *testing.T) {
	t.Helper()
	sets := n.kube.AppsV1().DaemonSets(agentNamespace)
	patch := []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"agent","args":["agent","--poll=1s","--quiet=1s"]}]}}}}`)
	changed, err := sets.Patch(t.Context(), agentNamespace, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the change is seen", func() error {
		set, err := sets.Get(t.Context(), agentNamespace, metav1.GetOptions{})
		if err == nil && set.Status.ObservedGeneration < changed.Generation {
			err = errors.New("not yet")
		}
		return err
	})
	// A roll-out would wait for the nodes that exist on paper only.
	if err := n.kube.CoreV1().Pods(agentNamespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "spec.nodeName=" + realNode}); err != nil {
		t.Fatal(err)
	}
}

// confined checks what the kernel holds a container's process to; the limit is of
// memory, in bytes.
func (n *storyNode) confined(t *testing.T, verb string, limit int) {
	t.Helper()
	found := n.processes(t, verb)
	for _, path := range found {
		status, err := os.ReadFile(filepath.Join(path, "status"))
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.Fields(string(status)), " ")
		for _, want := range []string{"Uid: 65532 65532 65532 65532", "Gid: 65532 65532 65532 65532", "CapPrm: 0000000000000000", "CapEff: 0000000000000000",
			"CapBnd: 0000000000000000", "CapAmb: 0000000000000000", "NoNewPrivs: 1", "Seccomp: 2"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: the process does not have %q: %s", path, want, text)
			}
		}
		mounts, err := os.ReadFile(filepath.Join(path, "mounts"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(mounts), "overlay / overlay ro,") {
			t.Errorf("%s: its root can be written to:\n%s", path, mounts)
		}
		if got := memoryLimit(t, path); got != limit {
			t.Errorf("%s: it may have %d bytes of memory, want %d", path, got, limit)
		}
	}
	if len(found) != 1 {
		t.Errorf("%d processes `ipamaudit %s` on the node, want 1", len(found), verb)
	}
}

// processes are the directories in /proc of those on the node that run a verb.
func (n *storyNode) processes(t *testing.T, verb string) []string {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, path := range all {
		cmdline, _ := os.ReadFile(path) // it may have ended
		if strings.HasPrefix(string(cmdline), "/ipamaudit\x00"+verb+"\x00") && n.Runs(filepath.Dir(path)) {
			out = append(out, filepath.Dir(path))
		}
	}
	return out
}

// memoryLimit is that of a process's cgroup, of version 1 or 2.
func memoryLimit(t *testing.T, process string) int {
	t.Helper()
	groups, err := os.ReadFile(filepath.Join(process, "cgroup"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(groups)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // id:controllers:path
		file := "/sys/fs/cgroup" + filepath.Join(fields[2], "memory.max")
		if slices.Contains(strings.Split(fields[1], ","), "memory") {
			file = "/sys/fs/cgroup/memory" + filepath.Join(fields[2], "memory.limit_in_bytes")
		}
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		return n
	}
	t.Fatalf("%s is in no cgroup with a limit of memory:\n%s", process, groups)
	return 0
}

// eventually waits for something that others do.
func eventually(t *testing.T, what string, done func() error) {
	t.Helper()
	var last error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if last = done(); last == nil {
			return
		}
	}
	t.Fatalf("%s: not after a minute: %v", what, last)
}
