package checks

import (
	"fmt"
	"regexp"
	"strings"
)

// crdGroup is the group of the commands on the pages; Calico v3.32 and later
// may have its objects in projectcalico.org instead.
const crdGroup = "crd.projectcalico.org"

// Related is another check that looks alike, or that explains this one.
type Related struct {
	ID string
	// Question tells the two apart: yes leads to the other.
	Question string
}

// onCallText is the top of a page, for somebody who has a symptom and no time:
// what to run, what it prints where it is this, and where else to look. What to
// do follows at once.
func (c Check) onCallText() string {
	var b strings.Builder
	b.WriteString("These commands change nothing")
	if strings.Contains(c.look(), "."+crdGroup) {
		b.WriteString("; where the server doesn't have such a resource type, leave out `crd.`")
		if strings.Contains(c.look(), "ipamconfigs."+crdGroup) {
			b.WriteString(", and write `ipamconfigurations` for `ipamconfigs`")
		}
	}
	b.WriteString(":\n\n```bash\n" + c.look() + "\n```\n\n" + c.Sign + "\n\n**Not this?**\n\n")
	for _, r := range c.Related {
		fmt.Fprintf(&b, "- %s `%s`\n", r.Question, r.ID)
	}
	return b.String()
}

// look are commands that only read, one a line.
func (c Check) look() string {
	if c.Look != "" {
		return c.Look
	}
	return strings.Join(c.Example()[0].Commands, "\n")
}

// seenAs lists the symptoms that lead to the check.
func (c Check) seenAs() string {
	var seen []string
	for _, s := range Symptoms() {
		if s.Check == c.ID && s.Where != looksOdd {
			seen = append(seen, s.text())
		}
	}
	return strings.Join(seen, " · ")
}

// healthyText lists what looks like the check's findings and is none, empty
// where there is nothing of the kind.
func (c Check) healthyText() string {
	var b strings.Builder
	for _, s := range Symptoms() {
		if s.Check == c.ID && s.Where == looksOdd {
			// Links of docs/symptoms.md, from where this page is.
			fmt.Fprintf(&b, "\n- %s: %s.", s.text(), strings.ReplaceAll(s.Means, "](checks/", "]("))
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return "\n\n**Odd, but healthy:**\n" + b.String()
}

// codeIDs puts the ids of checks in a text into backticks, so that they become
// links; not those of a command.
func codeIDs(text string) string {
	if strings.Contains(text, "--check ") {
		return text
	}
	var ids []string
	for _, c := range All() {
		ids = append(ids, c.ID)
	}
	id := regexp.MustCompile("(^|[^-`\\w])(" + strings.Join(ids, "|") + ")($|[^-`\\w])")
	return id.ReplaceAllString(text, "$1`$2`$3")
}

// linkChecks makes a link of every id of a check in backticks, except the page's own.
func linkChecks(page, own string) string {
	for _, c := range All() {
		if code := "`" + c.ID + "`"; c.ID != own {
			page = strings.ReplaceAll(page, code, "["+code+"]("+c.ID+".md)")
		}
	}
	return page
}
