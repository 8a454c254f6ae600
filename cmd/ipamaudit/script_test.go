package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"ipamaudit/audit"
	"ipamaudit/audit/state"
	"ipamaudit/checks"
	"ipamaudit/report"
)

var updateScripts = flag.Bool("update", false, "rewrite what the scripts compare with")

// features turns on the parts of scripts that wait for a decision:
//
//	[lossy]    an object that cannot be used makes the checks that need its kind
//	           incomplete (exit code 3)
//	[cutyaml]  a List of YAML without its kind, which kubectl writes last, was cut off
//	[noanno]   pods without Calico's annotations prove nothing while blocks are unread
func features() map[string]bool {
	return map[string]bool{"lossy": true, "cutyaml": true, "noanno": true}
}

// maxMemory bounds what a program that a script runs may have resident, in
// MiB: far above what any of them needs, far below what reading a large file
// as a whole would take.
const maxMemory = 400

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"ipamaudit": func() {
		code := Main()
		var used syscall.Rusage
		// Linux counts in KiB, others differently.
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err == nil && runtime.GOOS == "linux" && used.Maxrss>>10 > maxMemory {
			fmt.Fprintf(os.Stderr, "panic: used %d MiB of memory\n", used.Maxrss>>10)
		}
		os.Exit(code) //nolint:forbidigo // this is the main of the program under test
	}})
}

// TestScripts runs the program as people do: each script of testdata/script
// has a bug or a promise as its subject. Beside its own files it finds copies
// of the clusters of testdata/clusters:
//
//	healthy  two nodes with a block each and room for more; every table known
//	story    every block claimed by two of three nodes; the third borrows an
//	         address of the first, which blackholes it
//
// The commands below and those of testscript are what scripts are made of.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: *updateScripts,
		Setup:         setupScript,
		Condition: func(name string) (bool, error) {
			if name == "root" {
				return os.Geteuid() == 0, nil
			}
			on, known := features()[name]
			if !known {
				return false, fmt.Errorf("unknown condition %q", name)
			}
			return on, nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":    scriptExits,
			"jsonpath": scriptJSONPath,
			"sub":      scriptSub,
			"copyas":   scriptCopyAs,
			"tarball":  scriptTarball,
			"truncate": scriptTruncate,
			"genjunk":  scriptGenJunk,
			"lock":     scriptLock,
			"allids":   scriptAllIDs,
			"people":   scriptPeople,
			"told":     scriptTold,
			"proxy":    scriptProxy,
			"proxied":  scriptProxied,
			"hang":     scriptHang,
			"hung":     scriptHung,

			"jsonlines": scriptJSONLines,
			"norun":     scriptNoRun,
			"reverse":   scriptReverse,
			"envsub":    scriptEnvSub,
		},
	})
}

func setupScript(env *testscript.Env) error {
	if err := os.CopyFS(env.WorkDir, os.DirFS("testdata/clusters")); err != nil {
		return err
	}
	env.Values[peopleKey{}] = &people{}
	env.Values[hangingKey{}] = &hanging{}
	// A port that refuses connections: one that was just given back.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	env.Setenv("CLOSED", l.Addr().String())
	// What a text archive cannot hold.
	for name, bytes := range map[string]string{"binary": "\x7fELF\x02\x01\x01\x00\x00\xff\xfe\x80", "utf16": "\xff\xfea\x00p\x00i\x00"} {
		if err := os.WriteFile(filepath.Join(env.WorkDir, name), []byte(bytes), 0o600); err != nil {
			return err
		}
	}
	var ids []string
	for _, c := range checks.All() {
		ids = append(ids, c.ID)
	}
	env.Setenv("IDS", strings.Join(ids, ", "))
	env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
	return nil
}

// scriptExits: exits CODE ipamaudit ARGS... runs the program and compares the
// exit code. On the way it checks what holds for every run: the last line of
// stderr says why the code is what it is, stderr has no crash in it, and a
// report in JSON is all there is on stdout.
func scriptExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 || args[1] != "ipamaudit" {
		ts.Fatalf("usage: exits CODE ipamaudit ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	args = args[2:]
	isRun := len(args) > 0 && args[0] == "run" && !slices.Contains(args, "--help")
	code := 0
	if err := ts.Exec("ipamaudit", args...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("ipamaudit: %v", err)
		}
		code = exit.ExitCode()
	}
	if code != want {
		ts.Fatalf("exit code is %d, want %d", code, want)
	}
	stderr := ts.ReadFile("stderr")
	for line := range strings.Lines(stderr) {
		if strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "goroutine ") || strings.Contains(line, "a fault of this program") {
			ts.Fatalf("crashed: %s", line)
		}
	}
	if code != 0 || isRun {
		checkLastLine(ts, code, stderr)
	}
	if i := slices.Index(args, "-o"); isRun && i >= 0 && args[i+1] == report.JSON && (code != audit.ExitUsage || ts.ReadFile("stdout") != "") {
		r := struct{ Schema string }{}
		ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &r))
		if r.Schema != audit.Schema {
			ts.Fatalf("stdout is no report: schema is %q", r.Schema)
		}
	}
}

func checkLastLine(ts *testscript.TestScript, code int, stderr string) {
	lines := strings.Split(strings.TrimRight(stderr, "\n"), "\n")
	last := lines[len(lines)-1]
	if !strings.HasPrefix(last, "{") {
		if want := fmt.Sprintf("ipamaudit: exit code %d: ", code); !strings.HasPrefix(last, want) || last == want {
			ts.Fatalf("the last line on stderr is %q, want %q and a reason", last, want)
		}
		return
	}
	entry := struct {
		Why      string
		ExitCode *int
	}{}
	ts.Check(json.Unmarshal([]byte(last), &entry))
	if entry.ExitCode == nil || *entry.ExitCode != code || entry.Why == "" {
		ts.Fatalf("the last line on stderr is %q, want exitCode %d and why", last, code)
	}
}

// scriptJSONPath: [!] jsonpath FILE PATH VALUE compares what a path finds in a
// JSON file. Its steps are separated by slashes: a key, an index, key=value
// for the elements of a list that have it, * for all, # for their number. What
// several elements have is joined by spaces; what none has is "".
func scriptJSONPath(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: [!] jsonpath FILE PATH VALUE")
	}
	var doc any
	dec := json.NewDecoder(strings.NewReader(ts.ReadFile(args[0])))
	dec.UseNumber()
	ts.Check(dec.Decode(&doc))
	found := []any{doc}
	for step := range strings.SplitSeq(args[1], "/") {
		found = follow(found, step)
	}
	texts := make([]string, 0, len(found))
	for _, v := range found {
		text, ok := v.(string)
		if !ok {
			b, err := json.Marshal(v)
			ts.Check(err)
			text = string(b)
		}
		texts = append(texts, text)
	}
	if got := strings.Join(texts, " "); (got == args[2]) == neg {
		ts.Fatalf("%s is %q, want %q (negated: %t)", args[1], got, args[2], neg)
	}
}

func follow(from []any, step string) (to []any) {
	if step == "#" {
		n := len(from)
		if list, ok := from[0].([]any); ok && n == 1 {
			n = len(list)
		}
		return []any{json.Number(strconv.Itoa(n))}
	}
	for _, v := range from {
		switch v := v.(type) {
		case map[string]any:
			if member, ok := v[step]; ok {
				to = append(to, member)
			}
		case []any:
			key, value, selects := strings.Cut(step, "=")
			index, err := strconv.Atoi(step)
			for i, e := range v {
				member, _ := e.(map[string]any)
				if step == "*" || selects && fmt.Sprint(member[key]) == value || err == nil && i == index {
					to = append(to, e)
				}
			}
		}
	}
	return to
}

// scriptLock: lock FILE holds the lock of a state until the script ends, as
// another run would.
func scriptLock(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: lock FILE")
	}
	unlock, err := state.NewFile(ts.MkAbs(args[0])).Lock(context.Background())
	ts.Check(err)
	ts.Defer(unlock)
}

// scriptAllIDs: allids runs "ipamaudit checks ID" for every check.
func scriptAllIDs(ts *testscript.TestScript, _ bool, _ []string) {
	for _, c := range checks.All() {
		ts.Check(ts.Exec("ipamaudit", "checks", c.ID))
		for _, want := range []string{c.ID, c.Title, "Why", "detected", "emediation"} {
			if !strings.Contains(ts.ReadFile("stdout"), want) {
				ts.Fatalf("checks %s does not say %q", c.ID, want)
			}
		}
	}
}

// scriptJSONLines: jsonlines FILE fails unless every line is a JSON object.
func scriptJSONLines(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: jsonlines FILE")
	}
	for line := range strings.Lines(ts.ReadFile(args[0])) {
		var object map[string]any
		if err := json.Unmarshal([]byte(line), &object); err != nil {
			ts.Fatalf("%q is no JSON object: %v", line, err)
		}
	}
}
