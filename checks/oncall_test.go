package checks

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"ipamaudit/ipam"
)

// Every page begins with commands that change nothing and need nothing
// installed but kubectl and calicoctl, says what they print where it is this,
// and leads on to others by a question. What to do comes right after.
func TestOnCall(t *testing.T) {
	reads := regexp.MustCompile(`^(kubectl (--context \S+ |-n \S+ )?(get|describe|logs) |calicoctl ipam (show|check)\b|ip route (get|show) )[^&;>]*$`)
	quoted := regexp.MustCompile(`'[^']*'`)
	for _, c := range All() {
		for line := range strings.SplitSeq(c.look(), "\n") {
			command, _, _ := strings.Cut(line, "   # ")
			command = quoted.ReplaceAllString(command, "''")
			parts := []string{command}
			if two, ok := strings.CutPrefix(command, "diff <("); ok {
				parts = strings.Split(strings.TrimSuffix(two, ")"), ") <(")
			}
			for _, part := range parts {
				if !reads.MatchString(part) {
					t.Errorf("%s: the look may change something: %s", c.ID, line)
				}
			}
			if strings.HasPrefix(command, "calicoctl ") {
				if err := CheckCalicoctl(command, ipam.ParseVersion("v3.17.0")); err != nil {
					t.Errorf("%s: %v: %s", c.ID, err, line)
				}
			}
		}
		if !strings.HasSuffix(strings.Trim(c.Sign, "*`"), ".") {
			t.Errorf("%s: what the look prints where it is this: %q", c.ID, c.Sign)
		}
		head, _, _ := strings.Cut(c.Markdown(), "\n## Remediation\n")
		if n := strings.Count(head, "\n"); n > 32 {
			t.Errorf("%s: %d lines before the remediation", c.ID, n)
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

// What a page asks to be done or verified needs no ipamaudit, except where it
// is about ipamaudit itself.
func TestPagesDoWithoutIpamaudit(t *testing.T) {
	for _, c := range All() {
		if c.ID != "cluster-access" && strings.Contains(c.remediationText(), "ipamaudit run") {
			t.Errorf("%s: a step or what verifies it runs ipamaudit", c.ID)
		}
		if strings.Contains(c.Markdown(), "](checks/") {
			t.Errorf("%s: a link as from docs/symptoms.md", c.ID)
		}
	}
}

// A restart has one risk, wherever it is proposed.
func TestRestartsAreDisruptive(t *testing.T) {
	restarts := regexp.MustCompile(`rollout restart|delete pod -A -l k8s-app=`)
	for _, c := range All() {
		for _, s := range exampleSteps(c) {
			if restarts.MatchString(strings.Join(s.Commands, "\n")) && s.Risk == Safe {
				t.Errorf("%s: %s is %s", c.ID, s.Title, s.Risk)
			}
		}
	}
}

// exampleSteps are all steps on a check's page.
func exampleSteps(c Check) []Step {
	steps := c.Example()
	if c.Cases != nil {
		for _, one := range c.Cases() {
			steps = append(steps, one.Steps...)
		}
	}
	return steps
}

// What people on call looked for on these pages, in this order.
func TestPagesHaveTheCommand(t *testing.T) {
	for id, want := range map[string][]string{
		"leaked-ips":        {"calicoctl ipam check --show-problem-ips |", "leaked; attrs", "\n   release 10.0.0.7\n", "rollout restart deployment calico-kube-controllers", "--from-report=leaks-before.json"},
		"pool-utilisation":  {"calicoctl ipam check |", "`leaked-ips`", "## Remediation", "calicoctl create -f -"},
		"node-block-limit":  {"```bash\ncalicoctl ipam show --show-configuration\n", "`leaked-ips`", "### Far more is booked than used", "rollout restart deployment calico-kube-controllers", "### Nothing leaks", "maxBlocksPerHost"},
		"ipam-config":       {"### There are Windows nodes", "ipam show --show-borrowed", "diff <(", "--strictaffinity=true", "### StrictAffinity is false, there is no node mesh", "calicoctl get bgppeers"},
		"block-layout":      {"uniq -d", "`duplicate-ips`", "### Blocks overlap", "kubectl drain WRONG-NODE", "### A block has another size", "kubectl drain NODE"},
		"duplicate-ips":     {"the node whose tunnel has it", "### A pod and a node's tunnel", "delete pod -A -l k8s-app=calico-node", "it is not assigned\n", "delete pod -A -l k8s-app=calico-node", "evict NAMESPACE OTHER-POD"},
		"ipam-data":         {"installations.operator.tigera.io", "calico-ipam|host-local", "/etc/cni/net.d/10-calico.conflist", "calicoctl datastore migrate lock", "### host-local", "/var/lib/cni/networks"},
		"blackholed-routes": {"ip route get ADDRESS", "the one with the longest prefix counts", "### The pod borrows its address", "FIXED:", "--strictaffinity=true", "### Fixed address, and a node mesh", "calicoctl node status", "spec.nodeName=POD-NODE", "### `blackhole 10.0.2.1`", "SIZE:.spec.blockSize", "calicoVersion", "calicoctl create -f -"},
		"borrowed-ips":      {"### Addresses that no annotation fixes", "FIXED:", "no pod with a fixed address (ipAddrs) may have to start outside", "--strictaffinity=true", "### Fixed", "calicoctl node status"},
		"stuck-pods":        {"### `error adding host side routes", "ip route show DST", "grep -wF -e DST", "`blackholed-routes`", "delete pod POD"},
		"datastore-locked":  {"datastoreReady", "### calico-node pods stay in `Init:`", "-c upgrade-ipam", "calicoctl ipam check", "calicoctl datastore migrate unlock"},
	} {
		c, _ := Find(id)
		page := c.Markdown()
		for _, text := range want {
			at := strings.Index(page, text)
			if at < 0 {
				t.Errorf("%s: no %q behind what comes before it", id, text)
				break
			}
			page = page[at+len(text):]
		}
	}
	windows, bgp := ipamConfig().Cases()[0], "bgppeer"
	for _, s := range windows.Steps {
		if strings.Contains(strings.Join(s.Commands, "\n"), bgp) {
			t.Errorf("ipam-config, Windows: %s", s.Title)
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
