package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

func TestDefaults(t *testing.T) {
	c, warnings, err := Load(Options{})
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	want := Run{
		Concurrency: 16, Timeout: 30 * time.Minute, ClusterTimeout: 5 * time.Minute,
		QPS: 20, Burst: 40, PageSize: 5000, FailOn: "high",
	}
	if diff := cmp.Diff(want, c.Run); diff != "" {
		t.Errorf("run (-want +got):\n%s", diff)
	}
	if c.Jira.Enabled || c.Slack.Enabled || c.State.IsSet() {
		t.Error("something leaves the program by default")
	}
	golden(t, "testdata/defaults.yaml", string(c.View()))
}

// TestPrecedence sets one value in more and more places.
func TestPrecedence(t *testing.T) {
	flags := func(args ...string) *pflag.FlagSet {
		set := pflag.NewFlagSet("run", pflag.ContinueOnError)
		set.String("fail-on", "high", "")
		set.Bool("require-routes", false, "")
		if err := set.Parse(args); err != nil {
			t.Fatal(err)
		}
		return set
	}
	for _, tc := range []struct {
		name, file string
		env        []string
		flags      *pflag.FlagSet
		want       string
	}{
		{name: "default", want: "high"},
		{name: "flag that was not given", flags: flags(), file: "run: {failOn: low}", want: "low"},
		{name: "file", file: "run: {failOn: low}", want: "low"},
		{name: "environment over file", file: "run: {failOn: low}", env: []string{"IPAMAUDIT_RUN_FAIL_ON=medium"}, want: "medium"},
		{name: "environment without value", file: "run: {failOn: low}", env: []string{"IPAMAUDIT_RUN_FAIL_ON="}, want: "low"},
		{name: "flag over environment", file: "run: {failOn: low}", env: []string{"IPAMAUDIT_RUN_FAIL_ON=medium"}, flags: flags("--fail-on=critical"), want: "critical"},
		{name: "flag over default", flags: flags("--fail-on=none"), want: "none"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := mustLoad(t, tc.file, Options{Env: tc.env, Flags: tc.flags})
			if c.Run.FailOn != tc.want {
				t.Errorf("failOn = %s, want %s", c.Run.FailOn, tc.want)
			}
		})
	}
}

func TestEnvironment(t *testing.T) {
	c := mustLoad(t, "jira: {username: file}", Options{Env: []string{
		"HOME=/root",
		"IPAMAUDIT_CONFIG=/etc/ipamaudit/config.yaml",
		"IPAMAUDIT_SERVICE_HOST=10.0.0.1", // what a Service called ipamaudit leaves behind
		"IPAMAUDIT_SERVICE_PORT_HTTP=80",
		"IPAMAUDIT_PORT=tcp://10.0.0.1:80",
		"IPAMAUDIT_METRICS_PORT_80_TCP_ADDR=10.0.0.1",
		"IPAMAUDIT_JIRA_TOKEN=hunter2",
		"IPAMAUDIT_JIRA_API_BASE_URL=https://jira.example.com/jira/",
		"IPAMAUDIT_JIRA_CA_FILE=/etc/ca.pem",
		"IPAMAUDIT_JIRA_PRIORITIES_CRITICAL=Blocker",
		"IPAMAUDIT_SLACK_WEBHOOK_URL_FILE=/etc/slack",
		"IPAMAUDIT_RUN_CLUSTER_TIMEOUT=90s",
		"IPAMAUDIT_RUN_QPS=7.5",
		"IPAMAUDIT_SLACK_ONLY_CHANGES=false",
	}})
	if token, err := c.Jira.Credential().Read(); token != "hunter2" || err != nil {
		t.Errorf("token: %q, %v", token, err)
	}
	type got struct {
		URL, CA, Priority, Webhook, User string
		Timeout                          time.Duration
		QPS                              float64
		OnlyChanges                      bool
	}
	want := got{"https://jira.example.com/jira", "/etc/ca.pem", "Blocker", "/etc/slack", "file", 90 * time.Second, 7.5, false}
	have := got{c.Jira.APIBaseURL, c.Jira.CAFile, c.Jira.Priorities.Critical, c.Slack.WebhookURLFile, c.Jira.Username, c.Run.ClusterTimeout, c.Run.QPS, c.Slack.OnlyChanges}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
}

func TestBadEnvironmentAndFlags(t *testing.T) {
	set := pflag.NewFlagSet("run", pflag.ContinueOnError)
	set.String("fail-on", "high", "")
	set.String("log-level", "info", "")
	if err := set.Parse([]string{"--fail-on=hgih", "--log-level=debug"}); err != nil {
		t.Fatal(err)
	}
	_, _, err := Load(Options{
		File: writeConfig(t, "log: {leve: debug}"),
		Env: []string{
			"IPAMAUDIT_JIRA_TOKN=hunter2",
			"IPAMAUDIT_RUN_CLUSTERTIMEOUT=5m",
			"IPAMAUDIT_RUN_CONCURRENCY=lots",
			"IPAMAUDIT_JIRA_LABELS=a,b",
			"IPAMAUDIT_CLUSTERS=prod",
			"IPAMAUDIT_JIRA_API_BASE_URL=https://bot:hunter2@jira",
			"IPAMAUDIT_NONSENSE\x1b[31m=1",
		},
		Flags: set,
	})
	if err == nil {
		t.Fatal("no error")
	}
	lines := strings.Split(err.Error(), "\n")
	lines[0] = lines[0][strings.LastIndex(lines[0], "config.yaml"):]
	want := []string{
		`config.yaml:1: log.leve: unknown key (did you mean "level"?)`,
		`environment: IPAMAUDIT_JIRA_TOKN: unknown variable (did you mean "IPAMAUDIT_JIRA_TOKEN"?)`,
		`environment: IPAMAUDIT_RUN_CLUSTERTIMEOUT: unknown variable (did you mean "IPAMAUDIT_RUN_CLUSTER_TIMEOUT"?)`,
		`environment: IPAMAUDIT_RUN_CONCURRENCY: must be a whole number, not "lots"`,
		`environment: IPAMAUDIT_JIRA_LABELS: jira.labels is a list of texts: it can only be set in a file`,
		`environment: IPAMAUDIT_CLUSTERS: clusters is a list of mappings: it can only be set in a file`,
		`environment: IPAMAUDIT_JIRA_API_BASE_URL: must be an http or https URL without user, query and fragment`,
		`environment: "IPAMAUDIT_NONSENSE\x1b[31m": unknown variable`,
		`command line: --fail-on: must be one of none, low, medium, high, critical, not "hgih" (did you mean "high"?)`,
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
}

// TestEnvNames keeps the names of variables distinct and readable.
func TestEnvNames(t *testing.T) {
	for path, want := range map[string]string{
		"run.concurrency":      "IPAMAUDIT_RUN_CONCURRENCY",
		"run.qps":              "IPAMAUDIT_RUN_QPS",
		"jira.apiBaseURL":      "IPAMAUDIT_JIRA_API_BASE_URL",
		"slack.webhookURLFile": "IPAMAUDIT_SLACK_WEBHOOK_URL_FILE",
		"state.configMap.name": "IPAMAUDIT_STATE_CONFIG_MAP_NAME",
	} {
		if got := envName(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	seen := map[string]string{EnvFile: "--config"}
	newTree(nil).root.walk("", func(path string, k *key) {
		if k.kind == kindSection {
			return
		}
		name := envName(path)
		if first, ok := seen[name]; ok {
			t.Errorf("%s and %s share %s", first, path, name)
		}
		if serviceLink.MatchString(name) {
			t.Errorf("%s looks like a variable of Kubernetes", name)
		}
		seen[name] = path
	})
}

// TestCase makes sure that viper, which lower-cases keys, never saw these.
func TestCase(t *testing.T) {
	c := mustLoad(t, `
clusters:
  - name: Prod
    context: Prod
    labels: {costCentre: A.B, app.kubernetes.io/Part: X}
    checks: [{id: pool-utilisation, params: {mediumPercent: 50}}]
jira:
  fields:
    - {id: customfield_1, value: {accountId: "5:Ab", List: [{Key: 1.5}, 2026-01-31]}}
`, Options{})
	if diff := cmp.Diff(map[string]string{"costCentre": "A.B", "app.kubernetes.io/Part": "X"}, c.Clusters[0].Labels); diff != "" {
		t.Error(diff)
	}
	want := []JiraField{{ID: "customfield_1", Value: map[string]any{
		"accountId": "5:Ab", "List": []any{map[string]any{"Key": 1.5}, "2026-01-31"},
	}}}
	if diff := cmp.Diff(want, c.Jira.Fields); diff != "" {
		t.Error(diff)
	}
	if got := c.CheckParams(c.Clusters[0], "pool-utilisation")["mediumPercent"]; got != 50.0 {
		t.Errorf("mediumPercent = %v", got)
	}
}

func TestAnchorsAndMerges(t *testing.T) {
	c := mustLoad(t, `
clusters:
  - &eu
    name: a
    context: a
    timeout: 1m
    labels: &labels {team: net, region: eu}
  - <<: *eu
    name: b
    context: b
    labels: {<<: *labels, region: us}
  - {<<: [{timeout: 2m}, *eu], name: c, context: c}
`, Options{})
	type got struct {
		Name, Context string
		Timeout       time.Duration
		Labels        map[string]string
	}
	var have []got
	for _, x := range c.Clusters {
		have = append(have, got{x.Name, x.Context, x.Timeout, x.Labels})
	}
	want := []got{
		{"a", "a", time.Minute, map[string]string{"team": "net", "region": "eu"}},
		{"b", "b", time.Minute, map[string]string{"team": "net", "region": "us"}},
		{"c", "c", 2 * time.Minute, map[string]string{"team": "net", "region": "eu"}},
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := Load(Options{File: filepath.Join(dir, "none.yaml")}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if _, _, err := Load(Options{File: dir}); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("directory: %v", err)
	}
	big := filepath.Join(dir, "big.yaml")
	if err := os.WriteFile(big, []byte(strings.Repeat("# comment\n", maxFile/10+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(Options{File: big}); err == nil || !strings.Contains(err.Error(), "larger than 4 MiB") {
		t.Errorf("large file: %v", err)
	}
	c, warnings, err := Load(Options{File: writeConfig(t, "# nothing\n")})
	if err != nil || c == nil || len(warnings) != 1 || !strings.Contains(warnings[0].String(), "is empty") {
		t.Errorf("empty file: %v %v", warnings, err)
	}
}

// TestLimits: one cluster inherits, one has its own.
func TestLimits(t *testing.T) {
	c := mustLoad(t, `
run: {timeout: 2m, qps: 3}
clusters:
  - {name: a, context: a}
  - {name: b, context: b, timeout: 10s, qps: 1, burst: 2}
`, Options{})
	a, b := c.Clusters[0], c.Clusters[1]
	if a.Timeout != 2*time.Minute || a.QPS != 3 || a.Burst != 40 {
		t.Errorf("inherited: %+v", a)
	}
	if b.Timeout != 10*time.Second || b.QPS != 1 || b.Burst != 2 {
		t.Errorf("own: %+v", b)
	}
	if n := c.NewCluster("x"); n.Name != "x" || n.Timeout != 2*time.Minute {
		t.Errorf("new: %+v", n)
	}
}
