package report

import (
	"fmt"
	"strings"

	"ipamaudit/audit/explain"
	"ipamaudit/report/text"
)

func (p storyPage) address(s *explain.Story, a *explain.Address) {
	p.addressFacts(s, a, storyIn)
	p.path(s, a, storyIn)
}

func (p storyPage) addressFacts(s *explain.Story, a *explain.Address, indent int) {
	fact := func(label string, items ...string) { p.factIn(indent, plain, label, items...) }
	if a.Pool != nil {
		fact("pool", poolItems(a.Pool)...)
	} else {
		fact("pool", "none that was read")
	}
	switch {
	case a.Block == nil:
		fact("block", "none")
	case a.BorrowedFrom != "":
		fact("block", a.Block.CIDR.String()+" of "+ownerText(a.Block.Owner, a.Block.OwnerIs), "borrowed: used on another node than the one that owns it")
	default:
		fact("block", a.Block.CIDR.String()+" of "+ownerText(a.Block.Owner, a.Block.OwnerIs))
	}
	if a.ReservedBy != "" {
		fact("reserved", "by IPReservation "+a.ReservedBy)
	}
	p.record(s, a, indent)
	for _, pod := range a.Pods {
		if s.Pod != nil && s.Pod.Namespace == pod.Namespace && s.Pod.Name == pod.Name {
			continue
		}
		state := pod.Phase
		if pod.Deleting {
			state += ", being deleted"
		}
		since := ""
		if !pod.Since.IsZero() {
			since = "since " + ago(pod.Since, s.AsOf)
		}
		fact("used by", "pod "+pod.Namespace+"/"+pod.Name, "on "+pod.Node, state, since)
	}
	for _, t := range a.Tunnels {
		fact("used by", t.Kind+" tunnel of node "+t.Node)
	}
	if len(a.Services) > 0 {
		fact("service", someNames(a.Services))
	}
	if len(a.Nodes) > 0 {
		fact("host", "address of node "+someNames(a.Nodes))
	}
}

func (p storyPage) record(s *explain.Story, a *explain.Address, indent int) {
	r := a.Record
	if r == nil {
		if a.State == explain.Unseen {
			p.factIn(indent, yellow, "allocation", "not known")
		} else {
			p.factIn(indent, plain, "allocation", "none")
		}
		return
	}
	items := make([]string, 0, 8)
	add := func(label, value string) {
		if value != "" {
			items = append(items, label+" "+value)
		}
	}
	add("for pod", r.Pod)
	add("for virtual machine", r.VM)
	add("for Service", r.Service)
	add("type", r.Type)
	add("on", r.Node)
	if r.Since.IsZero() {
		items = append(items, "time not recorded")
	} else {
		add("since", ago(r.Since, s.AsOf))
	}
	add("released", ago(r.Released, s.AsOf))
	p.factIn(indent, plain, "allocation", items...)
	switch {
	case r.Handle == "":
		p.factIn(indent, plain, "handle", "none")
	case r.HandleExists == nil:
		p.factIn(indent, plain, "handle", r.Handle, "whether it exists was not read")
	case *r.HandleExists:
		p.factIn(indent, plain, "handle", r.Handle)
	default:
		p.factIn(indent, yellow, "handle", r.Handle, "no such IPAMHandle")
	}
}

func poolItems(r *explain.PoolRef) []string {
	out := []string{r.Name + " " + r.CIDR.String()}
	if r.Disabled {
		out = append(out, "not enabled")
	}
	encap := "no encapsulation"
	if r.Encapsulation != "none" {
		encap = r.Encapsulation
	}
	return append(out, encap, "routes by "+r.RoutesBy)
}

func ownerText(owner, is string) string {
	switch is {
	case "exists", "virtual":
		return owner
	case "nobody":
		return "nobody"
	case "gone":
		return owner + ", which does not exist"
	case "unknown":
		return owner + " (nodes were not read)"
	default:
		return owner + ", but the node is " + is
	}
}

// path writes what becomes of a packet from every node.
func (p storyPage) path(s *explain.Story, a *explain.Address, indent int) {
	path := a.Path
	if path == nil {
		return
	}
	right := fmt.Sprintf("from %s, %s of them with a known route table", text.Plural(path.Nodes, "node"), text.Int(path.Known))
	if path.Known == path.Nodes {
		right = "from " + text.Plural(path.Nodes, "node") + ", every route table known"
	}
	switch {
	case path.NodesUnread:
		right = "from " + text.Plural(path.Known, "node") + " with a known route table, nodes were not read"
	case path.Known == 0:
		right = "from " + text.Plural(path.Nodes, "node") + ", no route table known"
	}
	p.blank()
	to := strings.Join(path.Homes, " and ")
	if path.Recorded {
		to += ", as recorded,"
	}
	p.prose(indent, bold, "", "PATH to "+to+" "+right)
	for _, h := range path.Hops {
		sign, st := outcomeStyle(h.Outcome)
		p.prose(indent, st, sign, hopText(h))
	}
	if n := len(path.NoTable); n > 0 {
		p.prose(indent, yellow, "? ", fmt.Sprintf("%s not known, no route table: %s", text.Plural(n, "node"), someNames(path.NoTable)))
	}
	if i := path.Inferred; i != nil {
		st := dim
		if i.Verdict != explain.Expected {
			st = yellow
		}
		p.prose(indent+2, st, "", "where no table tells, "+expectation(i.Verdict)+": "+i.Why)
	}
	if !path.Oldest.IsZero() {
		p.prose(indent+2, yellow, "", "the oldest table is "+explain.Age(s.AsOf.Sub(path.Oldest))+" older than the snapshot")
	}
	if h, ok := firstBad(path); ok {
		p.command(indent+2, "ip route get "+a.IP.String()+"   # on "+h.At)
	}
}

func firstBad(path *explain.Path) (explain.Hops, bool) {
	for _, h := range path.Hops {
		if h.Outcome.Bad() {
			return h, true
		}
	}
	return explain.Hops{}, false
}

func outcomeStyle(o explain.Outcome) (sign string, st style) {
	switch o {
	case explain.Delivers, explain.Reaches:
		return "✔ ", green
	case explain.Unclear, explain.Leaves:
		return "? ", yellow
	default:
		return "✖ ", red
	}
}

// hopText says what some nodes do: "37 nodes deliver", "kubestage1001 drops it:
// `blackhole 10.64.75.0/26 proto bird`, no /32 for it".
func hopText(h explain.Hops) string {
	who, one := text.Plural(len(h.Nodes), "node"), len(h.Nodes) == 1
	if one {
		who = h.Nodes[0]
	}
	verb := func(single, many string) string {
		if one {
			return who + " " + single
		}
		return who + " " + many
	}
	here := one && h.At == h.Nodes[0]
	route := ""
	if h.Route != "" && (here || h.Outcome != explain.Delivers) {
		route = ": `" + h.Route + "`"
	}
	why := ""
	if h.Why != "" {
		why = ", " + h.Why
		if route == "" {
			why = ": " + h.Why
		}
	}
	list := ""
	if !one {
		list = " (" + someNames(h.Nodes) + ")"
	}
	via := ""
	if len(h.Via) > 0 {
		via = " by way of " + strings.Join(h.Via, ", then ")
	}
	if !here && h.At != "" && len(h.Via) == 0 {
		via = " at " + h.At
	}
	switch h.Outcome {
	case explain.Delivers:
		if !one {
			return verb("", "deliver")
		}
		return verb("delivers", "") + route + why
	case explain.Reaches:
		return verb("leads", "lead") + " to " + h.At + ", whose own table is not known"
	case explain.Drops:
		if here {
			return verb("drops it", "drop it") + route + why
		}
		return verb("loses it", "lose it") + via + list + route + why
	case explain.NoRoute:
		return verb("has no route to it", "have no route to it") + via + list + route + why
	case explain.Astray:
		return verb("sends it astray", "send it astray") + via + list + route + why
	case explain.Leaves:
		return verb("sends it", "send it") + " to " + h.At + list + route + why
	default:
		return verb("cannot be judged", "cannot be judged") + via + list + route + why
	}
}

func expectation(e explain.Expectation) string {
	switch e {
	case explain.Expected:
		return "it should be delivered (inferred)"
	case explain.AtRisk:
		return "it is likely lost (inferred)"
	default:
		return "nothing can be inferred"
	}
}

func (p storyPage) pod(s *explain.Story, pod *explain.Pod) {
	if pod.Exists {
		state := pod.Phase
		if pod.Reason != "" {
			state += " (" + pod.Reason + ")"
		}
		if pod.Deleting {
			state += ", being deleted"
		}
		since := ""
		if !pod.Since.IsZero() {
			since = "since " + ago(pod.Since, s.AsOf)
		}
		node := "no node yet"
		if pod.Node != "" {
			node = "on " + pod.Node
		}
		host := ""
		if pod.HostNetwork {
			host = "host network"
		}
		p.fact("pod", state, node, since, host)
		if pod.Waiting != "" {
			p.fact("waits", pod.Waiting)
		}
		owner := pod.Owner
		if owner == "" {
			owner = "nobody: it is not recreated when it is deleted"
		}
		p.fact("owner", owner)
		if pod.VM != "" {
			p.fact("machine", pod.VM)
		}
	} else {
		p.fact("pod", "known from IPAM's records only")
	}
	if pod.NoIPAM {
		p.fact("asks for", "addresses without IPAM (ipAddrsNoIpam)")
	}
	requested := make([]string, 0, len(pod.RequestedIPs))
	for _, ip := range pod.RequestedIPs {
		requested = append(requested, ip.String())
	}
	if len(requested) > 0 {
		p.fact("asks for", "address "+strings.Join(requested, ", "))
	}
	if len(pod.PoolPins) > 0 {
		p.fact("asks for", "pools "+strings.Join(pod.PoolPins, ", "))
	}
	if len(pod.NamespacePins) > 0 {
		p.fact("namespace", "asks for pools "+strings.Join(pod.NamespacePins, ", "))
	}
	if len(pod.Addresses) == 0 {
		p.fact("addresses", "none")
	}
	for i := range pod.Addresses {
		a := &pod.Addresses[i]
		p.blank()
		st := bold
		if a.Wrong {
			st = bold + ";" + red
		}
		p.prose(storyIn, st, "ADDRESS ", a.IP.String()+": "+a.Says)
		p.addressFacts(s, a, storyIn)
		p.path(s, a, storyIn)
	}
	if len(pod.Events) > 0 {
		p.heading("events", "about its network, the last first")
		for i, e := range pod.Events {
			if i == 10 {
				p.line(storyIn, dim, fmt.Sprintf("… and %s more", text.Int(len(pod.Events)-i)))
				break
			}
			times := ""
			if e.Count > 1 {
				times = fmt.Sprintf("%s times, last ", text.Int(e.Count))
			}
			p.prose(storyIn, plain, "● ", fmt.Sprintf("%s (%s%s): %s", e.Reason, times, ago(e.Last, s.AsOf), e.Message))
		}
	}
}
