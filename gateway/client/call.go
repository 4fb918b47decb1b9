package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/gateway/internal/spans"
	"github.com/keyway-go/keyway/internal/keysource"
	"github.com/keyway-go/keyway/internal/wire/grammar"
	"github.com/keyway-go/keyway/internal/wire/http1"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// defaultHost is the Host of a request that has none.
const defaultHost = "keyway"

// errClientClosed is the error of calls of a client that is closed.
var errClientClosed error = closed("client: the client is closed")

// closed is an error that is a [net.ErrClosed], whose text speaks of a connection.
type closed string

func (c closed) Error() string { return string(c) }

func (closed) Is(target error) bool { return target == net.ErrClosed }

// call is a request of a [Client], and its answer. The caller's goroutine owns it until RoundTrip
// returns; then the answer's body does, whose first end (by Read, Close or the context) calls
// finish under reply.reading. An attempt that still reads upload, and the watches of the context,
// use the atomic fields.
type call struct {
	send.Dispatch
	client  *Client
	in      *http.Request
	upload  upload
	opened  atomic.Bool             // upload is read by an attempt
	whole   send.Kept               // the body, if it was read before; else nil
	cancel  context.CancelCauseFunc // of ctx; nil if nothing needs it
	listed  bool                    // request.Fields are complete
	ended   bool                    // finish was called
	unwatch func() bool             // ends the watch of the context for upload; nil if there is none
	unread  func() bool             // and for the answer

	out   http.Response
	reply reply

	way  string      // what has carried the answer, for spans
	here bool        // the last attempt was at the worker of this process
	told atomic.Bool // these have ended
}

func (x *call) roundTrip() (*http.Response, error) {
	if x.in == nil {
		return nil, errors.New("client: no request")
	}
	if x.in.Body != nil {
		x.upload.in = x.in.Body
	}
	c := x.client
	x.Workers, x.Ctx, x.From = c.workers, x.in.Context(), x
	x.Reserved.Account, x.Request.Memory = c.budget.Of(0), &x.Reserved
	if err := x.prepare(); err != nil {
		return nil, err
	}
	if x.Ctx.Err() != nil {
		return nil, context.Cause(x.Ctx)
	}
	if x.upload.in != nil && x.in.GetBody == nil { // a Read may take long
		x.unwatch = context.AfterFunc(x.Ctx, func() { x.upload.Close() })
	}
	if err := x.openBody(); err != nil {
		return nil, err
	}
	if t, ok := x.Workers.Routes.Owner(x.Partition); c.fields.Upgrade(x.in.Header) != "" || ok && !t.Link && !c.isLocal(t) && !x.Fits() {
		return x.relay()
	}
	x.watch()
	err := x.Workers.Find(x.Ctx, &x.Destination, x.attempt)
	switch {
	case errors.Is(err, send.ErrOtherWay):
		return x.relay()
	case err != nil:
		return nil, err
	case x.cancel != nil && x.Ctx.Err() != nil: // by a trace
		return nil, fmt.Errorf("%w: %w", gateway.ErrMayHaveRun, context.Cause(x.Ctx))
	}
	return x.respond()
}

// prepare takes over from the caller's request what every attempt needs.
func (x *call) prepare() (err error) {
	r, to := x.in, &x.Request
	switch {
	case x.client.closed.Load():
		return errClientClosed
	case r.URL == nil:
		return errors.New("client: the request has no URL")
	case r.URL.Scheme != "" && r.URL.Scheme != "http":
		return fmt.Errorf("client: the scheme of the request's URL is %q, want http", r.URL.Scheme)
	case r.ContentLength > 0 && (r.Body == nil || r.Body == http.NoBody):
		return fmt.Errorf("client: the request has no body, and a ContentLength of %d", r.ContentLength)
	}
	to.Method = cmp.Or(r.Method, http.MethodGet)
	to.Target, to.Host = r.URL.RequestURI(), cmp.Or(r.Host, r.URL.Host, defaultHost)
	switch {
	case to.Method == http.MethodConnect, to.Method == http.MethodTrace:
		return fmt.Errorf("client: workers do not take %s: %w", to.Method, errors.ErrUnsupported)
	case r.URL.Opaque != "" || !strings.HasPrefix(to.Target, "/") || !grammar.IsTarget(to.Target):
		return errors.New("client: the target of the request's URL is not a path")
	case !http1.SimpleRequest(to.Method, "/", to.Host):
		return fmt.Errorf("client: bad method %q or host %q", to.Method, to.Host)
	}
	if to.Key, err = x.key(); err != nil {
		return err
	}
	x.Partition, x.Hold = x.Workers.Ring.Partition(to.Key), x.Workers.Routes.Patience
	x.observeCall()
	for name, value := range send.FieldsOf(r.Header) {
		if !grammar.IsToken(name) || !grammar.IsText(value) {
			return fmt.Errorf("client: the request's header has a bad name or value at %q", name)
		}
	}
	if r.Body != nil && r.Body != http.NoBody {
		to.ContentLength = r.ContentLength
		if to.ContentLength <= 0 {
			to.ContentLength = -1
		}
		x.upload.left, x.upload.ctx = to.ContentLength, x.Ctx
		x.Body.Reader, to.Body = &x.upload, &x.Body
		if len(x.trailerNames()) > 0 {
			to.Trailer = func() link.Fields { return link.AppendHeader(nil, x.trailer()) }
		}
	}
	return nil
}

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

// clientRequest is a [keysource.Keyed].
type clientRequest http.Request

func (r *clientRequest) KeyHeader(name string) []string { return r.Header[name] }
func (r *clientRequest) KeyQuery() string               { return r.URL.RawQuery }
func (r *clientRequest) KeyPath() string                { return r.URL.EscapedPath() }
func (r *clientRequest) KeyHost() string                { return cmp.Or(r.Host, r.URL.Host) }
func (r *clientRequest) KeyClient() string              { return "" }

// KeyBody implements [keysource.Keyed]. It leaves the Body to the call.
func (r *clientRequest) KeyBody() ([]byte, error) {
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		return nil, nil
	case r.GetBody == nil:
		return nil, fmt.Errorf("%w: the key is in the body, which can be read once only: set GetBody", gateway.ErrBadKey)
	}
	body, err := r.GetBody()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", gateway.ErrBadKey, err)
	}
	defer body.Close()
	return keysource.ReadBody(body)
}

// watch passes interim answers on to the caller's Got1xxResponse, if there is one.
func (x *call) watch() {
	trace := httptrace.ContextClientTrace(x.Ctx)
	if trace == nil || trace.Got1xxResponse == nil {
		return
	}
	x.Ctx, x.cancel = context.WithCancelCause(x.Ctx)
	x.Request.Interims = interims{x, trace}
}

// interims passes interim answers on to a trace, which may end the request.
type interims struct {
	call  *call
	trace *httptrace.ClientTrace
}

func (i interims) Interim(status int, list link.Fields) {
	h := list.HeaderFor(0)
	cleanHeader(h)
	if err := i.trace.Got1xxResponse(status, textproto.MIMEHeader(h)); err != nil {
		i.call.cancel(err)
	}
}

func (x *call) attempt(t routing.Target) routing.Outcome {
	c := x.client
	if c.closed.Load() {
		return routing.Outcome{Err: errClientClosed}
	}
	if err := x.keepSmall(); err != nil {
		return routing.Outcome{Err: err}
	}
	x.appendFields()
	p := x.Workers.Peer(t.Member)
	x.here = c.isLocal(t)
	t.Link = t.Link || x.here
	return x.Dispatch.Attempt(t, p)
}

// isLocal reports whether the worker is the one of this process.
func (c *Client) isLocal(t routing.Target) bool {
	return c.local != nil && c.local.Incarnation() == t.Incarnation
}

// keepSmall reads a small body completely, before the key is held and for all attempts.
func (x *call) keepSmall() error {
	if x.Request.Body == nil {
		return nil
	}
	whole, err := x.Keep()
	if err == nil && !whole {
		err = x.keep(x.Request.AppendKept(nil))
	}
	return err
}

// Carry implements [send.Carrier]: the exchange itself watches the context.
func (x *call) Carry(send.Interruptible) (watched bool) { return false }

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
	x.Request.Fields = f
}

// fields yields the fields of the caller's request that are sent on, except those of its framing.
func (x *call) fields() iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		c := x.client
		for name, value := range send.FieldsOf(x.in.Header) {
			if c.fields.Drops(fields.KindOf(name), name) || c.local != nil && name == "Baggage" || x.Traces() != nil && spans.IsField(name) {
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

func (x *call) trailerNames() (names []string) {
	for name := range x.in.Trailer {
		if grammar.IsToken(name) && x.client.fields.IsTrailer(name) {
			names = append(names, name)
		}
	}
	return names
}

// trailer returns the trailers that are sent on. The body has ended.
func (x *call) trailer() http.Header {
	h := make(http.Header, len(x.in.Trailer))
	for _, name := range x.trailerNames() {
		h[name] = x.in.Trailer[name]
	}
	return h
}

// respond makes the caller's response of the answer.
func (x *call) respond() (*http.Response, error) {
	a, res := &x.Answer, &x.out
	if x.way = x.By().String(); x.here {
		x.way = "local"
	}
	h := a.Fields.HeaderFor(1)
	if a.Status == http.StatusTooManyRequests && hop.IsBusy(h.Get) {
		return nil, send.ErrBusy
	}
	framing := http1.Framing{Method: x.Request.Method, Status: a.Status, Length: a.Length}
	has, unknown := framing.Body()
	*res = http.Response{
		Status: strconv.Itoa(a.Status) + " " + http.StatusText(a.Status), StatusCode: a.Status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Trailer: announced(h["Trailer"]), ContentLength: a.Length, Body: http.NoBody, Request: x.in,
	}
	delete(h, "Trailer")
	cleanHeader(h)
	if framing.Declares() {
		h["Content-Length"] = []string{strconv.FormatInt(a.Length, 10)}
	}
	if !has && !framing.Declares() && x.Request.Method != http.MethodHead {
		res.ContentLength = 0
	}
	n, last := a.Body.Buffered()
	if !has || n == 0 && last && (unknown || a.Length == 0) {
		if has {
			x.setTrailer()
		}
		x.finish()
		return res, nil
	}
	x.reply.call, x.reply.body, x.reply.left = x, a.Body, a.Length
	res.Body = &x.reply
	if !last && x.Ctx.Done() != nil { // perhaps nobody reads it when the context ends
		x.reply.reading.Lock()
		x.unread = context.AfterFunc(x.Ctx, x.reply.abandon)
		x.reply.reading.Unlock()
	}
	if x.HasBody() {
		select {
		case <-x.Request.BodyDone():
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
	for name, value := range send.PublicTrailer(x.Answer.Body.Trailer()).All() {
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
	x.endSpans(x.reply.failed())
	if x.cancel != nil {
		x.cancel(nil)
	}
	for _, stop := range []func() bool{x.unwatch, x.unread} {
		if stop != nil {
			stop()
		}
	}
	x.End()
	x.endBody()
}

func (x *call) endBody() {
	x.upload.Close()
	if x.whole.Spool != nil {
		x.whole.Close()
	}
	x.Reserved.End()
}
