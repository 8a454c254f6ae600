package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"ipamaudit/audit/collect"
	"ipamaudit/ipam"
)

// Publisher writes one node's ConfigMap.
type Publisher struct {
	client    kubernetes.Interface
	namespace string
	node      string
	// uid is the node's: the ConfigMap is collected with it.
	uid types.UID
}

// NewPublisher asks the API server who this agent is: its token must be bound
// to a pod on the node it speaks for.
func NewPublisher(ctx context.Context, client kubernetes.Interface, namespace, node string) (*Publisher, error) {
	p := &Publisher{client: client, namespace: namespace, node: node}
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("ask the API server who this is: %w", err)
	}
	claim := func(name string) string {
		if v := review.Status.UserInfo.Extra["authentication.kubernetes.io/"+name]; len(v) == 1 {
			return v[0]
		}
		return ""
	}
	switch got := claim("node-name"); {
	case got == "":
		return nil, errors.New("the token names no node: the API server must be Kubernetes v1.30 or later, and the token a pod's own")
	case got != node:
		return nil, fmt.Errorf("the token is of node %q, not %q", got, node)
	}
	p.uid = types.UID(claim("node-uid"))
	return p, nil
}

// Publish writes the table. It never reads: an agent need not see what others
// have written.
func (p *Publisher) Publish(ctx context.Context, packed []byte, readAt time.Time, routes int) error {
	cm := corev1ac.ConfigMap(p.node, p.namespace).
		WithLabels(map[string]string{collect.AgentLabel: collect.AgentLabelValue}).
		WithAnnotations(map[string]string{collect.AgentReadAt: readAt.UTC().Format(time.RFC3339), "ipamaudit.io/routes": strconv.Itoa(routes)}).
		WithBinaryData(map[string][]byte{collect.AgentKey: packed})
	if p.uid != "" {
		cm = cm.WithOwnerReferences(metav1ac.OwnerReference().WithAPIVersion("v1").WithKind("Node").WithName(p.node).WithUID(p.uid))
	}
	if _, err := p.client.CoreV1().ConfigMaps(p.namespace).Apply(ctx, cm, metav1.ApplyOptions{FieldManager: "ipamaudit-agent", Force: true}); err != nil {
		return fmt.Errorf("write ConfigMap %s/%s: %w", p.namespace, p.node, err)
	}
	return nil
}

// Pools lists the pools' prefixes, from the API server's cache.
func Pools(ctx context.Context, client dynamic.Interface) ([]netip.Prefix, error) {
	for _, api := range []string{ipam.APIv1, ipam.APIv3} {
		gv, err := schema.ParseGroupVersion(api)
		if err != nil {
			return nil, err
		}
		list, err := client.Resource(gv.WithResource("ippools")).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var out []netip.Prefix
		for _, o := range list.Items {
			spec, _ := o.Object["spec"].(map[string]any)
			text, _ := spec["cidr"].(string)
			p, err := netip.ParsePrefix(text)
			if err != nil {
				return nil, fmt.Errorf("IPPool %s: %w", o.GetName(), err)
			}
			out = append(out, p.Masked())
		}
		if len(out) == 0 {
			return nil, errors.New("there is no IPPool")
		}
		return out, nil
	}
	return nil, errors.New("the API server serves no IPPools")
}
