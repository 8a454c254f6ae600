package fakejira

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"ipamaudit/notify/fake/wire"
)

func (s *Server) createIssue(c *call) answer {
	var in changes
	if bad := c.decode(&in); bad != nil {
		return *bad
	}
	var wantProject, wantType ref
	_ = json.Unmarshal(in.Fields["project"], &wantProject)
	_ = json.Unmarshal(in.Fields["issuetype"], &wantType)
	delete(in.Fields, "project")
	delete(in.Fields, "issuetype")

	p := s.project(wantProject.Key + wantProject.ID)
	if p == nil {
		return invalid(map[string]string{"project": "valid project is required"})
	}
	if c.anonymous {
		return failed(http.StatusUnauthorized, "You do not have permission to create issues in this project.")
	}
	if !s.may(c, p, CreateIssues) {
		return failed(http.StatusForbidden, "You do not have permission to create issues in this project.")
	}
	issueType, known := s.issueType(p, wantType.ID+wantType.Name)
	if !known {
		return invalid(map[string]string{"issuetype": "Specify a valid issue type"})
	}

	now := s.now()
	i := &Issue{Project: p.Key, Type: issueType, Created: now, Updated: now}
	i.Priority = s.cfg.Priorities[len(s.cfg.Priorities)/2]
	if slices.Contains(p.OffScreen, "priority") {
		i.Priority = ""
	}
	i.Status, i.Category = p.Workflow.Statuses[0].Name, p.Workflow.Statuses[0].Category
	rules := &fieldRules{server: s, project: p, issue: i, errors: map[string]string{}}
	rules.apply(in)
	rules.required()
	rules.properties(in)
	if len(rules.errors) > 0 {
		return invalid(rules.errors)
	}
	if wire.FaultFrom(c.Context()) == DropLabels {
		i.Labels = nil
	}
	s.add(p, i, Bot)
	return created(map[string]any{"id": i.ID, "key": i.Key, "self": s.self("issue", i.ID)})
}

// add gives a new issue its id and key and shows it to the index.
func (s *Server) add(p *project, i *Issue, who string) {
	i.ID = s.newID()
	p.lastKey++
	i.Key = fmt.Sprintf("%s-%d", p.Key, p.lastKey)
	i.log(Change{At: i.Created, By: who, What: "created", To: i.Summary})
	s.issues = append(s.issues, i)
	s.index.changed(i, s.now())
}

// issueType finds a type of a project by id or name.
func (s *Server) issueType(p *project, idOrName string) (string, bool) {
	for _, name := range p.IssueTypes {
		if strings.EqualFold(name, idOrName) || s.typeID(name) == idOrName {
			return name, true
		}
	}
	return "", false
}

func (s *Server) getIssue(c *call) answer {
	i, hidden := s.visible(c, c.vars[0])
	if hidden != nil {
		return *hidden
	}
	q := c.URL.Query()
	return ok(s.issueView(i, parseFields(splitList(q["fields"]), "*all"), splitList(q["properties"])))
}

// bulkFetch reads up to 100 issues from the database, not from the index.
func (s *Server) bulkFetch(c *call) answer {
	var in struct {
		IDs        []string `json:"issueIdsOrKeys"`
		Fields     []string `json:"fields"`
		Properties []string `json:"properties"`
	}
	if bad := c.decode(&in); bad != nil {
		return *bad
	}
	if len(in.IDs) == 0 || len(in.IDs) > 100 {
		return failed(http.StatusBadRequest, "issueIdsOrKeys must have between 1 and 100 entries.")
	}
	found := []any{}
	for _, ref := range in.IDs {
		if i, hidden := s.visible(c, ref); hidden == nil {
			found = append(found, s.issueView(i, parseFields(in.Fields, "*navigable"), in.Properties))
		}
	}
	return ok(map[string]any{"issues": found, "issueErrors": []any{}})
}

func (s *Server) editIssue(c *call) answer {
	i, hidden := s.visible(c, c.vars[0])
	if hidden != nil {
		return *hidden
	}
	p := s.project(i.Project)
	if !s.may(c, p, EditIssues) {
		return failed(http.StatusForbidden, "You do not have permission to edit issues in this project.")
	}
	if c.URL.Query().Get("notifyUsers") == "false" {
		return failed(http.StatusForbidden, "To discard the user notification either admin or project admin permissions are required.")
	}
	var in changes
	if bad := c.decode(&in); bad != nil {
		return *bad
	}
	draft := i.clone()
	rules := &fieldRules{server: s, project: p, issue: &draft, errors: map[string]string{}}
	rules.apply(in)
	rules.properties(in)
	comments := rules.commentsOf(in)
	if len(rules.errors) > 0 {
		return invalid(rules.errors)
	}
	s.save(i, draft, Bot)
	for _, body := range comments {
		s.comment(i, Bot, body)
	}
	return noContent()
}

// save replaces i by its edited copy, and writes down what is different.
func (s *Server) save(i *Issue, draft Issue, who string) {
	now := s.now()
	before, after := auditable(i), auditable(&draft)
	for _, what := range slices.Sorted(maps.Keys(after)) {
		if before[what] != after[what] {
			draft.log(Change{At: now, By: who, What: what, From: before[what], To: after[what]})
		}
	}
	for what, was := range before {
		if _, still := after[what]; !still {
			draft.log(Change{At: now, By: who, What: what, From: was})
		}
	}
	*i = draft
	s.index.changed(i, now)
}

// auditable is the part of an issue whose edits make history.
func auditable(i *Issue) map[string]string {
	m := map[string]string{
		"summary": i.Summary, "description": i.Description, "labels": strings.Join(i.Labels, " "),
		"priority": i.Priority, "components": strings.Join(i.Components, " "),
		"status": i.Status, "resolution": i.Resolution,
	}
	for id, value := range i.Fields {
		m[id] = string(value)
	}
	for key, value := range i.Properties {
		m["property "+key] = string(value)
	}
	return m
}

func (s *Server) listProperties(c *call) answer {
	i, hidden := s.visible(c, c.vars[0])
	if hidden != nil {
		return *hidden
	}
	keys := []any{}
	for _, key := range slices.Sorted(maps.Keys(i.Properties)) {
		keys = append(keys, map[string]any{"key": key, "self": s.self("issue", i.Key, "properties", key)})
	}
	return ok(map[string]any{"keys": keys})
}

func (s *Server) getProperty(c *call) answer {
	i, hidden := s.visible(c, c.vars[0])
	if hidden != nil {
		return *hidden
	}
	value, has := i.Properties[c.vars[1]]
	if !has {
		return failed(http.StatusNotFound, "The property '"+c.vars[1]+"' does not exist.")
	}
	return ok(map[string]any{"key": c.vars[1], "value": value})
}

func (s *Server) putProperty(c *call) answer {
	i, hidden := s.visible(c, c.vars[0])
	if hidden != nil {
		return *hidden
	}
	if !s.may(c, s.project(i.Project), EditIssues) {
		return failed(http.StatusForbidden, "You do not have permission to edit issue '"+i.Key+"'.")
	}
	key := c.vars[1]
	if message := badProperty(key, c.body); message != "" {
		return failed(http.StatusBadRequest, message)
	}
	draft := i.clone()
	_, had := draft.Properties[key]
	if draft.Properties == nil {
		draft.Properties = map[string]json.RawMessage{}
	}
	draft.Properties[key] = json.RawMessage(slices.Clone(c.body))
	s.save(i, draft, Bot)
	a := answer{status: http.StatusCreated, body: map[string]any{}}
	if had {
		a.status = http.StatusOK
	}
	return a
}

// putRemoteLink is an upsert by globalId within the issue.
func (s *Server) putRemoteLink(c *call) answer {
	i, hidden := s.visible(c, c.vars[0])
	if hidden != nil {
		return *hidden
	}
	if !s.may(c, s.project(i.Project), LinkIssues) {
		return failed(http.StatusForbidden, "You do not have permission to link issues in this project.")
	}
	var in struct {
		GlobalID string `json:"globalId"`
		Object   struct {
			URL   string `json:"url"`
			Title string `json:"title"`
		} `json:"object"`
	}
	if bad := c.decode(&in); bad != nil {
		return *bad
	}
	errors := map[string]string{}
	if in.Object.Title == "" {
		errors["title"] = "'title' is required."
	}
	if in.Object.URL == "" {
		errors["url"] = "'url' is required."
	}
	if length(in.GlobalID) > 255 {
		errors["globalId"] = "'globalId' must be at most 255 characters."
	}
	if len(errors) > 0 {
		return invalid(errors)
	}
	link := RemoteLink{GlobalID: in.GlobalID, URL: in.Object.URL, Title: in.Object.Title}
	reply := answer{status: http.StatusCreated}
	at := slices.IndexFunc(i.RemoteLinks, func(l RemoteLink) bool { return in.GlobalID != "" && l.GlobalID == in.GlobalID })
	if at >= 0 {
		link.ID, reply.status = i.RemoteLinks[at].ID, http.StatusOK
		i.RemoteLinks[at] = link
	} else {
		link.ID, _ = strconv.Atoi(s.newID())
		i.RemoteLinks = append(i.RemoteLinks, link)
	}
	i.log(Change{At: s.now(), By: Bot, What: "link", To: link.URL})
	reply.body = map[string]any{"id": link.ID, "self": s.self("issue", i.Key, "remotelink", strconv.Itoa(link.ID))}
	return reply
}

// listRemoteLinks answers an array, and with a globalId that one link.
func (s *Server) listRemoteLinks(c *call) answer {
	want := c.URL.Query().Get("globalId")
	i, hidden := s.visible(c, c.vars[0])
	if hidden != nil {
		return *hidden
	}
	rows := []any{}
	for _, l := range i.RemoteLinks {
		row := map[string]any{
			"id": l.ID, "self": s.self("issue", i.Key, "remotelink", strconv.Itoa(l.ID)), "globalId": l.GlobalID,
			"object": map[string]any{"url": l.URL, "title": l.Title},
		}
		if l.GlobalID != "" && l.GlobalID == want {
			return ok(row)
		}
		rows = append(rows, row)
	}
	if want != "" {
		return failed(http.StatusNotFound, "There is no remote issue link with the global id '"+want+"'.")
	}
	return ok(rows)
}

const (
	maxUpload = 20 << 20
	maxFiles  = 2000
)

func (s *Server) attach(c *call) answer {
	i, hidden := s.visible(c, c.vars[0])
	if hidden != nil {
		return *hidden
	}
	switch token := c.Header.Get("X-Atlassian-Token"); {
	case token != "no-check" && token != "nocheck":
		return failed(http.StatusForbidden, "XSRF check failed")
	case !s.may(c, s.project(i.Project), CreateAttachments):
		return failed(http.StatusForbidden, "You do not have permission to create attachments for this issue.")
	}
	reader, err := c.multipart()
	if err != nil {
		return failed(http.StatusBadRequest, err.Error())
	}
	views := []any{}
	for _, file := range reader {
		if len(file.Content) > maxUpload || len(i.Attachments) >= maxFiles {
			return failed(http.StatusRequestEntityTooLarge, "The attachment is too large, or there are too many.")
		}
		file.ID, file.Created = s.newID(), s.now()
		i.Attachments = append(i.Attachments, file)
		i.log(Change{At: file.Created, By: Bot, What: "attachment", To: file.Filename})
		views = append(views, s.attachmentView(file))
	}
	return ok(views)
}

// enter moves an issue to a status, with the resolution that goes with it.
func enter(i *Issue, st Status, resolution string, now time.Time) {
	i.Status, i.Category = st.Name, st.Category
	switch {
	case st.Category != Done:
		i.Resolution, i.Resolved = "", time.Time{}
	case resolution != "":
		i.Resolution, i.Resolved = resolution, now
	}
}
