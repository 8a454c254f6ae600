package fakejira_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	jira "github.com/andygrunwald/go-jira"

	fakejira "ipamaudit/notify/fake/jira"
)

const mine = `project = "OPS" AND labels = "ipamaudit"`

func TestCloudSearchPagesWithTokensAndGivesIDsOnly(t *testing.T) {
	p := start(t, fakejira.Config{PageSize: 2})
	for range 5 {
		p.create("ipamaudit")
	}
	var got []jira.Issue
	options := &jira.SearchOptionsV2{Fields: []string{"summary", "labels", "status"}}
	pages := 0
	for {
		issues, resp, err := p.client.Issue.SearchV2JQL(mine+` ORDER BY key ASC`, options)
		if err != nil {
			t.Fatal(message(err))
		}
		got = append(got, issues...)
		if pages++; resp.IsLast {
			break
		}
		options.NextPageToken = resp.NextPageToken
	}
	if keys(got) != "OPS-1 OPS-2 OPS-3 OPS-4 OPS-5" || pages != 3 {
		t.Errorf("%d pages with %s", pages, keys(got))
	}
	if s := got[0].Fields.Status.StatusCategory.Key; s != "new" {
		t.Errorf("status category %q", s)
	}

	var bare struct {
		Issues        []map[string]any `json:"issues"`
		IsLast        *bool            `json:"isLast"`
		Total         *int             `json:"total"`
		NextPageToken string           `json:"nextPageToken"`
	}
	p.want(200, http.MethodPost, "rest/api/2/search/jql", map[string]any{"jql": mine}, &bare)
	if bare.Total != nil || bare.IsLast == nil || *bare.IsLast || bare.NextPageToken == "" {
		t.Errorf("the page must have a token and no total: %+v", bare)
	}
	if _, has := bare.Issues[0]["fields"]; has || bare.Issues[0]["key"] != nil || bare.Issues[0]["id"] == nil {
		t.Errorf("without fields the answer is the id alone: %v", bare.Issues[0])
	}
	// A token belongs to its query.
	p.want(400, http.MethodPost, "rest/api/2/search/jql", map[string]any{"jql": mine + ` AND labels = "x"`, "nextPageToken": bare.NextPageToken}, nil)

	var count struct{ Count int }
	p.want(200, http.MethodPost, "rest/api/2/search/approximate-count", map[string]any{"jql": mine}, &count)
	if count.Count != 5 {
		t.Errorf("count %d", count.Count)
	}
}

func TestCloudRefusesTheRemovedAndTheUnbounded(t *testing.T) {
	p := start(t, fakejira.Config{})
	_, resp, err := p.client.Issue.Search(mine, nil)
	if resp == nil || resp.StatusCode != http.StatusGone || !strings.Contains(message(err), "The requested API has been removed") {
		t.Errorf("the classic search: %v", err)
	}
	for _, jql := range []string{"", "order by key desc"} {
		_, resp, err := p.client.Issue.SearchV2JQL(jql, nil)
		if resp == nil || resp.StatusCode != http.StatusBadRequest || !strings.Contains(message(err), "Unbounded JQL") {
			t.Errorf("%q: %v", jql, err)
		}
	}
}

func TestDataCenterSearchCountsAndHasNoTokens(t *testing.T) {
	p := start(t, fakejira.Config{Flavour: fakejira.DataCenter, BasePath: "/jira"})
	for range 5 {
		p.create("ipamaudit")
	}
	if !strings.HasSuffix(p.URL(), "/jira/") {
		t.Errorf("URL %s", p.URL())
	}
	var got []jira.Issue
	err := p.client.Issue.SearchPages(mine+" ORDER BY key", &jira.SearchOptions{MaxResults: 2}, func(i jira.Issue) error {
		got = append(got, i)
		return nil
	})
	if err != nil || keys(got) != "OPS-1 OPS-2 OPS-3 OPS-4 OPS-5" {
		t.Errorf("%s, %v", keys(got), err)
	}
	_, resp, err := p.client.Issue.SearchV2JQL(mine, nil)
	if resp == nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("search/jql: %v", err)
	}
}

func TestSearchLagsAndReconcileDoesNot(t *testing.T) {
	c := newClock()
	p := start(t, fakejira.Config{Now: c.now, SearchLag: 90 * time.Second})
	i := p.create("ipamaudit")
	id, err := strconv.Atoi(i.ID)
	if err != nil {
		t.Fatal(err)
	}
	search := func(reconcile ...int) string {
		t.Helper()
		got, _, err := p.client.Issue.SearchV2JQL(mine, &jira.SearchOptionsV2{Fields: []string{"key"}, ReconcileIssues: reconcile})
		if err != nil {
			t.Fatal(message(err))
		}
		return keys(got)
	}
	if got := search(); got != "" {
		t.Errorf("at once: %s", got)
	}
	if got := search(id); got != "OPS-1" {
		t.Errorf("reconciled: %s", got)
	}
	if _, _, err := p.client.Issue.Get(i.Key, nil); err != nil {
		t.Errorf("a read by key never lags: %v", err)
	}
	c.advance(91 * time.Second)
	if got := search(); got != "OPS-1" {
		t.Errorf("after the lag: %s", got)
	}

	// The index is late for every change, and a whole run long if it is told to.
	p.HoldIndex()
	if err := p.RemoveLabels(i.Key, "ipamaudit"); err != nil {
		t.Fatal(err)
	}
	c.advance(24 * time.Hour)
	if got := search(); got != "OPS-1" {
		t.Errorf("held index: %s", got)
	}
	if got := search(id); got != "" {
		t.Errorf("held index, reconciled: %s", got)
	}
	p.ReleaseIndex()
	if got := search(); got != "" {
		t.Errorf("released index: %s", got)
	}
}

func TestJQL(t *testing.T) {
	c := newClock()
	p := start(t, fakejira.Config{Now: c.now, Projects: []fakejira.Project{
		{Key: "OPS", Name: "Operations", Workflow: fakejira.ClassicWorkflow()}, {Key: "DO"},
	}})
	add := func(i fakejira.Issue) {
		t.Helper()
		if _, err := p.Add(i); err != nil {
			t.Fatal(err)
		}
	}
	now := c.now()
	add(fakejira.Issue{Summary: "open", Labels: []string{"a", "fp-1"}, Description: "tool:begin (Tool keeps this)\n\ntool:end fp=0a1b state=open"})                      // OPS-1
	add(fakejira.Issue{Summary: "fixed lately", Labels: []string{"a", "fp-2"}, Status: "Closed", Resolution: "Fixed", Resolved: now.Add(-3 * 24 * time.Hour)})           // OPS-2
	add(fakejira.Issue{Summary: "wont fix long ago", Labels: []string{"a", "fp-3"}, Status: "Closed", Resolution: "Won't Fix", Resolved: now.Add(-30 * 24 * time.Hour)}) // OPS-3
	add(fakejira.Issue{Summary: "done without resolution", Labels: []string{"A"}, Status: "Closed"})                                                                     // OPS-4
	add(fakejira.Issue{Summary: "other project", Project: "DO", Labels: []string{"a"}})                                                                                  // DO-1

	for jql, want := range map[string]string{
		`project = "OPS" AND labels = "a"`:                                                  "OPS-1 OPS-2 OPS-3",
		`project = operations AND labels in ("fp-3", 'fp-1')`:                               "OPS-1 OPS-3",
		`labels = "a" AND labels = "fp-2"`:                                                  "OPS-2",
		`labels = "never seen"`:                                                             "",
		`project = "DO"`:                                                                    "DO-1",
		`project = "OPS" AND (statusCategory != Done OR resolved >= -14d)`:                  "OPS-1 OPS-2",
		`project="OPS" and labels="a" and (statusCategory != Done or resolved >= "-14d")`:   "OPS-1 OPS-2",
		`project = "OPS" AND statusCategory = done`:                                         "OPS-2 OPS-3 OPS-4",
		`project = "OPS" AND status = "Open"`:                                               "OPS-1",
		`project = "OPS" AND resolution != "Won't Fix"`:                                     "OPS-2",
		`project = "OPS" AND (resolution is EMPTY OR resolution not in ("Won't Fix"))`:      "OPS-1 OPS-2 OPS-4",
		`project = "OPS" AND NOT labels = "a"`:                                              "OPS-4",
		`project = "OPS" AND resolution = Unresolved AND created <= "2026-03-02 02:00"`:     "OPS-1 OPS-4",
		`project = "OPS" AND key in (OPS-1, OPS-3)`:                                         "OPS-1 OPS-3",
		`labels = "nobody" OR description ~ "0a1b"`:                                         "OPS-1",
		`description ~ "tool"`:                                                              "OPS-1",
		`description ~ "end"`:                                                               "",
		`project = "OPS" AND labels is not EMPTY AND statusCategory not in ("To Do", Done)`: "",
	} {
		got, _, err := p.client.Issue.SearchV2JQL(jql+" ORDER BY created ASC, key ASC", &jira.SearchOptionsV2{Fields: []string{"key"}})
		if err != nil {
			t.Errorf("%s: %s", jql, message(err))
		} else if keys(got) != want {
			t.Errorf("%s: got %q, want %q", jql, keys(got), want)
		}
	}

	for jql, want := range map[string]string{
		`project = DO`:     "reserved JQL word",
		`project = "NOPE"`: "The value 'NOPE' does not exist for the field 'project'. (clause: project = \"NOPE\")",
		`project = "OPS" AND resolution = "Wontfix"`:    "The value 'Wontfix' does not exist",
		`project = "OPS" AND summary ~ "pool"`:          "Field 'summary' does not exist",
		`description ~ "two words"`:                     "for one word",
		`description = "tool"`:                          "operator '='",
		`project = "OPS" AND labels ~ "a"`:              `(clause: labels ~ "a")`,
		`project = "OPS" AND resolved >= "last week"`:   "Date value 'last week'",
		`project = "OPS" AND updated >= startOfDay(-1)`: "function 'startOfDay()'",
		`project = "OPS" AND (labels = "a"`:             "Expecting ')'",
		`project = "OPS" labels = "a"`:                  "Expecting either 'OR' or 'AND'",
		`project = "OPS`:                                "has not been completed",
		`project = "OPS" ORDER BY votes`:                "Not able to sort",
		`project = "OPS" AND`:                           "Expecting a field name",
	} {
		_, resp, err := p.client.Issue.SearchV2JQL(jql, nil)
		if resp == nil || resp.StatusCode != http.StatusBadRequest || !strings.Contains(message(err), want) {
			t.Errorf("%s: got %v, want a 400 with %q", jql, err, want)
		}
	}
}

func TestJQLQuotedStrings(t *testing.T) {
	p := start(t, fakejira.Config{})
	label := `odd"label\with'everything`
	p.create(label)
	jql := `project = "OPS" AND labels = "` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(label) + `"`
	got, _, err := p.client.Issue.SearchV2JQL(jql, &jira.SearchOptionsV2{Fields: []string{"key"}})
	if err != nil || keys(got) != "OPS-1" {
		t.Errorf("%q, %v", keys(got), err)
	}
}

func TestCloudSearchBringsProperties(t *testing.T) {
	p := start(t, fakejira.Config{})
	p.want(201, http.MethodPost, "rest/api/2/issue", map[string]any{
		"fields":     map[string]any{"project": map[string]any{"key": "OPS"}, "issuetype": map[string]any{"name": "Task"}, "summary": "s", "labels": []string{"ipamaudit"}},
		"properties": []any{map[string]any{"key": "ipamaudit", "value": map[string]any{"hash": "abc"}}},
	}, nil)
	var out struct {
		Issues []struct {
			Properties map[string]struct{ Hash string }
		}
	}
	p.want(200, http.MethodGet, "rest/api/2/search/jql?fields=summary&properties=ipamaudit&jql=labels%3Dipamaudit", nil, &out)
	if len(out.Issues) != 1 || out.Issues[0].Properties["ipamaudit"].Hash != "abc" {
		t.Errorf("%+v", out)
	}
}
