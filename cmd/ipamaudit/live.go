package main

import (
	"context"

	"k8s.io/client-go/rest"

	"ipamaudit/audit"
	"ipamaudit/audit/collect"
	"ipamaudit/audit/config"
	"ipamaudit/checks"
	"ipamaudit/ipam"
)

// liveSource reads a cluster through its API server. It makes its client only
// when the cluster's turn comes, so that one broken kubeconfig fails one
// cluster and not the run.
type liveSource struct {
	open func(ctx context.Context) (*collect.Live, error)
	live *collect.Live
}

// Collect implements audit.Source.
func (s *liveSource) Collect(ctx context.Context) (*ipam.Snapshot, error) {
	live, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	s.live = live
	return live.Collect(ctx)
}

// Again implements audit.Rechecker.
func (s *liveSource) Again(ctx context.Context, first *ipam.Snapshot, resources []ipam.Resource) (*ipam.Snapshot, error) {
	return s.live.Again(ctx, first, resources)
}

// liveSource reads only what is wanted, so that an audit of one check asks for
// no more than that check needs.
func (a *app) liveSource(cl chosen, c *config.Config, wanted map[ipam.Resource]bool, record *collect.Recorder) audit.Source {
	return &liveSource{open: func(ctx context.Context) (*collect.Live, error) {
		rc, err := a.restConfig(ctx, cl)
		if err != nil {
			return nil, err
		}
		opts := collect.LiveOptions{
			Name: cl.cluster.Name, PageSize: c.Run.PageSize, Now: a.now, Record: record,
			Only: func(r ipam.Resource) bool { return wanted[r] },
			// The kubeconfig may have been renewed by whoever renews it.
			Renew: func(ctx context.Context) (*rest.Config, error) { return a.restConfig(ctx, cl) },
		}
		if opts.Routes, err = routeSources(rc, cl.cluster.Routes); err != nil {
			return nil, err
		}
		return collect.NewLive(rc, opts)
	}}
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
