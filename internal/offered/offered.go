// Package offered is the store that a process of this machine keeps in its memory
// and offers to the others through gossip: [Open] uses one, and [StartHost] runs one.
package offered

import (
	"context"
	"log/slog"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/keyway-go/keyway/fallback/store"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/wake"
	"github.com/keyway-go/keyway/ring"
)

// Members is what a [Store] needs of gossip.
type Members interface {
	View() *ring.View
	Changed() <-chan struct{}
}

// Store is the store that another member offers. If that member restarts, it offers another store,
// and Store switches to it. The goroutine of follow does so under mu.
type Store struct {
	members Members
	open    func(url string, known ring.StoreID) (*store.Store, error)
	logger  *slog.Logger
	stop    context.CancelFunc
	done    sync.WaitGroup
	warned  bool // of workers whose store nobody offers; follow owns it

	mu      sync.Mutex // guards what follows
	url     string
	current *store.Store
	changed chan struct{} // closed when current changes
}

// Open waits for a member that offers a store, and opens it with open, which gets
// the identity of the store that it stands for, 0 for none. ctx bounds the wait.
func Open(ctx context.Context, m Members, open func(url string, known ring.StoreID) (*store.Store, error), logger *slog.Logger) (*Store, error) {
	s := &Store{members: m, open: open, logger: logger, changed: make(chan struct{})}
	logger.Info("waiting for a router that offers a store (--join); with --redis none is needed")
	if err := s.follow(ctx, func() bool { return s.current != nil }); err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.done.Go(func() { _ = s.follow(run, func() bool { return false }) })
	return s, nil
}

// follow switches to the offered store until enough reports true or ctx ends.
func (s *Store) follow(ctx context.Context, enough func() bool) error {
	for {
		changed := s.members.Changed()
		s.followOffer()
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

// followOffer takes the one store that is offered. While none is that can be used, or
// the routers disagree, it keeps the one it has. Routers that use another store than this
// worker count when no other offers one: a router that was started as a new
// cluster is one of them.
func (s *Store) followOffer() {
	view := s.members.View()
	offers, places := storesOf(view.Members)
	if len(offers) == 0 {
		offers, places = storesOf(view.Refused)
	}
	if places > 1 {
		s.logger.Error("several routers offer a store of their own, and all members must use the same: give all of them --redis", "stores", len(offers))
	}
	if s.current == nil && len(offers) == 0 {
		s.warnOfNone(view)
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
	s.logger.Warn("this process uses the store of another process: it is for one machine, and a restart of that process empties it; give --redis for more", "store", redacted(offers[0]))
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

// warnOfNone logs once that active members use a store that no member offers.
func (s *Store) warnOfNone(view *ring.View) {
	for _, m := range view.Workers() {
		if m.StoreID != 0 && !s.warned {
			s.warned = true
			s.logger.Warn("the workers use a store that nobody offers, such as a Redis: give this one the same --store or --redis (Config.Redis)", "worker", m.Name, "gossip", m.Gossip)
		}
	}
}

// storesOf returns the URLs that members offer, and the number of their gossip addresses. If two
// members have one address, one has died and is not yet detected.
func storesOf(members []ring.Member) (urls []string, places int) {
	var at []string
	for _, m := range members {
		if m.Store != "" && !slices.Contains(urls, m.Store) {
			urls = append(urls, m.Store)
		}
		if m.Store != "" && !slices.Contains(at, m.Gossip) {
			at = append(at, m.Gossip)
		}
	}
	return urls, len(at)
}

func redacted(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "an unreadable URL"
	}
	return u.Redacted()
}

func (s *Store) get() (store *store.Store, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current, s.changed
}

func (s *Store) store() *store.Store {
	store, _ := s.get()
	return store
}

// Close ends the connections to the store.
func (s *Store) Close() error {
	s.stop()
	s.done.Wait()
	return s.store().Close()
}

// Settings is the present store's.
func (s *Store) Settings() ring.Settings { return s.store().Settings() }

// Describe implements [prometheus.Collector].
func (s *Store) Describe(ch chan<- *prometheus.Desc) { s.store().Describe(ch) }

// Collect implements [prometheus.Collector].
func (s *Store) Collect(ch chan<- prometheus.Metric) { s.store().Collect(ch) }

// Exists is the present store's.
func (s *Store) Exists(ctx context.Context) error { return s.store().Exists(ctx) }

// Generation is the present store's.
func (s *Store) Generation(ctx context.Context) (string, error) {
	return s.store().Generation(ctx)
}

// Ping is the present store's.
func (s *Store) Ping(ctx context.Context) error { return s.store().Ping(ctx) }

// Peers is the present store's.
func (s *Store) Peers(ctx context.Context) ([]string, error) { return s.store().Peers(ctx) }

// Trouble is the present store's.
func (s *Store) Trouble() error { return s.store().Trouble() }

// Register is the present store's.
func (s *Store) Register(ctx context.Context, generation string, session records.Session, ttl time.Duration, holdings []records.Holding) ([]records.PartitionState, error) {
	return s.store().Register(ctx, generation, session, ttl, holdings)
}

// Renew is the present store's.
func (s *Store) Renew(ctx context.Context, generation, incarnation string, ttl time.Duration) (records.Snapshot, error) {
	return s.store().Renew(ctx, generation, incarnation, ttl)
}

// Release is the present store's.
func (s *Store) Release(ctx context.Context, incarnation string) error {
	return s.store().Release(ctx, incarnation)
}

// Apply is the present store's.
func (s *Store) Apply(ctx context.Context, generation, incarnation string, changes []records.Change) ([]records.PartitionState, error) {
	return s.store().Apply(ctx, generation, incarnation, changes)
}

// Clear is the present store's.
func (s *Store) Clear(ctx context.Context, generation string, partition int, residue []records.Residue) error {
	return s.store().Clear(ctx, generation, partition, residue)
}

// ClearLocks is the present store's.
func (s *Store) ClearLocks(ctx context.Context, generation string, moves []records.Move) error {
	return s.store().ClearLocks(ctx, generation, moves)
}

// WriteLocks is the present store's.
func (s *Store) WriteLocks(ctx context.Context, generation, incarnation string, writes []records.LockWrite) ([]records.WriteNumber, error) {
	return s.store().WriteLocks(ctx, generation, incarnation, writes)
}

// Observe is the present store's.
func (s *Store) Observe(ctx context.Context, generation, incarnation string, since int64, suspects []string) (records.Snapshot, error) {
	return s.store().Observe(ctx, generation, incarnation, since, suspects)
}

// Watch returns the hints of the current store, also after it changes.
func (s *Store) Watch(ctx context.Context) <-chan struct{} {
	out := make(chan struct{}, 1)
	go func() {
		defer close(out)
		for {
			store, changed := s.get()
			for range store.Watch(ctx) { // until look closes the store
				wake.Up(out)
			}
			select {
			case <-changed:
				wake.Up(out)
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}
