package collect

import (
	"fmt"
	"strings"
	"testing"

	"ipamaudit/ipam"
)

// A page of a list is no list: what is on the other pages would look gone.
func TestPagesOfLists(t *testing.T) {
	page := func(version, cont string, remaining int, pods ...string) string {
		var items []string
		for _, p := range pods {
			items = append(items, fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"s"}}`, p))
		}
		return fmt.Sprintf(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":%q,"continue":%q,"remainingItemCount":%d},"items":[%s]}`,
			version, cont, remaining, strings.Join(items, ","))
	}
	sorted := `{"apiVersion":"v1","items":[{"metadata":{"name":"a","namespace":"s"}}],"kind":"PodList","metadata":{"continue":"x","resourceVersion":"7"}}`
	for _, tc := range []struct {
		name  string
		files map[string]string
		want  ipam.ReadStatus
	}{
		{"the first alone", map[string]string{"x.json": page("7", "x", 1, "a")}, ipam.Failed},
		{"with sorted keys", map[string]string{"x.json": sorted}, ipam.Failed},
		{"in YAML", map[string]string{"x.yaml": "apiVersion: v1\nkind: PodList\nmetadata:\n  continue: x\nitems:\n- metadata: {name: a, namespace: s}\n"}, ipam.Failed},
		{"empty", map[string]string{"x.json": page("7", "x", 1)}, ipam.Failed},
		{"all of them", map[string]string{"x.json": page("7", "x", 2, "a"), "y.json": page("7", "y", 1, "b"), "z.json": page("7", "", 0, "c")}, ipam.Read},
		{"in one file", map[string]string{"x.json": page("7", "x", 1, "a") + "\n" + page("7", "", 0, "b")}, ipam.Read},
		{"the middle is missing", map[string]string{"x.json": page("7", "x", 2, "a"), "z.json": page("7", "", 0, "c")}, ipam.Failed},
		{"the last of another list", map[string]string{"x.json": page("7", "x", 0, "a"), "z.json": page("8", "", 0, "c")}, ipam.Failed},
		{"whole lists of namespaces", map[string]string{"x.json": page("7", "", 0, "a"), "z.json": page("8", "", 0, "c")}, ipam.Read},
		{"the manifest says read", map[string]string{"x.json": page("7", "x", 1, "a"),
			"snapshot.json": `{"schema":"ipamaudit/snapshot/v1","time":"2026-03-01T06:00:00Z","cluster":{"name":"c"},"resources":[{"resource":"pods","status":"read"}]}`}, ipam.Failed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.files["ippools.json"] = onePool
			s, err := readDir(t, tc.files)
			if err != nil {
				t.Fatal(err)
			}
			c := s.Coverage.Get(ipam.ResPods)
			if c.Status != tc.want || (tc.want == ipam.Failed) != (len(s.Pods) == 0) {
				t.Errorf("%+v with %d pods, want %s", c, len(s.Pods), tc.want)
			}
			if tc.want == ipam.Failed && !strings.Contains(c.Detail, "x.") {
				t.Errorf("detail %q does not name the file", c.Detail)
			}
		})
	}
}
