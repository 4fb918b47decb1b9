package worker_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/site"
)

// chain is an execution that, once it was told to, asks for keys within one another.
type chain struct {
	goOn chan struct{}
	err  chan error // of the first of them
}

// hold has an execution hold key first, and ask for others when its goOn is closed.
func hold(t *testing.T, w *site.Worker, first string, others ...string) chain {
	c := chain{make(chan struct{}), make(chan error, 1)}
	go func() {
		err := w.Do(t.Context(), first, func(x gateway.Execution) error {
			_ = x.Context() // from now on the chain has its age
			<-c.goOn
			c.err <- within(w, x, others)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}()
	synctest.Wait()
	return c
}

// within asks for keys, each within the execution of the one before.
func within(w *site.Worker, x gateway.Execution, keys []string) error {
	if len(keys) == 0 {
		return nil
	}
	return w.Do(x.Context(), keys[0], func(x gateway.Execution) error { return within(w, x, keys[1:]) })
}

func wantDeadlock(t *testing.T, err error, held, key string) {
	t.Helper()
	deadlock, is := errors.AsType[*gateway.DeadlockError](err)
	if !is || deadlock.Held != held || deadlock.Key != key {
		t.Errorf("%v, want a deadlock of one that holds %q and waits for %q", err, held, key)
	}
}

// Of two chains that wait for each other the younger fails at once, whichever of
// them closed the circle, and the other goes on.
func TestDeadlockFailsTheYounger(t *testing.T) {
	for _, last := range []string{"older", "younger"} {
		t.Run("the "+last+" asks last", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := site.New(t, 16)
				w := c.StartOwner()
				older, younger := hold(t, w, "a", "b"), hold(t, w, "b", "a")
				order := []chain{older, younger}
				if last == "older" {
					order = []chain{younger, older}
				}
				began := time.Now()
				for _, c := range order {
					close(c.goOn)
					synctest.Wait()
				}
				wantDeadlock(t, <-younger.err, "b", "a")
				if err := <-older.err; err != nil {
					t.Errorf("the older: %v", err)
				}
				again := hold(t, w, "b", "a")
				close(again.goOn)
				if err := <-again.err; err != nil {
					t.Errorf("tried again: %v", err)
				}
				if took := time.Since(began); took != 0 {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// A circle of three is found, with others in the queues between them; those that
// only queue, and chains that lead into the circle, wait on.
func TestDeadlockOfThree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		w := c.StartOwner()
		var queued sync.WaitGroup
		chains := []chain{hold(t, w, "a", "b"), hold(t, w, "b", "inner", "c"), hold(t, w, "c", "a")}
		aside := hold(t, w, "d", "a")
		for _, key := range []string{"a", "b", "c"} {
			queued.Go(func() {
				if err := w.Do(t.Context(), key, ok); err != nil {
					t.Errorf("%s: %v", key, err)
				}
			})
		}
		synctest.Wait()
		close(aside.goOn)
		for _, c := range chains {
			synctest.Wait()
			close(c.goOn)
		}
		wantDeadlock(t, <-chains[2].err, "c", "a")
		for _, c := range []chain{chains[0], chains[1], aside} {
			if err := <-c.err; err != nil {
				t.Error(err)
			}
		}
		queued.Wait()
	})
}

// Of an execution that waits for several keys, only the wait fails that is in the circle.
func TestDeadlockOfOneOfSeveralWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).StartOwner()
		aside, older := hold(t, w, "aside"), hold(t, w, "b", "a")
		err := w.Do(t.Context(), "a", func(x gateway.Execution) error {
			var others sync.WaitGroup
			defer others.Wait()
			others.Go(func() {
				if err := w.Do(x.Context(), "aside", ok); err != nil {
					t.Errorf("outside of the circle: %v", err)
				}
			})
			synctest.Wait()
			time.AfterFunc(time.Second, func() { close(older.goOn) })
			time.AfterFunc(2*time.Second, func() { close(aside.goOn) })
			wantDeadlock(t, w.Do(x.Context(), "b", ok), "a", "b")
			return nil
		})
		if err := cmp.Or(err, <-older.err, <-aside.err); err != nil {
			t.Error(err)
		}
	})
}

// A chain that waits is no deadlock as long as the one that it waits for runs, or
// waits for something that it does not hold.
func TestNoDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		w := c.StartOwner()
		err := w.Do(t.Context(), "free", func(free gateway.Execution) error {
			first, second, third := hold(t, w, "a", "b"), hold(t, w, "b", "free"), hold(t, w, "c", "b")
			for _, c := range []chain{first, second, third} {
				close(c.goOn)
				synctest.Wait()
			}
			// A second wait of an execution that one of them waits for.
			if err := w.Do(free.Context(), "other", ok); err != nil {
				t.Error(err)
			}
			go func() {
				for _, c := range []chain{first, second, third} {
					if err := <-c.err; err != nil {
						t.Error(err)
					}
				}
			}()
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		synctest.Wait()
	})
}

// What an execution has held that has ended is no part of a circle, though a call
// that began in it waits on.
func TestNoDeadlockWithWhatHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).StartOwner()
		b := hold(t, w, "b", "a")
		var wg sync.WaitGroup
		_ = w.Do(t.Context(), "a", func(x gateway.Execution) error {
			left := context.WithoutCancel(x.Context())
			wg.Go(func() {
				if err := w.Do(left, "b", ok); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
			return nil
		})
		_ = w.Do(t.Context(), "a", func(gateway.Execution) error {
			close(b.goOn)
			synctest.Wait()
			return nil
		})
		if err := <-b.err; err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
}

// A caller that shares a read waits for the key of the read, within which the
// function may wait for what the caller holds.
func TestDeadlockThroughShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).StartOwner()
		goOn := make(chan struct{})
		read := func(x gateway.Execution) (int, error) {
			_ = x.Context()
			<-goOn
			return 1, w.Do(x.Context(), "held", ok)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if v, _, err := worker.Share(t.Context(), w.Worker, "k", "read", read); v != 1 || err != nil {
				t.Errorf("the first caller: %d, %v", v, err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			_ = w.Do(t.Context(), "held", func(x gateway.Execution) error {
				_, _, err := worker.Share(x.Context(), w.Worker, "k", "read", read)
				wantDeadlock(t, err, "held", "k")
				return nil
			})
		})
		synctest.Wait()
		close(goOn)
		wg.Wait()
	})
}

// A batch that waits for what the caller of one of its items holds fails, or the
// caller does: whichever is younger.
func TestDeadlockThroughBatch(t *testing.T) {
	for _, leads := range []bool{true, false} {
		t.Run(fmt.Sprint("the caller leads: ", leads), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := site.New(t, 16).StartOwner()
				b := newBatches(t, w, worker.BatchConfig{})
				b.hook = func(x gateway.Execution, _ []*worker.Item[string, string]) error {
					return w.Do(x.Context(), "held", ok)
				}
				err := w.Do(t.Context(), "held", func(x gateway.Execution) error {
					ctx := x.Context()
					release := make(chan struct{})
					if !leads {
						b.wg.Go(func() {
							_ = w.Do(t.Context(), "k", func(gateway.Execution) error { <-release; return nil })
						})
						synctest.Wait()
						b.wg.Go(func() { _, _ = b.Do(t.Context(), "k", "other") })
						synctest.Wait()
						b.wg.Go(func() {
							synctest.Wait()
							close(release)
						})
					}
					_, err := b.Do(ctx, "k", "mine")
					wantDeadlock(t, err, "k", "held")
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				b.wg.Wait()
			})
		})
	}
}

// Whatever chains wait for, all of them end, and none fails but for a deadlock.
func TestDeadlockStress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).StartOwner(func(cfg *worker.Config) { cfg.MaxWait = time.Hour })
		began := time.Now()
		var wg sync.WaitGroup
		var mu sync.Mutex
		deadlocks := 0
		running := make(map[string]int64) // token of the execution that holds a key
		for i := range 16 {
			random := rand.New(rand.NewPCG(uint64(i), 7))
			wg.Go(func() {
				var nest func(ctx context.Context, depth int) error
				nest = func(ctx context.Context, depth int) error {
					key := fmt.Sprint("key-", random.IntN(6))
					return w.Do(ctx, key, func(x gateway.Execution) error {
						mu.Lock()
						inner := running[key]
						if inner != 0 && inner != x.Token() {
							t.Errorf("%s is held with tokens %d and %d", key, inner, x.Token())
						}
						running[key] = x.Token()
						mu.Unlock()
						defer func() {
							mu.Lock()
							running[key] = inner
							mu.Unlock()
						}()
						time.Sleep(time.Duration(random.IntN(3)) * time.Millisecond)
						if depth == 0 {
							return nil
						}
						return nest(x.Context(), depth-1)
					})
				}
				for range 200 {
					err := nest(t.Context(), random.IntN(4))
					if _, is := errors.AsType[*gateway.DeadlockError](err); is {
						mu.Lock()
						deadlocks++
						mu.Unlock()
					} else if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if took := time.Since(began); took > 10*time.Minute || deadlocks == 0 {
			t.Errorf("%v, %d deadlocks", took, deadlocks)
		}
	})
}
