package collect

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"ipamaudit/ipam"
)

// What an agent and the audit agree on: one ConfigMap per node, named as the
// node, in a namespace of the agents' own.
const (
	// AgentNamespace is the namespace of the shipped manifests.
	AgentNamespace = "ipamaudit-agent"
	// AgentLabel and AgentLabelValue mark the ConfigMaps.
	AgentLabel      = "app.kubernetes.io/name"
	AgentLabelValue = "ipamaudit-agent"
	// AgentKey is the key of their binaryData: FormatTable's text in gzip.
	AgentKey = "routes.gz"
	// AgentReadAt is the annotation with the time (RFC 3339) at which the
	// kernel's table was last seen to be what the object says.
	AgentReadAt = "ipamaudit.io/read-at"

	// agentSilent is how long an agent may be silent before its table is none.
	agentSilent = 2 * time.Hour
	// maxTable bounds an unpacked table: what a node writes is not trusted.
	maxTable = 64 << 20
)

// Agent reads the tables that agents have published.
type Agent struct {
	client    kubernetes.Interface
	namespace string
	now       func() time.Time
}

// NewAgent returns a source for the cluster that cfg leads to.
func NewAgent(cfg *rest.Config, namespace string) (*Agent, error) {
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", sourceAgent, shortError(err))
	}
	return &Agent{client, namespace, time.Now}, nil
}

// Name is "agent".
func (*Agent) Name() string { return sourceAgent }

// Tables reads the agents' ConfigMaps, page by page.
func (s *Agent) Tables(ctx context.Context, scope Scope) ([]ipam.RouteTable, error) {
	wanted := map[string]bool{}
	for _, n := range scope.Nodes {
		wanted[n] = true
	}
	var tables []ipam.RouteTable
	var errs []error
	options := metav1.ListOptions{Limit: DefaultPageSize, LabelSelector: AgentLabel + "=" + AgentLabelValue}
	for {
		page, err := s.client.CoreV1().ConfigMaps(s.namespace).List(ctx, options)
		if err != nil {
			return tables, errors.Join(append(errs, fmt.Errorf("list configmaps in namespace %s: %w", s.namespace, shortError(err)))...)
		}
		for i := range page.Items {
			cm := &page.Items[i]
			if !wanted[cm.Name] {
				continue // a node that is gone
			}
			t, err := UnpackTable(cm.Name, cm.BinaryData[AgentKey])
			if err == nil {
				t.AsOf = parseTime(cm.Annotations[AgentReadAt])
				err = s.fresh(t)
			}
			if err != nil {
				errs = append(errs, unreadTable(sourceAgent, cm.Name, "%v", err))
				continue
			}
			t.Source = sourceAgent + ": " + s.namespace + "/" + cm.Name
			tables = append(tables, *t)
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return tables, errors.Join(errs...)
		}
	}
}

func (s *Agent) fresh(t *ipam.RouteTable) error {
	switch age := s.now().Sub(t.AsOf); {
	case t.AsOf.IsZero():
		return fmt.Errorf("the agent's ConfigMap has no annotation %s", AgentReadAt)
	case age > agentSilent:
		return fmt.Errorf("the agent has been silent for %s", age.Round(time.Minute))
	}
	return nil
}

// PackTable prints a table as an agent publishes it. The same table gives the
// same bytes; its age is not in it.
func PackTable(t ipam.RouteTable) ([]byte, error) {
	t.AsOf = time.Time{}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(FormatTable(&t)); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// UnpackTable reads what PackTable wrote.
func UnpackTable(node string, data []byte) (*ipam.RouteTable, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("what the agent published is no gzip: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(z, maxTable+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("what the agent published breaks off: %w", err)
	case len(text) > maxTable:
		return nil, fmt.Errorf("what the agent published is larger than %d MiB", maxTable>>20)
	}
	p, err := ParseRoutes(text)
	if err != nil {
		return nil, err
	}
	if p.Unknown > 0 {
		return nil, fmt.Errorf("line %d of what the agent published was not understood: %s", p.FirstLine, quoteLine(p.First))
	}
	t := p.table(node, sourceAgent)
	t.Kind = ipam.KernelTable
	return &t, nil
}
