package main

import (
	"net"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// hanging is an API server that accepts connections and never answers.
type hanging struct {
	calls chan struct{}
}

type hangingKey struct{}

// scriptHang: hang starts such a server and puts its address into $HANGING.
func scriptHang(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: hang")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { l.Close() })
	h := ts.Value(hangingKey{}).(*hanging)
	calls := make(chan struct{}, 100) // of this server: a script may start several
	h.calls = calls
	go func() {
		var open []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			open = append(open, c)
			calls <- struct{}{}
		}
		for _, c := range open {
			c.Close()
		}
	}()
	ts.Setenv("HANGING", l.Addr().String())
}

// scriptHung: hung waits until somebody has called the hanging server.
func scriptHung(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: hung")
	}
	select {
	case <-ts.Value(hangingKey{}).(*hanging).calls:
	case <-time.After(20 * time.Second):
		ts.Fatalf("nobody called")
	}
}
