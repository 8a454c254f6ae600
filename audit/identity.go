package audit

import (
	"fmt"
	"maps"
	"slices"

	"ipamaudit/checks"
)

// identify chooses the id that a cluster's fingerprints are made from. seen is
// what the collector found: the UID of namespace kube-system, else Calico's
// clusterGUID, else only the name, or nothing when it failed. The id in the
// state is kept whenever the cluster may be the same: another id would file
// every ticket anew.
func identify(prev *State, name, seen, guid string) string {
	if seen == "" {
		seen = name
	}
	cs := prev.Clusters[name]
	if cs == nil || cs.ID == "" || cs.ID == name {
		return seen
	}
	if seen == name || guid != "" && (guid == cs.GUID || guid == cs.ID) {
		return cs.ID
	}
	return seen
}

// failuresInARow counts the nights that ended without an audit, this one
// included and counted once however often its run is repeated. cs is what is
// known under the cluster's name, which may have been another cluster.
func failuresInARow(cs *ClusterState, id, runID string) int {
	switch {
	case cs == nil || cs.ID != id:
		return 1
	case cs.FailedRun == runID && cs.Failures > 0:
		return cs.Failures
	default:
		return cs.Failures + 1
	}
}

// claim returns the state of cluster c, moved or made afresh where its name or
// id is not what it was, and a sentence about that for people.
func (s *State) claim(c *ClusterReport, inRun map[string]bool) (cs *ClusterState, notice string) {
	cs = s.Clusters[c.Name]
	switch {
	case cs != nil && (cs.ID == c.ID || cs.ID == ""):
		cs.ID = c.ID
	case cs != nil && cs.ID == c.Name:
		// So far only the name was known.
		s.rekey(cs, c.Name, c.ID)
		if was, old := s.byID(c.ID, inRun); old != nil {
			s.rename(was, c.Name, c.ID)
			maps.Copy(old.Findings, cs.Findings)
			cs = old
		}
	default:
		if cs != nil {
			notice = fmt.Sprintf("cluster %q is another cluster than in the last run (id %s, before: %s): its findings start afresh, and tickets of the one before are left alone", c.Name, c.ID, cs.ID)
			s.Clusters[fmt.Sprintf("%s (%s)", c.Name, cs.ID)] = cs
			cs = nil
		}
		if was, old := s.byID(c.ID, inRun); old != nil && c.ID != c.Name {
			s.rename(was, c.Name, c.ID)
			cs = old
		}
	}
	if cs == nil {
		cs = &ClusterState{ID: c.ID, Findings: map[string]*FindingRecord{}}
	}
	s.Clusters[c.Name] = cs
	return cs, notice
}

// byID finds a cluster under a name that is not in this run.
func (s *State) byID(id string, inRun map[string]bool) (string, *ClusterState) {
	for _, name := range slices.Sorted(maps.Keys(s.Clusters)) {
		if cs := s.Clusters[name]; cs.ID == id && !inRun[name] {
			return name, cs
		}
	}
	return "", nil
}

// rename moves a cluster's tickets and news to its new name; the id, and with it every
// fingerprint, stays.
func (s *State) rename(from, to, id string) {
	delete(s.Clusters, from)
	for fp, t := range s.Tickets {
		if fp == checks.TicketFingerprint(t.Check, id) {
			t.Cluster = to
		}
	}
	for _, ch := range s.Channels {
		for fp, u := range ch.Untold {
			if fp == checks.Fingerprint(u.Check, id, u.Subject) {
				u.Cluster = to
			}
		}
	}
}

// rekey gives the records, tickets and news that were filed under the cluster's name
// the fingerprints of its id, now that it is known.
func (s *State) rekey(cs *ClusterState, name, id string) {
	findings := make(map[string]*FindingRecord, len(cs.Findings))
	for _, rec := range cs.Findings {
		findings[checks.Fingerprint(rec.Check, id, rec.Subject)] = rec
	}
	cs.ID, cs.Findings = id, findings
	for fp, t := range maps.Clone(s.Tickets) {
		if fp == checks.TicketFingerprint(t.Check, name) {
			delete(s.Tickets, fp)
			s.Tickets[checks.TicketFingerprint(t.Check, id)] = t
		}
	}
	for _, ch := range s.Channels {
		for fp, u := range maps.Clone(ch.Untold) {
			if fp == checks.Fingerprint(u.Check, name, u.Subject) {
				delete(ch.Untold, fp)
				ch.Untold[checks.Fingerprint(u.Check, id, u.Subject)] = u
			}
		}
	}
}
