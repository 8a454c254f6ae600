package agent

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// lab is a few hosts in network namespaces around a router, with real routes
// and, where a test wants it, real BIRD.
type lab struct {
	t      *testing.T
	dir    string
	prefix string
}

// newLab skips where the machine cannot make network namespaces.
func newLab(t *testing.T, programs ...string) *lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for network namespaces")
	}
	for _, p := range append([]string{"ip"}, programs...) {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("needs %s (Debian: apt-get install iproute2 bird)", p)
		}
	}
	l := &lab{t: t, dir: t.TempDir(), prefix: fmt.Sprintf("ia%d-", os.Getpid())}
	if out, err := exec.Command("ip", "netns", "add", l.prefix+"probe").CombinedOutput(); err != nil {
		t.Skipf("cannot make network namespaces: %s", out)
	}
	_ = exec.Command("ip", "netns", "del", l.prefix+"probe").Run()
	return l
}

func (l *lab) ip(args string) string {
	l.t.Helper()
	out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
	if err != nil {
		l.t.Fatalf("ip %s: %v\n%s", args, err, out)
	}
	return string(out)
}

// in runs ip in a host's namespace.
func (l *lab) in(host, args string) string {
	l.t.Helper()
	return l.ip("-n " + l.prefix + host + " " + args)
}

func (l *lab) host(name string) {
	l.t.Helper()
	l.ip("netns add " + l.prefix + name)
	l.t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", l.prefix+name).Run() })
	l.in(name, "link set lo up")
	// IPv6 addresses are of use at once.
	l.sysctl(name, "net/ipv6/conf/all/accept_dad", "0")
	l.sysctl(name, "net/ipv6/conf/default/accept_dad", "0")
}

func (l *lab) sysctl(host, key, value string) {
	l.t.Helper()
	l.within(host, func() error { return os.WriteFile("/proc/sys/"+key, []byte(value), 0o644) })
}

// within runs f in the host's network namespace, on a thread that ends with it.
func (l *lab) within(host string, f func() error) {
	l.t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never back: the thread is of no further use
		ns, err := os.Open("/run/netns/" + l.prefix + host)
		if err == nil {
			defer ns.Close()
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		l.t.Fatalf("in %s: %v", host, err)
	}
}

// wire joins a host to the router; both addresses have the same prefix length.
func (l *lab) wire(router, host string, addrs ...string) {
	l.t.Helper()
	l.ip(fmt.Sprintf("link add r%s netns %s type veth peer name eno1 netns %s", host, l.prefix+router, l.prefix+host))
	l.in(router, "link set r"+host+" up")
	l.in(host, "link set eno1 up")
	for i := 0; i+1 < len(addrs); i += 2 {
		gw, _, _ := strings.Cut(addrs[i], "/")
		l.in(router, fmt.Sprintf("addr add %s dev r%s", addrs[i], host))
		l.in(host, fmt.Sprintf("addr add %s dev eno1", addrs[i+1]))
		l.in(host, fmt.Sprintf("route add default via %s dev eno1", gw))
	}
}

// pod gives a host the route of a local pod, as Felix programs it.
func (l *lab) pod(host, addr string) {
	l.t.Helper()
	dev := "cali" + strings.NewReplacer(".", "", ":", "").Replace(addr)
	dev = dev[:4] + dev[max(4, len(dev)-10):]
	l.in(host, fmt.Sprintf("link add %s type veth peer name %s", dev, "p"+dev[4:]))
	l.in(host, "link set "+dev+" up")
	l.in(host, "link set p"+dev[4:]+" up")
	scope := " scope link"
	if strings.Contains(addr, ":") {
		scope = ""
	}
	l.in(host, "route add "+addr+" dev "+dev+scope)
}

// bird starts BIRD (or bird6) in a host's namespace until the test ends.
func (l *lab) bird(program, host, config string) {
	l.t.Helper()
	conf := filepath.Join(l.dir, host+"."+program+".conf")
	if err := os.WriteFile(conf, []byte(config), 0o600); err != nil {
		l.t.Fatal(err)
	}
	if out, err := exec.Command(program, "-p", "-c", conf).CombinedOutput(); err != nil {
		l.t.Fatalf("%s on %s: %s", program, host, out)
	}
	cmd := exec.Command("ip", "netns", "exec", l.prefix+host, program, "-f", "-c", conf, "-s", filepath.Join(l.dir, host+"."+program+".ctl"))
	log := &strings.Builder{}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	l.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if l.t.Failed() && log.Len() > 0 {
			l.t.Logf("%s on %s: %s", program, host, log)
		}
	})
}

// eventually waits until a host's table has all the prefixes, as ip route spells them.
func (l *lab) eventually(host string, prefixes ...string) {
	l.t.Helper()
	deadline := time.Now().Add(25 * time.Second)
	for {
		var have []string
		for line := range strings.Lines(l.in(host, "route") + l.in(host, "-6 route")) {
			f := strings.Fields(line)
			if len(f) > 1 && f[0] == "blackhole" {
				f = f[1:]
			}
			if len(f) > 0 {
				have = append(have, f[0])
			}
		}
		missing := slices.DeleteFunc(slices.Clone(prefixes), func(p string) bool { return slices.Contains(have, p) })
		if len(missing) == 0 {
			return
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("%s has no route to %s:\n%s", host, missing, l.in(host, "route"))
		}
		time.Sleep(50 * time.Millisecond) // the kernel tells nobody here
	}
}

// drops asks the kernel itself.
func (l *lab) drops(host string, addr netip.Addr) bool {
	l.t.Helper()
	out, err := exec.Command("ip", "-n", l.prefix+host, "route", "get", addr.String()).CombinedOutput()
	switch text := string(out); {
	case err == nil:
		return false
	// blackhole, prohibit, and unreachable (which an absent route is not: "Network is unreachable").
	case strings.Contains(text, "Invalid argument"), strings.Contains(text, "Permission denied"), strings.Contains(text, "No route to host"):
		return true
	default:
		l.t.Fatalf("%s: ip route get %s: %s", host, addr, text)
		return false
	}
}

// birdConfig is what Calico writes for BIRD 1.6, as far as routes go: a
// blackhole for each own block, which it announces instead of what is in it,
// and host routes of its pods outside of them.
func birdConfig(id string, as int, pool string, blocks []string, sessions string) string {
	var static, aggr strings.Builder
	for _, b := range blocks {
		fmt.Fprintf(&static, "  route %s blackhole;\n", b)
		fmt.Fprintf(&aggr, "  if net = %s then accept;\n  if net ~ %s then reject;\n", b, b)
	}
	return fmt.Sprintf(`router id %s;
protocol device { scan time 1; }
protocol direct { interface -"cali*", "*"; }
protocol static { %s }
filter to_kernel { if source = RTS_BGP || source = RTS_STATIC then accept; reject; }
protocol kernel { learn; persist; scan time 1; import all; export filter to_kernel; }
filter to_peers {
%s  if net ~ %s then accept;
  reject;
}
template bgp node_peer { local as %d; import all; export filter to_peers; connect delay time 1; connect retry time 1; error wait time 1, 2; }
%s`, id, static.String(), aggr.String(), pool, as, sessions)
}
