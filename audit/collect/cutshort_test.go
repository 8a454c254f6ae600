package collect

import (
	"fmt"
	"strings"
	"testing"

	"ipamaudit/ipam"
)

// TestPageCutShort: wherever a page in JSON ends too early, however properly, it
// is no page. The end may be a list's that is whole in itself.
func TestPageCutShort(t *testing.T) {
	var items []string
	for i := range 3 {
		items = append(items, fmt.Sprintf(`{"apiVersion":%q,"kind":"IPAMHandle","metadata":{"name":"h%d"},"spec":{"handleID":"k8s-pod-network.h%d","block":{"10.0.0.0/26":1}}}`, v1, i, i))
	}
	for name, whole := range map[string]string{
		"custom resources":    `{"apiVersion":"` + v1 + `","items":[` + strings.Join(items, ",") + `],"kind":"IPAMHandleList","metadata":{"continue":"x","resourceVersion":"7"}}`,
		"metadata before":     `{"kind":"IPAMHandleList","apiVersion":"` + v1 + `","metadata":{"continue":"x"},"items":[` + strings.Join(items, ",") + `]}`,
		"with space and a NL": "{ \"kind\": \"IPAMHandleList\", \"apiVersion\": \"" + v1 + "\",\n \"items\": [ " + strings.Join(items, " ,\n ") + " ] }",
	} {
		read := func(text string) (*page, error) {
			p := &page{b: NewBuilder(), t: task{resource: ipam.ResHandles, api: ipam.APIv1}}
			err := p.read(strings.NewReader(text), Place{})
			return p, err
		}
		p, err := read(whole)
		if err != nil || p.err != nil || p.end == nil || len(p.b.handles.values) != 3 {
			t.Fatalf("%s: %v %v %+v", name, err, p.err, p.end)
		}
		for n := range whole {
			if p, err := read(whole[:n]); err == nil && p.err == nil && p.end != nil {
				t.Errorf("%s: %d of %d bytes pass for a page of %d handles", name, n, len(whole), len(p.b.handles.values))
			}
		}
	}
}
