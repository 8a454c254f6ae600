package checks

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// Severity ranks a finding. The zero value is no severity.
type Severity string

// The severities, see docs/checks/README.md for their meaning.
const (
	Low      Severity = "low"
	Medium   Severity = "medium"
	High     Severity = "high"
	Critical Severity = "critical"
)

// Severities lists them from worst to mildest.
func Severities() []Severity { return []Severity{Critical, High, Medium, Low} }

// Rank orders severities: 0 for none, 1 for low … 4 for critical.
func (s Severity) Rank() int {
	switch s {
	case Low:
		return 1
	case Medium:
		return 2
	case High:
		return 3
	case Critical:
		return 4
	default:
		return 0
	}
}

// AtLeast reports whether s is as bad as t or worse.
func (s Severity) AtLeast(t Severity) bool { return s.Rank() >= t.Rank() }

// Worst returns the worse of the two.
func Worst(a, b Severity) Severity {
	if b.Rank() > a.Rank() {
		return b
	}
	return a
}

// ParseSeverity reads a severity's name.
func ParseSeverity(s string) (Severity, error) {
	if v := Severity(strings.ToLower(s)); v.Rank() > 0 {
		return v, nil
	}
	return "", fmt.Errorf("severity %q: want low, medium, high or critical", s)
}

// Evidence says how a finding is known.
type Evidence string

const (
	// Observed: the objects or tables themselves show it.
	Observed Evidence = "observed"
	// Inferred: it follows from what was read, but one look cannot prove it.
	Inferred Evidence = "inferred"
)

// The kinds a Subject or Affected object can have.
const (
	KindCluster = "Cluster"
	KindNode    = "Node"
	KindPool    = "IPPool"
	KindBlock   = "IPAMBlock"
	KindPod     = "Pod"
	KindIP      = "IP"
)

// Subject is the object a finding is about; with check and cluster id it makes the fingerprint.
type Subject struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String prints "Node kubestage1003" or "Pod lab/web-0".
func (s Subject) String() string {
	if s.Namespace != "" {
		return s.Kind + " " + s.Namespace + "/" + s.Name
	}
	return s.Kind + " " + s.Name
}

// Affected is one object that a finding touches. Where a finding is about
// addresses each has its own entry: kind IP, name the address, note the pod
// and what else matters.
type Affected struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Note      string `json:"note,omitempty"`
	// Same is what tells that this is the very thing that the last run saw, where
	// its name does not: an address that was booked anew is another leak.
	Same string `json:"-"`
}

// Risk says what a remediation step can break.
type Risk string

const (
	// Safe steps read, or change nothing that carries traffic.
	Safe Risk = "safe"
	// Disruptive steps restart or reschedule something.
	Disruptive Risk = "disruptive"
	// Destructive steps delete data and cannot be undone.
	Destructive Risk = "destructive"
)

// Step is one step of a remediation, to be done in the order of the list.
type Step struct {
	Title string `json:"title"`
	// Commands are lines for a shell, with real names in them.
	Commands []string `json:"commands"`
	Risk     Risk     `json:"risk"`
	// Verify is a command or sentence that shows that the step worked.
	Verify string `json:"verify"`
}

// Finding is what a check has to say about one subject.
type Finding struct {
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	// IfItStays is the severity from the second run in a row on, where that says
	// more than the first look can. The runner applies it; empty means none.
	IfItStays Severity `json:"-"`
	Evidence  Evidence `json:"evidenceLevel"`
	Subject   Subject  `json:"subject"`
	// Title is one line of stable wording: no counts, no times.
	Title string `json:"title"`
	// Detail is the arithmetic or the reasoning, with figures.
	Detail string `json:"detail"`
	// Affected lists all objects; readers cut, the report does not.
	Affected []Affected `json:"affected"`
	// SecondLook is true where one look proves nothing: no ticket before the
	// second run in a row.
	SecondLook bool `json:"-"`
	// CausedBy are fingerprints of the findings that explain this one.
	CausedBy    []string `json:"causedBy"`
	Remediation []Step   `json:"remediation"`
}

// Fingerprint identifies a problem for its whole life: check, cluster id and
// subject only, never counts, times or text. 20 hex digits.
func Fingerprint(check, clusterID string, s Subject) string {
	if s.Kind == KindCluster {
		// The id says which cluster it is, whatever it is called today.
		s.Name = ""
	}
	return shortHash("finding/v1", check, clusterID, s.Kind, s.Namespace, s.Name)
}

// TicketFingerprint identifies the ticket of one cluster and check. 20 hex digits.
func TicketFingerprint(check, clusterID string) string {
	return shortHash("ticket/v1", check, clusterID)
}

func shortHash(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		// The length in front keeps ("a","bc") and ("ab","c") apart.
		fmt.Fprintf(h, "%d:%s|", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil))[:20]
}
