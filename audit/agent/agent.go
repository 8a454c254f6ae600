// Package agent publishes what one node's kernel does with packets for pods.
// It runs in a small DaemonSet; the audit reads what the agents of all nodes
// have published (collect.Agent). It changes nothing on the node.
package agent

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"ipamaudit/audit/collect"
	"ipamaudit/ipam"
)

// Kernel is a node's policy rules and all of its route tables.
type Kernel struct {
	Rules4, Rules6 []collect.PolicyRule
	Tables         collect.Tables
}

// Budget is how large a published table may be, packed. What would be larger
// is cut to what the audit cannot do without (see ipam.RouteTable.Partial):
// 5,000 nodes that each know 20,000 blocks must not fill etcd.
const Budget = 16 << 10

// Whole is the number of routes from which nobody tries whether the table fits
// into the budget: packing costs more than all the rest.
const Whole = 8192

// Table reduces what the kernel has to what concerns the pools, and packs it.
func (k Kernel) Table(node string, pools []netip.Prefix) (packed []byte, t ipam.RouteTable, err error) {
	t = ipam.RouteTable{Node: node, Kind: ipam.KernelTable}
	routes4, blind4 := collect.Follow(k.Rules4, k.Tables, true, pools)
	routes6, blind6 := collect.Follow(k.Rules6, k.Tables, false, pools)
	t.Routes, t.Blind4, t.Blind6 = slices.Concat(routes4, routes6), blind4, blind6
	if len(t.Routes) < Whole {
		slices.SortStableFunc(t.Routes, compareRoutes)
		packed, err = collect.PackTable(t)
		if err != nil || len(packed) <= Budget {
			return packed, t, err
		}
	}
	t.Partial = true
	t.Routes = essential(t.Routes)
	slices.SortStableFunc(t.Routes, compareRoutes)
	packed, err = collect.PackTable(t)
	return packed, t, err
}

func compareRoutes(a, b ipam.Route) int {
	return cmp.Or(cmp.Compare(a.Step, b.Step), a.Dst.Addr().Compare(b.Dst.Addr()), cmp.Compare(a.Dst.Bits(), b.Dst.Bits()), cmp.Compare(a.Metric, b.Metric))
}

// essential keeps what drops, everything inside a prefix that is dropped, the
// node's own host routes and the default routes. A longest-prefix match that
// ends in a drop is then the kernel's own: whatever is longer is still there.
func essential(routes []ipam.Route) []ipam.Route {
	dropped := map[netip.Prefix]bool{}
	lengths := map[int]bool{}
	for _, r := range routes {
		if r.Type.Drops() {
			dropped[r.Dst] = true
			lengths[r.Dst.Bits()] = true
		}
	}
	inside := func(p netip.Prefix) bool {
		for n := range lengths {
			if n > p.Bits() {
				continue
			}
			if around, err := p.Addr().Prefix(n); err == nil && dropped[around] {
				return true
			}
		}
		return false
	}
	return slices.DeleteFunc(slices.Clone(routes), func(r ipam.Route) bool {
		local := r.Dst.IsSingleIP() && !slices.ContainsFunc(r.NextHops, func(h ipam.NextHop) bool { return h.Via.IsValid() })
		return !local && r.Type != ipam.Throw && r.Dst.Bits() > 0 && !inside(r.Dst)
	})
}

// Agent watches one node.
type Agent struct {
	Node string
	// Read reads the kernel; ReadKernel but in tests.
	Read func() (Kernel, error)
	// Pools lists the pools' prefixes.
	Pools func(ctx context.Context) ([]netip.Prefix, error)
	// Publish writes the node's object.
	Publish func(ctx context.Context, packed []byte, readAt time.Time, routes int) error

	// Poll is the time between two looks at the kernel; Quiet the least time
	// between two writes of a table that changes; Heartbeat that between two of
	// one that does not; PoolsEvery that between two looks at the pools.
	Poll, Quiet, Heartbeat, PoolsEvery time.Duration

	Log *slog.Logger

	pools     []netip.Prefix
	poolsAt   time.Time
	published []byte
	writtenAt time.Time
	// retryAt and failures slow down what fails.
	retryAt  time.Time
	failures int
}

// The shipped times.
const (
	DefaultPoll       = 30 * time.Second
	DefaultQuiet      = 5 * time.Minute
	DefaultHeartbeat  = 15 * time.Minute
	DefaultPoolsEvery = 30 * time.Minute
)

// Run looks at the kernel until the context ends.
func (a *Agent) Run(ctx context.Context) error {
	// Thousands of agents that start at once must not all write at once.
	wait := rand.N(a.Poll) //nolint:gosec // spreads load, guards nothing
	for {
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		a.Tick(ctx, time.Now())
		wait = a.Poll
	}
}

// Tick looks once, and publishes where that is due. It reports whether it wrote.
func (a *Agent) Tick(ctx context.Context, now time.Time) bool {
	if now.Before(a.retryAt) {
		return false
	}
	wrote, err := a.tick(ctx, now)
	if err == nil {
		a.failures = 0
		return wrote
	}
	if ctx.Err() != nil {
		return false
	}
	a.failures++
	wait := min(a.Poll<<min(a.failures, 5), 10*time.Minute)
	a.retryAt = now.Add(wait/2 + rand.N(wait/2+1)) //nolint:gosec // spreads load, guards nothing
	a.Log.Warn("the table was not published", "error", strings.Join(strings.Fields(err.Error()), " "), "failures", a.failures, "next", a.retryAt.Sub(now).Round(time.Second).String())
	return wrote
}

func (a *Agent) tick(ctx context.Context, now time.Time) (bool, error) {
	if a.pools == nil || now.Sub(a.poolsAt) >= a.PoolsEvery {
		pools, err := a.Pools(ctx)
		switch {
		case err == nil:
			a.pools, a.poolsAt = append([]netip.Prefix{}, pools...), now
		case a.pools == nil:
			return false, fmt.Errorf("list the IP pools: %w", err)
		default:
			a.Log.Warn("the pools that were known are used", "error", err.Error())
		}
	}
	kernel, err := a.Read()
	if err != nil {
		return false, err
	}
	packed, table, err := kernel.Table(a.Node, a.pools)
	if err != nil {
		return false, err
	}
	since := now.Sub(a.writtenAt)
	changed := !bytes.Equal(packed, a.published)
	switch {
	case a.writtenAt.IsZero(), changed && since >= a.Quiet, since >= a.Heartbeat:
	default:
		return false, nil
	}
	if err := a.Publish(ctx, packed, now, len(table.Routes)); err != nil {
		return false, err
	}
	a.Log.Debug("published", "bytes", len(packed), "routes", len(table.Routes), "changed", changed, "partial", table.Partial)
	a.published, a.writtenAt = packed, now
	return true, nil
}

// Once publishes once.
func (a *Agent) Once(ctx context.Context) error {
	_, err := a.tick(ctx, time.Now())
	return err
}
