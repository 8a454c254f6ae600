package main

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"k8s.io/klog/v2"
)

// libraryLog is where libraries log that do so by themselves: client-go, of
// credential plug-ins that break. klog has one logger for the process and takes
// it without a lock, so it gets one, once, that follows whoever runs.
var libraryLog = sync.OnceValue(func() *follower {
	f := new(follower)
	f.follow(slog.DiscardHandler)
	klog.SetSlogLogger(slog.New(f))
	return f
})

// follower is a slog.Handler that hands on to another, which may change.
type follower struct{ to atomic.Pointer[slog.Handler] }

func (f *follower) follow(h slog.Handler) { f.to.Store(&h) }

func (f *follower) current() slog.Handler { return *f.to.Load() }

// Enabled asks the handler that is followed.
func (f *follower) Enabled(ctx context.Context, l slog.Level) bool {
	return f.current().Enabled(ctx, l)
}

// Handle hands the record on.
func (f *follower) Handle(ctx context.Context, r slog.Record) error {
	return f.current().Handle(ctx, r)
}

// WithAttrs no longer follows: what comes of it is short-lived.
func (f *follower) WithAttrs(attrs []slog.Attr) slog.Handler { return f.current().WithAttrs(attrs) }

// WithGroup no longer follows, either.
func (f *follower) WithGroup(name string) slog.Handler { return f.current().WithGroup(name) }
