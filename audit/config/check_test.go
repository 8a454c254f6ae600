package config

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestCheckParams(t *testing.T) {
	c := mustLoad(t, `
clusters:
  - name: a
    context: a
    checks: [{id: pool-utilisation, params: {mediumPercent: 50, mode: uneven}}]
  - {name: b, context: b}
checks:
  - {id: pool-utilisation, params: {mediumPercent: 60.5, grace: 1h, strict: true}}
  - {id: multi-block-nodes, enabled: false, ticketAfterRuns: 3}
`, Options{})
	want := map[string]any{"mediumPercent": 60.5, "blocks": 4, "grace": time.Hour, "strict": true, "mode": "even"}
	if diff := cmp.Diff(want, c.CheckParams(c.Clusters[1], "pool-utilisation")); diff != "" {
		t.Errorf("b: %s", diff)
	}
	want["mediumPercent"], want["mode"] = 50.0, "uneven"
	if diff := cmp.Diff(want, c.CheckParams(c.Clusters[0], "pool-utilisation")); diff != "" {
		t.Errorf("a: %s", diff)
	}
	c.CheckParams(c.Clusters[0], "pool-utilisation")["mode"] = "spoilt"
	if got := c.CheckParams(c.Clusters[0], "pool-utilisation")["mode"]; got != "uneven" {
		t.Errorf("the map is shared: %v", got)
	}
	for id, want := range map[string]struct {
		enabled bool
		after   int
	}{
		"pool-utilisation":  {true, 1},
		"leaked-ips":        {true, 2}, // as the check says
		"multi-block-nodes": {false, 3},
		"unheard-of":        {true, 1},
	} {
		if got := c.CheckEnabled(id); got != want.enabled {
			t.Errorf("%s enabled: %v", id, got)
		}
		if got := c.TicketAfterRuns(id); got != want.after {
			t.Errorf("%s tickets after %d", id, got)
		}
	}
}

// TestUnloaded: a Config made by hand, as other packages' tests do, has no catalogue.
func TestUnloaded(t *testing.T) {
	c := &Config{}
	if !c.CheckEnabled("x") || c.TicketAfterRuns("x") != 1 || len(c.CheckParams(Cluster{}, "x")) != 0 {
		t.Error("a zero Config should enable every check with its defaults")
	}
}
