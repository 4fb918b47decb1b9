package router

import (
	"io"
	"sync"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/internal/metrics"
	"github.com/keyway-go/keyway/internal/wire/grammar"
	"github.com/keyway-go/keyway/internal/wire/h2"
	"github.com/keyway-go/keyway/internal/wire/http1"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/internal/wire/netutil"
)

// http1Request is a request that came over HTTP/1.1, and its answer. Its memory is
// used again and again. It implements downstream.
type http1Request struct {
	upstreamRequest
	conn    *http1Conn
	unread  http1Body
	out     []byte  // what has not been sent of the answer
	pooled  *[]byte // whose memory out uses; nil before there is an answer
	chunked bool    // the answer's body is
	keep    bool    // another request may follow
}

// outSize is how many bytes of an answer are collected for one write.
const outSize = 16 << 10

var (
	http1Requests = sync.Pool{New: func() any {
		r := new(http1Request)
		r.stripe = metrics.Stripe()
		return r
	}}
	outPool = sync.Pool{New: func() any { b := make([]byte, 0, outSize); return &b }}
)

// answer answers the request whose head has been read. handed says that the
// connection was handed over instead, and keep that another request may follow.
func (c *http1Conn) answer() (handed, keep bool) {
	r := http1Requests.Get().(*http1Request)
	defer r.recycle()
	r.conn, r.unread = c, http1Body{conn: c}
	r.init(c.ctx, c.server.router, r, &c.source)
	r.tls, r.simple, r.Body.Reader = c.tls, true, &r.unread
	r.Request.Method, r.Request.Target, r.Request.Host = grammar.Text(c.head.Method), grammar.Text(c.head.Target), grammar.Text(c.head.Host)
	list := r.memory.fields[:0]
	for i := range c.head.Fields {
		list = append(list, h2.Field{Name: grammar.Text(c.head.Fields[i].Name), Value: grammar.Text(c.head.Fields[i].Value)})
	}
	r.fields, r.memory.fields = list, list
	if r.Request.ContentLength = max(c.head.ContentLength, 0); r.Request.ContentLength > 0 {
		r.unread.start()
	} else {
		c.enter(stageWorking, 0)
	}
	if r.serve() {
		if !r.keep {
			r.unread.awaitRest()
		}
		return false, r.keep
	}
	c.enter(stageWorking, 0)
	read := c.in[:c.have]
	if body, err := r.Taken(); err == nil && c.head.Size+len(body) > c.have {
		read = append(c.in[:c.head.Size:c.head.Size], body...)
	}
	c.handOver(read)
	return true, false
}

func (r *http1Request) recycle() {
	r.upstreamRequest.recycle()
	r.drop()
	r.conn, r.unread, r.chunked, r.keep = nil, http1Body{}, false, false
	http1Requests.Put(r)
}

func (r *http1Request) drop() {
	if r.pooled != nil {
		*r.pooled = r.out[:0]
		outPool.Put(r.pooled)
		r.pooled, r.out = nil, nil
	}
}

func (r *http1Request) Carry(e send.Interruptible) (watched bool) { return r.conn.carrier.Carry(e) }

func (r *http1Request) wait()    {} // nothing streams here
func (r *http1Request) endBody() {}

func (r *http1Request) start(status int) {
	if r.pooled == nil {
		r.pooled = outPool.Get().(*[]byte)
		r.out = *r.pooled
	}
	r.out = http1.AppendStatus(r.out, status)
}

func (r *http1Request) field(name, value string) { r.out = http1.AppendField(r.out, name, value) }

func (r *http1Request) interim() {
	r.out = append(r.out, "\r\n"...)
	if r.flush() != nil {
		r.conn.endWork()
	}
	r.drop() // the answer may take long
}

func (r *http1Request) head(f http1.Framing) {
	if f.Close { // reading the body may have come to its deadline
		_ = r.conn.conn.SetDeadline(time.Time{})
	}
	r.keep = !f.Close && r.unread.left == 0 && !r.conn.head.Close && !r.conn.closing.Load() && !r.conn.server.is(leaving)
	f.Close = !r.keep
	r.out = http1.AppendFraming(r.out, f)
	_, r.chunked = f.Body()
}

func (r *http1Request) write(piece []byte, end bool) error {
	if len(piece) > 0 {
		r.countSent(len(piece))
	}
	if len(r.out)+len(piece) > outSize {
		if err := r.flush(); err != nil {
			return err
		}
	}
	switch {
	case r.chunked:
		r.out = http1.AppendChunk(r.out, piece)
	case len(r.out) == 0 && len(piece) > outSize/4:
		return r.send(piece)
	default:
		r.out = append(r.out, piece...)
	}
	if end {
		return r.endAnswer(nil)
	}
	return nil
}

func (r *http1Request) endAnswer(trailer link.Fields) error {
	if r.chunked {
		var lines []byte
		for name, value := range trailer.All() {
			lines = http1.AppendField(lines, name, value)
		}
		r.out = http1.AppendEnd(r.out, lines)
	}
	return r.flush()
}

func (r *http1Request) flush() error {
	out := r.out
	if r.out = r.out[:0]; len(out) == 0 {
		return nil
	}
	return r.send(out)
}

// send writes b to the client. If that fails no other request follows.
func (r *http1Request) send(b []byte) error {
	err := r.conn.write(b)
	r.keep = r.keep && err == nil
	return err
}

func (r *http1Request) abort() {
	_ = r.flush() // the connection ends either way
	r.keep = false
}

// http1Body reads the body of the present request.
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

// renew begins the next interval. The client must send a minimum of the body in each.
func (b *http1Body) renew() {
	cfg := &b.conn.server.router.cfg
	b.need = cfg.bodyBytes()
	b.conn.enter(stageBody, ticks(cfg.ClientTimeout))
}

// awaitRest ends what is sent on the connection, and awaits what is left of the body, for restGrace. Closing
// the connection earlier would reset it when more comes, and the client might lose the answer.
func (b *http1Body) awaitRest() {
	left, conn := b.left-int64(len(b.ahead)), b.conn.conn
	if left == 0 {
		return
	}
	b.conn.enter(stageBody, ticks(restGrace))
	if netutil.CloseWrite(conn) == nil {
		_, _ = io.CopyN(io.Discard, conn, left)
	}
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
