package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"

	"ipamaudit/test/bed"
	"ipamaudit/test/world"
)

// needsPeople are the findings that no command ends: the fixture, and what it
// takes. Their commands are run all the same, and the finding must stay, so that
// this list cannot outlive its reasons.
var needsPeople = map[string]string{
	"blackholed-routes/edge-longest-prefix": "a fixed address, and a release without numAllowedLocalASNumbers: the routers have to be configured",
	"borrowed-ips/edge-fixed-address":       "fixed addresses: the pods have to move to the owner, or the network has to carry their routes",
	"ipam-data/bad":                         "a backup has to be restored",
	"ipam-data/edge-reset":                  "a backup has to be restored",
	"ipam-data/edge-host-local":             "nothing is wrong: addresses come from another IPAM",
	"ipam-data/edge-stale-records":          "nothing is wrong: addresses come from another IPAM",
	"ipam-data/edge-no-calico":              "nothing is wrong: somebody has to take the cluster out of the audit",
	"ipam-gc/edge-absent":                   "kube-controllers has to be deployed as Calico was installed",
	"pool-config/edge-overlap":              "somebody has to decide which pool stays, and to empty the other",
}

// sideEffects are findings that a remediation rightly brings to light.
var sideEffects = map[string]string{
	"leaked-ips/bad": "borrowed-ips", // the pod that waited for its fixed address starts, in another node's block
}

// TestRemediation does what the findings say. Each fixture with findings is
// replayed into a real API server; the commands of what is found are pasted into
// a shell as they are printed, first with a kubectl that asks for dry runs, then
// in earnest, causes first, step by step. Afterwards the audit has none of these
// findings, and no new one above low.
//
// kubectl is the real one. What the commands count on besides the API server is
// played by package world. Not run: what needs a kubelet behind the API server
// (logs, exec, debug: their flags are checked) and what is typed on a node.
func TestRemediation(t *testing.T) {
	needs(t, "run", "snapshot")
	kubectl, err := bed.FindKubectl(t.Context())
	if errors.Is(err, bed.ErrNoKubectl) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no bash to paste into")
	}
	// Two servers with the group that nearly all fixtures have, one with the other.
	apis := []bed.CalicoAPI{bed.CalicoV1, bed.CalicoV1, bed.CalicoV3}
	options := make([]bed.Options, len(apis))
	for i, api := range apis {
		options[i] = bed.Options{Name: "bench", Calico: api}
	}
	queues := map[bed.CalicoAPI]chan plan{bed.CalicoV1: make(chan plan), bed.CalicoV3: make(chan plan)}
	tools := newTools(t)
	var all sync.WaitGroup
	for i, c := range bed.Fleet(t, options...) {
		b := &bench{kubectl: kubectl, tools: tools, cluster: c, api: apis[i]}
		all.Go(func() {
			for p := range queues[b.api] {
				t.Run(p.String(), func(t *testing.T) { b.play(t, p) })
			}
		})
	}
	var feed sync.WaitGroup
	byAPI := map[bed.CalicoAPI][]plan{}
	for _, p := range plans(t) {
		objects, _ := p.objects(t)
		api := bed.CalicoV1
		if bed.CalicoAPIOf(calicoOnly(objects)) == bed.CalicoV3 {
			api = bed.CalicoV3
		}
		byAPI[api] = append(byAPI[api], p)
	}
	for api, list := range byAPI {
		feed.Go(func() {
			for _, p := range list {
				queues[api] <- p
			}
			close(queues[api])
		})
	}
	feed.Wait()
	all.Wait()
}

// plan is one fixture under one release of Calico.
type plan struct {
	check, fixture string
	// version is another release than the fixture's, empty for its own; v3 has
	// native objects of projectcalico.org/v3.
	version string
	// dead is a collector that never comes round, so that the last resort is needed.
	dead bool
}

func (p plan) String() string {
	s := p.check + "/" + p.fixture
	if p.version != "" {
		s += "/" + p.version
	}
	if p.dead {
		s += "/no-collector"
	}
	return s
}

func (p plan) dir() string { return filepath.Join(root, "fixtures", p.check, p.fixture) }

// plans are all fixtures with findings; the bad ones under old releases and as
// native v3 objects, too.
func plans(t *testing.T) []plan {
	t.Helper()
	goldens, err := filepath.Glob(filepath.Join(root, "fixtures", "*", "*.golden.json"))
	if err != nil {
		t.Fatal(err)
	}
	var out []plan
	for _, golden := range goldens {
		data, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		var verdict struct{ Findings []finding }
		if err := json.Unmarshal(data, &verdict); err != nil {
			t.Fatal(err)
		}
		if len(verdict.Findings) == 0 {
			continue
		}
		p := plan{check: filepath.Base(filepath.Dir(golden)), fixture: strings.TrimSuffix(filepath.Base(golden), ".golden.json")}
		out = append(out, p)
		if p.fixture != "bad" || testing.Short() {
			continue
		}
		for _, version := range []string{"v3.17.3", "v3.33.0"} {
			p.version = version
			out = append(out, p)
		}
		p.version = ""
		if slices.Contains([]string{"leaked-ips", "orphan-affinities", "handle-leaks", "multi-block-nodes"}, p.check) {
			p.dead = true
			out = append(out, p)
		}
	}
	return out
}

// objects are the fixture's, under the plan's release.
func (p plan) objects(t *testing.T) ([]*unstructured.Unstructured, time.Time) {
	t.Helper()
	objects, err := bed.ReadDir(p.dir())
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(p.dir(), "snapshot.json"))
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct{ Time time.Time }
	if err := json.Unmarshal(data, &manifest); err != nil {
		t.Fatal(err)
	}
	booked, handles := map[string]map[string]any{}, false
	calico := ""
	for _, o := range objects {
		if strings.Contains(o.GetAPIVersion(), "projectcalico.org") && o.GetKind() != "Node" {
			calico = o.GetAPIVersion()
		}
		switch o.GetKind() {
		case "ClusterInformation":
			if p.version != "" {
				_ = unstructured.SetNestedField(o.Object, p.version, "spec", "calicoVersion")
			}
		case "IPAMHandle":
			handles = true
		case "Pod":
			// The fixtures are short of controllers: without one nothing recreates a
			// pod, and the steps leave it to people.
			if host, _, _ := unstructured.NestedBool(o.Object, "spec", "hostNetwork"); !host && len(o.GetOwnerReferences()) == 0 {
				controller := true
				o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: o.GetName() + "-set", UID: "set", Controller: &controller}})
			}
		case "IPAMBlock":
			world.Handles(o, booked)
		}
	}
	// A live cluster has handles; most fixtures leave them out.
	for id, blocks := range booked {
		if handles {
			break
		}
		objects = append(objects, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": calico, "kind": "IPAMHandle", "metadata": map[string]any{"name": strings.ToLower(id)},
			"spec": map[string]any{"handleID": id, "block": blocks, "deleted": false},
		}})
	}
	if p.version == "v3.33.0" {
		for _, o := range objects {
			native(o)
		}
	}
	return objects, manifest.Time
}

// native turns an object of crd.projectcalico.org/v1 into one of
// projectcalico.org/v3, as Calico v3.32 and later may store them.
func native(o *unstructured.Unstructured) {
	if o.GetAPIVersion() != string(bed.CalicoV1) {
		return
	}
	o.SetAPIVersion(string(bed.CalicoV3))
	switch o.GetKind() {
	case "IPAMConfig":
		o.SetKind("IPAMConfiguration")
	case "BlockAffinity":
		deleted, _, _ := unstructured.NestedString(o.Object, "spec", "deleted")
		_ = unstructured.SetNestedField(o.Object, deleted == "true", "spec", "deleted")
	}
}

// bench is an API server and the shell in front of it.
type bench struct {
	kubectl, tools string
	cluster        *bed.Cluster
	api            bed.CalicoAPI
}

// newTools makes a directory with this program under the names of the tools
// that a remediation calls, and the program under test.
func newTools(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	audit, err := program()
	if err != nil {
		t.Fatal(err)
	}
	for tool, target := range map[string]string{"kubectl": self, "calicoctl": self, "sleep": self, "ipamaudit": audit} {
		if err := os.Symlink(target, filepath.Join(dir, tool)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// session is one plan on the bench.
type session struct {
	*bench
	plan       plan
	world      *world.World
	kubeconfig string
	dir        string
	pools      int
	fill       map[string]string
	ran        map[string]int
	// refused is how many evictions a disruption budget is expected to refuse.
	refused int
}

func (b *bench) play(t *testing.T, p plan) {
	objects, asOf := p.objects(t)
	s := &session{bench: b, plan: p, dir: t.TempDir(), ran: map[string]int{}}
	s.kubeconfig = kubeconfig(t, s.cluster.Context())
	if err := s.cluster.Replay(t.Context(), objects, asOf); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.world, err = world.New(t.Context(), s.cluster.Admin(), string(s.api)); err != nil {
		t.Fatal(err)
	}
	if err := s.world.ReadRoutes(filepath.Join(p.dir(), "routes")); err != nil {
		t.Fatal(err)
	}
	s.world.CollectorStalled = slices.Contains([]string{"leaked-ips", "orphan-affinities", "handle-leaks", "ipam-gc"}, p.check)
	s.world.CollectorDead = p.dead
	s.fill = placeholders(objects)
	ctx, stop := context.WithCancel(t.Context())
	played := make(chan error, 1)
	go func() { played <- s.world.Run(ctx) }()
	defer func() {
		stop()
		if err := <-played; err != nil {
			t.Errorf("the world: %v", err)
		}
	}()

	before := s.audit(t)
	mine := before.of(p.check)
	if len(mine) == 0 {
		t.Fatalf("the live cluster has no %s; it has:\n%s", p.check, before)
	}
	// First everything as a dry run, then in earnest. Where more is wrong than a
	// remediation spells out it takes a few nights.
	for _, f := range mine {
		for _, step := range f.Remediation {
			s.paste(t, f, step, true)
		}
	}
	open := func(r audited) []remediable {
		if len(before.loud(p.check)) == 0 {
			return r.of(p.check)
		}
		return r.loud(p.check)
	}
	after := before
	for night := 0; night < 8; night++ {
		for _, f := range after.of(p.check) {
			s.remedy(t, f, map[string]bool{})
		}
		last := after
		if after = s.audit(t); len(open(after)) == 0 || after.String() == last.String() {
			break
		}
	}
	reason, people := needsPeople[p.check+"/"+p.fixture]
	switch left := open(after); {
	case len(left) > 0 && !people:
		t.Errorf("after all commands %s is still there:\n%s", p.check, after)
	case len(left) == 0 && people:
		t.Errorf("it takes people (%s), and yet the finding is gone", reason)
	}
	for _, f := range after.loud("") {
		if f.Check != p.check && !before.has(f) && sideEffects[p.check+"/"+p.fixture] != f.Check {
			t.Errorf("new after the remediation: %s %s of %s %s: %s", f.Severity, f.Check, f.Subject.Kind, f.Subject.Name, f.Detail)
		}
	}
	t.Logf("ran: %v", s.ran)
}

func calicoOnly(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(objects), func(o *unstructured.Unstructured) bool { return o.GetKind() == "Node" })
}

// placeholders are what people put in place of the words in capitals.
func placeholders(objects []*unstructured.Unstructured) map[string]string {
	out := map[string]string{}
	for _, o := range objects {
		switch o.GetKind() {
		case "BGPPeer":
			out["PEER"] = o.GetName()
		case "IPPool":
			selector, _, _ := unstructured.NestedString(o.Object, "spec", "nodeSelector")
			if key, value, ok := strings.Cut(selector, " == "); ok {
				out["KEY=VALUE"] = key + "=" + strings.Trim(value, "'")
			}
		}
	}
	return out
}

// remedy does what a finding says, its causes first, each only once. What it
// says is read anew: an earlier remedy may have changed it, or ended it.
func (s *session) remedy(t *testing.T, f remediable, done map[string]bool) {
	t.Helper()
	if done[f.Fingerprint] {
		return
	}
	done[f.Fingerprint] = true
	now := s.audit(t)
	for _, c := range now.Findings {
		if slices.Contains(f.CausedBy, c.Fingerprint) {
			s.remedy(t, c, done)
			now = s.audit(t)
		}
	}
	i := slices.IndexFunc(now.Findings, func(g remediable) bool { return g.Fingerprint == f.Fingerprint })
	if i < 0 {
		return
	}
	for _, step := range now.Findings[i].Remediation {
		if onlyIf.MatchString(step.Title) && !s.audit(t).has(f) {
			continue
		}
		s.paste(t, f, step, false)
		if err := s.world.Settle(t.Context()); err != nil {
			t.Fatalf("the world: %v", err)
		}
	}
}

// onlyIf are the words with which a step says that it is not for everybody.
var onlyIf = regexp.MustCompile(`^(Only |Where that |Or |Otherwise )`)

// onNode are programs that are typed on a node, not where kubectl is.
var onNode = regexp.MustCompile(`^(ip|cat|ls|crictl|systemctl|grep) `)

// paste runs a step's commands in one shell, as they are printed.
func (s *session) paste(t *testing.T, f remediable, step remedyStep, dry bool) {
	t.Helper()
	var script []string
	for _, c := range step.Commands {
		switch {
		case onNode.MatchString(c):
			s.ran["on the node"]++
			if machine, ok := strings.CutPrefix(c, "systemctl restart kubelet   # on "); ok && !dry {
				defer s.register(t, machine)
			}
			continue
		case strings.HasPrefix(c, "NEW_CIDR="):
			s.pools++
			c = fmt.Sprintf("NEW_CIDR=10.%d.0.0/18", 249-s.pools)
			if strings.Contains(strings.Join(step.Commands, "\n"), "blockSize: 12") {
				c = fmt.Sprintf("NEW_CIDR=fd00:%d::/108", s.pools)
			}
		}
		for word, value := range s.fill {
			c = strings.ReplaceAll(c, word, value)
		}
		script = append(script, c)
	}
	if len(script) == 0 {
		return
	}
	journal := filepath.Join(s.dir, "journal")
	_ = os.Remove(journal)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", strings.Join(script, "\n"))
	cmd.Dir = s.dir
	cmd.Env = []string{"HOME=" + s.dir, "PATH=" + s.tools + ":/usr/bin:/bin", "KUBECONFIG=" + s.kubeconfig, "TMPDIR=" + s.dir,
		"BENCH_KUBECTL=" + s.kubectl, "BENCH_JOURNAL=" + journal, "BENCH_CALICO=" + string(s.api), "BENCH_DRY=" + fmt.Sprint(dry)}
	out, err := cmd.CombinedOutput()
	if testing.Verbose() && os.Getenv("BENCH_TRACE") != "" {
		t.Logf("%s: %s\n%s\n--\n%s", f.Check, step.Title, strings.Join(script, "\n"), out)
	}
	if ctx.Err() != nil {
		t.Fatalf("%s of %s: %q hangs:\n%s\n%s", f.Check, f.Subject.Name, step.Title, strings.Join(script, "\n"), out)
	}
	if strings.Contains(string(out), "command not found") || strings.Contains(string(out), "syntax error") {
		t.Errorf("%s: %q: %s\n%s", f.Check, step.Title, out, strings.Join(script, "\n"))
	}
	_ = err // of the last command; each one's is in the journal
	data, err := os.ReadFile(journal)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var e entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		s.ran[e.What]++
		if s.refused > 0 && e.Code != 0 && strings.Contains(e.Stderr, "would violate the pod's disruption budget") {
			s.refused--
			continue
		}
		if e.Code != 0 && !e.tolerable() {
			t.Errorf("%s of %s, %q (dry run: %v): exit code %d of %q:\n%s", f.Check, f.Subject.Name, step.Title, dry, e.Code, e.Args, e.Stderr)
		}
	}
}

// register is what a machine's kubelet does when it is restarted.
func (s *session) register(t *testing.T, machine string) {
	t.Helper()
	// Not before the collector has taken the old node's blocks, as the step says.
	err := s.world.Settle(t.Context())
	if err = errors.Join(err, s.world.Register(t.Context(), machine)); err != nil {
		t.Errorf("the world: %v", err)
	}
}

// audited is a report in the parts that matter here.
type audited struct {
	Findings []remediable
}

type remediable struct {
	finding
	CausedBy    []string
	Remediation []remedyStep
}

type remedyStep struct {
	Title, Risk, Verify string
	Commands            []string
}

func (r audited) of(check string) []remediable {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f remediable) bool { return f.Check != check })
}

// loud are the findings of a check above low; of all checks, if it is empty.
func (r audited) loud(check string) []remediable {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f remediable) bool { return check != "" && f.Check != check || f.Severity == "low" })
}

func (r audited) has(f remediable) bool {
	return slices.ContainsFunc(r.Findings, func(g remediable) bool { return g.Fingerprint == f.Fingerprint })
}

func (r audited) String() string {
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%s %s %s/%s: %s %s\n", f.Severity, f.Check, f.Subject.Kind, f.Subject.Name, f.Title, f.Detail)
	}
	return b.String()
}

// audit reads the cluster as it is now, with the route tables of the world.
func (s *session) audit(t *testing.T) audited {
	t.Helper()
	args := []string{"run", "-o", "json", "--kubeconfig", s.kubeconfig}
	if s.world.HasRoutes() {
		dir := filepath.Join(t.TempDir(), "snapshot")
		ipamaudit(t, snapshotArgs(s.kubeconfig, dir)...).wantCode(t, 0)
		if err := s.world.WriteRoutes(t.Context(), filepath.Join(dir, "routes")); err != nil {
			t.Fatal(err)
		}
		args = []string{"run", "-o", "json", "--from", dir}
	}
	res := ipamaudit(t, args...)
	var r struct{ Clusters []audited }
	if err := json.Unmarshal([]byte(res.stdout), &r); err != nil || len(r.Clusters) != 1 {
		t.Fatalf("no report: %v\n%s", err, res.stderr)
	}
	return r.Clusters[0]
}

// entry is what a tool on the bench writes down about a call.
type entry struct {
	What   string // the verb, and whether it was only checked
	Args   []string
	Code   int
	Stderr string
}

// tolerable are answers that the printed comments tell people to expect.
func (e entry) tolerable() bool {
	switch {
	case strings.HasPrefix(e.What, "kubectl get") && strings.Contains(e.Stderr, "(NotFound)"):
		return true
	case strings.HasPrefix(e.What, "kubectl get") && strings.Contains(e.Stderr, `doesn't have a resource type`) && strings.Contains(strings.Join(e.Args, " "), "tigera"):
		return true
	case strings.Contains(e.Stderr, "if restart has already been triggered within the past second"):
		return true // the bench is quicker than people are
	case e.What == "calicoctl create" && strings.Contains(e.Stderr, "already exists"):
		return true // another finding's remediation has made it
	}
	return false
}

// tool is what this program is when it is called by the name of a tool; it
// does not return then.
func tool() {
	name := filepath.Base(os.Args[0])
	var e entry
	switch name {
	case "kubectl":
		e = kubectl(os.Args[1:], os.Getenv("BENCH_DRY") == "true")
	case "calicoctl":
		e = entry{What: "calicoctl " + strings.Join(os.Args[1:min(2, len(os.Args))], " "), Args: os.Args[1:]}
		if os.Getenv("BENCH_DRY") == "true" {
			e.What += " (not run: dry)"
			break
		}
		config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
		if err == nil {
			err = world.Calicoctl(context.Background(), config, os.Getenv("BENCH_CALICO"), os.Args[1:], os.Stdin)
		}
		if err != nil {
			e.Code, e.Stderr = 1, err.Error()
		}
	case "sleep":
		os.Exit(0) // thirty seconds for a successor that is there at once
	default:
		return
	}
	fmt.Fprint(os.Stderr, e.Stderr)
	line, _ := json.Marshal(e)
	f, err := os.OpenFile(os.Getenv("BENCH_JOURNAL"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.Write(append(line, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(99)
	}
	os.Exit(e.Code)
}

// kubectl runs the real one. What cannot be dry-run, or not at all here, is
// parsed by it: with --help it checks the flags and does nothing.
func kubectl(args []string, dry bool) entry {
	words := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return strings.HasPrefix(a, "-") })
	if len(args) > 1 && args[0] == "-n" {
		words = words[1:]
	}
	verb := words[0]
	e := entry{What: "kubectl " + verb, Args: slices.Clone(args)}
	if verb == "rollout" {
		e.What += " " + words[1]
	}
	raw := slices.Index(args, "--raw")
	var stdin io.Reader = os.Stdin
	parse := func(why string) {
		e.What += " (flags only: " + why + ")"
		at := len(args)
		if i := slices.Index(args, "--"); i >= 0 {
			at = i
		}
		args = slices.Insert(args, at, "--help")
	}
	switch {
	case slices.Contains([]string{"logs", "exec", "debug"}, verb):
		parse("needs a kubelet")
	case !dry || slices.Contains([]string{"get", "describe", "auth"}, verb):
	case verb == "wait":
		parse("nothing goes in a dry run")
	case verb == "rollout":
		parse("has no dry run")
	case raw >= 0 && verb == "delete":
		// Options in the body count, those in the address do not then.
		e.What += " --raw (dry run)"
		body, _ := io.ReadAll(os.Stdin)
		stdin = strings.NewReader(strings.Replace(string(body), `"kind":"DeleteOptions"`, `"kind":"DeleteOptions","dryRun":["All"]`, 1))
	case raw >= 0:
		e.What += " --raw (dry run)"
		args[raw+1] += "?dryRun=All"
	default:
		e.What += " (dry run)"
		args = append(args, "--dry-run=server")
	}
	cmd := exec.Command(os.Getenv("BENCH_KUBECTL"), args...)
	var stderr strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, os.Stdout, &stderr
	if strings.Contains(e.What, "flags only") {
		cmd.Stdout = nil
	}
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		e.Code = exit.ExitCode()
	} else if err != nil {
		e.Code, e.Stderr = 98, err.Error()
	}
	e.Stderr += stderr.String()
	return e
}
