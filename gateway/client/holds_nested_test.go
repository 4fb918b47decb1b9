package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/client"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/localmutex/locking"
)

// A call within what holds its key keeps the key held until it has ended, wherever the key is held, and its context
// ends with it.
func TestTrapNestedCallHoldsItsKey(t *testing.T) {
	type call func(c *client.Client, ctx context.Context, fn func(context.Context)) error
	do := func(c *client.Client, ctx context.Context, fn func(context.Context)) error {
		return c.Do(ctx, "k", func(x gateway.Execution) error { fn(x.Context()); return nil })
	}
	doAll := func(c *client.Client, ctx context.Context, fn func(context.Context)) error {
		return c.DoAll(ctx, []string{"k"}, func(x gateway.Execution) error { fn(x.Context()); return nil })
	}
	lock := func(c *client.Client, ctx context.Context, fn func(context.Context)) error {
		l := kit.Must(c.Lock(ctx, "k"))
		fn(l.Context())
		return l.Unlock(ctx)
	}
	for name, tt := range map[string]struct{ outer, inner call }{
		"Do in Do": {do, do}, "Do in DoAll": {doAll, do}, "Do in Lock": {lock, do}, "DoAll in Do": {do, doAll}, "DoAll in Lock": {lock, doAll},
	} {
		for _, local := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, at the own worker: %v", name, local), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := site.NewInBubble(t)
					w := s.StartServing()
					c := s.NewClient(func(cfg *client.Config) {
						if local {
							cfg.Local = w.Local(w.Handler(nil))
						}
					})
					other := s.NewClient()
					var inside atomic.Bool
					var calls sync.WaitGroup
					run := func(f call, c *client.Client, ctx context.Context, fn func(context.Context)) {
						calls.Go(func() {
							if err := f(c, ctx, fn); err != nil {
								t.Error(err)
							}
						})
						synctest.Wait()
					}
					err := tt.outer(c, t.Context(), func(ctx context.Context) {
						var ended context.Context
						if err := tt.inner(c, ctx, func(within context.Context) { ended = within }); err != nil || ended.Err() == nil || ctx.Err() != nil {
							t.Errorf("%v; after a nested call its context: %v, that around it: %v", err, ended.Err(), ctx.Err())
						}
						run(tt.inner, c, ctx, func(context.Context) {
							inside.Store(true)
							time.Sleep(kit.TTL)
							inside.Store(false)
						})
						for _, next := range []*client.Client{c, c, other} {
							run(do, next, t.Context(), func(context.Context) {
								if inside.Load() {
									t.Error("two executions of a key overlap")
								}
							})
						}
						if !inside.Load() {
							t.Error("the nested call waits")
						}
					})
					if err != nil {
						t.Error(err)
					}
					calls.Wait()
					synctest.Wait()
					if !w.IsFree(t, "k") {
						t.Error("the key is held in the end")
					}
				})
			})
		}
	}
}

// atEachWorker runs a test in a bubble with a client of a worker elsewhere, and with one of the process's own worker.
func atEachWorker(t *testing.T, test func(t *testing.T, w *site.Worker, c *client.Client)) {
	for _, local := range []bool{false, true} {
		t.Run(fmt.Sprint("at the own worker: ", local), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := site.NewInBubble(t)
				w := s.StartServing()
				c := s.NewClient(func(cfg *client.Config) {
					if local {
						cfg.Local = w.Local(w.Handler(nil))
					}
				})
				test(t, w, c)
			})
		})
	}
}

// A nested call may unlock what it runs within, and frees the key when it ends.
func TestTrapNestedCallUnlocks(t *testing.T) {
	atEachWorker(t, func(t *testing.T, w *site.Worker, c *client.Client) {
		l := kit.Must(c.Lock(t.Context(), "k"))
		err := c.Do(l.Context(), "k", func(x gateway.Execution) error {
			if err := l.Unlock(t.Context()); err != nil {
				t.Errorf("unlocking within: %v", err)
			}
			if err := l.Unlock(t.Context()); !errors.Is(err, locking.ErrNotOwner) {
				t.Errorf("unlocking again: %v", err)
			}
			if w.IsFree(t, "k") {
				t.Error("the key is free within the call")
			}
			return nil
		})
		synctest.Wait()
		if err != nil || !w.IsFree(t, "k") {
			t.Errorf("%v; the key is free after the call: %v", err, w.IsFree(t, "k"))
		}
	})
}

// Nothing begins within what has lost its key, and what has begun there is cancelled, also if its caller's context does not
// end with that.
func TestTrapNestedCallTooLate(t *testing.T) {
	for _, local := range []bool{false, true} {
		t.Run(fmt.Sprint("at the own worker: ", local), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := site.NewInBubble(t)
				store := &site.CutStore{Store: s.Store}
				w := s.StartServing(func(cfg *worker.Config) { cfg.Store = store })
				c := s.NewClient(func(cfg *client.Config) {
					if local {
						cfg.Local = w.Local(w.Handler(nil))
					}
				})
				var nested sync.WaitGroup
				err := c.Do(t.Context(), "k", func(x gateway.Execution) error {
					ctx := context.WithoutCancel(x.Context())
					for _, do := range []func(fn func(gateway.Execution) error) error{
						func(fn func(gateway.Execution) error) error { return c.Do(ctx, "k", fn) },
						func(fn func(gateway.Execution) error) error { return c.DoAll(ctx, []string{"k"}, fn) },
					} {
						nested.Go(func() {
							_ = do(func(x gateway.Execution) error {
								<-x.Context().Done()
								if cause := context.Cause(x.Context()); !errors.Is(cause, gateway.ErrOwnershipLost) {
									t.Errorf("a nested call is cancelled by %v", cause)
								}
								return nil
							})
						})
					}
					early := kit.Must(c.Lock(ctx, "k"))
					synctest.Wait()
					store.Set(true)
					<-x.Context().Done()
					synctest.Wait()
					if cause := context.Cause(early.Context()); !errors.Is(cause, gateway.ErrOwnershipLost) {
						t.Errorf("a nested lock is cancelled by %v", cause)
					}
					if err := early.Unlock(t.Context()); !errors.Is(err, locking.ErrNotOwner) {
						t.Errorf("the Unlock of a nested lock that was lost: %v", err)
					}
					never := func(gateway.Execution) error { t.Error("it runs"); return nil }
					lock, lockErr := c.Lock(ctx, "k")
					try, tryErr := c.TryLock(ctx, "k")
					for _, err := range []error{c.Do(ctx, "k", never), c.TryDo(ctx, "k", never), c.DoAll(ctx, []string{"k"}, never), lockErr, tryErr} {
						if !errors.Is(err, gateway.ErrOwnershipLost) || lock != nil || try != nil {
							t.Errorf("within what has lost its key: %v", err)
						}
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
				nested.Wait()
			})
		})
	}
}

// A lock within another lock of its key keeps the key until its own Unlock, in whichever order they are unlocked. Its
// context ends then, though its caller's does not. A lock of another key is one by itself.
func TestTrapNestedLockKeepsItsKey(t *testing.T) {
	atEachWorker(t, func(t *testing.T, w *site.Worker, c *client.Client) {
		outer := kit.Must(c.Lock(t.Context(), "k"))
		ctx := context.WithoutCancel(outer.Context())
		first, second, other := kit.Must(c.Lock(ctx, "k")), kit.Must(c.Lock(ctx, "k")), kit.Must(c.Lock(ctx, "other"))
		if err := first.Unlock(t.Context()); err != nil || first.Context().Err() == nil || second.Context().Err() != nil || outer.Context().Err() != nil || w.IsFree(t, "k") {
			t.Errorf("an inner Unlock: %v; %v, %v, %v", err, first.Context().Err(), second.Context().Err(), outer.Context().Err())
		}
		if err := outer.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if second.Context().Err() != nil || w.IsFree(t, "k") {
			t.Errorf("the outer Unlock: %v", second.Context().Err())
		}
		for range 2 {
			if err := first.Unlock(t.Context()); !errors.Is(err, locking.ErrNotOwner) || w.IsFree(t, "k") {
				t.Errorf("an inner Unlock again: %v", err)
			}
		}
		if err := second.Unlock(t.Context()); err != nil || second.Context().Err() == nil || outer.Context().Err() == nil {
			t.Errorf("the last Unlock: %v; %v, %v", err, second.Context().Err(), outer.Context().Err())
		}
		synctest.Wait()
		if !w.IsFree(t, "k") || other.Context().Err() != nil || w.IsFree(t, "other") {
			t.Errorf("the lock of another key: %v", other.Context().Err())
		}
		_ = other.Unlock(t.Context())
	})
}
