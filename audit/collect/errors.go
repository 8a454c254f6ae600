package collect

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrNoInput says that a path or stream holds nothing the auditor knows:
	// an empty directory, an empty stream, only foreign kinds.
	ErrNoInput = errors.New("no input")
	// ErrBadInput says that a saved snapshot cannot be read at all, or not whole
	// where half of it would be worse than nothing: a path that does not exist,
	// a truncated archive, a manifest of an unknown version.
	ErrBadInput = errors.New("unreadable input")
)

// ClusterError says that nothing could be read from a live cluster. Its text
// names cluster, host and cause; it never holds a credential.
type ClusterError struct {
	// Cluster is the configured name; Host the API server's address.
	Cluster, Host string
	Err           error
}

// Error prints the cluster, its host and the cause.
func (e *ClusterError) Error() string {
	return fmt.Sprintf("cluster %q (%s): nothing could be read: %v", e.Cluster, e.Host, e.Err)
}

// Unwrap returns the cause.
func (e *ClusterError) Unwrap() error { return e.Err }

// Place says where an object stood: the file (or API path), the YAML document,
// the item of its list and the line, each counted from one and zero when it
// says nothing.
type Place struct {
	File                 string
	Document, Item, Line int
}

// String prints "pods.yaml, document 2, item 17 (line 812)".
func (p Place) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Document > 0 {
		fmt.Fprintf(&b, ", document %d", p.Document)
	}
	if p.Item > 0 {
		fmt.Fprintf(&b, ", item %d", p.Item)
	}
	if p.Line > 0 {
		fmt.Fprintf(&b, " (line %d)", p.Line)
	}
	return b.String()
}
