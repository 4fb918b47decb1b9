package link

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/keyway-go/keyway/internal/wire/httphandler"
)

// HTTPHandler returns a Handler that runs h unchanged, see ServeHTTP.
func HTTPHandler(h http.Handler) Handler {
	return HandlerFunc(func(w *ResponseWriter, r *ServerRequest) {
		ServeHTTP(r.Context(), w, r, r.Fields.HeaderFor(0), h)
	})
}

// ServeHTTP lets h answer r as a net/http server would, see [httphandler.Writer]. The request gets
// ctx, which is r.Context() or derived from it, and header, which is r.Fields with or without
// changes. Unlike net/http it sends no Date and at most 8 interim answers (1xx), and a panic ends
// this stream instead of the connection. A call between members, see [IsCall], does not reach h:
// the answer is 400.
func ServeHTTP(ctx context.Context, w *ResponseWriter, r *ServerRequest, header http.Header, h http.Handler) {
	u, err := url.ParseRequestURI(r.Target)
	if err != nil || IsCall(r.Method) {
		u, h = new(url.URL), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "400 Bad Request", http.StatusBadRequest)
		})
	}
	req := (&http.Request{
		Method:        r.Method,
		URL:           u,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        header,
		ContentLength: r.ContentLength,
		Host:          r.Host,
		RemoteAddr:    r.st.sc.remote,
		RequestURI:    r.Target,
	}).WithContext(ctx)
	if u.Host != "" {
		req.Host = u.Host
	}
	if r.sized {
		header["Content-Length"] = []string{strconv.FormatInt(r.ContentLength, 10)}
	}
	if r.ContentLength < 0 {
		req.TransferEncoding = []string{"chunked"}
	}
	x := &httpStream{ctx: ctx, w: w, body: r.Body, memory: pool.get(minBuffer)}
	x.fields = x.memory.b
	x.Begin(x, req, !r.Body.empty())
	defer pool.put(x.memory)
	h.ServeHTTP(&x.Writer, req)
	x.Finish()
}

// httpStream implements [httphandler.Stream].
type httpStream struct {
	httphandler.Writer
	ctx    context.Context // of the handler
	w      *ResponseWriter
	body   *RequestBody
	memory *buffer
	fields Fields // for what is sent next; in memory until the head is
}

func (x *httpStream) ReadBody(p []byte) (int, error) { return x.body.ReadContext(x.ctx, p) }

func (x *httpStream) Trailer() http.Header { return x.body.Trailer().Header() }

func (x *httpStream) AddField(name, value string) { x.fields = AppendField(x.fields, name, value) }

func (x *httpStream) SendInterim(status int) {
	_ = x.w.WriteInterim(status, x.fields) // should it fail, so does the answer
	x.fields = x.fields[:0]
}

func (x *httpStream) SendHead(status int, length int64, body []byte) error {
	err := x.w.WriteHead(status, length, x.fields)
	x.fields = nil
	if err != nil || len(body) == 0 {
		return err
	}
	return x.SendBody(body)
}

func (x *httpStream) SendBody(p []byte) error {
	_, err := x.w.Write(p)
	return err
}

func (x *httpStream) SendPending() error { return x.w.Flush() }

func (x *httpStream) SendEnd() { x.w.SetTrailer(x.fields) }

func (x *httpStream) Abort(err error) { x.w.fail(err) }
