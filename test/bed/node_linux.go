package bed

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

var (
	//go:embed node/node.sh
	nodeScript []byte
	//go:embed node/cni.sh
	cniScript []byte
)

// Node is a real one: a kubelet with containerd and runc in a network namespace
// of its own, whose kernel routes are the node's. Its pods run what Calico's CNI
// plug-in would make of them, see node/cni.sh; of the images of Kubestage,
// calico-node's holds the real ip.
type Node struct {
	Namespace *Namespace

	t       testing.TB
	c       *Cluster
	dir     string
	process *process
	kubelet string
	images  []string
}

// NeedsNode skips the test where the machine cannot run a node. Whether it can
// is seen for certain by StartNode only.
func NeedsNode(t testing.TB) {
	t.Helper()
	NeedsNamespace(t)
	for _, program := range []string{"containerd", "ctr", "runc", "ldd", "nsenter"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("a real node needs %s (Debian: apt-get install containerd runc)", program)
		}
	}
	for _, program := range []string{"kubelet", "kube-controller-manager", "kube-scheduler"} {
		if _, err := findProgram(program); errors.Is(err, ErrNoProgram) {
			t.Skipf("a real node: %v", err)
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// StartNode runs the node that Options.Node named, with container images
// (docker-archives) besides those of Kubestage, and returns once all pods on it
// run. It ends with the test, and leaves nothing behind. A machine that cannot
// run it skips the test, with what the node said last.
func (c *Cluster) StartNode(t testing.TB, images ...string) *Node {
	t.Helper()
	n := &Node{Namespace: NewNamespace(t), t: t, c: c}
	if err := n.prepare(t.Context(), images); err != nil {
		t.Fatalf("prepare a node: %v", err)
	}
	n.Namespace.IP(t, "route add default via "+n.Namespace.Outside.String())
	server := c.As(c.node.Token)
	server.Host = n.Namespace.Service(t, c)
	if err := WriteKubeconfig(filepath.Join(n.dir, "kubeconfig"), c.ContextAs(server)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.end)
	if err := n.start(t.Context()); err != nil {
		t.Skipf("this machine runs no node: %v", err)
	}
	return n
}

// prepare writes what the node is made of into a directory with a short name:
// paths of sockets are limited.
func (n *Node) prepare(ctx context.Context, images []string) (err error) {
	if n.kubelet, err = findProgram("kubelet"); err != nil {
		return err
	}
	if n.dir, err = os.MkdirTemp("", "ipamaudit-node-"); err != nil {
		return err
	}
	n.t.Cleanup(func() { _ = os.RemoveAll(n.dir) })
	cni := filepath.Join(n.dir, "cni")
	if err := os.Mkdir(cni, 0o755); err != nil {
		return err
	}
	for path, content := range map[string][]byte{
		filepath.Join(n.dir, "node.sh"):       nodeScript,
		filepath.Join(cni, "calico"):          cniScript,
		filepath.Join(cni, "loopback"):        cniScript,
		filepath.Join(cni, "calico.conflist"): []byte(`{"cniVersion": "0.3.1", "name": "bed", "plugins": [{"type": "calico"}]}`),
	} {
		if err := os.WriteFile(path, content, 0o755); err != nil { //nolint:gosec // programs
			return err
		}
	}
	pause := filepath.Join(n.dir, "pause")
	if _, err := goCommand(ctx, ".", "build", "-trimpath", "-o", pause, "ipamaudit/test/bed/node/pause"); err != nil {
		return err
	}
	ip, err := exec.LookPath("ip")
	if err != nil {
		return err
	}
	libraries, err := exec.CommandContext(ctx, "ldd", ip).Output()
	if err != nil {
		return fmt.Errorf("ldd %s: %w", ip, err)
	}
	files := withLibraries(ip, string(libraries))
	files["/pause"] = pause
	own := filepath.Join(n.dir, "kubestage.tar")
	n.images = append([]string{own}, images...)
	return containerImage{
		tags:       []string{"registry.invalid/pause:1", "registry.invalid/app:1", "registry.invalid/calico-node:v3.30.2"},
		entrypoint: "/pause", files: files,
	}.write(own)
}

func (n *Node) start(ctx context.Context) (err error) {
	args := []string{"--net=/run/netns/" + n.Namespace.Name, filepath.Join(n.dir, "node.sh"), n.dir, n.kubelet, n.name(), n.Namespace.Inside.String()}
	cmd := exec.Command("nsenter", append(args, n.images...)...)
	cmd.SysProcAttr = dieWithParent()
	// The first process of a process namespace takes all others with it.
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS | syscall.CLONE_NEWPID
	if n.process, err = startCommand(n.c.logs, "node", cmd); err != nil {
		return err
	}
	kube, err := kubernetes.NewForConfig(n.c.Admin())
	if err != nil {
		return err
	}
	const patience = 90 * time.Second
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("its pods do not run after %s", patience))
	defer cancel()
	return n.process.waitReady(ctx, func(ctx context.Context) error {
		pods, err := kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.name()})
		if err != nil {
			return err
		}
		if len(pods.Items) == 0 {
			return errors.New("no pod is on it yet")
		}
		node, err := kube.CoreV1().Nodes().Get(ctx, n.name(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !slices.Contains(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: n.Namespace.Inside.String()}) {
			return fmt.Errorf("the kubelet has not told its address, but %v", node.Status.Addresses)
		}
		for _, pod := range pods.Items {
			if err := runs(&pod); err != nil {
				return fmt.Errorf("pod %s: %w", pod.Name, err)
			}
		}
		return nil
	})
}

// Runs tells of a process, by its directory in /proc, whether it descends from the node's first.
func (n *Node) Runs(process string) bool {
	first := strconv.Itoa(n.process.cmd.Process.Pid)
	for pid := filepath.Base(process); pid != first; {
		status, err := os.ReadFile("/proc/" + pid + "/status")
		if err != nil {
			return false
		}
		_, parent, _ := strings.Cut(string(status), "\nPPid:")
		if pid, _, _ = strings.Cut(strings.TrimSpace(parent), "\n"); pid == "0" || pid == "" {
			return false
		}
	}
	return true
}

func (n *Node) name() string { return n.c.node.Name[len("system:node:"):] }

// runs looks at what the kubelet says of the containers: the phase may be what
// was loaded.
func runs(pod *corev1.Pod) error {
	if len(pod.Status.ContainerStatuses) == 0 {
		return errors.New("the kubelet has not said anything of it")
	}
	for _, s := range pod.Status.ContainerStatuses {
		if w := s.State.Waiting; w != nil {
			return fmt.Errorf("container %s waits: %s: %s", s.Name, w.Reason, w.Message)
		}
		if s.State.Running == nil && s.State.Terminated == nil {
			return fmt.Errorf("container %s does not run", s.Name)
		}
	}
	return nil
}

// end kills the node's first process, and with it all others and all mounts.
func (n *Node) end() {
	if n.process == nil {
		return
	}
	if n.t.Failed() {
		n.t.Logf("--- node.log of %s\n%s", n.c.Name, n.process.logTail())
	}
	n.process.kill()
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		groups, _ := filepath.Glob(filepath.Join(root, filepath.Base(n.dir))) // fails for malformed patterns only
		for _, group := range groups {
			if err := removeGroups(group); err != nil {
				n.t.Errorf("the node left a cgroup behind: %v", err)
			}
		}
	}
}

// removeGroups removes a tree of cgroups; the processes in them are on their way out.
func removeGroups(root string) error {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if err != nil {
		return err
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		err := os.Remove(dirs[i])
		for tries := 0; errors.Is(err, syscall.EBUSY) && tries < 100; tries++ {
			time.Sleep(50 * time.Millisecond)
			err = os.Remove(dirs[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}
