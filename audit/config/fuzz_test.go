package config

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v3"
)

// FuzzLoad looks for panics, for files that Load takes and the schema does not, and for a View that
// cannot be loaded again.
func FuzzLoad(f *testing.F) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range append(files, "testdata/example.yaml") {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, "IPAMAUDIT_RUN_TIMEOUT=1h")
	}
	schema := compileSchema(f, testChecks)
	f.Fuzz(func(t *testing.T, text []byte, env string) {
		c, _, err := load(text, Options{File: "fuzz.yaml", Checks: testChecks, Now: testNow, Env: []string{env}})
		if err != nil {
			_ = err.Error()
			return
		}
		view := c.View()
		if c.Jira.Token == "" && c.Slack.Token == "" && c.Slack.WebhookURL == "" {
			again, _, err := load(view, Options{File: "view.yaml", Checks: testChecks})
			if err != nil {
				t.Fatalf("the view of\n%s\nis\n%s\nand cannot be loaded: %v", text, view, err)
			}
			if got := again.View(); !bytes.Equal(got, view) {
				t.Fatalf("the view changes:\n%s\n%s", view, got)
			}
		}
		var plain any
		if yaml.Unmarshal(text, &plain) != nil {
			return // free values may hold what only this reader takes
		}
		if bytes.ContainsRune(text, '!') {
			return // tags: the schema's reader takes an empty "!" for a text, this one for nothing
		}
		if err := validates(schema, text); err != nil {
			t.Fatalf("Load takes what the schema does not:\n%s\n%v", text, err)
		}
	})
}
