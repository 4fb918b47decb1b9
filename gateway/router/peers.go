package router

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/internal/wire/hop1"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

var errFailing = errors.New("connecting failed a moment ago")

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

	plain  hop1.Pool
	health health // of connecting for plain HTTP
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
	p := &peer{addr: addr, link: ps.newLink(addr)}
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
