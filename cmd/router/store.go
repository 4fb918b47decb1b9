package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"time"

	"github.com/keyway-go/keyway/fallback"
	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/gossip"
)

const (
	peersInterval = 10 * time.Second
	storeTimeout  = 5 * time.Second
)

// store is the cluster's store as the router sees it. The router itself needs
// it only to find members that gossip has lost sight of.
type store struct {
	logger   *slog.Logger
	client   *fallback.Store
	embedded *fallback.Embedded // nil with --redis
	offer    string             // URL for the workers, "" with --redis
	seen     int64              // version that was last observed; followPeers owns it
}

// openStore connects to --redis, or starts a store.
func openStore(ctx context.Context, o *options, logger *slog.Logger) (*store, error) {
	s := &store{logger: logger}
	url := o.redis
	if url == "" {
		embedded, err := fallback.StartEmbedded("127.0.0.1:0", rand.Text())
		if err != nil {
			return nil, err
		}
		s.embedded, s.offer, url = embedded, embedded.URL(), embedded.URL()
		logger.Warn("without --redis the router keeps ownership in its own memory: for one machine only, and a restart of the router stops the workers for a moment", "store", embedded.Addr())
	}
	var err error
	s.client, err = fallback.NewStore(url, fallback.StoreOptions{Settings: o.settings, NewCluster: o.newCluster, Logger: logger})
	if err != nil {
		s.close()
		return nil, cli.Usagef("--redis: %v", err)
	}
	if !o.newCluster {
		return s, nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if _, err := s.client.Generation(ctx); err != nil {
		s.close()
		return nil, fmt.Errorf("--new-cluster: the store cannot be reached, is --redis right? %w", err)
	}
	return s, nil
}

func (s *store) close() {
	if s.client != nil {
		s.client.Close()
	}
	if s.embedded != nil {
		s.embedded.Close()
	}
}

// followPeers gives gossip the addresses of the store's live sessions to join,
// from time to time. The caller must call stop.
func (s *store) followPeers(members *gossip.Cluster) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticks := time.NewTicker(peersInterval)
		defer ticks.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
				s.addPeers(ctx, members)
			}
		}
	}()
	return func() { cancel(); <-done }
}

// addPeers asks the store only when a worker has registered with it: before
// that, asking would begin its first generation, with a quarantine.
func (s *store) addPeers(ctx context.Context, members *gossip.Cluster) {
	if len(ring.ActiveWorkers(members.View().Members)) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	generation, err := s.client.Generation(ctx)
	if err != nil {
		s.logger.Debug("cannot ask the store for members", "error", err)
		return
	}
	snapshot, err := s.client.Observe(ctx, generation, s.seen)
	if err != nil {
		s.logger.Debug("cannot ask the store for members", "error", err)
		return
	}
	s.seen = snapshot.Version
	var peers []string
	for _, session := range snapshot.Sessions {
		if session.Gossip != "" {
			peers = append(peers, session.Gossip)
		}
	}
	members.AddSeeds(peers)
}
