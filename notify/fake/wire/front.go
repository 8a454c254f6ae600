package wire

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"
)

// Front stands before a fake server: it logs each request, lets the fault that
// fits it happen, and otherwise passes it on. It is safe for concurrent use.
type Front struct {
	now         func() time.Time
	rateLimited func(http.Header) string

	mu     sync.Mutex
	faults []*Fault
	log    []*Request

	closed chan struct{}
	once   sync.Once
}

// NewFront makes a Front. now may be nil for the real clock. rateLimited writes
// the vendor's headers of a 429 and returns its JSON body; it may be nil.
func NewFront(now func() time.Time, rateLimited func(http.Header) string) *Front {
	if now == nil {
		now = time.Now
	}
	if rateLimited == nil {
		rateLimited = func(http.Header) string { return "{}" }
	}
	return &Front{now: now, rateLimited: rateLimited, closed: make(chan struct{})}
}

// Release ends every request that hangs, now and later. Closing a server needs it.
func (f *Front) Release() { f.once.Do(func() { close(f.closed) }) }

// maxBody is more than any vendor takes; a fake must not be what eats the memory.
const maxBody = 64 << 20

// Wrap puts the Front before next. What next receives has a body that was read
// whole, so a client that gives up is noticed while the request hangs.
func (f *Front) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			return // the client went away, or sends without end
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		entry, fault := f.record(r, body)
		answer := func(status int, body string, contentType string) {
			w.Header().Set("Content-Type", contentType)
			f.answered(entry, status)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}

		if fault == nil {
			f.pass(w, r, next, entry)
			return
		}
		if fault.RetryAfter != "" {
			w.Header().Set("Retry-After", fault.RetryAfter)
		}
		switch fault.Kind {
		case RateLimited:
			body := f.rateLimited(w.Header())
			answer(http.StatusTooManyRequests, body, "application/json;charset=UTF-8")
		case Unavailable:
			answer(http.StatusServiceUnavailable, html("503 Service Temporarily Unavailable"), "text/html")
		case UnauthorizedHTML:
			answer(http.StatusUnauthorized, html("401 Authorization Required"), "text/html")
		case ServerError:
			answer(http.StatusInternalServerError, serverErrorBody, "application/json;charset=UTF-8")
		case Answer:
			status := fault.Status
			if status == 0 {
				status = http.StatusOK
			}
			answer(status, fault.Answer, "application/json;charset=UTF-8")
		case Hang:
			f.hang(r)
		case Reset:
			reset(w, nil)
		case CommitThenServerError:
			next.ServeHTTP(newCapture(), r)
			answer(http.StatusInternalServerError, serverErrorBody, "application/json;charset=UTF-8")
		case CommitThenHang:
			next.ServeHTTP(newCapture(), r)
			f.hang(r)
		case CommitThenReset:
			done := newCapture()
			next.ServeHTTP(done, r)
			reset(w, done)
		default:
			f.pass(w, r.WithContext(context.WithValue(r.Context(), faultKey{}, fault.Kind)), next, entry)
		}
	})
}

const serverErrorBody = `{"errorMessages":["Internal server error"],"errors":{},"ok":false,"error":"internal_error"}`

// html is what a proxy says instead of the vendor's JSON.
func html(title string) string {
	return "<html>\r\n<head><title>" + title + "</title></head>\r\n<body>\r\n<center><h1>" + title +
		"</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n"
}

func (f *Front) record(r *http.Request, body []byte) (*Request, *Fault) {
	header, query, text := redact(r.Header, r.URL.Query(), body)
	entry := &Request{Time: f.now(), Method: r.Method, Path: r.URL.Path, Query: query, Header: header, Body: text}
	f.mu.Lock()
	defer f.mu.Unlock()
	fault := f.take(*entry)
	if fault != nil {
		entry.Fault = fault.Kind
	}
	f.log = append(f.log, entry)
	return entry, fault
}

func (f *Front) answered(entry *Request, status int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	entry.Status = status
}

func (f *Front) pass(w http.ResponseWriter, r *http.Request, next http.Handler, entry *Request) {
	done := newCapture()
	next.ServeHTTP(done, r)
	f.answered(entry, done.status)
	for name, values := range done.header {
		w.Header()[name] = values
	}
	w.WriteHeader(done.status)
	_, _ = w.Write(done.body.Bytes())
}

func (f *Front) hang(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-f.closed:
	}
	panic(http.ErrAbortHandler) // closes the connection without an answer
}

// capture keeps an answer in memory, so that the log knows its status and a
// fault can cut it in the middle.
type capture struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func newCapture() *capture { return &capture{header: http.Header{}, status: http.StatusOK} }

func (c *capture) Header() http.Header         { return c.header }
func (c *capture) WriteHeader(status int)      { c.status = status }
func (c *capture) Write(p []byte) (int, error) { return c.body.Write(p) }

// reset cuts the connection with a TCP RST, after half of done's body if there
// is a done.
func reset(w http.ResponseWriter, done *capture) {
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil { // HTTP/2, or a recorder in the way: the next best thing
		panic(http.ErrAbortHandler)
	}
	if done != nil {
		whole, err := httputil.DumpResponse(&http.Response{
			ProtoMajor: 1, ProtoMinor: 1, StatusCode: done.status, Header: done.header,
			ContentLength: int64(done.body.Len()), Body: io.NopCloser(bytes.NewReader(done.body.Bytes())),
		}, true)
		if err == nil {
			_, _ = buf.Write(whole[:len(whole)-(done.body.Len()+1)/2])
			_ = buf.Flush()
		}
	}
	if tcp, ok := conn.(interface{ SetLinger(int) error }); ok && done == nil {
		_ = tcp.SetLinger(0) // RST instead of FIN; after data it might overtake them
	}
	_ = conn.Close()
}
