package state

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"ipamaudit/audit"
	"ipamaudit/checks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sample is a state with something in every part.
func sample() *audit.State {
	at := time.Date(2026, 3, 1, 2, 0, 0, 0, time.UTC)
	s := audit.NewState()
	s.RunID, s.UpdatedAt = "2026-03-01", at
	s.Clusters["prod"] = &audit.ClusterState{
		ID: "uid", GUID: "guid", Failures: 2, FailedRun: "2026-03-01", LastComplete: at,
		CleanRuns: map[string]int{"leaked-ips": 3}, CleanRun: map[string]string{"leaked-ips": "2026-03-01"},
		Findings: map[string]*audit.FindingRecord{"fp": {
			Check: "borrowed-ips", Subject: checks.Subject{Kind: checks.KindNode, Name: "node-1"}, Title: "t",
			Severity: checks.High, Affected: 3, FirstSeen: at, LastSeen: at, Runs: 2, RunID: "2026-03-01",
			Before: &audit.Previous{Severity: checks.Medium, Affected: 2},
		}},
		Pools: map[string]audit.PoolTrend{"v6": {BlocksFree: 1<<53 - 1, Available: 1 << 53}}, PoolsRun: "2026-03-01",
		PoolsBefore: map[string]audit.PoolTrend{"v6": {BlocksFree: 1 << 53}},
	}
	s.Tickets["tfp"] = &audit.TicketState{Cluster: "prod", Check: "borrowed-ips", ID: "10001", Key: "NET-7",
		Intent: &audit.Intent{Op: "create", RunID: "2026-03-01", StartedAt: at, Attempt: 1}}
	s.Messages["C1/2026-03-01/0"] = &audit.MessageState{Channel: "C1", TS: "1.2", RunID: "2026-03-01", PostedAt: at}
	return s
}

func TestRoundTrip(t *testing.T) {
	data, err := encode(sample())
	if err != nil {
		t.Fatal(err)
	}
	got, err := decode(data, place{})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(sample(), got); d != "" {
		t.Error(d)
	}
}

// damaged are stored states that nobody may overwrite, and what is said of them.
var damaged = map[string]struct{ data, want string }{
	"empty":            {" \n", "it is empty"},
	"truncated":        {`{"schema": "ipamaudit/state/v1", "clusters": {`, "it ends too early"},
	"not JSON":         {"schema: ipamaudit/state/v1", "invalid character"},
	"two documents":    {`{"schema": "ipamaudit/state/v1"}{}`, "something follows"},
	"another document": {`{"kind": "ConfigMap"}`, `schema is "", which is not a state of ipamaudit`},
	"a report":         {`{"schema": "ipamaudit/v1"}`, `schema is "ipamaudit/v1"`},
	"a wrong type":     {`{"schema": "ipamaudit/state/v1", "clusters": {"c": {"failures": "two"}}}`, "failures"},
	"a null cluster":   {`{"schema": "ipamaudit/state/v1", "clusters": {"c": null}}`, `"c" is null`},
	"a null ticket":    {`{"schema": "ipamaudit/state/v1", "tickets": {"t": null}}`, `"t" is null`},
	"a null finding":   {`{"schema": "ipamaudit/state/v1", "clusters": {"c": {"findings": {"f": null}}}}`, `"f" is null`},
}

const future = `{"schema": "ipamaudit/state/v7", "clusters": {}}`

func TestDamagedStates(t *testing.T) {
	for name, tt := range damaged {
		t.Run(name, func(t *testing.T) {
			_, err := decode([]byte(tt.data), place{where: "file x", advice: "Do this."})
			var d *DamagedError
			if !errors.As(err, &d) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "file x") || !strings.Contains(err.Error(), "Do this.") {
				t.Errorf("error %v, want %q with place and advice", err, tt.want)
			}
		})
	}
}

func TestLaterSchema(t *testing.T) {
	_, err := decode([]byte(future), place{where: "file x", advice: "Do this."})
	var v *VersionError
	if !errors.As(err, &v) || !strings.Contains(err.Error(), `schema "ipamaudit/state/v7", this one reads up to "ipamaudit/state/v1"`) {
		t.Error(err)
	}
}

func TestEmptyMapsMayBeLeftOut(t *testing.T) {
	got, err := decode([]byte(`{"schema": "ipamaudit/state/v1", "clusters": {"c": {"id": "x"}}}`), place{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Tickets == nil || got.Messages == nil || got.Clusters["c"].Findings == nil {
		t.Errorf("nil maps in %+v", got)
	}
}

func TestMigration(t *testing.T) {
	steps := []migration{
		func(doc map[string]any) error { doc["runId"] = doc["run"]; delete(doc, "run"); return nil },
		func(doc map[string]any) error {
			if doc["runId"] == nil {
				return errors.New("no run")
			}
			return nil
		},
	}
	got, err := decodeWith([]byte(`{"schema": "ipamaudit/state/v1", "run": "A", "clusters": {"c": {"pools": {"p": {"available": 9007199254740993}}}}}`),
		place{}, schemaPrefix+"3", steps)
	if err != nil {
		t.Fatal(err)
	}
	if got.RunID != "A" || got.Schema != schemaPrefix+"3" || got.Clusters["c"].Pools["p"].Available != 9007199254740993 {
		t.Errorf("got %+v", got)
	}
	var d *DamagedError
	if _, err := decodeWith([]byte(`{"schema": "ipamaudit/state/v1"}`), place{}, schemaPrefix+"3", steps); !errors.As(err, &d) {
		t.Errorf("a migration that fails: %v, want a DamagedError", err)
	}
}
