package wire

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Request is one request as it arrived. Secrets are replaced by Redacted.
type Request struct {
	Time   time.Time
	Method string
	Path   string // below the server's base path, with its leading slash
	Query  url.Values
	Header http.Header
	Body   string
	Fault  Kind // what was done to it, "" for nothing
	Status int  // what was answered; 0 while it runs and when nothing was answered
}

// Redacted stands where a secret was.
const Redacted = "REDACTED"

// Requests returns all requests so far, oldest first.
func (f *Front) Requests() []Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]Request, len(f.log))
	for i, r := range f.log {
		out[i] = *r
	}
	return out
}

// Count says how many requests with this method ("" for all) and this path (a
// pattern as Match reads it) have arrived.
func (f *Front) Count(method, path string) int {
	want := Fault{Method: method, Path: path}
	return len(slices.DeleteFunc(f.Requests(), func(r Request) bool { return !want.fits(r) }))
}

// ForgetRequests empties the log, for instance between two nights of a test.
func (f *Front) ForgetRequests() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log = nil
}

// redact copies the headers and the body without what opens doors. A token
// travels in Authorization or, with slack-go, in the form.
func redact(h http.Header, query url.Values, body []byte) (http.Header, url.Values, string) {
	h = h.Clone()
	for _, name := range []string{"Authorization", "Cookie", "Proxy-Authorization"} {
		if v := h.Get(name); v != "" {
			scheme, _, _ := strings.Cut(v, " ")
			if scheme == v {
				scheme = ""
			}
			h.Set(name, strings.TrimSpace(scheme+" "+Redacted))
		}
	}
	if query.Has("token") {
		query.Set("token", Redacted)
	}
	text := string(body)
	if strings.HasPrefix(h.Get("Content-Type"), "application/x-www-form-urlencoded") {
		if form, err := url.ParseQuery(text); err == nil && form.Has("token") {
			form.Set("token", Redacted)
			text = form.Encode()
		}
	}
	return h, query, text
}
