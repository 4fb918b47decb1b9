package offered

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"strings"
	"time"

	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/internal/wake"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/gossip"
)

const (
	hostInterval = time.Second     // between two attempts to become the host, give or take a quarter
	beginTimeout = 5 * time.Second // for the store's first call
)

// HostConfig configures a [Host].
type HostConfig struct {
	Name       string        // of the process; the host's own is made of it
	Addr       string        // gossip address at which the others look for the store
	Settings   ring.Settings // of the cluster
	Keyring    [][]byte      // as gossip.Config
	NewCluster bool          // skip the quarantine of a store that is begun at the first attempt
	Logger     *slog.Logger
}

// Host runs the store of all processes of a machine, one Host at a time. The process that binds
// HostConfig.Addr, which only one can, is a member of the cluster there and offers a store in its
// memory. When it ends, another Host takes over with an empty store. That store begins only after
// the address is bound, and so after the former store has ended.
type Host struct {
	cfg     HostConfig
	retire  func() // ends run, which owns what follows until then
	members *gossip.Cluster
	store   *store.Embedded
}

// StartHost tries to become the host. If another process is, it tries again in the background until
// it is the host, or [Host.Retire] or [Host.Close] is called. ctx bounds the first attempt. An
// error is about the configuration.
func StartHost(ctx context.Context, cfg HostConfig) (*Host, error) {
	h := &Host{cfg: cfg}
	hosts, err := h.becomeHost(ctx, cfg.NewCluster)
	if err != nil {
		return nil, err
	}
	h.retire = wake.Background(func(ctx context.Context) {
		if !hosts {
			h.run(ctx)
		}
	})
	return h, nil
}

// run tries to become the host.
func (h *Host) run(ctx context.Context) {
	for wake.Sleep(hostInterval*3/4+mathrand.N(hostInterval/2), ctx.Done()) {
		hosts, err := h.becomeHost(ctx, false)
		switch {
		case hosts:
			return
		case err != nil && ctx.Err() == nil:
			h.cfg.Logger.Error("cannot run the store that the processes of this machine use", "addr", h.cfg.Addr, "error", err)
		}
	}
}

// becomeHost becomes the host, unless another process has the address.
func (h *Host) becomeHost(ctx context.Context, newCluster bool) (hosts bool, err error) {
	members, err := gossip.Start(ctx, gossip.Config{
		Settings: h.cfg.Settings,
		Self:     ring.Member{Name: "store-" + strings.ToValidUTF8(h.cfg.Name[:min(len(h.cfg.Name), 100)], ""), Role: ring.RoleRouter, State: ring.StateActive},
		Bind:     h.cfg.Addr,
		Keyring:  h.cfg.Keyring,
		Logger:   slog.New(warnings{h.cfg.Logger.Handler()}),
	})
	if errors.Is(err, gossip.ErrBind) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	embedded, err := Offer(ctx, members, newCluster)
	if err != nil {
		members.Close()
		return false, err
	}
	h.cfg.Logger.Warn("without Redis this process keeps ownership in its own memory, for the processes of this machine only; when it ends, another one starts with an empty store", "store", embedded.Addr(), "gossip", members.Addr())
	h.members, h.store = members, embedded
	return true, nil
}

// Offer starts a store in this process's memory, begins it and tells the members of it. No other process may
// offer one to them.
func Offer(ctx context.Context, members *gossip.Cluster, newCluster bool) (*store.Embedded, error) {
	embedded, err := store.StartEmbedded("127.0.0.1:0", rand.Text())
	if err != nil {
		return nil, err
	}
	err = beginGeneration(ctx, embedded.URL(), store.Config{Settings: members.Settings(), NewCluster: newCluster})
	if err == nil {
		err = members.Announce(func(self *ring.Member) { self.Store = embedded.URL() })
	}
	if err != nil {
		embedded.Close()
		return nil, fmt.Errorf("offered: %w", err)
	}
	return embedded, nil
}

func beginGeneration(ctx context.Context, url string, cfg store.Config) error {
	s, err := store.New(url, cfg)
	if err != nil {
		return err
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(ctx, beginTimeout)
	defer cancel()
	return s.Begin(ctx)
}

// Retire makes the Host begin no further store. A running store continues.
func (h *Host) Retire() { h.retire() }

// Close ends the store, and only then gives the address free. It may be called
// again.
func (h *Host) Close() {
	h.Retire()
	if h.store == nil {
		return
	}
	h.store.Close()
	_ = h.members.Leave(context.Background()) // the others find out
	h.members, h.store = nil, nil
}

// warnings drops what the process's own membership logs too.
type warnings struct{ slog.Handler }

func (w warnings) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && w.Handler.Enabled(ctx, l)
}

func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(attrs)}
}

func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }
