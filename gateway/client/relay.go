package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/send"
)

// relay sends a request that only net/http's form of HTTP/1.1 carries.
func (x *call) relay() (*http.Response, error) {
	to := send.Relay{Workers: x.Workers, Destination: x.Destination}
	x.way = send.ByRelay.String()
	out := x.in.WithContext(x.in.Context())
	out.Header = x.in.Header.Clone()
	x.client.fields.Clean(out.Header, true)
	delete(out.Header, "Trailer")
	out.Header[gateway.HeaderKey] = []string{url.PathEscape(x.Request.Key)}
	if baggage := x.baggage(); len(baggage) > 0 {
		out.Header["Baggage"] = baggage
	}
	if _, ok := out.Header["User-Agent"]; !ok {
		out.Header["User-Agent"] = []string{""} // or net/http adds its own
	}
	at := *x.in.URL
	at.Scheme = "http"
	out.URL, out.Host, out.Close, out.Trailer, out.Body, out.ContentLength = &at, x.Request.Host, false, nil, nil, 0
	if x.Request.Open != nil {
		to.Body.Open, to.Body.Length = x.Request.Open, x.Request.ContentLength
		if names := x.trailerNames(); len(names) > 0 {
			out.Trailer = announced(names)
			to.Body.Open = func() (io.ReadCloser, error) { return x.openWithTrailer(out) }
		}
	}
	res, err := to.RoundTrip(out)
	if err == nil && res.StatusCode == http.StatusTooManyRequests && hop.IsBusy(res.Header.Get) {
		res.Body.Close()
		err = send.ErrBusy
	}
	if err != nil {
		return nil, err
	}
	res.Request, x.out.StatusCode = x.in, res.StatusCode
	send.CleanResponse(res)
	if res.StatusCode == http.StatusSwitchingProtocols {
		x.endSpans(nil)
		x.endBody()
		return res, nil
	}
	body := &relayedReply{ReadCloser: res.Body, call: x}
	body.unread = context.AfterFunc(x.Ctx, func() { body.ReadCloser.Close() }) // perhaps nobody reads it
	res.Body = body
	return res, nil
}

// openWithTrailer opens the body for an attempt at sending out.
func (x *call) openWithTrailer(out *http.Request) (io.ReadCloser, error) {
	body, err := x.Request.Open()
	if err != nil {
		return nil, err
	}
	return &relayedBody{body, x, out}, nil
}

// relayedBody is a request's body. At its end it hands over the trailers.
type relayedBody struct {
	io.ReadCloser
	call *call
	out  *http.Request
}

func (b *relayedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		for name, values := range b.call.trailer() {
			b.out.Trailer[http.CanonicalHeaderKey(name)] = values
		}
	}
	return n, err
}

// relayedReply is the answer's body.
type relayedReply struct {
	io.ReadCloser
	call   *call
	unread func() bool // ends the watch of the context
}

func (b *relayedReply) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("%w: %w", gateway.ErrMayHaveRun, err)
		b.endCall(err)
		return n, b.call.failure(err)
	}
	if err != nil {
		b.endCall(nil)
	}
	return n, err
}

func (b *relayedReply) Close() error {
	err := b.ReadCloser.Close()
	b.endCall(nil)
	return err
}

// endCall ends the call, which has failed with err or has its answer.
func (b *relayedReply) endCall(err error) {
	b.call.endSpans(err)
	b.unread()
	if b.call.unwatch != nil {
		b.call.unwatch()
	}
	b.call.endBody()
}
