package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Listener is a fake that listens on a free port of the loopback interface.
type Listener struct {
	url  string
	http *http.Server
}

// Listen serves h on 127.0.0.1 until Close.
func Listen(h http.Handler) (*Listener, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("fake server: listen on loopback: %w", err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := s.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
			_ = s.Close() // the listener broke: clients see a refused connection
		}
	}()
	return &Listener{url: "http://" + l.Addr().String(), http: s}, nil
}

// URL is the server's root, without a closing slash.
func (l *Listener) URL() string { return l.url }

// Close cuts all connections, also those whose requests hang.
func (l *Listener) Close() error { return l.http.Close() }
