package config

import (
	"cmp"
	"fmt"
	"maps"
)

// Check tunes one check of the catalogue.
type Check struct {
	ID              string         `yaml:"id" required:"true" doc:"id of the check, see ipamaudit checks"`
	Enabled         bool           `yaml:"enabled" default:"true" doc:"false: the check is reported as skipped"`
	TicketAfterRuns int            `yaml:"ticketAfterRuns" min:"0" max:"100" doc:"runs in a row that see a finding before it gets a ticket; 0: the check decides"`
	Params          map[string]any `yaml:"params" doc:"parameters of the check"`
}

// CheckSpec describes a check to this package, which does not know the catalogue.
type CheckSpec struct {
	ID              string
	Params          []ParamSpec
	TicketAfterRuns int // its own default; 0 means 1
}

// ParamSpec describes one parameter of a check.
type ParamSpec struct {
	Name     string
	Type     ParamType
	Default  any      // the Go value of the type, or its text
	Min, Max *float64 // limits, inclusive; of a duration in seconds
	Enum     []string // allowed texts
	Doc      string   // one line
}

// ParamType is the type of a parameter.
type ParamType string

// The types of parameters, and the Go type of their values in [Config.CheckParams].
const (
	ParamNumber   ParamType = "number"   // float64
	ParamInteger  ParamType = "integer"  // int
	ParamBool     ParamType = "bool"     // bool
	ParamDuration ParamType = "duration" // time.Duration
	ParamString   ParamType = "string"   // string
)

// CheckEnabled tells whether a check is switched on. One that is not listed is.
func (c *Config) CheckEnabled(id string) bool {
	check, ok := c.check(id)
	return !ok || check.Enabled
}

// TicketAfterRuns is how many runs in a row must see a finding of the check before a ticket is
// filed: at least 1.
func (c *Config) TicketAfterRuns(id string) int {
	check, _ := c.check(id)
	return cmp.Or(check.TicketAfterRuns, c.tree.spec(id).TicketAfterRuns, 1)
}

// CheckParams are the parameters of a check for a cluster: its defaults, then those under checks,
// then the cluster's own. The map is the caller's.
func (c *Config) CheckParams(cluster Cluster, id string) map[string]any {
	params := map[string]any{}
	for _, p := range c.tree.spec(id).Params {
		params[p.Name] = p.key().def
	}
	check, _ := c.check(id)
	maps.Copy(params, check.Params)
	for _, override := range cluster.Checks {
		if override.ID == id {
			maps.Copy(params, override.Params)
		}
	}
	return params
}

func (c *Config) check(id string) (Check, bool) {
	for _, check := range c.Checks {
		if check.ID == id {
			return check, true
		}
	}
	return Check{}, false
}

func validateChecks(checks []Check, f *findings) {
	ids := map[string]string{}
	for i, check := range checks {
		unique(f, ids, check.ID, fmt.Sprintf("checks[%d].id", i), "%q is set twice, first in %s", check.ID)
	}
}
