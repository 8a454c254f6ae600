package notify

import (
	"cmp"
	"fmt"
	"slices"

	"ipamaudit/audit"
)

// trendOf is how much of a pool is left, and whether that is less than in the
// last run.
type trendOf struct {
	cluster string
	pool    audit.PoolReport
}

// left is the smaller one of the shares that are free, of addresses and of blocks.
func (t trendOf) left() float64 {
	share := func(free, of uint64) float64 {
		if of == 0 {
			return 1
		}
		return float64(free) / float64(of)
	}
	p := t.pool
	return min(share(p.Available, p.Addresses-min(p.Reserved, p.Addresses)), share(p.BlocksFree, p.Blocks))
}

// trends are the pools of the clusters of which less than most is free, the
// fullest first.
func trends(clusters []*audit.ClusterReport, most float64) []trendOf {
	var out []trendOf
	for _, c := range clusters {
		for _, p := range c.Pools {
			if t := (trendOf{c.Name, p}); !p.Disabled && p.Addresses > 0 && t.left() < most {
				out = append(out, t)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b trendOf) int {
		return cmp.Or(cmp.Compare(a.left(), b.left()), cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.pool.Name, b.pool.Name))
	})
	return out
}

// trendLines are the trends as a list; the cluster is named where there are several.
func trendLines(ts []trendOf, named bool) []string {
	var out []string
	for _, t := range ts {
		where := ""
		if named {
			where = slackName(clip(t.cluster, 300)) + " "
		}
		var before audit.PoolTrend
		known := t.pool.Before != nil
		if known {
			before = *t.pool.Before
		}
		out = append(out, fmt.Sprintf("• %s%s: %s, %s", where, mrkdwn(t.pool.Name),
			freeOf(t.pool.BlocksFree, t.pool.Blocks, "blocks", before.BlocksFree, known),
			freeOf(t.pool.Available, t.pool.Addresses-min(t.pool.Reserved, t.pool.Addresses), "addresses", before.Available, known)))
	}
	return out
}

// freeOf says what is free now and which way it goes.
func freeOf(free, of uint64, what string, before uint64, known bool) string {
	s := fmt.Sprintf("%s of %s %s free", short(free), short(of), what)
	switch {
	case !known:
		return s
	case free < before:
		return fmt.Sprintf("↘ %s (was %s)", s, short(before))
	case free > before:
		return fmt.Sprintf("↗ %s (was %s)", s, short(before))
	default:
		return "→ " + s
	}
}

// short writes a count that people compare; IPv6 pools have more than anybody reads.
func short(n uint64) string {
	switch {
	case n >= 1e12:
		return "10¹² and more"
	case n >= 1e7:
		return fmt.Sprintf("%d million", n/1e6)
	case n >= 1e4:
		return fmt.Sprintf("%d,%03d", n/1000, n%1000)
	default:
		return fmt.Sprint(n)
	}
}
