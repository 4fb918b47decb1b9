// Package hop2 carries requests over HTTP/2 without TLS to a server that must be
// known to have ended before something else begins: the app behind a sidecar.
//
// A connection of HTTP/2 carries many requests, and a server whose stream was reset (RST_STREAM)
// cannot report that it has stopped working on it. The caller that gives a request up therefore
// waits for Transport.Grace, unless the server closes the connection.
//
// A request is never repeated once it may have begun. So this package has a pool of its
// own in front of net/http's connections: an [http.Transport] repeats also what the
// server has ended with PROTOCOL_ERROR.
package hop2

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/internal/wire/hop1"
)

// Transport sends requests to one server. Its fields must not change after the first
// use.
type Transport struct {
	Dial     func(ctx context.Context) (net.Conn, error) // bounds its time itself: ctx lasts on
	Requests int                                         // at one time; more wait
	Wait     time.Duration                               // bounds that wait: then it fails with [hop1.ErrFull]. 0: as long as its context lasts
	Idle     time.Duration                               // how long a connection without requests is kept
	Full     func()                                      // called when a request begins to wait
	Grace    time.Duration                               // how long the server may go on working on a request that is given up

	setup sync.Once
	pool  pool
	turns chan struct{} // holds an element for each request
}

func (t *Transport) init() {
	t.setup.Do(func() {
		t.turns = make(chan struct{}, t.Requests)
		t.pool.init(t)
	})
}

// RoundTrip implements [http.RoundTripper]. The URL's host does not matter. It returns
// an error, and Close of an answer's body that has not come to its end returns, when
// the server has closed the connection, or Grace has passed. The error wraps
// [hop1.ErrNotStarted] if the server has provably not begun with the request, of whose
// body some may have been read.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.init()
	if err := hop1.AwaitTurn(r.Context(), t.turns, t.Wait, t.Full); err != nil {
		closeBody(r)
		return nil, fmt.Errorf("%w: %w", hop1.ErrNotStarted, err)
	}
	ctx, cancel := context.WithCancel(r.Context())
	x := &exchange{transport: t, ctx: r.Context(), cancel: cancel}
	res, err := x.send(r.WithContext(ctx))
	switch {
	case err == nil:
		x.body = res.Body
		x.whole.Store(res.Body == http.NoBody)
		x.stop = context.AfterFunc(r.Context(), func() { x.body.Close() }) // net/http does not look while the request's body is silent
		res.Body = x
		return res, nil
	case errors.Is(err, hop1.ErrNotStarted):
		x.endExchange(0)
	default:
		x.endExchange(t.Grace)
	}
	return nil, err
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		r.Body.Close()
	}
}

// tries bounds the connections that a request without a body is sent on, one after the
// other, because the server leaves them.
const tries = 3

// send sends the request and returns the head of the answer.
func (x *exchange) send(r *http.Request) (*http.Response, error) {
	for try := 1; ; try++ {
		client, err := x.transport.pool.get(r.Context())
		if err != nil {
			closeBody(r)
			return nil, fmt.Errorf("%w: %w", hop1.ErrNotStarted, err)
		}
		x.conn = client.conn
		res, err := client.RoundTrip(r)
		switch {
		case err == nil:
			return res, nil
		case isLeft(err) && try < tries && (r.Body == nil || r.Body == http.NoBody):
		case isLeft(err) || isRefused(err):
			return nil, fmt.Errorf("%w: %w", hop1.ErrNotStarted, err)
		default:
			return nil, err
		}
	}
}

// isLeft reports whether a request failed because the server takes no more on its
// connection: it has sent GOAWAY with a lower stream, or had ended before. net/http has no names
// for these errors.
func isLeft(err error) bool {
	switch err.Error() {
	case "http2: Transport received Server's graceful shutdown GOAWAY", "http2: client conn not usable", "http2: client conn could not be established":
		return true
	}
	return false
}

// isRefused reports whether the server has ended the request with REFUSED_STREAM,
// which says that it has not begun.
func isRefused(err error) bool {
	const refusedStream = 7
	reset, ok := errors.AsType[streamError](err)
	return ok && reset.Code == refusedStream
}

// streamError has the form in which net/http reports the end of one stream.
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (e streamError) Error() string { return fmt.Sprintf("stream %d: code %d", e.StreamID, e.Code) }

// exchange is a request and the body of its answer. It ends once, when RoundTrip fails or
// the body is closed.
type exchange struct {
	transport *Transport
	ctx       context.Context
	stop      func() bool        // ends the watch of ctx, once there is an answer
	cancel    context.CancelFunc // ends the request for every reader of its body
	conn      *conn              // that the request was written to
	body      io.ReadCloser
	whole     atomic.Bool // the answer has come to its end
	once      sync.Once
}

func (x *exchange) Read(p []byte) (int, error) {
	n, err := x.body.Read(p)
	switch {
	case err == io.EOF:
		x.whole.Store(true)
	case err != nil && x.ctx.Err() != nil:
		err = context.Cause(x.ctx)
	}
	return n, err
}

func (x *exchange) Close() error {
	x.stop()
	x.cancel()
	if x.whole.Load() {
		x.endExchange(0)
		return nil
	}
	err := x.body.Close()
	x.endExchange(x.transport.Grace)
	return err
}

// endExchange ends the use of the transport, at most that much later. Further calls wait for
// the first.
func (x *exchange) endExchange(grace time.Duration) {
	x.once.Do(func() {
		x.cancel()
		defer func() { <-x.transport.turns }()
		if grace <= 0 {
			return
		}
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-x.conn.ended:
		case <-timer.C:
		}
	})
}
