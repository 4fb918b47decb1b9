package router

import (
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/router/internal/routing"
	"github.com/keyway-go/keyway/internal/wire/http1"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// exchange sends the request to its worker and answers it. handed says that
// the connection was handed over instead, and keep that another request may
// follow.
func (c *http1Conn) exchange() (handed, keep bool) {
	rt := c.front.router
	key, err := rt.cfg.Keys.ExtractFrom(c)
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
	err = rt.routes.Route(c.ctx, partition, x.try)
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
	fields link.Fields     // memory for the request's
	try    routing.Attempt // attempt, made once
}

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
