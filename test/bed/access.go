package bed

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"
)

// Token mints a token for an existing ServiceAccount. The API server grants
// at least ten minutes.
func (c *Cluster) Token(ctx context.Context, namespace, name string, ttl time.Duration) (string, error) {
	kube, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		return "", err
	}
	seconds := int64(ttl / time.Second)
	request, err := kube.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("mint a token for ServiceAccount %s/%s: %w", namespace, name, err)
	}
	return request.Status.Token, nil
}

// ShortToken is Token for a time of any length, also one that is over: the
// API server grants no less than ten minutes, so it is signed here with the API
// server's own key. Once seen, it is accepted for up to ten seconds longer.
func (c *Cluster) ShortToken(ctx context.Context, namespace, name string, ttl time.Duration) (string, error) {
	token, err := c.Token(ctx, namespace, name, time.Hour)
	if err != nil {
		return "", err
	}
	head, payload, _ := strings.Cut(token, ".")
	payload, _, _ = strings.Cut(payload, ".")
	text, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return "", err
	}
	claims := map[string]any{}
	if err := json.Unmarshal(text, &claims); err != nil {
		return "", err
	}
	const leeway = time.Minute // go-jose's, which the API server leaves as it is
	claims["exp"] = time.Now().Add(ttl - leeway).Unix()
	if text, err = json.Marshal(claims); err != nil {
		return "", err
	}
	signed := head + "." + base64.RawURLEncoding.EncodeToString(text)
	key, err := keyutil.PrivateKeyFromFile(c.path("serviceaccounts.key"))
	if err != nil {
		return "", err
	}
	private, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return "", fmt.Errorf("the key that signs tokens is a %T", key)
	}
	sum := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, private, sum[:])
	if err != nil {
		return "", err
	}
	signature := append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...) // ES256, RFC 7518
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}

// ServiceAccount makes an account (and its namespace) with a ClusterRole of its
// own, and returns its client configuration once the rules are in force.
func (c *Cluster) ServiceAccount(ctx context.Context, namespace, name string, rules []rbacv1.PolicyRule) (*rest.Config, error) {
	fail := func(err error) (*rest.Config, error) {
		return nil, fmt.Errorf("make ServiceAccount %s/%s: %w", namespace, name, err)
	}
	kube, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		return fail(err)
	}
	meta := metav1.ObjectMeta{Name: name, Namespace: namespace}
	roleName := namespace + "-" + name
	_, err = kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fail(err)
	}
	if _, err := kube.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
		return fail(err)
	}
	if _, err := kube.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: roleName}, Rules: rules}, metav1.CreateOptions{}); err != nil {
		return fail(err)
	}
	if _, err := kube.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: roleName},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: roleName},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	}, metav1.CreateOptions{}); err != nil {
		return fail(err)
	}
	token, err := c.Token(ctx, namespace, name, time.Hour)
	if err != nil {
		return nil, err
	}
	config := c.As(token)
	if err := c.WaitAllowed(ctx, config, rules); err != nil {
		return fail(err)
	}
	return config, nil
}

// WaitAllowed returns once the bearer of config may do what the rules say in
// every namespace. The API server's authorizer learns of new roles and bindings
// a moment after they were written.
func (c *Cluster) WaitAllowed(ctx context.Context, config *rest.Config, rules []rbacv1.PolicyRule) error {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, fmt.Errorf("RBAC rules are not in force after 30s"))
	defer cancel()
	return c.apiserver.waitReady(ctx, func(ctx context.Context) error {
		for _, want := range resourceAccess(rules) {
			review, err := kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &want},
			}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			if !review.Status.Allowed {
				return fmt.Errorf("may not %s %s.%s yet", want.Verb, want.Resource, want.Group)
			}
		}
		return nil
	})
}

// resourceAccess spells rules out, one verb of one resource each.
func resourceAccess(rules []rbacv1.PolicyRule) []authorizationv1.ResourceAttributes {
	var out []authorizationv1.ResourceAttributes
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				resource, subresource, _ := strings.Cut(resource, "/")
				for _, verb := range rule.Verbs {
					a := authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource, Subresource: subresource}
					if len(rule.ResourceNames) > 0 {
						a.Name = rule.ResourceNames[0]
					}
					out = append(out, a)
				}
			}
		}
	}
	return out
}
