package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"

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
// finish under reply.reading.
type call struct {
	send.Dispatch
	client    *Client
	in        *http.Request
	closeBody func()      // closes the body of in, once
	unread    func() bool // ends the watch of the context for the answer; nil if there is none
	ended     bool        // finish was called

	out   http.Response
	reply reply

	way  string // what has carried the answer, for spans
	here bool   // the last attempt was at the worker of this process
}

func (x *call) roundTrip() (*http.Response, error) {
	if x.in == nil {
		return nil, errors.New("client: no request")
	}
	x.closeBody = func() {}
	if body := x.in.Body; body != nil {
		x.closeBody = sync.OnceFunc(func() { body.Close() })
	}
	defer x.closeBody()
	c := x.client
	x.Workers, x.Ctx, x.From = c.workers, x.in.Context(), x
	x.Reserved.Account, x.Request.Memory = c.budget.Of(0), &x.Reserved
	if err := x.prepare(); err != nil {
		return nil, err
	}
	if x.Ctx.Err() != nil {
		return nil, context.Cause(x.Ctx)
	}
	if err := x.readBody(); err != nil {
		return nil, err
	}
	x.appendFields()
	if err := x.Workers.Find(x.Ctx, &x.Destination, x.attempt); err != nil {
		return nil, err
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

func (x *call) attempt(t routing.Target) routing.Outcome {
	if x.client.closed.Load() {
		return routing.Outcome{Err: errClientClosed}
	}
	x.here = x.client.isLocal(t)
	t.Link = t.Link || x.here
	return x.Dispatch.Attempt(t, x.Workers.Peer(t.Member))
}

// isLocal reports whether the worker is the one of this process.
func (c *Client) isLocal(t routing.Target) bool {
	return c.local != nil && c.local.Incarnation() == t.Incarnation
}

// Carry implements [send.Carrier]: the exchange itself watches the context.
func (x *call) Carry(send.Interruptible) (watched bool) { return false }

// appendFields makes the fields that a worker gets. Within an execution, the baggage names the keys that it holds.
func (x *call) appendFields() {
	c, size := x.client, 64
	for name, values := range x.in.Header {
		for _, v := range values {
			size += len(name) + len(v) + 4
		}
	}
	f := make(link.Fields, 0, size)
	for name, value := range send.FieldsOf(x.in.Header) {
		if !c.fields.Drops(fields.KindOf(name), name) && (c.local == nil || name != "Baggage") && (!x.Traced() || !spans.IsField(name)) {
			f = link.AppendField(f, name, grammar.Trim(value))
		}
	}
	if c.local != nil {
		for _, value := range c.local.Baggage(x.in.Context(), x.in.Header["Baggage"]) {
			f = link.AppendField(f, "Baggage", value)
		}
	}
	x.Request.Fields = f
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
	maps.DeleteFunc(h, func(name string, _ []string) bool {
		_, ok := fields.ToClient(name, "")
		return !ok
	})
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
		x.finish(nil)
		return res, nil
	}
	x.reply.call, x.reply.body, x.reply.left = x, a.Body, a.Length
	res.Body = &x.reply
	if !last && x.Ctx.Done() != nil { // perhaps nobody reads it when the context ends
		x.reply.reading.Lock()
		x.unread = context.AfterFunc(x.Ctx, x.reply.abandon)
		x.reply.reading.Unlock()
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

// setTrailer adds the trailers of an answer that has come to its end.
func (x *call) setTrailer() {
	for name, value := range send.PublicTrailer(x.Answer.Body.Trailer()).All() {
		if x.out.Trailer == nil {
			x.out.Trailer = make(http.Header)
		}
		x.out.Trailer.Add(name, value)
	}
}

// finish ends what is done for the call, which has failed with err or has its answer.
func (x *call) finish(err error) {
	if x.ended {
		return
	}
	x.ended = true
	x.endSpans(err)
	if x.unread != nil {
		x.unread()
	}
	x.End()
	x.Reserved.End()
}
