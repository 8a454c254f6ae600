package checks

// leaseFiles finds the leases of host-local: one file per address, in one
// directory per network, beside `lock` and `last_reserved_ip.N`
// (containernetworking/plugins: plugins/ipam/host-local/backend/disk).
const leaseFiles = "-type f -name '[0-9a-f]*[.:]*'"

// countLeases counts them on a node.
func countLeases(node string) string {
	return "find /var/lib/cni/networks " + leaseFiles + " | wc -l   # on node " + oneLine(node)
}

// staleFunction defines `stale` for the shell of a node: it prints the lease
// files that hold the ID of no sandbox that is ready. Where crictl fails or
// lists nothing every file would look stale, so it refuses. A sandbox has its
// lease before it is listed, so young files are left out, and programs beside
// kubelet (podman, nerdctl) have leases of their own, so it looks at one network.
func staleFunction() string {
	return `stale() {   # lease files, older than ten minutes, of no sandbox that is ready
  local live; live=$(crictl pods -q --state ready --no-trunc) || return
  find "/var/lib/cni/networks/${NETWORK:?set it first}" ` + leaseFiles + ` -mmin +10 -exec grep -LF -e "${live:?crictl lists no sandbox, so nothing is known to be stale}" {} +
}`
}

// hostLocalSteps give addresses of a node's own range back.
func hostLocalSteps(node string) []Step {
	return []Step{
		{
			Title: "On the node, as root, list the stale leases of host-local: each file is named after an address and holds the ID of its sandbox. Where crictl does not answer, or lists no sandbox, nothing is known to be stale, and nothing may be deleted",
			Commands: []string{
				"ls /var/lib/cni/networks   # on node " + oneLine(node) + ": the networks; k8s-pod-network is that of canal and Calico, cbr0 that of flannel and k3s",
				"NETWORK=   # that of the pods",
				"# RKE2 has its crictl elsewhere: export PATH=$PATH:/var/lib/rancher/rke2/bin CRI_CONFIG_FILE=/var/lib/rancher/rke2/agent/etc/crictl.yaml",
				`# k3s has it built in: crictl() { k3s crictl "$@"; }`,
				staleFunction(),
				"stale",
			},
			Risk: Safe, Verify: "kubectl get pods -A -o wide --field-selector spec.nodeName=" + Quote(node) + "   # no running pod has an address that is listed",
		},
		{
			Title:    "Drain the node: that gives leases back, and no pod starts there meanwhile. The pods of DaemonSets stay, and keep theirs",
			Commands: []string{"kubectl drain " + Quote(node) + " --ignore-daemonsets"},
			Risk:     Disruptive, Verify: "kubectl get pods -A -o wide --field-selector spec.nodeName=" + Quote(node) + "   # DaemonSets' only",
		},
		{
			Title:    "On the node, in the same shell as in the first step: list anew, since the drain has changed the list, and delete what is stale now; calicoctl has no say in these addresses",
			Commands: []string{"stale | xargs -r rm -v --   # on node " + oneLine(node)},
			Risk:     Destructive, Verify: "It says which files it removed; crictl that does not answer, or a NETWORK that is not set, removes nothing.",
		},
		{
			Title:    "Let the node take pods again",
			Commands: []string{"kubectl uncordon " + Quote(node)},
			Risk:     Safe, Verify: "The pods start.",
		},
	}
}

// leaseSteps mend a node whose leases of host-local were deleted under running
// pods, as the init container upgrade-ipam does (projectcalico/calico#11702).
func leaseSteps(node string) []Step {
	return []Step{
		{
			Title: "See whether calico-node has the init container upgrade-ipam, which books host-local's leases and then deletes them when it starts: with host-local take it out where Calico is installed from (manifest, chart, installer)",
			Commands: []string{
				"kubectl get daemonsets -A -o custom-columns=NAMESPACE:.metadata.namespace,NAME:.metadata.name,INIT:.spec.template.spec.initContainers[*].name | grep -E 'INIT|upgrade-ipam'",
			},
			Risk: Safe, Verify: "No DaemonSet has it any more, and stays so.",
		},
		{
			Title: "Compare the leases on the node with the running pods that are not on the host's network: each has one, or one per address family",
			Commands: []string{
				countLeases(node),
				"kubectl get pods -A -o custom-columns=HOST:.spec.hostNetwork --no-headers --field-selector spec.nodeName=" + Quote(node) + ",status.phase=Running | grep -vc true   # pods",
			},
			Risk: Safe, Verify: "Fewer leases than pods: the running pods' addresses are given out again.",
		},
		{
			Title: "Node by node, recreate what runs: drain it, and delete the DaemonSets' pods that have an address of the node's range as well, since a drain leaves them",
			Commands: []string{
				"kubectl drain " + Quote(node) + " --ignore-daemonsets",
				"kubectl get pods -A -o custom-columns=NAMESPACE:.metadata.namespace,POD:.metadata.name,HOST:.spec.hostNetwork --field-selector spec.nodeName=" + Quote(node) + "   # what is left; HOST true has the node's address and may stay",
				"kubectl -n NAMESPACE delete pod POD   # each of the others",
				"kubectl uncordon " + Quote(node),
			},
			Risk: Disruptive, Verify: "As many leases as pods on the node's range.",
		},
	}
}
