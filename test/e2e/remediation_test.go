package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"ipamaudit/test/bed"
	"ipamaudit/test/world"
)

// needsPeople are the findings that no command ends: the fixture, and what it
// takes. Their commands are run all the same, and the finding must stay, so that
// this list cannot outlive its reasons.
var needsPeople = map[string]string{
	"blackholed-routes/edge-longest-prefix": "a fixed address, and a release without numAllowedLocalASNumbers: the routers have to be configured",
	"borrowed-ips/edge-fixed-address":       "fixed addresses: the pods have to move to the owner, or the network has to carry their routes",
	"ipam-data/bad":                         "a backup has to be restored (TestRestore does)",
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
	kubectl := pasteWith(t)
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

// pasteWith is a real kubectl; without one, or a shell to paste into, the test is
// skipped.
func pasteWith(t *testing.T) (kubectl string) {
	t.Helper()
	kubectl, err := bed.FindKubectl(t.Context())
	if errors.Is(err, bed.ErrNoProgram) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("no bash to paste into")
	}
	return kubectl
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
	for range 8 {
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
	rightly := sideEffects[p.check+"/"+p.fixture]
	if rightly != "" && len(after.loud(rightly)) == 0 {
		t.Errorf("%s no longer comes to light: take it off sideEffects", rightly)
	}
	for _, f := range after.loud("") {
		if f.Check != p.check && !before.has(f) && f.Check != rightly {
			t.Errorf("new after the remediation: %s %s of %s %s: %s", f.Severity, f.Check, f.Subject.Kind, f.Subject.Name, f.Detail)
		}
	}
	t.Logf("ran: %v", s.ran)
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
