// Package fakejira is a small stateful Jira: Cloud or Data Center, with the
// field rules, the search that lags, the workflows, the permissions and the
// failures of the real ones. Tests and the demo talk to it with the clients
// that talk to Jira. It keeps everything in memory.
//
// Its answers follow Atlassian's REST documentation and OpenAPI description;
// the texts of its errors are those that users of both products quote in public
// issues. Where the two differ the comment at the place says so. What it does
// not know it refuses by name, it never guesses.
package fakejira

import "time"

// Flavour is the product that the server pretends to be.
type Flavour string

// The two products. They differ in search, paging, authentication and users.
const (
	Cloud      Flavour = "cloud"
	DataCenter Flavour = "datacenter"
)

// Config describes the Jira to start. The zero value is a Cloud site with one
// project OPS that accepts any well-formed credentials.
type Config struct {
	Flavour  Flavour // default Cloud
	Projects []Project

	// User and Token are what is let in: Basic user:token on Cloud (user is the
	// e-mail address), Bearer token on Data Center. An empty Token lets any in.
	User, Token string

	// BasePath is the context path, "/jira" for instance or the gateway's
	// "/ex/jira/<cloud id>"; requests outside of it are 404.
	BasePath string

	// Now is the server's clock; nil is the real one.
	Now func() time.Time

	// SearchLag is how long a change stays invisible to search. HoldIndex makes
	// it endless.
	SearchLag time.Duration

	// PageSize is the most that one page of anything holds, so that a test can
	// see paging with few issues. 0 is the vendor's own limit.
	PageSize int

	Priorities  []string // default Highest … Lowest
	Resolutions []string // default Done, Fixed, Won't Do, Won't Fix, Duplicate, Cannot Reproduce
}

// Project is one project and its schemes.
type Project struct {
	Key        string
	Name       string   // default: the key
	IssueTypes []string // default Task, Bug, Sub-task
	Components []string
	OffScreen  []string // field ids that are on no screen, "labels" for instance
	Fields     []Field  // custom fields
	Denied     []string // permissions that the bot lacks, "BROWSE_PROJECTS" for instance
	Workflow   Workflow // default SimpleWorkflow
}

// Field is a custom field on the screens of a project.
type Field struct {
	ID       string // customfield_10010
	Name     string // Team
	Kind     FieldKind
	Options  []string // of Select
	Required bool
}

// FieldKind is the shape of a custom field's value.
type FieldKind string

// Shapes that the server checks.
const (
	Text   FieldKind = "text"   // "x"
	Number FieldKind = "number" // 1
	Select FieldKind = "select" // {"value":"x"}
	User   FieldKind = "user"   // {"accountId":"x"} on Cloud, {"name":"x"} on Data Center
	Labels FieldKind = "labels" // ["x"]
)

// Category is a status category; it does not depend on language or workflow.
type Category string

// The three categories of Jira.
const (
	ToDo       Category = "new"
	InProgress Category = "indeterminate"
	Done       Category = "done"
)

// Workflow is the statuses of a project, the first of which new issues get, and
// the ways between them.
type Workflow struct {
	Statuses    []Status
	Transitions []Transition
}

// Status is one step of a workflow.
type Status struct {
	Name     string
	Category Category
}

// Transition is one way to a status.
type Transition struct {
	Name string
	From []string // names of statuses; empty means from any
	To   string
	// Resolution says whether the screen of the transition has that field.
	Resolution Screen
	// Sets is the resolution that a post function sets when the screen brought
	// none. Empty in a done status is a bad workflow, and a common one: the issue
	// is done without a resolution.
	Sets string
}

// Screen is the place of a field on a transition's screen.
type Screen string

// Places of a field on a screen.
const (
	Absent   Screen = ""         // sending it is an error
	Optional Screen = "optional" //
	Required Screen = "required" // leaving it out is an error
)

// SimpleWorkflow is what a new project gets: every status from every status, no
// screens, a resolution set behind the scenes.
func SimpleWorkflow() Workflow {
	return Workflow{
		Statuses: []Status{{"To Do", ToDo}, {"In Progress", InProgress}, {"Done", Done}},
		Transitions: []Transition{
			{Name: "To Do", To: "To Do"},
			{Name: "In Progress", To: "In Progress"},
			{Name: "Done", To: "Done", Sets: "Done"},
		},
	}
}

// ClassicWorkflow is Jira's old default: closing asks for a resolution, and only
// what is closed can be reopened.
func ClassicWorkflow() Workflow {
	return Workflow{
		Statuses: []Status{{"Open", ToDo}, {"In Progress", InProgress}, {"Resolved", Done}, {"Closed", Done}, {"Reopened", ToDo}},
		Transitions: []Transition{
			{Name: "Start Progress", From: []string{"Open", "Reopened"}, To: "In Progress"},
			{Name: "Resolve Issue", From: []string{"Open", "Reopened", "In Progress"}, To: "Resolved", Resolution: Required},
			{Name: "Close Issue", From: []string{"Open", "Reopened", "In Progress", "Resolved"}, To: "Closed", Resolution: Required},
			{Name: "Reopen Issue", From: []string{"Resolved", "Closed"}, To: "Reopened"},
		},
	}
}

func (c Config) withDefaults() Config {
	if c.Flavour == "" {
		c.Flavour = Cloud
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if len(c.Projects) == 0 {
		c.Projects = []Project{{Key: "OPS", Name: "Operations"}}
	}
	if len(c.Priorities) == 0 {
		c.Priorities = []string{"Highest", "High", "Medium", "Low", "Lowest"}
	}
	if len(c.Resolutions) == 0 {
		c.Resolutions = []string{"Done", "Fixed", "Won't Do", "Won't Fix", "Duplicate", "Cannot Reproduce"}
	}
	projects := make([]Project, len(c.Projects))
	for i, p := range c.Projects {
		if p.Name == "" {
			p.Name = p.Key
		}
		if len(p.IssueTypes) == 0 {
			p.IssueTypes = []string{"Task", "Bug", subTask}
		}
		if len(p.Workflow.Statuses) == 0 {
			p.Workflow = SimpleWorkflow()
		}
		projects[i] = p
	}
	c.Projects = projects
	return c
}

const subTask = "Sub-task"
