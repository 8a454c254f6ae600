package fakejira

import (
	"slices"
	"time"
)

// index is the search index: what each issue was when the index last saw it.
// Everything in it may be late, the fields of a hit too.
type index struct {
	lag     time.Duration
	held    bool
	pending []entry
	docs    map[string]Issue // by issue id
}

type entry struct {
	at    time.Time
	issue Issue
}

func (x *index) changed(i *Issue, now time.Time) {
	x.pending = append(x.pending, entry{now, i.clone()})
}

// catchUp takes in the changes that are old enough.
func (x *index) catchUp(now time.Time, all bool) {
	if x.docs == nil {
		x.docs = map[string]Issue{}
	}
	if x.held && !all {
		return
	}
	n := 0
	for n < len(x.pending) && (all || !x.pending[n].at.Add(x.lag).After(now)) {
		x.docs[x.pending[n].issue.ID] = x.pending[n].issue
		n++
	}
	x.pending = slices.Delete(x.pending, 0, n)
}

// HoldIndex stops the search index: no later change is found until ReleaseIndex.
func (s *Server) HoldIndex() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index.catchUp(s.now(), false)
	s.index.held = true
}

// ReleaseIndex brings the search index up to date at once and lets it run.
func (s *Server) ReleaseIndex() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index.held = false
	s.index.catchUp(s.now(), true)
}

// SetSearchLag changes how long changes stay invisible to search, also for those
// that it has not seen yet.
func (s *Server) SetSearchLag(lag time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index.lag = lag
}

// indexed returns what search sees: the index, except for the reconciled ids,
// which are read from the database. Hits that no longer exist are not shown.
func (s *Server) indexed(c *call, reconcile []string) []*Issue {
	s.index.catchUp(s.now(), false)
	var out []*Issue
	for _, i := range s.issues {
		if !s.may(c, s.project(i.Project), BrowseProjects) {
			continue
		}
		if slices.Contains(reconcile, i.ID) {
			out = append(out, i)
			continue
		}
		if doc, has := s.index.docs[i.ID]; has {
			out = append(out, &doc)
		}
	}
	return out
}
