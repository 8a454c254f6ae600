package fakejira_test

import (
	"net/http"
	"reflect"
	"testing"

	jira "github.com/andygrunwald/go-jira"

	fakejira "ipamaudit/notify/fake/jira"
)

func TestHands(t *testing.T) {
	p := start(t, fakejira.Config{Projects: []fakejira.Project{{Key: "OPS"}, {Key: "NET", Workflow: fakejira.ClassicWorkflow()}}})
	p.create("ipamaudit", "fp-1")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(p.EditSummary("OPS-1", "renamed"))
	must(p.EditDescription("OPS-1", "my notes"))
	must(p.AddLabels("OPS-1", "watched"))
	must(p.RemoveLabels("OPS-1", "fp-1"))
	must(p.SetPriority("OPS-1", "Low"))
	must(p.SetField("OPS-1", "assignee", map[string]any{"accountId": "kim"}))
	must(p.Comment("OPS-1", "looking into it"))
	must(p.CloseAs("OPS-1", "Won't Fix"))
	got, _, err := p.client.Issue.Get("OPS-1", nil)
	must(err)
	f := got.Fields
	if f.Summary != "renamed" || f.Description != "my notes" || !reflect.DeepEqual(f.Labels, []string{"ipamaudit", "watched"}) ||
		f.Priority.Name != "Low" || f.Assignee.AccountID != "kim" || f.Comments.Comments[0].Body != "looking into it" || f.Resolution.Name != "Won't Fix" {
		t.Errorf("%+v", f)
	}
	// Nobody edits another's comment.
	p.want(400, http.MethodPut, "rest/api/2/issue/OPS-1/comment/"+f.Comments.Comments[0].ID, map[string]any{"body": "mine"}, nil)
	must(p.Reopen("OPS-1"))

	// Moved: the old key answers with the new one, search knows the new one only.
	key, err := p.MoveTo("OPS-1", "NET")
	must(err)
	moved, _, err := p.client.Issue.Get("OPS-1", nil)
	must(err)
	if key != "NET-1" || moved.Key != key || moved.Fields.Status.Name != "Open" {
		t.Errorf("moved to %s: %+v", key, moved)
	}
	if found, _, err := p.client.Issue.SearchV2JQL(mine, nil); err != nil || len(found) != 0 {
		t.Errorf("%v, %v", found, err)
	}

	// A clone has the labels and starts anew.
	must(p.CloseAs(key, "Fixed"))
	twin, err := p.Clone(key)
	must(err)
	if all := p.Find("ipamaudit"); len(all) != 2 || all[1].Key != twin || !all[1].Open() || len(all[1].Comments) != 0 {
		t.Errorf("%+v", all)
	}

	must(p.Delete(key))
	p.want(404, http.MethodGet, "rest/api/2/issue/"+key, nil, nil)
	if found, _, err := p.client.Issue.SearchV2JQL(`labels = "ipamaudit"`, &jira.SearchOptionsV2{Fields: []string{"key"}}); err != nil || keys(found) != twin {
		t.Errorf("%v, %v", found, err)
	}

	for _, err := range []error{p.Delete("OPS-99"), p.CloseAs(twin, "Nope"), p.SetStatus(twin, "Nope", ""), p.Deny("NOPE", "x")} {
		if err == nil {
			t.Error("a hand reached for nothing and said nothing")
		}
	}
}

func TestBulkFetchReadsTheDatabase(t *testing.T) {
	p := start(t, fakejira.Config{})
	p.HoldIndex()
	i := p.create("ipamaudit")
	var out struct{ Issues []jira.Issue }
	p.want(200, http.MethodPost, "rest/api/2/issue/bulkfetch", map[string]any{"issueIdsOrKeys": []string{i.ID, "OPS-99"}, "fields": []string{"labels"}}, &out)
	if keys(out.Issues) != "OPS-1" {
		t.Errorf("%+v", out)
	}
}

// go-jira's AddComment sends members that the vendor's description forbids. The
// fence must see it, or it sees nothing.
func TestTheFenceStands(t *testing.T) {
	p := start(t, fakejira.Config{})
	i := p.create()
	if p.fence == nil {
		t.Skip("no vendor schemas here")
	}
	if _, _, err := p.client.Issue.AddComment(i.Key, &jira.Comment{Body: "hello"}); err != nil {
		t.Fatal(message(err))
	}
	if got := p.fence.Take(); len(got) != 1 || got[0].Side != "request" {
		t.Errorf("violations: %v", got)
	}
	if p.fence.Checked() != 2 {
		t.Errorf("%d requests went through the fence", p.fence.Checked())
	}
}
