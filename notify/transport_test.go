package notify_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"crypto/x509"

	"ipamaudit/notify"
)

func TestTransportRepeatsWhatIsHarmless(t *testing.T) {
	for _, tc := range []struct {
		method  string
		status  int
		after   string
		maxWait time.Duration
		want    int32 // requests
	}{
		{"GET", 200, "", 0, 1},
		{"GET", 503, "", 0, 3},
		{"PUT", 502, "", 0, 3},
		{"GET", 400, "", 0, 1},
		{"POST", 503, "0", 0, 1}, // may have been processed
		{"POST", 500, "", 0, 1},
		{"POST", 429, "0", 0, 3}, // was not
		{"POST", 429, "", 0, 3},
		{"POST", 429, "Mon, 02 Jan 2006 15:04:05 GMT", 0, 3},
		{"GET", 429, "3600", time.Minute, 1}, // longer than anybody waits
		{"GET", 429, "rubbish", 0, 3},
	} {
		t.Run(fmt.Sprintf("%s %d %s", tc.method, tc.status, tc.after), func(t *testing.T) {
			var n atomic.Int32
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n.Add(1)
				if b, _ := io.ReadAll(r.Body); r.Method != http.MethodGet && string(b) != "body" {
					t.Errorf("body %q", b)
				}
				if ua := r.Header.Get("User-Agent"); ua != "ipamaudit/1.2" {
					t.Errorf("User-Agent %q", ua)
				}
				if tc.after != "" {
					w.Header().Set("Retry-After", tc.after)
				}
				w.WriteHeader(tc.status)
			}))
			defer s.Close()
			c := notify.Client(notify.NewTransport(notify.TransportOptions{Version: "1.2", Attempts: 3, Backoff: time.Microsecond, Rate: 1e6, MaxWait: tc.maxWait}))
			var body io.Reader
			if tc.method != "GET" {
				body = bytes.NewReader([]byte("body"))
			}
			req, _ := http.NewRequest(tc.method, s.URL, body)
			resp, err := c.Do(req)
			if err != nil || resp.StatusCode != tc.status {
				t.Fatalf("%v %v", resp, err)
			}
			resp.Body.Close()
			if n.Load() != tc.want {
				t.Errorf("%d requests, want %d", n.Load(), tc.want)
			}
		})
	}
}

func TestTransportLimits(t *testing.T) {
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hang":
			select {
			case <-r.Context().Done():
			case <-release:
			}
		case "/big":
			_, _ = io.WriteString(w, strings.Repeat("x", 2000))
		case "/cut":
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "half")
		case "/login":
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		case "/elsewhere":
			t.Error("a redirect was followed")
		}
	}))
	defer s.Close()
	defer close(release)
	c := notify.Client(notify.NewTransport(notify.TransportOptions{Timeout: 50 * time.Millisecond, Attempts: 1, MaxBody: 1000, Rate: 1e6}))
	for path, want := range map[string]string{"/hang": "deadline", "/big": "larger than 1000", "/cut": "unexpected EOF"} {
		resp, err := c.Get(s.URL + path)
		if err == nil {
			resp.Body.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
		if notify.NotSent(err) {
			t.Errorf("%s counts as not sent", path)
		}
	}
	resp, err := c.Get(s.URL + "/login")
	if err != nil || resp.StatusCode != http.StatusFound {
		t.Errorf("%v %v", resp, err)
	}
	resp.Body.Close()

	if _, err := c.Get("http://127.0.0.1:1/"); !notify.NotSent(err) {
		t.Errorf("a refused connection counts as sent: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, http.NoBody)
	if _, err := c.Do(req); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

func TestTransportTrustsGivenCA(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	resp, err := notify.Client(notify.NewTransport(notify.TransportOptions{RootCAs: pool})).Get(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if _, err := notify.Client(notify.NewTransport(notify.TransportOptions{Attempts: 1})).Get(s.URL); err == nil || !notify.NotSent(err) {
		t.Errorf("a foreign certificate: %v", err)
	}
}

func TestRedact(t *testing.T) {
	cause := errors.New("Post https://hooks/services/T/B/secret: refused")
	err := notify.Redact(fmt.Errorf("slack: %w", cause), "/services/T/B/secret", "")
	if strings.Contains(err.Error(), "secret:") || !errors.Is(err, cause) {
		t.Errorf("%v", err)
	}
}
