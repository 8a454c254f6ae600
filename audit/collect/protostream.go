package collect

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// protoMagic begins every protobuf answer of an API server
// (k8s.io/apimachinery/pkg/runtime/serializer/protobuf). What follows is a
// runtime.Unknown, whose bytes are the list.
const protoMagic = "k8s\x00"

// protoStream splits a list in protobuf into objects: like jsonStream it never
// holds more than one of them.
type protoStream struct {
	r    *bufio.Reader
	sink jsonSink
	dec  *protoDecoder
	buf  []byte

	place            Place
	apiVersion, kind string
	end              listEnd
}

func newProtoStream(r *bufio.Reader, place Place, dec *protoDecoder, sink jsonSink) *protoStream {
	return &protoStream{r: r, place: place, dec: dec, sink: sink}
}

var errNoList = errors.New("the answer is no list")

// run reads the whole answer. It returns an error when it breaks off: then what
// came before has been handed over, the rest is lost.
func (s *protoStream) run() error {
	if _, err := s.r.Discard(len(protoMagic)); err != nil {
		return unexpected(err)
	}
	seen := false
	for {
		number, size, err := s.tag(nil)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		switch number {
		case 1: // TypeMeta
			raw, err := s.bytes(size)
			if err != nil {
				return err
			}
			api, kind, err := protoPair(raw)
			if err != nil {
				return err
			}
			s.apiVersion, s.kind = protoString(api), protoString(kind)
		case 2: // the object itself
			if err := s.list(size); err != nil {
				return err
			}
			seen = true
		default:
			if err := s.skip(size); err != nil {
				return err
			}
		}
	}
	if !seen {
		// Even an empty list has its metadata.
		return io.ErrUnexpectedEOF
	}
	s.end.APIVersion, s.end.Kind = s.apiVersion, s.kind
	s.sink.listed(s.end)
	return nil
}

// list reads a list of size bytes: its metadata is field 1, each item field 2.
func (s *protoStream) list(size uint64) error {
	if !strings.HasSuffix(s.kind, "List") {
		return errNoList
	}
	left := size
	for left > 0 {
		number, n, err := s.tag(&left)
		if err != nil {
			return unexpected(err)
		}
		if n > left {
			return fmt.Errorf("a field of %d bytes in the last %d of a list", n, left)
		}
		left -= n
		switch {
		case number == 1:
			raw, err := s.bytes(n)
			if err != nil {
				return err
			}
			var meta struct {
				ResourceVersion string `pb:"2"`
				Continue        string `pb:"3"`
				Remaining       int    `pb:"4"`
			}
			if err := s.dec.decode(raw, &meta); err != nil {
				return err
			}
			s.end.Continue, s.end.ResourceVersion, s.end.Remaining = meta.Continue, meta.ResourceVersion, believable(meta.Remaining)
		case number == 2:
			if err := s.item(n); err != nil {
				return err
			}
		default:
			if err := s.skip(n); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *protoStream) item(size uint64) error {
	s.end.Items++
	s.place.Item = s.end.Items
	kind := strings.TrimSuffix(s.kind, "List")
	if size > maxObject {
		s.sink.broken(s.place, s.apiVersion, kind, errTooLarge)
		return s.skip(size)
	}
	raw, err := s.bytes(size)
	if err != nil {
		return err
	}
	s.sink.object(Object{APIVersion: s.apiVersion, Kind: kind, Place: s.place, proto: &protoObject{raw, s.dec}})
	return nil
}

// tag reads a field's number and the size of its bytes; nothing at these levels
// is of another type. left, unless nil, is reduced by what was read. The error
// is io.EOF only where the answer ends before the tag.
func (s *protoStream) tag(left *uint64) (protowire.Number, uint64, error) {
	tag, err := binary.ReadUvarint(s.r)
	if err != nil {
		return 0, 0, err
	}
	size, err := binary.ReadUvarint(s.r)
	if err != nil {
		return 0, 0, unexpected(err)
	}
	number, typ := protowire.DecodeTag(tag)
	if typ != protowire.BytesType || number < 1 {
		return 0, 0, errWireType
	}
	if left != nil {
		n := uint64(protowire.SizeVarint(tag) + protowire.SizeVarint(size)) //nolint:gosec // at most 20
		if n > *left {
			return 0, 0, io.ErrUnexpectedEOF
		}
		*left -= n
	}
	return number, size, nil
}

// bytes reads n bytes, which are valid until the next call.
func (s *protoStream) bytes(n uint64) ([]byte, error) {
	if n > maxObject {
		return nil, errTooLarge
	}
	if uint64(cap(s.buf)) < n {
		s.buf = make([]byte, n+n/2)
	}
	raw := s.buf[:n]
	if _, err := io.ReadFull(s.r, raw); err != nil {
		return nil, unexpected(err)
	}
	return raw, nil
}

func (s *protoStream) skip(n uint64) error {
	if _, err := io.CopyN(io.Discard, s.r, int64(n)); err != nil { //nolint:gosec // what is too large ends the stream
		return unexpected(err)
	}
	return nil
}

// protoObject is an object in protobuf and what reads it.
type protoObject struct {
	raw []byte
	dec *protoDecoder
}
