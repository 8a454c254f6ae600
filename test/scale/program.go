package scale

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
)

// Ran is what running the program took.
type Ran struct {
	Wall, CPU time.Duration
	PeakMiB   int64
	Code      int
	Stderr    string
}

// Run runs the program and measures that process alone.
func Run(ctx context.Context, program string, args ...string) (Ran, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	// Variables of the test bed are none of the program's settings, and errors there.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir()}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	// Linux counts the most memory that this process ever had to its children,
	// too (execve(2) keeps it): so it forgets that first.
	debug.FreeOSMemory()
	_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
	began := time.Now()
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return Ran{}, err
	}
	out := Ran{Wall: time.Since(began), Code: cmd.ProcessState.ExitCode(), Stderr: stderr.String()}
	out.CPU = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return out, errors.New("this system does not say how much memory a process had")
	}
	out.PeakMiB = usage.Maxrss >> 10 // KiB on Linux
	if out.Code != 0 {
		return out, fmt.Errorf("%s %s: exit code %d: %s", program, strings.Join(args, " "), out.Code, out.Stderr)
	}
	return out, nil
}
