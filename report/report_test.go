package report

import (
	"encoding/json"
	"encoding/xml"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	pretty "github.com/jedib0t/go-pretty/v6/text"
	"sigs.k8s.io/yaml"

	"ipamaudit/audit"
	"ipamaudit/checks"
	"ipamaudit/report/text"
)

// What a terminal, a browser or a reviewer would obey must not get through.
func TestNothingEscapes(t *testing.T) {
	for format, forbidden := range map[string][]string{
		Table:      {"\x1b", "\u009b", "\u202e", "\x07"},
		JSON:       {"\x1b", "\u009b", "\u202e", "\x07"},
		Markdown:   {"\x1b", "\u009b", "\u202e", "\x07", "<script>", "<b>"},
		JUnit:      {"\x1b", "\u009b", "\u202e", "\x07", "\"<script>"},
		Prometheus: {"\x1b", "\u009b", "\u202e", "\x07"},
	} {
		out := render(t, sample(), format, Options{})
		for _, s := range forbidden {
			if i := strings.Index(out, s); i >= 0 {
				t.Errorf("%s: %q got through in %q", format, s, out[max(0, i-30):min(len(out), i+30)])
			}
		}
	}
}

func TestTablesKeepTheirWidth(t *testing.T) {
	for _, width := range []int{80, 100, 140} {
		for line := range strings.Lines(render(t, sample(), Table, Options{Width: width})) {
			line = strings.TrimRight(line, "\n")
			if w := pretty.StringWidth(line); w > width {
				t.Errorf("width %d: a line is %d wide: %s", width, w, line)
			}
			if strings.TrimRight(line, " ") != line {
				t.Errorf("width %d: blanks at the end of %q", width, line)
			}
		}
	}
}

func TestColourOnlyAddsColour(t *testing.T) {
	colour := render(t, sample(), Table, Options{Color: true})
	if text.Lines(colour) != text.Lines(render(t, sample(), Table, Options{})) {
		t.Error("with colours taken away the table differs from the one without")
	}
	if !strings.Contains(colour, "\x1b[1;31m") {
		t.Error("there is no colour")
	}
}

func TestFailedClustersComeFirst(t *testing.T) {
	for _, format := range []string{Table, Markdown} {
		out := render(t, sample(), format, Options{})
		last := -1
		for _, s := range []string{"lab-gone", "connection refused", "readyz", "kubestage: 1 critical", "edge", "prod-eu-1"} {
			s = strings.TrimSuffix(s, map[string]string{Table: ": 1 critical"}[format])
			i := strings.Index(out, s)
			if i <= last {
				t.Errorf("%s: %q is at %d, before what should precede it (%d)", format, s, i, last)
			}
			last = i
		}
	}
}

// Lists are cut with a figure, never silently.
func TestCutsAreCounted(t *testing.T) {
	r := sample()
	c := &r.Clusters[1]
	f := c.Findings[2]
	for range 30 {
		f.Subject.Name += "x"
		c.Findings = append(c.Findings, f)
	}
	out := render(t, r, Table, Options{})
	for _, want := range []string{"… and 45 more, 50 in all", "… and 27 more blockless-nodes: Node ", "… and 7 more"} {
		if !strings.Contains(out, want) {
			t.Errorf("there is no %q", want)
		}
	}
}

// A disruptive first step is named, and neither its command nor a later one is
// offered for copying.
func TestOnlySafeCommandsAreOffered(t *testing.T) {
	out := render(t, sample(), Table, Options{})
	for _, s := range []string{"delete pod", "strictaffinity=true"} {
		if strings.Contains(out, s) {
			t.Errorf("the table offers %q", s)
		}
	}
	if out := render(t, sample(), Table, Options{Details: true}); !strings.Contains(out, "delete pod") {
		t.Error("with details not all commands are shown")
	}
}

func TestNextStep(t *testing.T) {
	step := func(r checks.Risk, commands ...string) checks.Step { return checks.Step{Risk: r, Commands: commands} }
	for name, tt := range map[string]struct {
		steps        []checks.Step
		index        int
		commands, ok bool
	}{
		"none":                    {nil, 0, false, false},
		"safe":                    {[]checks.Step{step(checks.Safe, "a")}, 0, true, true},
		"words, then a command":   {[]checks.Step{step(checks.Safe), step(checks.Safe, "a")}, 1, true, true},
		"words only":              {[]checks.Step{step(checks.Safe)}, 0, false, true},
		"disruptive first":        {[]checks.Step{step(checks.Disruptive, "a"), step(checks.Safe, "b")}, 0, false, true},
		"words, then destructive": {[]checks.Step{step(checks.Safe), step(checks.Destructive, "a"), step(checks.Safe, "b")}, 1, false, true},
		"a risk nobody set":       {[]checks.Step{step("", "a")}, 0, false, true},
	} {
		index, commands, ok := nextStep(tt.steps)
		if index != tt.index || commands != tt.commands || ok != tt.ok {
			t.Errorf("%s: %d, %v, %v; want %d, %v, %v", name, index, commands, ok, tt.index, tt.commands, tt.ok)
		}
	}
}

func TestLife(t *testing.T) {
	f := finding("borrowed-ips", "id", checks.High, checks.KindNode, "n1")
	for want, edit := range map[string]func(*audit.Finding){
		"new":                      func(*audit.Finding) {},
		"ongoing since 2026-11-30": func(f *audit.Finding) { f.State = audit.StateOngoing },
		"changed: medium → high, open since 2026-11-30": func(f *audit.Finding) {
			f.State, f.Previous = audit.StateChanged, &audit.Previous{Severity: checks.Medium}
		},
		"changed: 3 → 0 affected, open since 2026-11-30": func(f *audit.Finding) {
			f.State, f.Previous = audit.StateChanged, &audit.Previous{Severity: checks.High, Affected: 3}
		},
		"": func(f *audit.Finding) { f.State = "" },
	} {
		g := f
		edit(&g)
		if got := life(&g); got != want {
			t.Errorf("life = %q, want %q", got, want)
		}
	}
}

func TestWritersLeaveTheReportAlone(t *testing.T) {
	r := sample()
	r.Clusters = append(r.Clusters, audit.ClusterReport{Name: "bare", Status: audit.Complete})
	want := sample()
	want.Clusters = append(want.Clusters, audit.ClusterReport{Name: "bare", Status: audit.Complete})
	for _, f := range Formats() {
		render(t, r, f, Options{})
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("a writer changed the report:\n%s", diff)
	}
}

func TestJSONIsTheReport(t *testing.T) {
	var back audit.Report
	out := render(t, sample(), JSON, Options{})
	if err := json.Unmarshal([]byte(out), &back); err != nil {
		t.Fatal(err)
	}
	want := withLists(sample())
	for i := range want.Clusters { // exit codes only: not in the JSON
		for j := range want.Clusters[i].Checks {
			want.Clusters[i].Checks[j].Incomplete = false
		}
	}
	if diff := cmp.Diff(want, &back); diff != "" {
		t.Errorf("what was read back differs:\n%s", diff)
	}
	for _, s := range []string{"<script>", `\u001b[31m`, `\u202e`, `"previous": null`, `"suppressed": null`, `"causedBy": []`} {
		if !strings.Contains(out, s) {
			t.Errorf("there is no %s", s)
		}
	}
	if strings.Contains(out, ": null,\n") && strings.Count(out, "null") != strings.Count(out, `"previous": null`)+strings.Count(out, `"suppressed": null`) {
		t.Error("something besides previous and suppressed is null")
	}
}

func TestJSONEscapesTags(t *testing.T) {
	r := &audit.Report{Notices: []string{"a\U000e0041b"}}
	out := render(t, r, JSON, Options{})
	var back audit.Report
	if err := json.Unmarshal([]byte(out), &back); err != nil {
		t.Fatal(err)
	}
	if back.Notices[0] != r.Notices[0] || !strings.Contains(out, `a\udb40\udc41b`) {
		t.Errorf("got %s", out)
	}
}

func TestYAMLIsTheJSON(t *testing.T) {
	var fromJSON, fromYAML any
	if err := json.Unmarshal([]byte(render(t, sample(), JSON, Options{})), &fromJSON); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(render(t, sample(), YAML, Options{})), &fromYAML); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(fromJSON, fromYAML) {
		t.Error(cmp.Diff(fromJSON, fromYAML))
	}
}

func TestJUnit(t *testing.T) {
	r := sample()
	// It was found before, the check says ok for what it saw, and could not look there.
	stale := finding("pool-utilisation", "edge-1", checks.Critical, checks.KindPool, "pods-v6")
	stale.State = audit.StateUnknown
	r.Clusters[3].Findings = append(r.Clusters[3].Findings, stale)

	var doc junitSuites
	if err := xml.Unmarshal([]byte(render(t, r, JUnit, Options{})), &doc); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, s := range doc.Suites {
		failures, errs, skipped := 0, 0, 0
		for _, c := range s.Cases {
			result := "passed"
			switch {
			case c.Error != nil:
				result = "error"
				errs++
			case c.Failure != nil:
				result = "failure"
				failures++
			case c.Skipped != nil:
				result = "skipped"
				skipped++
			}
			got[c.Class+"/"+c.Name] = result
		}
		if s.Tests != len(s.Cases) || s.Failures != failures || s.Errors != errs || s.Skipped != skipped {
			t.Errorf("%s: the figures %d %d %d %d are not those of its cases", s.Name, s.Tests, s.Failures, s.Errors, s.Skipped)
		}
	}
	for name, want := range map[string]string{
		"ipamaudit.lab-gone/cluster-access":                                "error",
		"ipamaudit.lab-gone/pool-utilisation":                              "skipped",
		"ipamaudit.kubestage/blackholed-routes":                            "failure",
		"ipamaudit.dev/multi-block-nodes":                                  "passed", // low
		"ipamaudit.prod-eu-2/multi-block-nodes":                            "passed", // suppressed
		"ipamaudit.prod-eu-2/borrowed-ips":                                 "passed", // resolved
		"ipamaudit.prod-eu-2/blackholed-routes":                            "skipped",
		"ipamaudit.edge|<script>alert(1)</script>gnp.exe/blockless-nodes":  "error",
		"ipamaudit.edge|<script>alert(1)</script>gnp.exe/pool-utilisation": "error", // stale
		"ipamaudit.edge|<script>alert(1)</script>gnp.exe/tunnel-ips":       "skipped",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
}

func TestEmptyReport(t *testing.T) {
	for _, f := range Formats() {
		if out := render(t, &audit.Report{Schema: audit.Schema}, f, Options{}); out == "" {
			t.Errorf("%s: an empty report writes nothing", f)
		}
	}
}
