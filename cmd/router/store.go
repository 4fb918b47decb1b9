package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"time"

	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/offered"
)

const storeTimeout = 5 * time.Second

// backend is the cluster's store as the router sees it. The router itself needs
// it only to see that the workers use the same, and to find members that gossip
// has lost sight of.
type backend struct {
	logger   *slog.Logger
	client   client
	own      *store.Store    // client, unless another process offers it
	embedded *store.Embedded // nil with --redis, or if another process has one
	offer    string          // URL for the workers, "" with --redis
}

type client interface {
	offered.Asked
	Trouble() error
	Close() error
}

// openStore connects to --redis, or starts a store.
func openStore(ctx context.Context, o *options, logger *slog.Logger) (*backend, error) {
	s := &backend{logger: logger}
	url := o.Redis
	if url == "" {
		embedded, err := store.StartEmbedded("127.0.0.1:0", rand.Text())
		if err != nil {
			return nil, err
		}
		s.embedded, s.offer, url = embedded, embedded.URL(), embedded.URL()
		logger.Warn("without --redis the router keeps ownership in its own memory: for one machine only, and a restart of the router stops the workers for a moment", "store", embedded.Addr())
	}
	var err error
	s.own, err = store.New(url, store.Config{Settings: o.Gossip.Settings, NewCluster: o.NewCluster, Logger: logger})
	if err != nil {
		s.close()
		return nil, cli.Usagef("--redis: %v", err)
	}
	s.client = s.own
	if !o.NewCluster {
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

// begin begins a store of the router's own, unless --new-cluster has. Its
// quarantine counts from now: nobody else has --gossip's address any more, or
// offers a store there.
func (s *backend) begin(ctx context.Context) error {
	if s.embedded == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return s.own.Begin(ctx)
}

// end ends a store of the router's own. It has to come before gossip's end, after
// which another process may have --gossip's address and begin a store.
func (s *backend) end() {
	if s.embedded != nil {
		s.embedded.Close()
	}
}

func (s *backend) close() {
	if s.client != nil {
		s.client.Close()
	}
	s.end()
}
