package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	fakejira "ipamaudit/notify/fake/jira"
	fakeslack "ipamaudit/notify/fake/slack"
)

// The canaries stand wherever a secret can; no test but this one knows them.
const (
	canaryMail    = "bot@example.com"
	canaryJira    = "jiraCANARY0123456789abcdef"
	canarySlack   = "xoxb-slackCANARY-0123456789"
	canaryHook    = "hookCANARY0123456789"
	canaryCluster = "kubeCANARY0123456789abcdef"
	canaryKey     = "keyCANARY0123456789abcdef"
)

// canaries are the secrets in every form in which they travel.
func canaries() []string {
	basic := base64.StdEncoding.EncodeToString([]byte(canaryMail + ":" + canaryJira))
	return []string{"CANARY", basic, base64.StdEncoding.EncodeToString([]byte(canaryKey)), url.QueryEscape(basic)}
}

// temper is how the servers behave.
type temper string

const (
	kind     temper = "kind"
	refuses  temper = "401"
	forbids  temper = "403"
	breaks   temper = "500"
	hangs    temper = "hangs"
	html     temper = "200 with a page"
	redirect temper = "302"
)

// gossip is a proxy in front of everything. Unless it is kind it answers itself,
// and tells all that it was sent: some do.
type gossip struct {
	temper temper
	behind http.Handler
	done   chan struct{}
}

func (g *gossip) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	said := fmt.Sprintf("%s %s\n%v\n%s", r.Method, r.URL, r.Header, body)
	switch g.temper {
	case kind:
		g.behind.ServeHTTP(w, r)
	case refuses:
		http.Error(w, said, http.StatusUnauthorized)
	case forbids:
		http.Error(w, said, http.StatusForbidden)
	case breaks:
		http.Error(w, said, http.StatusInternalServerError)
	case html:
		fmt.Fprintf(w, "<html>%s</html>", said)
	case redirect:
		http.Redirect(w, r, "/login?was="+url.QueryEscape(said), http.StatusFound)
	case hangs:
		select {
		case <-r.Context().Done():
		case <-g.done:
		}
	}
}

// TestNoSecretShows runs everything that has a secret at hand, at the level
// debug, against servers of every temper, and looks for the secrets in all that
// comes out: what is printed, logged, written, filed and posted.
func TestNoSecretShows(t *testing.T) {
	for _, how := range []temper{kind, refuses, forbids, breaks, html, redirect, hangs} {
		for _, hook := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, webhook %v", how, hook), func(t *testing.T) {
				t.Parallel()
				noSecretShows(t, how, hook)
			})
		}
	}
}

func noSecretShows(t *testing.T, how temper, hook bool) {
	j := fakejira.New(fakejira.Config{User: canaryMail, Token: canaryJira})
	s := fakeslack.New(fakeslack.Config{Token: canarySlack})
	done := make(chan struct{})
	serve := func(h http.Handler) string {
		srv := httptest.NewServer(&gossip{how, h, done})
		t.Cleanup(srv.Close)
		return srv.URL
	}
	t.Cleanup(func() { close(done) }) // before the servers close, or they would wait
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	api := serve(http.NotFoundHandler())
	kubeconfig := write("secret-kubeconfig", fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: a
clusters: [{name: a, cluster: {server: %q}}, {name: b, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: a, user: {token: %s}}, {name: b, user: {client-certificate-data: %[3]s, client-key-data: %[3]s}}]
contexts: [{name: a, context: {cluster: a, user: a}}, {name: b, context: {cluster: b, user: b}}]
`, api, canaryCluster, base64.StdEncoding.EncodeToString([]byte(canaryKey))))
	slackPart := fmt.Sprintf("tokenFile: %q, apiURL: %q, channel: C0CALICO", write("secret-slack", canarySlack+"\n"), serve(s)+"/api/")
	if hook {
		slackPart = fmt.Sprintf("webhookURLFile: %q", write("secret-hook", serve(s)+"/services/T0/B0/"+canaryHook))
	}
	config := write("fleet.yaml", fmt.Sprintf(`
clusters:
  - {name: live, kubeconfig: %[1]q, context: a, timeout: 3s}
  - {name: keyed, kubeconfig: %[1]q, context: b, timeout: 3s}
state: {file: %[2]q}
jira: {enabled: true, flavor: cloud, apiBaseURL: %[3]q, username: %[4]s, tokenFile: %[5]q, project: OPS, timeout: 1s, requestsPerSecond: 100}
slack: {enabled: true, timeout: 1s, %[6]s}
log: {level: debug}
`, kubeconfig, filepath.Join(dir, "state.json"), serve(j), canaryMail, write("secret-jira", canaryJira), slackPart))

	var shown strings.Builder
	run := func(args ...string) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var out, errs bytes.Buffer
		a := &app{in: strings.NewReader(""), out: &out, err: &errs, env: []string{"HOME=" + dir}, now: time.Now}
		code := a.run(ctx, args)
		fmt.Fprintf(&shown, "$ ipamaudit %s\n%s%s(%d)\n", strings.Join(args, " "), out.String(), errs.String(), code)
	}
	fixture := filepath.Join("testdata", "clusters", "story")
	all := []string{"run", "--config", config, "--notify", "--log-level", "debug"}
	for _, format := range []string{"json", "yaml", "markdown", "junit", "prometheus", "table"} {
		all = append(all, "-o", format+"="+filepath.Join(dir, "report."+format))
	}
	run(all...)
	run("run", "--config", config, "--notify", "--log-level", "debug", "--log-format", "json", "--from", fixture)
	if how != hangs { // each of these waits for a second a request
		run("run", "--config", config, "--notify", "--dry-run", "--log-level", "debug", "--from", fixture)
		run("doctor", "--config", config)
		run("snapshot", "--config", config, "--context", "live", "-o", filepath.Join(dir, "snapshot.tar.gz"))
		run("explain", "10.0.0.1", "--config", config, "--context", "live")
	}
	run("config", "view", "--config", config)
	run("config", "validate", "--config", config)
	run("state", "show", "--config", config)

	for _, i := range j.Issues() {
		fmt.Fprintf(&shown, "%+v\n", i)
	}
	for _, m := range s.Messages("") {
		fmt.Fprintf(&shown, "%s %s %s\n", m.Text, m.Blocks, m.Metadata)
	}
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), "secret-") {
			return err
		}
		files++
		b, err := os.ReadFile(path)
		fmt.Fprintf(&shown, "== %s\n%s\n", path, b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 7 {
		t.Errorf("only %d files were written", files)
	}
	for line := range strings.SplitSeq(shown.String(), "\n") {
		for _, c := range canaries() {
			if strings.Contains(line, c) {
				t.Errorf("a secret shows: %.600s", line)
			}
		}
	}
	if how == kind && !hook && (len(j.Issues()) == 0 || len(s.Messages("")) == 0) {
		t.Errorf("nothing was filed or posted, so nothing was looked at:\n%s", shown.String())
	}
}
