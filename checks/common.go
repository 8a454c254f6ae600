package checks

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"ipamaudit/ipam"
)

// group is a set of nodes whose pods, or some of whose pods, share the same
// serving pools of one family: what free blocks mean is a question to the group.
type group struct {
	v4    bool
	pools []*ipam.Pool
	// nodes in use, sorted by name; selected counts all nodes the pools serve.
	nodes    []*ipam.Node
	selected int
	// lacking are nodes in use without a block in these pools.
	lacking []*ipam.Node
}

// groupsFor sorts the cluster's nodes by the pools that serve them.
func groupsFor(in *Input, use ipam.Uses) []*group {
	byKey := map[string]*group{}
	var keys []string
	for i := range in.Nodes {
		n := &in.Nodes[i]
		for _, v4 := range []bool{true, false} {
			for _, share := range sharesFor(in, n, v4, use) {
				key := poolNames(share.Pools)
				g := byKey[key]
				if g == nil {
					g = &group{v4: v4, pools: share.Pools}
					byKey[key] = g
					keys = append(keys, key)
				}
				g.selected++
				if !in.InUse(n) {
					continue
				}
				g.nodes = append(g.nodes, n)
				if len(in.OwnsIn(n.Name, share.Pools)) == 0 {
					g.lacking = append(g.lacking, n)
				}
			}
		}
	}
	slices.Sort(keys)
	out := make([]*group, 0, len(keys))
	for _, k := range keys {
		out = append(out, byKey[k])
	}
	return out
}

// sharesFor are the sets of pools that serve a node for this use.
func sharesFor(in *Input, n *ipam.Node, v4 bool, use ipam.Uses) []ipam.Share {
	if use == ipam.UseWorkload {
		return in.Shares(n, v4)
	}
	if pools := in.Serving(n, v4, use); len(pools) > 0 {
		return []ipam.Share{{Pools: pools}}
	}
	return nil
}

// hiddenShares is what a check did not see of pools for some namespaces only.
func hiddenShares(in *Input) []string {
	var out []string
	for _, p := range in.HiddenShares() {
		out = append(out, "whether the full pool "+p.Name+" starves the namespaces that it is for (namespaces or pods were not read)")
	}
	return out
}

// free counts the blocks of the group that are unclaimed and those that any
// node in need could take over. A node cannot reclaim its own; with one node
// in need that difference is looked at per node, see blockless-nodes.
func (g *group) free(in *Input) (free, reclaimable uint64) { return in.Free(g.pools, "") }

func (g *group) blocks(in *Input) uint64 {
	n := uint64(0)
	for _, p := range g.pools {
		n += in.Usage(p).Blocks
	}
	return min(n, ipam.MaxCount)
}

// scarce tells whether blocks are scarce: fewer are free than nodes lack one,
// or under scarcePercent of what the pools can be cut into.
func (g *group) scarce(in *Input, scarcePercent float64) (bool, string) {
	free, reclaimable := g.free(in)
	avail, total := min(free+reclaimable, ipam.MaxCount), g.blocks(in)
	switch {
	case uint64(len(g.lacking)) > avail:
		return true, fmt.Sprintf("%s free for %s without one", count(avail, "block"), count(uint64(len(g.lacking)), "node"))
	case float64(avail)*100 < scarcePercent*float64(total):
		return true, fmt.Sprintf("%d of %d blocks free, under %s %%", avail, total, trimFloat(scarcePercent))
	}
	return false, fmt.Sprintf("%s of %s blocks free", figure(avail), figure(total))
}

func poolNames(pools []*ipam.Pool) string {
	names := make([]string, len(pools))
	for i, p := range pools {
		names[i] = p.Name
	}
	return strings.Join(names, ", ")
}

// figure prints a count with thin groups of three; capped counts say so.
func figure(n uint64) string {
	if n >= ipam.MaxCount {
		return "over 9×10^15"
	}
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// count prints "1 block" or "4 blocks".
func count(n uint64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "s") {
		return figure(n) + " " + noun + "es"
	}
	return figure(n) + " " + noun + "s"
}

func percent(part, whole uint64) float64 {
	if whole == 0 {
		return 100
	}
	return 100 * float64(part) / float64(whole)
}

// trimFloat prints a percentage with at most one decimal.
func trimFloat(f float64) string {
	if f > 0 && f < 0.1 {
		return "under 0.1"
	}
	return strconv.FormatFloat(math.Round(f*10)/10, 'f', -1, 64)
}

// names joins up to limit names and says how many more there are.
func names(list []string, limit int) string {
	if len(list) <= limit {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:limit], ", "), len(list)-limit)
}

func nodeNames(nodes []*ipam.Node) []string {
	out := make([]string, len(nodes))
	for i, n := range nodes {
		out[i] = n.Name
	}
	return out
}

// liveUse is one address that a running pod or tunnel uses on a node.
type liveUse struct {
	alloc  ipam.Allocation
	holder ipam.Holder
}

// liveByNode sorts every live allocation by the node it is really used on.
func liveByNode(in *Input) map[string][]liveUse {
	out := make(map[string][]liveUse, len(in.Nodes))
	for i := range in.Blocks {
		for a := range in.Blocks[i].Allocations() {
			h := in.Holder(a)
			if !h.Kind.Live() || h.NodeName == "" {
				continue
			}
			list, ok := out[h.NodeName]
			if !ok {
				list = make([]liveUse, 0, len(in.PodsOn(h.NodeName))) // there are 100,000 of them in large clusters
			}
			out[h.NodeName] = append(list, liveUse{a, h})
		}
	}
	return out
}

// podNote describes the pod behind an address.
func podNote(p *ipam.Pod) string {
	if p.NodeName == "" {
		return p.Key()
	}
	return p.Key() + " on " + p.NodeName
}

// fixedAddress reports whether the pod asked for ip by annotation.
func fixedAddress(p *ipam.Pod, ip netip.Addr) bool { return slices.Contains(p.RequestedIPs, ip) }

func comparePods(a, b *ipam.Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// recreate returns the commands that recreate pods, and the names of those
// that nothing would recreate or that would come back with the same address.
// At most limit pods are spelled out; the affected list has them all.
func recreate(c commands, pods []*ipam.Pod, limit int) (cmds, bare, fixed []string) {
	var movable []*ipam.Pod
	for _, p := range sortedPods(pods) {
		switch {
		case len(p.RequestedIPs) > 0 || p.VMI != "":
			// A virtual machine keeps its address, and deleting its pod stops it.
			fixed = append(fixed, p.Key())
		case p.OwnerKind == "" || p.OwnerKind == "Node":
			bare = append(bare, p.Key())
		default:
			movable = append(movable, p)
		}
	}
	return c.evict(movable, limit), bare, fixed
}

// sortedPods returns each of the pods once, by namespace and name.
func sortedPods(pods []*ipam.Pod) []*ipam.Pod {
	pods = slices.Clone(pods)
	slices.SortFunc(pods, comparePods)
	return slices.Compact(pods)
}

// commandLimit is how many pods a remediation spells out.
const commandLimit = 20

// plain prints "1 pod" or "1300 pods": without groups of three, so that the
// figure can be searched for. many is the plural.
func plain(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// unreadable are the names of objects of a kind that were there but could not
// be used: nothing may be concluded from their absence.
func unreadable(in *Input, kind string) map[string]bool {
	out := map[string]bool{}
	for _, e := range in.Rejected {
		if e.Kind == kind {
			out[e.Name] = true
		}
	}
	return out
}

// unreadableBlocks counts blocks that could not be used. An address in none of
// the others may be booked in one of them.
func unreadableBlocks(in *Input) int {
	read := map[string]bool{}
	for i := range in.Blocks {
		read[in.Blocks[i].Name] = true
	}
	n := 0
	for name := range unreadable(in, "IPAMBlock") {
		if !read[name] {
			n++
		}
	}
	return n
}

// nodeGone reports whether the node that IPAM calls name no longer exists. It
// is false for a name that differs only in case, for a node whose object could
// not be used, and where nodes were not read.
func nodeGone(in *Input, name string) bool {
	if name == "" || !in.Coverage.Read(ipam.ResNodes) || in.NodeByFold(name) != nil {
		return false
	}
	return !unreadable(in, "Node")[in.KubernetesName(name)]
}

// namesDoNotMatch tells that IPAM's node names are not Kubernetes' (etcd
// datastore, orchRefs not read): blocks belong to hosts, none of these hosts is
// a node, and yet pods on nodes run with addresses booked under these names.
func namesDoNotMatch(in *Input) bool {
	if len(in.Nodes) == 0 {
		return false
	}
	names := map[string]bool{}
	for i := range in.Blocks {
		b := &in.Blocks[i]
		if !b.Owner.IsHost() {
			continue
		}
		if in.NodeByFold(b.Owner.Name) != nil {
			return false
		}
		for a := range b.Allocations() {
			if h := in.Holder(a); h.Kind == ipam.HeldByPod && h.Node != nil && a.Attr.Node == b.Owner.Name {
				names[b.Owner.Name] = true
			}
		}
	}
	return len(names) > 1
}

// unmatchedNames is what a check says it did not see when namesDoNotMatch.
const unmatchedNames = "what Calico's node names are in Kubernetes (no block owner is the name of a node, and Calico's Node objects with their orchRefs were not read)"

// runsHere reports whether a pod runs and uses its addresses: started, not
// finished, not being deleted, on a node that exists.
func runsHere(in *Input, p *ipam.Pod) bool {
	return p.Live() && p.Phase == "Running" && !p.Deleting && (!in.Coverage.Read(ipam.ResNodes) || in.Node(p.NodeName) != nil || in.NodeByFold(p.NodeName) != nil)
}

// usedIPs are the addresses a running pod uses: status counts, and the
// annotation for a family that status lacks (projectcalico/calico#5044). An
// annotation that differs within a family is older than the status.
func usedIPs(p *ipam.Pod) []netip.Addr {
	out := slices.Clip(p.StatusIPs) // what is appended goes elsewhere
	for _, ip := range p.AnnotatedIPs {
		if !slices.ContainsFunc(p.StatusIPs, func(s netip.Addr) bool { return s.Is4() == ip.Is4() }) {
			out = append(out, ip)
		}
	}
	return out
}

// poolOf is the pool that contains the address, or nil.
func poolOf(in *Input, ip netip.Addr) *ipam.Pool { return in.PoolOf(ipam.HostPrefix(ip)) }

// calicoNamespace is where calico-node runs: kube-system for manifests,
// calico-system for the operator.
func calicoNamespace(in *Input) string {
	for _, w := range in.Workloads {
		if w.Kind == "DaemonSet" && strings.Contains(w.Name, "calico-node") {
			return w.Namespace
		}
	}
	for i := range in.Pods {
		if in.Pods[i].App == "calico-node" {
			return in.Pods[i].Namespace
		}
	}
	return "kube-system"
}

// bookedSince tells when, in whole days: "since 2026-02-04"; empty for an unknown time.
func bookedSince(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return "since " + t.UTC().Format(time.DateOnly)
}

// ifNot appends s to list unless it is there.
func ifNot(list []string, s string) []string {
	if s == "" || slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// scarcePools are the pools in which blocks are scarce for the nodes they serve.
func scarcePools(in *Input, scarcePercent float64) map[*ipam.Pool]bool {
	out := map[*ipam.Pool]bool{}
	for _, g := range groupsFor(in, ipam.UseWorkload) {
		if scarce, _ := g.scarce(in, scarcePercent); scarce {
			for _, p := range g.pools {
				out[p] = true
			}
		}
	}
	return out
}

// waiting lists the pods that are scheduled to the node and have no address.
func waiting(in *Input, node string) []*ipam.Pod {
	var out []*ipam.Pod
	for _, p := range in.PodsOn(node) {
		if p.WaitsForAddress() {
			out = append(out, p)
		}
	}
	return out
}

// comparePrefixes orders by address, then the wider prefix first.
func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// blockName is the name of the IPAMBlock of a CIDR
// (libcalico-go/lib/names/cidr.go). It only leads from the CIDR to the name.
func blockName(cidr netip.Prefix) string {
	return strings.NewReplacer(".", "-", ":", "-", "/", "-").Replace(cidr.String())
}

// restartCalicoNode recreates the node's calico-node pod.
func restartCalicoNode(node, title string) Step {
	return Step{
		Title:    title,
		Commands: []string{restartAgent(node)},
		Risk:     Disruptive, Verify: "kubectl get pods -A -l k8s-app=calico-node --field-selector spec.nodeName=" + Quote(node) + "   # Running and ready",
	}
}
