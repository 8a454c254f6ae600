package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"ipamaudit/audit"
)

const schemaPrefix = "ipamaudit/state/v"

// migration turns a document of one schema version into the next one.
type migration func(doc map[string]any) error

// migrations returns the steps from version 1 on: the first makes version 2 out
// of version 1. There is only version 1 yet.
func migrations() []migration { return nil }

// DamagedError says that a stored state cannot be read.
type DamagedError struct {
	// Where is the file or object, Advice what to do about it.
	Where, Advice string
	Err           error
}

// Error says what is wrong and what to do.
func (e *DamagedError) Error() string {
	return fmt.Sprintf("the state in %s cannot be read: %v. It was left as it is. %s", e.Where, e.Err, e.Advice)
}

// Unwrap returns the cause.
func (e *DamagedError) Unwrap() error { return e.Err }

// VersionError says that a stored state was written by a later version.
type VersionError struct {
	Where, Advice string
	// Schema is what is stored, Known the latest that this program reads.
	Schema, Known string
}

// Error says what to do.
func (e *VersionError) Error() string {
	return fmt.Sprintf("the state in %s was written by a later version of ipamaudit (schema %q, this one reads up to %q). It was left as it is. Run that version. %s",
		e.Where, e.Schema, e.Known, e.Advice)
}

// place is where a state is kept, for errors.
type place struct{ where, advice string }

// startAfresh is what happens after an advice was followed.
const startAfresh = "The next run then starts with an empty state: it finds its tickets again by their labels, but not since when a finding is known nor for how many nights."

func encode(s *audit.State) ([]byte, error) {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode the state: %w", err)
	}
	return append(data, '\n'), nil
}

func decode(data []byte, at place) (*audit.State, error) {
	return decodeWith(data, at, audit.StateSchema, migrations())
}

func decodeWith(data []byte, at place, schema string, steps []migration) (*audit.State, error) {
	damaged := func(err error) error { return &DamagedError{Where: at.where, Advice: at.advice, Err: err} }
	doc, err := decodeDocument(data)
	if err != nil {
		return nil, damaged(err)
	}
	stored, _ := doc["schema"].(string)
	version, known := schemaVersion(stored), schemaVersion(schema)
	switch {
	case version == 0:
		return nil, damaged(fmt.Errorf("schema is %q, which is not a state of ipamaudit", stored))
	case version > known:
		return nil, &VersionError{Where: at.where, Advice: at.advice, Schema: stored, Known: schema}
	}
	for ; version < known; version++ {
		if err := steps[version-1](doc); err != nil {
			return nil, damaged(fmt.Errorf("migrate it from version %d: %w", version, err))
		}
	}
	doc["schema"] = schema
	if data, err = json.Marshal(doc); err != nil {
		return nil, damaged(err)
	}
	s := audit.NewState()
	if err := json.Unmarshal(data, s); err != nil {
		return nil, damaged(err)
	}
	if err := fill(s); err != nil {
		return nil, damaged(err)
	}
	return s, nil
}

// decodeDocument reads one JSON object and nothing behind it. Numbers stay
// text: pool figures reach 2^53, where a float64 ends.
func decodeDocument(data []byte) (map[string]any, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, errors.New("it is empty")
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var doc map[string]any
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("it ends too early: %w", err)
		}
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON document")
	}
	return doc, nil
}

// schemaVersion returns 0 for what is no schema of ours.
func schemaVersion(schema string) int {
	digits, ok := strings.CutPrefix(schema, schemaPrefix)
	n, err := strconv.Atoi(digits)
	if !ok || err != nil || n < 1 {
		return 0
	}
	return n
}

// fill replaces absent maps by empty ones and refuses null entries.
func fill(s *audit.State) error {
	if s.Clusters == nil {
		s.Clusters = map[string]*audit.ClusterState{}
	}
	if s.Tickets == nil {
		s.Tickets = map[string]*audit.TicketState{}
	}
	if s.Messages == nil {
		s.Messages = map[string]*audit.MessageState{}
	}
	if s.Channels == nil {
		s.Channels = map[string]*audit.ChannelState{}
	}
	for name, c := range s.Channels {
		if c == nil {
			return fmt.Errorf("channels: %q is null", name)
		}
		if err := noNull("channels: "+name+": untold", c.Untold); err != nil {
			return err
		}
	}
	for name, c := range s.Clusters {
		if c == nil {
			return fmt.Errorf("clusters: %q is null", name)
		}
		if c.Findings == nil {
			c.Findings = map[string]*audit.FindingRecord{}
		}
		if err := noNull("clusters: "+name+": findings", c.Findings); err != nil {
			return err
		}
	}
	if err := noNull("tickets", s.Tickets); err != nil {
		return err
	}
	return noNull("messages", s.Messages)
}

func noNull[T any](what string, m map[string]*T) error {
	for key, v := range m {
		if v == nil {
			return fmt.Errorf("%s: %q is null", what, key)
		}
	}
	return nil
}
