package collect

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"ipamaudit/ipam"
)

// told is a source that says what a test tells it to.
type told struct {
	name   string
	tables []ipam.RouteTable
	err    error
}

func (s told) Name() string { return s.name }

func (s told) Tables(context.Context, Scope) ([]ipam.RouteTable, error) { return s.tables, s.err }

func TestBestTableWins(t *testing.T) {
	at := func(minute int) time.Time { return time.Date(2026, 11, 30, 8, minute, 0, 0, time.UTC) }
	table := func(node string, kind ipam.TableKind, source string, minute int) ipam.RouteTable {
		return ipam.RouteTable{Node: node, Kind: kind, Source: source, AsOf: at(minute)}
	}
	s := RouteSources{
		told{"caliconodestatus", []ipam.RouteTable{table("a", ipam.BIRDTable, "caliconodestatus: x", 30), table("b", ipam.BIRDTable, "caliconodestatus: x", 30), table("b", ipam.BIRDTable, "caliconodestatus: y", 29)}, nil},
		told{"agent", []ipam.RouteTable{table("a", ipam.KernelTable, "agent: a", 10), table("c", ipam.KernelTable, "agent: c", 10)}, errors.Join(unreadTable("agent", "d", "silent"))},
		told{"files", []ipam.RouteTable{table("c", ipam.KernelTable, "/tmp/c.txt", 20), table("a", ipam.KernelTable, "/tmp/a.txt", 5)}, errors.New("no such directory")},
	}
	tables, err := s.Tables(t.Context(), Scope{})
	var got []string
	for _, t := range tables {
		got = append(got, fmt.Sprint(t.Node, " ", t.Source))
	}
	if diff := cmp.Diff([]string{"a agent: a", "b caliconodestatus: x", "c /tmp/c.txt"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if name := sourcesOf(s.Name(), tables); name != "agent, caliconodestatus, files" {
		t.Errorf("sources %q", name)
	}
	if name := sourcesOf(s.Name(), nil); name != "caliconodestatus, agent, files" {
		t.Errorf("without tables: %q", name)
	}
	b := NewBuilder()
	b.rejectRoutes("routes", err)
	if len(b.rejected) != 2 || b.rejected[0].Name != "d" || !strings.Contains(b.rejected[1].Error(), "files: no such directory") {
		t.Errorf("rejected %v", b.rejected)
	}
}

func calicoNode(name, node string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kube-system", Labels: map[string]string{"k8s-app": "calico-node"}},
		Spec:       corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase},
	}
}

func TestExec(t *testing.T) {
	const rules = `[{"priority":0,"src":"all","table":"local"},{"priority":32766,"src":"all","table":"main"}]`
	s := &Exec{
		client: fake.NewClientset(calicoNode("cn-a", "a", corev1.PodRunning), calicoNode("cn-b", "b", corev1.PodRunning), calicoNode("cn-c", "c", corev1.PodPending), calicoNode("cn-d", "d", corev1.PodRunning)),
		run: func(_ context.Context, pod *corev1.Pod, command []string) ([]byte, error) {
			switch what := strings.Join(command, " "); {
			case pod.Spec.NodeName == "b":
				return nil, errors.New("executable file not found")
			case what == "ip -j route show table all":
				return []byte(`[{"type":"blackhole","dst":"10.0.0.0/26","protocol":"bird"},{"dst":"10.0.0.4","dev":"cali1"},{"dst":"fd00::4","dev":"cali1"},{"dst":"192.0.2.0/24","dev":"eth0"}]`), nil
			case what == "ip -j -4 rule show" && pod.Spec.NodeName == "d":
				return []byte(strings.Replace(rules, "[", `[{"priority":5,"src":"all","iif":"x","table":"main"},{"priority":6,"src":"all","goto":7},`, 1)), nil
			default:
				return []byte(rules), nil
			}
		},
		concurrency: 2, timeout: time.Second, now: time.Now,
	}
	tables, err := s.Tables(t.Context(), Scope{Nodes: []string{"a", "b", "c", "d", "e"}, Pools: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("fd00::/112")}})
	if len(tables) != 2 || tables[0].Node != "a" || len(tables[0].Routes) != 3 || tables[0].Kind != ipam.KernelTable || tables[0].AsOf.IsZero() {
		t.Errorf("%+v", tables)
	}
	if len(tables) == 2 && (tables[1].Blind4 == "" || tables[1].Blind6 != "" || len(tables[1].Routes) != 1) {
		t.Errorf("node d: %+v", tables[1])
	}
	if err == nil || !strings.Contains(err.Error(), "route table b: executable file not found") || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
}

func TestExecKeepsTheBeginning(t *testing.T) {
	c := &capped{max: 5}
	for _, part := range []string{"abc", "def", "ghi"} {
		if n, err := c.Write([]byte(part)); n != 3 || err != nil {
			t.Error(n, err)
		}
	}
	if c.kept.String() != "abcde" || !c.full {
		t.Errorf("%q %v", c.kept.String(), c.full)
	}
}

func TestAgentTables(t *testing.T) {
	now := time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)
	object := func(name string, age time.Duration, data []byte) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: AgentNamespace, Labels: map[string]string{AgentLabel: AgentLabelValue},
				Annotations: map[string]string{AgentReadAt: now.Add(-age).Format(time.RFC3339)}},
			BinaryData: map[string][]byte{AgentKey: data},
		}
	}
	data, err := PackTable(ipam.RouteTable{Kind: ipam.KernelTable, Routes: []ipam.Route{{Dst: netip.MustParsePrefix("10.0.0.0/26"), Type: ipam.Blackhole}}})
	if err != nil {
		t.Fatal(err)
	}
	ageless := object("ageless", 0, data)
	ageless.Annotations = nil
	s := &Agent{fake.NewClientset(object("a", time.Minute, data), object("silent", 3*time.Hour, data), object("broken", 0, []byte("x")), object("gone", 0, data), ageless,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt", Namespace: AgentNamespace}}), AgentNamespace, func() time.Time { return now }}
	tables, err := s.Tables(t.Context(), Scope{Nodes: []string{"a", "silent", "broken", "ageless", "b"}})
	if len(tables) != 1 || tables[0].Node != "a" || !tables[0].AsOf.Equal(now.Add(-time.Minute)) || tables[0].Source != "agent: ipamaudit-agent/a" {
		t.Errorf("%+v", tables)
	}
	for _, want := range []string{"silent: the agent has been silent for 3h", "broken: what the agent published is no gzip", "ageless: the agent's ConfigMap has no annotation"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}
