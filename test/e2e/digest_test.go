package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"ipamaudit/test/bed"
)

// TestDigestNamesTheLostClusterFirst is the night that matters most: a cluster
// is gone, and the message must not begin with anything else.
func TestDigestNamesTheLostClusterFirst(t *testing.T) {
	needs(t, "run")
	needsPackage(t, "ipamaudit/notify/slack")
	fleet := bed.Fleet(t, bed.Options{Name: "east"}, bed.Options{Name: "lost", Calico: bed.NoCalico})
	east, lost := fleet[0], fleet[1]
	if err := east.Load(t.Context(), bed.Kubestage(bed.CalicoV1)); err != nil {
		t.Fatal(err)
	}
	lost.Kill()
	slack := newSlack(t)
	dir := t.TempDir()
	clusters := filepath.Join(dir, "kubeconfig")
	if err := bed.WriteKubeconfig(clusters, east.Context(), lost.Context()); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `
clusters:
  - {name: east, kubeconfig: %[1]s, context: east}
  - {name: lost, kubeconfig: %[1]s, context: lost}
state: {file: %[2]s}
slack: {enabled: true, token: xoxb-not-a-secret, apiURL: %[3]s/api/, channel: C0CALICO}
`, clusters, filepath.Join(dir, "state.json"), slack.URL), 0o600); err != nil {
		t.Fatal(err)
	}

	res := ipamaudit(t, "run", "--config", config, "--notify")
	res.wantCode(t, 3)
	posts := slack.posts()
	if len(posts) == 0 {
		t.Fatalf("nothing was posted; stderr:\n%s", res.stderr)
	}
	digest := posts[0].Get("blocks") + posts[0].Get("text")
	if at, other := strings.Index(digest, "lost"), strings.Index(digest, "east"); at < 0 || (other >= 0 && at > other) {
		t.Errorf("the digest does not begin with the cluster that could not be audited:\n%s", digest)
	}
	for _, p := range posts {
		if strings.Contains(p.Encode(), "xoxb-not-a-secret") && p.Get("token") == "" {
			t.Error("a message contains the token")
		}
	}
	if strings.Contains(res.stdout+res.stderr, "xoxb-not-a-secret") {
		t.Error("the token was printed")
	}
}

// recorder is a Slack that says yes to everything and remembers what was posted.
type recorder struct {
	*httptest.Server
	mu       sync.Mutex
	received []url.Values
}

func newSlack(t *testing.T) *recorder {
	r := &recorder{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		form, err := url.ParseQuery(string(body))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if strings.HasSuffix(req.URL.Path, "/chat.postMessage") {
			r.received = append(r.received, form)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"ok":true,"channel":"C0CALICO","ts":"1700000000.%06d","messages":[],"user_id":"U0IPAMBOT","bot_id":"B0IPAMBOT","team_id":"T0EXAMPLE"}`, len(r.received))
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *recorder) posts() []url.Values {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]url.Values(nil), r.received...)
}
