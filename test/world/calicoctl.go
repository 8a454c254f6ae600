package world

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// Calicoctl does to the cluster what the real program's documentation says, for
// the commands that change something and that remediations use. Of those that
// only show `ipam show --ip` alone prints something. It fails where the real one would refuse.
func Calicoctl(ctx context.Context, config *rest.Config, calico string, args []string, stdin io.Reader) error {
	s, err := newStore(config, calico)
	if err != nil {
		return err
	}
	var words []string
	flags := map[string][]string{}
	for i := 0; i < len(args); i++ {
		name, value, has := strings.Cut(args[i], "=")
		switch {
		case !strings.HasPrefix(args[i], "-"):
			words = append(words, args[i])
		case !has && (name == "-o" || name == "-f" || name == "-p") && i+1 < len(args):
			i++
			flags[name] = append(flags[name], args[i])
		default:
			flags[name] = append(flags[name], value)
		}
	}
	switch strings.Join(words[:min(len(words), 3)], " ") {
	case "datastore migrate lock":
		return s.merge(ctx, "clusterinformations", "default", `{"spec":{"datastoreReady":false}}`)
	case "datastore migrate unlock":
		return s.merge(ctx, "clusterinformations", "default", `{"spec":{"datastoreReady":true}}`)
	case "ipam check":
		return s.check(ctx, flags["-o"])
	case "ipam release":
		return s.releaseWhat(ctx, flags)
	case "ipam configure":
		return s.configure(ctx, flags)
	case "ipam show":
		return s.show(ctx, flags["--ip"], os.Stdout)
	case "create":
		return s.createFrom(ctx, stdin)
	}
	if len(words) == 0 {
		return errors.New("no command")
	}
	switch words[0] {
	case "get":
		return nil
	case "patch":
		if len(words) == 3 && len(flags["-p"]) == 1 {
			return s.merge(ctx, words[1]+"s", words[2], flags["-p"][0])
		}
	}
	return fmt.Errorf("no such command here: calicoctl %s", strings.Join(args, " "))
}

func (s *store) merge(ctx context.Context, resource, name, patch string) error {
	_, err := s.of(resource, "").Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// show prints the record of an address, as `ipam show --ip`.
func (s *store) show(ctx context.Context, ips []string, out io.Writer) error {
	if len(ips) == 0 {
		return nil
	}
	b, err := s.open(ctx)
	if err != nil {
		return err
	}
	for _, x := range b.blocks {
		for i, attr := range x.slots {
			if attr == nil || x.address(i).String() != ips[0] {
				continue
			}
			secondary, _, _ := unstructured.NestedStringMap(attr, "secondary")
			fmt.Fprintf(out, "IP %s is in use\nHandle ID: %s\nActive Owner Attributes:\n", ips[0], handleOf(attr))
			for _, k := range slices.Sorted(maps.Keys(secondary)) {
				fmt.Fprintf(out, "  %s: %s\n", k, secondary[k])
			}
			return nil
		}
	}
	_, err = fmt.Fprintf(out, "%s is not assigned\n", ips[0])
	return err
}

// check writes what nobody uses into a report, as `ipam check -o`.
func (s *store) check(ctx context.Context, files []string) error {
	if len(files) == 0 {
		return nil
	}
	b, err := s.open(ctx)
	if err != nil {
		return err
	}
	pods, err := s.list(ctx, "pods")
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for i := range pods {
		if phase := text(&pods[i], "status", "phase"); phase != "Succeeded" && phase != "Failed" {
			ips, _, _ := nestedIPs(&pods[i])
			for _, ip := range ips {
				used[ip] = true
			}
		}
	}
	for _, n := range b.nodes {
		for _, t := range tunnels {
			used[n.GetAnnotations()[t.annotation]] = true
		}
	}
	booked := map[string]bool{}
	var r leakReport
	for _, x := range b.blocks {
		for i, attr := range x.slots {
			if attr == nil {
				continue
			}
			booked[strings.ToLower(handleOf(attr))] = true
			if ip := x.address(i).String(); !used[ip] && handleOf(attr) != "windows-reserved-ipam-handle" && !strings.HasPrefix(text(x.object, "spec", "affinity"), "virtual:") {
				r.Leaked = append(r.Leaked, ip)
			}
		}
	}
	handles, err := s.list(ctx, "ipamhandles")
	for i := range handles {
		if !booked[handles[i].GetName()] {
			r.Handles = append(r.Handles, handles[i].GetName())
		}
	}
	raw, _ := json.Marshal(r)
	return errors.Join(err, os.WriteFile(files[0], raw, 0o600))
}

// leakReport is what this stand-in's check writes and its release reads.
type leakReport struct{ Leaked, Handles []string }

func (s *store) releaseWhat(ctx context.Context, flags map[string][]string) error {
	b, err := s.open(ctx)
	if err != nil {
		return err
	}
	doomed, handles := map[string]int{}, map[string]int{}
	for _, ip := range flags["--ip"] {
		doomed[ip]++
	}
	for _, file := range flags["--from-report"] {
		if b.ready {
			return errors.New("data store is not locked. Either lock the data store, or re-run with --force")
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var r leakReport
		if err := json.Unmarshal(raw, &r); err != nil {
			return err
		}
		for _, ip := range r.Leaked {
			doomed[ip]++
		}
		for _, h := range r.Handles {
			handles[h]++
		}
	}
	all := max(1, len(flags["--from-report"]))
	maps.DeleteFunc(handles, func(_ string, n int) bool { return n < all })
	n, err := b.release(ctx, func(ip netip.Addr, _ map[string]any) bool { return doomed[ip.String()] == all })
	if n == 0 && len(flags["--ip"]) > 0 {
		err = errors.Join(err, fmt.Errorf("address %s is not assigned", flags["--ip"][0]))
	}
	for _, h := range slices.Sorted(maps.Keys(handles)) {
		err = errors.Join(err, s.remove(ctx, "ipamhandles", h))
	}
	return err
}

func (s *store) configure(ctx context.Context, flags map[string][]string) error {
	strict, err := strconv.ParseBool(strings.Join(flags["--strictaffinity"], ""))
	if err != nil {
		return errors.New("--strictaffinity is mandatory")
	}
	spec := map[string]any{"strictAffinity": strict, "autoAllocateBlocks": true}
	if limit := flags["--max-blocks-per-host"]; len(limit) == 1 {
		n, err := strconv.ParseInt(limit[0], 10, 64)
		if err != nil || !strict && n > 0 {
			return errors.Join(err, errors.New("MaxBlocksPerHost requires StrictAffinity to be enabled"))
		}
		spec["maxBlocksPerHost"] = n
	}
	old, err := s.singleton(ctx, "ipamconfigs")
	if err != nil {
		return err
	}
	if old == nil {
		kind := "IPAMConfig"
		if s.calico.Version == "v3" {
			kind = "IPAMConfiguration"
		}
		return s.create(ctx, "ipamconfigs", kind, "default", spec)
	}
	patch, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return err
	}
	return s.merge(ctx, "ipamconfigs", "default", string(patch))
}

// createFrom makes the pool that a manifest of projectcalico.org/v3 describes.
func (s *store) createFrom(ctx context.Context, stdin io.Reader) error {
	raw, err := io.ReadAll(stdin)
	if err != nil {
		return err
	}
	o := &object{}
	if err := yaml.Unmarshal(raw, &o.Object); err != nil {
		return err
	}
	if o.GetAPIVersion() != "projectcalico.org/v3" || o.GetKind() != "IPPool" {
		return fmt.Errorf("cannot create %s %s", o.GetAPIVersion(), o.GetKind())
	}
	cidr, err := netip.ParsePrefix(text(o, "spec", "cidr"))
	if err != nil {
		return err
	}
	pools, err := s.list(ctx, "ippools")
	if err != nil {
		return err
	}
	for i := range pools {
		if other, err := netip.ParsePrefix(text(&pools[i], "spec", "cidr")); err == nil && other.Overlaps(cidr) {
			return fmt.Errorf("IPPool(%s) CIDR overlaps with IPPool(%s) CIDR %s", o.GetName(), pools[i].GetName(), other)
		}
	}
	spec, _, _ := unstructured.NestedMap(o.Object, "spec")
	if n, ok := spec["blockSize"].(float64); ok {
		spec["blockSize"] = int64(n)
	}
	return s.create(ctx, "ippools", "IPPool", o.GetName(), spec)
}
