package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"ipamaudit/audit/collect"
	"ipamaudit/audit/config"
	"ipamaudit/report/text"
)

// routeSources are the cluster's configured sources of route tables; nil where
// there are none.
func routeSources(rc *rest.Config, r config.ClusterRoutes) (collect.RouteSource, error) {
	var sources collect.RouteSources
	if r.Files != "" {
		sources = append(sources, collect.RouteFiles{Dir: r.Files})
	}
	if r.Agent.Namespace != "" {
		s, err := collect.NewAgent(rc, r.Agent.Namespace)
		if err != nil {
			return nil, err
		}
		sources = append(sources, s)
	}
	if r.CalicoNodeStatus.Read || r.CalicoNodeStatus.Create {
		s, err := collect.NewNodeStatus(rc, r.CalicoNodeStatus.Create)
		if err != nil {
			return nil, err
		}
		sources = append(sources, s)
	}
	if r.Exec.Enabled {
		s, err := collect.NewExec(rc, r.Exec.Namespace, r.Exec.Concurrency)
		if err != nil {
			return nil, err
		}
		sources = append(sources, s)
	}
	if len(sources) == 0 {
		return nil, nil //nolint:nilnil // no source is no error
	}
	return sources, nil
}

// routes asks whether the configured route sources may be used.
func (d *diagnosis) routes(ctx context.Context, client kubernetes.Interface, groups []string, cl chosen) {
	r := cl.cluster.Routes
	type need struct {
		source, fix string
		access      authv1.ResourceAttributes
	}
	var needs []need
	if ns := r.Agent.Namespace; ns != "" {
		needs = append(needs, need{"agent", "deploy/agent/reader.yaml", authv1.ResourceAttributes{Verb: "list", Resource: "configmaps", Namespace: ns}})
	}
	if r.CalicoNodeStatus.Read || r.CalicoNodeStatus.Create {
		verbs := []string{"list"}
		if r.CalicoNodeStatus.Create {
			verbs = append(verbs, "create", "delete")
		}
		for _, group := range groups {
			for _, verb := range verbs {
				needs = append(needs, need{"calicoNodeStatus", "docs/routes.md", authv1.ResourceAttributes{Verb: verb, Group: group, Resource: "caliconodestatuses"}})
			}
		}
	}
	if r.Exec.Enabled {
		needs = append(needs,
			need{"exec", "docs/routes.md", authv1.ResourceAttributes{Verb: "list", Resource: "pods", Namespace: r.Exec.Namespace}},
			// get for WebSockets, create for them from Kubernetes v1.35 on and for SPDY.
			need{"exec", "docs/routes.md", authv1.ResourceAttributes{Verb: "create", Resource: "pods", Subresource: "exec", Namespace: r.Exec.Namespace}},
			need{"exec", "docs/routes.md", authv1.ResourceAttributes{Verb: "get", Resource: "pods", Subresource: "exec", Namespace: r.Exec.Namespace}})
	}
	var fine []string
	for _, n := range needs {
		what := n.access.Resource
		if n.access.Subresource != "" {
			what += "/" + n.access.Subresource
		}
		if n.access.Group != "" {
			what += "." + n.access.Group
		}
		if n.access.Namespace != "" {
			what += " in namespace " + n.access.Namespace
		}
		ok, err := may(ctx, client, n.access)
		switch {
		case err != nil:
			d.gap(&d.incomplete, cl.cluster.Name+" does not say what may be read", "cannot ask about %s: %s", what, text.Terminal(err.Error()))
		case !ok:
			d.gap(&d.incomplete, fmt.Sprintf("routes.%s on %s: may not %s %s", n.source, cl.cluster.Name, n.access.Verb, what),
				"may not %s %s: routes.%s yields nothing, blackholed-routes sees less or is unknown\n           %s", n.access.Verb, what, n.source, n.fix)
		case !slices.Contains(fine, n.source):
			fine = append(fine, n.source)
		}
	}
	if r.Files != "" {
		fine = append(fine, "files")
	}
	switch {
	case !r.IsSet():
		fmt.Fprintln(d.a.out, "  less     no source of route tables (clusters[].routes): blackholed-routes is unknown, borrowed-ips infers\n           docs/routes.md")
	case len(fine) > 0:
		d.good("route tables from %s", strings.Join(fine, ", "))
	}
}
