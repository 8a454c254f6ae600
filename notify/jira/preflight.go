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

// Preflight implements notify.Tracker: who we are, what we may, and whether the
// create screen takes what we send and asks for nothing else.
func (c *Client) Preflight(ctx context.Context, like notify.NewIssue) error {
	if c.me == "" {
		var me gojira.User
		if err := c.do(ctx, http.MethodGet, "rest/api/2/myself", nil, &me); err != nil {
			return err
		}
		c.me = c.userName(&me)
	}
	if err := c.permissions(ctx, like); err != nil {
		return err
	}
	return c.createScreen(ctx, like)
}

// needed are the permissions without which tickets cannot be kept. Without
// BROWSE_PROJECTS every search is empty. TRANSITION_ISSUES is missed when the
// first ticket is to be reopened or closed.
func needed(like notify.NewIssue) []string {
	out := []string{"BROWSE_PROJECTS", "CREATE_ISSUES", "EDIT_ISSUES", "ADD_COMMENTS"}
	if like.Attach {
		out = append(out, "CREATE_ATTACHMENTS")
	}
	if like.Link {
		out = append(out, "LINK_ISSUES")
	}
	return out
}

func (c *Client) permissions(ctx context.Context, like notify.NewIssue) error {
	project := like.Project
	var have struct {
		Permissions map[string]struct {
			Have bool `json:"havePermission"`
		} `json:"permissions"`
	}
	path := "rest/api/2/mypermissions?projectKey=" + url.QueryEscape(project) + "&permissions=" + strings.Join(needed(like), ",")
	if err := c.do(ctx, http.MethodGet, path, nil, &have); err != nil {
		return err
	}
	lacking := slices.DeleteFunc(needed(like), func(p string) bool { return have.Permissions[p].Have })
	if len(lacking) > 0 {
		return fmt.Errorf("jira: project %s: this account lacks %s", project, strings.Join(lacking, ", "))
	}
	return nil
}

type metaRow struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	FieldID    string `json:"fieldId"`
	Key        string `json:"key"`
	Required   bool   `json:"required"`
	HasDefault bool   `json:"hasDefaultValue"`
}

func (c *Client) createScreen(ctx context.Context, like notify.NewIssue) error {
	project, issueType := like.Project, like.Type
	root := "rest/api/2/issue/createmeta/" + url.PathEscape(project) + "/issuetypes"
	types, err := c.meta(ctx, root)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(types, func(r metaRow) bool { return strings.EqualFold(r.Name, issueType) })
	if i < 0 {
		var names []string
		for _, t := range types {
			names = append(names, t.Name)
		}
		return fmt.Errorf("jira: project %s has no issue type %q; it has %s", project, issueType, strings.Join(names, ", "))
	}
	fields, err := c.meta(ctx, root+"/"+url.PathEscape(types[i].ID))
	if err != nil {
		return err
	}
	ours := append([]string{"summary", "description", "labels"}, slices.Sorted(maps.Keys(like.Fields))...)
	if len(like.Components) > 0 {
		ours = append(ours, "components")
	}
	if like.Assignee != "" {
		ours = append(ours, "assignee")
	}
	if like.Priority != "" {
		ours = append(ours, "priority")
	}
	if c.o.FingerprintField != "" {
		ours = append(ours, c.o.FingerprintField)
	}
	var absent, required []string
	for _, o := range ours {
		// A parent can be set where no screen has it.
		if o != "parent" && !slices.ContainsFunc(fields, func(f metaRow) bool { return f.id() == o }) {
			absent = append(absent, o)
		}
	}
	given := append([]string{"project", "issuetype"}, ours...)
	for _, f := range fields {
		if f.Required && !f.HasDefault && !slices.Contains(given, f.id()) {
			required = append(required, fmt.Sprintf("%s (%s)", f.Name, f.id()))
		}
	}
	switch {
	case len(absent) > 0:
		return fmt.Errorf("jira: project %s: the create screen of %s lacks %s: put it there (without labels no ticket is found again), or leave its setting empty",
			project, issueType, strings.Join(absent, ", "))
	case len(required) > 0:
		return fmt.Errorf("jira: project %s: the create screen of %s requires %s: give them values in the configuration",
			project, issueType, strings.Join(required, ", "))
	}
	return nil
}

func (r metaRow) id() string {
	if r.FieldID != "" {
		return r.FieldID
	}
	return r.Key
}

// meta reads all pages of a createmeta resource. Cloud names their content
// issueTypes or fields, Data Center values.
func (c *Client) meta(ctx context.Context, path string) ([]metaRow, error) {
	var out []metaRow
	for range maxPages {
		var page struct {
			IssueTypes []metaRow `json:"issueTypes"`
			Fields     []metaRow `json:"fields"`
			Values     []metaRow `json:"values"`
			Total      int       `json:"total"`
		}
		if err := c.do(ctx, http.MethodGet, fmt.Sprintf("%s?startAt=%d&maxResults=50", path, len(out)), nil, &page); err != nil {
			return nil, err
		}
		rows := slices.Concat(page.IssueTypes, page.Fields, page.Values)
		out = append(out, rows...)
		if len(rows) == 0 || len(out) >= page.Total {
			break
		}
	}
	return out, nil
}
