package notify_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"ipamaudit/audit"
	"ipamaudit/checks"
	"ipamaudit/notify"
	fakejira "ipamaudit/notify/fake/jira"
	fakeslack "ipamaudit/notify/fake/slack"
	"ipamaudit/notify/fake/wire"
	"ipamaudit/notify/jira"
)

// crowd is a cluster with one finding about many addresses.
func crowd(name string, n int) audit.ClusterReport {
	c := sick(name, checks.High, "node-a")
	f := &c.Findings[0]
	f.Affected = nil
	for i := range n {
		f.Affected = append(f.Affected, checks.Affected{Kind: checks.KindIP, Name: fmt.Sprintf("10.64.%d.%d", i/256, i%256), Note: `=HYPERLINK("https://evil.example")`})
	}
	return c
}

// What a new ticket gets besides its fields comes once, and for sure.
func TestExtras(t *testing.T) {
	for name, breaks := range map[string][]wire.Fault{
		"all is well":                   nil,
		"the upload fails":              {{Path: "rest/api/2/issue/*/attachments", Times: 1, Kind: wire.Unavailable}},
		"the upload's answer is lost":   {{Path: "rest/api/2/issue/*/attachments", Times: 1, Kind: wire.CommitThenServerError}},
		"the link fails":                {{Path: "rest/api/2/issue/*/remotelink", Times: 1, Kind: wire.ServerError}},
		"the link's answer is lost":     {{Path: "rest/api/2/issue/*/remotelink", Times: 1, Kind: wire.CommitThenServerError}},
		"the creation's answer is lost": {{Method: "POST", Path: "rest/api/2/issue", Times: 1, Kind: wire.CommitThenServerError}},
	} {
		t.Run(name, func(t *testing.T) {
			flavours(t, func(t *testing.T, w *world) {
				w.o.Tickets.AttachOver, w.o.Tickets.RunURL = 50, "https://ci.example.com/runs?id={run}"
				w.o.Tickets.Fields = map[string]any{"parent": map[string]any{"key": "OPS-9"}}
				w.jira.Inject(breaks...)
				_, _ = w.try(crowd("prod-1", 60), sick("prod-2", checks.High, "b"))
				for range 2 {
					w.nextNight()
					if _, err := w.try(crowd("prod-1", 60), sick("prod-2", checks.High, "b")); err != nil {
						t.Error(err)
					}
				}
				for _, i := range w.issues(2) {
					want := 0
					if strings.Contains(i.Summary, "prod-1") {
						want = 1
					}
					if len(i.Attachments) != want || len(i.RemoteLinks) != 1 || !strings.HasPrefix(i.RemoteLinks[0].URL, "https://ci.example.com/runs?id=2026-12-0") {
						t.Errorf("%s: %d attachments, want %d; links %+v", i.Summary, len(i.Attachments), want, i.RemoteLinks)
						continue
					}
					if string(i.Fields["parent"]) != `{"key":"OPS-9"}` {
						t.Errorf("parent %s", i.Fields["parent"])
					}
					if want == 1 {
						a := i.Attachments[0]
						lines := strings.Split(strings.TrimSpace(string(a.Content)), "\n")
						if !strings.HasPrefix(a.Filename, "ipamaudit-") || len(lines) != 61 || lines[60] !=
							`prod-1,blackholed-routes,high,Node node-a,IP,,10.64.0.59,"'=HYPERLINK(""https://evil.example"")"` {
							t.Errorf("%s: %d lines, the last: %s", a.Filename, len(lines), lines[len(lines)-1])
						}
					}
				}
				// Later changes add nothing.
				uploads := w.jira.Count("POST", "rest/api/2/issue/*/attachments") + w.jira.Count("POST", "rest/api/2/issue/*/remotelink")
				w.nextNight()
				w.run(crowd("prod-1", 70), sick("prod-2", checks.Critical, "b"))
				if n := w.jira.Count("POST", "rest/api/2/issue/*/attachments") + w.jira.Count("POST", "rest/api/2/issue/*/remotelink"); n != uploads {
					t.Errorf("%d more uploads and links", n-uploads)
				}
			})
		})
	}
}

// What this account may not do is said before the first ticket.
func TestExtrasNeedPermissions(t *testing.T) {
	for _, permission := range []string{fakejira.CreateAttachments, fakejira.LinkIssues} {
		w := newWorld(t, fakejira.Config{}, fakeslack.Config{})
		must(t, w.jira.Deny("OPS", permission))
		w.run(sick("prod-1", checks.High, "a"))
		w.o.Tickets.AttachOver, w.o.Tickets.RunURL = 50, "https://ci.example.com/{run}"
		if _, err := w.try(sick("prod-1", checks.High, "a"), crowd("prod-2", 60)); err == nil || !strings.Contains(err.Error(), permission) {
			t.Errorf("%s: error %v", permission, err)
		}
		w.issues(1)
	}
}

// A custom field instead of a label for each ticket: found again without the
// state, also those that have the label from before, and mended.
func TestFingerprintField(t *testing.T) {
	const field = "customfield_10050"
	for _, flavour := range []fakejira.Flavour{fakejira.Cloud, fakejira.DataCenter} {
		w := newWorld(t, fakejira.Config{Flavour: flavour, Projects: []fakejira.Project{{Key: "OPS", Fields: []fakejira.Field{{ID: field, Name: "Fingerprint", Kind: fakejira.Text}}}}}, fakeslack.Config{})
		w.run(sick("prod-1", checks.High, "a")) // by its label
		o := jira.Options{Flavour: jira.Flavour(flavour), BaseURL: w.jira.URL(), User: mail, Token: jiraToken, FingerprintField: field}
		if flavour == fakejira.DataCenter {
			o.User = ""
		}
		tracker, err := jira.New(o)
		must(t, err)
		w.client.Tracker = tracker
		for range 3 {
			w.nextNight()
			w.store.saved = nil
			w.run(sick("prod-1", checks.High, "a"), sick("prod-2", checks.High, "b"))
		}
		all := w.issues(2)
		if _, has := all[0].Fields[field]; has || len(all[0].Labels) != 2 {
			t.Errorf("the old ticket: %q %s", all[0].Labels, all[0].Fields[field])
		}
		if !slices.Equal(all[1].Labels, []string{notify.StaticLabel}) || !strings.Contains(string(all[1].Fields[field]), `"ipam-fp-`) {
			t.Errorf("the new ticket: %q %s", all[1].Labels, all[1].Fields[field])
		}
		must(t, w.jira.SetField(all[1].ID, field, ""))
		w.nextNight()
		w.run(sick("prod-1", checks.High, "a"), sick("prod-2", checks.High, "b"))
		if i := w.issues(2)[1]; !strings.Contains(string(i.Fields[field]), `"ipam-fp-`) {
			t.Errorf("the field was not mended: %s", i.Fields[field])
		}
	}
	// A field that is not on the screen is said before the first ticket.
	w := newWorld(t, fakejira.Config{}, fakeslack.Config{})
	tracker, err := jira.New(jira.Options{Flavour: jira.Cloud, BaseURL: w.jira.URL(), User: mail, Token: jiraToken, FingerprintField: field})
	must(t, err)
	w.client.Tracker = tracker
	if _, err := w.try(sick("prod-1", checks.High, "a")); err == nil || !strings.Contains(err.Error(), "lacks "+field) {
		t.Errorf("error %v", err)
	}
	w.issues(0)
}
