// Package jira keeps tickets in Jira, Cloud and Data Center, over go-jira. It
// implements notify.Tracker and knows what Jira's API does that its
// documentation does not say; each place names its source.
package jira

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	gojira "github.com/andygrunwald/go-jira"

	"ipamaudit/notify"
)

// Flavour is the product. They differ in search, paging and authentication.
type Flavour string

// The products.
const (
	Cloud      Flavour = "cloud"
	DataCenter Flavour = "datacenter"
)

// DetectFlavour tells Atlassian's own hosts from all others.
func DetectFlavour(baseURL string) Flavour {
	u, err := url.Parse(baseURL)
	if err == nil && (strings.HasSuffix(u.Hostname(), ".atlassian.net") || u.Hostname() == "api.atlassian.com") {
		return Cloud
	}
	return DataCenter
}

// Options are how Jira is reached.
type Options struct {
	Flavour Flavour
	// BaseURL is that of the API, with any context path. Scoped tokens and service
	// accounts of Cloud only work at https://api.atlassian.com/ex/jira/<cloud id>.
	BaseURL string
	// BrowseURL is what people's links start with; default BaseURL. The API's own
	// "self" links lead to the gateway and are no use to people.
	BrowseURL string
	// User is the e-mail address on Cloud; empty on Data Center, unless Token is a
	// password there.
	User string
	// Token is an API token on Cloud, a personal access token on Data Center.
	Token string
	// FingerprintField is the id (customfield_10050) of a text field that tickets
	// are found by; "" finds them by a label each.
	FingerprintField string
	// Transport sends the requests, usually a notify.Transport.
	Transport http.RoundTripper
}

// Client implements notify.Tracker.
type Client struct {
	o   Options
	api *gojira.Client
	me  string // the account's id or name, once the credentials were proved
}

var _ notify.Tracker = (*Client)(nil)

// New makes a client; it does not connect.
func New(o Options) (*Client, error) {
	base, err := url.Parse(o.BaseURL)
	switch {
	case err != nil:
		return nil, fmt.Errorf("jira: base URL: %w", err)
	case base.Host == "" || base.Scheme != "https" && base.Scheme != "http":
		return nil, fmt.Errorf("jira: base URL %q: want https://host/path", base.Redacted())
	case base.User != nil:
		return nil, errors.New("jira: the base URL holds credentials: put them into user and token")
	}
	if o.BrowseURL == "" {
		o.BrowseURL = o.BaseURL
	}
	o.BrowseURL = strings.TrimSuffix(o.BrowseURL, "/")
	if o.Transport == nil {
		o.Transport = notify.NewTransport(notify.TransportOptions{Secrets: notify.SecretForms(o.User, o.Token)})
	}
	var rt http.RoundTripper
	switch {
	case o.Flavour == Cloud, o.Flavour == DataCenter && o.User != "":
		rt = &gojira.BasicAuthTransport{Username: o.User, Password: o.Token, Transport: guard{o.Transport}}
	case o.Flavour == DataCenter:
		rt = &gojira.PATAuthTransport{Token: o.Token, Transport: guard{o.Transport}}
	default:
		return nil, fmt.Errorf("jira: flavour %q: want %s or %s", o.Flavour, Cloud, DataCenter)
	}
	api, err := gojira.NewClient(notify.Client(rt), o.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("jira: %w", err)
	}
	return &Client{o: o, api: api}, nil
}

// String implements notify.Tracker.
func (c *Client) String() string { return "Jira at " + c.o.BrowseURL }

// guard ends everything when Jira says that the login failed, whatever the
// status. Cloud goes on as anonymous then: searches are 200 and empty, and every
// ticket would be filed again (MrRefactoring/jira.js#418, n8n-io/n8n#16325).
type guard struct{ next http.RoundTripper }

func (g guard) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := g.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	reason := strings.ToUpper(strings.Join(resp.Header.Values("X-Seraph-LoginReason"), ","))
	if strings.Contains(reason, "AUTHENTICATED_FAILED") || strings.Contains(reason, "AUTHENTICATION_DENIED") {
		resp.Body.Close()
		return nil, fmt.Errorf("%w: Jira says %s: the token has expired, was revoked or belongs to another user", notify.ErrUnauthenticated, reason)
	}
	return resp, nil
}

// do sends one request of the API and reads its answer into out. go-jira's Do
// leaves the body open where there is no out (andygrunwald/go-jira#582).
func (c *Client) do(ctx context.Context, method, path string, body, out any) error {
	reads := method == http.MethodGet || strings.HasPrefix(path, "rest/api/2/search")
	if reads {
		ctx = notify.Harmless(ctx)
	}
	req, err := c.api.NewRequestWithContext(ctx, method, path, body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	resp, err := c.api.Do(req, out)
	return c.check(resp, err, !reads, method+" "+path)
}

// check closes the answer and makes its error one of notify's. mayHaveActed says
// that a lost answer leaves open whether the thing was done.
func (c *Client) check(resp *gojira.Response, err error, mayHaveActed bool, what string) error {
	if resp != nil && resp.Body != nil {
		defer resp.Body.Close()
	}
	if err == nil {
		return nil
	}
	var kind error
	switch {
	case errors.Is(err, notify.ErrUnauthenticated):
		return fmt.Errorf("jira: %s: %w", what, err)
	case resp == nil:
		kind = notify.ErrUnreachable
		if mayHaveActed && !notify.NotSent(err) {
			kind = notify.ErrAmbiguous
		}
	case resp.StatusCode == http.StatusUnauthorized:
		kind = notify.ErrUnauthenticated
	case resp.StatusCode == http.StatusNotFound:
		kind = notify.ErrNotFound
	case mayHaveActed && (resp.StatusCode >= 500 || resp.StatusCode < 300):
		kind = notify.ErrAmbiguous // below 300 the answer could not be read
	case resp.StatusCode >= 500:
		kind = notify.ErrUnreachable
	}
	text := c.text(resp, err)
	if kind == nil {
		return fmt.Errorf("jira: %s: %w", what, text)
	}
	return fmt.Errorf("jira: %s: %w: %w", what, kind, text)
}

// text makes an error that says all that Jira said. go-jira shows the first
// message only, and whole HTML pages of proxies.
func (c *Client) text(resp *gojira.Response, err error) error {
	var said *gojira.Error
	if resp != nil && !errors.As(err, &said) {
		err = gojira.NewJiraError(resp, err)
	}
	if !errors.As(err, &said) {
		const most = 300
		msg := strings.Join(strings.Fields(err.Error()), " ")
		if len(msg) > most {
			return notify.Redact(errors.New(strings.ToValidUTF8(msg[:most], "")+"…"), notify.SecretForms(c.o.User, c.o.Token)...)
		}
		return notify.Redact(err, notify.SecretForms(c.o.User, c.o.Token)...)
	}
	parts := slices.Clone(said.ErrorMessages)
	var fields []string
	for field, msg := range said.Errors {
		fields = append(fields, field+": "+msg)
	}
	slices.Sort(fields)
	parts = append(parts, fields...)
	status := ""
	if resp != nil {
		status = resp.Status
	}
	return notify.Redact(errors.New(strings.TrimSpace(status+" "+strings.Join(parts, "; "))), notify.SecretForms(c.o.User, c.o.Token)...)
}

// issueFields are what is read of an issue. Cloud's search brings the id alone
// unless fields are named.
func (c *Client) issueFields() []string {
	fields := []string{"summary", "description", "labels", "status", "resolution", "resolutiondate", "creator"}
	if c.o.FingerprintField != "" {
		fields = append(fields, c.o.FingerprintField)
	}
	return fields
}

func (c *Client) issue(i gojira.Issue) notify.Issue {
	out := notify.Issue{ID: i.ID, Key: i.Key, URL: c.o.BrowseURL + "/browse/" + i.Key}
	f := i.Fields
	if f == nil {
		return out
	}
	out.Summary, out.Description, out.Labels = f.Summary, f.Description, slices.Concat(f.Labels, c.fieldLabels(f))
	if f.Creator != nil {
		out.Created = c.me != "" && c.me == c.userName(f.Creator)
	}
	if f.Status != nil {
		// The category's key depends on neither language nor workflow.
		out.Status, out.Done = f.Status.Name, f.Status.StatusCategory.Key == gojira.StatusCategoryComplete
	}
	if f.Resolution != nil {
		out.Resolution = f.Resolution.Name
	}
	out.ResolvedAt = time.Time(f.Resolutiondate)
	return out
}
