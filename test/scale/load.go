// Package scale makes a cluster of any size, as Calico and Kubernetes write it,
// loads it straight into etcd, and measures what it costs to audit it.
package scale

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"ipamaudit/test/bed"
)

// Size is how many of each a cluster has. Blocks and pods are spread evenly
// over the nodes; every pod has an allocation and a handle, every block an
// affinity.
type Size struct{ Nodes, Blocks, Pods int }

// Full is the cluster that the targets of docs/performance.md are for.
func Full() Size { return Size{Nodes: 5000, Blocks: 20_000, Pods: 100_000} }

// Part is one n-th of s.
func (s Size) Part(n int) Size { return Size{s.Nodes / n, s.Blocks / n, s.Pods / n} }

type object = map[string]any

// writer collects what goes into etcd and sends it by the thousand.
type writer struct {
	cluster *bed.Cluster
	group   *errgroup.Group
	ctx     context.Context //nolint:containedctx // the group's
	batch   []bed.Pair
	proto   *protobuf.Serializer
}

// Load fills an empty cluster.
func Load(ctx context.Context, c *bed.Cluster, size Size) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme)); err != nil {
		return err
	}
	w := &writer{cluster: c, proto: protobuf.NewSerializer(scheme, scheme)}
	w.group, w.ctx = errgroup.WithContext(ctx)
	w.group.SetLimit(4)
	if err := w.all(size); err != nil {
		return err
	}
	w.flush()
	return w.group.Wait()
}

func (w *writer) flush() {
	full := w.batch
	w.batch = nil
	w.group.Go(func() error { return w.cluster.Put(w.ctx, full) })
}

func (w *writer) put(key string, value []byte) {
	if w.batch = append(w.batch, bed.Pair{Key: key, Value: value}); len(w.batch) == 1000 {
		w.flush()
	}
}

func (w *writer) builtIn(key string, o runtime.Object) error {
	var out bytes.Buffer
	if err := w.proto.Encode(o, &out); err != nil {
		return err
	}
	w.put("/registry/"+key, out.Bytes())
	return nil
}

func (w *writer) calico(kind, plural, name string, spec object) error {
	const v1 = string(bed.CalicoV1)
	at := since.Format(time.RFC3339)
	raw, err := json.Marshal(object{
		"apiVersion": v1, "kind": kind, "spec": spec,
		"metadata": object{
			"name": name, "uid": uid(kind + name), "creationTimestamp": at, "generation": 1,
			"annotations":   object{"projectcalico.org/metadata": `{"creationTimestamp":null}`},
			"managedFields": []any{object{"manager": "Go-http-client", "operation": "Update", "apiVersion": v1, "time": at, "fieldsType": "FieldsV1", "fieldsV1": object{"f:metadata": object{}, "f:spec": object{".": object{}}}}},
		},
	})
	if err == nil {
		w.put("/registry/crd.projectcalico.org/"+plural+"/"+name, append(raw, '\n'))
	}
	return err
}

func (w *writer) all(size Size) error {
	if err := w.calico("IPPool", "ippools", "default-ipv4-ippool", object{"cidr": "10.0.0.0/8", "blockSize": 26, "ipipMode": "Never", "vxlanMode": "Never", "natOutgoing": true, "nodeSelector": "all()"}); err != nil {
		return err
	}
	if err := w.calico("ClusterInformation", "clusterinformations", "default", object{"clusterGUID": "0123456789abcdef", "calicoVersion": "v3.30.2", "datastoreReady": true}); err != nil {
		return err
	}
	if err := w.builtIn("deployments/calico-system/calico-kube-controllers", controllers()); err != nil {
		return err
	}
	for n := range size.Nodes {
		if err := w.builtIn("minions/"+nodeName(n), node(n)); err != nil {
			return err
		}
	}
	first := 0
	for b := range size.Blocks {
		next := size.Pods * (b + 1) / size.Blocks
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(b >> 10), byte(b >> 2), byte(b << 6)}), 26)
		if err := w.block(cidr, nodeName(b%size.Nodes), first, next); err != nil {
			return err
		}
		first = next
	}
	return nil
}

// block writes a block of node with the pods from first to next-1 in it.
func (w *writer) block(cidr netip.Prefix, node string, first, next int) error {
	allocations, unallocated, attributes, sequence := make([]any, 64), []int{}, []any{}, object{}
	ip := cidr.Addr()
	for i := range allocations {
		if first+i >= next {
			unallocated = append(unallocated, i)
			continue
		}
		p := pod(first+i, node, ip)
		handle := "k8s-pod-network." + p.Annotations["cni.projectcalico.org/containerID"]
		allocations[i], sequence[strconv.Itoa(i)] = i, 1796023705639847000+i
		attributes = append(attributes, object{"handle_id": handle, "secondary": object{"namespace": p.Namespace, "node": node, "pod": p.Name, "timestamp": since.String()}})
		if err := w.builtIn("pods/"+p.Namespace+"/"+p.Name, p); err != nil {
			return err
		}
		if err := w.calico("IPAMHandle", "ipamhandles", handle, object{"handleID": handle, "deleted": false, "block": object{cidr.String(): 1}}); err != nil {
			return err
		}
		ip = ip.Next()
	}
	name := strings.NewReplacer(".", "-", "/", "-").Replace(cidr.String())
	if err := w.calico("BlockAffinity", "blockaffinities", node+"-"+name, object{"cidr": cidr.String(), "deleted": "false", "node": node, "state": "confirmed", "type": "host"}); err != nil {
		return err
	}
	return w.calico("IPAMBlock", "ipamblocks", name, object{
		"cidr": cidr.String(), "affinity": "host:" + node, "strictAffinity": false, "deleted": false,
		"allocations": allocations, "unallocated": unallocated, "attributes": attributes,
		"sequenceNumber": 1796023705639847903, "sequenceNumberForAllocation": sequence,
	})
}
