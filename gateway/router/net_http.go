package router

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/internal/metrics"
	"github.com/keyway-go/keyway/internal/wire/h2"
	"github.com/keyway-go/keyway/internal/wire/http1"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/internal/wire/netutil"
)

// clientWriter hides from the client what only Keyway's members may see, and gives up a client that
// takes nothing for too long. It implements downstream. The request's goroutine owns it.
type clientWriter struct {
	http.ResponseWriter
	router  *Router
	control *http.ResponseController
	context context.Context // of the request
	source  *source
	own     source // if the request has not come over a h2Conn
	pace    time.Duration
	streams bool // the request came over HTTP/2
	status  int  // of the head that begins

	record
	by        send.Way
	accounted bool // by account

	// expected is a body that the client sends only after 100 Continue. Until its end the server
	// may write that status itself at any time.
	expected *send.Body
}

func newClientWriter(rt *Router, w http.ResponseWriter, r *http.Request) *clientWriter {
	out := &clientWriter{ResponseWriter: w, router: rt, control: http.NewResponseController(w), context: r.Context(), pace: rt.cfg.ClientTimeout, streams: r.ProtoMajor > 1}
	if h2w, ok := w.(*h2Writer); ok {
		out.source = &h2w.conn.source
	} else {
		out.source = &out.own
		out.own.init(rt, nil, r.RemoteAddr, strings.TrimPrefix(r.Proto, "HTTP/"))
	}
	out.stripe, out.began = metrics.Stripe(), rt.now()
	out.countFor(rt.other)
	if rt.observes {
		out.observed = rt.observe(r.Context(), out.source, r.TLS != nil, r.Method, r.URL.EscapedPath(), func(name string) []string { return r.Header[name] })
	}
	return out
}

// serve answers a request as d decides. Unless its body is small or streams, it is read completely
// before any worker is asked for the key.
func (w *clientWriter) serve(r *incoming, d *decision) {
	if w.streams {
		defer w.hurry() // the server sends what is left
	}
	rt, rules := w.router, &d.route.rules
	call := hop.IsCall(r.Request) && rt.takesCalls(d.partition)
	upgrade := rules.Upgrade(r.Header) != "" && !d.upstream
	r.limit, r.stream = d.route.maxBody, r.kept.Spool == nil && !upgrade && (call || d.route.Stream || d.upstream)
	if call && d.route.MaxBody == 0 {
		r.limit = math.MaxInt64
	}
	switch {
	case !r.hasBody():
	case r.kept.Spool != nil:
		rules.StripTrailer(r.Trailer)
		w.countReceived(r.kept.Len())
	case call && d.anyWorker:
		r.paced = newPatientBody(w, r.Request, rules)
	default:
		r.paced = newPacedBody(w, r.Request, rules)
	}
	if r.paced != nil {
		r.paced.counts = &w.record
	}
	err := d.admit(rt, rt.now())
	direct := upgrade || d.upstream
	if err == nil && direct {
		var release func()
		if release, err = rt.onward.takeConnection(rt, w.source.addr); err == nil {
			defer release()
		}
	}
	if err == nil {
		err = r.beginBody(upgrade)
	}
	switch {
	case err != nil:
		w.refuse(r, d, err)
	case direct:
		w.relay(r, d)
	default:
		w.forward(r, d)
	}
}

// refuse answers a request whose body has not been read whole.
func (w *clientWriter) refuse(r *incoming, d *decision, err error) {
	x := w.upstream(r, d)
	x.refuse(err, r.paced != nil)
	w.observed.answered(x.problem, &x.Answer)
}

// upstream returns the request, without its body, on the way that d has decided.
func (w *clientWriter) upstream(r *incoming, d *decision) *upstreamRequest {
	x := new(upstreamRequest)
	x.init(r.Context(), w.router, w, w.source)
	x.noteIn(w.observed)
	x.tls, x.fields, x.Stream, x.pace = r.TLS != nil, headerFields(r.Request), r.stream, r.paced
	x.Request.Method, x.Request.Target, x.Request.Host = r.Method, r.URL.RequestURI(), r.Host
	x.follow(d)
	x.appendFields()
	return x
}

// forward sends r to its worker and answers it.
func (w *clientWriter) forward(r *incoming, d *decision) {
	x := w.upstream(r, d)
	defer x.endUse()
	defer func() {
		w.by = x.By()
		w.observed.answered(x.problem, &x.Answer)
	}()
	if r.paced != nil {
		x.attach(r)
		x.addTrailers(r.Request)
		if x.Stream && r.Header.Get("Expect") != "" {
			w.expected = &x.Body
		}
		if x.Request.Body != nil {
			defer w.awaitBody(x)
		}
	}
	x.send()
}

func (x *upstreamRequest) attach(r *incoming) {
	to := &x.Request
	switch kept := r.kept; {
	case kept.Spool == nil:
		x.Body.Reader = r.asItComes()
		to.Body, to.ContentLength = &x.Body, r.ContentLength
	case len(r.Trailer) > 0:
		to.Open, to.ContentLength = kept.Open, -1 // in HTTP/1.1 no body of known length has trailers
	case kept.Len() > 0:
		to.Open, to.ContentLength = kept.Open, kept.Len()
	}
}

// addTrailers gives the request the trailers of r, which are there when the body has
// been read, and filtered by then.
func (x *upstreamRequest) addTrailers(r *http.Request) {
	if len(r.Trailer) == 0 {
		return
	}
	for name := range r.Trailer {
		if x.route.rules.IsTrailer(name) {
			x.Request.Fields = link.AppendField(x.Request.Fields, "Trailer", name)
		}
	}
	x.Request.Trailer = func() link.Fields { return link.AppendHeader(nil, r.Trailer) }
}

// headerFields returns r's header as a list, see [send.FieldsOf].
func headerFields(r *http.Request) []h2.Field {
	list := make([]h2.Field, 0, len(r.Header))
	for name, value := range send.FieldsOf(r.Header) {
		list = append(list, h2.Field{Name: name, Value: value})
	}
	return list
}

// How long an answer waits until the end of the request's body is noticed, and the server then for
// the unwanted rest of a body.
const (
	bodyGrace = 50 * time.Millisecond
	restGrace = 500 * time.Millisecond
)

// awaitBody waits until the link no longer reads the client's body: the server forbids that once
// the handler has returned. An unwanted body is cut off, and its connection with it.
func (w *clientWriter) awaitBody(x *upstreamRequest) {
	done := x.Request.BodyDone()
	rest := restGrace
	select {
	case <-done:
	case <-time.After(bodyGrace):
		_ = w.control.SetReadDeadline(netutil.Past)
		<-done
		rest = 0
	}
	switch {
	case !x.Body.Ended.Load():
		_ = w.control.SetReadDeadline(time.Now().Add(rest)) // a Read may have lifted the one before
	case rest == 0:
		_ = w.control.SetReadDeadline(time.Time{})
	}
}

func (w *clientWriter) Write(b []byte) (int, error) {
	w.hurry()
	defer w.rest()
	n, err := w.ResponseWriter.Write(b)
	w.countSent(n)
	return n, err
}

// FlushError is for [http.ResponseController].
func (w *clientWriter) FlushError() error {
	w.hurry()
	defer w.rest()
	return w.control.Flush()
}

// hurry bounds the wait for the client to take what is sent.
func (w *clientWriter) hurry() {
	_ = w.control.SetWriteDeadline(time.Now().Add(w.pace)) // not every server has it
}

// rest ends the bound while nothing is sent: net/http gives up a stream of HTTP/2 at
// its deadline, whether or not there is something to take.
func (w *clientWriter) rest() {
	if w.streams {
		_ = w.control.SetWriteDeadline(time.Time{})
	}
}

func (w *clientWriter) WriteHeader(status int) {
	if status < http.StatusOK && w.source.version == "1.0" {
		return // RFC 9110, section 15.2
	}
	fields.CleanAnswer(w.Header())
	fields.LeaveUntyped(w.Header())
	if status >= http.StatusOK {
		w.endConnection()
	}
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// endConnection ends a connection of HTTP/1.1 with the answer if its server ends.
func (w *clientWriter) endConnection() {
	if s, ok := w.context.Value(serverKey{}).(*Server); ok && !w.streams && s.is(leaving) {
		w.Header()["Connection"] = []string{"close"}
	}
}

// Unwrap lets [http.ResponseController] reach the server's writer.
func (w *clientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *clientWriter) Carry(send.Interruptible) bool { return false }
func (w *clientWriter) start(status int)              { w.status = status }

func (w *clientWriter) field(name, value string) {
	h := w.Header()
	h[name] = append(h[name], value)
}

func (w *clientWriter) interim() {
	if w.expected == nil || w.expected.Ended.Load() {
		w.WriteHeader(w.status)
	}
	clear(w.Header())
	w.status = 0
}

func (w *clientWriter) head(f http1.Framing) {
	h := w.Header()
	fields.LeaveUntyped(h)
	if f.Declares() {
		h["Content-Length"] = []string{strconv.FormatInt(f.Length, 10)}
	}
	if f.Close {
		h["Connection"] = []string{"close"}
		_ = w.control.SetReadDeadline(time.Now().Add(restGrace)) // not every server has it
	}
	w.endConnection()
	w.ResponseWriter.WriteHeader(f.Status)
}

func (w *clientWriter) write(piece []byte, _ bool) (err error) {
	if len(piece) > 0 {
		_, err = w.Write(piece)
	}
	return err
}

func (w *clientWriter) flush() error { return w.FlushError() }

// endAnswer implements downstream. It flushes first: net/http gives a small body that
// it holds a length, and then no trailers.
func (w *clientWriter) endAnswer(trailer link.Fields) error {
	if err := w.flush(); err != nil {
		return err
	}
	h := w.Header()
	announced := fields.ConnectionNames(h["Trailer"])
	for name, value := range trailer.All() {
		if !announced(name) {
			name = http.TrailerPrefix + name
		}
		h.Add(name, value)
	}
	return nil
}

func (w *clientWriter) abort() {
	if w.status == 0 {
		w.ResponseWriter.WriteHeader(send.StatusClientGone)
		return
	}
	panic(http.ErrAbortHandler)
}
