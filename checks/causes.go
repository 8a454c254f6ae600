package checks

import (
	"net/netip"
	"slices"
	"strings"

	"ipamaudit/ipam"
)

// chain lists the checks from cause to symptom: nothing is caused by what comes
// after it. Checks of one line are as far from the root as each other.
var chain = [][]string{
	{"cluster-access", "ipam-data", "datastore-locked"},
	{"ipam-gc"},
	{"leaked-ips", "orphan-affinities", "affinity-conflicts", "block-layout", "misbooked-ips", "pool-config", "ipam-config", "handle-leaks"},
	{"multi-block-nodes", "unallocated-pod-ips"},
	{"pool-utilisation", "node-capacity"},
	{"blockless-nodes", "node-block-limit"},
	{"borrowed-ips", "tunnel-ips", "route-disagreement"},
	{"blackholed-routes", "duplicate-ips", "stuck-pods"},
}

// Depth tells how far a check's findings are from the root of a chain of causes:
// of two findings that are equally bad the one with the smaller depth is looked
// at first. Unknown checks come last.
func Depth(id string) int {
	for i, line := range chain {
		if slices.Contains(line, id) {
			return i
		}
	}
	return len(chain)
}

// LinkCauses says of each finding which others explain it (CausedBy), and
// begins the remediation of a symptom where its chain begins. It looks at
// findings of one snapshot only and adds nothing that is not among them.
func LinkCauses(s *ipam.Snapshot, outs []Outcome) {
	l := linker{Snapshot: s, byCheck: map[string][]*Finding{}}
	for i := range outs {
		for k := range outs[i].Findings {
			f := &outs[i].Findings[k]
			l.byCheck[f.Check] = append(l.byCheck[f.Check], f)
		}
	}
	links := map[*Finding][]*Finding{}
	for _, line := range chain {
		for _, id := range line {
			for _, f := range l.byCheck[id] {
				links[f] = l.causesOf(f)
			}
		}
	}
	for f, causes := range links {
		f.CausedBy = make([]string, 0, len(causes))
		for _, c := range causes {
			f.CausedBy = append(f.CausedBy, Fingerprint(c.Check, s.Cluster.ID, c.Subject))
		}
		slices.Sort(f.CausedBy)
		if len(causes) > 0 {
			f.Remediation = slices.Insert(f.Remediation, 0, beginAt(roots(f, links)))
		}
	}
}

// linker finds causes among the findings of one cluster.
type linker struct {
	*ipam.Snapshot
	byCheck map[string][]*Finding
}

// causesOf are the findings that explain f directly.
func (l *linker) causesOf(f *Finding) []*Finding {
	var out []*Finding
	from := func(id string, explains func(c *Finding) bool) (found bool) {
		for _, c := range l.byCheck[id] {
			// What is mere hygiene explains no alarm.
			if explains(c) && (c.Severity.AtLeast(Medium) || f.Severity == Low) {
				out, found = append(out, c), true
			}
		}
		return found
	}
	always := func(*Finding) bool { return true }
	sameNode := func(c *Finding) bool { return c.Subject == f.Subject }
	sharesAddress := func(c *Finding) bool { return overlapOf(addressesOf(f), addressesOf(c)) }
	switch f.Check {
	case "ipam-gc":
		from("datastore-locked", always)
	case "leaked-ips", "orphan-affinities":
		if !from("ipam-gc", always) {
			from("datastore-locked", always)
		}
	case "multi-block-nodes":
		from("leaked-ips", sameNode)
	case "unallocated-pod-ips":
		from("block-layout", func(c *Finding) bool { return within(f, c) })
	case "pool-utilisation":
		for _, id := range []string{"orphan-affinities", "leaked-ips", "multi-block-nodes"} {
			from(id, func(c *Finding) bool { return l.sitsIn(c, f.Subject.Name) })
		}
	case "blockless-nodes":
		from("pool-utilisation", func(c *Finding) bool { return l.serves(c.Subject.Name, f.Subject.Name, ipam.UseWorkload) })
	case "node-block-limit":
		if !from("leaked-ips", sameNode) {
			from("node-capacity", func(c *Finding) bool { return lists(c, KindNode, f.Subject.Name) })
		}
	case "borrowed-ips":
		if !from("blockless-nodes", sameNode) {
			from("pool-utilisation", func(c *Finding) bool { return c.Severity.AtLeast(High) && l.sitsIn(f, c.Subject.Name) })
		}
	case "tunnel-ips":
		if !from("blockless-nodes", sameNode) && strings.Contains(f.Detail, "is free") {
			from("pool-utilisation", func(c *Finding) bool {
				return c.Severity.AtLeast(High) && l.serves(c.Subject.Name, f.Subject.Name, ipam.UseTunnel)
			})
		}
	case "route-disagreement":
		from("affinity-conflicts", func(c *Finding) bool { return c.Subject == f.Subject })
	case "blackholed-routes":
		if from("borrowed-ips", sharesAddress) {
			from("ipam-config", func(c *Finding) bool {
				return slices.ContainsFunc(c.Affected, func(a Affected) bool { return a.Kind == KindPool })
			})
		}
		from("affinity-conflicts", func(c *Finding) bool { return lists(c, KindNode, f.Subject.Name) && within(f, c) })
	case "duplicate-ips":
		from("block-layout", func(c *Finding) bool { return within(f, c) })
		from("unallocated-pod-ips", sharesAddress)
		from("misbooked-ips", sharesAddress)
	case "stuck-pods":
		l.causesOfStuck(f, from)
	}
	return out
}

// causesOfStuck asks what keeps the pods of a node from getting an address.
func (l *linker) causesOfStuck(f *Finding, from func(string, func(*Finding) bool) bool) {
	if from("datastore-locked", func(c *Finding) bool { return sharesPod(f, c) }) {
		return
	}
	if from("pool-config", func(c *Finding) bool { return sharesPod(f, c) }) {
		return
	}
	from("leaked-ips", func(c *Finding) bool {
		return slices.ContainsFunc(c.Affected, func(a Affected) bool {
			return slices.ContainsFunc(f.Affected, func(p Affected) bool { return strings.Contains(a.Note, p.Namespace+"/"+p.Name+" waits for it") })
		})
	})
	if from("node-block-limit", func(c *Finding) bool { return c.Subject == f.Subject && c.Severity.AtLeast(High) }) {
		return
	}
	if from("blockless-nodes", func(c *Finding) bool { return c.Subject == f.Subject && l.Config.StrictAffinity }) {
		return
	}
	from("pool-utilisation", func(c *Finding) bool { return lists(c, KindNode, f.Subject.Name) && c.Severity == Critical })
	from("ipam-config", func(c *Finding) bool { return sharesPod(f, c) })
}

// serves reports whether the pool gives the node addresses for this use.
func (l *linker) serves(pool, node string, use ipam.Uses) bool {
	n := l.Node(node)
	if n == nil {
		return false
	}
	for _, v4 := range []bool{true, false} {
		if slices.ContainsFunc(l.Serving(n, v4, use), func(p *ipam.Pool) bool { return p.Name == pool }) {
			return true
		}
	}
	return false
}

// sitsIn reports whether a block or address that the finding names lies in the pool.
func (l *linker) sitsIn(f *Finding, pool string) bool {
	return slices.ContainsFunc(f.Affected, func(a Affected) bool {
		p, ok := prefixOf(a)
		if !ok {
			return false
		}
		in := l.PoolOf(p)
		return in != nil && in.Name == pool
	})
}

func prefixOf(a Affected) (netip.Prefix, bool) {
	switch a.Kind {
	case KindBlock:
		p, err := netip.ParsePrefix(a.Name)
		return p, err == nil
	case KindIP:
		ip, err := netip.ParseAddr(a.Name)
		return netip.PrefixFrom(ip, ip.BitLen()), err == nil
	}
	return netip.Prefix{}, false
}

// addressesOf are the addresses that the finding lists, or is about.
func addressesOf(f *Finding) map[string]bool {
	out := map[string]bool{}
	if f.Subject.Kind == KindIP {
		out[f.Subject.Name] = true
	}
	for _, a := range f.Affected {
		if a.Kind == KindIP {
			out[a.Name] = true
		}
	}
	return out
}

func overlapOf(a, b map[string]bool) bool {
	for k := range a {
		if b[k] {
			return true
		}
	}
	return false
}

// within reports whether an address of f lies in the block that c is about.
func within(f, c *Finding) bool {
	block, err := netip.ParsePrefix(c.Subject.Name)
	if err != nil {
		return false
	}
	for a := range addressesOf(f) {
		if ip, err := netip.ParseAddr(a); err == nil && block.Contains(ip) {
			return true
		}
	}
	return false
}

// lists reports whether the finding lists the object.
func lists(f *Finding, kind, name string) bool {
	return slices.ContainsFunc(f.Affected, func(a Affected) bool { return a.Kind == kind && a.Name == name })
}

func sharesPod(f, c *Finding) bool {
	return slices.ContainsFunc(c.Affected, func(a Affected) bool {
		return a.Kind == KindPod && slices.ContainsFunc(f.Affected, func(b Affected) bool {
			return b.Kind == KindPod && b.Namespace == a.Namespace && b.Name == a.Name
		})
	})
}

// roots follows the links to where they begin, sorted.
func roots(f *Finding, links map[*Finding][]*Finding) []*Finding {
	var out []*Finding
	seen := map[*Finding]bool{}
	var walk func(*Finding)
	walk = func(g *Finding) {
		if seen[g] {
			return
		}
		seen[g] = true
		if len(links[g]) == 0 && g != f {
			out = append(out, g)
		}
		for _, c := range links[g] {
			walk(c)
		}
	}
	walk(f)
	slices.SortFunc(out, func(a, b *Finding) int {
		if d := Depth(a.Check) - Depth(b.Check); d != 0 {
			return d
		}
		return strings.Compare(a.Check+a.Subject.String(), b.Check+b.Subject.String())
	})
	return out
}

// beginAt is the first step of a symptom's remediation.
func beginAt(causes []*Finding) Step {
	var who, flags []string
	for _, c := range causes {
		what := c.Check
		if c.Subject.Kind != KindCluster {
			what += " of " + c.Subject.String()
		}
		who = append(who, what)
		flags = ifNot(flags, "--check "+c.Check)
	}
	return Step{
		Title:    "Begin at the cause, or it comes back: " + names(who, 5) + ". The steps there come first",
		Commands: []string{"ipamaudit run " + strings.Join(flags, " ")},
		Risk:     Safe, Verify: "The cause is no longer reported.",
	}
}
