// Package world stands in for everything around an API server that a
// remediation counts on and a test bed does not have: the scheduler, kubelet and
// CNI plug-in that bring a deleted pod back with an address, the controller that
// rolls a Deployment, Calico's collector, calico-node when it starts, BIRD's
// routes, and calicoctl.
//
// It does what their documentation and source say and no more: where a step
// needs a person, a machine or a network, the tests say so instead. The rules of
// allocation and collection are written down here once more on purpose: shared
// with the program under test, they would share its mistakes.
//
// Sources: libcalico-go/lib/ipam/ipam.go (AutoAssign, ReleaseByHandle),
// kube-controllers/pkg/controllers/node/ipam.go,
// node/pkg/allocateip/allocateip.go, calicoctl/calicoctl/commands, all of
// github.com/projectcalico/calico.
package world
