package router

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/gateway/internal/spans"
	"github.com/keyway-go/keyway/internal/wire/hop1"
	"github.com/keyway-go/keyway/ring"
)

// errNoUpstream: the server for requests without a key takes none.
var errNoUpstream = errors.New("router: the server for this request cannot be reached")

// upstreamTrip carries a request without a key to its route's plain server.
type upstreamTrip struct {
	relay *relay
	route *route
}

// RoundTrip implements [http.RoundTripper]. The request is sent once.
func (x *upstreamTrip) RoundTrip(out *http.Request) (*http.Response, error) {
	url := *out.URL
	url.Host = x.route.WithoutKey.Upstream
	out.URL = &url
	if body := &x.relay.body.stream; body.reader != nil {
		out.Body = io.NopCloser(body)
	}
	out.Header.Del("Expect")
	s := x.relay.traces()
	if s != nil {
		s.attempt(x.relay.observed, ring.Member{Addr: url.Host})
		spans.SetFields(out.Header, s.onward)
	}
	res, err := x.route.upstream.RoundTrip(out)
	if errors.Is(err, hop1.ErrNotStarted) && out.Context().Err() == nil {
		err = fmt.Errorf("%w: %s: %w", errNoUpstream, x.route.WithoutKey.Upstream, err)
	}
	s.attempted(routing.Outcome{Err: err})
	return res, err
}
