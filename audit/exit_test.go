package audit

import (
	"errors"
	"strings"
	"testing"

	"ipamaudit/checks"
)

func TestExitCode(t *testing.T) {
	high := catalogue(finder("leaked-ips", nil, "node-1"))
	broken := checks.Check{ID: "borrowed-ips", AnyIPAM: true, Run: func(*checks.Input) checks.Result { panic("x") }}
	unseen := checks.Check{ID: "blackholed-routes", AnyIPAM: true, NeedsRoutes: true,
		Run: func(*checks.Input) checks.Result { return checks.Result{Unseen: []string{"route tables"}} }}
	good := Target{Name: "prod", Source: live("uid")}
	down := Target{Name: "dead\x1b[2J\nend", Source: live0(errors.New("connection\nrefused"))}
	tests := []struct {
		name         string
		checks       []checks.Check
		targets      []Target
		failOn       checks.Severity
		notifyFailed bool
		suppress     Suppressor
		code         int
		says         []string
	}{
		{"calm", catalogue(), []Target{good}, checks.High, false, nil, 0, []string{"audited prod: nothing found"}},
		{"nothing bad enough", high, []Target{good}, checks.Critical, false, nil, 0, []string{"nothing at or above critical"}},
		{"findings never fail", high, []Target{good}, "", false, nil, 0, []string{"1 high", "--fail-on none"}},
		{"findings", high, []Target{good}, checks.High, false, nil, 1, []string{"found 1 high", "leaked-ips on prod: t"}},
		{"suppressed", high, []Target{good}, checks.Low, false, &suppressAll{}, 0, []string{"nothing found, 1 suppressed"}},
		{"unknown without routes", catalogue(unseen), []Target{good}, checks.High, false, nil, 0, []string{"unknown, not calm: blackholed-routes on prod"}},
		{"notify", high, []Target{good}, checks.High, true, nil, 4, []string{"a notification failed", "found 1 high"}},
		{"check failed", append(high, broken), []Target{good}, checks.High, true, nil, 3, []string{"audit incomplete: borrowed-ips on prod", "a notification failed", "found 1 high"}},
		{"cluster failed", high, []Target{good, down}, checks.High, false, nil, 3, []string{`cluster dead\x1b[2J end could not be audited (connection refused)`, "found 2 high"}},
		{"cluster failed, none fails", catalogue(), []Target{down}, "", false, nil, 3, []string{"audit incomplete"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, _ := mustRun(t, Options{RunID: "n", Checks: tt.checks, Suppress: tt.suppress}, tt.targets...)
			code, why := r.ExitCode(tt.failOn, tt.notifyFailed)
			if code != tt.code {
				t.Errorf("code %d, want %d", code, tt.code)
			}
			for _, s := range tt.says {
				if !strings.Contains(why, s) {
					t.Errorf("why is %q, want it to say %q", why, s)
				}
			}
			if strings.ContainsAny(why, "\n\x1b") {
				t.Errorf("why is not one plain line: %q", why)
			}
		})
	}
}

func TestExitCodeNamesAFewOfMany(t *testing.T) {
	r := &Report{}
	for _, n := range []string{"a", "b", "c", "d", "e"} {
		r.Clusters = append(r.Clusters, ClusterReport{Name: n, Status: Failed, Error: "timeout"})
	}
	if _, why := r.ExitCode(checks.High, false); !strings.HasSuffix(why, "cluster c could not be audited (timeout); and 2 more") {
		t.Error(why)
	}
}
