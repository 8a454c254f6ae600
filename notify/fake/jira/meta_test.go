package fakejira_test

import (
	"net/http"
	"testing"

	fakejira "ipamaudit/notify/fake/jira"
)

type fieldMeta struct {
	FieldID         string
	Key             string
	Required        bool
	HasDefaultValue bool
}

type metaPage struct {
	Total      int
	IssueTypes []struct{ ID, Name string }
	Fields     []fieldMeta
	Values     []fieldMeta
}

func TestCloudCreateMeta(t *testing.T) {
	p := start(t, fakejira.Config{PageSize: 4, Projects: []fakejira.Project{{Key: "OPS", OffScreen: []string{"labels"},
		Fields: []fakejira.Field{{ID: "customfield_10010", Name: "Team", Kind: fakejira.Select, Options: []string{"SRE"}, Required: true}}}}})
	var types metaPage
	p.want(200, http.MethodGet, "rest/api/2/issue/createmeta/OPS/issuetypes", nil, &types)
	if len(types.IssueTypes) != 3 || types.IssueTypes[0].Name != "Task" {
		t.Fatalf("%+v", types)
	}
	fields := map[string]fieldMeta{}
	for start := 0; ; {
		var page metaPage
		p.want(200, http.MethodGet, "rest/api/2/issue/createmeta/OPS/issuetypes/"+types.IssueTypes[0].ID+"?startAt="+string(rune('0'+start)), nil, &page)
		for _, f := range page.Fields {
			fields[f.FieldID] = f
		}
		if start += len(page.Fields); start >= page.Total {
			break
		}
	}
	if _, has := fields["labels"]; has || len(fields) != 10 {
		t.Errorf("fields %v", fields)
	}
	if f := fields["reporter"]; !f.Required || !f.HasDefaultValue {
		t.Errorf("reporter %+v", f)
	}
	if f := fields["customfield_10010"]; !f.Required || f.HasDefaultValue {
		t.Errorf("team %+v", f)
	}
	p.want(400, http.MethodGet, "rest/api/2/issue/createmeta/NOPE/issuetypes", nil, nil)
}

func TestDataCenterCreateMetaCallsThemValues(t *testing.T) {
	p := start(t, fakejira.Config{Flavour: fakejira.DataCenter})
	var page metaPage
	p.want(200, http.MethodGet, "rest/api/2/issue/createmeta/OPS/issuetypes/10100", nil, &page)
	if len(page.Values) != 10 || page.Fields != nil || page.Values[0].Key != "" {
		t.Errorf("%+v", page)
	}
	if _, _, err := p.client.Issue.GetCreateMeta("OPS"); err == nil {
		t.Error("the old form of createmeta is gone")
	}
}

func TestWhoAndWhat(t *testing.T) {
	p := start(t, fakejira.Config{Projects: []fakejira.Project{{Key: "OPS", Denied: []string{fakejira.AddComments}}}})
	me, _, err := p.client.User.GetSelf()
	if err != nil || me.AccountID != fakejira.Bot {
		t.Errorf("%+v, %v", me, err)
	}
	var info struct{ DeploymentType string }
	p.want(200, http.MethodGet, "rest/api/2/serverInfo", nil, &info)
	if info.DeploymentType != "Cloud" {
		t.Errorf("%+v", info)
	}
	var may struct {
		Permissions map[string]struct{ HavePermission bool }
	}
	p.want(200, http.MethodGet, "rest/api/2/mypermissions?projectKey=OPS&permissions=BROWSE_PROJECTS,ADD_COMMENTS", nil, &may)
	if !may.Permissions["BROWSE_PROJECTS"].HavePermission || may.Permissions["ADD_COMMENTS"].HavePermission {
		t.Errorf("%+v", may)
	}
	p.want(400, http.MethodGet, "rest/api/2/mypermissions?projectKey=OPS", nil, nil)
	p.want(400, http.MethodGet, "rest/api/2/mypermissions?permissions=FLY", nil, nil)
	p.want(404, http.MethodGet, "rest/api/2/mypermissions?projectKey=NOPE&permissions=BROWSE_PROJECTS", nil, nil)
	if list, _, err := p.client.Priority.GetList(); err != nil || len(list) != 5 {
		t.Errorf("priorities %v, %v", list, err)
	}
	if list, _, err := p.client.Resolution.GetList(); err != nil || list[0].Name != "Done" {
		t.Errorf("resolutions %v, %v", list, err)
	}
	if project, _, err := p.client.Project.Get("OPS"); err != nil || len(project.IssueTypes) != 3 {
		t.Errorf("project %+v, %v", project, err)
	}

	i := p.create()
	p.want(403, http.MethodPost, "rest/api/2/issue/"+i.Key+"/comment", map[string]any{"body": "x"}, nil)
	for permission, want := range map[string]func(){
		fakejira.EditIssues: func() {
			p.want(403, http.MethodPut, "rest/api/2/issue/OPS-1", map[string]any{"fields": map[string]any{"summary": "x"}}, nil)
			p.want(403, http.MethodPut, "rest/api/2/issue/OPS-1/properties/x", map[string]any{}, nil)
		},
		fakejira.CreateIssues: func() {
			if _, resp, err := p.client.Issue.Create(ticket()); err == nil || resp.StatusCode != http.StatusForbidden {
				t.Errorf("create: %v", err)
			}
		},
		fakejira.LinkIssues: func() {
			p.want(403, http.MethodPost, "rest/api/2/issue/OPS-1/remotelink", map[string]any{"object": map[string]any{"url": "https://x", "title": "x"}}, nil)
		},
		fakejira.BrowseProjects: func() {
			p.want(404, http.MethodGet, "rest/api/2/issue/OPS-1", nil, nil)
			if got, _, err := p.client.Issue.SearchV2JQL(`project = "OPS"`, nil); err != nil || len(got) != 0 {
				t.Errorf("search without browse: %v, %v", got, err)
			}
		},
	} {
		if err := p.Deny("OPS", permission); err != nil {
			t.Fatal(err)
		}
		want()
		if err := p.Allow("OPS", permission); err != nil {
			t.Fatal(err)
		}
	}
}
