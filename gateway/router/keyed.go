package router

import (
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/internal/keysource"
)

// netRequest is a request of net/http as key sources see it.
type netRequest struct {
	*http.Request
	keysource.Keyed // of Request; KeyClient and KeyBody are the router's own
	writer          *clientWriter
	pace            *pacedBody // of a body that has the key
}

func (r *netRequest) KeyClient() string {
	return r.writer.source.keyClient(r.writer.router, r.Header[forwardedFor])
}

// KeyBody implements [keysource.Keyed]. It waits for the client as for any body.
func (r *netRequest) KeyBody() ([]byte, error) {
	body, err := keysource.PeekBody(r.Request, func(io.Reader) io.Reader {
		r.pace = newPacedBody(r.Request, r.writer.control, r.writer.router, new(fields.Rules))
		return r.pace
	})
	if err != nil && !errors.Is(err, keysource.ErrBody) {
		return nil, errors.Join(send.ErrClientBody, err)
	}
	return body, err
}

// keyClient returns the client's address as a key: that of the connection, or what
// trusted proxies have said in fields of the name forwardedFor.
func (s *source) keyClient(rt *Router, forwarded []string) string {
	if !s.trusted {
		return addrOf(s.addr)
	}
	return strings.Clone(s.origin(rt, strings.Join(append(forwarded[:len(forwarded):len(forwarded)], addrOf(s.addr)), ",")))
}
