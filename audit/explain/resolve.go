package explain

import (
	"net/netip"
	"slices"
	"strings"

	"ipamaudit/checks"
	"ipamaudit/ipam"
)

// kindWords are the words that may stand before a slash, as people and kubectl
// write them.
func kindWords() map[string]string {
	return map[string]string{
		"ip": checks.KindIP, "address": checks.KindIP,
		"pod": checks.KindPod, "pods": checks.KindPod, "po": checks.KindPod,
		"node": checks.KindNode, "nodes": checks.KindNode, "no": checks.KindNode,
		"block": checks.KindBlock, "blocks": checks.KindBlock, "ipamblock": checks.KindBlock, "ipamblocks": checks.KindBlock,
		"pool": checks.KindPool, "pools": checks.KindPool, "ippool": checks.KindPool, "ippools": checks.KindPool,
	}
}

// Argument is how to ask for a subject without any doubt.
func Argument(s checks.Subject) string {
	switch s.Kind {
	case checks.KindPod:
		return "pod/" + s.Namespace + "/" + s.Name
	case checks.KindNode:
		return "node/" + s.Name
	case checks.KindBlock:
		return "block/" + s.Name
	case checks.KindPool:
		return "pool/" + s.Name
	default:
		return s.Name
	}
}

// Resolve returns what text can mean in this cluster: nothing where the
// cluster does not know it, several subjects where it is ambiguous. An object
// is known by being there, or by IPAM's records of it: a node that is gone and
// a pod that was deleted have a story, too.
func Resolve(s *ipam.Snapshot, text string) []checks.Subject {
	text = strings.TrimSpace(text)
	w := world{s}
	word, rest, slash := strings.Cut(text, "/")
	if kind, ok := kindWords()[strings.ToLower(word)]; ok && slash && rest != "" {
		if found := w.ofKind(kind, rest); len(found) > 0 {
			return found
		}
		// Or a namespace that is called like a kind.
	}
	if _, err := netip.ParseAddr(text); err == nil {
		return w.ofKind(checks.KindIP, text)
	}
	if p, err := netip.ParsePrefix(text); err == nil {
		found := slices.Concat(w.ofKind(checks.KindBlock, text), w.ofKind(checks.KindPool, text))
		if len(found) == 0 && p.IsSingleIP() {
			return w.ofKind(checks.KindIP, p.Addr().String())
		}
		return found
	}
	if slash {
		return w.ofKind(checks.KindPod, text)
	}
	var found []checks.Subject
	for _, kind := range []string{checks.KindNode, checks.KindPool, checks.KindBlock, checks.KindPod} {
		found = append(found, w.ofKind(kind, text)...)
	}
	return found
}

// Names lists what this cluster could be asked about, for a hint: the
// subjects of the kinds that text may mean, as arguments.
func Names(s *ipam.Snapshot, text string) []string {
	w := world{s}
	word, _, _ := strings.Cut(text, "/")
	kind, typed := kindWords()[strings.ToLower(word)]
	var out []string
	add := func(k string, list func(func(checks.Subject))) {
		if typed && kind != k {
			return
		}
		list(func(s checks.Subject) { out = append(out, Argument(s)) })
	}
	add(checks.KindPool, w.pools)
	if p, err := netip.ParsePrefix(text); err == nil {
		return w.around(p)
	}
	if _, err := netip.ParseAddr(text); err == nil {
		return out
	}
	add(checks.KindNode, w.nodes)
	add(checks.KindBlock, w.blocks)
	add(checks.KindPod, w.pods)
	slices.Sort(out)
	return slices.Compact(out)
}

// world lists what there is to ask about.
type world struct{ *ipam.Snapshot }

// around lists the pools and blocks that overlap p.
func (w world) around(p netip.Prefix) []string {
	var out []string
	for i := range w.Pools {
		if w.Pools[i].CIDR.Overlaps(p) {
			out = append(out, Argument(checks.Subject{Kind: checks.KindPool, Name: w.Pools[i].Name}))
		}
	}
	for i := range w.Blocks {
		if w.Blocks[i].CIDR.Overlaps(p) {
			out = append(out, w.Blocks[i].CIDR.String())
		}
	}
	return out
}

func (w world) ofKind(kind, text string) []checks.Subject {
	var found []checks.Subject
	add := func(s checks.Subject) {
		if !slices.Contains(found, s) {
			found = append(found, s)
		}
	}
	switch kind {
	case checks.KindIP:
		if ip, err := netip.ParseAddr(text); err == nil && w.knowsIP(ip.Unmap().WithZone("")) {
			add(checks.Subject{Kind: kind, Name: ip.Unmap().WithZone("").String()})
		}
	case checks.KindBlock:
		p, err := netip.ParsePrefix(text)
		for i := range w.Blocks {
			if b := &w.Blocks[i]; b.Name == text || err == nil && b.CIDR == p.Masked() {
				add(checks.Subject{Kind: kind, Name: b.CIDR.String()})
			}
		}
		// An affinity without its block is looked at as a block that is not there.
		if err == nil && len(w.AffinitiesOf(p.Masked())) > 0 {
			add(checks.Subject{Kind: kind, Name: p.Masked().String()})
		}
	case checks.KindPool:
		p, err := netip.ParsePrefix(text)
		for i := range w.Pools {
			if pool := &w.Pools[i]; pool.Name == text || err == nil && pool.CIDR == p.Masked() {
				add(checks.Subject{Kind: kind, Name: pool.Name})
			}
		}
	case checks.KindNode:
		w.nodes(func(s checks.Subject) {
			if s.Name == text {
				add(s)
			}
		})
	case checks.KindPod:
		namespace, name, qualified := strings.Cut(text, "/")
		w.pods(func(s checks.Subject) {
			if qualified && s.Namespace == namespace && s.Name == name || !qualified && s.Name == text {
				add(s)
			}
		})
	}
	return found
}

// knowsIP reports whether anything in the cluster has to do with the address.
func (w world) knowsIP(ip netip.Addr) bool {
	if w.PoolOf(ipam.HostPrefix(ip)) != nil || w.BlockOf(ip) != nil || len(w.PodsAt(ip)) > 0 || len(w.TunnelsAt(ip)) > 0 {
		return true
	}
	return len(servicesAt(w.Snapshot, ip))+len(nodesAt(w.Snapshot, ip)) > 0 || w.InServiceCIDR(ipam.HostPrefix(ip))
}

func (w world) pools(yield func(checks.Subject)) {
	for i := range w.Pools {
		yield(checks.Subject{Kind: checks.KindPool, Name: w.Pools[i].Name})
	}
}

func (w world) blocks(yield func(checks.Subject)) {
	for i := range w.Blocks {
		yield(checks.Subject{Kind: checks.KindBlock, Name: w.Blocks[i].CIDR.String()})
	}
}

// nodes are those that exist and those that IPAM or a route table still names.
func (w world) nodes(yield func(checks.Subject)) {
	seen := map[string]bool{}
	add := func(name string) {
		if name != "" && !seen[name] {
			seen[name] = true
			yield(checks.Subject{Kind: checks.KindNode, Name: name})
		}
	}
	for i := range w.Nodes {
		add(w.Nodes[i].Name)
	}
	for i := range w.Pods {
		add(w.Pods[i].NodeName)
	}
	for i := range w.Blocks {
		b := &w.Blocks[i]
		if b.Owner.IsHost() {
			add(w.KubernetesName(b.Owner.Name))
		}
		for j := range b.Attributes {
			add(w.KubernetesName(b.Attributes[j].Node))
		}
	}
	for i := range w.Affinities {
		if a := &w.Affinities[i]; a.Type != "virtual" {
			add(w.KubernetesName(a.Node))
		}
	}
	for i := range w.Tables {
		add(w.Tables[i].Node)
	}
}

// pods are those that exist and those that IPAM still books addresses for.
func (w world) pods(yield func(checks.Subject)) {
	seen := make(map[string]bool, len(w.Pods))
	add := func(namespace, name string) {
		if key := namespace + "/" + name; name != "" && !seen[key] {
			seen[key] = true
			yield(checks.Subject{Kind: checks.KindPod, Namespace: namespace, Name: name})
		}
	}
	for i := range w.Pods {
		add(w.Pods[i].Namespace, w.Pods[i].Name)
	}
	for i := range w.Blocks {
		b := &w.Blocks[i]
		for a := range b.Allocations() {
			if !a.Attr.LoadBalancer() {
				add(a.Attr.Namespace, a.Attr.Pod)
			}
		}
	}
}

func servicesAt(s *ipam.Snapshot, ip netip.Addr) []string {
	var out []string
	for i := range s.Services {
		if v := &s.Services[i]; slices.Contains(v.IngressIPs, ip) {
			out = append(out, v.Namespace+"/"+v.Name)
		}
	}
	return out
}

func nodesAt(s *ipam.Snapshot, ip netip.Addr) []string {
	var out []string
	for i := range s.Nodes {
		if slices.Contains(s.Nodes[i].Addresses, ip) {
			out = append(out, s.Nodes[i].Name)
		}
	}
	return out
}
