package collect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ipamaudit/ipam"
)

// maxPages ends a list whose server hands out continue tokens for ever.
const maxPages = 100_000

// pages reads a list page by page into b, each object as it arrives.
func (l *Live) pages(ctx context.Context, t task, query url.Values, b *Builder) error {
	cont := ""
	for page := 1; page <= maxPages; page++ {
		req := l.client.Get().AbsPath(t.path).Param("limit", strconv.Itoa(l.opts.PageSize))
		for k, vs := range query {
			for _, v := range vs {
				req = req.Param(k, v)
			}
		}
		if cont != "" {
			req = req.Param("continue", cont)
		}
		body, err := req.Stream(ctx)
		if err != nil {
			return err
		}
		sink := &pageSink{b: b, t: t}
		err = newJSONStream(body, Place{File: t.path, Document: page - 1}, sink).run()
		// What is left of a broken body is of no use, nor is the error of closing it.
		_ = body.Close()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("page %d broke off: %w", page, err)
		case sink.err != nil:
			return fmt.Errorf("page %d: %w", page, sink.err)
		case sink.end == nil:
			return fmt.Errorf("page %d: the answer is no list", page)
		case sink.end.Continue == "":
			return nil
		case sink.end.Continue == cont:
			return fmt.Errorf("page %d: the server hands out the same continue token again", page)
		}
		cont = sink.end.Continue
	}
	return fmt.Errorf("the list does not end after %d pages", maxPages)
}

// pageSink decodes the objects of one page.
type pageSink struct {
	b   *Builder
	t   task
	end *listEnd
	err error
	seq int64
}

func (s *pageSink) wants(string, string) bool { return true }

func (s *pageSink) object(o Object) {
	o = withKind(o, s.t)
	if r, ok := resourceOf(o.APIVersion, o.Kind); !ok || r != s.t.resource {
		s.err = fmt.Errorf("the list holds a %s %s", o.APIVersion, o.Kind)
		return
	}
	s.seq++
	o.seq = s.seq
	s.b.Add(o)
}

func (s *pageSink) listed(e listEnd) { s.end = &e }

func (s *pageSink) broken(p Place, apiVersion, kind string, err error) {
	s.b.reject(s.t.resource, &Object{APIVersion: apiVersion, Kind: kind, Place: p}, err)
}

// get reads one document.
func (l *Live) get(ctx context.Context, path string) ([]byte, error) {
	body, err := l.client.Get().AbsPath(path).Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return io.ReadAll(io.LimitReader(body, maxObject))
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
		text = u.Err.Error()
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
