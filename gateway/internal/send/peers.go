package send

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/internal/wire/hop1"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// plainWait is how long a request waits for a connection to a worker other than the link.
const plainWait = 5 * time.Second

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

// Peer returns the connections to a member of the present view. If the view is new, workers that left
// are forgotten.
func (ws *Workers) Peer(m ring.Member) *Peer {
	view := ws.Members.View()
	if old := ws.view.Load(); old != view && ws.view.CompareAndSwap(old, view) {
		ws.drop(func(incarnation string) bool {
			_, known := view.Find(incarnation)
			return !known
		})
	}
	for {
		known, ok := ws.known.Load(m.Incarnation)
		if !ok {
			known, _ = ws.known.LoadOrStore(m.Incarnation, ws.newPeer(m))
		}
		p := known.(*Peer)
		if w := &p.worker; w.Addr == m.Addr && w.Link == m.Link && w.TLS == m.TLS {
			return p
		}
		if ws.known.CompareAndDelete(m.Incarnation, known) {
			p.close()
		}
	}
}

// drop forgets the workers that gone reports. Their connections end with the requests on them.
func (ws *Workers) drop(gone func(incarnation string) bool) {
	for incarnation, p := range ws.known.Range {
		if gone(incarnation.(string)) && ws.known.CompareAndDelete(incarnation, p) {
			p.(*Peer).close()
		}
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

func (ws *Workers) newPeer(m ring.Member) *Peer {
	o, secure := &ws.options, ws.tls
	dial := func(ctx context.Context) (net.Conn, error) { return o.Dial(ctx, "tcp", m.Addr) }
	if secure != nil && o.PeerTLS.Optional() && !m.TLS {
		secure = nil
	}
	if o.Own != nil && m.Name == o.Members.Self().Name {
		dial, secure = o.Own, nil // nobody sees the memory of this process
	}
	p := &Peer{worker: m, link: &link.Client{Addr: m.Addr, TLS: secure, Config: ws.link, Dial: dial}}
	plain := p.link.DialPlain // by which the worker knows that a member sends
	if !m.Link && secure == nil {
		plain = dial
	}
	if o.Local != nil && o.Local.Incarnation() == m.Incarnation {
		p.link = &link.Client{Addr: m.Addr, Config: ws.link, Dial: o.Local.Dial}
	}
	p.Plain.Conns, p.Plain.Wait = o.ConnsPerWorker, plainWait
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
