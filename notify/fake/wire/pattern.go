package wire

import "strings"

// Match reports whether path fits pattern, segment by segment, and returns the
// segments that stood at a "*". A "*" is exactly one segment, a closing "..."
// is any number of them (also none), anything else is itself. Slashes at both
// ends are ignored; an empty pattern fits every path.
func Match(pattern, path string) (vars []string, ok bool) {
	pattern, path = strings.Trim(pattern, "/"), strings.Trim(path, "/")
	if pattern == "" {
		return nil, true
	}
	want, have := strings.Split(pattern, "/"), strings.Split(path, "/")
	for i, w := range want {
		if w == "..." && i == len(want)-1 {
			return vars, true
		}
		switch {
		case i >= len(have):
			return nil, false
		case w == "*":
			vars = append(vars, have[i])
		case w != have[i]:
			return nil, false
		}
	}
	return vars, len(want) == len(have)
}
