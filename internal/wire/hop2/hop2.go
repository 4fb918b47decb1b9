// Package hop2 carries requests over HTTP/2 without TLS to a server that must be
// known to have ended before something else begins: the app behind a sidecar.
//
// A connection of HTTP/2 carries many requests, and a server that a stream was taken
// from (RST_STREAM) has no way to say that it has stopped working for it. So who gives
// a request up waits for Transport.Grace, unless the server closes the connection.
package hop2

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/internal/wire/hop1"
)

// Transport sends requests to one server. Its fields must not change after the first
// use.
type Transport struct {
	Dial     func(ctx context.Context) (net.Conn, error)
	Requests int           // at one time; what exceeds it waits
	Wait     time.Duration // how long it does: then it fails with [hop1.ErrFull]
	Idle     time.Duration // how long a connection without requests is kept
	Full     func()        // called when a request begins to wait
	Grace    time.Duration // how long the server may go on working on a request that is given up

	setup sync.Once
	http  *http.Transport
	turns chan struct{} // holds an element for each request
}

func (t *Transport) init() {
	t.setup.Do(func() {
		t.turns = make(chan struct{}, t.Requests)
		t.http = &http.Transport{
			Protocols:          new(http.Protocols),
			DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return t.dial(ctx) },
			IdleConnTimeout:    t.Idle,
			DisableCompression: true,
			HTTP2:              &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 15 * time.Second},
		}
		t.http.Protocols.SetUnencryptedHTTP2(true)
	})
}

func (t *Transport) dial(ctx context.Context) (net.Conn, error) {
	nc, err := t.Dial(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: nc, ended: make(chan struct{})}, nil
}

// conn notes that the server has ended it.
type conn struct {
	net.Conn
	once  sync.Once
	ended chan struct{}
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.once.Do(func() { close(c.ended) })
	}
	return n, err
}

// RoundTrip implements [http.RoundTripper]. The URL's host does not matter. It returns
// an error, and Close of an answer's body that has not come to its end returns, when
// the server has closed the connection, or Grace has passed. The error wraps
// [hop1.ErrNotStarted] if nothing was written.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.init()
	if err := t.await(r.Context()); err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, fmt.Errorf("%w: %w", hop1.ErrNotStarted, err)
	}
	ctx, cancel := context.WithCancel(r.Context())
	x := &exchange{transport: t, cancel: cancel}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if c, ok := info.Conn.(*conn); ok {
			x.conn.Store(c)
		}
	}})
	res, err := t.http.RoundTrip(r.WithContext(ctx))
	switch {
	case err == nil:
		x.body = res.Body
		x.whole.Store(res.Body == http.NoBody)
		res.Body = x
		return res, nil
	case x.conn.Load() == nil:
		err = fmt.Errorf("%w: %w", hop1.ErrNotStarted, err)
		x.end(0)
	default:
		x.end(t.Grace)
	}
	return nil, err
}

// await waits until one request more may be made.
func (t *Transport) await(ctx context.Context) error {
	select {
	case t.turns <- struct{}{}:
		return nil
	default:
	}
	if t.Full != nil {
		t.Full()
	}
	timeout := time.NewTimer(t.Wait)
	defer timeout.Stop()
	select {
	case t.turns <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timeout.C:
		return fmt.Errorf("%w: %d, and none became free in %v", hop1.ErrFull, t.Requests, t.Wait)
	}
}

// Close closes the connections that carry nothing.
func (t *Transport) Close() {
	t.init()
	t.http.CloseIdleConnections()
}

// exchange is a request and the body of its answer.
type exchange struct {
	transport *Transport
	cancel    context.CancelFunc   // ends the request, whoever reads its body
	conn      atomic.Pointer[conn] // that the request was written to; nil if it was not
	body      io.ReadCloser
	whole     atomic.Bool // the answer has come to its end
	once      sync.Once
}

// Read implements [io.Reader].
func (x *exchange) Read(p []byte) (int, error) {
	n, err := x.body.Read(p)
	if err == io.EOF {
		x.whole.Store(true)
	}
	return n, err
}

// Close implements [io.Closer].
func (x *exchange) Close() error {
	x.cancel()
	if x.whole.Load() {
		x.end(0)
		return nil
	}
	err := x.body.Close()
	x.end(x.transport.Grace)
	return err
}

// end ends the use of the transport, at most that much later. Further calls wait for
// the first.
func (x *exchange) end(grace time.Duration) {
	x.once.Do(func() {
		x.cancel()
		defer func() { <-x.transport.turns }()
		if grace <= 0 {
			return
		}
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-x.conn.Load().ended:
		case <-timer.C:
		}
	})
}
