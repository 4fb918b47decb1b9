package router

import (
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/gateway/internal/spool"
	"github.com/keyway-go/keyway/internal/keysource"
)

// netRequest is a request of net/http as key sources see it.
type netRequest struct {
	*http.Request
	keysource.Keyed // of Request; KeyClient and KeyBody are the router's own
	writer          *clientWriter
	pace            *pacedBody // of a body that has the key
	kept            send.Kept  // that body; nil if there is none
}

func (r *netRequest) KeyClient() string {
	return r.writer.source.keyClient(r.writer.router, r.Header[forwardedFor])
}

// KeyBody implements [keysource.Keyed]. It waits for the client as for any body, and keeps it as any.
func (r *netRequest) KeyBody() ([]byte, error) {
	switch {
	case r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0:
		return nil, nil
	case r.ContentLength > keysource.MaxBody:
		return nil, keysource.ErrBody
	case r.kept.Spool == nil:
		rt := r.writer.router
		r.pace = newPacedBody(r.Request, r.writer.control, rt, new(fields.Rules))
		kept, err := send.Keep(r.writer.source.account(rt, r.Header[forwardedFor]), nil, &send.Body{Reader: &send.Limited{Reader: r.pace, Left: keysource.MaxBody}})
		if err != nil {
			kept.Close()
			if errors.Is(err, send.ErrBodyTooLarge) {
				err = keysource.ErrBody
			}
			return nil, err
		}
		r.kept = kept
	}
	reader := r.kept.NewReader()
	defer reader.Close()
	return io.ReadAll(reader)
}

// end frees what KeyBody has kept.
func (r *netRequest) end() {
	if r.kept.Spool != nil {
		r.kept.Close()
	}
}

// account returns that of the client, see keyClient.
func (s *source) account(rt *Router, forwarded []string) spool.Account {
	return rt.budget.Of(hop.ClientID(s.keyClient(rt, forwarded)))
}

// keyClient returns the client's address as a key: that of the connection, or what
// trusted proxies have said in fields of the name forwardedFor.
func (s *source) keyClient(rt *Router, forwarded []string) string {
	if !s.trusted {
		return addrOf(s.addr)
	}
	return strings.Clone(s.origin(rt, strings.Join(append(forwarded[:len(forwarded):len(forwarded)], addrOf(s.addr)), ",")))
}
