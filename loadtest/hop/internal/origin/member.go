//go:build linux

package origin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/gossip"
)

// MemberConfig describes a Keyway worker.
type MemberConfig struct {
	Cluster string
	Name    string
	Join    string // gossip address of the router
	Redis   string // URL of the store
	Addr    string // where it takes requests
}

// Member is a Keyway worker with everything that ownership needs: gossip, a
// session and records in the store. How it takes requests is its user's
// choice.
type Member struct {
	*worker.Worker
	gossip *gossip.Cluster
	store  *store.Store
}

// Join starts a worker. The caller must call [Member.Leave].
func Join(ctx context.Context, cfg MemberConfig) (*Member, error) {
	logger := slog.New(slog.DiscardHandler)
	m := new(Member)
	var err error
	m.gossip, err = gossip.Start(ctx, gossip.Config{
		Settings: ring.Settings{Cluster: cfg.Cluster},
		Self:     ring.Member{Name: cfg.Name, Role: ring.RoleWorker, State: ring.StateJoining, Addr: cfg.Addr},
		Bind:     "127.0.0.1:0",
		Seeds:    []string{cfg.Join},
		Logger:   logger,
	})
	if err != nil {
		return nil, err
	}
	m.store, err = store.New(cfg.Redis, store.Config{Settings: m.gossip.Settings(), NewCluster: true, Logger: logger})
	if err == nil {
		m.Worker, err = worker.Start(ctx, worker.Config{
			Members: m.gossip, Store: m.store, NewCluster: true, OnPeers: m.gossip.AddSeeds, Logger: logger,
		})
	}
	if err != nil {
		m.Leave()
		return nil, err
	}
	return m, nil
}

// Leave stops the worker without handing anything over.
func (m *Member) Leave() {
	if m.Worker != nil {
		m.Worker.Close()
	}
	if m.store != nil {
		m.store.Close()
	}
	m.gossip.Close()
}

// AwaitAll waits until the members serve all partitions between them.
func AwaitAll(ctx context.Context, members []*Member) error {
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		serving := 0
		for _, m := range members {
			serving += m.Serving()
		}
		if serving == ring.DefaultPartitions {
			return nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return fmt.Errorf("origin: the members serve %d of %d partitions: %w", serving, ring.DefaultPartitions, context.Cause(ctx))
		}
	}
}

// LinkHandler answers a request whose key is held.
type LinkHandler func(w *link.ResponseWriter, r *link.ServerRequest)

// ServeLink takes requests from routers over the link, and answers without
// net/http what it may answer: exclusion, deadlines and tokens are the same as
// behind [gateway.Server].
func (m *Member) ServeLink(l net.Listener, h LinkHandler) error {
	if err := m.gossip.Announce(func(self *ring.Member) { self.Link = true }); err != nil {
		return err
	}
	settings := m.gossip.Settings()
	s := &link.Server{
		Config: link.Config{Cluster: settings.Cluster, Digest: settings.Digest(), Logger: slog.New(slog.NewTextHandler(io.Discard, nil))},
		Handler: link.HandlerFunc(func(w *link.ResponseWriter, r *link.ServerRequest) {
			err := m.Do(r.Context(), r.Key, func(worker.Execution) error { h(w, r); return nil })
			if err != nil {
				refuse(w, err)
			}
		}),
	}
	return s.Serve(l)
}

func refuse(w *link.ResponseWriter, err error) {
	refusal := &link.RefusedError{Reason: link.Unavailable}
	if notOwner, ok := errors.AsType[*worker.NotOwnerError](err); ok {
		refusal = &link.RefusedError{Reason: link.NotOwner, Owner: notOwner.Owner, Addr: notOwner.Addr, Epoch: notOwner.Epoch}
	} else if _, ok := errors.AsType[*worker.UnownedError](err); ok {
		refusal = &link.RefusedError{Reason: link.NotOwner}
	}
	_ = w.Refuse(refusal) // fails only if the connection does
}

// Guard returns a guard that holds keys as the worker does.
func (m *Member) Guard(key string, answer func()) error {
	return m.Do(context.Background(), key, func(worker.Execution) error { answer(); return nil })
}
