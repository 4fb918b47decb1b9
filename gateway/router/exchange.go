package router

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/router/internal/routing"
	"github.com/keyway-go/keyway/internal/wire/hop1"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// errStreams: the body of the request has to be streamed to the worker, which
// net/http's way does.
var errStreams = errors.New("router: the body has to be streamed")

// upstreamRequest is a request's way to a worker and back without net/http, whichever
// front end has read it.
type upstreamRequest struct {
	router    *Router
	client    downstream
	ctx       context.Context
	partition int
	request   link.Request
	body      clientBody
	sent      bool   // there has been an attempt over the link
	kept      bool   // the body stands in data
	data      []byte // for workers that do not take the link; a part of the body if there was no room for more
	reserved  reservation

	remote   string        // the client's address
	abandons *atomic.Int64 // requests of its connection that were given up and are still worked on; nil where nobody counts

	answer answer
	peer   *peer       // that answers over the link, or may yet
	spare  link.Fields // memory for the answer's
}

// downstream is what an upstreamRequest needs of the front end.
type downstream interface {
	// interim passes an interim answer on.
	interim(status int, fields link.Fields)
	// carry says what now carries the request, nil for nothing any more. It
	// reports whether the front end interrupts that when the context ends.
	carry(e *hop1.Exchange) (watched bool)
}

// Answer is a worker's answer, whichever way it came.
type answer struct {
	status int
	length int64 // as declared, also where there is no body; -1 if it was not
	fields link.Fields
	body   answerBody // nil if there is no answer
}

// answerBody is implemented by [link.Body]. Once Buffered reports that all is
// there, Trailer returns the trailers.
type answerBody interface {
	Next() ([]byte, error)
	Buffered() (n int, last bool)
	Trailer() link.Fields
	Close() error
}

// clientBody remembers what went wrong with reading the client's body.
type clientBody struct {
	reader io.Reader
	ended  atomic.Bool // at its end
	failed atomic.Pointer[error]
}

func (b *clientBody) Read(p []byte) (int, error) {
	n, err := b.reader.Read(p)
	switch err {
	case nil:
	case io.EOF:
		b.ended.Store(true)
	default:
		b.failed.CompareAndSwap(nil, &err)
	}
	return n, err
}

// crosses reports whether requests for the partition go over the link, as far
// as is known now.
func (rt *Router) crosses(p int) bool {
	t, ok := rt.routes.Owner(p)
	return !ok || t.Link
}

// send finds the worker that takes the request and leaves its answer in
// x.answer. It returns an error that wraps errStreams, before anything was sent,
// if the request has to go by way of net/http instead.
func (x *upstreamRequest) send() error { return x.router.routes.Route(x.ctx, x.partition, x.attempt) }

func (x *upstreamRequest) attempt(t routing.Target) routing.Outcome {
	if !t.Link {
		return x.attemptPlain(x.ctx, t)
	}
	x.sent = true
	p := x.router.peers.get(x.router.cfg.Members.View(), t.Member)
	if p.abandoned.full.Load() && p.abandoned.refuses(x.origin()) {
		return routing.Outcome{Err: errAbandons}
	}
	x.request.Epoch, x.request.Account, x.request.Interims, x.peer = t.Epoch, x, x, p
	p.users.Add(1)
	res, err := p.link.Do(x.ctx, &x.request)
	if err != nil {
		p.leave()
		x.peer = nil
		if x.request.Whole && errors.Is(err, link.ErrNotKept) {
			x.sent, x.data = false, x.request.Taken()
			return routing.Outcome{Err: errStreams}
		}
		return x.classify(x.ctx, t.Member, err)
	}
	x.answer = answer{res.Status, res.ContentLength, res.Fields, res.Body}
	return routing.Outcome{}
}

// Interim implements [link.Interims].
func (x *upstreamRequest) Interim(status int, fields link.Fields) { x.client.interim(status, fields) }

// Abandon implements [link.Account].
func (x *upstreamRequest) Abandon(streams int) (ended func()) {
	atWorker, onConn := x.peer.abandoned.add(x.origin(), streams), x.abandons
	if onConn == nil {
		return atWorker
	}
	onConn.Add(1)
	return func() {
		onConn.Add(-1)
		atWorker()
	}
}

// classify says what an error of the link means.
func (x *upstreamRequest) classify(ctx context.Context, m ring.Member, err error) routing.Outcome {
	if client := x.body.failed.Load(); client != nil {
		return routing.Outcome{Err: errors.Join(errClientBody, *client)}
	}
	refusal, refused := errors.AsType[*link.RefusedError](err)
	switch {
	case errors.Is(err, link.ErrNotKept):
		return routing.Outcome{Err: errBodiesFull}
	case refused:
		return refusedBy(refusal)
	case ctx.Err() != nil:
		return routing.Outcome{Err: context.Cause(ctx)}
	case errors.Is(err, link.ErrHeaderTooLarge):
		return routing.Outcome{Err: err}
	case errors.Is(err, link.ErrTooManyStreams):
		return routing.Outcome{Err: fmt.Errorf("%w: %s at %s", errWorkerFull, m.Name, m.Addr)}
	case errors.Is(err, link.ErrNotStarted):
		return routing.Outcome{Verdict: routing.NotStarted, Err: fmt.Errorf("%s at %s: %w", m.Name, m.Addr, err)}
	}
	return routing.Outcome{Err: fmt.Errorf("%w: %s at %s: %w", errBroken, m.Name, m.Addr, err)}
}

// refusedBy says what a worker's own refusal means.
func refusedBy(r *link.RefusedError) routing.Outcome {
	switch r.Reason {
	case link.NotOwner:
		return routing.Outcome{Verdict: routing.NotOwner, Hint: routing.Hint{Owner: r.Owner, Epoch: r.Epoch}, Err: r}
	case link.Busy:
		return routing.Outcome{Err: errBusy}
	}
	return routing.Outcome{Verdict: routing.NotStarted, Err: r}
}

// close ends the use of the answer, which must have been read to its end or is
// given up.
func (x *upstreamRequest) close() {
	if x.answer.body == nil {
		return
	}
	x.client.carry(nil)
	x.answer.body.Close()
	if x.peer != nil {
		x.peer.leave()
	}
}

// crossHTTP sends r to its worker and answers it. It reports false, before
// anything was sent, if r has to go by way of net/http.
func (rt *Router) crossHTTP(w *clientWriter, r *http.Request, key string, partition int) bool {
	x := &upstreamRequest{router: rt, client: w, ctx: r.Context(), partition: partition, remote: r.RemoteAddr}
	if h2w, ok := w.ResponseWriter.(*h2Writer); ok {
		x.abandons = &h2w.conn.abandoned
	}
	fail := &failure{router: rt, partition: partition, ctx: r.Context(), method: r.Method}
	defer x.close()
	x.request = link.Request{Method: r.Method, Target: r.URL.RequestURI(), Host: r.Host, Key: key, Fields: headerFields(rt, r)}
	if r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0 {
		fail.body = newPacedBody(r, w, rt)
		x.body.reader = fail.body
		if r.Header.Get("Expect") != "" {
			w.expected = &x.body
		}
		x.request.Body, x.request.ContentLength = &x.body, r.ContentLength
		if len(r.Trailer) > 0 {
			x.request.Trailer = func() link.Fields {
				rt.fields.StripTrailer(r.Trailer)
				return link.AppendHeader(nil, r.Trailer)
			}
		}
		if !rt.crosses(partition) && !x.fits() {
			return false
		}
		x.reserve()
		defer x.reserved.release()
		defer x.awaitBody(w)
	}
	err := x.send()
	switch {
	case errors.Is(err, errStreams) && !x.sent:
		if len(x.data) > 0 {
			r.Body = &resumedBody{io.MultiReader(bytes.NewReader(x.data), r.Body), r.Body}
		}
		return false
	case err != nil:
		fail.answer(w, err)
	default:
		x.answerHTTP(w)
	}
	return true
}

// reserve lets what the router's budget has room for be kept of the body.
func (x *upstreamRequest) reserve() {
	x.reserved.budget, x.reserved.remote = &x.router.budget, x.remote
	x.request.Memory = &x.reserved
}

// resumedBody is a body of which a part was read before.
type resumedBody struct {
	io.Reader
	io.Closer
}

// How long an answer waits for the end of the request's body to be noticed, and
// the server then for the rest of a body that nobody wants.
const (
	bodyGrace = 50 * time.Millisecond
	restGrace = 500 * time.Millisecond
)

// awaitBody waits until the link does not read the client's body any more: the
// server forbids that once the handler has returned. A body that nobody wants
// is cut off, and its connection with it.
func (x *upstreamRequest) awaitBody(w *clientWriter) {
	done := x.request.BodyDone()
	grace := time.NewTimer(bodyGrace)
	defer grace.Stop()
	rest := restGrace
	select {
	case <-done:
	case <-grace.C:
		_ = w.control.SetReadDeadline(aLongTimeAgo)
		<-done
		rest = 0
	}
	switch {
	case !x.body.ended.Load():
		_ = w.control.SetReadDeadline(time.Now().Add(rest)) // a Read may have lifted the one before
	case rest == 0:
		_ = w.control.SetReadDeadline(time.Time{})
	}
}

// headerFields returns the request's fields as the worker gets them.
func headerFields(rt *Router, r *http.Request) link.Fields {
	f := make(link.Fields, 0, 768)
	trusted := rt.trusts(r.RemoteAddr)
	named := fields.ConnectionNames(r.Header["Connection"])
	for name, values := range r.Header {
		if kind := fields.KindOf(name); kind == fields.Forwarded || kind == fields.Proxy && !trusted || kind == fields.TE || rt.fields.Drops(kind, name) || named(name) {
			continue
		}
		for _, v := range values {
			f = link.AppendField(f, name, v)
		}
	}
	for name := range r.Trailer {
		if rt.fields.IsTrailer(name) {
			f = link.AppendField(f, "Trailer", name)
		}
	}
	if te := r.Header["Te"]; len(te) > 0 && strings.Contains(strings.ToLower(strings.Join(te, ",")), "trailers") {
		f = link.AppendField(f, "Te", "trailers")
	}
	var prior http.Header
	if trusted {
		prior = r.Header
	}
	return append(f, forwardingFields(rt, r, prior)...)
}

// forwardingFields returns the fields that tell of this hop, and of those before
// what is said in prior.
func forwardingFields(rt *Router, r *http.Request, prior http.Header) (f link.Fields) {
	h := make(http.Header, 4)
	setForwarded(h, r, prior)
	for name, values := range h {
		f = link.AppendField(f, name, values[0])
	}
	if rt.cfg.Via != "" {
		f = link.AppendField(f, "Via", fmt.Sprintf("%d.%d %s", r.ProtoMajor, r.ProtoMinor, rt.cfg.Via))
	}
	return f
}

// answerHTTP copies the answer to w.
func (x *upstreamRequest) answerHTTP(w *clientWriter) {
	res := &x.answer
	h := w.Header()
	copyFields(h, res.fields)
	fields.LeaveUntyped(h)
	if via := x.router.cfg.Via; via != "" {
		h.Add("Via", "1.1 "+via)
	}
	if res.length >= 0 {
		h["Content-Length"] = []string{strconv.FormatInt(res.length, 10)}
	}
	w.ResponseWriter.WriteHeader(res.status)
	if err := x.copyBody(w); err != nil {
		panic(http.ErrAbortHandler) // the client must not take what it got for the whole
	}
	for name, value := range res.body.Trailer().All() {
		if !fields.IsTrailer(name) {
			continue
		}
		if !announces(h["Trailer"], name) {
			name = http.TrailerPrefix + name
		}
		h.Add(name, value)
	}
}

// copyFields adds to h what may go on to the client.
func copyFields(h http.Header, list link.Fields) {
	for name, value := range list.All() {
		name = http.CanonicalHeaderKey(name)
		if value, ok := fields.ToClient(name, value); ok {
			h[name] = append(h[name], value)
		}
	}
}

func announces(trailer []string, name string) bool {
	return fields.ConnectionNames(trailer)(name)
}

// copyBody flushes whenever it has to wait for more.
func (x *upstreamRequest) copyBody(w *clientWriter) error {
	body := x.answer.body
	for {
		if n, last := body.Buffered(); n == 0 && !last {
			if err := w.control.Flush(); err != nil {
				return err
			}
		}
		piece, err := body.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
}

// origin returns the client's address, as proxies say it that are trusted.
func (x *upstreamRequest) origin() string {
	origin, _, err := net.SplitHostPort(x.remote)
	if err != nil {
		origin = x.remote
	}
	if !x.router.trusts(x.remote) {
		return origin
	}
	for name, value := range x.request.Fields.All() {
		if !strings.EqualFold(name, "X-Forwarded-For") {
			continue
		}
		for _, hop := range slices.Backward(strings.Split(value, ",")) {
			origin = strings.TrimSpace(hop)
			if !x.router.trusts(net.JoinHostPort(origin, "0")) {
				break
			}
		}
	}
	return strings.Clone(origin) // the fields' memory is used again
}
