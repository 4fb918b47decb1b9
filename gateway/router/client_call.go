package router

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/router/internal/routing"
	"github.com/keyway-go/keyway/internal/wire/grammar"
	"github.com/keyway-go/keyway/internal/wire/hop1"
	"github.com/keyway-go/keyway/internal/wire/http1"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// defaultHost is the Host of a request that has none.
const defaultHost = "keyway"

// errClientClosed is the error of calls of a client that is closed.
var errClientClosed = fmt.Errorf("router: the client is closed: %w", net.ErrClosed)

// call is a request of a [Client], and its answer.
type call struct {
	dispatch
	client  *Client
	in      *http.Request
	upload  upload
	cancel  context.CancelCauseFunc // of ctx; nil if nothing needs it
	listed  bool                    // request.Fields are complete
	ended   bool                    // finish was called
	unwatch func() bool             // ends the watch of the context for upload; nil if there is none

	out   http.Response
	reply reply
}

func (x *call) roundTrip() (*http.Response, error) {
	if x.in == nil {
		return nil, errors.New("router: no request")
	}
	if x.in.Body != nil {
		x.upload.in = x.in.Body
	}
	c := x.client
	x.workers, x.ctx, x.from = &c.workers, x.in.Context(), x
	x.reserved.budget, x.request.Memory = &c.budget, &x.reserved
	if err := x.prepare(); err != nil {
		return nil, err
	}
	if x.ctx.Err() != nil {
		return nil, context.Cause(x.ctx)
	}
	if x.upload.in != nil && x.in.GetBody == nil { // a Read may take long
		x.unwatch = context.AfterFunc(x.ctx, func() { x.upload.Close() })
	}
	if c.fields.Upgrade(x.in.Header) != "" || !x.takesLink() && !x.fits() {
		return x.relay()
	}
	x.watch()
	err := x.workers.routes.Route(x.ctx, x.partition, x.attempt)
	switch {
	case errors.Is(err, errStreams) && !x.sent:
		return x.relay()
	case err != nil:
		return nil, err
	case x.cancel != nil && x.ctx.Err() != nil: // by a trace
		return nil, fmt.Errorf("%w: %w", gateway.ErrMayHaveRun, context.Cause(x.ctx))
	}
	return x.respond()
}

// prepare takes over from the caller's request what every attempt needs.
func (x *call) prepare() (err error) {
	r, to := x.in, &x.request
	switch {
	case x.client.closed.Load():
		return errClientClosed
	case r.URL == nil:
		return errors.New("router: the request has no URL")
	case r.URL.Scheme != "" && r.URL.Scheme != "http":
		return fmt.Errorf("router: the scheme of the request's URL is %q: workers are reached by http", r.URL.Scheme)
	case r.ContentLength > 0 && (r.Body == nil || r.Body == http.NoBody):
		return fmt.Errorf("router: the request has no body, and a ContentLength of %d", r.ContentLength)
	}
	to.Method = cmp.Or(r.Method, http.MethodGet)
	to.Target, to.Host = r.URL.RequestURI(), cmp.Or(r.Host, r.URL.Host, defaultHost)
	switch {
	case to.Method == http.MethodConnect, to.Method == http.MethodTrace:
		return fmt.Errorf("router: %s is for no worker: %w", to.Method, errors.ErrUnsupported)
	case r.URL.Opaque != "" || !strings.HasPrefix(to.Target, "/") || !grammar.IsTarget(to.Target):
		return errors.New("router: the target of the request's URL is no path")
	case !http1.SimpleRequest(to.Method, "/", to.Host):
		return fmt.Errorf("router: bad method %q or host %q", to.Method, to.Host)
	}
	if to.Key, err = x.key(); err != nil {
		return err
	}
	x.partition = x.workers.ring.Partition(to.Key)
	for name, value := range fieldsOf(r.Header) {
		if !grammar.IsToken(name) || !grammar.IsText(value) {
			return fmt.Errorf("router: the request's header has a bad name or value at %q", name)
		}
	}
	if r.Body != nil && r.Body != http.NoBody {
		to.ContentLength = r.ContentLength
		if to.ContentLength <= 0 {
			to.ContentLength = -1
		}
		x.upload.left, x.upload.ctx = to.ContentLength, x.ctx
		x.body.reader, to.Body = &x.upload, &x.body
		if len(x.trailerNames()) > 0 {
			to.Trailer = func() link.Fields { return link.AppendHeader(nil, x.trailer()) }
		}
	}
	return nil
}

// key returns the request's key.
func (x *call) key() (string, error) {
	if len(x.client.keys) > 0 {
		return x.client.keys.ExtractFrom((*clientRequest)(x.in))
	}
	key, err := gateway.KeyFromHeader(x.in.Header)
	if errors.Is(err, gateway.ErrNoKey) {
		err = fmt.Errorf("%w: set it percent-encoded in %s", err, gateway.HeaderKey)
	}
	return key, err
}

// clientRequest is a [gateway.Keyed].
type clientRequest http.Request

func (r *clientRequest) KeyHeader(name string) []string { return r.Header[name] }
func (r *clientRequest) KeyQuery() string               { return r.URL.RawQuery }
func (r *clientRequest) KeyPath() string                { return r.URL.EscapedPath() }
func (r *clientRequest) KeyHost() string                { return cmp.Or(r.Host, r.URL.Host) }

// watch passes interim answers on to who asks for them.
func (x *call) watch() {
	trace := httptrace.ContextClientTrace(x.ctx)
	if trace == nil || trace.Got1xxResponse == nil {
		return
	}
	x.ctx, x.cancel = context.WithCancelCause(x.ctx)
	x.request.Interims = interims{x, trace}
}

// interims passes interim answers on to a trace, which may end the request.
type interims struct {
	call  *call
	trace *httptrace.ClientTrace
}

// Interim implements [link.Interims].
func (i interims) Interim(status int, list link.Fields) {
	h := list.HeaderFor(0)
	cleanHeader(h)
	if err := i.trace.Got1xxResponse(status, textproto.MIMEHeader(h)); err != nil {
		i.call.cancel(err)
	}
}

// attempt sends the request to a worker.
func (x *call) attempt(t routing.Target) routing.Outcome {
	switch c := x.client; {
	case c.closed.Load():
		return routing.Outcome{Err: errClientClosed}
	case c.local != nil && c.local.Incarnation() == t.Incarnation:
		return x.attemptLocal(t)
	}
	x.appendFields()
	return x.dispatch.attempt(t, x.workers.peer(t))
}

// carry implements carrying: the exchange itself watches the context.
func (x *call) carry(*hop1.Exchange) (watched bool) { return false }

// appendFields makes the fields that a worker gets.
func (x *call) appendFields() {
	if x.listed {
		return
	}
	x.listed = true
	size := 64
	for name, values := range x.in.Header {
		for _, v := range values {
			size += len(name) + len(v) + 4
		}
	}
	f := make(link.Fields, 0, size)
	for name, value := range x.fields() {
		f = link.AppendField(f, name, value)
	}
	for _, name := range x.trailerNames() {
		f = link.AppendField(f, "Trailer", name)
	}
	x.request.Fields = f
}

// fields yields the fields of the caller's request that go on, but for those of its
// framing.
func (x *call) fields() iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		c := x.client
		for name, value := range fieldsOf(x.in.Header) {
			if c.fields.Drops(fields.KindOf(name), name) || c.local != nil && name == "Baggage" {
				continue
			}
			if !yield(name, grammar.Trim(value)) {
				return
			}
		}
		for _, value := range x.baggage() {
			if !yield("Baggage", value) {
				return
			}
		}
	}
}

// baggage returns the baggage of a request that is made within an execution, nil if
// it is what the caller has set.
func (x *call) baggage() []string {
	if x.client.local == nil {
		return nil
	}
	return x.client.local.Baggage(x.in.Context(), x.in.Header["Baggage"])
}

// trailerNames returns the names of the trailers that go on.
func (x *call) trailerNames() (names []string) {
	for name := range x.in.Trailer {
		if grammar.IsToken(name) && x.client.fields.IsTrailer(name) {
			names = append(names, name)
		}
	}
	return names
}

// trailer returns the trailers that go on. The body is at its end.
func (x *call) trailer() http.Header {
	h := make(http.Header, len(x.in.Trailer))
	for _, name := range x.trailerNames() {
		h[name] = x.in.Trailer[name]
	}
	return h
}

// respond makes the caller's response of the answer.
func (x *call) respond() (*http.Response, error) {
	a, res := &x.answer, &x.out
	h := a.fields.HeaderFor(1)
	if a.status == http.StatusTooManyRequests && hop.IsBusy(h.Get) {
		return nil, errBusy
	}
	framing := http1.Framing{Method: x.request.Method, Status: a.status, Length: a.length}
	has, unknown := framing.Body()
	*res = http.Response{
		Status: strconv.Itoa(a.status) + " " + http.StatusText(a.status), StatusCode: a.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Trailer: announced(h["Trailer"]), ContentLength: a.length, Body: http.NoBody, Request: x.in,
	}
	delete(h, "Trailer")
	cleanHeader(h)
	if framing.Declares() {
		h["Content-Length"] = []string{strconv.FormatInt(a.length, 10)}
	}
	if !has && !framing.Declares() && x.request.Method != http.MethodHead {
		res.ContentLength = 0
	}
	if x.reply.body == nil {
		x.reply.body = a.body
	}
	n, last := x.reply.body.Buffered()
	if !has || n == 0 && last && (unknown || a.length == 0) {
		if has {
			x.setTrailer()
		}
		x.finish()
		return res, nil
	}
	x.reply.call, x.reply.left = x, a.length
	res.Body = &x.reply
	if x.request.Body != nil {
		select {
		case <-x.request.BodyDone():
			x.upload.Close()
		default:
		}
	}
	return res, nil
}

// announced returns a header with the names of trailers, nil if there are none.
func announced(values []string) http.Header {
	var h http.Header
	for name := range grammar.Items(values) {
		if !fields.IsTrailer(name) {
			continue
		}
		if h == nil {
			h = make(http.Header)
		}
		h[http.CanonicalHeaderKey(name)] = nil
	}
	return h
}

// cleanHeader removes from the head of an answer what is not for the caller.
func cleanHeader(h http.Header) {
	for name := range h {
		if _, ok := fields.ToClient(name, ""); !ok {
			delete(h, name)
		}
	}
}

// setTrailer adds the trailers of an answer that has come to its end.
func (x *call) setTrailer() {
	for name, value := range publicTrailer(x.reply.body.Trailer()).All() {
		if x.out.Trailer == nil {
			x.out.Trailer = make(http.Header)
		}
		x.out.Trailer.Add(name, value)
	}
}

// finish ends what is done for the call.
func (x *call) finish() {
	if x.ended {
		return
	}
	x.ended = true
	if x.cancel != nil {
		x.cancel(nil)
	}
	if x.unwatch != nil {
		x.unwatch()
	}
	if x.reply.body != nil && x.answer.body == nil {
		x.reply.body.Close()
	}
	x.end()
	x.upload.Close()
	x.reserved.end()
}

// relay sends a request that only net/http's form of HTTP/1.1 carries.
func (x *call) relay() (*http.Response, error) {
	to := relay{workers: x.workers, partition: x.partition}
	to.body.reserved.budget = &x.client.budget
	out := x.in.WithContext(x.in.Context())
	out.Header = x.in.Header.Clone()
	x.client.fields.Clean(out.Header, true)
	delete(out.Header, "Trailer")
	x.setOwn(out.Header, 0)
	if baggage := x.baggage(); len(baggage) > 0 {
		out.Header["Baggage"] = baggage
	}
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = []string{""} // or net/http adds its own
	}
	at := *x.in.URL
	at.Scheme = "http"
	out.URL, out.Host, out.Close, out.Trailer, out.Body, out.ContentLength = &at, x.request.Host, false, nil, nil, 0
	if x.request.Body != nil {
		out.Body, out.ContentLength = &x.upload, x.request.ContentLength
		x.body.reader = &relayedBody{io.MultiReader(bytes.NewReader(x.data), &x.upload), x, out}
		if names := x.trailerNames(); len(names) > 0 {
			out.ContentLength, out.Trailer = -1, announced(names)
		}
	}
	if err := to.body.fill(out, &x.body); err != nil {
		to.body.reserved.release()
		return nil, err
	}
	res, err := to.RoundTrip(out)
	if err == nil && res.StatusCode == http.StatusTooManyRequests && hop.IsBusy(res.Header.Get) {
		res.Body.Close()
		err = errBusy
	}
	if err != nil {
		to.body.reserved.release()
		return nil, err
	}
	res.Request = x.in
	cleanResponse(res)
	if res.StatusCode == http.StatusSwitchingProtocols {
		x.upload.Close()
		to.body.reserved.release()
		return res, nil
	}
	res.Body = &relayedReply{res.Body, x, &to.body.reserved}
	return res, nil
}

// setOwn sets what a worker's HTTP server is told of the request.
func (x *call) setOwn(h http.Header, epoch int64) {
	h[gateway.HeaderKey] = []string{url.PathEscape(x.request.Key)}
	if epoch > 0 {
		h[gateway.HeaderEpoch] = []string{strconv.FormatInt(epoch, 10)}
	}
}

// relayedBody is a request's body. At its end it hands over the trailers.
type relayedBody struct {
	io.Reader
	call *call
	out  *http.Request
}

func (b *relayedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		for name, values := range b.call.trailer() {
			b.out.Trailer[http.CanonicalHeaderKey(name)] = values
		}
	}
	return n, err
}

// relayedReply is the answer's body.
type relayedReply struct {
	io.ReadCloser
	call     *call
	reserved *reservation
}

func (b *relayedReply) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end()
	}
	if err != nil && err != io.EOF {
		err = b.call.failure(fmt.Errorf("%w: %w", gateway.ErrMayHaveRun, err))
	}
	return n, err
}

// Close implements [io.Closer].
func (b *relayedReply) Close() error {
	err := b.ReadCloser.Close()
	b.end()
	return err
}

func (b *relayedReply) end() {
	if b.call.unwatch != nil {
		b.call.unwatch()
	}
	b.call.upload.Close()
	b.reserved.end()
}

// upload is the body of the caller's request, closed once, at its end or before.
type upload struct {
	ctx    context.Context // after whose end it is closed
	in     io.ReadCloser
	left   int64 // that is to come; -1 if that is not known
	err    error // of Read, from now on
	closed atomic.Bool
}

func (u *upload) Read(p []byte) (int, error) {
	if u.err != nil {
		return 0, u.err
	}
	n, err := u.in.Read(p)
	if u.left >= 0 && (err == nil || err == io.EOF) {
		n, err = u.count(n, err)
	}
	if err == nil {
		return n, nil
	}
	u.Close()
	if err != io.EOF && u.ctx.Err() != nil {
		err = context.Cause(u.ctx)
	}
	u.err = err
	return n, err
}

// count compares what has been read of the body with the length that is declared.
// Behind the last byte it looks for the end.
func (u *upload) count(n int, err error) (int, error) {
	u.left -= int64(n)
	for u.left == 0 && err == nil {
		var one [1]byte
		more := 0
		more, err = u.in.Read(one[:])
		u.left -= int64(more)
	}
	switch {
	case u.left < 0: // the whole of the declared length must not arrive
		return 0, errors.New("it is longer than the request's ContentLength")
	case u.left > 0 && err == io.EOF:
		return 0, fmt.Errorf("it is %d bytes shorter than the request's ContentLength: %w", u.left, io.ErrUnexpectedEOF)
	}
	return n, err
}

// Close implements [io.Closer].
func (u *upload) Close() error {
	if u.in == nil || !u.closed.CompareAndSwap(false, true) {
		return nil
	}
	return u.in.Close()
}
