package collect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ipamaudit/ipam"
)

// RouteSources asks several sources and keeps the best table of each node: the
// kernel's before BIRD's, the newest of a kind.
type RouteSources []RouteSource

// Name joins the sources' names.
func (s RouteSources) Name() string {
	names := make([]string, len(s))
	for i, source := range s {
		names[i] = source.Name()
	}
	return strings.Join(names, ", ")
}

// Tables asks the sources one after the other.
func (s RouteSources) Tables(ctx context.Context, scope Scope) ([]ipam.RouteTable, error) {
	best := map[string]int{}
	var tables []ipam.RouteTable
	var errs []error
	for _, source := range s {
		found, err := source.Tables(ctx, scope)
		for _, e := range flatten(err) {
			var object ipam.ObjectError
			if !errors.As(e, &object) {
				e = fmt.Errorf("%s: %w", source.Name(), e)
			}
			errs = append(errs, e)
		}
		for _, t := range found {
			i, ok := best[t.Node]
			switch {
			case !ok:
				best[t.Node] = len(tables)
				tables = append(tables, t)
			case better(&t, &tables[i]):
				tables[i] = t
			}
		}
	}
	return tables, errors.Join(errs...)
}

// better reports whether a says more of its node than b: the kernel decides
// what happens to packets, BIRD only proposes; the newer of two is nearer to
// the truth. A table without an age is as old as the hills.
func better(a, b *ipam.RouteTable) bool {
	kernel := func(t *ipam.RouteTable) int {
		if t.Kind == ipam.KernelTable {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(kernel(a), kernel(b)), a.AsOf.Compare(b.AsOf)) > 0
}

// sourcesOf names the sources that tables really came from, or all that were
// asked where none answered.
func sourcesOf(asked string, tables []ipam.RouteTable) string {
	var names []string
	for _, t := range tables {
		name, _, _ := strings.Cut(t.Source, ":")
		if !slices.Contains([]string{sourceNodeStatus, sourceAgent, sourceExec}, name) {
			name = sourceFiles
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return asked
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// flatten lists what errors.Join has joined.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error }) // only the outermost: what is wrapped belongs together
	if !ok {
		return []error{err}
	}
	var out []error
	for _, e := range joined.Unwrap() {
		out = append(out, flatten(e)...)
	}
	return out
}

// rejectRoutes reports what a source could not read.
func (b *Builder) rejectRoutes(source string, err error) {
	for _, err := range flatten(err) {
		var e ipam.ObjectError
		if !errors.As(err, &e) {
			e = ipam.ObjectError{Where: source, Kind: "route table", Message: shortError(err).Error()}
		}
		b.Rejected(e)
	}
}

// scope is what route sources need to know of the cluster.
func (b *Builder) scope() Scope {
	var s Scope
	for i := range b.nodes.values {
		s.Nodes = append(s.Nodes, b.nodes.values[i].Name)
	}
	for i := range b.pools.values {
		s.Pools = append(s.Pools, b.pools.values[i].CIDR)
	}
	return s
}

// unreadTable says that a node's table is not known, and why.
func unreadTable(source, node, format string, args ...any) ipam.ObjectError {
	return ipam.ObjectError{Where: source, Kind: "route table", Name: node, Message: fmt.Sprintf(format, args...)}
}
