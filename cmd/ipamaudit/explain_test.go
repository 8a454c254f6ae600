package main

import (
	"context"
	"errors"
	"net/netip"
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
			w := newWitnesses("d/p")
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
	if _, again := newWitnesses("x").listen("c", collect.NewFiles("x", collect.Options{})).(audit.Rechecker); again {
		t.Error("a saved snapshot has no second look")
	}
}

// A story that tells of a problem is looked at again, also where no check found
// anything: here the pods were listed after the one that has the address.
func TestExplainLooksAgainAtProblems(t *testing.T) {
	address := netip.MustParseAddr("10.0.0.1")
	cluster := func(booked bool, pods ...string) *ipam.Snapshot {
		s := ipam.NewSnapshot()
		s.Cluster.Name = "c"
		for _, r := range ipam.AllResources() {
			s.Coverage.Set(r, ipam.Read, 0, "")
		}
		s.Pools = []ipam.Pool{{Name: "p", CIDR: netip.MustParsePrefix("10.0.0.0/24"), BlockSize: 26, NodeSelector: "all()", AllowedUses: ipam.UseWorkload}}
		s.Nodes = []ipam.Node{{Name: "n", Ready: true}}
		b := ipam.Block{Name: "10-0-0-0-26", CIDR: netip.MustParsePrefix("10.0.0.0/26"), Owner: ipam.Owner{Type: "host", Name: "n"}}
		if booked {
			b.Slots, b.Attributes = []ipam.Slot{{Ordinal: 1}}, []ipam.Attribute{{Handle: "h", Namespace: "d", Pod: "p", Node: "n"}}
		}
		s.Blocks = []ipam.Block{b}
		s.Affinities = []ipam.Affinity{{Name: "n-10-0-0-0-26", Node: "n", Type: "host", CIDR: b.CIDR, State: ipam.StateConfirmed}}
		for _, p := range pods {
			s.Pods = append(s.Pods, ipam.Pod{Namespace: "d", Name: p, NodeName: "n", Phase: "Running", StatusIPs: []netip.Addr{address}})
		}
		return s.Seal()
	}
	for _, tc := range []struct {
		name   string
		first  *ipam.Snapshot
		second *ipam.Snapshot // nil: it cannot be read again
		want   explain.Status
		moving bool
	}{
		{"the pod has it: no second look", cluster(true, "p"), nil, explain.Doubt, false}, // there is no route table
		{"the pod is gone, and stays so", cluster(true), cluster(true), explain.Problem, false},
		{"the pod came meanwhile", cluster(true), cluster(true, "p"), explain.Doubt, true},
		{"nobody can tell", cluster(true), nil, explain.Doubt, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWitnesses(address.String())
			src := w.listen("c", again{tc.first, tc.second})
			if _, err := src.Collect(t.Context()); err != nil {
				t.Fatal(err)
			}
			rep := &audit.Report{Clusters: []audit.ClusterReport{{Name: "c"}}}
			w.confirm(t.Context(), rep)
			answer, err := w.answer(rep)
			if err != nil {
				t.Fatal(err)
			}
			if got := answer.Stories[0]; got.Verdict.Status != tc.want || got.Incomplete != tc.moving {
				t.Errorf("%+v, incomplete %t, want %s", got.Verdict, got.Incomplete, tc.want)
			}
		})
	}
}

// again is a cluster that may break before it is read again.
type again struct{ first, second *ipam.Snapshot }

func (a again) Collect(context.Context) (*ipam.Snapshot, error) { return a.first, nil }

func (a again) Again(context.Context, *ipam.Snapshot, []ipam.Resource) (*ipam.Snapshot, error) {
	switch {
	case a.second == nil:
		return nil, errors.New("the API server is gone")
	case a.second == a.first:
		return a.first, nil
	}
	look := ipam.NewSecondLook(a.first, ipam.MovingResources())
	look.Pods(a.second.Pods)
	look.Blocks(a.second.Blocks)
	look.Affinities(a.second.Affinities)
	look.Handles(a.second.Handles)
	look.Nodes(a.second.Nodes)
	return look.Settled(), nil
}
