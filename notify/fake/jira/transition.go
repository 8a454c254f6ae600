package fakejira

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// transitionID differs from project to project, as it does on a real site, so
// that nobody can get away with a constant.
func (s *Server) transitionID(p *project, n int) string {
	return strconv.Itoa(100*slices.Index(s.projects, p) + 10*(n+1) + 1)
}

func (w Workflow) status(name string) (Status, bool) {
	at := slices.IndexFunc(w.Statuses, func(st Status) bool { return strings.EqualFold(st.Name, name) })
	if at < 0 {
		return Status{}, false
	}
	return w.Statuses[at], true
}

func (t Transition) leads(from string) bool {
	return len(t.From) == 0 || slices.Contains(t.From, from)
}

// listTransitions answers an empty list without the permission, not an error.
func (s *Server) listTransitions(c *call) answer {
	i, hidden := s.visible(c, c.vars[0])
	if hidden != nil {
		return *hidden
	}
	p := s.project(i.Project)
	rows := []any{}
	for n, t := range p.Workflow.Transitions {
		id := s.transitionID(p, n)
		want := c.URL.Query().Get("transitionId")
		if !t.leads(i.Status) || !s.may(c, p, TransitionIssues) || want != "" && want != id {
			continue
		}
		to, _ := p.Workflow.status(t.To)
		row := map[string]any{
			"id": id, "name": t.Name, "to": s.statusView(to), "hasScreen": t.Resolution != Absent,
			"isGlobal": len(t.From) == 0, "isInitial": false, "isConditional": false,
		}
		if strings.Contains(c.URL.Query().Get("expand"), "transitions.fields") {
			row["fields"] = s.transitionScreen(t)
		}
		rows = append(rows, row)
	}
	return ok(map[string]any{"expand": "transitions", "transitions": rows})
}

func (s *Server) transitionScreen(t Transition) map[string]any {
	if t.Resolution == Absent {
		return map[string]any{}
	}
	var allowed []any
	for _, name := range s.cfg.Resolutions {
		allowed = append(allowed, s.named("resolution", s.resolutionID(name), name))
	}
	field := map[string]any{
		"required": t.Resolution == Required, "name": "Resolution", "operations": []string{"set"},
		"schema": map[string]any{"type": "resolution", "system": "resolution"}, "hasDefaultValue": false,
		"allowedValues": allowed, "key": "resolution",
	}
	if s.cfg.Flavour == DataCenter {
		field["fieldId"] = "resolution"
		delete(field, "key")
	}
	return map[string]any{"resolution": field}
}

func (s *Server) doTransition(c *call) answer {
	i, hidden := s.visible(c, c.vars[0])
	if hidden != nil {
		return *hidden
	}
	var in struct {
		changes
		Transition ref `json:"transition"`
	}
	if bad := c.decode(&in); bad != nil {
		return *bad
	}
	if in.Transition.ID == "" {
		return failed(http.StatusBadRequest, "Missing 'transition' identifier")
	}
	p := s.project(i.Project)
	var step *Transition
	for n, t := range p.Workflow.Transitions {
		if s.transitionID(p, n) == in.Transition.ID && t.leads(i.Status) && s.may(c, p, TransitionIssues) {
			step = &t
		}
	}
	if step == nil {
		return failed(http.StatusBadRequest, fmt.Sprintf("It seems that you have tried to perform a workflow operation (%s) "+
			"that is not valid for the current state of this issue (%s). The likely cause is that somebody has changed the issue recently, "+
			"please look at the issue history for details.", in.Transition.ID, i.Key))
	}
	rules := &fieldRules{server: s, project: p, errors: map[string]string{}}
	resolution := rules.resolutionFor(*step, in.changes)
	comments := rules.commentsOf(in.changes)
	if len(rules.errors) > 0 {
		return invalid(rules.errors)
	}
	s.move(i, *step, resolution, Bot)
	for _, body := range comments {
		s.comment(i, Bot, body)
	}
	return noContent()
}

// resolutionFor checks the fields of a transition against its screen, which has
// the resolution or nothing.
func (r *fieldRules) resolutionFor(t Transition, in changes) string {
	want := ""
	for id, raw := range in.Fields {
		var named ref
		switch {
		case id != "resolution" || t.Resolution == Absent:
			r.refuse(id, notOnScreen(id))
		default:
			_ = json.Unmarshal(raw, &named) // what is no reference names no resolution
			for _, name := range r.server.cfg.Resolutions {
				if strings.EqualFold(name, named.Name) || r.server.resolutionID(name) == named.ID {
					want = name
				}
			}
			if want == "" {
				r.refuse(id, "Resolution name '"+named.Name+"' is not valid")
			}
		}
	}
	if _, refused := r.errors["resolution"]; want == "" && t.Resolution == Required && !refused {
		r.refuse("resolution", "Resolution is required.")
	}
	for id := range in.Update {
		if id != "comment" {
			r.refuse(id, notOnScreen(id))
		}
	}
	return want
}

func (s *Server) move(i *Issue, t Transition, resolution, who string) {
	to, _ := s.project(i.Project).Workflow.status(t.To)
	if resolution == "" {
		resolution = t.Sets
	}
	draft := i.clone()
	enter(&draft, to, resolution, s.now())
	s.save(i, draft, who)
}
