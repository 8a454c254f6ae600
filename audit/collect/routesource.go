package collect

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"ipamaudit/ipam"
)

const sourceFiles = "files"

// RouteSource is where the route tables of a live cluster come from.
type RouteSource interface {
	// Name is what the report calls the source: "files", "agent"…
	Name() string
	// Tables returns the tables that are known of the nodes in scope, at most
	// one of each. A node whose table is not known is left out, never given an
	// empty one. The error joins what went wrong; tables that could be read are
	// returned with it.
	Tables(ctx context.Context, scope Scope) ([]ipam.RouteTable, error)
}

// Scope says which tables are wanted.
type Scope struct {
	// Nodes are the cluster's nodes.
	Nodes []string
	// Pools are the prefixes whose routes matter; none means all.
	Pools []netip.Prefix
}

// RouteFiles reads a directory of <node>.txt and <node>.json files, as
// ParseRoutes understands them.
type RouteFiles struct{ Dir string }

// Name is "files".
func (RouteFiles) Name() string { return sourceFiles }

// Tables reads the files of the given nodes.
func (s RouteFiles) Tables(ctx context.Context, scope Scope) ([]ipam.RouteTable, error) {
	root, err := os.OpenRoot(s.Dir)
	if err != nil {
		return nil, fmt.Errorf("routes: %w", err)
	}
	defer func() { _ = root.Close() }()
	var tables []ipam.RouteTable
	var errs []error
	for _, node := range scope.Nodes {
		var whole *ipam.RouteTable
		for _, ext := range []string{".txt", ".json"} {
			if err := ctx.Err(); err != nil {
				return tables, err
			}
			if !fs.ValidPath(node) || strings.Contains(node, "/") {
				continue
			}
			data, err := root.ReadFile(node + ext)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			table, rejected := tableOf(node, filepath.Join(s.Dir, node+ext), data, err)
			if table != nil {
				if info, err := root.Stat(node + ext); err == nil && table.AsOf.IsZero() {
					table.AsOf = info.ModTime().UTC()
				}
				whole = joinTables(whole, table)
			}
			for _, e := range rejected {
				errs = append(errs, e)
			}
		}
		if whole != nil {
			tables = append(tables, *whole)
		}
	}
	return tables, errors.Join(errs...)
}

// tableOf parses one node's file. The table is nil when it is not known.
func tableOf(node, file string, data []byte, err error) (*ipam.RouteTable, []ipam.ObjectError) {
	fail := func(message string) ipam.ObjectError {
		return ipam.ObjectError{Where: file, Kind: "route table", Name: node, Message: message}
	}
	if err != nil {
		return nil, []ipam.ObjectError{fail("cannot be read: " + err.Error())}
	}
	p, err := ParseRoutes(data)
	if err != nil {
		return nil, []ipam.ObjectError{fail(err.Error())}
	}
	var errs []ipam.ObjectError
	if p.Unknown > 0 {
		errs = append(errs, fail(fmt.Sprintf("%d lines were not understood, the first is line %d: %s", p.Unknown, p.FirstLine, quoteLine(p.First))))
	}
	table := p.table(node, file)
	return &table, errs
}

// joinTables joins two views of one node's table, NODE.txt and NODE.json.
func joinTables(a, b *ipam.RouteTable) *ipam.RouteTable {
	if a == nil {
		return b
	}
	a.Source += ", " + b.Source
	a.Routes = mergeRoutes(a.Routes, b.Routes)
	a.AsOf = later(a.AsOf, b.AsOf)
	return a
}

const (
	sourceAgent = "agent"
	sourceExec  = "exec"
)
