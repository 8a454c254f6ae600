package ipam

import "testing"

func TestFeatures(t *testing.T) {
	seen := map[Feature]bool{}
	var before Change
	for _, c := range Changes() {
		if seen[c.Feature] || c.Source == "" || c.Minor < before.Minor {
			t.Errorf("%+v: twice, without source or out of order", c)
		}
		seen[c.Feature], before = true, c
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
