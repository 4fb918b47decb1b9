package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/gossip"
	"github.com/keyway-go/keyway/ring/handoff"
)

const (
	unsureInterval = time.Second
	sureInterval   = 10 * time.Second
	storeTimeout   = 5 * time.Second
)

// backend is the cluster's store as the router sees it. The router itself needs
// it only to see that the workers use the same, and to find members that gossip
// has lost sight of.
type backend struct {
	logger   *slog.Logger
	client   client
	own      *store.Store    // client, unless another process offers it
	embedded *store.Embedded // nil with --redis, or if another process has one
	offer    string          // URL for the workers, "" with --redis
	seen     int64           // version that was last observed; follow owns it

	trouble atomic.Pointer[error] // that the store is not the workers'; see ready
}

// client is what the router asks a store.
type client interface {
	Settings() ring.Settings
	Exists(ctx context.Context) error
	Generation(ctx context.Context) (string, error)
	Observe(ctx context.Context, generation, incarnation string, since int64) (handoff.Snapshot, error)
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

// follow compares the store with the one that the workers use: every second
// until it is known and nobody uses another one, and every 10 s from then on.
// The caller must call stop.
func (s *backend) follow(members *gossip.Cluster) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		ticks := time.NewTicker(unsureInterval)
		defer ticks.Stop()
		var known bool
		var asked time.Time
		for {
			differ := len(ring.ActiveWorkers(members.View().Refused)) > 0
			if !known || differ || time.Since(asked) >= sureInterval {
				asked = time.Now()
				known = s.compare(ctx, members)
			}
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
		}
	})
	return func() { cancel(); running.Wait() }
}

// compare announces the identity of the store, and reports whether it is known.
// It asks only when an active worker has announced its own: before that, asking
// would begin the store's first generation, with a quarantine. A store that is
// empty then is another one, or was emptied and is the workers' to begin again.
func (s *backend) compare(ctx context.Context, members *gossip.Cluster) (known bool) {
	worker, found := usesStore(members.View())
	if !found {
		s.note(nil)
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	err := s.client.Exists(ctx)
	var generation string
	if err == nil {
		generation, err = s.client.Generation(ctx)
	}
	if err != nil {
		s.note(fmt.Errorf("%w (worker %q at %s uses store %v)", err, worker.Name, worker.Gossip, worker.StoreID))
		return false
	}
	s.note(nil)
	id := s.client.Settings().Store
	if err := members.Announce(func(self *ring.Member) { self.StoreID = id }); err != nil {
		s.logger.Debug("cannot announce the store's identity", "error", err)
	}
	own := func(m ring.Member) bool { return m.StoreID == id }
	if slices.ContainsFunc(ring.ActiveWorkers(members.View().Members), own) {
		s.addPeers(ctx, members, generation)
	}
	return true
}

// usesStore returns an active worker that has announced its store, be it
// another one than the router's.
func usesStore(view *ring.View) (worker ring.Member, found bool) {
	for _, m := range append(ring.ActiveWorkers(view.Members), ring.ActiveWorkers(view.Refused)...) {
		if m.StoreID != 0 {
			return m, true
		}
	}
	return ring.Member{}, false
}

// note keeps for ready what is wrong with the store: that it could not be asked
// changes nothing.
func (s *backend) note(err error) {
	if err != nil && !errors.Is(err, ring.ErrSettings) {
		s.logger.Debug("cannot ask the store", "error", err)
		return
	}
	was := s.ready()
	if err != nil && (was == nil || was.Error() != err.Error()) {
		s.logger.Error("the store is not the one that the workers use", "error", err)
	}
	s.trouble.Store(&err)
}

// ready returns ring.ErrSettings if the store was found not to be the workers'.
func (s *backend) ready() error {
	if err := s.trouble.Load(); err != nil {
		return *err
	}
	return nil
}

// addPeers gives gossip the addresses of the store's live sessions to join. One
// of the workers must be within sight: where none is, the store may be another
// cluster's, and two clusters that meet are two stores under one ring.
func (s *backend) addPeers(ctx context.Context, members *gossip.Cluster, generation string) {
	snapshot, err := s.client.Observe(ctx, generation, "", s.seen)
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
