package send

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/gateway/internal/spans"
	"github.com/keyway-go/keyway/internal/wire/hop1"
	"github.com/keyway-go/keyway/ring"
)

// Relay is a request on its way to a worker and back over HTTP/1.1, as net/http has
// it: also one with a body that is streamed, or that changes protocols.
type Relay struct {
	Destination
	Workers *Workers
	Body    Payload

	// Server, if set, gets the request in place of a worker: one without a key, for the server at Addr.
	Server *hop1.Pool
	Addr   string
}

// RoundTrip implements [http.RoundTripper]. It finds the worker that takes the request and returns its answer.
func (x *Relay) RoundTrip(out *http.Request) (res *http.Response, err error) {
	if x.Server != nil {
		return x.toServer(out)
	}
	err = x.Workers.Find(out.Context(), &x.Destination, func(t routing.Target) (o routing.Outcome) {
		res, o = x.attempt(out, t)
		return o
	})
	return res, err
}

func (x *Relay) attempt(out *http.Request, t routing.Target) (*http.Response, routing.Outcome) {
	req, err := x.Body.attach(x.address(out, t))
	if err != nil {
		return nil, routing.Outcome{Err: fmt.Errorf("%w: %w", ErrClientBody, err)}
	}
	res, err := x.Workers.Peer(t.Member).Plain.RoundTrip(req)
	if err != nil {
		if out.Context().Err() != nil {
			x.Body.done.Wait() // a body that breaks off ends the context first
		}
		return nil, OutcomeOf(out.Context(), t.Member, err, x.Body.Stream.Failed.Load())
	}
	refusal := refusalOf(res)
	if refusal == nil {
		return res, routing.Outcome{}
	}
	if x.Body.asked {
		return nil, routing.Outcome{Err: fmt.Errorf("%w: %s refused it when part of its body had been sent", gateway.ErrMayHaveRun, t.Name)}
	}
	return nil, OutcomeOf(out.Context(), t.Member, refusal, nil)
}

// address makes the request for one attempt at a worker.
func (x *Relay) address(out *http.Request, t routing.Target) *http.Request {
	req := out.WithContext(out.Context())
	url := *out.URL
	url.Host = t.Addr
	req.URL = &url
	req.Header = maps.Clone(out.Header) // a former attempt may still be reading its own
	if t.Epoch > 0 {
		req.Header.Set(gateway.HeaderEpoch, strconv.FormatInt(t.Epoch, 10))
	}
	if s := x.Traces(); s != nil {
		spans.SetFields(req.Header, s.Onward)
	}
	return req
}

// toServer sends the request to Server, once.
func (x *Relay) toServer(out *http.Request) (*http.Response, error) {
	url := *out.URL
	url.Host = x.Addr
	out.URL = &url
	if body := &x.Body.Stream; body.Reader != nil {
		out.Body = io.NopCloser(body)
	}
	out.Header.Del("Expect")
	s := x.Traces()
	if s != nil {
		s.attempt(x.Observed, ring.Member{Addr: x.Addr})
		spans.SetFields(out.Header, s.Onward)
	}
	res, err := x.Server.RoundTrip(out)
	if errors.Is(err, hop1.ErrNotStarted) && out.Context().Err() == nil {
		err = fmt.Errorf("%w: %s: %w", ErrNoUpstream, x.Addr, err)
	}
	s.attempted(routing.Outcome{Err: err})
	return res, err
}

// CleanResponse removes from a worker's answer the fields that the client must not get.
func CleanResponse(res *http.Response) {
	fields.StripKeyway(res.Header)
	maps.DeleteFunc(res.Trailer, func(name string, _ []string) bool { return !fields.IsTrailer(name) })
}

// FieldsOf yields the fields of a request's header, without what its Connection
// names, and with no TE but trailers.
func FieldsOf(h http.Header) iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		named := fields.ConnectionNames(h["Connection"])
		for name, values := range h {
			if named(name) {
				continue
			}
			if len(name) == 2 && strings.EqualFold(name, "Te") {
				if !fields.ConnectionNames(values)("trailers") {
					continue
				}
				values = []string{"trailers"}
			}
			for _, v := range values {
				if !yield(name, v) {
					return
				}
			}
		}
	}
}
