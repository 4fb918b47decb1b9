package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"time"

	"github.com/keyway-go/keyway/fallback/etcd"
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
	own      *store.Store    // client, of a store of the router's own; nil with --store
	embedded *store.Embedded // nil with --store, or if another process has one
	offer    string          // URL for the workers, "" with --store
}

type client interface {
	offered.Asked
	Trouble() error
	Close() error
}

// openStore connects to --store, or starts a store.
func openStore(ctx context.Context, o *options, logger *slog.Logger) (*backend, error) {
	s := &backend{logger: logger}
	cfg := store.Config{Settings: o.Gossip.Settings, NewCluster: o.NewCluster, Logger: logger}
	var err error
	switch {
	case etcd.Handles(o.Store):
		s.client, err = etcd.New(o.Store, cfg)
	case o.Store != "":
		s.client, err = store.New(o.Store, cfg)
	default:
		embedded, err := store.StartEmbedded("127.0.0.1:0", rand.Text())
		if err != nil {
			return nil, err
		}
		s.embedded, s.offer = embedded, embedded.URL()
		if s.own, err = store.New(s.offer, cfg); err != nil {
			embedded.Close()
			return nil, err
		}
		s.client = s.own
		logger.Warn("without --store the router keeps ownership in its own memory: for one machine only, and a restart of the router stops the workers for a moment", "store", embedded.Addr())
	}
	if err != nil {
		return nil, cli.Usagef("--store or --redis: %v", err)
	}
	if !o.NewCluster {
		return s, nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if _, err := s.client.Generation(ctx); err != nil {
		s.close()
		return nil, fmt.Errorf("--new-cluster: the store cannot be reached: correct --store or --redis: %w", err)
	}
	return s, nil
}

// beginGeneration begins a store of the router's own, unless --new-cluster has. Its quarantine counts from
// now, since no other process has --gossip's address or offers a store there any more.
func (s *backend) beginGeneration(ctx context.Context) error {
	if s.embedded == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return s.own.Begin(ctx)
}

// endStore ends a store of the router's own. It has to come before gossip's endStore, after
// which another process may have --gossip's address and begin a store.
func (s *backend) endStore() {
	if s.embedded != nil {
		s.embedded.Close()
	}
}

func (s *backend) close() {
	if s.client != nil {
		s.client.Close()
	}
	s.endStore()
}
