// Command ipamaudit audits Calico IPAM over a fleet of Kubernetes clusters.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"ipamaudit/audit"
	"ipamaudit/audit/config"
)

// version is set by the Makefile through the linker.
var version = ""

func main() { os.Exit(Main()) }

// Main runs the program as the process that it is in, and returns the exit code.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The second signal kills: a run that hangs in a signal handler helps nobody.
	context.AfterFunc(ctx, stop)
	if os.Getenv("GOGC") == "" {
		// Snapshots live long and are large: the heap may grow by a third, not
		// twofold, before garbage is collected (docs/performance.md).
		debug.SetGCPercent(30)
	}
	a := &app{
		in: os.Stdin, out: os.Stdout, err: os.Stderr,
		env: os.Environ(), now: time.Now,
	}
	return a.run(ctx, os.Args[1:])
}

// app is the program's surroundings: everything a verb may touch.
type app struct {
	in       io.Reader
	out, err io.Writer
	env      []string
	now      func() time.Time
	// json says that logs are JSON: the last line follows them.
	json bool
}

// exitError carries an exit code and the sentence that explains it.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// usage marks an error as the caller's: exit code 2.
func usage(format string, args ...any) error {
	return &exitError{audit.ExitUsage, fmt.Errorf(format, args...)}
}

// run executes the command line and returns the exit code. Its last line on
// stderr says why the code is what it is.
func (a *app) run(ctx context.Context, args []string) int {
	a.json = a.wantsJSON(args)
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return audit.ExitOK
	}
	var exit *exitError
	if !errors.As(err, &exit) {
		// What cobra itself refuses is usage: unknown verbs, flags and arguments.
		exit = &exitError{audit.ExitUsage, err}
	}
	a.lastLine(exit.code, exit.err.Error())
	return exit.code
}

// wantsJSON guesses the format of the logs from the flag or the environment:
// the last line is also owed when flags or configuration cannot be read.
func (a *app) wantsJSON(args []string) bool {
	const flag = "--log-format"
	for i, arg := range args {
		if value, ok := strings.CutPrefix(arg, flag+"="); ok {
			return value == "json"
		}
		if arg == flag && i+1 < len(args) {
			return args[i+1] == "json"
		}
	}
	return a.getenv("IPAMAUDIT_LOG_FORMAT") == "json"
}

// lastLine explains the exit code, as a log line where logs are JSON. Where
// there is more to say than a line holds, that comes before it.
func (a *app) lastLine(code int, why string) {
	if a.json {
		slog.New(slog.NewJSONHandler(a.err, nil)).Info("finished", "exitCode", code, "why", why)
		return
	}
	why = strings.TrimSpace(why)
	if first, rest, more := strings.Cut(why, "\n"); more {
		fmt.Fprintln(a.err, why)
		why = fmt.Sprintf("%s (and %d more above)", first, strings.Count(rest, "\n")+1)
	}
	fmt.Fprintf(a.err, "ipamaudit: exit code %d: %s\n", code, why)
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "ipamaudit",
		Short: "Nightly auditor of Calico IPAM for fleets of Kubernetes clusters",
		Long: `ipamaudit looks at the Calico IPAM of many clusters at once: nodes with too many
blocks or none, borrowed and blackholed pod addresses, pools that run dry. It
reports, files deduplicated Jira tickets and posts Slack digests. It never
changes Calico's data or your workloads.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          knownVerb,
		// Without a verb the help is the answer.
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage("%w (see %q)", err, cmd.CommandPath()+" --help")
	})
	root.AddCommand(a.runCommand(), a.snapshotCommand(), a.explainCommand(), a.checksCommand(), a.doctorCommand(), a.configCommand(), a.stateCommand(), a.agentCommand(), a.versionCommand())

	// Cobra's own answer to an unknown shell is a page of help and exit code 0.
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		completion.Args = knownVerb
		completion.RunE = func(*cobra.Command, []string) error {
			return usage("completion wants a shell: bash, fish, powershell or zsh")
		}
	}
	return root
}

// knownVerb refuses the arguments of a command that has only verbs.
func knownVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var verbs []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			verbs = append(verbs, c.Name())
		}
	}
	return usage("unknown command %q for %q%s", args[0], cmd.CommandPath(), suggest(args[0], verbs))
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(a.out, "ipamaudit", buildVersion())
			return err
		},
	}
}

// buildVersion is the linker's, else the module's, else "devel".
func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}

// loadConfig reads the configuration; everything that is wrong with it is one
// error with exit code 2.
func (a *app) loadConfig(file string, cmd *cobra.Command) (*config.Config, []config.Warning, error) {
	if file == "" {
		file = a.getenv(config.EnvFile)
	}
	c, warnings, err := config.Load(config.Options{
		File: file, Env: a.env, Flags: cmd.Flags(), Checks: checkSpecs(), Now: a.now(), TellsNobody: tellsNobody(cmd),
	})
	if err != nil {
		return nil, nil, &exitError{audit.ExitUsage, err}
	}
	a.json = c.Log.Format == "json"
	return c, warnings, nil
}

// tellsNobody reports whether a command can do without tokens: all can, but for
// those that use them or say whether they would do.
func tellsNobody(cmd *cobra.Command) bool {
	given := func(flag string) bool { f := cmd.Flags().Lookup(flag); return f != nil && f.Value.String() == "true" }
	switch cmd.Name() {
	case "run":
		return !given("notify") || given("dry-run")
	case "doctor", "validate":
		return false
	default:
		return true
	}
}

func (a *app) getenv(name string) string {
	for _, pair := range a.env {
		if len(pair) > len(name) && pair[len(name)] == '=' && pair[:len(name)] == name {
			return pair[len(name)+1:]
		}
	}
	return ""
}
