package collect

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"sigs.k8s.io/randfill"
)

// protoKinds are the kinds that are read as protobuf and their wire types.
func protoKinds() map[string]struct {
	kube runtime.Object
	wire func() object
} {
	type kind = struct {
		kube runtime.Object
		wire func() object
	}
	return map[string]kind{
		"Pod":       {&corev1.Pod{}, func() object { return new(podObject) }},
		"Node":      {&corev1.Node{}, func() object { return new(nodeObject) }},
		"Namespace": {&corev1.Namespace{}, func() object { return new(namespaceObject) }},
		"Service":   {&corev1.Service{}, func() object { return new(serviceObject) }},
		"Event":     {&corev1.Event{}, func() object { return new(eventObject) }},
	}
}

// TestProtoIsJSON fills the built-in kinds at random, encodes them both ways
// with Kubernetes' own code, and wants the same out of both. A field without a
// number, or with another's, shows.
func TestProtoIsJSON(t *testing.T) {
	fill := randfill.NewWithSeed(1).NilChance(0.1).NumElements(1, 3).MaxDepth(12).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewQuantity(c.Int63n(1000), resource.DecimalSI)
		},
		func(f *metav1.FieldsV1, _ randfill.Continue) { f.SetRawBytes([]byte("{}")) },
	)
	for name, k := range protoKinds() {
		t.Run(name, func(t *testing.T) {
			for range 200 {
				kube := reflect.New(reflect.TypeOf(k.kube).Elem()).Interface()
				fill.Fill(kube)
				meta := kube.(metav1.Object)
				wanted := mapKeys(reflect.TypeOf(k.wire()).Elem())
				meta.SetAnnotations(wanted)
				meta.SetLabels(wanted)
				if n, ok := kube.(*corev1.Node); ok {
					n.Status.Capacity = corev1.ResourceList{"pods": resource.MustParse("110"), "cpu": resource.MustParse("3500m")}
				}
				text, err := json.Marshal(kube)
				if err != nil {
					t.Fatal(err)
				}
				raw, err := kube.(interface{ Marshal() ([]byte, error) }).Marshal()
				if err != nil {
					t.Fatal(err)
				}
				fromJSON, fromProto := k.wire(), k.wire()
				if err := decodeJSON(text, fromJSON); err != nil {
					t.Fatal(err)
				}
				if err := newProtoDecoder().decode(raw, fromProto); err != nil {
					t.Fatal(err)
				}
				*fromJSON.typ() = typeMeta{}
				if d := cmp.Diff(fromJSON, fromProto, cmp.Exporter(func(reflect.Type) bool { return true }), cmpopts.EquateEmpty(),
					cmp.Transformer("nil", func(p *string) string {
						if p == nil {
							return "nil"
						}
						return "=" + *p
					}), cmp.Comparer(func(a, b stamp) bool { return a.Equal(b.Time) })); d != "" {
					t.Fatalf("(-JSON +protobuf):\n%s", d)
				}
			}
		})
	}
}

// mapKeys are the keys that a wire type wants of its labels and annotations.
func mapKeys(t reflect.Type) map[string]string {
	keys := map[string]string{"another": "value"}
	var walk func(t reflect.Type)
	walk = func(t reflect.Type) {
		for _, f := range reflect.VisibleFields(t) {
			switch {
			case strings.HasSuffix(f.Tag.Get("pb"), ",strings") && f.Type.Kind() == reflect.Struct:
				for i := range f.Type.NumField() {
					key, _, _ := strings.Cut(f.Type.Field(i).Tag.Get("json"), ",")
					keys[key] = "7"
				}
			case f.Type.Kind() == reflect.Struct && f.Type != reflect.TypeFor[stamp]():
				walk(f.Type)
			}
		}
	}
	walk(t)
	return keys
}

// TestProtoNumbers: whoever adds a field to a wire type has to say where
// protobuf has it.
func TestProtoNumbers(t *testing.T) {
	var walk func(path string, typ reflect.Type)
	walk = func(path string, typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || typ == reflect.TypeFor[stamp]() {
			return
		}
		for i := range typ.NumField() {
			f := typ.Field(i)
			pb := f.Tag.Get("pb")
			if !f.Anonymous && pb == "" && f.Name != "APIVersion" && f.Name != "Kind" {
				t.Errorf("%s.%s has no pb tag", path, f.Name)
			}
			if !strings.Contains(pb, ",") {
				walk(path+"."+f.Name, f.Type)
			}
		}
	}
	for name, k := range protoKinds() {
		walk(name, reflect.TypeOf(k.wire()))
	}
}

// protoBody is a list as an API server answers it.
func protoBody(t testing.TB, list runtime.Object) []byte {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	list.GetObjectKind().SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(strings.TrimPrefix(reflect.TypeOf(list).String(), "*v1.")))
	var out bytes.Buffer
	if err := protobuf.NewSerializer(scheme, scheme).Encode(list, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

type listSink struct {
	names  []string
	end    *listEnd
	broke  []error
	failed error
}

func (s *listSink) wants(string, string) bool { return true }
func (s *listSink) object(o Object) {
	w := new(headerObject)
	if err := o.decode(w); err != nil {
		s.failed = err
	}
	s.names = append(s.names, o.APIVersion+" "+o.Kind+" "+nameOf(w.meta()))
}
func (s *listSink) listed(e listEnd)                       { s.end = &e }
func (s *listSink) broken(_ Place, _, _ string, err error) { s.broke = append(s.broke, err) }

func readProto(raw []byte) (*listSink, error) {
	s := &listSink{}
	err := newProtoStream(bufio.NewReaderSize(bytes.NewReader(raw), 16), Place{}, newProtoDecoder(), s).run()
	return s, err
}

func somePods() *corev1.PodList {
	list := &corev1.PodList{ListMeta: metav1.ListMeta{Continue: "next", ResourceVersion: "42"}}
	for _, name := range []string{"a", "b", "c"} {
		list.Items = append(list.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "s", CreationTimestamp: metav1.NewTime(time.Unix(1, 0))}})
	}
	return list
}

func TestProtoStream(t *testing.T) {
	s, err := readProto(protoBody(t, somePods()))
	if err != nil || s.failed != nil {
		t.Fatal(err, s.failed)
	}
	want := &listEnd{APIVersion: "v1", Kind: "PodList", Items: 3, Continue: "next", ResourceVersion: "42"}
	if d := cmp.Diff(want, s.end); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{"v1 Pod s/a", "v1 Pod s/b", "v1 Pod s/c"}, s.names); d != "" {
		t.Error(d)
	}
	if s, err := readProto(protoBody(t, &corev1.PodList{})); err != nil || s.end == nil || s.end.Items != 0 {
		t.Errorf("an empty list: %v %+v", err, s.end)
	}
	if _, err := readProto(protoBody(t, &corev1.Pod{})); !errors.Is(err, errNoList) {
		t.Errorf("a pod: %v", err)
	}
}

// TestProtoStreamCutShort: wherever an answer ends too early, it is an error.
func TestProtoStreamCutShort(t *testing.T) {
	raw := protoBody(t, somePods())
	// The two fields after the list (content encoding and type) are empty.
	for n := len(protoMagic) + 1; n < len(raw)-4; n++ {
		if _, err := readProto(raw[:n]); !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, errNoList) {
			t.Errorf("%d of %d bytes: %v", n, len(raw), err)
		}
	}
}

func FuzzProtoStream(f *testing.F) {
	f.Add(protoBody(f, somePods()))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := readProto(append([]byte(protoMagic), raw...))
		if err == nil && s.end == nil {
			t.Error("neither an end nor an error")
		}
	})
}
