package config

import "time"

// Run bounds the work of one run.
type Run struct {
	Concurrency    int           `yaml:"concurrency" default:"16" min:"1" max:"256" doc:"clusters audited at the same time"`
	Timeout        time.Duration `yaml:"timeout" default:"30m" min:"1s" doc:"for all clusters together; one not audited by then has failed"`
	ClusterTimeout time.Duration `yaml:"clusterTimeout" default:"5m" min:"1s" doc:"for one cluster, unless it has its own"`
	QPS            float64       `yaml:"qps" default:"20" min:"0.1" max:"10000" doc:"requests per second to one API server"`
	Burst          int           `yaml:"burst" default:"40" min:"1" max:"10000" doc:"requests that may go out at once before qps slows them down"`
	PageSize       int           `yaml:"pageSize" default:"5000" min:"1" max:"10000" doc:"objects per list request; fewer after one that took too long or broke off"`
	FailOn         string        `yaml:"failOn" default:"high" enum:"none,low,medium,high,critical" flag:"fail-on" doc:"lowest severity that makes the exit code 1"`
	RequireRoutes  bool          `yaml:"requireRoutes" flag:"require-routes" doc:"without route tables the audit counts as incomplete (exit code 3)"`
}

// validate shortens clusterTimeout rather than refusing it: who lowers only the timeout of the run
// means both.
func (r *Run) validate() {
	r.ClusterTimeout = min(r.ClusterTimeout, r.Timeout)
}
