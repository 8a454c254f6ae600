package jira

import (
	"bytes"
	"context"
	"net/http"
	"net/url"
	"strings"

	gojira "github.com/andygrunwald/go-jira"

	"ipamaudit/notify"
)

// Attach implements notify.Tracker.
func (c *Client) Attach(ctx context.Context, id, name string, content []byte) error {
	var i gojira.Issue
	if err := c.do(ctx, http.MethodGet, issuePath(id)+"?fields=attachment", nil, &i); err != nil {
		return err
	}
	if i.Fields != nil {
		for _, a := range i.Fields.Attachments {
			if strings.HasPrefix(a.Filename, notify.AttachmentPrefix) {
				return nil
			}
		}
	}
	_, resp, err := c.api.Issue.PostAttachmentWithContext(ctx, url.PathEscape(id), bytes.NewReader(content), name)
	return c.check(resp, err, true, "attach to "+id)
}

// Link implements notify.Tracker. Jira knows the link again by its global id.
func (c *Client) Link(ctx context.Context, id, linkID, to, title string) error {
	return c.do(ctx, http.MethodPost, issuePath(id, "remotelink"), gojira.RemoteLink{
		GlobalID: linkID, Object: &gojira.RemoteLinkObject{URL: to, Title: title},
	}, nil)
}
