package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"ipamaudit/audit"
	"ipamaudit/checks"
	"ipamaudit/ipam"
	"ipamaudit/report/text"
)

// prometheusWriter writes a file for node_exporter's textfile collector. No
// series is per address, node or finding: their number grows with clusters,
// pools and checks only.
type prometheusWriter struct{}

func (prometheusWriter) Write(w io.Writer, r *audit.Report) error {
	m := newMetrics()
	m.fill(r)
	families, err := m.registry.Gather()
	if err != nil {
		return fmt.Errorf("collect the metrics: %w", err)
	}
	enc := expfmt.NewEncoder(w, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, f := range families {
		if err := enc.Encode(f); err != nil {
			return fmt.Errorf("encode metric %s: %w", f.GetName(), err)
		}
	}
	return nil
}

// metrics are the gauges of a report, each in a registry of its own.
type metrics struct {
	registry *prometheus.Registry
	// described repeats what the registry does not tell: docs/metrics.md is made of it.
	described []metric

	runTime, runDuration                      *prometheus.GaugeVec
	clusterUp, clusterComplete, clusterInfo   *prometheus.GaugeVec
	asOf, nodes, pods                         *prometheus.GaugeVec
	resources, resourcesRejected, routeTables *prometheus.GaugeVec
	checkStatus, findings                     *prometheus.GaugeVec
	addresses, allocated, available           *prometheus.GaugeVec
	reserved, cooling, blocks, claimed, free  *prometheus.GaugeVec
}

// metric is a line of docs/metrics.md.
type metric struct {
	name, help string
	labels     []string
}

func newMetrics() *metrics {
	m := &metrics{registry: prometheus.NewPedanticRegistry()}
	cluster, pool := []string{"cluster"}, []string{"cluster", "pool", "cidr"}

	m.runTime = m.gauge("run_timestamp_seconds", "When the last audit run finished, in Unix time. Alert when it grows old.")
	m.runDuration = m.gauge("run_duration_seconds", "How long the last audit run took.")

	m.clusterUp = m.gauge("cluster_up", "1 if the cluster could be audited, 0 if nothing could be read. With 0 its other series are missing or mean nothing.", cluster...)
	m.clusterComplete = m.gauge("cluster_complete", "1 if everything that the enabled checks require was read, else 0.", cluster...)
	m.clusterInfo = m.gauge("cluster_info", "Always 1; the labels tell what the cluster runs.", "cluster", "id", "calico_version", "api", "ipam", "strict_affinity")
	m.asOf = m.gauge("cluster_as_of_timestamp_seconds", "The time that the audited state of the cluster is of, in Unix time.", cluster...)
	m.nodes = m.gauge("cluster_nodes", "Nodes of the cluster.", cluster...)
	m.pods = m.gauge("cluster_pods", "Pods of the cluster.", cluster...)
	m.resources = m.gauge("coverage_resources", "Kinds of objects by how reading them went: read, forbidden, absent, failed or missing.", "cluster", "status")
	m.resourcesRejected = m.gauge("coverage_rejected_objects", "Objects that were read and could not be used.", cluster...)
	m.routeTables = m.gauge("coverage_route_tables", "Nodes whose route table was read; compare with ipamaudit_cluster_nodes.", cluster...)

	m.checkStatus = m.gauge("check_status", "Always 1; the label status tells the outcome of the check: ok, findings, unknown or skipped.", "cluster", "check", "status")
	m.findings = m.gauge("findings", "Findings that are there now and not suppressed. 0 only where the check could look; there is no series where it could not.", "cluster", "check", "severity")

	m.addresses = m.gauge("pool_addresses", "Addresses of the pool, reserved ones included; capped at 2^53.", pool...)
	m.allocated = m.gauge("pool_allocated", "Addresses of the pool that are allocated.", pool...)
	m.available = m.gauge("pool_available", "Addresses of the pool that can still be given out.", pool...)
	m.reserved = m.gauge("pool_reserved", "Addresses of the pool that IPReservations keep back.", pool...)
	m.cooling = m.gauge("pool_cooling_down", "Addresses of the pool that were released and wait before they are given out again.", pool...)
	m.blocks = m.gauge("pool_blocks", "Blocks that fit into the pool; capped at 2^53.", pool...)
	m.claimed = m.gauge("pool_blocks_claimed", "Blocks of the pool that are claimed.", pool...)
	m.free = m.gauge("pool_blocks_free", "Blocks of the pool that a node can still claim. At 0 the next node gets none, however many addresses are available.", pool...)
	return m
}

func (m *metrics) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	name = "ipamaudit_" + name
	m.described = append(m.described, metric{name, help, labels})
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	m.registry.MustRegister(g)
	return g
}

func (m *metrics) fill(r *audit.Report) {
	set(m.runTime, seconds(r.Run.FinishedAt))
	set(m.runDuration, r.Run.FinishedAt.Sub(r.Run.StartedAt).Seconds())
	for i := range r.Clusters {
		c := newClusterView(&r.Clusters[i])
		m.fillCluster(&c)
		m.fillChecks(&c)
		for _, p := range c.Pools {
			m.fillPool(c.Name, p)
		}
	}
}

func (m *metrics) fillCluster(c *clusterView) {
	set(m.clusterUp, oneIf(c.Status != audit.Failed), c.Name)
	set(m.clusterComplete, oneIf(c.Status == audit.Complete), c.Name)
	if c.Status == audit.Failed {
		return // no figure is better than a zero that was never read
	}
	strict := strconv.FormatBool(c.Calico.StrictAffinity)
	if c.refused(ipam.ResIPAMConfig) {
		strict = "unknown"
	}
	set(m.clusterInfo, 1, c.Name, c.ID, c.Calico.Version, c.Calico.API, c.Calico.IPAM, strict)
	if !c.AsOf.IsZero() {
		set(m.asOf, seconds(c.AsOf), c.Name)
	}
	if !c.unread(ipam.ResNodes) {
		set(m.nodes, float64(c.Nodes), c.Name)
	}
	if !c.unread(ipam.ResPods) {
		set(m.pods, float64(c.Pods), c.Name)
	}
	statuses := map[ipam.ReadStatus]int{}
	for _, rc := range c.Coverage.Resources {
		statuses[rc.Status]++
	}
	for status, n := range statuses {
		set(m.resources, float64(n), c.Name, string(status))
	}
	set(m.resourcesRejected, float64(c.Coverage.Rejected), c.Name)
	set(m.routeTables, float64(c.Coverage.Routes.Nodes), c.Name)
}

func (m *metrics) fillChecks(c *clusterView) {
	for _, ch := range c.allChecks() {
		set(m.checkStatus, 1, c.Name, ch.ID, string(ch.Status))
		n := map[checks.Severity]int{}
		for _, f := range c.active {
			if f.Check == ch.ID {
				n[f.Severity]++
			}
		}
		looked := ch.Status == checks.StatusOK && !slices.ContainsFunc(c.stale, func(f *audit.Finding) bool { return f.Check == ch.ID })
		if len(n) == 0 && !looked {
			continue // a zero would say that there is nothing
		}
		for _, s := range checks.Severities() {
			set(m.findings, float64(n[s]), c.Name, ch.ID, string(s))
		}
	}
}

func (m *metrics) fillPool(cluster string, p audit.PoolReport) {
	for _, g := range []struct {
		gauge *prometheus.GaugeVec
		value uint64
	}{
		{m.addresses, p.Addresses}, {m.allocated, p.Allocated}, {m.available, p.Available}, {m.reserved, p.Reserved},
		{m.cooling, p.CoolingDown}, {m.blocks, p.Blocks}, {m.claimed, p.BlocksClaimed}, {m.free, p.BlocksFree},
	} {
		set(g.gauge, float64(g.value), cluster, p.Name, p.CIDR)
	}
}

// set strips the label values; the library escapes them, but panics on invalid UTF-8.
func set(g *prometheus.GaugeVec, value float64, labels ...string) {
	for i := range labels {
		labels[i] = text.Terminal(labels[i])
	}
	g.WithLabelValues(labels...).Set(value)
}

func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
