package checks

import (
	"fmt"
	"slices"
	"strings"

	"ipamaudit/ipam"
)

// nodeCapacity compares what kubelet allows with what IPAM can give one node.
func nodeCapacity() Check {
	return Check{
		ID:          "node-capacity",
		Title:       "Pools that cannot give a node as many addresses as kubelet allows pods",
		SubjectKind: KindPool,
		What: "One node gets at most block size × block limit addresses: 64 × 20 by default, but 20 with blocks of a single address, or 64 with one /26 per node. " +
			"Kubelet may allow more pods than that. " + limitRule,
		Why: "The scheduler knows nothing of it and keeps sending pods, which fail with “cannot allocate new block due to per host block limit” while the pool is nearly empty.",
		How: "Per node and family, over the pools that serve it: usable addresses of the largest block × `maxBlocksPerHost` (20 where not set), " +
			"against kubelet's maximum (status.capacity.pods) less the pods on the host's network, plus the node's tunnel addresses. " +
			"Calico loses no network or broadcast address; Windows keeps four of every block.",
		SeverityNote: "Low by arithmetic alone; high when a node's live addresses have reached `usedPercent` of its ceiling or pods wait because of it.",
		Needs:        []ipam.Resource{ipam.ResPools, ipam.ResNodes},
		Uses:         []ipam.Resource{ipam.ResIPAMConfig, ipam.ResBlocks, ipam.ResPods, ipam.ResEvents, ipam.ResNamespaces, ipam.ResClusterInfo},
		Decides:      []ipam.Resource{ipam.ResIPAMConfig},
		Params:       []Param{percentParam("usedPercent", 80, "share of a node's ceiling from which it is high")},
		Example: func() []Step {
			return capacityPerNodeSteps(exampleCommands(), ipam.Config{}, nil, 0)
		},
		Look: lines(append([]string{exampleCommands().showConfiguration()}, roomPerNodeSteps(exampleCommands(), ipam.Config{}, nil, 0)[0].Commands...)...),
		Sign: "It is this where MaxBlocksPerHost (20 where it is 0 or missing) × the addresses of a block (64 with blockSize 26, 1 with 32) is less than PODS. Where connections of short-lived pods break because an address is reused at once, and blockSize is 28 or more (IPv6: 124), the sum says nothing: pass over the limit, and make a pool with larger blocks.",
		Related: []Related{
			{"node-block-limit", "Are addresses booked that no pod uses?"},
			{"pool-utilisation", "Has the pool no free block, for any node?"},
		},
		References: []string{
			"https://github.com/projectcalico/calico/issues/9462", "https://github.com/kubernetes-sigs/kubespray/issues/2847",
			"https://github.com/projectcalico/calico/issues/6968", "https://github.com/projectcalico/calico/issues/2624",
			"libcalico-go/lib/ipam/ipam.go (AutoAssign: maxNumBlocks)",
		},
		Run: runNodeCapacity,
	}
}

// shortNode is a node that IPAM cannot serve up to kubelet's maximum.
type shortNode struct {
	node *ipam.Node
	need int
	// ceiling is the most that block size and limit give; live of it are used.
	ceiling uint64
	live    int
	stuck   []*ipam.Pod
	tight   bool
}

func runNodeCapacity(in *Input) Result {
	if in.Coverage.Refused(ipam.ResIPAMConfig) {
		return Result{} // the default limit would be a guess
	}
	var res Result
	short := map[*ipam.Pool][]shortNode{}
	live := liveByNode(in)
	unsized := 0
	for i := range in.Nodes {
		n := &in.Nodes[i]
		if n.MaxPods <= 0 {
			unsized++
			continue
		}
		for _, v4 := range []bool{true, false} {
			pools := in.Serving(n, v4, ipam.UseWorkload)
			if len(pools) == 0 {
				continue
			}
			// The largest blocks of the pools that serve the node are the best it can get.
			best := pools[0]
			for _, p := range pools {
				if p.Usable(n.Windows) > best.Usable(n.Windows) {
					best = p
				}
			}
			s := shortNode{node: n, need: needs(in, n, pools), ceiling: best.Usable(n.Windows) * uint64(in.Config.BlockLimit())}
			if s.ceiling >= uint64(s.need) {
				continue
			}
			s.look(in, pools, live[n.Name])
			short[best] = append(short[best], s)
		}
	}
	for i := range in.Pools {
		if list := short[&in.Pools[i]]; len(list) > 0 {
			res.Findings = append(res.Findings, capacityFinding(in, &in.Pools[i], list))
		}
	}
	if len(res.Findings) > 0 {
		for _, r := range []ipam.Resource{ipam.ResBlocks, ipam.ResPods} {
			if !in.Coverage.Read(r) {
				res.Unseen = append(res.Unseen, string(r)+", to tell how much of the ceiling is used")
			}
		}
	}
	if unsized > 0 {
		res.Unseen = append(res.Unseen, fmt.Sprintf("kubelet's maximum of %d of %d nodes", unsized, len(in.Nodes)))
		res.Partial = unsized < len(in.Nodes)
	}
	return res
}

// limitText is what the CNI plug-in says when a node is at its block limit.
const limitText = "per host block limit"

func (s *shortNode) look(in *Input, pools []*ipam.Pool, uses []liveUse) {
	for _, u := range uses {
		if slices.Contains(pools, u.alloc.Block.Pool()) {
			s.live++
		}
	}
	booked := uint64(0)
	for _, b := range in.OwnsIn(s.node.Name, pools) {
		booked += b.Size() - min(in.Room(b), b.Size())
	}
	if !in.Coverage.Read(ipam.ResBlocks) {
		return // what waits may wait for something else
	}
	for _, p := range waiting(in, s.node.Name) {
		// Where most of what is booked is not in use the ceiling is not what they
		// wait for: that is node-block-limit's story.
		if (booked >= s.ceiling || eventSays(in, p, limitText)) && 2*uint64(s.live) >= booked {
			s.stuck = append(s.stuck, p)
		}
	}
	s.tight = len(s.stuck) > 0 || float64(s.live)*100 >= in.Params.Float("usedPercent")*float64(s.ceiling)
}

// eventSays reports whether an event of the pod holds the text.
func eventSays(in *Input, p *ipam.Pod, text string) bool {
	return slices.ContainsFunc(in.Events, func(e ipam.Event) bool {
		return e.Namespace == p.Namespace && e.Name == p.Name && strings.Contains(e.Message, text)
	})
}

func capacityFinding(in *Input, p *ipam.Pool, list []shortNode) Finding {
	f := Finding{
		Severity: Low, Subject: Subject{Kind: KindPool, Name: p.Name},
		Title: "Pool " + p.Name + " gives a node fewer addresses than kubelet allows pods",
	}
	need, tight := 0, []string{}
	for _, s := range list {
		need = max(need, s.need)
		note := fmt.Sprintf("kubelet allows %d pods, %d may need an address; ceiling %s, %d in use", s.node.MaxPods, s.need, figure(s.ceiling), s.live)
		if s.tight {
			f.Severity = High
			tight = append(tight, s.node.Name)
		}
		f.Affected = append(f.Affected, Affected{Kind: KindNode, Name: s.node.Name, Note: note})
		for _, pod := range s.stuck {
			f.Affected = append(f.Affected, Affected{Kind: KindPod, Namespace: pod.Namespace, Name: pod.Name, Note: "waits for an address on " + s.node.Name})
		}
	}
	per := p.Usable(list[0].node.Windows)
	f.Detail = fmt.Sprintf("A block of /%d has %s, and a node may own %d: %d × %d = %s per node. Up to %d are needed on %s",
		p.BlockSize, count(per, "usable address"), in.Config.BlockLimit(), per, in.Config.BlockLimit(), figure(list[0].ceiling), need, count(uint64(len(list)), "node"))
	if in.Config.MaxBlocksPerHost <= 0 {
		f.Detail += fmt.Sprintf(" (maxBlocksPerHost is not set, which means %d)", ipam.DefaultBlockLimit)
	}
	if len(tight) > 0 {
		have := map[bool]string{true: "has", false: "have"}[len(tight) == 1]
		f.Detail += fmt.Sprintf(". %s %s reached %s %% of it, or %s pods that wait because of it", names(tight, 5), have, trimFloat(in.Params.Float("usedPercent")), have)
	}
	f.Detail += "."
	f.Remediation = capacityPerNodeSteps(commandsFor(in.Snapshot), in.Config, p, need)
	return f
}

// capacityPerNodeSteps bring the two figures together: more or larger blocks,
// or fewer pods per node.
func capacityPerNodeSteps(c commands, cfg ipam.Config, p *ipam.Pool, need int) []Step {
	return append(roomPerNodeSteps(c, cfg, p, need), Step{
		Title:    "Or let kubelet allow fewer pods (maxPods in its configuration): the scheduler then sends the rest elsewhere",
		Commands: []string{"kubectl get nodes -o custom-columns=NAME:.metadata.name,PODS:.status.capacity.pods"},
		Risk:     Safe, Verify: "No node allows more pods than it can have addresses.",
	})
}
