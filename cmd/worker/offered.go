package main

import (
	"context"
	"log/slog"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/ring"
	"github.com/keyway-go/keyway/ring/handoff"
)

// members is what offeredStore needs of gossip.
type members interface {
	View() *ring.View
	Changed() <-chan struct{}
}

// offeredStore is the store that a router offers. When that router has been
// started anew it offers another one, and offeredStore goes over to it.
type offeredStore struct {
	members members
	open    func(url string, known ring.StoreID) (*store.Store, error)
	logger  *slog.Logger
	stop    context.CancelFunc
	done    sync.WaitGroup

	mu      sync.Mutex // guards what follows
	url     string
	current *store.Store
	changed chan struct{} // closed when current changes
}

// openOffered waits for a router that offers a store.
func openOffered(ctx context.Context, m members, open func(url string, known ring.StoreID) (*store.Store, error), logger *slog.Logger) (*offeredStore, error) {
	s := &offeredStore{members: m, open: open, logger: logger, changed: make(chan struct{})}
	logger.Info("waiting for a router that offers a store (--join), or give --redis")
	if err := s.follow(ctx, func() bool { return s.current != nil }); err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.done.Go(func() { _ = s.follow(run, func() bool { return false }) })
	return s, nil
}

// follow goes over to what is offered until enough reports true or ctx ends.
func (s *offeredStore) follow(ctx context.Context, enough func() bool) error {
	for {
		changed := s.members.Changed()
		s.look()
		if enough() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// look takes the one store that is offered. While none is that can be used, or
// the routers disagree, it keeps the one it has. Routers that use another store than this
// worker count when no other offers one: a router that was started as a new
// cluster is one of them.
func (s *offeredStore) look() {
	view := s.members.View()
	offers := storesOf(view.Members)
	if len(offers) == 0 {
		offers = storesOf(view.Refused)
	}
	if len(offers) > 1 {
		s.logger.Error("several routers offer a store of their own, and all members must use the same: give all of them --redis", "stores", len(offers))
	}
	if len(offers) != 1 || offers[0] == s.url {
		return
	}
	var known ring.StoreID // of the one that it stands for
	if s.current != nil {
		known = s.current.Settings().Store
	}
	store, err := s.open(offers[0], known)
	if err != nil {
		s.logger.Error("the store that a router offers cannot be used: run the same version of Keyway on all members", "error", err)
		return
	}
	s.logger.Warn("using the store that a router offers: it keeps nothing across a restart of the router and is for one machine; give --redis for more", "store", redacted(offers[0]))
	s.mu.Lock()
	old := s.current
	s.url, s.current = offers[0], store
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
	if old != nil {
		old.Close()
	}
}

// storesOf are the URLs that members offer.
func storesOf(members []ring.Member) (urls []string) {
	for _, m := range members {
		if m.Store != "" && !slices.Contains(urls, m.Store) {
			urls = append(urls, m.Store)
		}
	}
	return urls
}

func redacted(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "an unreadable URL"
	}
	return u.Redacted()
}

func (s *offeredStore) get() (store *store.Store, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current, s.changed
}

func (s *offeredStore) store() *store.Store {
	store, _ := s.get()
	return store
}

// Close ends the connections to the store.
func (s *offeredStore) Close() error {
	s.stop()
	s.done.Wait()
	return s.store().Close()
}

func (s *offeredStore) Settings() ring.Settings { return s.store().Settings() }

func (s *offeredStore) Exists(ctx context.Context) error { return s.store().Exists(ctx) }

func (s *offeredStore) Generation(ctx context.Context) (string, error) {
	return s.store().Generation(ctx)
}

func (s *offeredStore) Register(ctx context.Context, generation string, session handoff.Session, ttl time.Duration, holdings []handoff.Holding) ([]handoff.PartitionState, error) {
	return s.store().Register(ctx, generation, session, ttl, holdings)
}

func (s *offeredStore) Renew(ctx context.Context, generation, incarnation string, ttl time.Duration) error {
	return s.store().Renew(ctx, generation, incarnation, ttl)
}

func (s *offeredStore) Release(ctx context.Context, incarnation string) error {
	return s.store().Release(ctx, incarnation)
}

func (s *offeredStore) Apply(ctx context.Context, generation, incarnation string, changes []handoff.Change) ([]handoff.PartitionState, error) {
	return s.store().Apply(ctx, generation, incarnation, changes)
}

func (s *offeredStore) Clear(ctx context.Context, generation string, partition int, residue []handoff.Residue) error {
	return s.store().Clear(ctx, generation, partition, residue)
}

func (s *offeredStore) Observe(ctx context.Context, generation string, since int64) (handoff.Snapshot, error) {
	return s.store().Observe(ctx, generation, since)
}

// Watch passes on the hints of whichever store is current.
func (s *offeredStore) Watch(ctx context.Context) <-chan struct{} {
	out := make(chan struct{}, 1)
	hint := func() {
		select {
		case out <- struct{}{}:
		default:
		}
	}
	go func() {
		defer close(out)
		for {
			store, changed := s.get()
			for range store.Watch(ctx) { // until look closes the store
				hint()
			}
			select {
			case <-changed:
				hint()
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}
