package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

const root = "../.."

// readmeCommands are the lines of the console blocks, without their comments.
func readmeCommands(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		for line := range strings.Lines(block[1]) {
			line, _, _ = strings.Cut(line, " #")
			if line = strings.TrimSpace(line); line != "" {
				out = append(out, line)
			}
		}
	}
	return out
}

// Every command of the README is run. Clusters in it do not exist here, so the
// commands that ask one end with 3, as they should; test/e2e asks real ones.
func TestReadmeCommands(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, content string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("kubeconfig", `{apiVersion: v1, kind: Config, current-context: staging,
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}], users: [{name: u, user: {}}],
contexts: [{name: staging, context: {cluster: c, user: u}}, {name: prod-eu-1-admin, context: {cluster: c, user: u}}]}`)
	write("fleet.yaml", `clusters: [{name: prod-eu-1, context: prod-eu-1-admin, timeout: 5s}]
state: {file: state.json}
jira: {enabled: true, apiBaseURL: "http://127.0.0.1:1", flavor: datacenter, token: not-a-token, project: NET, timeout: 1s}
slack: {enabled: true, apiURL: "http://127.0.0.1:1", token: xoxb-none, channel: C0123456789, timeout: 1s}
`)
	fixture, err := filepath.Abs(filepath.Join(root, "fixtures", "scenarios", "t293729"))
	if err != nil {
		t.Fatal(err)
	}
	lines := readmeCommands(t)
	t.Chdir(dir)
	t.Setenv("KUBECONFIG", filepath.Join(dir, "kubeconfig"))
	if code, out := readmeRun(t, "snapshot --from "+fixture+" -o saved.tar.gz"); code != 0 {
		t.Fatalf("snapshot: exit code %d\n%s", code, out)
	}

	// The exit code that each line has here, where no cluster answers.
	codes := map[string]int{
		"run --context staging":                        3,
		"run --all-contexts":                           3,
		"snapshot --context staging -o staging.tar.gz": 3,
		"run --from staging.tar.gz":                    1,
		"explain 10.64.75.0 --from staging.tar.gz":     0,
		"checks":                                     0,
		"checks blackholed-routes":                   0,
		"config validate --config fleet.yaml":        0,
		"config view --config fleet.yaml":            0,
		"doctor --config fleet.yaml":                 3,
		"run --config fleet.yaml --notify --dry-run": 3,
		"run --config fleet.yaml --notify":           3,
	}
	for _, line := range lines {
		words := strings.Fields(line)
		switch words[0] {
		case "make":
			if !regexp.MustCompile(`(?m)^` + words[1] + `:`).Match(makefile) {
				t.Errorf("%q: the Makefile has no such target", line)
			}
		case "kubectl":
			if path := words[len(words)-1]; words[1] == "apply" {
				if _, err := os.Stat(filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(fixture))), path)); err != nil {
					t.Errorf("%q: %v", line, err)
				}
			}
		case "ipamaudit":
			args := strings.Join(words[1:], " ")
			want, ok := codes[args]
			if !ok {
				t.Errorf("%q is not known to this test: say which exit code it has", line)
				continue
			}
			if strings.Contains(args, "--from staging.tar.gz") {
				// The cluster that it would come from is not here.
				if err := os.Rename("saved.tar.gz", "staging.tar.gz"); err != nil && !os.IsNotExist(err) {
					t.Fatal(err)
				}
			}
			if code, out := readmeRun(t, args); code != want {
				t.Errorf("%q: exit code %d, want %d\n%s", line, code, want, out)
			}
		default:
			t.Errorf("%q: no test knows how to run it", line)
		}
	}
}

func readmeRun(t *testing.T, args string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	a := &app{in: strings.NewReader(""), out: &out, err: &errs, env: os.Environ(), now: time.Now}
	code := a.run(ctx, strings.Fields(args))
	return code, out.String() + errs.String()
}
