package router

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/gateway/internal/spans"
	"github.com/keyway-go/keyway/internal/wire/hop1"
	"github.com/keyway-go/keyway/ring"
)

// relay is a request on its way to a worker and back over HTTP/1.1, as net/http has
// it: also one with a body that is streamed, or that changes protocols.
type relay struct {
	destination
	workers *workers
	body    payload
}

// RoundTrip finds the worker that takes the request and returns its answer.
func (x *relay) RoundTrip(out *http.Request) (res *http.Response, err error) {
	err = x.workers.find(out.Context(), &x.destination, func(t routing.Target) (o routing.Outcome) {
		res, o = x.attempt(out, t)
		return o
	})
	return res, err
}

func (x *relay) attempt(out *http.Request, t routing.Target) (*http.Response, routing.Outcome) {
	req, err := x.body.attach(x.address(out, t))
	if err != nil {
		return nil, routing.Outcome{Err: fmt.Errorf("%w: %w", errClientBody, err)}
	}
	res, err := x.workers.peer(t.Member).plain.RoundTrip(req)
	if err != nil {
		if out.Context().Err() != nil {
			x.body.done.Wait() // a body that breaks off ends the context first
		}
		return nil, outcomeOf(out.Context(), t.Member, err, x.body.stream.failed.Load())
	}
	refusal := hop.ReadRefusal(res.Header.Get)
	if refusal == nil {
		return res, routing.Outcome{}
	}
	_, _ = io.CopyN(io.Discard, res.Body, 4<<10)
	res.Body.Close()
	if x.body.asked {
		return nil, routing.Outcome{Err: fmt.Errorf("%w: %s refused it when part of its body had been sent", gateway.ErrMayHaveRun, t.Name)}
	}
	return nil, outcomeOf(out.Context(), t.Member, refusal, nil)
}

// address makes the request for one attempt at a worker.
func (x *relay) address(out *http.Request, t routing.Target) *http.Request {
	req := out.WithContext(out.Context())
	url := *out.URL
	url.Host = t.Addr
	req.URL = &url
	req.Header = maps.Clone(out.Header) // a former attempt may still be reading its own
	if t.Epoch > 0 {
		req.Header.Set(gateway.HeaderEpoch, strconv.FormatInt(t.Epoch, 10))
	}
	if s := x.traces(); s != nil {
		spans.SetFields(req.Header, s.onward)
	}
	return req
}

// serverTrip carries a request without a key to a server that is no worker.
type serverTrip struct {
	relay *relay
	addr  string // of the server
	pool  *hop1.Pool
}

// RoundTrip implements [http.RoundTripper]. The request is sent once.
func (x *serverTrip) RoundTrip(out *http.Request) (*http.Response, error) {
	url := *out.URL
	url.Host = x.addr
	out.URL = &url
	if body := &x.relay.body.stream; body.reader != nil {
		out.Body = io.NopCloser(body)
	}
	out.Header.Del("Expect")
	s := x.relay.traces()
	if s != nil {
		s.attempt(x.relay.observed, ring.Member{Addr: x.addr})
		spans.SetFields(out.Header, s.onward)
	}
	res, err := x.pool.RoundTrip(out)
	if errors.Is(err, hop1.ErrNotStarted) && out.Context().Err() == nil {
		err = fmt.Errorf("%w: %s: %w", errNoUpstream, x.addr, err)
	}
	s.attempted(routing.Outcome{Err: err})
	return res, err
}

// cleanResponse removes from a worker's answer what does not go on to the client.
func cleanResponse(res *http.Response) {
	fields.StripKeyway(res.Header)
	for name := range res.Trailer {
		if !fields.IsTrailer(name) {
			delete(res.Trailer, name)
		}
	}
}
