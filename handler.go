package keyway

import (
	"net/http"
	"sync/atomic"

	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// handler passes requests to the handler that is set at present.
type handler struct{ current atomic.Pointer[keyed] }

// keyed is a handler of a worker, which holds a request's key while it runs.
type keyed interface {
	http.Handler
	link.Handler
}

// set makes h pass requests to next, with their keys held: only handlers that
// workers have made take requests over the link, and those hold the keys.
func (h *handler) set(w *worker.Worker, next http.Handler) {
	k, ok := next.(keyed)
	if !ok {
		k = w.Handler(next).(keyed)
	}
	h.current.Store(&k)
}

func (h *handler) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	(*h.current.Load()).ServeHTTP(rw, r)
}

// ServeLink is ServeHTTP for a request that came over the link.
func (h *handler) ServeLink(w *link.ResponseWriter, r *link.ServerRequest) {
	(*h.current.Load()).ServeLink(w, r)
}
