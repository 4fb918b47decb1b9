package router

import (
	"context"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/ring"
)

// workers are the workers of a cluster: which of them owns a key, as far as this
// process knows, and the connections to each. A [Router] and a [Client] have one.
type workers struct {
	members gateway.Members
	ring    ring.Config
	routes  *routing.Routes
	peers   peers
}

// init makes ws those of the members. Of cfg, what concerns workers counts.
func (ws *workers) init(cfg *Config) {
	ws.members, ws.ring = cfg.Members, cfg.Members.Settings().WithDefaults().Ring
	ws.routes = routing.New(cfg.Members, ws.ring.Partitions, cfg.Hold, cfg.MaxHeld)
	ws.peers.dial, ws.peers.conns, ws.peers.links = cfg.Dial, cfg.ConnsPerWorker, cfg.LinksPerWorker
	if cfg.PeerTLS != nil {
		ws.peers.tls, ws.peers.plain = cfg.PeerTLS.ClientConfig(), cfg.PeerTLS.Optional()
		ws.peers.stop = cfg.PeerTLS.OnReload(func() { ws.peers.drop(func(string) bool { return true }) })
	}
	ws.peers.link = hop.LinkConfig(cfg.Members, hop.MaxHeaderBytes, cfg.Logger)
}

// destination is where a request goes: to the owner of a partition, or to any worker.
type destination struct {
	partition int
	anyWorker bool
	hold      time.Duration // how long it waits while nobody takes it
	observed  *observation  // nil for nothing to be noted
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

// peer returns the connections to the worker of a target.
func (ws *workers) peer(t routing.Target) *peer { return ws.peers.get(ws.members.View(), t.Member) }

// route returns where requests for key go first.
func (ws *workers) route(key string) (gateway.Route, error) {
	if err := gateway.CheckKey(key); err != nil {
		return gateway.Route{}, err
	}
	p := ws.ring.Partition(key)
	t, _ := ws.routes.Owner(p)
	return gateway.Route{Partition: p, Owner: t.Member, Epoch: t.Epoch}, nil
}
