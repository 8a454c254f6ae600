package fakejira

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// stamp is Jira's way to write a time: milliseconds, a zone without a colon.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000-0700") }

// self is the address of a resource in the API. On Cloud it is the gateway's
// since July 2026, so it cannot be turned into a link for people.
func (s *Server) self(parts ...string) string {
	base := "https://api.atlassian.com/ex/jira/11223344-a1b2-3b33-c444-def123456789/"
	if s.cfg.Flavour == DataCenter {
		base = "https://jira.example.com" + strings.TrimSuffix(s.cfg.BasePath, "/") + "/"
	}
	return base + api + strings.Join(parts, "/")
}

func (s *Server) named(kind, id, name string) map[string]any {
	return map[string]any{"self": s.self(kind, id), "id": id, "name": name}
}

func (s *Server) user(who string) map[string]any {
	name, mail := "Calico IPAM Bot", "ipam-bot@example.com"
	if who == Person {
		name, mail = "Kim Person", "kim@example.com"
	}
	if s.cfg.Flavour == DataCenter {
		return map[string]any{"self": s.self("user?username=" + who), "name": who, "key": "JIRAUSER-" + who,
			"displayName": name, "emailAddress": mail, "active": true}
	}
	return map[string]any{"self": s.self("user?accountId=" + who), "accountId": who, "accountType": "atlassian",
		"displayName": name, "emailAddress": mail, "active": true}
}

func (s *Server) projectView(p *project) map[string]any {
	v := s.named("project", p.id, p.Name)
	v["key"] = p.Key
	return v
}

func (s *Server) typeView(name string) map[string]any {
	v := s.named("issuetype", s.typeID(name), name)
	v["description"], v["subtask"] = "", name == subTask
	return v
}

func (s *Server) statusView(st Status) map[string]any {
	categories := map[Category]struct {
		id          int
		name, color string
	}{ToDo: {2, "To Do", "blue-gray"}, InProgress: {4, "In Progress", "yellow"}, Done: {3, "Done", "green"}}
	cat := categories[st.Category]
	v := s.named("status", s.statusID(st.Name), st.Name)
	v["description"], v["iconUrl"] = "", "https://jira.example.com/images/icons/status.png"
	v["statusCategory"] = map[string]any{
		"self": s.self("statuscategory", strconv.Itoa(cat.id)), "id": cat.id, "key": st.Category, "name": cat.name, "colorName": cat.color,
	}
	return v
}

// position gives a stable id to a name in one of the server's lists.
func position(base int, list []string, name string) string {
	return strconv.Itoa(base + slices.Index(list, name))
}

func (s *Server) priorityID(name string) string   { return position(1, s.cfg.Priorities, name) }
func (s *Server) resolutionID(name string) string { return position(10000, s.cfg.Resolutions, name) }
func (s *Server) componentID(p *project, name string) string {
	return p.id + position(10, p.Components, name)
}

func (s *Server) typeID(name string) string { return position(10100, s.allTypes(), name) }
func (s *Server) statusID(name string) string {
	return position(10200, s.allStatuses(), name)
}

func (s *Server) allTypes() []string {
	return union(s.projects, func(p *project) []string { return p.IssueTypes })
}

func (s *Server) allStatuses() []string {
	return union(s.projects, func(p *project) []string {
		var names []string
		for _, st := range p.Workflow.Statuses {
			names = append(names, st.Name)
		}
		return names
	})
}

func union(projects []*project, names func(*project) []string) []string {
	var all []string
	for _, p := range projects {
		for _, n := range names(p) {
			if !slices.Contains(all, n) {
				all = append(all, n)
			}
		}
	}
	return all
}

// fieldSet is the fields parameter of a read.
type fieldSet struct {
	all     bool
	names   []string
	without []string
}

func parseFields(list []string, byDefault string) fieldSet {
	if len(list) == 0 {
		list = []string{byDefault}
	}
	var f fieldSet
	for _, name := range list {
		switch {
		case name == "*all" || name == "*navigable":
			f.all = true
		case strings.HasPrefix(name, "-"):
			f.without = append(f.without, name[1:])
		default:
			f.names = append(f.names, name)
		}
	}
	if len(f.names) == 0 && len(f.without) > 0 {
		f.all = true
	}
	return f
}

// onlyID says that nothing beyond id and key was asked for.
func (f fieldSet) onlyID() bool {
	return !f.all && !slices.ContainsFunc(f.names, func(n string) bool { return n != "id" && n != "key" })
}

func (f fieldSet) wants(name string) bool {
	return (f.all || slices.Contains(f.names, name)) && !slices.Contains(f.without, name)
}

// issueView is an issue as the API shows it. A search on Cloud for id alone
// brings neither key nor fields.
func (s *Server) issueView(i *Issue, want fieldSet, properties []string) map[string]any {
	v := map[string]any{"id": i.ID, "self": s.self("issue", i.ID)}
	if want.all || !slices.Equal(want.names, []string{"id"}) {
		v["key"] = i.Key
		v["expand"] = "operations,versionedRepresentations,editmeta,changelog,renderedFields"
	}
	if !want.onlyID() {
		fields := s.fieldsView(i)
		maps.DeleteFunc(fields, func(name string, _ any) bool { return !want.wants(name) })
		v["fields"] = fields
	}
	if len(properties) > 0 {
		found := map[string]json.RawMessage{}
		for key, value := range i.Properties {
			if slices.Contains(properties, key) || slices.Contains(properties, "*all") {
				found[key] = value
			}
		}
		v["properties"] = found
	}
	return v
}

func (s *Server) fieldsView(i *Issue) map[string]any {
	p := s.project(i.Project)
	f := map[string]any{
		"summary": i.Summary, "description": nil, "labels": append([]string{}, i.Labels...),
		"project": s.projectView(p), "issuetype": s.typeView(i.Type),
		"status":     s.statusView(Status{i.Status, i.Category}),
		"resolution": nil, "resolutiondate": nil, "priority": nil, "assignee": nil,
		"reporter": s.user(i.creator()), "creator": s.user(i.creator()),
		"created": stamp(i.Created), "updated": stamp(i.Updated),
		"comment": s.commentsView(i),
	}
	if i.Description != "" {
		f["description"] = s.readBack(i.Description)
	}
	if i.Resolution != "" {
		f["resolution"] = s.named("resolution", s.resolutionID(i.Resolution), i.Resolution)
		f["resolutiondate"] = stamp(i.Resolved)
	}
	if i.Priority != "" {
		f["priority"] = s.named("priority", s.priorityID(i.Priority), i.Priority)
	}
	components := []any{}
	for _, name := range i.Components {
		components = append(components, s.named("component", s.componentID(p, name), name))
	}
	f["components"] = components
	attachments := []any{}
	for _, a := range i.Attachments {
		attachments = append(attachments, s.attachmentView(a))
	}
	f["attachment"] = attachments
	for id, value := range i.Fields {
		f[id] = value
	}
	return f
}

func (s *Server) commentsView(i *Issue) map[string]any {
	rows := []any{}
	for _, c := range i.Comments {
		rows = append(rows, s.commentView(i, c))
	}
	return map[string]any{"comments": rows, "startAt": 0, "maxResults": len(rows), "total": len(rows)}
}

func (s *Server) commentView(i *Issue, c Comment) map[string]any {
	return map[string]any{
		"self": s.self("issue", i.ID, "comment", c.ID), "id": c.ID, "body": s.readBack(c.Body),
		"author": s.user(c.By), "updateAuthor": s.user(c.By), "created": stamp(c.Created), "updated": stamp(c.Updated),
	}
}

func (s *Server) attachmentView(a Attachment) map[string]any {
	return map[string]any{
		"self": s.self("attachment", a.ID), "id": a.ID, "filename": a.Filename, "mimeType": a.MIMEType,
		"size": len(a.Content), "created": stamp(a.Created), "author": s.user(Bot),
		"content": s.self("attachment", "content", a.ID),
	}
}

// readBack is wiki text as a read returns it. Cloud keeps ADF and converts in
// both directions, so what comes back is not what was sent; here the line ends
// lose their blanks, runs of empty lines shrink and a code block gets one in
// front. Data Center returns what it was given.
func (s *Server) readBack(wiki string) string {
	if s.cfg.Flavour == DataCenter {
		return wiki
	}
	var out []string
	for line := range strings.SplitSeq(strings.ReplaceAll(wiki, "\r\n", "\n"), "\n") {
		line = strings.TrimRight(line, " \t")
		empty := len(out) == 0 || out[len(out)-1] == ""
		if line == "" && empty {
			continue
		}
		if strings.HasPrefix(line, "{code:") && !empty {
			out = append(out, "")
		}
		out = append(out, line)
	}
	return strings.TrimRight(strings.Join(out, "\n"), "\n")
}
