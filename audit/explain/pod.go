package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"ipamaudit/checks"
	"ipamaudit/ipam"
)

// Pod is what is known of a pod.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Exists is false where only IPAM's records know the pod, or pods were not read.
	Exists      bool      `json:"exists"`
	Node        string    `json:"node,omitempty"`
	Phase       string    `json:"phase,omitempty"`
	Reason      string    `json:"reason,omitempty"`
	Deleting    bool      `json:"deleting,omitempty"`
	HostNetwork bool      `json:"hostNetwork,omitempty"`
	Since       time.Time `json:"since,omitzero"`
	// Owner is "ReplicaSet NAME", empty for a pod that nobody recreates.
	Owner string `json:"owner,omitempty"`
	VM    string `json:"vm,omitempty"`
	// Waiting is the waiting reason of a container, with its message.
	Waiting  string `json:"waiting,omitempty"`
	Restarts int    `json:"restarts,omitempty"`
	// RequestedIPs and PoolPins are the pod's annotations; NamespacePins its namespace's.
	RequestedIPs  []netip.Addr `json:"requestedIPs"`
	PoolPins      []string     `json:"poolPins"`
	NamespacePins []string     `json:"namespacePins"`
	// NoIPAM pods bypass Calico IPAM.
	NoIPAM    bool      `json:"noIPAM,omitempty"`
	Addresses []Address `json:"addresses"`
	Events    []Event   `json:"events"`
}

// Event is an event of the pod that speaks of its network.
type Event struct {
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Count   int       `json:"count"`
	Last    time.Time `json:"last,omitzero"`
}

func (in Input) explainPod(s *Story) {
	namespace, name := s.Subject.Namespace, s.Subject.Name
	p := in.Pod(namespace, name)
	out := Pod{
		Namespace: namespace, Name: name, Exists: p != nil,
		RequestedIPs: []netip.Addr{}, PoolPins: []string{}, NamespacePins: []string{}, Addresses: []Address{}, Events: []Event{},
	}
	ips := in.bookedFor(namespace, name)
	if p != nil {
		out.Node, out.Phase, out.Reason, out.Deleting, out.HostNetwork = p.NodeName, p.Phase, p.Reason, p.Deleting, p.HostNetwork
		out.Since, out.VM, out.Restarts, out.NoIPAM = since(p), p.VMI, p.Restarts, p.NoIPAM
		out.Owner = strings.TrimSpace(p.OwnerKind + " " + p.OwnerName)
		out.Waiting = strings.TrimSuffix(p.Waiting+": "+p.Message, ": ")
		out.RequestedIPs = append(out.RequestedIPs, p.RequestedIPs...)
		out.PoolPins = append(out.PoolPins, p.PoolPins...)
		ips = append(ips, p.IPs()...)
	}
	for i := range in.Namespaces {
		if n := &in.Namespaces[i]; n.Name == namespace {
			out.NamespacePins = append(out.NamespacePins, n.PoolPins...)
		}
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	for _, ip := range slices.Compact(ips) {
		out.Addresses = append(out.Addresses, in.address(ip))
	}
	for i := range in.Events {
		if e := &in.Events[i]; e.Kind == "Pod" && e.Namespace == namespace && e.Name == name {
			out.Events = append(out.Events, Event{e.Reason, e.Message, e.Count, e.Last.UTC()})
		}
	}
	slices.SortStableFunc(out.Events, func(a, b Event) int { return b.Last.Compare(a.Last) })
	s.Pod = &out
	s.Findings = in.concern(in.aboutPod(&out))
	s.Verdict = in.podVerdict(&out, p)
	s.see(checks.KindNode, out.Node)
	for _, a := range out.Addresses {
		for _, h := range pathHops(a.Path) {
			if h.Outcome.Bad() {
				s.see(checks.KindNode, h.At)
			}
		}
	}
}

// bookedFor lists the addresses that IPAM books for a pod.
func (in Input) bookedFor(namespace, name string) []netip.Addr {
	var out []netip.Addr
	for i := range in.Blocks {
		b := &in.Blocks[i]
		if !slices.ContainsFunc(b.Attributes, func(at ipam.Attribute) bool { return at.Namespace == namespace && at.Pod == name }) {
			continue
		}
		for a := range b.Allocations() {
			if a.Attr.Namespace == namespace && a.Attr.Pod == name && !a.Attr.CoolingDown() {
				out = append(out, a.IP)
			}
		}
	}
	return out
}

func (in Input) aboutPod(p *Pod) about {
	return func(kind, namespace, name string, isSubject bool) bool {
		if kind == checks.KindPod {
			return namespace == p.Namespace && name == p.Name
		}
		return slices.ContainsFunc(p.Addresses, func(a Address) bool { return in.aboutAddress(a)(kind, namespace, name, isSubject) })
	}
}

func (in Input) podVerdict(p *Pod, pod *ipam.Pod) Verdict {
	switch {
	case !p.Exists && !in.Coverage.Read(ipam.ResPods):
		return Verdict{Doubt, fmt.Sprintf("Whether the pod exists is not known, because pods were not read; IPAM books %s for it.", addresses(len(p.Addresses)))}
	case !p.Exists:
		return Verdict{Problem, fmt.Sprintf("The pod does not exist, and IPAM still books %s for it.", addresses(len(p.Addresses)))}
	case p.HostNetwork && len(p.Addresses) == 0:
		return Verdict{Info, "It uses its node's network, so IPAM has no address for it."}
	case pod.Finished() && len(p.Addresses) == 0:
		return Verdict{Info, fmt.Sprintf("It has finished (%s) and holds no address.", p.Phase)}
	case p.Node == "" && len(p.Addresses) == 0:
		return Verdict{Info, fmt.Sprintf("It is %s and has no node yet, so it needs no address yet.", cmp.Or(p.Phase, "new"))}
	case pod.WaitsForAddress():
		return in.waitingVerdict(p)
	}
	v := Verdict{Status: OK, Text: fmt.Sprintf("%s on %s with %s.", cmp.Or(p.Phase, "Somewhere"), cmp.Or(p.Node, "no node"), addresses(len(p.Addresses)))}
	for _, a := range p.Addresses {
		one := in.addressVerdict(a)
		v.Status = worse(v.Status, one.Status)
		switch {
		case len(p.Addresses) == 1 && !a.Wrong && a.Path != nil:
			path, _ := pathVerdict(a.Path)
			v.Text = fmt.Sprintf("%s on %s with address %s. %s", cmp.Or(p.Phase, "Scheduled"), cmp.Or(p.Node, "no node"), a.IP, path)
		case len(p.Addresses) == 1:
			v.Text = fmt.Sprintf("%s on %s with address %s. %s", cmp.Or(p.Phase, "Scheduled"), cmp.Or(p.Node, "no node"), a.IP, one.Text)
		case !a.Wrong && a.Path != nil && one.Status != OK:
			path, _ := pathVerdict(a.Path)
			v.Text += fmt.Sprintf(" %s: %s", a.IP, path)
		case one.Status == Problem || one.Status == Doubt:
			v.Text += fmt.Sprintf(" %s: %s", a.IP, one.Text)
		}
	}
	return v
}

func (in Input) waitingVerdict(p *Pod) Verdict {
	v := Verdict{Status: Info, Text: "It is being started on " + p.Node + " and has no address yet"}
	if p.Waiting != "" {
		v.Text += " (" + p.Waiting + ")"
	}
	if !p.Since.IsZero() && in.AsOf.Sub(p.Since) > 10*time.Minute {
		v.Status = Problem
		v.Text += fmt.Sprintf(", for %s", Age(in.AsOf.Sub(p.Since)))
	}
	v.Text += "."
	return v
}

func addresses(n int) string {
	if n == 0 {
		return "no address"
	}
	return plural(n, "address")
}

func worse(a, b Status) Status {
	order := []Status{OK, Info, Doubt, Problem}
	if slices.Index(order, b) > slices.Index(order, a) {
		return b
	}
	return a
}

// Age prints a duration in the largest unit that says something: "45 s",
// "12 min", "5 h", "3 days".
func Age(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", max(int(d.Seconds()), 0))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	default:
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	}
}
