package router

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/internal/wire/grammar"
	"github.com/keyway-go/keyway/internal/wire/h2"
	"github.com/keyway-go/keyway/internal/wire/http1"
)

// speaksH2 reports whether a connection that begins so is one for serveH2.
func (f *Server) speaksH2(read []byte) bool {
	return strings.HasPrefix(http1.Text(read), h2Preface) && f.server.Protocols != nil && f.server.Protocols.UnencryptedHTTP2()
}

// request returns the request as net/http has it, without its body.
func (c *h2Conn) request(s *h2.Stream) *http.Request {
	r := &http.Request{
		Method: s.Method, Host: s.Authority, RequestURI: s.Path, URL: &url.URL{Host: s.Authority},
		Proto: "HTTP/2.0", ProtoMajor: 2, Header: make(http.Header, len(s.Fields)), RemoteAddr: c.client,
	}
	if s.Scheme == "https" {
		r.TLS = c.tls
	}
	for _, f := range s.Fields {
		name := http.CanonicalHeaderKey(f.Name)
		r.Header[name] = append(r.Header[name], f.Value)
	}
	return r.WithContext(s.Context())
}

// serveHTTP answers a request as net/http's server would. What has been read of
// its body is in read.
func (c *h2Conn) serveHTTP(s *h2.Stream, read []byte) {
	r := c.request(s)
	if r.Method != http.MethodConnect {
		url, err := url.ParseRequestURI(s.Path)
		if err != nil {
			s.Reset(h2.ProtocolError)
			return
		}
		r.URL = url
	} else {
		r.RequestURI = s.Authority
	}
	w := &h2Writer{stream: s, conn: c, method: r.Method, header: make(http.Header), length: -1}
	r.Body, r.ContentLength = http.NoBody, s.ContentLength
	if s.Body {
		body := &h2Body{stream: s, request: r, ahead: read, expects: strings.EqualFold(r.Header.Get("Expect"), "100-continue")}
		r.Body = body
	}
	r.Header.Del("Expect")
	announceTrailer(r)
	defer func() {
		if p := recover(); p != nil {
			if p != http.ErrAbortHandler {
				c.front.router.log.Error("panic while serving", "client", c.client, "panic", p, "stack", string(debug.Stack()))
			}
			s.Reset(h2.InternalError)
		}
	}()
	if s.Path == "*" {
		w.WriteHeader(http.StatusOK) // net/http's own answer
	} else {
		c.front.router.ServeHTTP(w, r)
	}
	w.finish()
}

// announceTrailer makes what the client says of its trailers the keys of
// r.Trailer.
func announceTrailer(r *http.Request) {
	for name := range grammar.Items(r.Header["Trailer"]) {
		if r.Trailer == nil {
			r.Trailer = make(http.Header)
		}
		r.Trailer[http.CanonicalHeaderKey(name)] = nil
	}
	r.Header.Del("Trailer")
}

// h2Body is the body of a request as net/http has it.
type h2Body struct {
	stream  *h2.Stream
	request *http.Request
	ahead   []byte // was read before
	expects bool   // to be told to send it
}

func (b *h2Body) Read(p []byte) (int, error) {
	if len(b.ahead) > 0 {
		n := copy(p, b.ahead)
		b.ahead = b.ahead[n:]
		return n, nil
	}
	if b.expects {
		b.expects = false
		if !b.stream.Headed() {
			_ = b.stream.Answer(http.StatusContinue, nil, nil, false) // should it fail, so does Read
		}
	}
	n, err := b.stream.Read(p)
	if err == io.EOF {
		for _, f := range b.stream.Trailer() {
			name := http.CanonicalHeaderKey(f.Name)
			if values, announced := b.request.Trailer[name]; announced {
				b.request.Trailer[name] = append(values, f.Value)
			}
		}
	}
	return n, err
}

// Close implements [io.Closer].
func (b *h2Body) Close() error { return nil }

// maxPending is how much of a body waits for more, or the answer's end.
const maxPending = 4 << 10

// h2Writer is an [http.ResponseWriter].
type h2Writer struct {
	stream *h2.Stream
	conn   *h2Conn
	method string
	header http.Header

	status   int // 0 until there is one
	has      bool
	length   int64 // of the body, as declared; -1 if it was not
	out      []h2.Field
	trailers []string // announced
	sent     bool     // the head was
	written  int64
	pending  []byte
}

func (w *h2Writer) Header() http.Header { return w.header }

func (w *h2Writer) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic(fmt.Sprintf("invalid WriteHeader code %v", status))
	}
	switch {
	case w.status != 0 || status == http.StatusSwitchingProtocols:
		return
	case status < 200:
		_ = w.stream.Answer(status, h2Fields(w.header), nil, false) // should it fail, so does the answer
		return
	}
	w.status = status
	w.has, _ = http1.Framing{Method: w.method, Status: status}.Body()
	if n, ok := grammar.ParseLength(w.header.Get("Content-Length")); ok {
		w.length = n
	}
	w.out = h2Fields(w.header)
	if _, dated := w.header["Date"]; !dated {
		w.out = append(w.out, h2.Field{Name: "date", Value: w.conn.front.dateText()})
	}
	for name := range grammar.Items(w.header["Trailer"]) {
		w.trailers = append(w.trailers, http.CanonicalHeaderKey(name))
	}
}

// h2Fields returns what goes to the client as the head of an answer, without
// the length.
func h2Fields(h http.Header) (list []h2.Field) {
	for name, values := range h {
		if strings.HasPrefix(name, http.TrailerPrefix) || name != "Trailer" && fields.KindOf(name) == fields.Hop {
			continue
		}
		for _, v := range values {
			list = h2.AppendField(list, name, v)
		}
	}
	return list
}

func (w *h2Writer) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case !w.has && w.method == http.MethodHead:
		return len(p), nil
	case !w.has:
		return 0, http.ErrBodyNotAllowed
	case w.length >= 0 && w.written+int64(len(p)) > w.length:
		return 0, http.ErrContentLength
	}
	w.written += int64(len(p))
	if !w.sent && len(w.pending)+len(p) <= maxPending {
		w.pending = append(w.pending, p...)
		return len(p), nil
	}
	if err := w.FlushError(); err != nil {
		return 0, err
	}
	if err := w.stream.Write(p, false); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush implements [http.Flusher].
func (w *h2Writer) Flush() { _ = w.FlushError() }

// FlushError is for [http.ResponseController].
func (w *h2Writer) FlushError() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if w.sent {
		return nil
	}
	return w.sendHead(false)
}

// SetReadDeadline is for [http.ResponseController]. It knows only deadlines that
// have passed: waiting for the client is bounded by the front's clock.
func (w *h2Writer) SetReadDeadline(t time.Time) error {
	w.stream.Interrupt(!t.IsZero() && t.Before(time.Now()))
	return nil
}

// sendHead sends the head, with what is there of the body.
func (w *h2Writer) sendHead(end bool) error {
	w.sent = true
	if (http1.Framing{Method: w.method, Status: w.status, Length: w.length}).Declares() {
		w.out = append(w.out, h2.Field{Name: "content-length", Value: strconv.FormatInt(w.length, 10)})
	}
	return w.stream.Answer(w.status, w.out, w.pending, end)
}

// finish ends the answer when the handler has returned.
func (w *h2Writer) finish() {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	trailers := w.trailer()
	if !w.sent {
		if w.length < 0 && w.has {
			w.length = w.written
		}
		_ = w.sendHead(len(trailers) == 0 && (w.written == w.length || !w.has)) // or the client has left
	}
	switch {
	case w.has && w.length >= 0 && w.written < w.length:
		w.stream.Reset(h2.InternalError) // it must not look whole
	default:
		_ = w.stream.End(trailers) // or it has ended
	}
}

// trailer returns the fields after the body.
func (w *h2Writer) trailer() (fields []h2.Field) {
	if !w.has {
		return nil
	}
	for _, name := range w.trailers {
		for _, v := range w.header[name] {
			fields = h2.AppendField(fields, name, v)
		}
	}
	for name, values := range w.header {
		if name, ok := strings.CutPrefix(name, http.TrailerPrefix); ok {
			for _, v := range values {
				fields = h2.AppendField(fields, name, v)
			}
		}
	}
	return fields
}
