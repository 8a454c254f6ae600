package collect

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"ipamaudit/ipam"
)

// apiServer is as much of an API server as a collector sees: discovery, paged
// lists, one get, and whatever a test lets go wrong.
type apiServer struct {
	t      *testing.T
	groups []string
	// newer is a version in which Calico's groups are served instead.
	newer string
	// lists are the items of each path.
	lists map[string][]string
	// fail answers a request itself when it returns true.
	fail func(w http.ResponseWriter, r *http.Request) bool

	mu       sync.Mutex
	requests []string
	srv      *httptest.Server
}

func newAPIServer(t *testing.T) *apiServer {
	s := &apiServer{t: t, groups: []string{"apps", groupV1}, lists: map[string][]string{}}
	for _, r := range []string{"pods", "nodes", "namespaces", "services", "events"} {
		s.lists["/api/v1/"+r] = nil
	}
	s.lists["/apis/apps/v1/deployments"], s.lists["/apis/apps/v1/daemonsets"] = nil, nil
	for _, r := range []string{"ipamblocks", "blockaffinities", "ipamhandles", "ipamconfigs", "ippools", "clusterinformations", "bgpconfigurations", "bgppeers", "felixconfigurations", "kubecontrollersconfigurations"} {
		s.lists["/apis/"+v1+"/"+r] = nil
	}
	for i := range 7 {
		s.lists["/api/v1/pods"] = append(s.lists["/api/v1/pods"], fmt.Sprintf(`{"metadata":{"name":"p%d","namespace":"s"},"status":{"phase":"Running"}}`, i))
	}
	s.lists["/api/v1/namespaces"] = []string{`{"metadata":{"name":"kube-system","uid":"the-uid"}}`, `{"metadata":{"name":"s","uid":"2"}}`}
	s.lists["/apis/"+v1+"/ippools"] = []string{onePool}
	s.srv = httptest.NewServer(s)
	t.Cleanup(s.srv.Close)
	return s
}

func (s *apiServer) seen(part string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.requests {
		if strings.Contains(r, part) {
			n++
		}
	}
	return n
}

func refuse(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":%q,"reason":%q,"code":%d}`, message, reason, code)
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.String())
	s.mu.Unlock()
	if r.Method != http.MethodGet {
		s.t.Errorf("%s %s: a collector only reads", r.Method, r.URL)
	}
	if s.fail != nil && s.fail(w, r) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	p := r.URL.Path
	switch p {
	case "/apis":
		var names []string
		for _, g := range s.groups {
			version := g + "/v1"
			if g == groupV3 {
				version = ipam.APIv3
			}
			if s.newer != "" && g != "apps" {
				version = g + "/" + s.newer
			}
			names = append(names, fmt.Sprintf(`{"name":%q,"versions":[{"groupVersion":%q,"version":"x"}]}`, g, version))
		}
		fmt.Fprintf(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[%s]}`, strings.Join(names, ","))
		return
	case "/apis/" + ipam.APIv1, "/apis/" + ipam.APIv3:
		var names []string
		for list := range s.lists {
			if plural, ok := strings.CutPrefix(list, p+"/"); ok {
				names = append(names, fmt.Sprintf(`{"name":%q}`, plural))
			}
		}
		fmt.Fprintf(w, `{"kind":"APIResourceList","apiVersion":"v1","resources":[%s]}`, strings.Join(names, ","))
		return
	case "/api/v1/namespaces/kube-system":
		fmt.Fprint(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"the-uid"}}`)
		return
	}
	items, ok := s.lists[p]
	if !ok {
		refuse(w, 404, "NotFound", "the server could not find the requested resource")
		return
	}
	if sel := r.URL.Query().Get("labelSelector"); sel != "" {
		var kept []string
		for _, item := range items {
			if strings.Contains(item, `"k8s-app"`) {
				kept = append(kept, item)
			}
		}
		items = kept
	}
	if sel := r.URL.Query().Get("fieldSelector"); sel != "" {
		var kept []string
		for _, item := range items {
			if strings.Contains(item, strings.TrimPrefix(sel, "reason=")) {
				kept = append(kept, item)
			}
		}
		items = kept
	}
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	to, cont := len(items), ""
	if limit > 0 && from+limit < to {
		to, cont = from+limit, strconv.Itoa(from+limit)
	}
	kind := map[string]string{"/api/v1/pods": "PodList"}[p]
	if strings.Contains(p, groupV1) || strings.Contains(p, groupV3) {
		// Custom resources carry their kind, and the metadata comes last.
		fmt.Fprintf(w, `{"apiVersion":%q,"items":[%s],"kind":"AnyList","metadata":{"continue":%q}}`, v1, strings.Join(items[from:to], ","), cont)
		return
	}
	fmt.Fprintf(w, `{"kind":%q,"apiVersion":"v1","metadata":{"continue":%q},"items":[%s]}`, kind, cont, strings.Join(items[from:to], ","))
}

func (s *apiServer) collect(t *testing.T, opts LiveOptions) (*ipam.Snapshot, error) {
	t.Helper()
	opts.Name = "prod"
	if opts.PageSize == 0 {
		opts.PageSize = 3
	}
	opts.Now = func() time.Time { return time.Date(2026, 12, 1, 6, 0, 0, 0, time.UTC) }
	l, err := NewLive(&rest.Config{Host: s.srv.URL, BearerToken: "secret-token", QPS: 1000, Burst: 1000}, opts)
	if err != nil {
		t.Fatal(err)
	}
	l.sleep = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	return l.Collect(t.Context())
}

func TestLive(t *testing.T) {
	srv := newAPIServer(t)
	srv.lists["/api/v1/events"] = []string{
		`{"metadata":{"name":"e1","namespace":"s"},"reason":"FailedCreatePodSandBox","message":"x","involvedObject":{"kind":"Pod","name":"p1","namespace":"s"}}`,
		`{"metadata":{"name":"e2","namespace":"s"},"reason":"FailedKillPod","message":"y","involvedObject":{"kind":"Pod","name":"p1","namespace":"s"}}`,
		`{"metadata":{"name":"e3","namespace":"s"},"reason":"Pulled","message":"z"}`,
	}
	srv.lists["/apis/apps/v1/deployments"] = []string{
		`{"metadata":{"name":"calico-kube-controllers","namespace":"kube-system","labels":{"k8s-app":"calico-kube-controllers"}},"status":{"availableReplicas":1}}`,
		`{"metadata":{"name":"web","namespace":"s"}}`,
	}
	routes := t.TempDir()
	srv.lists["/api/v1/nodes"] = []string{`{"metadata":{"name":"n1"}}`, `{"metadata":{"name":"n2"}}`}
	writeFile(t, routes, "n1.txt", "blackhole 10.0.0.0/26 proto bird")
	writeFile(t, routes, "n2.txt", "")
	dest := filepath.Join(t.TempDir(), "s.tar.gz")
	rec, err := NewRecorder(dest)
	if err != nil {
		t.Fatal(err)
	}
	s, err := srv.collect(t, LiveOptions{Routes: RouteFiles{routes}, Record: rec})
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Pods) != 7 || len(s.Pools) != 1 || len(s.Nodes) != 2 || len(s.Events) != 2 || len(s.Workloads) != 1 || len(s.Namespaces) != 2 {
		t.Errorf("pods %d pools %d nodes %d events %d workloads %d", len(s.Pods), len(s.Pools), len(s.Nodes), len(s.Events), len(s.Workloads))
	}
	if s.Cluster != (ipam.ClusterRef{Name: "prod", ID: "the-uid"}) || s.API != ipam.APIv1 || s.AsOf.Hour() != 6 || s.AsOfInferred {
		t.Errorf("%+v %s %v", s.Cluster, s.API, s.AsOf)
	}
	if n := srv.seen("/pods"); n != 3 {
		t.Errorf("%d pages of pods", n)
	}
	if n := srv.seen("/deployments"); n != 1 {
		t.Errorf("%d lists of deployments: the label is enough", n)
	}
	for r, want := range map[ipam.Resource]ipam.ReadStatus{
		ipam.ResPods: ipam.Read, ipam.ResBlocks: ipam.Read, ipam.ResReservations: ipam.Absent, ipam.ResBGPFilters: ipam.Absent,
		ipam.ResCalicoNodes: ipam.Absent, ipam.ResConfigMaps: ipam.Missing, ipam.ResEvents: ipam.Read,
	} {
		if c := s.Coverage.Get(r); c.Status != want {
			t.Errorf("%+v, want %s", c, want)
		}
	}
	if srv.seen("ipreservations") > 0 || srv.seen("secrets") > 0 || srv.seen("configmaps") > 0 {
		t.Error("asked for what it need not")
	}
	if len(s.Tables) != 1 || s.RouteSource != "files" || len(s.Rejected) != 1 || s.Rejected[0].Name != "n2" {
		t.Errorf("tables %v rejected %v", s.Tables, s.Rejected)
	}
	// The same again from the recording.
	if err := rec.Finish(s, "test"); err != nil {
		t.Fatal(err)
	}
	saved, err := FromPath(t.Context(), dest, Options{})
	if err != nil {
		t.Fatal(err)
	}
	saved.Tables[0].AsOf = s.Tables[0].AsOf
	if d := diffSnapshots(s, saved) + diffCoverage(s, saved); d != "" {
		t.Errorf("recorded (-live +saved):\n%s", d)
	}
}

func TestLiveNativeV3(t *testing.T) {
	srv := newAPIServer(t)
	for p := range srv.lists {
		if plural, ok := strings.CutPrefix(p, "/apis/"+v1+"/"); ok {
			delete(srv.lists, p)
			if plural == "ipamconfigs" {
				plural = "ipamconfigurations"
			}
			srv.lists["/apis/"+ipam.APIv3+"/"+plural] = nil
		}
	}
	srv.lists["/apis/"+ipam.APIv3+"/ippools"] = []string{strings.ReplaceAll(onePool, v1, ipam.APIv3)}
	srv.lists["/apis/"+ipam.APIv3+"/ipamconfigurations"] = []string{`{"apiVersion":"projectcalico.org/v3","kind":"IPAMConfiguration","metadata":{"name":"default"},"spec":{"strictAffinity":true}}`}
	for _, groups := range [][]string{{groupV3}, {groupV3, groupV1}} {
		srv.groups = groups
		s, err := srv.collect(t, LiveOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if s.API != ipam.APIv3 || len(s.Pools) != 1 || !s.Config.StrictAffinity {
			t.Errorf("%v: %s, %d pools, %+v", groups, s.API, len(s.Pools), s.Config)
		}
	}
}

// TestLiveBothGroups: the aggregated v3 API stands beside the v1 data.
func TestLiveBothGroups(t *testing.T) {
	srv := newAPIServer(t)
	srv.groups = append(srv.groups, groupV3)
	srv.lists["/apis/"+ipam.APIv3+"/ippools"] = nil
	srv.lists["/apis/"+ipam.APIv3+"/blockaffinities"] = nil
	s, err := srv.collect(t, LiveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if s.API != ipam.APIv1 || len(s.Pools) != 1 {
		t.Errorf("%s %v", s.API, s.Pools)
	}
	// No Calico at all is an answer, too.
	srv.groups = []string{"apps"}
	s, err = srv.collect(t, LiveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if c := s.Coverage.Get(ipam.ResBlocks); s.API != "" || c.Status != ipam.Absent {
		t.Errorf("%q %+v", s.API, c)
	}
}

// TestLiveUnknownGroups: what Calico's API is like could not be seen. Nothing is
// absent then, and so no cluster without Calico.
func TestLiveUnknownGroups(t *testing.T) {
	for name, prepare := range map[string]func(*apiServer){
		"a version of another time": func(s *apiServer) { s.newer = "v9" },
		"v3 does not answer, and v1 is a leftover without blocks": func(s *apiServer) {
			s.groups = append(s.groups, groupV3)
			delete(s.lists, "/apis/"+v1+"/ipamblocks")
			s.fail = func(w http.ResponseWriter, r *http.Request) bool {
				if strings.HasPrefix(r.URL.Path, "/apis/"+ipam.APIv3) {
					refuse(w, 503, "ServiceUnavailable", "no endpoints")
					return true
				}
				return false
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			srv := newAPIServer(t)
			prepare(srv)
			s, err := srv.collect(t, LiveOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if c := s.Coverage.Get(ipam.ResBlocks); c.Status != ipam.Failed || c.Detail == "" {
				t.Errorf("%+v", c)
			}
		})
	}
	// Beside good data the other group's trouble is not ours.
	srv := newAPIServer(t)
	srv.groups = append(srv.groups, groupV3)
	srv.fail = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, "/apis/"+ipam.APIv3) {
			refuse(w, 503, "ServiceUnavailable", "no endpoints")
			return true
		}
		return false
	}
	s, err := srv.collect(t, LiveOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if b, r := s.Coverage.Get(ipam.ResBlocks), s.Coverage.Get(ipam.ResReservations); b.Status != ipam.Read || r.Status != ipam.Absent {
		t.Errorf("%+v, %+v", b, r)
	}
}

func TestLiveDeploymentsWithoutLabel(t *testing.T) {
	srv := newAPIServer(t)
	srv.lists["/apis/apps/v1/deployments"] = []string{`{"metadata":{"name":"calico-kube-controllers","namespace":"kube-system"}}`}
	s, err := srv.collect(t, LiveOptions{})
	if err != nil || len(s.Workloads) != 1 {
		t.Errorf("%v %v", s, err)
	}
}

// TestLiveFailures: each way a list can fail is told, costs only that
// resource, and never leaves half of it behind.
func TestLiveFailures(t *testing.T) {
	onPods := func(f func(w http.ResponseWriter, r *http.Request, page int)) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != "/api/v1/pods" {
				return false
			}
			page, _ := strconv.Atoi(r.URL.Query().Get("continue"))
			f(w, r, page)
			return true
		}
	}
	const firstPage = `{"kind":"PodList","apiVersion":"v1","metadata":{"continue":"3"},"items":[{"metadata":{"name":"a","namespace":"s"}}`
	for _, tc := range []struct {
		name   string
		fail   func(w http.ResponseWriter, r *http.Request, page int)
		status ipam.ReadStatus
		detail string
	}{
		{"forbidden", func(w http.ResponseWriter, _ *http.Request, _ int) {
			refuse(w, 403, "Forbidden", `pods is forbidden: User "u" cannot list resource "pods"`)
		}, ipam.Forbidden, "cannot list"},
		{"not found", func(w http.ResponseWriter, _ *http.Request, _ int) { refuse(w, 404, "NotFound", "x") }, ipam.Absent, "does not serve"},
		{"internal", func(w http.ResponseWriter, _ *http.Request, _ int) {
			refuse(w, 500, "InternalError", "etcd is\non fire")
		}, ipam.Failed, "etcd is on fire"},
		{"forbidden in the middle", func(w http.ResponseWriter, _ *http.Request, page int) {
			if page > 0 {
				refuse(w, 403, "Forbidden", "no more")
				return
			}
			fmt.Fprint(w, firstPage+"]}")
		}, ipam.Forbidden, "no more"},
		{"connection lost in the middle", func(w http.ResponseWriter, _ *http.Request, page int) {
			fmt.Fprint(w, firstPage)
			if page == 0 {
				fmt.Fprint(w, "]}")
				return
			}
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, ipam.Failed, "page 2 broke off"},
		{"answer cut short", func(w http.ResponseWriter, _ *http.Request, _ int) { fmt.Fprint(w, firstPage) }, ipam.Failed, "page 1 broke off: unexpected EOF"},
		{"empty answer", func(http.ResponseWriter, *http.Request, int) {}, ipam.Failed, "the answer is no list"},
		{"a login page", func(w http.ResponseWriter, _ *http.Request, _ int) { fmt.Fprint(w, "<html>") }, ipam.Failed, "page 1 broke off"},
		{"another list", func(w http.ResponseWriter, _ *http.Request, _ int) {
			fmt.Fprint(w, `{"kind":"NodeList","apiVersion":"v1","items":[{"metadata":{"name":"a"}}]}`)
		}, ipam.Failed, "the list holds a v1 Node"},
		{"endless", func(w http.ResponseWriter, _ *http.Request, _ int) { fmt.Fprint(w, firstPage+"]}") }, ipam.Failed, "same continue token"},
		{"expired twice", func(w http.ResponseWriter, _ *http.Request, page int) {
			if page > 0 {
				refuse(w, 410, "Expired", "the provided continue parameter is too old")
				return
			}
			fmt.Fprint(w, firstPage+"]}")
		}, ipam.Failed, "too old"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			srv := newAPIServer(t)
			srv.fail = onPods(tc.fail)
			dest := filepath.Join(t.TempDir(), "snap")
			rec, err := NewRecorder(dest)
			if err != nil {
				t.Fatal(err)
			}
			s, err := srv.collect(t, LiveOptions{Record: rec})
			if err != nil {
				t.Fatal(err)
			}
			if c := s.Coverage.Get(ipam.ResPods); c.Status != tc.status || !strings.Contains(c.Detail, tc.detail) {
				t.Errorf("%+v, want %s %q", c, tc.status, tc.detail)
			}
			if len(s.Pods) > 0 {
				t.Errorf("%d pods of a list that was not read whole", len(s.Pods))
			}
			if len(s.Pools) != 1 || s.Cluster.ID != "the-uid" {
				t.Error("the rest is lost")
			}
			if err := rec.Finish(s, "test"); err != nil {
				t.Fatal(err)
			}
			saved, err := FromPath(t.Context(), dest, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if d := diffSnapshots(s, saved) + diffCoverage(s, saved); d != "" {
				t.Errorf("recorded (-live +saved):\n%s", d)
			}
		})
	}
}

func TestLiveExpiredOnce(t *testing.T) {
	srv := newAPIServer(t)
	var once sync.Once
	srv.fail = func(w http.ResponseWriter, r *http.Request) (failed bool) {
		if r.URL.Path == "/api/v1/pods" && r.URL.Query().Get("continue") == "3" {
			once.Do(func() { refuse(w, 410, "Expired", "too old"); failed = true })
		}
		return failed
	}
	s, err := srv.collect(t, LiveOptions{})
	if err != nil || len(s.Pods) != 7 {
		t.Fatalf("%v", err)
	}
	if c := s.Coverage.Get(ipam.ResPods); c.Items != 7 || c.Status != ipam.Read {
		t.Errorf("%+v: the first attempt's items count", c)
	}
}

func TestLiveNamespacesForbidden(t *testing.T) {
	srv := newAPIServer(t)
	srv.fail = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/api/v1/namespaces" {
			refuse(w, 403, "Forbidden", "no")
			return true
		}
		return false
	}
	s, err := srv.collect(t, LiveOptions{})
	if err != nil || s.Cluster.ID != "the-uid" || s.Coverage.Get(ipam.ResNamespaces).Status != ipam.Forbidden || len(s.Namespaces) > 0 {
		t.Errorf("%v %+v %+v", err, s.Cluster, s.Namespaces)
	}
}

// TestLiveUnreachable: the error names cluster, host and cause, and no token.
func TestLiveUnreachable(t *testing.T) {
	answer := func(code int, reason string) *apiServer {
		srv := newAPIServer(t)
		srv.fail = func(w http.ResponseWriter, _ *http.Request) bool { refuse(w, code, reason, reason); return true }
		return srv
	}
	gone := newAPIServer(t)
	gone.srv.Close()
	for name, tc := range map[string]struct {
		srv  *apiServer
		want string
	}{
		"401":       {answer(401, "Unauthorized"), "does not accept the credentials"},
		"403":       {answer(403, "Forbidden"), "Forbidden"},
		"500":       {answer(500, "InternalError"), "InternalError"},
		"404":       {answer(404, "NotFound"), "serves none"},
		"no server": {gone, "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tc.srv.collect(t, LiveOptions{})
			var ce *ClusterError
			if !errors.As(err, &ce) || ce.Cluster != "prod" || ce.Host != tc.srv.srv.URL || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v", err)
			}
			if err != nil && (strings.Contains(err.Error(), "secret-token") || strings.Contains(err.Error(), "\n")) {
				t.Errorf("%v", err)
			}
		})
	}
	if _, err := NewLive(&rest.Config{Host: "https://user:secret@host:1/", TLSClientConfig: rest.TLSClientConfig{CAFile: "/no/such/ca"}}, LiveOptions{Name: "x"}); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
}

func TestLiveTimeoutAndCancel(t *testing.T) {
	srv := newAPIServer(t)
	arrived := make(chan struct{}, 64)
	srv.fail = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/api/v1/pods" {
			return false
		}
		arrived <- struct{}{}
		<-r.Context().Done()
		return true
	}
	l, err := NewLive(&rest.Config{Host: srv.srv.URL, QPS: 1000, Burst: 1000}, LiveOptions{Name: "slow", Parallel: 1000})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	s, err := l.Collect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if c := s.Coverage.Get(ipam.ResPods); c.Status != ipam.Failed || c.Detail != "timed out" || len(s.Pools) != 1 {
		t.Errorf("%+v", c)
	}
	ctx, stop := context.WithCancel(t.Context())
	go func() { <-arrived; <-arrived; stop() }()
	if _, err := l.Collect(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
