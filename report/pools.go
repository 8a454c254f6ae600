package report

import (
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	pretty "github.com/jedib0t/go-pretty/v6/text"

	"ipamaudit/audit"
	"ipamaudit/checks"
	"ipamaudit/report/text"
)

// pools writes two rows per pool, its addresses and its blocks: a pool can be
// full of blocks with most of its addresses unused, and the other way round.
func (p tablePage) pools(c *clusterView) {
	const indent = 3
	name := 16 // room for "12 cooling down"
	for _, pool := range c.Pools {
		name = max(name, pretty.StringWidth(text.Terminal(pool.Name)), pretty.StringWidth(text.Terminal(pool.CIDR)))
	}
	columns := []table.ColumnConfig{
		{Number: 1, WidthMax: min(name, max(p.width/4, 18)), WidthMaxEnforcer: pretty.WrapSoft},
		{Number: 4, Align: pretty.AlignRight}, {Number: 5, Align: pretty.AlignRight},
		{Number: 6, Align: pretty.AlignRight}, {Number: 7, Align: pretty.AlignRight},
	}
	// The bars take what the figures leave, and the figures are known only after
	// a first rendering.
	bare := pretty.LongestLineLen(renderGrid(p.poolRows(c, 0), columns))
	room := min(max(p.width-indent-bare, 0), 40)
	if room < 3 {
		room = 0 // no bar at all: the figures matter more
	}
	p.grid(indent, p.poolRows(c, room), columns)
}

func (p tablePage) poolRows(c *clusterView, barWidth int) []table.Row {
	var rows []table.Row
	for _, pool := range c.Pools {
		st := c.poolStyle(pool.Name)
		usable := pool.Addresses - min(pool.Reserved, pool.Addresses)
		addressesFuller := share(pool.Allocated, usable) > share(pool.BlocksClaimed, pool.Blocks)
		row := func(name, what string, used, of, free uint64, st style) {
			rows = append(rows, table.Row{name, p.paint(dim, what), p.paint(st, bar(used, of, barWidth)),
				text.Percent(used, of), text.Count(used) + " of", text.Count(of), text.Count(free) + " free"})
		}
		row(p.paint(bold, text.Terminal(pool.Name)), "addresses", pool.Allocated, usable, pool.Available, pick(addressesFuller, st, green))
		row(text.Terminal(pool.CIDR), "blocks", pool.BlocksClaimed, pool.Blocks, pool.BlocksFree, pick(addressesFuller, green, st))
		for _, s := range poolNotes(pool) {
			rows = append(rows, table.Row{p.paint(dim, s)})
		}
	}
	return rows
}

// poolStyle colours a pool's fuller bar by what was found about the pool, not
// by thresholds of its own: the bars must not contradict the verdict.
func (c *clusterView) poolStyle(pool string) style {
	i := slices.IndexFunc(c.active, func(f *audit.Finding) bool {
		return f.Subject.Kind == checks.KindPool && f.Subject.Name == pool
	})
	if i < 0 {
		return green
	}
	return severityStyle(c.active[i].Severity)
}

func poolNotes(pool audit.PoolReport) []string {
	var notes []string
	if pool.Disabled {
		notes = append(notes, "disabled")
	}
	if pool.Reserved > 0 {
		notes = append(notes, text.Count(pool.Reserved)+" reserved")
	}
	if pool.CoolingDown > 0 {
		notes = append(notes, text.Count(pool.CoolingDown)+" cooling down")
	}
	return notes
}

// bar draws used of whole. What is used at all shows, and only a full bar
// looks full.
func bar(used, whole uint64, width int) string {
	if whole == 0 {
		return strings.Repeat("░", width)
	}
	full := int(share(used, whole) * float64(width))
	switch {
	case used > 0 && full == 0 && width > 0:
		full = 1
	case used < whole && full == width && width > 0:
		full = width - 1
	}
	return strings.Repeat("█", full) + strings.Repeat("░", width-full)
}

// share is used of whole, between 0 and 1.
func share(used, whole uint64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(min(used, whole)) / float64(whole)
}

func pick(first bool, a, b style) style {
	if first {
		return a
	}
	return b
}
