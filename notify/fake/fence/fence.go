// Package fence holds the traffic of tests against the vendors' own schemas: each
// request that our clients send and each answer that our fakes give. A fake that
// nobody checks only proves that we agree with ourselves.
//
// The schemas are not part of this repository. Where they are not found (see
// SchemaDir) the fences are nil, and a nil fence lets everything through.
// Only tests may import this package.
package fence

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// SchemaDirEnv names the folder with the vendors' schemas.
const SchemaDirEnv = "IPAMAUDIT_VENDOR_SCHEMAS"

// SchemaDir finds the folder with the vendors' schemas: the environment variable,
// else shared/vendor-schemas beside any folder above the working directory. It
// is "" when there is none.
func SchemaDir() string {
	if dir := os.Getenv(SchemaDirEnv); dir != "" {
		return dir
	}
	at, err := os.Getwd()
	if err != nil {
		return ""
	}
	for {
		dir := filepath.Join(at, "shared", "vendor-schemas")
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir
		}
		up := filepath.Dir(at)
		if up == at {
			return ""
		}
		at = up
	}
}

// Violation is one request or answer that the vendor's schema forbids.
type Violation struct {
	Method string
	URL    string
	Side   string // "request" or "response"
	Err    error
	Body   string // what was sent
}

func (v Violation) String() string {
	return fmt.Sprintf("%s of %s %s: %v\n%s", v.Side, v.Method, v.URL, v.Err, v.Body)
}

// Fence checks traffic and keeps the violations. It is safe for concurrent use.
type Fence struct {
	rules rules

	mu         sync.Mutex
	violations []Violation
	checked    int
}

// rules are one vendor's. body is what r carried; r's own body is spent.
type rules interface {
	request(r *http.Request, body []byte) error
	response(r *http.Request, requestBody []byte, answer *http.Response, body []byte) error
}

// stand makes a fence that fails the test for each violation that nobody took.
func stand(t testing.TB, load func(dir string) (rules, error)) *Fence {
	t.Helper()
	dir := SchemaDir()
	if dir == "" {
		t.Logf("no vendor schemas (%s is not set and there is no shared/vendor-schemas above): the traffic is not checked", SchemaDirEnv)
		return nil
	}
	r, err := load(dir)
	if err != nil {
		t.Fatalf("vendor schemas in %s: %v", dir, err)
	}
	f := &Fence{rules: r}
	t.Cleanup(func() {
		for _, v := range f.Take() {
			t.Errorf("the vendor's schema forbids the %s", v)
		}
	})
	return f
}

// Take returns the violations so far and forgets them: a test that means to
// break a rule takes them before it ends.
func (f *Fence) Take() []Violation {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	taken := f.violations
	f.violations = nil
	return taken
}

// Checked says how many requests went through, so that a test can tell a clean
// fence from one that stood beside the road.
func (f *Fence) Checked() int {
	if f == nil {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.checked
}

// Transport checks what goes through next, which may be nil for
// http.DefaultTransport. It changes nothing.
func (f *Fence) Transport(next http.RoundTripper) http.RoundTripper {
	if next == nil {
		next = http.DefaultTransport
	}
	if f == nil {
		return next
	}
	return transport{f, next}
}

type transport struct {
	fence *Fence
	next  http.RoundTripper
}

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	var sent []byte
	if r.Body != nil {
		var err error
		if sent, err = io.ReadAll(r.Body); err != nil {
			return nil, fmt.Errorf("fence: read the request's body: %w", err)
		}
		_ = r.Body.Close()
		r = r.Clone(r.Context())
		r.Body = io.NopCloser(bytes.NewReader(sent))
	}
	t.fence.keep(r, "request", sent, t.fence.rules.request(r, sent))
	answer, err := t.next.RoundTrip(r)
	if err != nil {
		return answer, err
	}
	got, cut := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if cut != nil { // the client shall see the same
		answer.Body = io.NopCloser(io.MultiReader(bytes.NewReader(got), failing{cut}))
		return answer, nil //nolint:nilerr // the error is in the body, where the client meets it
	}
	answer.Body = io.NopCloser(bytes.NewReader(got))
	t.fence.keep(r, "response", got, t.fence.rules.response(r, sent, answer, got))
	return answer, nil
}

func (f *Fence) keep(r *http.Request, side string, body []byte, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if side == "request" {
		f.checked++
	}
	if err != nil {
		f.violations = append(f.violations, Violation{r.Method, r.URL.String(), side, err, string(body)})
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
