package router

import (
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/internal/policy"
)

// proxiedRequest is a request's way through the router by way of net/http. The request's goroutine
// owns it.
type proxiedRequest struct {
	send.Relay
	router *Router
	client *clientWriter
	in     *http.Request
	source *source
	*decision
	pace *pacedBody // the client's
}

func (x *proxiedRequest) serve(w *clientWriter, body *incoming) {
	router := x.router
	x.client = w
	defer func() { fields.CleanTrailers(w.Header()) }() // they stand there once the body has ended
	x.pace = body.paced
	switch kept := body.kept; {
	case kept.Spool != nil && (kept.Len() > 0 || len(x.in.Trailer) > 0):
		x.Body.Open, x.Body.Length = kept.Open, kept.Len()
	case body.stream && x.pace != nil:
		x.Body.Stream.Reader = body.asItComes()
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
		proxy.Transport = x.ToServer(x.route.WithoutKey.Upstream, x.route.upstream)
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
	setForwarded(out.Header, in)
	if !x.decision.upstream {
		x.setKeyway(out.Header)
	}
	if via := x.router.cfg.Via; via != "" {
		out.Header.Add("Via", fmt.Sprintf("%d.%d %s", in.ProtoMajor, in.ProtoMinor, via))
	}
}

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
	x.client.by = send.ByRelay
	if x.decision.upstream {
		x.client.by = send.ByUpstream
	}
	if o := x.client.observed; o != nil && !x.decision.upstream {
		o.wait, o.run, o.told = hop.ParseTiming(res.Header.Get(hop.FieldTiming))
	}
	send.CleanResponse(res)
	if via := x.router.cfg.Via; via != "" {
		res.Header.Add("Via", fmt.Sprintf("%d.%d %s", res.ProtoMajor, res.ProtoMinor, via))
	}
	return nil
}

func (x *proxiedRequest) fail(_ http.ResponseWriter, _ *http.Request, err error) {
	a := failed(x.in.Context(), x.router, x.Partition, x.in.Method, x.in.Header["Accept"], err, x.pace.late())
	a.close = x.Body.Stream.Reader != nil
	x.client.observed.answered(a.problem, &a.Answer)
	a.send(x.client, x.client.source, x.in.Method)
}

// bufferPool is a [httputil.BufferPool].
type bufferPool struct{ pool sync.Pool }

var copyBuffers = bufferPool{sync.Pool{New: func() any { return new([32 << 10]byte) }}}

func (b *bufferPool) Get() []byte    { return b.pool.Get().(*[32 << 10]byte)[:] }
func (b *bufferPool) Put(buf []byte) { b.pool.Put((*[32 << 10]byte)(buf)) }
