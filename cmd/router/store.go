package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/internal/offered"
	"github.com/keyway-go/keyway/internal/storeurl"
	"github.com/keyway-go/keyway/ring/gossip"
)

const storeTimeout = 5 * time.Second

// backend is the cluster's store as the router sees it. The router itself needs
// it only to see that the workers use the same, and to find members that gossip
// has lost sight of.
type backend struct {
	logger   *slog.Logger
	client   client          // nil before join without --store
	embedded *store.Embedded // the router's own, which client uses; nil with --store, or if another process has one
}

type client interface {
	offered.Asked
	Trouble() error
	Close() error
}

// openStore connects to --store, if there is one.
func openStore(ctx context.Context, o *options, logger *slog.Logger) (*backend, error) {
	s := &backend{logger: logger}
	if o.Store == "" {
		return s, nil
	}
	var err error
	s.client, err = storeurl.Open[client](o.Store, store.Config{Settings: o.Gossip.Settings, NewCluster: o.NewCluster, Logger: logger})
	if err != nil || !o.NewCluster {
		return s, err
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if _, err := s.client.Generation(ctx, true); err != nil {
		s.close()
		return nil, fmt.Errorf("--new-cluster: the store cannot be reached: correct --store or --redis: %w", err)
	}
	return s, nil
}

// meeting is the default of --gossip, at which the processes of a machine find
// each other.
const meeting = "127.0.0.1:" + gossip.DefaultPort

// join makes the router a member of the cluster. Without --store it then offers a store of its own. But if cfg
// wants the address meeting and another process of this machine is the member there, the router joins that
// member and uses the store that it offers. That is the store of package keyway's nodes on the
// machine, which one of them keeps.
func (s *backend) join(ctx context.Context, cfg gossip.Config, newCluster bool, meeting string) (*gossip.Cluster, error) {
	members, taken := gossip.Start(ctx, cfg)
	switch {
	case s.client != nil, taken != nil && (!errors.Is(taken, gossip.ErrBind) || cfg.Bind != meeting):
		return members, taken
	case taken == nil:
		if err := s.offer(ctx, members, newCluster); err != nil {
			members.Close()
			return nil, err
		}
		return members, nil
	}
	cfg.Bind, cfg.Seeds = "127.0.0.1:0", append(slices.Clip(cfg.Seeds), meeting)
	members, err := gossip.Start(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("%w; the member there cannot be joined: %w", taken, err)
	}
	if len(members.View().Members) < 2 { // who has it is no member
		members.Close()
		return nil, taken
	}
	wait, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	store, err := offered.Open(wait, members, store.Config{Settings: members.Settings(), Logger: s.logger})
	if err != nil {
		members.Close()
		return nil, fmt.Errorf("%w; the member there offers no store: give the same --store or --redis as it has: %w", taken, err)
	}
	s.client = store
	return members, nil
}

// offer starts a store of the router's own. Its quarantine counts from now, since no other process has
// --gossip's address or offers a store there any more.
func (s *backend) offer(ctx context.Context, members *gossip.Cluster, newCluster bool) error {
	embedded, err := offered.Offer(ctx, members, newCluster)
	if err != nil {
		return err
	}
	client, err := store.New(embedded.URL(), store.Config{Settings: members.Settings(), Logger: s.logger})
	if err != nil {
		embedded.Close()
		return err
	}
	s.client, s.embedded = client, embedded
	s.logger.Warn("without --store the router keeps ownership in its own memory: for one machine only, and a restart of the router stops the workers for a moment", "store", embedded.Addr())
	return nil
}

// close ends the client, and a store of the router's own. It has to come before the end of gossip, after
// which another process may have --gossip's address and begin a store. It may be called again.
func (s *backend) close() {
	if s.client != nil {
		s.client.Close()
	}
	if s.embedded != nil {
		s.embedded.Close()
	}
}
