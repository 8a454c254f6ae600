package collect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// How often and how long a request is tried. Only reads are made, so trying
// again is always allowed; it is bounded, because an API server in trouble has
// enough to do.
const (
	// maxTries is for a page: continue tokens live for minutes, and giving up
	// costs the whole list.
	maxTries = 6
	// firstTries is for the first contact, where a cluster that is down is
	// more likely than one that hiccups.
	firstTries = 3
	// slowTries is how often a request may run into DefaultRequestTimeout.
	slowTries = 2
	// minWait doubles with each try, up to maxWait. A Retry-After is honoured up
	// to maxRetryAfter.
	minWait       = 250 * time.Millisecond
	maxWait       = 8 * time.Second
	maxRetryAfter = 30 * time.Second
)

// DefaultRequestTimeout bounds one request, body included. API servers cut
// requests off after a minute themselves (--request-timeout).
const DefaultRequestTimeout = time.Minute

// errSlow says that it was the request's own time that ran out.
var errSlow = errors.New("the API server did not answer in time")

// try makes a request until it succeeds or is beyond help: refused for good,
// tried often enough, or ctx is done. do gets the client to use, which is
// another one after the first 401: credentials expire while a list is read.
func (l *Live) try(ctx context.Context, tries int, do func(context.Context, *rest.RESTClient) error) error {
	renewed, slow := false, 0
	for n := 1; ; n++ {
		client := l.client.Load()
		err := l.once(ctx, client, do)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, errSlow) {
			slow++
		}
		var wait time.Duration
		switch {
		case apierrors.IsUnauthorized(err) && !renewed:
			renewed = true
			if err := l.renew(ctx, client); err != nil {
				return err
			}
		case n >= tries || slow >= slowTries || !temporary(err):
			if n > 1 && temporary(err) {
				err = fmt.Errorf("%w (tried %d times)", err, n)
			}
			return err
		default:
			wait = pause(err, n)
		}
		if l.sleep(ctx, wait) != nil {
			// The last answer says more than that the time is over.
			return fmt.Errorf("%w (gave up waiting to try again)", err)
		}
	}
}

// once makes one request within its own time.
func (l *Live) once(ctx context.Context, client *rest.RESTClient, do func(context.Context, *rest.RESTClient) error) error {
	if l.limit != nil {
		if err := l.limit.Wait(ctx); err != nil {
			return err
		}
	}
	within, cancel := context.WithTimeout(ctx, l.opts.RequestTimeout)
	defer cancel()
	err := do(within, client)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("%w (%s)", errSlow, l.opts.RequestTimeout)
	}
	return err
}

// renew replaces the client that used expired credentials, unless somebody has
// done so already. Without a way to get others the same ones are tried again:
// client-go itself renews those of plug-ins and token files after a 401.
func (l *Live) renew(ctx context.Context, used *rest.RESTClient) error {
	l.renewing.Lock()
	defer l.renewing.Unlock()
	if l.opts.Renew == nil || l.client.Load() != used {
		return nil
	}
	cfg, err := l.opts.Renew(ctx)
	if err == nil {
		// Files are read now: client-go would look at them again only after minutes.
		err = rest.LoadTLSFiles(cfg)
		cfg.CertFile, cfg.KeyFile = "", ""
	}
	if err != nil {
		return fmt.Errorf("the credentials have expired and cannot be renewed: %w", shortError(err))
	}
	client, err := newClient(cfg)
	if err != nil {
		return fmt.Errorf("the credentials have expired and cannot be renewed: %w", shortError(err))
	}
	l.client.Store(client)
	return nil
}

// temporary reports whether the same request may succeed a moment later.
func temporary(err error) bool {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code := int(status.Status().Code)
		return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError && code != http.StatusNotImplemented
	}
	var (
		transport *transportError
		untrusted *tls.CertificateVerificationError
		authority x509.UnknownAuthorityError
		hostname  x509.HostnameError
	)
	switch {
	case errors.As(err, &untrusted), errors.As(err, &authority), errors.As(err, &hostname):
		return false
	case errors.Is(err, errSlow), errors.Is(err, io.ErrUnexpectedEOF):
		return true
	}
	return errors.As(err, &transport)
}

// transportError is a failure of the connection: refused, reset, cut off,
// HTTP/2 GOAWAY.
type transportError struct{ err error }

func (e *transportError) Error() string { return e.err.Error() }
func (e *transportError) Unwrap() error { return e.err }

// pause is how long to wait before the next try: what the server asks for
// (priority and fairness answers 429 with Retry-After), else longer each time;
// with jitter, so that clients that were refused together do not come back so.
func pause(err error, n int) time.Duration {
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok && seconds > 0 {
		wait := min(time.Duration(seconds)*time.Second, maxRetryAfter)
		return wait + rand.N(wait/4) //nolint:gosec // jitter
	}
	wait := min(minWait<<(n-1), maxWait)
	return wait/2 + rand.N(wait/2) //nolint:gosec // jitter
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// watchedBody remembers that reading failed because of the connection, which
// decoders cannot tell from a broken document.
type watchedBody struct {
	io.Reader
	err error
}

// Read is io.Reader's.
func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = &transportError{err}
		err = b.err
	}
	return n, err
}
