package wire_test

import (
	"strings"
	"testing"

	"ipamaudit/notify/fake/wire"
)

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, path string
		want          string // the stars, or "no"
	}{
		{"", "/anything/at/all", ""},
		{"a/b", "/a/b", ""},
		{"/a/b/", "a/b", ""},
		{"a/b", "/a/b/c", "no"},
		{"a/b/c", "/a/b", "no"},
		{"a/*", "/a/x", "x"},
		{"a/*", "/a/x/y", "no"},
		{"a/*/c/*", "/a/x/c/y", "x y"},
		{"a/...", "/a", ""},
		{"a/...", "/a/b/c", ""},
		{"a/*/...", "/a/b/c/d", "b"},
		{"b/...", "/a/b", "no"},
	} {
		vars, ok := wire.Match(c.pattern, c.path)
		got := strings.Join(vars, " ")
		if !ok {
			got = "no"
		}
		if got != c.want {
			t.Errorf("Match(%q, %q) = %q, want %q", c.pattern, c.path, got, c.want)
		}
	}
}
