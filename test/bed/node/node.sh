#!/bin/sh
# A node: containerd and a kubelet, as PID 1 of a process namespace, in a mount namespace of their own. What they mount,
# leave behind or tune is gone with it.
#   node.sh DIR KUBELET NAME ADDRESS IMAGE.tar...
set -eu
dir=$1 kubelet=$2 name=$3 address=$4
shift 4

mount --make-rprivate /
mount --make-rshared / # the kubelet insists
mount -t proc proc /proc
private=$dir/private # where the kernel stacks images upon each other, whatever file system DIR is on
mkdir -p "$private"
mount -t tmpfs tmpfs "$private"
for path in /run /var/lib /var/log; do
	own=$private/own$path
	mkdir -p "$own/upper" "$own/work"
	mount -t overlay -o "lowerdir=$path,upperdir=$own/upper,workdir=$own/work" overlay "$path"
done
# The kubelet sets these where they differ. They are the whole machine's, so it gets to see what it wants.
while read -r key value; do
	mkdir -p "$private/sysctl/${key%/*}"
	echo "$value" >"$private/sysctl/$key"
	mount --bind "$private/sysctl/$key" "/proc/sys/$key"
done <<-SYSCTL
	vm/overcommit_memory 1
	vm/panic_on_oom 0
	kernel/panic 10
	kernel/panic_on_oops 1
	kernel/keys/root_maxkeys 1000000
	kernel/keys/root_maxbytes 25000000
SYSCTL

socket=$private/containerd.sock
cat >"$private/containerd.toml" <<-TOML
	version = 2
	root = "$private/containerd"
	state = "$private/state"
	[grpc]
	address = "$socket"
	[plugins."io.containerd.internal.v1.opt"]
	path = "$private/opt"
	[plugins."io.containerd.grpc.v1.cri"]
	sandbox_image = "registry.invalid/pause:1"
	restrict_oom_score_adj = true
	[plugins."io.containerd.grpc.v1.cri".cni]
	bin_dir = "$dir/cni"
	conf_dir = "$dir/cni"
	[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
	runtime_type = "io.containerd.runc.v2"
	[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
	SystemdCgroup = false
TOML
cat >"$private/kubelet.yaml" <<-YAML
	apiVersion: kubelet.config.k8s.io/v1beta1
	kind: KubeletConfiguration
	authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
	authorization: {mode: AlwaysAllow}
	containerRuntimeEndpoint: unix://$socket
	cgroupDriver: cgroupfs
	cgroupRoot: /$(basename "$dir")
	cgroupsPerQOS: false # it would take what it does not know there for its own leftovers
	enforceNodeAllocatable: []
	evictionHard: {memory.available: 0%, nodefs.available: 0%, nodefs.inodesFree: 0%, imagefs.available: 0%}
	failCgroupV1: false
	failSwapOn: false
	makeIPTablesUtilChains: false
	readOnlyPort: 0
	healthzPort: 0
	resolvConf: ""
YAML

# Without one of them there is no node.
trap 'exit 1' TERM
forever() {
	("$@" || true; echo "$1 has ended"; kill $$) &
}
forever containerd --config "$private/containerd.toml"
until ctr --address "$socket" --connect-timeout 1s version >/dev/null 2>&1; do sleep 0.1; done
for image; do
	ctr --address "$socket" --namespace k8s.io images import "$image"
done
forever "$kubelet" --config "$private/kubelet.yaml" --kubeconfig "$dir/kubeconfig" --root-dir "$private/kubelet" --cert-dir "$private/pki" \
	--hostname-override "$name" --node-ip "$address"
wait
