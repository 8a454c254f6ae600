package fakejira

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"ipamaudit/notify/fake/wire"
)

// Server is the fake. It is an http.Handler, safe for concurrent use; through
// the embedded Front it takes faults (Inject) and shows its requests.
type Server struct {
	*wire.Front

	cfg      Config
	routes   []route
	handler  http.Handler
	listener *wire.Listener

	mu       sync.Mutex
	projects []*project
	issues   []*Issue // by id, ascending
	index    index
	lastID   int // of everything that gets an id
	expired  bool
}

// project is a Project and how many keys it has given out.
type project struct {
	Project
	id      string
	lastKey int
}

// New makes a server that is not listening, for a listener of your own.
func New(cfg Config) *Server {
	cfg = cfg.withDefaults()
	s := &Server{cfg: cfg, lastID: 10000, routes: routes(cfg.Flavour)}
	s.Front = wire.NewFront(cfg.Now, s.rateLimited)
	for _, p := range cfg.Projects {
		s.projects = append(s.projects, &project{Project: p, id: s.newID()})
	}
	s.index.lag = cfg.SearchLag
	s.handler = http.StripPrefix(strings.TrimSuffix(cfg.BasePath, "/"), s.Wrap(http.HandlerFunc(s.serve)))
	return s
}

// Start makes a server that listens on a free port of the loopback interface.
func Start(cfg Config) (*Server, error) {
	s := New(cfg)
	l, err := wire.Listen(s)
	if err != nil {
		return nil, err
	}
	s.listener = l
	return s, nil
}

// URL is the base URL for clients, with the context path and a closing slash.
// It is empty for a server that New made.
func (s *Server) URL() string {
	if s.listener == nil {
		return ""
	}
	return s.listener.URL() + strings.TrimSuffix(s.cfg.BasePath, "/") + "/"
}

// Close ends the server and every request that hangs in it.
func (s *Server) Close() error {
	s.Release()
	if s.listener == nil {
		return nil
	}
	return s.listener.Close()
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// FaultKinds that only a Jira has; they go into wire.Fault.Kind.
const (
	// DropLabels creates the issue without its labels and says nothing
	// (prometheus-community/jiralert#73).
	DropLabels wire.Kind = "drop-labels"
	// ExpiredToken treats the request as anonymous, as Cloud does with a token
	// that has expired: searches answer 200 and nothing.
	ExpiredToken wire.Kind = "expired-token"
)

// route is one method of the REST API.
type route struct {
	method  string
	pattern string // as wire.Match reads it
	handle  func(*Server, *call) answer
}

// call is one request on its way through a handler.
type call struct {
	*http.Request
	vars      []string // what stood at the pattern's stars
	body      []byte
	anonymous bool
}

// answer is what a handler decides; writing it is not its business.
type answer struct {
	status int
	body   any // nil writes no body
	header map[string]string
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	a := s.answer(&call{Request: r, body: body})
	s.mu.Unlock()

	for name, value := range a.header {
		w.Header().Set(name, value)
	}
	if a.body == nil {
		w.WriteHeader(a.status)
		return
	}
	w.Header().Set("Content-Type", "application/json;charset=UTF-8")
	w.WriteHeader(a.status)
	_ = json.NewEncoder(w).Encode(a.body)
}

// answer finds the route. The lock is held from here on.
func (s *Server) answer(c *call) answer {
	known := false
	for _, r := range s.routes {
		vars, ok := wire.Match(r.pattern, c.URL.Path)
		if !ok {
			continue
		}
		known = true
		if r.method != c.Method {
			continue
		}
		c.vars = vars
		login := s.login(c)
		if login.refusal != nil {
			return *login.refusal
		}
		a := r.handle(s, c)
		if login.reason != "" {
			if a.header == nil {
				a.header = map[string]string{}
			}
			a.header["X-Seraph-Loginreason"] = login.reason
		}
		return a
	}
	if known {
		return failed(http.StatusMethodNotAllowed, "Method Not Allowed")
	}
	return failed(http.StatusNotFound, "null for uri: "+c.URL.Path)
}

func ok(body any) answer      { return answer{status: http.StatusOK, body: body} }
func created(body any) answer { return answer{status: http.StatusCreated, body: body} }
func noContent() answer       { return answer{status: http.StatusNoContent} }

// errorBody is the one shape of Jira's errors.
type errorBody struct {
	ErrorMessages []string          `json:"errorMessages"`
	Errors        map[string]string `json:"errors"`
}

func failed(status int, messages ...string) answer {
	return answer{status: status, body: errorBody{messages, map[string]string{}}}
}

func invalid(errors map[string]string) answer {
	return answer{status: http.StatusBadRequest, body: errorBody{[]string{}, errors}}
}

func (c *call) decode(v any) *answer {
	if err := json.Unmarshal(c.body, v); err != nil {
		a := failed(http.StatusBadRequest, "There was an error parsing JSON. Check that your request body is valid: "+err.Error())
		return &a
	}
	return nil
}

// rateLimited writes the headers of Cloud's burst limit or of Data Center's
// token bucket.
func (s *Server) rateLimited(h http.Header) string {
	if s.cfg.Flavour == Cloud {
		h.Set("RateLimit-Reason", "jira-burst-based")
	} else {
		h.Set("X-RateLimit-Limit", "50")
		h.Set("X-RateLimit-Remaining", "0")
		h.Set("X-RateLimit-Interval-Seconds", "60")
		h.Set("X-RateLimit-FillRate", "10")
	}
	return `{"errorMessages":["Rate limit exceeded."],"errors":{}}`
}

func (s *Server) newID() string {
	s.lastID++
	return strconv.Itoa(s.lastID)
}

func (s *Server) now() time.Time { return s.cfg.Now() }

func (s *Server) project(keyOrID string) *project {
	for _, p := range s.projects {
		if strings.EqualFold(p.Key, keyOrID) || p.id == keyOrID {
			return p
		}
	}
	return nil
}

// find looks for an issue by id, key, or a key that it had before it was moved.
func (s *Server) find(ref string) *Issue {
	for _, i := range s.issues {
		if i.ID == ref || strings.EqualFold(i.Key, ref) {
			return i
		}
	}
	for _, i := range s.issues {
		for _, old := range i.PreviousKeys {
			if strings.EqualFold(old, ref) {
				return i
			}
		}
	}
	return nil
}
