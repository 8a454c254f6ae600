package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"ipamaudit/audit"
	"ipamaudit/audit/config"
	"ipamaudit/checks"
	"ipamaudit/report"
)

// runOptions are the flags of run and what complete makes of them.
type runOptions struct {
	input
	only, skip        []string
	outputs           []string
	notify, dryRun    bool
	adopt             bool
	saveState         bool
	runID             string
	quiet, details    bool
	failOn            string
	logFormat, logLvl string
	requireRoutes     bool

	config   *config.Config
	warnings []config.Warning
	specs    []report.Spec
	log      *slog.Logger
}

func (a *app) runCommand() *cobra.Command {
	o := &runOptions{}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Audit the clusters, report, and with --notify file tickets and post digests",
		Long: `Collects every cluster, runs the checks, compares with the last run and reports.
Nothing leaves the program without --notify.

Exit codes: 0 audited, nothing at or above --fail-on; 1 findings at or above it;
2 usage or configuration error, no input; 3 audit incomplete: a cluster failed or
something that an enabled check requires was not read; 4 a notification failed.
When several apply the order is 2, 3, 4, 1.`,
		Example: `  ipamaudit run --context staging
  ipamaudit run --config fleet.yaml --notify
  ipamaudit run --from snapshot.tar.gz -o json=report.json -o table
  ipamaudit run --config fleet.yaml --notify --dry-run`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.complete(a, cmd); err != nil {
				return err
			}
			return o.run(cmd.Context(), a)
		},
	}
	f := cmd.Flags()
	o.flags(cmd)
	f.StringArrayVar(&o.only, "check", nil, "run only this check (`ID`, repeatable)")
	f.StringArrayVar(&o.skip, "skip", nil, "leave this check out (`ID`, repeatable)")
	f.StringArrayVarP(&o.outputs, "output", "o", nil, "`FORMAT[=FILE]`, repeatable: "+strings.Join(report.Formats(), ", ")+"; one at most without a file (default table)")
	f.BoolVar(&o.notify, "notify", false, "file tickets and post digests")
	f.BoolVar(&o.dryRun, "dry-run", false, "with --notify: print every ticket and message instead of sending it")
	f.BoolVar(&o.adopt, "adopt", false, "with --notify, in a first run: one ticket per project for all that is there, instead of one for each problem")
	f.BoolVar(&o.saveState, "save-state", false, "remember this run for the next one (implied by --notify)")
	f.StringVar(&o.runID, "run-id", "", "`ID` of the run: the same id updates the same digest (default the UTC date)")
	f.StringVar(&o.failOn, "fail-on", "high", "lowest severity that makes the exit code 1: none, low, medium, high, critical")
	f.BoolVar(&o.requireRoutes, "require-routes", false, "without route tables the audit is incomplete (exit code 3)")
	f.BoolVar(&o.quiet, "quiet", false, "no progress and no information on stderr, only warnings and the last line")
	f.BoolVar(&o.details, "details", false, "table: every remediation step, and healthy clusters in full")
	f.StringVar(&o.logFormat, "log-format", "text", "text or json")
	f.StringVar(&o.logLvl, "log-level", "info", "debug, info, warn or error")
	for _, name := range []string{"check", "skip"} {
		_ = cmd.RegisterFlagCompletionFunc(name, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return checkIDs(), cobra.ShellCompDirectiveNoFileComp
		})
	}
	return cmd
}

// complete turns flags and configuration into what run needs; everything that
// is wrong with them is said before anything is contacted.
func (o *runOptions) complete(a *app, cmd *cobra.Command) error {
	var err error
	if o.config, o.warnings, err = a.loadConfig(o.configFile, cmd); err != nil {
		return err
	}
	o.log = a.logger(o.config.Log, o.quiet)
	for _, w := range o.warnings {
		o.log.Warn("configuration", "warning", w.String())
	}
	for _, id := range slices.Concat(o.only, o.skip) {
		if _, ok := checks.Find(id); !ok {
			return usage("no check is called %q%s", id, suggest(id, checkIDs()))
		}
	}
	if !slices.ContainsFunc(checkIDs(), o.selected) {
		// A run that looks at nothing would say that it found nothing.
		return usage("no check is left to run: --check, --skip and the configuration leave out all of them")
	}
	if o.dryRun && !o.notify {
		return usage("--dry-run shows what --notify would do: give both")
	}
	if o.notify && !o.config.Jira.Enabled && !o.config.Slack.Enabled {
		o.log.Warn("--notify tells nobody: neither jira.enabled nor slack.enabled is set")
	}
	if o.adopt && !o.notify {
		return usage("--adopt files tickets: give it with --notify")
	}
	if o.specs, err = o.reportSpecs(); err != nil {
		return usage("%w", err)
	}
	if o.runID == "" {
		o.runID = a.now().UTC().Format(time.DateOnly)
	}
	return o.validate()
}

func (o *runOptions) reportSpecs() ([]report.Spec, error) {
	var specs []report.Spec
	for _, arg := range o.outputs {
		s, err := report.ParseSpec(arg)
		if err != nil {
			return nil, err
		}
		specs = append(specs, s)
	}
	if len(specs) == 0 {
		for _, out := range o.config.Report.Outputs {
			specs = append(specs, report.Spec{Format: out.Format, Path: out.File})
		}
	}
	if len(specs) == 0 {
		specs = []report.Spec{{Format: report.Table}}
	}
	return specs, report.CheckSpecs(specs)
}

func (o *runOptions) run(ctx context.Context, a *app) error {
	targets, subset, err := o.targets(a, o.config, wantedResources(o.selected))
	if err != nil {
		return err
	}
	// It is for the clusters: when it is over, there is somebody to tell.
	auditing, cancel := context.WithTimeout(ctx, o.config.Run.Timeout)
	defer cancel()

	memory, err := o.openState(auditing, a)
	if err != nil {
		return err
	}
	defer memory.close()

	progress := newProgress(a.err, o.log, o.quiet)
	rep, next, err := audit.Run(auditing, audit.Options{
		RunID: o.runID, Version: buildVersion(), Concurrency: o.config.Run.Concurrency, Now: a.now,
		Checks: checks.All(), Only: set(o.only), Skip: set(o.skip), Subset: subset,
		RequireRoutes: o.config.Run.RequireRoutes,
		Suppress:      newSuppressor(o.config.Suppressions, a.now()),
		Previous:      memory.state, Progress: progress.event,
	}, targets)
	progress.done()
	if err != nil {
		var duplicate *audit.DuplicateError
		if errors.As(err, &duplicate) {
			return usage("%w", err)
		}
		return err
	}
	if err := inputErrors(rep, targets); err != nil {
		return err
	}
	for _, n := range rep.Said() {
		o.log.Warn("notice", "text", n)
	}

	// Reports first: whatever happens to tickets and messages, the night's work is on disk.
	writeErr := o.write(a, rep)
	notifyErr := o.finish(ctx, a, rep, next, memory)
	if writeErr != nil {
		return &exitError{audit.ExitUsage, writeErr}
	}
	var own *exitError
	if errors.As(notifyErr, &own) {
		return own
	}
	failOn, _ := checks.ParseSeverity(o.config.Run.FailOn)
	code, why := rep.ExitCode(failOn, notifyErr != nil)
	if notifyErr != nil {
		o.log.Error("notification failed", "error", notifyErr)
	}
	if code != audit.ExitOK {
		return &exitError{code, errors.New(why)}
	}
	a.lastLine(code, why)
	return nil
}

// selected reports whether this run looks at the check anywhere.
func (o *runOptions) selected(id string) bool {
	return o.config.CheckEnabled(id) && (len(o.only) == 0 || slices.Contains(o.only, id)) && !slices.Contains(o.skip, id)
}

func set(ids []string) map[string]bool {
	m := make(map[string]bool, len(ids))
	for _, id := range ids {
		m[id] = true
	}
	return m
}

// write writes every report; the table is made for the terminal it goes to.
func (o *runOptions) write(a *app, rep *audit.Report) error {
	opts := report.Options{Details: o.details, Width: 100}
	if f, ok := a.out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		opts.Color = a.getenv("NO_COLOR") == ""
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 0 {
			opts.Width = w
		}
	}
	return report.WriteFiles(o.specs, rep, a.out, opts)
}

// logger writes to stderr, and nowhere else. Libraries that log for themselves
// do so in the same way from then on.
func (a *app) logger(c config.Log, quiet bool) *slog.Logger {
	h := a.logHandler(c, quiet)
	libraryLog().follow(h)
	return slog.New(h)
}

func (a *app) logHandler(c config.Log, quiet bool) slog.Handler {
	var level slog.Level
	_ = level.UnmarshalText([]byte(c.Level))
	if quiet {
		level = max(level, slog.LevelWarn)
	}
	opts := &slog.HandlerOptions{Level: level}
	if c.Format == "json" {
		return slog.NewJSONHandler(a.err, opts)
	}
	return newTextHandler(a.err, opts)
}

// newTextHandler is slog's text handler without the time: CronJob logs have
// their own, and a terminal needs none.
func newTextHandler(w io.Writer, opts *slog.HandlerOptions) slog.Handler {
	opts.ReplaceAttr = func(groups []string, attr slog.Attr) slog.Attr {
		if len(groups) == 0 && attr.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return attr
	}
	return slog.NewTextHandler(w, opts)
}

// inputErrors turns saved snapshots that could not be read into a usage error:
// with --from nothing was contacted, so nothing can have failed but the input.
func inputErrors(rep *audit.Report, targets []audit.Target) error {
	saved := map[string]bool{}
	for _, t := range targets {
		if t.Saved != "" {
			saved[t.Name] = true
		}
	}
	var failed []string
	for i := range rep.Clusters {
		if c := &rep.Clusters[i]; c.Status == audit.Failed && saved[c.Name] {
			failed = append(failed, c.Error)
		}
	}
	if len(failed) == 0 || len(failed) < len(targets) {
		return nil
	}
	return usage("%s", strings.Join(failed, "\n"))
}
