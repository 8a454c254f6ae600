package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"ipamaudit/test/bed"
)

// Whatever goes wrong between the audit and an API server, the verdict is that
// of an undisturbed run, or what could not be read is named, everything that
// depends on it is unknown, and the exit code is 3. Fewer objects are never
// taken for all of them.

// fault is what a front does to one request; see bed.Cluster.Front.
type fault func(f *bed.Front, w http.ResponseWriter, r *http.Request) bool

// faulty lets the faults happen to the requests for one resource, one each, in
// their order; after the last one the last again for ever, if without end.
type faulty struct {
	resource string
	faults   []fault
	endless  bool

	mu   sync.Mutex
	hits int
}

func (p *faulty) wrong(f *bed.Front, w http.ResponseWriter, r *http.Request) bool {
	if !strings.HasSuffix(r.URL.Path, "/"+p.resource) {
		return false
	}
	p.mu.Lock()
	n := p.hits
	p.hits++
	p.mu.Unlock()
	if p.endless {
		n = min(n, len(p.faults)-1)
	}
	return n < len(p.faults) && p.faults[n](f, w, r)
}

func pass(*bed.Front, http.ResponseWriter, *http.Request) bool { return false }

// refusing answers as API servers and load balancers do that are in trouble.
func refusing(code int, header, value string) fault {
	return func(_ *bed.Front, w http.ResponseWriter, _ *http.Request) bool {
		if header != "" {
			w.Header().Set(header, value)
		}
		http.Error(w, "please try again later", code)
		return true
	}
}

// cut sends half of a page and resets the stream.
func cut(f *bed.Front, w http.ResponseWriter, r *http.Request) bool {
	f.Half(w, r)
	panic(http.ErrAbortHandler)
}

// ended sends half of a page and ends as if that were all.
func ended(f *bed.Front, w http.ResponseWriter, r *http.Request) bool {
	f.Half(w, r)
	return true
}

// dropped sends half of a page and loses every connection.
func dropped(f *bed.Front, w http.ResponseWriter, r *http.Request) bool {
	f.Half(w, r)
	f.Hangup()
	return true
}

// stalled sends half of a page and then nothing.
func stalled(f *bed.Front, w http.ResponseWriter, r *http.Request) bool {
	f.Half(w, r)
	<-r.Context().Done()
	return true
}

// away loses every connection and takes no new one for a while, as an API
// server does that restarts.
func away(d time.Duration) fault {
	return func(f *bed.Front, _ http.ResponseWriter, _ *http.Request) bool {
		f.Refuse(d)
		return true
	}
}

// certified replaces the certificate and loses every connection.
func certified(good time.Duration) fault {
	return func(f *bed.Front, _ http.ResponseWriter, _ *http.Request) bool {
		if err := f.Certify(time.Now().Add(good)); err != nil {
			panic(err)
		}
		f.Hangup()
		return true
	}
}

// smallPages makes lists of many pages.
const smallPages = "pageSize: 4, qps: 1000, burst: 1000"

// settings writes a configuration file.
func settings(t *testing.T, run string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte("run: {"+run+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestFaults goes through the faults of the network and of the API server, for
// a list in protobuf and for one in JSON.
func TestFaults(t *testing.T) {
	needs(t, "run")
	c := bed.New(t, bed.Options{Name: "kubestage", Calico: bed.CalicoV1})
	if err := c.Load(t.Context(), bed.Kubestage(bed.CalicoV1)); err != nil {
		t.Fatal(err)
	}
	full := undisturbed(t, c)
	declared := declarations(t, full)
	t.Run("", func(t *testing.T) {
		for _, tc := range []struct {
			name    string
			faults  []fault
			endless bool
			// lost is what is said of the list that could not be read; empty where
			// the run survives the fault.
			lost string
			run  string // more settings
			all  bool   // what else is read at that moment is lost, too
			slow bool   // once is enough
		}{
			{name: "nothing"},
			{name: "429 with Retry-After", faults: []fault{pass, refusing(429, "Retry-After", "1")}},
			{name: "429 for ever", faults: []fault{pass, refusing(429, "", "")}, endless: true, lost: "tried 6 times"},
			{name: "503 twice", faults: []fault{pass, refusing(503, "", ""), refusing(503, "", "")}},
			{name: "503 for ever", faults: []fault{pass, refusing(503, "", "")}, endless: true, lost: "unable to handle the request (tried 6 times)"},
			{name: "cut in the middle of a page", faults: []fault{pass, cut, cut}},
			{name: "always cut in the middle of a page", faults: []fault{pass, cut}, endless: true, lost: "broke off"},
			{name: "half a page with a proper end", faults: []fault{pass, ended}},
			{name: "always half a page with a proper end", faults: []fault{pass, ended}, endless: true, lost: "broke off"},
			{name: "connections dropped", faults: []fault{pass, dropped, pass, dropped}},
			{name: "stalled once", faults: []fault{pass, stalled}, slow: true},
			{name: "stalled", faults: []fault{pass, stalled}, endless: true, lost: "timed out", run: ", clusterTimeout: 8s"},
			{name: "the API server restarts", faults: []fault{pass, away(2 * time.Second)}},
			{name: "the API server is gone", faults: []fault{pass, away(time.Minute)}, lost: "reset", all: true},
			{name: "another certificate", faults: []fault{pass, certified(time.Hour)}},
			{name: "the serving certificate expires", faults: []fault{pass, certified(-time.Second)}, lost: "certificate has expired", all: true},
		} {
			for _, resource := range []string{"pods", "ipamhandles"} {
				if tc.slow && resource != "pods" {
					continue
				}
				t.Run(tc.name+"/"+resource, func(t *testing.T) {
					t.Parallel()
					p := &faulty{resource: resource, faults: tc.faults, endless: tc.endless}
					front := c.Front(t, p.wrong)
					got, res := auditOne(t, "--kubeconfig", kubeconfig(t, c.ContextAs(front.As(c.Admin().BearerToken))), "--config", settings(t, smallPages+tc.run))
					if p.hits < len(tc.faults) {
						t.Errorf("only %d requests for %s: the faults did not happen", p.hits, resource)
					}
					if tc.lost == "" {
						wantSame(t, full, got, res)
						return
					}
					if tc.all && got.Status == "failed" { // nothing had been read to its end yet
						wantAllLost(t, got, res, tc.lost)
						return
					}
					wantLost(t, full, got, res, declared, resource, tc.lost)
				})
			}
		}
		// The first look was good; whether what it found is in motion cannot be seen.
		t.Run("the second look fails", func(t *testing.T) {
			t.Parallel()
			const pages = 36 / 4
			p := &faulty{resource: "pods", faults: append(slices.Repeat([]fault{pass}, pages), refusing(503, "", "")), endless: true}
			front := c.Front(t, p.wrong)
			got, res := auditOne(t, "--kubeconfig", kubeconfig(t, c.ContextAs(front.As(c.Admin().BearerToken))), "--config", settings(t, smallPages))
			if p.hits <= pages {
				t.Fatalf("%d requests for pods: nobody looked again", p.hits)
			}
			res.wantCode(t, 3)
			if got.statuses()["borrowed-ips"] != "unknown" || got.Status != "partial" || !strings.Contains(res.stderr, "second look") {
				t.Errorf("borrowed-ips is %s, the cluster %s: %s", got.statuses()["borrowed-ips"], got.Status, res.stderr)
			}
			if diff := cmp.Diff(full.coverage(), got.coverage()); diff != "" {
				t.Errorf("coverage (-undisturbed +got):\n%s", diff)
			}
			wantNoMore(t, full, got)
		})
	})
}

// TestExpiredContinueToken compacts etcd while a list is read: the rest of the
// list is gone, and it starts over, once.
func TestExpiredContinueToken(t *testing.T) {
	needs(t, "run")
	// A newer API server would take the pages from its cache, which outlives etcd's copy.
	c := bed.New(t, bed.Options{Name: "kubestage", Calico: bed.CalicoV1, APIServerFlags: []string{"--feature-gates=ListFromCacheSnapshot=false"}})
	if err := c.Load(t.Context(), bed.Kubestage(bed.CalicoV1)); err != nil {
		t.Fatal(err)
	}
	full := undisturbed(t, c)
	declared := declarations(t, full)
	compact := func(_ *bed.Front, _ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("continue") == "" {
			panic("the first page cannot expire")
		}
		if err := c.Compact(r.Context()); err != nil {
			t.Error(err)
		}
		return false
	}
	for _, tc := range []struct {
		name   string
		faults []fault
		lost   string
	}{
		{"once", []fault{pass, pass, compact}, ""},
		{"twice", []fault{pass, pass, compact, pass, compact}, "too old"},
	} {
		for _, resource := range []string{"pods", "ipamhandles"} {
			t.Run(tc.name+"/"+resource, func(t *testing.T) {
				p := &faulty{resource: resource, faults: tc.faults}
				front := c.Front(t, p.wrong)
				got, res := auditOne(t, "--kubeconfig", kubeconfig(t, c.ContextAs(front.As(c.Admin().BearerToken))), "--config", settings(t, smallPages))
				if tc.lost != "" {
					wantLost(t, full, got, res, declared, resource, tc.lost)
					return
				}
				wantSame(t, full, got, res)
			})
		}
	}
}

// TestGoAway: an API server that asks its clients to connect anew, so that they
// spread over its replicas, loses nothing by it.
func TestGoAway(t *testing.T) {
	needs(t, "run")
	c := bed.New(t, bed.Options{Name: "kubestage", Calico: bed.CalicoV1, APIServerFlags: []string{"--goaway-chance=0.02"}}) // the most it takes
	if err := c.Load(t.Context(), bed.Kubestage(bed.CalicoV1)); err != nil {
		t.Fatal(err)
	}
	full := undisturbed(t, c)
	host := strings.TrimPrefix(c.URL, "https://")
	// Some two hundred requests in each run, of which one in fifty is answered so.
	for runs := 1; ; runs++ {
		proxy := bed.NewTunnels(t, host, host, "")
		got, res := auditOne(t, "--kubeconfig", kubeconfigBehind(t, c, proxy.URL, ""), "--config", settings(t, "pageSize: 1, qps: 1000, burst: 1000"))
		wantSame(t, full, got, res)
		if n := proxy.Count(); n > 1 || t.Failed() {
			t.Logf("%d connections in run %d", n, runs)
			return
		}
		if runs == 20 {
			t.Fatal("the API server never sent GOAWAY: this proves nothing")
		}
	}
}

// kubeconfigBehind writes a kubeconfig that leads through a proxy, and where
// server is not empty to that name of the API server.
func kubeconfigBehind(t *testing.T, c *bed.Cluster, proxy, server string) string {
	t.Helper()
	cluster := &clientcmdapi.Cluster{Server: c.URL, CertificateAuthorityData: c.Admin().CAData, ProxyURL: proxy}
	if server != "" {
		cluster.Server, cluster.TLSServerName = server, "127.0.0.1"
	}
	return kubeconfigOf(t, c.Name, cluster, &clientcmdapi.AuthInfo{Token: c.Admin().BearerToken})
}

// kubeconfigOf writes a kubeconfig with one context.
func kubeconfigOf(t *testing.T, name string, cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) string {
	t.Helper()
	file := clientcmdapi.NewConfig()
	file.Clusters[name], file.AuthInfos[name] = cluster, user
	file.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	file.CurrentContext = name
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*file, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestProxy: a cluster that only an HTTP proxy leads to, named by the kubeconfig
// or by the environment.
func TestProxy(t *testing.T) {
	needs(t, "run")
	c := bed.New(t, bed.Options{Name: "kubestage", Calico: bed.CalicoV1})
	if err := c.Load(t.Context(), bed.Kubestage(bed.CalicoV1)); err != nil {
		t.Fatal(err)
	}
	full := undisturbed(t, c)
	// A name that only the proxy knows the way to.
	const host = "apiserver.bed.invalid:6443"
	address := strings.TrimPrefix(c.URL, "https://")
	const password = "hunter2hunter2"
	withPassword := func(proxy *bed.Tunnels) string {
		return strings.Replace(proxy.URL, "://", "://auditor:"+password+"@", 1)
	}
	t.Run("proxy-url", func(t *testing.T) {
		proxy := bed.NewTunnels(t, host, address, password)
		got, res := auditOne(t, "--kubeconfig", kubeconfigBehind(t, c, withPassword(proxy), "https://"+host), "--config", settings(t, smallPages))
		wantSame(t, full, got, res)
		if n := proxy.Count(); n != 1 { // TestGoAway counts on it
			t.Errorf("%d connections, want one", n)
		}
	})
	t.Run("HTTPS_PROXY", func(t *testing.T) {
		proxy := bed.NewTunnels(t, host, address, password)
		res := ipamauditWith(t, []string{"HTTPS_PROXY=" + withPassword(proxy)}, "run", "-o", "json",
			"--kubeconfig", kubeconfigBehind(t, c, "", "https://"+host), "--config", settings(t, smallPages))
		wantSame(t, full, decodeReport(t, res).cluster(t, c.Name), res)
		if proxy.Count() == 0 {
			t.Error("the proxy was passed by")
		}
	})
	t.Run("the tunnel breaks", func(t *testing.T) {
		var proxy *bed.Tunnels
		p := &faulty{resource: "pods", faults: []fault{pass, func(*bed.Front, http.ResponseWriter, *http.Request) bool { proxy.Hangup(); return false }}}
		front := c.Front(t, p.wrong)
		proxy = bed.NewTunnels(t, host, strings.TrimPrefix(front.URL, "https://"), "")
		kc := kubeconfigOf(t, c.Name, &clientcmdapi.Cluster{Server: "https://" + host, TLSServerName: "127.0.0.1", CertificateAuthorityData: front.CA, ProxyURL: proxy.URL},
			&clientcmdapi.AuthInfo{Token: c.Admin().BearerToken})
		got, res := auditOne(t, "--kubeconfig", kc, "--config", settings(t, smallPages))
		wantSame(t, full, got, res)
		if proxy.Count() < 2 {
			t.Errorf("%d tunnels: it did not break", proxy.Count())
		}
	})
	t.Run("the proxy refuses", func(t *testing.T) {
		proxy := bed.NewTunnels(t, host, address, "another")
		got, res := auditOne(t, "--kubeconfig", kubeconfigBehind(t, c, withPassword(proxy), "https://"+host))
		res.wantCode(t, 3)
		if got.Status != "failed" || !strings.Contains(got.Error, "Proxy Authentication Required") {
			t.Errorf("%s: %s", got.Status, got.Error)
		}
		if strings.Contains(res.stdout+res.stderr, password) {
			t.Error("the proxy's password is in the output")
		}
	})
}

// undisturbed is the audit that nothing stands in the way of.
func undisturbed(t *testing.T, c *bed.Cluster) cluster {
	t.Helper()
	full, res := auditOne(t, "--kubeconfig", kubeconfig(t, c.Context()), "--config", settings(t, smallPages))
	res.wantCode(t, 1)
	wantKubestage(t, full)
	return full
}

// wantSame: the verdict is that of the undisturbed run.
func wantSame(t *testing.T, full, got cluster, res result) {
	t.Helper()
	res.wantCode(t, 1)
	for what, diff := range map[string]string{
		"findings": cmp.Diff(full.headlines(), got.headlines()),
		"checks":   cmp.Diff(full.Checks, got.Checks),
		"coverage": cmp.Diff(full.Coverage, got.Coverage),
		"pools":    cmp.Diff(full.Pools, got.Pools),
		"counts":   cmp.Diff([]int{full.Nodes, full.Pods}, []int{got.Nodes, got.Pods}),
	} {
		if diff != "" {
			t.Errorf("%s (-undisturbed +got):\n%s", what, diff)
		}
	}
}

// wantLost: the resource is failed and said to be so, what needs it is unknown,
// nothing is ok or found that was not before, and the exit code is 3. What else
// failed by the same fault is judged alike.
func wantLost(t *testing.T, full, got cluster, res result, declared map[string]declaration, resource, why string) {
	t.Helper()
	res.wantCode(t, 3)
	if got.Status != "partial" {
		t.Errorf("status %s (%s), want partial", got.Status, got.Error)
	}
	failed := map[string]string{}
	items := map[string]int{}
	for _, r := range full.Coverage.Resources {
		items[r.Resource] = r.Items
	}
	for _, r := range got.Coverage.Resources {
		switch {
		case r.Status == "failed":
			failed[r.Resource] = r.Detail
		case r.Items != items[r.Resource]:
			t.Errorf("%s is %s with %d items, undisturbed with %d", r.Resource, r.Status, r.Items, items[r.Resource])
		}
	}
	if !strings.Contains(failed[resource], why) {
		t.Errorf("%s: failed because %q, want %q; coverage: %+v", resource, failed[resource], why, got.Coverage)
	}
	before := full.statuses()
	for _, check := range got.Checks {
		needs := slices.ContainsFunc(declared[check.ID].needs, func(r string) bool { _, ok := failed[r]; return ok })
		switch {
		case needs && before[check.ID] != "skipped" && check.Status != "unknown":
			t.Errorf("%s cannot do without what failed and says %s: %s", check.ID, check.Status, check.Reason)
		case check.Status == "ok" && before[check.ID] != "ok":
			t.Errorf("%s has become ok by looking at less", check.ID)
		}
	}
	wantNoMore(t, full, got)
}

// wantAllLost: the cluster failed, for this reason, and nobody says more about it.
func wantAllLost(t *testing.T, got cluster, res result, why string) {
	t.Helper()
	res.wantCode(t, 3)
	if got.Status != "failed" || !strings.Contains(got.Error, why) {
		t.Errorf("%s: %s; want it to have failed: %s", got.Status, got.Error, why)
	}
	for _, f := range got.Findings {
		if f.Check != "cluster-access" {
			t.Errorf("a finding about a cluster that was not read: %s %s", f.Check, f.Title)
		}
	}
	for id, status := range got.statuses() {
		if status == "ok" {
			t.Errorf("check %s is ok on a cluster that was not read", id)
		}
	}
}

// wantNoMore: seeing less is no reason to find more.
func wantNoMore(t *testing.T, full, got cluster) {
	t.Helper()
	for _, f := range got.Findings {
		if !slices.ContainsFunc(full.Findings, func(o finding) bool { return o.Check == f.Check && o.Subject == f.Subject }) {
			t.Errorf("a finding only for those who see less: %s %s %s: %s", f.Severity, f.Check, f.Subject.Name, f.Title)
		}
	}
}
