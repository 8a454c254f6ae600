package bed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// process is a running program whose output goes to a log file.
type process struct {
	name, log string
	cmd       *exec.Cmd
	done      chan struct{} // closed when it has ended
}

func startProcess(dir, logs, program string, args ...string) (*process, error) {
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.SysProcAttr = dieWithParent()
	return startCommand(logs, filepath.Base(program), cmd)
}

func startCommand(logs, name string, cmd *exec.Cmd) (*process, error) {
	p := &process{name: name, log: filepath.Join(logs, name+".log"), cmd: cmd, done: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own copy
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended is told by its log
		close(p.done)
	}()
	return p, nil
}

// waitReady polls until ready returns nil. It gives up when the process ends
// or ctx does, with the end of the log in the error.
func (p *process) waitReady(ctx context.Context, ready func(context.Context) error) error {
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	last := fmt.Errorf("not asked yet")
	for {
		select {
		case <-p.done:
			return fmt.Errorf("%s ended (%s); its log %s ends:\n%s", p.name, p.cmd.ProcessState, p.log, p.logTail())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w; last answer: %w; its log %s ends:\n%s", p.name, context.Cause(ctx), last, p.log, p.logTail())
		case <-tick.C:
			err := ready(ctx)
			if err == nil {
				return nil
			}
			if ctx.Err() == nil { // the end of patience tells less than the answer before
				last = err
			}
		}
	}
}

func (p *process) logTail() string {
	data, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return tail(string(data), 15)
}

// signal fails only where the process has ended, or nobody waits for it.
func (p *process) signal(sig os.Signal) error { return p.cmd.Process.Signal(sig) }

// stop asks the process to end and kills it when it has not within grace.
func (p *process) stop(grace time.Duration) {
	_ = p.signal(syscall.SIGCONT) // a paused process would never hear the other
	_ = p.signal(syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.kill()
	}
}

func (p *process) kill() {
	_ = p.signal(syscall.SIGKILL)
	<-p.done
}
