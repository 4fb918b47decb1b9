package link

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/internal/wire/netutil"
	"github.com/keyway-go/keyway/internal/wire/sock"
)

// Config has the settings of both ends of a link. The zero value
// works; Cluster and Digest must be equal at both ends.
type Config struct {
	Cluster string // name of the cluster
	Digest  uint64 // of the configuration that every member must share

	// Secrets are 32 bytes each. Members use them to prove their membership to each other
	// (docs/link.md): a member proves with the first and accepts any. Without secrets no proof is
	// required.
	Secrets [][]byte

	// Store returns the identity of the store that this end uses, or 0 while that is unknown. Two
	// ends with different known stores refuse each other. A server whose store changes later drains
	// the connection. If Store is nil, the identity is never known.
	Store func() uint64

	MaxStreams     int // requests at once on one connection that this end takes, of which half may wait (ServerRequest.BeginWait); 0 means 16,384
	MaxHeaderBytes int // of one head, or of trailers, that this end takes; 0 means 64 KiB

	Logger *slog.Logger // default: discard
}

// Times of a connection.
const (
	handshakeTimeout = 5 * time.Second   // for dialing, TLS and hello
	pingInterval     = time.Second       // how often a silent peer is asked for a sign of life
	pingTimeout      = 4 * pingInterval  // how long it may stay silent then, or not take what is written, until it gets no new requests
	giveUpTimeout    = 30 * pingInterval // and how long until the requests that it has are given up
)

func (c Config) withDefaults() Config {
	c.MaxStreams = cmp.Or(c.MaxStreams, 16<<10)
	c.MaxHeaderBytes = min(cmp.Or(c.MaxHeaderBytes, 64<<10), maxPayload)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Store == nil {
		c.Store = func() uint64 { return 0 }
	}
	return c
}

// conn is what both ends of a connection have in common: frames in, frames out, and the watch over
// the peer's liveness. A conn is open until fail is called, and then ended for good. While it is
// open, watch sets and clears stalled. The callbacks are set before watch starts.
type conn struct {
	nc     net.Conn
	bare   net.Conn      // nc, of which nothing has been read ahead
	stream io.ReadWriter // of bare
	cfg    *Config
	in     *reader
	out    *queue
	mine   settings
	peer   settings

	heard   atomic.Bool                   // something else than a ping has come in since the last look
	stalled atomic.Bool                   // nothing has for pingTimeout
	tick    func()                        // called by watch every pingInterval; nil for nothing
	stall   func()                        // called by watch every pingInterval while it is stalled; nil for nothing
	unread  func(s *stream, waits bool)   // called when s begins to wait for credit, and when it ends; nil for nothing
	find    func(header) (*stream, error) // returns the stream of a data or window frame, nil if that is over
	last    func(stream uint64)           // called before the last part of a stream's body is received; nil if that does not end the stream

	unwritable func(error) // called when a write has failed; fail by default
	writeErr   error       // of that write; readable when the writer has ended

	failOnce sync.Once
	cause    error         // why it ended; readable once done is closed
	done     chan struct{} // closed when it ends
	wg       sync.WaitGroup
}

func (c *conn) init(nc net.Conn, cfg *Config) {
	c.nc, c.cfg = nc, cfg
	ahead, split := nc.(*netutil.ReadAhead)
	if split {
		nc = ahead.Conn
	}
	c.bare, c.stream = nc, sock.NewStream(nc)
	var in io.Reader = c.stream
	if split {
		in = io.MultiReader(bytes.NewReader(ahead.Ahead), in)
	}
	c.in = newReader(in, headerLen+max(2*maxData, cfg.MaxHeaderBytes))
	c.out = newQueue()
	if s, ok := c.stream.(*sock.Stream); ok {
		c.out.now = s.WriteNow
	}
	c.done = make(chan struct{})
	c.unwritable = c.fail
}

func (c *conn) start() {
	c.wg.Go(func() {
		if err := c.out.run(c.stream, c.done); err != nil {
			c.writeErr = err
			c.unwritable(err)
		}
	})
	c.wg.Go(c.watch)
}

// fail ends the connection with cause, unless it has ended before. The reader of frames then gets
// an error and cleans up.
func (c *conn) fail(cause error) {
	c.failOnce.Do(func() {
		c.cause = cause
		c.out.close(cause)
		close(c.done)
		netutil.CloseNow(c.nc)
	})
}

func (c *conn) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// watch pings a silent peer. A peer that stays silent or takes no bytes for pingTimeout gets no new
// requests. As it may only be paused, its running requests are given up only after giveUpTimeout.
// Ticks are counted instead of time, so a pause of this process is not held against the peer.
func (c *conn) watch() {
	tick := time.NewTicker(pingInterval)
	defer tick.Stop()
	const patience, giveUp = int(pingTimeout / pingInterval), int(giveUpTimeout / pingInterval)
	silent, stuck := 0, 0
	count := func(ticks *int, on bool) {
		if *ticks++; !on {
			*ticks = 0
		}
	}
	var last uint64
	for {
		select {
		case <-c.done:
			return
		case <-tick.C:
		}
		now := c.out.progress()
		count(&stuck, now == last && now%2 == 1)
		last = now
		heard := c.heard.Swap(false)
		count(&silent, !heard)
		stalled := silent > patience || stuck > patience
		c.stalled.Store(stalled)
		if silent > giveUp || stuck > giveUp {
			c.fail(ErrStalled)
			return
		}
		if stalled && c.stall != nil {
			c.stall()
		}
		if !heard {
			c.control(kindPing, 0, 0)
		}
		if c.tick != nil {
			c.tick()
		}
	}
}

// control queues a small frame. A peer that makes this side queue without
// bound is cut off.
func (c *conn) control(k kind, stream, n uint64) {
	var b [headerLen + 10]byte
	c.queue(appendControl(b[:0], k, stream, n))
}

// queue queues frames that cannot wait.
func (c *conn) queue(frames []byte) {
	if _, err := c.out.add(frames); errors.Is(err, ErrTooManyStreams) {
		c.fail(fmt.Errorf("%w: %d bytes wait for the peer", ErrStalled, hardLimit))
	}
}

// readFrames takes every frame, until one of them fails. Kinds that only one end gets go to handle,
// which must consume the payload.
func (c *conn) readFrames(handle func(header) error) error {
	for {
		h, err := c.in.header()
		if err != nil {
			return err
		}
		if c.in.fresh && h.kind != kindPing {
			c.heard.Store(true)
			c.in.fresh = false
		}
		switch h.kind {
		case kindPing:
			if err = c.in.skip(h.length); err == nil {
				c.control(kindPong, 0, 0)
			}
		case kindPong:
			err = c.in.skip(h.length)
		case kindData:
			err = c.data(h)
		case kindWindow:
			err = c.grant(h)
		default:
			err = handle(h)
		}
		if err != nil {
			return err
		}
	}
}

// payload returns the payload of a head or trailers. No sender exceeds the bound that it was told.
func (c *conn) payload(h header) ([]byte, error) {
	if h.length > c.cfg.MaxHeaderBytes {
		return nil, protocolError("%v frame of %d bytes", h.kind, h.length)
	}
	return c.in.next(h.length)
}

// data takes a part of a body, in pieces as it comes. It drops that of a stream that is over.
func (c *conn) data(h header) error {
	s, err := c.find(h)
	if err != nil {
		return err
	}
	if h.length > maxData {
		return protocolError("%v frame of %d bytes", h.kind, h.length)
	}
	for left, more := h.length, true; more; {
		p, err := c.in.some(left)
		if err != nil {
			return err
		}
		left -= len(p)
		more = left > 0
		end := h.end && !more
		if end && c.last != nil {
			c.last(h.stream)
		}
		if s != nil && !s.receive(p, left, end) {
			err := protocolError("stream %d: more than its window", h.stream)
			s.stop(err)
			return err
		}
	}
	return nil
}

// grant takes credit for a body that goes out.
func (c *conn) grant(h header) error {
	n, err := c.number(h)
	if err != nil {
		return err
	}
	s, err := c.find(h)
	if s != nil && !s.granted(n) {
		return protocolError("stream %d: too much credit", h.stream)
	}
	return err
}

func (c *conn) number(h header) (uint64, error) {
	if h.length > binary.MaxVarintLen64 {
		return 0, protocolError("%v frame of %d bytes", h.kind, h.length)
	}
	p, err := c.in.next(h.length)
	if err != nil {
		return 0, err
	}
	d := decode(p)
	n := d.Number(math.MaxUint64)
	if d.Bad {
		return 0, protocolError("%v frame: %v", h.kind, errMalformed)
	}
	return n, nil
}

func protocolError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}

func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
