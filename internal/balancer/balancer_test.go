package balancer_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/internal/balancer"
	"github.com/keyway-go/keyway/internal/placement"
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/localmutex/locking"
	"github.com/keyway-go/keyway/ring"
)

// site is a cluster of three workers, a store of placements, and one lock.
type site struct {
	t   *testing.T
	hub *hub.Hub
	all map[string]*hub.Handle

	mu     sync.Mutex // guards what follows
	text   string     // placements in the store
	writes int
	asked  map[string]int    // how often each worker asked for the loads
	load   map[int]float64   // by partition
	silent string            // a worker that does not tell
	hold   map[string]*lease // by holder; at most one lives
	stops  map[string]func() // ends a worker's balancer
}

type lease struct {
	locking.Lease
	ctx context.Context
	end context.CancelCauseFunc
	s   *site
	of  string
}

func (l *lease) Context() context.Context { return l.ctx }

func (l *lease) Unlock(context.Context) error {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.end(errors.New("unlocked"))
	if l.s.hold[l.of] == l {
		delete(l.s.hold, l.of)
	}
	return nil
}

// locks is one worker's access to the lock.
type locks struct {
	locking.Locker
	s  *site
	of string
}

func (l locks) TryLock(ctx context.Context, key string, _ ...locking.Option) (locking.Lease, error) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if len(l.s.hold) > 0 {
		return nil, locking.ErrLocked
	}
	held := &lease{s: l.s, of: l.of}
	held.ctx, held.end = context.WithCancelCause(ctx)
	l.s.hold[l.of] = held
	return held, nil
}

func newSite(t *testing.T, names ...string) *site {
	h := hub.New(ring.Settings{Ring: ring.Config{Partitions: 64}})
	s := &site{t: t, hub: h, all: map[string]*hub.Handle{}, asked: map[string]int{}, load: map[int]float64{}, hold: map[string]*lease{}, stops: map[string]func(){}}
	for _, name := range names {
		member := h.Join(ring.Member{Name: name, Incarnation: name + "1", Role: ring.RoleWorker, State: ring.StateActive, Addr: name + ":80"})
		s.all[name] = member
	}
	for _, name := range names {
		s.start(name)
	}
	return s
}

func (s *site) start(name string) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		balancer.Run(ctx, balancer.Config{
			Name: name, Members: s.all[name], Locks: locks{s: s, of: name}, Loads: func(context.Context) []status.LoadRow { return s.loads(name) }, Place: s.place,
			Logger: slog.New(slog.NewTextHandler(s.t.Output(), nil)),
		})
	}()
	s.stops[name] = sync.OnceFunc(func() { stop(); <-done })
	s.t.Cleanup(s.stops[name])
}

// loads are those that all workers tell a balancer: each of the partitions that it should own.
func (s *site) loads(asker string) (rows []status.LoadRow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[asker]++
	for name, member := range s.all {
		row := status.LoadRow{Worker: name}
		if name != s.silent {
			row.Loads = &status.Loads{Weight: 1}
			for p, load := range s.load {
				if m, ok := member.View().Owner(p); ok && m.Name == name {
					row.Loads.Partitions = append(row.Loads.Partitions, status.PartitionLoad{Partition: p, Work: status.Work{Load: load}})
				}
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func (s *site) place(_ context.Context, from, to string) (string, error) {
	s.mu.Lock()
	if s.text == from && to != from {
		s.text = to
		s.writes++
	}
	text := s.text
	s.mu.Unlock()
	for _, member := range s.all {
		return text, member.Place(text, 0)
	}
	return text, nil
}

// busy makes all partitions of a worker cost the same.
func (s *site) busy(name string, load float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range 64 {
		if m, _ := s.all[name].View().Owner(p); m.Name == name {
			s.load[p] = load
		}
	}
}

// largest returns the greatest load of a worker in relation to the mean.
func (s *site) largest() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	loads, sum := map[string]float64{}, 0.0
	for p, load := range s.load {
		for _, member := range s.all {
			m, _ := member.View().Owner(p)
			loads[m.Name] += load
			break
		}
		sum += load
	}
	most := 0.0
	for _, load := range loads {
		most = max(most, load)
	}
	return most * float64(len(s.all)) / sum
}

func (s *site) asks(names ...string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		n += s.asked[name]
	}
	return n
}

// A busy worker's partitions go to the others, by the doing of one balancer.
func TestBalances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, "a", "b", "c")
		s.busy("c", 0.3)
		before := s.largest()
		time.Sleep(15 * time.Minute)
		if after := s.largest(); before < 2.5 || after > 1.2 {
			t.Errorf("the largest load was %.2f of the mean, and is %.2f", before, after)
		}
		if s.asks("a") > 0 == (s.asks("b") > 0) || s.asks("c") > 0 {
			t.Errorf("a, b and c asked for loads %d, %d and %d times: want one of a and b", s.asks("a"), s.asks("b"), s.asks("c"))
		}
	})
}

func TestAnotherTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, "a", "b", "c")
		time.Sleep(time.Minute)
		first, second := "a", "b"
		if s.asks("b") > 0 {
			first, second = second, first
		}
		s.stops[first]()
		time.Sleep(time.Minute)
		if s.asks(second) == 0 {
			t.Errorf("%s does not balance although %s is gone", second, first)
		}
		// One whose lock is lost stops, and tries again.
		time.Sleep(time.Second) // no round is under way
		asked := s.asks(second)
		s.mu.Lock()
		lost := s.hold[second]
		delete(s.hold, second)
		s.hold["somebody"] = lost
		s.mu.Unlock()
		lost.end(locking.ErrLocked)
		time.Sleep(time.Minute)
		if now := s.asks(second); now != asked {
			t.Errorf("%s asked for loads %d times after its lock was lost", second, now-asked)
		}
	})
}

// Nothing is placed by what is not the whole.
func TestNothingIsPlaced(t *testing.T) {
	for name, change := range map[string]func(s *site){
		"a worker is silent": func(s *site) { s.silent = "b" },
		"no load":            func(s *site) { clear(s.load) },
		"others write": func(s *site) {
			s.text = placement.Encode([]placement.Placement{{Partition: 1, Worker: "b", Pinned: true}}) // and nobody sees it
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t, "a", "b", "c")
				s.busy("c", 0.3)
				s.mu.Lock()
				change(s)
				s.mu.Unlock()
				time.Sleep(9 * time.Second)
				if s.asks("a", "b") == 0 {
					t.Error("nobody has asked for the loads")
				}
				s.mu.Lock()
				defer s.mu.Unlock()
				if s.writes > 0 {
					t.Errorf("placements were written %d times", s.writes)
				}
			})
		})
	}
}

func TestAloneThereIsNothingToBalance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, "a")
		time.Sleep(time.Minute)
		if s.asks("a") > 0 || len(s.hold) > 0 {
			t.Error("a worker alone balances")
		}
	})
}
