package e2e

import (
	"bytes"
	"fmt"
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
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	fakejira "ipamaudit/notify/fake/jira"
	"ipamaudit/notify/fake/wire"
	"ipamaudit/test/bed"
)

const configFile = "/etc/ipamaudit/config.yaml"

// nightly has the installed CronJob audit the cluster that it runs in, for some
// nights: problems come and go, pods are evicted and killed, the state is lost.
func (in *installation) nightly(t *testing.T) {
	t.Helper()
	night := []string{"run", "--config", configFile, "--notify", "--fail-on", "none", "--log-format", "json"}
	var said strings.Builder // everything that was printed

	in.onlyRealNode(t)
	status, out := in.once(t, "doctor", "doctor", "--config", configFile)
	said.WriteString(out)
	for _, want := range []string{"issues can be found, created and edited in NET", "accepts the credentials", "ConfigMap ipamaudit/ipamaudit-state", "route tables from agent"} {
		if !strings.Contains(out, want) {
			t.Errorf("doctor does not say %q", want)
		}
	}
	if status.Succeeded != 1 || strings.Contains(out, "MISSING") {
		t.Errorf("doctor: %+v\n%s", status, out)
	}

	status, out = in.once(t, "plan", append(night[:4:4], "--dry-run", "--fail-on", "none")...)
	said.WriteString(out)
	if status.Succeeded != 1 || !strings.Contains(out, "blackholed-routes") || len(in.jira.Issues()) > 0 || len(in.slack.Messages("C0123456789")) > 0 {
		t.Errorf("a dry run: %+v, %d tickets, %d messages\n%s", status, len(in.jira.Issues()), len(in.slack.Messages("C0123456789")), out)
	}
	if _, err := in.kube.CoreV1().ConfigMaps(auditNamespace).Get(t.Context(), "ipamaudit-state", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a dry run left a state: %v", err)
	}

	out = in.paste(t, installDoc, "kubectl -n ipamaudit create job --from=cronjob/ipamaudit first-look")
	said.WriteString(out)
	if status := in.ended(t, "first-look"); status.Succeeded != 1 || !strings.Contains(out, "Node "+realNode+" drops traffic to running pods") {
		t.Fatalf("the first night: %+v\n%s", status, out)
	}
	first := in.tickets(t, "the first night")
	if !slices.Contains(keys(first), "blackholed-routes") || len(in.slack.Messages("C0123456789")) == 0 {
		t.Fatalf("the first night filed %q and posted %d messages\n%s", keys(first), len(in.slack.Messages("C0123456789")), out)
	}

	// The second night: one problem is mended, there is another, and the node is
	// drained while the answer of its ticket is awaited.
	mended := in.mend(t)
	in.shell(t, "kubectl apply -f - <<EOF\n"+overlap+"\nEOF")
	in.jira.Inject(wire.Fault{Method: "POST", Path: "rest/api/*/issue", Times: 1, Kind: wire.CommitThenHang})
	wait := in.background(t, "night-2", append(night, "--run-id", "night-2")...)
	in.hangs(t)
	in.confined(t, "run", in.memoryLimit(t))
	pod := in.pod(t, "night-2")
	start := time.Now()
	if err := in.kube.PolicyV1().Evictions(auditNamespace).Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: auditNamespace}}); err != nil {
		t.Fatal(err)
	}
	said.WriteString(wait())
	status = in.ended(t, "night-2")
	log := in.log(t, auditNamespace)
	t.Logf("%s after the eviction the Job had ended: %d succeeded, %d failed", time.Since(start).Round(time.Millisecond), status.Succeeded, status.Failed)
	if status.Succeeded != 1 {
		t.Errorf("a night with a drained node: %+v\n%s", status, log)
	}
	second := in.tickets(t, "the second night")
	if ticket := second["blackholed-routes"]; ticket.Key != first["blackholed-routes"].Key || ticket.Category != fakejira.Done {
		t.Errorf("the mended problem's ticket %s is %s, it was %s\n%s", ticket.Key, ticket.Status, first["blackholed-routes"].Key, log)
	}
	if len(second) != len(first)+1 || second["pool-config"].Key == "" {
		t.Errorf("tickets of the second night: %q, of the first: %q", keys(second), keys(first))
	}

	// The third: the state is deleted, what was mended is back, and the pod is
	// killed while it writes. The fourth comes a day later.
	in.shell(t, "kubectl -n ipamaudit delete configmap ipamaudit-state")
	in.shell(t, "kubectl delete ippools.crd.projectcalico.org overlap")
	mended()
	in.jira.Inject(wire.Fault{Method: "PUT", Times: 1, Kind: wire.CommitThenHang})
	wait = in.background(t, "night-3", append(night, "--run-id", "night-3")...)
	in.hangs(t)
	in.shell(t, "kubectl -n ipamaudit delete pod --grace-period=0 --force "+in.pod(t, "night-3").Name+"; kubectl -n ipamaudit delete job night-3")
	said.WriteString(wait())
	eventually(t, "the killed run ends", func() error {
		if running := in.processes(t, "run"); len(running) > 0 {
			return fmt.Errorf("%q", running)
		}
		return nil
	})
	in.age(t)
	status, out = in.once(t, "night-4", append(night, "--run-id", "night-4")...)
	said.WriteString(out)
	if status.Succeeded != 1 {
		t.Errorf("the night after a kill: %+v\n%s", status, out)
	}
	fourth := in.tickets(t, "the fourth night")
	if len(fourth) != len(second) {
		t.Errorf("tickets of the fourth night: %q, of the second: %q", keys(fourth), keys(second))
	}
	for check, ticket := range fourth {
		if want := check != "pool-config"; (ticket.Category != fakejira.Done) != want {
			t.Errorf("the ticket of %s is open: %v, want %v\n%s", check, !want, want, out)
		}
	}

	said.WriteString(in.log(t, auditNamespace))
	state := in.shell(t, "kubectl -n ipamaudit get configmaps,events,leases -o yaml")
	for _, token := range []string{jiraToken, slackToken} {
		if strings.Contains(said.String()+state, token) {
			t.Errorf("a token was printed or kept")
		}
	}
}

// tickets are all issues by check: one each, whatever happened.
func (in *installation) tickets(t *testing.T, when string) map[string]fakejira.Issue {
	t.Helper()
	out := map[string]fakejira.Issue{}
	for _, issue := range in.jira.Issues() {
		check, _, _ := strings.Cut(issue.Summary, ":") // [cluster] check: title
		_, check, _ = strings.Cut(check, "] ")
		if other, twice := out[check]; twice {
			t.Errorf("after %s %s has two tickets, %s and %s: %q %q", when, check, other.Key, issue.Key, other.Labels, issue.Labels)
		}
		out[check] = issue
	}
	return out
}

func keys[V any](m map[string]V) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// background is once that goes on; the returned function waits for it.
func (in *installation) background(t *testing.T, name string, args ...string) func() string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", in.onceScript(t, name, args...))
	var out bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = in.dir, in.env, &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() string {
		_ = cmd.Wait() // its pod has gone
		return out.String()
	}
}

// hangs waits until the Jira has left a request without an answer.
func (in *installation) hangs(t *testing.T) {
	t.Helper()
	eventually(t, "the Jira hangs", func() error {
		if n := in.jira.PendingFaults(); n > 0 {
			return fmt.Errorf("%d faults to come; %s", n, in.log(t, auditNamespace))
		}
		return nil
	})
}

// age lets a day go by for the Lease.
func (in *installation) age(t *testing.T) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, time.Now().Add(-24*time.Hour).UTC().Format(metav1.RFC3339Micro))
	if _, err := in.kube.CoordinationV1().Leases(auditNamespace).Patch(t.Context(), "ipamaudit-state", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// mend gives what others borrow its routes; the returned function takes them away.
func (in *installation) mend(t *testing.T) (undo func()) {
	t.Helper()
	var routes []string
	for ip, owned := range in.owned {
		if !owned {
			routes = append(routes, ip+"/32 via "+in.Namespace.Outside.String()+" proto bird")
		}
	}
	change := func(verb string) {
		before := in.table(t)
		for _, route := range routes {
			in.Namespace.IP(t, "route "+verb+" "+route)
		}
		in.published(t, before)
	}
	change("add")
	return func() { change("del") }
}

// overlap is a second pool over the first one: a problem that gets its ticket at once.
const overlap = `{apiVersion: crd.projectcalico.org/v1, kind: IPPool, metadata: {name: overlap},
  spec: {cidr: 10.64.74.0/23, blockSize: 26, ipipMode: Never, vxlanMode: Never, disabled: true, nodeSelector: all()}}`

// onlyRealNode keeps pods from the nodes that exist on paper only.
func (in *installation) onlyRealNode(t *testing.T) {
	t.Helper()
	in.shell(t, "for node in $(kubectl get nodes -o name); do kubectl cordon $node; done; kubectl uncordon "+realNode)
}

func (in *installation) memoryLimit(t *testing.T) int {
	t.Helper()
	cron := only[batchv1.CronJob](t, render(t, "deploy/kustomize"), "CronJob")
	return int(cron.Spec.JobTemplate.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().Value())
}

// hub makes the installation one that audits another cluster, too: what was told
// of this one, under another name, is not told again.
func (in *installation) hub(t *testing.T, hub *bed.Cluster) {
	t.Helper()
	prod := bed.New(t, bed.Options{Name: "prod-eu-1", Calico: bed.CalicoV1, Controllers: true, Address: in.Namespace.Inside})
	if err := prod.Load(t.Context(), bed.Kubestage(bed.CalicoV1)); err != nil {
		t.Fatal(err)
	}
	remote := prod.Admin()
	remote.Host = in.Namespace.Forward(t, prod, netip.AddrPortFrom(in.Namespace.Inside, 6443))
	in.contexts(t, bed.Context{Name: "hub", Config: hub.Admin()}, bed.Context{Name: "prod-eu-1", Config: remote})
	before := in.tickets(t, "all nights")

	in.edit(t, "deploy/examples/hub/config.yaml", in.settings("true")...)
	in.shell(t, "kubectl -n ipamaudit delete secret ipamaudit") // that of before
	in.paste(t, installDoc, "kubectl --context hub apply -k deploy/examples/hub")
	in.trust(t)
	in.paste(t, installDoc, "cluster=prod-eu-1")
	said := in.paste(t, installDoc, "umask 077", "cluster=prod-eu-1") // the two blocks are one shell's
	status, out := in.once(t, "fleet", "run", "--config", configFile, "--notify", "--fail-on", "none", "--run-id", "fleet")
	if status.Failed != 1 || !slices.ContainsFunc(status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == batchv1.JobFailed && strings.Contains(c.Message, "exit code 3")
	}) {
		t.Errorf("a night without prod-us-1: %+v", status)
	}
	for _, want := range []string{"cluster=hub status=complete", "cluster=prod-eu-1 status=complete", `msg="cluster failed" cluster=prod-us-1`} {
		if !strings.Contains(out, want) {
			t.Errorf("the log does not say %s:\n%s", want, out)
		}
	}
	own := map[string]string{} // key by check
	clusters := map[string]int{}
	for _, issue := range in.jira.Issues() {
		name, rest, _ := strings.Cut(strings.TrimPrefix(issue.Summary, "["), "] ")
		check, _, _ := strings.Cut(rest, ":")
		clusters[issue.Project+"/"+name]++
		if name == "hub" || name == "this-cluster" {
			if own[check] != "" {
				t.Errorf("%s of the hub has two tickets, %s and %s", check, own[check], issue.Key)
			}
			own[check] = issue.Key
		}
	}
	if len(own) != len(before) || clusters["NET/prod-eu-1"] == 0 || clusters["NETUS/prod-us-1"] != 1 {
		t.Errorf("tickets %v; of the hub %v, of before %q", clusters, own, keys(before))
	}
	if us := in.slack.Messages("C9876543210"); len(us) == 0 || !strings.Contains(string(us[0].Blocks), "prod-us-1") {
		t.Errorf("%d messages in the channel of prod-us-1, and the first is not about it", len(us))
	}
	if text := said + out; strings.Contains(text, "eyJ") { // how every ServiceAccount's token begins
		t.Errorf("a token is printed:\n%s", text)
	}
}

// hostNetwork makes the installation one that needs no pod address, and gives it
// the rights of the other source of route tables.
func (in *installation) hostNetwork(t *testing.T) {
	t.Helper()
	in.edit(t, "deploy/kustomize/config.yaml", "agent: {namespace: "+agentNamespace+"}", "agent: {namespace: "+agentNamespace+"}, calicoNodeStatus: {read: true, create: true}")
	in.shell(t, "kubectl apply -k deploy/examples/host-network")
	in.shell(t, `kubectl -n ipamaudit patch role ipamaudit --type=json -p '[{"op": "replace", "path": "/rules/1/resourceNames", "value": ["another"]}]'`)
	status, out := in.once(t, "no-rights", "doctor", "--config", configFile)
	for _, want := range []string{"may not create caliconodestatuses", "may not update leases ipamaudit-state"} {
		if status.Succeeded != 0 || !strings.Contains(out, want) {
			t.Errorf("without the rights doctor does not say %q: %+v\n%s", want, status, out)
		}
	}
	in.shell(t, "kubectl apply -k deploy/examples/host-network")
	doc, err := os.ReadFile(filepath.Join(root, "docs", "routes.md"))
	if err != nil {
		t.Fatal(err)
	}
	rights := regexp.MustCompile("(?s)```yaml\n(apiVersion: rbac.*?)```").FindSubmatch(doc)
	if rights == nil {
		t.Fatal("docs/routes.md does not say which rights CalicoNodeStatus needs")
	}
	in.shell(t, "kubectl apply -f - <<'EOF'\n"+string(rights[1])+"EOF")
	status, out = in.once(t, "rights", "doctor", "--config", configFile)
	if status.Succeeded != 1 || !strings.Contains(out, "route tables from agent, calicoNodeStatus") {
		t.Errorf("with the rights of docs/routes.md: %+v\n%s", status, out)
	}
	if pod := in.pod(t, "rights"); !pod.Spec.HostNetwork || pod.Status.PodIP != in.Namespace.Inside.String() {
		t.Errorf("the pod has the address %s, host network: %v", pod.Status.PodIP, pod.Spec.HostNetwork)
	}
}

// wantRights holds what an account asked for against its Role: nothing is
// refused, and nothing that it may write is not written.
func wantRights(t *testing.T, c *bed.Cluster, account string, rules []rbacv1.PolicyRule) {
	t.Helper()
	requests, err := c.Requests(account)
	if err != nil {
		t.Fatal(err)
	}
	if len(requests) == 0 {
		t.Fatalf("the API server recorded no request of %s", account)
	}
	for _, r := range requests {
		if r.Code == 403 {
			t.Errorf("%s may not %s %s.%s %q in %q", account, r.Verb, r.Resource, r.Group, r.Name, r.Namespace)
		}
	}
	for _, rule := range rules {
		for _, verb := range rule.Verbs {
			for _, resource := range rule.Resources {
				if !slices.ContainsFunc(requests, func(r bed.Request) bool {
					return r.Verb == verb && r.Resource == resource && slices.Contains(rule.APIGroups, r.Group) && (len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, r.Name))
				}) {
					t.Errorf("%s may %s %s %q and never did", account, verb, resource, rule.ResourceNames)
				}
			}
		}
	}
}
