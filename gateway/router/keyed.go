package router

import (
	"bytes"
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
	switch {
	case r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0:
		return nil, nil
	case r.ContentLength > keysource.MaxBody:
		return nil, keysource.ErrBody
	}
	var read bytes.Buffer
	r.pace = newPacedBody(r.Request, r.writer.control, r.writer.router, new(fields.Rules))
	body, err := keysource.ReadBody(io.TeeReader(r.pace, &read))
	if err != nil && !errors.Is(err, keysource.ErrBody) {
		return nil, errors.Join(send.ErrClientBody, err)
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(&read, r.Body), r.Body}
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
