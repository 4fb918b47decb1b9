package send

import (
	"context"
	"crypto/tls"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// Workers are the workers of a cluster: which of them owns a key, as far as this
// process knows, and the connections to each. A router and a client have one. Requests add workers to
// known, and a new view removes workers that have left. Neither needs a lock.
type Workers struct {
	Members gateway.Members
	Ring    ring.Config
	Routes  *routing.Routes

	options Options
	link    link.Config               // the same at the workers
	tls     *tls.Config               // nil for none
	stop    func()                    // ends the watch for new certificates; nil without TLS
	known   sync.Map                  // *Peer by incarnation
	view    atomic.Pointer[ring.View] // the last view that known was swept by

	accusations accusations
}

// Destination is where a request goes: to the owner of a partition, or to any worker.
type Destination struct {
	Partition int
	AnyWorker bool
	Hold      time.Duration // how long it waits while nobody takes it
	Observed  *Progress     // nil for nothing to be noted
}

// Find makes attempts until a worker takes a request, see [routing.Routes.Route].
func (ws *Workers) Find(ctx context.Context, to *Destination, attempt routing.Attempt) (err error) {
	if o := to.Observed; o != nil {
		attempt = o.seek(attempt)
		defer func() { o.untaken(err, to) }()
	}
	p := to.Partition
	if to.AnyWorker {
		p = routing.Anywhere
	}
	return ws.Routes.Route(ctx, p, to.Hold, attempt)
}

// All yields the workers that requests were sent to.
func (ws *Workers) All(yield func(*Peer) bool) {
	ws.known.Range(func(_, p any) bool { return yield(p.(*Peer)) })
}

// Forget ends the connections to a worker once no request uses them. The next one connects anew.
func (ws *Workers) Forget(m ring.Member) {
	ws.drop(func(incarnation string) bool { return incarnation == m.Incarnation })
}

// Close closes the idle connections to workers.
func (ws *Workers) Close() {
	ws.accusations.close()
	if ws.stop != nil {
		ws.stop()
	}
	for p := range ws.All {
		p.close()
	}
}
