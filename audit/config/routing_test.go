package config

import "testing"

func TestRouting(t *testing.T) {
	c := mustLoad(t, `
clusters:
  - {name: prod-1, context: a, labels: {team: network}}
  - {name: prod-2, context: b, slack: {channel: C0000PROD2}}
  - {name: lab-1, context: c, labels: {team: lab}, jira: {project: LAB}}
slack: {channel: C0000000ALL}
jira: {project: OPS}
routing:
  - {check: pool-*, project: CAP}
  - {cluster: prod-*, minSeverity: critical, channel: C0INCIDENTS}
  - {labels: {team: network}, channel: C0000000NET, project: NET}
`, Options{})
	byName := map[string]Cluster{}
	for _, cl := range c.Clusters {
		byName[cl.Name] = cl
	}
	for _, tc := range []struct{ cluster, check, severity, channel, project string }{
		{"prod-1", "leaked-ips", "critical", "C0INCIDENTS", "NET"}, // one route the channel, another the project
		{"prod-1", "leaked-ips", "high", "C0000000NET", "NET"},
		{"prod-1", "pool-utilisation", "high", "C0000000NET", "CAP"},
		{"prod-2", "leaked-ips", "critical", "C0INCIDENTS", "OPS"},
		{"prod-2", "leaked-ips", "high", "C0000PROD2", "OPS"},
		{"lab-1", "leaked-ips", "critical", "C0000000ALL", "LAB"},
		{"lab-1", "pool-config", "low", "C0000000ALL", "CAP"},
	} {
		if got := c.ChannelOf(byName[tc.cluster], tc.check, tc.severity); got != tc.channel {
			t.Errorf("%+v: channel %s", tc, got)
		}
		if got := c.ProjectOf(byName[tc.cluster], tc.check, tc.severity); got != tc.project {
			t.Errorf("%+v: project %s", tc, got)
		}
	}
}
