package collect

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

const (
	// maxObject bounds one object. etcd refuses objects over 1.5 MiB; what is
	// larger than this is no object of a cluster.
	maxObject = 32 << 20
	// maxNesting bounds Lists within Lists.
	maxNesting = 8
)

var (
	errTooLarge = fmt.Errorf("object is larger than %d MiB", maxObject>>20)
	errNesting  = errors.New("lists are nested too deeply")
)

// Object is one raw object: what it says it is, where it stood, and its JSON.
type Object struct {
	APIVersion, Kind string
	JSON             []byte
	Place            Place
	// proto is the object in place of JSON, where the API server sent protobuf.
	proto *protoObject
}

// decode fills w, a pointer to a wire type.
func (o *Object) decode(w any) error {
	if o.proto != nil {
		return o.proto.dec.decode(o.proto.raw, w)
	}
	return decodeJSON(o.JSON, w)
}

// listEnd is what a list says about itself once it has been read.
type listEnd struct {
	APIVersion, Kind string
	Items            int
	// Continue and ResourceVersion are those of the list's metadata.
	Continue, ResourceVersion string
	// Remaining is how many items follow on other pages, if the server says so.
	Remaining int
}

// jsonSink receives what a jsonStream finds.
type jsonSink interface {
	// object receives one object. Its JSON is only valid during the call.
	object(Object)
	// wants reports whether objects of this kind are of any use; of others
	// only an Object without JSON is handed over.
	wants(apiVersion, kind string) bool
	// listed receives each list when it ends.
	listed(listEnd)
	// broken receives a value that is no object, or too large a one.
	broken(p Place, apiVersion, kind string, err error)
}

// jsonStream splits a stream of JSON values into objects without building
// trees: it only counts brackets, so that objects nobody wants cost next to
// nothing and memory never holds more than one object. Whether an object is
// valid JSON is the decoder's business; a broken one does not lose the next.
type jsonStream struct {
	r    io.Reader
	sink jsonSink

	buf      []byte
	pos, end int
	// keep is the start of the bytes that must survive a refill, or -1.
	keep int
	err  error

	place Place
	// lastAPI and lastKind are those of the last object that was begun, for
	// errors that break the stream.
	lastAPI, lastKind string
}

func newJSONStream(r io.Reader, place Place, sink jsonSink) *jsonStream {
	return &jsonStream{r: r, sink: sink, place: place, keep: -1, buf: make([]byte, 64<<10)}
}

// run reads every value of the stream. It returns an error when the stream
// breaks off: then what came before has been handed over, the rest is lost.
func (s *jsonStream) run() error {
	for {
		c, err := s.peek()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		s.place.Document++
		switch c {
		case '{':
			err = s.object("", "", 0)
		case '[':
			err = s.items("", "", 0, &listEnd{}, nil)
		default:
			err = fmt.Errorf("document %d: unexpected %q where a JSON object should begin", s.place.Document, c)
		}
		if err != nil {
			return err
		}
	}
}

// fill reads more bytes, moving or growing the buffer as needed. It gives up
// the kept bytes (keep becomes -1) once they exceed maxObject.
func (s *jsonStream) fill() error {
	if s.err != nil {
		return s.err
	}
	if s.keep >= 0 && s.end-s.keep > maxObject {
		s.keep = -1
	}
	from := s.pos
	if s.keep >= 0 {
		from = s.keep
	}
	if from > 0 {
		copy(s.buf, s.buf[from:s.end])
		s.pos -= from
		s.end -= from
		if s.keep >= 0 {
			s.keep = 0
		}
	}
	if s.end == len(s.buf) {
		grown := make([]byte, 2*len(s.buf))
		copy(grown, s.buf[:s.end])
		s.buf = grown
	}
	for range 100 {
		n, err := s.r.Read(s.buf[s.end:])
		s.end += n
		s.err = err
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

// peek skips white space and returns the next byte without taking it.
func (s *jsonStream) peek() (byte, error) {
	for {
		for s.pos < s.end {
			switch c := s.buf[s.pos]; c {
			case ' ', '\n', '\r', '\t':
				s.pos++
			default:
				return c, nil
			}
		}
		if err := s.fill(); err != nil {
			return 0, err
		}
	}
}

// next is peek within a value, where the end of the stream is an error.
func (s *jsonStream) next() (byte, error) {
	c, err := s.peek()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return c, err
}

// skipString moves past the string whose opening quote is at pos.
func (s *jsonStream) skipString() error {
	s.pos++
	for {
		chunk := s.buf[s.pos:s.end]
		i := bytes.IndexByte(chunk, '"')
		j := i
		if j < 0 {
			j = len(chunk)
		}
		if k := bytes.IndexByte(chunk[:j], '\\'); k >= 0 {
			s.pos += k + 1
			if s.pos == s.end {
				if err := s.fill(); err != nil {
					return unexpected(err)
				}
			}
			s.pos++
			continue
		}
		s.pos += j
		if i >= 0 {
			s.pos++
			return nil
		}
		if err := s.fill(); err != nil {
			return unexpected(err)
		}
	}
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// skipValue moves past the value at pos.
func (s *jsonStream) skipValue() error {
	c, err := s.next()
	if err != nil {
		return err
	}
	switch c {
	case '"':
		return s.skipString()
	case '{', '[':
	case '}', ']', ',', ':':
		return fmt.Errorf("unexpected %q", c)
	default:
		return s.skipScalar()
	}
	depth := 0
	for {
		s.pos += plain(s.buf[s.pos:s.end])
		if s.pos == s.end {
			if err := s.fill(); err != nil {
				return unexpected(err)
			}
			continue
		}
		switch s.buf[s.pos] {
		case '"':
			if err := s.skipString(); err != nil {
				return err
			}
			continue
		case '{', '[':
			depth++
		default:
			depth--
		}
		s.pos++
		if depth == 0 {
			return nil
		}
	}
}

// structure are the bytes by which the end of a value is found.
var structure = [256]bool{'{': true, '}': true, '[': true, ']': true, '"': true}

// plain is how many bytes come before the first of structure.
func plain(text []byte) int {
	for i, c := range text {
		if structure[c] {
			return i
		}
	}
	return len(text)
}

// skipScalar moves past a number or a literal.
func (s *jsonStream) skipScalar() error {
	for {
		for s.pos < s.end {
			switch s.buf[s.pos] {
			case ' ', '\n', '\r', '\t', ',', '}', ']', ':', '"', '{', '[':
				return nil
			}
			s.pos++
		}
		if err := s.fill(); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// key reads an object's next key. done is true at the closing bracket.
func (s *jsonStream) key(first bool) (name string, done bool, err error) {
	c, err := s.next()
	if err != nil {
		return "", false, err
	}
	if c == '}' {
		s.pos++
		return "", true, nil
	}
	if !first {
		if c != ',' {
			return "", false, fmt.Errorf("unexpected %q after a value", c)
		}
		s.pos++
		if c, err = s.next(); err != nil {
			return "", false, err
		}
	}
	if c != '"' {
		return "", false, fmt.Errorf("unexpected %q where a key should be", c)
	}
	raw, err := s.text()
	if err != nil {
		return "", false, err
	}
	if c, err = s.next(); err != nil {
		return "", false, err
	}
	if c != ':' {
		return "", false, fmt.Errorf("unexpected %q after key %q", c, raw)
	}
	s.pos++
	return raw, false, nil
}

// text returns the string at pos without its quotes; escapes stay as written,
// which none of the names looked for has.
func (s *jsonStream) text() (string, error) {
	kept := s.keep
	if kept < 0 {
		s.keep = s.pos
	}
	// The kept region may move: remember the string by its distance from it.
	off := s.pos - s.keep
	err := s.skipString()
	if err != nil {
		return "", err
	}
	if s.keep < 0 {
		return "", errTooLarge
	}
	out := string(s.buf[s.keep+off+1 : s.pos-1])
	if kept < 0 {
		s.keep = -1
	}
	return out, nil
}

// object reads the object at pos, which is a List when it has items. listAPI
// and listKind are what the list around it says its items are.
func (s *jsonStream) object(listAPI, listKind string, depth int) error {
	if depth > maxNesting {
		return errNesting
	}
	var (
		list             listEnd
		apiVersion, kind string
		isList, dropped  bool
		nullItems        bool
		held             []heldItem
		place            = s.place
	)
	s.keep = s.pos
	s.pos++
	for first := true; ; first = false {
		key, done, err := s.key(first)
		if err != nil {
			return err
		}
		if done {
			break
		}
		c, err := s.next()
		if err != nil {
			return err
		}
		switch {
		case (key == "apiVersion" || key == "kind") && c == '"':
			v, err := s.text()
			if err != nil {
				return err
			}
			if key == "kind" {
				kind = v
			} else {
				apiVersion = v
			}
			if kind != "" && apiVersion != "" {
				s.lastAPI, s.lastKind = apiVersion, kind
				if !isList && !strings.HasSuffix(kind, "List") && !s.sink.wants(apiVersion, kind) {
					dropped, s.keep = true, -1
				}
			}
		case key == "items" && c == '[' && !dropped:
			isList, s.keep = true, -1
			if err := s.items(apiVersion, kind, depth, &list, &held); err != nil {
				return err
			}
			s.keep = -1
			s.place = place
		case key == "items" && c == 'n':
			nullItems = true
			if err := s.skipValue(); err != nil {
				return err
			}
		case key == "metadata" && c == '{' && depth == 0:
			// Kept even of a single object, of which it is a part anyway.
			kept := s.keep
			if kept < 0 {
				s.keep = s.pos
			}
			off := s.pos - s.keep
			if err := s.skipValue(); err != nil {
				return err
			}
			if s.keep >= 0 && (isList || strings.HasSuffix(kind, "List")) {
				list.Continue, list.ResourceVersion, list.Remaining = listMeta(s.buf[s.keep+off : s.pos])
			}
			if kept < 0 {
				s.keep = -1
			}
		default:
			if err := s.skipValue(); err != nil {
				return err
			}
		}
	}
	// Items of built-in kinds carry no kind of their own (kubectl get --raw);
	// those that came before their list named its kind were held back.
	if isList || nullItems && strings.HasSuffix(kind, "List") {
		s.keep = -1
		for _, h := range held {
			s.sink.object(Object{APIVersion: apiVersion, Kind: strings.TrimSuffix(kind, "List"), JSON: h.json, Place: h.place})
		}
		list.APIVersion, list.Kind = apiVersion, kind
		s.sink.listed(list)
		return nil
	}
	if kind == "" {
		kind, apiVersion = strings.TrimSuffix(listKind, "List"), listAPI
	}
	o := Object{APIVersion: apiVersion, Kind: kind, Place: place}
	switch {
	case dropped:
		s.sink.object(o)
	case s.keep < 0 || s.pos-s.keep > maxObject:
		s.sink.broken(place, apiVersion, kind, errTooLarge)
	default:
		o.JSON = s.buf[s.keep:s.pos]
		s.sink.object(o)
	}
	s.keep = -1
	return nil
}

// heldItem waits for its list to name a kind.
type heldItem struct {
	json  []byte
	place Place
}

// items reads the array at pos. held collects items that name no kind while
// the list has not done so either; nil where no list will.
func (s *jsonStream) items(listAPI, listKind string, depth int, list *listEnd, held *[]heldItem) error {
	s.pos++
	size := 0
	for first := true; ; first = false {
		c, err := s.next()
		if err != nil {
			return err
		}
		if c == ']' {
			s.pos++
			return nil
		}
		if !first {
			if c != ',' {
				return fmt.Errorf("unexpected %q between items", c)
			}
			s.pos++
			if c, err = s.next(); err != nil {
				return err
			}
		}
		list.Items++
		s.place.Item = list.Items
		if c != '{' {
			if err := s.skipValue(); err != nil {
				return err
			}
			s.sink.broken(s.place, listAPI, strings.TrimSuffix(listKind, "List"), errors.New("item is no object"))
			continue
		}
		if listKind == "" && held != nil {
			h := &holdSink{jsonSink: s.sink}
			err = s.withSink(h, depth)
			size += len(h.json)
			switch {
			case h.json == nil:
			case size > maxObject:
				h.broken(s.place, "", "", fmt.Errorf("its list names its kind only after %d MiB of items", maxObject>>20))
			default:
				*held = append(*held, heldItem{h.json, s.place})
			}
		} else {
			err = s.object(listAPI, listKind, depth+1)
		}
		if err != nil {
			return err
		}
	}
}

func (s *jsonStream) withSink(h *holdSink, depth int) error {
	s.sink = h
	defer func() { s.sink = h.jsonSink }()
	return s.object("", "", depth+1)
}

// holdSink passes on objects that name their kind and copies one that does not.
type holdSink struct {
	jsonSink
	json []byte
}

func (h *holdSink) object(o Object) {
	if o.Kind == "" && o.JSON != nil {
		h.json = bytes.Clone(o.JSON)
		return
	}
	h.jsonSink.object(o)
}

// listMeta reads the metadata of a list.
func listMeta(raw []byte) (cont, version string, remaining int) {
	var m struct {
		Continue        string `json:"continue"`
		ResourceVersion string `json:"resourceVersion"`
		Remaining       int    `json:"remainingItemCount"`
	}
	if decodeJSON(raw, &m) != nil {
		return "", "", 0
	}
	return m.Continue, m.ResourceVersion, believable(m.Remaining)
}

// believable bounds what a server says it has left, since room is made for it.
func believable(remaining int) int { return max(0, min(remaining, 1<<20)) }
