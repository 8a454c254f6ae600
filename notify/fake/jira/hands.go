package fakejira

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// The methods of this file are people's hands: what somebody does to an issue in
// the browser. They need no permission, and search learns of them as late as of
// everything else. ref is an id, a key or a former key.

// hand edits an issue as a person.
func (s *Server) hand(ref string, edit func(*Issue) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(ref)
	if i == nil {
		return fmt.Errorf("fake Jira: there is no issue %s", ref)
	}
	draft := i.clone()
	if err := edit(&draft); err != nil {
		return fmt.Errorf("fake Jira: %s: %w", ref, err)
	}
	s.save(i, draft, Person)
	return nil
}

// EditSummary replaces the summary.
func (s *Server) EditSummary(ref, text string) error {
	return s.hand(ref, func(i *Issue) error { i.Summary = text; return nil })
}

// EditDescription replaces the description.
func (s *Server) EditDescription(ref, text string) error {
	return s.hand(ref, func(i *Issue) error { i.Description = text; return nil })
}

// AddLabels adds labels.
func (s *Server) AddLabels(ref string, labels ...string) error {
	return s.hand(ref, func(i *Issue) error {
		for _, l := range labels {
			if !slices.Contains(i.Labels, l) {
				i.Labels = append(i.Labels, l)
			}
		}
		return nil
	})
}

// RemoveLabels removes labels; those that are not there do not matter.
func (s *Server) RemoveLabels(ref string, labels ...string) error {
	return s.hand(ref, func(i *Issue) error {
		i.Labels = slices.DeleteFunc(i.Labels, func(l string) bool { return slices.Contains(labels, l) })
		return nil
	})
}

// SetPriority changes the priority.
func (s *Server) SetPriority(ref, name string) error {
	return s.hand(ref, func(i *Issue) error { i.Priority = name; return nil })
}

// SetField sets any other field, "assignee" or a custom one, to a JSON value.
func (s *Server) SetField(ref, id string, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("fake Jira: value of %s: %w", id, err)
	}
	return s.hand(ref, func(i *Issue) error {
		if i.Fields == nil {
			i.Fields = map[string]json.RawMessage{}
		}
		i.Fields[id] = raw
		return nil
	})
}

// Comment writes a comment as a person.
func (s *Server) Comment(ref, text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(ref)
	if i == nil {
		return fmt.Errorf("fake Jira: there is no issue %s", ref)
	}
	s.comment(i, Person, text)
	return nil
}

// SetStatus moves an issue to a status of its project, whether or not the
// workflow has a way, with a resolution ("" for none) if the status is done.
func (s *Server) SetStatus(ref, status, resolution string) error {
	return s.hand(ref, func(i *Issue) error {
		to, ok := s.project(i.Project).Workflow.status(status)
		if !ok {
			return fmt.Errorf("project %s has no status %q", i.Project, status)
		}
		if resolution != "" && !slices.Contains(s.cfg.Resolutions, resolution) {
			return fmt.Errorf("there is no resolution %q", resolution)
		}
		enter(i, to, resolution, s.now())
		return nil
	})
}

// CloseAs moves an issue to the first done status with this resolution.
func (s *Server) CloseAs(ref, resolution string) error {
	status, err := s.firstStatus(ref, func(c Category) bool { return c == Done })
	if err != nil {
		return err
	}
	return s.SetStatus(ref, status, resolution)
}

// Reopen moves an issue to the first status that is not done.
func (s *Server) Reopen(ref string) error {
	status, err := s.firstStatus(ref, func(c Category) bool { return c != Done })
	if err != nil {
		return err
	}
	return s.SetStatus(ref, status, "")
}

func (s *Server) firstStatus(ref string, fits func(Category) bool) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(ref)
	if i == nil {
		return "", fmt.Errorf("fake Jira: there is no issue %s", ref)
	}
	for _, st := range s.project(i.Project).Workflow.Statuses {
		if fits(st.Category) {
			return st.Name, nil
		}
	}
	return "", fmt.Errorf("fake Jira: the workflow of %s has no such status", i.Project)
}

// MoveTo moves an issue to another project and returns its new key. The old key
// still finds it, and answers with the new one.
func (s *Server) MoveTo(ref, projectKey string) (newKey string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, p := s.find(ref), s.project(projectKey)
	if i == nil || p == nil {
		return "", fmt.Errorf("fake Jira: there is no issue %s or no project %s", ref, projectKey)
	}
	p.lastKey++
	was := i.Key
	i.PreviousKeys = append(i.PreviousKeys, was)
	i.Key, i.Project = fmt.Sprintf("%s-%d", p.Key, p.lastKey), p.Key
	if _, has := p.Workflow.status(i.Status); !has {
		enter(i, p.Workflow.Statuses[0], "", s.now())
	}
	i.log(Change{At: s.now(), By: Person, What: "moved", From: was, To: i.Key})
	s.index.changed(i, s.now())
	return i.Key, nil
}

// Delete removes an issue for good.
func (s *Server) Delete(ref string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(ref)
	if i == nil {
		return fmt.Errorf("fake Jira: there is no issue %s", ref)
	}
	s.issues = slices.DeleteFunc(s.issues, func(have *Issue) bool { return have == i })
	return nil
}

// Clone makes a new issue with the summary, description, labels and properties
// of another, in the first status: the duplicate that should not be there.
func (s *Server) Clone(ref string) (key string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.find(ref)
	if i == nil {
		return "", fmt.Errorf("fake Jira: there is no issue %s", ref)
	}
	c := i.clone()
	c.Status, c.Resolution, c.Created = "", "", time.Time{}
	c.PreviousKeys, c.Comments, c.RemoteLinks, c.Attachments, c.History = nil, nil, nil, nil, nil
	return s.file(c)
}

// Add files an issue as a person. Project, Type and Priority may be left out, and
// the status and resolution are taken as they stand; ID and Key are the server's.
func (s *Server) Add(i Issue) (key string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.file(i.clone())
}

func (s *Server) file(i Issue) (string, error) {
	if i.Project == "" {
		i.Project = s.projects[0].Key
	}
	p := s.project(i.Project)
	if p == nil {
		return "", fmt.Errorf("fake Jira: there is no project %s", i.Project)
	}
	if i.Type == "" {
		i.Type = p.IssueTypes[0]
	}
	if i.Status == "" {
		i.Status = p.Workflow.Statuses[0].Name
	}
	st, ok := p.Workflow.status(i.Status)
	if !ok {
		return "", fmt.Errorf("fake Jira: project %s has no status %q", p.Key, i.Status)
	}
	if i.Created.IsZero() {
		i.Created = s.now()
	}
	resolution, resolved := i.Resolution, i.Resolved
	if resolved.IsZero() {
		resolved = s.now()
	}
	i.Project, i.Resolution = p.Key, ""
	enter(&i, st, resolution, resolved)
	s.add(p, &i, Person)
	return i.Key, nil
}

// ExpireToken makes the server take every token for an expired one, until
// RenewToken.
func (s *Server) ExpireToken() { s.setExpired(true) }

// RenewToken ends ExpireToken.
func (s *Server) RenewToken() { s.setExpired(false) }

func (s *Server) setExpired(expired bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expired = expired
}

// Deny takes permissions from the bot in one project.
func (s *Server) Deny(projectKey string, permissions ...string) error {
	return s.permit(projectKey, func(denied []string) []string { return append(denied, permissions...) })
}

// Allow gives them back.
func (s *Server) Allow(projectKey string, permissions ...string) error {
	return s.permit(projectKey, func(denied []string) []string {
		return slices.DeleteFunc(denied, func(d string) bool { return slices.Contains(permissions, d) })
	})
}

func (s *Server) permit(projectKey string, change func([]string) []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.project(projectKey)
	if p == nil {
		return fmt.Errorf("fake Jira: there is no project %q", projectKey)
	}
	p.Denied = change(slices.Clone(p.Denied))
	return nil
}
