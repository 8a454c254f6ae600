package collect

import (
	"fmt"
	"io"
	"strings"
	"time"

	"ipamaudit/ipam"
)

// ManifestSchema names the format of snapshot.json.
const ManifestSchema = "ipamaudit/snapshot/v1"

const manifestFile = "snapshot.json"

// manifest is snapshot.json: what the files of a snapshot cannot say themselves.
type manifest struct {
	Schema string    `json:"schema"`
	Time   time.Time `json:"time,omitzero"`
	// TimeInferred is true where Time is only the newest time in the objects.
	TimeInferred bool `json:"timeInferred,omitzero"`
	Cluster      struct {
		Name string `json:"name,omitempty"`
		ID   string `json:"id,omitempty"`
	} `json:"cluster"`
	Tool string `json:"tool,omitempty"`
	// API is the group in which Calico's data was looked for.
	API       string             `json:"api,omitempty"`
	Resources []manifestResource `json:"resources"`
	// Rejected are the objects that could not be used when it was written.
	Rejected []manifestRejected `json:"rejected,omitempty"`

	// file is where it was read.
	file string
}

type manifestResource struct {
	Resource string          `json:"resource"`
	Status   ipam.ReadStatus `json:"status"`
	Detail   string          `json:"detail,omitempty"`
}

type manifestRejected struct {
	Where   string `json:"where"`
	Kind    string `json:"kind,omitempty"`
	Name    string `json:"name,omitempty"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
}

// readManifest reads snapshot.json. ok is false for a file of that name that
// is something else.
func readManifest(name string, r io.Reader) (m *manifest, ok bool, err error) {
	data, err := io.ReadAll(io.LimitReader(r, maxObject))
	if err != nil {
		return nil, false, fmt.Errorf("%w: manifest %s: %w", ErrBadInput, name, err)
	}
	m = &manifest{file: name}
	if err := decodeJSON(data, m); err != nil {
		field, message := explain(err)
		return nil, false, fmt.Errorf("%w: manifest %s: %s %s", ErrBadInput, name, field, message)
	}
	switch {
	case m.Schema == ManifestSchema:
	case strings.HasPrefix(m.Schema, "ipamaudit/snapshot/"):
		return nil, false, fmt.Errorf("%w: manifest %s: schema %q is not known to this version (it reads %s)", ErrBadInput, name, m.Schema, ManifestSchema)
	default:
		return nil, false, fmt.Errorf("%w: manifest %s: schema is %q, not %s", ErrBadInput, name, m.Schema, ManifestSchema)
	}
	for i, r := range m.Resources {
		switch r.Status {
		case ipam.Read, ipam.Forbidden, ipam.Absent, ipam.Failed, ipam.Missing:
		default:
			return nil, false, fmt.Errorf("%w: manifest %s: resources.%d.status: %q is none of read, forbidden, absent, failed, missing", ErrBadInput, name, i, r.Status)
		}
	}
	return m, true, nil
}

// apply lets the manifest's statuses win over what the files say.
func (m *manifest) apply(b *Builder) {
	for _, res := range m.Resources {
		r, ok := ipam.ParseResource(res.Resource)
		if !ok {
			continue
		}
		if res.Status != ipam.Read {
			b.SetStatus(r, res.Status, res.Detail)
			continue
		}
		if res.Detail != "" {
			b.details[r] = res.Detail
		}
		if b.tallies[r] == nil {
			// A file that got lost must not look like an empty cluster.
			b.hint(r, ipam.Failed, fmt.Sprintf("%s says that it was read, but no file holds it", m.file))
		}
	}
	for _, e := range m.Rejected {
		b.Rejected(ipam.ObjectError{Where: e.Where, Kind: e.Kind, Name: e.Name, Field: e.Field, Message: e.Message})
	}
}
