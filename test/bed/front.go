package bed

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// Front stands before a cluster's API server as a load balancer does: it speaks
// TLS and HTTP/2 under a certificate of its own and passes everything on, but
// for what goes wrong on the way.
type Front struct {
	URL string
	CA  []byte // PEM

	authority   *Authority
	certificate atomic.Pointer[tls.Certificate]
	pass        *httputil.ReverseProxy
	wrong       func(*Front, http.ResponseWriter, *http.Request) bool

	mu      sync.Mutex
	conns   map[net.Conn]bool
	dials   int
	refused time.Time // until when new connections are reset
}

// Front starts a front that ends with the test. wrong sees every request and
// reports whether it has answered it; what it leaves is passed on.
func (c *Cluster) Front(t testing.TB, wrong func(*Front, http.ResponseWriter, *http.Request) bool) *Front {
	t.Helper()
	authority, err := NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(c.URL)
	if err != nil {
		t.Fatal(err)
	}
	// The bearer's own credentials are passed on, so that it is the API server who judges them.
	transport, err := rest.TransportFor(&rest.Config{Host: c.URL, TLSClientConfig: rest.TLSClientConfig{CAData: c.ca}})
	if err != nil {
		t.Fatal(err)
	}
	f := &Front{CA: authority.PEM, authority: authority, wrong: wrong, conns: map[net.Conn]bool{}}
	if err := f.Certify(time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	f.pass = httputil.NewSingleHostReverseProxy(target)
	// Connections that are to speak something else have to begin with HTTP/1.
	plain, err := rest.TransportFor(&rest.Config{Host: c.URL, TLSClientConfig: rest.TLSClientConfig{CAData: c.ca, NextProtos: []string{"http/1.1"}}})
	if err != nil {
		t.Fatal(err)
	}
	f.pass.Transport = byProtocol{plain, transport}
	f.pass.ErrorLog = log.New(io.Discard, "", 0) // clients that go away are part of the game
	srv := httptest.NewUnstartedServer(f)
	srv.Listener = &frontListener{srv.Listener, f}
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = f.pass.ErrorLog
	srv.TLS = &tls.Config{
		MinVersion: tls.VersionTLS12,
		// GetCertificate would not be asked: who connects to an address names no server.
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: srv.TLS.NextProtos, Certificates: []tls.Certificate{*f.certificate.Load()}}, nil
		},
	}
	srv.StartTLS()
	f.URL = srv.URL
	t.Cleanup(func() { f.Hangup(); srv.Close() })
	return f
}

// byProtocol sends requests that want to change the protocol another way.
type byProtocol struct{ upgrade, other http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b byProtocol) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Upgrade") != "" {
		return b.upgrade.RoundTrip(r)
	}
	return b.other.RoundTrip(r)
}

// As is a client configuration for the bearer of a token, through the front.
func (f *Front) As(token string) *rest.Config {
	return &rest.Config{Host: f.URL, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: f.CA}, QPS: -1}
}

// ServeHTTP implements http.Handler.
func (f *Front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.wrong == nil || !f.wrong(f, w, r) {
		f.pass.ServeHTTP(w, r)
	}
}

// Half answers with the first half of what the API server says to the request.
func (f *Front) Half(w http.ResponseWriter, r *http.Request) {
	rec := httptest.NewRecorder()
	f.pass.ServeHTTP(rec, r)
	body := rec.Body.Bytes()
	w.Header().Set("Content-Type", rec.Header().Get("Content-Type"))
	w.WriteHeader(rec.Code)
	_, _ = w.Write(body[:len(body)/2])
	w.(http.Flusher).Flush() //nolint:forcetypeassert // as net/http's are
}

// Certify replaces the front's certificate by one that is good until then. Who
// is connected does not see it before the next connection.
func (f *Front) Certify(until time.Time) error {
	pair, err := f.authority.serving(until)
	if err == nil {
		f.certificate.Store(pair)
	}
	return err
}

// Hangup resets every connection.
func (f *Front) Hangup() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		reset(c)
	}
}

// Refuse resets every connection, and new ones for some time.
func (f *Front) Refuse(d time.Duration) {
	f.mu.Lock()
	f.refused = time.Now().Add(d)
	f.mu.Unlock()
	f.Hangup()
}

// Dials is how many connections there have been.
func (f *Front) Dials() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dials
}

// reset closes a connection so that the other side reads an error, not an end.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// frontListener knows the front's connections.
type frontListener struct {
	net.Listener
	f *Front
}

// Accept implements net.Listener.
func (l *frontListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		l.f.mu.Lock()
		l.f.dials++
		refuse := time.Now().Before(l.f.refused)
		if !refuse {
			l.f.conns[c] = true
		}
		l.f.mu.Unlock()
		if !refuse {
			return &frontConn{c, l.f}, nil
		}
		reset(c)
	}
}

type frontConn struct {
	net.Conn
	f *Front
}

// Close implements net.Conn.
func (c *frontConn) Close() error {
	c.f.mu.Lock()
	delete(c.f.conns, c.Conn)
	c.f.mu.Unlock()
	return c.Conn.Close()
}

// Tunnels is an HTTP proxy that only tunnels (CONNECT), as those of companies
// are that HTTPS_PROXY and a kubeconfig's proxy-url name. It knows one name.
type Tunnels struct {
	URL string

	mu    sync.Mutex
	conns []net.Conn
}

// NewTunnels starts a proxy that ends with the test and leads who asks for host
// ("name:port") to address.
// Where password is not empty, it wants it, of any user.
func NewTunnels(t testing.TB, host, address, password string) *Tunnels {
	t.Helper()
	p := &Tunnels{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", r.Header.Get("Proxy-Authorization")) // for BasicAuth
		_, got, _ := r.BasicAuth()
		switch {
		case password != "" && got != password:
			http.Error(w, "who are you?", http.StatusProxyAuthRequired)
		case r.Method != http.MethodConnect || r.Host != host:
			http.Error(w, "no way to "+r.Host, http.StatusBadGateway)
		default:
			if err := p.tunnel(w, r, address); err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
			}
		}
	}))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	p.URL = srv.URL
	t.Cleanup(func() { p.Hangup(); srv.Close() })
	return p
}

func (p *Tunnels) tunnel(w http.ResponseWriter, r *http.Request, address string) error {
	hijacker, ok := w.(http.Hijacker)
	if !ok {
		return errors.New("no HTTP/1")
	}
	up, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", address)
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusOK)
	down, buffered, err := hijacker.Hijack()
	if err != nil {
		up.Close()
		return err
	}
	p.mu.Lock()
	p.conns = append(p.conns, down)
	p.mu.Unlock()
	go func() { _, _ = buffered.WriteTo(up); up.Close() }()
	go func() { _, _ = io.Copy(down, up); down.Close() }()
	return nil
}

// Count is how many tunnels there have been.
func (p *Tunnels) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// Hangup resets every tunnel.
func (p *Tunnels) Hangup() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		reset(c)
	}
}
