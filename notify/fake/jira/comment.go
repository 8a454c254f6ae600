package fakejira

import (
	"encoding/json"
	"net/http"
	"slices"
)

const maxComments = 5000

func (s *Server) addComment(c *call) answer {
	i, body, refusal := s.commentRequest(c, AddComments)
	if refusal != nil {
		return *refusal
	}
	if len(i.Comments) >= maxComments {
		return failed(http.StatusRequestEntityTooLarge, "The issue has reached its limit of 5000 comments.")
	}
	return created(s.commentView(i, s.comment(i, Bot, body)))
}

func (s *Server) editComment(c *call) answer {
	i, body, refusal := s.commentRequest(c, EditOwnComments)
	if refusal != nil {
		return *refusal
	}
	at := slices.IndexFunc(i.Comments, func(have Comment) bool { return have.ID == c.vars[1] })
	if at < 0 {
		return noComment(c.vars[1])
	}
	if i.Comments[at].By != Bot {
		return failed(http.StatusBadRequest, "You do not have the permission to edit this comment.")
	}
	was := i.Comments[at].Body
	i.Comments[at].Body, i.Comments[at].Updated = body, s.now()
	i.log(Change{At: s.now(), By: Bot, What: "comment-edited", From: was, To: body})
	s.index.changed(i, s.now())
	return ok(s.commentView(i, i.Comments[at]))
}

func (s *Server) commentRequest(c *call, permission string) (*Issue, string, *answer) {
	i, hidden := s.visible(c, c.vars[0])
	if hidden != nil {
		return nil, "", hidden
	}
	if !s.may(c, s.project(i.Project), permission) {
		a := failed(http.StatusForbidden, "You do not have the permission to comment on this issue.")
		return nil, "", &a
	}
	var in struct {
		Body json.RawMessage `json:"body"`
	}
	if bad := c.decode(&in); bad != nil {
		return nil, "", bad
	}
	rules := &fieldRules{server: s, errors: map[string]string{}}
	body := rules.commentBody(in.Body)
	if len(rules.errors) > 0 {
		a := invalid(rules.errors)
		return nil, "", &a
	}
	return i, body, nil
}

func (r *fieldRules) commentBody(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == `""` {
		r.refuse("comment", "Comment body can not be empty!")
		return ""
	}
	body, _ := r.text("comment", raw)
	return body
}

// commentsOf reads the comments that an edit or a transition brings along.
func (r *fieldRules) commentsOf(in changes) []string {
	var bodies []string
	for _, operation := range in.Update["comment"] {
		var add struct {
			Body json.RawMessage `json:"body"`
		}
		raw, isAdd := operation["add"]
		if !isAdd || json.Unmarshal(raw, &add) != nil {
			r.refuse("comment", "Field 'comment' supports only update 'add' here")
			continue
		}
		bodies = append(bodies, r.commentBody(add.Body))
	}
	return bodies
}

func (s *Server) comment(i *Issue, who, body string) Comment {
	now := s.now()
	c := Comment{ID: s.newID(), By: who, Body: body, Created: now, Updated: now}
	i.Comments = append(i.Comments, c)
	i.log(Change{At: now, By: who, What: "comment", To: body})
	s.index.changed(i, now)
	return c
}

func (s *Server) listComments(c *call) answer {
	i, hidden := s.visible(c, c.vars[0])
	if hidden != nil {
		return *hidden
	}
	rows := []any{}
	for _, comment := range i.Comments {
		rows = append(rows, s.commentView(i, comment))
	}
	if c.URL.Query().Get("orderBy") == "-created" {
		slices.Reverse(rows)
	}
	page, start, limit := s.page(c, rows, 5000)
	return ok(map[string]any{"comments": page, "startAt": start, "maxResults": limit, "total": len(rows)})
}

func (s *Server) getComment(c *call) answer {
	i, hidden := s.visible(c, c.vars[0])
	if hidden != nil {
		return *hidden
	}
	for _, comment := range i.Comments {
		if comment.ID == c.vars[1] {
			return ok(s.commentView(i, comment))
		}
	}
	return noComment(c.vars[1])
}

func noComment(id string) answer {
	return failed(http.StatusNotFound, "Can not find a comment for the id: "+id+".")
}
