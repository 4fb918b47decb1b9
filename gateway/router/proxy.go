package router

import (
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
	"github.com/keyway-go/keyway/gateway/internal/policy"
	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/gateway/internal/spans"
)

// proxiedRequest is a request's way through the router.
type proxiedRequest struct {
	relay
	router *Router
	client *clientWriter
	in     *http.Request
	source *source
	*decision
	pace *pacedBody // the client's
}

// relay is a request on its way to a worker and back over HTTP/1.1, as net/http has
// it: also one with a body that is streamed, or that changes protocols.
type relay struct {
	destination
	workers *workers
	body    payload
}

func (x *proxiedRequest) serve(w *clientWriter, body *incoming) {
	router := x.router
	x.client = w
	defer func() { fields.CleanTrailers(w.Header()) }() // they stand there once the body has ended
	x.pace = body.paced
	switch kept := body.kept; {
	case kept.Spool != nil && (kept.Len() > 0 || len(x.in.Trailer) > 0):
		x.body.open, x.body.length = kept.open, kept.Len()
	case body.stream && x.pace != nil:
		x.body.stream.reader = body.asItComes()
	}
	proxy := httputil.ReverseProxy{
		Rewrite:        x.rewrite,
		Transport:      x,
		ModifyResponse: x.cleanResponse,
		ErrorHandler:   x.fail,
		BufferPool:     &copyBuffers,
		ErrorLog:       router.errorLog,
	}
	if x.decision.upstream {
		proxy.Transport = &upstreamTrip{&x.relay, x.route}
	}
	proxy.ServeHTTP(w, x.in)
}

// rewrite makes the request that workers get, except for its address.
func (x *proxiedRequest) rewrite(pr *httputil.ProxyRequest) {
	in, out := pr.In, pr.Out
	out.URL.Scheme = "http"
	out.URL.RawQuery = in.URL.RawQuery
	out.Trailer = in.Trailer // filled when the body ends
	if x.route.rules.StripTrailer(in.Trailer); len(in.Trailer) > 0 {
		out.ContentLength = -1
	}
	setForwarded(out.Header, in, in.Header)
	if !x.decision.upstream {
		x.setKeyway(out.Header)
	}
	if via := x.router.cfg.Via; via != "" {
		out.Header.Add("Via", fmt.Sprintf("%d.%d %s", in.ProtoMajor, in.ProtoMinor, via))
	}
}

// setKeyway sets what only workers get.
func (x *proxiedRequest) setKeyway(h http.Header) {
	if x.key != "" {
		h.Set(gateway.HeaderKey, url.PathEscape(x.key))
	}
	if p := x.policy(); len(p) > 0 {
		h.Set(hop.HeaderPolicy, policy.Text(p))
	}
	h.Set(hop.HeaderClient, strconv.FormatUint(x.source.originID(x.router, h.Get(forwardedFor)), 10))
}

func (x *proxiedRequest) cleanResponse(res *http.Response) error {
	x.client.accounting.by = byRelay
	if x.decision.upstream {
		x.client.accounting.by = byUpstream
	}
	if o := x.observed; o != nil && !x.decision.upstream {
		o.wait, o.run, o.told = hop.ParseTiming(res.Header.Get(hop.FieldTiming))
	}
	cleanResponse(res)
	if h2w, ok := x.client.ResponseWriter.(*h2Writer); ok {
		if err := h2w.checkSwitch(res); err != nil {
			return err
		}
	}
	if res.StatusCode == http.StatusSwitchingProtocols {
		x.client.upgraded = res.Header.Get("Upgrade")
	}
	if via := x.router.cfg.Via; via != "" {
		res.Header.Add("Via", fmt.Sprintf("%d.%d %s", res.ProtoMajor, res.ProtoMinor, via))
	}
	return nil
}

// cleanResponse removes from a worker's answer what does not go on to the client.
func cleanResponse(res *http.Response) {
	fields.StripKeyway(res.Header)
	for name := range res.Trailer {
		if !fields.IsTrailer(name) {
			delete(res.Trailer, name)
		}
	}
}

// fail answers a request that has no answer of a worker.
func (x *proxiedRequest) fail(_ http.ResponseWriter, _ *http.Request, err error) {
	a := failed(x.in.Context(), x.router, x.partition, x.in.Method, x.in.Header["Accept"], err, x.pace.late())
	x.observed.answered(&a)
	a.send(x.client, x.client.source, x.in.Method)
}

// RoundTrip finds the worker that takes the request and returns its answer.
func (x *relay) RoundTrip(out *http.Request) (res *http.Response, err error) {
	err = x.workers.find(out.Context(), &x.destination, func(t routing.Target) (o routing.Outcome) {
		res, o = x.attempt(out, t)
		return o
	})
	return res, err
}

func (x *relay) attempt(out *http.Request, t routing.Target) (*http.Response, routing.Outcome) {
	req, err := x.body.attach(x.address(out, t))
	if err != nil {
		return nil, routing.Outcome{Err: fmt.Errorf("%w: %w", errClientBody, err)}
	}
	res, err := x.workers.peer(t).plain.RoundTrip(req)
	if err != nil {
		if out.Context().Err() != nil {
			x.body.done.Wait() // a body that breaks off ends the context first
		}
		return nil, outcomeOf(out.Context(), t.Member, err, x.body.stream.failed.Load())
	}
	refusal := hop.ReadRefusal(res.Header.Get)
	if refusal == nil {
		return res, routing.Outcome{}
	}
	_, _ = io.CopyN(io.Discard, res.Body, 4<<10)
	res.Body.Close()
	if x.body.asked {
		return nil, routing.Outcome{Err: fmt.Errorf("%w: %s refused it when part of its body had been sent", gateway.ErrMayHaveRun, t.Name)}
	}
	return nil, outcomeOf(out.Context(), t.Member, refusal, nil)
}

// address makes the request for one attempt at a worker.
func (x *relay) address(out *http.Request, t routing.Target) *http.Request {
	req := out.WithContext(out.Context())
	url := *out.URL
	url.Host = t.Addr
	req.URL = &url
	req.Header = maps.Clone(out.Header) // a former attempt may still be reading its own
	if t.Epoch > 0 {
		req.Header.Set(gateway.HeaderEpoch, strconv.FormatInt(t.Epoch, 10))
	}
	if s := x.traces(); s != nil {
		spans.SetFields(req.Header, s.onward)
	}
	return req
}

// bufferPool is a [httputil.BufferPool].
type bufferPool struct{ pool sync.Pool }

var copyBuffers = bufferPool{sync.Pool{New: func() any { return new([32 << 10]byte) }}}

func (b *bufferPool) Get() []byte    { return b.pool.Get().(*[32 << 10]byte)[:] }
func (b *bufferPool) Put(buf []byte) { b.pool.Put((*[32 << 10]byte)(buf)) }
