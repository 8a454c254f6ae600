package notify

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	"ipamaudit/audit"
	"ipamaudit/checks"
)

// clusterAccess is the one check that answers for clusters that failed.
const clusterAccess = "cluster-access"

// Problem is what one ticket is about: one check in one cluster. A problem may
// also be none (the check is clean): then Seen says so.
type Problem struct {
	Fingerprint string // of the ticket, see checks.TicketFingerprint
	// Alias is the fingerprint that the ticket had or would have while only the
	// cluster's name is known: it is down, and the state that knew its id is lost.
	Alias   string
	Cluster string
	Check   string
	// Project is where a new ticket goes if the problem is present; empty files
	// none. Projects are all that its ticket may be in, by its severity.
	Project  string
	Projects []string
	Seen     Seen
	// Findings belong into the ticket, worst first.
	Findings []audit.Finding
	// CleanRuns counts the complete runs in a row that found nothing, this one
	// included; 0 unless this run of the cluster was complete and clean.
	CleanRuns int
	cluster   *audit.ClusterReport
	// baseline are the problems that a baseline stands for.
	baseline []Problem
}

// Problems lists every (cluster, check) of the report, worst first. The state
// is that after the report's lifecycle.
func Problems(r *audit.Report, st *audit.State, p TicketPolicy) []Problem {
	p = p.WithDefaults()
	var out []Problem
	for i := range r.Clusters {
		c := &r.Clusters[i]
		for _, id := range checkIDs(c) {
			out = append(out, problem(c, id, st, p))
		}
	}
	slices.SortStableFunc(out, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(b.Seen.Severity.Rank(), a.Seen.Severity.Rank()),
			cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(checks.Depth(a.Check), checks.Depth(b.Check)), cmp.Compare(a.Check, b.Check))
	})
	return out
}

// fingerprints are what the problem's ticket is found by.
func (p Problem) fingerprints() []string {
	if p.Alias == "" {
		return []string{p.Fingerprint}
	}
	return []string{p.Fingerprint, p.Alias}
}

func (p Problem) labels() []string {
	out := p.fingerprints()
	for i, fp := range out {
		out[i] = FingerprintLabel(fp)
	}
	return out
}

// owns reports whether an issue is the problem's ticket: by its label or, where
// people took that away, by what this very account wrote when it created it.
// What others have copied from a ticket is theirs.
func (p Problem) owns(i Issue) bool {
	for _, fp := range p.fingerprints() {
		if slices.Contains(i.Labels, FingerprintLabel(fp)) {
			return true
		}
		if r, ok := ParseRef(i.Description); ok && i.Created && r.Fingerprint == fp {
			return true
		}
	}
	return false
}

// tools reports whether an issue is a ticket of the tool at all.
func (i Issue) tools() bool {
	_, ok := ParseRef(i.Description)
	return ok && i.Created || slices.ContainsFunc(i.Labels, func(l string) bool {
		return l == StaticLabel || strings.HasPrefix(l, labelPrefix)
	})
}

func checkIDs(c *audit.ClusterReport) []string {
	var ids []string
	for _, ch := range c.Checks {
		ids = append(ids, ch.ID)
	}
	for _, f := range c.Findings {
		ids = append(ids, f.Check)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func problem(c *audit.ClusterReport, check string, st *audit.State, p TicketPolicy) Problem {
	out := Problem{
		Fingerprint: checks.TicketFingerprint(check, c.ID),
		Cluster:     c.Name, Check: check, cluster: c,
	}
	if check == clusterAccess && c.ID != c.Name {
		out.Alias = checks.TicketFingerprint(check, c.Name)
	}
	for _, s := range checks.Severities() {
		if project := p.Project(c, check, s); project != "" && s.AtLeast(p.MinSeverity) && !slices.Contains(out.Projects, project) {
			out.Projects = append(out.Projects, project)
		}
	}
	var unknown, suppressed, tooFresh, tooMild bool
	for _, f := range c.Findings {
		switch {
		case f.Check != check || f.State == audit.StateResolved:
		case f.State == audit.StateUnknown:
			unknown = true
		case f.Suppressed != nil:
			suppressed = true
		case !f.Severity.AtLeast(p.MinSeverity):
			tooMild = true
		case max(f.Runs, 1) < max(p.After(check), looks(f)):
			tooFresh = true
		default:
			out.Findings = append(out.Findings, f)
		}
	}
	switch {
	case len(out.Findings) > 0:
		sortFindings(out.Findings)
		out.Project = p.Project(c, check, out.Findings[0].Severity)
		out.Seen = Seen{Present: true, Severity: out.Findings[0].Severity, Hash: contentHash(out.Findings)}
	case tooFresh:
		out.Seen.Quiet = SecondLook
	case tooMild:
		out.Seen.Quiet = BelowMinimum
	case suppressed:
		out.Seen.Quiet = Suppressed
	case unknown || !looked(c, check):
		out.Seen.Quiet = Unknown
	case c.Status == audit.Complete && st.Clusters[c.Name] != nil:
		out.CleanRuns = st.Clusters[c.Name].CleanRuns[check]
	}
	return out
}

// looked reports whether the check saw all that it needs. "findings" would also
// do, but not when all of them are gone: then something it did not see is left.
func looked(c *audit.ClusterReport, check string) bool {
	if c.Status == audit.Failed {
		return false
	}
	if check == clusterAccess {
		return true // the cluster answered, which is all there is to see
	}
	return slices.ContainsFunc(c.Checks, func(r audit.CheckReport) bool {
		return r.ID == check && r.Status == checks.StatusOK
	})
}

// looks is how many runs in a row have to see the finding before it is proven.
func looks(f audit.Finding) int {
	if f.SecondLook {
		return 2
	}
	return 1
}

func sortFindings(fs []audit.Finding) {
	slices.SortStableFunc(fs, func(a, b audit.Finding) int {
		return cmp.Or(cmp.Compare(b.Severity.Rank(), a.Severity.Rank()),
			cmp.Compare(a.Subject.String(), b.Subject.String()), cmp.Compare(a.Fingerprint, b.Fingerprint))
	})
}

// contentHash is over what a ticket means: how bad, what, which objects, what to
// do. Titles, figures and times are left out, so that a ticket is not rewritten
// (and its watchers mailed) every night. Notes of affected objects are in it:
// checks keep ages out of them.
func contentHash(fs []audit.Finding) string {
	type meaning struct {
		Severity checks.Severity
		Evidence checks.Evidence
		Subject  checks.Subject
		Affected []checks.Affected
		Steps    []checks.Step
	}
	all := make([]meaning, len(fs))
	for i, f := range fs {
		all[i] = meaning{f.Severity, f.Evidence, f.Subject, f.Affected, f.Remediation}
	}
	return hash("content/v1", all)
}

// hash returns 16 hex digits of parts.
func hash(parts ...any) string {
	h := sha256.New()
	enc := json.NewEncoder(h)
	for _, p := range parts {
		_ = enc.Encode(p) // strings and plain structs: cannot fail
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}
