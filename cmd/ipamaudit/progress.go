package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"ipamaudit/audit"
	"ipamaudit/report/text"
)

// progress tells on stderr how the run goes: one line that is overwritten on a
// terminal, one log line for each finished cluster elsewhere.
type progress struct {
	mu      sync.Mutex
	out     io.Writer
	log     *slog.Logger
	live    bool
	quiet   bool
	running []string
}

func newProgress(out io.Writer, log *slog.Logger, quiet bool) *progress {
	p := &progress{out: out, log: log, quiet: quiet}
	if f, ok := out.(*os.File); ok && !quiet {
		p.live = term.IsTerminal(int(f.Fd()))
	}
	return p
}

// event is audit.Options.Progress.
func (p *progress) event(e audit.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !e.Finished {
		p.running = append(p.running, e.Cluster)
	} else {
		p.running = remove(p.running, e.Cluster)
	}
	switch {
	case p.quiet:
	case p.live:
		p.line(e)
	case e.Finished && e.Status == audit.Failed:
		p.log.Warn("cluster failed", "cluster", e.Cluster, "error", e.Error, "took", e.Took.Round(time.Millisecond), "done", fmt.Sprintf("%d/%d", e.Done, e.Total))
	case e.Finished:
		p.log.Info("cluster audited", "cluster", e.Cluster, "status", string(e.Status), "findings", e.Findings, "took", e.Took.Round(time.Millisecond), "done", fmt.Sprintf("%d/%d", e.Done, e.Total))
	}
}

func (p *progress) line(e audit.Event) {
	if e.Finished && e.Status == audit.Failed {
		fmt.Fprintf(p.out, "\r\x1b[K%s failed: %s\n", text.Terminal(e.Cluster), text.Terminal(e.Error))
	}
	waiting := ""
	if len(p.running) > 0 {
		waiting = ", waiting for " + text.Terminal(p.running[0])
		if len(p.running) > 1 {
			waiting += fmt.Sprintf(" and %d more", len(p.running)-1)
		}
	}
	fmt.Fprintf(p.out, "\r\x1b[K%d of %d clusters audited%s", e.Done, e.Total, waiting)
}

// done clears the line.
func (p *progress) done() {
	if p.live {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

func remove(list []string, s string) []string {
	for i, x := range list {
		if x == s {
			return append(list[:i:i], list[i+1:]...)
		}
	}
	return list
}
