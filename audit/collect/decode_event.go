package collect

import (
	"strings"

	"ipamaudit/ipam"
)

// eventObject reads both v1 (involvedObject, message) and events.k8s.io
// (regarding, note) spellings.
type eventObject struct {
	header         `json:",inline"`
	InvolvedObject objectRef `json:"involvedObject,omitzero" pb:"2"`
	Regarding      objectRef `json:"regarding,omitzero" pb:"-"`
	Reason         string    `json:"reason,omitzero" pb:"3"`
	Message        string    `json:"message,omitzero" pb:"4"`
	Note           string    `json:"note,omitzero" pb:"-"`
	Count          int       `json:"count,omitzero" pb:"8"`
	OldCount       int       `json:"deprecatedCount,omitzero" pb:"-"`
	LastTimestamp  stamp     `json:"lastTimestamp,omitzero" pb:"7"`
	OldLast        stamp     `json:"deprecatedLastTimestamp,omitzero" pb:"-"`
	EventTime      stamp     `json:"eventTime,omitzero" pb:"10"`
	Series         struct {
		Count            int   `json:"count,omitzero" pb:"1"`
		LastObservedTime stamp `json:"lastObservedTime,omitzero" pb:"2"`
	} `json:"series,omitzero" pb:"11"`
}

type objectRef struct {
	Kind      string `json:"kind,omitzero" pb:"1"`
	Namespace string `json:"namespace,omitzero" pb:"2"`
	Name      string `json:"name,omitzero" pb:"3"`
}

func (b *Builder) event(o *Object) error {
	w := new(eventObject)
	if err := b.decode(o, w); err != nil {
		return err
	}
	last := later(w.LastTimestamp.Time, w.OldLast.Time, w.EventTime.Time, w.Series.LastObservedTime.Time)
	b.note(last)
	message := clip(orElse(w.Message, w.Note))
	if !speaksOfNetwork(w.Reason, message) {
		b.ignore(ipam.ResEvents, w)
		return nil
	}
	ref := w.InvolvedObject
	if ref.Name == "" {
		ref = w.Regarding
	}
	w.Message, w.Note = message, ""
	add(b, ipam.ResEvents, &b.events, o, w, ipam.Event{
		Namespace: b.intern(orElse(ref.Namespace, w.Metadata.Namespace)), Kind: b.intern(ref.Kind), Name: ref.Name,
		Reason: b.intern(w.Reason), Message: message, Count: max(w.Count, w.OldCount, w.Series.Count, 1),
		Last: later(last, w.Metadata.CreationTimestamp.Time),
	})
	return nil
}

// eventReasons are the reasons under which kubelet reports a failing CNI call.
var eventReasons = [...]string{"FailedCreatePodSandBox", "FailedKillPod"}

// speaksOfNetwork keeps the events that can tell of IPAM trouble: those of the
// pod sandbox, and any whose text holds a phrase of Calico's allocator or of
// another IPAM plug-in. The rest of a cluster's events is nobody's business here.
func speaksOfNetwork(reason, message string) bool {
	for _, r := range eventReasons {
		if r == reason {
			return true
		}
	}
	switch reason {
	case "NetworkNotReady", "FailedPodSandBoxStatus", "CIDRNotAvailable", "CIDRAssignmentFailed":
		return true
	}
	text := strings.ToLower(message)
	for _, phrase := range []string{
		"ipam", "ippool", "calico", "affine block", "strict affinity", "block limit", "autoassign",
		"range set", "no ip addresses available", "host side routes", "address already assigned",
		"no configured calico pools", "failed to claim a block", "find or claim a block", "cni plugin", "network plugin",
	} {
		if strings.Contains(text, phrase) {
			return true
		}
	}
	return false
}
