package world

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
)

// World plays what surrounds one API server.
type World struct {
	*store
	// CollectorStalled is a kube-controllers that does nothing until its
	// Deployment is restarted, CollectorDead one that does nothing ever.
	CollectorStalled, CollectorDead bool

	mu sync.Mutex // one hand in the book at a time
	// known are the nodes as they were at the start: what registers again.
	known  map[string]object
	serial int
	errs   []error
	// routes are lines by file name.
	routes map[string][]string
}

// New returns the world around the API server that config leads to. calico is
// the API group and version of Calico's objects.
func New(ctx context.Context, config *rest.Config, calico string) (*World, error) {
	s, err := newStore(config, calico)
	if err != nil {
		return nil, err
	}
	w := &World{store: s, known: map[string]object{}}
	nodes, err := s.list(ctx, "nodes")
	for _, n := range nodes {
		w.known[n.GetName()] = n
	}
	return w, err
}

// Run reacts to what happens in the API server until ctx ends: pods that are
// asked to go give their addresses back, go, and come again; Deployments roll.
// What went wrong is returned.
func (w *World) Run(ctx context.Context) error {
	var group sync.WaitGroup
	for resource, react := range map[string]func(context.Context, *object) error{"pods": w.podChanged, "deployments": w.deploymentChanged} {
		watcher, err := w.of(resource, "").Watch(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		group.Go(func() {
			defer watcher.Stop()
			for e := range watcher.ResultChan() {
				o, ok := e.Object.(*object)
				if !ok || e.Type != watch.Modified {
					continue
				}
				if err := react(ctx, o); err != nil && ctx.Err() == nil {
					w.mu.Lock()
					w.errs = append(w.errs, fmt.Errorf("%s %s: %w", resource, o.GetName(), err))
					w.mu.Unlock()
				}
			}
		})
	}
	group.Wait()
	return errors.Join(w.errs...)
}

// Settle lets half an hour go by: the collector comes round, kubelet tries
// again to start what waits.
func (w *World) Settle(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(w.collect(ctx), w.retryWaiting(ctx))
}

// podChanged is kubelet and the pod's controller: a pod that is being deleted
// gives its addresses back (CNI DEL), goes, and its controller makes another.
func (w *World) podChanged(ctx context.Context, p *object) error {
	if p.GetDeletionTimestamp() == nil || len(p.GetFinalizers()) > 0 {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.finish(ctx, p)
}

func (w *World) finish(ctx context.Context, p *object) error {
	err := w.change(ctx, func(b *book) error {
		if !b.ready {
			return nil // CNI DEL is refused while the datastore is locked
		}
		id := p.GetAnnotations()["cni.projectcalico.org/containerID"]
		_, err := b.release(ctx, func(_ netip.Addr, attr map[string]any) bool {
			if id != "" {
				return handleOf(attr) == "k8s-pod-network."+id
			}
			return secondary(attr, "pod") == p.GetName() && secondary(attr, "namespace") == p.GetNamespace()
		})
		return err
	})
	if err != nil {
		return err
	}
	now, uid := int64(0), p.GetUID()
	err = w.of("pods", p.GetNamespace()).Delete(ctx, p.GetName(), metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // this very pod has gone: an older news of it
	}
	if err != nil {
		return err
	}
	return w.recreate(ctx, p)
}

// change does something with the book, again where somebody else wrote meanwhile.
func (w *World) change(ctx context.Context, do func(*book) error) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		b, err := w.open(ctx)
		if err != nil {
			return err
		}
		return do(b)
	})
}

// recreate is the controller, the scheduler and kubelet of a pod that went.
func (w *World) recreate(ctx context.Context, old *object) error {
	owners := old.GetOwnerReferences()
	if len(owners) == 0 || owners[0].Kind == "Node" || owners[0].Kind == "Job" {
		return nil
	}
	node, err := w.schedule(ctx, text(old, "spec", "nodeName"), owners[0].Kind == "DaemonSet")
	if err != nil || node == nil {
		return err
	}
	w.serial++
	name := old.GetName()
	if owners[0].Kind != "StatefulSet" {
		name = fmt.Sprintf("%s-%d", owners[0].Name, w.serial)
	}
	annotations := old.GetAnnotations()
	for k := range annotations {
		if k == "cni.projectcalico.org/podIP" || k == "cni.projectcalico.org/podIPs" || k == "cni.projectcalico.org/containerID" {
			delete(annotations, k)
		}
	}
	p := old.DeepCopy()
	p.Object["metadata"] = map[string]any{"name": name, "namespace": old.GetNamespace()}
	p.SetLabels(old.GetLabels())
	p.SetAnnotations(annotations)
	p.SetOwnerReferences(owners)
	spec, _ := p.Object["spec"].(map[string]any)
	spec["nodeName"] = node.GetName()
	delete(spec, "ephemeralContainers")
	status, _ := p.Object["status"].(map[string]any)
	delete(p.Object, "status")
	created, err := w.of("pods", p.GetNamespace()).Create(ctx, p, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("recreate: %w", err)
	}
	host, _ := spec["hostNetwork"].(bool)
	next := map[string]any{"phase": "Running", "startTime": metav1.Now().UTC().Format("2006-01-02T15:04:05Z"),
		"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}
	if host {
		for _, field := range []string{"podIP", "podIPs", "hostIP"} {
			if v, ok := status[field]; ok {
				next[field] = v
			}
		}
		created.Object["status"] = next
		if _, err := w.of("pods", p.GetNamespace()).UpdateStatus(ctx, created, metav1.UpdateOptions{}); err != nil {
			return err
		}
		if old.GetLabels()["k8s-app"] == "calico-node" {
			return w.agentStarts(ctx, node)
		}
		return nil
	}
	_, _, two := families(status)
	return w.start(ctx, created, node, two)
}

// families tells which address families the pod had, IPv4 where it had none.
func families(status map[string]any) (v4, v6, two bool) {
	ips, _ := status["podIPs"].([]any)
	for _, e := range ips {
		m, _ := e.(map[string]any)
		s, _ := m["ip"].(string)
		v6 = v6 || strings.Contains(s, ":")
	}
	return true, v6, v6 && len(ips) > 1
}

// start is CNI ADD: without an address the pod waits.
func (w *World) start(ctx context.Context, p, node *object, two bool) error {
	wants := []bool{true}
	if two {
		wants = append(wants, false)
	}
	w.serial++
	id := fmt.Sprintf("%064x", w.serial)
	var got []any
	var annotated []string
	err := w.change(ctx, func(b *book) error {
		got, annotated = nil, nil
		if !b.ready {
			return nil
		}
		for _, v4 := range wants {
			attr := map[string]any{"handle_id": "k8s-pod-network." + id, "secondary": map[string]any{
				"namespace": p.GetNamespace(), "pod": p.GetName(), "node": node.GetName(), "timestamp": stamp()}}
			ip, ok, err := b.assign(ctx, node, v4, "Workload", pinsOf(p, v4), fixedOf(p), attr)
			if err != nil {
				return err
			}
			if ok {
				got = append(got, map[string]any{"ip": ip.String()})
				annotated = append(annotated, netip.PrefixFrom(ip, ip.BitLen()).String())
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	status := map[string]any{"phase": "Pending", "startTime": metav1.Now().UTC().Format("2006-01-02T15:04:05Z"),
		"containerStatuses": []any{map[string]any{"name": "main", "image": "app", "imageID": "", "ready": false, "restartCount": int64(0),
			"state": map[string]any{"waiting": map[string]any{"reason": "ContainerCreating"}}}}}
	if len(got) == len(wants) {
		status["phase"], status["podIPs"], status["podIP"] = "Running", got, got[0].(map[string]any)["ip"] //nolint:forcetypeassert // made above
		delete(status, "containerStatuses")
		status["conditions"] = []any{map[string]any{"type": "Ready", "status": "True"}}
		a := p.GetAnnotations()
		if a == nil {
			a = map[string]string{}
		}
		a["cni.projectcalico.org/containerID"], a["cni.projectcalico.org/podIP"], a["cni.projectcalico.org/podIPs"] = id, annotated[0], strings.Join(annotated, ",")
		p.SetAnnotations(a)
		if p, err = w.of("pods", p.GetNamespace()).Update(ctx, p, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	p.Object["status"] = status
	_, err = w.of("pods", p.GetNamespace()).UpdateStatus(ctx, p, metav1.UpdateOptions{})
	return err
}

func fixedOf(p *object) netip.Addr {
	ip, _ := netip.ParseAddr(strings.Trim(p.GetAnnotations()["cni.projectcalico.org/ipAddrs"], `[]"`))
	return ip
}

func pinsOf(p *object, v4 bool) []string {
	list := p.GetAnnotations()["cni.projectcalico.org/ipv6pools"]
	if v4 {
		list = p.GetAnnotations()["cni.projectcalico.org/ipv4pools"]
	}
	return strings.FieldsFunc(list, func(r rune) bool { return strings.ContainsRune(`[]", `, r) })
}

// schedule finds a node: the old one unless it is cordoned or gone, so that
// what a remediation relies on is not made easy.
func (w *World) schedule(ctx context.Context, was string, must bool) (*object, error) {
	nodes, err := w.list(ctx, "nodes")
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(nodes, func(n object) bool { return n.GetName() == was && (must || !truth(&n, "spec", "unschedulable")) })
	if i < 0 && !must {
		i = slices.IndexFunc(nodes, func(n object) bool { return !truth(&n, "spec", "unschedulable") && n.GetName() != was })
	}
	if i < 0 {
		return nil, nil //nolint:nilnil // nowhere to go
	}
	return &nodes[i], nil
}

// retryWaiting starts pods that wait for an address.
func (w *World) retryWaiting(ctx context.Context) error {
	pods, err := w.list(ctx, "pods")
	if err != nil {
		return err
	}
	var errs []error
	for i := range pods {
		p := &pods[i]
		if p.GetDeletionTimestamp() != nil || truth(p, "spec", "hostNetwork") || text(p, "status", "phase") != "Pending" || text(p, "status", "podIP") != "" {
			continue
		}
		node, err := w.schedule(ctx, text(p, "spec", "nodeName"), true)
		if err != nil || node == nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, w.start(ctx, p, node, false))
	}
	return errors.Join(errs...)
}

// deploymentChanged is the Deployment controller. A kube-controllers that is
// restarted counts afresh.
func (w *World) deploymentChanged(ctx context.Context, d *object) error {
	if number(d, "status", "observedGeneration") >= d.GetGeneration() {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if strings.Contains(d.GetName(), "kube-controllers") {
		w.CollectorStalled = false
	}
	replicas := number(d, "spec", "replicas")
	d.Object["status"] = map[string]any{"observedGeneration": d.GetGeneration(), "replicas": replicas, "updatedReplicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas}
	_, err := w.of("deployments", d.GetNamespace()).UpdateStatus(ctx, d, metav1.UpdateOptions{})
	return err
}

// Register is a node's kubelet and calico-node starting on a machine whose Node
// object was deleted: it comes back as it was, with its daemons.
func (w *World) Register(ctx context.Context, name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	old, ok := w.known[name]
	if !ok {
		return fmt.Errorf("no machine is called %s", name)
	}
	n := old.DeepCopy()
	n.Object["metadata"] = map[string]any{"name": name}
	n.SetLabels(old.GetLabels())
	status := n.Object["status"]
	created, err := w.of("nodes", "").Create(ctx, n, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	created.Object["status"] = status
	_, err = w.of("nodes", "").UpdateStatus(ctx, created, metav1.UpdateOptions{})
	return err
}
