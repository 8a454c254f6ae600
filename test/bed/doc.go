// Package bed runs real Kubernetes API servers for tests: a kube-apiserver and
// an etcd per cluster, on loopback, with RBAC, ready in a few seconds and gone
// with the test.
//
//	cluster := bed.New(t, bed.Options{Name: "east"})
//	if err := cluster.Load(ctx, bed.Kubestage(bed.CalicoV1)); err != nil { … }
//	bed.WriteKubeconfig(path, cluster.Context())
//
// A cluster has Calico's custom resources and no controllers, scheduler or
// kubelet: objects stay as they were loaded (package world plays these). With
// [Options.Node] it has, and one of its nodes is a real one ([Cluster.StartNode]).
// It can be stopped in the middle of a test, hard ([Cluster.Kill]) or so that it
// hangs ([Cluster.Pause]).
//
// The programs come from, in this order: the directory $KUBEBUILDER_ASSETS; the
// directory $IPAMAUDIT_KUBE_BIN or a sibling shared/kube-bin of any directory
// above (zstd-compressed, with SHA256SUMS); a build from the Go module proxy,
// which costs some fifteen CPU minutes once and is cached ([FindPrograms]).
package bed
