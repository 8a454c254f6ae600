package collect

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"ipamaudit/ipam"
)

type nodeObject struct {
	typeMeta `json:",inline"`
	Metadata struct {
		metadata    `json:",inline"`
		Labels      map[string]string `json:"labels,omitzero" pb:"11,strings"`
		Annotations nodeAnnotations   `json:"annotations,omitzero" pb:"12,strings"`
	} `json:"metadata" pb:"1"`
	Spec struct {
		Unschedulable bool     `json:"unschedulable,omitzero" pb:"4"`
		PodCIDR       string   `json:"podCIDR,omitzero" pb:"1"`
		PodCIDRs      []string `json:"podCIDRs,omitzero" pb:"7"`
		Taints        []taint  `json:"taints,omitzero" pb:"5"`
	} `json:"spec,omitzero" pb:"2"`
	Status struct {
		Capacity struct {
			Pods flexNumber `json:"pods,omitzero"`
		} `json:"capacity,omitzero" pb:"1,amounts"`
		Addresses []struct {
			Type    string `json:"type" pb:"1"`
			Address string `json:"address" pb:"2"`
		} `json:"addresses,omitzero" pb:"5"`
		Conditions []condition `json:"conditions,omitzero" pb:"4"`
		NodeInfo   struct {
			OperatingSystem string `json:"operatingSystem,omitzero" pb:"9"`
		} `json:"nodeInfo,omitzero" pb:"7"`
	} `json:"status,omitzero" pb:"3"`
}

type taint struct {
	Key    string `json:"key" pb:"1"`
	Effect string `json:"effect" pb:"3"`
}

// own reports whether somebody keeps ordinary pods away on purpose; Kubernetes'
// own taints come and go with the node's condition.
func (t taint) own() bool {
	return (t.Effect == "NoSchedule" || t.Effect == "NoExecute") && !strings.HasPrefix(t.Key, "node.kubernetes.io/") && !strings.HasPrefix(t.Key, "node.cloudprovider.kubernetes.io/")
}

// nodeAnnotations are Calico's (libcalico-go/lib/backend/k8s/resources/node.go).
type nodeAnnotations struct {
	IPv4Address     string     `json:"projectcalico.org/IPv4Address,omitzero"`
	IPv6Address     string     `json:"projectcalico.org/IPv6Address,omitzero"`
	IPIP            string     `json:"projectcalico.org/IPv4IPIPTunnelAddr,omitzero"`
	VXLAN           string     `json:"projectcalico.org/IPv4VXLANTunnelAddr,omitzero"`
	VXLANv6         string     `json:"projectcalico.org/IPv6VXLANTunnelAddr,omitzero"`
	Wireguard       string     `json:"projectcalico.org/IPv4WireguardInterfaceAddr,omitzero"`
	WireguardV6     string     `json:"projectcalico.org/IPv6WireguardInterfaceAddr,omitzero"`
	ASNumber        flexNumber `json:"projectcalico.org/ASNumber,omitzero"`
	RouteReflectors string     `json:"projectcalico.org/RouteReflectorClusterID,omitzero"`
}

func (w *nodeObject) meta() *metadata { return &w.Metadata.metadata }

// flannelMigrationLabel marks nodes that Calico's collector leaves alone
// (kube-controllers/pkg/controllers/flannelmigration).
const flannelMigrationLabel = "projectcalico.org/node-network-during-migration"

func (b *Builder) node(o *Object) error {
	w := new(nodeObject)
	if err := b.decode(o, w); err != nil {
		return err
	}
	m, ann := &w.Metadata, &w.Metadata.Annotations
	n := ipam.Node{
		Name: b.intern(m.Name), UID: m.UID, Labels: b.internMap(m.Labels), Created: m.CreationTimestamp.Time,
		ASNumber: uint32(ann.ASNumber), RRClusterID: ann.RouteReflectors, Unschedulable: w.Spec.Unschedulable,
		Deleting: !m.DeletionTimestamp.IsZero(), MaxPods: int(w.Status.Capacity.Pods), Tainted: slices.ContainsFunc(w.Spec.Taints, taint.own),
		Windows: w.Status.NodeInfo.OperatingSystem == "windows" || m.Labels["kubernetes.io/os"] == "windows" || m.Labels["beta.kubernetes.io/os"] == "windows",
	}
	for _, t := range []struct{ kind, text string }{
		{"ipip", ann.IPIP}, {"vxlan", ann.VXLAN}, {"vxlan-v6", ann.VXLANv6}, {"wireguard", ann.Wireguard}, {"wireguard-v6", ann.WireguardV6},
	} {
		for _, ip := range parseAddrs(t.text) {
			n.Tunnels = append(n.Tunnels, ipam.TunnelAddress{Kind: t.kind, IP: ip})
		}
	}
	n.Addresses = parseAddrs(ann.IPv4Address, ann.IPv6Address)
	bgp := slices.Clone(n.Addresses)
	for _, a := range w.Status.Addresses {
		if a.Type != "InternalIP" {
			continue
		}
		for _, ip := range parseAddrs(a.Address) {
			sameFamily := func(other netip.Addr) bool { return other.Is4() == ip.Is4() }
			if !slices.ContainsFunc(bgp, sameFamily) && !slices.Contains(n.Addresses, ip) {
				n.Addresses = append(n.Addresses, ip)
			}
		}
	}
	for _, c := range w.Status.Conditions {
		if c.Type == "Ready" {
			n.Ready = c.Status == "True"
		}
	}
	_, control := m.Labels["node-role.kubernetes.io/control-plane"]
	_, master := m.Labels["node-role.kubernetes.io/master"]
	n.ControlPlane = control || master
	_, n.FlannelMigration = m.Labels[flannelMigrationLabel]
	n.PodCIDRs = netipPrefixes(w.Spec.PodCIDRs)
	if len(n.PodCIDRs) == 0 && w.Spec.PodCIDR != "" {
		n.PodCIDRs = netipPrefixes([]string{w.Spec.PodCIDR})
	}
	add(b, ipam.ResNodes, &b.nodes, o, w, n)
	return nil
}

func (b *Builder) internMap(m map[string]string) map[string]string {
	if m == nil {
		return nil
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[b.intern(k)] = b.intern(v)
	}
	return out
}

type podObject struct {
	typeMeta `json:",inline"`
	Metadata struct {
		metadata    `json:",inline"`
		Annotations podAnnotations `json:"annotations,omitzero" pb:"12,strings"`
		Labels      struct {
			App    string `json:"k8s-app,omitzero"`
			VM     string `json:"vm.kubevirt.io/name,omitzero"`
			Domain string `json:"kubevirt.io/domain,omitzero"`
		} `json:"labels,omitzero" pb:"11,strings"`
		OwnerReferences []ownerReference `json:"ownerReferences,omitzero" pb:"13"`
	} `json:"metadata" pb:"1"`
	Spec struct {
		NodeName    string `json:"nodeName,omitzero" pb:"10"`
		HostNetwork bool   `json:"hostNetwork,omitzero" pb:"11"`
	} `json:"spec,omitzero" pb:"2"`
	Status struct {
		Phase  string `json:"phase,omitzero" pb:"1"`
		Reason string `json:"reason,omitzero" pb:"4"`
		PodIP  string `json:"podIP,omitzero" pb:"6"`
		PodIPs []struct {
			IP string `json:"ip" pb:"1"`
		} `json:"podIPs,omitzero" pb:"12"`
		StartTime             stamp             `json:"startTime,omitzero" pb:"7"`
		InitContainerStatuses []containerStatus `json:"initContainerStatuses,omitzero" pb:"10"`
		ContainerStatuses     []containerStatus `json:"containerStatuses,omitzero" pb:"8"`
	} `json:"status,omitzero" pb:"3"`
}

// podAnnotations are those of Calico's CNI plug-in. PodIP is a pointer since
// empty and absent mean different things.
type podAnnotations struct {
	PodIP       *string `json:"cni.projectcalico.org/podIP,omitzero"`
	PodIPs      *string `json:"cni.projectcalico.org/podIPs,omitzero"`
	ContainerID string  `json:"cni.projectcalico.org/containerID,omitzero"`
	IPAddrs     string  `json:"cni.projectcalico.org/ipAddrs,omitzero"`
	NoIPAM      string  `json:"cni.projectcalico.org/ipAddrsNoIpam,omitzero"`
	IPv4Pools   string  `json:"cni.projectcalico.org/ipv4pools,omitzero"`
	IPv6Pools   string  `json:"cni.projectcalico.org/ipv6pools,omitzero"`
}

type ownerReference struct {
	Kind       string `json:"kind" pb:"1"`
	Name       string `json:"name" pb:"3"`
	Controller bool   `json:"controller,omitzero" pb:"6"`
}

type containerStatus struct {
	RestartCount int `json:"restartCount,omitzero" pb:"5"`
	State        struct {
		Waiting *struct {
			Reason  string `json:"reason,omitzero" pb:"1"`
			Message string `json:"message,omitzero" pb:"2"`
		} `json:"waiting,omitzero" pb:"1"`
		Terminated *struct {
			FinishedAt stamp `json:"finishedAt,omitzero" pb:"6"`
		} `json:"terminated,omitzero" pb:"3"`
	} `json:"state,omitzero" pb:"2"`
	LastState struct {
		Terminated *struct {
			Message string `json:"message,omitzero" pb:"4"`
		} `json:"terminated,omitzero" pb:"3"`
	} `json:"lastState,omitzero" pb:"3"`
}

func (w *podObject) meta() *metadata { return &w.Metadata.metadata }

// maxMessage bounds the texts of pods and events that are kept.
const maxMessage = 2 << 10

func (b *Builder) pod(o *Object) error {
	w := wire(b, &b.scratch.pod)
	if err := b.decode(o, w); err != nil {
		return err
	}
	m, ann := &w.Metadata, &w.Metadata.Annotations
	for _, list := range [][]containerStatus{w.Status.InitContainerStatuses, w.Status.ContainerStatuses} {
		for i := range list {
			c := &list[i]
			if c.State.Waiting != nil {
				c.State.Waiting.Message = clip(c.State.Waiting.Message)
			}
			// What a container left behind may be anything, secrets included.
			if t := c.LastState.Terminated; t != nil && !speaksOfNetwork("", t.Message) {
				c.LastState.Terminated = nil
			} else if t != nil {
				t.Message = clip(t.Message)
			}
		}
	}
	p := ipam.Pod{
		Namespace: b.intern(m.Namespace), Name: m.Name, UID: m.UID, NodeName: b.intern(w.Spec.NodeName), HostNetwork: w.Spec.HostNetwork,
		Phase: b.intern(w.Status.Phase), Reason: b.intern(w.Status.Reason), Deleting: !m.DeletionTimestamp.IsZero(),
		Created: m.CreationTimestamp.Time, Started: w.Status.StartTime.Time, Ended: m.DeletionTimestamp.Time,
		Released:     ann.PodIP != nil && *ann.PodIP == "",
		CalicoCNI:    ann.PodIP != nil || ann.PodIPs != nil || ann.ContainerID != "",
		RequestedIPs: parseAddrs(stringList(ann.IPAddrs)...),
		PoolPins:     slices.Concat(stringList(ann.IPv4Pools), stringList(ann.IPv6Pools)),
		NoIPAM:       ann.NoIPAM != "" && ann.NoIPAM != "[]",
		App:          b.intern(m.Labels.App), VMI: orElse(m.Labels.VM, m.Labels.Domain),
	}
	for _, ip := range w.Status.PodIPs {
		p.StatusIPs = append(p.StatusIPs, parseAddrs(ip.IP)...)
	}
	if len(p.StatusIPs) == 0 {
		p.StatusIPs = parseAddrs(w.Status.PodIP)
	}
	if len(p.StatusIPs) == 0 && w.Status.PodIP != "" {
		// The pod is kept: it exists, runs somewhere and may be recorded.
		b.Rejected(ipam.ObjectError{Where: o.Place.String(), Kind: "Pod", Name: m.Namespace + "/" + m.Name, Field: "status.podIP", Message: fmt.Sprintf("%q is no address", clip(w.Status.PodIP))})
	}
	if ann.PodIPs != nil && *ann.PodIPs != "" {
		p.AnnotatedIPs = parseAddrs(strings.Split(*ann.PodIPs, ",")...)
	} else if ann.PodIP != nil {
		p.AnnotatedIPs = parseAddrs(*ann.PodIP)
	}
	if slices.Equal(p.AnnotatedIPs, p.StatusIPs) {
		p.AnnotatedIPs = p.StatusIPs // nearly always: one list in memory, not two
	}
	if i := slices.IndexFunc(m.OwnerReferences, func(r ownerReference) bool { return r.Controller }); i >= 0 {
		p.OwnerKind, p.OwnerName = b.intern(m.OwnerReferences[i].Kind), b.intern(m.OwnerReferences[i].Name)
	}
	for _, c := range slices.Concat(w.Status.InitContainerStatuses, w.Status.ContainerStatuses) {
		p.Restarts += c.RestartCount
		if t := c.State.Terminated; t != nil {
			p.Ended = later(p.Ended, t.FinishedAt.Time)
		}
		if c.State.Waiting == nil || p.Waiting != "" {
			continue
		}
		p.Waiting, p.Message = b.intern(orElse(c.State.Waiting.Reason, "Waiting")), c.State.Waiting.Message
		// A crash loop's own text says only how long it backs off; why it
		// crashed stands in what the last run left behind.
		if t := c.LastState.Terminated; t != nil && t.Message != "" {
			p.Message = strings.TrimPrefix(p.Message+"; "+t.Message, "; ")
		}
	}
	add(b, ipam.ResPods, &b.pods, o, w, p)
	return nil
}

// clip shortens a text to maxMessage without cutting a character.
func clip(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	return strings.ToValidUTF8(s[:maxMessage], "") + "…"
}

type namespaceObject struct {
	typeMeta `json:",inline"`
	Metadata struct {
		metadata    `json:",inline"`
		Labels      map[string]string `json:"labels,omitzero" pb:"11,strings"`
		Annotations struct {
			IPv4Pools string `json:"cni.projectcalico.org/ipv4pools,omitzero"`
			IPv6Pools string `json:"cni.projectcalico.org/ipv6pools,omitzero"`
		} `json:"annotations,omitzero" pb:"12,strings"`
	} `json:"metadata" pb:"1"`
}

func (w *namespaceObject) meta() *metadata { return &w.Metadata.metadata }

func (b *Builder) namespace(o *Object) error {
	w := new(namespaceObject)
	if err := b.decode(o, w); err != nil {
		return err
	}
	add(b, ipam.ResNamespaces, &b.namespaces, o, w, ipam.Namespace{
		Name: w.Metadata.Name, UID: w.Metadata.UID, Labels: b.internMap(w.Metadata.Labels),
		PoolPins: slices.Concat(stringList(w.Metadata.Annotations.IPv4Pools), stringList(w.Metadata.Annotations.IPv6Pools)),
	})
	return nil
}

type serviceObject struct {
	header `json:",inline"`
	Spec   struct {
		Type string `json:"type,omitzero" pb:"4"`
	} `json:"spec,omitzero" pb:"2"`
	Status struct {
		LoadBalancer struct {
			Ingress []struct {
				IP string `json:"ip,omitzero" pb:"1"`
			} `json:"ingress,omitzero" pb:"1"`
		} `json:"loadBalancer,omitzero" pb:"1"`
	} `json:"status,omitzero" pb:"3"`
}

func (b *Builder) service(o *Object) error {
	w := new(serviceObject)
	if err := b.decode(o, w); err != nil {
		return err
	}
	if w.Spec.Type != "LoadBalancer" {
		b.ignore(ipam.ResServices, w)
		return nil
	}
	s := ipam.Service{Namespace: b.intern(w.Metadata.Namespace), Name: w.Metadata.Name, Type: w.Spec.Type}
	for _, i := range w.Status.LoadBalancer.Ingress {
		s.IngressIPs = append(s.IngressIPs, parseAddrs(i.IP)...)
	}
	add(b, ipam.ResServices, &b.services, o, w, s)
	return nil
}

type workloadObject struct {
	typeMeta `json:",inline"`
	Metadata struct {
		metadata `json:",inline"`
		Labels   struct {
			App string `json:"k8s-app,omitzero"`
		} `json:"labels,omitzero"`
	} `json:"metadata"`
	Spec struct {
		Replicas *int `json:"replicas,omitzero"`
		Template struct {
			Metadata struct {
				Labels struct {
					App string `json:"k8s-app,omitzero"`
				} `json:"labels,omitzero"`
			} `json:"metadata,omitzero"`
			Spec struct {
				Containers []struct {
					Name  string   `json:"name,omitzero"`
					Image string   `json:"image,omitzero"`
					Env   []envVar `json:"env,omitzero"`
				} `json:"containers,omitzero"`
			} `json:"spec,omitzero"`
		} `json:"template,omitzero"`
	} `json:"spec,omitzero"`
	Status struct {
		AvailableReplicas      int                 `json:"availableReplicas,omitzero"`
		DesiredNumberScheduled int                 `json:"desiredNumberScheduled,omitzero"`
		NumberAvailable        int                 `json:"numberAvailable,omitzero"`
		Conditions             []workloadCondition `json:"conditions,omitzero"`
	} `json:"status,omitzero"`
}

type workloadCondition struct {
	Type   string `json:"type"`
	Status string `json:"status"`
	Since  stamp  `json:"lastTransitionTime,omitzero"`
}

type envVar struct {
	Name  string `json:"name"`
	Value string `json:"value,omitzero"`
}

func (w *workloadObject) meta() *metadata { return &w.Metadata.metadata }

// calicoOwn reports whether a workload belongs to Calico.
func (w *workloadObject) calicoOwn() bool {
	for _, s := range []string{w.Metadata.Name, w.Metadata.Labels.App, w.Spec.Template.Metadata.Labels.App} {
		for _, own := range []string{"calico", "tigera", "canal"} {
			if strings.Contains(s, own) {
				return true
			}
		}
	}
	return false
}

// tellingEnv reports whether an environment variable configures Calico. All
// others are dropped unread: they may hold secrets.
func tellingEnv(name string) bool {
	switch name {
	case "ENABLED_CONTROLLERS", "DATASTORE_TYPE", "CLUSTER_TYPE", "IP", "IP6", "IP_AUTODETECTION_METHOD",
		"USE_POD_CIDR", "NO_DEFAULT_POOLS", "CALICO_API_GROUP", "CALICO_NETWORKING_BACKEND",
		"CALICO_IPV4POOL_CIDR", "CALICO_IPV4POOL_IPIP", "CALICO_IPV4POOL_VXLAN", "CALICO_IPV4POOL_BLOCK_SIZE",
		"CALICO_IPV6POOL_CIDR", "CALICO_IPV6POOL_VXLAN", "CALICO_IPV6POOL_BLOCK_SIZE":
		return true
	}
	return false
}

func (b *Builder) workload(o *Object, r ipam.Resource, kind string) error {
	w := new(workloadObject)
	if err := b.decode(o, w); err != nil {
		return err
	}
	if !w.calicoOwn() {
		b.ignore(r, w)
		return nil
	}
	out := ipam.Workload{
		Kind: kind, Namespace: w.Metadata.Namespace, Name: w.Metadata.Name,
		Desired: w.Status.DesiredNumberScheduled, Available: w.Status.NumberAvailable, Env: map[string]string{},
	}
	if kind == "Deployment" {
		out.Desired, out.Available = 1, w.Status.AvailableReplicas
		if w.Spec.Replicas != nil {
			out.Desired = *w.Spec.Replicas
		}
		for _, c := range w.Status.Conditions {
			if c.Type == "Available" && c.Status == "False" {
				out.UnavailableSince = c.Since.Time
			}
		}
	}
	containers := w.Spec.Template.Spec.Containers
	for i := range containers {
		containers[i].Env = slices.DeleteFunc(containers[i].Env, func(e envVar) bool { return !tellingEnv(e.Name) })
		for _, e := range containers[i].Env {
			out.Env[e.Name] = e.Value
		}
	}
	if len(containers) > 0 {
		out.Image = containers[0].Image
	}
	add(b, r, &b.workloads, o, w, out)
	return nil
}

type configMapObject struct {
	header `json:",inline"`
	Data   map[string]string `json:"data,omitzero"`
}

// configMap looks for the CNI configuration (calico-config, kube-flannel-cfg):
// it says which IPAM plug-in the nodes run.
func (b *Builder) configMap(o *Object) error {
	w := new(configMapObject)
	if err := b.decode(o, w); err != nil {
		return err
	}
	maps.DeleteFunc(w.Data, func(key, text string) bool { return !isCNIConfig(key, text) })
	if len(w.Data) == 0 {
		b.ignore(ipam.ResConfigMaps, w)
		return nil
	}
	keys := slices.SortedFunc(maps.Keys(w.Data), cmp.Compare)
	var texts []string
	for _, k := range keys {
		texts = append(texts, w.Data[k])
	}
	add(b, ipam.ResConfigMaps, &b.cniConfigs, o, w, texts)
	return nil
}

func isCNIConfig(key, text string) bool {
	switch {
	case key == "cni_network_config", key == "cni-conf.json", strings.HasSuffix(key, ".conflist"), strings.HasSuffix(key, ".conf"):
		return strings.Contains(text, `"type"`) && len(text) < 64<<10
	}
	return false
}
