package audit

import (
	"encoding/hex"
	"hash/fnv"
	"slices"

	"ipamaudit/checks"
)

// sampleSize bounds what the state remembers of a finding's things: those with
// the smallest hashes, which any two runs choose alike. Thousands of leaks that
// stay share them; a few that were replaced share none.
const sampleSize = 32

// sampleOf are the hashes of the things that a finding waits for a second look
// at, sorted, at most sampleSize; nil for a finding that does not wait.
func sampleOf(f *Finding) []string {
	if !f.SecondLook {
		return nil
	}
	all := hashesOf(f)
	return all[:min(len(all), sampleSize)]
}

func hashesOf(f *Finding) []string {
	out := make([]string, len(f.Affected))
	for i, a := range f.Affected {
		out[i] = hashOf(a)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func hashOf(a checks.Affected) string {
	h := fnv.New32a()
	for _, part := range []string{a.Kind, a.Namespace, a.Name} {
		if a.Same != "" {
			part = a.Same
		}
		_, _ = h.Write(append([]byte(part), 0))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// stillThere reports whether a finding that waits for a second look still has
// one of the things that the record's run saw. Another node every night is no
// second look at any of them. Where one side names nothing there is nothing to
// compare: it is about its subject.
func stillThere(rec *FindingRecord, f *Finding) bool {
	if !f.SecondLook || len(rec.Sample) == 0 || len(f.Affected) == 0 {
		return true
	}
	now := hashesOf(f)
	return slices.ContainsFunc(rec.Sample, func(h string) bool {
		_, found := slices.BinarySearch(now, h)
		return found
	})
}
