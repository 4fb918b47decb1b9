package worker

import (
	"fmt"
	"net/http"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// Unavailable returns a handler for a worker that takes no requests so far: it refuses each one as
// if no worker owned its key, and routers then hold it.
func (w *Worker) Unavailable() http.Handler {
	return unavailable{w, fmt.Errorf("%w: worker %s does not take requests yet", gateway.ErrUnavailable, w.name)}
}

type unavailable struct {
	worker *Worker
	err    error
}

func (u unavailable) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	u.worker.refuse(rw, r, u.err)
}

// ServeLink is ServeHTTP for a request that came over the link.
func (u unavailable) ServeLink(w *link.ResponseWriter, r *link.ServerRequest) {
	u.worker.refuseLink(w, r, u.err)
}
