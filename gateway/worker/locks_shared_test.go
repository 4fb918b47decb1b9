package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/test/site"
)

// asked is a lock that was asked for.
type asked struct {
	name   string
	shared bool
	id     holds.ID
	grant  chan holds.Grant // gets one value
}

// ask asks for a key in the background.
func (c *caller) ask(key, name string, shared bool) *asked {
	a := &asked{name: name, shared: shared, id: holds.NewID(), grant: make(chan holds.Grant, 1)}
	go func() {
		if _, body, err := c.call(c.t.Context(), holds.Acquire, key, holds.Request{ID: a.id, Shared: shared}.Append(nil)); err == nil {
			g, _ := holds.ParseGrant(body)
			a.grant <- g
		}
	}()
	synctest.Wait()
	return a
}

// granted returns the token of a lock; 0 for one that waits.
func (a *asked) granted() int64 {
	synctest.Wait()
	select {
	case g := <-a.grant:
		a.grant <- g
		return g.Token
	default:
		return 0
	}
}

// Shared locks hold a key together, with one token, and give way to others in the order of
// the queue.
func TestSharedLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).Start()
		w.AwaitServing(t, 16)
		c := newCaller(t, w)
		c.key = nil
		var all []*asked
		ask := func(name string, shared bool) *asked {
			a := c.ask("k", name, shared)
			all = append(all, a)
			return a
		}
		release := func(a *asked) {
			body := holds.AppendRefs(nil, []holds.Ref{{ID: a.id, Partition: w.Ring.Partition("k")}})
			if _, _, err := c.call(t.Context(), holds.Release, "", body); err != nil {
				t.Fatal(err)
			}
			all = slices.DeleteFunc(all, func(other *asked) bool { return other == a })
		}
		expect := func(when string, want ...*asked) {
			t.Helper()
			var got, names []string
			for _, a := range all {
				if a.granted() != 0 {
					got = append(got, a.name)
				}
			}
			for _, a := range want {
				names = append(names, a.name)
			}
			if !slices.Equal(got, names) {
				t.Fatalf("%s: held by %v, want %v", when, got, names)
			}
		}
		r1 := ask("r1", true)
		r2 := ask("r2", true)
		expect("two who share", r1, r2)
		if r1.granted() != r2.granted() {
			t.Errorf("they have tokens %d and %d", r1.granted(), r2.granted())
		}
		if err := w.TryDo(t.Context(), "k", ok); !errors.Is(err, gateway.ErrLocked) {
			t.Errorf("beside shared locks: %v", err)
		}
		if o, h := c.inspect("k"), explain(t, w, "k").Holder; o.Shared != 2 || !o.Lock || o.Token != r1.granted() || h == nil || h.Shared != 2 {
			t.Errorf("two share the key: %+v, %+v", o, h)
		}
		w1 := ask("w1", false)
		r3 := ask("r3", true)
		r4 := ask("r4", true)
		w2 := ask("w2", false)
		r5 := ask("r5", true)
		expect("none passes the one that waits", r1, r2)
		release(r1)
		expect("the first of two has gone", r2)
		release(r2)
		expect("both have gone", w1)
		release(w1)
		expect("those right behind come together", r3, r4)
		if r3.granted() != r4.granted() || r3.granted() <= r1.granted() {
			t.Errorf("tokens %d and %d after %d", r3.granted(), r4.granted(), r1.granted())
		}
		release(r4)
		release(r5)
		release(r3)
		expect("one has given up its wait", w2)
		release(w2)
		r6 := ask("r6", true)
		expect("a free key", r6)
		for _, try := range []struct {
			shared bool
			status int
		}{{true, http.StatusOK}, {false, http.StatusConflict}} {
			id := holds.NewID()
			status, body, err := c.call(t.Context(), holds.Acquire, "k", holds.Request{ID: id, Try: true, Shared: try.shared}.Append(nil))
			if status != try.status || err != nil {
				t.Errorf("shared %v, without a wait: %d %q %v", try.shared, status, body, err)
			}
			release(&asked{id: id})
		}
		release(r6)
		if s := w.Status(); s.BusyKeys != 0 || s.Holds != 0 {
			t.Errorf("%d keys are busy in the end, %d locks", s.BusyKeys, s.Holds)
		}
	})
}

// Readers that wait behind a writer share the key with its holder as soon as the writer gives up, however it does.
func TestTrapReadersBehindAWriterThatLeft(t *testing.T) {
	for name, writer := range map[string]func(c *caller){
		"its wait ends": func(c *caller) {
			if status, _, err := c.call(c.t.Context(), holds.Acquire, "k", holds.Request{ID: holds.NewID(), Wait: time.Second}.Append(nil)); status != http.StatusConflict {
				c.t.Errorf("the writer: %d %v", status, err)
			}
		},
		"its call ends": func(c *caller) {
			ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
			defer cancel()
			_, _, _ = c.call(ctx, holds.Acquire, "k", holds.Request{ID: holds.NewID()}.Append(nil))
		},
		"it is released": func(c *caller) {
			id := holds.NewID()
			time.AfterFunc(time.Second, func() { c.release(id) })
			_, _, _ = c.call(c.t.Context(), holds.Acquire, "k", holds.Request{ID: id}.Append(nil))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := site.New(t, 1).Start()
				w.AwaitServing(t, 1)
				c := newCaller(t, w)
				first := c.ask("k", "first", true).granted()
				go writer(c)
				synctest.Wait()
				var readers []*asked
				for range 30 {
					readers = append(readers, c.ask("k", "reader", true))
				}
				if readers[0].granted() != 0 {
					t.Error("a reader has passed the writer that waits")
				}
				time.Sleep(1100 * time.Millisecond)
				readers = append(readers, c.ask("k", "one that has come later", true))
				for i, r := range readers {
					if got := r.granted(); got != first {
						t.Fatalf("reader %d: token %d after the writer has left, want %d as the first one", i, got, first)
					}
				}
			})
		})
	}
}

// The last lease of those that share a key is the one that frees it.
func TestSharedLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).Start()
		w.AwaitServing(t, 16)
		c := newCaller(t, w)
		before := time.Now()
		for _, lease := range []time.Duration{2 * time.Second, 5 * time.Second, time.Second} {
			c.acquireAs("k", holds.Request{ID: holds.NewID(), Shared: true, Lease: lease})
		}
		if err := w.Do(t.Context(), "k", ok); err != nil || time.Since(before).Round(100*time.Millisecond) != 5*time.Second {
			t.Errorf("free after %v: %v", time.Since(before), err)
		}
	})
}

// Shared locks go along with their partition, and others join them at its next owner.
func TestTrapSharedLocksMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, key, toA, toB := pairOf(t)
		ids := []holds.ID{holds.NewID(), holds.NewID(), holds.NewID()}
		share := func(c *caller, id holds.ID) int64 {
			return c.acquireAs(key, holds.Request{ID: id, Shared: true}).Token
		}
		first, second := share(toA, ids[0]), share(toA, ids[1])
		leave(t, a, b)
		if third := share(toB, ids[2]); second != first || third != first {
			t.Errorf("tokens %d, %d and, at the next owner, %d", first, second, third)
		}
		for i := range ids {
			if err := b.TryDo(t.Context(), key, ok); !errors.Is(err, gateway.ErrLocked) {
				t.Errorf("with %d locks: %v", len(ids)-i, err)
			}
			if s := toB.release(ids[i])[0]; s != holder.Held {
				t.Errorf("lock %d was %d at its release", i, s)
			}
		}
		if !free(t, b, key) || b.Status().Holds != 0 {
			t.Error("the key is held though all have released it")
		}
	})
}

// Nobody joins locks that their owner cannot vouch for any more, or that only block their
// key: others may have held it since.
func TestTrapNobodyJoinsLostLocks(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, c *site.Site, a *site.Worker) *site.Worker{
		"the next life": func(t *testing.T, c *site.Site, a *site.Worker) *site.Worker {
			first := a.Incarnation()
			if err := c.Store.Release(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			for a.Incarnation() == first || !explain(t, a, "k").Served {
				time.Sleep(100 * time.Millisecond)
			}
			return a
		},
		"an owner that had them and died": func(t *testing.T, c *site.Site, a *site.Worker) *site.Worker {
			b := c.Start(func(cfg *worker.Config) { cfg.Logger = nil })
			for b.Serving() < 4 {
				time.Sleep(10 * time.Millisecond)
			}
			leave(t, a, b)
			d := c.Start()
			b.Close()
			b.Member.Vanish()
			for !explain(t, d, "k").Served {
				time.Sleep(10 * time.Millisecond)
			}
			return d
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := site.New(t, 16)
				a := c.StartOwner()
				grant := newCaller(t, a).acquireAs("k", holds.Request{ID: holds.NewID(), Shared: true})
				w := lose(t, c, a)
				to := newCaller(t, w)
				if status, _, err := to.call(t.Context(), holds.Acquire, "k", holds.Request{ID: holds.NewID(), Shared: true, Try: true}.Append(nil)); err == nil && status == http.StatusOK {
					t.Error("another has joined")
				}
				if again := to.acquireAs("k", holds.Request{ID: holds.NewID(), Shared: true}); again.Token <= grant.Token {
					t.Errorf("token %d after %d", again.Token, grant.Token)
				}
			})
		})
	}
}

// sharedKey sees who holds a key.
type sharedKey struct {
	mu              sync.Mutex
	shared, alone   int
	last, lastAlone int64 // tokens
}

func (k *sharedKey) enter(shared bool, token int64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if shared {
		k.shared++
	} else {
		k.alone++
	}
	bad := k.alone > 1 || k.alone == 1 && k.shared > 0 || token < k.last || token <= k.lastAlone || !shared && token == k.last
	if k.last = token; !shared {
		k.lastAlone = token
	}
	if bad {
		return fmt.Errorf("%d share the key and %d hold it alone; token %d after %d, and alone %d", k.shared, k.alone, token, k.last, k.lastAlone)
	}
	return nil
}

func (k *sharedKey) leave(shared bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if shared {
		k.shared--
	} else {
		k.alone--
	}
}

// Many take two keys, together and alone, by locks and executions, wait as long as they
// like and leave when they want, while the keys' partitions come and go.
func TestSharedLocksAtRandom(t *testing.T) {
	const callers, rounds = 12, 25
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			w := site.New(t, 16).Start()
			w.AwaitServing(t, 16)
			c := newCaller(t, w)
			c.key = map[holds.ID]string{}
			keys := map[string]*sharedKey{"x": {}, "y": {}}
			var wg sync.WaitGroup
			for i := range uint64(callers) {
				random := rand.New(rand.NewPCG(seed, i))
				wg.Go(func() {
					for range rounds {
						key, shared := string("xy"[random.IntN(2)]), random.IntN(3) > 0
						work, patience := time.Duration(random.IntN(20))*time.Millisecond, time.Duration(1+random.IntN(60))*time.Millisecond
						if random.IntN(5) == 0 {
							if err := w.Do(t.Context(), key, func(x gateway.Execution) error {
								defer keys[key].leave(false)
								defer time.Sleep(work)
								return keys[key].enter(false, x.Token())
							}); err != nil {
								t.Error(err)
							}
							continue
						}
						ctx, cancel := context.WithTimeout(t.Context(), patience)
						id := holds.NewID()
						status, body, err := c.call(ctx, holds.Acquire, key, holds.Request{ID: id, Shared: shared, Try: random.IntN(8) == 0}.Append(nil))
						cancel()
						if err == nil && status == http.StatusOK {
							grant, err := holds.ParseGrant(body)
							if err == nil {
								err = keys[key].enter(shared, grant.Token)
							}
							if err != nil {
								t.Error(err)
							}
							time.Sleep(work)
							keys[key].leave(shared)
						}
						refs := holds.AppendRefs(nil, []holds.Ref{{ID: id, Partition: w.Ring.Partition(key)}})
						if _, _, err := c.call(t.Context(), holds.Release, "", refs); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			synctest.Wait()
			if s := w.Status(); s.BusyKeys != 0 || s.Holds != 0 {
				t.Errorf("seed %d: %d keys are busy in the end, %d locks", seed, s.BusyKeys, s.Holds)
			}
		})
	}
}
