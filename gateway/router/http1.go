package router

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/conns"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/gateway/router/internal/proxyheader"
	"github.com/keyway-go/keyway/internal/wire/grammar"
	"github.com/keyway-go/keyway/internal/wire/http1"
	"github.com/keyway-go/keyway/internal/wire/netutil"
	"github.com/keyway-go/keyway/internal/wire/sock"
)

// inSize is the size of the first read; it grows up to the largest head that
// net/http takes. The bytes read behind a PROXY header fit. While idle, a http1Conn holds no buffer.
const inSize = proxyheader.MaxSize

// stage is what a http1Conn is doing, for the clock.
type stage int64

const (
	stageNew     stage = iota // waits for the first request
	stageIdle                 // waits for another one
	stageHead                 // has part of a head
	stageBody                 // reads a body
	stageWorking              // waits for a worker
	stageWriting              // writes an answer

	stageBits = 3 // that a stage takes
)

// http1Conn serves one client's connection on the fast way. It implements servedConn. Its stage is
// in state: one goroutine moves it from request to request, and the server's clock closes the
// connection when a stage takes too long. waking guards the change between idle and busy.
type http1Conn struct {
	conn net.Conn
	tls  bool            // conn is a [tls.Conn]
	sock *sock.Stream    // of conn
	ctx  context.Context // ends with the connection

	cancel  context.CancelCauseFunc
	carrier carrier // interrupted with ctx
	source

	state   atomic.Int64 // stage; above it the tick at which it has taken too long, 0 for never
	closing atomic.Bool  // the answer says that no request follows

	waking sync.Mutex // guards woken, and state between stages with and without a request
	woken  bool       // from the wait for a request

	in   []byte // of a pool, or grown; nil while idle
	have int    // bytes of in that are filled
	head http1.Head
}

var inPool = sync.Pool{New: func() any { return new([inSize]byte) }}

// serveHTTP1 serves a connection, which TLS has shaken hands on if it is one of TLS. read holds the
// bytes read from it before, at most inSize.
func serveHTTP1(s *Server, conn net.Conn, read []byte) {
	c := &http1Conn{conn: conn}
	_, c.tls = conn.(*tls.Conn)
	if c.sock = sock.Open(conn, c.room, c.drop); c.sock == nil { // it cannot wait without a buffer
		s.handOver(conn, read)
		return
	}
	c.source.init(s.router, s, conn.RemoteAddr().String(), "1.1")
	if len(read) > 0 {
		c.have = copy(c.room(), read)
	}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.enter(stageNew, headTicks)
	if !s.keep(c) {
		conn.Close()
		return
	}
	go c.serve()
}

func (c *http1Conn) enter(s stage, ticks int64) {
	var at int64
	if ticks > 0 {
		at = c.server.now.Load() + ticks
	}
	c.state.Store(at<<stageBits | int64(s))
}

// stage returns the present one, and the tick at which it has taken too long, 0
// for never.
func (c *http1Conn) stage() (s stage, expires int64) {
	state := c.state.Load()
	return stage(state & (1<<stageBits - 1)), state >> stageBits
}

func (c *http1Conn) close() {
	netutil.CloseNow(c.conn)
	c.endWork()
}

func (c *http1Conn) check(now int64, p phase) {
	if p >= leaving {
		c.closing.Store(true)
	}
	s, expires := c.stage()
	late := expires != 0 && now >= expires
	switch {
	case (s == stageNew || s == stageIdle) && (late || p >= closing && c.IdleFor(now) >= quietTicks):
		c.EndUnused()
	case late:
		_ = c.conn.SetDeadline(netutil.Past)
	case s == stageWorking && c.sock.HungUp():
		c.endWork()
	}
}

func (c *http1Conn) Client() netip.Addr { return conns.ClientOf(c.addr) }

func (c *http1Conn) IdleFor(now int64) int64 {
	switch s, expires := c.stage(); s {
	case stageNew:
		return now - (expires - headTicks)
	case stageIdle:
		return now - (expires - idleTicks)
	}
	return 0
}

func (c *http1Conn) EndUnused() {
	c.closing.Store(true)
	c.waking.Lock()
	defer c.waking.Unlock()
	if s, _ := c.stage(); s == stageNew || s == stageIdle {
		c.woken = true
		_ = c.conn.SetDeadline(netutil.Past) // TLS may write while it reads
	}
}

// beginHead starts the stage of a request's head, when its first bytes have arrived.
func (c *http1Conn) beginHead() {
	c.waking.Lock()
	defer c.waking.Unlock()
	c.enter(stageHead, headTicks)
	if c.woken {
		c.woken = false
		_ = c.conn.SetDeadline(time.Time{})
	}
}

func (c *http1Conn) endWork() {
	c.cancel(send.ErrClientLeft)
	c.carrier.interrupt()
}

func (c *http1Conn) serve() {
	defer c.server.forget(c)
	defer c.endWork()
	for {
		switch c.readHead() {
		case http1.Done:
		case http1.HandOver:
			c.handOver(c.in[:c.have])
			return
		default:
			c.conn.Close()
			return
		}
		handed, keep := c.answer()
		if handed {
			return
		}
		if !keep {
			break
		}
		c.next()
		if c.have == 0 {
			// Most clients under load send the next request at once: let the
			// others go first, then look, rather than wait.
			runtime.Gosched()
		}
	}
	c.conn.Close()
}

// readHead reads until there is a whole head. It returns More if there will be
// none.
func (c *http1Conn) readHead() http1.Verdict {
	emptyLine := false // one has been taken (RFC 9112, section 2.2)
	for {
		if !emptyLine && c.have >= 2 && grammar.Text(c.in[:2]) == "\r\n" {
			emptyLine = true
			c.have = copy(c.in, c.in[2:c.have])
		}
		if c.have > 1 || c.have == 1 && c.in[0] != '\r' {
			if s, _ := c.stage(); s != stageHead {
				c.beginHead()
			}
			if v := c.head.Parse(c.in[:c.have]); v != http1.More {
				return v
			}
			if c.have >= hop.MaxHeaderBytes {
				return http1.HandOver // which answers 431
			}
		}
		n, err := c.sock.Fill()
		if s, _ := c.stage(); err != nil && s != stageHead {
			n = c.sock.FillNow() // a request has come when the wait for it ended
		}
		if n == 0 {
			return http1.More
		}
		c.have += n
	}
}

// write bounds each wait for the client to take some of b.
func (c *http1Conn) write(b []byte) (err error) {
	for n := 0; len(b) > 0 && err == nil; b = b[n:] {
		if n = len(b); c.tls { // all of what it is given has to be taken
			n = min(n, outSize)
		}
		c.enter(stageWriting, ticks(c.server.router.cfg.ClientTimeout))
		n, err = c.sock.WriteSome(b[:n])
	}
	c.enter(stageWorking, 0)
	return err
}

// room makes room in c.in, and returns it.
func (c *http1Conn) room() []byte {
	switch {
	case c.in == nil:
		c.in = inPool.Get().(*[inSize]byte)[:]
	case c.have == len(c.in):
		bigger := make([]byte, 2*len(c.in))
		copy(bigger, c.in[:c.have])
		c.freeBuffer()
		c.in = bigger
	}
	return c.in[c.have:]
}

func (c *http1Conn) drop() {
	if c.have == 0 {
		c.freeBuffer()
	}
}

func (c *http1Conn) freeBuffer() {
	if len(c.in) == inSize {
		inPool.Put((*[inSize]byte)(c.in))
	}
	c.in = nil
}

// next makes room for the next request; bytes that have arrived of it are kept.
func (c *http1Conn) next() {
	used := c.head.Size + int(max(c.head.ContentLength, 0))
	c.have = copy(c.in, c.in[min(used, c.have):c.have])
	c.enter(stageIdle, idleTicks)
}

// handOver passes the connection on to HTTP/2, if its client speaks that, or else to net/http's
// server. read holds the bytes without an answer.
func (c *http1Conn) handOver(read []byte) {
	read = bytes.Clone(read)
	c.freeBuffer()
	_ = c.conn.SetDeadline(time.Time{})
	if !c.tls && c.server.speaksH2(read) {
		serveH2(c.server, c.conn, read, c)
		return
	}
	c.server.handOver(c.conn, read)
}
