package router

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"sync"

	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/send"
)

// relay sends a request on that may change to another protocol, or goes to the route's server for requests without a key,
// and answers it by way of net/http.
func (w *clientWriter) relay(r *incoming, d *decision) {
	x := w.upstream(r, d)
	defer func() { fields.CleanTrailers(w.Header()) }() // they stand there once the body has ended
	header := x.Request.Fields.HeaderFor(2)
	protocol := x.route.rules.Upgrade(r.Header)
	if protocol != "" {
		header["Connection"], header["Upgrade"] = []string{"Upgrade"}, []string{protocol}
	}
	way, streams := send.ByRelay, d.upstream && r.stream && r.paced != nil
	transport := func(out *http.Request) (*http.Response, error) { return x.Upgrade(out.Context(), protocol) }
	if d.upstream {
		way = send.ByUpstream
		transport = func(out *http.Request) (*http.Response, error) {
			return x.Onward(out, d.route.upstream, d.route.WithoutKey.Upstream)
		}
	} else if r.paced != nil {
		x.attach(r)
		x.addTrailers(r.Request)
	}
	proxy := httputil.ReverseProxy{
		Rewrite: func(pr *httputil.ProxyRequest) {
			in, out := pr.In, pr.Out
			out.URL.Scheme, out.URL.RawQuery = "http", in.URL.RawQuery
			out.Header, out.Trailer = header, in.Trailer // which is filled when the body ends
			if d.route.rules.StripTrailer(in.Trailer); len(in.Trailer) > 0 {
				out.ContentLength = -1
			}
			switch {
			case streams:
				out.Body = io.NopCloser(r.asItComes())
			case r.kept.Spool != nil:
				out.Body, _ = r.kept.Open() // which does not fail
			}
		},
		Transport:      roundTripper(transport),
		ModifyResponse: func(res *http.Response) error { return w.relayed(res, way) },
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			x.refuse(err, streams)
			w.observed.answered(x.problem, &x.Answer)
		},
		BufferPool: &copyBuffers,
		ErrorLog:   w.router.errorLog,
	}
	proxy.ServeHTTP(w, r.Request)
}

// roundTripper is an [http.RoundTripper].
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

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
