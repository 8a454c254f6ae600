package collect

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ipamaudit/ipam"
)

// errNotServed marks a resource that discovery does not list.
var errNotServed = errors.New("the API does not serve it")

// discovery is what the API server says it serves.
type discovery struct {
	// api is the group that holds Calico's data, or empty where neither is served.
	api string
	// served are the resources of api; nil where discovery did not say.
	served map[string]bool
	// calicoNodes says whether projectcalico.org/v3 serves nodes, which only
	// the etcd datastore has.
	calicoNodes bool
	// err is why what Calico serves is not wholly known.
	err error
}

// discover chooses the API group as Calico does (libcalico-go/lib/backend/k8s/
// discovery.go: UsingV3CRDs): v3 only where crd.projectcalico.org is absent.
func (l *Live) discover(ctx context.Context) (*discovery, error) {
	var groups apiGroups
	err := l.document(ctx, "/apis", &groups)
	switch {
	case err != nil && fatal(err):
		return nil, err
	case err != nil:
		// Some harden system:discovery away. The lists themselves will tell.
		return l.probe(ctx)
	}
	has, err := groups.calico()
	d := &discovery{api: l.opts.API, err: err}
	var v3 map[string]bool
	if has[groupV3] {
		if v3, err = l.resources(ctx, ipam.APIv3); err != nil {
			d.err = err
		}
		d.calicoNodes = v3["nodes"]
	}
	var v1 map[string]bool
	if has[groupV1] {
		if v1, err = l.resources(ctx, ipam.APIv1); err != nil {
			d.err = err
		}
	}
	if d.api == "" {
		switch {
		// The aggregated v3 API serves no blocks; a v1 group without blocks is a leftover.
		case has[groupV1] && (v1["ipamblocks"] || !v3["ipamblocks"]):
			d.api = ipam.APIv1
		case has[groupV3]:
			d.api = ipam.APIv3
		}
	}
	d.served = v1
	if d.api == ipam.APIv3 {
		d.served = v3
	}
	switch {
	case d.served["ipamblocks"]:
		d.err = nil // the other group's trouble
	case d.served == nil && d.err == nil:
		d.served = map[string]bool{}
	}
	return d, nil
}

// apiGroups is the answer of /apis.
type apiGroups struct {
	Groups []struct {
		Name     string `json:"name"`
		Versions []struct {
			GroupVersion string `json:"groupVersion"`
		} `json:"versions"`
	} `json:"groups"`
}

// calico tells which of Calico's groups are served in the version that is
// known; the error names one that is served in others only.
func (a *apiGroups) calico() (served map[string]bool, err error) {
	served = map[string]bool{}
	for _, g := range a.Groups {
		if g.Name != groupV1 && g.Name != groupV3 {
			continue
		}
		var others []string
		for _, v := range g.Versions {
			if v.GroupVersion == ipam.APIv1 || v.GroupVersion == ipam.APIv3 {
				served[g.Name] = true
			}
			others = append(others, v.GroupVersion)
		}
		if !served[g.Name] {
			err = fmt.Errorf("the API serves %s, which this ipamaudit does not know", strings.Join(others, ", "))
		}
	}
	return served, err
}

// probe finds the group without discovery.
func (l *Live) probe(ctx context.Context) (*discovery, error) {
	d := &discovery{api: l.opts.API}
	if d.api != "" {
		return d, nil
	}
	d.api = ipam.APIv1
	err := l.document(ctx, "/apis/"+ipam.APIv1+"/ippools", &struct{}{})
	if apierrors.IsNotFound(err) {
		d.api = ipam.APIv3
	}
	return d, nil
}

func (l *Live) resources(ctx context.Context, api string) (map[string]bool, error) {
	var list struct {
		Resources []struct {
			Name string `json:"name"`
		} `json:"resources"`
	}
	if err := l.document(ctx, "/apis/"+api, &list); err != nil {
		if apierrors.IsNotFound(err) {
			return map[string]bool{}, nil
		}
		return nil, fmt.Errorf("discovery of %s: %w", api, shortError(err))
	}
	out := make(map[string]bool, len(list.Resources))
	for _, r := range list.Resources {
		out[r.Name] = true
	}
	return out, nil
}

func (l *Live) document(ctx context.Context, path string, v any) error {
	raw, err := l.get(ctx, path)
	if err != nil {
		return err
	}
	if err := decodeJSON(raw, v); err != nil {
		return fmt.Errorf("%s answers something else than the Kubernetes API: %w", path, err)
	}
	return nil
}

// task is one resource to read.
type task struct {
	resource ipam.Resource
	// api is the group and version, path the list's.
	api, path string
	// queries are the list's parameters; several are read one after the other.
	queries []url.Values
	// enough says whether what the queries found will do; if not, the whole
	// list is read. Nil means that it will.
	enough func(*Builder) bool
	// fallback is the path of one object that is read where listing is refused.
	fallback string
	// proto says that the API server has it as protobuf, too.
	proto bool
	// err is an outcome that is known beforehand.
	err error
}

// tasks lists what to read, the largest lists first.
func (d *discovery) tasks() []task {
	all := []url.Values{nil}
	core := func(r ipam.Resource) task {
		return task{resource: r, api: "v1", path: "/api/v1/" + string(r), queries: all, proto: true}
	}
	events := core(ipam.ResEvents)
	events.queries = nil
	for _, reason := range eventReasons {
		events.queries = append(events.queries, url.Values{"fieldSelector": {"reason=" + reason}})
	}
	services := core(ipam.ResServices)
	services.queries = []url.Values{{"fieldSelector": {"spec.type=LoadBalancer"}}}
	namespaces := core(ipam.ResNamespaces)
	namespaces.fallback = "/api/v1/namespaces/kube-system"
	// Clusters have thousands of Deployments and two of Calico's. Those carry
	// the label in every manifest, chart and operator that is known; if the
	// controllers are not among them, all are read.
	deployments := task{
		resource: ipam.ResDeployments, api: "apps/v1", path: "/apis/apps/v1/deployments",
		queries: []url.Values{{"labelSelector": {"k8s-app in (calico-kube-controllers,calico-typha,calico-apiserver,tigera-operator)"}}},
		enough: func(b *Builder) bool {
			return slices.ContainsFunc(b.workloads.values, func(w ipam.Workload) bool { return w.Name == "calico-kube-controllers" })
		},
	}
	tasks := []task{core(ipam.ResPods), d.calico(ipam.ResBlocks), d.calico(ipam.ResHandles), core(ipam.ResNodes), d.calico(ipam.ResAffinities)}
	for _, r := range []ipam.Resource{
		ipam.ResPools, ipam.ResIPAMConfig, ipam.ResReservations, ipam.ResClusterInfo, ipam.ResBGPConfig,
		ipam.ResBGPPeers, ipam.ResBGPFilters, ipam.ResFelixConfig, ipam.ResKubeCtrl,
	} {
		tasks = append(tasks, d.calico(r))
	}
	nodes := task{resource: ipam.ResCalicoNodes, api: ipam.APIv3, path: "/apis/" + ipam.APIv3 + "/nodes", queries: all}
	if !d.calicoNodes {
		nodes.err = errNotServed
	}
	return append(tasks, namespaces, services, events, deployments,
		task{resource: ipam.ResDaemonSets, api: "apps/v1", path: "/apis/apps/v1/daemonsets", queries: all}, nodes)
}

// calico is the task for one of Calico's resources.
func (d *discovery) calico(r ipam.Resource) task {
	plural := string(r)
	if r == ipam.ResIPAMConfig && d.api == ipam.APIv3 {
		plural = "ipamconfigurations"
	}
	t := task{resource: r, api: d.api, path: "/apis/" + d.api + "/" + plural, queries: []url.Values{nil}}
	switch {
	case d.err != nil && (d.api == "" || d.served != nil && !d.served[plural]):
		t.err = d.err // it may be served where nobody could look
	case d.api == "", d.served != nil && !d.served[plural]:
		t.err = errNotServed
	}
	return t
}
