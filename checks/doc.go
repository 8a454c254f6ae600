package checks

import (
	"fmt"
	"slices"
	"strings"

	"ipamaudit/ipam"
)

// Markdown is the check's page: what docs/checks/<id>.md holds and what
// `ipamaudit checks ID` prints.
func (c Check) Markdown() string {
	var b strings.Builder
	section := func(title, body string) {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", title, strings.TrimSpace(body))
	}
	fmt.Fprintf(&b, "# %s\n\n%s. One finding per %s.\n", c.ID, c.Title, subjectNoun(c.SubjectKind))
	section("Is it this?", c.onCallText())
	section("Remediation", c.remediationText())
	section("What", c.What+"\n\n**Seen as:** "+c.seenAs()+c.healthyText())
	section("Why it matters", c.Why+"\n\n**How bad:** "+upperFirst(c.SeverityNote))
	section("How it is detected", c.How+"\n\n"+c.needsText())
	section("Tune", c.tuneText())
	section("Suppress", "```yaml\nsuppressions:\n  - check: "+c.ID+"\n    cluster: \"prod-eu-*\"\n    subject: \""+c.SubjectKind+"/*\"\n    reason: why this is fine\n    owner: team-network\n    until: 2027-01-31\n```")
	refs := make([]string, len(c.References))
	for i, r := range c.References {
		refs[i] = "- " + r
	}
	section("Public reports and sources", strings.Join(refs, "\n"))
	return linkChecks(b.String(), c.ID)
}

func subjectNoun(kind string) string {
	switch kind {
	case KindPool:
		return "pool"
	case KindBlock:
		return "block"
	case KindIP:
		return "address"
	default:
		return strings.ToLower(kind)
	}
}

func (c Check) needsText() string {
	code := func(rs []ipam.Resource) string {
		out := make([]string, len(rs))
		for i, r := range rs {
			out[i] = "`" + string(r) + "`"
		}
		return strings.Join(out, ", ")
	}
	var parts []string
	if len(c.Needs) > 0 {
		parts = append(parts, "Cannot do without: "+code(c.Needs)+". If one was not read the check is `unknown`.")
	}
	if c.NeedsRoutes {
		parts = append(parts, "Looks at route tables; without any it is `unknown`.")
	}
	if len(c.Uses) > 0 {
		parts = append(parts, "Uses where it was read: "+code(c.Uses)+".")
	}
	if c.SecondLook != "" {
		parts = append(parts, "One look cannot prove "+c.SecondLook+": no ticket before the second run in a row that finds it. Others of its kind every night are a first look each time.")
	}
	return strings.Join(parts, " ")
}

func (c Check) remediationText() string {
	var b strings.Builder
	if c.Cases == nil {
		b.WriteString("In this order; a finding carries the same steps with the real names, for the Calico version that was read.\n")
		c.writeSteps(&b, c.Example())
		return b.String()
	}
	b.WriteString("**Only the steps under what you see**; a finding carries those that apply, with the real names, for the Calico version that was read.\n")
	cases := c.Cases()
	if len(cases) > 1 {
		b.WriteString("\n")
		for _, one := range cases {
			label, others, _ := strings.Cut(one.When, " · ")
			if others != "" {
				label += " …"
			}
			fmt.Fprintf(&b, "- [%s](#%s)", label, anchor(one.When))
			if one.See != "" {
				fmt.Fprintf(&b, ", see `%s`", one.See)
			}
			b.WriteString("\n")
		}
	}
	for _, one := range cases {
		fmt.Fprintf(&b, "\n### %s\n", one.When)
		c.writeSteps(&b, one.Steps)
	}
	return b.String()
}

// Case is a part of a check's example that applies to one thing that is seen.
type Case struct {
	// When is the heading, as Markdown.
	When string
	// See is the id of the check whose page says more; it may be empty.
	See   string
	Steps []Step
}

// writeSteps leaves out the commands that stand at the top of the page already.
func (c Check) writeSteps(b *strings.Builder, steps []Step) {
	look := strings.Split(c.look(), "\n")
	for i, s := range steps {
		fmt.Fprintf(b, "\n%d. **%s** (%s)", i+1, codeIDs(s.Title), s.Risk)
		cmds := slices.DeleteFunc(slices.Clone(s.Commands), func(cmd string) bool { return slices.Contains(look, cmd) })
		switch {
		case len(cmds) > 0:
			b.WriteString("\n\n   ```bash\n")
			for _, cmd := range s.Commands {
				for line := range strings.Lines(cmd + "\n") {
					b.WriteString("   " + line)
				}
			}
			b.WriteString("   ```\n")
		case len(s.Commands) > 0:
			b.WriteString(", with the commands at the top.\n")
		}
		fmt.Fprintf(b, "\n   Verify: %s\n", codeIDs(s.Verify))
	}
}

func (c Check) tuneText() string {
	if len(c.Params) == 0 {
		return "This check has no parameters. Switch it off with\n\n```yaml\nchecks:\n  - id: " + c.ID + "\n    enabled: false\n```"
	}
	var b strings.Builder
	b.WriteString("| parameter | default | meaning |\n| --- | --- | --- |\n")
	for _, p := range c.Params {
		fmt.Fprintf(&b, "| `%s` | `%v` | %s |\n", p.Name, p.Default, p.Doc)
	}
	fmt.Fprintf(&b, "\n```yaml\nchecks:\n  - id: %s\n    params:\n      %s: %v\n```\n\nThe same under `clusters[].checks` holds for one cluster only.", c.ID, c.Params[0].Name, c.Params[0].Default)
	return b.String()
}

// Index is docs/checks/README.md: every check in one table.
func Index() string {
	var b strings.Builder
	b.WriteString(`# The checks

` + "`ipamaudit checks`" + ` prints this list, ` + "`ipamaudit checks ID`" + ` one page. The pages are generated from the checks themselves (` + "`make generate`" + `).

Severities: **critical** traffic of a running pod is lost, or a live address may be given out twice, or a node in use can start no pod; **high** the next pod or node here fails; **medium** waste or risk with room left; **low** hygiene, in the report only.

| check | finds | one finding per |
| --- | --- | --- |
`)
	for _, c := range All() {
		fmt.Fprintf(&b, "| [%s](%s.md) | %s | %s |\n", c.ID, c.ID, c.Title, subjectNoun(c.SubjectKind))
	}
	return b.String()
}
