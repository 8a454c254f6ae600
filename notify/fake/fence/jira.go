package fence

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
)

// Jira stands between a client and a Jira Cloud: traffic is held against
// Atlassian's OpenAPI description, moved from version 3 of the API to 2. It
// describes Cloud only. The test fails for every violation; without the schemas
// the fence is nil.
func Jira(t testing.TB) *Fence {
	t.Helper()
	return stand(t, loadJira)
}

type jiraRules struct{ router routers.Router }

// loadJira reads 2 MB of JSON in about two seconds: once per test binary.
var loadJira = onceByDir(func(dir string) (rules, error) {
	raw, err := os.ReadFile(filepath.Join(dir, "jira-cloud-openapi.json"))
	if err != nil {
		return nil, fmt.Errorf("read Atlassian's OpenAPI description: %w", err)
	}
	raw = bytes.ReplaceAll(raw, []byte(`"/rest/api/3/`), []byte(`"/rest/api/2/`))
	doc, err := openapi3.NewLoader().LoadFromData(raw)
	if err != nil {
		return nil, fmt.Errorf("read Atlassian's OpenAPI description: %w", err)
	}
	doc.Servers, doc.Security = nil, nil
	for _, schema := range doc.Components.Schemas {
		allowNull(schema.Value)
	}
	for _, item := range doc.Paths.Map() {
		for _, operation := range item.Operations() {
			operation.Security = nil
		}
	}
	router, err := gorillamux.NewRouter(doc)
	if err != nil {
		return nil, fmt.Errorf("route Atlassian's OpenAPI description: %w", err)
	}
	return jiraRules{router}, nil
})

// jiraTime is how Jira writes times, also in the description's own examples: a
// zone without a colon, which the format date-time does not know.
const jiraTime = `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d{4}$`

// allowNull lets members without a type be null. "Any value" is what the
// description says of the fields of an issue, and Jira sends null for those that
// are empty; the validator takes the missing "nullable" literally.
func allowNull(s *openapi3.Schema) {
	members := []*openapi3.SchemaRef{s.AdditionalProperties.Schema}
	for _, m := range s.Properties {
		members = append(members, m)
	}
	for _, m := range members {
		if m == nil || m.Value == nil || m.Ref != "" {
			continue
		}
		if m.Value.Type == nil && len(m.Value.AllOf) == 0 {
			m.Value.Nullable = true
		}
		allowNull(m.Value)
	}
}

// onceByDir remembers the last folder's rules; tests of one binary use one.
func onceByDir(load func(string) (rules, error)) func(string) (rules, error) {
	var mu sync.Mutex
	var have string
	var r rules
	return func(dir string) (rules, error) {
		mu.Lock()
		defer mu.Unlock()
		if r != nil && have == dir {
			return r, nil
		}
		loaded, err := load(dir)
		if err == nil {
			r, have = loaded, dir
		}
		return loaded, err
	}
}

func (j jiraRules) input(r *http.Request, body []byte) (*openapi3filter.RequestValidationInput, error) {
	c := r.Clone(context.Background())
	c.Body = io.NopCloser(bytes.NewReader(body))
	if _, rest, found := strings.Cut(c.URL.Path, "/rest/api/"); found { // drop a context path
		c.URL.Path, c.URL.RawPath = "/rest/api/"+rest, ""
	}
	route, vars, err := j.router.FindRoute(c)
	if err != nil {
		return nil, fmt.Errorf("the API has no %s %s: %w", r.Method, c.URL.Path, err)
	}
	options := &openapi3filter.Options{
		MultiError: true, SkipSettingDefaults: true,
		SchemaValidationOptions: []openapi3.SchemaValidationOption{
			openapi3.WithStringFormatValidator("date-time", openapi3.NewRegexpFormatValidator(jiraTime)),
		},
		AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
		// The description calls an upload an array of files, which no form is.
		ExcludeRequestBody: strings.HasPrefix(r.Header.Get("Content-Type"), "multipart/"),
	}
	options.WithCustomSchemaErrorFunc(func(e *openapi3.SchemaError) string { // without the schema and the value
		return "/" + strings.Join(e.JSONPointer(), "/") + ": " + e.Reason
	})
	return &openapi3filter.RequestValidationInput{Request: c, PathParams: vars, Route: route, Options: options}, nil
}

func (j jiraRules) request(r *http.Request, body []byte) error {
	in, err := j.input(r, body)
	if err != nil {
		return err
	}
	return openapi3filter.ValidateRequest(context.Background(), in)
}

// response checks what Jira said. What a proxy or a limiter said, an error that
// is not JSON or whose status the description does not know, is none of Jira's.
func (j jiraRules) response(r *http.Request, sent []byte, answer *http.Response, body []byte) error {
	in, unknown := j.input(r, sent)
	if unknown != nil || isListOfLinks(r) {
		return nil //nolint:nilerr // an unknown route was a violation of the request already
	}
	if answer.StatusCode < 400 && in.Route.Operation.Responses.Status(answer.StatusCode) == nil {
		return fmt.Errorf("the API never answers %d here", answer.StatusCode)
	}
	isJSON := strings.HasPrefix(answer.Header.Get("Content-Type"), "application/json")
	if answer.StatusCode >= 400 && !isJSON {
		return nil
	}
	out := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: answer.StatusCode, Header: answer.Header.Clone(), Options: in.Options,
	}
	if len(body) == 0 { // 204: the description has a content where nothing comes
		if answer.StatusCode != http.StatusNoContent {
			return fmt.Errorf("empty body with status %d", answer.StatusCode)
		}
		return nil
	}
	out.SetBodyBytes(body)
	return openapi3filter.ValidateResponse(context.Background(), out)
}

// isListOfLinks spots the one answer that the description has wrong: all links of
// an issue are an array, it describes a single one.
func isListOfLinks(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/remotelink") && !r.URL.Query().Has("globalId")
}
