package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/internal/offered"
	"github.com/keyway-go/keyway/ring/gossip"
)

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
