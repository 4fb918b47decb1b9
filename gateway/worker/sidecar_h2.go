package worker

import (
	"context"
	"net"
	"net/http"

	"github.com/keyway-go/keyway/internal/wire/hop2"
)

// h2Transport sends requests to an app that speaks HTTP/2 without TLS.
type h2Transport struct{ hop2.Transport }

func (s *sidecar) overH2(dial func(context.Context) (net.Conn, error), requests int) *h2Transport {
	t := new(h2Transport)
	t.Dial, t.Requests, t.Wait, t.Idle, t.Grace = dial, requests, appWait, appIdle, s.grace
	t.Full = func() {
		s.Logger().Warn("requests wait for the app: it has as many as it may have (Limits.AppConnections, --app-connections)", "app", s.app, "requests", requests)
	}
	return t
}

// RoundTrip implements [http.RoundTripper]. A call of gRPC whose client has left is
// given up at once, as gRPC has it; anything else when it is abandoned.
func (t *h2Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	client := HeldFrom(r.Context()).Client()
	if !isGRPC(r.Header) {
		return t.Transport.RoundTrip(r)
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	context.AfterFunc(client, func() { cancel(context.Cause(client)) }) // at the latest when it is answered
	return t.Transport.RoundTrip(r.WithContext(ctx))
}
