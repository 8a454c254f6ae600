package collect

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"ipamaudit/ipam"
)

// The wire types hold what the model needs of each kind, and nothing else:
// what is not named here is neither kept in memory nor written to a snapshot.

// typeMeta says what an object is. Items of built-in kinds leave it to their list.
type typeMeta struct {
	APIVersion string `json:"apiVersion,omitzero"`
	Kind       string `json:"kind,omitzero"`
}

func (t *typeMeta) typ() *typeMeta { return t }

// header is what every object begins with.
type header struct {
	typeMeta `json:",inline"`
	Metadata metadata `json:"metadata" pb:"1"`
}

func (h *header) meta() *metadata { return &h.Metadata }

// object is a wire type.
type object interface {
	typ() *typeMeta
	meta() *metadata
}

type metadata struct {
	Name              string `json:"name,omitzero" pb:"1"`
	Namespace         string `json:"namespace,omitzero" pb:"3"`
	UID               string `json:"uid,omitzero" pb:"5"`
	ResourceVersion   string `json:"resourceVersion,omitzero" pb:"6"`
	CreationTimestamp stamp  `json:"creationTimestamp,omitzero" pb:"8"`
	DeletionTimestamp stamp  `json:"deletionTimestamp,omitzero" pb:"9"`
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
	room := b.scratch.block.Spec
	w := wire(b, &b.scratch.block)
	if b.tee == nil {
		w.Spec.Allocations, w.Spec.Unallocated, w.Spec.Attributes = room.Allocations[:0], room.Unallocated[:0], room.Attributes[:0]
	}
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
	out.Owner.Name = b.intern(out.Owner.Name)
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
			Handle: cutHandle(a.HandleID), Namespace: b.intern(a.Secondary.Namespace), Pod: a.Secondary.Pod,
			Node: b.intern(a.Secondary.Node), Type: b.intern(a.Secondary.Type), Service: a.Secondary.Service, VMI: a.Secondary.VMI,
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
	w := wire(b, &b.scratch.affinity)
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
		Name: w.Metadata.Name, Node: b.intern(w.Spec.Node), Type: b.intern(orElse(w.Spec.Type, "host")), CIDR: cidr,
		State: b.intern(orElse(w.Spec.State, ipam.StateConfirmed)), Created: w.Metadata.CreationTimestamp.Time, UID: w.Metadata.UID,
	})
	return nil
}

type handleObject struct {
	header `json:",inline"`
	Spec   struct {
		HandleID     string      `json:"handleID"`
		Block        blockCounts `json:"block"`
		Deleted      flexBool    `json:"deleted,omitzero"`
		DeletedUpper flexBool    `json:"Deleted,omitzero"`
	} `json:"spec"`
}

func (b *Builder) handle(o *Object) error {
	w := wire(b, &b.scratch.handle)
	if err := b.decode(o, w); err != nil {
		return err
	}
	if w.Spec.Deleted || w.Spec.DeletedUpper {
		b.skip(ipam.ResHandles, w)
		return nil
	}
	h := ipam.Handle{Name: w.Metadata.Name, ID: cutHandle(w.Spec.HandleID), Created: w.Metadata.CreationTimestamp.Time}
	if h.ID == h.Name {
		h.ID = h.Name // one text in memory, not two
	}
	for _, c := range w.Spec.Block {
		h.Count += c.n
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
		NATOutgoing       bool     `json:"natOutgoing,omitzero"`
		NATOutgoingV1     bool     `json:"nat-outgoing,omitzero"`
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
	Type   string `json:"type" pb:"1"`
	Status string `json:"status" pb:"2"`
	Reason string `json:"reason,omitzero" pb:"5"`
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
		Disabled: w.Spec.Disabled, DisableBGPExport: w.Spec.DisableBGPExport, NATOutgoing: w.Spec.NATOutgoing || w.Spec.NATOutgoingV1,
		IPIPMode: orElse(w.Spec.IPIPMode, "Never"), VXLANMode: orElse(w.Spec.VXLANMode, "Never"),
		Manual:   strings.EqualFold(w.Spec.AssignmentMode, "Manual"),
		Deleting: !w.Metadata.DeletionTimestamp.IsZero(), Created: w.Metadata.CreationTimestamp.Time,
	}
	if p.BlockSize == 0 {
		p.BlockSize = ipam.DefaultBlockSize(cidr.Addr())
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
		LocalASNumber            flexNumber `json:"localASNumber,omitzero"`
		NumAllowedLocalASNumbers int        `json:"numAllowedLocalASNumbers,omitzero"`
		Filters                  []string   `json:"filters,omitzero"`
		LocalWorkloadSelector    string     `json:"localWorkloadSelector,omitzero"`
	} `json:"spec"`
}

func (b *Builder) bgpPeer(o *Object) error {
	w := new(bgpPeerObject)
	if err := b.decode(o, w); err != nil {
		return err
	}
	add(b, ipam.ResBGPPeers, &b.peers, o, w, ipam.BGPPeer{
		Name: w.Metadata.Name, Node: w.Spec.Node, NodeSelector: w.Spec.NodeSelector, PeerIP: w.Spec.PeerIP,
		PeerSelector: w.Spec.PeerSelector, ASNumber: uint32(w.Spec.ASNumber), LocalASNumber: uint32(w.Spec.LocalASNumber),
		Workloads:                w.Spec.LocalWorkloadSelector != "",
		NumAllowedLocalASNumbers: w.Spec.NumAllowedLocalASNumbers, Filters: w.Spec.Filters,
	})
	return nil
}

type headerObject struct {
	header `json:",inline"`
}

type bgpFilterObject struct {
	header `json:",inline"`
	Spec   struct {
		ExportV4 []filterRule `json:"exportV4,omitzero"`
		ImportV4 []filterRule `json:"importV4,omitzero"`
		ExportV6 []filterRule `json:"exportV6,omitzero"`
		ImportV6 []filterRule `json:"importV6,omitzero"`
	} `json:"spec"`
}

type filterRule struct {
	CIDR          string `json:"cidr,omitzero"`
	MatchOperator string `json:"matchOperator,omitzero"`
	PrefixLength  *struct {
		Min *int `json:"min,omitzero"`
		Max *int `json:"max,omitzero"`
	} `json:"prefixLength,omitzero"`
	Source    string `json:"source,omitzero"`
	PeerType  string `json:"peerType,omitzero"`
	Interface string `json:"interface,omitzero"`
	// Of these only their presence counts.
	Communities  jsontext.Value `json:"communities,omitzero"`
	ASPathPrefix jsontext.Value `json:"asPathPrefix,omitzero"`
	Priority     jsontext.Value `json:"priority,omitzero"`
	Action       string         `json:"action"`
}

func (b *Builder) bgpFilter(o *Object) error {
	w := new(bgpFilterObject)
	if err := b.decode(o, w); err != nil {
		return err
	}
	f := ipam.BGPFilter{Name: w.Metadata.Name}
	for _, list := range []struct {
		field string
		from  []filterRule
		to    *[]ipam.BGPFilterRule
	}{
		{"exportV4", w.Spec.ExportV4, &f.ExportV4}, {"importV4", w.Spec.ImportV4, &f.ImportV4},
		{"exportV6", w.Spec.ExportV6, &f.ExportV6}, {"importV6", w.Spec.ImportV6, &f.ImportV6},
	} {
		for i, r := range list.from {
			rule := ipam.BGPFilterRule{
				Operator: r.MatchOperator, MinLength: -1, MaxLength: -1, Source: r.Source, PeerType: r.PeerType,
				Opaque: r.Interface != "" || r.Communities != nil || r.ASPathPrefix != nil || r.Priority != nil, Reject: r.Action == "Reject",
			}
			if r.CIDR != "" {
				cidr, _, err := parseCIDR(r.CIDR)
				if err != nil {
					// Half a filter would let pass what the whole one rejects.
					return &fieldError{fmt.Sprintf("spec.%s.%d.cidr", list.field, i), err.Error()}
				}
				rule.CIDR = cidr
			}
			if l := r.PrefixLength; l != nil {
				if l.Min != nil {
					rule.MinLength = *l.Min
				}
				if l.Max != nil {
					rule.MaxLength = *l.Max
				}
			}
			*list.to = append(*list.to, rule)
		}
	}
	add(b, ipam.ResBGPFilters, &b.filters, o, w, f)
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
