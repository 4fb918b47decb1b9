package link

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/keyway-go/keyway/internal/wire/grammar"
)

// HTTPHandler returns a Handler that runs h unchanged, see ServeHTTP.
func HTTPHandler(h http.Handler) Handler {
	return HandlerFunc(func(w *ResponseWriter, r *ServerRequest) {
		ServeHTTP(r.Context(), w, r, r.Fields.HeaderFor(0), h)
	})
}

// ServeHTTP lets h answer r as a net/http server would: the request's body,
// trailers and context, implicit status and length, sniffed Content-Type,
// Flusher, trailers declared and by http.TrailerPrefix, no body for HEAD, 204
// and 304. ctx, r.Context() or one derived from it, becomes the request's, and
// so does header, r.Fields as such or with changes.
// It differs in this: of interim answers (1xx) there are 8 at most and no 100,
// there is no Date and no Hijacker, and a panic ends this stream, not the
// connection.
func ServeHTTP(ctx context.Context, w *ResponseWriter, r *ServerRequest, header http.Header, h http.Handler) {
	x := &exchange{w: w, length: -1}
	req, err := x.request(ctx, r, header)
	if err != nil {
		x.header = http.Header{"Content-Type": {"text/plain; charset=utf-8"}}
		x.WriteHeader(http.StatusBadRequest)
		io.WriteString(x, "400 Bad Request")
		x.finish()
		return
	}
	defer x.release()
	h.ServeHTTP(x, req)
	x.finish()
}

// sniffSize is how much of a body is held back before the head is settled, as
// in net/http: a shorter body gets a Content-Length.
const sniffSize = 2 << 10

// exchange is an http.ResponseWriter and the body of its request.
type exchange struct {
	w      *ResponseWriter
	header http.Header
	isHead bool

	status   int      // 0 until WriteHeader
	fields   *buffer  // the header as it was at WriteHeader
	length   int64    // declared Content-Length, -1 for none
	written  int64    // bytes of body
	trailers []string // names that were declared
	trailing bool     // there may be trailers
	encoded  bool     // Transfer-Encoding was set
	typed    bool     // Content-Type or Content-Encoding was set
	settled  bool     // the head was handed to w
	sized    bool     // it had a length
	done     bool     // the handler has returned
	held     *buffer  // body until the head is settled

	req    *http.Request
	body   *RequestBody
	merged bool // the trailers are in req
	closed atomic.Bool
}

// request builds the request for the handler.
func (x *exchange) request(ctx context.Context, r *ServerRequest, header http.Header) (*http.Request, error) {
	x.isHead = r.Method == http.MethodHead
	u, err := url.ParseRequestURI(r.Target)
	if err != nil {
		return nil, err
	}
	req := http.Request{
		Method:        r.Method,
		URL:           u,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        header,
		Body:          http.NoBody,
		ContentLength: r.ContentLength,
		Host:          r.Host,
		RemoteAddr:    r.st.sc.remote,
		RequestURI:    r.Target,
	}
	if u.Host != "" {
		req.Host = u.Host
	}
	if r.sized {
		req.Header["Content-Length"] = []string{strconv.FormatInt(r.ContentLength, 10)}
	}
	req.Trailer = declared(req.Header)
	if !r.Body.empty() {
		x.body = r.Body
		req.Body = (*exchangeBody)(x)
	}
	if req.ContentLength < 0 {
		req.TransferEncoding = []string{"chunked"}
	}
	x.req = req.WithContext(ctx)
	return x.req, nil
}

// declared takes the Trailer field out of h and returns the names that it
// announces, nil for none.
func declared(h http.Header) http.Header {
	values, ok := h["Trailer"]
	if !ok {
		return nil
	}
	delete(h, "Trailer")
	var t http.Header
	for name := range grammar.Items(values) {
		if grammar.IsHopField(name) {
			continue
		}
		if t == nil {
			t = make(http.Header)
		}
		t[textproto.CanonicalMIMEHeaderKey(name)] = nil
	}
	return t
}

// exchangeBody is the request's body.
type exchangeBody exchange

// Read implements io.Reader.
func (b *exchangeBody) Read(p []byte) (int, error) {
	if b.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.body.Read(p)
	if err == io.EOF && !b.merged {
		b.merged = true
		if b.req.Trailer == nil {
			b.req.Trailer = b.body.Trailer().Header()
			return n, err
		}
		maps.Copy(b.req.Trailer, b.body.Trailer().Header())
	}
	return n, err
}

// Close implements io.Closer.
func (b *exchangeBody) Close() error {
	b.closed.Store(true)
	return nil
}

// Header implements http.ResponseWriter.
func (x *exchange) Header() http.Header {
	if x.header == nil {
		x.header = make(http.Header)
	}
	return x.header
}

// WriteHeader implements http.ResponseWriter.
func (x *exchange) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic("link: invalid status code " + strconv.Itoa(status))
	}
	switch {
	case x.status != 0 || status == http.StatusContinue:
		return
	case isInterim(status):
		x.interim(status)
		return
	}
	x.status = status
	if v := x.header["Content-Length"]; len(v) > 0 {
		if n, ok := grammar.ParseLength(v[0]); ok {
			x.length = n
		} else {
			x.header.Del("Content-Length")
		}
	}
	x.encoded = isSet(x.header["Transfer-Encoding"])
	_, x.typed = x.header["Content-Type"]
	x.typed = x.typed || isSet(x.header["Content-Encoding"])
	x.fields = x.w.st.c.pool.get(minBuffer)
	f := Fields(x.fields.b)
	for name, values := range x.header {
		if strings.HasPrefix(name, http.TrailerPrefix) {
			x.trailing = true
			continue
		}
		f = x.appendField(f, name, values)
	}
	x.fields.b = f
}

// interim sends an interim answer with the header as it is now.
func (x *exchange) interim(status int) {
	var f Fields
	for name, values := range x.header {
		if name == "Trailer" || strings.HasPrefix(name, http.TrailerPrefix) {
			continue
		}
		f = x.appendField(f, name, values)
	}
	_ = x.w.WriteInterim(status, f) // should it fail, so does the answer
}

func isSet(values []string) bool { return len(values) > 0 && values[0] != "" }

// appendField appends what a field of the handler's header adds to the head.
func (x *exchange) appendField(f Fields, name string, values []string) Fields {
	switch {
	case name == "Trailer":
		x.trailing = true
		for _, v := range values {
			x.declare(v)
		}
	case !grammar.IsToken(name), grammar.IsHopField(name),
		name == "Content-Type" && x.status == http.StatusNotModified:
		return f
	}
	for _, v := range values {
		f = AppendField(f, name, grammar.CleanValue(v))
	}
	return f
}

// declare notes the names in a Trailer field.
func (x *exchange) declare(list string) {
	for name := range declared(http.Header{"Trailer": {list}}) {
		x.trailers = append(x.trailers, name)
	}
}

// settle hands the head to the link. p is the beginning of the body.
func (x *exchange) settle(p []byte) error {
	x.settled = true
	length := x.length
	switch {
	case grammar.HasNoBody(x.status), x.encoded:
		length = -1
	case length < 0 && x.done && !x.trailing && (!x.isHead || len(p) > 0):
		length = int64(len(p))
	}
	if !grammar.HasNoBody(x.status) && !x.typed && !x.encoded && len(p) > 0 {
		x.fields.b = AppendField(Fields(x.fields.b), "Content-Type", http.DetectContentType(p))
	}
	x.sized = length >= 0
	return x.w.WriteHead(x.status, length, x.fields.b)
}

// Write implements io.Writer.
func (x *exchange) Write(p []byte) (int, error) {
	if x.status == 0 {
		x.WriteHeader(http.StatusOK)
	}
	if len(p) == 0 {
		return 0, nil
	}
	if grammar.HasNoBody(x.status) {
		return 0, http.ErrBodyNotAllowed
	}
	x.written += int64(len(p))
	if x.length >= 0 && x.written > x.length {
		return 0, http.ErrContentLength
	}
	if x.settled {
		return x.w.Write(p)
	}
	if x.held == nil {
		x.held = x.w.st.c.pool.get(sniffSize)
	}
	n := min(len(p), sniffSize-len(x.held.b))
	x.held.b = append(x.held.b, p[:n]...)
	if n == len(p) {
		return n, nil
	}
	if err := x.let(); err != nil {
		return 0, err
	}
	m, err := x.w.Write(p[n:])
	return n + m, err
}

// WriteString implements io.StringWriter.
func (x *exchange) WriteString(s string) (int, error) {
	return x.Write(aliasBytes(s))
}

// let settles the head and lets the body go that was held back.
func (x *exchange) let() error {
	var p []byte
	if x.held != nil {
		p = x.held.b
	}
	if err := x.settle(p); err != nil || len(p) == 0 {
		return err
	}
	_, err := x.w.Write(p)
	return err
}

// ReadFrom implements io.ReaderFrom.
func (x *exchange) ReadFrom(src io.Reader) (int64, error) {
	pool := x.w.st.c.pool
	buf := pool.get(maxData)
	defer pool.put(buf)
	var sum int64
	for {
		n, err := src.Read(buf.b[:cap(buf.b)])
		if n > 0 {
			m, werr := x.Write(buf.b[:n])
			sum += int64(m)
			if werr != nil {
				return sum, werr
			}
		}
		if err == io.EOF {
			return sum, nil
		}
		if err != nil {
			return sum, err
		}
	}
}

// Flush implements http.Flusher.
func (x *exchange) Flush() { x.FlushError() }

// FlushError is Flush for http.ResponseController.
func (x *exchange) FlushError() error {
	if x.status == 0 {
		x.WriteHeader(http.StatusOK)
	}
	if !x.settled {
		if err := x.let(); err != nil {
			return err
		}
	}
	return x.w.Flush()
}

// EnableFullDuplex is for http.ResponseController: the link always is.
func (x *exchange) EnableFullDuplex() error { return nil }

// finish completes the answer when the handler has returned.
func (x *exchange) finish() {
	x.done = true
	x.closed.Store(true)
	if x.status == 0 {
		x.WriteHeader(http.StatusOK)
	}
	if !x.settled {
		if err := x.let(); err != nil && !errors.Is(err, ErrClosed) {
			x.w.fail(err)
			return
		}
	}
	x.w.SetTrailer(x.finalTrailers())
}

// finalTrailers returns the trailers that the handler has set.
func (x *exchange) finalTrailers() Fields {
	if x.sized {
		return nil
	}
	var f Fields
	for name, values := range x.header {
		if rest, ok := strings.CutPrefix(name, http.TrailerPrefix); ok && grammar.IsToken(rest) {
			for _, v := range values {
				f = AppendField(f, rest, grammar.CleanValue(v))
			}
		}
	}
	for _, name := range x.trailers {
		for _, v := range x.header[name] {
			f = AppendField(f, name, grammar.CleanValue(v))
		}
	}
	return f
}

// release gives the buffers back.
func (x *exchange) release() {
	x.closed.Store(true)
	pool := x.w.st.c.pool
	pool.put(x.fields)
	pool.put(x.held)
	x.fields, x.held = nil, nil
}
