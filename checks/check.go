// Package checks holds the audit's checks: pure functions of one cluster's
// Snapshot, their parameters and the time. A check has no client, no clock and
// does no I/O; what it could not see it says, and the framework turns into
// "unknown". One check is one file, one line in All, one page under
// docs/checks and one folder under fixtures.
package checks

import (
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"ipamaudit/ipam"
)

// Check is one rule and all that is said about it anywhere: the report, the
// documentation, the ClusterRole and `ipamaudit checks` are made from it.
type Check struct {
	// ID is in kebab-case and never changes: tickets hang on it.
	ID string
	// Title says in one line what it finds.
	Title string
	// SubjectKind is what one finding is about.
	SubjectKind string
	// What, Why and How are paragraphs of Markdown for people.
	What, Why, How string
	// SeverityNote tells when it is which severity.
	SeverityNote string
	// Needs cannot be done without: if one was not read the check is unknown.
	Needs []ipam.Resource
	// Uses sharpen the verdict; the check itself says what it did not see.
	Uses []ipam.Resource
	// Decides are those Uses that can turn a finding into calm: refused, failed or
	// partly unusable they leave something unseen. Missing ones fall back to defaults.
	Decides []ipam.Resource
	// NeedsRoutes is true where route tables are what the check looks at.
	NeedsRoutes bool
	// Skewed checks compare lists that were read one after the other. What they
	// find in a live cluster counts only when a second look shows it, too.
	Skewed bool
	// AnyIPAM checks also speak about clusters without Calico IPAM.
	AnyIPAM bool
	// SecondLook says which of its findings one look cannot prove: they set
	// Finding.SecondLook, and a ticket waits for the second run in a row.
	SecondLook string
	Params     []Param
	// Example returns the remediation with placeholders in place of names.
	Example func() []Step
	// Cases, where what is to be done depends on what is seen, are the parts of
	// the example of which only one applies; nil elsewhere.
	Cases func() []Case
	// Look are the command lines at the top of the page, which only read; empty
	// means those of the first step of Example. Sign says what they print where it
	// is this.
	Look, Sign string
	// Related are the checks that this one is taken for, or that explain it.
	Related []Related
	// References are the public reports and source files behind the rule.
	References []string
	// Run does the work. It is only called when every need was read.
	Run func(*Input) Result
}

// Param is one setting of a check.
type Param struct {
	Name string
	// Type is number, integer, bool, duration or string.
	Type     string
	Default  any
	Min, Max *float64
	Doc      string
}

// Params are the effective values of a check's parameters.
type Params map[string]any

// Float returns a number parameter. It panics on a name the check did not
// declare: a fault of the program, which the framework reports as unknown.
func (p Params) Float(name string) float64 {
	switch v := p[name].(type) {
	case float64:
		return v
	case int:
		return float64(v)
	case int64:
		return float64(v)
	}
	panic(fmt.Sprintf("parameter %q is not a number: %v", name, p[name]))
}

// Int returns an integer parameter.
func (p Params) Int(name string) int { return int(p.Float(name)) }

// Duration returns a duration parameter.
func (p Params) Duration(name string) time.Duration {
	switch v := p[name].(type) {
	case time.Duration:
		return v
	case string:
		if d, err := time.ParseDuration(v); err == nil {
			return d
		}
	}
	panic(fmt.Sprintf("parameter %q is not a duration: %v", name, p[name]))
}

// Bool returns a boolean parameter.
func (p Params) Bool(name string) bool {
	if v, ok := p[name].(bool); ok {
		return v
	}
	panic(fmt.Sprintf("parameter %q is not a boolean: %v", name, p[name]))
}

// Input is what a check works on.
type Input struct {
	*ipam.Snapshot
	Params Params
	// Now is the snapshot's time.
	Now time.Time
}

// Result is what a check returns.
type Result struct {
	Findings []Finding
	// Unseen names what the check would have looked at and did not see. Without
	// findings it makes the check unknown, unless Partial is set.
	Unseen []string
	// Partial says that what was seen suffices for "ok", e.g. the tables of some nodes.
	Partial bool
	// Skip is the reason why the check does not apply here.
	Skip string
}

// Status is the outcome of a check on one cluster.
type Status string

// The outcomes, see CONTRACT of the JSON report in docs/report.md.
const (
	StatusOK       Status = "ok"
	StatusFindings Status = "findings"
	StatusUnknown  Status = "unknown"
	StatusSkipped  Status = "skipped"
)

// Outcome is the status of one check and what it found.
type Outcome struct {
	ID       string
	Status   Status
	Reason   string
	Unseen   []string
	Findings []Finding
	// Incomplete is true where a need was not read: it makes the run exit with
	// 3. Missing route tables alone do not.
	Incomplete bool
	// Lossy is true where objects of a kind it needs could not be used.
	Lossy bool
	// Partial is the result's: with it, what is unseen does not put the rest in doubt.
	Partial bool
}

// Moving lists what a Skewed check looks at that changes all the time.
func (c Check) Moving() []ipam.Resource {
	var out []ipam.Resource
	for _, r := range ipam.MovingResources() {
		if slices.Contains(c.Needs, r) || slices.Contains(c.Uses, r) {
			out = append(out, r)
		}
	}
	return out
}

// Evaluate runs one check. A need that was not read, or a panic, is unknown:
// a check never fails and never says "ok" for what it did not see.
func Evaluate(c Check, in *Input) (out Outcome) {
	out.ID = c.ID
	// First of all: a cluster without Calico IPAM does not serve its resources,
	// and that is no gap in what was read.
	if !c.AnyIPAM {
		if reason := notCalicoIPAM(in.Snapshot); reason != "" {
			// What was lost is not mended: nothing is resolved by it.
			lost, _ := in.Snapshot.DataLost()
			out.Lossy = lost
			out.Status, out.Reason = StatusSkipped, reason
			return out
		}
	}
	if unread := unreadNeeds(c, in.Snapshot); len(unread) > 0 {
		out.Status, out.Unseen, out.Incomplete = StatusUnknown, unread, true
		out.Reason = "not read: " + strings.Join(unread, ", ")
		return out
	}
	defer func() {
		if r := recover(); r != nil {
			out = Outcome{ID: c.ID, Status: StatusUnknown, Incomplete: true,
				Reason: fmt.Sprintf("the check itself failed, please report this: %v (%s)", r, panicSite(debug.Stack()))}
		}
	}()
	res := c.Run(in)
	for i := range res.Findings {
		res.Findings[i].Check = c.ID
		normalise(&res.Findings[i])
	}
	sortFindings(res.Findings)
	if res.Skip == "" {
		res.Unseen = append(res.Unseen, undecided(c, in.Snapshot)...)
	}
	out.Findings, out.Unseen, out.Partial = res.Findings, res.Unseen, res.Partial
	switch {
	case res.Skip != "":
		out.Status, out.Reason = StatusSkipped, res.Skip
	case len(res.Findings) > 0:
		out.Status = StatusFindings
	case len(res.Unseen) > 0 && !res.Partial:
		out.Status, out.Reason = StatusUnknown, "not seen: "+strings.Join(res.Unseen, ", ")
	default:
		out.Status = StatusOK
	}
	out.missLosses(c, in.Snapshot)
	return out
}

// missLosses marks a check whose needs were read with losses: an object that
// could not be used may be the very one that is wrong.
func (out *Outcome) missLosses(c Check, s *ipam.Snapshot) {
	lost := map[ipam.Resource]int{}
	for _, e := range s.Rejected {
		if r, ok := ipam.ParseResource(e.Kind); ok && slices.Contains(c.Needs, r) {
			lost[r]++
		}
	}
	if len(lost) == 0 || out.Status == StatusSkipped {
		return
	}
	out.Lossy, out.Incomplete = true, true
	for _, r := range c.Needs {
		if n := lost[r]; n > 0 {
			out.Unseen = append(out.Unseen, fmt.Sprintf("%d of the %s could not be used", n, r))
		}
	}
	if out.Status == StatusOK {
		out.Status, out.Reason = StatusUnknown, "not seen: "+strings.Join(out.Unseen, ", ")
	}
}

// undecided lists the deciding resources that were asked for and not (wholly) seen.
func undecided(c Check, s *ipam.Snapshot) []string {
	var out []string
	for _, r := range c.Decides {
		switch rc := s.Coverage.Get(r); {
		case s.Coverage.Refused(r) || rc.Status != ipam.Read && !r.Optional():
			out = append(out, fmt.Sprintf("%s (%s)", r, rc.Status))
		case len(s.Unusable(r)) > 0:
			out = append(out, "some of the "+string(r)+", which could not be used")
		}
	}
	// Of what everything is about a single object may be what is wrong.
	for _, r := range []ipam.Resource{ipam.ResBlocks, ipam.ResPools, ipam.ResNodes, ipam.ResPods} {
		if slices.Contains(c.Uses, r) && !slices.Contains(c.Decides, r) && len(s.Unusable(r)) > 0 {
			out = append(out, "some of the "+string(r)+", which could not be used")
		}
	}
	return out
}

// unreadNeeds lists the needs that were not read, with their status. Optional
// resources have defaults and never make a check unknown.
func unreadNeeds(c Check, s *ipam.Snapshot) []string {
	var out []string
	for _, r := range c.Needs {
		rc := s.Coverage.Get(r)
		if rc.Status != ipam.Read {
			out = append(out, fmt.Sprintf("%s (%s)", r, rc.Status))
		}
	}
	if s.Coverage.Refused(ipam.ResCalicoNodes) && c.comparesNames() && strangers(s) {
		out = append(out, fmt.Sprintf("%s (%s)", ipam.ResCalicoNodes, s.Coverage.Get(ipam.ResCalicoNodes).Status))
	}
	return out
}

// comparesNames reports whether the check looks for nodes by the names that IPAM
// has for them. Where Calico has Node objects of its own (the etcd datastore)
// these names may be others than Kubernetes', and only the objects tell.
func (c Check) comparesNames() bool {
	reads := func(list ...ipam.Resource) bool {
		return slices.ContainsFunc(list, func(r ipam.Resource) bool { return slices.Contains(c.Needs, r) || slices.Contains(c.Uses, r) })
	}
	return reads(ipam.ResNodes) && reads(ipam.ResBlocks, ipam.ResAffinities)
}

// strangers reports whether IPAM names a node that Kubernetes does not have.
func strangers(s *ipam.Snapshot) bool {
	strange := func(name string) bool { return name != "" && s.NodeByFold(name) == nil }
	for i := range s.Affinities {
		if a := &s.Affinities[i]; a.Type == "host" && strange(a.Node) {
			return true
		}
	}
	return slices.ContainsFunc(s.Blocks, func(b ipam.Block) bool {
		return b.Owner.IsHost() && strange(b.Owner.Name) || slices.ContainsFunc(b.Attributes, func(a ipam.Attribute) bool { return strange(a.Node) })
	})
}

func normalise(f *Finding) {
	if f.Evidence == "" {
		f.Evidence = Observed
	}
	if f.Affected == nil {
		f.Affected = []Affected{}
	}
	if f.CausedBy == nil {
		f.CausedBy = []string{}
	}
	if f.Remediation == nil {
		f.Remediation = []Step{}
	}
	for i := range f.Remediation {
		if f.Remediation[i].Commands == nil {
			f.Remediation[i].Commands = []string{}
		}
	}
}

// sortFindings orders by severity, then subject.
func sortFindings(fs []Finding) {
	slices.SortStableFunc(fs, func(a, b Finding) int {
		if d := b.Severity.Rank() - a.Severity.Rank(); d != 0 {
			return d
		}
		return strings.Compare(a.Subject.String(), b.Subject.String())
	})
}

// panicSite is the first line of ours in a stack trace: enough for a bug
// report, short enough for a ticket.
func panicSite(stack []byte) string {
	for line := range strings.Lines(string(stack)) {
		line = strings.TrimSpace(line)
		if i := strings.LastIndex(line, "/checks/"); i >= 0 && !strings.Contains(line, "/checks/check.go") {
			site, _, _ := strings.Cut(line[i+1:], " ")
			return site
		}
	}
	return "unknown place"
}

// DefaultParams are the values of the parameters where nobody set any.
func (c Check) DefaultParams() Params {
	p := Params{}
	for _, param := range c.Params {
		p[param.Name] = param.Default
	}
	return p
}
