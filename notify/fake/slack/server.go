package fakeslack

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"ipamaudit/notify/fake/wire"
)

// Server is the fake. It is an http.Handler, safe for concurrent use; through
// the embedded Front it takes faults (Inject) and shows its requests. The paths
// of faults are "api/chat.postMessage" and the like.
type Server struct {
	*wire.Front

	cfg      Config
	handler  http.Handler
	listener *wire.Listener

	mu       sync.Mutex
	channels []*Channel
	messages []*Message // by TS, ascending
	lastTS   int64      // microseconds
	lastPost map[string]time.Time
	scopes   []string
	revoked  bool
}

// New makes a server that is not listening, for a listener of your own.
func New(cfg Config) *Server {
	cfg = cfg.withDefaults()
	s := &Server{cfg: cfg, scopes: cfg.Scopes, lastPost: map[string]time.Time{}}
	for _, c := range cfg.Channels {
		s.channels = append(s.channels, &c)
	}
	s.Front = wire.NewFront(cfg.Now, func(http.Header) string { return `{"ok":false,"error":"ratelimited"}` })
	s.handler = s.Wrap(http.HandlerFunc(s.serve))
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

// APIURL is what slack.OptionAPIURL takes, with its closing slash. It is empty
// for a server that New made, as WebhookURL is.
func (s *Server) APIURL() string { return s.url("/api/") }

// WebhookURL is an incoming webhook that posts to the first channel.
func (s *Server) WebhookURL() string { return s.url(webhookPath) }

const webhookPath = "/services/" + TeamID + "/" + BotID + "/fakesecret"

func (s *Server) url(path string) string {
	if s.listener == nil {
		return ""
	}
	return s.listener.URL() + path
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

// Refusal is a fault that answers a method with an error of Slack's, the way
// Slack does: 200 and "ok":false. times as in wire.Fault.
func Refusal(method, code string, times int) wire.Fault {
	return wire.Fault{Path: "api/" + method, Times: times, Kind: wire.Answer, Answer: fmt.Sprintf(`{"ok":false,"error":%q}`, code)}
}

// reply is the body of an answer.
type reply map[string]any

func refuse(code string) reply { return reply{"ok": false, "error": code} }

// method is one method of the Web API.
type method struct {
	scopes []string // any one of them; none means no scope is needed
	run    func(*Server, args) reply
}

func methods() map[string]method {
	return map[string]method{
		"auth.test":             {nil, (*Server).authTest},
		"chat.postMessage":      {[]string{ChatWrite}, (*Server).postMessage},
		"chat.update":           {[]string{ChatWrite}, (*Server).updateMessage},
		"chat.getPermalink":     {nil, (*Server).permalink},
		"conversations.history": {[]string{ChannelsHistory, GroupsHistory}, (*Server).history},
		"conversations.replies": {[]string{ChannelsHistory, GroupsHistory}, (*Server).replies},
		"conversations.info":    {[]string{ChannelsRead, GroupsRead}, (*Server).info},
	}
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.HasPrefix(r.URL.Path, "/services/") {
		s.webhook(w, r)
		return
	}
	in, err := readArgs(r)
	if err != nil {
		s.write(w, refuse("invalid_form_data"), nil)
		return
	}
	m, known := methods()[strings.TrimPrefix(r.URL.Path, "/api/")]
	if !known {
		s.write(w, reply{"ok": false, "error": "unknown_method", "req_method": strings.TrimPrefix(r.URL.Path, "/api/")}, nil)
		return
	}
	if refusal := s.login(r, in, m.scopes); refusal != nil {
		s.write(w, refusal, m.scopes)
		return
	}
	if wait, tooFast := s.tooFast(r, in); tooFast {
		w.Header().Set("Retry-After", wait)
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, `{"ok":false,"error":"ratelimited"}`)
		return
	}
	out := m.run(s, in)
	if _, decided := out["ok"]; !decided {
		out["ok"] = true
	}
	s.write(w, out, m.scopes)
}

func (s *Server) write(w http.ResponseWriter, out reply, accepted []string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("X-OAuth-Scopes", strings.Join(s.scopes, ","))
	if len(accepted) > 0 {
		w.Header().Set("X-Accepted-OAuth-Scopes", strings.Join(accepted, ","))
	}
	_ = json.NewEncoder(w).Encode(out)
}

// login checks the token and the scopes. A method that takes one of several
// scopes checks the right one later, when it knows the channel.
func (s *Server) login(r *http.Request, in args, scopes []string) reply {
	token := in.Get("token")
	if bearer, has := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); has {
		token = bearer
	}
	switch {
	case token == "":
		return refuse("not_authed")
	case s.cfg.Token != "" && token != s.cfg.Token:
		return refuse("invalid_auth")
	case s.revoked:
		return refuse("token_revoked")
	case len(scopes) > 0 && !slices.ContainsFunc(scopes, s.has):
		return s.missingScope(scopes...)
	}
	return nil
}

func (s *Server) has(scope string) bool { return slices.Contains(s.scopes, scope) }

func (s *Server) missingScope(needed ...string) reply {
	return reply{"ok": false, "error": "missing_scope", "needed": strings.Join(needed, ","), "provided": strings.Join(s.scopes, ",")}
}

// tooFast holds posts against Pace.
func (s *Server) tooFast(r *http.Request, in args) (retryAfter string, yes bool) {
	if s.cfg.Pace == 0 || !strings.HasSuffix(r.URL.Path, "/chat.postMessage") {
		return "", false
	}
	now, channel := s.cfg.Now(), in.Get("channel")
	if wait := s.cfg.Pace - now.Sub(s.lastPost[channel]); wait > 0 && !s.lastPost[channel].IsZero() {
		return strconv.FormatInt(int64((wait+time.Second-1)/time.Second), 10), true
	}
	s.lastPost[channel] = now
	return "", false
}

// args are the arguments of a call: a form, a query, or a JSON object whose
// members are kept as they were sent unless they are strings.
type args struct{ url.Values }

// flag reads a boolean argument.
func (a args) flag(name string) bool { return a.Get(name) == "1" || a.Get(name) == "true" }

func readArgs(r *http.Request) (args, error) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if r.Method == http.MethodGet || err != nil || kind != "application/json" {
		if err := r.ParseForm(); err != nil {
			return args{}, fmt.Errorf("arguments of %s: %w", r.URL.Path, err)
		}
		return args{r.Form}, nil
	}
	var members map[string]json.RawMessage
	if err := json.NewDecoder(r.Body).Decode(&members); err != nil {
		return args{}, fmt.Errorf("arguments of %s: %w", r.URL.Path, err)
	}
	out := args{url.Values{}}
	for name, raw := range members {
		var text string
		if json.Unmarshal(raw, &text) != nil {
			text = string(raw)
		}
		out.Set(name, text)
	}
	return out, nil
}

// channel finds a channel for the bot, by id or where byName by name. A private
// one that the bot is not in does not exist for it.
func (s *Server) channel(ref string, byName bool) *Channel {
	for _, c := range s.channels {
		if c.Private && c.NotMember {
			continue
		}
		if c.ID == ref || byName && (c.Name == ref || "#"+c.Name == ref) {
			return c
		}
	}
	return nil
}

func (s *Server) message(channel, ts string) *Message {
	for _, m := range s.messages {
		if m.Channel == channel && m.TS == ts {
			return m
		}
	}
	return nil
}

// newTS is the time in microseconds, and never the same twice.
func (s *Server) newTS() string {
	s.lastTS = max(s.cfg.Now().UnixMicro(), s.lastTS+1)
	return fmt.Sprintf("%d.%06d", s.lastTS/1e6, s.lastTS%1e6)
}
