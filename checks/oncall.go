package checks

import (
	"fmt"
	"strings"
)

// Related is another check that looks alike, or that explains this one.
type Related struct {
	ID string
	// Question tells the two apart: yes leads to the other.
	Question string
}

// onCallText is the top of a page, for somebody who has a symptom and no time:
// what it looks like, how bad it is, the first look, and where else to look.
func (c Check) onCallText() string {
	var b strings.Builder
	var seen []string
	for _, s := range Symptoms() {
		if s.Check == c.ID {
			seen = append(seen, s.text())
		}
	}
	fmt.Fprintf(&b, "- **Seen as:** %s\n- **How bad:** %s\n- **First look** (changes nothing):\n\n  ```bash\n", strings.Join(seen, " · "), upperFirst(c.SeverityNote))
	for line := range strings.Lines(c.firstLook() + "\n") {
		b.WriteString("  " + line)
	}
	b.WriteString("  ```\n\n- **Not this?**\n")
	for _, r := range c.Related {
		fmt.Fprintf(&b, "  - %s `%s`\n", r.Question, r.ID)
	}
	return b.String()
}

// firstLook is a command that only reads.
func (c Check) firstLook() string {
	if c.Look != "" {
		return c.Look
	}
	return c.Example()[0].Commands[0]
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
