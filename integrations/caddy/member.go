package caddykeyway

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap/exp/zapslog"

	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/gossip"
)

// members are those of this process, by their places. Those that a new configuration has too stay while it replaces the old
// one: the port of gossip can be bound only once.
var members = caddy.NewUsagePool()

// place is all that makes one member another than the next.
type place struct {
	join, gossip, advertise, key string
	open                         bool
	settings                     ring.Settings
}

// placeOf replaces the placeholders.
func (u *Upstreams) placeOf(repl *caddy.Replacer) (place, error) {
	p := place{
		join: strings.Join(u.Join, ","), gossip: u.Gossip, advertise: u.GossipAdvertise, key: u.GossipKey, open: u.GossipOpen,
		settings: ring.Settings{Cluster: u.Cluster, Ring: ring.Config{Partitions: u.Partitions}, TTL: time.Duration(u.SessionTTL), PeerTLS: u.PeerTLS},
	}
	for name, text := range map[string]*string{"join": &p.join, "gossip": &p.gossip, "gossip_advertise": &p.advertise, "gossip_key": &p.key} {
		var err error
		if *text, err = repl.ReplaceOrErr(*text, true, true); err != nil {
			return p, fmt.Errorf("%s: %w", name, err)
		}
	}
	if p.join == "" {
		return p, errors.New("join is empty, want the gossip address of a worker at least")
	}
	return p, nil
}

// take returns the member at the place, which ends when each that has taken it has left.
func (p place) take(ctx context.Context) (*member, error) {
	m, _, err := members.LoadOrNew(p, func() (caddy.Destructor, error) { return p.start(ctx) })
	if err != nil {
		return nil, err
	}
	return m.(*member), nil
}

// leave takes back a take.
func (p place) leave() error {
	_, err := members.Delete(p)
	return err
}

func (p place) start(ctx context.Context) (*member, error) {
	cfg := gossip.Config{
		Settings: p.settings, Self: ring.Member{Name: "caddy-" + rand.Text()[:10], Role: ring.RoleRouter, State: ring.StateActive},
		Bind: p.gossip, Advertise: p.advertise, Open: p.open,
		Seeds:  strings.FieldsFunc(p.join, func(c rune) bool { return c == ',' || c == ' ' }),
		Logger: slog.New(logHandler{func(h slog.Handler) slog.Handler { return h }}),
	}
	if p.key != "" {
		var err error
		if cfg.Keyring, err = gossip.ParseKeyring(p.key); err != nil {
			return nil, fmt.Errorf("gossip_key: %w", err)
		}
	}
	cluster, err := gossip.Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &member{cluster}, nil
}

// member is a member of a cluster that owns no keys.
type member struct{ *gossip.Cluster }

// Destruct implements [caddy.Destructor]. It takes two seconds at most.
func (m *member) Destruct() error { return m.Leave(context.Background()) }

// logHandler logs to Caddy's present log, since a member may outlive the configuration that it began with.
type logHandler struct {
	with func(slog.Handler) slog.Handler
}

func (l logHandler) now() slog.Handler {
	const never = slog.Level(127) // a stack trace
	return l.with(zapslog.NewHandler(caddy.Log().Core(), zapslog.WithName(moduleID), zapslog.AddStacktraceAt(never)))
}

func (l logHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return l.now().Enabled(ctx, level)
}
func (l logHandler) Handle(ctx context.Context, r slog.Record) error { return l.now().Handle(ctx, r) }
func (l logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logHandler{func(h slog.Handler) slog.Handler { return l.with(h).WithAttrs(attrs) }}
}
func (l logHandler) WithGroup(name string) slog.Handler {
	return logHandler{func(h slog.Handler) slog.Handler { return l.with(h).WithGroup(name) }}
}
