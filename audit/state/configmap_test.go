package state

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"ipamaudit/audit"
)

// newClient is client-go's fake with what it lacks: resource versions that an
// update must match, as the API server has them.
func newClient(t *testing.T) *fake.Clientset {
	t.Helper()
	client := fake.NewClientset()
	version := 0
	stamp := func(o runtime.Object) metav1.Object {
		m, err := meta.Accessor(o)
		if err != nil {
			t.Fatal(err)
		}
		version++
		m.SetResourceVersion(strconv.Itoa(version))
		return m
	}
	client.PrependReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		o := action.(clienttesting.CreateAction).GetObject()
		stamp(o)
		err := client.Tracker().Create(action.GetResource(), o, action.GetNamespace())
		return true, o, err
	})
	client.PrependReactor("update", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		o := action.(clienttesting.UpdateAction).GetObject()
		given, err := meta.Accessor(o)
		if err != nil {
			t.Fatal(err)
		}
		stored, err := client.Tracker().Get(action.GetResource(), action.GetNamespace(), given.GetName())
		if err != nil {
			return true, nil, err
		}
		if m, _ := meta.Accessor(stored); m.GetResourceVersion() != given.GetResourceVersion() {
			return true, nil, apierrors.NewConflict(action.GetResource().GroupResource(), given.GetName(), errors.New("the object has been modified"))
		}
		stamp(o)
		return true, o, client.Tracker().Update(action.GetResource(), o, action.GetNamespace())
	})
	return client
}

func store(client *fake.Clientset, holder string) *ConfigMap {
	return NewConfigMap(client, "audit", "ipamaudit-state", ConfigMapOptions{Holder: holder})
}

func stored(t *testing.T, client *fake.Clientset) *corev1.ConfigMap {
	t.Helper()
	cm, err := client.CoreV1().ConfigMaps("audit").Get(t.Context(), "ipamaudit-state", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return cm
}

// bubble runs f in virtual time: leases take no real second.
func bubble(t *testing.T, f func(t *testing.T, client *fake.Clientset)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newClient(t)) })
}

func TestConfigMap(t *testing.T) {
	bubble(t, func(t *testing.T, client *fake.Clientset) {
		c := store(client, "run-1")
		unlock := mustLock(t, c)
		if d := cmp.Diff(audit.NewState(), mustLoad(t, c)); d != "" {
			t.Errorf("nothing stored is not the empty state: %s", d)
		}
		mustSave(t, c, audit.NewState())
		mustSave(t, c, sample())
		unlock()
		unlock()

		if !strings.Contains(stored(t, client).Data[plainKey], `"key": "NET-7"`) {
			t.Error("not for people")
		}
		next := store(client, "run-2")
		began := time.Now()
		defer mustLock(t, next)()
		if took := time.Since(began); took != 0 {
			t.Errorf("waited %s for a Lease that was given back", took)
		}
		if d := cmp.Diff(sample(), mustLoad(t, next)); d != "" {
			t.Error(d)
		}
	})
}

func TestConfigMapOutlivesItsLeaseDuration(t *testing.T) {
	bubble(t, func(t *testing.T, client *fake.Clientset) {
		c := store(client, "run-1")
		ctx, cancel := context.WithCancel(t.Context())
		unlock, err := c.Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer unlock()
		cancel() // the run was stopped; it still has to write what it did
		time.Sleep(20 * DefaultLeaseDuration)
		mustSave(t, c, sample())
	})
}

func TestConfigMapMadeByHandMayBeEmpty(t *testing.T) {
	bubble(t, func(t *testing.T, client *fake.Clientset) {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "ipamaudit-state", Labels: map[string]string{"team": "net"}}}
		if _, err := client.CoreV1().ConfigMaps("audit").Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		c := store(client, "run-1")
		defer mustLock(t, c)()
		mustSave(t, c, sample()) // without Load before
		if stored(t, client).Labels["team"] != "net" {
			t.Error("a label of somebody else's is lost")
		}
	})
}

func TestConfigMapThatCannotBeReadIsNeverOverwritten(t *testing.T) {
	contents := map[string]corev1.ConfigMap{
		"later":     {Data: map[string]string{plainKey: future}},
		"not gzip":  {BinaryData: map[string][]byte{gzipKey: []byte("{}")}},
		"two forms": {Data: map[string]string{plainKey: "{}"}, BinaryData: map[string][]byte{gzipKey: {}}},
	}
	for name, d := range damaged {
		contents[name] = corev1.ConfigMap{Data: map[string]string{plainKey: d.data}}
	}
	for name, cm := range contents {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, client *fake.Clientset) {
				cm.Name = "ipamaudit-state"
				if _, err := client.CoreV1().ConfigMaps("audit").Create(t.Context(), &cm, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				before := stored(t, client)
				c := store(client, "run-1")
				defer mustLock(t, c)()
				if _, err := c.Load(t.Context()); err == nil || !strings.Contains(err.Error(), "kubectl -n audit get configmap ipamaudit-state") {
					t.Errorf("Load: %v, want an error that says how to keep a copy", err)
				}
				if err := c.Save(t.Context(), sample()); err == nil {
					t.Error("Save went through")
				}
				if d := cmp.Diff(before, stored(t, client)); d != "" {
					t.Errorf("it was changed: %s", d)
				}
			})
		})
	}
}

func TestConfigMapConflicts(t *testing.T) {
	change := func(t *testing.T, client *fake.Clientset, f func(*corev1.ConfigMap)) {
		t.Helper()
		cm := stored(t, client).DeepCopy()
		f(cm)
		if _, err := client.CoreV1().ConfigMaps("audit").Update(t.Context(), cm, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	bubble(t, func(t *testing.T, client *fake.Clientset) {
		c := store(client, "run-1")
		defer mustLock(t, c)()
		mustSave(t, c, audit.NewState())

		change(t, client, func(cm *corev1.ConfigMap) { cm.Labels["team"] = "net" })
		mustSave(t, c, sample())
		if cm := stored(t, client); cm.Labels["team"] != "net" || !strings.Contains(cm.Data[plainKey], "NET-7") {
			t.Errorf("a label in between: %+v", cm)
		}

		change(t, client, func(cm *corev1.ConfigMap) { cm.Data[plainKey] = `{"schema": "ipamaudit/state/v1", "runId": "theirs"}` })
		if err := c.Save(t.Context(), sample()); !errors.Is(err, audit.ErrLostLock) {
			t.Errorf("data in between: %v, want ErrLostLock", err)
		}
		if !strings.Contains(stored(t, client).Data[plainKey], "theirs") {
			t.Error("their data was overwritten")
		}
	})
}

func TestConfigMapCreatedMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T, client *fake.Clientset) {
		c := store(client, "run-1")
		defer mustLock(t, c)()
		mustLoad(t, c)
		theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "ipamaudit-state"}, Data: map[string]string{plainKey: "theirs"}}
		if _, err := client.CoreV1().ConfigMaps("audit").Create(t.Context(), theirs, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := c.Save(t.Context(), sample()); !errors.Is(err, audit.ErrLostLock) {
			t.Errorf("Save: %v, want ErrLostLock", err)
		}
	})
}

// large is a state whose JSON has about n KiB, the given part of it random.
func large(n int, randomPart float64) *audit.State {
	s := audit.NewState()
	random := rand.New(rand.NewPCG(1, 2))
	for i := range n {
		title := make([]byte, 512)
		for j := range title {
			title[j] = 'a'
			if float64(j) < randomPart*float64(len(title)) {
				title[j] = byte('!' + random.IntN(90))
			}
		}
		s.Tickets[strconv.Itoa(i)] = &audit.TicketState{Cluster: string(title), Check: "c", URL: strings.Repeat("u", 400)}
	}
	return s
}

func TestConfigMapSizes(t *testing.T) {
	bubble(t, func(t *testing.T, client *fake.Clientset) {
		var warnings []string
		c := NewConfigMap(client, "audit", "ipamaudit-state", ConfigMapOptions{Holder: "run-1", Warn: func(s string) { warnings = append(warnings, s) }})
		defer mustLock(t, c)()

		mustSave(t, c, large(500, 0))
		if cm := stored(t, client); len(cm.BinaryData) != 0 || len(warnings) != 0 {
			t.Errorf("a small state is compressed or warned of: %q", warnings)
		}
		mustSave(t, c, large(1500, 0))
		mustSave(t, c, large(1500, 0))
		if cm := stored(t, client); len(cm.Data) != 0 || len(cm.BinaryData[gzipKey]) == 0 || len(warnings) != 1 {
			t.Errorf("a large state is not compressed, or not warned of once: %q", warnings)
		}
		if d := cmp.Diff(large(1500, 0), mustLoad(t, store(client, "reader"))); d != "" {
			t.Error(d)
		}
		mustSave(t, c, large(2100, 1))
		if len(warnings) != 2 || !strings.Contains(warnings[1], "beyond that it cannot be saved") {
			t.Errorf("near the limit: %q", warnings)
		}
		before := stored(t, client)
		err := c.Save(t.Context(), large(4000, 1))
		if err == nil || !strings.Contains(err.Error(), "more than a ConfigMap may hold (1024 KiB)") || !strings.Contains(err.Error(), "state.file") {
			t.Errorf("beyond the limit: %v", err)
		}
		if d := cmp.Diff(before, stored(t, client)); d != "" {
			t.Error("the state of before is lost")
		}
		mustSave(t, c, sample())
		if cm := stored(t, client); len(cm.BinaryData) != 0 || len(cm.Data) != 1 {
			t.Error("a state that shrank is not plain again")
		}
	})
}

func TestLeaseOfALivingRun(t *testing.T) {
	bubble(t, func(t *testing.T, client *fake.Clientset) {
		defer mustLock(t, store(client, "run-1"))()
		began := time.Now()
		_, err := store(client, "run-2").Lock(t.Context())
		if !errors.Is(err, audit.ErrLocked) || !strings.Contains(err.Error(), "run-1 since ") {
			t.Errorf("Lock: %v, want ErrLocked by run-1", err)
		}
		if took := time.Since(began); took > DefaultLeaseDuration/2 {
			t.Errorf("took %s to see that the holder lives", took)
		}
	})
}

func TestLeaseOfADeadRunIsTakenOver(t *testing.T) {
	bubble(t, func(t *testing.T, client *fake.Clientset) {
		client.PrependReactor("update", "leases", refuseFrom("run-1"))
		dead := store(client, "run-1")
		bury := mustLock(t, dead)
		began := time.Now()
		c := store(client, "run-2")
		unlock := mustLock(t, c)
		if took := time.Since(began); took < DefaultLeaseDuration || took > 2*DefaultLeaseDuration {
			t.Errorf("took over after %s, want about %s", took, DefaultLeaseDuration)
		}
		mustSave(t, c, sample())

		// The one that was thought dead comes back and must not write.
		if err := dead.Save(t.Context(), audit.NewState()); !errors.Is(err, audit.ErrLostLock) {
			t.Errorf("the stale holder's Save: %v, want ErrLostLock", err)
		}
		bury()
		// Nor may it give back what is no longer its own.
		mustSave(t, c, sample())
		unlock()
	})
}

// refuseFrom fails every update of a Lease by holder, as a broken network does.
func refuseFrom(holder string) clienttesting.ReactionFunc {
	return func(action clienttesting.Action) (bool, runtime.Object, error) {
		l, ok := action.(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease)
		if ok && holderOf(l) == holder {
			return true, nil, errors.New("connection refused")
		}
		return false, nil, nil
	}
}

func TestLeaseForgottenLongAgoIsTakenAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, client *fake.Clientset) {
		client.PrependReactor("update", "leases", refuseFrom("run-1"))
		bury := mustLock(t, store(client, "run-1"))
		time.Sleep(24 * time.Hour)
		began := time.Now()
		defer mustLock(t, store(client, "run-2"))()
		if took := time.Since(began); took != 0 {
			t.Errorf("waited %s for a Lease of yesterday", took)
		}
		bury()
	})
}

func TestLeaseTakenBehindOurBack(t *testing.T) {
	bubble(t, func(t *testing.T, client *fake.Clientset) {
		c := store(client, "run-1")
		unlock := mustLock(t, c)
		mustSave(t, c, audit.NewState())
		l, err := client.CoordinationV1().Leases("audit").Get(t.Context(), "ipamaudit-state", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		l.Spec.HolderIdentity = new("run-2")
		if _, err := client.CoordinationV1().Leases("audit").Update(t.Context(), l, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		// Before any renewal has noticed: Save asks.
		if err := c.Save(t.Context(), sample()); !errors.Is(err, audit.ErrLostLock) || !strings.Contains(err.Error(), `held by "run-2" now`) {
			t.Errorf("Save: %v, want ErrLostLock", err)
		}
		time.Sleep(DefaultLeaseDuration)
		unlock()
		l, err = client.CoordinationV1().Leases("audit").Get(t.Context(), "ipamaudit-state", metav1.GetOptions{})
		if err != nil || holderOf(l) != "run-2" {
			t.Errorf("the Lease of run-2 is now held by %q (%v)", holderOf(l), err)
		}
	})
}

func TestLeaseDeleted(t *testing.T) {
	bubble(t, func(t *testing.T, client *fake.Clientset) {
		c := store(client, "run-1")
		defer mustLock(t, c)()
		if err := client.CoordinationV1().Leases("audit").Delete(t.Context(), "ipamaudit-state", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := c.Save(t.Context(), sample()); !errors.Is(err, audit.ErrLostLock) {
			t.Errorf("Save: %v, want ErrLostLock", err)
		}
	})
}

func TestLeaseSurvivesALabelAndAHiccup(t *testing.T) {
	bubble(t, func(t *testing.T, client *fake.Clientset) {
		var failures atomic.Int32
		client.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			if failures.Add(-1) >= 0 {
				return true, nil, apierrors.NewServiceUnavailable("restarting")
			}
			return false, nil, nil
		})
		c := store(client, "run-1")
		defer mustLock(t, c)()
		l, err := client.CoordinationV1().Leases("audit").Get(t.Context(), "ipamaudit-state", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		l.Labels["team"] = "net"
		if _, err := client.CoordinationV1().Leases("audit").Update(t.Context(), l, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		failures.Store(2)
		time.Sleep(10 * DefaultLeaseDuration)
		mustSave(t, c, sample())
	})
}

func TestConfigMapNeedsItsLock(t *testing.T) {
	bubble(t, func(t *testing.T, client *fake.Clientset) {
		c := store(client, "run-1")
		if err := c.Save(t.Context(), sample()); !errors.Is(err, errNotLocked) {
			t.Errorf("Save: %v", err)
		}
		unlock := mustLock(t, c)
		if _, err := c.Lock(t.Context()); !errors.Is(err, audit.ErrLocked) {
			t.Errorf("a second Lock: %v, want ErrLocked", err)
		}
		unlock()
		if err := c.Save(t.Context(), sample()); !errors.Is(err, errNotLocked) {
			t.Errorf("Save after unlock: %v", err)
		}
	})
}

func TestForbiddenSaysWhatIsMissing(t *testing.T) {
	bubble(t, func(t *testing.T, client *fake.Clientset) {
		client.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: a.GetResource().Resource}, "x", errors.New("no rule"))
		})
		c := store(client, "run-1")
		_, loadErr := c.Load(t.Context())
		_, lockErr := c.Lock(t.Context())
		for _, err := range []error{loadErr, lockErr} {
			if err == nil || !strings.Contains(err.Error(), "Role must allow get, create and update") {
				t.Errorf("error %v", err)
			}
		}
	})
}
