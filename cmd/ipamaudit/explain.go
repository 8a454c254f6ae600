package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"ipamaudit/audit"
	"ipamaudit/audit/config"
	"ipamaudit/audit/explain"
	"ipamaudit/checks"
	"ipamaudit/ipam"
	"ipamaudit/report"
)

func (a *app) explainCommand() *cobra.Command {
	var in input
	var format string
	cmd := &cobra.Command{
		Use:   "explain SUBJECT",
		Short: "Tell everything known about one address, pod, node, block or pool",
		Long: `Tells everything known about one subject, in every chosen cluster that knows it:
for an address who has it, who it is booked for, and what becomes of a packet for
it on every node whose route table is known; likewise for a pod, node, block or pool.
What could not be seen is said; what would fix a problem is a command to copy.

SUBJECT is an address, namespace/pod, a block's or pool's CIDR, or the name of a
node, pool or pod where only one thing has it. In doubt: pod/NAMESPACE/NAME,
node/NAME, block/CIDR, pool/NAME.

Exit codes: 0 explained, whatever is wrong with it; 2 usage, or nothing is known
by that name; 3 a cluster, or something that the story needs, was not read.`,
		Example: `  ipamaudit explain 10.64.75.0 --context staging
  ipamaudit explain shop/web-0 --config fleet.yaml
  ipamaudit explain node/worker-7 --from snapshot.tar.gz
  ipamaudit explain 10.64.75.0/26 --from snapshot.tar.gz -o json`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 || args[0] == "":
				return usage("explain what? give an address, namespace/pod, node/NAME, a block's CIDR, or pool/NAME")
			case len(args) > 1:
				return usage("one subject at a time, not %d (%s)", len(args), strings.Join(args, " "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "text" && format != "json" {
				return usage("unknown format %q: want text or json", format)
			}
			if err := in.validate(); err != nil {
				return err
			}
			return a.explain(cmd.Context(), cmd, &in, args[0], format)
		},
	}
	in.flags(cmd)
	cmd.Flags().StringVarP(&format, "output", "o", "text", "text or json")
	return cmd
}

func (a *app) explain(ctx context.Context, cmd *cobra.Command, in *input, asked, format string) error {
	c, warnings, err := a.loadConfig(in.configFile, cmd)
	if err != nil {
		return err
	}
	a.warn(warnings)
	// Every check's resources: a story has parts that no enabled check asks for.
	targets, subset, err := in.targets(a, c, wantedResources(func(string) bool { return true }))
	if err != nil {
		return err
	}
	w := newWitnesses(asked)
	for i := range targets {
		targets[i].Source = w.listen(targets[i].Name, targets[i].Source)
	}
	ctx, cancel := context.WithTimeout(ctx, c.Run.Timeout)
	defer cancel()
	progress := newProgress(a.err, a.logger(c.Log, true), false)
	rep, _, err := audit.Run(ctx, audit.Options{
		Version: buildVersion(), Concurrency: c.Run.Concurrency, Now: a.now, Checks: checks.All(), Subset: subset,
		RequireRoutes: c.Run.RequireRoutes, Suppress: newSuppressor(c.Suppressions, a.now()), Progress: progress.event,
	}, targets)
	progress.done()
	if err != nil {
		return usage("%w", err)
	}
	if err := inputErrors(rep, targets); err != nil {
		return err
	}
	w.confirm(ctx, rep)
	answer, err := w.answer(rep)
	if err != nil {
		return err
	}
	if len(answer.Stories) > 0 {
		if err := a.writeAnswer(answer, in, format); err != nil {
			return &exitError{audit.ExitUsage, fmt.Errorf("write the answer: %w", err)}
		}
	}
	return w.verdict(answer)
}

func (a *app) writeAnswer(answer *explain.Answer, in *input, format string) error {
	if format == "json" {
		return report.WriteAnswerJSON(a.out, answer)
	}
	var opts report.Options
	if f, ok := a.out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		opts.Color = a.getenv("NO_COLOR") == ""
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			opts.Width = w
		}
	}
	return report.WriteAnswer(a.out, answer, in.again("ipamaudit explain"), opts)
}

// again is the command with the flags that chose the clusters.
func (in *input) again(command string) string {
	add := func(flag, value string) {
		if value != "" {
			command += " " + flag + " " + checks.Quote(value)
		}
	}
	add("--config", in.configFile)
	add("--kubeconfig", in.kubeconfig)
	for _, c := range in.contexts {
		add("--context", c)
	}
	if in.allContexts {
		command += " --all-contexts"
	}
	for _, f := range in.from {
		add("--from", f)
	}
	add("--as-of", in.asOfText)
	return command
}

// witness is what one cluster knows of the subject.
type witness struct {
	// snapshot is kept only where the cluster knows the subject: of a fleet most
	// do not. first is the first look's, where there was a second.
	snapshot, first *ipam.Snapshot
	meant           []checks.Subject
	// near are names like the one that was asked for; unread what may hide it.
	near   []string
	unread []string
	// note is about what a second look has shown; moving says that the subject
	// itself may have been in motion.
	note   string
	moving bool
}

// witnesses listen to the clusters' snapshots on their way to the checks.
type witnesses struct {
	asked string
	mu    sync.Mutex
	by    map[string]witness
	again map[string]audit.Rechecker
}

func newWitnesses(asked string) *witnesses {
	return &witnesses{asked: asked, by: map[string]witness{}, again: map[string]audit.Rechecker{}}
}

// listen wraps a source; one that can look again still can.
func (w *witnesses) listen(name string, src audit.Source) audit.Source {
	heard := &witnessed{Source: src, hear: func(s *ipam.Snapshot, again bool) { w.hear(name, s, again) }}
	if r, ok := src.(audit.Rechecker); ok {
		w.again[name] = r
		return &witnessedAgain{heard, r}
	}
	return heard
}

// witnessed is a source whose snapshot is heard.
type witnessed struct {
	audit.Source
	hear func(s *ipam.Snapshot, again bool)
}

// Collect implements audit.Source.
func (s *witnessed) Collect(ctx context.Context) (*ipam.Snapshot, error) {
	snap, err := s.Source.Collect(ctx)
	if err == nil && snap != nil {
		s.hear(snap, false)
	}
	return snap, err
}

// witnessedAgain is one that can look again.
type witnessedAgain struct {
	*witnessed
	rechecker audit.Rechecker
}

// Again implements audit.Rechecker.
func (s *witnessedAgain) Again(ctx context.Context, first *ipam.Snapshot, resources []ipam.Resource) (*ipam.Snapshot, error) {
	snap, err := s.rechecker.Again(ctx, first, resources)
	if err == nil && snap != nil && snap != first {
		s.hear(snap, true)
	}
	return snap, err
}

// hear notes what a snapshot knows. The second look leaves out what has
// changed since the first: where the subject is still in it, it is the better
// witness; where it is not, the first one speaks with a caution.
func (w *witnesses) hear(name string, s *ipam.Snapshot, again bool) {
	one := witness{meant: explain.Resolve(s, w.asked)}
	if len(one.meant) > 0 {
		one.snapshot = s
	} else {
		one.near = nearest(w.asked, explain.Names(s, w.asked))
		for _, r := range explain.Needed() {
			if !s.Coverage.Read(r) {
				one.unread = append(one.unread, string(r))
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.by[name]
	if again && (!slices.Equal(before.meant, one.meant) || !atRest(cmp.Or(before.first, before.snapshot), s, one.meant)) {
		before.note, before.moving = "it changed while the cluster was being read: ask again", true
		w.by[name] = before
		return
	}
	if again {
		one.first = cmp.Or(before.first, before.snapshot)
		one.note = "objects that changed while the cluster was being read are left out"
	}
	w.by[name] = one
}

// atRest reports whether the second look has left alone who an address is
// booked for and who has it: an address is there whatever becomes of it.
func atRest(first, second *ipam.Snapshot, meant []checks.Subject) bool {
	for _, m := range meant {
		ip, err := netip.ParseAddr(m.Name)
		if m.Kind != checks.KindIP || err != nil || first == nil {
			continue
		}
		_, booked := first.AllocationOf(ip)
		_, still := second.AllocationOf(ip)
		if booked != still || len(first.PodsAt(ip)) != len(second.PodsAt(ip)) {
			return false
		}
	}
	return true
}

// confirm looks again at everything that moves where a story tells of a
// problem. The checks have done so only for what they found, and a story says
// more: a pod that came or went between two lists would be one.
func (w *witnesses) confirm(ctx context.Context, rep *audit.Report) {
	for i := range rep.Clusters {
		c := &rep.Clusters[i]
		one, source := w.by[c.Name], w.again[c.Name]
		if source == nil || len(one.meant) != 1 || explain.Explain(explainInput(one, c), one.meant[0]).Verdict.Status != explain.Problem {
			continue
		}
		first := cmp.Or(one.first, one.snapshot)
		resources := slices.DeleteFunc(ipam.MovingResources(), func(r ipam.Resource) bool { return !first.Coverage.Read(r) })
		settled, err := source.Again(ctx, first, resources)
		switch {
		case err != nil:
			one.moving = true
			one.note = fmt.Sprintf("what was in motion while the cluster was being read: it could not be read again (%v)", err)
			w.by[c.Name] = one
		case settled != first:
			w.hear(c.Name, settled, true)
		}
	}
}

// answer tells the stories, cluster by cluster.
func (w *witnesses) answer(rep *audit.Report) (*explain.Answer, error) {
	out := &explain.Answer{Schema: explain.Schema, Asked: w.asked, Stories: []explain.Story{}, Silent: []explain.Silence{}}
	var ambiguous []string
	for i := range rep.Clusters {
		c := &rep.Clusters[i]
		one := w.by[c.Name]
		switch {
		case c.Status == audit.Failed:
			out.Silent = append(out.Silent, explain.Silence{Cluster: c.Name, Failed: true, Why: c.Error})
		case len(one.meant) == 0:
			why := "not known here"
			if len(one.unread) > 0 {
				why += ", but not read: " + strings.Join(one.unread, ", ")
			}
			out.Silent = append(out.Silent, explain.Silence{Cluster: c.Name, Why: why})
		case len(one.meant) > 1:
			args := make([]string, 0, len(one.meant))
			for _, m := range one.meant {
				args = append(args, explain.Argument(m))
			}
			ambiguous = append(ambiguous, fmt.Sprintf("%s in %s", firstOf(args, 8), c.Name))
		default:
			out.Stories = append(out.Stories, explain.Explain(explainInput(one, c), one.meant[0]))
		}
	}
	if len(ambiguous) > 0 {
		return nil, usage("%q can be %s: say which", w.asked, strings.Join(ambiguous, "; "))
	}
	return out, nil
}

// explainInput is the snapshot with what the checks said about it.
func explainInput(one witness, c *audit.ClusterReport) explain.Input {
	in := explain.Input{Snapshot: one.snapshot, Note: one.note, Moving: one.moving}
	for i := range c.Findings {
		f := explain.Finding{Fingerprint: c.Findings[i].Fingerprint, Finding: c.Findings[i].Finding}
		if sup := c.Findings[i].Suppressed; sup != nil {
			f.Accepted = sup.Reason
		}
		in.Findings = append(in.Findings, f)
	}
	for _, k := range c.Checks {
		if k.Status == checks.StatusUnknown {
			in.Gaps = append(in.Gaps, explain.Gap{Check: k.ID, Reason: k.Reason})
		}
	}
	return in
}

// verdict is the exit code: nil where everything that was asked for was told.
func (w *witnesses) verdict(answer *explain.Answer) error {
	var failed, unread, near, read []string
	for _, s := range answer.Silent {
		if s.Failed {
			failed = append(failed, s.Cluster)
			continue
		}
		read = append(read, s.Cluster)
		one := w.by[s.Cluster]
		if len(one.unread) > 0 {
			unread = append(unread, s.Cluster+" ("+strings.Join(one.unread, ", ")+")")
		}
		for _, n := range one.near {
			if !slices.Contains(near, n) {
				near = append(near, n)
			}
		}
	}
	if len(answer.Stories) == 0 {
		text := fmt.Sprintf("%q is not known in %s", w.asked, firstOf(read, 8))
		switch {
		case len(failed) > 0 && len(read) == 0:
			return &exitError{audit.ExitIncomplete, fmt.Errorf("%s could not be read: %s", firstOf(failed, 8), answer.Silent[0].Why)}
		case len(failed) > 0:
			return &exitError{audit.ExitIncomplete, fmt.Errorf("%s, and %s could not be read", text, firstOf(failed, 8))}
		case len(unread) > 0:
			return &exitError{audit.ExitIncomplete, fmt.Errorf("%s, but not everything was read: %s", text, firstOf(unread, 8))}
		case len(near) > 0:
			return usage("%s; there is %s", text, firstOf(near, 8))
		}
		return usage("%s", text)
	}
	for i := range answer.Stories {
		if s := &answer.Stories[i]; s.Incomplete {
			unread = append(unread, s.Cluster)
		}
	}
	switch {
	case len(failed) > 0:
		return &exitError{audit.ExitIncomplete, fmt.Errorf("%s could not be read and may know %q, too", firstOf(failed, 8), w.asked)}
	case len(unread) > 0:
		return &exitError{audit.ExitIncomplete, errors.New("part of the story is missing: not everything was read in " + firstOf(unread, 8))}
	}
	return nil
}

func firstOf(list []string, limit int) string {
	if len(list) <= limit {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:limit], ", "), len(list)-limit)
}

// nearest are the names that contain what was asked for, else the one that is
// spelled most like it, else, where there are few, all.
func nearest(asked string, all []string) []string {
	_, bare, typed := strings.Cut(asked, "/")
	if !typed {
		bare = asked
	}
	var out []string
	for _, n := range all {
		if bare != "" && strings.Contains(strings.ToLower(n), strings.ToLower(bare)) {
			out = append(out, n)
		}
	}
	if len(out) > 0 {
		return out
	}
	plain := map[string]string{}
	words := make([]string, 0, len(all))
	for _, n := range all {
		word := n[strings.LastIndexByte(n, '/')+1:]
		words = append(words, word)
		plain[word] = n
	}
	if near := config.Nearest(bare[strings.LastIndexByte(bare, '/')+1:], words); near != "" {
		return []string{plain[near]}
	}
	if len(all) <= 8 {
		return all
	}
	return nil
}
