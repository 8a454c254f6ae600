package fakejira_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"

	jira "github.com/andygrunwald/go-jira"

	fakejira "ipamaudit/notify/fake/jira"
)

func TestIssueLife(t *testing.T) {
	for _, flavour := range []fakejira.Flavour{fakejira.Cloud, fakejira.DataCenter} {
		t.Run(map[fakejira.Flavour]string{fakejira.Cloud: "Cloud", fakejira.DataCenter: "DataCenter"}[flavour], func(t *testing.T) {
			p := start(t, fakejira.Config{Flavour: flavour, Projects: []fakejira.Project{{Key: "OPS", Components: []string{"network"}, Workflow: fakejira.ClassicWorkflow()}}})
			i := p.create("ipamaudit", "fp-1")
			if i.Key != "OPS-1" || i.ID == "" {
				t.Fatalf("created %+v", i)
			}

			// Read back: by key and by id, wiki text as the flavour returns it.
			got, _, err := p.client.Issue.Get(i.ID, nil)
			if err != nil {
				t.Fatal(message(err))
			}
			if same := got.Fields.Description == ticket().Fields.Description; same != (flavour == fakejira.DataCenter) {
				t.Errorf("description read back: %q", got.Fields.Description)
			}
			if (got.Fields.Reporter.AccountID != "") != (flavour == fakejira.Cloud) {
				t.Errorf("reporter %+v", got.Fields.Reporter)
			}

			// Edit: whole fields, and labels one by one.
			if _, _, err := p.client.Issue.Update(&jira.Issue{Key: i.Key, Fields: &jira.IssueFields{Summary: "pool is still full"}}); err != nil {
				t.Error(message(err))
			}
			resp, err := p.client.Issue.UpdateIssue(i.Key, map[string]any{"update": map[string]any{
				"labels":     []any{map[string]any{"add": "team-x"}, map[string]any{"remove": "fp-1"}},
				"components": []any{map[string]any{"add": map[string]any{"name": "network"}}},
			}})
			if err != nil || resp.StatusCode != http.StatusNoContent {
				t.Errorf("update: %v", err)
			}
			stored, _ := p.Issue(i.Key)
			if stored.Summary != "pool is still full" || !reflect.DeepEqual(stored.Labels, []string{"ipamaudit", "team-x"}) || stored.Components[0] != "network" {
				t.Errorf("stored %+v", stored)
			}

			// Comments.
			var c jira.Comment
			p.want(201, http.MethodPost, "rest/api/2/issue/OPS-1/comment", map[string]any{"body": "worse"}, &c)
			p.want(200, http.MethodPut, "rest/api/2/issue/OPS-1/comment/"+c.ID, map[string]any{"body": "better"}, nil)
			var list struct {
				Total    int
				Comments []jira.Comment
			}
			p.want(200, http.MethodGet, "rest/api/2/issue/OPS-1/comment", nil, &list)
			if list.Total != 1 || list.Comments[0].Body != "better" {
				t.Errorf("comments %+v", list)
			}
			p.want(400, http.MethodPost, "rest/api/2/issue/OPS-1/comment", map[string]any{"body": ""}, nil)
			p.want(404, http.MethodPut, "rest/api/2/issue/OPS-1/comment/1", map[string]any{"body": "x"}, nil)

			// Properties.
			p.want(404, http.MethodGet, "rest/api/2/issue/OPS-1/properties/ipamaudit", nil, nil)
			p.want(201, http.MethodPut, "rest/api/2/issue/OPS-1/properties/ipamaudit", map[string]any{"hash": "1"}, nil)
			p.want(200, http.MethodPut, "rest/api/2/issue/OPS-1/properties/ipamaudit", map[string]any{"hash": "2"}, nil)
			var property struct{ Value map[string]string }
			p.want(200, http.MethodGet, "rest/api/2/issue/OPS-1/properties/ipamaudit", nil, &property)
			if property.Value["hash"] != "2" {
				t.Errorf("property %v", property)
			}

			// Remote links: one per globalId.
			link := map[string]any{"globalId": "run-1", "object": map[string]any{"url": "https://ci.example.com/1", "title": "run 1"}}
			p.want(201, http.MethodPost, "rest/api/2/issue/OPS-1/remotelink", link, nil)
			p.want(200, http.MethodPost, "rest/api/2/issue/OPS-1/remotelink", link, nil)
			if _, _, err := p.client.Issue.AddRemoteLink(i.Key, &jira.RemoteLink{GlobalID: "run-2", Object: &jira.RemoteLinkObject{URL: "https://ci.example.com/2", Title: "run 2"}}); err != nil {
				t.Error(message(err))
			}
			if links, _, err := p.client.Issue.GetRemoteLinks(i.Key); err != nil || len(*links) != 2 {
				t.Errorf("remote links %v, %v", links, err)
			}

			p.want(200, http.MethodGet, "rest/api/2/issue/OPS-1/remotelink?globalId=run-2", nil, nil)
			p.want(404, http.MethodGet, "rest/api/2/issue/OPS-1/remotelink?globalId=run-3", nil, nil)

			// Attachments.
			if _, _, err := p.client.Issue.PostAttachment(i.Key, reader("a,b\n"), "full-list.csv"); err != nil {
				t.Error(message(err))
			}
			p.want(403, http.MethodPost, "rest/api/2/issue/OPS-1/attachments", map[string]any{}, nil)
			if flavour == fakejira.Cloud && p.fence != nil && len(p.fence.Take()) != 1 {
				t.Error("JSON is no upload, and the fence let it through")
			}
			if stored, _ = p.Issue(i.Key); len(stored.Attachments) != 1 || string(stored.Attachments[0].Content) != "a,b\n" {
				t.Errorf("attachments %+v", stored.Attachments)
			}

			// All of it is the bot's, in order.
			var what []string
			for _, c := range stored.ChangesBy(fakejira.Bot) {
				what = append(what, c.What)
			}
			if got := strings.Join(what, " "); got != "created summary components labels comment comment-edited property ipamaudit property ipamaudit link link link attachment" {
				t.Errorf("history: %s", got)
			}
			if people := stored.ChangesBy(fakejira.Person); len(people) > 0 {
				t.Errorf("people: %v", people)
			}
		})
	}
}

func TestCreateTakesProperties(t *testing.T) {
	p := start(t, fakejira.Config{})
	body := map[string]any{
		"fields":     map[string]any{"project": map[string]any{"key": "OPS"}, "issuetype": map[string]any{"id": "10100"}, "summary": "s"},
		"properties": []any{map[string]any{"key": "ipamaudit", "value": map[string]any{"fp": "abc"}}},
	}
	p.want(201, http.MethodPost, "rest/api/2/issue", body, nil)
	var got struct {
		Properties map[string]json.RawMessage
		Fields     map[string]any
	}
	p.want(200, http.MethodGet, "rest/api/2/issue/OPS-1?fields=summary,labels&properties=ipamaudit", nil, &got)
	if string(got.Properties["ipamaudit"]) != `{"fp":"abc"}` || len(got.Fields) != 2 {
		t.Errorf("%+v", got)
	}
}

func TestFieldRules(t *testing.T) {
	long := strings.Repeat("x", 256)
	for name, c := range map[string]struct {
		fields map[string]any
		field  string
		want   string
	}{
		"no summary":          {map[string]any{"summary": nil}, "summary", "You must specify a summary"},
		"summary too long":    {map[string]any{"summary": long}, "summary", "can't exceed 255"},
		"summary two lines":   {map[string]any{"summary": "a\nb"}, "summary", "newline"},
		"label with space":    {map[string]any{"labels": []string{"ok", "x y"}}, "labels", "The label 'x y' can't contain spaces."},
		"label too long":      {map[string]any{"labels": []string{long}}, "labels", "255"},
		"description":         {map[string]any{"description": strings.Repeat("x", 32768)}, "description", "allowed limit of 32,767"},
		"description lines":   {map[string]any{"description": strings.Repeat("0123456789\n", 2900)}, "description", "allowed limit of 32,767"},
		"priority":            {map[string]any{"priority": map[string]any{"name": "Blocker"}}, "priority", "'Blocker' is not valid"},
		"component":           {map[string]any{"components": []any{map[string]any{"name": "nope"}}}, "components", "Component name 'nope' is not valid"},
		"project":             {map[string]any{"project": map[string]any{"key": "NOPE"}}, "project", "valid project is required"},
		"issue type":          {map[string]any{"issuetype": map[string]any{"name": "Epic"}}, "issuetype", "valid issue type"},
		"unknown field":       {map[string]any{"customfield_99999": "x"}, "customfield_99999", "not on the appropriate screen, or unknown"},
		"assignee by name":    {map[string]any{"assignee": map[string]any{"name": "kim"}}, "assignee", "accountId"},
		"required field":      {map[string]any{"customfield_10010": nil}, "customfield_10010", "Team is required."},
		"unknown option":      {map[string]any{"customfield_10010": map[string]any{"value": "Nobody"}}, "customfield_10010", "Option value 'Nobody' is not valid"},
		"number as text":      {map[string]any{"customfield_10011": "one"}, "customfield_10011", "must be a number"},
		"sub-task, no parent": {map[string]any{"issuetype": map[string]any{"name": "Sub-task"}}, "parent", "parent issue key"},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, fakejira.Config{Projects: []fakejira.Project{{Key: "OPS", Fields: []fakejira.Field{
				{ID: "customfield_10010", Name: "Team", Kind: fakejira.Select, Options: []string{"SRE"}, Required: true},
				{ID: "customfield_10011", Name: "Count", Kind: fakejira.Number},
			}}}})
			fields := map[string]any{"customfield_10010": map[string]any{"value": "SRE"}}
			for k, v := range c.fields {
				fields[k] = v
			}
			errs := p.refused(fields)
			if !strings.Contains(errs[c.field], c.want) || len(errs) != 1 {
				t.Errorf("got %v, want %q for %s", errs, c.want, c.field)
			}
		})
	}
}

func TestDataCenterSpellsSomeRulesDifferently(t *testing.T) {
	p := start(t, fakejira.Config{Flavour: fakejira.DataCenter, Projects: []fakejira.Project{{Key: "OPS", OffScreen: []string{"labels"}}, {Key: "NET"}}})
	if e := p.refused(map[string]any{"labels": []string{"a"}}); e["labels"] != "Field 'labels' cannot be set. It is not on the appropriate screen, or unknown." {
		t.Errorf("off screen: %v", e)
	}
	net := map[string]any{"key": "NET"}
	if e := p.refused(map[string]any{"project": net, "labels": []string{"x y"}}); e["labels"] != "The label 'x y' contains spaces which is invalid." {
		t.Errorf("label: %v", e)
	}
	if e := p.refused(map[string]any{"project": net, "summary": strings.Repeat("x", 256)}); e["summary"] != "Summary must be less than 255 characters." {
		t.Errorf("summary: %v", e)
	}
	if e := p.refused(map[string]any{"project": net, "assignee": map[string]any{"accountId": "x"}}); e["assignee"] == "" {
		t.Errorf("assignee: %v", e)
	}
}

func TestTransitions(t *testing.T) {
	p := start(t, fakejira.Config{Projects: []fakejira.Project{
		{Key: "OPS", Workflow: fakejira.ClassicWorkflow()},
		{Key: "BAD", Workflow: fakejira.Workflow{
			Statuses:    []fakejira.Status{{Name: "Backlog", Category: fakejira.ToDo}, {Name: "Shipped", Category: fakejira.Done}},
			Transitions: []fakejira.Transition{{Name: "Ship", To: "Shipped"}},
		}},
	}})
	i := p.create()
	id := func(key, name string) string {
		t.Helper()
		list, _, err := p.client.Issue.GetTransitions(key)
		if err != nil {
			t.Fatal(message(err))
		}
		for _, tr := range list {
			if tr.Name == name {
				if (tr.Name == "Close Issue") != tr.Fields["resolution"].Required {
					t.Errorf("screen of %s: %+v", tr.Name, tr.Fields)
				}
				return tr.ID
			}
		}
		return ""
	}
	if id(i.Key, "Reopen Issue") != "" {
		t.Error("an open issue cannot be reopened")
	}
	closing := id(i.Key, "Close Issue")
	try := func(fields map[string]any) (int, string) {
		status, body, _ := p.raw(http.MethodPost, "rest/api/2/issue/OPS-1/transitions", map[string]any{"transition": map[string]any{"id": closing}, "fields": fields})
		return status, string(body)
	}
	if status, body := try(map[string]any{}); status != 400 || !strings.Contains(body, "Resolution is required.") {
		t.Errorf("no resolution: %d %s", status, body)
	}
	if status, body := try(map[string]any{"resolution": map[string]any{"name": "Nope"}}); status != 400 || !strings.Contains(body, "'Nope' is not valid") {
		t.Errorf("unknown resolution: %d %s", status, body)
	}
	if status, body := try(map[string]any{"resolution": map[string]any{"name": "Fixed"}}); status != 204 {
		t.Errorf("%d %s", status, body)
	}
	got, _, err := p.client.Issue.Get(i.Key, nil)
	if err != nil || got.Fields.Resolution.Name != "Fixed" || got.Fields.Status.StatusCategory.Key != "done" {
		t.Errorf("closed: %v, %+v", err, got.Fields)
	}
	if status, body := try(map[string]any{"resolution": map[string]any{"name": "Fixed"}}); status != 400 || !strings.Contains(body, "not valid for the current state") {
		t.Errorf("closing twice: %d %s", status, body)
	}
	// go-jira's own call, with its empty update and fields.
	if _, err := p.client.Issue.DoTransition(i.Key, id(i.Key, "Reopen Issue")); err != nil {
		t.Fatal(message(err))
	}
	if stored, _ := p.Issue(i.Key); !stored.Open() || stored.Resolution != "" || !stored.Resolved.IsZero() {
		t.Errorf("reopened: %+v", stored)
	}

	// A done status without a resolution, and a screen without the field.
	key, err := p.Add(fakejira.Issue{Project: "BAD", Summary: "s"})
	if err != nil {
		t.Fatal(err)
	}
	ship := map[string]any{"transition": map[string]any{"id": id(key, "Ship")}, "fields": map[string]any{"resolution": map[string]any{"name": "Done"}}}
	p.want(400, http.MethodPost, "rest/api/2/issue/"+key+"/transitions", ship, nil)
	if _, err := p.client.Issue.DoTransition(key, id(key, "Ship")); err != nil {
		t.Fatal(message(err))
	}
	if stored, _ := p.Issue(key); stored.Open() || stored.Resolution != "" {
		t.Errorf("shipped: %+v", stored)
	}

	// Without the permission the list is empty, which is no error.
	if err := p.Deny("OPS", fakejira.TransitionIssues); err != nil {
		t.Fatal(err)
	}
	if list, _, err := p.client.Issue.GetTransitions(i.Key); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
}
