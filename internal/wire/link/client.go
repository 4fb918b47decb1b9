package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// ALPN is the protocol name of the link in TLS. The client always offers it;
// a server's tls.Config lists it in NextProtos.
const ALPN = "keyway-link/1"

// redialAfter is how long a failed dial answers for the next ones.
const redialAfter = 50 * time.Millisecond

// Client sends requests to one worker over a connection that it dials when it needs one. Another
// one takes its place when it ends, drains or is stalled, and it finishes what it carries. Its
// fields must not change after the first use, and it must not be copied. Close ends it for good.
type Client struct {
	Addr   string      // host:port
	TLS    *tls.Config // nil for none. ServerName defaults to Addr's host
	Config Config

	// Dial connects to Addr; nil means TCP by a net.Dialer. TLS comes on top.
	Dial func(ctx context.Context) (net.Conn, error)

	setup  sync.Once
	ctx    context.Context // ends with Close
	stop   context.CancelFunc
	cfg    Config
	latest atomic.Pointer[clientConn] // may have ended

	mu      sync.Mutex // guards what follows
	closed  bool
	dialing chan struct{}            // closed when the dial ends; nil when there is none
	err     error                    // of the last dial
	failed  time.Time                // when it failed
	conns   map[*clientConn]struct{} // that have not ended
	wg      sync.WaitGroup           // dials and connections
}

func (c *Client) init() {
	c.setup.Do(func() {
		c.cfg = c.Config.withDefaults()
		c.conns = make(map[*clientConn]struct{})
		c.ctx, c.stop = context.WithCancel(context.Background())
	})
}

// Do sends req and returns the answer as soon as its head has arrived. When ctx ends, Do and the
// answer's Body fail with its cause, and the worker cancels the handler; the handler also gets
// ctx's deadline. If the error is an ErrNotStarted, no handler ran; a RefusedError is an
// ErrNotStarted that came from the worker itself. After any other error the request may have run.
func (c *Client) Do(ctx context.Context, req *Request) (*Response, error) {
	c.init()
	if ctx.Err() != nil {
		return nil, notStarted(context.Cause(ctx))
	}
	if IsCall(req.Method) != req.Call {
		return nil, notStarted(fmt.Errorf("link: a request with Call set to %v cannot have the method %q", req.Call, req.Method))
	}
	if req.Body != nil && req.Open == nil && !req.replayable() {
		return nil, notStarted(fmt.Errorf("%w: the request's body is consumed", ErrClosed))
	}
	if req.small() {
		if _, err := req.Keep(); err != nil {
			return nil, notStarted(err)
		}
	}
	for again := false; ; again = true {
		cc, err := c.get(ctx)
		if err != nil {
			return nil, notStarted(err)
		}
		resp, err := cc.do(ctx, req)
		if again || !elsewhere(err) {
			return resp, err
		}
	}
}

// elsewhere reports whether another connection may take a request that ended
// with err: its own had ended or began to drain.
func elsewhere(err error) bool {
	if _, refused := errors.AsType[*RefusedError](err); refused || errors.Is(err, ErrHeaderTooLarge) || errors.Is(err, ErrNotKept) {
		return false
	}
	return errors.Is(err, ErrNotStarted)
}

// get returns the latest connection, or a new one if that takes no requests.
func (c *Client) get(ctx context.Context) (*clientConn, error) {
	if cc := c.latest.Load(); cc.usable() {
		return cc, nil
	}
	dialed, err := c.dial()
	if err != nil {
		return nil, err
	}
	select {
	case <-dialed:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.latest.Load(), c.err
}

// dial starts connecting, unless that is under way or has just failed. It returns a channel that
// is closed when the attempt is over. If the old connection is stalled, dial connects but returns
// ErrStalled, so that callers do not wait: most likely the peer is paused. A new connection
// succeeds if only the old one was lost on its way.
func (c *Client) dial() (<-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cc := c.latest.Load()
	switch {
	case c.closed:
		return nil, ErrClosed
	case cc.usable():
		done := make(chan struct{})
		close(done)
		return done, nil
	case c.dialing != nil:
	case c.err != nil && time.Since(c.failed) < redialAfter:
		return nil, c.err
	default:
		c.startLocked()
	}
	if cc != nil && cc.stalled.Load() && !cc.ended() {
		return nil, ErrStalled
	}
	return c.dialing, nil
}

func (c *Client) startLocked() {
	done := make(chan struct{})
	c.dialing = done
	c.wg.Go(func() {
		cc, err := c.connect(c.ctx, false)
		c.mu.Lock()
		defer c.mu.Unlock()
		if err == nil && c.closed {
			err = ErrClosed
			cc.fail(err)
		}
		c.dialing, c.err, c.failed = nil, err, time.Now()
		if err == nil {
			if old := c.latest.Swap(cc); old != nil {
				old.drain(math.MaxUint64) // it finishes what it carries
			}
			c.conns[cc] = struct{}{}
			c.wg.Go(func() { c.run(cc) })
		}
		close(done)
	})
}

func (c *Client) run(cc *clientConn) {
	cc.run()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, cc)
}

// connect dials and exchanges hellos, for the link or, if plain is set, for HTTP/1.1.
func (c *Client) connect(ctx context.Context, plain bool) (*clientConn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	nc, err := c.dialNet(ctx)
	if err != nil {
		return nil, fmt.Errorf("link: dial %s: %w", c.Addr, err)
	}
	cc := &clientConn{streams: map[uint64]*clientStream{}}
	cc.init(nc, &c.cfg)
	cc.unwritable, cc.stall, cc.find = cc.readOut, cc.giveUpRepeatable, cc.findStream
	cc.last = func(id uint64) { cc.lookup(id, true) }
	err = cc.handshake(ctx, plain)
	if n := len(cc.in.arrived()); err == nil && plain && n > 0 {
		err = protocolError("%d bytes after hello, unasked", n)
	}
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("link: connecting to %s: %w", c.Addr, err)
	}
	cc.made = time.Now()
	return cc, nil
}

// Open returns how many connections there are.
func (c *Client) Open() int {
	c.init()
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.conns)
}

// DialPlain connects to the worker for HTTP/1.1. The connection goes to Server.Plain, whose user
// thus knows that a member made it.
func (c *Client) DialPlain(ctx context.Context) (net.Conn, error) {
	c.init()
	cc, err := c.connect(ctx, true)
	if err != nil {
		return nil, err
	}
	return cc.nc, nil
}

func (c *Client) dialNet(ctx context.Context) (net.Conn, error) {
	dial := c.Dial
	if dial == nil {
		dial = func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", c.Addr) }
	}
	nc, err := dial(ctx)
	if err != nil || c.TLS == nil {
		return nc, err
	}
	return c.secure(ctx, nc)
}

// Close ends all connections; requests under way fail. It waits for the
// client's goroutines, and may be called more than once.
func (c *Client) Close() error {
	c.init()
	c.mu.Lock()
	c.closed = true
	for cc := range c.conns {
		cc.fail(ErrClosed)
	}
	c.mu.Unlock()
	c.stop()
	c.wg.Wait()
	return nil
}
