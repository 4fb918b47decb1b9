// Package router is for programs that are the front door of other programs' requests. It sends each
// request to the worker that owns the request's key, and owns no key itself (see package
// gateway/worker). Calls of a Go program need no router; package gateway/client makes them.
//
// A [Router] is an [http.Handler]. Its routes and its view of the cluster are all that
// changes. [Router.SetRoutes] replaces the routes as a whole, so a request sees one table from
// beginning to end; Config.Members replaces the view. Both are immutable and read without a
// lock, as every request reads them.
//
// A [Server] accepts connections for a Router, with less work for a request than net/http's
// server. It serves until [Server.Shutdown] or [Server.Close], and is not started again. An
// HTTP/1.1 connection that asks for something unusual is handed to net/http and stays
// there, so that the short way need not know every case.
//
// A request is unsent, sent or answered. It waits, unsent, while its partition has no reachable
// owner. Package internal/routing chooses the worker, and it alone tries another worker, if the
// request has provably not started: any other second attempt could run it twice. Package
// internal/send transports the request.
//
// Files, from the client inwards: server.go, server_tls.go, proxyheader.go and perclient.go accept
// connections. http1.go, http2.go and net_http.go are the client's side of a request, in three forms.
// The rest of a request is in upstream.go. It asks table.go for the destination, sends the request with the
// body of body.go, and answers by answer.go, failure.go or proxy.go.
// observe.go, traffic.go and metrics.go record the outcome.
package router

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/conns"
	"github.com/keyway-go/keyway/gateway/internal/hop"
	"github.com/keyway-go/keyway/gateway/internal/problem"
	"github.com/keyway-go/keyway/gateway/internal/routing"
	"github.com/keyway-go/keyway/gateway/internal/send"
	"github.com/keyway-go/keyway/gateway/internal/spans"
	"github.com/keyway-go/keyway/gateway/internal/spool"
	"github.com/keyway-go/keyway/internal/accesslog"
	"github.com/keyway-go/keyway/internal/metrics"
	"github.com/keyway-go/keyway/internal/requestlog"
	"github.com/keyway-go/keyway/internal/routes"
	"github.com/keyway-go/keyway/ring"
)

// Config configures a [Router]. Members is required, and either Keys or Routes. A
// number or a duration of 0 stands for the default; a negative one is an error of [New].
type Config struct {
	Members gateway.Members // of the workers' cluster

	// Keys are where requests have their keys: one route for all of them.
	Keys gateway.KeySources

	// Routes say which requests are taken, where they have their keys, and how they are
	// treated. [LoadRoutes] reads them, [Router.SetRoutes] changes them.
	Routes *routes.Table

	gateway.Limits

	// ClientTimeout bounds each wait for a client to send more of its body, or to take more of the
	// answer. gRPC bodies of requests without a key are exempt. Default 1 minute.
	ClientTimeout time.Duration

	// MinBodyRate is how many bytes of a body a client must send per second, on average over each
	// ClientTimeout that is spent waiting for it. A slower request is answered with 408, and an
	// HTTP/1.1 connection is closed. gRPC bodies without a key are exempt. Default 1024.
	MinBodyRate int

	// MaxConnections bounds the connections of clients to a [Server] of the router. When it is
	// reached, new connections wait to be accepted, and the connections that have been idle longest
	// are closed, after at least a second. The process keeps 128 of the files that
	// it may open (RLIMIT_NOFILE) for other uses, or a quarter if that is more. Default: half of
	// the rest, since a request may also need a connection to a worker. A value above that rest logs
	// a warning.
	MaxConnections int

	// Dial makes connections to workers. Default: TCP with keep-alives, by a [net.Dialer] with
	// DialTimeout.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	// Own connects to the worker of this process, which has the same Members: [worker.Server.Dial].
	// Requests for that worker's keys then stay in the process. Default: there is no such worker.
	Own func(context.Context) (net.Conn, error)

	// PeerTLS makes connections to workers use mutual TLS; the settings of Members must say so too.
	// Default: they are not encrypted.
	PeerTLS *gateway.PeerTLS

	// Upgrades are the protocols that a client and an app may switch to with the header Upgrade;
	// the key is held until they do. For any other protocol the app gets the request without the
	// header. HTTP itself (h2c, h2, http, tls) is refused: its requests would pass with any key and
	// token, and without their keys held. Default: websocket; empty but not nil: none.
	Upgrades []string

	// TrustedProxies are the addresses whose Forwarded, X-Forwarded-… and X-Real-IP are believed
	// and added to. From all others these fields are replaced. Default: none.
	TrustedProxies []netip.Prefix

	// ProxyProtocol are the addresses of peers that begin each connection with a header of the
	// PROXY protocol, version 1 or 2, as TCP load balancers do. The address in it is the client's;
	// without an address over TCP in it, the connection keeps its own. The header is required from
	// these peers, within 10 s and 4 KiB, and refused from others. Default: none.
	ProxyProtocol []netip.Prefix

	// MaxConnectionsPerClient bounds the connections of each client (an IPv4 address, or an IPv6
	// network of 64 bits) to a [Server] of the router. When it is reached, a new connection makes
	// the longest idle ones of the client end, if they have been idle for at least a second. If
	// there is none, the new one is answered with 429 and closed. TrustedProxies and clients on the
	// same machine have no such bound.
	//
	// It also bounds each client's tunnels and requests to the server for requests without a key,
	// since they have connections of their own; MaxConnections bounds those of all clients. Beyond
	// either, a request is answered with 503. Default: a quarter of MaxConnections, at least 64.
	MaxConnectionsPerClient int

	// AccessLog gets a line for answered requests. Its creator starts and closes it. Default: none.
	AccessLog *accesslog.Log

	// TracerProvider makes spans of requests (docs/observability.md), as parts of the traces in
	// clients' Traceparent fields. The caller must shut it down. Default: none.
	TracerProvider trace.TracerProvider

	// TraceKeys puts keys into spans, and not only their hashes.
	TraceKeys bool

	Logger *slog.Logger // default: discard
}

// WithDefaults returns c with defaults for fields that are 0 or nil.
func (c Config) WithDefaults() Config {
	c, _ = c.complete()
	return c
}

// complete is WithDefaults, and returns an error about a negative field.
func (c Config) complete() (_ Config, err error) {
	o := c.options()
	err = o.Complete("router")
	c.Limits, c.Dial, c.Logger = o.Limits, o.Dial, o.Logger
	hop.Default(&err, "router: Config.ClientTimeout", &c.ClientTimeout, time.Minute)
	hop.Default(&err, "router: Config.MinBodyRate", &c.MinBodyRate, 1024)
	hop.Default(&err, "router: Config.MaxConnections", &c.MaxConnections, conns.Default(conns.MaxOpenFiles()))
	hop.Default(&err, "router: Config.MaxConnectionsPerClient", &c.MaxConnectionsPerClient, max(c.MaxConnections/4, minPerClient))
	return c, err
}

func (c *Config) options() send.Options {
	return send.Options{Members: c.Members, Limits: c.Limits, Dial: c.Dial, Own: c.Own, PeerTLS: c.PeerTLS, Logger: c.Logger}
}

func (c *Config) bodyBytes() int64 {
	return max(int64(c.ClientTimeout.Seconds()*float64(c.MinBodyRate)), 1)
}

// clientShare is the part of what a router has for bodies that one client may use: a
// quarter.
const clientShare = 4

// Router is an [http.Handler] that sends each request to the worker that owns
// the request's key. Make one with [New].
//
// Its routes say where the key stands, and what happens to a request without one. A request without
// a route is answered with 404.
//
// A request is sent to a second worker only if it has provably not started, because the first could
// not be reached or refused it. The answer is 400 if the key is missing or bad. It is 502 if the
// connection to the worker broke after the request was sent. It is 503 with Retry-After if the
// key's partition had no reachable owner for Limits.Hold.
//
// Requests read table without a lock; SetRoutes replaces it under changing.
type Router struct {
	workers  *send.Workers
	cfg      Config
	table    atomic.Pointer[table]
	budget   *spool.Pool // of bodies
	onward   onward
	counters counters
	log      *slog.Logger      // for what clients can bring about
	base     time.Time         // the router's start
	holds    metrics.Latencies // of requests that waited for an owner
	other    *traffic          // of requests that no route takes
	spans    *spans.Maker      // nil for none
	observes bool              // there is an access log, or spans

	changing sync.Mutex // guards lineage, unloaded, and the table's changes
	lineage  routes.Lineage
	unloaded error // why the file that Reload read last is not in force

	traffic sync.Map // *traffic by the routes' names
	servers sync.Map // by *Server, those that are not closed
}

// New returns a router, or an error that names the field of Config that is missing or out of range.
// The caller should call [Router.Close] after the last request.
func New(cfg Config) (*Router, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	workers, budget, err := cfg.options().Open("router", clientShare)
	switch {
	case err != nil:
		return nil, err
	case (len(cfg.Keys) == 0) == (cfg.Routes == nil):
		return nil, errors.New("router: set either Config.Keys or Config.Routes, to say where requests have their keys")
	case cfg.Routes == nil:
		cfg.Routes = routes.ForKeys(cfg.Keys, routes.WithoutKey{})
	}
	conns.WarnOfFiles(cfg.Logger, cfg.MaxConnections)
	rt := &Router{
		cfg:     cfg,
		log:     requestlog.New(cfg.Logger),
		workers: workers,
		budget:  budget,
		base:    time.Now(),
		onward:  onward{clients: make(map[netip.Addr]int)},
		spans:   spans.New(cfg.TracerProvider, cfg.TraceKeys),
	}
	rt.observes = cfg.AccessLog != nil || rt.spans != nil
	rt.other = rt.trafficOf(otherRoute)
	rt.workers.Routes.Waited = rt.holds.Observe
	if err := rt.SetRoutes(cfg.Routes); err != nil {
		return nil, err
	}
	return rt, nil
}

// Close closes the idle connections to workers. Requests that still run are
// not disturbed. It may be called more than once.
func (rt *Router) Close() error {
	rt.workers.Close()
	rt.table.Load().closeUnused(&table{})
	return nil
}

// Workers returns the connections to the workers, for a lockservice.Service.
func (rt *Router) Workers() *send.Workers { return rt.workers }

// Ready returns nil when there is a worker to send requests to, and no [Server] of the router has
// been told to leave. The error wraps [ring.ErrSettings] if there are workers, but of another store
// than the router's, or if there is a [ring.View.KeyConflict].
func (rt *Router) Ready() error {
	if rt.isLeaving() {
		return errors.New("leaving")
	}
	view := rt.cfg.Members.View()
	if view.KeyConflict != nil {
		return view.KeyConflict
	}
	if len(view.Table.Members()) > 0 {
		return nil
	}
	if refused := ring.ActiveWorkers(view.Refused); len(refused) > 0 {
		return hop.OtherStore(rt.cfg.Members.Settings().Store, refused[0])
	}
	return routing.ErrNoWorker
}

func (rt *Router) isLeaving() bool {
	for s := range rt.servers.Range {
		if s.(*Server).is(leaving) {
			return true
		}
	}
	return false
}

// trusts reports whether what the peer at that address says of clients is
// believed.
func (rt *Router) trusts(remote string) bool { return isFrom(rt.cfg.TrustedProxies, remote) }

// isFrom reports whether the peer at that address is in one of the networks. An address
// that is not of IP is in none.
func isFrom(networks []netip.Prefix, remote string) bool {
	if len(networks) == 0 {
		return false
	}
	peer, err := netip.ParseAddrPort(remote)
	return err == nil && isIn(networks, peer.Addr())
}

func isIn(networks []netip.Prefix, addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(addr) })
}

type counters struct {
	requests   metrics.Striped // that came
	clientGone atomic.Int64
	problems   [problem.Kinds]atomic.Int64 // answers of the router's own
	accepted   atomic.Int64                // connections of clients
	surplus    atomic.Int64                // of them, that were one too many for their client
}
