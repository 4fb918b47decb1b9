package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/keyway-go/keyway/fallback"
	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/console"
	"github.com/keyway-go/keyway/internal/tracing"
	"github.com/keyway-go/keyway/internal/wake"
	"github.com/keyway-go/keyway/internal/wire/grammar"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/gossip"
)

// Common holds the flags that router and worker have in common.
type Common struct {
	Keys         gateway.KeySources
	Upgrades     []string         // of --upgrade; not nil
	Gossip       gossip.Config    // without Self and Logger
	PeerTLS      *gateway.PeerTLS // nil for none
	Store        string           // URL of --store or --redis; "" for none
	NewCluster   bool
	DrainTimeout time.Duration
	AdminToken   string          // of --admin-token or its file; "" for none
	AdminHosts   []string        // of --admin-host
	Traces       *tracing.Config // of the environment; nil for none
	TraceKeys    bool

	peer    peerTLS
	redis   string // of --redis
	log     logFlags
	hangups chan os.Signal // SIGHUP, from Parse until the stop of Logger

	mu    sync.Mutex // guards looks, and is held while they are called
	looks []func(hangup bool)
}

// Define defines the flags, with the defaults of --gossip and --join. The
// caller may add to the groups, which are Requests, Cluster, Ownership and Log.
func (c *Common) Define(f *Flags, bind string, join []string) {
	settings, defaults := &c.Gossip.Settings, ring.Settings{}.WithDefaults()
	f.Group("Requests")
	f.File()
	byDefault, _ := gateway.ParseKeySource("header:X-Key")
	AddList(f, (*[]gateway.KeySource)(&c.Keys), "key", " ", []gateway.KeySource{byDefault}, "`source` of the key: header:NAME, query:NAME, cookie:NAME, path:PATTERN (such as path:/orders/{key}), json:POINTER (such as json:/order/id), grpc:NAME, host or client; several, separated by spaces or by repeating the flag, must agree where a request has them. The same on all routers; a worker needs it for requests that come without a router", gateway.ParseKeySource)
	AddList(f, &c.Upgrades, "upgrade", ", ", []string{"websocket"}, "`protocols`, separated by commas, to which a client and the app may change by the header Upgrade; a request for another one goes on without that header. none: no protocol. The same on routers and workers", func(s string) (string, error) { return s, grammar.CheckUpgrade(s) })
	f.Token(&c.AdminToken, "admin-token", "`token` that requests to --admin need to change something, in the header Authorization: Bearer; empty: they must come from this machine")
	f.List(&c.AdminHosts, "admin-host", ", ", nil, "`names`, separated by commas, by which clients reach --admin and --locks, in addition to localhost and their addresses. Requests for another host get 403 unless they have the token")
	f.Group("Cluster")
	f.String(&settings.Cluster, "cluster", defaults.Cluster, "`name` of the cluster; members of another one are refused")
	f.Address(&c.Gossip.Bind, "gossip", bind, "`address` for gossip, UDP and TCP")
	f.String(&c.Gossip.Advertise, "gossip-advertise", "", "host or host:port `address` at which members reach --gossip, if it is another one")
	f.List(&c.Gossip.Seeds, "join", ", ", join, "gossip `addresses` of members to join, separated by commas; may be repeated")
	f.Var((*keyring)(&c.Gossip.Keyring), "gossip-key", "`keys` that encrypt gossip, 16, 24 or 32 bytes in hex or base64, separated by commas; the first one encrypts. Needed if --gossip can be reached from other machines")
	f.Bool(&c.Gossip.Open, "gossip-open", "without --gossip-key, let anyone who reaches --gossip from other machines join as a worker and get requests")
	f.Int(&settings.Ring.Partitions, "partitions", defaults.Ring.Partitions, 1, "`number` of partitions, the same on all members and fixed for the life of a cluster")
	c.peer.define(f)
	f.Group("Ownership")
	f.String(&c.Store, "store", "", "`URL` of the store that records who owns which keys, the same on all members: a Redis (redis://host:6379) or an etcd (etcd://a:2379,b:2379,c:2379). Without it a router runs a store of its own, for workers on the same machine")
	f.String(&c.redis, "redis", "", "`URL` of a Redis: short for --store")
	f.Duration(&settings.TTL, "session-ttl", defaults.TTL, ring.MinSessionTTL, "`time` after which other workers take over the keys of one that died, the same on all members")
	f.Bool(&c.NewCluster, "new-cluster", "do not wait for one --session-ttl before the first claim on an empty store; only for the very first start of a cluster")
	f.Duration(&c.DrainTimeout, "drain-timeout", 25*time.Second, 0, "`time` from SIGTERM on to finish requests and to hand partitions over")
	f.Group("Log")
	c.log.define(f)
	f.Bool(&c.TraceKeys, "trace-keys", "put keys into spans, and not only their hashes. Spans are made if OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_TRACES_EXPORTER is set in the environment (docs/observability.md)")
}

// Parse parses the arguments as Flags.Parse does, and checks the values. Unless it fails, SIGHUP ends nothing from now
// on, and waits for Logger.
func (c *Common) Parse(f *Flags, args []string, w io.Writer) (err error) {
	c.hangups = make(chan os.Signal, 1)
	signal.Notify(c.hangups, syscall.SIGHUP) // before files are read, whose change it may tell of
	defer func() {
		if err != nil {
			signal.Stop(c.hangups)
		}
	}()
	if err := f.Parse(args, w); err != nil {
		return err
	}
	if c.Store != "" && c.redis != "" {
		return Usagef("--store and --redis exclude each other")
	}
	c.Store = cmp.Or(c.Store, c.redis)
	if slices.Equal(c.Upgrades, []string{"none"}) {
		c.Upgrades = []string{}
	}
	c.Gossip.Settings.KeySource = c.Keys.String()
	if c.Traces, err = tracing.Environment("keyway-" + f.name); err != nil {
		return Usagef("%v", err)
	}
	if c.PeerTLS, err = c.peer.load(); err != nil {
		return err
	}
	c.Gossip.Settings.PeerTLS, c.Gossip.Settings.PeerTLSOptional = c.PeerTLS != nil, c.peer.config.Optional
	if err := c.Gossip.Settings.Validate(); err != nil {
		return Usagef("%v", err)
	}
	return nil
}

// Logger returns the logger that the flags ask for, which writes to w. It gets
// what go-redis logs, too. Until stop is called, files are followed.
func (c *Common) Logger(w io.Writer) (logger *slog.Logger, stop func()) {
	logger = c.log.logger(w)
	fallback.LogRedis(logger, slog.LevelDebug)
	unfollow := wake.Background(func(ctx context.Context) { c.follow(ctx, c.hangups, logger) })
	return logger, func() {
		signal.Stop(c.hangups)
		unfollow()
	}
}

// logFlags holds the flags of a command's log.
type logFlags struct {
	format string
	level  slog.Level
}

func (l *logFlags) define(f *Flags) {
	f.Choice(&l.format, "log", "`format` of the log on standard error: console (for people, in colour on a terminal unless NO_COLOR is set), text (key=value), json, or auto: console on a terminal, else text", "auto", "console", "text", "json")
	f.Var((*level)(&l.level), "log-level", "lowest `level` that is logged: debug, info, warn or error")
}

// logger returns the logger that the flags ask for, which writes to w.
func (l *logFlags) logger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: l.level}
	switch {
	case l.format == "json":
		return slog.New(slog.NewJSONHandler(w, options))
	case l.format == "console", l.format == "auto" && console.IsTerminal(w):
		return slog.New(console.New(w, options, console.HasColor(w)))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

type level slog.Level

func (l *level) String() string { return strings.ToLower(slog.Level(*l).String()) }

func (l *level) Set(s string) error {
	if err := (*slog.Level)(l).UnmarshalText([]byte(s)); err != nil {
		return fmt.Errorf("%q is none of debug, info, warn, error", s)
	}
	return nil
}

// keyring is the value of --gossip-key, see [gossip.ParseKeyring].
type keyring [][]byte

// String returns nothing, so that no help and no log shows a key.
func (k *keyring) String() string { return "" }

func (k *keyring) separator() string { return "," }

// Set reads keys, which replace the former ones.
func (k *keyring) Set(s string) error {
	keys, err := gossip.ParseKeyring(s)
	if err == nil {
		*k = keys
	}
	return err
}
