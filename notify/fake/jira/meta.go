package fakejira

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

func (s *Server) serverInfo(c *call) answer {
	info := map[string]any{
		"baseUrl": "https://example.atlassian.net", "deploymentType": "Cloud", "version": "1001.0.0-SNAPSHOT",
		"versionNumbers": []int{1001, 0, 0}, "buildNumber": 100285, "serverTitle": "Jira",
		"serverTime": stamp(s.now()),
	}
	if s.cfg.Flavour == DataCenter {
		info["baseUrl"], info["deploymentType"] = "https://jira.example.com"+s.cfg.BasePath, "Server"
		info["version"], info["versionNumbers"], info["buildNumber"] = "10.3.6", []int{10, 3, 6}, 10030006
	}
	return ok(info)
}

func (s *Server) myself(c *call) answer {
	if c.anonymous {
		return failed(http.StatusUnauthorized, "Client must be authenticated to access this resource.")
	}
	me := s.user(Bot)
	me["timeZone"], me["locale"] = "Etc/UTC", "en_US"
	return ok(me)
}

func (s *Server) myPermissions(c *call) answer {
	q := c.URL.Query()
	asked := splitList(q["permissions"])
	if len(asked) == 0 {
		if s.cfg.Flavour == Cloud {
			return failed(http.StatusBadRequest, "The 'permissions' query parameter is required.")
		}
		asked = permissions()
	}
	var p *project
	if ref := q.Get("projectKey") + q.Get("projectId"); ref != "" {
		if p = s.project(ref); p == nil {
			return failed(http.StatusNotFound, "No project could be found with key '"+ref+"'.")
		}
	}
	out := map[string]any{}
	for n, key := range asked {
		if !slices.Contains(permissions(), key) {
			return failed(http.StatusBadRequest, "Unrecognized permission '"+key+"'")
		}
		have := !c.anonymous && !slices.Contains(notTheBots(), key)
		if p != nil {
			have = s.may(c, p, key)
		}
		out[key] = map[string]any{
			"id": strconv.Itoa(10 + n), "key": key, "name": key, "type": "PROJECT", "description": "", "havePermission": have,
		}
	}
	return ok(map[string]any{"permissions": out})
}

func (s *Server) priorities(*call) answer {
	list := []map[string]any{}
	for _, name := range s.cfg.Priorities {
		list = append(list, s.named("priority", s.priorityID(name), name))
	}
	return ok(list)
}

func (s *Server) resolutions(*call) answer {
	list := []map[string]any{}
	for _, name := range s.cfg.Resolutions {
		list = append(list, s.named("resolution", s.resolutionID(name), name))
	}
	return ok(list)
}

func (s *Server) getProject(c *call) answer {
	p := s.project(c.vars[0])
	if p == nil || !s.may(c, p, BrowseProjects) {
		return failed(http.StatusNotFound, "No project could be found with key '"+c.vars[0]+"'.")
	}
	view := s.projectView(p)
	types := []map[string]any{}
	for _, t := range p.IssueTypes {
		types = append(types, s.typeView(t))
	}
	view["issueTypes"] = types
	return ok(view)
}

// createMetaTypes and createMetaFields are the create screen. Both products page
// it; Cloud and Data Center name the page's content differently.
func (s *Server) createMetaTypes(c *call) answer {
	p, refusal := s.creatable(c)
	if refusal != nil {
		return *refusal
	}
	var rows []any
	for _, t := range p.IssueTypes {
		rows = append(rows, s.typeView(t))
	}
	return s.metaPage(c, "issueTypes", rows)
}

func (s *Server) createMetaFields(c *call) answer {
	p, refusal := s.creatable(c)
	if refusal != nil {
		return *refusal
	}
	issueType, known := s.issueType(p, c.vars[1])
	if !known {
		return failed(http.StatusBadRequest, "The issue type with ID '"+c.vars[1]+"' is not available in project '"+p.Key+"'.")
	}
	return s.metaPage(c, "fields", s.createScreen(p, issueType))
}

func (s *Server) creatable(c *call) (*project, *answer) {
	p := s.project(c.vars[0])
	if p == nil || !s.may(c, p, CreateIssues) {
		a := failed(http.StatusBadRequest, "The project '"+c.vars[0]+"' does not exist or you do not have permission to create issues in it.")
		return nil, &a
	}
	return p, nil
}

func (s *Server) metaPage(c *call, cloudKey string, rows []any) answer {
	page, start, limit := s.page(c, rows, 50)
	body := map[string]any{"startAt": start, "maxResults": limit, "total": len(rows)}
	if s.cfg.Flavour == DataCenter {
		body["values"], body["isLast"] = page, start+len(page) >= len(rows)
	} else {
		body[cloudKey] = page
	}
	return ok(body)
}

// page cuts rows by startAt and maxResults of the query.
func (s *Server) page(c *call, rows []any, limit int) (page []any, start, most int) {
	q := c.URL.Query()
	start, _ = strconv.Atoi(q.Get("startAt"))
	if n, err := strconv.Atoi(q.Get("maxResults")); err == nil && n >= 0 && n < limit {
		limit = n
	}
	limit = s.capPage(limit)
	start = min(max0(start), len(rows))
	end := min(start+limit, len(rows))
	return append([]any{}, rows[start:end]...), start, limit
}

func (s *Server) capPage(n int) int {
	if s.cfg.PageSize > 0 {
		return min(n, s.cfg.PageSize)
	}
	return n
}

func max0(n int) int { return max(n, 0) }

// createScreen lists the fields of the create screen. reporter is required and
// has a default, as on every real site: required alone must not stop a client.
func (s *Server) createScreen(p *project, issueType string) []any {
	var out []any
	add := func(id, name, kind string, required, hasDefault bool, operations []string, allowed any) {
		if slices.Contains(p.OffScreen, id) {
			return
		}
		schema := map[string]any{"type": kind, "system": id}
		if strings.HasPrefix(id, "customfield_") {
			n, _ := strconv.Atoi(strings.TrimPrefix(id, "customfield_"))
			schema = map[string]any{"type": kind, "custom": "com.atlassian.jira.plugin.system.customfieldtypes:" + kind, "customId": n}
		}
		if kind == "array" {
			schema["items"] = "string"
		}
		field := map[string]any{
			"fieldId": id, "name": name, "required": required, "hasDefaultValue": hasDefault,
			"operations": operations, "schema": schema,
		}
		if s.cfg.Flavour == Cloud {
			field["key"] = id
		}
		if allowed != nil {
			field["allowedValues"] = allowed
		}
		out = append(out, field)
	}
	set, list := []string{"set"}, []string{"add", "set", "remove"}
	priorities, components := []any{}, []any{}
	for _, name := range s.cfg.Priorities {
		priorities = append(priorities, s.named("priority", s.priorityID(name), name))
	}
	for _, name := range p.Components {
		components = append(components, s.named("component", s.componentID(p, name), name))
	}
	add("project", "Project", "project", true, false, set, []any{s.projectView(p)})
	add("issuetype", "Issue Type", "issuetype", true, false, []string{}, []any{s.typeView(issueType)})
	add("summary", "Summary", "string", true, false, set, nil)
	add("reporter", "Reporter", "user", true, true, set, nil)
	add("description", "Description", "string", false, false, set, nil)
	add("labels", "Labels", "array", false, false, list, nil)
	add("priority", "Priority", "priority", false, true, set, priorities)
	add("components", "Components", "array", false, false, list, components)
	add("assignee", "Assignee", "user", false, false, set, nil)
	add("attachment", "Attachment", "array", false, false, []string{}, nil)
	if issueType == subTask {
		add("parent", "Parent", "issuelink", true, false, set, nil)
	}
	for _, f := range p.Fields {
		kind, ops, allowed := "string", set, any(nil)
		switch f.Kind {
		case Text:
		case Number:
			kind = "number"
		case User:
			kind = "user"
		case Labels:
			kind, ops = "array", list
		case Select:
			kind = "option"
			options := []any{}
			for n, o := range f.Options {
				options = append(options, map[string]any{"id": strconv.Itoa(n + 1), "value": o})
			}
			allowed = options
		}
		add(f.ID, f.Name, kind, f.Required, false, ops, allowed)
	}
	return out
}

// splitList reads a list that was sent as repeated parameters, with commas, or both.
func splitList(values []string) []string {
	var out []string
	for _, v := range values {
		for item := range strings.SplitSeq(v, ",") {
			if item = strings.TrimSpace(item); item != "" {
				out = append(out, item)
			}
		}
	}
	return out
}
