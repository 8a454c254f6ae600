package report

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	pretty "github.com/jedib0t/go-pretty/v6/text"

	"ipamaudit/audit/collect"
	"ipamaudit/audit/explain"
	"ipamaudit/checks"
	"ipamaudit/ipam"
)

// answers tells a story of each subject in a fixture, with some findings.
func answers(t *testing.T, fixture string, change func(*ipam.Snapshot), asked ...string) *explain.Answer {
	t.Helper()
	s, err := collect.FromPath(context.Background(), filepath.Join("..", "fixtures", fixture), collect.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(s)
		s.Seal()
	}
	in := explain.Input{Snapshot: s, Findings: someFindings()}
	if !s.Coverage.Read(ipam.ResPods) {
		in.Findings = nil
		in.Gaps = []explain.Gap{{Check: "blackholed-routes", Reason: "not read: pods (forbidden)"}, {Check: "leaked-ips", Reason: "not read: pods (forbidden)"}, {Check: "ipam-gc", Reason: "not seen: pods"}}
	}
	a := &explain.Answer{Schema: explain.Schema, Asked: asked[0], Silent: []explain.Silence{}}
	for _, one := range asked {
		meant := explain.Resolve(s, one)
		if len(meant) != 1 {
			t.Fatalf("%q means %v", one, meant)
		}
		a.Stories = append(a.Stories, explain.Explain(in, meant[0]))
	}
	return a
}

// someFindings are as checks make them; what the checks say today is theirs to test.
func someFindings() []explain.Finding {
	look := checks.Step{Title: "See which blocks hold little", Commands: []string{"calicoctl ipam show --show-blocks"}, Risk: checks.Safe, Verify: "The table lists every block with its use."}
	pool := checks.Step{Title: "Add a pool: new blocks come from it at once, running pods are not touched", Risk: checks.Safe, Verify: "calicoctl ipam show   # lists the new pool",
		Commands: []string{"NEW_CIDR=   # a range that nothing else uses", "calicoctl create -f - <<EOF\nkind: IPPool\nspec:\n  cidr: ${NEW_CIDR:?set it first}\nEOF"}}
	move := checks.Step{Title: "Once a block is free, recreate the borrowing pods", Commands: []string{"kubectl -n lab delete pod kubestage1003-app-000"}, Risk: checks.Disruptive}
	finding := func(check string, severity checks.Severity, kind, name, title string, affected []string, steps ...checks.Step) explain.Finding {
		f := explain.Finding{Fingerprint: "fingerprint-of-" + check, Finding: checks.Finding{
			Check: check, Severity: severity, Evidence: checks.Observed, Subject: checks.Subject{Kind: kind, Name: name}, Title: title,
			Detail:   "The reasoning of " + check + ", with figures, long enough for a line to break before it has come to its end.",
			Affected: []checks.Affected{}, CausedBy: []string{}, Remediation: steps,
		}}
		for _, ip := range affected {
			f.Affected = append(f.Affected, checks.Affected{Kind: checks.KindIP, Name: ip})
		}
		return f
	}
	borrowed := []string{"10.64.75.0", "10.64.75.70", "10.148.158.65"}
	blackholed := finding("blackholed-routes", checks.Critical, checks.KindNode, "kubestage1001", "Node kubestage1001 drops traffic to running pods", borrowed, look, pool, move)
	blackholed.CausedBy = []string{"fingerprint-of-pool-utilisation"}
	inferred := finding("borrowed-ips", checks.High, checks.KindNode, "kubestage1003", "Node kubestage1003 borrows addresses from other nodes' blocks", borrowed, pool, move, look)
	inferred.Evidence = checks.Inferred
	accepted := finding("multi-block-nodes", checks.Medium, checks.KindNode, "kubestage1001", "Node kubestage1001 owns more blocks than it needs", nil, checks.Step{Title: "never shown"})
	accepted.Accepted = "batch nodes come and go, NET-42"
	return []explain.Finding{
		finding("block-layout", checks.Low, checks.KindBlock, "10.64.75.64/26", "Block 10.64.75.64/26 is odd", nil, look),
		accepted, inferred, blackholed,
		finding("pool-utilisation", checks.High, checks.KindPool, "kubestage-pods", "Pool kubestage-pods is running out", nil, look,
			checks.Step{Title: "Free the surplus blocks first", Commands: []string{"ipamaudit run --check multi-block-nodes"}, Risk: checks.Safe}),
		finding("tunnel-ips", checks.Critical, checks.KindNode, "elsewhere", "Not about any of these", nil, look),
	}
}

// Goldens of every kind of story, at the widths of a narrow and a wide terminal.
func TestExplainGoldens(t *testing.T) {
	const scenario, stale = "scenarios/t293729", "blackholed-routes/edge-stale-affinity"
	noPods := func(s *ipam.Snapshot) {
		s.Pods = nil
		s.Coverage.Set(ipam.ResPods, ipam.Forbidden, 0, `User "auditor" cannot list resource "pods"`)
	}
	noBlocks := func(s *ipam.Snapshot) {
		s.Blocks = nil
		s.Coverage.Set(ipam.ResBlocks, ipam.Failed, 0, "ipamblocks.json: it ends in the middle")
	}
	for _, g := range []struct {
		name, fixture string
		change        func(*ipam.Snapshot)
		asked         string
	}{
		{"address", scenario, nil, "10.64.75.0"},
		{"address-stale", stale, nil, "10.148.158.65"},
		{"address-unread", scenario, noPods, "10.64.75.0"},
		{"pod", scenario, nil, "lab/kubestage1003-app-000"},
		{"node", scenario, nil, "node/kubestage1003"},
		{"node-owner", scenario, nil, "node/kubestage1001"},
		{"node-unread", scenario, noPods, "node/kubestage1001"},
		{"block", scenario, nil, "10.64.75.64/26"},
		{"pool", scenario, nil, "pool/kubestage-pods"},
		{"node-blocks-unread", scenario, noBlocks, "node/kubestage1001"},
		{"pool-blocks-unread", scenario, noBlocks, "pool/kubestage-pods"},
	} {
		for _, width := range []int{80, 120} {
			t.Run(fmt.Sprintf("%s-%d", g.name, width), func(t *testing.T) {
				a := answers(t, g.fixture, g.change, g.asked)
				var out bytes.Buffer
				if err := WriteAnswer(&out, a, "ipamaudit explain --from x", Options{Width: width}); err != nil {
					t.Fatal(err)
				}
				golden(t, filepath.Join("testdata", "explain", fmt.Sprintf("%s-%d.txt", g.name, width)), out.String())
				fits(t, out.String(), width)
			})
		}
	}
	var out bytes.Buffer
	if err := WriteAnswerJSON(&out, answers(t, scenario, nil, "10.64.75.0")); err != nil {
		t.Fatal(err)
	}
	golden(t, filepath.Join("testdata", "explain", "address.json"), out.String())
}

// fits: no line but a command is wider than the terminal.
func fits(t *testing.T, page string, width int) {
	t.Helper()
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		words := strings.TrimLeft(line, " ")
		first, _, _ := strings.Cut(strings.TrimPrefix(words, "then: "), " ")
		command := isCommand(first) || strings.HasPrefix(first, "VERSION=") || strings.HasPrefix(first, "NEW_CIDR=")
		// A name longer than the line (a handle) stays in one piece, behind its label.
		last := words[strings.LastIndexByte(words, ' ')+1:]
		if pretty.StringWidth(line) > width && !command && len(last)+storyIn+labelWidth <= width {
			t.Errorf("%d columns, want at most %d: %s", pretty.StringWidth(line), width, line)
		}
	}
}

// Colour only repeats what signs say: without it the words are the same.
func TestExplainColour(t *testing.T) {
	a := answers(t, "scenarios/t293729", nil, "10.64.75.0", "node/kubestage1001", "10.64.75.0/26", "pool/kubestage-pods", "lab/kubestage1003-app-000")
	var plainText, colour bytes.Buffer
	if err := WriteAnswer(&plainText, a, "x", Options{}); err != nil {
		t.Fatal(err)
	}
	if err := WriteAnswer(&colour, a, "x", Options{Color: true}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(plainText.String(), "\x1b") || !strings.Contains(colour.String(), "\x1b[") {
		t.Error("colour where none was asked for, or none where it was")
	}
	if pretty.StripEscape(colour.String()) != plainText.String() {
		t.Error("the words differ with colour")
	}
}

// Whatever a cluster is called or holds, a terminal and a shell are safe from it.
func TestExplainHostileNames(t *testing.T) {
	const evil = "x\x1b[2J\u202e`$(reboot)'"
	a := answers(t, "scenarios/t293729", func(s *ipam.Snapshot) {
		s.Cluster.Name = evil
		for i := range s.Pods {
			if s.Pods[i].Name == "kubestage1003-app-000" {
				s.Pods[i].NodeName = evil
			}
		}
		s.Events = append(s.Events, ipam.Event{Kind: "Pod", Namespace: "lab", Name: "kubestage1003-app-000", Reason: evil, Message: evil})
	}, "lab/kubestage1003-app-000", "10.64.75.0")
	a.Silent = append(a.Silent, explain.Silence{Cluster: evil, Failed: true, Why: evil}, explain.Silence{Cluster: evil})
	var out, doc bytes.Buffer
	if err := WriteAnswer(&out, a, "ipamaudit explain", Options{}); err != nil {
		t.Fatal(err)
	}
	if err := WriteAnswerJSON(&doc, a); err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{out.String(), doc.String()} {
		if strings.ContainsAny(page, "\x1b\u202e") {
			t.Error("a terminal would obey what the cluster holds")
		}
	}
	if want := "explain 'node/x`$(reboot)'\\''" + "'"; !strings.Contains(out.String(), want) {
		t.Errorf("the next command is not quoted:\n%s", out.String())
	}
	var back explain.Answer
	if err := json.Unmarshal(doc.Bytes(), &back); err != nil || back.Stories[0].Cluster != evil {
		t.Errorf("JSON does not hold the name as it is: %v, %q", err, back.Stories[0].Cluster)
	}
}

// A cluster that could not be read comes first.
func TestExplainSilence(t *testing.T) {
	a := answers(t, "scenarios/t293729", nil, "10.64.75.0")
	a.Silent = []explain.Silence{{Cluster: "other", Why: "not known here"}, {Cluster: "down", Failed: true, Why: "refused"}}
	var out bytes.Buffer
	if err := WriteAnswer(&out, a, "x", Options{}); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), "✖ down could not be read, and may know it: refused\n") || !strings.HasSuffix(out.String(), "not known in other\n") {
		t.Errorf("%s", out.String())
	}
}
