package ipam

import "testing"

func TestSelector(t *testing.T) {
	labels := map[string]string{"zone": "a", "kubernetes.io/os": "linux", "role": "db-1"}
	for _, tc := range []struct {
		text string
		want bool
	}{
		{"", true}, {"all()", true}, {"!all()", false}, {"global()", false},
		{"zone == 'a'", true}, {`zone == "b"`, false}, {"zone != 'b'", true}, {"absent != 'b'", true},
		{"has(zone)", true}, {"!has(zone)", false}, {"has(absent)", false},
		{"zone in {'a','b'}", true}, {"zone in { 'b' }", false}, {"zone not in {'b'}", true}, {"absent not in {'b'}", true}, {"absent in {'b'}", false},
		{"role contains 'b-'", true}, {"role starts with 'db'", true}, {"role ends with '-1'", true}, {"absent contains ''", false},
		{"zone == 'a' && kubernetes.io/os == 'linux'", true}, {"zone == 'b' || has(role)", true},
		{"!(zone == 'a' && has(role))", false}, {"zone == 'b' || zone == 'a' && !has(absent)", true}, {"! ! has(zone)", true},
		{"zone in {}", false},
	} {
		sel, err := ParseSelector(tc.text)
		if err != nil {
			t.Errorf("%q: %v", tc.text, err)
			continue
		}
		if got := sel.Matches(labels); got != tc.want {
			t.Errorf("%q matches %v = %v, want %v", tc.text, labels, got, tc.want)
		}
	}
}

func TestSelectorErrors(t *testing.T) {
	for _, text := range []string{"zone", "zone ==", "zone == a", "zone == 'a", "(all()", "all() all()", "foo()", "zone in 'a'", "zone in {'a' 'b'}", "zone starts 'a'", "zone not 'a'", "&&", "zone == 'a' &&", "$", "has('zone')"} {
		if sel, err := ParseSelector(text); err == nil {
			t.Errorf("%q: parsed, want an error", text)
		} else if sel.Matches(nil) {
			t.Errorf("%q: the selector of an error must match nothing", text)
		}
	}
}

func FuzzSelector(f *testing.F) {
	f.Add("zone in {'a','b'} && !has(x)")
	f.Fuzz(func(t *testing.T, s string) {
		if sel, err := ParseSelector(s); err == nil {
			sel.Matches(map[string]string{"zone": "a"})
		}
	})
}
