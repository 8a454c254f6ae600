package ipam

import (
	"fmt"
	"strconv"
	"strings"
)

// Version is a Calico release. The zero Version is unknown.
type Version struct {
	Major, Minor, Patch int
	// Raw is the text it came from.
	Raw string
}

// ParseVersion reads "v3.32.1" and its relatives ("3.17.1", "v3.33.0-0.dev-12").
// What is no version becomes an unknown one with Raw set.
func ParseVersion(s string) Version {
	v := Version{Raw: s}
	core, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(s), "v"), "-")
	parts := strings.Split(core, ".")
	if len(parts) < 2 {
		return v
	}
	var n [3]int
	for i := 0; i < len(parts) && i < 3; i++ {
		x, err := strconv.Atoi(parts[i])
		if err != nil || x < 0 {
			return v
		}
		n[i] = x
	}
	v.Major, v.Minor, v.Patch = n[0], n[1], n[2]
	return v
}

// Known reports whether the version could be read.
func (v Version) Known() bool { return v.Major > 0 }

// AtLeast reports whether v is known and not older than major.minor.
func (v Version) AtLeast(major, minor int) bool {
	return v.Known() && (v.Major > major || v.Major == major && v.Minor >= minor)
}

// Before reports whether v is known and older than major.minor.
func (v Version) Before(major, minor int) bool { return v.Known() && !v.AtLeast(major, minor) }

// String prints "v3.32.1", or "unknown".
func (v Version) String() string {
	if !v.Known() {
		return "unknown"
	}
	return fmt.Sprintf("v%d.%d.%d", v.Major, v.Minor, v.Patch)
}
