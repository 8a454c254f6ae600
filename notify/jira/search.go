package jira

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	gojira "github.com/andygrunwald/go-jira"

	"ipamaudit/notify"
)

// Search implements notify.Tracker.
func (c *Client) Search(ctx context.Context, projects []string, recent time.Duration, ids []string) ([]notify.Issue, error) {
	where := ""
	if len(projects) > 0 {
		keys := make([]string, len(projects))
		for i, p := range projects {
			keys[i] = quote(p)
		}
		where = "project in (" + strings.Join(keys, ", ") + ") AND "
	}
	days := int(recent.Hours()/24) + 1
	return c.search(ctx, fmt.Sprintf("%s(labels = %s OR description ~ %s) AND (statusCategory != Done OR updated >= -%dd) ORDER BY created ASC",
		where, quote(notify.StaticLabel), quote(notify.DescriptionWord), days), ids)
}

// Find implements notify.Tracker. A fingerprint is one word in every analyser of
// text that Jira has.
func (c *Client) Find(ctx context.Context, fingerprint string) ([]notify.Issue, error) {
	field := ""
	if number, ok := strings.CutPrefix(c.o.FingerprintField, "customfield_"); ok {
		field = fmt.Sprintf("cf[%s] ~ %s OR ", number, quote(fingerprint))
	}
	return c.search(ctx, fmt.Sprintf("%slabels = %s OR description ~ %s ORDER BY created ASC",
		field, quote(notify.FingerprintLabel(fingerprint)), quote(fingerprint)), nil)
}

// quote writes a JQL string. Everything is quoted: DO, INT and many others are
// reserved words (jiralert#14).
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

const (
	pageSize = 100
	// maxPages ends a server that pages for ever.
	maxPages = 200
	// maxReconcile is Cloud's limit.
	maxReconcile = 50
)

// search reads all pages. Both products take a POST, which no length of the
// query can break. Cloud has removed the classic search (410, CHANGE-2046) and
// pages by token, Data Center has only that one and pages by offset.
func (c *Client) search(ctx context.Context, jql string, reconcile []string) ([]notify.Issue, error) {
	var out []notify.Issue
	body := map[string]any{"jql": jql, "fields": c.issueFields(), "maxResults": pageSize}
	path := "rest/api/2/search"
	if c.o.Flavour == Cloud {
		path += "/jql"
		// Search lags behind; these are read fresh.
		// https://developer.atlassian.com/cloud/jira/platform/search-and-reconcile/
		if numbers := numeric(reconcile); len(numbers) > 0 {
			body["reconcileIssues"] = numbers
		}
	}
	for range maxPages {
		var page struct {
			Issues        []gojira.Issue `json:"issues"`
			NextPageToken string         `json:"nextPageToken"`
			Total         int            `json:"total"`
		}
		if err := c.do(ctx, http.MethodPost, path, body, &page); err != nil {
			return nil, err
		}
		for _, i := range page.Issues {
			out = append(out, c.issue(i))
		}
		switch {
		case c.o.Flavour == Cloud && page.NextPageToken != "":
			body["nextPageToken"] = page.NextPageToken
		case c.o.Flavour == DataCenter && len(page.Issues) > 0 && len(out) < page.Total:
			body["startAt"] = len(out)
		default:
			return out, nil
		}
	}
	return nil, fmt.Errorf("jira: search %s: more than %d pages", jql, maxPages)
}

func numeric(ids []string) []int64 {
	var out []int64
	for _, id := range ids {
		if n, err := strconv.ParseInt(id, 10, 64); err == nil && len(out) < maxReconcile {
			out = append(out, n)
		}
	}
	return out
}
