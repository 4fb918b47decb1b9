package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/keyway-go/keyway/internal/wire/hop1"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/internal/wire/sock"
	"github.com/keyway-go/keyway/ring"
)

// errNotSent is wrapped by a carrier's error if the worker has provably not
// seen the request.
var errNotSent = errors.New("the request was not sent")

// errStale wraps errNotSent: the pooled connection had ended.
var errStale = fmt.Errorf("%w: the connection had ended", errNotSent)

var errFailing = fmt.Errorf("%w: connecting failed a moment ago", errNotSent)

// peers are the workers as this process reaches them.
type peers struct {
	dial  func(ctx context.Context, network, addr string) (net.Conn, error)
	conns int         // per worker, of plain HTTP
	links int         // per worker
	link  link.Config // the same at the workers

	known sync.Map                  // *peer by incarnation
	view  atomic.Pointer[ring.View] // after which known was last swept
}

// peer carries requests to one worker.
type peer struct {
	addr  string
	link  *link.Client
	users atomic.Int64 // requests on the link
	left  atomic.Bool  // the worker has left the view

	abandoned abandoned // requests on the link

	health    health // of connecting for plain HTTP
	plain     hop1.Pool
	transport *http.Transport // for what plain does not take
}

// get returns the peer of a member of the view, and forgets those who have
// left it.
func (ps *peers) get(view *ring.View, m ring.Member) *peer {
	if old := ps.view.Load(); old != view && ps.view.CompareAndSwap(old, view) {
		ps.sweep(view)
	}
	for {
		known, ok := ps.known.Load(m.Incarnation)
		if !ok {
			known, _ = ps.known.LoadOrStore(m.Incarnation, ps.newPeer(m.Addr))
		}
		p := known.(*peer)
		if p.addr == m.Addr {
			return p
		}
		if ps.known.CompareAndDelete(m.Incarnation, known) {
			p.close()
		}
	}
}

func (ps *peers) sweep(view *ring.View) {
	ps.known.Range(func(incarnation, p any) bool {
		if _, ok := view.Find(incarnation.(string)); !ok {
			ps.known.Delete(incarnation)
			p.(*peer).close()
		}
		return true
	})
}

func (ps *peers) close() {
	ps.known.Range(func(_, p any) bool {
		p.(*peer).close()
		return true
	})
}

// close ends the peer's connections, once no request uses them: a worker that
// has left the view may still be answering.
func (p *peer) close() {
	p.transport.CloseIdleConnections()
	p.plain.Close()
	p.left.Store(true)
	p.users.Add(1)
	p.leave()
}

// leave ends one request's use of the link.
func (p *peer) leave() {
	if p.users.Add(-1) == 0 && p.left.Load() {
		go p.link.Close()
	}
}

func (ps *peers) newPeer(addr string) *peer {
	p := &peer{addr: addr, link: ps.newLink(addr), transport: &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := ps.dial(ctx, network, addr)
			if err != nil {
				return nil, &dialError{err}
			}
			return newCountingConn(c), nil
		},
		DisableCompression:     true,
		MaxConnsPerHost:        ps.conns,
		MaxIdleConnsPerHost:    ps.conns,
		IdleConnTimeout:        90 * time.Second,
		ExpectContinueTimeout:  time.Minute,
		MaxResponseHeaderBytes: 1 << 20,
		WriteBufferSize:        8 << 10,
		ReadBufferSize:         8 << 10,
	}}
	p.plain.Conns = ps.conns
	p.plain.Dial = func(ctx context.Context) (net.Conn, error) { return p.dialPlain(ctx, ps.dial) }
	return p
}

// newDialer returns a dialer whose connections end when the other side has not
// acknowledged data for a while: gossip never suspects a peer to which only
// this process has lost the way.
func newDialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{
		Timeout:         timeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3},
		ControlContext:  limitUnacknowledged,
	}
}

// RoundTrip sends the request to the worker. Its error wraps errNotSent if the
// worker has provably not seen it. A request is written at most once, whatever
// its method.
func (p *peer) RoundTrip(req *http.Request) (*http.Response, error) {
	if !p.health.admit() {
		return nil, errFailing
	}
	var conn *countingConn
	var before int64
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		p.health.worked()
		conn, _ = info.Conn.(*countingConn)
		conn.pooled.Store(info.Reused)
		before = conn.sent.Load()
	}}
	req = req.WithContext(httptrace.WithClientTrace(req.Context(), trace))
	preventReplay(req)
	res, err := p.transport.RoundTrip(req)
	if err == nil {
		return res, nil
	}
	if _, ok := errors.AsType[*dialError](err); ok {
		p.health.failed()
		return nil, fmt.Errorf("%w: %w", errNotSent, err)
	}
	p.health.abandon()
	if conn != nil && conn.sent.Load() == before {
		p.transport.CloseIdleConnections() // the others have most likely ended as well
		return nil, fmt.Errorf("%w: %w", errStale, err)
	}
	return nil, err
}

// preventReplay keeps http.Transport from sending a request once more by
// itself when a connection dies under it, which it does for methods that HTTP
// calls idempotent if there is no body. So there is one, of no bytes and
// without any framing.
func preventReplay(req *http.Request) {
	if req.Body != nil && req.Body != http.NoBody {
		return
	}
	switch req.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch:
		_, key := req.Header["Idempotency-Key"]
		_, xKey := req.Header["X-Idempotency-Key"]
		if !key && !xKey {
			return
		}
	}
	req.Body = emptyBody{}
	req.ContentLength = -1
	req.TransferEncoding = []string{"identity"}
}

type emptyBody struct{}

func (emptyBody) Read([]byte) (int, error) { return 0, io.EOF }
func (emptyBody) Close() error             { return nil }

type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// countingConn counts the bytes that may have been sent. It counts before it
// writes: what is not counted has not left.
type countingConn struct {
	net.Conn
	raw    syscall.RawConn // nil if the connection has none
	sent   atomic.Int64
	pooled atomic.Bool // has lain idle before the present request
}

func newCountingConn(c net.Conn) *countingConn {
	return &countingConn{Conn: c, raw: sock.Raw(c)}
}

// Write does not write the head of a request if the worker has closed the
// connection: unanswered, nobody could tell whether the request had started.
func (c *countingConn) Write(b []byte) (int, error) {
	if c.pooled.Load() && c.pooled.Swap(false) && c.raw != nil && !isSilent(c.raw) {
		return 0, net.ErrClosed
	}
	c.sent.Add(int64(len(b)))
	n, err := c.Conn.Write(b)
	c.sent.Add(int64(n - len(b)))
	return n, err
}

// isSilent reports whether an idle connection has neither ended nor brought
// something unasked.
func isSilent(c syscall.RawConn) (silent bool) {
	err := c.Control(func(fd uintptr) { silent = sock.Look(fd) == sock.Silent })
	return silent && err == nil
}

// Backoff of connecting to a worker that could not be reached.
const (
	firstRetry = 25 * time.Millisecond
	lastRetry  = time.Second
)

// health remembers that a worker could not be reached, so that a crowd does
// not dial it. While it is failing, one request at a time may try, in growing
// intervals.
type health struct {
	failing atomic.Bool

	mu      sync.Mutex
	probing bool
	pause   time.Duration
	next    time.Time
}

// admit reports whether a request may try. Each one that does ends in worked,
// failed or abandon.
func (h *health) admit() bool {
	if !h.failing.Load() {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.failing.Load() {
		return true
	}
	if h.probing || time.Now().Before(h.next) {
		return false
	}
	h.probing = true
	return true
}

func (h *health) worked() {
	if !h.failing.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.probing, h.pause = false, 0
	h.failing.Store(false)
}

func (h *health) failed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failing.Load() && !h.probing {
		return // began before the failure that is already known
	}
	h.pause = min(max(2*h.pause, firstRetry), lastRetry)
	h.next = time.Now().Add(h.pause)
	h.probing = false
	h.failing.Store(true)
}

// abandon ends a try that has shown nothing.
func (h *health) abandon() {
	if !h.failing.Load() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.probing = false
}

func (ps *peers) newLink(addr string) *link.Client {
	return &link.Client{
		Addr:   addr,
		Conns:  ps.links,
		Config: ps.link,
		Dial:   func(ctx context.Context) (net.Conn, error) { return ps.dial(ctx, "tcp", addr) },
	}
}

// dialPlain connects to the worker for plain HTTP.
func (p *peer) dialPlain(ctx context.Context, dial func(ctx context.Context, network, addr string) (net.Conn, error)) (net.Conn, error) {
	if !p.health.admit() {
		return nil, errFailing
	}
	c, err := dial(ctx, "tcp", p.addr)
	switch {
	case err == nil:
		p.health.worked()
	case ctx.Err() != nil:
		p.health.abandon()
	default:
		p.health.failed()
	}
	return c, err
}
