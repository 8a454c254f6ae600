package collect

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"ipamaudit/ipam"
)

// fault is what the proxy in front of the API server does to one request. It
// answers itself and returns true, or lets the request pass.
type fault func(p *faultyProxy, w http.ResponseWriter, r *http.Request) bool

// faultyProxy stands in front of an API server, speaks TLS and HTTP/2, and goes
// wrong as told: one fault for each request to its path, in order.
type faultyProxy struct {
	srv  *httptest.Server
	pass *httputil.ReverseProxy
	path string

	mu     sync.Mutex
	faults []fault
	hits   int
	conns  map[net.Conn]bool
}

func newFaultyProxy(t *testing.T, behind *apiServer, path string, faults ...fault) *faultyProxy {
	target, err := url.Parse(behind.srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := &faultyProxy{pass: httputil.NewSingleHostReverseProxy(target), path: path, faults: faults, conns: map[net.Conn]bool{}}
	p.pass.ErrorLog = log.New(io.Discard, "", 0)
	p.srv = httptest.NewUnstartedServer(p)
	p.srv.EnableHTTP2 = true
	p.srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	p.srv.Config.ConnState = func(c net.Conn, s http.ConnState) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.conns[c] = s != http.StateClosed && s != http.StateHijacked
	}
	p.srv.StartTLS()
	t.Cleanup(p.srv.Close)
	return p
}

func (p *faultyProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == p.path {
		p.mu.Lock()
		p.hits++
		var f fault
		if len(p.faults) > 0 {
			f, p.faults = p.faults[0], p.faults[1:]
		}
		p.mu.Unlock()
		if f != nil && f(p, w, r) {
			return
		}
	}
	p.pass.ServeHTTP(w, r)
}

// goodPass lets a request through.
func goodPass(*faultyProxy, http.ResponseWriter, *http.Request) bool { return false }

func answerWith(code int, reason, retryAfter string) fault {
	return func(_ *faultyProxy, w http.ResponseWriter, _ *http.Request) bool {
		if retryAfter != "" {
			// As priority and fairness answers: in plain text.
			w.Header().Set("Retry-After", retryAfter)
			http.Error(w, "Too many requests, please try again later.", code)
			return true
		}
		refuse(w, code, reason, strings.ToLower(reason))
		return true
	}
}

// halfPage sends the first bytes of the real answer and lets go.
func halfPage(p *faultyProxy, w http.ResponseWriter, r *http.Request) bool {
	rec := httptest.NewRecorder()
	p.pass.ServeHTTP(rec, r)
	body := rec.Body.Bytes()
	w.Header().Set("Content-Type", rec.Header().Get("Content-Type"))
	_, _ = w.Write(body[:len(body)*2/3])
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

// allGone closes every connection, as a load balancer does that is replaced.
func allGone(p *faultyProxy, w http.ResponseWriter, _ *http.Request) bool {
	_, _ = w.Write([]byte("{"))
	w.(http.Flusher).Flush()
	p.mu.Lock()
	defer p.mu.Unlock()
	for c, open := range p.conns {
		if open {
			_ = c.Close()
		}
	}
	return true
}

// goAway makes HTTP/2 send GOAWAY, as API servers do (--goaway-chance).
func goAway(_ *faultyProxy, w http.ResponseWriter, _ *http.Request) bool {
	w.Header().Set("Connection", "close")
	return false
}

func hang(_ *faultyProxy, _ http.ResponseWriter, r *http.Request) bool {
	<-r.Context().Done()
	return true
}

func repeated(f fault, n int) (out []fault) {
	for range n {
		out = append(out, f)
	}
	return out
}

// TestLiveFaults: whatever goes wrong on the way, pods are read whole, or it is
// said why not; no pod is read twice, and nothing is asked for without end.
func TestLiveFaults(t *testing.T) {
	const pods, pages = 7, 3 // of three
	for _, tc := range []struct {
		name   string
		faults []fault
		// extra is how many requests more than the pages there are.
		extra  int
		status ipam.ReadStatus
		detail string
		waits  []time.Duration
	}{
		{"nothing", nil, 0, ipam.Read, "", nil},
		{"429", []fault{answerWith(429, "TooManyRequests", "3")}, 1, ipam.Read, "", []time.Duration{3 * time.Second}},
		{"429 that asks for an hour", []fault{answerWith(429, "TooManyRequests", "3600")}, 1, ipam.Read, "", []time.Duration{maxRetryAfter}},
		{"429 without end", repeated(answerWith(429, "TooManyRequests", "1"), 99), maxTries - pages, ipam.Failed, "tried 6 times", nil},
		{"500 in the middle", []fault{goodPass, answerWith(500, "InternalError", "")}, 1, ipam.Read, "", nil},
		{"503 twice", repeated(answerWith(503, "ServiceUnavailable", ""), 2), 2, ipam.Read, "", nil},
		{"504 from a load balancer", []fault{func(_ *faultyProxy, w http.ResponseWriter, _ *http.Request) bool {
			w.WriteHeader(504)
			fmt.Fprint(w, "<html>gateway timeout</html>")
			return true
		}}, 1, ipam.Read, "", nil},
		{"501", []fault{answerWith(501, "NotImplemented", "")}, 1 - pages, ipam.Failed, "notimplemented", nil},
		{"broken page", []fault{halfPage}, 1, ipam.Read, "", nil},
		{"broken page in the middle", []fault{goodPass, halfPage, halfPage}, 2, ipam.Read, "", nil},
		{"pages that always break", repeated(halfPage, 99), maxTries - pages, ipam.Failed, "page 1 broke off", nil},
		{"connections closed", []fault{goodPass, allGone}, 1, ipam.Read, "", nil},
		{"GOAWAY", []fault{goAway, goAway, goAway}, 0, ipam.Read, "", nil},
		{"hangs once", []fault{goodPass, hang}, 1, ipam.Read, "", nil},
		{"hangs", repeated(hang, 99), slowTries - pages, ipam.Failed, "did not answer in time", nil},
		{"401 in the middle", []fault{goodPass, answerWith(401, "Unauthorized", "")}, 1, ipam.Read, "", []time.Duration{0}},
		{"401 for good", append([]fault{goodPass}, repeated(answerWith(401, "Unauthorized", ""), 99)...), 0, ipam.Failed, "does not accept the credentials", nil},
		{"410 once", []fault{goodPass, answerWith(410, "Expired", "")}, 2, ipam.Read, "", nil},
		{"410 twice", []fault{goodPass, answerWith(410, "Expired", ""), goodPass, answerWith(410, "Expired", "")}, 1, ipam.Failed, "expired", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			behind := newAPIServer(t)
			p := newFaultyProxy(t, behind, "/api/v1/pods", tc.faults...)
			dest := filepath.Join(t.TempDir(), "snap")
			rec, err := NewRecorder(dest)
			if err != nil {
				t.Fatal(err)
			}
			l, err := NewLive(&rest.Config{Host: p.srv.URL, TLSClientConfig: rest.TLSClientConfig{CAData: certPEM(p.srv)}, QPS: -1},
				LiveOptions{Name: "prod", PageSize: 3, Record: rec, RequestTimeout: 2 * time.Second})
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			var waits []time.Duration
			l.sleep = func(ctx context.Context, d time.Duration) error {
				mu.Lock()
				defer mu.Unlock()
				waits = append(waits, d)
				return ctx.Err()
			}
			s, err := l.Collect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			c := s.Coverage.Get(ipam.ResPods)
			if c.Status != tc.status || !strings.Contains(c.Detail, tc.detail) {
				t.Errorf("%+v, want %s %q", c, tc.status, tc.detail)
			}
			want := pods
			if tc.status != ipam.Read {
				want = 0
			}
			if len(s.Pods) != want || tc.status == ipam.Read && c.Items != pods {
				t.Errorf("%d pods, %d items", len(s.Pods), c.Items)
			}
			p.mu.Lock()
			hits := p.hits
			p.mu.Unlock()
			if hits != pages+tc.extra {
				t.Errorf("%d requests, want %d", hits, pages+tc.extra)
			}
			for i, w := range tc.waits {
				if len(waits) <= i || waits[i] < w || waits[i] > w+w/4 {
					t.Errorf("waited %v, want %v and some jitter", waits, tc.waits)
				}
			}
			// What was recorded is what was read: nothing twice, nothing half.
			if err := rec.Finish(s, "test"); err != nil {
				t.Fatal(err)
			}
			saved, err := FromPath(t.Context(), dest, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if d := diffSnapshots(s, saved) + diffCoverage(s, saved); d != "" {
				t.Errorf("recorded (-live +saved):\n%s", d)
			}
		})
	}
}

func certPEM(srv *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
}

// TestLiveUntrusted: a certificate that nobody vouches for is not tried again.
func TestLiveUntrusted(t *testing.T) {
	behind := newAPIServer(t)
	p := newFaultyProxy(t, behind, "/apis")
	l, err := NewLive(&rest.Config{Host: p.srv.URL}, LiveOptions{Name: "prod"})
	if err != nil {
		t.Fatal(err)
	}
	l.sleep = func(context.Context, time.Duration) error { t.Error("tried again"); return nil }
	if _, err := l.Collect(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("%v", err)
	}
}

// TestLiveRenewedCredentials: the token expires while pods are listed. The next
// one is fetched once, whatever the number of lists that were refused.
func TestLiveRenewedCredentials(t *testing.T) {
	srv := newAPIServer(t)
	var expired atomic.Bool
	srv.fail = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("continue") == "3" && r.Header.Get("Authorization") == "Bearer old" {
			expired.Store(true)
		}
		if expired.Load() && r.Header.Get("Authorization") != "Bearer new" {
			refuse(w, 401, "Unauthorized", "Unauthorized")
			return true
		}
		return false
	}
	var renewals atomic.Int32
	l, err := NewLive(&rest.Config{Host: srv.srv.URL, BearerToken: "old", QPS: -1}, LiveOptions{
		Name: "prod", PageSize: 3,
		Renew: func(context.Context) (*rest.Config, error) {
			renewals.Add(1)
			return &rest.Config{Host: srv.srv.URL, BearerToken: "new"}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Collect(t.Context())
	if err != nil || len(s.Pods) != 7 || s.Coverage.Get(ipam.ResPods).Status != ipam.Read {
		t.Fatalf("%v, %d pods", err, len(s.Pods))
	}
	for _, c := range s.Coverage.List() {
		if c.Status == ipam.Failed {
			t.Errorf("%+v", c)
		}
	}
	if n := renewals.Load(); n != 1 {
		t.Errorf("renewed %d times", n)
	}
}

// TestLiveThroughProxy: an HTTP proxy that tunnels, as kubeconfig's proxy-url
// and HTTPS_PROXY name one.
func TestLiveThroughProxy(t *testing.T) {
	behind := newAPIServer(t)
	front := newFaultyProxy(t, behind, "")
	var tunnels atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		tunnels.Add(1)
		up, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", r.Host)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		w.WriteHeader(http.StatusOK)
		down, buffered, err := w.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		go func() { _, _ = buffered.WriteTo(up); up.Close() }()
		go func() { _, _ = io.Copy(down, up); down.Close() }()
	}))
	defer proxy.Close()
	u, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewLive(&rest.Config{Host: front.srv.URL, TLSClientConfig: rest.TLSClientConfig{CAData: certPEM(front.srv)}, Proxy: http.ProxyURL(u), QPS: -1}, LiveOptions{Name: "prod"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Collect(t.Context())
	if err != nil || len(s.Pods) != 7 {
		t.Fatalf("%v", err)
	}
	if tunnels.Load() == 0 {
		t.Error("the proxy was passed by")
	}
}

// TestLiveProtobuf: an API server that speaks protobuf says the same as one
// that speaks JSON only.
func TestLiveProtobuf(t *testing.T) {
	srv := newAPIServer(t)
	want, err := srv.collect(t, LiveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lists := map[string]func() runtime.Object{
		"/api/v1/pods":       func() runtime.Object { return &corev1.PodList{} },
		"/api/v1/namespaces": func() runtime.Object { return &corev1.NamespaceList{} },
	}
	served := 0
	srv.fail = func(w http.ResponseWriter, r *http.Request) bool {
		list, ok := lists[r.URL.Path]
		if !ok || !strings.HasPrefix(r.Header.Get("Accept"), "application/vnd.kubernetes.protobuf") {
			return false
		}
		items, cont := srv.lists[r.URL.Path], ""
		from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
		if from+3 < len(items) {
			items, cont = items[:from+3], strconv.Itoa(from+3)
		}
		out := list()
		if err := json.Unmarshal([]byte(`{"items":[`+strings.Join(items[from:], ",")+`]}`), out); err != nil {
			t.Error(err)
		}
		out.(metav1.ListInterface).SetContinue(cont)
		served++
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		_, _ = w.Write(protoBody(t, out))
		return true
	}
	got, err := srv.collect(t, LiveOptions{Parallel: 1})
	if err != nil {
		t.Fatal(err)
	}
	if served != 4 {
		t.Errorf("%d answers in protobuf", served)
	}
	if d := diffSnapshots(want, got) + diffCoverage(want, got); d != "" {
		t.Errorf("(-JSON +protobuf):\n%s", d)
	}
}

// TestLiveAgain: the second look, through pages that break.
func TestLiveAgain(t *testing.T) {
	srv := newAPIServer(t)
	p := newFaultyProxy(t, srv, "/api/v1/pods")
	l, err := NewLive(&rest.Config{Host: p.srv.URL, TLSClientConfig: rest.TLSClientConfig{CAData: certPEM(p.srv)}, QPS: -1}, LiveOptions{Name: "prod", PageSize: 3})
	if err != nil {
		t.Fatal(err)
	}
	l.sleep = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	first, err := l.Collect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	again := []ipam.Resource{ipam.ResPods, ipam.ResBlocks}
	p.faults = []fault{goodPass, halfPage}
	if s, err := l.Again(t.Context(), first, again); err != nil || s != first {
		t.Errorf("nothing moved: %v", err)
	}
	srv.lists["/api/v1/pods"] = srv.lists["/api/v1/pods"][1:]
	if s, err := l.Again(t.Context(), first, again); err != nil || len(s.Pods) != 6 || s.Pod("s", "p0") != nil {
		t.Errorf("p0 was deleted: %v", err)
	}
	p.faults = repeated(answerWith(503, "ServiceUnavailable", ""), 99)
	if _, err := l.Again(t.Context(), first, again); err == nil || !strings.Contains(err.Error(), "pods: ") {
		t.Errorf("cannot look again: %v", err)
	}
}

// TestLivePagesShrink: a server that cannot bear large pages is asked for
// smaller ones, and stays so for the rest of the list; a refusal has nothing to
// do with size.
func TestLivePagesShrink(t *testing.T) {
	for name, tc := range map[string]struct {
		bears, code int
		want        []string
		status      ipam.ReadStatus
	}{
		"bears all":         {5000, 504, []string{"5000"}, ipam.Read},
		"bears a thousand":  {1000, 504, []string{"5000", "1000"}, ipam.Read},
		"bears few":         {200, 500, []string{"5000", "1000", "200", "200"}, ipam.Read},
		"bears nothing":     {0, 500, []string{"5000", "1000", "200", "200", "200", "200"}, ipam.Failed},
		"refuses, not size": {0, 429, []string{"5000", "5000", "5000", "5000", "5000", "5000"}, ipam.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			srv := newAPIServer(t)
			srv.lists["/api/v1/pods"] = nil
			for i := range 300 {
				srv.lists["/api/v1/pods"] = append(srv.lists["/api/v1/pods"], fmt.Sprintf(`{"metadata":{"name":"p-%03d","namespace":"default","uid":"%d"}}`, i, i))
			}
			var mu sync.Mutex
			var asked []string
			srv.fail = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != "/api/v1/pods" {
					return false
				}
				limit := r.URL.Query().Get("limit")
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, limit)
				if n, _ := strconv.Atoi(limit); n <= tc.bears {
					return false
				}
				refuse(w, tc.code, "InternalError", "too much")
				return true
			}
			l, err := NewLive(&rest.Config{Host: srv.srv.URL, QPS: -1}, LiveOptions{Name: "prod"})
			if err != nil {
				t.Fatal(err)
			}
			l.sleep = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
			s, err := l.Collect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := s.Coverage.Get(ipam.ResPods).Status; got != tc.status || !slices.Equal(asked, tc.want) {
				t.Errorf("%s after pages of %v, want %s after %v", got, asked, tc.status, tc.want)
			}
		})
	}
}
