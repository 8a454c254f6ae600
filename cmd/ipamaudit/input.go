package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ipamaudit/audit"
	"ipamaudit/audit/collect"
	"ipamaudit/audit/config"
	"ipamaudit/checks"
	"ipamaudit/ipam"
)

// input is where clusters come from: saved snapshots, contexts of a
// kubeconfig, or the configuration.
type input struct {
	configFile  string
	kubeconfig  string
	contexts    []string
	allContexts bool
	from        []string
	asOfText    string
	asOf        time.Time
}

func (in *input) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&in.configFile, "config", "", "configuration `FILE` (default $IPAMAUDIT_CONFIG)")
	f.StringVar(&in.kubeconfig, "kubeconfig", "", "kubeconfig `FILE` (default $KUBECONFIG, then ~/.kube/config)")
	f.StringArrayVar(&in.contexts, "context", nil, "audit this context, or only this configured cluster (`NAME`, repeatable)")
	f.BoolVar(&in.allContexts, "all-contexts", false, "audit every context of the kubeconfig")
	f.StringArrayVar(&in.from, "from", nil, "read a saved snapshot instead of a cluster: directory, .tar.gz, or - for one YAML or JSON stream (`PATH`, repeatable)")
	f.StringVar(&in.asOfText, "as-of", "", "the now of a saved snapshot (`RFC3339`; default its manifest's time, else the newest time in it)")
}

func (in *input) validate() error {
	if in.asOfText != "" {
		t, err := time.Parse(time.RFC3339, in.asOfText)
		if err != nil {
			return usage("--as-of %q is no RFC 3339 time, such as 2026-12-02T06:00:00Z", in.asOfText)
		}
		in.asOf = t
	}
	live := in.kubeconfig != "" || len(in.contexts) > 0 || in.allContexts
	switch {
	case len(in.from) > 0 && live:
		return usage("--from reads saved snapshots and contacts no cluster: leave out --kubeconfig, --context and --all-contexts")
	case len(in.from) == 0 && in.asOfText != "":
		return usage("--as-of is for saved snapshots: give it with --from")
	case in.allContexts && len(in.contexts) > 0:
		return usage("--all-contexts and --context exclude each other")
	case slices.Contains(in.from, ""):
		// Most likely an unset variable of a script. It must not fall back to a live cluster.
		return usage("--from is empty: want a directory, a .tar.gz, or - for standard input")
	case slices.ContainsFunc(in.from, func(path string) bool { return path != "-" && count(in.from, path) > 1 }):
		return usage("the same --from is given twice: %s would be one and the same cluster", strings.Join(in.from, ", "))
	case count(in.from, "-") > 1:
		return usage("only one --from can be - (standard input)")
	}
	return nil
}

func count(list []string, s string) (n int) {
	for _, x := range list {
		if x == s {
			n++
		}
	}
	return n
}

// targets returns what is to be audited; subset is true when the
// configuration has more clusters than that.
func (in *input) targets(a *app, c *config.Config, wanted map[ipam.Resource]bool) (targets []audit.Target, subset bool, err error) {
	clusters, subset, err := in.clusters(a, c)
	if err != nil {
		return nil, false, err
	}
	for _, cl := range clusters {
		t := audit.Target{
			Name: cl.cluster.Name, Timeout: cl.cluster.Timeout, Labels: cl.cluster.Labels, Saved: cl.saved,
			Params:  func(id string) checks.Params { return c.CheckParams(cl.cluster, id) },
			Enabled: c.CheckEnabled,
			Kubectl: cl.kubectl(),
		}
		if cl.saved != "" {
			t.Source = collect.NewFiles(cl.saved, collect.Options{Name: cl.cluster.Name, AsOf: in.asOf, Stdin: a.in})
		} else {
			t.Source = a.liveSource(cl, c, wanted, nil)
		}
		targets = append(targets, t)
	}
	return targets, subset, nil
}

// chosen is one cluster to audit and how to reach it.
type chosen struct {
	cluster    config.Cluster
	saved      string
	kubeconfig string
	context    string
}

func (c chosen) kubectl() string {
	if c.saved != "" {
		return "kubectl"
	}
	out := "kubectl"
	if c.kubeconfig != "" {
		out += " --kubeconfig " + checks.Quote(c.kubeconfig)
	}
	if c.context != "" {
		out += " --context " + checks.Quote(c.context)
	}
	return out
}

func (in *input) clusters(a *app, c *config.Config) ([]chosen, bool, error) {
	switch {
	case len(in.from) > 0:
		out := make([]chosen, 0, len(in.from))
		for i, name := range savedNames(in.from) {
			out = append(out, chosen{cluster: c.NewCluster(name), saved: in.from[i]})
		}
		return out, len(c.Clusters) > 0, nil
	case in.allContexts:
		names, err := in.contextNames(a)
		if err != nil {
			return nil, false, err
		}
		return in.byContext(c, names), len(c.Clusters) > 0, nil
	case len(in.contexts) > 0 && len(c.Clusters) > 0 && in.kubeconfig == "":
		return in.configured(c)
	case len(in.contexts) > 0:
		names, err := in.contextNames(a)
		if err != nil {
			return nil, false, err
		}
		for _, name := range in.contexts {
			if !slices.Contains(names, name) {
				return nil, false, usage("no context is called %q%s", name, suggest(name, names))
			}
		}
		return in.byContext(c, in.contexts), len(c.Clusters) > 0, nil
	case in.kubeconfig != "":
		raw, err := in.rawKubeconfig(a)
		if err != nil {
			return nil, false, err
		}
		if raw.CurrentContext == "" {
			return nil, false, usage("kubeconfig %s has no current context: use --context NAME or --all-contexts (it has %s)", in.kubeconfig, strings.Join(slices.Sorted(maps.Keys(raw.Contexts)), ", "))
		}
		return in.byContext(c, []string{raw.CurrentContext}), len(c.Clusters) > 0, nil
	case len(c.Clusters) > 0:
		out := make([]chosen, 0, len(c.Clusters))
		for _, cl := range c.Clusters {
			out = append(out, chosen{cluster: cl, kubeconfig: cl.Kubeconfig, context: cl.Context})
		}
		return out, false, nil
	}
	return nil, false, usage("no cluster to audit: use --config FILE with a list of clusters, --context NAME, --all-contexts, or --from PATH for a saved snapshot")
}

// configured picks the clusters that --context names, by context or by name.
func (in *input) configured(c *config.Config) ([]chosen, bool, error) {
	var out []chosen
	var known []string
	for _, cl := range c.Clusters {
		known = append(known, cl.Name)
		if cl.Context != "" && cl.Context != cl.Name {
			known = append(known, cl.Context)
		}
	}
	for _, name := range in.contexts {
		found := false
		for _, cl := range c.Clusters {
			if cl.Name == name || cl.Context == name {
				out = append(out, chosen{cluster: cl, kubeconfig: cl.Kubeconfig, context: cl.Context})
				found = true
			}
		}
		if !found {
			return nil, false, usage("no configured cluster has the name or context %q%s", name, suggest(name, known))
		}
	}
	return out, len(out) < len(c.Clusters), nil
}

func (in *input) byContext(c *config.Config, names []string) []chosen {
	out := make([]chosen, 0, len(names))
	for _, name := range names {
		cl := c.NewCluster(name)
		for _, configured := range c.Clusters {
			if configured.Context == name {
				cl = configured
			}
		}
		out = append(out, chosen{cluster: cl, kubeconfig: in.kubeconfig, context: name})
	}
	return out
}

// savedNames names saved snapshots after their manifests, else their paths,
// with as much of the path as tells them apart.
func savedNames(paths []string) []string {
	names := make([]string, len(paths))
	for i, path := range paths {
		if names[i] = collect.SavedName(path); names[i] == "" {
			names[i] = pathName(path, 1)
		}
	}
	for depth := 2; depth < 8; depth++ {
		before := slices.Clone(names)
		for i, path := range paths {
			if count(before, before[i]) > 1 {
				names[i] = pathName(path, depth)
			}
		}
	}
	return names
}

// pathName is the last elements of the path without its archive ending.
func pathName(path string, depth int) string {
	if path == "-" {
		return "stdin"
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	for _, ext := range []string{".gz", ".tgz", ".tar", ".yaml", ".yml", ".json"} {
		path = strings.TrimSuffix(path, ext)
	}
	parts := strings.Split(filepath.ToSlash(path), "/")
	return strings.Join(parts[max(0, len(parts)-depth):], "/")
}

func (in *input) rules(a *app) *clientcmd.ClientConfigLoadingRules {
	return loadingRules(a, in.kubeconfig)
}

func loadingRules(a *app, kubeconfig string) *clientcmd.ClientConfigLoadingRules {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	return rules
}

func (in *input) rawKubeconfig(a *app) (*clientcmdapi.Config, error) {
	raw, err := in.rules(a).Load()
	if err != nil {
		return nil, usage("kubeconfig: %w", err)
	}
	if len(raw.Contexts) == 0 {
		return nil, usage("kubeconfig %s has no contexts: use --kubeconfig FILE or set KUBECONFIG", strings.Join(in.rules(a).GetLoadingPrecedence(), ", "))
	}
	return raw, nil
}

func (in *input) contextNames(a *app) ([]string, error) {
	raw, err := in.rawKubeconfig(a)
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(raw.Contexts)), nil
}

// restConfig builds the client configuration of a cluster: in-cluster, from a
// kubeconfig file, or from one kept in a Secret.
func (a *app) restConfig(ctx context.Context, cl chosen) (*rest.Config, error) {
	c := cl.cluster
	overrides := &clientcmd.ConfigOverrides{CurrentContext: cl.context}
	var cfg *rest.Config
	var err error
	switch {
	case c.InCluster:
		cfg, err = rest.InClusterConfig()
	case c.KubeconfigSecret.IsSet():
		cfg, err = secretConfig(ctx, c, overrides)
	default:
		cfg, err = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(loadingRules(a, cl.kubeconfig), overrides).ClientConfig()
	}
	if err != nil {
		return nil, fmt.Errorf("cluster %s: client configuration: %w", c.Name, err)
	}
	cfg.QPS, cfg.Burst = float32(c.QPS), c.Burst
	// Not a curl-like agent: those get pretty-printed JSON, 1.7 times the bytes.
	cfg.UserAgent = "ipamaudit/" + buildVersion()
	return cfg, nil
}

// secretConfig reads a kubeconfig from a Secret of the cluster the program runs in.
func secretConfig(ctx context.Context, c config.Cluster, overrides *clientcmd.ConfigOverrides) (*rest.Config, error) {
	s := c.KubeconfigSecret
	own, err := rest.InClusterConfig()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(own)
	if err != nil {
		return nil, err
	}
	secret, err := client.CoreV1().Secrets(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of Secret %s/%s: %w", s.Namespace, s.Name, err)
	}
	data, ok := secret.Data[s.Key]
	if !ok {
		return nil, fmt.Errorf("secret %s/%s has no key %q (it has %s)", s.Namespace, s.Name, s.Key, strings.Join(slices.Sorted(maps.Keys(secret.Data)), ", "))
	}
	raw, err := clientcmd.Load(data)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of Secret %s/%s: %w", s.Namespace, s.Name, err)
	}
	return clientcmd.NewNonInteractiveClientConfig(*raw, overrides.CurrentContext, overrides, nil).ClientConfig()
}
