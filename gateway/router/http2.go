package router

import (
	"crypto/tls"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/keyway-go/keyway/gateway/internal/conns"
	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/internal/metrics"
	"github.com/keyway-go/keyway/internal/wire/grammar"
	"github.com/keyway-go/keyway/internal/wire/h2"
	"github.com/keyway-go/keyway/internal/wire/http1"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// h2Conn is a client's connection that speaks HTTP/2. It implements servedConn.
type h2Conn struct {
	*h2.Conn
	source
	tls *tls.ConnectionState // nil without TLS
}

// serveH2 serves a connection to its end; it replaces old among the server's connections. read
// holds the bytes read before.
func serveH2(s *Server, conn net.Conn, read []byte, old servedConn) {
	addr := conn.RemoteAddr().String()
	c := new(h2Conn)
	c.source.init(s.router, s, addr, "2.0")
	if t, ok := conn.(*tls.Conn); ok {
		state := t.ConnectionState()
		c.tls = &state
	}
	c.Conn = s.h2.NewConn(conn, c.handle)
	if !s.replace(old, c) {
		conn.Close()
		return
	}
	defer s.forget(c)
	c.Serve(read)
}

func (c *h2Conn) check(_ int64, p phase) { c.Check(p >= leaving) }
func (c *h2Conn) close()                 { c.Close() }
func (c *h2Conn) Client() netip.Addr     { return conns.ClientOf(c.addr) }
func (c *h2Conn) IdleFor(int64) int64    { return c.Idle() }
func (c *h2Conn) EndUnused()             { c.EndIdle() }

// h2Stream is a request that came over HTTP/2, and its answer. It implements downstream. Its memory
// is reused. The stream's handler owns it; only carrier is also used when the stream fails.
type h2Stream struct {
	upstreamRequest
	carrier // interrupted when the stream fails
	stream  *h2.Stream
	failed  func()     // interrupt, made once
	out     []h2.Field // memory for the answer's
	length  []byte     // memory for the answer's Content-Length
	status  int        // of the answer's head that begins
	headed  bool       // the head of the answer is on its way

	heading send.Reservation // of memory for the request's fields
}

var h2Streams = sync.Pool{New: func() any {
	s := new(h2Stream)
	s.failed, s.stripe = s.interrupt, metrics.Stripe()
	return s
}}

func (c *h2Conn) handle(stream *h2.Stream) {
	if c.source.abandoned.Load() >= maxH2Streams {
		stream.Reset(h2.RefusedStream)
		return
	}
	s := h2Streams.Get().(*h2Stream)
	s.stream = stream
	s.init(stream.Context(), c.server.router, s, &c.source)
	s.Request.Method, s.Request.Target, s.Request.Host = stream.Method, stream.Path, stream.Authority
	s.Request.ContentLength = stream.ContentLength
	s.fields, s.tls = stream.Fields, stream.Scheme == "https" && c.tls != nil
	s.Body.Reader = stream
	stream.OnFail(s.failed)
	if stream.Size > send.Floor {
		s.heading.Account = c.source.account(c.server.router, s.KeyHeader(forwardedFor))
	}
	switch {
	case !s.heading.Reserve(stream.Size):
		c.server.router.counters.problems[problem.BodiesFull].Add(1)
		stream.Reset(h2.RefusedStream)
	case stream.Path == "*":
		s.start(http.StatusOK)
		s.field("Date", c.server.dateText())
		s.head(http1.Framing{Method: stream.Method, Status: http.StatusOK})
		_ = s.write(nil, true) // should it fail, there is nobody to tell
	case s.refuseForm(stream.Path, stream.Path):
	case !s.isClean():
		stream.Reset(h2.ProtocolError)
	default:
		s.takeBody()
		s.serve()
	}
	s.recycle()
}

func (s *h2Stream) recycle() {
	s.stream.OnFail(nil)
	if s.Request.Body != nil {
		s.stream.Keep(nil)
	}
	if s.Stream { // what has sent the body may still read it
		s.endUse()
		s.heading.Release()
		return
	}
	clear(s.out[:cap(s.out)])
	s.upstreamRequest.recycle()
	s.heading.Release()
	s.stream, s.headed, s.gone = nil, false, false
	h2Streams.Put(s)
}

// isClean puts the target into the form that net/url would give it on in. It reports false if
// net/url takes no such path.
func (s *h2Stream) isClean() bool {
	path := s.KeyPath()
	if _, err := url.PathUnescape(path); err != nil || isSimplePath(path) {
		return err == nil
	}
	target, err := url.ParseRequestURI(s.Request.Target)
	if err == nil {
		s.Request.Target = target.RequestURI()
	}
	return err == nil
}

// takeBody notes what the fields say of the body.
func (s *h2Stream) takeBody() {
	for i := range s.fields {
		switch f := &s.fields[i]; {
		case f.Name == "trailer" && s.stream.Body:
			s.trailers = trailersOf(s.stream)
		case f.Name == "expect" && strings.EqualFold(f.Value, "100-continue"):
			s.Body.Reader = &expectedBody{s.stream, false}
		}
	}
}

// trailersOf returns the trailers that the client has announced, as net/http does, with their values
// once they have come.
func trailersOf(stream *h2.Stream) func() http.Header {
	announced := make(http.Header)
	for name := range grammar.Items(appendValues(nil, stream.Fields, "trailer")) {
		if !grammar.IsHopField(name) {
			announced[http.CanonicalHeaderKey(name)] = nil
		}
	}
	return func() http.Header {
		list := maps.Clone(announced)
		for _, f := range stream.Trailer() {
			name := http.CanonicalHeaderKey(f.Name)
			if values, ok := list[name]; ok {
				list[name] = append(values, f.Value)
			}
		}
		return list
	}
}

// expectedBody is a body that the client sends once it is told to.
type expectedBody struct {
	*h2.Stream
	told bool
}

func (b *expectedBody) Read(p []byte) (int, error) {
	if !b.told {
		b.told = true
		if !b.Headed() {
			_ = b.Answer(http.StatusContinue, nil, nil, false) // should it fail, so does Read
		}
	}
	return b.Stream.Read(p)
}

func (s *h2Stream) wait() { s.stream.Wait() }

func (s *h2Stream) endBody() {
	if s.Stream {
		s.awaitBody(s.stream.Interrupt)
	}
}

func (s *h2Stream) start(status int)         { s.status, s.out = status, s.out[:0] }
func (s *h2Stream) field(name, value string) { s.out = h2.AppendField(s.out, name, value) }

func (s *h2Stream) interim() {
	_ = s.stream.Answer(s.status, s.out, nil, false) // should it fail, so does the answer
}

// head implements downstream. The head goes together with the beginning of the
// body, as far as that is there.
func (s *h2Stream) head(f http1.Framing) {
	if f.Declares() {
		s.length = strconv.AppendInt(s.length[:0], f.Length, 10)
		s.out = append(s.out, h2.Field{Name: "content-length", Value: grammar.Text(s.length)})
	}
}

func (s *h2Stream) write(piece []byte, end bool) error {
	if len(piece) > 0 {
		s.countSent(len(piece))
	}
	if s.headed {
		return s.stream.Write(piece, end)
	}
	s.headed = true
	return s.stream.Answer(s.status, s.out, piece, end)
}

func (s *h2Stream) flush() error {
	if s.headed {
		return nil
	}
	return s.write(nil, false)
}

func (s *h2Stream) endAnswer(trailer link.Fields) error {
	s.out = s.out[:0]
	for name, value := range trailer.All() {
		s.field(name, value)
	}
	return s.stream.End(s.out)
}

func (s *h2Stream) abort() { s.stream.Reset(h2.InternalError) }
