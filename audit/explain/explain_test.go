package explain_test

import (
	"context"
	"encoding/json"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ipamaudit/audit/collect"
	"ipamaudit/audit/explain"
	"ipamaudit/checks"
	"ipamaudit/ipam"
)

const scenario = "scenarios/t293729"

// load reads a fixture and lets every check have its say.
func load(t *testing.T, dir string) explain.Input {
	t.Helper()
	s, err := collect.FromPath(context.Background(), filepath.Join("..", "..", "fixtures", dir), collect.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return input(s)
}

func input(s *ipam.Snapshot) explain.Input {
	in := explain.Input{Snapshot: s}
	for _, c := range checks.All() {
		if c.Run == nil {
			continue
		}
		out := checks.Evaluate(c, &checks.Input{Snapshot: s, Params: c.DefaultParams(), Now: s.AsOf})
		for _, f := range out.Findings {
			in.Findings = append(in.Findings, explain.Finding{Fingerprint: checks.Fingerprint(f.Check, s.Cluster.ID, f.Subject), Finding: f})
		}
		if out.Status == checks.StatusUnknown {
			in.Gaps = append(in.Gaps, explain.Gap{Check: c.ID, Reason: out.Reason})
		}
	}
	return in
}

func story(t *testing.T, in explain.Input, asked string) explain.Story {
	t.Helper()
	meant := explain.Resolve(in.Snapshot, asked)
	if len(meant) != 1 {
		t.Fatalf("%q means %v, want one subject", asked, meant)
	}
	return explain.Explain(in, meant[0])
}

// What people read first, for what the fixtures are about.
func TestVerdicts(t *testing.T) {
	for _, tc := range []struct {
		fixture, asked string
		status         explain.Status
		says           []string
	}{
		{scenario, "10.64.75.0", explain.Problem, []string{"lab/kubestage1003-app-000 on kubestage1003 uses it, as recorded", "lost at kubestage1001", "from 2 nodes it is not known"}},
		{scenario, "10.64.75.1", explain.Doubt, []string{"lab/kubestage1001-app-001 on kubestage1001"}},
		{scenario, "10.64.75.99", explain.Info, []string{"Not booked, and nobody uses it"}},
		{scenario, "10.64.0.247", explain.Info, []string{"host address of node kubestage1001"}},
		{scenario, "lab/kubestage1003-app-000", explain.Problem, []string{"Running on kubestage1003 with address 10.64.75.0", "lost at kubestage1001"}},
		{scenario, "node/kubestage1003", explain.Problem, []string{"In use, owns no block, and none is free", "5 addresses used here out of other nodes' blocks"}},
		{scenario, "kubestage1001", explain.Problem, []string{"owns 2 blocks", "drops packets for 10 addresses"}},
		{scenario, "10.64.75.64/26", explain.Problem, []string{"Owned by kubestage1001, 15 of 64 addresses booked, 9 of them lent"}},
		{scenario, "kubestage-pods", explain.Problem, []string{"41 of 256 usable addresses and 4 of 4 blocks are taken", "2 nodes in use without a block: kubestage1003, kubestage1004"}},
		{scenario, "10.64.75.0/24", explain.Problem, []string{"4 of 4 blocks"}},
		{"blackholed-routes/edge-stale-affinity", "10.148.158.65", explain.Problem, []string{"lost at node-14"}},
		{"blackholed-routes/edge-stale-affinity", "10.148.158.64/26", explain.Problem, []string{"Owned by node-15", "Another node claims it as well"}},
		{"blackholed-routes/edge-stale-affinity", "node/node-14", explain.Problem, []string{"drops packets for 14 addresses"}},
	} {
		t.Run(tc.fixture+"/"+tc.asked, func(t *testing.T) {
			s := story(t, load(t, tc.fixture), tc.asked)
			if s.Verdict.Status != tc.status {
				t.Errorf("status %s, want %s (%s)", s.Verdict.Status, tc.status, s.Verdict.Text)
			}
			for _, want := range tc.says {
				if !strings.Contains(s.Verdict.Text, want) {
					t.Errorf("verdict %q lacks %q", s.Verdict.Text, want)
				}
			}
		})
	}
}

// A story is told of everything in every fixture: nothing panics, nothing is
// "ok" where pods, nodes or blocks were not read or a check found something,
// and JSON has no null list.
func TestEverySubjectOfEveryFixture(t *testing.T) {
	dirs, err := filepath.Glob("../../fixtures/*/*")
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, dir := range dirs {
		if ok, _ := filepath.Match("*.json", filepath.Base(dir)); ok || strings.HasSuffix(dir, ".go") {
			continue
		}
		rel, _ := filepath.Rel("../../fixtures", dir)
		in := load(t, rel)
		// Without the checks' findings the stories must stand on their own.
		names := explain.Names(in.Snapshot, "")
		step := max(len(names)/40, 1)
		for i := 0; i < len(names); i += step {
			meant := explain.Resolve(in.Snapshot, names[i])
			if len(meant) != 1 {
				t.Errorf("%s: %q means %v, want exactly itself", rel, names[i], meant)
				continue
			}
			check(t, rel, in, explain.Explain(in, meant[0]))
			told++
		}
		for i := range in.Blocks {
			if i%5 == 0 {
				check(t, rel, in, story(t, in, in.Blocks[i].CIDR.Addr().String()))
				told++
			}
		}
	}
	if told < 500 {
		t.Errorf("only %d stories: are the fixtures gone?", told)
	}
}

func check(t *testing.T, where string, in explain.Input, s explain.Story) {
	t.Helper()
	if s.Verdict.Text == "" || s.Verdict.Status == "" {
		t.Errorf("%s: %s has no verdict", where, s.Subject)
	}
	for _, r := range explain.Needed() {
		if in.Coverage.Read(r) {
			continue
		}
		if s.Verdict.Status == explain.OK || !s.Incomplete {
			t.Errorf("%s: %s is %s although %s were not read", where, s.Subject, s.Verdict.Status, r)
		}
		if !slices.ContainsFunc(s.Unknown, func(u string) bool { return strings.HasPrefix(u, string(r)+" not read") }) {
			t.Errorf("%s: %s does not say that %s were not read", where, s.Subject, r)
		}
	}
	for _, f := range s.Findings {
		if f.Severity.AtLeast(checks.Medium) && s.Verdict.Status != explain.Problem {
			t.Errorf("%s: %s is %s with a finding: %s", where, s.Subject, s.Verdict.Status, f.Title)
		}
	}
	doc, err := json.Marshal(s)
	if err != nil {
		t.Fatalf("%s: %s: %v", where, s.Subject, err)
	}
	for _, list := range []string{"findings", "unknown", "see", "hops", "pods", "holders", "blocks", "addresses", "events"} {
		if strings.Contains(string(doc), `"`+list+`":null`) {
			t.Errorf("%s: %s: %s is null", where, s.Subject, list)
		}
	}
}

// The findings of a story are those that touch its subject, and the steps come with them.
func TestFindingsOfAnAddress(t *testing.T) {
	s := story(t, load(t, scenario), "10.64.75.0")
	var ids []string
	for _, f := range s.Findings {
		ids = append(ids, f.Check)
		if len(f.Remediation) == 0 {
			t.Errorf("%s has no steps", f.Check)
		}
	}
	for _, want := range []string{"blackholed-routes", "borrowed-ips"} {
		if !slices.Contains(ids, want) {
			t.Errorf("findings %v lack %s", ids, want)
		}
	}
	if slices.Contains(ids, "ipam-config") {
		t.Errorf("ipam-config is about the cluster, not the address: %v", ids)
	}
	if ids[0] != "blackholed-routes" {
		t.Errorf("%s is first, want the worst", ids[0])
	}
}

func TestResolve(t *testing.T) {
	in := load(t, scenario)
	in.Pods = append(in.Pods,
		ipam.Pod{Namespace: "a", Name: "twin", NodeName: "kubestage1001", Phase: "Running"},
		ipam.Pod{Namespace: "b", Name: "twin", NodeName: "kubestage1001", Phase: "Running"},
		ipam.Pod{Namespace: "b", Name: "kubestage1001", NodeName: "kubestage1001", Phase: "Running"},
		ipam.Pod{Namespace: "node", Name: "odd", NodeName: "kubestage1001", Phase: "Running"},
	)
	s := in.Seal()
	for asked, want := range map[string][]string{
		"10.64.75.0":                    {"10.64.75.0"},
		"::ffff:10.64.75.0":             {"10.64.75.0"},
		"10.64.75.0/32":                 {"10.64.75.0"},
		"ip/10.64.75.0":                 {"10.64.75.0"},
		"10.64.75.0/26":                 {"block/10.64.75.0/26"},
		"10.64.75.7/26":                 {"block/10.64.75.0/26"},
		"10-64-75-0-26":                 {"block/10.64.75.0/26"},
		"10.64.75.0/24":                 {"pool/kubestage-pods"},
		"pool/10.64.75.0/24":            {"pool/kubestage-pods"},
		"ippools/kubestage-pods":        {"pool/kubestage-pods"},
		"kubestage1002":                 {"node/kubestage1002"},
		"no/kubestage1002":              {"node/kubestage1002"},
		"lab/kubestage1003-app-000":     {"pod/lab/kubestage1003-app-000"},
		"pod/lab/kubestage1003-app-000": {"pod/lab/kubestage1003-app-000"},
		"kubestage1003-app-000":         {"pod/lab/kubestage1003-app-000"},
		"\tkubestage1002\n":             {"node/kubestage1002"},
		"twin":                          {"pod/a/twin", "pod/b/twin"},
		"kubestage1001":                 {"node/kubestage1001", "pod/b/kubestage1001"},
		"node/odd":                      {"pod/node/odd"},
		"10.99.0.1":                     nil,
		"10.64.75.0/27":                 nil,
		"KUBESTAGE1001":                 nil,
		"lab/nobody":                    nil,
		"node/":                         nil,
		"/":                             nil,
		"":                              nil,
	} {
		var got []string
		for _, m := range explain.Resolve(s, asked) {
			got = append(got, explain.Argument(m))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q means %v, want %v", asked, got, want)
		}
	}
}

// A pod that is gone and a node that is gone have a story as long as IPAM
// records them.
func TestOfTheDeparted(t *testing.T) {
	in := load(t, scenario)
	in.Pods = slices.DeleteFunc(in.Pods, func(p ipam.Pod) bool { return p.Name == "kubestage1003-app-000" })
	in.Nodes = slices.DeleteFunc(in.Nodes, func(n ipam.Node) bool { return n.Name == "kubestage1002" })
	in = input(in.Seal())
	if s := story(t, in, "lab/kubestage1003-app-000"); s.Verdict.Status != explain.Problem || !strings.Contains(s.Verdict.Text, "does not exist, and IPAM still books 1 address") {
		t.Errorf("pod: %s %s", s.Verdict.Status, s.Verdict.Text)
	}
	if s := story(t, in, "10.64.75.0"); s.Address.State != explain.Leaked || s.Address.Path != nil {
		t.Errorf("address: %s, path %v", s.Address.State, s.Address.Path)
	}
	if s := story(t, in, "node/kubestage1002"); s.Verdict.Status != explain.Problem || !strings.HasPrefix(s.Verdict.Text, "The node does not exist, owns 2 blocks") {
		t.Errorf("node: %s %s", s.Verdict.Status, s.Verdict.Text)
	}
	if s := story(t, in, "10.64.75.128/26"); s.Block.OwnerIs != "gone" || s.Verdict.Status != explain.Problem {
		t.Errorf("block: owner is %s, %s", s.Block.OwnerIs, s.Verdict.Status)
	}
}

// The map has a sign for each address, and the signs add up.
func TestBlockMap(t *testing.T) {
	in := load(t, scenario)
	for i := range in.Pods {
		switch in.Pods[i].Name {
		case "kubestage1001-app-001":
			in.Pods[i].Phase = "Succeeded"
		case "kubestage1001-app-002":
			in.Pods[i].StatusIPs, in.Pods[i].AnnotatedIPs = nil, nil
		}
	}
	in.Reservations = append(in.Reservations, ipam.Reservation{Name: "r", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.64.75.62/31")}})
	in = input(in.Seal())
	b := story(t, in, "10.64.75.0/26").Block
	const want = "oxw#######" + "....................................................rr"
	if b.Map != want {
		t.Errorf("map\n%s, want\n%s", b.Map, want)
	}
	sum := 0
	for _, s := range b.Signs {
		sum += s.Count
		if s.Count != strings.Count(b.Map, s.Sign) || s.Means == "" {
			t.Errorf("sign %q: %d, the map has %d", s.Sign, s.Count, strings.Count(b.Map, s.Sign))
		}
	}
	if sum != 64 || len(b.Holders) != b.Allocated {
		t.Errorf("%d signs, %d holders for %d booked", sum, len(b.Holders), b.Allocated)
	}
}
