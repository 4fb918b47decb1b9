package worker

import (
	"context"
	"net"
	"net/http"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/fields"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// memberKey is the key of a context whose requests a member of the cluster sends.
type memberKey struct{}

// markMembers is for [http.Server.ConnContext].
func (s *Server) markMembers(ctx context.Context, conn net.Conn) context.Context {
	if _, ok := s.members.LoadAndDelete(conn); ok {
		return context.WithValue(ctx, memberKey{}, true)
	}
	return ctx
}

// guard returns h for requests over HTTP: those of members, and with Config.Direct
// those of others, of whose fields of Keyway's own none is believed but a key that
// is not to be found elsewhere.
func (w *Worker) guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		member := r.Context().Value(memberKey{}) != nil
		switch {
		case !member && !w.cfg.Direct:
			// A router that has not heard yet that the worker takes links sends again.
			hop.WriteRefusal(rw.Header(), &link.RefusedError{Reason: link.Unavailable})
			rw.Header().Del("Retry-After")
			problem.Of(problem.NotDirect).ServeHTTP(rw, r)
			return
		case !member:
			key := r.Header[gateway.HeaderKey]
			fields.StripKeyway(r.Header)
			if len(w.cfg.Keys) == 0 && key != nil {
				r.Header[gateway.HeaderKey] = key
			}
		}
		h.ServeHTTP(rw, r)
	})
}

// warnIfOpen warns if whoever reaches an address passes for a member there.
func (w *Worker) warnIfOpen(addr net.Addr) {
	tcp, ok := addr.(*net.TCPAddr)
	if ok && !tcp.IP.IsLoopback() && len(hop.LinkConfig(w.cfg.Members, 0, w.log).Secrets) == 0 {
		w.cfg.Logger.Warn("requests are taken of whoever reaches this address and says that it is a member; set --gossip-key on all members", "addr", addr)
	}
}
