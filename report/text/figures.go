package text

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// MaxExact is the largest count that the report carries exactly (2^53, what
// JSON readers can hold); larger pools are capped there and say so.
const MaxExact = uint64(1) << 53

// Count prints a number of addresses or blocks: "16,384"; beyond ten digits
// "1.1e12"; at the cap, where the true number is larger, "≥ 9.0e15".
func Count(n uint64) string {
	switch {
	case n >= MaxExact:
		return "≥ " + exponent(MaxExact)
	case n >= 1e10:
		return exponent(n)
	}
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Int is Count for the counts of objects, which are never negative.
func Int(n int) string { return Count(uint64(max(n, 0))) }

func exponent(n uint64) string {
	s := strconv.FormatFloat(float64(n), 'e', 1, 64)
	return strings.Replace(s, "e+", "e", 1)
}

// Percent prints part of whole without rounding up: "100 %" is all of it and
// "0 %" is nothing at all; "<1 %" lies between. Nothing of nothing is "–".
func Percent(part, whole uint64) string {
	switch {
	case whole == 0:
		return "–"
	case part == 0:
		return "0 %"
	case part >= whole:
		return "100 %"
	}
	pct := int(float64(part) / float64(whole) * 100)
	if pct == 0 {
		return "<1 %"
	}
	return fmt.Sprintf("%d %%", min(pct, 99))
}

// Plural prints "1 node", "4 nodes", "1,204 pods" for nouns that take an s.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Int(n) + " " + noun + "s"
}

// Date prints t's UTC date.
func Date(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// Minute prints t to the minute: "2026-11-30 07:50 UTC".
func Minute(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }
