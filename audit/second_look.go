package audit

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"ipamaudit/checks"
	"ipamaudit/ipam"
)

// Rechecker is a Source that can look again. Its lists were read one after the
// other, and a pod that came or went between two of them looks like a leak, an
// orphan or a duplicate. Saved snapshots have no second look.
type Rechecker interface {
	Source
	// Again reads the resources once more and returns first without what has
	// changed since (ipam.SecondLook), or first itself where nothing has.
	Again(ctx context.Context, first *ipam.Snapshot, resources []ipam.Resource) (*ipam.Snapshot, error)
}

// confirm looks again before anything is said that depends on lists of
// different moments, and drops what does not hold up. There is one second look
// at most, and none where there is nothing to confirm.
func confirm(ctx context.Context, s *ipam.Snapshot, o Options, t Target, outs []checks.Outcome) {
	source, ok := t.Source.(Rechecker)
	if !ok {
		return
	}
	var doubtful []int
	var resources []ipam.Resource
	for i, k := range o.Checks {
		if !k.Skewed || len(outs[i].Findings) == 0 {
			continue
		}
		doubtful = append(doubtful, i)
		for _, r := range k.Moving() {
			if s.Coverage.Read(r) && !slices.Contains(resources, r) {
				resources = append(resources, r)
			}
		}
	}
	if len(doubtful) == 0 {
		return
	}
	settled, err := within(ctx, t, o.Grace, func(ctx context.Context) (*ipam.Snapshot, error) {
		return source.Again(ctx, s, resources)
	})
	for _, i := range doubtful {
		switch {
		case err != nil:
			outs[i] = unconfirmed(outs[i], err)
		case settled != s:
			outs[i] = agreed(outs[i], evaluate(o.Checks[i], settled, o, t))
		}
	}
}

// unconfirmed is what a check says that found something and could not make sure.
func unconfirmed(out checks.Outcome, err error) checks.Outcome {
	subjects := make([]string, 0, 3)
	for _, f := range out.Findings[:min(len(out.Findings), cap(subjects))] {
		subjects = append(subjects, f.Subject.String())
	}
	more := ""
	if n := len(out.Findings) - len(subjects); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	what := fmt.Sprintf("a second look at %s%s", strings.Join(subjects, ", "), more)
	return checks.Outcome{
		ID: out.ID, Status: checks.StatusUnknown, Incomplete: true, Lossy: out.Lossy, Unseen: append(out.Unseen, what),
		Reason: fmt.Sprintf("not seen: %s, which may only have been in motion: %v", what, err),
	}
}

// agreed keeps of the second verdict what the first one found, too.
func agreed(first, second checks.Outcome) checks.Outcome {
	seen := map[checks.Subject]bool{}
	for _, f := range first.Findings {
		seen[f.Subject] = true
	}
	second.Findings = slices.DeleteFunc(second.Findings, func(f checks.Finding) bool { return !seen[f.Subject] })
	if second.Status == checks.StatusFindings && len(second.Findings) == 0 {
		second.Status = checks.StatusOK
		if len(second.Unseen) > 0 && !second.Partial {
			second.Status, second.Reason = checks.StatusUnknown, "not seen: "+strings.Join(second.Unseen, ", ")
		}
	}
	return second
}
