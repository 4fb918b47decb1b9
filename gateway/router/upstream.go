package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/router/internal/routing"
	"github.com/keyway-go/keyway/internal/wire/h2"
	"github.com/keyway-go/keyway/internal/wire/hop1"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// errStreams is the error of a request whose body has to be streamed to the worker,
// which only a proxiedRequest can.
var errStreams = errors.New("router: the body has to be streamed")

// upstreamRequest is a request's way to a worker and back without net/http, whoever
// has read it. Its memory may be used again and again.
type upstreamRequest struct {
	router *Router
	client downstream
	source *source
	ctx    context.Context
	tls    bool       // between the client and the router
	fields []h2.Field // as the client has sent them

	partition int
	request   link.Request
	body      clientBody
	pace      *pacedBody // bounds the wait for the body; nil if something else does
	sent      bool       // there has been an attempt over the link
	kept      bool       // the body stands in data
	data      []byte     // for workers that do not take the link; a part of the body if there was no room for more
	reserved  reservation

	answer answer
	peer   *peer // that answers over the link, or may yet

	try    routing.Attempt // attempt, made once
	memory struct {
		fields          []h2.Field
		request, answer link.Fields
		values          []string
	}
}

// init makes x ready for a request of which nothing is known yet.
func (x *upstreamRequest) init(ctx context.Context, rt *Router, client downstream, from *source) {
	x.router, x.client, x.source, x.ctx = rt, client, from, ctx
	x.reserved.budget, x.reserved.remote = &rt.budget, from.addr
	x.request.Memory = &x.reserved
	if x.try == nil {
		x.try = x.attempt
	}
}

// reset ends the use of the answer, which must have been read to its end or is
// given up, and of the body, and makes x ready for init.
func (x *upstreamRequest) reset() {
	if x.answer.body != nil {
		x.client.carry(nil)
		x.answer.body.Close()
		if x.peer != nil {
			x.peer.leave()
		}
	}
	if x.request.Body != nil {
		<-x.request.BodyDone() // the link may still be sending what it has read
		x.reserved.release()
	}
	clear(x.memory.fields)
	clear(x.memory.values)
	*x = upstreamRequest{try: x.try, memory: x.memory}
}

// The request as the key sources see it.

// KeyHeader implements [gateway.Keyed].
func (x *upstreamRequest) KeyHeader(name string) []string {
	x.memory.values = appendValues(x.memory.values[:0], x.fields, name)
	return x.memory.values
}

// KeyHost implements [gateway.Keyed].
func (x *upstreamRequest) KeyHost() string { return x.request.Host }

// KeyPath implements [gateway.Keyed].
func (x *upstreamRequest) KeyPath() string {
	path, _, _ := strings.Cut(x.request.Target, "?")
	return path
}

// KeyQuery implements [gateway.Keyed].
func (x *upstreamRequest) KeyQuery() string {
	_, query, _ := strings.Cut(x.request.Target, "?")
	return query
}

// serve sends a request to its worker and answers it, if its form is simple: it
// has a key, and needs nothing of net/http. It reports false, before anything was
// answered, if the request has to go by way of net/http; what has been read of its
// body then stands in x.data.
func (x *upstreamRequest) serve(body io.Reader) bool {
	rt, r := x.router, &x.request
	key, err := rt.cfg.Keys.ExtractFrom(x)
	if err != nil || r.ContentLength > hop.MaxRepeatedBody || !isSimplePath(x.KeyPath()) {
		return false
	}
	rt.counters.requests.Add(1)
	r.Key, x.partition = key, rt.ring.Partition(key)
	if r.ContentLength > 0 {
		x.body.reader, r.Body, r.Whole = body, &x.body, true
		if s, ok := body.(*h2.Stream); ok {
			s.Keep(&x.reserved)
		}
	}
	x.appendFields()
	if !x.send() {
		rt.counters.requests.Add(-1) // the router will count it
		return false
	}
	return true
}

// isSimplePath reports whether net/url would give the path on as it is.
func isSimplePath(path string) bool {
	for i := range len(path) {
		switch c := path[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '/' <= c && c <= '9':
		case strings.IndexByte("-_.~!$&'()*+,;=:@%[]", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// appendFields makes the fields that the worker gets.
func (x *upstreamRequest) appendFields() {
	size := 256
	for i := range x.fields {
		size += len(x.fields[i].Name) + len(x.fields[i].Value) + 4
	}
	f, rules, trusted := slices.Grow(x.memory.request[:0], size), &x.router.fields, x.source.trusted
	var prior []h2.Field
	for i := range x.fields {
		name := x.fields[i].Name
		switch kind := fields.KindOf(name); {
		case kind == fields.Forwarded:
			if trusted {
				prior = x.fields
			}
			continue
		case kind == fields.Proxy && !trusted, rules.Drops(kind, name):
			continue
		}
		f = link.AppendField(f, name, x.fields[i].Value)
	}
	f = x.source.appendForwarding(f, x.request.Host, x.tls, x.router.cfg.Via, prior)
	x.memory.request, x.request.Fields = f, f
}

// send finds the worker that takes the request, and passes its answer on to the
// client. It reports false, before anything was sent, if the request has to go by
// way of net/http.
func (x *upstreamRequest) send() bool {
	err := x.router.routes.Route(x.ctx, x.partition, x.try)
	if errors.Is(err, errStreams) && !x.sent {
		return false
	}
	if err != nil {
		x.answer = failed(x.ctx, x.router, x.partition, x.request.Method, err, x.pace.late())
	}
	x.answer.send(x.client, x.source, x.request.Method)
	return true
}

// takesLink reports whether the request goes over the link, as far as is known now.
func (x *upstreamRequest) takesLink() bool {
	t, ok := x.router.routes.Owner(x.partition)
	return !ok || t.Link
}

func (x *upstreamRequest) attempt(t routing.Target) routing.Outcome {
	if !t.Link {
		return x.attemptPlain(x.ctx, t)
	}
	x.sent = true
	p := x.router.peer(t)
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
		return outcomeOf(x.ctx, t.Member, err, x.body.failed.Load())
	}
	x.answer = answer{status: res.Status, length: res.ContentLength, fields: res.Fields, via: x.router.cfg.Via, body: res.Body}
	return routing.Outcome{}
}

// Interim implements [link.Interims].
func (x *upstreamRequest) Interim(status int, list link.Fields) {
	x.client.start(status)
	addFields(x.client, list)
	x.client.interim()
}

// Abandon implements [link.Account].
func (x *upstreamRequest) Abandon(streams int) (ended func()) {
	atWorker, onConn := x.peer.abandoned.add(x.origin(), streams), &x.source.abandoned
	onConn.Add(1)
	return func() {
		onConn.Add(-1)
		atWorker()
	}
}

// outcomeOf says what it means that an attempt at m has failed with err, over the
// link or HTTP/1.1. client is the error of reading the client's body, nil for none.
func outcomeOf(ctx context.Context, m ring.Member, err error, client *error) routing.Outcome {
	refusal, refused := errors.AsType[*link.RefusedError](err)
	switch {
	case client != nil:
		return routing.Outcome{Err: errors.Join(errClientBody, *client)}
	case errors.Is(err, link.ErrNotKept):
		return routing.Outcome{Err: errBodiesFull}
	case refused && refusal.Reason == link.NotOwner:
		return routing.Outcome{Verdict: routing.NotOwner, Hint: routing.Hint{Owner: refusal.Owner, Epoch: refusal.Epoch}, Err: err}
	case refused && refusal.Reason == link.Busy:
		return routing.Outcome{Err: errBusy}
	case ctx.Err() != nil:
		return routing.Outcome{Err: context.Cause(ctx)}
	case errors.Is(err, link.ErrHeaderTooLarge):
		return routing.Outcome{Err: err}
	case errors.Is(err, link.ErrTooManyStreams):
		return routing.Outcome{Err: fmt.Errorf("%w: %s at %s", errWorkerFull, m.Name, m.Addr)}
	case errors.Is(err, link.ErrNotStarted), errors.Is(err, hop1.ErrNotSent):
		return routing.Outcome{Verdict: routing.NotStarted, Err: fmt.Errorf("%s at %s: %w", m.Name, m.Addr, err)}
	}
	return routing.Outcome{Err: fmt.Errorf("%w: %s at %s: %w", errBroken, m.Name, m.Addr, err)}
}

// origin returns the client's address, as proxies say it that are trusted.
func (x *upstreamRequest) origin() string {
	origin, _, err := net.SplitHostPort(x.source.addr)
	if err != nil {
		origin = x.source.addr
	}
	if !x.source.trusted {
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
