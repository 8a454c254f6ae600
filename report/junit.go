package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"ipamaudit/audit"
	"ipamaudit/checks"
	"ipamaudit/report/text"
)

// junitWriter writes JUnit XML as Jenkins, GitLab and GitHub actions read it:
// a suite per cluster, a test case per check.
//
//   - findings from medium up make the case a <failure>, low ones a <system-out>;
//   - a check that could not read what it requires, or could not look again at
//     what it found before, is an <error>, and so is a cluster that could not be
//     audited: CI must not be green over it;
//   - unknown for want of evidence that nobody asked for (route tables, where no
//     source is configured) is <skipped> and says "unknown": like the exit code
//     it does not fail a run that was never given any;
//   - a check that does not apply or is switched off is <skipped>.
//
// Suppressed and resolved findings leave no trace in it.
type junitWriter struct{}

type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Errors   int          `xml:"errors,attr"`
	Skipped  int          `xml:"skipped,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name      string      `xml:"name,attr"`
	Tests     int         `xml:"tests,attr"`
	Failures  int         `xml:"failures,attr"`
	Errors    int         `xml:"errors,attr"`
	Skipped   int         `xml:"skipped,attr"`
	Timestamp string      `xml:"timestamp,attr,omitempty"`
	Cases     []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string       `xml:"classname,attr"`
	Name    string       `xml:"name,attr"`
	Failure *junitResult `xml:"failure"`
	Error   *junitResult `xml:"error"`
	Skipped *junitResult `xml:"skipped"`
	Out     *junitOut    `xml:"system-out"`
}

type junitResult struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr,omitempty"`
	Text    string `xml:",cdata"` // stripped before: CDATA cannot escape
}

type junitOut struct {
	Text string `xml:",cdata"`
}

func (junitWriter) Write(w io.Writer, r *audit.Report) error {
	doc := junitSuites{Name: "ipamaudit"}
	for i := range r.Clusters {
		c := newClusterView(&r.Clusters[i])
		s := junitClusterSuite(&c)
		doc.Tests += s.Tests
		doc.Failures += s.Failures
		doc.Errors += s.Errors
		doc.Skipped += s.Skipped
		doc.Suites = append(doc.Suites, s)
	}
	b, err := xml.MarshalIndent(doc, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	_, err = io.WriteString(w, xml.Header+string(b)+"\n")
	return err
}

func junitClusterSuite(c *clusterView) junitSuite {
	s := junitSuite{Name: text.Terminal(c.Name)}
	if !c.AsOf.IsZero() {
		s.Timestamp = c.AsOf.UTC().Format(time.RFC3339)
	}
	for _, ch := range c.allChecks() {
		jc := junitCheckCase(c, ch)
		s.Tests++
		switch {
		case jc.Error != nil:
			s.Errors++
		case jc.Failure != nil:
			s.Failures++
		case jc.Skipped != nil:
			s.Skipped++
		}
		s.Cases = append(s.Cases, jc)
	}
	return s
}

// allChecks are the cluster's checks, and those that found something without
// being listed (cluster-access, which is found by the run itself).
func (c *clusterView) allChecks() []audit.CheckReport {
	out := slices.Clone(c.Checks)
	add := func(id string, status checks.Status) {
		if !slices.ContainsFunc(out, func(ch audit.CheckReport) bool { return ch.ID == id }) {
			out = append(out, audit.CheckReport{ID: id, Status: status})
		}
	}
	for _, f := range c.active {
		add(f.Check, checks.StatusFindings)
	}
	if c.Status == audit.Failed {
		add(clusterAccess, checks.StatusFindings)
	}
	return out
}

// clusterAccess is the check that a failed cluster is reported under.
const clusterAccess = "cluster-access"

func junitCheckCase(c *clusterView, ch audit.CheckReport) junitCase {
	jc := junitCase{Class: "ipamaudit." + text.Terminal(c.Name), Name: ch.ID}
	if c.Status == audit.Failed {
		if ch.ID == clusterAccess {
			jc.Error = &junitResult{Message: "the cluster could not be audited", Type: "failed", Text: text.Lines(c.Error)}
		} else {
			jc.Skipped = &junitResult{Message: "unknown: the cluster could not be audited"}
		}
		return jc
	}
	var failing, low, stale []*audit.Finding
	for _, f := range c.stale {
		if f.Check == ch.ID {
			stale = append(stale, f)
		}
	}
	for _, f := range c.active {
		switch {
		case f.Check != ch.ID:
		case f.Severity.AtLeast(checks.Medium):
			failing = append(failing, f)
		default:
			low = append(low, f)
		}
	}
	switch {
	case len(failing) > 0:
		jc.Failure = &junitResult{Message: text.Plural(len(failing), "finding") + ", worst " + string(failing[0].Severity) + ": " +
			text.Terminal(failing[0].Title), Type: string(failing[0].Severity), Text: plainFindings(failing)}
	case len(stale) > 0:
		jc.Error = &junitResult{Message: "unknown: " + text.Plural(len(stale), "finding") + " of earlier runs not looked at, still open",
			Type: "unknown", Text: plainFindings(stale)}
	case ch.Status == checks.StatusUnknown && ch.Incomplete:
		jc.Error = &junitResult{Message: "unknown: " + text.Terminal(ch.Reason), Type: "unknown"}
	case ch.Status == checks.StatusUnknown:
		jc.Skipped = &junitResult{Message: "unknown: " + text.Terminal(ch.Reason)}
	case ch.Status == checks.StatusSkipped:
		jc.Skipped = &junitResult{Message: text.Terminal(ch.Reason)}
	}
	out := plainFindings(low)
	if len(ch.Unseen) > 0 && ch.Status != checks.StatusUnknown {
		out += "not all seen: " + text.Terminal(strings.Join(ch.Unseen, ", ")) + "\n"
	}
	if out != "" {
		jc.Out = &junitOut{out}
	}
	return jc
}

// plainFindings prints findings for a CI log.
func plainFindings(fs []*audit.Finding) string {
	var b strings.Builder
	for _, f := range fs {
		fmt.Fprintf(&b, "%s: %s: %s\n", strings.ToUpper(string(f.Severity)), text.Terminal(f.Title), text.Terminal(strings.Join(tags(f), " · ")))
		if f.Detail != "" {
			b.WriteString(text.Lines(f.Detail) + "\n")
		}
		n := visible(len(f.Affected), 50)
		for _, a := range f.Affected[:n] {
			b.WriteString(strings.TrimRight("  "+text.Terminal(affectedName(a))+"  "+text.Terminal(a.Note), " ") + "\n")
		}
		if more := len(f.Affected) - n; more > 0 {
			fmt.Fprintf(&b, "  … and %s more, %s in all\n", text.Int(more), text.Int(len(f.Affected)))
		}
	}
	return b.String()
}
