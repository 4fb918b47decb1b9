// Package httphandler runs a net/http handler for a request that arrived over the link.
// It behaves like a net/http server: implicit status and length, sniffed
// Content-Type, Flusher, trailers that are declared or have http.TrailerPrefix, and no body for
// HEAD, 204 and 304. It sends no interim answer 100, has no Hijacker, and leaves panics to the
// caller.
package httphandler

import (
	"errors"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/keyway-go/keyway/internal/wire/grammar"
)

// Stream is a request and its answer in the protocol that carries them. Its
// methods are called by a [Writer] and by the reader of the request's body,
// which may be two goroutines.
type Stream interface {
	// ReadBody reads the request's body.
	ReadBody(p []byte) (int, error)
	// Trailer returns the fields behind the body once ReadBody has returned
	// io.EOF.
	Trailer() http.Header

	// AddField adds a field to the next part that is sent: an interim answer, the head, or the
	// trailers. Its value is clean, see [grammar.CleanValue].
	AddField(name, value string)
	// SendInterim sends an interim answer, a status from 102 to 199. Should it
	// fail, so does the answer.
	SendInterim(status int)
	// SendHead sends the head of the answer and the beginning of its body. The
	// length is for a Content-Length, -1 for none.
	SendHead(status int, length int64, body []byte) error
	// SendBody sends more of the body.
	SendBody(p []byte) error
	// SendPending sends what SendHead and SendBody have collected.
	SendPending() error
	// SendEnd ends the answer with the fields added since the head as trailers.
	SendEnd()
	// Abort ends an answer that is not whole. It does nothing if one of the
	// methods has failed for want of a client.
	Abort(err error)
}

// errUpgrade answers an attempt to change protocols.
var errUpgrade = errors.New("httphandler: status 101 where there is no change of protocols")

// holdSize is how much of a body is held back before the head is sent, as in
// net/http: a shorter body gets a Content-Length.
const holdSize = 2 << 10

var held = sync.Pool{New: func() any { return new([holdSize]byte) }}

// Writer is the [http.ResponseWriter] of a request, used in this order: Begin, the handler, Finish.
// sent is set when the head is sent and done when the handler has returned. The reader of the
// request's body may run on another goroutine: merged is its own, closed is shared.
type Writer struct {
	stream Stream
	req    *http.Request
	header http.Header

	status   int      // 0 until WriteHeader
	length   int64    // declared Content-Length, -1 for none
	written  int64    // bytes of body
	trailers []string // names that were declared
	trailing bool     // there may be trailers
	encoded  bool     // Transfer-Encoding was set
	typed    bool     // Content-Type or Content-Encoding was set
	sent     bool     // the head was
	sized    bool     // with a length
	done     bool     // the handler has returned
	held     []byte   // body until the head is sent

	merged bool        // the request has its trailers
	closed atomic.Bool // its body is not read any more
}

// Begin makes w the answer to r on the stream. It sets r's Trailer, and its
// Body, which comes from the stream if there is one.
func (w *Writer) Begin(s Stream, r *http.Request, hasBody bool) {
	w.stream, w.req, w.length = s, r, -1
	for name := range announced(r.Header["Trailer"]) {
		if r.Trailer == nil {
			r.Trailer = make(http.Header)
		}
		r.Trailer[name] = nil
	}
	delete(r.Header, "Trailer")
	r.Body = http.NoBody
	if hasBody {
		r.Body = (*body)(w)
	}
}

// announced yields the canonical names in values of the Trailer field.
func announced(values []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for name := range grammar.Items(values) {
			if !grammar.IsHopField(name) && !yield(textproto.CanonicalMIMEHeaderKey(name)) {
				return
			}
		}
	}
}

// body is the request's.
type body Writer

func (b *body) Read(p []byte) (int, error) {
	if b.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.stream.ReadBody(p)
	if err == io.EOF && !b.merged {
		b.merged = true
		if b.req.Trailer == nil {
			b.req.Trailer = make(http.Header)
		}
		maps.Copy(b.req.Trailer, b.stream.Trailer())
	}
	return n, err
}

func (b *body) Close() error {
	b.closed.Store(true)
	return nil
}

// Header implements [http.ResponseWriter].
func (w *Writer) Header() http.Header {
	if w.header == nil {
		w.header = make(http.Header)
	}
	return w.header
}

// WriteHeader implements [http.ResponseWriter].
func (w *Writer) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic("httphandler: invalid status code " + strconv.Itoa(status))
	}
	switch {
	case w.status != 0 || status == http.StatusContinue:
		return
	case status < 200 && status != http.StatusSwitchingProtocols:
		w.addHeader()
		w.stream.SendInterim(status)
		return
	}
	w.status = status
	if v := w.header["Content-Length"]; len(v) > 0 {
		if n, ok := grammar.ParseLength(v[0]); ok {
			w.length = n
		} else {
			w.header.Del("Content-Length")
		}
	}
	w.encoded = isSet(w.header["Transfer-Encoding"])
	_, w.typed = w.header["Content-Type"]
	w.typed = w.typed || isSet(w.header["Content-Encoding"])
	_, w.trailing = w.header["Trailer"]
	for name := range w.header {
		w.trailing = w.trailing || strings.HasPrefix(name, http.TrailerPrefix)
	}
	for name := range announced(w.header["Trailer"]) {
		w.trailers = append(w.trailers, name)
	}
	w.addHeader()
}

func isSet(values []string) bool { return len(values) > 0 && values[0] != "" }

func (w *Writer) addHeader() {
	for name, values := range w.header {
		switch {
		case !grammar.IsToken(name), grammar.IsHopField(name),
			name == "Trailer" && w.status == 0,
			name == "Content-Type" && w.status == http.StatusNotModified:
		default:
			w.addField(name, values)
		}
	}
}

func (w *Writer) addField(name string, values []string) {
	for _, v := range values {
		w.stream.AddField(name, grammar.CleanValue(v))
	}
}

func (w *Writer) hasBody() bool { return grammar.HasBody(w.req.Method, w.status) }

// sendHead sends the head and the held part of the body.
func (w *Writer) sendHead() error {
	w.sent = true
	bodiless, length, body := grammar.HasNoBody(w.status), w.length, w.held
	switch {
	case bodiless, w.encoded:
		length = -1
	case length < 0 && w.done && !w.trailing && (w.hasBody() || len(body) > 0):
		length = int64(len(body))
	}
	if !bodiless && !w.typed && !w.encoded && len(body) > 0 {
		w.stream.AddField("Content-Type", http.DetectContentType(body))
	}
	w.sized = length >= 0
	if !w.hasBody() {
		body = nil
	}
	err := errUpgrade
	if w.status >= 200 {
		err = w.stream.SendHead(w.status, length, body)
	}
	if err != nil {
		w.stream.Abort(err)
	}
	return err
}

// Write implements [io.Writer].
func (w *Writer) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case len(p) == 0:
		return 0, nil
	case grammar.HasNoBody(w.status):
		return 0, http.ErrBodyNotAllowed
	case w.length >= 0 && w.written+int64(len(p)) > w.length:
		return 0, http.ErrContentLength
	}
	w.written += int64(len(p))
	if w.sent {
		return w.send(p)
	}
	if w.held == nil {
		w.held = held.Get().(*[holdSize]byte)[:0]
	}
	n := min(len(p), holdSize-len(w.held))
	w.held = append(w.held, p[:n]...)
	if n == len(p) {
		return n, nil
	}
	if err := w.sendHead(); err != nil {
		return 0, err
	}
	m, err := w.send(p[n:])
	return n + m, err
}

// send sends a part of the body, which a HEAD request has none of.
func (w *Writer) send(p []byte) (int, error) {
	if w.hasBody() {
		if err := w.stream.SendBody(p); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// Flush implements [http.Flusher].
func (w *Writer) Flush() { _ = w.FlushError() }

// FlushError is Flush for [http.ResponseController].
func (w *Writer) FlushError() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !w.sent {
		if err := w.sendHead(); err != nil {
			return err
		}
	}
	return w.stream.SendPending()
}

// EnableFullDuplex is for [http.ResponseController]: streams always are.
func (w *Writer) EnableFullDuplex() error { return nil }

// Finish completes the answer when the handler has returned.
func (w *Writer) Finish() {
	w.done = true
	w.closed.Store(true)
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !w.sent && w.sendHead() != nil {
		return
	}
	if cap(w.held) == holdSize {
		held.Put((*[holdSize]byte)(w.held[:holdSize]))
		w.held = nil
	}
	if w.hasBody() && w.length >= 0 && w.length != w.written {
		w.stream.Abort(http.ErrContentLength)
		return
	}
	if w.hasBody() && !w.sized {
		w.addTrailers()
	}
	w.stream.SendEnd()
}

func (w *Writer) addTrailers() {
	for name, values := range w.header {
		if rest, ok := strings.CutPrefix(name, http.TrailerPrefix); ok && grammar.IsToken(rest) {
			w.addField(rest, values)
		}
	}
	for _, name := range w.trailers {
		w.addField(name, w.header[name])
	}
}
