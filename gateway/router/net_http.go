package router

import (
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/paced"
	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/internal/metrics"
	"github.com/keyway-go/keyway/internal/wire/h2"
	"github.com/keyway-go/keyway/internal/wire/http1"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/internal/wire/netutil"
)

// netHTTPRequest is a request that net/http has read, and its answer. It gives up a client that takes
// nothing for too long. It implements downstream. The request's goroutine owns it.
type netHTTPRequest struct {
	upstreamRequest
	server  *Server // that has handed it over; nil for none
	writer  http.ResponseWriter
	control *http.ResponseController
	in      *http.Request
	from    source
	streams bool // it came over HTTP/2
	status  int  // of the head that begins
	aborted bool // the answer
}

// ServeHTTP implements [http.Handler].
func (rt *Router) ServeHTTP(w http.ResponseWriter, r *http.Request) { rt.serveNetHTTP(nil, w, r) }

func (rt *Router) serveNetHTTP(s *Server, w http.ResponseWriter, r *http.Request) {
	x := &netHTTPRequest{server: s, writer: w, control: http.NewResponseController(w), in: r, streams: r.ProtoMajor > 1}
	x.from.init(rt, nil, r.RemoteAddr, strings.TrimPrefix(r.Proto, "HTTP/"))
	x.init(r.Context(), rt, x, &x.from)
	x.stripe, x.tls, x.header = metrics.Stripe(), r.TLS != nil, r.Header
	for name, value := range send.FieldsOf(r.Header) {
		x.fields = append(x.fields, h2.Field{Name: name, Value: value})
	}
	x.Request.Method, x.Request.Target, x.Request.Host = r.Method, r.URL.RequestURI(), r.Host
	if r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0 {
		pace := paced.NewBody(r.Body, x.control, rt.cfg.ClientTimeout, rt.cfg.bodyBytes())
		defer pace.End()
		x.pace, x.Body.Reader, x.Request.ContentLength = pace, pace, r.ContentLength
		x.trailers = func() http.Header { return r.Trailer }
	}
	if !x.refuseForm(r.URL.Path, r.RequestURI) {
		x.serve()
	}
	x.endUse()
	if x.aborted {
		panic(http.ErrAbortHandler)
	}
	if x.streams {
		x.hurry() // the server sends what is left
	}
}

// wait implements downstream.
func (x *netHTTPRequest) wait() {
	_ = x.control.SetReadDeadline(time.Time{}) // of a server that gives each request one
	x.pace, x.Body.Reader = nil, x.in.Body
}

// endBody implements downstream. The connection ends with a body that is cut off.
func (x *netHTTPRequest) endBody() {
	if x.Request.Body == nil {
		return
	}
	cut := x.awaitBody(func() { _ = x.control.SetReadDeadline(netutil.Past) })
	switch {
	case !x.Body.Ended.Load():
		rest := restGrace
		if cut {
			rest = 0
		}
		_ = x.control.SetReadDeadline(time.Now().Add(rest)) // a Read may have lifted the one before
	case cut:
		_ = x.control.SetReadDeadline(time.Time{})
	}
}

// hurry bounds the wait for the client to take what is sent.
func (x *netHTTPRequest) hurry() {
	_ = x.control.SetWriteDeadline(time.Now().Add(x.router.cfg.ClientTimeout)) // not every server has it
}

// rest ends the bound while nothing is sent: net/http gives up a stream of HTTP/2 at
// its deadline, whether or not there is something to take.
func (x *netHTTPRequest) rest() {
	if x.streams {
		_ = x.control.SetWriteDeadline(time.Time{})
	}
}

func (x *netHTTPRequest) Carry(send.Interruptible) bool { return false }
func (x *netHTTPRequest) start(status int)              { x.status = status }

func (x *netHTTPRequest) field(name, value string) {
	h := x.writer.Header()
	h[name] = append(h[name], value)
}

// interim implements downstream. HTTP/1.0 has no interim answers (RFC 9110, section 15.2). While a
// client sends its body only after 100 Continue, the server may write that status itself at any time.
func (x *netHTTPRequest) interim() {
	expects := x.Stream && x.header.Get("Expect") != "" && !x.Body.Ended.Load()
	if x.source.version != "1.0" && !expects {
		x.writer.WriteHeader(x.status)
	}
	clear(x.writer.Header())
	x.status = 0
}

func (x *netHTTPRequest) head(f http1.Framing) {
	h := x.writer.Header()
	fields.LeaveUntyped(h)
	if f.Declares() {
		h["Content-Length"] = []string{strconv.FormatInt(f.Length, 10)}
	}
	if f.Close || x.pace != nil && !x.HasBody() && !x.Body.Ended.Load() {
		_ = x.control.SetReadDeadline(time.Now().Add(restGrace)) // not every server has it
	}
	if f.Close || x.server != nil && !x.streams && x.server.is(leaving) {
		h["Connection"] = []string{"close"}
	}
	x.writer.WriteHeader(f.Status)
}

func (x *netHTTPRequest) write(piece []byte, _ bool) (err error) {
	defer x.rest()
	for n := 0; len(piece) > 0 && err == nil; piece = piece[n:] {
		x.hurry()
		n, err = x.writer.Write(piece[:min(len(piece), outSize)])
		x.countSent(n)
	}
	return err
}

func (x *netHTTPRequest) flush() error {
	x.hurry()
	defer x.rest()
	return x.control.Flush()
}

// endAnswer implements downstream. It flushes first: net/http gives a small body that
// it holds a length, and then no trailers.
func (x *netHTTPRequest) endAnswer(trailer link.Fields) error {
	if err := x.flush(); err != nil {
		return err
	}
	h := x.writer.Header()
	announced := fields.ConnectionNames(h["Trailer"])
	for name, value := range trailer.All() {
		if !announced(name) {
			name = http.TrailerPrefix + name
		}
		h.Add(name, value)
	}
	return nil
}

func (x *netHTTPRequest) abort() {
	if x.status == 0 {
		x.writer.WriteHeader(send.StatusClientGone)
		return
	}
	x.aborted = true
}

// hijack returns the connection, which changes protocols.
func (x *netHTTPRequest) hijack() (net.Conn, error) {
	conn, _, err := x.control.Hijack()
	if err != nil {
		return nil, err
	}
	x.account()
	if x.server != nil {
		conn = x.server.tunnel(conn)
	}
	return conn, nil
}
