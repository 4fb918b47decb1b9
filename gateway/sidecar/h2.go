package sidecar

import (
	"context"
	"net/http"

	"github.com/keyway-go/keyway/internal/wire/hop2"
)

// h2Transport sends requests to an app that speaks HTTP/2 without TLS.
type h2Transport struct {
	hop2.Transport
	sidecar *sidecar
}

// RoundTrip implements [http.RoundTripper]. A gRPC call is given up as soon as its client has left,
// any other request when it is abandoned.
func (t *h2Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	client := t.sidecar.Held(r.Context()).Client()
	if !isGRPC(r.Header) {
		return t.Transport.RoundTrip(r)
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	context.AfterFunc(client, func() { cancel(context.Cause(client)) }) // at the latest when it is answered
	return t.Transport.RoundTrip(r.WithContext(ctx))
}
