// Package explain tells what is known of one address, pod, node, block or pool
// of a cluster: pure functions from a snapshot, and the findings of the checks
// that ran over it, to a Story. What could not be seen is part of the story
// (Story.Unknown), never silently absent.
package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"ipamaudit/checks"
	"ipamaudit/ipam"
)

// Schema names the format of an Answer in JSON.
const Schema = "ipamaudit/explain/v1"

// Answer is what was asked and what each chosen cluster has to say about it.
type Answer struct {
	Schema string `json:"schema"`
	// Asked is the subject as people wrote it.
	Asked   string  `json:"asked"`
	Stories []Story `json:"stories"`
	// Silent are the clusters that tell no story: they do not know the subject,
	// or could not be read.
	Silent []Silence `json:"silent"`
}

// Silence is a cluster without a story.
type Silence struct {
	Cluster string `json:"cluster"`
	// Failed is true where the cluster could not be read: then it may well know
	// the subject.
	Failed bool   `json:"failed"`
	Why    string `json:"why"`
}

// Story is everything known about one subject in one cluster. One of the
// pointers is set, by Subject.Kind.
type Story struct {
	Cluster string    `json:"cluster"`
	AsOf    time.Time `json:"asOf"`
	Calico  string    `json:"calico"`
	// Subject names an address, a block by its CIDR, a pool by its name.
	Subject checks.Subject `json:"subject"`
	Verdict Verdict        `json:"verdict"`

	Address *Address `json:"address,omitempty"`
	Pod     *Pod     `json:"pod,omitempty"`
	Node    *Node    `json:"node,omitempty"`
	Block   *Block   `json:"block,omitempty"`
	Pool    *Pool    `json:"pool,omitempty"`

	// Findings are those that concern the subject, worst first.
	Findings []Finding `json:"findings"`
	// Unknown says what was not seen, and what therefore cannot be told.
	Unknown []string `json:"unknown"`
	// Incomplete is true where a resource that the story needs was not read.
	Incomplete bool `json:"incomplete"`
	// See are the subjects that go on from here.
	See []checks.Subject `json:"see"`
}

// Status is how a verdict stands.
type Status string

const (
	// OK: looked at, and nothing is wrong.
	OK Status = "ok"
	// Problem: something is wrong with it.
	Problem Status = "problem"
	// Doubt: too little was seen to tell.
	Doubt Status = "unknown"
	// Info: there is nothing to be right or wrong.
	Info Status = "info"
)

// Verdict is the story in a sentence or two.
type Verdict struct {
	Status Status `json:"status"`
	Text   string `json:"text"`
}

// Finding is a check's finding with its fingerprint.
type Finding struct {
	Fingerprint string `json:"fingerprint"`
	checks.Finding
	// Accepted is the reason of a suppression, empty where nobody accepted it.
	Accepted string `json:"accepted,omitempty"`
}

// Gap is a check that could not look, or not everywhere.
type Gap struct{ Check, Reason string }

// Input is a sealed snapshot and what the checks said about it.
type Input struct {
	*ipam.Snapshot
	Findings []Finding
	Gaps     []Gap
	// Note is what else must be said about how the snapshot came about.
	Note string
	// Moving is true where what was seen of the subject may be of different
	// moments: a problem is then none before somebody looks again.
	Moving bool
}

// Explain tells the story of a subject that Resolve returned.
func Explain(in Input, subject checks.Subject) Story {
	s := Story{
		Cluster: in.Cluster.Name, AsOf: in.AsOf.UTC(), Calico: in.Info.Version.String(), Subject: subject,
		Findings: []Finding{}, Unknown: []string{}, See: []checks.Subject{},
	}
	switch subject.Kind {
	case checks.KindIP:
		in.explainAddress(&s)
	case checks.KindPod:
		in.explainPod(&s)
	case checks.KindNode:
		in.explainNode(&s)
	case checks.KindBlock:
		in.explainBlock(&s)
	case checks.KindPool:
		in.explainPool(&s)
	}
	in.unseen(&s)
	if in.Moving {
		s.Incomplete = true
		if s.Verdict.Status == Problem {
			s.Verdict.Status = Doubt
		}
	}
	s.settle()
	return s
}

// settle lets the findings have their say in the verdict: a story that looks
// fine is none where a check found something.
func (s *Story) settle() {
	for _, f := range s.Findings {
		if f.Accepted == "" && f.Severity.AtLeast(checks.Medium) {
			s.Verdict.Status = Problem
		}
	}
	if s.Incomplete && s.Verdict.Status == OK {
		s.Verdict.Status = Doubt
	}
	var see []checks.Subject
	for _, to := range s.See {
		if to != s.Subject && to.Name != "" && !slices.Contains(see, to) {
			see = append(see, to)
		}
	}
	s.See = append([]checks.Subject{}, see...)
}

func (s *Story) see(kind, name string) {
	s.See = append(s.See, checks.Subject{Kind: kind, Name: name})
}

// Needed are the resources that every story is made from.
func Needed() []ipam.Resource {
	return []ipam.Resource{ipam.ResPools, ipam.ResBlocks, ipam.ResAffinities, ipam.ResPods, ipam.ResNodes}
}

// cannotTell is what is lost with a resource.
func cannotTell(r ipam.Resource) string {
	switch r {
	case ipam.ResPools:
		return "which pool an address or block belongs to, and whom it serves"
	case ipam.ResBlocks:
		return "what is booked, and for whom"
	case ipam.ResAffinities:
		return "which nodes lay claim to a block"
	case ipam.ResPods:
		return "whether a pod exists and uses its address"
	case ipam.ResNodes:
		return "whether a node exists and what state it is in"
	case ipam.ResEvents:
		return "what was reported about its network"
	case ipam.ResServices:
		return "whether a Service has the address"
	case ipam.ResReservations:
		return "which addresses are reserved"
	case ipam.ResHandles:
		return "whether a handle exists"
	default:
		return ""
	}
}

// unseen says what was not read and which checks could not look.
func (in Input) unseen(s *Story) {
	if kind, why := in.IPAM(); kind != ipam.CalicoIPAM {
		s.Unknown = append(s.Unknown, fmt.Sprintf("this cluster does not seem to use Calico IPAM (%s: %s), so there is little to say about addresses here", kind, why))
	}
	for _, r := range Needed() {
		if c := in.Coverage.Get(r); c.Status != ipam.Read {
			s.Incomplete = true
			s.Unknown = append(s.Unknown, notRead(c))
		}
	}
	for _, r := range []ipam.Resource{ipam.ResReservations, ipam.ResServices, ipam.ResEvents, ipam.ResHandles} {
		// An API that does not serve a kind has none of it.
		if c := in.Coverage.Get(r); c.Status != ipam.Read && c.Status != ipam.Absent && asksFor(s, r) {
			s.Unknown = append(s.Unknown, notRead(c))
		}
	}
	if in.Note != "" {
		s.Unknown = append(s.Unknown, in.Note)
	}
	if n := len(in.Rejected); n > 0 {
		s.Unknown = append(s.Unknown, fmt.Sprintf("%s could not be used, the first: %s", plural(n, "object"), in.Rejected[0].Error()))
	}
	byReason := map[string][]string{}
	var reasons []string
	for _, g := range in.Gaps {
		if byReason[g.Reason] == nil {
			reasons = append(reasons, g.Reason)
		}
		byReason[g.Reason] = append(byReason[g.Reason], g.Check)
	}
	for _, r := range reasons {
		s.Unknown = append(s.Unknown, strings.Join(byReason[r], ", ")+": "+r)
	}
}

func notRead(c ipam.ResourceCoverage) string {
	detail := ""
	if c.Detail != "" {
		detail = ": " + c.Detail
	}
	return fmt.Sprintf("%s not read (%s%s): it cannot be told %s", c.Resource, c.Status, detail, cannotTell(c.Resource))
}

// asksFor reports whether an optional resource matters for this kind of story.
func asksFor(s *Story, r ipam.Resource) bool {
	switch r {
	case ipam.ResEvents:
		return s.Pod != nil
	case ipam.ResServices:
		return s.Address != nil && s.Address.State != InUse
	case ipam.ResReservations:
		return s.Address != nil && s.Address.Record == nil || s.Block != nil || s.Pool != nil
	case ipam.ResHandles:
		return s.Address != nil && s.Address.Record != nil
	default:
		return false
	}
}

// about reports whether a finding that names the object, as its subject or
// among what it affects, is part of the story.
type about func(kind, namespace, name string, isSubject bool) bool

// concern picks the findings that a story is told about, and then those that
// these are caused by.
func (in Input) concern(named about) []Finding {
	out := []Finding{}
	picked := map[string]bool{}
	for _, f := range in.Findings {
		if named(f.Subject.Kind, f.Subject.Namespace, f.Subject.Name, true) ||
			slices.ContainsFunc(f.Affected, func(a checks.Affected) bool { return named(a.Kind, a.Namespace, a.Name, false) }) {
			out = append(out, f)
			picked[f.Fingerprint] = true
		}
	}
	for i := 0; i < len(out); i++ {
		for _, f := range in.Findings {
			if slices.Contains(out[i].CausedBy, f.Fingerprint) && !picked[f.Fingerprint] {
				out = append(out, f)
				picked[f.Fingerprint] = true
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Finding) int { return cmp.Compare(b.Severity.Rank(), a.Severity.Rank()) })
	return out
}

// plural prints "1 node" or "4 nodes", for nouns that take an s or an es.
func plural(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case strings.HasSuffix(noun, "s"):
		return fmt.Sprintf("%d %ses", n, noun)
	default:
		return fmt.Sprintf("%d %ss", n, noun)
	}
}

// names joins up to limit names and says how many more there are.
func names(list []string, limit int) string {
	if len(list) <= limit {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:limit], ", "), len(list)-limit)
}
