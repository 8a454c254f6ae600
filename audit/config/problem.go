package config

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
)

// Problem is one thing that is wrong, and where.
type Problem struct {
	File       string // the configuration file, or "environment", or "command line"
	Line       int    // line in File, from 1; 0 where there is none
	Path       string // "clusters[2].context", "IPAMAUDIT_RUN_TIMEOUT", "--fail-on"; empty: the file as a whole
	Message    string // what is wrong and what would be right; never a secret
	Suggestion string // the name that was probably meant, or empty
}

// String is "file:line: path: message (did you mean "x"?)".
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	b.WriteString(": ")
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Message)
	if p.Suggestion != "" {
		fmt.Fprintf(&b, " (did you mean %q?)", p.Suggestion)
	}
	return b.String()
}

// Warning is worth telling, but nothing to stop for.
type Warning Problem

// String has the form of [Problem.String].
func (w Warning) String() string { return Problem(w).String() }

// Error holds everything that is wrong with a configuration, in the order of the file.
type Error struct {
	Problems []Problem
}

// mostShown is how many problems an error prints.
const mostShown = 100

// Error is one problem a line; a file that is no configuration at all is cut short.
func (e *Error) Error() string {
	var lines []string
	for i, p := range e.Problems {
		if i == mostShown {
			lines = append(lines, fmt.Sprintf("... and %d more problems", len(e.Problems)-mostShown))
			break
		}
		lines = append(lines, p.String())
	}
	return strings.Join(lines, "\n")
}

// origin says where a value came from.
type origin struct {
	file string
	line int
	name string // variable or flag; empty for the file
}

// findings collects problems and warnings and knows where each path was set.
type findings struct {
	file     string            // the configuration file, empty without one
	origins  map[string]origin // by path
	named    map[string]bool   // paths that a problem names already
	problems []Problem
	warnings []Warning
	// tellsNobody: see Options.
	tellsNobody bool
}

func newFindings(file string) *findings {
	return &findings{file: file, origins: map[string]origin{}, named: map[string]bool{}}
}

// fail reports a problem of a setting. The first problem of a path is enough: what follows is mostly
// its consequence ("is required" for a key that was misspelled).
func (f *findings) fail(path, format string, args ...any) {
	if f.named[path] {
		return
	}
	f.named[path] = true
	f.problems = append(f.problems, f.at(path, fmt.Sprintf(format, args...)))
}

// failAt reports a problem of a place that is no setting.
func (f *findings) failAt(p Problem) {
	f.problems = append(f.problems, p)
}

func (f *findings) warn(path, format string, args ...any) {
	f.warnings = append(f.warnings, Warning(f.at(path, fmt.Sprintf(format, args...))))
}

// failToTell is a problem only of those who want to tell somebody.
func (f *findings) failToTell(path, message string) {
	if f.tellsNobody {
		f.warn(path, "%s", message)
		return
	}
	f.fail(path, "%s", message)
}

// mentions tells whether a problem already names one of the keys of a section.
func (f *findings) mentions(path string, keys ...string) bool {
	return f.named[path] || slices.ContainsFunc(keys, func(k string) bool { return f.named[join(path, k)] })
}

// oneOf reports a value that is not in a list.
func (f *findings) oneOf(path, value string, list []string) {
	if value == "" || slices.Contains(list, value) || f.named[path] {
		return
	}
	p := f.at(path, fmt.Sprintf("must be one of %s, not %s", strings.Join(list, ", "), quote(value)))
	p.Suggestion = Nearest(value, list)
	f.named[path] = true
	f.failAt(p)
}

// plainHTTP warns of a token that would travel readable; to this machine it may.
func (f *findings) plainHTTP(path, text string) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" || u.Hostname() == "localhost" {
		return
	}
	if ip := net.ParseIP(u.Hostname()); ip != nil && ip.IsLoopback() {
		return
	}
	f.warn(path, "is not https: everybody on the way can read the token")
}

// at locates a path: where it was set, else where the section around it stands.
func (f *findings) at(path, message string) Problem {
	for p := path; p != ""; p = parent(p) {
		o, ok := f.origins[p]
		if !ok {
			continue
		}
		name := path
		if o.name != "" && p == path {
			name = o.name
		}
		return Problem{File: o.file, Line: o.line, Path: name, Message: message}
	}
	file := f.file
	if file == "" {
		file = "configuration"
	}
	return Problem{File: file, Path: path, Message: message}
}

// parent cuts the last element: "a[2].b" → "a[2]" → "a" → "".
func parent(path string) string {
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}

func (f *findings) err() error {
	if len(f.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(f.problems, func(a, b Problem) int {
		return cmp.Or(
			cmp.Compare(rank(a.File), rank(b.File)),
			cmp.Compare(a.Line, b.Line),
		)
	})
	return &Error{Problems: f.problems}
}

func rank(file string) int {
	return slices.Index([]string{sourceEnv, sourceFlags}, file) // -1, the file, comes first
}

const (
	sourceEnv   = "environment"
	sourceFlags = "command line"
)

// Nearest is the candidate that was probably meant, or "". Typing errors are one or two letters; a
// wrong case, a missing or a surplus hyphen cost nothing.
func Nearest(word string, candidates []string) string {
	plain := func(s string) string {
		return strings.NewReplacer("-", "", "_", "", ".", "").Replace(strings.ToLower(s))
	}
	if len(word) > 64 {
		return "" // not a typo, and distance takes its time
	}
	best, bestDistance := "", max(2, len(word)/3)+1
	for _, c := range candidates {
		if d := distance(plain(word), plain(c)); d < bestDistance && d < len(c) {
			best, bestDistance = c, d
		}
	}
	return best
}

// distance is Levenshtein's, in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			diagonal, row[j+1] = row[j+1], min(row[j+1]+1, row[j]+1, diagonal+cost)
		}
	}
	return row[len(b)]
}
