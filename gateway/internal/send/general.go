package send

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"slices"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/internal/wire/grammar"
	"github.com/keyway-go/keyway/internal/wire/hop1"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// attemptGeneral sends the request to a worker over HTTP/1.1 in net/http's form, with the wish to change to that protocol, unless
// it is "". A body that is not small is not read before the worker asks for it.
func (d *Dispatch) attemptGeneral(t routing.Target, p *Peer, protocol string) routing.Outcome {
	r, way := &d.Request, ByHTTP1
	h := header(d.appendHop(slices.Clip(r.Fields), t))
	if d.HasBody() && (r.ContentLength < 0 || r.ContentLength > hop.MaxRepeatedBody || d.Stream) {
		h["Expect"] = []string{"100-continue"}
	}
	if protocol != "" {
		h["Connection"], h["Upgrade"], way = []string{"Upgrade"}, []string{protocol}, ByRelay
	}
	res, asked, err := d.exchange(&p.Plain, t.Addr, h)
	if err != nil {
		return OutcomeOf(d.Ctx, t.Member, err, d.Body.Failed.Load())
	}
	out := d.answered(t, way, answerOf(res))
	if out.Err != nil && asked && d.Stream {
		out = routing.Outcome{Err: fmt.Errorf("%w: %s refused it when part of its body had been sent", gateway.ErrMayHaveRun, t.Name)}
	}
	return out
}

// AttemptUpgrade sends the request to a worker, with the wish to change to that protocol. A body must be kept.
func (d *Dispatch) AttemptUpgrade(t routing.Target, p *Peer, protocol string) routing.Outcome {
	d.Request.Fields = d.tracedFields()
	return d.attemptGeneral(t, p, protocol)
}

// Onward sends a request without a key to a server that is no worker, once, and with its body as it comes.
func (d *Dispatch) Onward(server *hop1.Pool, addr string) error {
	if d.Traced() {
		d.Observed.attempt(ring.Member{Addr: addr})
		d.Request.Fields = d.tracedFields()
	}
	res, _, err := d.exchange(server, addr, header(d.Request.Fields))
	switch failed := d.Body.Failed.Load(); {
	case err == nil:
		d.way, d.Answer = ByUpstream, answerOf(res)
	case failed != nil:
		err = fmt.Errorf("%w: %w", ErrClientBody, *failed)
	case errors.Is(err, hop1.ErrNotStarted) && d.Ctx.Err() == nil:
		err = fmt.Errorf("%w: %s: %w", ErrNoUpstream, addr, err)
	}
	if d.Traced() {
		d.Observed.attempted(routing.Outcome{Err: err})
	}
	return err
}

// header returns a header with these fields as it goes to a server over HTTP/1.1.
func header(list link.Fields) http.Header {
	h := list.HeaderFor(4)
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = []string{""} // or net/http adds its own
	}
	return h
}

// exchange sends the request to a server and returns the answer. asked reports whether the server has asked for the body.
func (d *Dispatch) exchange(server *hop1.Pool, addr string, header http.Header) (res *http.Response, asked bool, err error) {
	r := &d.Request
	target, err := url.ParseRequestURI(r.Target)
	if err != nil {
		return nil, false, err
	}
	target.Scheme, target.Host = "http", addr
	req := &http.Request{Method: r.Method, URL: target, Host: r.Host, Header: header}
	switch {
	case r.Open != nil:
		req.Body = r.Open()
	case r.Body != nil && d.Stream:
		req.Body = io.NopCloser(r.Body)
	case r.Body != nil:
		req.Body = io.NopCloser(bytes.NewReader(r.AppendKept(nil)))
	}
	if req.Body != nil {
		req.ContentLength = r.ContentLength
	}
	if trailer := r.Trailer; req.Body != nil && trailer != nil { // which may be asked for when r is used again
		req.Trailer = make(http.Header)
		for name := range grammar.Items(r.Fields.Values("Trailer")) {
			req.Trailer[http.CanonicalHeaderKey(name)] = nil
		}
		req.Body, req.ContentLength = &trailedBody{req.Body, func() { maps.Copy(req.Trailer, trailer().Header()) }}, -1
	}
	ctx := httptrace.WithClientTrace(d.Ctx, &httptrace.ClientTrace{
		Got100Continue: func() { asked = true },
		Got1xxResponse: func(status int, h textproto.MIMEHeader) error {
			if r.Interims != nil {
				r.Interims.Interim(status, link.AppendHeader(nil, http.Header(h)))
			}
			return nil
		},
	})
	res, err = server.RoundTrip(req.WithContext(ctx))
	return res, asked, err
}

// trailedBody is a body that calls ended at its end.
type trailedBody struct {
	io.ReadCloser
	ended func()
}

func (b *trailedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.ended()
	}
	return n, err
}

// answerOf returns an answer in net/http's form as one.
func answerOf(res *http.Response) Answer {
	list := link.AppendHeader(nil, res.Header)
	for name := range res.Trailer {
		list = link.AppendField(list, "Trailer", name)
	}
	return Answer{Status: res.StatusCode, Length: res.ContentLength, Fields: list, Body: &responseBody{ReadCloser: res.Body, response: res}}
}

// Switched returns the connection after a change of protocol, and the protocol; nil if the answer is none.
func (d *Dispatch) Switched() (app io.ReadWriteCloser, protocol string) {
	if b, ok := d.Answer.Body.(*responseBody); ok && d.Answer.Status == http.StatusSwitchingProtocols {
		app, _ = b.ReadCloser.(io.ReadWriteCloser)
		protocol = b.response.Header.Get("Upgrade")
	}
	return app, protocol
}

// responseBody is the body of an answer in net/http's form.
type responseBody struct {
	io.ReadCloser
	response *http.Response
	buf      [8 << 10]byte
	ended    bool
}

func (b *responseBody) Read(p []byte) (n int, err error) {
	n, err = b.ReadCloser.Read(p)
	b.ended = b.ended || err == io.EOF
	return n, err
}

// Next implements [AnswerBody].
func (b *responseBody) Next() ([]byte, error) {
	n, err := b.Read(b.buf[:])
	return b.buf[:n], err
}

// Buffered implements [AnswerBody].
func (b *responseBody) Buffered() (n int, last bool) { return 0, b.ended }

// Trailer implements [AnswerBody].
func (b *responseBody) Trailer() link.Fields { return link.AppendHeader(nil, b.response.Trailer) }
