package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/keyway-go/keyway/fallback"
	"github.com/keyway-go/keyway/fallback/internal/stores"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/ring"
)

// Config configures a Store. The zero value is useful.
type Config struct {
	// Settings are those of the cluster's members, such as gossip.Cluster's method Settings
	// returns. Every key in Redis begins with {keyway:<Settings.Cluster>}: and so lies in one hash
	// slot. A quarantine lasts for Settings.TTL. Settings.Store is the store's former identity, if
	// known: a store that lost its data gets it back.
	Settings ring.Settings

	// NewCluster skips the quarantine of a store that holds nothing at all
	// of this cluster when Generation is called for the first time. It is
	// for a cluster's very first start: a Redis that lost its data looks the
	// same, and other workers may still own partitions then.
	NewCluster bool

	// Logger gets warnings: that the store cannot be used and why, once for each cause, and that it
	// answers again; why an empty or restarted store makes workers wait; and that a Redis may lose
	// data. Default: none.
	Logger *slog.Logger

	// Dial connects to the server, and Credentials returns its user name and password, in place of
	// those of the URL. Default: the URL's.
	Dial        func(ctx context.Context, network, addr string) (net.Conn, error)
	Credentials func() (name, password string)
}

// Store keeps sessions, records, residue and locks in Redis. Each call is one Lua script, hence
// atomic. It has the same effect when it is carried out twice, because go-redis repeats a command
// whose reply was lost.
//
// Data belongs to a generation, and a generation to one life of one server process as master. Each
// script compares the server's replication id and, if that is another one, its run id, and whether it
// was a replica meanwhile. Only an Observe that finds nothing new compares neither. A generation begins with
// the first script after a restart, a failover, a fail-back, a flush or the loss of one of the
// store's keys. So it does if the version is older than the handle knows. It begins with a
// quarantine of one TTL and ends every session, and the workers register again.
//
// The scripts need INFO, TIME, EVALSHA and PUBLISH (on a Redis Cluster SPUBLISH, so
// Redis 7).
//
// Renewals have connections of their own, so that no slow call delays them.
// A Store may be used from many goroutines.
type Store struct {
	client  redis.UniversalClient
	renewal redis.UniversalClient
	sharded bool // pub/sub of a Redis Cluster

	handle  *stores.Handle
	keys    []string
	channel string
	advised atomic.Bool // the warnings have been given

	content atomic.Pointer[content] // as of the latest Observe
	hinted  atomic.Int64            // version that a hint told of, until Observe has read it
}

//go:embed lua/*.lua
var ownershipScripts embed.FS

// New makes a store over the Redis of a URL (see [fallback.NewClient]). It does no network I/O; the
// first call reports an unreachable Redis.
func New(url string, cfg Config) (*Store, error) {
	handle, err := stores.NewHandle("store", cfg.Settings)
	if err != nil {
		return nil, err
	}
	options := func(o *redis.UniversalOptions) {
		handle.Place, handle.Password = placeOf(o), o.Password
		if cfg.Dial != nil {
			o.Dialer, o.CredentialsProvider = cfg.Dial, cfg.Credentials
		}
	}
	client, err := fallback.NewClient(url, options)
	if err != nil {
		return nil, err
	}
	// A second connection lets the next renewal begin while the first one hangs.
	renewal, err := fallback.NewClient(url, options, func(o *redis.UniversalOptions) { o.PoolSize = 2 })
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	cluster := handle.Given.Cluster
	s := &Store{
		client:  client,
		renewal: renewal,
		handle:  handle,
		keys:    ownershipKeys(cluster),
		channel: "{keyway:" + cluster + "}:changed",
	}
	handle.Kind, handle.CauseOf = "Redis", causeOf
	handle.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler)).With("store", handle.Place, "cluster", cluster)
	handle.NewCluster.Store(cfg.NewCluster)
	_, s.sharded = client.(*redis.ClusterClient)
	s.content.Store(new(content))
	return s, nil
}

// ownershipKeys are the keys of a cluster as prelude.lua takes them.
func ownershipKeys(cluster string) []string {
	var keys []string
	for _, name := range []string{"meta", "partitions", "locks", "written", "writes", "changes", "sessions", "details", "stamps", "members", "released", "gone", "starts"} {
		keys = append(keys, "{keyway:"+cluster+"}:"+name)
	}
	return keys
}

// scripts returns the scripts by their names, each behind the files that it needs.
var scripts = sync.OnceValue(func() map[string]*redis.Script {
	text := func(name string) string {
		body, err := ownershipScripts.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err) // the file was there when the program was built
		}
		return string(body)
	}
	guard := text("guard")
	prelude := guard + text("prelude")
	all := map[string]*redis.Script{"renew": redis.NewScript(guard + text("renew"))}
	for _, name := range []string{"settle", "generation", "advice", "register", "release", "observe", "apply", "clear", "clear_locks", "write_locks", "replace"} {
		all[name] = redis.NewScript(prelude + text(name))
	}
	return all
})

// Settings returns the settings of the store with their defaults, and the store's identity if it is
// known.
func (s *Store) Settings() ring.Settings { return s.handle.Settings() }

// Close ends every Watch and call, and waits for them. It may be called
// again.
func (s *Store) Close() error { return s.handle.Close(s.client, s.renewal) }

// run carries out a script under the generation that the caller knows ("" for any) and returns what follows the
// reply's status.
func (s *Store) run(ctx context.Context, client redis.UniversalClient, name, gen string, args ...any) (*stores.Fields, error) {
	return s.runAs(ctx, client, s.handle.Identity().String(), name, gen, args...)
}

// anyIdentity stands for that which the store has. A store without one is not begun.
const anyIdentity = "any"

// runAs is run with the identity for a store that has none; "" leaves it without.
func (s *Store) runAs(ctx context.Context, client redis.UniversalClient, identity, name, gen string, args ...any) (*stores.Fields, error) {
	publish, newCluster := "PUBLISH", "0"
	if s.sharded {
		publish = "SPUBLISH"
	}
	if s.handle.NewCluster.Load() {
		newCluster = "1"
	}
	given := s.handle.Given
	common := []any{rand.Text(), given.TTL.Milliseconds(), s.channel, publish, newCluster, identity, stores.SettingsText(given)}
	reply, err := s.guarded(ctx, client, name, gen, append(common, args...)...)
	return reply, s.handle.Failed(name, err)
}

// guarded carries out a script, which begins with guard.lua.
func (s *Store) guarded(ctx context.Context, client redis.UniversalClient, name, gen string, args ...any) (*stores.Fields, error) {
	version := int64(0)
	if known := s.content.Load(); known.generation == gen {
		version = known.version
	}
	argv := append([]any{gen, s.handle.Left(), version}, args...)
	values, err := call(ctx, s, func() ([]any, error) { return scripts()[name].Run(ctx, client, s.keys, argv...).Slice() })
	if err != nil {
		return nil, err
	}
	return s.openReply(values)
}

// openReply turns a reply's status into an error.
func (s *Store) openReply(values []any) (*stores.Fields, error) {
	f := stores.Values(values)
	switch status := f.Text(); status {
	case "ok":
		return f, nil
	case "generation":
		return nil, records.ErrGeneration
	case "gone":
		return nil, records.ErrSessionGone
	case "empty":
		return nil, stores.ErrEmpty
	case "unsettled":
		return nil, errUnsettled
	case "settings":
		difference := stores.Differ(s.handle.Given, f.Text())
		return nil, cmp.Or(f.End(), difference)
	default:
		return nil, fmt.Errorf("%w: status %q", stores.ErrFields, status)
	}
}
