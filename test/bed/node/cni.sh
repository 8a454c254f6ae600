#!/bin/sh
# What Calico's CNI plug-in does on a node: a veth called cali…, a /32 route to the pod's address over it, and in the pod a
# default route to 169.254.1.1, for which the node answers. The address is not asked of an IPAM: pods called *-app-A-B-C-D
# have it in their name, others get one that is in no pool.
set -eu
version='"cniVersion": "0.3.1"'
case $CNI_COMMAND in
VERSION) echo "{$version, \"supportedVersions\": [\"0.3.1\"]}" && exit ;;
ADD) ;;
DEL) [ "${0##*/}" = loopback ] || ip link del "cali$(echo "$CNI_CONTAINERID" | cut -c1-11)" 2>/dev/null || true && exit ;;
*) exit ;;
esac
within() { nsenter --net="$CNI_NETNS" ip "$@"; }
if [ "${0##*/}" = loopback ]; then
	within link set lo up
	echo "{$version, \"interfaces\": [], \"ips\": []}"
	exit
fi
pod=${CNI_ARGS##*K8S_POD_NAME=}
pod=${pod%%;*}
case $pod in
*-app-*) address=$(echo "${pod##*-app-}" | tr - .) ;;
*)
	last=1
	until mkdir "${0%/*}/10.88.0.$last" 2>/dev/null; do last=$((last + 1)); done
	address=10.88.0.$last
	;;
esac
veth=cali$(echo "$CNI_CONTAINERID" | cut -c1-11)
ip link add "$veth" type veth peer name "$CNI_IFNAME" netns "$CNI_NETNS"
echo 1 >"/proc/sys/net/ipv4/conf/$veth/proxy_arp"
echo 1 >"/proc/sys/net/ipv4/conf/$veth/forwarding"
ip link set "$veth" up
within addr add "$address/32" dev "$CNI_IFNAME"
within link set "$CNI_IFNAME" up
within route add 169.254.1.1 dev "$CNI_IFNAME" scope link
within route add default via 169.254.1.1 dev "$CNI_IFNAME"
ip route add "$address/32" dev "$veth" scope link
echo "{$version, \"interfaces\": [{\"name\": \"$CNI_IFNAME\", \"sandbox\": \"$CNI_NETNS\"}],
  \"ips\": [{\"version\": \"4\", \"address\": \"$address/32\", \"interface\": 0}]}"
