package bed

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// Churn is a busy healthy cluster: pods come and go all the time, and with them
// their allocations, handles, blocks and nodes, in the order in which kubelet,
// the CNI plug-in and Calico's controllers write them. Every object claims to
// be old, so that no check may excuse what it sees by its age: whatever an
// audit finds there comes from lists of different moments.
type Churn struct {
	loader  *loader
	stop    context.CancelFunc
	wg      sync.WaitGroup
	changes atomic.Int64
	err     atomic.Pointer[error]
}

// churnBlock is how many addresses the blocks of a churning cluster have.
const churnBlock = 64

// StartChurn fills an empty cluster with steady nodes of one block and perNode
// pods each, and then lets them come and go: each node's pods in turn, and now
// and then a node with everything it has. Stop ends it.
func (c *Cluster) StartChurn(ctx context.Context, nodes, perNode int) (*Churn, error) {
	l, err := c.newLoader()
	if err != nil {
		return nil, err
	}
	s := scenario{api: CalicoV1, since: time.Now().Add(-48 * time.Hour).UTC().Truncate(time.Second)}
	s.calico("ClusterInformation", "default", object{"clusterGUID": "0123", "calicoVersion": "v3.30.2", "datastoreReady": true})
	s.calico("IPPool", "pods", object{"cidr": "10.0.0.0/8", "blockSize": int64(26), "ipipMode": "Never", "vxlanMode": "Always", "nodeSelector": "all()"})
	s.calicoWorkloads(int64(nodes))
	s.add("v1", "Namespace", "", "lab", object{})
	if err := c.Load(ctx, s.objects); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	ch := &Churn{loader: l, stop: stop}
	ready := make(chan error, nodes)
	for n := range nodes {
		ch.wg.Go(func() {
			host := &churnNode{ch: ch, since: s.since, n: n, perNode: perNode}
			err := host.arrive(ctx)
			ready <- err
			for err == nil && ctx.Err() == nil {
				err = host.round(ctx)
			}
			if err != nil && ctx.Err() == nil {
				ch.err.Store(&err)
				stop()
			}
		})
	}
	for range nodes {
		if err := <-ready; err != nil {
			stop()
			ch.wg.Wait()
			return nil, err
		}
	}
	return ch, nil
}

// Changes is how many objects were written or deleted so far.
func (ch *Churn) Changes() int64 { return ch.changes.Load() }

// Stop ends the churn and returns what went wrong.
func (ch *Churn) Stop() error {
	ch.stop()
	ch.wg.Wait()
	if err := ch.err.Load(); err != nil {
		return *err
	}
	return nil
}

// churnNode is one node and what is on it.
type churnNode struct {
	ch      *Churn
	since   time.Time
	n       int
	perNode int

	generation int // of the node: each is another node with another name
	serial     int // of its pods
	running    []churnPod
	held       map[int]churnPod // by ordinal of the block
}

type churnPod struct {
	name, container string
	ordinal         int
}

func (h *churnNode) name() string { return fmt.Sprintf("worker-%d-%d", h.n, h.generation) }

func (h *churnNode) cidr() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(h.n), byte(h.generation), 0}), 26)
}

func (h *churnNode) address(ordinal int) string {
	a := h.cidr().Addr().As4()
	a[3] = byte(ordinal)
	return netip.AddrFrom4(a).String()
}

// arrive: the node joins, claims a block, and pods start.
func (h *churnNode) arrive(ctx context.Context) error {
	h.running, h.held = nil, map[int]churnPod{}
	s := scenario{api: CalicoV1, since: h.since}
	s.node(h.name(), netip.AddrFrom4([4]byte{172, 16, byte(h.n), byte(h.generation)}).String()+"/12")
	s.calico("BlockAffinity", h.affinity(), object{"cidr": h.cidr().String(), "deleted": "false", "node": h.name(), "state": "confirmed", "type": "host"})
	s.objects = append(s.objects, h.block())
	// The affinity comes first, pending; here confirmed, a moment before its block.
	for _, o := range s.objects {
		if err := h.create(ctx, o); err != nil {
			return err
		}
	}
	for range h.perNode {
		if err := h.startPod(ctx); err != nil {
			return err
		}
	}
	return nil
}

// leave: the pods are deleted, then the node, then what IPAM keeps of it.
func (h *churnNode) leave(ctx context.Context) error {
	for len(h.running) > 0 {
		if err := h.stopPod(ctx, 0); err != nil {
			return err
		}
	}
	for _, o := range []*unstructured.Unstructured{
		named(string(CalicoV1), "IPAMBlock", "", h.blockName()), named(string(CalicoV1), "BlockAffinity", "", h.affinity()), named("v1", "Node", "", h.name()),
	} {
		if err := h.remove(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// round replaces some pods, or now and then the whole node.
func (h *churnNode) round(ctx context.Context) error {
	if rand.IntN(8) == 0 { //nolint:gosec // a test
		if err := h.leave(ctx); err != nil {
			return err
		}
		h.generation = (h.generation + 1) % 256
		return h.arrive(ctx)
	}
	for range h.perNode / 2 {
		if err := h.stopPod(ctx, rand.IntN(len(h.running))); err != nil { //nolint:gosec // a test
			return err
		}
		if err := h.startPod(ctx); err != nil {
			return err
		}
	}
	return nil
}

// startPod: IPAM books the address, then the pod gets it.
func (h *churnNode) startPod(ctx context.Context) error {
	h.serial++
	p := churnPod{name: fmt.Sprintf("%s-app-%d", h.name(), h.serial)}
	p.container = fmt.Sprintf("%064x", uint64(h.n)<<40|uint64(h.generation)<<32|uint64(h.serial)) //nolint:gosec // small
	for p.ordinal = range churnBlock {
		if _, taken := h.held[p.ordinal]; !taken {
			break
		}
	}
	s := scenario{api: CalicoV1, since: h.since}
	s.pod(p.name, h.name(), h.address(p.ordinal), p.container)
	pod := s.objects[0]
	// Calico makes the handle first, and the CNI plug-in runs for a pod that exists.
	waiting := pod.DeepCopy()
	waiting.SetAnnotations(nil)
	unstructured.RemoveNestedField(waiting.Object, "status")
	if err := h.create(ctx, waiting); err != nil {
		return err
	}
	s.calico("IPAMHandle", "k8s-pod-network."+p.container, object{"handleID": "k8s-pod-network." + p.container, "block": object{h.cidr().String(): int64(1)}, "deleted": false})
	if err := h.create(ctx, s.objects[1]); err != nil {
		return err
	}
	h.held[p.ordinal] = p
	if err := h.update(ctx, h.block()); err != nil {
		return err
	}
	if err := h.patchPod(ctx, pod); err != nil {
		return err
	}
	h.running = append(h.running, p)
	return nil
}

// stopPod: the CNI plug-in gives the address back and then the pod disappears,
// or, for a pod that is deleted by force, the other way round.
func (h *churnNode) stopPod(ctx context.Context, i int) error {
	p := h.running[i]
	h.running = append(h.running[:i:i], h.running[i+1:]...)
	release := func() error {
		delete(h.held, p.ordinal)
		if err := h.update(ctx, h.block()); err != nil {
			return err
		}
		return h.remove(ctx, named(string(CalicoV1), "IPAMHandle", "", "k8s-pod-network."+p.container))
	}
	disappear := func() error { return h.remove(ctx, named("v1", "Pod", "lab", p.name)) }
	steps := []func() error{release, disappear}
	if rand.IntN(2) == 0 { //nolint:gosec // a test
		steps = []func() error{disappear, release}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (h *churnNode) blockName() string {
	return strings.NewReplacer(".", "-", "/", "-").Replace(h.cidr().String())
}

func (h *churnNode) affinity() string { return h.name() + "-" + h.blockName() }

func (h *churnNode) block() *unstructured.Unstructured {
	allocations, unallocated, attributes, sequence := make([]any, churnBlock), []any{}, []any{}, object{}
	for ordinal := range churnBlock {
		p, ok := h.held[ordinal]
		if !ok {
			unallocated = append(unallocated, int64(ordinal))
			continue
		}
		allocations[ordinal] = int64(len(attributes))
		sequence[strconv.Itoa(ordinal)] = int64(1)
		attributes = append(attributes, object{"handle_id": "k8s-pod-network." + p.container, "secondary": object{
			"namespace": "lab", "node": h.name(), "pod": p.name, "timestamp": h.since.String(),
		}})
	}
	s := scenario{api: CalicoV1}
	s.calico("IPAMBlock", h.blockName(), object{
		"cidr": h.cidr().String(), "affinity": "host:" + h.name(), "strictAffinity": false, "deleted": false,
		"allocations": allocations, "unallocated": unallocated, "attributes": attributes,
		"sequenceNumber": int64(1), "sequenceNumberForAllocation": sequence,
	})
	return s.objects[0]
}

func named(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	s := scenario{}
	return s.add(apiVersion, kind, namespace, name, object{})
}

func (h *churnNode) create(ctx context.Context, o *unstructured.Unstructured) error {
	h.ch.changes.Add(1)
	return h.ch.loader.create(ctx, o)
}

func (h *churnNode) update(ctx context.Context, o *unstructured.Unstructured) error {
	h.ch.changes.Add(1)
	client, _, err := h.ch.loader.resource(o)
	if err != nil {
		return err
	}
	unstructured.RemoveNestedField(o.Object, "spec", "sequenceNumberForAllocation") // a map, of which a patch keeps what it does not name
	patch, err := json.Marshal(object{"spec": o.Object["spec"]})
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, o.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// patchPod gives the pod its address, as the CNI plug-in and kubelet do.
func (h *churnNode) patchPod(ctx context.Context, pod *unstructured.Unstructured) error {
	h.ch.changes.Add(1)
	client, _, err := h.ch.loader.resource(pod)
	if err != nil {
		return err
	}
	current, err := client.Get(ctx, pod.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	current.SetAnnotations(pod.GetAnnotations())
	if current, err = client.Update(ctx, current, metav1.UpdateOptions{}); err != nil {
		return err
	}
	status, _, _ := unstructured.NestedMap(pod.Object, "status")
	status["qosClass"] = "BestEffort"
	current.Object["status"] = status
	_, err = client.UpdateStatus(ctx, current, metav1.UpdateOptions{})
	return err
}

func (h *churnNode) remove(ctx context.Context, o *unstructured.Unstructured) error {
	h.ch.changes.Add(1)
	client, _, err := h.ch.loader.resource(o)
	if err != nil {
		return err
	}
	now := int64(0)
	err = client.Delete(ctx, o.GetName(), metav1.DeleteOptions{GracePeriodSeconds: &now})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
