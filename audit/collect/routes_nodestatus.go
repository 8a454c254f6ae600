package collect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"ipamaudit/ipam"
)

const (
	sourceNodeStatus = "caliconodestatus"

	// NodeStatusLabel marks the CalicoNodeStatus objects that this program made.
	NodeStatusLabel = "app.kubernetes.io/managed-by=ipamaudit"

	nodeStatusPeriod = 10 * time.Second
	// nodeStatusBatch is how many objects exist at a time: every calico-node
	// watches all of them.
	nodeStatusBatch = 50
	// nodeStatusOld is when an object that nobody refreshes says nothing any more.
	nodeStatusOld = 24 * time.Hour
)

// NodeStatus reads BIRD's tables from CalicoNodeStatus objects (v3.21). It
// cannot see the kernel: what Felix programs (VXLAN; IPIP from v3.33) is not
// in it, nor is a route that the kernel refused.
type NodeStatus struct {
	client dynamic.Interface
	// Create makes an object for every node without a usable one, and deletes it again.
	Create bool
	// Wait bounds how long one batch of nodes may take to fill its objects; 45 s by default.
	Wait time.Duration
	// Poll is the time between two looks; 2 s by default.
	Poll time.Duration
	now  func() time.Time
}

// NewNodeStatus returns a source for the cluster that cfg leads to.
func NewNodeStatus(cfg *rest.Config, create bool) (*NodeStatus, error) {
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", sourceNodeStatus, shortError(err))
	}
	return &NodeStatus{client: client, Create: create, Wait: 45 * time.Second, Poll: 2 * time.Second, now: time.Now}, nil
}

// Name is "caliconodestatus".
func (*NodeStatus) Name() string { return sourceNodeStatus }

// nodeStatus is what matters of a CalicoNodeStatus
// (api/pkg/apis/projectcalico/v3/nodestatus.go).
type nodeStatus struct {
	Metadata struct {
		Name              string            `json:"name"`
		Labels            map[string]string `json:"labels"`
		CreationTimestamp stamp             `json:"creationTimestamp"`
	} `json:"metadata"`
	Spec struct {
		Node                string   `json:"node"`
		Classes             []string `json:"classes"`
		UpdatePeriodSeconds *int     `json:"updatePeriodSeconds"`
	} `json:"spec"`
	Status struct {
		LastUpdated stamp `json:"lastUpdated"`
		Agent       struct {
			BirdV4 birdState `json:"birdV4"`
			BirdV6 birdState `json:"birdV6"`
		} `json:"agent"`
		Routes struct {
			V4 []birdRoute `json:"routesV4"`
			V6 []birdRoute `json:"routesV6"`
		} `json:"routes"`
	} `json:"status"`
}

type birdState struct {
	State string `json:"state"`
}

// birdRoute is one line of birdcl show route.
type birdRoute struct {
	// Type is FIB for BIRD's best route of a prefix, RIB for the others.
	Type        string `json:"type"`
	Destination string `json:"destination"`
	// Gateway is N/A where there is none; Interface may be blackhole,
	// unreachable or prohibit.
	Gateway     string `json:"gateway"`
	Interface   string `json:"interface"`
	LearnedFrom struct {
		SourceType string `json:"sourceType"`
		PeerIP     string `json:"peerIP"`
	} `json:"learnedFrom"`
}

// Tables reads the objects that exist, and where it may, makes those that are missing.
func (s *NodeStatus) Tables(ctx context.Context, scope Scope) ([]ipam.RouteTable, error) {
	res, objects, err := s.list(ctx, "")
	if err != nil {
		return nil, err
	}
	wanted := map[string]bool{}
	for _, n := range scope.Nodes {
		wanted[n] = true
	}
	tables := map[string]ipam.RouteTable{}
	reasons := map[string]string{}
	s.read(objects, wanted, tables, reasons)
	var errs []error
	if s.Create {
		var missing []string
		for _, n := range scope.Nodes {
			if _, ok := tables[n]; !ok {
				missing = append(missing, n)
			}
		}
		errs = append(errs, s.sweep(ctx, res, objects))
		for batch := range slices.Chunk(missing, nodeStatusBatch) {
			if ctx.Err() != nil {
				break
			}
			errs = append(errs, s.ask(ctx, res, batch, wanted, tables, reasons))
		}
	}
	out := make([]ipam.RouteTable, 0, len(tables))
	for _, node := range slices.Sorted(maps.Keys(tables)) {
		out = append(out, tables[node])
	}
	for _, node := range slices.Sorted(maps.Keys(reasons)) {
		if _, ok := tables[node]; !ok {
			errs = append(errs, unreadTable(sourceNodeStatus, node, "%s", reasons[node]))
		}
	}
	return out, errors.Join(append(errs, ctx.Err())...)
}

// statusAPI is where the cluster serves CalicoNodeStatus.
type statusAPI struct {
	dynamic.ResourceInterface
	version string
}

// list reads the objects in whichever of Calico's groups serves them.
func (s *NodeStatus) list(ctx context.Context, selector string) (*statusAPI, []nodeStatus, error) {
	var refused error
	for _, api := range []string{ipam.APIv1, ipam.APIv3} {
		gv, err := schema.ParseGroupVersion(api)
		if err != nil {
			return nil, nil, err
		}
		res := s.client.Resource(gv.WithResource("caliconodestatuses"))
		objects, err := listStatuses(ctx, res, selector)
		switch {
		case err == nil:
			return &statusAPI{res, api}, objects, nil
		case apierrors.IsNotFound(err):
		case apierrors.IsForbidden(err):
			// So is a group that is not served to those who may not read it.
			refused = cmp.Or(refused, err)
		default:
			return nil, nil, fmt.Errorf("list caliconodestatuses: %w", shortError(err))
		}
	}
	if refused != nil {
		return nil, nil, fmt.Errorf("list caliconodestatuses: %w", shortError(refused))
	}
	return nil, nil, errors.New("this cluster serves no caliconodestatuses (Calico before v3.21?)")
}

func listStatuses(ctx context.Context, res dynamic.ResourceInterface, selector string) ([]nodeStatus, error) {
	var out []nodeStatus
	options := metav1.ListOptions{Limit: DefaultPageSize, LabelSelector: selector}
	for {
		page, err := res.List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			raw, err := page.Items[i].MarshalJSON()
			var w nodeStatus
			if err == nil {
				err = decodeJSON(raw, &w)
			}
			if err != nil {
				return nil, fmt.Errorf("CalicoNodeStatus %s: %w", page.Items[i].GetName(), err)
			}
			out = append(out, w)
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return out, nil
		}
	}
}

// read sorts objects into tables and reasons why there is none; the better of
// several objects for a node counts.
func (s *NodeStatus) read(objects []nodeStatus, wanted map[string]bool, tables map[string]ipam.RouteTable, reasons map[string]string) {
	for i := range objects {
		w := &objects[i]
		if !wanted[w.Spec.Node] || !slices.Contains(w.Spec.Classes, "Routes") {
			continue
		}
		t, why := w.table(s.now())
		if t == nil {
			reasons[w.Spec.Node] = why
			continue
		}
		if have, ok := tables[w.Spec.Node]; !ok || better(t, &have) {
			tables[w.Spec.Node] = *t
		}
	}
}

// table turns the status into a table, or says why it tells nothing: an empty
// list of routes is a BIRD that does not run, never a node without routes.
func (w *nodeStatus) table(now time.Time) (*ipam.RouteTable, string) {
	name, status := w.Metadata.Name, &w.Status
	age := now.Sub(status.LastUpdated.Time)
	period := nodeStatusPeriod
	if w.Spec.UpdatePeriodSeconds != nil {
		period = time.Duration(*w.Spec.UpdatePeriodSeconds) * time.Second
	}
	old := nodeStatusOld
	if period > 0 {
		old = min(old, 10*period+5*time.Minute)
	}
	switch {
	case status.LastUpdated.IsZero() && len(status.Routes.V4)+len(status.Routes.V6) == 0:
		return nil, fmt.Sprintf("calico-node has not filled CalicoNodeStatus %s", name)
	case !status.LastUpdated.IsZero() && age > old:
		return nil, fmt.Sprintf("calico-node has not refreshed CalicoNodeStatus %s for %s", name, age.Round(time.Minute))
	}
	t := &ipam.RouteTable{Node: w.Spec.Node, Kind: ipam.BIRDTable, Source: sourceNodeStatus + ": " + name, AsOf: status.LastUpdated.Time}
	for _, family := range []struct {
		bird   string
		state  birdState
		routes []birdRoute
		blind  *string
	}{{"BIRD", status.Agent.BirdV4, status.Routes.V4, &t.Blind4}, {"BIRD6", status.Agent.BirdV6, status.Routes.V6, &t.Blind6}} {
		if family.state.State == "NotReady" {
			*family.blind = family.bird + " is not ready on this node"
			continue
		}
		if len(family.routes) == 0 {
			*family.blind = family.bird + " lists no route, so it does not run here"
			continue
		}
		for _, r := range family.routes {
			if r.Type != "FIB" {
				continue
			}
			route, ok := r.route()
			if !ok {
				// Half a table could miss the one route that saves an address.
				*family.blind = fmt.Sprintf("route %s of CalicoNodeStatus %s was not understood", quoteLine(r.Destination), name)
				break
			}
			t.Routes = append(t.Routes, route)
		}
	}
	if t.Blind4 != "" && t.Blind6 != "" {
		return nil, t.Blind4 + "; " + t.Blind6
	}
	t.Routes = slices.DeleteFunc(t.Routes, func(r ipam.Route) bool { return t.Blind(r.Dst.Addr()) != "" })
	return t, ""
}

func (r *birdRoute) route() (ipam.Route, bool) {
	dst, err := netip.ParsePrefix(r.Destination)
	if err != nil {
		return ipam.Route{}, false
	}
	out := ipam.Route{Dst: dst.Masked(), Type: ipam.Unicast, Proto: "bird"}
	from := cmp.Or(r.LearnedFrom.SourceType, "?")
	if typ, _ := routeType(r.Interface); typ.Drops() {
		out.Type = typ
		out.Text = fmt.Sprintf("%s %s [%s]", typ, dst, from)
		return out, true
	}
	hop := ipam.NextHop{Dev: r.Interface}
	out.Text = dst.String()
	if gw, err := netip.ParseAddr(r.Gateway); err == nil {
		hop.Via = gw.Unmap().WithZone("")
		out.Text += " via " + hop.Via.String()
	} else if r.Gateway != "N/A" && r.Gateway != "" {
		return ipam.Route{}, false
	}
	if hop.Dev == "N/A" {
		hop.Dev = ""
	}
	if hop.Dev != "" {
		out.Text += " dev " + hop.Dev
	}
	if r.LearnedFrom.PeerIP != "" {
		from += " " + r.LearnedFrom.PeerIP
	}
	out.Text += " [" + from + "]"
	out.NextHops = []ipam.NextHop{hop}
	return out, true
}

// ask makes an object for each node, waits until calico-node has filled them,
// and deletes them again whatever happens.
func (s *NodeStatus) ask(ctx context.Context, res *statusAPI, nodes []string, wanted map[string]bool, tables map[string]ipam.RouteTable, reasons map[string]string) error {
	stamp := s.now().UTC().Format("20060102-150405")
	var made []string
	var errs []error
	for _, node := range nodes {
		name := statusName(stamp, node)
		err := s.create(ctx, res, name, node)
		if err != nil && !apierrors.IsAlreadyExists(err) {
			// Whether it was made is not known where the answer got lost.
			if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
				made = append(made, name)
			}
			errs = append(errs, fmt.Errorf("create CalicoNodeStatus %s: %w", name, shortError(err)))
			break
		}
		made = append(made, name)
	}
	if len(made) > 0 {
		err := s.await(ctx, nodes[:min(len(made), len(nodes))], made, wanted, tables, reasons)
		errs = append(errs, err, s.remove(ctx, res, made))
	}
	return errors.Join(errs...)
}

func (s *NodeStatus) create(ctx context.Context, res *statusAPI, name, node string) error {
	_, err := res.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": res.version, "kind": "CalicoNodeStatus",
		"metadata": map[string]any{"name": name, "labels": map[string]any{"app.kubernetes.io/managed-by": "ipamaudit"}},
		"spec":     map[string]any{"node": node, "classes": []any{"Agent", "Routes"}, "updatePeriodSeconds": int64(nodeStatusPeriod / time.Second)},
	}}, metav1.CreateOptions{FieldManager: "ipamaudit"})
	return err
}

// await looks until every node has filled its object, or the time is up.
func (s *NodeStatus) await(ctx context.Context, nodes, made []string, wanted map[string]bool, tables map[string]ipam.RouteTable, reasons map[string]string) error {
	ctx, cancel := context.WithTimeout(ctx, s.Wait)
	defer cancel()
	ticker := time.NewTicker(s.Poll)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			for _, node := range nodes {
				if _, ok := tables[node]; !ok && reasons[node] == "" {
					reasons[node] = fmt.Sprintf("calico-node did not fill its CalicoNodeStatus within %s", s.Wait)
				}
			}
			return nil
		case <-ticker.C:
		}
		_, objects, err := s.list(ctx, NodeStatusLabel)
		if err != nil {
			if ctx.Err() != nil {
				continue
			}
			return err
		}
		mine := objects[:0]
		filled := 0
		for _, o := range objects {
			if slices.Contains(made, o.Metadata.Name) {
				mine = append(mine, o)
				if !o.Status.LastUpdated.IsZero() {
					filled++
				}
			}
		}
		s.read(mine, wanted, tables, reasons)
		if filled == len(made) {
			return nil
		}
	}
}

// remove deletes objects even when the run was cancelled meanwhile.
func (s *NodeStatus) remove(ctx context.Context, res *statusAPI, names []string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	var errs []error
	for _, name := range names {
		if err := res.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete CalicoNodeStatus %s (do it yourself: kubectl delete caliconodestatus -l %s): %w", name, NodeStatusLabel, shortError(err)))
		}
	}
	return errors.Join(errs...)
}

// sweep deletes what an earlier run was killed over.
func (s *NodeStatus) sweep(ctx context.Context, res *statusAPI, objects []nodeStatus) error {
	var left []string
	for i := range objects {
		m := &objects[i].Metadata
		if m.Labels["app.kubernetes.io/managed-by"] == "ipamaudit" && s.now().Sub(m.CreationTimestamp.Time) > 10*time.Minute {
			left = append(left, m.Name)
		}
	}
	return s.remove(ctx, res, left)
}

// statusName is unique per run and node, and fits an object's name.
func statusName(stamp, node string) string {
	name := "ipamaudit-" + stamp + "-" + strings.ToLower(node)
	if len(name) > 253 {
		name = name[:253]
	}
	return strings.TrimRight(name, ".-")
}
