package jira

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	gojira "github.com/andygrunwald/go-jira"

	"ipamaudit/notify"
)

func issuePath(id string, more ...string) string {
	return strings.Join(append([]string{"rest/api/2/issue", url.PathEscape(id)}, more...), "/")
}

// Get implements notify.Tracker. Reading by id is consistent and follows moves.
func (c *Client) Get(ctx context.Context, id string) (notify.Issue, error) {
	var i gojira.Issue
	if err := c.do(ctx, http.MethodGet, issuePath(id)+"?fields="+strings.Join(c.issueFields(), ","), nil, &i); err != nil {
		return notify.Issue{}, err
	}
	return c.issue(i), nil
}

// Create implements notify.Tracker.
func (c *Client) Create(ctx context.Context, n notify.NewIssue) (notify.Issue, error) {
	f := &gojira.IssueFields{
		Project: gojira.Project{Key: n.Project}, Type: gojira.IssueType{Name: n.Type},
		Summary: n.Summary, Description: n.Description,
	}
	if n.Priority != "" {
		f.Priority = &gojira.Priority{Name: n.Priority}
	}
	for _, name := range n.Components {
		f.Components = append(f.Components, &gojira.Component{Name: name})
	}
	unknowns := maps.Clone(n.Fields)
	if unknowns == nil {
		unknowns = map[string]any{}
	}
	labels, field := c.split(n.Labels)
	f.Labels = labels
	if len(field) > 0 {
		unknowns[c.o.FingerprintField] = strings.Join(field, " ")
	}
	if n.Assignee != "" {
		unknowns["assignee"] = map[string]string{c.userKey(): n.Assignee}
	}
	f.Unknowns = unknowns
	created, resp, err := c.api.Issue.CreateWithContext(ctx, &gojira.Issue{Fields: f})
	if err := c.check(resp, err, true, "create in "+n.Project); err != nil {
		return notify.Issue{}, err
	}
	if created.ID == "" || created.Key == "" {
		return notify.Issue{}, fmt.Errorf("jira: create in %s: %w: the answer names no issue", n.Project, notify.ErrAmbiguous)
	}
	out := c.issue(gojira.Issue{ID: created.ID, Key: created.Key})
	out.Summary, out.Description, out.Labels = n.Summary, n.Description, n.Labels
	return out, nil
}

// Edit implements notify.Tracker.
func (c *Client) Edit(ctx context.Context, id string, e notify.Edit) error {
	fields, body := map[string]any{}, map[string]any{}
	if e.Summary != "" {
		fields["summary"] = e.Summary
	}
	if e.Description != "" {
		fields["description"] = e.Description
	}
	if len(fields) > 0 {
		body["fields"] = fields
	}
	labels, field := c.split(e.AddLabels)
	if len(field) > 0 {
		now, err := c.Get(ctx, id)
		if err != nil {
			return err
		}
		_, have := c.split(now.Labels)
		fields[c.o.FingerprintField] = strings.Join(slices.Concat(have, field), " ")
		body["fields"] = fields
	}
	var add []map[string]string
	for _, l := range labels {
		add = append(add, map[string]string{"add": l})
	}
	if len(add) > 0 {
		body["update"] = map[string]any{"labels": add}
	}
	resp, err := c.api.Issue.UpdateIssueWithContext(ctx, url.PathEscape(id), body)
	return c.check(resp, err, true, "edit "+id)
}

// split takes the labels out that have their place in the fingerprint field.
func (c *Client) split(labels []string) (others, field []string) {
	if c.o.FingerprintField == "" {
		return labels, nil
	}
	for _, l := range labels {
		if strings.HasPrefix(l, notify.FingerprintLabel("")) {
			field = append(field, l)
		} else {
			others = append(others, l)
		}
	}
	return others, field
}

// fieldLabels are the labels that the fingerprint field stands for.
func (c *Client) fieldLabels(f *gojira.IssueFields) []string {
	text, _ := f.Unknowns[c.o.FingerprintField].(string)
	return strings.Fields(text)
}

type comment struct {
	Body string `json:"body"`
}

// Comment implements notify.Tracker. The body is posted raw: go-jira's comment
// carries an empty author, which Jira's own schema forbids.
func (c *Client) Comment(ctx context.Context, id, ref, body string) (bool, error) {
	last, err := c.lastRef(ctx, id)
	if err != nil || last == ref {
		return false, err
	}
	return true, c.do(ctx, http.MethodPost, issuePath(id, "comment"), comment{body}, nil)
}

// lastRef is the ref of the tool's newest comment, "" when it has none.
func (c *Client) lastRef(ctx context.Context, id string) (string, error) {
	for start := 0; start < pageSize*maxPages; {
		var page struct {
			Comments []comment `json:"comments"`
			Total    int       `json:"total"`
		}
		query := fmt.Sprintf("?orderBy=-created&startAt=%d&maxResults=%d", start, pageSize)
		if err := c.do(ctx, http.MethodGet, issuePath(id, "comment")+query, nil, &page); err != nil {
			return "", err
		}
		for _, cm := range page.Comments {
			if ref, ok := notify.ParseCommentRef(cm.Body); ok {
				return ref, nil
			}
		}
		if start += len(page.Comments); len(page.Comments) == 0 || start >= page.Total {
			break
		}
	}
	return "", nil
}

// userKey is what names a user: Cloud has no user names any more.
func (c *Client) userKey() string {
	if c.o.Flavour == Cloud {
		return "accountId"
	}
	return "name"
}

func (c *Client) userName(u *gojira.User) string {
	if c.o.Flavour == Cloud {
		return u.AccountID
	}
	return u.Name
}

// Reopen implements notify.Tracker.
func (c *Client) Reopen(ctx context.Context, id, via string) error {
	return c.transition(ctx, id, via, []string{gojira.StatusCategoryToDo, gojira.StatusCategoryInProgress}, "")
}

// Close implements notify.Tracker.
func (c *Client) Close(ctx context.Context, id, via, resolution string) error {
	return c.transition(ctx, id, via, []string{gojira.StatusCategoryComplete}, resolution)
}

// transition takes the first way to one of the categories, in their order. Ids
// and names of transitions are every workflow's own, categories are not.
func (c *Client) transition(ctx context.Context, id, via string, categories []string, resolution string) error {
	all, resp, err := c.api.Issue.GetTransitionsWithContext(ctx, url.PathEscape(id))
	if err := c.check(resp, err, false, "transitions of "+id); err != nil {
		return err
	}
	for _, category := range categories {
		for _, t := range all {
			if t.To.StatusCategory.Key != category || asksForMore(t) ||
				via != "" && !strings.EqualFold(via, t.Name) && !strings.EqualFold(via, t.To.Name) {
				continue
			}
			body := map[string]any{"transition": map[string]string{"id": t.ID}}
			// Sent only where the screen has it: elsewhere it is an error.
			if _, has := t.Fields["resolution"]; has && resolution != "" {
				body["fields"] = map[string]any{"resolution": map[string]string{"name": resolution}}
			}
			return c.do(ctx, http.MethodPost, issuePath(id, "transitions"), body, nil)
		}
	}
	var names []string
	for _, t := range all {
		names = append(names, fmt.Sprintf("%s to %s", t.Name, t.To.Name))
	}
	slices.Sort(names)
	return fmt.Errorf("jira: issue %s: no usable transition to a status of category %s is offered (offered: %s): "+
		"look at the workflow and the permission Transition Issues", id, strings.Join(categories, " or "), strings.Join(names, ", "))
}

// asksForMore reports whether a transition's screen requires what we cannot give.
func asksForMore(t gojira.Transition) bool {
	for name, f := range t.Fields {
		if f.Required && name != "resolution" {
			return true
		}
	}
	return false
}
