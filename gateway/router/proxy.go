package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/router/internal/routing"
)

// proxiedRequest is a request's way through the router.
type proxiedRequest struct {
	router    *Router
	in        *http.Request
	key       string
	partition int
	body      payload
	pace      *pacedBody   // the client's
	sending   *attemptBody // of the last attempt
}

func (x *proxiedRequest) serve(w *clientWriter) {
	router := x.router
	x.body.reserved.budget, x.body.reserved.remote = &router.budget, x.in.RemoteAddr
	defer x.body.reserved.release()
	defer func() {
		if x.sending != nil {
			x.sending.seal() // the transport may still be reading
		}
	}()
	defer w.finish()
	x.pace = newPacedBody(x.in, w, router)
	if err := x.body.fill(x.in, x.pace); err != nil {
		x.fail(w, x.in, err)
		return
	}
	proxy := httputil.ReverseProxy{
		Rewrite:        x.rewrite,
		Transport:      x,
		ModifyResponse: x.cleanResponse,
		ErrorHandler:   x.fail,
		BufferPool:     &router.buffers,
		ErrorLog:       router.errorLog,
	}
	proxy.ServeHTTP(w, x.in)
}

// rewrite makes the request that workers get, except for its address.
func (x *proxiedRequest) rewrite(pr *httputil.ProxyRequest) {
	in, out := pr.In, pr.Out
	out.URL.Scheme = "http"
	out.URL.RawQuery = in.URL.RawQuery
	out.Header.Set(gateway.HeaderKey, url.PathEscape(x.key))
	out.Trailer = in.Trailer // filled when the body ends
	if x.router.fields.StripTrailer(in.Trailer); len(in.Trailer) > 0 {
		out.ContentLength = -1
	}
	setForwarded(out.Header, in, in.Header)
	if via := x.router.cfg.Via; via != "" {
		out.Header.Add("Via", fmt.Sprintf("%d.%d %s", in.ProtoMajor, in.ProtoMinor, via))
	}
}

// RoundTrip finds the worker that takes the request and returns its answer.
func (x *proxiedRequest) RoundTrip(out *http.Request) (res *http.Response, err error) {
	err = x.router.routes.Route(out.Context(), x.partition, func(t routing.Target) (o routing.Outcome) {
		res, o = x.attempt(out, t)
		return o
	})
	return res, err
}

// attempt sends the request to a worker, once more if a pooled connection
// turns out to have ended.
func (x *proxiedRequest) attempt(out *http.Request, t routing.Target) (*http.Response, routing.Outcome) {
	peer := x.router.peers.get(x.router.cfg.Members.View(), t.Member)
	var res *http.Response
	var err error
	var begun bool
	for range 3 {
		req := x.address(out, t)
		body := x.body.attach(req)
		x.sending = body
		if res, err = peer.RoundTrip(req); err == nil {
			break
		}
		if begun = body.seal(); begun || !errors.Is(err, errStale) {
			break
		}
	}
	if err != nil {
		return nil, x.classify(out.Context(), t, begun, err)
	}
	refusal := hop.ReadRefusal(res.Header)
	if refusal == nil {
		return res, routing.Outcome{}
	}
	begun = x.sending.seal()
	_, _ = io.CopyN(io.Discard, res.Body, 4<<10)
	res.Body.Close()
	if begun {
		return nil, routing.Outcome{Err: fmt.Errorf("%w: %s refused it when part of its body had been sent", errBroken, t.Name)}
	}
	return nil, refusedBy(refusal)
}

// address makes the request for one attempt at a worker.
func (x *proxiedRequest) address(out *http.Request, t routing.Target) *http.Request {
	req := out.WithContext(out.Context())
	url := *out.URL
	url.Host = t.Addr
	req.URL = &url
	req.Header = maps.Clone(out.Header) // a former attempt may still be reading its own
	if t.Epoch > 0 {
		req.Header.Set(gateway.HeaderEpoch, strconv.FormatInt(t.Epoch, 10))
	}
	return req
}

// classify says what the failure of an attempt means; begun is whether some of
// a streamed body was read.
func (x *proxiedRequest) classify(ctx context.Context, t routing.Target, begun bool, err error) routing.Outcome {
	if client := x.body.failed.Load(); client != nil {
		return routing.Outcome{Err: errors.Join(errClientBody, *client)}
	}
	if ctx.Err() != nil {
		return routing.Outcome{Err: context.Cause(ctx)}
	}
	if errors.Is(err, errNotSent) && !begun {
		return routing.Outcome{Verdict: routing.NotStarted, Err: fmt.Errorf("%s at %s: %w", t.Name, t.Addr, err)}
	}
	return routing.Outcome{Err: fmt.Errorf("%w: %s at %s: %w", errBroken, t.Name, t.Addr, err)}
}

func (x *proxiedRequest) cleanResponse(res *http.Response) error {
	fields.StripKeyway(res.Header)
	for name := range res.Trailer {
		if !fields.IsTrailer(name) {
			delete(res.Trailer, name)
		}
	}
	if via := x.router.cfg.Via; via != "" {
		res.Header.Add("Via", fmt.Sprintf("%d.%d %s", res.ProtoMajor, res.ProtoMinor, via))
	}
	return nil
}

// fail answers a request that has no answer of a worker.
func (x *proxiedRequest) fail(w http.ResponseWriter, _ *http.Request, err error) {
	up := upstreamRequest{router: x.router, client: w.(*clientWriter), source: new(source), ctx: x.in.Context(), partition: x.partition, pace: x.pace}
	up.request.Method = x.in.Method
	up.fail(err)
	up.respond()
}

// bufferPool is a [httputil.BufferPool].
type bufferPool struct{ pool sync.Pool }

func (b *bufferPool) Get() []byte {
	if buf, ok := b.pool.Get().(*[]byte); ok {
		return *buf
	}
	return make([]byte, 32<<10)
}

func (b *bufferPool) Put(buf []byte) { b.pool.Put(&buf) }
