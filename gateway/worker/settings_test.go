package worker_test

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/test/hub"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/memstore"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/ring"
)

// A store that was opened with other settings than the members have is no
// store for their worker: two such workers would share a ring and not a store.
func TestTrapStoreOfOtherSettings(t *testing.T) {
	for setting, settings := range map[string]ring.Settings{
		"cluster name":         {Cluster: "default"},
		"number of partitions": {Ring: ring.Config{Partitions: 64}},
		"session TTL":          {TTL: time.Minute},
	} {
		h := hub.New(ring.Settings{})
		member := h.Join(ring.Member{Name: "w", Role: ring.RoleWorker, State: ring.StateJoining, Addr: "w:80"})
		_, err := worker.Start(t.Context(), worker.Config{
			Members: member, Store: memstore.New(memstore.Config{Settings: settings}),
		})
		if !errors.Is(err, ring.ErrSettings) || !strings.Contains(err.Error(), setting) {
			t.Errorf("%s: %v", setting, err)
		}
	}
}

func TestNegativeSettings(t *testing.T) {
	for field, limits := range map[string]worker.Limits{
		"QueuePerKey is -1":      {QueuePerKey: -1},
		"Queue is -1":            {Queue: -1},
		"MaxAwaiting is -2":      {MaxAwaiting: -2},
		"AwaitTimeout is -1s":    {AwaitTimeout: -time.Second},
		"MaxWait is -1s":         {MaxWait: -time.Second},
		"SlowKey is -1s":         {SlowKey: -time.Second},
		"StreamsPerLink is -1":   {StreamsPerLink: -1},
		"AppConnections is -1":   {AppConnections: -1},
		"MaxConnections is -1":   {MaxConnections: -1},
		"Timeout is -1":          {Timeout: -1},
		"AnswerMemory is -1":     {AnswerMemory: -1},
		"AnswerFiles is -1":      {AnswerFiles: -1},
		"AnswerMax is -1":        {AnswerMax: -1},
		"AbandonedTimeout is -1": {AbandonedTimeout: -1},
		"Weight is -1":           {Weight: -1},
		"Weight is NaN":          {Weight: math.NaN()},
		"Weight is 100.5":        {Weight: 100.5},
	} {
		member := hub.New(ring.Settings{}).Join(ring.Member{Name: "w", Addr: "w:80"})
		_, err := worker.Start(t.Context(), worker.Config{Members: member, Store: memstore.New(memstore.Config{}), Limits: limits})
		if err == nil || !strings.HasPrefix(err.Error(), "worker: Limits."+field) {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// A worker is the member that Config.Members has, and starts as nobody else.
func TestAWorkerIsItsMember(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for want, tt := range map[string]struct {
		ctx  context.Context
		self ring.Member
	}{
		"no Name or no Addr": {t.Context(), ring.Member{Name: "w"}},
		"no Name or":         {t.Context(), ring.Member{Addr: "w:80"}},
		"context canceled":   {ended, ring.Member{Name: "w", Addr: "w:80"}},
	} {
		member := hub.New(ring.Settings{}).Join(tt.self)
		_, err := worker.Start(tt.ctx, worker.Config{Members: member, Store: memstore.New(memstore.Config{})})
		if err == nil || !strings.Contains(err.Error(), want) || member.Self().Incarnation != "" {
			t.Errorf("%+v: %v, %+v", tt.self, err, member.Self())
		}
	}
	c := site.New(t, 16)
	w := c.Start()
	if self := w.Member.Self(); self.Incarnation != w.Incarnation() || self.Name != "w1" {
		t.Errorf("the member is %+v", self)
	}
}

// Two workers that share a ring but not a store never run a key at once: the
// one that comes does not begin, be its store empty or not.
func TestTrapTwoStores(t *testing.T) {
	for name, id := range map[string]ring.StoreID{"empty": 0, "older": 7, "younger": 1 << 63} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := site.New(t, 16)
				first := c.StartOwner()
				other := memstore.New(memstore.Config{Settings: ring.Settings{Ring: c.Ring, TTL: kit.TTL, Store: id}, NewCluster: true})
				second := c.Start(func(cfg *worker.Config) { cfg.Store = other })
				soon, cancel := context.WithTimeout(t.Context(), time.Second) // before it is refused
				defer cancel()
				if err := second.Await(soon); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "--redis") {
					t.Errorf("the second one, at first: %v", err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := second.Await(ctx); !errors.Is(err, ring.ErrSettings) || !strings.Contains(err.Error(), "--redis") {
					t.Errorf("the second one: %v", err)
				}
				if n := overlapping(t, c, first, second); n > 0 {
					t.Errorf("%d of 16 partitions run at both workers at once", n)
				}
				if err := first.Ready(); err != nil || first.Serving() != 16 {
					t.Errorf("the first one serves %d partitions: %v", first.Serving(), err)
				}
				if _, err := other.Generation(t.Context(), false); id == 0 && !errors.Is(err, ring.ErrSettings) {
					t.Errorf("the second one has begun its empty store: %v", err)
				}
			})
		})
	}
}

// A worker refuses the link of a router that uses another store.
func TestLinkRefusesOtherStore(t *testing.T) {
	w := site.New(t, 16).StartReady()
	addr := w.Listen(t, w.Handler(http.NotFoundHandler()))
	settings := w.Member.Settings()
	for _, store := range []ring.StoreID{settings.Store, settings.Store + 1} {
		client := &link.Client{Addr: addr, Config: link.Config{Cluster: settings.WithDefaults().Cluster, Digest: settings.Digest(), Store: func() uint64 { return uint64(store) }}}
		_, err := client.Do(t.Context(), &link.Request{Method: "GET", Target: "/", Host: "x", Key: "k"})
		client.Close()
		if mismatch, ok := errors.AsType[*link.MismatchError](err); ok != (store != settings.Store) || ok && mismatch.What != "store" {
			t.Errorf("store %v at the client, %v at the worker: %v", store, settings.Store, err)
		}
	}
}

// overlapping counts the partitions of which both workers run a key at once.
func overlapping(t *testing.T, c *site.Site, a, b *site.Worker) int {
	n := 0
	for p := range 16 {
		key := keyIn(c.Ring, p)
		_ = a.Do(t.Context(), key, func(gateway.Execution) error {
			return b.Do(t.Context(), key, func(gateway.Execution) error { n++; return nil })
		})
	}
	return n
}

// startApart starts a worker with a store of its own, which the others do not see until Isolate(false) of its Member.
func startApart(c *site.Site, store worker.Store) *site.Worker {
	return c.Start(func(cfg *worker.Config) {
		cfg.Store = store
		cfg.Members.(*hub.Handle).Isolate(true)
	})
}

// Two clusters with a store each that meet: the one with the younger store
// stops, and what runs there is cancelled.
func TestTrapTwoStoresMeet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		older := c.StartOwner()
		time.Sleep(2 * time.Second)
		younger := startApart(c, memstore.New(memstore.Config{Settings: c.Settings, NewCluster: true}))
		younger.AwaitServing(t, 16)
		if n := overlapping(t, c, older, younger); n != 16 {
			t.Fatalf("before they meet %d of 16 partitions run at both", n)
		}
		running, cause := make(chan struct{}), make(chan error, 1)
		go younger.Do(t.Context(), "k", func(x gateway.Execution) error {
			close(running)
			select {
			case <-x.Context().Done():
			case <-time.After(time.Minute):
			}
			cause <- context.Cause(x.Context())
			return nil
		})
		<-running
		younger.Member.Isolate(false)
		select {
		case err := <-cause:
			if !errors.Is(err, gateway.ErrOwnershipLost) {
				t.Errorf("what ran was cancelled with %v", err)
			}
		case <-time.After(kit.TTL):
			t.Fatal("what ran goes on")
		}
		if n := overlapping(t, c, older, younger); n > 0 {
			t.Errorf("%d of 16 partitions run at both workers at once", n)
		}
		if err := younger.Ready(); !errors.Is(err, ring.ErrSettings) || !strings.Contains(err.Error(), `worker "w1"`) || !strings.Contains(err.Error(), "--redis") {
			t.Errorf("the younger one: %v", err)
		}
		if err := older.Ready(); err != nil || older.Serving() != 16 {
			t.Errorf("the older one serves %d partitions: %v", older.Serving(), err)
		}
		older.Close()
		older.Member.Vanish()
		time.Sleep(kit.TTL / 2)
		if younger.Ready() == nil {
			t.Error("the younger one goes on before the older one's sessions can be over")
		}
		time.Sleep(kit.TTL)
		if err := younger.Ready(); err != nil {
			t.Errorf("the younger one, once alone: %v", err)
		}
	})
}

// A store and its copy have one identity. Workers with one each notice that the
// other has no session in theirs, and one of them stops.
func TestTrapCopiedStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		first := c.StartOwner()
		second := startApart(c, memstore.New(memstore.Config{Settings: first.Member.Settings()}))
		second.AwaitServing(t, 16)
		if first.Member.Settings().Store != second.Member.Settings().Store {
			t.Fatal("the copy has another identity")
		}
		second.Member.Isolate(false)
		time.Sleep(kit.TTL + kit.TTL/5) // it looks at its store that often
		if n := overlapping(t, c, first, second); n > 0 {
			t.Errorf("%d of 16 partitions run at both workers at once", n)
		}
		stopped := 0
		for _, w := range []*site.Worker{first, second} {
			if errors.Is(w.Ready(), ring.ErrSettings) {
				stopped++
			}
		}
		if stopped != 1 {
			t.Errorf("%d workers have stopped, want one: %v, %v", stopped, first.Ready(), second.Ready())
		}
	})
}

// blinding is a store of which nothing is learned while it is blind, except that the session lives.
type blinding struct {
	*memstore.Store
	blind atomic.Bool
}

func (b *blinding) Renew(ctx context.Context, gen, incarnation string, ttl time.Duration) (records.Snapshot, error) {
	snapshot, err := b.Store.Renew(ctx, gen, incarnation, ttl)
	if b.blind.Load() {
		snapshot = records.Snapshot{}
	}
	return snapshot, err
}

func (b *blinding) Observe(ctx context.Context, gen, incarnation string, since int64, suspects []string) (records.Snapshot, error) {
	if b.blind.Load() {
		return records.Snapshot{}, errors.New("no answer")
	}
	return b.Store.Observe(ctx, gen, incarnation, since, suspects)
}

// A worker that learns nothing from its store takes nobody for a worker of another one, however long that lasts.
func TestTrapNewsOfTheStoreIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		st := &blinding{Store: memstore.New(memstore.Config{Settings: c.Settings, NewCluster: true})}
		use := func(cfg *worker.Config) { cfg.Store = st.Store }
		first := c.StartOwner(func(cfg *worker.Config) { cfg.Store = st })
		st.blind.Store(true)
		c.Start(use)
		c.Start(use)
		for range 3 {
			time.Sleep(kit.TTL)
			if err := first.Ready(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Workers that have died stay in the view until gossip notices. Nobody takes them for workers of another store.
func TestTrapDeadWorkersInView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		last := c.StartOwner()
		others := []*site.Worker{c.Start(), c.Start()}
		for _, w := range others {
			w.AwaitServing(t, 1)
		}
		for _, w := range others {
			w.Member.Mute.Store(true)
			w.Close()
		}
		for range 25 { // the sessions end within 10 s
			time.Sleep(time.Second)
			if err := last.Ready(); err != nil {
				t.Fatalf("the worker that lives: %v", err)
			}
		}
	})
}

// A worker whose store becomes another one, of which it knows nothing, begins
// anew there and takes nothing along.
func TestTrapStoreBecomesAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		before := memstore.New(memstore.Config{Settings: c.Settings, NewCluster: true})
		st := &becoming{}
		st.now.Store(before)
		w := c.StartOwner(func(cfg *worker.Config) { cfg.Store = st })
		was := w.Incarnation()
		after := memstore.New(memstore.Config{Settings: ring.Settings{Ring: c.Ring, TTL: kit.TTL, Store: 7}, NewCluster: true})
		st.now.Store(after)
		time.Sleep(kit.TTL / 2)
		if w.Incarnation() == was {
			t.Error("the incarnation goes on")
		}
		if id := w.Member.Settings().Store; id != 7 {
			t.Errorf("the members see store %v", id)
		}
		snapshot, err := after.Observe(t.Context(), "", "", 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range snapshot.Sessions {
			if s.Incarnation == was {
				t.Error("the former incarnation has a session in the new store")
			}
		}
		w.AwaitServing(t, 16)
	})
}

// becoming is a store that can be replaced.
type becoming struct {
	now atomic.Pointer[memstore.Store]
}

func (b *becoming) Settings() ring.Settings { return b.now.Load().Settings() }
func (b *becoming) Generation(ctx context.Context, begin bool) (string, error) {
	return b.now.Load().Generation(ctx, begin)
}
func (b *becoming) Register(ctx context.Context, gen string, s records.Session, ttl time.Duration, h []records.Holding) ([]records.PartitionState, error) {
	return b.now.Load().Register(ctx, gen, s, ttl, h)
}
func (b *becoming) Renew(ctx context.Context, gen, inc string, ttl time.Duration) (records.Snapshot, error) {
	return b.now.Load().Renew(ctx, gen, inc, ttl)
}
func (b *becoming) Release(ctx context.Context, inc string) error {
	return b.now.Load().Release(ctx, inc)
}
func (b *becoming) Apply(ctx context.Context, gen, inc string, c []records.Change) ([]records.PartitionState, error) {
	return b.now.Load().Apply(ctx, gen, inc, c)
}
func (b *becoming) Clear(ctx context.Context, gen string, p int, r []records.Residue) error {
	return b.now.Load().Clear(ctx, gen, p, r)
}
func (b *becoming) Replace(ctx context.Context, n records.Note, from, to string) (string, error) {
	return b.now.Load().Replace(ctx, n, from, to)
}

func (b *becoming) WriteLocks(ctx context.Context, gen, incarnation string, writes []records.LockWrite) ([]records.WriteNumber, error) {
	return b.now.Load().WriteLocks(ctx, gen, incarnation, writes)
}

func (b *becoming) ClearLocks(ctx context.Context, gen string, moves []records.Move) error {
	return b.now.Load().ClearLocks(ctx, gen, moves)
}

func (b *becoming) Observe(ctx context.Context, gen, incarnation string, since int64, suspects []string) (records.Snapshot, error) {
	return b.now.Load().Observe(ctx, gen, incarnation, since, suspects)
}
func (b *becoming) Watch(ctx context.Context) <-chan records.Hint { return b.now.Load().Watch(ctx) }
