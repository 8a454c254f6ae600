package checks

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"ipamaudit/ipam"
)

// commands writes command lines for the Calico version and API group that were
// read. Every command here exists in that version; flags and their first
// version are listed beside them.
type commands struct {
	version ipam.Version
	// group is the API group of the IPAM objects without its version.
	group string
}

func commandsFor(s *ipam.Snapshot) commands {
	c := commands{version: s.Info.Version, group: "crd.projectcalico.org"}
	if s.API == ipam.APIv3 {
		c.group = "projectcalico.org"
	}
	return c
}

// exampleCommands are those for an unknown, current version, for documentation.
func exampleCommands() commands { return commands{group: "crd.projectcalico.org"} }

// resource is the plural with its group, so that kubectl cannot pick another
// group's objects of the same name.
func (c commands) resource(r ipam.Resource) string {
	if r == ipam.ResIPAMConfig && c.group == "projectcalico.org" {
		return "ipamconfigurations." + c.group
	}
	return string(r) + "." + c.group
}

// strictAffinity switches borrowing off for good. `calicoctl ipam configure`
// came with calicoctl v3.14 (calicoctl#2119).
func (c commands) strictAffinity() string {
	if c.version.Lacks(ipam.ConfigureCommand) {
		return fmt.Sprintf(`kubectl patch %s default --type merge -p '{"spec":{"strictAffinity":true}}'`, c.resource(ipam.ResIPAMConfig))
	}
	return "calicoctl ipam configure --strictaffinity=true"
}

// showBlocks lists blocks and their use.
func (c commands) showBlocks() string { return "calicoctl ipam show --show-blocks" }

// showBorrowed lists borrowed addresses (all versions since v3.21, and before).
func (c commands) showBorrowed() string { return "calicoctl ipam show --show-borrowed" }

// showConfiguration prints StrictAffinity, AutoAllocateBlocks and MaxBlocksPerHost.
func (c commands) showConfiguration() string { return "calicoctl ipam show --show-configuration" }

// compareUse prints three sums: the addresses that are booked, those that pods
// and tunnels use, and those that are booked and not used
// (calicoctl/calicoctl/commands/ipam/check.go).
func (c commands) compareUse() string {
	return "calicoctl ipam check | grep -E 'blocks record|are using|not actually in use'"
}

// blockOwners lists each block with its owner, which calicoctl does not print.
func (c commands) blockOwners() string {
	return "kubectl get " + c.resource(ipam.ResBlocks) + " -o custom-columns=CIDR:.spec.cidr,OWNER:.spec.affinity"
}

// blocksPerNode counts the blocks of each owner, those with most first.
func (c commands) blocksPerNode() string {
	return "kubectl get " + c.resource(ipam.ResBlocks) + " -o custom-columns=OWNER:.spec.affinity --no-headers | sort | uniq -c | sort -rn | head -20   # blocks per node"
}

// blockSizes lists the pools' block sizes.
func (c commands) blockSizes() string {
	return "kubectl get " + c.resource(ipam.ResPools) + " -o custom-columns=NAME:.metadata.name,SIZE:.spec.blockSize   # 26: 64 addresses in a block, 32: one"
}

// nodesAgainstOwners prints the nodes without a block and the owners of blocks
// that are no nodes. What could not be read shows as a difference, never as calm.
func (c commands) nodesAgainstOwners() string {
	return "diff <(kubectl get nodes -o custom-columns=NAME:.metadata.name --no-headers | sort -u) " +
		"<(kubectl get " + c.resource(ipam.ResAffinities) + " -o custom-columns=NODE:.spec.node --no-headers | sort -u)   # < a node without a block, > an owner that is no node"
}

// pools lists all that decides whom a pool serves.
func (c commands) pools() string {
	return "kubectl get " + c.resource(ipam.ResPools) + " -o custom-columns=NAME:.metadata.name,CIDR:.spec.cidr,SIZE:.spec.blockSize,DISABLED:.spec.disabled,SELECTOR:.spec.nodeSelector,USES:.spec.allowedUses,MODE:.spec.assignmentMode"
}

// whichIPAM shows which IPAM the CNI configuration names, as the operator or
// as the manifests install it.
func (c commands) whichIPAM() []string {
	return []string{
		`kubectl get installations.operator.tigera.io default -o jsonpath='{.spec.cni.ipam.type}{"\n"}'   # Calico or HostLocal; an error: not installed by the operator`,
		`kubectl get configmaps -A -o yaml | grep -oE '(calico-ipam|host-local)' | sort | uniq -c   # installed by manifests or charts`,
	}
}

// evict recreates running pods as `kubectl drain` would: through the eviction
// API, which honours PodDisruptionBudgets, where a delete takes all replicas at
// once. They go one after the other, with time for each successor. A refused
// eviction changes nothing, and the next pod has its turn. CNI DEL runs and
// gives the address back. At most limit pods are spelled out.
func (c commands) evict(pods []*ipam.Pod, limit int) []string {
	if len(pods) == 0 {
		return nil
	}
	cmds := []string{c.evictFunction()}
	for _, p := range pods[:min(len(pods), limit)] {
		cmds = append(cmds, "evict "+Quote(p.Namespace)+" "+Quote(p.Name))
	}
	if n := len(pods) - limit; n > 0 {
		cmds = append(cmds, fmt.Sprintf("# … and %d more, see the list of affected addresses", n))
	}
	return cmds
}

// evictFunction defines `evict NAMESPACE POD` for a shell. policy/v1 knows
// evictions since Kubernetes 1.22, which Calico before v3.22 was not made for;
// every release so far takes the older spelling.
func (c commands) evictFunction() string {
	api := "policy/v1"
	if c.version.Lacks(ipam.EvictionV1) {
		api = "policy/v1beta1"
	}
	return `evict() {   # one pod, if its PodDisruptionBudget allows; then a minute for it to end and its successor to start` + "\n" +
		`  kubectl create --raw "/api/v1/namespaces/$1/pods/$2/eviction" -f - <<<'{"apiVersion":"` + api + `","kind":"Eviction","metadata":{"namespace":"'"$1"'","name":"'"$2"'"}}' && sleep 60` + "\n}"
}

// deletePod deletes a pod that serves nobody: it waits, or its node is gone.
// Running ones are evicted. --force would leak the address.
func (c commands) deletePod(namespace, name string) string {
	return "kubectl -n " + Quote(namespace) + " delete pod " + Quote(name)
}

// addPool creates a pool through calicoctl, which validates what kubectl on
// the raw resource does not (overlaps, block size). Without a pool that it is
// to be like it shows the pools and takes their settings from the reader: with
// a guessed encapsulation or NAT the pods of the new pool would be cut off.
func (c commands) addPool(like *ipam.Pool) []string {
	var look, spec []string
	values := []string{newCIDR}
	if like != nil {
		spec = poolSpec(like)
	} else {
		look = []string{c.poolSettings()}
		values = append(values, "BLOCK_SIZE=  IPIP_MODE=  VXLAN_MODE=  NAT_OUTGOING=  NODE_SELECTOR=   # as SIZE, IPIP, VXLAN, NAT and SELECTOR of the pool that it helps; <none> is 26, Never, Never, false, all(); for larger blocks a smaller SIZE, for more nodes out of one range a larger one (27, 28)")
		spec = []string{
			"  blockSize: ${BLOCK_SIZE:?as in the old pool}", "  ipipMode: ${IPIP_MODE:?as in the old pool}", "  vxlanMode: ${VXLAN_MODE:?as in the old pool}",
			"  natOutgoing: ${NAT_OUTGOING:?as in the old pool}", "  nodeSelector: >-", "    ${NODE_SELECTOR:?as in the old pool}",
			"  # and disableBGPExport, allowedUses, assignmentMode, namespaceSelector where the old pool has them",
		}
	}
	return slices.Concat(look, []string{
		strings.Join(values, "\n"),
		strings.Join(slices.Concat([]string{
			"calicoctl create -f - <<EOF",
			"apiVersion: projectcalico.org/v3",
			"kind: IPPool",
			"metadata:",
			"  name: " + yamlString(newPoolName(like)),
			"spec:",
			"  cidr: ${NEW_CIDR:?set it first}",
		}, spec, []string{"EOF"}), "\n"),
	})
}

const newCIDR = "NEW_CIDR=   # a range that your network routes to these nodes and nothing else uses"

// poolSettings lists what of a pool decides about its pods' traffic.
func (c commands) poolSettings() string {
	return "kubectl get " + c.resource(ipam.ResPools) + " -o custom-columns=NAME:.metadata.name,SIZE:.spec.blockSize,IPIP:.spec.ipipMode,VXLAN:.spec.vxlanMode,NAT:.spec.natOutgoing,SELECTOR:.spec.nodeSelector," +
		"BGP-OFF:.spec.disableBGPExport,USES:.spec.allowedUses,MODE:.spec.assignmentMode,NAMESPACES:.spec.namespaceSelector"
}

// newPoolName is what a pool to be added beside this one is called.
func newPoolName(like *ipam.Pool) string {
	if like == nil {
		return "NEW-POOL"
	}
	return like.Name + "-2"
}

// poolSpec is everything of a pool that its pods' traffic depends on: a new
// pool without natOutgoing, say, would cut its pods off from the internet.
func poolSpec(p *ipam.Pool) []string {
	out := []string{
		"  blockSize: " + strconv.Itoa(p.BlockSize),
		"  ipipMode: " + or(p.IPIPMode, "Never"),
		"  vxlanMode: " + or(p.VXLANMode, "Never"),
		"  nodeSelector: " + yamlString(or(p.NodeSelector, "all()")),
	}
	if p.NamespaceSelector != "" {
		out = append(out, "  namespaceSelector: "+yamlString(p.NamespaceSelector))
	}
	if p.NATOutgoing {
		out = append(out, "  natOutgoing: true")
	}
	if p.DisableBGPExport {
		out = append(out, "  disableBGPExport: true")
	}
	if p.Manual {
		out = append(out, "  assignmentMode: Manual")
	}
	if uses := p.AllowedUses; uses != 0 && uses != ipam.UseWorkload|ipam.UseTunnel {
		var names []string
		for _, u := range []struct {
			use  ipam.Uses
			name string
		}{{ipam.UseWorkload, "Workload"}, {ipam.UseTunnel, "Tunnel"}, {ipam.UseLoadBalancer, "LoadBalancer"}} {
			if uses.Has(u.use) {
				names = append(names, u.name)
			}
		}
		out = append(out, "  allowedUses: ["+strings.Join(names, ", ")+"]")
	}
	return out
}

// deleteEmptyBlock deletes a block and its affinity, if the block is empty at
// that moment. It can be pasted whole: look and guard are one read, the delete
// holds for exactly the version that was found empty, the affinity only goes
// after its block (a block without its affinity is out of everybody's reach),
// and the datastore is unlocked whatever happens.
func (c commands) deleteEmptyBlock(b *ipam.Block, a *ipam.Affinity) []string {
	path := "/apis/" + c.group + "/" + c.apiVersion()
	doomed := fmt.Sprintf(`kubectl delete --raw %s -f - <<<'{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"%s","resourceVersion":"'"${BLOCK%%%% *}"'"}}'`,
		Quote(path+"/ipamblocks/"+b.Name), b.UID)
	if a != nil {
		doomed += " &&\n    " + guardedDelete(path+"/blockaffinities/"+a.Name, a.UID)
	}
	return []string{
		"calicoctl datastore migrate lock",
		fmt.Sprintf("BLOCK=$(kubectl get %s %s -o jsonpath='{.metadata.resourceVersion} {.spec.attributes}')", c.resource(ipam.ResBlocks), Quote(b.Name)),
		"case \"$BLOCK\" in\n" +
			"  *' '|*' []') " + doomed + " ;;\n" +
			"  *) echo \"not empty, nothing deleted: $BLOCK\" ;;\n" +
			"esac",
		"calicoctl datastore migrate unlock",
	}
}

func (c commands) apiVersion() string {
	if c.group == "projectcalico.org" {
		return "v3"
	}
	return "v1"
}

func guardedDelete(path, uid string) string {
	return fmt.Sprintf(`kubectl delete --raw %s -f - <<<'{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"%s"}}'`, Quote(path), uid)
}

// again repeats some checks; where the clusters come from is the caller's to say.
func again(flags string) string {
	return strings.TrimSuffix("ipamaudit run "+flags, " ") + "   # with the --config, --context or --from of this run"
}

// deleteAffinity deletes one BlockAffinity by name.
func (c commands) deleteAffinity(name string) string {
	return "kubectl delete " + c.resource(ipam.ResAffinities) + " " + Quote(name)
}

// unlock lets the CNI plug-in and the collector go on (all versions since
// v3.21, and before).
func (c commands) unlock() string { return "calicoctl datastore migrate unlock" }

// patchIPAMConfig changes the one IPAM configuration of the cluster. calicoctl
// has no flag for some fields and none before v3.30 for others.
func (c commands) patchIPAMConfig(patch string) string {
	return "kubectl patch " + c.resource(ipam.ResIPAMConfig) + " default --type merge -p '" + patch + "'"
}

// blockLimit sets maxBlocksPerHost, which Calico accepts together with strict
// affinity only. The flag came with calicoctl v3.30
// (calicoctl/commands/ipam/configure.go); before, the object itself is patched.
func (c commands) blockLimit(n int) string {
	if c.version.Has(ipam.BlockLimitFlag) {
		return fmt.Sprintf("calicoctl ipam configure --strictaffinity=true --max-blocks-per-host=%d", n)
	}
	return c.patchIPAMConfig(fmt.Sprintf(`{"spec":{"maxBlocksPerHost":%d}}`, n))
}

// blockLimitToSet leaves the number to the reader: where the present limit is
// not known any number may be a lower one.
func (c commands) blockLimitToSet() []string {
	return []string{
		"BLOCKS_PER_NODE=   # more than maxBlocksPerHost is now; 0 or nothing there means 20",
		c.patchIPAMConfig(`{"spec":{"maxBlocksPerHost":'"${BLOCKS_PER_NODE:?more than it is now}"'}}`),
	}
}

// disablePool keeps new pods out of a pool; running ones keep their addresses.
func (c commands) disablePool(name string) string {
	return "kubectl patch " + c.resource(ipam.ResPools) + " " + Quote(name) + ` --type merge -p '{"spec":{"disabled":true}}'`
}

// usersOf searches running pods, nodes and Services for the addresses.
func (c commands) usersOf(ips []netip.Addr) []string {
	if len(ips) == 0 {
		return nil
	}
	var patterns strings.Builder
	for _, ip := range ips {
		patterns.WriteString(" -e " + Quote(ip.String()))
	}
	return []string{
		`kubectl get pods -A --field-selector=status.phase!=Succeeded,status.phase!=Failed -o custom-columns='NAMESPACE:.metadata.namespace,POD:.metadata.name,STATUS:.status.podIPs[*].ip,CALICO:.metadata.annotations.cni\.projectcalico\.org/podIPs' | grep -wF` + patterns.String() + "   # must print nothing",
		"kubectl get nodes,services -A -o yaml | grep -wF" + patterns.String() + "   # must print nothing",
	}
}

// podWith asks which pod has the address, running or not. The field selector
// status.podIP would only know the first address of a dual-stack pod.
func podWith(ip string) string {
	return "kubectl get pods -A -o custom-columns='NAMESPACE:.metadata.namespace,POD:.metadata.name,NODE:.spec.nodeName,PHASE:.status.phase,IPS:.status.podIPs[*].ip' | grep -wF -e " + ip
}

// podsTwice prints the addresses that two running pods have; those on the host's
// network share their node's.
func podsTwice() string {
	return `kubectl get pods -A --field-selector=status.phase=Running -o custom-columns=IP:.status.podIP,HOST:.spec.hostNetwork --no-headers | awk '$2 == "<none>" && $1 != $2 { print $1 }' | sort | uniq -d   # addresses that two pods have`
}

// tunnelWith names the nodes that have the address on a tunnel.
func tunnelWith(ip string) string {
	return `kubectl get nodes -o jsonpath='{range .items[*]}{.metadata.name} {.metadata.annotations}{"\n"}{end}' | grep -wF -e ` + ip + ` | cut -d' ' -f1   # the node whose tunnel has it`
}

// releaseFunction defines `release ADDRESS` for a shell: calicoctl itself frees
// an address without any check of use (calicoctl ipam release --ip, in all
// versions with calicoctl ipam). What cannot be asked is not released, and
// neither is what is booked for something else than a pod or a node's tunnel:
// addresses that Windows reserves, Services', machines', and those booked by
// hand (calicoctl/calicoctl/commands/ipam/show.go; old releases print the record
// as map[node:… pod:…]).
func (c commands) releaseFunction() string {
	return `release() {   # one address that is booked for a pod or a tunnel, if no pod, node or Service has it at this moment
  RECORD=$(calicoctl ipam show --ip="$1") &&
    USED=$(kubectl get pods -A --field-selector=status.phase!=Succeeded,status.phase!=Failed -o jsonpath='{.items[*].status.podIPs[*].ip} {.items[*].metadata.annotations.cni\.projectcalico\.org/podIPs}') &&
    OTHERS=$(kubectl get nodes,services -A -o yaml) &&
    grep -qE '(^|[ [])(pod: *[^] ]|type: *[A-Za-z0-9]*TunnelAddress)' <<<"$RECORD" && ! grep -qE '(^|[ [])(vmi-name|service):' <<<"$RECORD" &&
    ! grep -qwF -e "$1" <<<"$USED $OTHERS" && calicoctl ipam release --ip="$1" || echo "not released: $1"
}`
}

func releaseIP(ip netip.Addr) string { return "release " + ip.String() }

// firstReport writes down what is leaked before anything is locked, for
// releaseFromReport an hour later; empty where calicoctl takes one report only
// (several since v3.21 at the latest: then only what is leaked in all of them
// is released).
func (c commands) firstReport() string {
	if c.version.Lacks(ipam.SeveralReports) {
		return ""
	}
	return "calicoctl ipam check --show-problem-ips -o leaks-before.json"
}

// releaseFromReport locks, lists, releases what is listed, and unlocks
// (--from-report is there since v3.18). One report has to be newer than the
// lock.
func (c commands) releaseFromReport() []string {
	if c.firstReport() == "" {
		return []string{
			"calicoctl datastore migrate lock",
			"calicoctl ipam check --show-problem-ips -o leaks.json   # read it: is any of them in use?",
			"calicoctl ipam release --from-report=leaks.json",
			"calicoctl datastore migrate unlock   # in any case, even where a command above failed or was stopped",
		}
	}
	return []string{
		"calicoctl datastore migrate lock",
		"calicoctl ipam check --show-problem-ips -o leaks-locked.json",
		"calicoctl ipam release --from-report=leaks-before.json --from-report=leaks-locked.json",
		"calicoctl datastore migrate unlock   # in any case, even where a command above failed or was stopped",
	}
}

// leakGracePeriod sets how long the collector waits before it frees a leaked
// address; 0 switches it off (KubeControllersConfiguration, since v3.20).
func (c commands) leakGracePeriod(d time.Duration) string {
	return "kubectl patch " + c.resource(ipam.ResKubeCtrl) + ` default --type merge -p '{"spec":{"controllers":{"node":{"leakGracePeriod":"` + d.String() + `"}}}}'`
}

// deleteHandle deletes one IPAMHandle.
func (c commands) deleteHandle(name string) string {
	return "kubectl delete " + c.resource(ipam.ResHandles) + " " + Quote(name)
}

// forgetTunnels removes the annotations of these kinds of tunnel from a node.
func (c commands) forgetTunnels(node string, kinds []string) []string {
	annotation := map[string]string{"ipip": "IPv4IPIPTunnelAddr", "vxlan": "IPv4VXLANTunnelAddr", "vxlan-v6": "IPv6VXLANTunnelAddr",
		"wireguard": "IPv4WireguardInterfaceAddr", "wireguard-v6": "IPv6WireguardInterfaceAddr"}
	var out []string
	for _, k := range kinds {
		if a := annotation[k]; a != "" {
			out = append(out, "kubectl annotate node "+Quote(node)+" projectcalico.org/"+a+"-")
		}
	}
	return out
}

// restartAgent restarts calico-node on one node, in whatever namespace it is;
// pods keep their network meanwhile.
func restartAgent(node string) string {
	return "kubectl delete pod -A -l k8s-app=calico-node --field-selector spec.nodeName=" + Quote(node)
}

// Quote makes s one word for a POSIX shell. Names come from the cluster and
// are not trusted.
func Quote(s string) string {
	if s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._:/@=-", r))
	}) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// yamlString quotes s for YAML inside a here-document: no expansion, no escape.
func yamlString(s string) string {
	s = strings.NewReplacer("'", "''", "$", `\$`, "`", "\\`", `\`, `\\`, "\n", " ").Replace(s)
	return "'" + s + "'"
}

func or(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

// lines are commands one below the other.
func lines(cmds ...string) string { return strings.Join(cmds, "\n") }
