package main

import (
	"context"
	"testing"

	"ipamaudit/audit"
	"ipamaudit/audit/collect"
	"ipamaudit/audit/explain"
	"ipamaudit/ipam"
)

// lookingAgain is a cluster whose second look differs from the first.
type lookingAgain struct{ first, second *ipam.Snapshot }

func (l lookingAgain) Collect(context.Context) (*ipam.Snapshot, error) { return l.first, nil }

func (l lookingAgain) Again(context.Context, *ipam.Snapshot, []ipam.Resource) (*ipam.Snapshot, error) {
	return l.second, nil
}

// What was only in motion is no story: the second look is the better witness,
// unless the subject itself has changed; then that is said.
func TestExplainListensToTheSecondLook(t *testing.T) {
	cluster := func(pods ...string) *ipam.Snapshot {
		s := ipam.NewSnapshot()
		for _, p := range pods {
			s.Pods = append(s.Pods, ipam.Pod{Namespace: "d", Name: p, NodeName: "n", Phase: "Running"})
		}
		return s.Seal()
	}
	for _, tc := range []struct {
		name          string
		first, second *ipam.Snapshot
		fromSecond    bool
		note          bool
	}{
		{"nothing changed", cluster("p"), nil, false, false},
		{"another pod changed", cluster("p", "q"), cluster("p"), true, true},
		{"the pod itself changed", cluster("p"), cluster("q"), false, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.second == nil {
				tc.second = tc.first
			}
			w := &witnesses{asked: "d/p", by: map[string]witness{}}
			src, ok := w.listen("c", lookingAgain{tc.first, tc.second}).(audit.Rechecker)
			if !ok {
				t.Fatal("a source that looks again does so no more")
			}
			first, err := src.Collect(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := src.Again(t.Context(), first, nil); err != nil {
				t.Fatal(err)
			}
			got := w.by["c"]
			want := tc.first
			if tc.fromSecond {
				want = tc.second
			}
			if got.snapshot != want || (got.note != "") != tc.note {
				t.Errorf("from the second look: %t, note %q", got.snapshot == tc.second, got.note)
			}
			s := explain.Explain(explainInput(got, &audit.ClusterReport{}), got.meant[0])
			if said := len(s.Unknown) > 0 && s.Unknown[len(s.Unknown)-1] == got.note; tc.note && !said {
				t.Errorf("the story does not say so: %q", s.Unknown)
			}
		})
	}
	if _, again := (&witnesses{by: map[string]witness{}}).listen("c", collect.NewFiles("x", collect.Options{})).(audit.Rechecker); again {
		t.Error("a saved snapshot has no second look")
	}
}
