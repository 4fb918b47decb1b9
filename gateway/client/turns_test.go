package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/client"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/metrictest"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/link"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// queue is callers of one key, who come one after the other.
type queue struct {
	t   *testing.T
	all sync.WaitGroup

	mu    sync.Mutex // guards what follows
	order []string
	last  int64
}

// got notes that a caller has the key.
func (q *queue) got(name string, token int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if token <= q.last {
		q.t.Errorf("%s: token %d after %d", name, token, q.last)
	}
	q.order, q.last = append(q.order, name), token
}

// lock has a caller come who works with the lock for as long as work takes. It returns when he waits or has it.
func (q *queue) lock(c *client.Client, name string, work func(*client.Lock), opts ...locking.Option) {
	q.all.Go(func() {
		l, err := c.Lock(q.t.Context(), "k", opts...)
		if err != nil {
			q.t.Errorf("%s: %v", name, err)
			return
		}
		q.got(name, l.Token())
		if work != nil {
			work(l)
		}
		if err := l.Unlock(q.t.Context()); err != nil {
			q.t.Errorf("%s: Unlock: %v", name, err)
		}
	})
	synctest.Wait()
}

// do has an execution come. It returns when that waits or has run.
func (q *queue) do(w *site.Worker, name string) {
	q.all.Go(func() {
		_ = w.Do(q.t.Context(), "k", func(x gateway.Execution) error {
			q.got(name, x.Token())
			return nil
		})
	})
	synctest.Wait()
}

func (q *queue) expect(want ...string) {
	q.t.Helper()
	q.all.Wait()
	if !slices.Equal(q.order, want) {
		q.t.Errorf("the lock went to %v, want %v", q.order, want)
	}
}

func grants(t *testing.T, w *site.Worker) float64 {
	return metrictest.Gather(t, w)[`keyway_worker_lock_events_total{event="granted"}`]
}

// Callers of one client who wait while a call is under way are asked for together when that has ended, and have the
// lock one after the other. They are behind all who came before that, and before all who come later.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		w := s.StartServing()
		a, b := s.NewClient(), s.NewClient()
		q := &queue{t: t}
		_ = w.Do(t.Context(), "k", func(x gateway.Execution) error {
			q.lock(a, "a1", nil)
			q.lock(b, "b1", func(*client.Lock) { time.Sleep(time.Second) })
			q.lock(a, "a2", func(*client.Lock) { time.Sleep(time.Second) })
			q.lock(a, "a3", nil)
			q.lock(a, "a4", func(*client.Lock) { time.Sleep(time.Second) })
			q.last = x.Token()
			return nil
		})
		time.Sleep(3 * time.Second / 2) // a2 has it
		q.do(w, "Do")
		q.lock(a, "a5", nil)
		q.lock(a, "a6", nil)
		q.expect("a1", "b1", "a2", "a3", "a4", "Do", "a5", "a6")
		if n := grants(t, w); n != 5 {
			t.Errorf("the owner has granted %v locks, want those of a1, b1, a2, a5 and a6", n)
		}
		if !w.IsFree(t, "k") {
			t.Error("the key is held")
		}
	})
}

// Those who want another lease or label are not of the same turns.
func TestTurnsAreEqual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		w := s.StartServing()
		c := s.NewClient()
		q := &queue{t: t}
		_ = w.Do(t.Context(), "k", func(gateway.Execution) error {
			work := func(*client.Lock) { time.Sleep(time.Second) }
			for _, name := range []string{"1", "2", "3"} {
				q.lock(c, "a"+name, work)
				q.lock(c, "b"+name, func(l *client.Lock) {
					work(l)
					if left := time.Until(l.Until()); left <= kit.TTL {
						t.Errorf("%v left of a long lease", left)
					}
				}, locking.TTL(3*kit.TTL))
				q.lock(c, "c"+name, work, locking.Label("c"))
			}
			return nil
		})
		q.expect("a1", "b1", "c1", "a2", "a3", "b2", "b3", "c2", "c3")
		if n := grants(t, w); n != 6 {
			t.Errorf("%v locks were granted, want 6", n)
		}
	})
}

// A call asks for so many and no more, and who comes when a long line waits asks for himself.
func TestTurnsAreBounded(t *testing.T) {
	const inLine, alone = 1024, 5
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		w := s.StartServing()
		c := s.NewClient()
		q := &queue{t: t}
		_ = w.Do(t.Context(), "k", func(x gateway.Execution) error {
			q.lock(c, "", nil)
			for range inLine + alone {
				q.lock(c, "", nil)
			}
			if n := w.Queued("k"); n != 1+alone {
				t.Errorf("%d calls wait, want that of the first, and those of %d who ask for themselves", n, alone)
			}
			return nil
		})
		q.all.Wait()
		if n, calls := grants(t, w), 1+alone+inLine/holds.MaxTurns; len(q.order) != 1+inLine+alone || n != float64(calls) {
			t.Errorf("%d callers had the lock by %v calls, want %d", len(q.order), n, calls)
		}
	})
}

// Who gives up is left out, wherever he waits, and if all do for whom a call asks it ends.
func TestTurnsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		w := s.StartServing()
		c := s.NewClient()
		q := &queue{t: t}
		give := func(name string) (up context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			q.all.Go(func() {
				if l, err := c.Lock(ctx, "k"); !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v, %v", name, l, err)
				}
			})
			synctest.Wait()
			return cancel
		}
		var called []context.CancelFunc
		_ = w.Do(t.Context(), "k", func(gateway.Execution) error {
			first := give("the first")
			waits := give("one who waits")
			for range 3 {
				called = append(called, give("one for whom a call is made"))
			}
			waits()
			synctest.Wait()
			first()
			synctest.Wait()
			if n := w.Queued("k"); n != 1 {
				t.Errorf("%d calls wait, want one for three callers", n)
			}
			for _, up := range called {
				up()
			}
			synctest.Wait()
			if n := w.Queued("k"); n != 0 {
				t.Errorf("%d calls wait for nobody", n)
			}
			return nil
		})
		if !w.IsFree(t, "k") {
			t.Error("the key is held for nobody")
		}
		var late context.CancelFunc
		_ = w.Do(t.Context(), "k", func(gateway.Execution) error {
			q.lock(c, "1", nil)
			q.lock(c, "2", func(*client.Lock) {
				synctest.Wait()
				late()
				synctest.Wait()
			})
			late = give("one whose turn would be next")
			q.lock(c, "3", nil)
			return nil
		})
		q.expect("1", "2", "3")
		if !w.IsFree(t, "k") {
			t.Error("the key is held")
		}
	})
}

// behind has three callers wait, of whom the second has the lock when behind returns, and the third is to have it
// after him. It returns the lock, and what gets the third's.
func behind(t *testing.T, w *site.Worker, c *client.Client) (second *client.Lock, third <-chan *client.Lock) {
	var got [3]chan *client.Lock
	_ = w.Do(t.Context(), "k", func(gateway.Execution) error {
		for i := range got {
			got[i] = make(chan *client.Lock, 1)
			go func() { got[i] <- kit.Must(c.Lock(t.Context(), "k")) }()
			synctest.Wait()
		}
		return nil
	})
	first := <-got[0]
	if err := first.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	return <-got[1], got[2]
}

// What was the caller's before his Unlock is not his any more when another one has it, though that is the same hold.
func TestTrapPassedLockIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		w := s.StartServing()
		c := s.NewClient()
		second, others := behind(t, w, c)
		inner := kit.Must(c.Lock(second.Context(), "k"))
		for _, l := range []*client.Lock{second, inner} {
			if len(others) > 0 {
				t.Error("a lock is passed on that a caller within still keeps")
			}
			if err := l.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
			synctest.Wait()
		}
		third := <-others
		if n := grants(t, w); n != 2 || third.Context().Err() != nil {
			t.Errorf("%v grants, want 2; context %v", n, context.Cause(third.Context()))
		}
		if second.Context().Err() == nil || second.Until().After(time.Now()) || inner.Until().After(time.Now()) {
			t.Errorf("after Unlock: context %v, until %v and %v", second.Context().Err(), second.Until(), inner.Until())
		}
		for _, l := range []*client.Lock{second, inner} {
			if err := l.Extend(t.Context(), kit.TTL); !errors.Is(err, locking.ErrNotOwner) {
				t.Errorf("Extend: %v", err)
			}
			if err := l.Unlock(t.Context()); !errors.Is(err, locking.ErrNotOwner) {
				t.Errorf("Unlock: %v", err)
			}
		}
		if l, err := c.TryLock(context.WithoutCancel(second.Context()), "k"); !errors.Is(err, locking.ErrLocked) {
			t.Errorf("within what has ended: %v, %v", l, err)
		}
		time.Sleep(3 * kit.TTL) // it is renewed
		if err := third.Unlock(t.Context()); err != nil || !w.IsFree(t, "k") {
			t.Errorf("Unlock of the last: %v", err)
		}
	})
}

// A lock that is not as good as another one is not passed on: the next caller asks for one.
func TestTrapNotPassedOn(t *testing.T) {
	for name, tt := range map[string]struct {
		before func(t *testing.T, s *site.Site, w *site.Worker, l *client.Lock)
		unlock error
	}{
		"it was extended": {func(t *testing.T, _ *site.Site, _ *site.Worker, l *client.Lock) {
			if err := l.Extend(t.Context(), 4*kit.TTL); err != nil {
				t.Error(err)
			}
		}, nil},
		"its renewals fail": {func(_ *testing.T, s *site.Site, w *site.Worker, _ *client.Lock) {
			s.Sever(w, true)
			time.Sleep(kit.TTL * 5 / 10)
			time.AfterFunc(kit.TTL/100, func() { s.Sever(w, false) })
		}, nil},
		"it is lost": {func(t *testing.T, s *site.Site, w *site.Worker, l *client.Lock) {
			_ = s.Store.Release(t.Context(), w.Incarnation())
			<-l.Context().Done()
		}, locking.ErrNotOwner},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := site.NewInBubble(t)
				w := s.StartServing()
				c := s.NewClient()
				second, others := behind(t, w, c)
				tt.before(t, s, w, second)
				if err := second.Unlock(t.Context()); !errors.Is(err, tt.unlock) || (err == nil) != (tt.unlock == nil) {
					t.Errorf("Unlock: %v, want %v", err, tt.unlock)
				}
				third := <-others
				if n := grants(t, w); n != 3 {
					t.Errorf("%v grants, want 3", n)
				}
				if left := time.Until(third.Until()); left > kit.TTL || left < kit.TTL/2 {
					t.Errorf("the next one has it for %v", left)
				}
				if err := third.Unlock(t.Context()); err != nil || !w.IsFree(t, "k") {
					t.Errorf("Unlock of the last: %v", err)
				}
			})
		})
	}
}

// Who waits for his turn does not wait for one who has lost the lock, and works on.
func TestTurnsGoOnBesideALostOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		w := s.StartServing()
		second, others := behind(t, w, s.NewClient())
		_ = s.Store.Release(t.Context(), w.Incarnation())
		var third *client.Lock
		select {
		case third = <-others:
		case <-time.After(3 * kit.TTL):
			t.Fatal("the next one waits")
		}
		if second.Context().Err() == nil || third.Token() <= second.Token() {
			t.Errorf("token %d after %d, which has ended: %v", third.Token(), second.Token(), second.Context().Err() != nil)
		}
		if err := third.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// An owner that reserves fewer tokens than were asked for is asked again, and nobody has a token of his own making.
func TestTrapFewerTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var token atomic.Int64
		asked := make(chan int, 10)
		free := make(chan struct{}, 1) // is full while nobody has the key
		c := site.ClientOf(t, func(w *link.ResponseWriter, r *link.ServerRequest) {
			body := kit.Must(io.ReadAll(r.Body))
			if r.Method != holds.Acquire {
				free <- struct{}{}
				_, _ = w.Write(holds.Answers{States: []holder.Answer{holder.Held}}.Append(nil))
				return
			}
			req := kit.Must(holds.ParseRequest(body))
			asked <- req.Turns
			<-free
			g := holds.Grant{Token: token.Add(100), Lease: time.Minute, Promise: holder.Promise{Cancel: time.Minute, Surrender: time.Minute}}
			if req.Turns > 0 {
				g.Turns, g.Next = 1, g.Token+10
			}
			_, _ = w.Write(g.Append(nil))
		})
		var tokens []int64
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				l := kit.Must(c.Lock(t.Context(), "k"))
				tokens = append(tokens, l.Token())
				_ = l.Unlock(t.Context())
			})
			synctest.Wait()
		}
		free <- struct{}{}
		all.Wait()
		close(asked)
		var turns []int
		for n := range asked {
			turns = append(turns, n)
		}
		if !slices.Equal(tokens, []int64{100, 200, 210, 300, 310, 400}) || !slices.Equal(turns, []int{0, 4, 2, 0}) {
			t.Errorf("tokens %v, by calls for so many turns more: %v", tokens, turns)
		}
	})
}

// stopped is a context whose owner is stopped for a while when it looks at it, once it is told to.
type stopped struct {
	context.Context
	once chan time.Duration
}

// Err implements [context.Context].
func (c stopped) Err() error {
	select {
	case d := <-c.once:
		time.Sleep(d)
	default:
	}
	return c.Context.Err()
}

// A caller that is stopped between its turn and the beginning of its work does not begin with a lock that was lost
// meanwhile: it asks for another one, behind those who have the key then.
func TestTrapTurnOfOneWhoIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		w := s.StartServing()
		c := s.NewClient()
		ctx := stopped{t.Context(), make(chan time.Duration, 1)}
		late := make(chan *client.Lock, 1)
		var second *client.Lock
		_ = w.Do(t.Context(), "k", func(gateway.Execution) error {
			first := make(chan *client.Lock)
			go func() { first <- kit.Must(c.Lock(t.Context(), "k")) }()
			synctest.Wait()
			go func() {
				second = kit.Must(c.Lock(t.Context(), "k"))
			}()
			synctest.Wait()
			go func() { late <- kit.Must(c.Lock(ctx, "k")) }()
			synctest.Wait()
			go func() { _ = (<-first).Unlock(t.Context()) }()
			return nil
		})
		synctest.Wait()
		s.Sever(w, true) // so that the lock is not renewed
		ctx.once <- 3 * kit.TTL
		if err := second.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * kit.TTL)
		s.Sever(w, false)
		other := kit.Must(s.NewClient().Lock(t.Context(), "k"))
		time.Sleep(2 * kit.TTL)
		select {
		case l := <-late:
			t.Fatalf("two have the lock: tokens %d and %d, the first until %v", l.Token(), other.Token(), l.Until())
		default:
		}
		if err := other.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		if l := <-late; l.Context().Err() != nil || l.Token() <= other.Token() || l.Unlock(t.Context()) != nil {
			t.Errorf("token %d after %d, context %v", l.Token(), other.Token(), context.Cause(l.Context()))
		}
	})
}

// A client that is closed has nobody wait for his turn.
func TestCloseEndsTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		w := s.StartServing()
		c := s.NewClient()
		failed := make(chan error, 4)
		var all sync.WaitGroup
		wait := func() {
			all.Go(func() {
				_, err := c.Lock(t.Context(), "k")
				failed <- err
			})
			synctest.Wait()
		}
		var l *client.Lock
		_ = w.Do(t.Context(), "k", func(gateway.Execution) error {
			all.Go(func() { _ = kit.Must(c.Lock(t.Context(), "k")).Unlock(t.Context()) })
			synctest.Wait()
			all.Go(func() {
				l = kit.Must(c.Lock(t.Context(), "k"))
				wait() // behind the call that asks for itself
				c.Close()
			})
			synctest.Wait()
			wait()
			wait()
			return nil
		})
		all.Wait()
		for range 3 {
			if err := <-failed; !errors.Is(err, net.ErrClosed) && !errors.Is(err, gateway.ErrOwnershipLost) {
				t.Errorf("a wait when the client is closed: %v", err)
			}
		}
		if l.Context().Err() == nil {
			t.Error("the lock of a closed client goes on")
		}
	})
}

// While nobody can be reached each caller waits for as long as one alone would, after a call that was under way.
func TestTurnsWhenNobodyIsThere(t *testing.T) {
	const patience = time.Second
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		w := s.StartServing()
		s.Sever(w, true)
		c := s.NewClient(func(cfg *client.Config) { cfg.Hold = patience })
		var all sync.WaitGroup
		began := time.Now()
		for range 200 {
			all.Go(func() {
				_, err := c.Lock(t.Context(), "k")
				if d := time.Since(began); !errors.Is(err, gateway.ErrUnavailable) || d > 2*patience+patience/10 {
					t.Errorf("after %v: %v", d, err)
				}
			})
		}
		all.Wait()
	})
}

// Locks that are passed on exclude each other and rise, while workers come, leave and die.
func TestTrapTurnsMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		w := s.StartServing()
		q := &queue{t: t}
		var at atomic.Int32
		var done atomic.Bool
		var unlocked atomic.Int64
		for range 2 {
			c := s.NewClient(func(cfg *client.Config) { cfg.Hold = 5 * kit.TTL })
			for i := range 5 {
				q.all.Go(func() {
					for !done.Load() {
						l, err := c.Lock(t.Context(), "k")
						if err != nil {
							t.Errorf("Lock: %v", err)
							return
						}
						if n := at.Add(1); n != 1 {
							t.Errorf("%d have the lock at once", n)
						}
						q.got("", l.Token())
						select {
						case <-l.Context().Done():
						case <-time.After(time.Duration(i+1) * kit.TTL / 50):
						}
						at.Add(-1)
						if l.Unlock(t.Context()) == nil {
							unlocked.Add(1)
						}
					}
				})
			}
		}
		for i := range 4 {
			time.Sleep(kit.TTL)
			next := s.StartServing()
			if i%2 == 0 {
				_ = w.Drain(t.Context())
			}
			s.Kill(w)
			next.AwaitServing(t, 16)
			w = next
		}
		time.Sleep(kit.TTL)
		done.Store(true)
		q.all.Wait()
		if n := unlocked.Load(); n < 40 {
			t.Errorf("%d locks in all this time", n)
		}
		time.Sleep(kit.TTL / 10)
		if n := w.Status(); n.BusyKeys != 0 || n.Holds != 0 {
			t.Errorf("%d keys are busy in the end, %d holds", n.BusyKeys, n.Holds)
		}
	})
}
