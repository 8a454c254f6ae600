package checks

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every page leads on to others, by a question, and begins with a command that
// changes nothing and needs nothing installed but kubectl and calicoctl.
func TestOnCall(t *testing.T) {
	reads := regexp.MustCompile(`^(kubectl (--context \S+ |-n \S+ )?(get|describe|logs) |calicoctl ipam (show|check)\b|ip route (get|show) )[^&;>]*$`)
	for _, c := range All() {
		if !reads.MatchString(c.firstLook()) {
			t.Errorf("%s: the first look may change something: %s", c.ID, c.firstLook())
		}
		if len(c.Related) == 0 {
			t.Errorf("%s: leads to no other check", c.ID)
		}
		for _, r := range c.Related {
			if _, ok := Find(r.ID); !ok || r.ID == c.ID || !strings.HasSuffix(r.Question, "?") {
				t.Errorf("%s: related %+v", c.ID, r)
			}
		}
	}
}

// Who lands on the wrong one of these pages finds the right one from there.
func TestRelatedBothWays(t *testing.T) {
	for _, pair := range [][2]string{
		{"blockless-nodes", "pool-utilisation"},
		{"blockless-nodes", "multi-block-nodes"},
		{"blockless-nodes", "orphan-affinities"},
		{"pool-utilisation", "multi-block-nodes"},
		{"pool-utilisation", "orphan-affinities"},
		{"affinity-conflicts", "route-disagreement"},
		{"node-capacity", "node-block-limit"},
		{"leaked-ips", "stuck-pods"},
		{"leaked-ips", "misbooked-ips"},
		{"stuck-pods", "duplicate-ips"},
		{"misbooked-ips", "duplicate-ips"},
	} {
		for _, way := range [][2]string{pair, {pair[1], pair[0]}} {
			c, _ := Find(way[0])
			if !slices.ContainsFunc(c.Related, func(r Related) bool { return r.ID == way[1] }) {
				t.Errorf("%s does not lead to %s", way[0], way[1])
			}
		}
	}
}

// No id of a check stands in backticks on a page without being a link.
func TestIDsAreLinks(t *testing.T) {
	for _, c := range All() {
		page := c.Markdown()
		for _, o := range All() {
			links := strings.Count(page, "[`"+o.ID+"`]("+o.ID+".md)")
			if n := strings.Count(page, "`"+o.ID+"`"); o.ID != c.ID && n != links {
				t.Errorf("%s: %s stands there %d times, %d times as a link", c.ID, o.ID, n, links)
			}
		}
	}
}

// A case without steps would be a heading and nothing under it.
func TestEveryCaseHasSteps(t *testing.T) {
	for _, c := range All() {
		if c.Cases == nil {
			continue
		}
		seen := map[string]bool{}
		for _, one := range c.Cases() {
			if one.When == "" || seen[one.When] || len(one.Steps) == 0 {
				t.Errorf("%s: case %q: %d steps, seen before: %v", c.ID, one.When, len(one.Steps), seen[one.When])
			}
			seen[one.When] = true
		}
	}
}
