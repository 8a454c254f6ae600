package e2e

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	fakejira "ipamaudit/notify/fake/jira"
	fakeslack "ipamaudit/notify/fake/slack"
	"ipamaudit/test/bed"
)

const (
	jiraAddress, slackAddress = "10.96.0.11", "10.96.0.12" // for pods of the real node
	jiraToken, slackToken     = "jira-hunter2", "xoxb-hunter2"
	auditNamespace            = "ipamaudit"
)

// installation is deploy/ in the hands of somebody who installs it as its README
// says, for the real node, and the Jira and the Slack that it is to talk to.
type installation struct {
	*storyNode
	dir   string // where commands are pasted: deploy/ is in it, and the tokens' files
	env   []string
	jira  *fakejira.Server
	slack *fakeslack.Server
}

func newInstallation(t *testing.T, n *storyNode, contexts ...bed.Context) *installation {
	t.Helper()
	kubectl, err := bed.FindKubectl(t.Context())
	if err != nil {
		t.Skip(err)
	}
	in := &installation{storyNode: n, dir: t.TempDir()}
	in.env = []string{"PATH=" + filepath.Dir(kubectl) + ":" + os.Getenv("PATH"), "HOME=" + in.dir, "KUBECONFIG=" + in.kubeconfig()}
	in.contexts(t, contexts...)
	if err := os.CopyFS(filepath.Join(in.dir, "deploy"), os.DirFS(filepath.Join(root, "deploy"))); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"jira-token": jiraToken + "\n", "slack-token": slackToken + "\n"} {
		if err := os.WriteFile(filepath.Join(in.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in.people(t)
	return in
}

func (in *installation) kubeconfig() string { return filepath.Join(in.dir, "admin.kubeconfig") }

// contexts writes the kubeconfig of who installs.
func (in *installation) contexts(t *testing.T, contexts ...bed.Context) {
	t.Helper()
	if err := bed.WriteKubeconfig(in.kubeconfig(), contexts...); err != nil {
		t.Fatal(err)
	}
}

// settings are what is filled in for Jira and Slack, in a configuration that has
// them enabled or not.
func (in *installation) settings(enabled string) []string {
	ca := "\n  caFile: /var/run/ipamaudit/tokens/ca.crt"
	return []string{
		"jira:\n  enabled: " + enabled, "jira:\n  enabled: true\n  flavor: cloud\n  onResolve: transition\n  resolveAfterCleanRuns: 1" + ca,
		"apiBaseURL: https://example.atlassian.net", "apiBaseURL: https://" + jiraAddress,
		"slack:\n  enabled: " + enabled, "slack:\n  enabled: true\n  apiURL: https://" + slackAddress + "/api/" + ca,
	}
}

// install does what the README says for one cluster.
func (in *installation) install(t *testing.T) {
	t.Helper()
	in.edit(t, "deploy/kustomize/config.yaml", append(in.settings("false"), "    inCluster: true\n", "    inCluster: true\n    routes: {agent: {namespace: "+agentNamespace+"}}\n")...)
	in.paste(t, installDoc, "kubectl apply -k deploy/kustomize")
	in.trust(t)
}

// trust puts the authority of Jira and Slack beside the tokens.
func (in *installation) trust(t *testing.T) {
	t.Helper()
	in.shell(t, `kubectl -n ipamaudit patch secret ipamaudit -p "{\"data\":{\"ca.crt\":\"$(base64 -w0 ca.crt)\"}}"`)
}

// people starts a Jira and a Slack in the node's network, behind an authority of
// their own.
func (in *installation) people(t *testing.T) {
	t.Helper()
	in.jira = fakejira.New(fakejira.Config{User: "ipamaudit@example.com", Token: jiraToken, Projects: []fakejira.Project{{Key: "NET"}, {Key: "NETUS"}}})
	in.slack = fakeslack.New(fakeslack.Config{Token: slackToken, Channels: []fakeslack.Channel{{ID: "C0123456789", Name: "calico"}, {ID: "C9876543210", Name: "us"}}})
	t.Cleanup(func() { in.jira.Close(); in.slack.Close() })
	ca, key, err := cert.GenerateSelfSignedCertKey("people", []net.IP{net.ParseIP(jiraAddress), net.ParseIP(slackAddress)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(in.dir, "ca.crt"), ca, 0o600); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(ca, key)
	if err != nil {
		t.Fatal(err)
	}
	for address, handler := range map[string]http.Handler{jiraAddress: in.jira, slackAddress: in.slack} {
		server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}}
		listener := in.Namespace.Listen(t, netip.AddrPortFrom(netip.MustParseAddr(address), 443))
		go func() { _ = server.ServeTLS(listener, "", "") }()
		t.Cleanup(func() { server.Close() })
	}
}

// edit replaces text of a shipped file, each exactly once: what people are told
// to fill in.
func (in *installation) edit(t *testing.T, file string, replace ...string) {
	t.Helper()
	path := filepath.Join(in.dir, file)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(replace); i += 2 {
		if strings.Count(string(text), replace[i]) != 1 {
			t.Fatalf("%s is another now: it does not have %q once:\n%s", file, replace[i], text)
		}
		text = []byte(strings.Replace(string(text), replace[i], replace[i+1], 1))
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// paste runs the console block of a document that begins with a line, after
// what was typed before it, and returns what it prints.
func (in *installation) paste(t *testing.T, document, begins string, typed ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, document))
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		if strings.HasPrefix(block[1], begins) {
			return in.shell(t, strings.Join(typed, "\n")+"\n"+block[1])
		}
	}
	t.Fatalf("%s has no console block that begins with %q", document, begins)
	return ""
}

func (in *installation) shell(t *testing.T, script string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = in.dir, in.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, script, out)
	}
	return string(out)
}

const installDoc = "deploy/README.md"

// once runs a verb as the README says, and returns how the Job ended and what
// was printed.
func (in *installation) once(t *testing.T, name string, args ...string) (batchv1.JobStatus, string) {
	t.Helper()
	out := in.shell(t, in.onceScript(t, name, args...))
	return in.ended(t, name), out
}

func (in *installation) onceScript(t *testing.T, name string, args ...string) string {
	t.Helper()
	doc, err := os.ReadFile(filepath.Join(root, installDoc))
	if err != nil {
		t.Fatal(err)
	}
	function := regexp.MustCompile(`(?s)once\(\) \{.*?\n\}\n`).FindString(string(doc))
	if function == "" {
		t.Fatal("the README does not define once")
	}
	return function + "once " + name + " " + strings.Join(args, " ")
}

// ended waits until a Job has.
func (in *installation) ended(t *testing.T, name string) (status batchv1.JobStatus) {
	t.Helper()
	eventually(t, "the Job "+name+" ends", func() error {
		job, err := in.kube.BatchV1().Jobs(auditNamespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		status = job.Status
		if status.CompletionTime == nil && !slices.ContainsFunc(status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == batchv1.JobFailed }) {
			return fmt.Errorf("%+v", status)
		}
		return nil
	})
	return status
}

// pod is the pod of a Job that is there or comes.
func (in *installation) pod(t *testing.T, job string) (pod corev1.Pod) {
	t.Helper()
	eventually(t, "the pod of Job "+job, func() error {
		pods, err := in.kube.CoreV1().Pods(auditNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: "job-name=" + job})
		if err == nil && len(pods.Items) == 0 {
			err = fmt.Errorf("there is none")
		}
		if err == nil {
			pod = pods.Items[0]
		}
		return err
	})
	return pod
}
