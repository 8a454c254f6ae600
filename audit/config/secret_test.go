package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const secretConfig = `
jira: {token: hunter2}
slack: {webhookURL: https://hooks.slack.com/hunter2}
`

// TestSecretsNeverPrint tries every way in which a careless line of code prints a configuration.
func TestSecretsNeverPrint(t *testing.T) {
	c := mustLoad(t, secretConfig, Options{})
	credential := c.Jira.Credential()
	hidden := struct{ c Credential }{credential}
	asJSON, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	asYAML, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var logs bytes.Buffer
	for _, logger := range []*slog.Logger{slog.New(slog.NewTextHandler(&logs, nil)), slog.New(slog.NewJSONHandler(&logs, nil))} {
		logger.Info("x", "config", c, "jira", c.Jira, "token", c.Jira.Token, "credential", credential)
	}
	texts := map[string]string{"json": string(asJSON), "yaml": string(asYAML), "slog": logs.String(), "view": string(c.View())}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%10s", "%T %[1]v"} {
		for _, v := range []any{*c, c.Jira, c.Jira.Token, &c.Jira, credential, hidden, &hidden, []Secret{c.Jira.Token}} {
			texts[fmt.Sprintf("%s of %T", verb, v)] = fmt.Sprintf(verb, v)
		}
	}
	for how, text := range texts {
		for _, leak := range []string{"hunter2", "68756e74657232", "68756E74657232"} {
			if strings.Contains(text, leak) {
				t.Errorf("%s shows the secret: %s", how, text)
			}
		}
	}
	for _, how := range []string{"json", "yaml", "slog", "view", "%v of config.Secret"} {
		if !strings.Contains(texts[how], "secret") {
			t.Errorf("%s does not show that there is a secret: %s", how, texts[how])
		}
	}
	if got := Secret("").String(); got != "" {
		t.Errorf("no secret prints as %q", got)
	}
}

func TestCredential(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := mustLoad(t, "jira: {tokenFile: "+file+"}", Options{})
	credential := c.Jira.Credential()
	if _, err := credential.Read(); err == nil || !strings.Contains(err.Error(), "jira.tokenFile: open "+file) {
		t.Errorf("missing file: %v", err)
	}
	for _, tc := range []struct{ text, want, err string }{
		{text: "first\n", want: "first"},
		{text: "rotated\r\n", want: "rotated"},
		{text: " spaces stay \n\n", want: " spaces stay \n"},
		{text: "\n", err: "is empty"},
		{text: strings.Repeat("x", maxSecretFile+1), err: "not a token"},
	} {
		write(tc.text)
		got, err := credential.Read()
		if got != tc.want || tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
			t.Errorf("%.20q: %.20q, %v", tc.text, got, err)
		}
	}
	if got := credential.String(); got != "file "+file {
		t.Errorf("String: %s", got)
	}
	if _, err := c.Slack.TokenCredential().Read(); err == nil || !strings.Contains(err.Error(), "set slack.token or slack.tokenFile") {
		t.Errorf("not set: %v", err)
	}
	if (Credential{}).IsSet() {
		t.Error("a zero credential is set")
	}
}

func TestWarnings(t *testing.T) {
	open := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(open, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o644); err != nil { // whatever the umask
		t.Fatal(err)
	}
	file := writeConfig(t, `
jira: {tokenFile: `+open+`, apiBaseURL: http://jira.example.com}
slack: {enabled: true, token: hunter2, channel: net-ops, apiURL: http://127.0.0.1:8080}
suppressions:
  - {check: leaked-ips, reason: a, owner: net, until: 2026-11-29}
  - {check: leaked-ips, reason: a, owner: net, until: 2026-12-05}
  - {check: leaked-ips, reason: a, owner: net, until: 2027-12-05}
`)
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	_, warnings, err := Load(Options{File: file, Checks: testChecks, Now: testNow})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, w := range warnings {
		text.WriteString(strings.NewReplacer(file, "config.yaml", open, "TOKEN").Replace(w.String()) + "\n")
	}
	golden(t, "testdata/warnings.txt", text.String())
}
