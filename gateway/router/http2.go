package router

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/router/internal/routing"
	"github.com/keyway-go/keyway/internal/wire/h2"
	"github.com/keyway-go/keyway/internal/wire/hop1"
	"github.com/keyway-go/keyway/internal/wire/http1"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// h2Preface is how a connection begins on which the client knows that HTTP/2 is
// spoken.
const h2Preface = "PRI * HTTP/2.0\r\n"

// maxH2Streams is how many requests a client may have under way at once on one
// connection, and how many that it has given up may be worked on when another
// one is taken.
const maxH2Streams = 250

// h2Conn is a client's connection that speaks HTTP/2.
type h2Conn struct {
	*h2.Conn
	front   *Server
	client  string               // the client's address
	trusted bool                 // what it says in forwarding fields is believed
	tls     *tls.ConnectionState // nil without TLS

	forwarded atomic.Pointer[forwardedTo]
	abandoned atomic.Int64 // requests that the client has given up and a worker still works on
}

// forwardedTo is what forwarding fields are for a host, if the client has set
// none of its own.
type forwardedTo struct {
	scheme, host string
	fields       link.Fields
}

// newH2Server returns what the connections of a front have in common.
func newH2Server(f *Server) *h2.Server {
	return &h2.Server{
		MaxStreams:     maxH2Streams,
		MaxHeaderBytes: hop.MaxHeaderBytes,
		HeadTicks:      int(headTicks),
		IdleTicks:      int(idleTicks),
		ClientTicks:    int(ticks(f.router.cfg.ClientTimeout)),
		ClientBytes:    f.router.cfg.bodyBytes(),
	}
}

// serveH2 serves a connection to its end. What has been read of it is in read.
func (f *Server) serveH2(conn net.Conn, read []byte) {
	c := &h2Conn{front: f, client: conn.RemoteAddr().String()}
	c.trusted = f.router.trusts(c.client)
	if t, ok := conn.(*tls.Conn); ok {
		state := t.ConnectionState()
		c.tls = &state
	}
	c.Conn = f.h2.NewConn(conn, c.handle)
	if !f.keep(c) {
		conn.Close()
		return
	}
	defer f.forget(c)
	c.Serve(read)
}

// check implements servedConn.
func (c *h2Conn) check(_ int64, closing bool) { c.Check(closing) }

// close implements servedConn.
func (c *h2Conn) close() { c.Close() }

// IdleFor implements [conns.Idle].
func (c *h2Conn) IdleFor(int64) int64 { return c.Idle() }

// EndUnused implements [conns.Idle].
func (c *h2Conn) EndUnused() { c.EndIdle() }

// h2Stream is a request that came over HTTP/2, and its answer. Its memory is
// used again and again.
type h2Stream struct {
	upstreamRequest
	conn   *h2Conn
	stream *h2.Stream
	try    routing.Attempt // attempt, made once
	failed func()          // interrupt, made once
	sent   link.Fields     // memory for the request's
	out    []h2.Field      // and for the answer's
	values []string
	headed bool // the head of the answer is on its way

	mu       sync.Mutex
	carrying *hop1.Exchange // to be interrupted when the stream fails
	gone     bool           // it has
}

var h2Streams = sync.Pool{New: func() any {
	s := new(h2Stream)
	s.try, s.failed = s.attempt, s.interrupt
	return s
}}

// handle answers a request.
func (c *h2Conn) handle(stream *h2.Stream) {
	if c.abandoned.Load() >= maxH2Streams {
		stream.Reset(h2.RefusedStream)
		return
	}
	s := h2Streams.Get().(*h2Stream)
	s.conn, s.stream = c, stream
	if !s.exchange() {
		c.serveHTTP(stream, s.data)
	}
	s.free()
}

// free makes s ready for another request.
func (s *h2Stream) free() {
	s.stream.OnFail(nil)
	s.close()
	if s.request.Body != nil {
		<-s.request.BodyDone()
		s.stream.Keep(nil)
		s.reserved.release()
	}
	clear(s.out[:cap(s.out)])
	clear(s.values[:cap(s.values)])
	spare := s.spare
	s.upstreamRequest = upstreamRequest{spare: spare}
	s.conn, s.stream, s.headed, s.carrying, s.gone = nil, nil, false, nil, false
	h2Streams.Put(s)
}

// exchange sends the request to its worker and answers it. It reports false if
// net/http's way has to; what it has read of the body then stands in data.
func (s *h2Stream) exchange() bool {
	rt, r := s.conn.front.router, &s.stream.Request
	if !s.plain() {
		return false
	}
	key, err := rt.cfg.Keys.ExtractFrom(s)
	partition := rt.ring.Partition(key)
	if err != nil {
		return false
	}
	rt.counters.requests.Add(1)
	s.router, s.client, s.ctx, s.partition = rt, s, s.stream.Context(), partition
	s.remote, s.abandons = s.conn.client, &s.conn.abandoned
	s.sent = s.appendFields(s.sent)
	s.request.Method, s.request.Target, s.request.Host = r.Method, r.Path, r.Authority
	s.request.Key, s.request.Fields = key, s.sent
	if n := r.ContentLength; n > 0 {
		s.request.Whole = true
		s.reserve()
		s.stream.Keep(&s.reserved)
		s.body.reader = s.stream
		s.request.Body, s.request.ContentLength = &s.body, n
	}
	s.stream.OnFail(s.failed)
	switch err := rt.routes.Route(s.ctx, partition, s.try); {
	case errors.Is(err, errStreams) && !s.upstreamRequest.sent:
		rt.counters.requests.Add(-1) // the router will count it
		return false
	case err != nil:
		s.fail(err)
	default:
		s.reply()
	}
	return true
}

// plain reports whether the request is of a form that needs nothing of
// net/http: no larger body, and nothing that this hop has to act on.
func (s *h2Stream) plain() bool {
	r := &s.stream.Request
	if r.ContentLength < 0 || r.ContentLength > hop.MaxRepeatedBody || r.Method == http.MethodConnect || r.Method == http.MethodTrace || r.Path[0] != '/' || !http1.PlainRequest(r.Method, r.Path, r.Authority) {
		return false
	}
	for i := range r.Fields {
		switch r.Fields[i].Name {
		case "trailer", "expect":
			return false
		}
	}
	path := s.KeyPath()
	return plainPath(path) && (strings.IndexByte(path, '%') < 0 || wholeEscapes(path))
}

// wholeEscapes reports whether net/url takes the path.
func wholeEscapes(path string) bool {
	_, err := url.PathUnescape(path)
	return err == nil
}

// The request as the key sources see it.
func (s *h2Stream) KeyHeader(name string) []string {
	values := s.values[:0]
	for i := range s.stream.Fields {
		if f := &s.stream.Fields[i]; len(f.Name) == len(name) && strings.EqualFold(f.Name, name) {
			values = append(values, f.Value)
		}
	}
	s.values = values
	return values
}

func (s *h2Stream) KeyHost() string { return s.stream.Authority }

func (s *h2Stream) KeyPath() string {
	path, _, _ := strings.Cut(s.stream.Path, "?")
	return path
}

func (s *h2Stream) KeyQuery() string {
	_, query, _ := strings.Cut(s.stream.Path, "?")
	return query
}

// appendFields returns the request's fields as the worker gets them, in memory if
// that is enough.
func (s *h2Stream) appendFields(memory link.Fields) link.Fields {
	size := 256
	for i := range s.stream.Fields {
		size += len(s.stream.Fields[i].Name) + len(s.stream.Fields[i].Value) + 4
	}
	f := slices.Grow(memory[:0], size)
	rules, prior := &s.conn.front.router.fields, false
	for i := range s.stream.Fields {
		name := s.stream.Fields[i].Name
		switch kind := fields.KindOf(name); {
		case kind == fields.Forwarded:
			prior = s.conn.trusted
			continue
		case kind == fields.Proxy && !s.conn.trusted, rules.Drops(kind, name):
			continue
		}
		f = link.AppendField(f, name, s.stream.Fields[i].Value)
	}
	return append(f, s.forwarding(prior)...)
}

// forwarding returns what tells of this hop, and of those before if prior is
// set.
func (s *h2Stream) forwarding(prior bool) link.Fields {
	last := s.conn.forwarded.Load()
	if !prior && last != nil && last.host == s.stream.Authority && last.scheme == s.stream.Scheme {
		return last.fields
	}
	r := s.conn.request(s.stream)
	var before http.Header
	if prior {
		before = r.Header
	}
	fields := forwardingFields(s.conn.front.router, r, before)
	if !prior {
		s.conn.forwarded.Store(&forwardedTo{s.stream.Scheme, s.stream.Authority, fields})
	}
	return fields
}

// interrupt ends what is done for the client.
func (s *h2Stream) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = true
	if s.carrying != nil {
		s.carrying.Interrupt()
	}
}

// carry implements downstream.
func (s *h2Stream) carry(e *hop1.Exchange) (watched bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.carrying = e
	if e != nil && s.gone {
		e.Interrupt()
	}
	return true
}

// interim implements downstream.
func (s *h2Stream) interim(status int, fields link.Fields) {
	s.collect(fields)
	_ = s.stream.Answer(status, s.out, nil, false) // should it fail, so does the answer
}

// collect makes out of what may go on to the client.
func (s *h2Stream) collect(list link.Fields) (dated bool) {
	s.out = s.out[:0]
	for name, value := range list.All() {
		name = http.CanonicalHeaderKey(name)
		if value, ok := fields.ToClient(name, value); ok {
			s.out = h2.AppendField(s.out, name, value)
			dated = dated || name == "Date"
		}
	}
	return dated
}

// reply sends the worker's answer.
func (s *h2Stream) reply() {
	res, front := &s.answer, s.conn.front
	if !s.collect(res.fields) {
		s.out = append(s.out, h2.Field{Name: "date", Value: front.dateText()})
	}
	if via := front.router.cfg.Via; via != "" {
		s.out = h2.AppendField(s.out, "Via", "1.1 "+via)
	}
	framing := http1.Framing{Method: s.request.Method, Status: res.status, Length: res.length}
	if framing.Declares() {
		s.out = append(s.out, h2.Field{Name: "content-length", Value: strconv.FormatInt(res.length, 10)})
	}
	if err := s.send(framing.Body()); err != nil {
		s.stream.Reset(h2.InternalError) // the client must not take what it got for the whole
	}
}

// send sends the head and the body, which go together as far as they are there.
func (s *h2Stream) send(has, _ bool) error {
	body := s.answer.body
	if !has {
		return s.write(nil, true)
	}
	for {
		if n, last := body.Buffered(); n == 0 && !last && !s.headed {
			if err := s.write(nil, false); err != nil {
				return err
			}
		}
		piece, err := body.Next()
		if err != nil && err != io.EOF {
			return err
		}
		n, last := body.Buffered()
		if last = last && n == 0; last && len(body.Trailer()) > 0 {
			return s.sendTrailers(piece, body.Trailer())
		}
		if err := s.write(piece, last); err != nil || last {
			return err
		}
	}
}

// write sends a part of the body, with the head before the first one.
func (s *h2Stream) write(piece []byte, end bool) error {
	if s.headed {
		return s.stream.Write(piece, end)
	}
	s.headed = true
	return s.stream.Answer(s.answer.status, s.out, piece, end)
}

// sendTrailers sends the end of a body with trailers.
func (s *h2Stream) sendTrailers(piece []byte, trailer link.Fields) error {
	if err := s.write(piece, false); err != nil {
		return err
	}
	s.out = s.out[:0]
	for name, value := range trailer.All() {
		if fields.IsTrailer(name) {
			s.out = h2.AppendField(s.out, name, value)
		}
	}
	return s.stream.End(s.out)
}

// fail answers that there is no worker's answer.
func (s *h2Stream) fail(err error) {
	front := s.conn.front
	f := failure{router: front.router, partition: s.partition, method: s.request.Method, ctx: s.ctx}
	r := f.reply(err)
	if r.status == statusClientGone {
		return
	}
	body := []byte(r.text + "\n")
	s.out = append(s.out[:0], h2.Field{Name: "content-type", Value: "text/plain; charset=utf-8"}, h2.Field{Name: "x-content-type-options", Value: "nosniff"},
		h2.Field{Name: "content-length", Value: strconv.Itoa(len(body))}, h2.Field{Name: "date", Value: front.dateText()})
	if r.retry {
		s.out = append(s.out, h2.Field{Name: "retry-after", Value: "1"})
	}
	if s.request.Method == http.MethodHead {
		body = nil
	}
	_ = s.stream.Answer(r.status, s.out, body, true) // or the client has left
}
