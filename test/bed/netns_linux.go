package bed

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace with a wire to the machine's own: the place
// of a node, with routes that are nobody else's.
type Namespace struct {
	Name            string
	Outside, Inside netip.Addr // the ends of the wire; the inner one is called eth0
}

var namespaces atomic.Int32

// NeedsNamespace skips the test where NewNamespace would.
func NeedsNamespace(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil || os.Getuid() != 0 {
		t.Skip("needs root and iproute2, to make a network namespace with routes in it")
	}
}

// NewNamespace makes a namespace that ends with the test. It skips the test
// where that is not possible.
func NewNamespace(t testing.TB) *Namespace {
	t.Helper()
	NeedsNamespace(t)
	pid, nth := os.Getpid(), int(namespaces.Add(1))
	// One of the 2^15 nets /30 of 198.18.0.0/15, which RFC 2544 sets aside for tests; those in use at a time differ.
	index := (pid&0xfff)<<3 | nth&7
	outside := netip.AddrFrom4([4]byte{198, 18 + byte(index>>14), byte(index >> 6), byte(index<<2) + 1})
	n := &Namespace{Name: fmt.Sprintf("ipamaudit-%d-%d", pid, nth), Outside: outside, Inside: outside.Next()}
	wire := fmt.Sprintf("ia%d-%d", pid, nth)
	if out, err := exec.CommandContext(t.Context(), "ip", "netns", "add", n.Name).CombinedOutput(); err != nil {
		t.Skipf("cannot make a network namespace: %v: %s", err, out)
	}
	t.Cleanup(func() {
		_ = exec.Command("ip", "link", "del", wire).Run() // the namespace takes its time to end
		_ = exec.Command("ip", "netns", "del", n.Name).Run()
	})
	for _, args := range []string{
		"link add " + wire + " type veth peer name eth0 netns " + n.Name,
		"addr add " + n.Outside.String() + "/30 dev " + wire,
		"link set " + wire + " up",
	} {
		if out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Skipf("cannot wire a network namespace: ip %s: %v: %s", args, err, out)
		}
	}
	n.IP(t, "addr add "+n.Inside.String()+"/30 dev eth0")
	n.IP(t, "link set lo up")
	n.IP(t, "link set eth0 up")
	return n
}

// IP runs ip in the namespace, with arguments without spaces, and returns what it prints.
func (n *Namespace) IP(t testing.TB, args string) string {
	t.Helper()
	out, err := n.TryIP(t.Context(), args)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TryIP is IP where the answer may be no.
func (n *Namespace) TryIP(ctx context.Context, args string) (string, error) {
	out, err := exec.CommandContext(ctx, "ip", append([]string{"-n", n.Name}, strings.Fields(args)...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ip %s: %w: %s", args, err, out)
	}
	return string(out), nil
}

// Service makes the cluster's API server answer in the namespace, at the address
// that pods expect it at, and returns its URL there.
func (n *Namespace) Service(t testing.TB, c *Cluster) string {
	t.Helper()
	return n.Forward(t, c, netip.AddrPortFrom(netip.AddrFrom4([4]byte(serviceIP.To4())), 443))
}

// Forward makes the cluster's API server answer in the namespace at an address,
// and returns its URL there. The certificate must be good for it: see
// Options.Address.
func (n *Namespace) Forward(t testing.TB, c *Cluster, at netip.AddrPort) string {
	t.Helper()
	listener := n.Listen(t, at)
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", strings.TrimPrefix(c.URL, "https://"))
			if err != nil {
				in.Close()
				continue
			}
			go func() { _, _ = io.Copy(in, out); in.Close() }()
			go func() { _, _ = io.Copy(out, in); out.Close() }()
		}
	}()
	return "https://" + strings.TrimSuffix(at.String(), ":443")
}

// Listen opens a socket in the namespace that closes with the test. An address
// that the namespace does not have is given to it: its pods reach it, the machine
// does not.
func (n *Namespace) Listen(t testing.TB, at netip.AddrPort) net.Listener {
	t.Helper()
	if at.Addr() != n.Inside {
		n.IP(t, "addr replace "+at.Addr().String()+"/32 dev lo")
	}
	listener, err := n.listen(t.Context(), at.String())
	if err != nil {
		t.Fatalf("listen in the namespace: %v", err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener
}

// listen opens a socket from a thread that visits the namespace. It comes back,
// and is not left to end: programs that it has started would end with it, see
// dieWithParent.
func (n *Namespace) listen(ctx context.Context, address string) (net.Listener, error) {
	there, err := os.Open("/run/netns/" + n.Name)
	if err != nil {
		return nil, err
	}
	defer there.Close()
	runtime.LockOSThread()
	back, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return nil, err
	}
	defer back.Close()
	defer func() {
		if failed := unix.Setns(int(back.Fd()), unix.CLONE_NEWNET); failed != nil {
			panic(failed) // nothing else may run on this thread
		}
		runtime.UnlockOSThread()
	}()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, err
	}
	return (&net.ListenConfig{}).Listen(ctx, "tcp4", address)
}
