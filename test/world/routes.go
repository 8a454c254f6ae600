package world

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ReadRoutes reads the route tables of a snapshot, `ip route` of one node per
// file. A directory that does not exist holds none.
func (w *World) ReadRoutes(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	w.routes = map[string][]string{}
	for _, f := range files {
		raw, e := os.ReadFile(f)
		err = errors.Join(err, e)
		w.routes[filepath.Base(f)] = strings.Split(strings.TrimRight(string(raw), "\n"), "\n")
	}
	return err
}

// HasRoutes reports whether there are any.
func (w *World) HasRoutes() bool { return len(w.routes) > 0 }

// WriteRoutes writes the tables as BIRD and Felix would have them now: without
// the blackholes of blocks that a node has no affinity for any more, and without
// the host routes of pods that are gone; with those of pods that came, on their
// node, and for borrowed addresses on the owner's where a peer may bring the own
// AS back. What somebody else put there stays.
func (w *World) WriteRoutes(ctx context.Context, dir string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	b, err := w.open(ctx)
	if err != nil {
		return err
	}
	pods, err := w.list(ctx, "pods")
	if err != nil {
		return err
	}
	peers, err := w.list(ctx, "bgppeers")
	if err != nil {
		return err
	}
	carried := slices.ContainsFunc(peers, func(p object) bool { return number(&p, "spec", "numAllowedLocalASNumbers") > 0 })
	at, via := map[string]string{}, map[string]string{}
	for i := range pods {
		ips, _, _ := nestedIPs(&pods[i])
		for _, ip := range ips {
			at[ip] = text(&pods[i], "spec", "nodeName")
		}
	}
	for _, n := range b.nodes {
		via[n.GetName()], _, _ = strings.Cut(n.GetAnnotations()["projectcalico.org/IPv4Address"], "/")
	}
	for file, was := range w.routes {
		node := strings.TrimSuffix(file, filepath.Ext(file))
		var lines []string
		for _, line := range was {
			fields := strings.Fields(line)
			if len(fields) > 1 && fields[0] == "blackhole" {
				if cidr, err := netip.ParsePrefix(fields[1]); err == nil && !b.claims(node, cidr) && b.inPool(cidr.Addr()) {
					continue
				}
			}
			if len(fields) > 0 && b.inPool(addressIn(fields[0])) && at[fields[0]] == "" {
				continue
			}
			lines = append(lines, line)
		}
		lines = b.withoutStaleHops(lines, via)
		has := func(ip string) bool {
			return slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, ip+" ") })
		}
		for ip, where := range at {
			x := b.blockOf(addressIn(ip))
			switch {
			case x == nil || has(ip):
			case where == node:
				lines = append(lines, ip+" dev cali0 scope link")
			case x.owner() == node && carried && via[where] != "":
				lines = append(lines, fmt.Sprintf("%s via %s dev eth0 proto bird", ip, via[where]))
			}
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// withoutStaleHops leaves out the next hops of a block's route that only a node
// without an affinity for it would have announced.
func (b *book) withoutStaleHops(lines []string, via map[string]string) []string {
	var out []string
	var cidr netip.Prefix
	for _, line := range lines {
		fields := strings.Fields(line)
		if len(fields) > 0 && fields[0] != "nexthop" {
			cidr, _ = netip.ParsePrefix(fields[0])
		}
		at := slices.Index(fields, "via")
		stale := false
		for node, hop := range via {
			stale = stale || cidr.IsValid() && b.inPool(cidr.Addr()) && at >= 0 && fields[at+1] == hop && !b.claims(node, cidr)
		}
		if !stale {
			out = append(out, line)
		}
	}
	return out
}

func addressIn(s string) netip.Addr { ip, _ := netip.ParseAddr(s); return ip }

func (b *book) inPool(ip netip.Addr) bool {
	return slices.ContainsFunc(b.pools, func(p object) bool {
		cidr, err := netip.ParsePrefix(text(&p, "spec", "cidr"))
		return err == nil && cidr.Contains(ip)
	})
}
