package fakejira

import "slices"

// Issues returns copies of all issues, oldest first, as they are in the database.
func (s *Server) Issues() []Issue {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Issue, 0, len(s.issues))
	for _, i := range s.issues {
		out = append(out, i.clone())
	}
	return out
}

// Issue returns a copy of one issue by id, key or former key.
func (s *Server) Issue(ref string) (Issue, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.find(ref); i != nil {
		return i.clone(), true
	}
	return Issue{}, false
}

// Find returns copies of the issues that carry all of the labels, oldest first.
// It looks into the database: search lag and permissions do not touch it.
func (s *Server) Find(labels ...string) []Issue {
	var out []Issue
	for _, i := range s.Issues() {
		if hasAll(i.Labels, labels) {
			out = append(out, i)
		}
	}
	return out
}

func hasAll(have, want []string) bool {
	return !slices.ContainsFunc(want, func(l string) bool { return !slices.Contains(have, l) })
}
