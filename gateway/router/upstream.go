package router

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/paced"
	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/gateway/internal/spans"
	"github.com/keyway-go/keyway/internal/keysource"
	"github.com/keyway-go/keyway/internal/wire/h2"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// upstreamRequest is a client's request on its way through the router. Its memory may be reused. It
// implements [keysource.Keyed], [link.Account] and [link.Interims].
type upstreamRequest struct {
	send.Dispatch
	router *Router
	client downstream
	source *source
	route  *route
	tls    bool        // between the client and the router
	simple bool        // serve leaves what is not simple to net/http
	fields []h2.Field  // as the client has sent them, without those of its connection
	header http.Header // likewise, with those; nil where there is no change of protocols
	pace   *paced.Body // bounds the wait for the body; nil if something else does

	// trailers returns the fields that may stand behind the body, with the values that have come; nil
	// if there are none.
	trailers func() http.Header

	record
	problem string // of the router's own answer

	try    routing.Attempt // attempt, made once
	memory struct {
		fields  []h2.Field
		request link.Fields
		key     []byte
		values  []string
	}
}

func (x *upstreamRequest) init(ctx context.Context, rt *Router, client downstream, from *source) {
	x.router, x.client, x.source = rt, client, from
	x.Workers, x.Ctx, x.From = rt.workers, ctx, client
	x.Request.Memory, x.Request.Account, x.Request.Interims = &x.Reserved, x, x
	if x.try == nil {
		x.try = x.attempt
	}
}

// endUse ends the use of the answer, which must have been read to its end or is
// given up, and of the body.
func (x *upstreamRequest) endUse() {
	if x.Answer.Body != nil {
		x.client.Carry(nil)
	}
	x.End()
	if x.HasBody() {
		<-x.Request.BodyDone() // the link may still be sending what it has read
		x.Reserved.Release()
	}
}

// recycle is endUse for a request whose answer has been written: no other goroutine refers to its
// parts. It makes x ready for init.
func (x *upstreamRequest) recycle() {
	response := x.Response
	x.endUse()
	clear(x.memory.fields)
	clear(x.memory.values)
	try, memory, list, stripe := x.try, x.memory, x.Dispatch.Spare, x.stripe
	*x = upstreamRequest{}
	x.try, x.memory, x.Dispatch.Spare, x.stripe = try, memory, list, stripe
	if response != nil {
		response.Release()
	}
}

// The request as the key sources see it.

func (x *upstreamRequest) KeyHeader(name string) []string {
	x.memory.values = appendValues(x.memory.values[:0], x.fields, name)
	return x.memory.values
}

func (x *upstreamRequest) KeyHost() string { return x.Request.Host }

func (x *upstreamRequest) KeyPath() string {
	path, _, _ := strings.Cut(x.Request.Target, "?")
	return path
}

func (x *upstreamRequest) KeyQuery() string {
	_, query, _ := strings.Cut(x.Request.Target, "?")
	return query
}

func (x *upstreamRequest) KeyClient() string {
	return x.source.keyClient(x.router, appendValues(nil, x.fields, forwardedFor))
}

// KeyBody implements [keysource.Keyed]. It waits for the client as for any small body, and keeps it for all attempts.
func (x *upstreamRequest) KeyBody() ([]byte, error) {
	n := x.Request.ContentLength
	switch {
	case n == 0 && !x.HasBody():
		return nil, nil
	case n > keysource.MaxBody:
		return nil, keysource.ErrBody
	case n < 0:
		x.Body.Reader = &send.Limited{Reader: x.Body.Reader, Left: keysource.MaxBody}
	}
	x.Reserved.Account = x.source.account(x.router, appendValues(nil, x.fields, forwardedFor))
	if !x.HasBody() {
		x.Request.Body = &x.Body
	}
	if err := x.Keep(); n < 0 && errors.Is(err, send.ErrBodyTooLarge) {
		return nil, keysource.ErrBody
	} else if err != nil {
		return nil, err
	}
	return x.Taken()
}

// refuseForm answers a request that no app may get, and reports whether it is one.
func (x *upstreamRequest) refuseForm(path, target string) bool {
	kind, bad := fields.BadForm(x.Request.Method, path, target, x.Request.Host)
	if bad {
		x.began = x.router.now()
		x.begin(&decision{})
		x.reply(x.own(problem.Of(kind)))
		x.account()
	}
	return bad
}

// serve answers a request. If only simple ones are answered here, it may report false before anything
// was answered. The request then has to go by way of net/http, and Taken returns its body if that has
// been read. A simple request has a key and a small body, and needs nothing of net/http.
func (x *upstreamRequest) serve() bool {
	rt, r := x.router, &x.Request
	x.began = rt.now()
	d, err := rt.decide(r.Method, x, &x.memory.key)
	broken := errors.Is(err, send.ErrClientBody) || errors.Is(err, send.ErrBodiesFull) || errors.Is(err, send.ErrBodyTooLarge)
	if x.simple && !broken && (err != nil || d.upstream || r.ContentLength > d.route.smallBody || !isSimplePath(x.KeyPath())) {
		return false
	}
	x.begin(&d)
	switch {
	case broken:
		x.refuse(err, x.pace != nil)
	case err != nil:
		x.reply(x.own(problemOf(err, d.route, x.KeyPath())))
	default:
		x.forward(&d)
	}
	x.client.endBody()
	x.account()
	return true
}

// begin counts the request. d has been decided as far as that is possible.
func (x *upstreamRequest) begin(d *decision) {
	rt, t := x.router, x.router.other
	rt.counters.requests.Add(x.stripe, 1)
	if d.route != nil {
		t = d.route.traffic
		x.follow(d)
	}
	x.part = &t.parts[x.stripe]
	if rt.observes {
		x.observe(d)
	}
}

// forward sends the request where d says, and passes the answer on to the client.
func (x *upstreamRequest) forward(d *decision) {
	x.appendFields()
	protocol := x.route.rules.Upgrade(x.header)
	if d.upstream {
		protocol = ""
	}
	err := d.admit(x.router, x.began)
	if err == nil && (d.upstream || protocol != "") {
		var release func()
		if release, err = x.router.onward.takeConnection(x.router, x.source.addr); err == nil {
			defer release()
		}
	}
	if err == nil {
		err = x.beginBody(d, protocol != "")
	}
	if err != nil {
		x.refuse(err, x.pace != nil)
		return
	}
	switch {
	case d.upstream:
		x.Request.Client, x.Request.Policy = 0, nil // which only workers learn
		err = x.Onward(d.route.upstream, d.route.WithoutKey.Upstream)
	case protocol != "":
		err = x.Workers.Find(x.Ctx, &x.Destination, func(t routing.Target) routing.Outcome {
			return x.AttemptUpgrade(t, x.Workers.Peer(t.Member), protocol)
		})
		if app, switched := x.Switched(); err == nil && app != nil {
			if err = x.tunnel(app, protocol, switched); err == nil {
				return
			}
			app.Close()
		}
	default:
		err = x.Workers.Find(x.Ctx, &x.Destination, x.try)
	}
	if err != nil {
		x.refuse(err, d.upstream && x.Stream && x.pace != nil)
		return
	}
	x.reply(&answer{Answer: x.Answer})
}

// follow makes the request one of its route.
func (x *upstreamRequest) follow(d *decision) {
	x.route, x.Request.Key, x.Request.Policy = d.route, d.key, d.policy()
	x.Hold, x.AnyWorker, x.Partition = d.route.hold, d.anyWorker, d.partition
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
	f, rules, trusted, traced := slices.Grow(x.memory.request[:0], size), &x.route.rules, x.source.trusted, x.Traced()
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
	f = x.source.appendForwarding(f, x.Request.Host, x.tls, prior)
	x.memory.request, x.Request.Fields = f, f
	if x.Request.Client = x.source.id; trusted {
		x.Request.Client = x.source.originID(x.router, x.forwarded())
	}
	x.Reserved.Account = x.router.budget.Of(x.Request.Client)
}

// refuse answers a request that has failed with err. With unread set, a part of its body has not been read.
func (x *upstreamRequest) refuse(err error, unread bool) {
	if n := x.Request.ContentLength; x.pace == nil && n >= 0 && n <= hop.MaxRepeatedBody && errors.Is(err, send.ErrBodiesFull) {
		_, _ = io.Copy(io.Discard, &x.Body) // the rest of a small body: its client reads the answer after that
	}
	a := x.failed(err)
	a.close = a.close || unread
	x.reply(a)
}

// attempt sends the request to a worker, unless its client has given up too much.
func (x *upstreamRequest) attempt(t routing.Target) routing.Outcome {
	p := x.router.workers.Peer(t.Member)
	if t.Link && p.Abandoned.Full.Load() && p.Abandoned.Refuses(x.origin()) {
		return routing.Outcome{Err: send.ErrAbandons}
	}
	return x.Dispatch.Attempt(t, p)
}

func (x *upstreamRequest) Interim(status int, list link.Fields) {
	x.client.start(status)
	addFields(x.client, list)
	x.client.interim()
}

func (x *upstreamRequest) Abandon(streams int) (ended func()) {
	atWorker, onConn := x.Peer.Abandoned.Add(x.origin(), streams), &x.source.abandoned
	onConn.Add(1)
	return func() {
		onConn.Add(-1)
		atWorker()
	}
}

func (x *upstreamRequest) origin() string {
	return strings.Clone(x.source.origin(x.router, x.forwarded())) // the fields' memory is used again
}

func (x *upstreamRequest) forwarded() (list string) {
	for name, value := range x.Request.Fields.All() {
		if name == forwardedFor {
			list = value
		}
	}
	return list
}
