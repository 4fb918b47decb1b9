package router

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/conns"
	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/internal/wire/hop1"
	"github.com/keyway-go/keyway/internal/wire/http1"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/internal/wire/sock"
)

// Sizes of what a frontConn holds while it works; idle, it holds neither.
const (
	inSize  = 4 << 10  // of the first read; it grows up to the largest head that net/http takes
	outSize = 16 << 10 // up to which an answer is collected to go in one write
)

// stage is what a frontConn is doing, for the clock.
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

// frontConn serves one client's connection on the fast way.
type http1Conn struct {
	front *Server
	conn  net.Conn
	raw   syscall.RawConn
	ctx   context.Context // ends with the connection

	mu       sync.Mutex
	cancel   context.CancelCauseFunc
	carrying *hop1.Exchange // to be interrupted with ctx; guarded by mu

	state   atomic.Int64 // stage; above it the tick at which it has taken too long, 0 for never
	closing atomic.Bool  // no request after this one

	body http1Body

	in   []byte // of a pool, or grown; nil while idle
	have int    // bytes of in that are filled
	head http1.Head

	io struct { // what tryRead and tryWrite take and leave
		read, write func(fd uintptr) bool // those two, made once
		out         []byte
		n           int
		err         error
	}

	values []string // memory of header

	client    string // the client's address, for the forwarding fields
	trusted   bool   // and what it says in those is believed
	forwarded link.Fields
	madeFor   string // the host for which forwarded was made
}

var (
	inPool  = sync.Pool{New: func() any { return new([inSize]byte) }}
	outPool = sync.Pool{New: func() any { b := make([]byte, 0, outSize); return &b }}
)

var errClientLeft = errors.New("router: the client has closed the connection")

// newFrontConn returns nil if conn is not one that can be waited for without
// holding a buffer.
func newHTTP1Conn(f *Server, conn net.Conn) *http1Conn {
	raw := sock.Raw(conn)
	if raw == nil {
		return nil
	}
	c := &http1Conn{front: f, conn: conn, raw: raw, client: conn.RemoteAddr().String()}
	c.trusted = f.router.trusts(c.client)
	c.io.read, c.io.write = c.tryRead, c.tryWrite
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.enter(stageNew, headTicks)
	return c
}

func (c *http1Conn) enter(s stage, ticks int64) {
	var at int64
	if ticks > 0 {
		at = c.front.now.Load() + ticks
	}
	c.state.Store(at<<stageBits | int64(s))
}

// stage returns the present one, and the tick at which it has taken too long, 0
// for never.
func (c *http1Conn) stage() (s stage, expires int64) {
	state := c.state.Load()
	return stage(state & (1<<stageBits - 1)), state >> stageBits
}

// close implements servedConn.
func (c *http1Conn) close() { c.conn.Close() }

// check implements servedConn.
func (c *http1Conn) check(now int64, closing bool) {
	s, expires := c.stage()
	if closing {
		c.EndUnused()
		if s == stageNew || s == stageIdle {
			return
		}
	}
	if expires != 0 && now >= expires {
		_ = c.conn.SetDeadline(aLongTimeAgo)
		return
	}
	if s == stageWorking && c.left() {
		c.end()
	}
}

// IdleFor implements idleConn.
func (c *http1Conn) IdleFor(now int64) int64 {
	switch s, expires := c.stage(); s {
	case stageNew:
		return now - (expires - headTicks)
	case stageIdle:
		return now - (expires - idleTicks)
	}
	return 0
}

// EndUnused implements idleConn.
func (c *http1Conn) EndUnused() {
	c.closing.Store(true)
	if s, _ := c.stage(); s == stageNew || s == stageIdle {
		_ = c.conn.SetReadDeadline(aLongTimeAgo)
	}
}

// end ends what is done for the client.
func (c *http1Conn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cancel(errClientLeft)
	if c.carrying != nil {
		c.carrying.Interrupt()
	}
}

// carry implements downstream.
func (c *http1Conn) carry(e *hop1.Exchange) (watched bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.carrying = e
	if e != nil && c.ctx.Err() != nil {
		e.Interrupt()
	}
	return true
}

// left reports whether the client has closed its side.
func (c *http1Conn) left() (gone bool) {
	err := c.raw.Control(func(fd uintptr) { gone = sock.HungUp(fd) })
	return gone || err != nil
}

func (c *http1Conn) serve() {
	defer c.front.forget(c)
	defer c.end()
	for !c.closing.Load() {
		switch c.readHead() {
		case http1.Done:
		case http1.HandOver:
			c.handOver(c.in[:c.have])
			return
		default:
			c.conn.Close()
			return
		}
		handed, keep := c.exchange()
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
		if !emptyLine && c.have >= 2 && http1.Text(c.in[:2]) == "\r\n" {
			emptyLine = true
			c.have = copy(c.in, c.in[2:c.have])
		}
		if c.have > 1 || c.have == 1 && c.in[0] != '\r' {
			if v := c.head.Parse(c.in[:c.have]); v != http1.More {
				return v
			}
			if c.have >= hop.MaxHeaderBytes {
				return http1.HandOver // which answers 431
			}
			if s, _ := c.stage(); s != stageHead {
				c.enter(stageHead, headTicks)
			}
		}
		if n, err := c.read(); n <= 0 || err != nil {
			return http1.More
		}
	}
}

// read appends what has come to in. While nothing has, it holds no buffer that
// it would need only then.
func (c *http1Conn) read() (int, error) {
	if err := c.raw.Read(c.io.read); err != nil {
		return 0, err
	}
	c.have += c.io.n
	return c.io.n, c.io.err
}

// tryRead is for raw.Read.
func (c *http1Conn) tryRead(fd uintptr) bool {
	c.grow()
	c.io.n, c.io.err = sock.Read(fd, c.in[c.have:])
	if c.io.err == syscall.EAGAIN {
		if c.have == 0 {
			c.drop()
		}
		return false
	}
	return true
}

// write bounds the time that the client takes.
func (c *http1Conn) write(b []byte) bool {
	c.enter(stageWriting, ticks(c.front.router.cfg.ClientTimeout))
	c.io.out = b
	err := c.raw.Write(c.io.write)
	c.io.out = nil
	c.enter(stageWorking, 0)
	return err == nil && c.io.err == nil
}

// tryWrite is for raw.Write.
func (c *http1Conn) tryWrite(fd uintptr) bool {
	for len(c.io.out) > 0 {
		c.io.n, c.io.err = sock.Write(fd, c.io.out)
		if c.io.err != nil {
			return c.io.err != syscall.EAGAIN
		}
		c.io.out = c.io.out[c.io.n:]
	}
	return true
}

// grow makes room in c.in.
func (c *http1Conn) grow() {
	switch {
	case c.in == nil:
		c.in = inPool.Get().(*[inSize]byte)[:]
	case c.have == len(c.in):
		bigger := make([]byte, 2*len(c.in))
		copy(bigger, c.in[:c.have])
		c.drop()
		c.in = bigger
	}
}

// drop gives the buffer back.
func (c *http1Conn) drop() {
	if len(c.in) == inSize {
		inPool.Put((*[inSize]byte)(c.in))
	}
	c.in = nil
}

// next makes room for the next request; what has come of it is kept.
func (c *http1Conn) next() {
	used := c.head.Size + int(max(c.head.ContentLength, 0))
	rest := max(c.have-used, 0)
	copy(c.in, c.in[min(used, c.have):c.have])
	c.have = rest
	if rest == 0 {
		c.drop()
	}
	c.enter(stageIdle, idleTicks)
}

// The head as the key sources see it.
func (c *http1Conn) KeyHeader(name string) []string {
	values := c.values[:0]
	for i := range c.head.Fields {
		if f := &c.head.Fields[i]; len(f.Name) == len(name) && strings.EqualFold(http1.Text(f.Name), name) {
			values = append(values, http1.Text(f.Value))
		}
	}
	c.values = values
	return values
}

func (c *http1Conn) KeyHost() string { return http1.Text(c.head.Host) }

func (c *http1Conn) KeyPath() string {
	path, _, _ := strings.Cut(http1.Text(c.head.Target), "?")
	return path
}

func (c *http1Conn) KeyQuery() string {
	_, query, _ := strings.Cut(http1.Text(c.head.Target), "?")
	return query
}

// exchange sends the request to its worker and answers it. handed says that
// the connection was handed over instead, and keep that another request may
// follow.
func (c *http1Conn) exchange() (handed, keep bool) {
	rt := c.front.router
	key, err := gateway.ExtractKeyFrom(rt.cfg.Keys, c)
	partition := rt.ring.Partition(key)
	if err != nil || c.head.ContentLength > hop.MaxRepeatedBody || !plainPath(c.KeyPath()) {
		c.handOver(c.in[:c.have])
		return true, false
	}
	rt.counters.requests.Add(1)
	x := fronted.Get().(*pooledRequest)
	defer x.free()
	x.router, x.client, x.ctx, x.partition, x.remote = rt, c, c.ctx, partition, c.client
	x.fields = c.fields(x.fields)
	x.request.Method, x.request.Target, x.request.Host = http1.Text(c.head.Method), http1.Text(c.head.Target), http1.Text(c.head.Host)
	x.request.Key, x.request.Fields = key, x.fields
	c.body = http1Body{conn: c}
	if n := c.head.ContentLength; n > 0 {
		c.body.start()
		x.body.reader = &c.body
		x.request.Body, x.request.ContentLength = &x.body, n
		x.request.Whole = true
		x.reserve()
	} else {
		c.enter(stageWorking, 0)
	}
	err = rt.routes.route(c.ctx, partition, x.try)
	if errors.Is(err, errStreams) && !x.sent {
		rt.counters.requests.Add(-1) // the router will count it
		c.enter(stageWorking, 0)
		c.handOver(append(c.in[:c.head.Size:c.head.Size], x.data...))
		return true, false
	}
	keep = c.body.left == 0 && !c.head.Close && !c.closing.Load()
	if err != nil {
		return false, c.fail(&x.upstreamRequest, err) && keep
	}
	return false, c.answer(&x.upstreamRequest, keep) && keep
}

// pooledRequest is an upstreamRequest whose memory is used again and again.
type pooledRequest struct {
	upstreamRequest
	fields link.Fields // memory for the request's
	try    attemptFunc // attempt, made once
}

var fronted = sync.Pool{New: func() any {
	x := new(pooledRequest)
	x.try = x.attempt
	return x
}}

// free closes the request. Its client may use nothing of it any more.
func (x *pooledRequest) free() {
	x.close()
	if x.request.Body != nil {
		<-x.request.BodyDone() // the link may still be sending what it has read
		x.reserved.release()
	}
	spare := x.spare
	x.upstreamRequest = upstreamRequest{spare: spare}
	fronted.Put(x)
}

func ticks(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return max(int64(d/conns.Tick), 1)
}

// plainPath reports whether net/url would give the path on as it is.
func plainPath(path string) bool {
	for i := range len(path) {
		switch c := path[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '/' <= c && c <= '9':
		case strings.IndexByte("-_.~!$&'()*+,;=:@%[]", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// frontBody reads the body of the present request.
type http1Body struct {
	conn  *http1Conn
	ahead []byte // that came with the head
	left  int64  // not read yet
	need  int64  // what has to come of it before the stage has taken too long
}

func (b *http1Body) start() {
	b.left = b.conn.head.ContentLength
	rest := b.conn.in[b.conn.head.Size:b.conn.have]
	b.ahead = rest[:min(int64(len(rest)), b.left)]
	b.renew()
}

// renew gives the client the time again to send more.
func (b *http1Body) renew() {
	cfg := &b.conn.front.router.cfg
	b.need = cfg.bodyBytes()
	b.conn.enter(stageBody, ticks(cfg.ClientTimeout))
}

func (b *http1Body) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	var n int
	var err error
	if len(b.ahead) > 0 {
		n = copy(p, b.ahead)
		b.ahead = b.ahead[n:]
	} else {
		n, err = b.conn.conn.Read(p[:min(int64(len(p)), b.left)])
	}
	b.left -= int64(n)
	if b.need -= int64(n); b.need <= 0 && b.left > 0 {
		b.renew()
	}
	switch {
	case b.left == 0:
		b.conn.enter(stageWorking, 0)
		return n, io.EOF
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// fields returns the request's fields as the worker gets them, in memory if that
// is enough.
func (c *http1Conn) fields(memory link.Fields) link.Fields {
	size := len(c.forwarded) + 256
	for i := range c.head.Fields {
		size += len(c.head.Fields[i].Name) + len(c.head.Fields[i].Value) + 4
	}
	f := slices.Grow(memory[:0], size)
	rules, prior := &c.front.router.fields, false
	for i := range c.head.Fields {
		name := http1.Text(c.head.Fields[i].Name)
		switch kind := fields.KindOf(name); {
		case kind == fields.Forwarded:
			prior = c.trusted
			continue
		case kind == fields.Proxy && !c.trusted, rules.Drops(kind, name):
			continue
		}
		f = link.AppendField(f, name, http1.Text(c.head.Fields[i].Value))
	}
	return c.appendForwarding(f, prior)
}

// appendForwarding appends what setForwarded sets, and what a trusted
// client said there before if there is anything.
func (c *http1Conn) appendForwarding(f link.Fields, prior bool) link.Fields {
	if !prior && c.madeFor == http1.Text(c.head.Host) && c.forwarded != nil {
		return append(f, c.forwarded...)
	}
	in := &http.Request{RemoteAddr: c.client, Host: string(c.head.Host), ProtoMajor: 1, ProtoMinor: 1}
	before := make(http.Header)
	for i := range c.head.Fields {
		if name := http1.Text(c.head.Fields[i].Name); prior && fields.KindOf(name) == fields.Forwarded {
			before.Add(name, http1.Text(c.head.Fields[i].Value))
		}
	}
	made := forwardingFields(c.front.router, in, before)
	if !prior {
		c.madeFor, c.forwarded = in.Host, made
	}
	return append(f, made...)
}

// fail answers that there is no worker's answer. It reports whether the
// connection can be used on.
func (c *http1Conn) fail(x *upstreamRequest, err error) bool {
	f := failure{router: c.front.router, partition: x.partition, method: x.request.Method, ctx: c.ctx}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = c.conn.SetDeadline(time.Time{})
	}
	r := f.reply(err)
	if r.status == statusClientGone {
		return false
	}
	body := r.text + "\n"
	if x.request.Method == http.MethodHead {
		body = ""
	}
	b := http1.AppendStatus(nil, r.status)
	b = http1.AppendField(b, "Content-Type", "text/plain; charset=utf-8")
	b = http1.AppendField(b, "X-Content-Type-Options", "nosniff")
	if r.retry {
		b = http1.AppendField(b, "Retry-After", "1")
	}
	b = c.front.date.Append(b, time.Unix(c.front.wall.Load(), 0))
	b = http1.AppendFraming(b, http1.Framing{Method: x.request.Method, Status: r.status, Length: int64(len(r.text) + 1), Close: r.close || c.head.Close})
	return c.write(append(b, body...)) && !r.close
}

// interim implements downstream.
func (c *http1Conn) interim(status int, list link.Fields) {
	b := http1.AppendStatus(nil, status)
	for name, value := range list.All() {
		if value, ok := fields.ToClient(http.CanonicalHeaderKey(name), value); ok {
			b = http1.AppendField(b, name, value)
		}
	}
	if !c.write(append(b, "\r\n"...)) {
		c.end()
	}
}

// answer writes the worker's answer, of the length that was declared and no more.
// It reports whether that was all of it, so that the connection can be used on.
func (c *http1Conn) answer(x *upstreamRequest, keep bool) bool {
	res := &x.answer
	pooled := outPool.Get().(*[]byte)
	defer func() {
		*pooled = (*pooled)[:0]
		outPool.Put(pooled)
	}()
	b := http1.AppendStatus((*pooled)[:0], res.status)
	dated := false
	for name, value := range res.fields.All() {
		name = http.CanonicalHeaderKey(name)
		if value, ok := fields.ToClient(name, value); ok {
			b = http1.AppendField(b, name, value)
			dated = dated || name == "Date"
		}
	}
	if !dated {
		b = c.front.date.Append(b, time.Unix(c.front.wall.Load(), 0))
	}
	if via := c.front.router.cfg.Via; via != "" {
		b = http1.AppendField(b, "Via", "1.1 "+via)
	}
	framing := http1.Framing{Method: x.request.Method, Status: res.status, Length: res.length, Close: !keep}
	b = http1.AppendFraming(b, framing)
	has, chunked := framing.Body()
	left := int64(0)
	if has {
		left = res.length
	}
	for {
		if n, last := res.body.Buffered(); len(b) > 0 && (!last || len(b)+n > outSize) {
			if !c.write(b) {
				return false
			}
			b = b[:0]
		}
		piece, err := res.body.Next()
		switch {
		case err == io.EOF:
			if left > 0 { // the client must see that there should be more
				c.write(b)
				return false
			}
			if chunked {
				b = http1.AppendEnd(b, trailers(res.body.Trailer()))
			}
			*pooled = b
			return len(b) == 0 || c.write(b)
		case err != nil:
			return false
		case chunked:
			b = http1.AppendChunk(b, piece)
			continue
		case int64(len(piece)) > left: // the rest would be taken for another answer
			c.write(append(b, piece[:left]...))
			return false
		}
		left -= int64(len(piece))
		switch {
		case len(b) == 0 && len(piece) > outSize/4:
			if !c.write(piece) {
				return false
			}
		default:
			b = append(b, piece...)
		}
	}
}

func trailers(f link.Fields) (b []byte) {
	for name, value := range f.All() {
		if fields.IsTrailer(name) {
			b = http1.AppendField(b, name, value)
		}
	}
	return b
}
