package send

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strconv"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/internal/policy"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// attemptGeneral sends the request to a worker over HTTP/1.1 in net/http's form.
func (d *Dispatch) attemptGeneral(t routing.Target, p *Peer) routing.Outcome {
	ctx := d.Ctx
	if interims := d.Request.Interims; interims != nil {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got1xxResponse: func(status int, h textproto.MIMEHeader) error {
			interims.Interim(status, link.AppendHeader(nil, http.Header(h)))
			return nil
		}})
	}
	res, out := d.general(ctx, t, p, "")
	if res == nil {
		return out
	}
	list := link.AppendHeader(nil, res.Header)
	for name := range res.Trailer {
		list = link.AppendField(list, "Trailer", name)
	}
	d.Answer = Answer{Status: res.StatusCode, Length: res.ContentLength, Fields: list, Body: &responseBody{ReadCloser: res.Body, response: res}}
	return out
}

// general sends the request to a worker over HTTP/1.1, which may change to another protocol, unless that is "". A body that
// is not small is not read before the worker asks for it. Trailers follow on a body that is kept.
func (d *Dispatch) general(ctx context.Context, t routing.Target, p *Peer, protocol string) (*http.Response, routing.Outcome) {
	r := &d.Request
	target, err := url.ParseRequestURI(r.Target)
	if err != nil {
		return nil, routing.Outcome{Err: err}
	}
	target.Scheme, target.Host = "http", t.Addr
	req := &http.Request{Method: r.Method, URL: target, Host: r.Host, Header: d.header(t.Epoch)}
	if r.Open != nil {
		if req.Body, err = r.Open(); err != nil {
			return nil, routing.Outcome{Err: fmt.Errorf("%w: %w", ErrClientBody, err)}
		}
		if r.Trailer != nil {
			req.Trailer = r.Trailer().Header()
		}
	} else if r.Body != nil && d.Stream {
		req.Body = io.NopCloser(r.Body)
	}
	if req.Body != nil {
		req.ContentLength = r.ContentLength
		if r.ContentLength < 0 || r.ContentLength > hop.MaxRepeatedBody || d.Stream {
			req.Header.Set("Expect", "100-continue")
		}
	}
	if protocol != "" {
		req.Header["Connection"], req.Header["Upgrade"] = []string{"Upgrade"}, []string{protocol}
	}
	asked := false // for the body
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got100Continue: func() { asked = true }})
	res, err := p.Plain.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return nil, OutcomeOf(ctx, t.Member, err, d.Body.Failed.Load())
	}
	refusal := refusalOf(res)
	switch {
	case refusal == nil:
		return res, routing.Outcome{}
	case asked && d.Stream:
		return nil, routing.Outcome{Err: fmt.Errorf("%w: %s refused it when part of its body had been sent", gateway.ErrMayHaveRun, t.Name)}
	}
	return nil, OutcomeOf(ctx, t.Member, refusal, nil)
}

// Upgrade sends the request to a worker, with the wish to change to that protocol.
func (d *Dispatch) Upgrade(ctx context.Context, protocol string) (res *http.Response, err error) {
	err = d.Workers.Find(ctx, &d.Destination, func(t routing.Target) (out routing.Outcome) {
		d.Request.Fields = d.tracedFields()
		res, out = d.general(ctx, t, d.Workers.Peer(t.Member), protocol)
		return out
	})
	return res, err
}

// header returns the request's header as it goes to a worker over HTTP/1.1, for a partition of that epoch, 0 for none.
func (d *Dispatch) header(epoch int64) http.Header {
	r := &d.Request
	h := r.Fields.HeaderFor(6)
	if r.Key != "" {
		h[gateway.HeaderKey] = []string{url.PathEscape(r.Key)}
	}
	if epoch > 0 {
		h[gateway.HeaderEpoch] = []string{strconv.FormatInt(epoch, 10)}
	}
	if r.Client != 0 {
		h[hop.HeaderClient] = []string{strconv.FormatUint(r.Client, 10)}
	}
	if len(r.Policy) > 0 {
		h[hop.HeaderPolicy] = []string{policy.Text(r.Policy)}
	}
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = []string{""} // or net/http adds its own
	}
	return h
}

// refusalOf returns the refusal of a request that an answer is, nil for none. It reads the rest of one if that is
// little, so that the connection can be used on.
func refusalOf(res *http.Response) error {
	refusal := hop.ReadRefusal(res.Header.Get)
	if refusal == nil {
		return nil
	}
	_, _ = io.CopyN(io.Discard, res.Body, 4<<10)
	res.Body.Close()
	return refusal
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
