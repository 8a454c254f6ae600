package ipam

import (
	"slices"
	"testing"
)

func TestFeatures(t *testing.T) {
	seen := map[Feature]bool{}
	var before Change
	for _, c := range Changes() {
		if c.Feature != "" && seen[c.Feature] || c.Source == "" || c.What == "" || c.Minor < before.Minor || !slices.Contains(Areas(), c.Area) {
			t.Errorf("%+v: twice, without source, words or area, or out of order", c)
		}
		seen[c.Feature], before = true, c
		if c.Feature == "" {
			continue
		}
		at := Version{Major: c.Major, Minor: c.Minor}
		older := Version{Major: c.Major, Minor: c.Minor - 1, Patch: 9}
		if !at.Has(c.Feature) || at.Lacks(c.Feature) || older.Has(c.Feature) || !older.Lacks(c.Feature) {
			t.Errorf("%s: wrong around v%d.%d", c.Feature, c.Major, c.Minor)
		}
		if (Version{}).Has(c.Feature) || (Version{}).Lacks(c.Feature) {
			t.Errorf("%s: an unknown version tells something", c.Feature)
		}
	}
}
