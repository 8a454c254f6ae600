package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"

	"ipamaudit/test/world"
)

// entry is what a tool on the bench writes down about a call.
type entry struct {
	What   string // the verb, and whether it was only checked
	Args   []string
	Code   int
	Stderr string
}

// tolerable are answers that the printed comments tell people to expect.
func (e entry) tolerable() bool {
	switch {
	case strings.HasPrefix(e.What, "kubectl get") && strings.Contains(e.Stderr, "(NotFound)"):
		return true
	case strings.HasPrefix(e.What, "kubectl get") && strings.Contains(e.Stderr, `doesn't have a resource type`) && strings.Contains(strings.Join(e.Args, " "), "tigera"):
		return true
	case strings.Contains(e.Stderr, "if restart has already been triggered within the past second"):
		return true // the bench is quicker than people are
	case e.What == "calicoctl create" && strings.Contains(e.Stderr, "already exists"):
		return true // another finding's remediation has made it
	}
	return false
}

// tool is what this program is when it is called by the name of a tool.
func tool() (code int, is bool) {
	name := filepath.Base(os.Args[0])
	var e entry
	switch name {
	case "kubectl":
		e = kubectl(os.Args[1:], os.Getenv("BENCH_DRY") == "true")
	case "calicoctl":
		e = entry{What: "calicoctl " + strings.Join(os.Args[1:min(2, len(os.Args))], " "), Args: os.Args[1:]}
		if os.Getenv("BENCH_DRY") == "true" {
			e.What += " (not run: dry)"
			break
		}
		config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
		if err == nil {
			err = world.Calicoctl(context.Background(), config, os.Getenv("BENCH_CALICO"), os.Args[1:], os.Stdin)
		}
		if err != nil {
			e.Code, e.Stderr = 1, err.Error()
		}
	case "sleep":
		return 0, true // a minute for a successor that is there at once
	default:
		return 0, false
	}
	fmt.Fprint(os.Stderr, e.Stderr)
	line, _ := json.Marshal(e)
	f, err := os.OpenFile(os.Getenv("BENCH_JOURNAL"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.Write(append(line, '\n'))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 99, true
	}
	return e.Code, true
}

// kubectl runs the real one. What cannot be dry-run, or not at all here, is
// parsed by it: with --help it checks the flags and does nothing.
func kubectl(args []string, dry bool) entry {
	words := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return strings.HasPrefix(a, "-") })
	if len(args) > 1 && args[0] == "-n" {
		words = words[1:]
	}
	verb := words[0]
	e := entry{What: "kubectl " + verb, Args: slices.Clone(args)}
	if verb == "rollout" {
		e.What += " " + words[1]
	}
	raw := slices.Index(args, "--raw")
	var stdin io.Reader = os.Stdin
	parse := func(why string) {
		e.What += " (flags only: " + why + ")"
		at := len(args)
		if i := slices.Index(args, "--"); i >= 0 {
			at = i
		}
		args = slices.Insert(args, at, "--help")
	}
	switch {
	case slices.Contains([]string{"logs", "exec", "debug"}, verb):
		parse("needs a kubelet")
	case !dry || slices.Contains([]string{"get", "describe", "auth"}, verb):
	case verb == "wait":
		parse("nothing goes in a dry run")
	case verb == "rollout":
		parse("has no dry run")
	case raw >= 0 && verb == "delete":
		// Options in the body count, those in the address do not then.
		e.What += " --raw (dry run)"
		body, _ := io.ReadAll(os.Stdin)
		stdin = strings.NewReader(strings.Replace(string(body), `"kind":"DeleteOptions"`, `"kind":"DeleteOptions","dryRun":["All"]`, 1))
	case raw >= 0:
		e.What += " --raw (dry run)"
		args[raw+1] += "?dryRun=All"
	default:
		e.What += " (dry run)"
		args = append(args, "--dry-run=server")
	}
	cmd := exec.Command(os.Getenv("BENCH_KUBECTL"), args...)
	var stderr strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, os.Stdout, &stderr
	if strings.Contains(e.What, "flags only") {
		cmd.Stdout = nil
	}
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		e.Code = exit.ExitCode()
	} else if err != nil {
		e.Code, e.Stderr = 98, err.Error()
	}
	e.Stderr += stderr.String()
	return e
}
