package collect

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sourcegraph/conc/pool"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"ipamaudit/ipam"
)

// The defaults of Exec.
const (
	DefaultExecConcurrency = 8
	DefaultExecTimeout     = 20 * time.Second
)

// Exec runs ip in the calico-node pods, which see the node's own tables. It
// needs create on pods/exec: whoever has that is root on every node.
type Exec struct {
	client      kubernetes.Interface
	run         func(ctx context.Context, pod *corev1.Pod, command []string) ([]byte, error)
	namespace   string
	concurrency int
	timeout     time.Duration
	now         func() time.Time
}

// NewExec returns a source for the cluster that cfg leads to. An empty
// namespace means every namespace; a concurrency of 0 is DefaultExecConcurrency.
func NewExec(cfg *rest.Config, namespace string, concurrency int) (*Exec, error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", sourceExec, shortError(err))
	}
	s := &Exec{client: client, namespace: namespace, concurrency: cmp.Or(concurrency, DefaultExecConcurrency), timeout: DefaultExecTimeout, now: time.Now}
	s.run = func(ctx context.Context, pod *corev1.Pod, command []string) ([]byte, error) {
		req := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource("exec").
			VersionedParams(&corev1.PodExecOptions{Container: "calico-node", Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec)
		ws, err := remotecommand.NewWebSocketExecutor(cfg, "GET", req.URL().String())
		if err != nil {
			return nil, err
		}
		spdy, err := remotecommand.NewSPDYExecutor(cfg, "POST", req.URL())
		if err != nil {
			return nil, err
		}
		// API servers before v1.30 only speak SPDY, as kubectl knows.
		executor, err := remotecommand.NewFallbackExecutor(ws, spdy, func(error) bool { return ctx.Err() == nil })
		if err != nil {
			return nil, err
		}
		out, stderr := &capped{max: maxTable}, &capped{max: 4 << 10}
		if err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: out, Stderr: stderr}); err != nil {
			if text := strings.Join(strings.Fields(stderr.kept.String()), " "); text != "" {
				return nil, fmt.Errorf("%s: %w (%s)", strings.Join(command, " "), err, quoteLine(text))
			}
			return nil, fmt.Errorf("%s: %w", strings.Join(command, " "), err)
		}
		if out.full {
			return nil, fmt.Errorf("%s: more than %d MiB", strings.Join(command, " "), maxTable>>20)
		}
		return out.kept.Bytes(), nil
	}
	return s, nil
}

// capped keeps the beginning of what is written to it. The buffer is a field
// of its own: embedded, its ReadFrom would go past the limit.
type capped struct {
	kept bytes.Buffer
	max  int
	full bool
}

// Write never fails: a command that talks too much must not hang.
func (c *capped) Write(p []byte) (int, error) {
	room := max(c.max-c.kept.Len(), 0)
	if room < len(p) {
		c.full = true
	}
	c.kept.Write(p[:min(room, len(p))])
	return len(p), nil
}

// Name is "exec".
func (*Exec) Name() string { return sourceExec }

// Tables asks the nodes, some at a time.
func (s *Exec) Tables(ctx context.Context, scope Scope) ([]ipam.RouteTable, error) {
	pods, err := s.pods(ctx)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var tables []ipam.RouteTable
	var errs []error
	p := pool.New().WithMaxGoroutines(s.concurrency)
	for _, node := range scope.Nodes {
		pod := pods[node]
		if pod == nil {
			continue // no Calico on this node, or not running
		}
		p.Go(func() {
			t, err := s.table(ctx, pod, scope)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, unreadTable(sourceExec, node, "%v", shortError(err)))
				return
			}
			tables = append(tables, *t)
		})
	}
	p.Wait()
	slices.SortFunc(tables, func(a, b ipam.RouteTable) int { return strings.Compare(a.Node, b.Node) })
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return tables, errors.Join(errs...)
}

// pods finds the running calico-node pod of each node.
func (s *Exec) pods(ctx context.Context) (map[string]*corev1.Pod, error) {
	out := map[string]*corev1.Pod{}
	options := metav1.ListOptions{Limit: DefaultPageSize, LabelSelector: "k8s-app=calico-node"}
	for {
		page, err := s.client.CoreV1().Pods(s.namespace).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list calico-node pods: %w", shortError(err))
		}
		for i := range page.Items {
			if p := &page.Items[i]; p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
				out[p.Spec.NodeName] = p
			}
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return out, nil
		}
	}
}

// table asks one node. Its rules are read after its routes: a rule that comes
// between would otherwise lead to a table that was not seen.
func (s *Exec) table(ctx context.Context, pod *corev1.Pod, scope Scope) (*ipam.RouteTable, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	asOf := s.now().UTC()
	raw, err := s.run(ctx, pod, []string{"ip", "-j", "route", "show", "table", "all"})
	if err != nil {
		return nil, err
	}
	tables, err := ParseTables(raw)
	if err != nil {
		return nil, err
	}
	t := &ipam.RouteTable{Node: pod.Spec.NodeName, Kind: ipam.KernelTable, Source: sourceExec + ": " + pod.Namespace + "/" + pod.Name, AsOf: asOf}
	for _, family := range []struct {
		flag  string
		v4    bool
		blind *string
	}{{"-4", true, &t.Blind4}, {"-6", false, &t.Blind6}} {
		raw, err := s.run(ctx, pod, []string{"ip", "-j", family.flag, "rule", "show"})
		if err != nil {
			return nil, err
		}
		rules, err := ParseRules(raw)
		if err != nil {
			return nil, err
		}
		routes, blind := Follow(rules, tables, family.v4, scope.Pools)
		t.Routes, *family.blind = append(t.Routes, routes...), blind
	}
	if len(t.Routes) == 0 {
		return nil, errors.New(cmp.Or(t.Blind4, t.Blind6, "it holds no route, so the node's table is not known"))
	}
	return t, nil
}
