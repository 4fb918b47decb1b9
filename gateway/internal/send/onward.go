package send

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"strings"

	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/gateway/internal/spans"
	"github.com/keyway-go/keyway/internal/wire/hop1"
	"github.com/keyway-go/keyway/ring"
)

// Onward sends a request without a key to a server that is no worker, once, and with its body as it comes.
func (to *Destination) Onward(out *http.Request, server *hop1.Pool, addr string) (*http.Response, error) {
	url := *out.URL
	url.Host = addr
	out.URL = &url
	out.Header.Del("Expect")
	s := to.Traces()
	if s != nil {
		s.attempt(to.Observed, ring.Member{Addr: addr})
		spans.SetFields(out.Header, s.Onward)
	}
	res, err := server.RoundTrip(out)
	if errors.Is(err, hop1.ErrNotStarted) && out.Context().Err() == nil {
		err = fmt.Errorf("%w: %s: %w", ErrNoUpstream, addr, err)
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
