package report

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"ipamaudit/audit"
)

func TestMetricsAreClean(t *testing.T) {
	problems, err := promlint.New(strings.NewReader(render(t, sample(), Prometheus, Options{}))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestMetricsParseAndCarryEveryName(t *testing.T) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(render(t, sample(), Prometheus, Options{})))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range newMetrics().described {
		if families[m.name] == nil {
			t.Errorf("%s is described and not written for the sample", m.name)
		}
	}
}

// A zero says "looked and found nothing": no check that could not look may have one.
func TestUnknownIsNotZero(t *testing.T) {
	out := render(t, sample(), Prometheus, Options{})
	for _, absent := range []string{
		`ipamaudit_findings{check="blackholed-routes",cluster="prod-eu-2"`,
		`ipamaudit_findings{check="pool-utilisation",cluster="lab-gone"`,
		`ipamaudit_cluster_nodes{cluster="lab-gone"`,
	} {
		if strings.Contains(out, absent) {
			t.Errorf("there is a series %s", absent)
		}
	}
	for _, present := range []string{
		`ipamaudit_cluster_up{cluster="lab-gone"} 0`,
		`ipamaudit_check_status{check="blackholed-routes",cluster="prod-eu-2",status="unknown"} 1`,
		// Suppressed and resolved findings count nowhere.
		`ipamaudit_findings{check="multi-block-nodes",cluster="prod-eu-2",severity="medium"} 0`,
		`ipamaudit_findings{check="borrowed-ips",cluster="prod-eu-2",severity="medium"} 0`,
	} {
		if !strings.Contains(out, present+"\n") {
			t.Errorf("there is no %s", present)
		}
	}
}

func TestSeriesDoNotGrowWithFindings(t *testing.T) {
	count := func(r *audit.Report) int {
		m := newMetrics()
		m.fill(r)
		families, err := m.registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, f := range families {
			n += len(f.GetMetric())
		}
		return n
	}
	r := sample()
	before := count(r)
	for i := range r.Clusters {
		c := &r.Clusters[i]
		for _, f := range c.Findings {
			f.Subject.Name += "-more"
			c.Findings = append(c.Findings, f)
		}
	}
	if after := count(r); after != before {
		t.Errorf("%d series became %d when every finding was doubled", before, after)
	}
}

func TestMetricsPageIsGenerated(t *testing.T) {
	var b bytes.Buffer
	b.WriteString("# Metrics\n\n" +
		"`ipamaudit run -o prometheus=FILE.prom` writes these gauges for node_exporter's textfile collector. The file is replaced whole.\n" +
		"No series is per address, node or finding. A check or cluster that could not look has no figure: a missing series is not a zero,\n" +
		"so alert on `ipamaudit_cluster_up == 0`, on `ipamaudit_check_status{status=\"unknown\"}` and on an old\n" +
		"`ipamaudit_run_timestamp_seconds` as well as on `ipamaudit_findings`.\n\n" +
		"This page is generated: `go generate ./report`.\n\n| Metric | Labels | Meaning |\n| --- | --- | --- |\n")
	for _, m := range newMetrics().described {
		labels := make([]string, 0, len(m.labels))
		for _, l := range m.labels {
			labels = append(labels, "`"+l+"`")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", m.name, strings.Join(labels, ", "), m.help)
	}
	golden(t, "../docs/metrics.md", b.String())
}
