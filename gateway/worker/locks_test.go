package worker_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/test/metrictest"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/link"
)

// A lock lasts for the lease that was asked for, and for the session TTL otherwise; its holder says
// how long it waits.
func TestLockLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).Start()
		w.AwaitServing(t, 16)
		c := newCaller(t, w)
		for _, tt := range []struct{ wanted, given time.Duration }{
			{0, 10 * time.Second},
			{20 * time.Second, 20 * time.Second},
			{3 * time.Second, 3 * time.Second},
		} {
			id := holds.NewID()
			grant := c.acquireAs("k", holds.Request{ID: id, Lease: tt.wanted})
			if grant.Lease != tt.given {
				t.Errorf("%v wanted, %v given, want %v", tt.wanted, grant.Lease, tt.given)
			}
			time.Sleep(tt.given - time.Second)
			if c.renew(id).States[0] != holder.Held {
				t.Error("the lock has ended early")
			}
			began := time.Now()
			if err := w.Do(t.Context(), "k", ok); err != nil {
				t.Error(err)
			}
			if d := time.Since(began); d < tt.given || d > tt.given+10*time.Millisecond {
				t.Errorf("free %v after the renewal, want %v", d, tt.given)
			}
			if c.renew(id).States[0] != holder.Gone {
				t.Error("a lock that has ended is renewed")
			}
		}
		c.acquire("k", holds.NewID())
		for _, wait := range []time.Duration{time.Second, 2 * time.Second} {
			began := time.Now()
			status, _, err := c.call(t.Context(), holds.Acquire, "k", holds.Request{ID: holds.NewID(), Wait: wait}.Append(nil))
			if d := time.Since(began); status != http.StatusConflict || err != nil || d != wait {
				t.Errorf("waited %v, want %v: %d %v", d, wait, status, err)
			}
		}
	})
}

// Locks end by their leases, whatever these are and in whatever order they came, and
// those that are renewed go on.
func TestLocksEndByThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, step = 400, 20 * time.Millisecond
		w := site.New(t, 4).Start()
		w.AwaitServing(t, 4)
		c := newCaller(t, w)
		renewed := holds.NewID()
		c.acquireAs("renewed", holds.Request{ID: renewed, Lease: time.Second})
		for i := range n { // the i-th lease has i*7919%n+1 steps, so that each number is there once
			c.acquireAs(fmt.Sprint("k", i), holds.Request{ID: holds.NewID(), Lease: time.Duration(i*7919%n+1) * step})
		}
		time.Sleep(step / 2)
		for ended := 0; ended <= n; ended += 20 {
			if held := w.Status().Holds - 1; held != n-ended {
				t.Fatalf("%d locks are left after %d steps, want %d", held, ended, n-ended)
			}
			if c.renew(renewed).States[0] != holder.Held {
				t.Fatal("a lock that is renewed has ended")
			}
			time.Sleep(20 * step)
		}
		time.Sleep(time.Second)
		if s := w.Status(); s.BusyKeys != 0 || s.Holds != 0 {
			t.Errorf("%d keys are busy in the end, %d locks", s.BusyKeys, s.Holds)
		}
	})
}

// pairOf starts two workers, and returns them, a key of the first, and callers of both.
func pairOf(t *testing.T, change ...func(*worker.Config)) (a, b *site.Worker, key string, toA, toB *caller) {
	c := site.New(t, 16)
	a = c.Start(change...)
	b = c.Start(change...)
	for a.Serving() < 4 || b.Serving() < 4 {
		time.Sleep(10 * time.Millisecond)
	}
	toA, toB = newCaller(t, a), newCaller(t, b)
	toB.key = toA.key
	for i := 0; key == ""; i++ {
		if k := fmt.Sprint("k", i); explain(t, a, k).Served {
			key = k
		}
	}
	return a, b, key, toA, toB
}

// leave takes a worker off the ring and waits until b has all.
func leave(t *testing.T, a, b *site.Worker) {
	t.Helper()
	if err := a.LeaveRing(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.AwaitServing(t, 16)
}

// follow makes a call about locks in the form that follows their partition.
func (c *caller) follow(method, key string, ids ...holds.ID) ([]holder.Answer, error) {
	status, body, err := c.call(c.t.Context(), method, key, c.refs(ids))
	if err != nil {
		return nil, err
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("%d %s", status, body)
	}
	r, err := holds.ParseAnswers(body, len(ids))
	if err == nil && method == holds.Renew && (r.Cancel <= 0 || r.Surrender <= r.Cancel) {
		c.t.Errorf("promised %+v", r.Promise)
	}
	return r.States, err
}

// A lock goes along with its partition: it is the same at its next owner, and the one
// before has nothing to say of it any more.
func TestTrapLocksMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, key, toA, toB := pairOf(t)
		id := holds.NewID()
		grant := toA.acquireAs(key, holds.Request{ID: id, Label: "job 7"})
		leave(t, a, b)
		if s := toA.renew(id).States[0]; s != holder.Elsewhere {
			t.Errorf("the former owner says %d of a renewal", s)
		}
		if s := toA.release(id)[0]; s != holder.Elsewhere {
			t.Errorf("the former owner says %d of a release", s)
		}
		_, err := toA.follow(holds.Renew, key, id)
		if r, _ := errors.AsType[*link.RefusedError](err); r == nil || r.Reason != link.NotOwner || r.Owner != b.Incarnation() {
			t.Errorf("the former owner says %v, want the new one's name", err)
		}
		if err := b.TryDo(t.Context(), key, ok); !errors.Is(err, gateway.ErrLocked) {
			t.Errorf("at the next owner: %v", err)
		}
		if again := toB.acquireAs(key, holds.Request{ID: id}); again.Token != grant.Token {
			t.Errorf("token %d became %d", grant.Token, again.Token)
		}
		h := explain(t, b, key).Holder
		if h == nil || h.Token != grant.Token || h.Kind != "hold" || h.Label != "job 7" || h.HeldBy == "" || h.LeaseSeconds <= 0 {
			t.Errorf("holder: %+v", h)
		}
		for range 3 {
			time.Sleep(8 * time.Second)
			if states, err := toB.follow(holds.Renew, key, id); err != nil || states[0] != holder.Held {
				t.Fatalf("renewed: %v %v", states, err)
			}
		}
		if states, err := toB.follow(holds.Release, key, id); err != nil || states[0] != holder.Held {
			t.Errorf("released: %v %v", states, err)
		}
		if s := toB.renew(id).States[0]; s != holder.Gone || !free(t, b, key) {
			t.Errorf("after the release it is %d, and free: %v", s, free(t, b, key))
		}
		for w, want := range map[*site.Worker]metrictest.Values{
			a: {`keyway_worker_locks`: 0, `keyway_worker_lock_events_total{event="granted"}`: 1, `keyway_worker_lock_events_total{event="moved-out"}`: 1},
			b: {`keyway_worker_locks`: 0, `keyway_worker_lock_events_total{event="moved-in"}`: 1, `keyway_worker_lock_events_total{event="renewed"}`: 3, `keyway_worker_lock_events_total{event="released"}`: 1},
		} {
			expectMetrics(t, w, want)
		}
	})
}

// A key that is won while its partition is closed is no lock: who listed what runs did
// not see one.
func TestTrapNoLockSlipsIntoAClosedTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, key, toA, toB := pairOf(t)
		var once sync.Once
		var moved chan struct{}
		a.OnConfirming(func() {
			once.Do(func() {
				moved = make(chan struct{})
				go func() {
					defer close(moved)
					leave(t, a, b)
				}()
				for !explain(t, b, key).Served {
					time.Sleep(10 * time.Millisecond)
				}
			})
		})
		id := holds.NewID()
		toA.key[id] = key
		status, body, err := toA.call(t.Context(), holds.Acquire, key, holds.Request{ID: id}.Append(nil))
		if r, _ := errors.AsType[*link.RefusedError](err); r == nil || r.Reason != link.NotOwner {
			t.Errorf("granted by a worker that has given the partition away: %d %q %v", status, body, err)
		}
		<-moved
		toB.acquire(key, id)
		if s := toB.renew(id).States[0]; s != holder.Held {
			t.Errorf("at the next owner it is %d", s)
		}
	})
}

// A lock that has come to an owner who died soon keeps its key from others for the rest
// of its lease, and is lost to its holder: that owner may have ended it and granted the key
// again.
func TestTrapLocksOfTheDeadOnlyBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		a := c.StartOwner()
		toA, id := newCaller(t, a), holds.NewID()
		toA.acquire("k", id)
		b := c.Start(func(cfg *worker.Config) { cfg.Logger = nil })
		for b.Serving() < 4 {
			time.Sleep(10 * time.Millisecond)
		}
		leave(t, a, b)
		d := c.Start()
		_ = d
		b.Close()
		b.Member.Vanish()
		for !explain(t, d, "k").Served {
			time.Sleep(10 * time.Millisecond)
		}
		served := time.Now()
		toD := newCaller(t, d)
		toD.key = toA.key
		if s := toD.renew(id).States[0]; s != holder.Gone {
			t.Errorf("renewed after the death of its owner: %d", s)
		}
		if status, body, err := toD.call(t.Context(), holds.Acquire, "k", holds.Request{ID: id, Try: true}.Append(nil)); status != http.StatusConflict || err != nil {
			t.Errorf("granted again: %d %q %v", status, body, err)
		}
		if err := d.TryDo(t.Context(), "k", ok); !errors.Is(err, gateway.ErrLocked) {
			t.Errorf("the key is not kept from others: %v", err)
		}
		if err := d.Do(t.Context(), "k", ok); err != nil || time.Since(served) > 10*time.Second {
			t.Errorf("free after %v: %v", time.Since(served), err)
		}
	})
}

// A worker leaves while ten thousand of its keys are held: each is held at the next
// owner, can be renewed and released there, and none was free in between.
func TestTrapLeavingDoesNotWaitForLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		a, b, _, toA, toB := pairOf(t)
		var ids []holds.ID
		tokens := make(map[holds.ID]int64)
		for i := 0; len(ids) < n; i++ {
			if key := fmt.Sprint("key", i); explain(t, a, key).Served {
				id := holds.NewID()
				tokens[id] = toA.acquire(key, id).Token
				ids = append(ids, id)
			}
		}
		before := time.Now()
		leave(t, a, b)
		if d := time.Since(before); d > 2*time.Second {
			t.Errorf("it took %v to leave", d)
		}
		if a, b := a.Status().Holds, b.Status().Holds; a != 0 || b != n {
			t.Errorf("%d locks are left, %d have moved", a, b)
		}
		for part := range slices.Chunk(ids, holds.MaxRefs) {
			if r := toB.renew(part...); slices.ContainsFunc(r.States, func(s holder.Answer) bool { return s != holder.Held }) {
				t.Fatal("a lock is not held at the next owner")
			}
			for _, id := range part[:20] {
				if again := toB.acquire(toB.key[id], id); again.Token != tokens[id] {
					t.Errorf("token %d became %d", tokens[id], again.Token)
				}
				if err := b.TryDo(t.Context(), toB.key[id], ok); !errors.Is(err, gateway.ErrLocked) {
					t.Errorf("a key that is held: %v", err)
				}
			}
			toB.release(part...)
		}
		if s := b.Status(); s.BusyKeys != 0 || s.Holds != 0 {
			t.Errorf("%d keys are busy after all were released, %d locks", s.BusyKeys, s.Holds)
		}
	})
}

// The locks of a life that is over have ended before its session is released.
func TestTrapALifeIsReleasedAfterItsLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 1)
		store := &releasedStore{Store: c.Store}
		w := c.StartOwner(func(cfg *worker.Config) { cfg.Store = store })
		caller, first := newCaller(t, w), w.Incarnation()
		released, left := holds.NewID(), holds.NewID()
		caller.acquireAs("released", holds.Request{ID: released, Lease: 4 * time.Second})
		caller.acquireAs("left", holds.Request{ID: left, Lease: 5 * time.Second})
		if err := c.Store.Release(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		for w.Incarnation() == first {
			time.Sleep(100 * time.Millisecond)
		}
		awaitServed(t, w, "left")
		if r := caller.renew(released, left); !slices.Equal(r.States, []holder.Answer{holder.Gone, holder.Gone}) {
			t.Errorf("renewed by the next life: %v", r.States)
		}
		if s := caller.release(released)[0]; s != holder.Gone || free(t, w, "released") {
			t.Errorf("released in the next life: %v, and free: %v", s, free(t, w, "released"))
		}
		time.Sleep(2 * time.Second)
		if store.has(first) {
			t.Error("the former life is released while a key of it is held")
		}
		time.Sleep(4 * time.Second)
		if !store.has(first) {
			t.Error("the former life is not released though its last lock has ended")
		}
	})
}

// Locks that have come along are noted before the first of them is renewed or extended: the
// incarnation of a process that dies must not be released early then.
func TestTrapLocksThatHaveComeAreNoted(t *testing.T) {
	for i := range 4 {
		fails, extends := i&1 != 0, i&2 != 0
		synctest.Test(t, func(t *testing.T) {
			var noted []string
			a, b, key, toA, toB := pairOf(t, func(cfg *worker.Config) {
				cfg.OnIncarnation = func(string) error { return nil }
				cfg.OnHold = func(id string) error {
					if noted = append(noted, id); fails && len(noted) > 1 {
						return errors.New("disk full")
					}
					return nil
				}
			})
			id := holds.NewID()
			toA.acquire(key, id)
			leave(t, a, b)
			states, err := []holder.Answer{holder.Held}, error(nil)
			if extends {
				_, _, err = toB.call(t.Context(), holds.Extend, key, holds.Request{ID: id}.Append(nil))
			} else {
				states, err = toB.follow(holds.Renew, key, id)
			}
			if !slices.Equal(noted, []string{a.Incarnation(), b.Incarnation()}) || fails == (err == nil) || !fails && states[0] != holder.Held {
				t.Errorf("noted %v; %v %v", noted, states, err)
			}
		})
	}
}

// A call for a lock ends with its context, and leaves the key free, though noting the life takes for ever.
func TestTrapNotingALifeMayHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var noted atomic.Int64
		hang := make(chan struct{})
		end := sync.OnceFunc(func() { close(hang) })
		defer end()
		w := site.New(t, 16).Start(func(cfg *worker.Config) {
			cfg.OnHold = func(string) error {
				noted.Add(1)
				<-hang
				return nil
			}
		})
		w.AwaitServing(t, 16)
		c := newCaller(t, w)
		acquire := func() (status int, err error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			status, _, err = c.call(ctx, holds.Acquire, "k", holds.Request{ID: holds.NewID()}.Append(nil))
			return status, err
		}
		for range 2 {
			status, err := acquire()
			if synctest.Wait(); err == nil || !free(t, w, "k") {
				t.Fatalf("the key is free: %v; %d, %v", free(t, w, "k"), status, err)
			}
		}
		end()
		if status, err := acquire(); status != http.StatusOK || noted.Load() != 1 {
			t.Errorf("afterwards: %d, %v, noted %d times", status, err, noted.Load())
		}
	})
}

// Noting a life may take so long that the next one begins, which then gets a lock along with its partition. It makes no
// promise before it is noted too.
func TestTrapTheNextLifeIsNotedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.New(t, 16)
		var noted []string
		stalled, resume := make(chan struct{}), make(chan struct{})
		notes := func(cfg *worker.Config) {
			cfg.OnIncarnation = func(string) error { return nil }
			cfg.OnHold = func(id string) error {
				if noted = append(noted, id); len(noted) == 2 {
					close(stalled)
					<-resume
				}
				return nil
			}
		}
		a, b := s.Start(notes), s.Start(notes)
		together(t, a, b)
		toA, toB := newCaller(t, a), newCaller(t, b)
		toB.key = toA.key
		key, id := s.KeyOf(a, "k"), holds.NewID()
		toA.acquire(key, id)
		renewed := make(chan holds.Answers, 1)
		go func() { renewed <- toB.renew(id) }()
		<-stalled
		first := b.Incarnation()
		if err := s.Store.Release(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		for b.Incarnation() == first || b.Ready() != nil {
			time.Sleep(10 * time.Millisecond)
		}
		leave(t, a, b)
		close(resume)
		answer := <-renewed
		if want := []string{a.Incarnation(), first, b.Incarnation()}; answer.States[0] != holder.Held || !slices.Equal(noted, want) {
			t.Errorf("%v, and noted %v, want %v", answer, noted, want)
		}
	})
}

// The locks of one partition are as many as can travel with it.
func TestLocksOfAPartitionAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 1).Start()
		w.AwaitServing(t, 1)
		c := newCaller(t, w)
		for i := range 1000 {
			key := fmt.Sprintf("%04000d", i)
			_, _, err := c.call(t.Context(), holds.Acquire, key, holds.Request{ID: holds.NewID()}.Append(nil))
			if r, _ := errors.AsType[*link.RefusedError](err); r != nil && r.Reason == link.Busy {
				if i < 150 || i > 250 {
					t.Errorf("%d locks of 4000 bytes are too many", i)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		t.Error("a thousand locks of 4000 bytes are not too many")
	})
}

// BenchmarkLocksHeld tells what one of a million keys that are held for others takes, with
// its name and a label, and how long a call for another key waits at most while all end at
// once.
func BenchmarkLocksHeld(b *testing.B) {
	const many = 1_000_000
	w := site.New(b, 4096).StartReady(func(cfg *worker.Config) { cfg.MaxHolds = many })
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for b.Loop() {
		before := heap()
		for i := range many {
			if err := w.HoldFor(b.Context(), fmt.Sprintf("account-%d", i), fmt.Sprintf("job %d", i%1000), "10.0.0.7:41234"); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(heap()-before)/many, "B/lock")
		var longest time.Duration
		for w.Status().Holds > 0 {
			began := time.Now()
			if err := w.Do(context.Background(), "other", ok); err != nil {
				b.Fatal(err)
			}
			longest = max(longest, time.Since(began))
		}
		b.ReportMetric(longest.Seconds()*1000, "ms/longest-call")
	}
}
