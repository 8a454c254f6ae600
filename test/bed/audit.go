package bed

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
)

const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: None
    users: [system:apiserver]
  - level: Metadata
`

// Request is what the API server recorded about a request it answered.
type Request struct {
	User, Verb, URI            string
	Group, Resource, Namespace string // empty for requests that are not for a resource
	Subresource, Name          string
	Code                       int
	UserAgent                  string
}

// Requests returns the requests of a user ("system:serviceaccount:ns:name" for
// a ServiceAccount), in the order in which they were answered. The cluster must
// have been started with Options.Audit.
func (c *Cluster) Requests(user string) ([]Request, error) {
	data, err := os.ReadFile(c.path("audit.log"))
	if err != nil {
		return nil, fmt.Errorf("read what %s recorded (was it started with Options.Audit?): %w", c.Name, err)
	}
	var out []Request
	for line := range bytes.Lines(data) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // being written
		}
		var event struct {
			Stage, Verb, RequestURI, UserAgent string
			User                               struct{ Username string }
			ObjectRef                          struct{ APIGroup, Resource, Subresource, Namespace, Name string }
			ResponseStatus                     struct{ Code int }
		}
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("%s: %w", c.path("audit.log"), err)
		}
		if event.User.Username != user || event.Stage != "ResponseComplete" {
			continue
		}
		ref := event.ObjectRef
		out = append(out, Request{
			User: user, Verb: event.Verb, URI: event.RequestURI, UserAgent: event.UserAgent,
			Group: ref.APIGroup, Resource: ref.Resource, Subresource: ref.Subresource, Namespace: ref.Namespace, Name: ref.Name,
			Code: event.ResponseStatus.Code,
		})
	}
	return out, nil
}
