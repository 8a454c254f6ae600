package config

import (
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Jira is where tickets are filed. Facts about the products are Atlassian's: go-jira speaks REST v2
// to both, but search, authentication and user names differ between Cloud and Data Center.
type Jira struct {
	Enabled       bool   `yaml:"enabled" doc:"file and update tickets (in runs with --notify)"`
	Flavor        string `yaml:"flavor" default:"auto" enum:"auto,cloud,datacenter" doc:"auto: Cloud where the host is Atlassian's"`
	APIBaseURL    string `yaml:"apiBaseURL" format:"url" doc:"where the API answers; scoped tokens: https://api.atlassian.com/ex/jira/CLOUD-ID"`
	BrowseBaseURL string `yaml:"browseBaseURL" format:"url" doc:"what people open in a browser; empty: apiBaseURL"`
	Username      string `yaml:"username" doc:"Cloud: e-mail of the account; Data Center: empty for a personal access token"`
	Token         Secret `yaml:"token" doc:"API token (Cloud), personal access token or password (Data Center)"`
	TokenFile     string `yaml:"tokenFile" doc:"or the file that holds it"`
	CAFile        string `yaml:"caFile" doc:"PEM file of further certificate authorities"`

	Project     string      `yaml:"project" format:"project" doc:"key of the project; clusters may have their own"`
	IssueType   string      `yaml:"issueType" default:"Task" doc:"name of the issue type"`
	Labels      []string    `yaml:"labels" format:"label" doc:"further labels of new tickets"`
	MinSeverity string      `yaml:"minSeverity" default:"medium" enum:"low,medium,high,critical" doc:"lowest severity that gets a ticket"`
	Priorities  Priorities  `yaml:"priorities" doc:"names of priorities; empty: as the project sets it"`
	Components  []string    `yaml:"components" doc:"names of components, which must exist"`
	Assignee    string      `yaml:"assignee" doc:"Cloud: account id; Data Center: user name; only set on new tickets"`
	Fields      []JiraField `yaml:"fields" doc:"further fields that the project demands of new tickets"`

	FingerprintField string `yaml:"fingerprintField" format:"field" doc:"text field (customfield_…) that tickets are found by instead of a label each; one label for all stays"`
	Parent           string `yaml:"parent" format:"issue" doc:"key of the epic or parent of new tickets; Data Center wants its Epic Link field in fields instead"`
	AttachList       bool   `yaml:"attachList" doc:"attach the whole list (CSV) to a new ticket that has no room for it"`
	RunURL           string `yaml:"runURL" format:"link" doc:"link new tickets to the run: https://ci.example.com/runs/{run}; {run} is its id"`

	Reopen             string        `yaml:"reopen" default:"within" enum:"never,within,always" doc:"when its problem is back, reopen a closed ticket; else file a new one"`
	ReopenWithin       time.Duration `yaml:"reopenWithin" default:"30d" min:"1h" doc:"closed at most so long ago"`
	MaxReopens         int           `yaml:"maxReopens" default:"3" min:"0" max:"100" doc:"after so many reopenings only a comment; 0: no limit"`
	ReopenTransition   string        `yaml:"reopenTransition" doc:"name of transition or status; empty: the first that is not done"`
	WontFixResolutions []string      `yaml:"wontFixResolutions" default:"[Won't Fix, Won't Do, Declined]" doc:"a ticket closed like this stays closed"`
	AcceptedLabel      string        `yaml:"acceptedLabel" default:"ipamaudit-accepted" format:"label" doc:"a ticket with this label is left in peace"`

	OnResolve             string `yaml:"onResolve" default:"comment" enum:"none,comment,transition" doc:"what happens to the ticket of a problem that is gone"`
	ResolveAfterCleanRuns int    `yaml:"resolveAfterCleanRuns" default:"2" min:"1" max:"100" doc:"complete runs without the problem before that"`
	ResolveTransition     string `yaml:"resolveTransition" doc:"name of transition or status; empty: the first that is done"`
	Resolution            string `yaml:"resolution" default:"Done" doc:"resolution, where the transition asks for one"`
	MaxNewTicketsPerRun   int    `yaml:"maxNewTicketsPerRun" default:"20" min:"1" max:"1000" doc:"the rest waits for the next run and is named in the digest"`

	RequestsPerSecond float64       `yaml:"requestsPerSecond" default:"5" min:"0.1" max:"100" doc:"Data Center may allow far fewer"`
	Timeout           time.Duration `yaml:"timeout" default:"30s" min:"1s" doc:"for one request"`
}

// Priorities maps severities to names of Jira priorities.
type Priorities struct {
	Critical string `yaml:"critical" default:"Highest" doc:"for critical"`
	High     string `yaml:"high" default:"High" doc:"for high"`
	Medium   string `yaml:"medium" default:"Medium" doc:"for medium"`
	Low      string `yaml:"low" default:"Low" doc:"for low"`
}

// Of is the name for a severity, or empty.
func (p Priorities) Of(severity string) string {
	switch severity {
	case "critical":
		return p.Critical
	case "high":
		return p.High
	case "medium":
		return p.Medium
	case "low":
		return p.Low
	}
	return ""
}

// JiraField sets a field that this program does not know.
type JiraField struct {
	ID    string `yaml:"id" required:"true" format:"field" example:"customfield_10010" doc:"id of the field"`
	Value any    `yaml:"value" required:"true" example:"{value: Network}" doc:"as the REST API wants it"`
}

// Credential is the token or password.
func (j *Jira) Credential() Credential {
	return newCredential("jira.token", j.Token, j.TokenFile)
}

// IsCloud tells the flavor. auto goes by the host: Cloud sites are under atlassian.net, and scoped
// tokens are only accepted by the gateway api.atlassian.com.
func (j *Jira) IsCloud() bool {
	if j.Flavor != "auto" {
		return j.Flavor == "cloud"
	}
	u, err := url.Parse(j.APIBaseURL)
	if err != nil {
		return false
	}
	host := strings.ToLower(u.Hostname())
	return host == gatewayHost || strings.HasSuffix(host, ".atlassian.net")
}

const gatewayHost = "api.atlassian.com"

// ProjectOf is the project for the tickets of a cluster.
func (j *Jira) ProjectOf(c Cluster) string {
	if c.Jira.Project != "" {
		return c.Jira.Project
	}
	return j.Project
}

// validate also fills in browseBaseURL.
func (j *Jira) validate(clusters []Cluster, f *findings) {
	j.Credential().validate(f)
	f.plainHTTP("jira.apiBaseURL", j.APIBaseURL)
	j.APIBaseURL = strings.TrimSuffix(j.APIBaseURL, "/")
	j.BrowseBaseURL = strings.TrimSuffix(j.BrowseBaseURL, "/")
	ids := map[string]string{}
	for i, field := range j.Fields {
		unique(f, ids, field.ID, fmt.Sprintf("jira.fields[%d].id", i), "%q is set twice, first in %s", field.ID)
	}
	if j.BrowseBaseURL == "" {
		if u, err := url.Parse(j.APIBaseURL); err == nil && strings.EqualFold(u.Hostname(), gatewayHost) {
			f.fail("jira.browseBaseURL", "is required: nobody can open links to %s", gatewayHost)
		}
		j.BrowseBaseURL = j.APIBaseURL
	}
	if !j.Enabled {
		return
	}
	if j.IssueType == "" {
		f.fail("jira.issueType", "must not be empty")
	}
	if j.APIBaseURL == "" {
		f.fail("jira.apiBaseURL", "is required to file tickets")
	}
	if !j.Credential().IsSet() && !f.mentions("jira", "token", "tokenFile") {
		f.failToTell("jira.token", "is required to file tickets: set token or tokenFile")
	}
	if j.Parent != "" && !j.IsCloud() {
		f.fail("jira.parent", "is Jira Cloud's: on Data Center set its Epic Link field in jira.fields")
	}
	if j.FingerprintField != "" && !strings.HasPrefix(j.FingerprintField, "customfield_") {
		f.fail("jira.fingerprintField", "must be a custom field (customfield_…)")
	}
	if j.IsCloud() && j.Username == "" {
		f.fail("jira.username", "is required by Jira Cloud: the e-mail address of the token's account")
	}
	if j.Project == "" && len(clusters) == 0 {
		f.fail("jira.project", "is required to file tickets")
	}
	for i, c := range clusters {
		if j.ProjectOf(c) == "" {
			f.fail("jira.project", "is required: %s has no project of its own", indexed("clusters", i))
		}
	}
}
