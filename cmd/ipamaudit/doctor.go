package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	authv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"

	"github.com/spf13/cobra"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ipamaudit/audit"
	"ipamaudit/audit/config"
	"ipamaudit/audit/state"
	"ipamaudit/checks"
	"ipamaudit/ipam"
	"ipamaudit/report/text"
)

func (a *app) doctorCommand() *cobra.Command {
	var in input
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Can this configuration do its work? API access, Jira, Slack and the state; names the checks each gap disables",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := in.validate(); err != nil {
				return err
			}
			if len(in.from) > 0 {
				return usage("doctor asks clusters; a saved snapshot says itself what it lacks: ipamaudit run --from PATH")
			}
			return a.doctor(cmd.Context(), cmd, &in)
		},
	}
	in.flags(cmd)
	return cmd
}

// diagnosis collects what is wrong, by the exit code it makes.
type diagnosis struct {
	a          *app
	incomplete []string
	notify     []string
}

func (d *diagnosis) good(format string, args ...any) {
	fmt.Fprintf(d.a.out, "  ok       "+format+"\n", args...)
}

func (d *diagnosis) gap(list *[]string, what, format string, args ...any) {
	*list = append(*list, what)
	fmt.Fprintf(d.a.out, "  MISSING  "+format+"\n", args...)
}

func (a *app) doctor(ctx context.Context, cmd *cobra.Command, in *input) error {
	c, warnings, err := a.loadConfig(in.configFile, cmd)
	if err != nil {
		return err
	}
	a.warn(warnings)
	clusters, _, err := in.clusters(a, c)
	if err != nil {
		return err
	}
	d := &diagnosis{a: a}
	for _, cl := range clusters {
		fmt.Fprintf(a.out, "cluster %s\n", text.Terminal(cl.cluster.Name))
		clusterCtx, cancel := context.WithTimeout(ctx, cl.cluster.Timeout)
		d.cluster(clusterCtx, cl, c)
		cancel()
	}
	d.state(ctx, c)
	d.notifiers(ctx, c)
	switch {
	case len(d.incomplete) > 0:
		return &exitError{audit.ExitIncomplete, fmt.Errorf("the audit would be incomplete: %s", strings.Join(d.incomplete, "; "))}
	case len(d.notify) > 0:
		return &exitError{audit.ExitNotify, fmt.Errorf("people could not be told: %s", strings.Join(d.notify, "; "))}
	}
	return nil
}

// cluster asks the API server what the account may read.
func (d *diagnosis) cluster(ctx context.Context, cl chosen, c *config.Config) {
	name := cl.cluster.Name
	rc, err := d.a.restConfig(ctx, cl)
	var client *kubernetes.Clientset
	if err == nil {
		client, err = kubernetes.NewForConfig(rc)
	}
	var groups []string
	if err == nil {
		groups, err = calicoGroups(client.Discovery())
	}
	if err != nil {
		d.gap(&d.incomplete, "cluster "+name+" cannot be reached", "the API server does not answer: %s", text.Terminal(err.Error()))
		return
	}
	if len(groups) == 0 {
		d.good("the API server answers; it serves no Calico resources, so only ipam-data will speak")
	} else {
		d.good("the API server answers; Calico's data is in %s", strings.Join(groups, " and "))
	}
	wanted := wantedResources(c.CheckEnabled)
	allowed := 0
	for _, r := range ipam.AllResources() {
		if !wanted[r] {
			continue
		}
		for _, gr := range r.Served() {
			if strings.HasSuffix(gr.Group, "projectcalico.org") && !slices.Contains(groups, gr.Group) {
				continue
			}
			ok, err := mayList(ctx, client, gr)
			switch {
			case err != nil:
				d.gap(&d.incomplete, name+" does not say what may be read", "cannot ask about %s: %s", gr.Resource, text.Terminal(err.Error()))
			case ok:
				allowed++
			default:
				d.forbidden(name, r, gr, c)
			}
		}
	}
	d.good("%d resources may be listed", allowed)
	d.routes(ctx, client, groups, cl)
}

func (d *diagnosis) forbidden(cluster string, r ipam.Resource, gr ipam.GroupResource, c *config.Config) {
	needed, used := dependents(r, c.CheckEnabled)
	full := gr.Resource
	if gr.Group != "" {
		full += "." + gr.Group
	}
	fix := fmt.Sprintf("kubectl apply -f deploy/kustomize/clusterrole.yaml, or add to the account's own ClusterRole: {apiGroups: [%q], resources: [%s], verbs: [get, list]}", gr.Group, gr.Resource)
	if len(needed) == 0 {
		fmt.Fprintf(d.a.out, "  less     may not list %s: %s see less\n           %s\n", full, strings.Join(used, ", "), fix)
		return
	}
	d.gap(&d.incomplete, fmt.Sprintf("%s on %s: may not list %s", strings.Join(needed, ", "), cluster, full),
		"may not list %s: %s will be unknown\n           %s", full, strings.Join(needed, ", "), fix)
}

// dependents are the enabled checks that cannot do without r, and those that
// only use it.
func dependents(r ipam.Resource, enabled func(string) bool) (needed, used []string) {
	for _, c := range checks.All() {
		switch {
		case !enabled(c.ID):
		case slices.Contains(c.Needs, r):
			needed = append(needed, c.ID)
		case slices.Contains(c.Uses, r):
			used = append(used, c.ID)
		}
	}
	return needed, used
}

// calicoGroups returns which of Calico's two groups hold the data here, as
// Calico itself chooses: v3 only where v1 is not served.
func calicoGroups(d discovery.DiscoveryInterface) ([]string, error) {
	list, err := d.ServerGroups()
	if err != nil {
		return nil, err
	}
	has := func(name string) bool {
		return slices.ContainsFunc(list.Groups, func(g metav1.APIGroup) bool { return g.Name == name })
	}
	switch {
	case has("crd.projectcalico.org"):
		return []string{"crd.projectcalico.org"}, nil
	case has("projectcalico.org"):
		return []string{"projectcalico.org"}, nil
	}
	return nil, nil
}

func mayList(ctx context.Context, client kubernetes.Interface, gr ipam.GroupResource) (bool, error) {
	return may(ctx, client, authv1.ResourceAttributes{Verb: "list", Group: gr.Group, Resource: gr.Resource})
}

func may(ctx context.Context, client kubernetes.Interface, access authv1.ResourceAttributes) (bool, error) {
	review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authv1.SelfSubjectAccessReview{
		Spec: authv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &access},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

// state reads the state, asks whether it may be written, and changes nothing.
func (d *diagnosis) state(ctx context.Context, c *config.Config) {
	fmt.Fprintln(d.a.out, "state")
	store, err := openStore(c.State, d.a.logger(c.Log, true))
	if err == nil && store == nil {
		fmt.Fprintln(d.a.out, "  less     none is configured: every finding is new in every run")
		return
	}
	if err == nil {
		_, err = store.Load(ctx)
	}
	if err != nil {
		d.gap(&d.notify, "the state cannot be read", "%s", text.Terminal(err.Error()))
		return
	}
	if held, is := store.(*state.ConfigMap); is && !d.mayWrite(ctx, held) {
		return
	}
	d.good("%s", text.Terminal(store.String()))
}

// mayWrite asks for each right that a run needs to keep its state.
func (d *diagnosis) mayWrite(ctx context.Context, store *state.ConfigMap) bool {
	fine := true
	for _, access := range store.Access() {
		what := strings.TrimSpace(access.Verb + " " + access.Resource + " " + access.Name)
		ok, err := may(ctx, store.Client(), access)
		switch {
		case err != nil:
			d.gap(&d.notify, "the state cannot be written", "cannot ask whether it may %s: %s", what, text.Terminal(err.Error()))
		case !ok:
			d.gap(&d.notify, "the state cannot be written", "may not %s in namespace %s: %s cannot be kept\n           deploy/kustomize/role.yaml", what, access.Namespace, text.Terminal(store.String()))
		}
		fine = fine && ok && err == nil
	}
	return fine
}
