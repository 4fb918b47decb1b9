package keyway

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/keysource"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/gossip"
)

// Config says who a node is and where it finds the others. The zero value is a node of this
// machine. Errors of [Start] name the field and, in parentheses, the flag of cmd/worker that sets
// it.
type Config struct {
	// Name is unique in the cluster and places the node on the ring; keep it across
	// restarts. Default: the host's name and the port of Listen.
	Name string

	// Listen is the host:port for requests and calls of other nodes. Default 127.0.0.1:0, a free
	// port. Listener is an open listener that replaces Listen.
	Listen   string
	Listener net.Listener

	// Advertise is the host or host:port at which the others reach Listen. Default: Listen, or the
	// host of GossipAdvertise or Gossip if Listen is every address.
	Advertise string

	// AdminToken is required of POST requests at Admin in the header Authorization, after Bearer.
	// Default: they must come from this machine.
	AdminToken string

	// AdminHosts are names of this process at Admin, in addition to localhost and its addresses;
	// see admin.Config.Hosts. Default: none.
	AdminHosts []string

	// Admin is the host:port for operators. They can see what the node does, see admin.New, and by
	// POST requests make it leave the ring and return. Default: none.
	Admin string

	// Gossip is the host:port for gossip, over UDP and TCP, and GossipAdvertise the
	// host or host:port at which the others reach it, if that is another one.
	// Default 127.0.0.1:0, a free port.
	Gossip, GossipAdvertise string

	// Join are gossip addresses of members: of a router, or of some nodes. Default: 127.0.0.1:7946,
	// the address of a router on this machine, if Gossip is on this machine only.
	Join []string

	// GossipKeys encrypt gossip, as gossip.Config.Keyring. Without them Gossip and GossipAdvertise
	// must be on this machine only, unless GossipOpen allows any process that reaches them to join.
	// (--gossip-key, --gossip-open)
	GossipKeys [][]byte
	GossipOpen bool

	// PeerTLS enables mutual TLS between members. All members must use it, or none, unless PeerTLS
	// is optional. It does not replace GossipKeys, since gossip says where the members are. With
	// Direct, others use TLS too, without a certificate. Default: members' connections are not
	// encrypted.
	PeerTLS *gateway.PeerTLS

	// Redis is the URL of the Redis that stores who owns each partition, as fallback.NewClient
	// takes it. It is the same for all members. Without it, all members must be on one machine. The
	// node then uses the store that a router, or another node, keeps in its memory at the first
	// address of Join, or keeps one there if that address is free. When the process with the store
	// ends, another node replaces it. A program that always has a Redis can leave that store out
	// with go build -tags keyway_redis.
	Redis string

	// Store opens the store in place of Redis, such as one in etcd:
	//
	//	func(c store.Config) (keyway.Store, error) { return etcd.New("etcd://10.0.0.1:2379", c) }
	//
	// The node closes it.
	Store func(store.Config) (Store, error)

	// Offered makes a node without Redis and Store wait for the store of another process, and never
	// keep one.
	Offered bool

	// ServeWithoutStore keeps serving while the store cannot be reached, see worker.Config. It is
	// unsafe if the network is split. Default: stop.
	ServeWithoutStore bool

	// NoPlacement keeps this node from balancing the load of the cluster (docs/placement.md). It goes by the
	// placements of other nodes and of operators all the same. Default: it balances if it is its turn.
	NoPlacement bool

	// NewCluster skips the wait of one Settings.TTL before the first claim in an empty store, which
	// looks like one that has lost its data. It is for the very first start of a cluster only.
	NewCluster bool

	// Settings are common to all members; a member with others is refused. Its KeySource, PeerTLS
	// and Store must be empty.
	Settings ring.Settings

	// Direct makes the node take requests that come neither through a router nor from a Client.
	// Default: they get 403, since their senders could choose any key.
	Direct bool

	// Keys find the key in requests that Direct allows. Default: the header Keyway-Key,
	// percent-encoded.
	Keys gateway.KeySources

	// LockFile is the path of a file that is locked while the node lives. With it the next start
	// can prove that this process is dead, and takes over its keys at once. Default: they are taken
	// over after one TTL.
	LockFile string

	// Witness is a pattern (path/filepath.Match) of lock files of nodes on this machine, such as
	// /run/keyway/*.lock. When one of their processes dies, this node learns it from the kernel
	// within 50 ms and lets its keys be taken over. If the app at that node's Upstream may still work
	// for it, that is up to 0.15 Settings.TTL later. It watches up to eight files, which follow LockFile in the order of their
	// names. Default: none.
	Witness string

	// Supervisor is for cmd/worker: a socket to the process that supervises this one, and keeps the
	// connections to Upstream too. When this process is killed, they show when the app has ended.
	Supervisor *os.File

	// Handler takes requests from Start on, as [Node.Serve] says. Instead, an app at the URL
	// Upstream can take them, as sidecar.New says; the node has keys while the app answers. App has
	// details of either. Its GRPC follows from an Upstream h2c://. Default: requests get 503 until
	// Serve. Routers repeat them, so a request for a key that moves here waits until Start returns.
	Handler  http.Handler
	Upstream *url.URL
	App      worker.App

	// Metrics are additional collectors for Admin, along with the node's own. Default: none.
	Metrics []prometheus.Collector

	// DrainTimeout bounds how long [Node.Close], [Node.Drain] and the end of [Node.Serve] hand over
	// keys and wait for running executions. Default 30 s.
	DrainTimeout time.Duration

	// Limits bound the node's queues, waits, memory and connections.
	Limits worker.Limits

	// TracerProvider makes spans of the node's executions and of its Client's requests, see
	// worker.Config and client.Config. The caller must shut it down. TraceKeys adds keys to the
	// spans as well as their hashes. Default: none.
	TracerProvider trace.TracerProvider
	TraceKeys      bool

	// Logger gets messages for operators. The Redis library's own log, one for the whole process,
	// is off unless fallback.LogRedis was called before, see fallback.NewClient. Default: discard.
	Logger *slog.Logger
}

// meeting is where the members of one machine find each other by default.
const meeting = "127.0.0.1:" + gossip.DefaultPort

// bad returns an [ErrConfig].
func bad(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrConfig, fmt.Errorf(format, args...))
}

// Store is what Config.Store opens. Package fallback/etcd has one in etcd.
type Store interface {
	worker.Store
	// Ping returns an error if the store cannot be used. It changes nothing.
	Ping(ctx context.Context) error
	// Peers returns the gossip addresses of the sessions. It changes nothing.
	Peers(ctx context.Context) ([]string, error)
	Close() error
}

// settingOfStore names the field that says where the store is.
func (c *Config) settingOfStore() string {
	if c.Redis != "" {
		return "Config.Redis (--redis)"
	}
	return "Config.Store (--store or --redis)"
}

// complete returns c with its defaults, or an error that names the field that is
// wrong.
func (c Config) complete() (Config, error) {
	for _, address := range []struct{ field, value string }{
		{"Listen (--listen)", c.Listen}, {"Admin (--admin)", c.Admin}, {"Gossip (--gossip)", c.Gossip},
	} {
		if _, _, err := net.SplitHostPort(address.value); address.value != "" && err != nil {
			return c, bad("Config.%s is %q, want host:port", address.field, address.value)
		}
	}
	_, noPattern := filepath.Match(c.Witness, "")
	switch {
	case c.Listen != "" && c.Listener != nil:
		return c, bad("Config.Listen and Config.Listener both say where to take requests: leave one out")
	case c.Handler != nil && c.Upstream != nil:
		return c, bad("Config.Handler and Config.Upstream both take requests: leave one out")
	case c.Upstream != nil && c.Upstream.Scheme == "h2c" && c.App.Batch != "":
		return c, bad("Config.App.Batch (--batch) needs an app of HTTP/1.1, and Config.Upstream (--upstream) is %s", c.Upstream)
	case c.Redis != "" && c.Store != nil:
		return c, bad("Config.Redis and Config.Store both say where the store is: leave one out")
	case c.Redis == "" && c.Store == nil && !c.Offered && !store.HasEmbedded:
		return c, bad("Config.Redis (--redis) is empty, and this program was built with -tags keyway_redis, without a store of its own: give the URL of a Redis, or set Config.Offered")
	case (c.Redis != "" || c.Store != nil) && c.Offered:
		return c, bad("Config.Offered is for a node without Config.Redis (--redis) and Config.Store (--store): leave one out")
	case c.DrainTimeout < 0:
		return c, bad("Config.DrainTimeout (--drain-timeout) is %v, want at least 0", c.DrainTimeout)
	case noPattern != nil:
		return c, bad("Config.Witness (--witness) is %q, want a pattern of files such as /run/keyway/*.lock", c.Witness)
	case c.Settings.KeySource != "":
		return c, bad("Config.Settings.KeySource is for routers: say with Config.Keys where requests have their keys")
	case c.Settings.PeerTLS, c.Settings.PeerTLSOptional:
		return c, bad("Config.Settings.PeerTLS follows from Config.PeerTLS (--peer-cert): leave it out")
	case c.Settings.Store != 0:
		return c, bad("Config.Settings.Store is not known before the store is opened: leave it out")
	}
	if err := c.Settings.Validate(); err != nil {
		return c, bad("Config.Settings: %s", strings.TrimPrefix(err.Error(), ring.ErrConfig.Error()+": "))
	}
	if dir := c.Limits.BodyDir; dir != "" {
		f, err := os.CreateTemp(dir, "keyway-*")
		if err != nil {
			return c, bad("Config.Limits.BodyDir (--body-dir): %w", err)
		}
		f.Close()
		_ = os.Remove(f.Name())
	}
	c.Settings.PeerTLS, c.Settings.PeerTLSOptional = c.PeerTLS != nil, c.PeerTLS != nil && c.PeerTLS.Optional()
	c.Gossip = cmp.Or(c.Gossip, "127.0.0.1:0")
	if c.Join == nil && c.oneMachine() {
		c.Join = []string{meeting}
	}
	c.Join = slices.Clone(c.Join)
	if redis := c.Redis; redis != "" {
		c.Store = func(cfg store.Config) (Store, error) { return store.New(redis, cfg) }
	}
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 30*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c, nil
}

// oneMachine reports whether gossip cannot reach another machine.
func (c *Config) oneMachine() bool {
	return isLoopback(c.Gossip) && (c.GossipAdvertise == "" || isLoopback(c.GossipAdvertise)) &&
		!slices.ContainsFunc(c.Join, func(addr string) bool { return !isLoopback(addr) })
}

// isLoopback reports whether a host or host:port is of this machine alone.
func isLoopback(addr string) bool {
	ip := net.ParseIP(keysource.HostOf(addr))
	return keysource.HostOf(addr) == "localhost" || ip != nil && ip.IsLoopback()
}

// hostAt returns the gossip address at which a node without a store keeps one if no other process
// does, "" if it must not.
func (c *Config) hostAt() string {
	if c.Store != nil || c.Offered || !c.oneMachine() || len(c.Join) == 0 {
		return ""
	}
	if host, port, err := net.SplitHostPort(c.Join[0]); err == nil {
		return net.JoinHostPort(host, port)
	}
	return net.JoinHostPort(c.Join[0], gossip.DefaultPort)
}

// advertised returns where the others reach listen.
func (c *Config) advertised(listen net.Addr) (string, error) {
	host, port, err := net.SplitHostPort(listen.String())
	if err != nil {
		return "", err
	}
	if c.Advertise != "" {
		h, p, err := net.SplitHostPort(c.Advertise)
		if err != nil {
			h, p = c.Advertise, port
		}
		if _, err := strconv.ParseUint(p, 10, 16); err != nil || h == "" || strings.Contains(h, "/") {
			return "", bad("Config.Advertise (--advertise) is %q, want host or host:port", c.Advertise)
		}
		return net.JoinHostPort(h, p), nil
	}
	switch ip, gossip := net.ParseIP(host), keysource.HostOf(cmp.Or(c.GossipAdvertise, c.Gossip)); {
	case ip.IsLoopback() && !isLoopback(gossip):
		return "", bad("Config.Listen (--listen) %s is of this machine alone, but gossip (%s) is not: listen where other machines reach this one, or say where they do with Config.Advertise (--advertise)", listen, gossip)
	case ip != nil && !ip.IsUnspecified():
		return listen.String(), nil
	case gossip != "" && !net.ParseIP(gossip).IsUnspecified():
		return net.JoinHostPort(gossip, port), nil
	}
	return "", bad("Config.Listen (--listen) %s is every address of this machine: say with Config.Advertise (--advertise) at which one routers reach it", listen)
}
