package router

import (
	"context"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/ring"
)

// workers are the workers of a cluster: which of them owns a key, as far as this
// process knows, and the connections to each. A router and a client have one.
type workers struct {
	members gateway.Members
	ring    ring.Config
	routes  *routing.Routes
	peers   peers
}

// destination is where a request goes: to the owner of a partition, or to any worker.
type destination struct {
	partition int
	anyWorker bool
	hold      time.Duration // how long it waits while nobody takes it
	observed  *progress     // nil for nothing to be noted
}

// find makes attempts until a worker takes a request, see [routing.Routes.Route].
func (ws *workers) find(ctx context.Context, to *destination, attempt routing.Attempt) (err error) {
	if o := to.observed; o != nil {
		attempt = o.seek(attempt)
		defer func() { o.untaken(err, to) }()
	}
	if to.anyWorker {
		return ws.routes.RouteAny(ctx, to.hold, attempt)
	}
	return ws.routes.RouteWithin(ctx, to.partition, to.hold, attempt)
}

// peer returns the connections to a worker.
func (ws *workers) peer(m ring.Member) *peer { return ws.peers.get(ws.members.View(), m) }

// route returns where requests for key go first.
func (ws *workers) route(key string) (gateway.Route, error) {
	if err := gateway.CheckKey(key); err != nil {
		return gateway.Route{}, err
	}
	p := ws.ring.Partition(key)
	t, _ := ws.routes.Owner(p)
	return gateway.Route{Partition: p, Owner: t.Member, Epoch: t.Epoch}, nil
}

// close closes the idle connections to workers.
func (ws *workers) close() { ws.peers.close() }
