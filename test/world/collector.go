package world

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
)

// collect is one round of kube-controllers' collector, its grace period being over.
func (w *World) collect(ctx context.Context) error {
	deployments, err := w.list(ctx, "deployments")
	if err != nil || w.CollectorStalled || w.CollectorDead {
		return err
	}
	if !slices.ContainsFunc(deployments, func(d object) bool {
		return strings.Contains(d.GetName(), "kube-controllers") && number(&d, "status", "availableReplicas") > 0
	}) {
		return nil
	}
	pods, err := w.list(ctx, "pods")
	if err != nil {
		return err
	}
	return w.change(ctx, func(b *book) error {
		if !b.ready || b.grace == "0s" {
			return nil
		}
		if _, err := b.release(ctx, func(ip netip.Addr, attr map[string]any) bool { return b.leaked(pods, ip, attr) }); err != nil {
			return err
		}
		return b.giveBack(ctx)
	})
}

// leaked: the pod is gone, elsewhere, or has another address; a tunnel's node
// is gone. What names no pod is nobody's business.
func (b *book) leaked(pods []object, ip netip.Addr, attr map[string]any) bool {
	node := secondary(attr, "node")
	exists := slices.ContainsFunc(b.nodes, func(n object) bool { return n.GetName() == node })
	if strings.HasSuffix(secondary(attr, "type"), "TunnelAddress") {
		return !exists
	}
	name, namespace := secondary(attr, "pod"), secondary(attr, "namespace")
	if name == "" || namespace == "" || handleOf(attr) == "" {
		return false
	}
	i := slices.IndexFunc(pods, func(p object) bool { return p.GetName() == name && p.GetNamespace() == namespace })
	if i < 0 {
		return true
	}
	p := &pods[i]
	ips, _, _ := nestedIPs(p)
	return text(p, "spec", "nodeName") != node || len(ips) > 0 && !slices.Contains(ips, ip.String())
}

func nestedIPs(p *object) (ips []string, found bool, err error) {
	status, _ := p.Object["status"].(map[string]any)
	list, _ := status["podIPs"].([]any)
	for _, e := range list {
		m, _ := e.(map[string]any)
		s, _ := m["ip"].(string)
		ips = append(ips, s)
	}
	return ips, len(ips) > 0, nil
}

// giveBack releases empty blocks: all of a node that is gone, all but one of a
// node that is there.
func (b *book) giveBack(ctx context.Context) error {
	owns := map[string]int{}
	for _, x := range b.blocks {
		owns[x.owner()]++
	}
	var errs []error
	for _, x := range b.blocks {
		owner := x.owner()
		gone := !slices.ContainsFunc(b.nodes, func(n object) bool { return n.GetName() == owner })
		if owner == "" || strings.Contains(owner, ":") || !x.empty() || !gone && owns[owner] < 2 || !b.claims(owner, x.cidr) {
			continue
		}
		owns[owner]--
		errs = append(errs, b.remove(ctx, "ipamblocks", x.GetName()))
		for i := range b.affinities {
			if a := &b.affinities[i]; text(a, "spec", "node") == owner && text(a, "spec", "cidr") == x.cidr.String() {
				errs = append(errs, b.remove(ctx, "blockaffinities", a.GetName()))
			}
		}
	}
	return errors.Join(errs...)
}
