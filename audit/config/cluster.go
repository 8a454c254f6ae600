package config

import (
	"fmt"
	"time"
)

// Cluster is one cluster of the fleet: how to reach it, and what differs for it.
type Cluster struct {
	Name             string            `yaml:"name" required:"true" format:"name" example:"prod-eu-1" doc:"unique; shown in reports, tickets and digests"`
	InCluster        bool              `yaml:"inCluster" doc:"the cluster this program runs in, by its ServiceAccount"`
	Kubeconfig       string            `yaml:"kubeconfig" doc:"file; empty: $KUBECONFIG, then ~/.kube/config"`
	Context          string            `yaml:"context" example:"prod-eu-1-admin" doc:"context of the kubeconfig; empty: its current one"`
	KubeconfigSecret KubeconfigSecret  `yaml:"kubeconfigSecret" doc:"a kubeconfig kept in a Secret of the cluster this program runs in"`
	Timeout          time.Duration     `yaml:"timeout" doc:"0s: run.clusterTimeout"`
	QPS              float64           `yaml:"qps" max:"10000" min:"0" doc:"0: run.qps"`
	Burst            int               `yaml:"burst" max:"10000" min:"0" doc:"0: run.burst"`
	Labels           map[string]string `yaml:"labels" example:"{team: network, environment: production}" doc:"free; shown with the cluster"`
	Checks           []CheckOverride   `yaml:"checks" doc:"parameters that differ here from those under checks"`
	Jira             ClusterJira       `yaml:"jira"`
	Slack            ClusterSlack      `yaml:"slack"`
	Routes           ClusterRoutes     `yaml:"routes"`
}

// KubeconfigSecret names a Secret that holds a kubeconfig.
type KubeconfigSecret struct {
	Namespace string `yaml:"namespace" format:"dns" doc:"namespace of the Secret"`
	Name      string `yaml:"name" format:"dns" doc:"name of the Secret; Cluster API calls it CLUSTER-kubeconfig"`
	Key       string `yaml:"key" default:"kubeconfig" doc:"key in its data; Cluster API uses value"`
}

// IsSet tells whether a Secret is named.
func (k KubeconfigSecret) IsSet() bool { return k.Name != "" }

// CheckOverride sets parameters of a check for one cluster.
type CheckOverride struct {
	ID     string         `yaml:"id" required:"true" doc:"id of the check"`
	Params map[string]any `yaml:"params" doc:"parameters of the check"`
}

// ClusterJira is what differs for the tickets of a cluster.
type ClusterJira struct {
	Project string `yaml:"project" format:"project" doc:"empty: jira.project"`
}

// ClusterSlack is what differs for the digest of a cluster.
type ClusterSlack struct {
	Channel string `yaml:"channel" format:"channel" doc:"empty: slack.channel"`
}

// ClusterRoutes says where the route tables of the nodes come from. Several
// sources may be on: of each node the kernel's table counts before BIRD's, and
// the newest of a kind.
type ClusterRoutes struct {
	Files            string      `yaml:"files" doc:"directory of NODE.txt (ip route) and NODE.json (ip -j route)"`
	Agent            RoutesAgent `yaml:"agent"`
	CalicoNodeStatus RoutesBIRD  `yaml:"calicoNodeStatus"`
	Exec             RoutesExec  `yaml:"exec"`
}

// RoutesAgent reads what the DaemonSet of deploy/agent publishes.
type RoutesAgent struct {
	Namespace string `yaml:"namespace" format:"dns" doc:"namespace of the agents (deploy/agent: ipamaudit-agent), which publish the kernel's tables; empty: off"`
}

// RoutesBIRD reads BIRD's tables through CalicoNodeStatus objects.
type RoutesBIRD struct {
	Read   bool `yaml:"read" doc:"read the CalicoNodeStatus objects that exist: BIRD's view, not the kernel's"`
	Create bool `yaml:"create" doc:"make short-lived ones for nodes without one and delete them again: all that is ever written to Calico's API"`
}

// RoutesExec runs ip in the calico-node pods.
type RoutesExec struct {
	Enabled     bool   `yaml:"enabled" doc:"run ip in the calico-node pods; needs pods/exec, which is root on every node: not for a CronJob"`
	Namespace   string `yaml:"namespace" format:"dns" doc:"namespace of calico-node; empty: wherever it runs"`
	Concurrency int    `yaml:"concurrency" default:"8" min:"1" max:"100" doc:"nodes asked at the same time"`
}

// IsSet tells whether a route source is configured.
func (r ClusterRoutes) IsSet() bool {
	return r.Files != "" || r.Agent.Namespace != "" || r.CalicoNodeStatus.Read || r.CalicoNodeStatus.Create || r.Exec.Enabled
}

// NewCluster is a cluster that is not in the file, one named by a flag for instance, with the fleet's
// limits.
func (c *Config) NewCluster(name string) Cluster {
	cluster := Cluster{Name: name}
	cluster.inherit(&c.Run)
	return cluster
}

func (c *Cluster) inherit(run *Run) {
	if c.Timeout == 0 {
		c.Timeout = run.ClusterTimeout
	}
	if c.QPS == 0 {
		c.QPS = run.QPS
	}
	if c.Burst == 0 {
		c.Burst = run.Burst
	}
}

func validateClusters(clusters []Cluster, f *findings) {
	names, accesses := map[string]string{}, map[string]string{}
	for i := range clusters {
		c, path := &clusters[i], indexed("clusters", i)
		c.validate(path, f)
		unique(f, names, c.Name, path+".name", "%q is set twice, first in %s", c.Name)
		unique(f, accesses, c.access(), path, "reaches the same cluster as %s: every ticket would be filed twice")
	}
}

// validate wants exactly one way to reach the cluster. None is an error rather than "the current
// context": a typo must not audit another cluster under this name.
func (c *Cluster) validate(path string, f *findings) {
	secret := c.KubeconfigSecret
	switch {
	case c.InCluster && (c.Kubeconfig != "" || c.Context != "" || secret.IsSet()):
		f.fail(path+".inCluster", "excludes kubeconfig, context and kubeconfigSecret")
	case c.Kubeconfig != "" && secret.IsSet():
		f.fail(path+".kubeconfigSecret", "excludes kubeconfig: keep one of the two")
	case (secret.Name == "") != (secret.Namespace == ""):
		f.fail(path+".kubeconfigSecret", "needs both name and namespace")
	case c.access() == "" && !f.mentions(path, "inCluster", "kubeconfig", "context", "kubeconfigSecret"):
		f.fail(path, "nothing says how to reach it: set inCluster, kubeconfig, context or kubeconfigSecret")
	}
	ids := map[string]string{}
	for i, check := range c.Checks {
		at := fmt.Sprintf("%s.checks[%d].id", path, i)
		unique(f, ids, check.ID, at, "%q is set twice, first in %s", check.ID)
	}
}

// access is a text that is equal for two clusters reached in the same way, and empty for none.
func (c *Cluster) access() string {
	switch {
	case c.InCluster:
		return "in-cluster"
	case c.KubeconfigSecret.IsSet():
		return fmt.Sprintf("secret %+v context %s", c.KubeconfigSecret, c.Context)
	case c.Kubeconfig != "" || c.Context != "":
		return fmt.Sprintf("kubeconfig %q context %q", c.Kubeconfig, c.Context)
	}
	return ""
}

// unique reports value if an earlier path has it too. The format's last argument is that path.
func unique(f *findings, seen map[string]string, value, path, format string, args ...any) {
	if value == "" {
		return
	}
	if first, ok := seen[value]; ok {
		f.fail(path, format, append(args, first)...)
		return
	}
	seen[value] = path
}
