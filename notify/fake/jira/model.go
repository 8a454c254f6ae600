package fakejira

import (
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// Issue is an issue as the server stores it.
type Issue struct {
	ID           string // decimal, never changes
	Key          string // changes when the issue is moved
	PreviousKeys []string
	Project      string // key
	Type         string
	Summary      string
	Description  string // wiki markup, as written
	Labels       []string
	Priority     string
	Components   []string
	Status       string
	Category     Category
	Resolution   string    // "" is unresolved, also possible in category done
	Resolved     time.Time // zero while unresolved
	Created      time.Time
	Updated      time.Time
	Fields       map[string]json.RawMessage // what the server only stores: assignee, parent, custom fields
	Properties   map[string]json.RawMessage
	Comments     []Comment
	RemoteLinks  []RemoteLink
	Attachments  []Attachment
	History      []Change
}

func (i *Issue) creator() string {
	if len(i.History) == 0 {
		return Bot
	}
	return i.History[0].By
}

// Comment is one comment.
type Comment struct {
	ID      string
	By      string // Bot or Person
	Body    string // wiki markup, as written
	Created time.Time
	Updated time.Time
}

// RemoteLink is a link to a page elsewhere; GlobalID is unique within an issue.
type RemoteLink struct {
	ID       int
	GlobalID string
	URL      string
	Title    string
}

// Attachment is a file.
type Attachment struct {
	ID       string
	Filename string
	MIMEType string
	Content  []byte
	Created  time.Time
}

// Change is one entry of an issue's history.
type Change struct {
	At   time.Time
	By   string // Bot or Person
	What string // "created", "status", "comment", "comment-edited", "link", "attachment", "moved", "property <key>", or a field's id
	From string // of a field: what it was
	To   string // of a field: what it is; else the text or name that was added
}

// Who acts: the client of the REST API, or somebody through the server's hands.
const (
	Bot    = "bot"
	Person = "person"
)

// Open says whether the issue is in a status that is not done.
func (i Issue) Open() bool { return i.Category != Done }

// ChangesBy returns the part of the history that is somebody's.
func (i Issue) ChangesBy(who string) []Change {
	return slices.DeleteFunc(slices.Clone(i.History), func(c Change) bool { return c.By != who })
}

func (i *Issue) clone() Issue {
	c := *i
	c.PreviousKeys = slices.Clone(i.PreviousKeys)
	c.Labels = slices.Clone(i.Labels)
	c.Components = slices.Clone(i.Components)
	c.Fields = maps.Clone(i.Fields)
	c.Properties = maps.Clone(i.Properties)
	c.Comments = slices.Clone(i.Comments)
	c.RemoteLinks = slices.Clone(i.RemoteLinks)
	c.Attachments = slices.Clone(i.Attachments)
	c.History = slices.Clone(i.History)
	return c
}

func (i *Issue) log(c Change) {
	i.History = append(i.History, c)
	i.Updated = c.At
}
