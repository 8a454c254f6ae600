package wire

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Kind says how a request goes wrong. Kinds that this package does not know are
// handed to the server behind it, which finds them with FaultFrom.
type Kind string

// The faults that every server on a network has. Those that begin with
// CommitThen do the work first: the client cannot know that it was done.
const (
	// RateLimited answers 429; the request was not processed.
	RateLimited Kind = "rate-limited"
	// Unavailable answers 503 with a proxy's HTML; not processed.
	Unavailable Kind = "unavailable"
	// UnauthorizedHTML answers 401 with a proxy's HTML; not processed.
	UnauthorizedHTML Kind = "unauthorized-html"
	// ServerError answers 500; not processed.
	ServerError Kind = "server-error"
	// Hang never answers; not processed. It ends when the client gives up.
	Hang Kind = "hang"
	// Reset cuts the connection before a byte of an answer; not processed. Go's
	// own client repeats a GET that this happens to on a connection it had used
	// before, so inject it more than once to be noticed there.
	Reset Kind = "reset"
	// CommitThenServerError does the work and answers 500.
	CommitThenServerError Kind = "commit-then-500"
	// CommitThenHang does the work and never answers.
	CommitThenHang Kind = "commit-then-hang"
	// CommitThenReset does the work and cuts the connection in the middle of
	// the answer's body.
	CommitThenReset Kind = "commit-then-reset"
	// Answer replies with the fault's own Status and Answer; not processed.
	Answer Kind = "answer"
)

// Fault is one thing that will go wrong. The zero values of Method, Path and
// Body fit every request.
type Fault struct {
	Method string // "POST"; "" for all
	Path   string // a pattern as Match reads it, below the server's base path
	Body   string // text that the request's body must contain
	After  int    // how many fitting requests pass unharmed first
	Times  int    // how many requests it hits; 0 means until ClearFaults
	Kind   Kind

	RetryAfter string // Retry-After of RateLimited and Unavailable, verbatim; "" sends none
	Status     int    // of Answer; 0 is 200
	Answer     string // body of Answer, sent as JSON
}

// RetryDate writes t as the date form of Retry-After.
func RetryDate(t time.Time) string { return t.UTC().Format(http.TimeFormat) }

func (f *Fault) fits(r Request) bool {
	if f.Method != "" && f.Method != r.Method {
		return false
	}
	if _, ok := Match(f.Path, r.Path); !ok {
		return false
	}
	return strings.Contains(r.Body, f.Body)
}

// Inject adds faults; of several that fit a request the oldest hits it.
func (f *Front) Inject(faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fault := range faults {
		f.faults = append(f.faults, &fault)
	}
}

// ClearFaults makes the network healthy again. Requests that hang go on hanging.
func (f *Front) ClearFaults() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = nil
}

// PendingFaults says how many injected faults have not run out yet: a test that
// ends with some never met the situation it meant to test.
func (f *Front) PendingFaults() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.faults)
}

// take finds the fault that hits r and uses it up. The lock is held.
func (f *Front) take(r Request) *Fault {
	for i, fault := range f.faults {
		if !fault.fits(r) {
			continue
		}
		if fault.After > 0 {
			fault.After--
			continue
		}
		if fault.Times == 1 {
			f.faults = slices.Delete(f.faults, i, i+1)
		}
		if fault.Times > 1 {
			fault.Times--
		}
		hit := *fault
		return &hit
	}
	return nil
}

type faultKey struct{}

// FaultFrom is the kind of fault that hit the request, "" when none did. A
// server asks it for the kinds that only it can act out.
func FaultFrom(ctx context.Context) Kind {
	kind, _ := ctx.Value(faultKey{}).(Kind)
	return kind
}
