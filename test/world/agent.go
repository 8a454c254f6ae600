package world

import (
	"context"
	"net/netip"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// tunnels are the kinds of tunnel address that a node may have: its annotation,
// what IPAM calls it, its handle.
var tunnels = []struct {
	annotation, kind, handle string
	v4                       bool
}{
	{"projectcalico.org/IPv4IPIPTunnelAddr", "ipipTunnelAddress", "ipip-tunnel-addr-", true},
	{"projectcalico.org/IPv4VXLANTunnelAddr", "vxlanTunnelAddress", "vxlan-tunnel-addr-", true},
	{"projectcalico.org/IPv6VXLANTunnelAddr", "vxlanV6TunnelAddress", "vxlan-v6-tunnel-addr-", false},
	{"projectcalico.org/IPv4WireguardInterfaceAddr", "wireguardTunnelAddress", "wireguard-tunnel-addr-", true},
	{"projectcalico.org/IPv6WireguardInterfaceAddr", "wireguardV6TunnelAddress", "wireguard-v6-tunnel-addr-", false},
}

// agentStarts is calico-node starting on a node: a tunnel whose address is not
// booked for it gets another, one that has none gets its first where a pool
// wants a tunnel; what was booked under its handle goes back first
// (ensureHostTunnelAddress).
func (w *World) agentStarts(ctx context.Context, node *object) error {
	for _, t := range tunnels {
		err := w.change(ctx, func(b *book) error {
			has, _ := netip.ParseAddr(node.GetAnnotations()[t.annotation])
			wanted := has.IsValid()
			for i := range b.pools {
				p := &b.pools[i]
				cidr, _ := netip.ParsePrefix(text(p, "spec", "cidr"))
				mode := map[bool]string{true: "ipipMode", false: "vxlanMode"}[strings.HasPrefix(t.handle, "ipip")]
				on := text(p, "spec", mode)
				wanted = wanted || !strings.HasPrefix(t.handle, "wireguard") && cidr.Addr().Is4() == t.v4 && on != "" && on != "Never" && selects(text(p, "spec", "nodeSelector"), node.GetLabels())
			}
			if x := b.blockOf(has); !wanted || has.IsValid() && x != nil && handleOf(x.slots[ordinalOf(x, has)]) == t.handle+node.GetName() {
				return nil
			}
			if _, err := b.release(ctx, func(_ netip.Addr, attr map[string]any) bool { return handleOf(attr) == t.handle+node.GetName() }); err != nil {
				return err
			}
			attr := map[string]any{"handle_id": t.handle + node.GetName(), "secondary": map[string]any{"node": node.GetName(), "type": t.kind}}
			ip, ok, err := b.assign(ctx, node, t.v4, "Tunnel", nil, netip.Addr{}, attr)
			if err != nil || !ok {
				return err
			}
			n, err := b.of("nodes", "").Get(ctx, node.GetName(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			a := n.GetAnnotations()
			if a == nil {
				a = map[string]string{}
			}
			a[t.annotation] = ip.String()
			n.SetAnnotations(a)
			_, err = b.of("nodes", "").Update(ctx, n, metav1.UpdateOptions{})
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
