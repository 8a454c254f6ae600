package notify_test

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	api "github.com/slack-go/slack"

	"ipamaudit/audit"
	"ipamaudit/checks"
	"ipamaudit/notify"
	fakejira "ipamaudit/notify/fake/jira"
	fakeslack "ipamaudit/notify/fake/slack"
	"ipamaudit/notify/slack"
)

// readers is the folder of the foreign programs. They are for development only,
// and none of their code is here: npm brings what package-lock.json names.
func readers(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../test/readers")
	must(t, err)
	version, err := exec.CommandContext(t.Context(), "node", "--version").Output()
	if err != nil {
		t.Skip("no node: jira.js and emulate cannot be asked")
	}
	major, _, _ := strings.Cut(strings.TrimPrefix(string(version), "v"), ".")
	if n, err := strconv.Atoi(major); err != nil || n < 20 {
		t.Skipf("node %s is too old for jira.js and emulate, which want 20", bytes.TrimSpace(version))
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err != nil {
		t.Skip("jira.js and emulate are not there: (cd test/readers && npm ci --ignore-scripts)")
	}
	return dir
}

// What the tool writes into the fake Jira a client by other people reads, checks
// against its own schemas, and understands as we do.
func TestForeignJiraClient(t *testing.T) {
	dir := readers(t)
	w := newWorld(t, fakejira.Config{}, fakeslack.Config{})
	w.o.Tickets.AttachOver, w.o.Tickets.RunURL, w.o.Tickets.CloseAfter = 50, "https://ci.example.com/{run}", 1
	w.o.Tickets.Priorities = map[checks.Severity]string{checks.High: "High"}
	w.run(crowd("prod-1", 60), sick("prod-2", checks.High, "b"), sick("prod-3", checks.High, "c"))
	w.nextNight()
	w.run(crowd("prod-1", 60), sick("prod-2", checks.Critical, "b"), healthy("prod-3"))

	// jira.js speaks v3 alone. Its paths are those of v2, but for texts in
	// another format, which it does not look into.
	v3 := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		r.URL.Path = strings.Replace(r.URL.Path, "/rest/api/3/", "/rest/api/2/", 1)
		w.jira.ServeHTTP(rw, r)
	}))
	defer v3.Close()
	cmd := exec.CommandContext(t.Context(), "node", "jira.mjs", v3.URL, mail, jiraToken, "OPS", notify.StaticLabel)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	var read struct {
		Me, Made   string
		Mismatches []string
		Issues     []struct {
			ID, Key, Summary, Resolution, Priority string
			Labels, Attachments                    []string
			Done                                   bool
			Comments                               int
		}
	}
	must(t, json.Unmarshal(out, &read))
	for _, m := range read.Mismatches {
		t.Errorf("jira.js would not expect this from Jira: %s", m)
	}
	if read.Me != fakejira.Bot || len(read.Issues) != 3 {
		t.Fatalf("%s", out)
	}
	for _, got := range read.Issues {
		ours, err := w.client.Tracker.Get(t.Context(), got.ID)
		must(t, err)
		i, _ := w.jira.Issue(got.ID)
		if got.Key != ours.Key || got.Summary != ours.Summary || !slices.Equal(got.Labels, ours.Labels) || got.Done != ours.Done ||
			got.Resolution != ours.Resolution || got.Priority != i.Priority || len(got.Attachments) != len(i.Attachments) || got.Comments != len(i.Comments) {
			t.Errorf("jira.js read %+v, we %+v", got, ours)
		}
	}
	made, err := w.client.Tracker.Get(t.Context(), read.Made)
	must(t, err)
	if made.Summary != "edited by jira.js" || !made.Done || !slices.Contains(made.Labels, "foreign") {
		t.Errorf("what jira.js filed we read as %+v", made)
	}
}

// bearer sends the token where Slack and emulate both take it from; slack-go puts
// it into the form, which emulate does not look into.
type bearer struct{ token string }

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return http.DefaultTransport.RoundTrip(r)
}

// Our client and the digests pass on a Slack that other people wrote.
func TestForeignSlackServer(t *testing.T) {
	dir := readers(t)
	const token = "xoxb-local-test"
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	must(t, l.Close())
	cmd := exec.CommandContext(t.Context(), "node", "slack.mjs", port)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	stdin, err := cmd.StdinPipe()
	must(t, err)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = stdin.Close(); _ = cmd.Wait() })
	var started struct{ URL string }
	must(t, json.NewDecoder(stdout).Decode(&started))

	raw := api.New(token, api.OptionAPIURL(started.URL+"/api/"), api.OptionHTTPClient(&http.Client{Transport: bearer{token}}))
	channels, _, err := raw.GetConversations(&api.GetConversationsParameters{Limit: 100})
	must(t, err)
	i := slices.IndexFunc(channels, func(c api.Channel) bool { return c.Name == "calico-ipam" })
	if i < 0 {
		t.Fatalf("channels: %+v", channels)
	}
	id := channels[i].ID
	history := func() (digests []api.Message) {
		t.Helper()
		got, err := raw.GetConversationHistory(&api.GetConversationHistoryParameters{ChannelID: id, IncludeAllMetadata: true})
		must(t, err)
		for _, m := range got.Messages {
			if m.Metadata.EventType == notify.MetadataEvent {
				digests = append(digests, m)
			}
		}
		return digests
	}

	w := newWorld(t, fakejira.Config{}, fakeslack.Config{})
	quiet(w)
	w.client.Messenger, err = slack.New(slack.Options{Token: token, APIURL: started.URL + "/api/", Transport: bearer{token}, Pace: time.Microsecond})
	must(t, err)
	w.o.Digest.Channel = func(*audit.ClusterReport, string, checks.Severity) string { return id }
	w.at = time.Now() // emulate has the real clock
	w.run(sick("prod-1", checks.High, "node-a"), failed("prod-2"))
	d := history()
	if len(d) != 1 || d[0].ReplyCount != 2 {
		t.Fatalf("%d digests: %+v", len(d), d)
	}
	// The same run again, without its state: it is found, and edited.
	w.store.saved = nil
	w.run(sick("prod-1", checks.High, "node-a"), healthy("prod-2"))
	again := history()
	if len(again) != 1 || again[0].Timestamp != d[0].Timestamp || strings.Contains(again[0].Blocks.BlockSet[1].(*api.SectionBlock).Text.Text, "not audited") {
		t.Errorf("%d digests: %+v", len(again), again)
	}
	if ms := w.logs.String(); strings.Contains(ms, token) {
		t.Error("the token is in the log")
	}
	// What it refuses is said in its words.
	w.o.Digest.Channel = func(*audit.ClusterReport, string, checks.Severity) string { return "C0NOTHERE" }
	if _, err := w.try(sick("prod-1", checks.High, "node-a")); err == nil || !strings.Contains(err.Error(), "channel_not_found") {
		t.Errorf("error %v", err)
	}
}
