package collect

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"ipamaudit/ipam"
)

// maxPages ends a list whose server hands out continue tokens for ever.
const maxPages = 100_000

// The content types. Custom resources have no protobuf, and say so by JSON.
const (
	acceptJSON  = "application/json"
	acceptProto = "application/vnd.kubernetes.protobuf,application/json"
)

// pages reads a list page by page and hands each page over once it is whole.
func (l *Live) pages(ctx context.Context, t task, query url.Values, whole func(*page)) error {
	ask := pageRequest{query: query, limit: l.opts.PageSize}
	// One page after the other is decoded into the same room.
	b := NewBuilder()
	for ask.number = 1; ask.number <= maxPages; ask.number++ {
		var p *page
		err := l.try(ctx, maxTries, func(ctx context.Context, c *rest.RESTClient) (err error) {
			b.empty()
			p, err = l.page(ctx, c, t, b, ask)
			if err != nil {
				ask.limit = smaller(ask.limit, err)
			}
			return err
		})
		if err != nil {
			return err
		}
		whole(p)
		switch p.end.Continue {
		case "":
			return nil
		case ask.cont:
			return fmt.Errorf("page %d: the server hands out the same continue token again", ask.number)
		}
		ask.cont = p.end.Continue
	}
	return fmt.Errorf("the list does not end after %d pages", maxPages)
}

// pageRequest asks for one page of a list: its number from 1, the query of the
// list, the token that the page before ended with, and for how many objects.
type pageRequest struct {
	number int
	query  url.Values
	cont   string
	limit  int
}

// smallPage is as far as pages shrink.
const smallPage = 200

// smaller is how many objects to ask for after a page of limit has failed: a
// fifth. A server that is slow, a line that breaks off and an etcd that runs out
// of time all bear less. A refusal (401, 403, 429) has nothing to do with size.
func smaller(limit int, err error) int {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Code < http.StatusInternalServerError {
		return limit
	}
	return min(limit, max(limit/5, smallPage))
}

// page is what one request brought. It counts only when it was read to its
// end: a page that breaks off is read again.
type page struct {
	b   *Builder
	t   task
	end *listEnd
	err error
	// held waits for the recorder until the page is whole.
	held []func(*Recorder)
}

// page makes one list request and decodes each object as it arrives.
func (l *Live) page(ctx context.Context, c *rest.RESTClient, t task, b *Builder, ask pageRequest) (*page, error) {
	req := c.Get().AbsPath(t.path).MaxRetries(0).Param("limit", strconv.Itoa(ask.limit))
	if t.proto {
		req = req.SetHeader("Accept", acceptProto)
	}
	for k, vs := range ask.query {
		for _, v := range vs {
			req = req.Param(k, v)
		}
	}
	if ask.cont != "" {
		req = req.Param("continue", ask.cont)
	}
	answer, err := open(ctx, req)
	if err != nil {
		return nil, err
	}
	defer answer.Close()
	p := &page{b: b, t: t}
	if l.opts.Record != nil {
		p.b.tee = func(r ipam.Resource, w object) {
			p.held = append(p.held, func(to *Recorder) { to.object(r, w) })
		}
	}
	body := &watchedBody{Reader: answer}
	err = p.read(body, Place{File: t.path, Document: ask.number - 1})
	switch {
	case body.err != nil:
		return nil, fmt.Errorf("page %d broke off: %w", ask.number, body.err)
	case err != nil:
		return nil, fmt.Errorf("page %d broke off: %w", ask.number, err)
	case p.err != nil:
		return nil, fmt.Errorf("page %d: %w", ask.number, p.err)
	case p.end == nil:
		return nil, fmt.Errorf("page %d: %w", ask.number, errNoList)
	}
	return p, nil
}

// read decodes a list in protobuf or JSON.
func (p *page) read(body io.Reader, place Place) error {
	in := bufio.NewReaderSize(body, 64<<10)
	if head, _ := in.Peek(len(protoMagic)); string(head) == protoMagic {
		place.Document++
		return newProtoStream(in, place, newProtoDecoder(), p).run()
	}
	return newJSONStream(in, place, p).run()
}

// open sends a request and returns the body of a good answer.
func open(ctx context.Context, req *rest.Request) (io.ReadCloser, error) {
	body, err := req.Stream(ctx)
	var status apierrors.APIStatus
	if err != nil && !errors.As(err, &status) {
		err = &transportError{err}
	}
	return body, err
}

func (p *page) wants(string, string) bool { return true }

func (p *page) object(o Object) {
	o = withKind(o, p.t)
	if r, ok := resourceOf(o.APIVersion, o.Kind); !ok || r != p.t.resource {
		p.err = fmt.Errorf("the list holds a %s %s", o.APIVersion, o.Kind)
		return
	}
	p.b.Add(o)
}

func (p *page) listed(e listEnd) { p.end = &e }

func (p *page) broken(at Place, apiVersion, kind string, err error) {
	p.b.reject(p.t.resource, &Object{APIVersion: apiVersion, Kind: kind, Place: at}, err)
}

// get reads one document.
func (l *Live) get(ctx context.Context, path string) (raw []byte, err error) {
	err = l.try(ctx, firstTries, func(ctx context.Context, c *rest.RESTClient) error {
		answer, err := open(ctx, c.Get().AbsPath(path).MaxRetries(0))
		if err != nil {
			return err
		}
		defer answer.Close()
		raw, err = io.ReadAll(io.LimitReader(&watchedBody{Reader: answer}, maxObject))
		return err
	})
	return raw, err
}

func expired(err error) bool {
	return err != nil && (apierrors.IsResourceExpired(err) || apierrors.IsGone(err))
}

// outcomeOf maps an error to a coverage status and a short reason.
func outcomeOf(err error) (ipam.ReadStatus, string) {
	reason := shortError(err).Error()
	switch {
	case errors.Is(err, errNotServed):
		return ipam.Absent, reason
	case apierrors.IsForbidden(err):
		return ipam.Forbidden, reason
	case apierrors.IsNotFound(err):
		return ipam.Absent, "the API does not serve it"
	default:
		return ipam.Failed, reason
	}
}

// shortError is the cause without the URL around it, in one short line. It
// keeps the chain for errors.Is and As.
func shortError(err error) error {
	var u *url.Error
	var text string
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		text = "timed out"
	case apierrors.IsUnauthorized(err):
		text = "the API server does not accept the credentials (401 Unauthorized)"
	case errors.As(err, &u):
		// The URL holds nothing that the reader does not know.
		text = strings.Replace(err.Error(), u.Error(), u.Err.Error(), 1)
	default:
		text = err.Error()
	}
	text = strings.Join(strings.Fields(text), " ")
	const most = 300
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return &shortened{text, err}
}

type shortened struct {
	text string
	err  error
}

func (s *shortened) Error() string { return s.text }
func (s *shortened) Unwrap() error { return s.err }

// fatal reports whether an error of the first request means that no other can
// succeed: no connection, no trust, no identity.
func fatal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	code := int(status.Status().Code)
	return code == http.StatusUnauthorized || code >= http.StatusInternalServerError
}
