package checks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"ipamaudit/ipam"
)

// Symptom is something that people see before they know what it is.
type Symptom struct {
	// Where it is seen, one of Places.
	Where string
	// Seen is the text as it is printed, without what differs from case to case,
	// or, in Words, what is observed.
	Seen  string
	Words bool
	// If tells this row from others with the same text; it may be empty.
	If string
	// Means says what is behind it, Check is the id of the check that looks for it.
	Means, Check string
	// Heading is the part of the check's page that is about it, empty for the whole.
	Heading string
}

// text is what is seen, as Markdown, with what tells it from others.
func (s Symptom) text() string {
	seen := s.Seen
	if !s.Words {
		seen = "`" + seen + "`"
	}
	if s.If != "" {
		seen += ", " + s.If
	}
	return seen
}

// The places where symptoms are seen, in the order of docs/symptoms.md.
const (
	inPodEvents  = "A pod does not start: its events (`kubectl describe pod`), kubelet's and the CNI plug-in's log"
	inTraffic    = "Traffic is lost, or goes to the wrong pod"
	inNodeRoutes = "On a node: `ip route`, BIRD"
	inAgentLog   = "Log of calico-node (Felix, BIRD, start-up)"
	inCollector  = "Log of calico-kube-controllers"
	inCalicoctl  = "Output of calicoctl"
	inObjects    = "In Kubernetes' and Calico's objects, and in figures"
	looksOdd     = "Odd, but healthy"
)

// Places are the headings of docs/symptoms.md.
func Places() []string {
	return []string{inPodEvents, inTraffic, inNodeRoutes, inAgentLog, inCollector, inCalicoctl, inObjects, looksOdd}
}

// Symptoms are all of them, by place: the texts that stuck-pods knows, and
// those below.
func Symptoms() []Symptom {
	var out []Symptom
	for _, c := range stuckCauses() {
		s := Symptom{Where: inPodEvents, Means: c.what, Check: c.seeAlso}
		if s.Check == "" {
			s.Check, s.Heading = "stuck-pods", c.heading()
		}
		for _, t := range c.texts {
			s.Seen = strings.ReplaceAll(t, "*", " … ")
			out = append(out, s)
		}
	}
	out = append(out, otherSymptoms()...)
	slices.SortStableFunc(out, func(a, b Symptom) int {
		return cmp.Compare(slices.Index(Places(), a.Where), slices.Index(Places(), b.Where))
	})
	return out
}

func otherSymptoms() []Symptom {
	text := func(where, check, seen, means string) Symptom {
		return Symptom{Where: where, Seen: seen, Means: means, Check: check}
	}
	when := func(deciding string, s Symptom) Symptom {
		s.If = deciding
		return s
	}
	words := func(where, check, seen, means string) Symptom {
		return Symptom{Where: where, Seen: seen, Words: true, Means: means, Check: check}
	}
	at := func(heading string, s Symptom) Symptom {
		s.Heading = heading
		return s
	}
	stuck := func(id string, s Symptom) Symptom {
		causes := stuckCauses()
		return at(causes[slices.IndexFunc(causes, func(c stuckCause) bool { return c.id == id })].heading(), s)
	}
	return []Symptom{
		at("Many records for one pod that never starts (`FailedCreatePodSandBox`, again and again)", words(inPodEvents, "leaked-ips", "One pod fails again and again (retry after retry, `FailedCreatePodSandBox` a thousand times), then nothing starts on its node", "each sandbox that fails leaves an address booked")),
		at("Calico gives out the addresses, and pools or blocks are gone, or younger than the pods (a reinstall)", words(inPodEvents, "ipam-data", "Calico was removed and installed again (uninstall, reinstall, redeploy, restore from a backup); addresses of new pods are in use already", "IPAM has forgotten the pods that ran before")),
		at("host-local, and since an upgrade new pods get addresses in use (`route … already exists`): running sandboxes have no lease", words(inPodEvents, "ipam-data", "host-local (canal, or each node hands out its own podCIDR): since an upgrade of Calico or the installer new pods fail, `route … already exists`", "the init container upgrade-ipam has deleted host-local's leases")),
		stuck("host-local", words(inPodEvents, "stuck-pods", "canal (RKE2), flannel, k3s, OpenShift: no IP addresses available, `failed to allocate for range 0`; lease files of pods that are gone in `/var/lib/cni/networks/cbr0` or `k8s-pod-network`", "no matter of Calico IPAM: host-local's leases have leaked on that node")),
		stuck("foreign-block", words(inPodEvents, "stuck-pods", "Pods with a static IP start on one node only, elsewhere they wait", "the address lies in that node's block, and strict affinity keeps it there")),
		words(inPodEvents, "stuck-pods", "A static IP looked free (`--show-borrowed` did not list it) and is already in use", "that table is no list of what is in use; `calicoctl ipam show --ip` tells: choose another address"),
		words(inPodEvents, "stuck-pods", "Pods stay in ContainerCreating or Pending and no event speaks of addresses (image, volume, slow etcd or API server, an overloaded node)", "no matter of IPAM while the node's blocks have free addresses"),
		at("An annotation names a pool that is disabled or gone (`does not exist, or is not enabled`)", words(inPodEvents, "pool-config", "New pods fail since the old pool was disabled (a migration to another pool)", "an annotation or the CNI configuration still names the old pool")),
		words(inPodEvents, "pool-utilisation", "Pods start slowly, the CNI times out: a large cluster, almost all blocks claimed", "looking for a free block takes long when hardly any is left"),
		words(inPodEvents, "blockless-nodes", "Pods hang in ContainerCreating on new nodes only (a second node, scaled up, GPU or spot nodes), though the pool is hardly used", "no block is left for the new nodes: a pool runs out of blocks long before it runs out of addresses"),
		words(inPodEvents, "node-capacity", "A node takes 20 pods and no more (blockSize 32, /32 blocks), or some sixty (blockSize 26, one block per node), and max pods (maxPods) is 110", "block size × blocks per node is less than kubelet's max pods"),
		at("One address is wanted now: a pod waits for it", words(inPodEvents, "leaked-ips", "A pod with a fixed address (static IP) cannot start, after a power cut, a crash or a reboot for instance: the address is booked for a pod that is gone", "the address leaked; release it once nothing uses it")),
		text(inPodEvents, "pool-utilisation", "failed to request 1 IPv4 addresses", "IPAM could give no address out of the pools that serve the node: what follows tells why, and has a row of its own"),
		text(inPodEvents, "node-block-limit", "cannot allocate new block due to per host block limit", "the node's blocks are full and it may not claim another one: mostly leaks; with small blocks (/32, /29) the limit itself, see [node-capacity](checks/node-capacity.md)"),
		words(inPodEvents, "stuck-pods", "`plugin type=\"calico\" failed (add)`, `networkPlugin cni failed to set up pod`", "the CNI plug-in could not start the pod: what follows tells why, and has a row of its own"),
		words(inPodEvents, "leaked-ips", "Many finished Jobs (CronJobs, batch), and a node or pool that fills up", "records of finished or deleted pods that nobody collects"),
		words(inPodEvents, "leaked-ips", "Since an upgrade (of Calico, Kubernetes, the container runtime) the pool fills up and up, from 10% to 97% in days", "addresses are booked and not released; those of nodes that are gone: [orphan-affinities](checks/orphan-affinities.md)"),
		text(inPodEvents, "leaked-ips", "check network namespace closed: remove netns … device or resource busy", "CNI DEL fails and leaves the address booked"),
		stuck("host-route", text(inPodEvents, "stuck-pods", "already exists for an interface other than", "the node has a route for the address on another interface: a pod there still uses it, or its route was left behind; where that route is a blackhole (blockSize 32): [blackholed-routes](checks/blackholed-routes.md)")),
		text(inPodEvents, "ipam-gc", "Error updating resource Key=IPAMBlock(", "healthy: leave it. A conflict that is tried again, noise above all after a reboot; only if addresses stay booked for more than 20 minutes it is this"),

		words(inTraffic, "blackholed-routes", "Everything on one node cannot reach a pod (unreachable, ping fails; a static IP, say, moved to or recreated on another node) that all other nodes reach", "that node owns the block the pod borrowed from, and drops what it has no host route for. "+tablesNeeded),
		words(inTraffic, "borrowed-ips", "A pod (one with a static IP, say) is reachable from some nodes and not from others, no overlay, BGP to a switch (ToR)", "its address is borrowed from another node's block, and the network does not carry its host route"),
		words(inTraffic, "affinity-conflicts", "All pods of a block became unreachable at once (ping: time out), replies arrive at another node", "two nodes claim the block (a duplicate affinity)"),
		words(inTraffic, "affinity-conflicts", "Since a burst of new pods, or since many nodes were added at once, a range of pods is unreachable (ping, connections time out)", "two nodes claim one block (a duplicate affinity); or the new nodes borrow: where `ipam show --show-borrowed` lists the pod it is [blackholed-routes](checks/blackholed-routes.md)"),
		words(inTraffic, "blackholed-routes", "Many nodes were added (servers, a scale-up), their pods have addresses of other nodes' blocks, the new nodes have no blackhole of their own, and the owner's pods cannot reach these pods", "all blocks are claimed, so the new nodes borrow, and the owners drop what is lent. "+tablesNeeded),
		words(inTraffic, "node-capacity", "Connections to or from short-lived pods break, small blocks (blockSize 29): an address is reused at once", "so few addresses that each is given out again immediately; larger blocks help"),
		words(inTraffic, "route-disagreement", "Half of the connections fail, by turns, or part of the cluster loses a block", "nodes have several next hops for it, or the wrong one"),
		words(inTraffic, "duplicate-ips", "Connections land on the wrong pod, or break at random; probes of a healthy pod fail; a pod has the address of tunl0 or vxlan.calico; two pods have the same IP after a reboot or a restart of calico-node", "two pods, or a pod and a node's tunnel, have one address"),
		words(inTraffic, "misbooked-ips", "A new pod has the address of one that still runs, a quarter of an hour after a node was re-imaged: the collector has freed it", "the address was booked under another node's name (a re-imaged node with a stale nodename file)"),
		words(inTraffic, "unallocated-pod-ips", "New pods get addresses that running pods have", "IPAM does not know the running pods' addresses"),
		words(inTraffic, "tunnel-ips", "Pods of one node cannot reach the rest (DNS times out) over VXLAN or IPIP, from the 65th node on, or after the node was re-installed, renamed, or deleted and added again", "the node's tunnel address lies in another node's block, is used twice, or is not booked"),
		words(inTraffic, "ipam-data", "The whole pod network died (all pods lost network), and all pools and blocks are gone", "somebody or an operator removed Calico's objects"),
		words(inTraffic, "block-layout", "Intermittent time-outs (timeouts) since a pool's block size (blockSize) was changed; a /19 among /21s, one range covers others", "blocks of two sizes overlap"),

		text(inNodeRoutes, "blackholed-routes", "RTNETLINK answers: Invalid argument", "`ip route get ADDRESS` ends in a blackhole: this node drops the traffic. "+tablesNeeded),
		text(inNodeRoutes, "blackholed-routes", "blackhole 10.64.75.0/26 proto bird", "healthy on the block's owner (`proto 80` is Felix', `proto 12` is BIRD without a name); wrong only where a running pod's address has no longer prefix"),
		at("`blackhole 10.0.2.1` (no mask): blocks of one address (blockSize 32, IPv6: 128)", text(inNodeRoutes, "blackholed-routes", "blackhole 10.0.2.1 proto bird", "no mask: a block of one address (blockSize 32) collides with its pod's own route")),
		words(inNodeRoutes, "blackholed-routes", "`blackhole 10.96.0.0/12`: a range of Services (service CIDR, external or load balancer IPs)", "healthy: leave it. It is there where Calico announces Services, and no reason why a service is broken"),
		text(inNodeRoutes, "affinity-conflicts", "# Block … is pendingDeletion", "in bird_aggr.cfg: an affinity that is being released, or hangs there"),
		text(inNodeRoutes, "route-disagreement", "nexthop via … nexthop via", "several next hops for one block: two nodes announce it"),

		text(inAgentLog, "blockless-nodes", "Unable to autoassign an address - pools are likely exhausted. type=\"ipipTunnelAddress\"", "calico-node finds no block for its tunnel and does not start"),
		text(inAgentLog, "blockless-nodes", "Unable to autoassign an address - pools are likely exhausted. type=\"vxlanTunnelAddress\"", "calico-node finds no block for its tunnel and does not start"),
		words(inAgentLog, "blockless-nodes", "calico-node crashes on new nodes (CrashLoopBackOff)", "mostly that no block is left for its tunnel address: its last log tells, and the rows here say what it means"),
		text(inAgentLog, "affinity-conflicts", "resource already exists: BlockKey(cidr=", lostRace),
		text(inAgentLog, "affinity-conflicts", "already claimed by", lostRace),
		text(inAgentLog, "affinity-conflicts", "Problem claiming block affinity", lostRace),
		text(inAgentLog, "borrowed-ips", "Ran out of existing affine blocks for host", "the next address is borrowed, or refused with strict affinity"),
		text(inAgentLog, "node-block-limit", "Unable to allocate a new IPAM block; host already has", "maxBlocksPerHost, or the built-in 20"),
		text(inAgentLog, "tunnel-ips", "Releasing all IPs with handle ipip-tunnel-addr-", "the node gives up its tunnel address, and somebody else may get it"),
		text(inAgentLog, "tunnel-ips", "Link not found ifaceName=vxlan.calico", "no pool with VXLAN selects the node, or one has been opened to it (nodeSelector) since calico-node started: the node has no tunnel address"),
		text(inAgentLog, "datastore-locked", "Waiting for datastore to be initialized (or migrated)", "the datastore is locked"),
		at("calico-node pods stay in `Init:`: an upgrade or a migration stopped half-way", words(inAgentLog, "datastore-locked", "calico-node stays in `Init:` (upgrade-ipam): an upgrade stopped half-way", "its init container has locked the datastore, and unlocks it when it is done")),
		text(inAgentLog, "datastore-locked", "setting datastore readiness to false", "the init container upgrade-ipam locks the datastore, and unlocks it when it is done"),
		text(inAgentLog, "misbooked-ips", "Unable to create route for IP; the node it belongs to was not recorded in IPAM", "an old record without a node"),

		text(inCollector, "leaked-ips", "Candidate IP leak", "an address without its pod; it is freed after the grace period"),
		when("the `ip=` is the IPv6 address of a running dual-stack pod, whose status lists IPv4 only", text(inCollector, "leaked-ips", "Candidate IP leak", "healthy, but for old releases, which then freed both addresses (projectcalico/calico#5044)")),
		when("`node=` is not in `kubectl get nodes`", text(inCollector, "orphan-affinities", "Confirmed IP leak", "a node is gone, and what it booked is freed: healthy, unless its blocks stay")),
		when("the node exists and a running pod has the `ip=`", text(inCollector, "misbooked-ips", "Confirmed IP leak", "an address in use is freed now")),
		when("the same line again and again", text(inCollector, "ipam-gc", "Confirmed IP leak", "the collector does not get it done")),
		when("the node exists and the pod is gone", text(inCollector, "leaked-ips", "Confirmed IP leak", "the collector does its work: the address is freed")),
		text(inCollector, "misbooked-ips", "Pod rescheduled on new node. Allocation no longer valid", "the record names another node than the pod's: a live address is about to be freed"),
		when("a running pod has the address", text(inCollector, "misbooked-ips", "Successfully garbage collected leaked IP address", "an address in use was freed: the next pod may get it, too")),
		when("`node=` is gone, and its blocks stay", text(inCollector, "orphan-affinities", "Successfully garbage collected leaked IP address", "something else keeps the blocks")),
		when("the node exists and the pod is gone", text(inCollector, "leaked-ips", "Successfully garbage collected leaked IP address", "freed, all is well; only many of them are worth a look at why they leak")),
		text(inCollector, "leaked-ips", "Leaked IP address was not successfully garbage collected", "the collector tries again"),
		text(inCollector, "orphan-affinities", "Calico Node referenced in IPAM data does not exist", "a node is gone and has left blocks or addresses"),
		at("A pod object still names it (`Can't cleanup node yet`)", text(inCollector, "orphan-affinities", "Can't cleanup node yet - IPs still in use on this node", "a pod object or a tunnel address still names the node that is gone")),
		text(inCollector, "orphan-affinities", "IP allocation on node is from an unknown source. Will be unable to cleanup block until it is removed.", "an address booked by hand keeps the block of a node that is gone"),
		text(inCollector, "affinity-conflicts", "Block must be empty but is not empty, refusing to remove affinity", "a release hangs"),
		text(inCollector, "affinity-conflicts", "Failed to release block affinities for node", "a release hangs"),
		text(inCollector, "datastore-locked", "datastore is locked, skipping ipam sync", "nothing is collected while the datastore is locked"),
		text(inCollector, "ipam-data", "Received block delete", "many of them at once: somebody deletes all blocks"),

		text(inCalicoctl, "leaked-ips", "IPs that are allocated in IPAM but not actually in use.", "leaks; IPv6 tunnel addresses, reserved and hand-booked ones are counted, too"),
		text(inCalicoctl, "leaked-ips", "leaked; attrs Main:", "one line per leak"),
		words(inCalicoctl, "leaked-ips", "Right after a drain, a reboot or a change of the container runtime `ipam check` lists addresses of pods (DaemonSet pods, too) that were just there", "healthy for 20 minutes: wait and look again, release nothing"),
		words(inCalicoctl, "multi-block-nodes", "`ipam show --show-blocks | grep NODE` prints nothing", "the table has no column for nodes; the page's first command counts the blocks of each"),
		words(inCalicoctl, "leaked-ips", "`ipam release --node` is an unknown flag", "it does not exist; `--ip` and `--from-report` do"),
		text(inCalicoctl, "unallocated-pod-ips", "in-use IPs that are in active IP pools but have no corresponding IPAM allocation.", "IPAM takes addresses of running pods for free"),
		words(inCalicoctl, "unallocated-pod-ips", "Addresses of running pods that are in use but not allocated", "IPAM takes them for free: the opposite of a leak, nothing is to be released"),
		text(inCalicoctl, "unallocated-pod-ips", "is not assigned", "`ipam show --ip` about a running pod's address: IPAM takes it for free; about a node's tunnel address: [tunnel-ips](checks/tunnel-ips.md)"),
		text(inCalicoctl, "block-layout", "in-use IPs that are not in active IP pools.", "pods of a disabled pool, of another CNI, or of a pool that was deleted"),
		text(inCalicoctl, "duplicate-ips", "has multiple owners.", "two pods or tunnels with one address"),
		at("“handles with no matching IPs”", text(inCalicoctl, "handle-leaks", "handles with no matching IPs", "handles left over")),
		at("“handles mentioned in blocks with no matching handle resource”", text(inCalicoctl, "handle-leaks", "handles mentioned in blocks with no matching handle resource.", "addresses that nothing will ever free")),
		at("“handles mentioned in blocks with no matching handle resource”", text(inCalicoctl, "handle-leaks", "is in use in a block but doesn't exist", "an address names a handle that is gone: nothing will ever free it")),
		text(inCalicoctl, "handle-leaks", "Check complete; found", "`ipam check`: the sum of all kinds of problems, mostly handles left over where there are tens of thousands; the lines above it tell, and each kind has a row of its own"),
		text(inCalicoctl, "handle-leaks", "operation Delete is not supported on IPAMHandleKey", "calicoctl v3.24: delete handles with kubectl"),
		text(inCalicoctl, "datastore-locked", "Datastore locked.", "somebody works on it, or has forgotten to unlock"),
		text(inCalicoctl, "leaked-ips", "data store is not locked. Either lock the data store, or re-run with --force", "`ipam release --from-report` wants the datastore locked, and a report from after that"),
		text(inCalicoctl, "leaked-ips", "the provided reports are all stale", "lock first, then `ipam check -o`: locking changes what the report is compared with"),
		at("Two pools overlap", text(inCalicoctl, "pool-config", "CIDR overlaps with IPPool(", "two pools overlap")),
		text(inCalicoctl, "block-layout", "IPPool blocksSize conflicts with existing allocations that use a different blockSize", "a pool's block size cannot be changed: make another pool and migrate"),
		at("MaxBlocksPerHost is set, and StrictAffinity is false: calicoctl refuses every change", text(inCalicoctl, "ipam-config", "MaxBlocksPerHost requires StrictAffinity to be enabled", "the two belong together")),
		text(inCalicoctl, "ipam-config", "Cannot disable 'StrictAffinity' and 'AutoAllocateBlocks' at the same time", "no pod could get an address from a new block"),
		words(inCalicoctl, "multi-block-nodes", "`ipam show --show-blocks`: blocks with 0 or a few addresses in use while others are full", "blocks that their nodes do not need"),
		words(inCalicoctl, "orphan-affinities", "`ipam show --show-blocks`: many blocks with exactly two addresses in use", "tunnel addresses (IPIP, VXLAN, WireGuard) of nodes that are gone"),

		words(inObjects, "multi-block-nodes", "A node owns two or more blocks and runs few pods", "it claimed them when it ran more; while blocks are plenty that is waste and no fault"),
		words(inObjects, "blockless-nodes", "A node owns no block", "normal while one is free, the first pod claims it; a fault when none is, or when its pods borrow"),
		words(inObjects, "pool-utilisation", "The pool is 13% full (or less) and pods do not start", "all its blocks are claimed"),
		words(inObjects, "pool-utilisation", "The pool is 90% full (97%, nearly 100%)", "how many of the addresses are leaked, and how many nodes and pods still fit"),
		words(inObjects, "orphan-affinities", "More blocks than nodes: autoscaling removed the node (scale-down, EKS, Karpenter; or it was a spot instance, or deleted without a drain), and its BlockAffinities stay", "nobody has collected them"),
		words(inObjects, "handle-leaks", "etcd grows, the API server is slow, short-lived pods and nodes come and go by the thousand", "handles that nobody collects; if the collector is missing: [ipam-gc](checks/ipam-gc.md)"),
		words(inObjects, "orphan-affinities", "Nodes were renamed, or have other names in Calico than in Kubernetes (etcd datastore)", "blocks of the old name stay; names that differ by Calico's orchRefs alone, or in case, are healthy"),
		words(inObjects, "multi-block-nodes", "A load balancer or router that reads BlockAffinities (F5, static routes) lacks the route of a node's second block", "a second block is healthy, leave it: `kubectl get blockaffinities.crd.projectcalico.org -o custom-columns=NODE:.spec.node,CIDR:.spec.cidr` lists what needs a route; the other end has to read `spec.node`, not the object's name, and all blocks"),
		words(inObjects, "multi-block-nodes", "Replicas were scaled down (or deleted), and their blocks are not given back", "blocks are kept until empty for 15 minutes, and each node keeps its last"),
		words(inObjects, "handle-leaks", "Leaked handles: `kubectl get ipamhandles` lists tens of thousands", "handles that no address needs"),
		words(inObjects, "affinity-conflicts", "Two BlockAffinities with one CIDR; state pending or pendingDeletion for hours, for instance of a node that was removed and re-added; an affinity without a block", "claims that contradict each other"),
		words(inObjects, "affinity-conflicts", "An IPAMBlock without affinity (null or empty)", "nobody owns it, no node can claim it. Addresses in it stay booked until they are freed; without pod and handle_id: [leaked-ips](checks/leaked-ips.md), leave them"),
		words(inObjects, "block-layout", "IPAMBlocks whose size is not their pool's, or that lie in no pool", "a pool was edited or deleted under them"),
		at("No enabled pool selects the node (`cannot find a qualified ippool`)", words(inObjects, "pool-config", "A node whose labels no pool's nodeSelector matches; a pool that serves nobody", "pods there cannot start")),
		words(inObjects, "ipam-config", "strictAffinity off without node mesh, on with more nodes than blocks, or off with Windows nodes", "settings that do not fit each other"),
		words(inObjects, "ipam-data", "`kubectl get ipamblocks` prints: No resources found", "no Calico IPAM here, or its data is gone"),
		words(inObjects, "ipam-data", "Stale IPAMBlocks and handles though the IPAM is host-local, a cloud's (EKS with the VPC CNI, AKS, policy only), canal's or flannel's", "not Calico's IPAM: these objects say nothing about the pods"),
		words(inObjects, "ipam-data", "Blocks and pools that fit no pod: which IPAM (calico-ipam, host-local) do the nodes use?", "with host-local Calico's blocks and pools say nothing about the pods"),
		words(inObjects, "datastore-locked", "ClusterInformation default: datastoreReady is false", "the datastore is locked: no pod can start, nothing is collected"),
		words(inObjects, "ipam-gc", "Leaks stay for hours, until a restart, say; calico-kube-controllers is missing, or runs and does nothing", "the collector is absent or has stalled"),
		words(inObjects, "leaked-ips", "Metric ipam_allocations_gc_candidates stays above 0", "leaks that the collector does not free"),
		words(inObjects, "borrowed-ips", "Metric ipam_allocations_borrowed above 0", "addresses out of another node's block; also those in blocks without an owner"),
		words(inObjects, "tunnel-ips", "A node without the annotation projectcalico.org/IPv4VXLANTunnelAddr or IPv4IPIPTunnelAddr", "it has no tunnel address"),

		words(looksOdd, "leaked-ips", "Windows: four addresses of each block are booked and no pod has them (`windows-reserved-ipam-handle`, “windows host rsvd”)", "healthy: leave it. Reserved by design, never release them"),
		words(looksOdd, "leaked-ips", "LoadBalancer Services: addresses without a pod, blocks of `virtual:load-balancer`", "healthy: leave it. They belong to Services"),
		words(looksOdd, "tunnel-ips", "Tunnel addresses of nodes (tunl0, vxlan.calico, WireGuard) are booked and no pod has them", "healthy: leave it. Each node's tunnel has an address of its own, never release them"),
		words(looksOdd, "unallocated-pod-ips", "The annotation cni.projectcalico.org/podIPs of a running pod is empty, or missing", "healthy: leave it. What its status says counts; another CNI leaves no annotation"),
		words(looksOdd, "leaked-ips", "KubeVirt: a stopped virtual machine (VM) keeps its address", "healthy: leave it. The machine gets it again"),
		words(looksOdd, "duplicate-ips", "KubeVirt: two virt-launcher pods of one virtual machine have the same IP during a live migration", "healthy: leave it. One takes over from the other"),
		words(looksOdd, "duplicate-ips", "Pods of the host's network (hostNetwork) have the node's IP; Completed pods still show the address of a running one", "healthy: leave it. Neither has the address for itself"),
		words(looksOdd, "leaked-ips", "IPv6: `ipam check` calls a tunnel address leaked; a dual-stack pod's status lists IPv4 only", "healthy: leave it. The check knows IPv4 tunnels only, so do not release from its report"),
		words(looksOdd, "leaked-ips", "Addresses without pod, handle (`handle_id` null) or node: booked by hand, for Docker, or by an old release", "healthy: leave it, unless you know what booked them. Nothing collects them"),
		words(looksOdd, "leaked-ips", "Multus: one pod has several addresses", "healthy: leave it. One for each network"),
		words(looksOdd, "leaked-ips", "Pods are Unknown after a reboot, CNI DEL failed while the API server was down", "healthy: leave it, release nothing. What they had is collected within 20 minutes; what is booked still after that: [ipam-gc](checks/ipam-gc.md)"),
		words(looksOdd, "ipam-gc", "`Error updating resource Key=IPAMBlock(` in the log of calico-node, the CNI plug-in or the collector", "healthy: leave it. A conflict that is tried again, noise above all in the 20 minutes after a reboot"),
		words(looksOdd, "node-capacity", "A pod has an address that ends in .0 or .255", "healthy: leave it. Calico uses all addresses of a block"),
		words(looksOdd, "ipam-data", "A pod's address is outside its node's podCIDR", "healthy: leave it. Calico IPAM does not use podCIDRs"),
		words(looksOdd, "ipam-data", "Only one address family (no IPv6) in status, though pools of both exist", "healthy: leave it. A single-stack cluster shows one"),
		words(looksOdd, "pool-config", "Pods have addresses of a pool whose nodeSelector does not match their node", "healthy: leave it. The annotation ipv4pools or ipAddrs of pod or namespace overrides the selector"),
		words(looksOdd, "pool-config", "A pool with nodeSelector `!all()` selects no node; a disabled pool still has pods", "healthy: leave it. For static IPs; a migration that is under way"),
		words(looksOdd, "pool-utilisation", "IPReservation: fewer addresses are free than the table says", "healthy: leave it. Reserved ones are neither leaked nor free; older calicoctl counts them as free"),
		words(looksOdd, "pool-utilisation", "Metric with `ippool=\"no_ippool\"` stays above 0", "healthy, where no such block exists: the sample is stale"),
		words(looksOdd, "borrowed-ips", "`ipam show --show-borrowed` prints an empty table", "healthy: leave it. Nothing is borrowed"),
		words(looksOdd, "blockless-nodes", "A pool was added, and nodes still have no block; a control plane or cordoned node without a block", "healthy: leave it. The first pod of the node claims one"),
		words(looksOdd, "blackholed-routes", "A node without any blackhole line, or with `proto 80` or `proto 12` in it", "healthy: leave it, unless pods with addresses of Calico run there: then they borrow, see [blockless-nodes](checks/blockless-nodes.md). It owns no block; Felix or an unnamed BIRD made the route"),
		words(looksOdd, "ipam-config", "strictAffinity is true (or false in a node mesh)", "healthy: leave it. Both are legitimate"),
		words(looksOdd, "affinity-conflicts", "A BlockAffinity is pending for some seconds, or has no state at all", "healthy: leave it. That is how a claim begins, and how old releases wrote it"),
		words(looksOdd, "datastore-locked", "No pod starts for some minutes while somebody cleans up addresses", "healthy, if it ends: the datastore is locked meanwhile"),

		words(inObjects, "cluster-access", "The report says that a cluster failed, or checks are unknown", "what could not be read, and what that hides"),
	}
}

// lostRace is what the allocator logs when another node was quicker.
const lostRace = "two nodes claim one block: while many nodes or pods start at once healthy for some minutes (a lost race, tried again), wrong only where it stays"

// tablesNeeded says what ipamaudit needs to see it as well.
const tablesNeeded = "ipamaudit sees it with [route tables](routes.md) only"

// SymptomPage is docs/symptoms.md.
func SymptomPage() string {
	var b strings.Builder
	b.WriteString(`# From the symptom to the page

Generated from the checks (` + "`make generate`" + `). Search this page, ignoring case, for a piece of the text that you see, without names and addresses. Where several rows fit, an error text beats a description, and among error texts the longest one is right.
The page begins with a command that tells whether it is this; what to do follows, with kubectl and calicoctl. Where kubectl says that the server doesn't have a resource type (Calico v3.32 and later may keep its objects in projectcalico.org/v3), leave ` + "`crd.`" + ` out of its name, and write ` + "`ipamconfigurations.projectcalico.org`" + ` for ` + "`ipamconfigs.crd.projectcalico.org`" + `. Where ipamaudit is installed, ` + "`ipamaudit run --check ID`" + ` says whether it is so in your cluster, with the commands for it, and
` + "`ipamaudit explain POD|ADDRESS|NODE|BLOCK|POOL`" + ` tells all that is known of one thing. Append where the cluster is: ` + "`--context NAME`" + `, or ` + "`--from FILE`" + ` for a saved snapshot.

`)
	for _, where := range Places() {
		fmt.Fprintf(&b, "- [%s](#%s)\n", strings.ReplaceAll(where, "`", ""), anchor(where))
	}
	for _, where := range Places() {
		fmt.Fprintf(&b, "\n## %s\n\n| seen | means | page |\n| --- | --- | --- |\n", where)
		for _, row := range rowsAt(where) {
			b.WriteString(row)
		}
	}
	return b.String()
}

// anchor is the name that GitHub gives to a heading.
func anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

// rowsAt are the rows of one place; texts that mean the same share one.
func rowsAt(where string) []string {
	var rows []string
	texts := map[string][]string{}
	for _, s := range Symptoms() {
		if s.Where != where {
			continue
		}
		page := s.Check + ".md"
		if s.Heading != "" {
			page += "#" + anchor(s.Heading)
		}
		rest := fmt.Sprintf("%s | [%s](checks/%s)", s.Means, s.Check, page)
		if texts[rest] == nil {
			rows = append(rows, rest)
		}
		texts[rest] = append(texts[rest], strings.ReplaceAll(s.text(), "|", `\|`))
	}
	for i, rest := range rows {
		rows[i] = "| " + strings.Join(texts[rest], "<br>") + " | " + rest + " |\n"
	}
	return rows
}

// VersionPage is docs/calico-versions.md.
func VersionPage() string {
	var b strings.Builder
	b.WriteString(`# What changed in which release of Calico

Generated from ` + "`ipam/features.go`" + ` (` + "`make generate`" + `), the one place that verdicts and commands ask. A release that is not known neither has nor lacks anything:
then the commands are those of a current one. Sources are files of github.com/projectcalico/calico, or issues.
`)
	for _, area := range ipam.Areas() {
		fmt.Fprintf(&b, "\n## %s\n\n| since | what | source |\n| --- | --- | --- |\n", area)
		for _, c := range ipam.Changes() {
			if c.Area == area {
				fmt.Fprintf(&b, "| v%d.%d | %s | %s |\n", c.Major, c.Minor, c.What, c.Source)
			}
		}
	}
	return b.String()
}
