package collect

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"ipamaudit/ipam"
)

// The wire types hold what the model needs of each kind, and nothing else:
// what is not named here is neither kept in memory nor written to a snapshot.

// typeMeta says what an object is. Items of built-in kinds leave it to their list.
type typeMeta struct {
	APIVersion string `json:"apiVersion,omitzero"`
	Kind       string `json:"kind,omitzero"`
}

func (t *typeMeta) setType(apiVersion, kind string) { t.APIVersion, t.Kind = apiVersion, kind }

// header is what every object begins with.
type header struct {
	typeMeta `json:",inline"`
	Metadata metadata `json:"metadata"`
}

func (h *header) head() *header { return h }

// object is a wire type.
type object interface {
	head() *header
	setType(apiVersion, kind string)
}

type metadata struct {
	Name              string `json:"name,omitzero"`
	Namespace         string `json:"namespace,omitzero"`
	UID               string `json:"uid,omitzero"`
	ResourceVersion   string `json:"resourceVersion,omitzero"`
	CreationTimestamp stamp  `json:"creationTimestamp,omitzero"`
	DeletionTimestamp stamp  `json:"deletionTimestamp,omitzero"`
}

type blockObject struct {
	header `json:",inline"`
	Spec   struct {
		CIDR              string      `json:"cidr"`
		Affinity          string      `json:"affinity,omitzero"`
		HostAffinity      string      `json:"hostAffinity,omitzero"`
		AffinityClaimTime stamp       `json:"affinityClaimTime,omitzero"`
		Allocations       allocations `json:"allocations"`
		Unallocated       ordinals    `json:"unallocated"`
		Attributes        []attribute `json:"attributes"`
		Deleted           flexBool    `json:"deleted,omitzero"`
		// DeletedUpper is how objects of 2019 spell it (projectcalico/cni-plugin#749).
		DeletedUpper flexBool `json:"Deleted,omitzero"`
	} `json:"spec"`
}

type attribute struct {
	HandleID  string `json:"handle_id,omitzero"`
	Secondary struct {
		Node      string `json:"node,omitzero"`
		Namespace string `json:"namespace,omitzero"`
		Pod       string `json:"pod,omitzero"`
		Timestamp stamp  `json:"timestamp,omitzero"`
		Type      string `json:"type,omitzero"`
		Service   string `json:"service,omitzero"`
		VMI       string `json:"vmi-name,omitzero"`
	} `json:"secondary,omitzero"`
	ReleasedAt stamp `json:"releasedAt,omitzero"`
}

func (b *Builder) block(o *Object) error {
	w := new(blockObject)
	if err := b.decode(o, w); err != nil {
		return err
	}
	if w.Spec.Deleted || w.Spec.DeletedUpper {
		b.skip(ipam.ResBlocks, w)
		return nil
	}
	cidr, hostBits, err := parseCIDR(w.Spec.CIDR)
	if err != nil {
		return &fieldError{"spec.cidr", err.Error()}
	}
	out := ipam.Block{
		Name: w.Metadata.Name, CIDR: cidr, Owner: ipam.ParseOwner(w.Spec.Affinity),
		ClaimTime: w.Spec.AffinityClaimTime.Time, Created: w.Metadata.CreationTimestamp.Time,
		UID: w.Metadata.UID, ResourceVersion: w.Metadata.ResourceVersion,
	}
	if w.Spec.Affinity == "" && w.Spec.HostAffinity != "" {
		out.Owner = ipam.Owner{Type: "host", Name: w.Spec.HostAffinity}
	}
	out.Owner.Name = intern(out.Owner.Name)
	if hostBits {
		out.Malformed = append(out.Malformed, fmt.Sprintf("cidr %s is not the network address %s", w.Spec.CIDR, cidr))
	}
	if w.Spec.Affinity != "" && out.Owner == (ipam.Owner{}) {
		out.Malformed = append(out.Malformed, fmt.Sprintf("affinity %q has no type", w.Spec.Affinity))
	}
	fillSlots(&out, w.Spec.Allocations, w.Spec.Unallocated, len(w.Spec.Attributes))
	out.Attributes = make([]ipam.Attribute, len(w.Spec.Attributes))
	var newest time.Time
	for i := range w.Spec.Attributes {
		a := &w.Spec.Attributes[i]
		out.Attributes[i] = ipam.Attribute{
			Handle: cutHandle(a.HandleID), Namespace: intern(a.Secondary.Namespace), Pod: a.Secondary.Pod,
			Node: intern(a.Secondary.Node), Type: intern(a.Secondary.Type), Service: a.Secondary.Service, VMI: a.Secondary.VMI,
			Timestamp: a.Secondary.Timestamp.Time, ReleasedAt: a.ReleasedAt.Time,
		}
		newest = later(newest, a.Secondary.Timestamp.Time, a.ReleasedAt.Time)
	}
	b.note(later(newest, w.Spec.AffinityClaimTime.Time))
	add(b, ipam.ResBlocks, &b.blocks, o, w, out)
	return nil
}

// fillSlots keeps what is usable of a block's book-keeping and notes what
// Calico's validateBlock would reject (calicoctl ipam check: invalid blocks).
func fillSlots(out *ipam.Block, alloc allocations, unallocated ordinals, attributes int) {
	bad := func(format string, args ...any) { out.Malformed = append(out.Malformed, fmt.Sprintf(format, args...)) }
	size := out.Size()
	if uint64(len(alloc)) != size {
		bad("%d allocations for %d addresses", len(alloc), size)
		alloc = alloc[:min(uint64(len(alloc)), size)]
	}
	booked := 0
	for _, a := range alloc {
		if a != freeOrdinal {
			booked++
		}
	}
	out.Slots = make([]ipam.Slot, 0, booked)
	for i, a := range alloc {
		if a == freeOrdinal {
			continue
		}
		s := ipam.Slot{Ordinal: uint32(i), Attr: a}
		if a < 0 || int(a) >= attributes {
			bad("ordinal %d points to attributes %d of %d", i, max(a, -1), attributes)
			s.Attr = -1
		}
		out.Slots = append(out.Slots, s)
	}
	free := make([]bool, len(alloc))
	for _, u := range unallocated {
		switch {
		case u < 0 || int(u) >= len(alloc):
			bad("unallocated ordinal %d is outside the block", u)
		case alloc[u] != freeOrdinal:
			bad("ordinal %d is both allocated and unallocated", u)
		case free[u]:
			bad("ordinal %d is unallocated twice", u)
		default:
			free[u] = true
		}
	}
	lost := 0
	for i, a := range alloc {
		if a == freeOrdinal && !free[i] {
			lost++
		}
	}
	if lost > 0 {
		bad("%d ordinals are neither allocated nor unallocated", lost)
	}
	const most = 8
	if n := len(out.Malformed); n > most {
		out.Malformed = append(out.Malformed[:most], fmt.Sprintf("and %d more", n-most))
	}
}

// cutHandle cuts at the first CR, as Calico does with handles that old
// versions corrupted (sanitizeHandle; projectcalico/calico#3940).
func cutHandle(id string) string {
	id, _, _ = strings.Cut(id, "\r")
	return id
}

type affinityObject struct {
	header `json:",inline"`
	Spec   struct {
		CIDR         string   `json:"cidr"`
		Node         string   `json:"node"`
		Type         string   `json:"type,omitzero"`
		State        string   `json:"state,omitzero"`
		Deleted      flexBool `json:"deleted,omitzero"`
		DeletedUpper flexBool `json:"Deleted,omitzero"`
	} `json:"spec"`
}

func (b *Builder) affinity(o *Object) error {
	w := new(affinityObject)
	if err := b.decode(o, w); err != nil {
		return err
	}
	if w.Spec.Deleted || w.Spec.DeletedUpper {
		b.skip(ipam.ResAffinities, w)
		return nil
	}
	cidr, _, err := parseCIDR(w.Spec.CIDR)
	if err != nil {
		return &fieldError{"spec.cidr", err.Error()}
	}
	add(b, ipam.ResAffinities, &b.affinities, o, w, ipam.Affinity{
		Name: w.Metadata.Name, Node: intern(w.Spec.Node), Type: intern(orElse(w.Spec.Type, "host")), CIDR: cidr,
		State: intern(orElse(w.Spec.State, ipam.StateConfirmed)), Created: w.Metadata.CreationTimestamp.Time, UID: w.Metadata.UID,
	})
	return nil
}

type handleObject struct {
	header `json:",inline"`
	Spec   struct {
		HandleID     string         `json:"handleID"`
		Block        map[string]int `json:"block"`
		Deleted      flexBool       `json:"deleted,omitzero"`
		DeletedUpper flexBool       `json:"Deleted,omitzero"`
	} `json:"spec"`
}

func (b *Builder) handle(o *Object) error {
	w := new(handleObject)
	if err := b.decode(o, w); err != nil {
		return err
	}
	if w.Spec.Deleted || w.Spec.DeletedUpper {
		b.skip(ipam.ResHandles, w)
		return nil
	}
	h := ipam.Handle{Name: w.Metadata.Name, ID: cutHandle(w.Spec.HandleID), Created: w.Metadata.CreationTimestamp.Time}
	for _, n := range w.Spec.Block {
		h.Count += n
	}
	add(b, ipam.ResHandles, &b.handles, o, w, h)
	return nil
}

type poolObject struct {
	header `json:",inline"`
	Spec   struct {
		CIDR              string   `json:"cidr"`
		BlockSize         int      `json:"blockSize,omitzero"`
		NodeSelector      string   `json:"nodeSelector,omitzero"`
		NamespaceSelector string   `json:"namespaceSelector,omitzero"`
		Disabled          bool     `json:"disabled,omitzero"`
		DisableBGPExport  bool     `json:"disableBGPExport,omitzero"`
		IPIPMode          string   `json:"ipipMode,omitzero"`
		VXLANMode         string   `json:"vxlanMode,omitzero"`
		AllowedUses       []string `json:"allowedUses,omitzero"`
		AssignmentMode    string   `json:"assignmentMode,omitzero"`
		// IPIP is the spelling of Calico's API v1, still found in old objects.
		IPIP *struct {
			Enabled bool   `json:"enabled,omitzero"`
			Mode    string `json:"mode,omitzero"`
		} `json:"ipip,omitzero"`
	} `json:"spec"`
	Status struct {
		Conditions []condition `json:"conditions,omitzero"`
	} `json:"status,omitzero"`
}

type condition struct {
	Type   string `json:"type"`
	Status string `json:"status"`
	Reason string `json:"reason,omitzero"`
}

// pool applies the read defaults of libcalico-go/lib/clientv3/ippool.go
// (convertIpPoolFromStorage).
func (b *Builder) pool(o *Object) error {
	w := new(poolObject)
	if err := b.decode(o, w); err != nil {
		return err
	}
	cidr, _, err := parseCIDR(w.Spec.CIDR)
	if err != nil {
		return &fieldError{"spec.cidr", err.Error()}
	}
	p := ipam.Pool{
		Name: w.Metadata.Name, CIDR: cidr, BlockSize: w.Spec.BlockSize,
		NodeSelector: orElse(w.Spec.NodeSelector, "all()"), NamespaceSelector: w.Spec.NamespaceSelector,
		Disabled: w.Spec.Disabled, DisableBGPExport: w.Spec.DisableBGPExport,
		IPIPMode: orElse(w.Spec.IPIPMode, "Never"), VXLANMode: orElse(w.Spec.VXLANMode, "Never"),
		Manual:   strings.EqualFold(w.Spec.AssignmentMode, "Manual"),
		Deleting: !w.Metadata.DeletionTimestamp.IsZero(), Created: w.Metadata.CreationTimestamp.Time,
	}
	if p.BlockSize == 0 {
		p.BlockSize = 26
		if cidr.Addr().Is6() {
			p.BlockSize = 122
		}
	}
	if p.BlockSize < cidr.Bits() || p.BlockSize > cidr.Addr().BitLen() {
		// Without its pool a block would look like a stray one: keep it.
		b.complain(ipam.ResPools, o, w, &fieldError{"spec.blockSize", fmt.Sprintf("/%d does not fit into %s", p.BlockSize, cidr)})
	}
	if old := w.Spec.IPIP; old != nil && old.Enabled && w.Spec.IPIPMode == "" {
		p.IPIPMode = "Always"
		if strings.EqualFold(strings.ReplaceAll(old.Mode, "-", ""), "crosssubnet") {
			p.IPIPMode = "CrossSubnet"
		}
	}
	for _, use := range w.Spec.AllowedUses {
		switch use {
		case "Workload":
			p.AllowedUses |= ipam.UseWorkload
		case "Tunnel":
			p.AllowedUses |= ipam.UseTunnel
		case "LoadBalancer":
			p.AllowedUses |= ipam.UseLoadBalancer
		}
	}
	if len(w.Spec.AllowedUses) == 0 {
		p.AllowedUses = ipam.UseWorkload | ipam.UseTunnel
	}
	for _, c := range w.Status.Conditions {
		if c.Type == "Allocatable" && c.Status == "False" {
			p.NotAllocatable = orElse(c.Reason, "unknown")
		}
	}
	add(b, ipam.ResPools, &b.pools, o, w, p)
	return nil
}

type reservationObject struct {
	header `json:",inline"`
	Spec   struct {
		ReservedCIDRs []string `json:"reservedCIDRs"`
	} `json:"spec"`
}

func (b *Builder) reservation(o *Object) error {
	w := new(reservationObject)
	if err := b.decode(o, w); err != nil {
		return err
	}
	r := ipam.Reservation{Name: w.Metadata.Name}
	for i, text := range w.Spec.ReservedCIDRs {
		cidr, err := parsePrefix(text)
		if err != nil {
			// The rest of the object counts all the same.
			b.complain(ipam.ResReservations, o, w, &fieldError{fmt.Sprintf("spec.reservedCIDRs.%d", i), err.Error()})
			continue
		}
		r.CIDRs = append(r.CIDRs, cidr)
	}
	add(b, ipam.ResReservations, &b.reservations, o, w, r)
	return nil
}

type ipamConfigObject struct {
	header `json:",inline"`
	Spec   struct {
		StrictAffinity     bool  `json:"strictAffinity"`
		AutoAllocateBlocks *bool `json:"autoAllocateBlocks,omitzero"`
		MaxBlocksPerHost   int   `json:"maxBlocksPerHost,omitzero"`
		IPCooldownSeconds  int   `json:"ipCooldownSeconds,omitzero"`
	} `json:"spec"`
}

func (b *Builder) ipamConfig(o *Object) error {
	w := new(ipamConfigObject)
	if err := b.decode(o, w); err != nil {
		return err
	}
	add(b, ipam.ResIPAMConfig, &b.configs, o, w, ipam.Config{
		StrictAffinity: w.Spec.StrictAffinity, AutoAllocateBlocks: w.Spec.AutoAllocateBlocks == nil || *w.Spec.AutoAllocateBlocks,
		MaxBlocksPerHost: w.Spec.MaxBlocksPerHost, IPCooldownSeconds: w.Spec.IPCooldownSeconds, Present: true,
	})
	return nil
}

type clusterInfoObject struct {
	header `json:",inline"`
	Spec   struct {
		ClusterGUID    string `json:"clusterGUID,omitzero"`
		CalicoVersion  string `json:"calicoVersion,omitzero"`
		DatastoreReady *bool  `json:"datastoreReady,omitzero"`
	} `json:"spec"`
}

func (b *Builder) clusterInfo(o *Object) error {
	w := new(clusterInfoObject)
	if err := b.decode(o, w); err != nil {
		return err
	}
	add(b, ipam.ResClusterInfo, &b.infos, o, w, ipam.ClusterInfo{
		Present: true, GUID: w.Spec.ClusterGUID, Version: ipam.ParseVersion(w.Spec.CalicoVersion),
		Ready: w.Spec.DatastoreReady == nil || *w.Spec.DatastoreReady,
	})
	return nil
}

type cidrItem struct {
	CIDR string `json:"cidr"`
}

type bgpConfigObject struct {
	header `json:",inline"`
	Spec   struct {
		NodeToNodeMeshEnabled  *bool      `json:"nodeToNodeMeshEnabled,omitzero"`
		ASNumber               flexNumber `json:"asNumber,omitzero"`
		ProgramClusterRoutes   string     `json:"programClusterRoutes,omitzero"`
		ServiceClusterIPs      []cidrItem `json:"serviceClusterIPs,omitzero"`
		ServiceExternalIPs     []cidrItem `json:"serviceExternalIPs,omitzero"`
		ServiceLoadBalancerIPs []cidrItem `json:"serviceLoadBalancerIPs,omitzero"`
	} `json:"spec"`
}

func (b *Builder) bgpConfig(o *Object) error {
	w := new(bgpConfigObject)
	if err := b.decode(o, w); err != nil {
		return err
	}
	c := ipam.BGPConfig{
		Present: true, Mesh: w.Spec.NodeToNodeMeshEnabled == nil || *w.Spec.NodeToNodeMeshEnabled,
		ASNumber: uint32(w.Spec.ASNumber), ProgramClusterRoutes: w.Spec.ProgramClusterRoutes,
	}
	for _, list := range [][]cidrItem{w.Spec.ServiceClusterIPs, w.Spec.ServiceExternalIPs, w.Spec.ServiceLoadBalancerIPs} {
		for _, item := range list {
			if cidr, err := parsePrefix(item.CIDR); err == nil {
				c.ServiceCIDRs = append(c.ServiceCIDRs, cidr)
			}
		}
	}
	add(b, ipam.ResBGPConfig, &b.bgpConfigs, o, w, c)
	return nil
}

type bgpPeerObject struct {
	header `json:",inline"`
	Spec   struct {
		Node                     string     `json:"node,omitzero"`
		NodeSelector             string     `json:"nodeSelector,omitzero"`
		PeerIP                   string     `json:"peerIP,omitzero"`
		PeerSelector             string     `json:"peerSelector,omitzero"`
		ASNumber                 flexNumber `json:"asNumber,omitzero"`
		NumAllowedLocalASNumbers int        `json:"numAllowedLocalASNumbers,omitzero"`
		Filters                  []string   `json:"filters,omitzero"`
	} `json:"spec"`
}

func (b *Builder) bgpPeer(o *Object) error {
	w := new(bgpPeerObject)
	if err := b.decode(o, w); err != nil {
		return err
	}
	add(b, ipam.ResBGPPeers, &b.peers, o, w, ipam.BGPPeer{
		Name: w.Metadata.Name, Node: w.Spec.Node, NodeSelector: w.Spec.NodeSelector, PeerIP: w.Spec.PeerIP,
		PeerSelector: w.Spec.PeerSelector, ASNumber: uint32(w.Spec.ASNumber),
		NumAllowedLocalASNumbers: w.Spec.NumAllowedLocalASNumbers, Filters: w.Spec.Filters,
	})
	return nil
}

type headerObject struct {
	header `json:",inline"`
}

// bgpFilter only counts: the topology model does not read filters yet.
func (b *Builder) bgpFilter(o *Object) error {
	w := new(headerObject)
	if err := b.decode(o, w); err != nil {
		return err
	}
	b.skip(ipam.ResBGPFilters, w)
	return nil
}

type felixConfigObject struct {
	header `json:",inline"`
	Spec   struct {
		ProgramClusterRoutes string `json:"programClusterRoutes,omitzero"`
	} `json:"spec"`
}

func (b *Builder) felixConfig(o *Object) error {
	w := new(felixConfigObject)
	if err := b.decode(o, w); err != nil {
		return err
	}
	add(b, ipam.ResFelixConfig, &b.felixConfigs, o, w, ipam.FelixConfig{Present: true, ProgramClusterRoutes: w.Spec.ProgramClusterRoutes})
	return nil
}

type kubeControllersObject struct {
	header `json:",inline"`
	Spec   struct {
		Controllers struct {
			Node struct {
				LeakGracePeriod string `json:"leakGracePeriod,omitzero"`
			} `json:"node,omitzero"`
		} `json:"controllers,omitzero"`
	} `json:"spec"`
}

func (b *Builder) kubeControllers(o *Object) error {
	w := new(kubeControllersObject)
	if err := b.decode(o, w); err != nil {
		return err
	}
	k := ipam.KubeControllers{Present: true, LeakGracePeriod: ipam.NewSnapshot().KubeCtrl.LeakGracePeriod}
	if text := w.Spec.Controllers.Node.LeakGracePeriod; text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			return &fieldError{"spec.controllers.node.leakGracePeriod", fmt.Sprintf("%q is no duration", text)}
		}
		k.LeakGracePeriod = d
	}
	add(b, ipam.ResKubeCtrl, &b.kubeCtrls, o, w, k)
	return nil
}

type calicoNodeObject struct {
	header `json:",inline"`
	Spec   struct {
		OrchRefs []struct {
			NodeName     string `json:"nodeName,omitzero"`
			Orchestrator string `json:"orchestrator,omitzero"`
		} `json:"orchRefs,omitzero"`
	} `json:"spec"`
}

func (b *Builder) calicoNode(o *Object) error {
	w := new(calicoNodeObject)
	if err := b.decode(o, w); err != nil {
		return err
	}
	n := ipam.CalicoNode{Name: w.Metadata.Name}
	for _, ref := range w.Spec.OrchRefs {
		if ref.Orchestrator == "k8s" {
			n.KubernetesName = ref.NodeName
		}
	}
	add(b, ipam.ResCalicoNodes, &b.calicoNodes, o, w, n)
	return nil
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func later(times ...time.Time) (out time.Time) {
	for _, t := range times {
		if t.After(out) {
			out = t
		}
	}
	return out
}

// netipPrefixes reads a list of CIDRs, skipping what is none.
func netipPrefixes(texts []string) []netip.Prefix {
	var out []netip.Prefix
	for _, t := range texts {
		if p, err := parsePrefix(t); err == nil {
			out = append(out, p)
		}
	}
	return out
}
