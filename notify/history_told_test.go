package notify_test

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"ipamaudit/audit"
	"ipamaudit/checks"
	fakeslack "ipamaudit/notify/fake/slack"
)

// channelBook is the witness of a channel: whatever changed since the last
// digest that it got is in the next one, and that comes as soon as it can.
type channelBook struct {
	told, now view
	unknown   map[findingKey]bool // the last run could not look
	texts     map[string]string   // digests by their ts
	runs      []string            // ids of the runs of this event
	final     map[string]bool     // runs whose digest came by a webhook
	// replaced: what stands in the channel may be what the next run has to say.
	replaced bool
}

// view is what somebody believes of the fleet: what is there, and how bad.
type view map[findingKey]checks.Severity

type findingKey struct {
	problemKey
	subject string
}

func newChannelBook() *channelBook {
	return &channelBook{told: view{}, now: view{}, unknown: map[findingKey]bool{}, texts: map[string]string{}, final: map[string]bool{}}
}

// sees returns what notes what a run sees, life of the findings included. It is
// called when the run has saved it: what a process takes with it when it dies
// before that, nobody knows.
func (c *channelBook) sees(u *universe, r *audit.Report) (saved func()) {
	c.runs = append(c.runs, r.Run.ID)
	there, looked, unknown := view{}, map[problemKey]bool{}, map[findingKey]bool{}
	for _, cl := range r.Clusters {
		for _, k := range cl.Checks {
			looked[problemKey{cl.Name, k.ID}] = k.Status == checks.StatusOK || k.Status == checks.StatusFindings
		}
		for _, f := range cl.Findings {
			k := findingKey{problemKey{cl.Name, f.Check}, f.Subject.String()}
			switch f.State {
			case audit.StateResolved:
			case audit.StateUnknown:
				unknown[k] = true
			default:
				there[k] = f.Severity
			}
		}
	}
	return func() {
		c.unknown = unknown
		for k := range c.now {
			if _, is := there[k]; is || !looked[k.problemKey] {
				continue
			}
			delete(c.now, k)
			if u.hushed[k.problemKey] {
				delete(c.told, k) // gone while nobody wanted to hear of it
			}
		}
		maps.Copy(c.now, there)
	}
}

// stateIs goes back to what a state knows that people have put into the place of
// the last one: the tool has nothing else to go by.
func (c *channelBook) stateIs(told, now view) {
	c.told, c.now = maps.Clone(told), maps.Clone(now)
	c.replaced = true
}

const notLookedAt = "Known, and not looked at by this run"

var (
	newsTitle = regexp.MustCompile(`^(?::[a-z_]+: )?\*(New|Worse|Better|Resolved|` + notLookedAt + `|Not audited|Ongoing|Fullest pools|Notes|Audited with gaps)\*`)
	newsLine  = regexp.MustCompile("^• (?:\\*[a-z]+\\* )?(?:<[^>]*> )?`(prod-[0-9])` ?([a-z-]*)")
)

var webhookTitle = regexp.MustCompile(`"text":"Calico IPAM audit · ([0-9-]{10})"`)

// sections are those of a digest in which a cluster's check is named.
type sections map[string]map[problemKey]bool

func (s sections) name(k problemKey, in ...string) bool {
	for _, section := range in {
		if s[section][k] {
			return true
		}
	}
	return false
}

func (s sections) read(blocks json.RawMessage) {
	var all []struct {
		Text json.RawMessage `json:"text"`
	}
	if err := json.Unmarshal(blocks, &all); err != nil {
		panic(err)
	}
	section := ""
	for _, b := range all {
		var t struct {
			Text string `json:"text"`
		}
		if b.Text == nil || json.Unmarshal(b.Text, &t) != nil {
			continue
		}
		for line := range strings.SplitSeq(t.Text, "\n") {
			if m := newsTitle.FindStringSubmatch(line); m != nil {
				section = m[1]
			} else if m := newsLine.FindStringSubmatch(line); m != nil {
				k := problemKey{m[1], m[2]}
				if section == "Not audited" {
					k.check = "cluster-access"
				}
				if s[section] == nil {
					s[section] = map[problemKey]bool{}
				}
				s[section][k] = true
			}
		}
	}
}

// origin is the run and the part that a message of the tool is; one that came
// through a webhook has no more than its title.
func origin(m fakeslack.Message) (run, part string) {
	if m.Webhook {
		title := webhookTitle.FindSubmatch(m.Blocks)
		return string(title[1]), "digest"
	}
	var meta struct {
		Payload struct {
			RunID string `json:"run_id"`
			Part  string `json:"part"`
		} `json:"event_payload"`
	}
	if err := json.Unmarshal(m.Metadata, &meta); err != nil {
		panic(err)
	}
	return meta.Payload.RunID, meta.Payload.Part
}

// arrived reads the digests of this event's runs, and reports whether one came or
// changed in it. final: one came, perhaps earlier, that nobody can change.
func (c *channelBook) arrived(u *universe) (got sections, news, final bool) {
	got = sections{}
	for _, m := range u.slack.Messages(channel) {
		if m.BotID == "" {
			continue
		}
		run, part := origin(m)
		if strings.TrimSuffix(part, "/again") != "digest" || !slices.Contains(c.runs, run) {
			continue
		}
		c.final[run] = m.Webhook
		text := string(m.Blocks)
		if changed := c.texts[m.TS] != text; changed || c.replaced {
			news = news || changed
			got.read(m.Blocks)
		}
		c.texts[m.TS] = text
	}
	for _, run := range c.runs {
		final = final || c.final[run]
	}
	c.runs = nil
	return got, news, final
}

// channelTold holds the rule after a run. wentWell: nothing stood in its way.
func (b *book) channelTold(u *universe, wentWell bool) {
	c := b.channel
	got, arrived, final := c.arrived(u)
	wentWell = wentWell && !final // one digest a run: a later night's tells
	for k, severity := range c.now {
		before, told := c.told[k]
		switch {
		case told && before == severity, u.hushed[k.problemKey]:
		case !checks.Worst(severity, before).AtLeast(checks.Medium),
			got.name(k.problemKey, "New", "Worse", "Better", "Not audited"), c.unknown[k] && got.name(k.problemKey, notLookedAt):
			c.told[k] = severity
		case arrived:
			b.violate("news lost", "the digest does not tell that %v is %s; the last one told %q", k, severity, before)
		case wentWell:
			b.violate("news withheld", "no digest tells that %v is %s; the last one told %q", k, severity, before)
		}
	}
	for k, severity := range c.told {
		_, there := c.now[k]
		switch {
		case there:
		case c.unknown[k] && got.name(k.problemKey, notLookedAt): // the same run once more, which could not look any more
		case !severity.AtLeast(checks.Medium), got.name(k.problemKey, "Resolved"):
			delete(c.told, k)
		case arrived:
			b.violate("news lost", "the digest does not tell that %v is gone", k)
		case wentWell:
			b.violate("news withheld", "no digest tells that %v is gone", k)
		}
	}
	c.replaced = c.replaced && !arrived && !wentWell
}
