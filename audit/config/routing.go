package config

// Route sends what it matches to another channel or project than the clusters' own.
type Route struct {
	Cluster     string            `yaml:"cluster" default:"*" format:"glob" example:"prod-*" doc:"pattern for the cluster"`
	Labels      map[string]string `yaml:"labels" example:"{team: network}" doc:"labels that the cluster must have, all of them"`
	Check       string            `yaml:"check" default:"*" format:"glob" example:"\"*\"" doc:"pattern for the check"`
	MinSeverity string            `yaml:"minSeverity" default:"low" enum:"low,medium,high,critical" example:"critical" doc:"lowest severity it matches"`
	Channel     string            `yaml:"channel" format:"channel" example:"C0123456789" doc:"id (C…) of the Slack channel; empty: the route leaves messages alone"`
	Project     string            `yaml:"project" format:"project" doc:"key of the Jira project of new tickets; empty: the route leaves tickets alone"`
}

// matches ignores whether the route has anything to say.
func (r Route) matches(c Cluster, check, severity string) bool {
	for name, value := range r.Labels {
		if have, ok := c.Labels[name]; !ok || have != value {
			return false
		}
	}
	return glob(r.Cluster, c.Name) && glob(r.Check, check) && severityRank[severity] >= severityRank[r.MinSeverity]
}

var severityRank = map[string]int{"low": 1, "medium": 2, "high": 3, "critical": 4}

// ChannelOf is the channel for findings of a check and severity: that of the first route that matches
// and names one, else the cluster's own.
func (c *Config) ChannelOf(cluster Cluster, check, severity string) string {
	for _, r := range c.Routing {
		if r.Channel != "" && r.matches(cluster, check, severity) {
			return r.Channel
		}
	}
	return c.Slack.ChannelOf(cluster)
}

// ProjectOf is the project for a new ticket, chosen as ChannelOf chooses.
func (c *Config) ProjectOf(cluster Cluster, check, severity string) string {
	for _, r := range c.Routing {
		if r.Project != "" && r.matches(cluster, check, severity) {
			return r.Project
		}
	}
	return c.Jira.ProjectOf(cluster)
}

// validateRouting refuses routes that could never do anything.
func (c *Config) validateRouting(ids []string, f *findings) {
	webhook := c.Slack.WebhookCredential().IsSet() && !c.Slack.TokenCredential().IsSet()
	for i, r := range c.Routing {
		at := indexed("routing", i)
		switch {
		case r.Channel == "" && r.Project == "" && !f.mentions(at, "channel", "project"):
			f.fail(at, "leads nowhere: set channel or project")
		case r.Channel != "" && webhook:
			f.fail(at+".channel", "needs a bot token: a webhook posts to its own channel only")
		case r.Channel != "" && !channelID.MatchString(r.Channel):
			f.warn(at+".channel", "%s is a name: only by its id (C…) is a digest found again after a crash", quote(r.Channel))
		}
		if ids != nil && !hasPattern(r.Check) {
			f.oneOf(at+".check", r.Check, ids)
		}
		if len(c.Clusters) > 0 && !c.anyCluster(r) {
			f.warn(at, "matches none of the clusters")
		}
	}
}

func (c *Config) anyCluster(r Route) bool {
	for _, cluster := range c.Clusters {
		r.Check, r.MinSeverity = "*", "low"
		if r.matches(cluster, "", "low") {
			return true
		}
	}
	return false
}
