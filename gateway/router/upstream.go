package router

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/gateway/internal/spans"
	"github.com/keyway-go/keyway/internal/wire/h2"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// upstreamRequest is a client's request on its way through the router without
// net/http, whoever has read it. Its memory may be used again and again.
// It implements [gateway.Keyed], [link.Account] and [link.Interims].
type upstreamRequest struct {
	dispatch
	router *Router
	client downstream
	source *source
	route  *route
	tls    bool       // between the client and the router
	fields []h2.Field // as the client has sent them
	coming io.Reader  // the body as it comes from the client
	pace   *pacedBody // bounds the wait for the body; nil if something else does
	stream bool       // the body goes to the worker as it comes

	stripe  int // of what counts requests
	traffic *trafficPart
	noted   *observation // nil for nothing to be noted
	problem string       // of the router's own answer

	try    routing.Attempt // attempt, made once
	memory struct {
		fields  []h2.Field
		request link.Fields
		key     []byte
		values  []string
	}
}

// init makes x ready for a request of which nothing is known yet.
func (x *upstreamRequest) init(ctx context.Context, rt *Router, client downstream, from *source) {
	x.router, x.client, x.source = rt, client, from
	x.workers, x.ctx, x.from = rt.workers, ctx, client
	x.request.Memory, x.request.Account, x.request.Interims = &x.reserved, x, x
	if x.try == nil {
		x.try = x.attempt
	}
}

// reset ends the use of the answer, which must have been read to its end or is
// given up, and of the body, and makes x ready for init.
func (x *upstreamRequest) reset() {
	if x.answer.body != nil {
		x.client.carry(nil)
	}
	x.end()
	if x.hasBody() {
		<-x.request.BodyDone() // the link may still be sending what it has read
		x.reserved.release()
	}
	clear(x.memory.fields)
	clear(x.memory.values)
	try, memory, list, stripe := x.try, x.memory, x.dispatch.memory, x.stripe
	*x = upstreamRequest{}
	x.try, x.memory, x.dispatch.memory, x.stripe = try, memory, list, stripe
}

// free is reset for a request whose answer has been written: what it was made of
// stands nowhere else.
func (x *upstreamRequest) free() {
	response := x.response
	x.reset()
	if response != nil {
		response.Release()
	}
}

// The request as the key sources see it.

func (x *upstreamRequest) KeyHeader(name string) []string {
	x.memory.values = appendValues(x.memory.values[:0], x.fields, name)
	return x.memory.values
}

func (x *upstreamRequest) KeyHost() string { return x.request.Host }

func (x *upstreamRequest) KeyPath() string {
	path, _, _ := strings.Cut(x.request.Target, "?")
	return path
}

func (x *upstreamRequest) KeyQuery() string {
	_, query, _ := strings.Cut(x.request.Target, "?")
	return query
}

func (x *upstreamRequest) KeyClient() string {
	return x.source.keyClient(x.router, appendValues(nil, x.fields, forwardedFor))
}

// KeyBody implements [gateway.Keyed]. It waits for the client as for any body, and keeps it.
func (x *upstreamRequest) KeyBody() ([]byte, error) {
	switch n := x.request.ContentLength; {
	case n == 0 || x.kept:
		return x.data, nil
	case n > gateway.MaxKeyBody:
		return nil, gateway.ErrBodyOfKey
	}
	body, err := gateway.ReadKeyBody(x.coming)
	if err != nil {
		return nil, errors.Join(errClientBody, err)
	}
	x.data, x.kept = body, true
	return body, nil
}

// serve sends a request to its worker and answers it, if its form is simple: it
// has a key, and needs nothing of net/http. It reports false, before anything was
// answered, if the request has to go by way of net/http; what has been read of its
// body then stands in x.data.
func (x *upstreamRequest) serve(body io.Reader) bool {
	rt, r := x.router, &x.request
	x.coming = body
	d, err := rt.decide(r.Method, x, &x.memory.key)
	broken := errors.Is(err, errClientBody)
	if !broken && (err != nil || d.upstream || r.ContentLength > d.route.smallBody || !isSimplePath(x.KeyPath())) {
		return false
	}
	began := rt.now()
	rt.counters.requests.Add(x.stripe, 1)
	x.traffic = &d.route.traffic.parts[x.stripe]
	x.follow(&d)
	if rt.observes {
		x.note(rt.observe(context.Background(), x.source, x.tls, r.Method, x.KeyPath(), x.KeyHeader))
		x.noted.decided(&d, x.partition)
	}
	x.appendFields()
	switch {
	case r.ContentLength == 0:
	case x.kept:
		r.Body, r.Whole = bytes.NewReader(x.data), true
	default:
		x.body.reader, r.Body, r.Whole = body, &x.body, true
		if s, ok := body.(*h2.Stream); ok {
			s.Keep(&x.reserved)
		}
	}
	if !broken {
		err = d.admit(rt, began)
	}
	if err != nil {
		x.refuse(err)
	} else if !x.send() {
		rt.counters.requests.Add(x.stripe, -1) // the router will count it
		return false
	}
	if r.ContentLength > 0 {
		x.traffic.received.Add(r.ContentLength)
	}
	took := rt.now() - began
	x.traffic.end(x.by(), x.answer.status, took)
	if o := x.noted; o != nil {
		o.received.Store(r.ContentLength)
		o.answered(x.problem, &x.answer)
		o.end(rt, x.by(), x.answer.status, took)
	}
	return true
}

// follow makes the request one of its route.
func (x *upstreamRequest) follow(d *decision) {
	x.route, x.request.Key, x.request.Policy = d.route, d.key, d.policy()
	if x.hold, x.anyWorker = d.route.hold, d.anyWorker; !d.anyWorker {
		x.partition = x.router.workers.ring.Partition(d.key)
	}
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
	f, rules, trusted, traced := slices.Grow(x.memory.request[:0], size), &x.route.rules, x.source.trusted, x.traces() != nil
	var prior []h2.Field
	for i := range x.fields {
		name := x.fields[i].Name
		switch kind := fields.KindOf(name); {
		case kind == fields.Forwarded:
			if trusted {
				prior = x.fields
			}
			continue
		case kind == fields.Proxy && !trusted, rules.Drops(kind, name), traced && spans.IsField(name):
			continue
		}
		f = link.AppendField(f, name, x.fields[i].Value)
	}
	f = x.source.appendForwarding(f, x.request.Host, x.tls, x.router.cfg.Via, prior)
	x.memory.request, x.request.Fields = f, f
	if x.request.Client = x.source.id; trusted {
		x.request.Client = x.source.originID(x.router, x.forwarded())
	}
	x.reserved.account = account{x.router.budget, x.request.Client}
}

// send finds the worker that takes the request, and passes its answer on to the
// client. It reports false, before anything was sent, if the request has to go by
// way of net/http.
func (x *upstreamRequest) send() bool {
	err := x.workers.find(x.ctx, &x.destination, x.try)
	if errors.Is(err, errOtherWay) {
		return false
	}
	if err != nil {
		x.refuse(err)
		return true
	}
	x.reply(&answer{workerAnswer: x.answer})
	return true
}

// refuse answers the request itself.
func (x *upstreamRequest) refuse(err error) {
	a := failed(x.ctx, x.router, x.partition, x.request.Method, x.KeyHeader("Accept"), err, x.pace.late())
	x.answer, x.problem = a.workerAnswer, a.problem
	x.reply(&a)
}

func (x *upstreamRequest) reply(a *answer) {
	a.via = x.router.cfg.Via
	a.send(x.client, x.source, x.request.Method)
}

// note has what becomes of the request noted in o, unless it is nil.
func (x *upstreamRequest) note(o *observation) { x.noted, x.observed = o, o.onward() }

// attempt sends the request to a worker, unless its client has given up too much.
func (x *upstreamRequest) attempt(t routing.Target) routing.Outcome {
	p := x.router.workers.peer(t.Member)
	if t.Link && p.abandoned.full.Load() && p.abandoned.refuses(x.origin()) {
		return routing.Outcome{Err: errAbandons}
	}
	return x.dispatch.attempt(t, p)
}

func (x *upstreamRequest) Interim(status int, list link.Fields) {
	x.client.start(status)
	addFields(x.client, list)
	x.client.interim()
}

func (x *upstreamRequest) Abandon(streams int) (ended func()) {
	atWorker, onConn := x.peer.abandoned.add(x.origin(), streams), &x.source.abandoned
	onConn.Add(1)
	return func() {
		onConn.Add(-1)
		atWorker()
	}
}

// origin returns the client's address, see [source.origin].
func (x *upstreamRequest) origin() string {
	return strings.Clone(x.source.origin(x.router, x.forwarded())) // the fields' memory is used again
}

// forwarded returns the value of X-Forwarded-For with which the request goes on.
func (x *upstreamRequest) forwarded() (list string) {
	for name, value := range x.request.Fields.All() {
		if name == forwardedFor {
			list = value
		}
	}
	return list
}
