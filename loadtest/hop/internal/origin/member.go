//go:build linux

package origin

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/gossip"
)

// MemberConfig describes a Keyway worker.
type MemberConfig struct {
	Cluster   string
	Name      string
	Join      string                // gossip address of the router
	Redis     string                // URL of the store
	Addr      string                // where it takes requests
	GossipKey string                // in hex; empty for none
	Peers     gateway.PeerTLSConfig // zero for no TLS between members
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
	keys, err := keyring(cfg.GossipKey)
	if err != nil {
		return nil, err
	}
	var peers *gateway.PeerTLS
	if cfg.Peers != (gateway.PeerTLSConfig{}) {
		if peers, err = gateway.LoadPeerTLS(cfg.Peers); err != nil {
			return nil, err
		}
	}
	m := new(Member)
	m.gossip, err = gossip.Start(ctx, gossip.Config{
		Settings: ring.Settings{Cluster: cfg.Cluster, PeerTLS: peers != nil},
		Self:     ring.Member{Name: cfg.Name, Role: ring.RoleWorker, State: ring.StateJoining, Addr: cfg.Addr},
		Bind:     "127.0.0.1:0",
		Seeds:    []string{cfg.Join},
		Keyring:  keys,
		Logger:   logger,
	})
	if err != nil {
		return nil, err
	}
	m.store, err = store.New(cfg.Redis, store.Config{Settings: m.gossip.Settings(), NewCluster: true, Logger: logger})
	if err == nil {
		m.Worker, err = worker.Start(ctx, worker.Config{
			Members: m.gossip, Store: m.store, NewCluster: true, OnPeers: m.gossip.AddSeeds, PeerTLS: peers, Logger: logger,
		})
	}
	if err != nil {
		m.Leave()
		return nil, err
	}
	return m, nil
}

// keyring returns the keys of gossip, of which there is one in hex or none.
func keyring(key string) ([][]byte, error) {
	if key == "" {
		return nil, nil
	}
	secret, err := hex.DecodeString(key)
	if err != nil {
		return nil, fmt.Errorf("origin: the gossip key: %w", err)
	}
	return [][]byte{secret}, nil
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
	partitions := ring.Settings{}.WithDefaults().Ring.Partitions
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		serving := 0
		for _, m := range members {
			serving += m.Serving()
		}
		if serving == partitions {
			return nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return fmt.Errorf("origin: the members serve %d of %d partitions: %w", serving, partitions, context.Cause(ctx))
		}
	}
}

// LinkHandler answers a request whose key is held.
type LinkHandler func(w *link.ResponseWriter, r *link.ServerRequest)

// LinkHandler returns a handler for [worker.Worker.NewServer] that answers what comes
// from routers over the link without net/http: exclusion, deadlines and tokens are the
// same as behind any other.
func (m *Member) LinkHandler(h LinkHandler) http.Handler { return &linkHandler{m, h} }

type linkHandler struct {
	member *Member
	answer LinkHandler
}

// ServeHTTP implements [http.Handler], for those who do not come over the link.
func (h *linkHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) }

// ServeLink implements [link.Handler].
func (h *linkHandler) ServeLink(w *link.ResponseWriter, r *link.ServerRequest) {
	err := h.member.Do(r.Context(), r.Key, func(gateway.Execution) error { h.answer(w, r); return nil })
	if err != nil {
		refuse(w, err)
	}
}

func refuse(w *link.ResponseWriter, err error) {
	refusal := &link.RefusedError{Reason: link.Unavailable}
	if notOwner, ok := errors.AsType[*gateway.NotOwnerError](err); ok {
		refusal = &link.RefusedError{Reason: link.NotOwner, Owner: notOwner.Owner, Addr: notOwner.Addr, Epoch: notOwner.Epoch}
	} else if _, ok := errors.AsType[*gateway.UnownedError](err); ok {
		refusal = &link.RefusedError{Reason: link.NotOwner}
	}
	_ = w.Refuse(refusal) // fails only if the connection does
}

// Guard returns a guard that holds keys as the worker does.
func (m *Member) Guard(key string, answer func()) error {
	return m.Do(context.Background(), key, func(gateway.Execution) error { answer(); return nil })
}
