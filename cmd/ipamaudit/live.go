package main

import (
	"context"

	"ipamaudit/audit"
	"ipamaudit/audit/collect"
	"ipamaudit/audit/config"
	"ipamaudit/checks"
	"ipamaudit/ipam"
)

// sourceFunc makes a client only when the cluster's turn comes, so that one
// broken kubeconfig fails one cluster and not the run.
type sourceFunc func(ctx context.Context) (*ipam.Snapshot, error)

// Collect implements audit.Source.
func (f sourceFunc) Collect(ctx context.Context) (*ipam.Snapshot, error) { return f(ctx) }

// liveSource reads a cluster through its API server: only what is wanted, so
// that an audit of one check asks for no more than that check needs.
func (a *app) liveSource(cl chosen, c *config.Config, wanted map[ipam.Resource]bool, record *collect.Recorder) audit.Source {
	return sourceFunc(func(ctx context.Context) (*ipam.Snapshot, error) {
		rc, err := a.restConfig(ctx, cl)
		if err != nil {
			return nil, err
		}
		opts := collect.LiveOptions{
			Name: cl.cluster.Name, PageSize: c.Run.PageSize, Now: a.now, Record: record,
			Only: func(r ipam.Resource) bool { return wanted[r] },
		}
		if cl.cluster.Routes.IsSet() {
			opts.Routes = collect.RouteFiles{Dir: cl.cluster.Routes.Files}
		}
		live, err := collect.NewLive(rc, opts)
		if err != nil {
			return nil, err
		}
		return live.Collect(ctx)
	})
}

// wantedResources are what the chosen checks declare, and the namespace whose
// UID identifies the cluster.
func wantedResources(enabled func(id string) bool) map[ipam.Resource]bool {
	wanted := map[ipam.Resource]bool{ipam.ResNamespaces: true}
	for _, c := range checks.All() {
		if !enabled(c.ID) {
			continue
		}
		for _, r := range c.Needs {
			wanted[r] = true
		}
		for _, r := range c.Uses {
			wanted[r] = true
		}
	}
	return wanted
}
