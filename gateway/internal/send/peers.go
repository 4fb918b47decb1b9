package send

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/local"
	"github.com/keyway-go/keyway/internal/wire/hop1"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// plainWait is how long a request waits for a connection to a worker other than the link.
const plainWait = 5 * time.Second

// peers are this process's connections to the workers. Requests add workers to known, and a new view
// removes workers that have left. Neither needs a lock.
type peers struct {
	dial  func(ctx context.Context, network, addr string) (net.Conn, error)
	conns int         // per worker, of plain HTTP
	link  link.Config // the same at the workers
	tls   *tls.Config // nil for none
	plain bool        // workers without TLS are reached without it

	own     func(context.Context) (net.Conn, error) // connects to the worker of that name; nil for none
	ownName string
	local   local.Worker // which takes the link in memory; nil for none

	stop  func()                    // ends the watch for new certificates; nil without TLS
	known sync.Map                  // *peer by incarnation
	view  atomic.Pointer[ring.View] // the last view that known was swept by
}

// Peer carries requests to one worker. It is in use until close sets left; its connections end
// with the requests on them.
type Peer struct {
	worker ring.Member
	link   *link.Client
	users  atomic.Int64 // requests on the link
	left   atomic.Bool  // the worker has left the view

	Abandoned abandoned // requests on the link

	Plain  hop1.Pool
	health health // of connecting for plain HTTP
}

// get returns the peer of a member of the view. If the view is new, workers that left are
// forgotten.
func (ps *peers) get(view *ring.View, m ring.Member) *Peer {
	if old := ps.view.Load(); old != view && ps.view.CompareAndSwap(old, view) {
		ps.drop(func(incarnation string) bool {
			_, known := view.Find(incarnation)
			return !known
		})
	}
	for {
		known, ok := ps.known.Load(m.Incarnation)
		if !ok {
			known, _ = ps.known.LoadOrStore(m.Incarnation, ps.newPeer(m))
		}
		p := known.(*Peer)
		if w := &p.worker; w.Addr == m.Addr && w.Link == m.Link && w.TLS == m.TLS {
			return p
		}
		if ps.known.CompareAndDelete(m.Incarnation, known) {
			p.close()
		}
	}
}

// drop forgets the workers that gone reports. Their connections end with the requests on them.
func (ps *peers) drop(gone func(incarnation string) bool) {
	for incarnation, p := range ps.known.Range {
		if gone(incarnation.(string)) && ps.known.CompareAndDelete(incarnation, p) {
			p.(*Peer).close()
		}
	}
}

func (ps *peers) close() {
	if ps.stop != nil {
		ps.stop()
	}
	for _, p := range ps.known.Range {
		p.(*Peer).close()
	}
}

// close ends the peer's connections, once no request uses them: a worker that
// has left the view may still be answering.
func (p *Peer) close() {
	p.Plain.Close()
	p.left.Store(true)
	p.Use()
	p.Leave()
}

// Use begins a use of the link, which leave ends.
func (p *Peer) Use() { p.users.Add(1) }

// Load returns the worker's name, and how many requests and links there are.
func (p *Peer) Load() (name string, requests int64, links int) {
	return p.worker.Name, p.users.Load(), p.link.Open()
}

// Leave ends one use of the link.
func (p *Peer) Leave() {
	if p.users.Add(-1) == 0 && p.left.Load() {
		go p.link.Close()
	}
}

func (ps *peers) newPeer(m ring.Member) *Peer {
	dial := func(ctx context.Context) (net.Conn, error) { return ps.dial(ctx, "tcp", m.Addr) }
	secure := ps.tls
	if ps.plain && !m.TLS {
		secure = nil
	}
	if ps.own != nil && m.Name == ps.ownName {
		dial, secure = ps.own, nil // nobody sees the memory of this process
	}
	p := &Peer{worker: m, link: &link.Client{Addr: m.Addr, TLS: secure, Config: ps.link, Dial: dial}}
	plain := p.link.DialPlain // by which the worker knows that a member sends
	if !m.Link && secure == nil {
		plain = dial
	}
	if ps.local != nil && ps.local.Incarnation() == m.Incarnation {
		p.link = &link.Client{Addr: m.Addr, Config: ps.link, Dial: ps.local.Dial}
	}
	p.Plain.Conns, p.Plain.Wait = ps.conns, plainWait
	p.Plain.Dial = func(ctx context.Context) (net.Conn, error) { return p.health.dial(ctx, plain) }
	return p
}

// newDialer returns a dialer whose connections end when the other side acknowledges no data for a
// while. Gossip does not detect this case: it never suspects a peer that only this process cannot
// reach.
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
	mu      sync.Mutex
	pause   time.Duration // after the last failure; 0 when the worker is not failing
	next    time.Time     // when the pause ends
	probing bool          // a request tries
}

// dial connects to the worker, unless that has just failed.
func (h *health) dial(ctx context.Context, dial func(context.Context) (net.Conn, error)) (net.Conn, error) {
	h.mu.Lock()
	failing := h.pause > 0
	if failing && (h.probing || time.Now().Before(h.next)) {
		h.mu.Unlock()
		return nil, errors.New("connecting failed a moment ago")
	}
	h.probing = failing
	h.mu.Unlock()
	c, err := dial(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	switch known := !failing && h.pause > 0; {
	case err == nil:
		h.pause, h.probing = 0, false
	case known: // it began before the failure
	case ctx.Err() != nil:
		h.probing = false
	default:
		h.pause = min(max(2*h.pause, firstRetry), lastRetry)
		h.next, h.probing = time.Now().Add(h.pause), false
	}
	return c, err
}

// Ask makes a call to the worker, and returns the answer's status and up to that many
// bytes of its body.
func (p *Peer) Ask(ctx context.Context, req *link.Request, body []byte, most int) (status int, answer []byte, err error) {
	req.Call, req.Target = true, "/"
	req.Body, req.ContentLength = bytes.NewReader(body), int64(len(body))
	res, err := p.link.Do(ctx, req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(res.Body, int64(most)))
	return res.Status, answer, err
}
