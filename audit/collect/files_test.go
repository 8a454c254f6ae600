package collect

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ipamaudit/ipam"
)

const onePool = `{"apiVersion":"crd.projectcalico.org/v1","kind":"IPPool","metadata":{"name":"p","creationTimestamp":"2026-01-02T03:04:05Z"},"spec":{"cidr":"10.0.0.0/16"}}`

const yamlPods = `apiVersion: v1
items:
- apiVersion: v1
  kind: Pod
  metadata:
    name: a
    namespace: s
    annotations:
      note: |
        items:
        - not an item
        --- not a document
  spec: {nodeName: n1}
- apiVersion: v1
  kind: Secret
  metadata: {name: x}
  data: {p: [unbalanced}
- apiVersion: v1
  kind: Pod
  metadata:
    name: b
    namespace: s
  status: {phase: "Running
- apiVersion: v1
  kind: Pod
  metadata:
    name: c
    namespace: s
kind: List
metadata:
  resourceVersion: ""
`

func podNames(s *ipam.Snapshot) string {
	var names []string
	for _, p := range s.Pods {
		names = append(names, p.Name)
	}
	return strings.Join(names, " ")
}

// TestShapes: what kubectl, jq and people make of objects.
func TestShapes(t *testing.T) {
	pod := func(name string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"s"}}`, name)
	}
	bare := func(name string) string { return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"s"}}`, name) }
	for _, tc := range []struct{ name, in, want string }{
		{"one object", pod("a"), "a"},
		{"one after the other", pod("a") + "\n" + pod("b"), "a b"},
		{"kubectl -o json", `{"apiVersion":"v1","items":[` + pod("a") + `,` + pod("b") + `],"kind":"List","metadata":{"resourceVersion":""}}`, "a b"},
		{"kubectl --raw", `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[` + bare("a") + `,` + bare("b") + `]}`, "a b"},
		{"--raw with sorted keys", `{"apiVersion":"v1","items":[` + bare("a") + `,` + bare("b") + `],"kind":"PodList"}`, "a b"},
		{"lists in a list", `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"PodList","items":[` + bare("a") + `]},{"apiVersion":"v1","items":[` + pod("b") + `],"kind":"List"}]}`, "a b"},
		{"an array", `[` + pod("a") + `,` + pod("b") + `]`, "a b"},
		{"items of other types", `{"apiVersion":"v1","kind":"List","items":[1,"x",null,[{}],` + pod("a") + `]}`, "a"},
		{"brackets and quotes in strings", `{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"x":"}]\\\"{[\\"},"name":"a","namespace":"s"}}` + pod("b"), "a b"},
		{"byte order mark", "\ufeff" + pod("a"), "a"},
		{"yaml list", yamlPods, "a c"},
		{"yaml list of CRLF", strings.ReplaceAll(yamlPods, "\n", "\r\n"), "a c"},
		{"yaml list, indented", "apiVersion: v1\nkind: List\nitems:\n  - apiVersion: v1\n    kind: Pod\n    metadata: {name: a, namespace: s}\n\n  # comment\n  - kind: Pod\n    apiVersion: v1\n    metadata:\n      name: b\n      namespace: s\n", "a b"},
		{"yaml list, dash alone", "items:\n-\n  apiVersion: v1\n  kind: Pod\n  metadata: {name: a, namespace: s}\n- {apiVersion: v1, kind: Pod, metadata: {name: b, namespace: s}}\nkind: List\napiVersion: v1\n", "a b"},
		{"yaml documents", "%YAML 1.1\n---\n# first\napiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: s}\n---\n---\n--- # second\nkind: \"Pod\"\napiVersion: 'v1'\nmetadata: {name: b, namespace: s}\n...\n--- {apiVersion: v1, kind: Pod, metadata: {name: c, namespace: s}}\n", "a b c"},
		{"yaml list inline", "apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: s}}]\n", "a"},
		{"yaml list in a list", "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: List\n  items:\n  - apiVersion: v1\n    kind: Pod\n    metadata: {name: a, namespace: s}\n", "a"},
		{"yaml aliases", "apiVersion: v1\nkind: Pod\nmetadata: {name: &n a, namespace: *n}\n", "a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := podNames(read(t, tc.in)); got != tc.want {
				t.Errorf("pods %q, want %q", got, tc.want)
			}
		})
	}
}

func TestYAMLKeepsNumbersAndTexts(t *testing.T) {
	raw, err := yamlToJSON([]byte("a: 1796023705639847903\nb: 18446744073709551615\nc: 2026-11-30 07:44:32.9 +0000 UTC\nd: 2026-11-30\ne: \"no\"\nf: no\ng: 1.5\nh: ~\ni: 0x10\nj: true\nk: !!binary aGk=\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"a":1796023705639847903,"b":18446744073709551615,"c":"2026-11-30 07:44:32.9 +0000 UTC","d":"2026-11-30","e":"no","f":"no","g":1.5,"h":null,"i":16,"j":true,"k":"hi"}`
	if string(raw) != want {
		t.Errorf("got  %s\nwant %s", raw, want)
	}
}

// TestBrokenYAMLItem: the broken item is named, its neighbours live.
func TestBrokenYAMLItem(t *testing.T) {
	s := read(t, yamlPods)
	if len(s.Rejected) != 1 || !strings.HasPrefix(s.Rejected[0].Error(), "stdin, document 1, item 3 (line 18): Pod: invalid YAML") {
		t.Errorf("rejected %v", s.Rejected)
	}
	if c := s.Coverage.Get(ipam.ResPods); c.Status != ipam.Read || c.Items != 3 || c.Detail != "1 of 3 objects could not be used" {
		t.Errorf("%+v", c)
	}
	if s.Ignored != 1 {
		t.Errorf("ignored %d", s.Ignored)
	}
}

func TestEmptyLists(t *testing.T) {
	s, err := readDir(t, map[string]string{
		"a.json":                                 `{"apiVersion":"crd.projectcalico.org/v1","kind":"IPAMBlockList","metadata":{"continue":""},"items":[]}`,
		"b.json":                                 `{"kind":"PodList","apiVersion":"v1","items":null}`,
		"blockaffinities.yaml":                   "apiVersion: v1\nitems: []\nkind: List\nmetadata:\n  resourceVersion: \"\"\n",
		"ipamhandles.crd.projectcalico.org.json": `{"apiVersion":"v1","items":[],"kind":"List"}`,
		"sub/ipamconfigurations.yaml":            "apiVersion: v1\nitems: []\nkind: List\n",
		"ippools.empty.json":                     `{"apiVersion":"v1","items":[],"kind":"List"}`,
		"whatever.json":                          `{"apiVersion":"v1","items":[],"kind":"List"}`,
		"nodes.yaml":                             "kind: List\nitems:\napiVersion: v1\n",
		"nodes.projectcalico.org.json":           `{"apiVersion":"v1","items":[],"kind":"List"}`,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []ipam.Resource{ipam.ResBlocks, ipam.ResPods, ipam.ResAffinities, ipam.ResHandles, ipam.ResIPAMConfig, ipam.ResPools, ipam.ResNodes, ipam.ResCalicoNodes} {
		if c := s.Coverage.Get(r); c.Status != ipam.Read || c.Items != 0 {
			t.Errorf("%+v", c)
		}
	}
	if c := s.Coverage.Get(ipam.ResBGPPeers); c.Status != ipam.Missing || !c.Assumed {
		t.Errorf("%+v", c)
	}
	if s.API != ipam.APIv1 {
		t.Errorf("api %q", s.API)
	}
}

func TestFilesThatHoldSomethingElse(t *testing.T) {
	s, err := readDir(t, map[string]string{
		"nodes.json":       `{"apiVersion":"v1","kind":"NodeList","items":[]}`,
		"pods.yaml":        `Error from server (Forbidden): pods is forbidden: User "u" cannot list resource "pods"` + "\n",
		"ipamblocks.yaml":  "",
		"ipamhandles.json": "error: the server doesn't have a resource type\n",
		"README.md":        "hello",
		".hidden.json":     "{",
		"widgets.json":     `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"}}`,
	})
	if err != nil {
		t.Fatal(err)
	}
	for r, want := range map[ipam.Resource]ipam.ReadStatus{ipam.ResPods: ipam.Forbidden, ipam.ResBlocks: ipam.Failed, ipam.ResHandles: ipam.Failed, ipam.ResNodes: ipam.Read} {
		if c := s.Coverage.Get(r); c.Status != want {
			t.Errorf("%+v, want %s", c, want)
		}
	}
}

// TestBrokenFiles: the file and what is wrong with it are named, its kind has
// failed, and what other files hold is there.
func TestBrokenFiles(t *testing.T) {
	pods := `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"s"}},`
	for _, tc := range []struct{ name, file, text, want string }{
		{"cut list", "x.json", pods, "x.json: it ends in the middle"},
		{"cut object", "x.json", pods + `{"apiVersion":"v1","kind":"Pod","meta`, "x.json: it ends in the middle"},
		{"cut raw list", "pods.json", `{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"a"`, "pods.json: it ends in the middle"},
		{"no JSON", "pods.json", "{]", `pods.json: unexpected ']' where a key should be`},
		{"cut yaml", "pods.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: a, names", "pods.yaml, document 1 (line 1): Pod: invalid YAML"},
		{"yaml around the items", "pods.yaml", "apiVersion: v1\nkind: List\nitems:\n  - apiVersion: v1\n    kind: Pod\n    metadata: {name: a, namespace: s}\n - x\n", "pods.yaml: document 1: what stands around the list's items: lines that belong"},
		{"UTF-16", "pods.yaml", "\xff\xfea\x00p\x00i\x00", "pods.yaml: is not UTF-8"},
		{"latin 1", "pods.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: \"f\xfcr\"}\n", "pods.yaml, document 1 (line 1): Pod: invalid YAML"},
		{"bomb", "pods.yaml", bomb(), "pods.yaml, document 1 (line 1): Pod: its aliases expand to too much"},
		{"deep", "pods.yaml", strings.Repeat("[", 20000), "pods.yaml, document 1 (line 1): invalid YAML"},
		{"nested lists", "pods.json", strings.Repeat(`{"kind":"List","apiVersion":"v1","items":[`, 50), "pods.json: lists are nested too deeply"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s, err := readDir(t, map[string]string{tc.file: tc.text, "ippools.json": onePool})
			if err != nil {
				t.Fatal(err)
			}
			if len(s.Rejected) != 1 || !strings.HasPrefix(s.Rejected[0].Error(), tc.want) {
				t.Errorf("rejected %v, want %s", s.Rejected, tc.want)
			}
			if c := s.Coverage.Get(ipam.ResPods); c.Status != ipam.Failed || len(s.Pods) > 0 {
				t.Errorf("%+v with %d pods", c, len(s.Pods))
			}
			if len(s.Pools) != 1 {
				t.Error("the pool is lost")
			}
			// Nothing else: an error.
			_, err = readDir(t, map[string]string{tc.file: tc.text})
			if !errors.Is(err, ErrBadInput) || !strings.Contains(err.Error(), tc.file) {
				t.Errorf("alone: %v", err)
			}
		})
	}
}

func bomb() string {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: Pod\na: &a [x,x,x,x,x,x,x,x,x,x]\n")
	for c := 'b'; c < 'k'; c++ {
		fmt.Fprintf(&b, "%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 10), ","))
	}
	return b.String()
}

func TestNoInput(t *testing.T) {
	empty := t.TempDir()
	foreign := t.TempDir()
	writeFile(t, foreign, "x.json", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"}}`)
	writeFile(t, foreign, "y.txt", "hello")
	blank := t.TempDir()
	writeFile(t, blank, "pods.yaml", "\n")
	for name, tc := range map[string]struct {
		path string
		want error
		text string
	}{
		"empty":    {empty, ErrNoInput, "is empty"},
		"foreign":  {foreign, ErrNoInput, "no object that the audit knows"},
		"blank":    {blank, ErrNoInput, ""},
		"missing":  {filepath.Join(empty, "none"), ErrBadInput, "no such file"},
		"nonsense": {"\x00", ErrBadInput, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewFiles(tc.path, Options{}).Collect(context.Background())
			if !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("%v", err)
			}
		})
	}
	for _, r := range []io.Reader{nil, strings.NewReader(""), strings.NewReader("hello\n")} {
		if _, err := NewFiles("-", Options{Stdin: r}).Collect(context.Background()); !errors.Is(err, ErrNoInput) {
			t.Errorf("stdin: %v", err)
		}
	}
}

func TestUnreadable(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "ippools.json", onePool)
	writeFile(t, dir, "pods.json", "{}")
	if err := os.Chmod(filepath.Join(dir, "pods.json"), 0); err != nil {
		t.Fatal(err)
	}
	if f, err := os.Open(filepath.Join(dir, "pods.json")); err == nil {
		f.Close()
		t.Skip("this user may read everything")
	}
	s, err := FromPath(context.Background(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if c := s.Coverage.Get(ipam.ResPods); c.Status != ipam.Failed || !strings.Contains(c.Detail, "permission denied") {
		t.Errorf("%+v", c)
	}
}

func TestLinksStayInside(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	writeFile(t, outside, "pods.json", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"outside","namespace":"s"}}`)
	writeFile(t, dir, "..data/ippools.json", onePool)
	for name, target := range map[string]string{"pods.json": filepath.Join(outside, "pods.json"), "dir": outside, "loop": ".", "ippools.json": "..data/ippools.json", "gone.json": "nowhere"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Skip(err)
		}
	}
	s, err := FromPath(context.Background(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Pods) > 0 || len(s.Pools) != 1 || s.Coverage.Read(ipam.ResPods) {
		t.Errorf("pods %v, pools %v", s.Pods, s.Pools)
	}
}

func tarball(t *testing.T, entries ...*tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, h := range entries {
		text := h.Linkname
		if h.Typeflag == 0 || h.Typeflag == tar.TypeReg {
			h.Typeflag, h.Size, h.Linkname, h.Mode = tar.TypeReg, int64(len(text)), "", 0o644
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := io.WriteString(w, text); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestArchives(t *testing.T) {
	pod := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"s"}}`
	// The text of a regular entry travels in Linkname.
	data := tarball(t,
		&tar.Header{Name: "snap/", Typeflag: tar.TypeDir, Mode: 0o755},
		&tar.Header{Name: "./snap/ippools.json", Linkname: onePool},
		&tar.Header{Name: "snap/routes/n1.txt", Linkname: "blackhole 10.0.0.0/26"},
		&tar.Header{Name: "../pods.json", Linkname: pod},
		&tar.Header{Name: "/etc/pods.json", Linkname: pod},
		&tar.Header{Name: "snap/._pods.json", Linkname: pod},
		&tar.Header{Name: "snap/pods.json", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
		&tar.Header{Name: "snap/big.bin", Linkname: strings.Repeat("x", 1<<20)},
	)
	dir := t.TempDir()
	file := filepath.Join(dir, "prod-eu.tar.gz")
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := FromPath(context.Background(), file, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Pods) > 0 || len(s.Pools) != 1 || len(s.Tables) != 1 || s.Cluster.Name != "prod-eu" || s.Ignored != 5 {
		t.Errorf("pods %v pools %d tables %d name %q ignored %d", s.Pods, len(s.Pools), len(s.Tables), s.Cluster.Name, s.Ignored)
	}
	for _, n := range []int{0, 5, len(data) / 2, len(data) - 6} {
		cut := filepath.Join(dir, fmt.Sprintf("cut%d.tgz", n))
		if err := os.WriteFile(cut, data[:n], 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := FromPath(context.Background(), cut, Options{})
		if !errors.Is(err, ErrBadInput) || !strings.Contains(err.Error(), "truncated") {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
	broken := bytes.Clone(data)
	broken[len(broken)/2] ^= 0xff
	if err := os.WriteFile(filepath.Join(dir, "b.tgz"), broken, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := FromPath(context.Background(), filepath.Join(dir, "b.tgz"), Options{}); !errors.Is(err, ErrBadInput) {
		t.Errorf("broken: %v", err)
	}
}

func TestManifest(t *testing.T) {
	const head = `{"schema":"ipamaudit/snapshot/v1","time":"2026-12-02T06:00:00Z","cluster":{"name":"prod","id":"the-id"},"resources":[`
	files := map[string]string{
		"pods.json":    `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"s"}}`,
		"ippools.json": onePool,
		"snapshot.json": head + `{"resource":"pods","status":"forbidden","detail":"no"},{"resource":"IPAMBlocks.crd.projectcalico.org","status":"absent"},
		 {"resource":"nodes","status":"read"},{"resource":"ippools","status":"read"},{"resource":"services","status":"missing"},{"resource":"widgets","status":"read"}]}`,
	}
	s, err := readDir(t, files)
	if err != nil {
		t.Fatal(err)
	}
	for r, want := range map[ipam.Resource]ipam.ReadStatus{ipam.ResPods: ipam.Forbidden, ipam.ResBlocks: ipam.Absent, ipam.ResNodes: ipam.Failed, ipam.ResPools: ipam.Read, ipam.ResServices: ipam.Missing} {
		if c := s.Coverage.Get(r); c.Status != want {
			t.Errorf("%+v, want %s", c, want)
		}
	}
	if len(s.Pods) > 0 {
		t.Error("pods of a forbidden resource count")
	}
	if s.Cluster.ID != "the-id" || s.Cluster.Name != "test" || !s.AsOf.Equal(time.Date(2026, 12, 2, 6, 0, 0, 0, time.UTC)) || s.AsOfInferred {
		t.Errorf("%+v %v", s.Cluster, s.AsOf)
	}
	for name, text := range map[string]string{
		"newer schema":  `{"schema":"ipamaudit/snapshot/v2"}`,
		"no schema":     `{}`,
		"status":        head + `{"resource":"pods","status":"maybe"}]}`,
		"time":          `{"schema":"ipamaudit/snapshot/v1","time":"yesterday"}`,
		"no JSON":       `{`,
		"second one":    "",
		"another shape": `[]`,
	} {
		t.Run(name, func(t *testing.T) {
			f := map[string]string{"snapshot.json": text, "ippools.json": onePool}
			if text == "" {
				f = map[string]string{"a/snapshot.json": head + "]}", "b/snapshot.json": head + "]}", "ippools.json": onePool}
			}
			_, err := readDir(t, f)
			if !errors.Is(err, ErrBadInput) || !strings.Contains(err.Error(), "snapshot.json") {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestAsOfAndName(t *testing.T) {
	want := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	s, err := FromReader(context.Background(), strings.NewReader(onePool), Options{Name: "n", AsOf: want})
	if err != nil || !s.AsOf.Equal(want) || s.AsOfInferred || s.Cluster.Name != "n" || s.Cluster.ID != "n" {
		t.Errorf("%v %v %+v", err, s.AsOf, s.Cluster)
	}
	s = read(t, onePool)
	if !s.AsOf.Equal(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)) || !s.AsOfInferred || s.Cluster.Name != "stdin" {
		t.Errorf("%v %+v", s.AsOf, s.Cluster)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := FromReader(ctx, bytes.NewReader(podList(1000)), Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestHugeForeignFiles: other kinds are passed over without being held.
func TestHugeForeignFiles(t *testing.T) {
	big := strings.Repeat(`x\"{[`, 10<<20/5)
	s := read(t, `{"apiVersion":"v1","kind":"Secret","data":{"a":"`+strings.Repeat(big, 5)+`"}}`+onePool)
	if len(s.Pools) != 1 || s.Ignored != 1 || len(s.Rejected) > 0 {
		t.Errorf("%v", s.Rejected)
	}
	// Where the kind comes last it is too late; still nobody else is lost.
	s = read(t, `{"data":{"a":"`+strings.Repeat(big, 5)+`"},"apiVersion":"v1","kind":"Pod"}`+onePool)
	if len(s.Pools) != 1 || len(s.Rejected) != 1 || !strings.Contains(s.Rejected[0].Error(), "larger than") {
		t.Errorf("%v", s.Rejected)
	}
	s = read(t, "apiVersion: v1\nkind: Secret\ndata:\n  a: "+strings.Repeat("x", 40<<20)+"\n---\n"+onePool+"\n")
	if len(s.Pools) != 1 || s.Ignored != 1 {
		t.Errorf("%v %d", s.Rejected, s.Ignored)
	}
}

func FuzzObjects(f *testing.F) {
	for _, s := range []string{onePool, yamlPods, `{"items":[{"kind":"Pod"},{}],"kind":"PodList","apiVersion":"v1"}`, "[{},[]]", "items:\n- a\n b\n", "--- |\n x\n--- x\n..."} {
		f.Add([]byte(s))
	}
	f.Add([]byte(block(`"cidr":"::/126","allocations":[0,null,9,-1],"unallocated":[1,1,7],"attributes":[{"secondary":{"timestamp":"x"}}]`)))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := FromReader(context.Background(), bytes.NewReader(data), Options{})
		if err != nil {
			if !errors.Is(err, ErrNoInput) && !errors.Is(err, ErrBadInput) {
				t.Fatalf("unclassified error: %v", err)
			}
			return
		}
		for _, b := range s.Blocks {
			for a := range b.Allocations() {
				if a.Attr == nil {
					t.Fatal("nil attributes")
				}
			}
		}
	})
}
