package collect

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// wireTypes are all that fastJSON fills.
func wireTypes() []object {
	return []object{
		new(blockObject), new(affinityObject), new(handleObject), new(poolObject), new(reservationObject), new(ipamConfigObject),
		new(clusterInfoObject), new(bgpConfigObject), new(bgpPeerObject), new(bgpFilterObject), new(felixConfigObject),
		new(kubeControllersObject), new(nodeObject), new(podObject), new(namespaceObject), new(serviceObject), new(workloadObject),
		new(configMapObject), new(eventObject), new(headerObject),
	}
}

// compareFast fails the test where fastJSON succeeds with anything but what the
// library makes of the text.
func compareFast(t *testing.T, raw []byte) (fast int) {
	t.Helper()
	d := newFastJSON()
	for _, w := range wireTypes() {
		if !d.decode(raw, w) {
			continue
		}
		fast++
		want, ok := reflect.New(reflect.TypeOf(w).Elem()).Interface().(object)
		if !ok {
			t.Fatalf("%T is no wire type", w)
		}
		if err := decodeJSON(raw, want); err != nil {
			t.Fatalf("%T: fast, but the library says %v: %s", w, err, raw)
		}
		if diff := cmp.Diff(want, w, cmp.Exporter(func(reflect.Type) bool { return true }), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%T (-library +fast):\n%s\n%s", w, diff, raw)
		}
	}
	return fast
}

func TestFastJSON(t *testing.T) {
	pods := strings.SplitAfterN(string(podList(1)), `"items":[`, 2)[1]
	for name, tc := range map[string]struct {
		raw  string
		fast bool
	}{
		"block":            {`{"metadata":{"name":"b"},"spec":{"cidr":"10.0.0.0/30","affinity":"host:a","allocations":[0,null, 1 ,null],"unallocated":[1,3],"attributes":[{"handle_id":"h","secondary":{"pod":"p","timestamp":"2026-11-30 07:44:32.924055159 +0000 UTC"}},{}],"deleted":"false","more":{"a":[1,{"b":"\"}"}]}}}`, true},
		"handle":           {`{"metadata":{"name":"h"},"spec":{"handleID":"h","block":{"10.0.0.0/30":1,"10.0.0.4/30":2},"deleted":false}}`, true},
		"nulls":            {`{"metadata":{"name":"b","creationTimestamp":null,"labels":null},"spec":null,"status":{}}`, true},
		"pod":              {strings.TrimSuffix(pods, "]}"), true},
		"pointers, spaces": {" {\n\t\"spec\": { \"strictAffinity\" : true , \"autoAllocateBlocks\":false } } \n", true},
		"escaped text":     {`{"metadata":{"name":"a\u0062"}}`, false},
		"a name twice":     {`{"metadata":{"name":"a"},"metadata":{"namespace":"b"}}`, false},
		"wrong type":       {`{"metadata":{"name":1}}`, false},
		"bad skipped":      {`{"metadata":{"name":"a","x":{"y":tru}}}`, false},
		"bad number":       {`{"metadata":{"name":"a","x":01}}`, false},
		"control":          {"{\"metadata\":{\"name\":\"a\n\"}}", false},
		"not UTF-8":        {"{\"metadata\":{\"x\":\"\xff\"}}", false},
		"more behind":      {`{"metadata":{"name":"a"}}x`, false},
		"cut":              {`{"metadata":{"name":"a"}`, false},
		"comma":            {`{"metadata":{"name":"a",}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			if fast := compareFast(t, []byte(tc.raw)); (fast > 0) != tc.fast {
				t.Errorf("%d types decoded fast, want any: %v", fast, tc.fast)
			}
		})
	}
}

// FuzzFastJSON looks for a text that fastJSON takes for something else than the
// library does.
func FuzzFastJSON(f *testing.F) {
	f.Add(blockList(1))
	f.Add([]byte(strings.TrimSuffix(strings.SplitAfterN(string(podList(1)), `"items":[`, 2)[1], "]}")))
	f.Add([]byte(`{"metadata":{"name":"h","creationTimestamp":"2026-11-30T07:44:32Z"},"spec":{"handleID":"h","block":{"10.0.0.0/30":1},"deleted":"true","asNumber":"1.10","allocations":[0,null],"unallocated":[1],"mode":-1e3},"status":{"conditions":[{"type":"Ready"}]}}`))
	f.Fuzz(func(t *testing.T, raw []byte) { compareFast(t, raw) })
}
