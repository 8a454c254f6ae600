package bed

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// serviceIP is the address of the Service kubernetes, at which pods expect the
// API server: the first one of --service-cluster-ip-range.
var serviceIP = net.IPv4(10, 96, 0, 1)

// readyTimeout bounds one cluster's start; a few seconds are usual, many
// clusters at once on a small machine take longer.
const readyTimeout = 2 * time.Minute

// Options describe a cluster. The zero value is a cluster "bed" with Calico's
// v1 definitions and nobody but the administrator.
type Options struct {
	Name     string    // the cluster's name in kubeconfigs
	Programs Programs  // default: FindPrograms
	Calico   CalicoAPI // default: CalicoV1
	Users    []User    // who may log in by static token, besides the administrator
	Audit    bool      // keep a record of every request, for Cluster.Requests
	Dir      string    // for data and keys; default: a temporary directory, removed on Stop
	LogDir   string    // for the servers' logs; default: Dir

	// MinimalCRDs chooses this package's own definitions even where Calico's
	// are at hand ($IPAMAUDIT_CALICO_CRDS, or a sibling shared/crds of any
	// directory above).
	MinimalCRDs bool

	// Node names a node that StartNode will run. The cluster then has what a node
	// and its pods count on: a controller manager, a scheduler, ServiceAccounts and
	// a kubelet's rights. Those programs come from the places of FindKubectl.
	Node string

	// Controllers runs the controller manager and the scheduler; Node does, too.
	Controllers bool

	Address netip.Addr // another one that the API server's certificate is good for

	APIServerFlags, EtcdFlags []string // appended to the bed's own
}

// User is somebody with a static token. RBAC gives nobody but the group
// system:masters any right by default.
type User struct {
	Name   string
	Groups []string
	Token  string
}

// Cluster is a running etcd with a kube-apiserver in front.
type Cluster struct {
	Name string
	URL  string // https://127.0.0.1:port
	Etcd string // http://127.0.0.1:port, no authentication: for tests that load by the ten thousand

	dir, logs string
	removeDir bool
	ca        []byte // PEM
	admin     User
	node      User // the kubelet of Options.Node
	etcd      *process
	apiserver *process
	managers  []*process // controller manager and scheduler
	ending    sync.Once
}

// Start brings up a cluster and returns when it serves requests, with the
// namespace kube-system and Calico's definitions in place. The caller stops it.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if o.Name == "" {
		o.Name = "bed"
	}
	if o.Programs == (Programs{}) {
		var err error
		if o.Programs, err = FindPrograms(ctx); err != nil {
			return nil, err
		}
	}
	c := &Cluster{Name: o.Name, dir: o.Dir, admin: User{Name: "bed-admin", Groups: []string{"system:masters"}, Token: rand.Text()}}
	if c.dir == "" {
		dir, err := os.MkdirTemp("", "ipamaudit-bed-")
		if err != nil {
			return nil, err
		}
		c.dir, c.removeDir = dir, true
	}
	c.logs = cmp.Or(o.LogDir, c.dir)
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("no answer within %s", readyTimeout))
	defer cancel()
	if err := c.start(ctx, o); err != nil {
		c.Stop()
		return nil, fmt.Errorf("start cluster %s: %w", o.Name, err)
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, o Options) error {
	if err := c.writeFiles(o); err != nil {
		return err
	}
	// A free port is found by opening and closing it. Between that and its use
	// somebody else may get it: rare, and worth another try.
	var err error
	for range 3 {
		if err = c.startServers(ctx, o); err == nil || !strings.Contains(err.Error(), "address already in use") {
			break
		}
		c.kill()
	}
	if err != nil {
		return err
	}
	if err := c.installCalico(ctx, o.Calico, o.MinimalCRDs); err != nil || !o.Controllers && o.Node == "" {
		return err
	}
	return c.startManagers()
}

func (c *Cluster) path(name string) string { return filepath.Join(c.dir, name) }

// writeFiles makes what the API server is configured with: a certificate that
// is trusted by nobody else, the key that signs ServiceAccount tokens, the
// static tokens, and the audit policy.
func (c *Cluster) writeFiles(o Options) error {
	addresses := []net.IP{net.IPv4(127, 0, 0, 1), serviceIP}
	if o.Address.IsValid() {
		addresses = append(addresses, o.Address.AsSlice())
	}
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey("127.0.0.1", addresses, []string{"localhost"})
	if err != nil {
		return fmt.Errorf("make a serving certificate: %w", err)
	}
	c.ca = certPEM // the leaf, followed by the authority that signed it
	signingKey, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return fmt.Errorf("make a token signing key: %w", err)
	}
	var tokens bytes.Buffer
	rows := csv.NewWriter(&tokens)
	users := append([]User{c.admin}, o.Users...)
	if o.Node != "" {
		c.node = User{Name: "system:node:" + o.Node, Groups: []string{"system:nodes"}, Token: rand.Text()}
		users = append(users, c.node)
	}
	for _, u := range users {
		if err := rows.Write([]string{u.Token, u.Name, u.Name, strings.Join(u.Groups, ",")}); err != nil {
			return err
		}
	}
	rows.Flush()
	for name, data := range map[string][]byte{
		"serving.crt": certPEM, "serving.key": keyPEM, "serviceaccounts.key": signingKey,
		"tokens.csv": tokens.Bytes(), "audit-policy.yaml": []byte(auditPolicy),
	} {
		if err := os.WriteFile(c.path(name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) startServers(ctx context.Context, o Options) error {
	ports, err := freePorts(2)
	if err != nil {
		return err
	}
	c.Etcd = "http://127.0.0.1:" + strconv.Itoa(ports[0])
	c.URL = "https://127.0.0.1:" + strconv.Itoa(ports[1])

	c.etcd, err = startProcess(c.dir, c.logs, o.Programs.Etcd, append([]string{
		"--name=bed",
		"--data-dir=" + c.path("etcd"),
		"--listen-client-urls=" + c.Etcd, "--advertise-client-urls=" + c.Etcd,
		"--listen-peer-urls=http://127.0.0.1:0",
		"--unsafe-no-fsync", // the data need not survive the machine
		"--log-level=warn",
	}, o.EtcdFlags...)...)
	if err != nil {
		return err
	}
	// The API server's client backs off for a second when it is there first.
	if err := c.etcd.waitReady(ctx, answers200(http.DefaultClient, c.Etcd+"/health")); err != nil {
		return err
	}

	flags := []string{
		"--etcd-servers=" + c.Etcd,
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(ports[1]),
		"--endpoint-reconciler-type=none", // a loopback address cannot be an endpoint
		"--service-cluster-ip-range=10.96.0.0/16",
		"--tls-cert-file=" + c.path("serving.crt"), "--tls-private-key-file=" + c.path("serving.key"),
		"--cert-dir=" + c.dir,
		"--token-auth-file=" + c.path("tokens.csv"),
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.path("serviceaccounts.key"),
		"--service-account-signing-key-file=" + c.path("serviceaccounts.key"),
		"--allow-privileged", // calico-node pods are
		"--event-ttl=24h",
		// These change or refuse loaded objects: a loaded node must not be tainted
		// as not ready, the priority and runtime class of a pod may not exist here.
		"--disable-admission-plugins=TaintNodesByCondition,Priority,RuntimeClass",
	}
	if !o.Controllers && o.Node == "" {
		flags = append(flags, "--disable-admission-plugins=ServiceAccount") // no controller makes them
	}
	if o.Node != "" {
		flags = append(flags, "--authorization-mode=Node", "--enable-admission-plugins=NodeRestriction",
			"--kubelet-preferred-address-types=InternalIP")
	}
	if o.Audit {
		flags = append(flags, "--audit-policy-file="+c.path("audit-policy.yaml"), "--audit-log-path="+c.path("audit.log"))
	}
	c.apiserver, err = startProcess(c.dir, c.logs, o.Programs.APIServer, append(flags, o.APIServerFlags...)...)
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(c.Admin())
	if err != nil {
		return err
	}
	if err := c.apiserver.waitReady(ctx, answers200(client, c.URL+"/readyz")); err != nil {
		return err
	}
	// Its UID is the cluster's identity; /readyz does not wait for it.
	kube, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		return err
	}
	return c.apiserver.waitReady(ctx, func(ctx context.Context) error {
		_, err := kube.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		return err
	})
}

func answers200(client *http.Client, url string) func(context.Context) error {
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s: %s", url, resp.Status, body)
		}
		return nil
	}
}

// freePorts returns n distinct loopback ports nobody listens on.
func freePorts(n int) ([]int, error) {
	var listeners []net.Listener
	defer func() { // only after all are found: they must differ
		for _, l := range listeners {
			l.Close()
		}
	}()
	var ports []int
	for range n {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		listeners = append(listeners, l)
		address, err := netip.ParseAddrPort(l.Addr().String())
		if err != nil {
			return nil, err
		}
		ports = append(ports, int(address.Port()))
	}
	return ports, nil
}

// Admin is a client configuration that may do everything and is not throttled.
func (c *Cluster) Admin() *rest.Config { return c.As(c.admin.Token) }

// As is a client configuration for the bearer of a token: a static one of
// Options.Users, or a ServiceAccount's.
func (c *Cluster) As(token string) *rest.Config {
	return &rest.Config{Host: c.URL, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: c.ca}, QPS: -1}
}

// Kill ends the cluster at once, as a power cut would: connections are reset,
// new ones refused.
func (c *Cluster) Kill() { c.end(c.kill) }

// Stop ends the cluster in order: the API server finishes what it is answering.
func (c *Cluster) Stop() {
	c.end(func() {
		for _, p := range append(c.managers, c.apiserver, c.etcd) {
			if p != nil {
				p.stop(10 * time.Second)
			}
		}
	})
}

// Pause lets the API server hang: it accepts connections and answers none,
// until Resume.
func (c *Cluster) Pause() error {
	if c.apiserver == nil {
		return errors.New("the cluster is not running")
	}
	return c.apiserver.signal(syscall.SIGSTOP)
}

// Resume ends a Pause.
func (c *Cluster) Resume() error { return c.apiserver.signal(syscall.SIGCONT) }

func (c *Cluster) kill() {
	for _, p := range append(c.managers, c.apiserver, c.etcd) {
		if p != nil {
			p.kill()
		}
	}
}

// end stops the processes once, whichever way comes first.
func (c *Cluster) end(stop func()) {
	c.ending.Do(func() {
		stop()
		if c.removeDir {
			_ = os.RemoveAll(c.dir) // a temporary directory: the next clean-up of those finds what is left
		}
	})
}

// Logs returns the last lines of the API server's and etcd's logs.
func (c *Cluster) Logs(lines int) string {
	var out strings.Builder
	for _, name := range []string{"kube-apiserver.log", "etcd.log", "kube-controller-manager.log", "kube-scheduler.log"} {
		if data, err := os.ReadFile(filepath.Join(c.logs, name)); err == nil {
			fmt.Fprintf(&out, "--- %s of %s\n%s\n", name, c.Name, tail(string(data), lines))
		}
	}
	return out.String()
}
