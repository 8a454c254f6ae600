package bed

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Context is an entry of a kubeconfig.
type Context struct {
	Name   string
	Config *rest.Config // its address, authority and token are written
}

// Context is the cluster's kubeconfig entry for the administrator.
func (c *Cluster) Context() Context { return Context{Name: c.Name, Config: c.Admin()} }

// ContextAs is the cluster's kubeconfig entry for the bearer of config.
func (c *Cluster) ContextAs(config *rest.Config) Context {
	return Context{Name: c.Name, Config: config}
}

// WriteKubeconfig writes a kubeconfig file with these contexts, the first of
// which is the current one. Contexts need names that differ.
func WriteKubeconfig(path string, contexts ...Context) error {
	file := clientcmdapi.NewConfig()
	for _, c := range contexts {
		if _, twice := file.Contexts[c.Name]; twice {
			return fmt.Errorf("write kubeconfig %s: two contexts are called %q", path, c.Name)
		}
		file.Clusters[c.Name] = &clientcmdapi.Cluster{Server: c.Config.Host, CertificateAuthorityData: c.Config.CAData}
		file.AuthInfos[c.Name] = &clientcmdapi.AuthInfo{Token: c.Config.BearerToken}
		file.Contexts[c.Name] = &clientcmdapi.Context{Cluster: c.Name, AuthInfo: c.Name}
	}
	if len(contexts) > 0 {
		file.CurrentContext = contexts[0].Name
	}
	return clientcmd.WriteToFile(*file, path)
}
