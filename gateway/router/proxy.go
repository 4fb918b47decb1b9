package router

import (
	"fmt"
	"net/http"
	"net/http/httputil"
	"sync"

	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/send"
)

// relay sends a request on by way of net/http, and answers it.
func (w *clientWriter) relay(r *incoming, d *decision) {
	x := w.upstream(r, d)
	defer func() { fields.CleanTrailers(w.Header()) }() // they stand there once the body has ended
	to := &send.Relay{Workers: x.Workers, Destination: x.Destination}
	switch {
	case r.kept.Spool != nil && (r.kept.Len() > 0 || len(r.Trailer) > 0):
		to.Body.Open, to.Body.Length = r.kept.Open, r.kept.Len()
	case r.stream && r.paced != nil:
		to.Body.Stream.Reader = r.asItComes()
	}
	way := send.ByRelay
	if d.upstream {
		way, to.Server, to.Addr = send.ByUpstream, d.route.upstream, d.route.WithoutKey.Upstream
	}
	header := x.header(r, d)
	proxy := httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			in, out := pr.In, pr.Out
			out.URL.Scheme, out.URL.RawQuery = "http", in.URL.RawQuery
			out.Header, out.Trailer = header, in.Trailer // which is filled when the body ends
			if d.route.rules.StripTrailer(in.Trailer); len(in.Trailer) > 0 {
				out.ContentLength = -1
			}
		},
		Transport:      to,
		ModifyResponse: func(res *http.Response) error { return w.relayed(res, way) },
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			x.refuse(err, to.Body.Stream.Reader != nil)
			w.observed.answered(x.problem, &x.Answer)
		},
		BufferPool: &copyBuffers,
		ErrorLog:   w.router.errorLog,
	}
	proxy.ServeHTTP(w, r.Request)
}

// header returns the header that the request has over HTTP/1.1, except for what an attempt adds.
func (x *upstreamRequest) header(r *incoming, d *decision) http.Header {
	h := x.Header(0)
	if d.upstream {
		h = x.Request.Fields.HeaderFor(2)
	}
	if upgrade := x.route.rules.Upgrade(r.Header); upgrade != "" {
		h["Connection"], h["Upgrade"] = []string{"Upgrade"}, []string{upgrade}
	}
	return h
}

// relayed takes over the head of a relayed answer.
func (w *clientWriter) relayed(res *http.Response, way send.Way) error {
	w.by = way
	if o := w.observed; o != nil && way == send.ByRelay {
		o.wait, o.run, o.told = hop.ParseTiming(res.Header.Get(hop.FieldTiming))
	}
	send.CleanResponse(res)
	if via := w.router.cfg.Via; via != "" {
		res.Header.Add("Via", fmt.Sprintf("%d.%d %s", res.ProtoMajor, res.ProtoMinor, via))
	}
	return nil
}

// bufferPool is a [httputil.BufferPool].
type bufferPool struct{ pool sync.Pool }

var copyBuffers = bufferPool{sync.Pool{New: func() any { return new([32 << 10]byte) }}}

func (b *bufferPool) Get() []byte    { return b.pool.Get().(*[32 << 10]byte)[:] }
func (b *bufferPool) Put(buf []byte) { b.pool.Put((*[32 << 10]byte)(buf)) }
