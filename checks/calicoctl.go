package checks

import (
	"fmt"
	"slices"
	"strings"

	"ipamaudit/ipam"
)

// calicoctlCommands are the commands of calicoctl that a remediation may use,
// with the release that brought them and their flags. Nothing else is ever
// recommended: there are pages on the web whose commands do not exist.
//
// Sources: calicoctl/calicoctl/commands/ipam/{check,release,show,configure}.go,
// commands/datastore/migrate/{lock,unlock}.go and commands/{create,get,patch}.go, commands/node/status.go
// of github.com/projectcalico/calico, and of projectcalico/calicoctl before v3.22.
var calicoctlCommands = map[string]toolCommand{
	"ipam check":               {since: v(3, 0), flags: map[string]release{"--show-all-ips": v(3, 0), "--show-problem-ips": v(3, 0), "-o": came(ipam.ReleaseFromReport)}},
	"ipam release":             {since: v(3, 0), flags: map[string]release{"--ip": v(3, 0), "--from-report": came(ipam.ReleaseFromReport), "--force": came(ipam.ReleaseFromReport)}},
	"ipam show":                {since: v(3, 0), flags: map[string]release{"--ip": v(3, 0), "--show-blocks": v(3, 0), "--show-borrowed": v(3, 0), "--show-configuration": v(3, 0)}},
	"ipam configure":           {since: came(ipam.ConfigureCommand), flags: map[string]release{"--strictaffinity": came(ipam.ConfigureCommand), "--max-blocks-per-host": came(ipam.BlockLimitFlag), "--ip-cooldown-seconds": v(3, 33)}},
	"datastore migrate lock":   {since: v(3, 0)},
	"datastore migrate unlock": {since: v(3, 0)},
	"create":                   {since: v(3, 0), flags: map[string]release{"-f": v(3, 0)}},
	"node status":              {since: v(3, 0)},
	"get":                      {since: v(3, 0), flags: map[string]release{"-o": v(3, 0)}, kinds: []string{"ippool", "ippools", "bgppeer", "bgppeers", "node", "nodes", "ipamconfig"}},
	"patch":                    {since: v(3, 0), flags: map[string]release{"-p": v(3, 0)}, kinds: []string{"bgppeer", "ippool"}},
}

type release struct{ major, minor int }

func v(major, minor int) release { return release{major, minor} }

func came(f ipam.Feature) release {
	major, minor := f.Since()
	return release{major, minor}
}

type toolCommand struct {
	since release
	flags map[string]release
	// kinds, unless empty, are the kinds that the first argument may be. calicoctl
	// knows no BlockAffinity and cannot delete a Node of the Kubernetes datastore.
	kinds []string
}

// CheckCalicoctl says what is wrong with a calicoctl command line for this
// version: a command, flag or kind that it does not know. An unknown version
// may know all of them.
func CheckCalicoctl(line string, version ipam.Version) error {
	words := strings.Fields(line)
	if len(words) < 2 || words[0] != "calicoctl" {
		return fmt.Errorf("no calicoctl command: %q", line)
	}
	words = words[1:]
	var cmd toolCommand
	name := ""
	for n := min(3, len(words)); n > 0 && name == ""; n-- {
		if c, ok := calicoctlCommands[strings.Join(words[:n], " ")]; ok {
			name, cmd, words = strings.Join(words[:n], " "), c, words[n:]
		}
	}
	if name == "" {
		return fmt.Errorf("calicoctl has no command %q", strings.Join(words[:min(3, len(words))], " "))
	}
	if version.Before(cmd.since.major, cmd.since.minor) {
		return fmt.Errorf("calicoctl %s came with v%d.%d, this is %s", name, cmd.since.major, cmd.since.minor, version)
	}
	reports, first := 0, true
	for _, w := range words {
		if strings.ContainsAny(w, "#|<>") {
			break // a comment, or the shell's business
		}
		flag, _, _ := strings.Cut(w, "=")
		switch {
		case strings.HasPrefix(w, "-") && w != "-":
			since, ok := cmd.flags[flag]
			if !ok {
				return fmt.Errorf("calicoctl %s has no flag %s", name, flag)
			}
			if version.Before(since.major, since.minor) {
				return fmt.Errorf("calicoctl %s has %s since v%d.%d, this is %s", name, flag, since.major, since.minor, version)
			}
			if flag == "--from-report" {
				reports++
			}
		case first && len(cmd.kinds) > 0:
			first = false
			if !slices.Contains(cmd.kinds, w) {
				return fmt.Errorf("calicoctl %s does not know %s", name, w)
			}
		}
	}
	if many := came(ipam.SeveralReports); reports > 1 && version.Before(many.major, many.minor) {
		return fmt.Errorf("calicoctl %s takes one report before v%d.%d", name, many.major, many.minor)
	}
	return nil
}
