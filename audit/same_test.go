package audit

import (
	"fmt"
	"strings"
	"testing"

	"ipamaudit/checks"
)

// A finding that one look cannot prove is seen a second time only where one of
// its things is: another node every night stays a first look for ever.
func TestSecondLookIsAtTheSameThings(t *testing.T) {
	many := func(from int) string {
		var names []string
		for i := range 5000 {
			names = append(names, fmt.Sprintf("n%d", from+i))
		}
		return strings.Join(names, " ")
	}
	for name, tc := range map[string]struct {
		nights  string // separated by |; = repeats the night before under its run id
		certain bool
		runs    []int
	}{
		"the same node":                             {nights: "a b|b c", runs: []int{1, 2}},
		"another node every night":                  {nights: "a|b|c|d", runs: []int{1, 1, 1, 1}},
		"one that stays among many that go":         {nights: "a b c|c d e|e f", runs: []int{1, 2, 3}},
		"one comes back after a night":              {nights: "a|b|a|a", runs: []int{1, 1, 1, 2}},
		"more than the state remembers":             {nights: many(0) + "|" + many(100), runs: []int{1, 2}},
		"as many, and none of them":                 {nights: many(0) + "|" + many(6000), runs: []int{1, 1}},
		"a repeated run is no second look":          {nights: "a|=|a", runs: []int{1, 1, 2}},
		"nothing is named: it is about its subject": {nights: "||", runs: []int{1, 2, 3}},
		"what one look proves counts as ever":       {nights: "a|b|c", certain: true, runs: []int{1, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			var state *State
			var last []string
			id := ""
			for i, list := range strings.Split(tc.nights, "|") {
				if list != "=" {
					last, id = strings.Fields(list), fmt.Sprint("night-", i)
				}
				r := reportOf(t, i+1, night{id: id, check: findings, found: "medium×0"})
				f := &r.Clusters[0].Findings[0]
				f.SecondLook, f.IfItStays, f.Affected = !tc.certain, checks.Critical, nil
				for _, n := range last {
					f.Affected = append(f.Affected, checks.Affected{Kind: checks.KindBlock, Name: "10.0.0.0/26", Same: n})
				}
				state = Compare(state, r)
				if f.Runs != tc.runs[i] {
					t.Errorf("night %d: %d runs, want %d", i+1, f.Runs, tc.runs[i])
				}
				if worse := f.Severity == checks.Critical; worse != (f.Runs > 1) {
					t.Errorf("night %d: %s after %d runs", i+1, f.Severity, f.Runs)
				}
				for _, rec := range state.Clusters["c"].Findings {
					if len(rec.Sample) > sampleSize || tc.certain && rec.Sample != nil {
						t.Errorf("night %d: the state remembers %d things", i+1, len(rec.Sample))
					}
				}
			}
		})
	}
}
