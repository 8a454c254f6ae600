package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"ipamaudit/test/bed"
)

const agentNamespace = "ipamaudit-agent"

// ownersTable is what kubestage1001's kernel has in the story: it drops its
// own block, and has no route to the address that kubestage1003 borrows of it.
const ownersTable = "default via 10.64.0.1 dev eno1 \nblackhole 10.64.75.0/26 proto bird \n10.64.75.4 dev cali866d7d89068 scope link \n"

// agentPod makes a pod of the DaemonSet on a node, and a client with the token
// that the kubelet would give it.
func agentPod(t *testing.T, c *bed.Cluster, node string) (string, *kubernetes.Clientset) {
	t.Helper()
	admin, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		t.Fatal(err)
	}
	pod, err := admin.CoreV1().Pods(agentNamespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "agent-" + node},
		Spec:       corev1.PodSpec{ServiceAccountName: agentNamespace, NodeName: node, HostNetwork: true, Containers: []corev1.Container{{Name: "agent", Image: "ipamaudit"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return agentToken(t, c, &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID})
}

func agentToken(t *testing.T, c *bed.Cluster, bound *authenticationv1.BoundObjectReference) (string, *kubernetes.Clientset) {
	t.Helper()
	admin, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		t.Fatal(err)
	}
	token, err := admin.CoreV1().ServiceAccounts(agentNamespace).CreateToken(t.Context(), agentNamespace, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(c.As(token.Status.Token))
	if err != nil {
		t.Fatal(err)
	}
	return token.Status.Token, client
}

func packed(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// publish does what an agent does, with any name and any table.
func publish(t *testing.T, client kubernetes.Interface, name, table string) error {
	t.Helper()
	cm := corev1ac.ConfigMap(name, agentNamespace).WithLabels(map[string]string{"app.kubernetes.io/name": "ipamaudit-agent"}).
		WithAnnotations(map[string]string{"ipamaudit.io/read-at": time.Now().UTC().Format(time.RFC3339)}).
		WithBinaryData(map[string][]byte{"routes.gz": packed(t, table)})
	_, err := client.CoreV1().ConfigMaps(agentNamespace).Apply(t.Context(), cm, metav1.ApplyOptions{FieldManager: "ipamaudit-agent", Force: true})
	return err
}

func TestAgent(t *testing.T) {
	needs(t, "run", "agent")
	c := bed.New(t, bed.Options{Name: "kubestage", Calico: bed.CalicoV1, Audit: true})
	if err := c.Load(t.Context(), bed.Kubestage(bed.CalicoV1)); err != nil {
		t.Fatal(err)
	}
	account := shippedAccount(t, c)
	if err := c.Apply(t.Context(), false, render(t, "deploy/agent")...); err != nil {
		t.Fatal(err)
	}
	admin, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		t.Fatal(err)
	}
	tokenA, a := agentPod(t, c, "kubestage1001")
	_, b := agentPod(t, c, "kubestage1002")

	// The API server takes a moment until policy and role are in force.
	wait := func(what string, done func() error) {
		t.Helper()
		var last error
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			if last = done(); last == nil {
				return
			}
		}
		t.Fatalf("%s: %v", what, last)
	}
	wait("the agent may write its own object", func() error { return publish(t, a, "kubestage1001", ownersTable) })
	wait("the policy is in force", func() error {
		_, err := a.CoreV1().ConfigMaps(agentNamespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return fmt.Errorf("a ConfigMap of any name is let pass")
		}
		return nil
	})

	t.Run("an agent speaks for its own node only", func(t *testing.T) {
		if err := publish(t, b, "kubestage1002", ownersTable); err != nil {
			t.Fatalf("kubestage1002's own agent: %v", err)
		}
		before, err := admin.CoreV1().ConfigMaps(agentNamespace).Get(t.Context(), "kubestage1002", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		cms := a.CoreV1().ConfigMaps(agentNamespace)
		_, unbound := agentToken(t, c, nil)
		for name, try := range map[string]func() error{
			"apply over another's object": func() error { return publish(t, a, "kubestage1002", ownersTable) },
			"apply one for a third node":  func() error { return publish(t, a, "kubestage1003", ownersTable) },
			"patch another's object": func() error {
				_, err := cms.Patch(t.Context(), "kubestage1002", types.MergePatchType, []byte(`{"metadata":{"annotations":{"x":"y"}}}`), metav1.PatchOptions{})
				return err
			},
			"create one for a third node": func() error {
				_, err := cms.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kubestage1003"}}, metav1.CreateOptions{})
				return err
			},
			"create one with a generated name": func() error {
				_, err := cms.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "kubestage1001"}}, metav1.CreateOptions{})
				return err
			},
			"update another's object": func() error {
				_, err := cms.Update(t.Context(), before.DeepCopy(), metav1.UpdateOptions{})
				return err
			},
			"delete another's object": func() error { return cms.Delete(t.Context(), "kubestage1002", metav1.DeleteOptions{}) },
			"read another's object": func() error {
				_, err := cms.Get(t.Context(), "kubestage1002", metav1.GetOptions{})
				return err
			},
			"write into another namespace": func() error {
				_, err := a.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kubestage1001"}}, metav1.CreateOptions{})
				return err
			},
			"write with a token that names no node": func() error { return publish(t, unbound, "kubestage1001", ownersTable) },
		} {
			if err := try(); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
				t.Errorf("%s: %v, want to be forbidden", name, err)
			}
		}
		after, err := admin.CoreV1().ConfigMaps(agentNamespace).Get(t.Context(), "kubestage1002", metav1.GetOptions{})
		if err != nil || after.ResourceVersion != before.ResourceVersion {
			t.Errorf("kubestage1002's object has changed (%v)", err)
		}
	})

	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "clusters:\n  - name: kubestage\n    kubeconfig: %s\n    routes: {agent: {namespace: %s}}\n", kubeconfig(t, c.ContextAs(account)), agentNamespace), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("the audit reads what agents have published", func(t *testing.T) {
		wait("the audit may read", func() error {
			res := ipamaudit(t, "doctor", "--config", config)
			if !strings.Contains(res.stdout, "route tables from agent") {
				return fmt.Errorf("doctor: %s", res.stdout)
			}
			return nil
		})
		got, _ := auditOne(t, "--config", config)
		if !got.has("blackholed-routes", "kubestage1001", "critical") {
			t.Errorf("no blackhole on kubestage1001: %q", got.headlines())
		}
		if got.Coverage.Routes.Source != "agent" || got.Coverage.Routes.Nodes != 2 {
			t.Errorf("routes %+v", got.Coverage.Routes)
		}
	})

	t.Run("the program itself publishes this machine's table", func(t *testing.T) {
		kc := kubeconfig(t, c.ContextAs(c.As(tokenA)))
		ipamaudit(t, "agent", "--once", "--node", "kubestage1001", "--namespace", agentNamespace, "--kubeconfig", kc).wantCode(t, 0)
		cm, err := admin.CoreV1().ConfigMaps(agentNamespace).Get(t.Context(), "kubestage1001", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		node, err := admin.CoreV1().Nodes().Get(t.Context(), "kubestage1001", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(cm.OwnerReferences) != 1 || cm.OwnerReferences[0].UID != node.UID {
			t.Errorf("owners %+v, want node %s", cm.OwnerReferences, node.UID)
		}
		raw, err := json.Marshal(cm)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d bytes of table, %d bytes of object", len(cm.BinaryData["routes.gz"]), len(raw))
		if bytes.Equal(cm.BinaryData["routes.gz"], packed(t, ownersTable)) {
			t.Error("the table is still the test's own")
		}
		res := ipamaudit(t, "agent", "--once", "--node", "kubestage1002", "--namespace", agentNamespace, "--kubeconfig", kc)
		if res.code == 0 || !strings.Contains(res.stderr, `the token is of node "kubestage1001"`) {
			t.Errorf("for another node: exit code %d, %s", res.code, res.stderr)
		}
	})
	t.Run("it asked for nothing else", func(t *testing.T) {
		requests, err := c.Requests("system:serviceaccount:" + agentNamespace + ":" + agentNamespace)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range requests {
			if r.UserAgent != "ipamaudit-agent" {
				continue
			}
			if what := r.Verb + " " + r.Resource; !slices.Contains([]string{"list ippools", "create selfsubjectreviews", "patch configmaps"}, what) {
				t.Errorf("the agent did %s (%s)", what, r.URI)
			}
		}
	})
}

// fillStatuses stands in for calico-node: it fills every CalicoNodeStatus that
// appears, until the context ends, and counts them.
func fillStatuses(ctx context.Context, client dynamic.ResourceInterface) <-chan int {
	done := make(chan int)
	go func() {
		filled := map[string]bool{}
		for ctx.Err() == nil {
			list, err := client.List(ctx, metav1.ListOptions{})
			if err != nil {
				break
			}
			for _, o := range list.Items {
				spec, _ := o.Object["spec"].(map[string]any)
				if filled[o.GetName()] || spec["node"] == "kubestage1002" { // whose calico-node is down
					continue
				}
				routes := `{"type":"FIB","destination":"0.0.0.0/0","gateway":"10.64.0.1","interface":"eno1","learnedFrom":{"sourceType":"Kernel"}}`
				if spec["node"] == "kubestage1001" {
					routes += `,{"type":"FIB","destination":"10.64.75.0/26","gateway":"N/A","interface":"blackhole","learnedFrom":{"sourceType":"Static"}},{"type":"FIB","destination":"10.64.75.4/32","gateway":"N/A","interface":"cali866d7d89068","learnedFrom":{"sourceType":"Kernel"}}`
				}
				patch := fmt.Sprintf(`{"status":{"lastUpdated":%q,"agent":{"birdV4":{"state":"Ready"}},"routes":{"routesV4":[%s]}}}`, time.Now().UTC().Format(time.RFC3339), routes)
				for _, sub := range [][]string{{"status"}, nil} {
					if _, err = client.Patch(ctx, o.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{}, sub...); err == nil {
						break
					}
				}
				filled[o.GetName()] = err == nil
			}
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
		done <- len(filled)
	}()
	return done
}

func TestCalicoNodeStatus(t *testing.T) {
	needs(t, "run")
	for _, api := range []bed.CalicoAPI{bed.CalicoV1, bed.CalicoV3} {
		t.Run(filepath.Base(string(api)), func(t *testing.T) {
			c := bed.New(t, bed.Options{Name: "kubestage", Calico: api})
			if err := c.Load(t.Context(), bed.Kubestage(api)); err != nil {
				t.Fatal(err)
			}
			group, version, _ := strings.Cut(string(api), "/")
			dyn, err := dynamic.NewForConfig(c.Admin())
			if err != nil {
				t.Fatal(err)
			}
			statuses := dyn.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: "caliconodestatuses"})
			rules := only[rbacv1.ClusterRole](t, render(t, "deploy/kustomize"), "ClusterRole").Rules
			rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{"caliconodestatuses"}, Verbs: []string{"list", "create", "delete"}})
			account, err := c.ServiceAccount(t.Context(), "statuses", "audit", rules)
			if err != nil {
				t.Fatal(err)
			}
			run := func(account *rest.Config) cluster {
				config := filepath.Join(t.TempDir(), "config.yaml")
				text := fmt.Sprintf("clusters:\n  - name: kubestage\n    timeout: 2m\n    kubeconfig: %s\n    routes: {calicoNodeStatus: {read: true, create: true}}\n", kubeconfig(t, c.ContextAs(account)))
				if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				got, _ := auditOne(t, "--config", config)
				list, err := statuses.List(t.Context(), metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				for _, o := range list.Items {
					t.Errorf("CalicoNodeStatus %s was left behind", o.GetName())
				}
				return got
			}

			ctx, cancel := context.WithCancel(t.Context())
			filled := fillStatuses(ctx, statuses)
			got := run(account)
			cancel()
			if n := <-filled; n == 0 {
				t.Error("no CalicoNodeStatus was ever there to fill")
			}
			if !got.has("blackholed-routes", "kubestage1001", "critical") {
				t.Errorf("no blackhole on kubestage1001: %q", got.headlines())
			}
			if got.Coverage.Routes.Source != "caliconodestatus" || got.Coverage.Routes.Nodes != got.Nodes-1 {
				t.Errorf("routes %+v, want those of all nodes but kubestage1002", got.Coverage.Routes)
			}

			// An account without the permission learns nothing, and says so.
			reader, err := c.ServiceAccount(t.Context(), "statuses", "reader", without(rules, "caliconodestatuses"))
			if err != nil {
				t.Fatal(err)
			}
			got = run(reader)
			if got.statuses()["blackholed-routes"] != "unknown" {
				t.Errorf("blackholed-routes is %s without any table", got.statuses()["blackholed-routes"])
			}
		})
	}
}
