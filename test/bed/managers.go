package bed

import (
	"context"
	"fmt"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
)

// startManagers starts the controllers that workloads need to run, and no others:
// those that watch nodes would clear away what only exists as an object.
func (c *Cluster) startManagers() error {
	kubeconfig := c.path("managers.kubeconfig")
	if err := WriteKubeconfig(kubeconfig, c.Context()); err != nil {
		return err
	}
	if err := os.WriteFile(c.path("ca.crt"), c.ca, 0o600); err != nil {
		return err
	}
	for name, flags := range map[string][]string{
		"kube-controller-manager": {
			"--controllers=cronjob-controller,job-controller,daemonset-controller,serviceaccount-controller,serviceaccount-token-controller,root-ca-certificate-publisher-controller",
			"--root-ca-file=" + c.path("ca.crt"), "--service-account-private-key-file=" + c.path("serviceaccounts.key"),
		},
		"kube-scheduler": nil,
	} {
		program, err := findProgram(name)
		if err != nil {
			return err
		}
		p, err := startProcess(c.dir, c.logs, program, append(flags, "--kubeconfig="+kubeconfig, "--leader-elect=false", "--secure-port=0")...)
		if err != nil {
			return err
		}
		c.managers = append(c.managers, p)
	}
	return nil
}

// waitServiceAccounts returns once pods can be created in the namespaces.
func (c *Cluster) waitServiceAccounts(ctx context.Context, namespaces []*unstructured.Unstructured) error {
	kube, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		return err
	}
	return c.managers[0].waitReady(ctx, func(ctx context.Context) error {
		for _, ns := range namespaces {
			if _, err := kube.CoreV1().ServiceAccounts(ns.GetName()).Get(ctx, "default", metav1.GetOptions{}); err != nil {
				return fmt.Errorf("the ServiceAccount default of namespace %s: %w", ns.GetName(), err)
			}
		}
		return nil
	})
}
