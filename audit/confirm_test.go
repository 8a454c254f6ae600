package audit

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"ipamaudit/checks"
	"ipamaudit/ipam"
)

// twice is a source that shows other nodes when it looks again.
type twice struct {
	first, second []string
	err           error
	looks         [][]ipam.Resource
}

func nodesOf(names []string) *ipam.Snapshot {
	s := snapshot("uid")
	for _, n := range names {
		s.Nodes = append(s.Nodes, ipam.Node{Name: n})
	}
	return s.Seal()
}

func (w *twice) Collect(context.Context) (*ipam.Snapshot, error) { return nodesOf(w.first), nil }

func (w *twice) Again(_ context.Context, first *ipam.Snapshot, resources []ipam.Resource) (*ipam.Snapshot, error) {
	w.looks = append(w.looks, resources)
	if w.err != nil {
		return nil, w.err
	}
	if slices.Equal(w.first, w.second) {
		return first, nil
	}
	return nodesOf(w.second), nil
}

// TestConfirm: what a skewed check finds counts when both looks show it.
func TestConfirm(t *testing.T) {
	each := func(id string, skewed bool) checks.Check {
		return checks.Check{
			ID: id, AnyIPAM: true, Skewed: skewed, Needs: []ipam.Resource{ipam.ResPods, ipam.ResPools}, Uses: []ipam.Resource{ipam.ResBlocks},
			Run: func(in *checks.Input) (r checks.Result) {
				for i := range in.Nodes {
					r.Findings = append(r.Findings, checks.Finding{Severity: checks.High, Title: "t", Subject: checks.Subject{Kind: checks.KindNode, Name: in.Nodes[i].Name}})
				}
				return r
			},
		}
	}
	for name, tc := range map[string]struct {
		source *twice
		looks  int
		status checks.Status
		found  string
		code   ClusterStatus
	}{
		"nothing found":      {&twice{}, 0, checks.StatusOK, "", Complete},
		"nothing moved":      {&twice{first: []string{"a", "b"}, second: []string{"a", "b"}}, 1, checks.StatusFindings, "a b", Complete},
		"one was in motion":  {&twice{first: []string{"a", "b"}, second: []string{"b"}}, 1, checks.StatusFindings, "b", Complete},
		"all was in motion":  {&twice{first: []string{"a"}, second: nil}, 1, checks.StatusOK, "", Complete},
		"only in the second": {&twice{first: []string{"a"}, second: []string{"a", "c"}}, 1, checks.StatusFindings, "a", Complete},
		"cannot look again":  {&twice{first: []string{"a"}, err: errors.New("pods: timed out")}, 1, checks.StatusUnknown, "", Partial},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := mustRun(t, Options{Checks: catalogue(each("skewed", true), each("steady", false))}, Target{Name: "c", Source: tc.source})
			c := byName(t, r, "c")
			if len(tc.source.looks) != tc.looks {
				t.Fatalf("%d second looks, want %d", len(tc.source.looks), tc.looks)
			}
			if tc.looks > 0 && !slices.Equal(tc.source.looks[0], []ipam.Resource{ipam.ResBlocks, ipam.ResPods}) {
				t.Errorf("looked again at %v", tc.source.looks[0])
			}
			var found, steady []string
			for _, f := range c.Findings {
				if f.Check == "skewed" {
					found = append(found, f.Subject.Name)
				} else {
					steady = append(steady, f.Subject.Name)
				}
			}
			k := check(t, c, "skewed")
			if k.Status != tc.status || strings.Join(found, " ") != tc.found || c.Status != tc.code {
				t.Errorf("%s %q, cluster %s", k.Status, found, c.Status)
			}
			if !slices.Equal(steady, tc.source.first) {
				t.Errorf("the check that needs no second look found %v", steady)
			}
			if tc.source.err != nil && (!strings.Contains(k.Reason, "pods: timed out") || !strings.Contains(k.Reason, "Node a")) {
				t.Errorf("reason %q", k.Reason)
			}
		})
	}
}
