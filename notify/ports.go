package notify

import (
	"context"
	"errors"
	"time"
)

// Errors that the ports return wrapped; the notifier decides by them.
var (
	// ErrAmbiguous: the call was sent and its answer was lost (timeout, reset,
	// 5xx). It may have been done, so it is never repeated blindly.
	ErrAmbiguous = errors.New("the answer was lost, it may or may not have been done")
	// ErrNotFound: no such issue or message, or not visible.
	ErrNotFound = errors.New("not found")
	// ErrUnreachable: a question was not answered, by anybody who could.
	ErrUnreachable = errors.New("no answer")
	// ErrUnauthenticated: the credentials do not hold, so nothing that was read
	// can be believed. Jira Cloud answers searches of such requests with 200 and
	// an empty list (MrRefactoring/jira.js#418).
	ErrUnauthenticated = errors.New("not authenticated")
	// ErrRefused: the message cannot be edited any more.
	ErrRefused = errors.New("edit refused")
	// ErrCannotLook: this port has no way to look for a message of its own.
	ErrCannotLook = errors.New("own messages cannot be looked up here")
)

// Issue is a ticket as the tracker has it.
type Issue struct {
	// ID never changes; Key does when the issue is moved.
	ID, Key, URL string
	// Summary and Description are as read, Description in wiki markup.
	Summary, Description string
	Labels               []string
	// Created reports whether this very account has created it.
	Created bool
	// Status is the name, Done its category, whatever the workflow's names are.
	Status string
	Done   bool
	// Resolution may be empty on a done issue.
	Resolution string
	// ResolvedAt is zero while unresolved, and on done issues without resolution.
	ResolvedAt time.Time
}

// NewIssue is what is created.
type NewIssue struct {
	Project, Type, Summary, Description string
	Labels                              []string
	// What follows is left out when empty.
	Priority   string
	Components []string
	Assignee   string         // account id on Cloud, user name on Data Center
	Fields     map[string]any // further ones by id, as the API wants them
	// Attach and Link say that it gets an attachment or a link later.
	Attach, Link bool
}

// Edit is what is changed on an issue; zero fields stay as they are. Labels are
// only ever added.
type Edit struct {
	Summary, Description string
	AddLabels            []string
}

// Tracker is all that the notifier needs of Jira; notify/jira implements it.
type Tracker interface {
	// Preflight proves that tickets like this one can be found, created and edited
	// in its project, before the first write. The error says what is missing.
	Preflight(ctx context.Context, like NewIssue) error
	// Search returns the tool's issues in the projects, or in all without any, that
	// are open or were touched within recent: by their label, or by what the tool
	// has written into them. It is eventually consistent, except for the issues
	// whose ids are given (as far as the tracker can do that).
	Search(ctx context.Context, projects []string, recent time.Duration, ids []string) ([]Issue, error)
	// Find returns every issue that has the label of the fingerprint or names the
	// fingerprint in its description, in any project and status, as far as search
	// knows already.
	Find(ctx context.Context, fingerprint string) ([]Issue, error)
	// Get reads one issue, consistently. It fails with ErrNotFound.
	Get(ctx context.Context, id string) (Issue, error)
	// Create fails with ErrAmbiguous when it may have happened; any other error
	// says that nothing was created.
	Create(ctx context.Context, n NewIssue) (Issue, error)
	// Edit may be repeated without harm.
	Edit(ctx context.Context, id string, e Edit) error
	// Comment posts body unless the newest comment of this tool has the same
	// ref, and reports whether it did. A body ends with CommentRef(ref).
	Comment(ctx context.Context, id, ref, body string) (bool, error)
	// Reopen moves a done issue to a status that is not done, by the transition or
	// to the status named via, if it is not empty.
	Reopen(ctx context.Context, id, via string) error
	// Close moves the issue to a done status, with the resolution if the
	// transition asks for one. via as in Reopen.
	Close(ctx context.Context, id, via, resolution string) error
	// Attach adds a file, unless the issue has one that begins with
	// AttachmentPrefix already.
	Attach(ctx context.Context, id, name string, content []byte) error
	// Link adds the issue's link with this id, or replaces it.
	Link(ctx context.Context, id, linkID, url, title string) error
	// String names the place for people.
	String() string
}

// AttachmentPrefix begins the names of the tool's attachments.
const AttachmentPrefix = "ipamaudit-"

// Messenger is all that the notifier needs of Slack; notify/slack implements it.
type Messenger interface {
	// Preflight proves that the credentials hold.
	Preflight(ctx context.Context) error
	// Post sends a message, as a reply where thread is not empty. It fails with
	// ErrAmbiguous when it may have been sent. A port that learns no id (an
	// incoming webhook) returns a Posted without TS.
	Post(ctx context.Context, channel, thread string, m Message) (Posted, error)
	// Update replaces a message. It fails with ErrNotFound or ErrRefused.
	Update(ctx context.Context, channel, ts string, m Message) error
	// Find looks for a message of this tool by its key, not older than since. It
	// fails with ErrNotFound or ErrCannotLook.
	Find(ctx context.Context, channel, thread, key string, since time.Time) (Posted, error)
	// Permalink returns a link for people, empty where there is none.
	Permalink(ctx context.Context, channel, ts string) string
	// Threads reports whether replies are possible.
	Threads() bool
	// String names the place for people.
	String() string
}

// Posted is where a message is. Channel is Slack's id of it.
type Posted struct{ Channel, TS string }
