package notify

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/time/rate"
)

// TransportOptions are how Jira and Slack are talked to.
type TransportOptions struct {
	// Version goes into the User-Agent, "ipamaudit/VERSION".
	Version string
	// Timeout is that of one attempt with its whole answer; default 30 s.
	Timeout time.Duration
	// Rate and Burst bound the requests per second and host; default 5 and 5.
	Rate  float64
	Burst int
	// Attempts bounds how often one request is sent; default 4.
	Attempts int
	// MaxWait is the longest Retry-After that is waited for; default 60 s.
	// A longer one ends the request with the answer that asked for it.
	MaxWait time.Duration
	// MaxBody bounds an answer; default 16 MiB.
	MaxBody int64
	// RootCAs are trusted instead of the system's; nil is the system's.
	RootCAs *x509.CertPool
	// Secrets never show in errors and logs, nor in what a server says when it
	// refuses: some proxies repeat the whole request. See SecretForms.
	Secrets []string
	Log     *slog.Logger
	// Base replaces the network, for tests. The default takes proxies from the
	// environment (HTTPS_PROXY, NO_PROXY).
	Base http.RoundTripper
	// Backoff is the first delay between attempts; default 500 ms.
	Backoff time.Duration
}

// Transport is an http.RoundTripper with manners: a time limit, a pace per host,
// a bounded answer. A 429 was not processed and is sent again for any method,
// when the server says; other failures only where repeating does no harm.
type Transport struct {
	o    TransportOptions
	base http.RoundTripper

	mu    sync.Mutex
	hosts map[string]*rate.Limiter
}

// NewTransport makes a Transport.
func NewTransport(o TransportOptions) *Transport {
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	o.Rate, o.Burst = cmp.Or(o.Rate, 5), cmp.Or(o.Burst, 5)
	o.Attempts = cmp.Or(o.Attempts, 4)
	o.MaxWait = cmp.Or(o.MaxWait, time.Minute)
	o.MaxBody = cmp.Or(o.MaxBody, 16<<20)
	o.Backoff = cmp.Or(o.Backoff, 500*time.Millisecond)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	base := o.Base
	if base == nil {
		base = &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			TLSClientConfig:       &tls.Config{RootCAs: o.RootCAs, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:   10 * time.Second,
			ForceAttemptHTTP2:     true,
			MaxIdleConnsPerHost:   4,
			IdleConnTimeout:       30 * time.Second,
			ExpectContinueTimeout: time.Second,
		}
	}
	return &Transport{o: o, base: base, hosts: map[string]*rate.Limiter{}}
}

// Client makes an http.Client over rt (a Transport, or what wraps one). It
// follows no redirect: a redirected API call is a login page or a wrong base
// URL, and would carry the credentials elsewhere.
func Client(rt http.RoundTripper) *http.Client {
	return &http.Client{Transport: rt, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// RoundTrip implements http.RoundTripper. The answer's body is in memory.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = t.o.Backoff, t.o.MaxWait
	for attempt := 1; ; attempt++ {
		resp, err := t.attempt(req, attempt)
		delay, again := t.again(req, resp, err, wait)
		if !again || attempt >= t.o.Attempts || req.Context().Err() != nil {
			return resp, err
		}
		t.o.Log.InfoContext(req.Context(), "request is repeated", "host", req.URL.Host, "attempt", attempt, "delay", delay)
		if !sleep(req.Context(), delay) {
			return resp, err
		}
	}
}

func (t *Transport) attempt(req *http.Request, n int) (*http.Response, error) {
	if err := t.limiter(req.URL.Host).Wait(req.Context()); err != nil {
		return nil, &notSentError{err}
	}
	ctx, cancel := context.WithTimeout(req.Context(), t.o.Timeout)
	defer cancel()
	r := req.Clone(ctx)
	r.Header.Set("User-Agent", "ipamaudit/"+cmp.Or(t.o.Version, "dev"))
	if r.Header.Get("Accept") == "" {
		r.Header.Set("Accept", "application/json")
	}
	if req.GetBody != nil {
		body, err := req.GetBody()
		if err != nil {
			return nil, &notSentError{err}
		}
		r.Body = body
	}
	start := time.Now()
	resp, err := t.base.RoundTrip(r)
	if err == nil {
		err = t.readAll(resp)
	}
	if err == nil && resp.StatusCode >= http.StatusMultipleChoices {
		t.hush(resp)
	}
	if err != nil {
		if refusedToConnect(err) {
			err = &notSentError{err}
		}
		err = Redact(err, t.o.Secrets...)
		t.o.Log.DebugContext(ctx, "request failed", "method", r.Method, "host", r.URL.Host,
			"path", redact(r.URL.Path, t.o.Secrets), "attempt", n, "error", err)
		return nil, err
	}
	t.o.Log.DebugContext(ctx, "request", "method", r.Method, "host", r.URL.Host, "path", redact(r.URL.Path, t.o.Secrets),
		"status", resp.StatusCode, "attempt", n, "took", time.Since(start).Round(time.Millisecond))
	return resp, nil
}

// readAll takes the answer into memory, so that a connection that breaks in its
// middle is an error here and not somewhere in a JSON decoder.
func (t *Transport) readAll(resp *http.Response) error {
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, t.o.MaxBody+1))
	switch {
	case err != nil:
		return fmt.Errorf("read the answer: %w", err)
	case int64(len(b)) > t.o.MaxBody:
		return fmt.Errorf("the answer is larger than %d bytes", t.o.MaxBody)
	}
	resp.Body = io.NopCloser(bytes.NewReader(b))
	return nil
}

// hush takes the secrets out of an answer that will be quoted in an error.
func (t *Transport) hush(resp *http.Response) {
	for _, values := range resp.Header {
		for i := range values {
			values[i] = redact(values[i], t.o.Secrets)
		}
	}
	if b, err := io.ReadAll(resp.Body); err == nil { // from memory: cannot fail
		text := redact(string(b), t.o.Secrets)
		resp.Body, resp.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
	}
}

func (t *Transport) limiter(host string) *rate.Limiter {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.hosts[host]
	if l == nil {
		l = rate.NewLimiter(rate.Limit(t.o.Rate), t.o.Burst)
		t.hosts[host] = l
	}
	return l
}

// again decides whether a request is repeated, and after what delay.
func (t *Transport) again(req *http.Request, resp *http.Response, err error, wait *backoff.ExponentialBackOff) (time.Duration, bool) {
	if req.Body != nil && req.GetBody == nil {
		return 0, false
	}
	harmless := req.Context().Value(harmlessKey{}) != nil || slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete}, req.Method)
	delay := wait.NextBackOff()
	switch {
	case err != nil:
		return delay, harmless || NotSent(err)
	case resp.StatusCode == http.StatusTooManyRequests,
		harmless && slices.Contains([]int{http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}, resp.StatusCode):
		if after, ok := retryAfter(resp.Header, time.Now()); ok {
			delay = after
		}
		return delay, delay <= t.o.MaxWait
	}
	return 0, false
}

type harmlessKey struct{}

// Harmless marks the requests of a context as ones that may be repeated although
// their method does not say so: a search by POST, all of Slack's reads.
func Harmless(ctx context.Context) context.Context {
	return context.WithValue(ctx, harmlessKey{}, true)
}

// retryAfter reads both forms of the header, seconds and date.
func retryAfter(h http.Header, now time.Time) (time.Duration, bool) {
	v := strings.TrimSpace(h.Get("Retry-After"))
	if s, err := strconv.Atoi(v); err == nil && s >= 0 && s < 1<<30 {
		return time.Duration(s) * time.Second, true
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(at.Sub(now), 0), true
	}
	return 0, false
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// notSentError marks a failure before the request left.
type notSentError struct{ err error }

func (e *notSentError) Error() string { return e.err.Error() }
func (e *notSentError) Unwrap() error { return e.err }

// NotSent reports whether a request failed before it left this machine, so that
// the server cannot have acted on it.
func NotSent(err error) bool {
	var e *notSentError
	return errors.As(err, &e)
}

// refusedToConnect: no connection, no request.
func refusedToConnect(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	var cert *tls.CertificateVerificationError
	return errors.As(err, &op) && (op.Op == "dial" || op.Op == "proxyconnect") || errors.As(err, &dns) || errors.As(err, &cert)
}

// SecretForms are a token in every form in which it travels: as it is, with a
// user in a Basic Authorization, and both as in a form or a query.
func SecretForms(user, token string) []string {
	basic := base64.StdEncoding.EncodeToString([]byte(user + ":" + token))
	return []string{token, url.QueryEscape(token), basic, url.QueryEscape(basic)}
}

// Redact keeps secrets out of an error's text; what it wraps stays.
func Redact(err error, secrets ...string) error {
	if err == nil || redact(err.Error(), secrets) == err.Error() {
		return err
	}
	return &redactedError{err, redact(err.Error(), secrets)}
}

type redactedError struct {
	err  error
	text string
}

func (e *redactedError) Error() string { return e.text }
func (e *redactedError) Unwrap() error { return e.err }

func redact(s string, secrets []string) string {
	for _, secret := range secrets {
		// A token is long; a shorter text would be blotted out of words.
		if len(secret) >= 8 {
			s = strings.ReplaceAll(s, secret, "<secret>")
		}
	}
	return s
}
