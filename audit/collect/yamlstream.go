package collect

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// yamlSink receives what a yamlStream finds.
type yamlSink interface {
	wants(apiVersion, kind string) bool
	// fragment receives the text of one object (a document, or one item of a
	// list), only valid during the call. Its kind is only known where it is
	// written plainly. wanted is false when the kind is of no use.
	fragment(f yamlFragment)
	// listed receives a list once its document ends.
	listed(listEnd)
	broken(p Place, apiVersion, kind string, err error)
}

type yamlFragment struct {
	Text             []byte
	APIVersion, Kind string
	Place            Place
	// Unwanted is set where the kind is known and of no use; Text is empty then.
	Unwanted bool
}

// yamlStream splits a YAML stream into documents, and a document that is
// written as kubectl writes lists ("items:" and "- " at one indentation) into
// its items, by looking at lines only. So one item at a time is parsed, a
// broken one does not lose its neighbours, and foreign kinds are never parsed.
//
// Splitting by lines is safe where it is done: in block style nothing that
// belongs to an item starts at or left of the item's dash.
type yamlStream struct {
	sink  yamlSink
	r     *bufio.Reader
	place Place
	line  int

	// head is the document without its items.
	head fragmentBuffer
	item fragmentBuffer
	// inItems is true between "items:" and the next key of the document.
	inItems bool
	// indent is the column of the items' dashes; -1 until the first is seen.
	indent  int
	isList  bool
	nItems  int
	started bool
	// broken is why a list may have lost items.
	broken error
}

// fragmentBuffer collects the lines of one object and watches for its kind.
type fragmentBuffer struct {
	text             []byte
	apiVersion, kind string
	line             int
	open             bool
	drop, tooLarge   bool
}

func newYAMLStream(r io.Reader, place Place, sink yamlSink) *yamlStream {
	return &yamlStream{sink: sink, r: bufio.NewReaderSize(r, 64<<10), place: place, indent: -1}
}

func (s *yamlStream) run() error {
	for {
		line, err := s.readLine()
		if len(line) > 0 {
			s.line++
			s.take(line)
		}
		if errors.Is(err, io.EOF) {
			s.endDocument()
			return s.broken
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", s.line+1, err)
		}
	}
}

// readLine returns the next line, with its line feed, and at most maxObject of it.
func (s *yamlStream) readLine() ([]byte, error) {
	line, err := s.r.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	long := bytes.Clone(line)
	for errors.Is(err, bufio.ErrBufferFull) {
		line, err = s.r.ReadSlice('\n')
		if len(long) <= maxObject {
			long = append(long, line...)
		}
	}
	return long, err
}

func (s *yamlStream) take(line []byte) {
	trimmed := bytes.TrimRight(line, " \t\r\n")
	if rest, ok := documentMark(trimmed); ok {
		s.endDocument()
		if len(bytes.TrimSpace(rest)) == 0 {
			return
		}
		line = append(append([]byte{}, rest...), '\n')
		trimmed = bytes.TrimRight(line, " \t\r\n")
	}
	if string(trimmed) == "..." {
		s.endDocument()
		return
	}
	content := bytes.TrimLeft(trimmed, " ")
	column := len(trimmed) - len(content)
	if !s.started && column == 0 && len(content) > 0 && content[0] == '%' {
		return // a directive
	}
	blank := len(content) == 0 || content[0] == '#'
	if !blank {
		s.started = true
	}
	if s.inItems {
		dash := len(content) > 0 && content[0] == '-' && (len(content) == 1 || content[1] == ' ')
		switch {
		case dash && (s.indent < 0 || column == s.indent):
			s.indent = column
			s.endItem()
			s.item = fragmentBuffer{text: s.item.text[:0], line: s.line, open: true}
			// The dash becomes part of the indentation.
			cleared := bytes.Clone(line)
			cleared[column] = ' '
			s.put(&s.item, cleared, column+2)
			return
		case blank, s.item.open && column > s.indent:
			if s.item.open {
				s.put(&s.item, line, s.indent+2)
			}
			return
		default:
			s.endItem()
			s.inItems = false
		}
	}
	if column == 0 && s.isItems(trimmed) && !s.isList {
		s.inItems, s.isList, s.indent = true, true, -1
		return
	}
	if s.head.line == 0 {
		s.head.line = s.line
	}
	s.put(&s.head, line, 0)
}

// documentMark reports whether a line begins a document, and what stands behind the mark.
func documentMark(line []byte) (rest []byte, ok bool) {
	if !bytes.HasPrefix(line, []byte("---")) {
		return nil, false
	}
	rest = line[3:]
	if len(rest) > 0 && rest[0] != ' ' && rest[0] != '\t' {
		return nil, false
	}
	if t := bytes.TrimSpace(rest); len(t) > 0 && t[0] == '#' {
		rest = nil
	}
	return rest, true
}

// isItems recognises "items:" with nothing but a comment behind it.
func (s *yamlStream) isItems(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("items:"))
	if !ok {
		return false
	}
	rest = bytes.TrimSpace(rest)
	return len(rest) == 0 || rest[0] == '#'
}

// put appends a line to a fragment whose keys stand at the given column.
func (s *yamlStream) put(f *fragmentBuffer, line []byte, column int) {
	if f.drop {
		return
	}
	if len(line) > column && (f.kind == "" || f.apiVersion == "") {
		if blankTo(line, column) && line[column] != ' ' {
			if v, ok := plainValue(line[column:], "kind:"); ok && f.kind == "" {
				f.kind = v
			}
			if v, ok := plainValue(line[column:], "apiVersion:"); ok && f.apiVersion == "" {
				f.apiVersion = v
			}
			if f.kind != "" && f.apiVersion != "" && !strings.HasSuffix(f.kind, "List") && !s.sink.wants(f.apiVersion, f.kind) {
				f.drop, f.text = true, f.text[:0]
				return
			}
		}
	}
	if len(f.text)+len(line) > maxObject {
		f.drop, f.tooLarge, f.text = true, true, f.text[:0]
		return
	}
	f.text = append(f.text, line...)
}

func blankTo(line []byte, column int) bool {
	for _, c := range line[:column] {
		if c != ' ' {
			return false
		}
	}
	return true
}

// plainValue reads "kind: Pod", quoted or not.
func plainValue(line []byte, key string) (string, bool) {
	rest, ok := bytes.CutPrefix(line, []byte(key))
	if !ok {
		return "", false
	}
	v := strings.Trim(strings.TrimSpace(string(rest)), `"'`)
	if v == "" || strings.ContainsAny(v, " #{}[]&*!|>\"'\\") {
		return "", false
	}
	return v, true
}

func (s *yamlStream) endItem() {
	if !s.item.open {
		return
	}
	s.nItems++
	p := s.place
	p.Item = s.nItems
	s.emit(&s.item, p)
	s.item.open = false
}

func (s *yamlStream) emit(f *fragmentBuffer, p Place) {
	p.Document = s.place.Document + 1
	p.Line = f.line
	if f.tooLarge {
		s.sink.broken(p, f.apiVersion, f.kind, errTooLarge)
		return
	}
	s.sink.fragment(yamlFragment{Text: f.text, APIVersion: f.apiVersion, Kind: f.kind, Place: p, Unwanted: f.drop})
}

func (s *yamlStream) endDocument() {
	s.endItem()
	if s.started {
		if s.isList {
			s.endList()
		} else {
			s.emit(&s.head, s.place)
		}
		s.place.Document++
	}
	s.head = fragmentBuffer{text: s.head.text[:0]}
	s.inItems, s.isList, s.started, s.nItems, s.indent = false, false, false, 0, -1
}

// endList reports the list whose items have been handed over. What stood around
// them is parsed after all: a line that fits nowhere must not go unnoticed.
func (s *yamlStream) endList() {
	var around struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Items      any            `json:"items"`
		Metadata   jsontext.Value `json:"metadata"`
	}
	text, err := yamlToJSON(s.head.text)
	if err == nil {
		err = decodeJSON(text, &around)
	}
	if err == nil && (around.Items != nil || strings.ContainsAny(around.Kind, " \n")) {
		err = errors.New("lines that belong to no key or item")
	}
	if err == nil && around.Kind == "" && s.nItems > 0 {
		// kubectl writes the kind behind the items: a list that was cut off
		// between two of them looks whole but for this.
		err = errors.New("the list has no kind, so it may have been cut off")
	}
	if err != nil || s.head.tooLarge {
		if err == nil {
			err = errTooLarge
		}
		if s.broken == nil {
			s.broken = fmt.Errorf("document %d: what stands around the list's items: %w", s.place.Document+1, err)
		}
		return
	}
	list := listEnd{APIVersion: around.APIVersion, Kind: around.Kind, Items: s.nItems}
	list.Continue, list.ResourceVersion, list.Remaining = listMeta(around.Metadata)
	s.sink.listed(list)
}

// maxAliasNodes bounds what aliases may add to a document: a "billion laughs"
// document is refused, and no Kubernetes object uses aliases at all.
const maxAliasNodes = 100_000

var errAliases = errors.New("its aliases expand to too much")

// yamlToJSON turns one YAML document into JSON.
func yamlToJSON(text []byte) ([]byte, error) {
	var n yaml.Node
	if err := yaml.Unmarshal(text, &n); err != nil {
		return nil, fmt.Errorf("invalid YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	e := yamlEncoder{out: make([]byte, 0, len(text))}
	if n.Kind == 0 {
		return []byte("null"), nil
	}
	if err := e.node(&n); err != nil {
		return nil, err
	}
	return e.out, nil
}
