package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/client"
	"github.com/keyway-go/keyway/gateway/internal/holds"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/holder"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/internal/wire/link"
)

func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		w := s.StartServing()
		c := s.NewClient()
		var last int64
		for range 3 {
			ran := false
			err := c.Do(t.Context(), "k", func(x gateway.Execution) error {
				ctx, token := x.Context(), x.Token()
				ran = true
				if token <= last {
					t.Errorf("token %d follows %d", token, last)
				}
				last = token
				if w.IsFree(t, "k") {
					t.Error("the key is free at its owner")
				}
				time.Sleep(3 * kit.TTL) // renewed
				if ctx.Err() != nil {
					t.Errorf("cancelled: %v", context.Cause(ctx))
				}
				if w.IsFree(t, "k") {
					t.Error("the key is free at its owner after a while")
				}
				return nil
			})
			if err != nil || !ran {
				t.Fatalf("ran: %v, %v", ran, err)
			}
			synctest.Wait()
			if !w.IsFree(t, "k") {
				t.Error("the key is held at its owner after Hold has returned")
			}
		}
		reason := errors.New("reason")
		if err := c.Do(t.Context(), "k", func(gateway.Execution) error { return reason }); err != reason {
			t.Errorf("the function's error became %v", err)
		}
	})
}

func TestHoldErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		w := s.StartServing(func(cfg *worker.Config) { cfg.QueuePerKey = 1 })
		c := s.NewClient(func(cfg *client.Config) { cfg.Hold = time.Second })
		never := func(gateway.Execution) error {
			t.Error("the function runs")
			return nil
		}
		if err := c.Do(t.Context(), "", never); !errors.Is(err, gateway.ErrNoKey) {
			t.Errorf("no key: %v", err)
		}
		gone, cancel := context.WithCancelCause(t.Context())
		reason := errors.New("reason")
		cancel(reason)
		if err := c.Do(gone, "k", never); !errors.Is(err, reason) {
			t.Errorf("a context that is done: %v", err)
		}
		_ = c.Do(t.Context(), "k", func(x gateway.Execution) error {
			ctx, token := x.Context(), x.Token()
			if err := c.TryDo(t.Context(), "k", never); !errors.Is(err, gateway.ErrLocked) {
				t.Errorf("a key that is held: %v", err)
			}
			nested := false
			err := c.Do(ctx, "k", func(x gateway.Execution) error {
				again := x.Token()
				nested = again == token
				return nil
			})
			if err != nil || !nested {
				t.Errorf("nested: %v, with the same token: %v", err, nested)
			}
			other := s.NewClient() // callers of one client wait by turns
			go func() { _ = other.Do(t.Context(), "k", func(gateway.Execution) error { return nil }) }()
			synctest.Wait()
			if err := c.Do(t.Context(), "k", never); !errors.Is(err, gateway.ErrBusy) {
				t.Errorf("a full queue: %v", err)
			}
			return nil
		})
		synctest.Wait()
		s.Kill(w)
		if err := c.Do(t.Context(), "k", never); !errors.Is(err, gateway.ErrUnavailable) {
			t.Errorf("no worker: %v", err)
		}
		c.Close()
		if err := c.Do(t.Context(), "k", never); !errors.Is(err, net.ErrClosed) || !strings.HasSuffix(err.Error(), "the client is closed") {
			t.Errorf("closed: %v", err)
		}
	})
}

// What works with a key is cancelled before others may have it, whatever ends the
// hold.
func TestTrapHoldEndsBeforeItsLease(t *testing.T) {
	for _, tt := range []struct {
		name     string
		end      func(s *site.Site, w *site.Worker, store *site.CutStore)
		min, max time.Duration // until fn's context ends
	}{
		{"the owner dies", func(s *site.Site, w *site.Worker, _ *site.CutStore) { s.Kill(w) }, 5 * time.Second, 8200 * time.Millisecond},
		{"the owner cannot be reached", func(s *site.Site, w *site.Worker, _ *site.CutStore) { s.Sever(w, true) }, 5 * time.Second, 8200 * time.Millisecond},
		{"the owner cannot reach the store", func(_ *site.Site, _ *site.Worker, store *site.CutStore) { store.Set(true) }, 5 * time.Second, 8200 * time.Millisecond},
		{"the owner cannot reach the store, and dies later", func(s *site.Site, w *site.Worker, store *site.CutStore) {
			store.Set(true)
			time.Sleep(5 * time.Second)
			s.Kill(w)
		}, 5 * time.Second, 8200 * time.Millisecond},
		{"the owner has lost its session", func(s *site.Site, w *site.Worker, _ *site.CutStore) {
			_ = s.Store.Release(s.T.Context(), w.Incarnation())
		}, 0, 2500 * time.Millisecond},
		{"the client is closed", nil, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := site.NewInBubble(t)
				store := &site.CutStore{Store: s.Store}
				w := s.StartServing(func(cfg *worker.Config) { cfg.Store = store })
				c := s.NewClient()
				err := c.Do(t.Context(), "k", func(x gateway.Execution) error {
					ctx := x.Context()
					time.Sleep(7 * time.Second)
					began := time.Now()
					if tt.end == nil {
						go c.Close()
					} else {
						tt.end(s, w, store)
					}
					<-ctx.Done()
					if d := time.Since(began); d < tt.min || d > tt.max {
						t.Errorf("cancelled after %v, want %v to %v", d, tt.min, tt.max)
					}
					return context.Cause(ctx)
				})
				if !errors.Is(err, gateway.ErrOwnershipLost) {
					t.Errorf("cancelled with %v", err)
				}
				t.Log(err)
			})
		})
	}
}

// A key is free again when its holder has gone without releasing it: within a TTL
// of when it was last heard of, and not before.
func TestTrapHoldOfTheDeadEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		w := s.StartServing()
		c := s.NewClient()
		held := make(chan struct{})
		var ended atomic.Bool
		go func() {
			_ = c.Do(t.Context(), "k", func(x gateway.Execution) error {
				ctx := x.Context()
				close(held)
				<-ctx.Done()
				ended.Store(true)
				return nil
			})
		}()
		<-held
		time.Sleep(kit.TTL)
		s.Sever(w, true) // as if the holder had died: it is not heard of any more
		cut := time.Now()
		err := w.Do(t.Context(), "k", func(gateway.Execution) error { return nil })
		if d := time.Since(cut); err != nil || !ended.Load() || d < kit.TTL*7/10 || d > kit.TTL {
			t.Errorf("free after %v (%v), with the holder at work: %v; want 0.8 to 1 TTL after its last renewal", d, err, !ended.Load())
		}
	})
}

// A connection that is lost costs a renewal, not the hold.
func TestHoldOutlivesItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		w := s.StartServing()
		c := s.NewClient()
		err := c.Do(t.Context(), "k", func(x gateway.Execution) error {
			ctx := x.Context()
			for range 20 {
				s.Sever(w, false)
				time.Sleep(time.Second)
			}
			return ctx.Err()
		})
		if err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if !w.IsFree(t, "k") {
			t.Error("the key is not released")
		}
	})
}

// Who gives up while he waits holds nothing, and does not keep others waiting.
func TestTrapGivenUpWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		w := s.StartServing()
		c := s.NewClient()
		for _, how := range []string{"cancelled", "cancelled when it is granted", "connection lost"} {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			_ = w.Do(t.Context(), "k", func(gateway.Execution) error {
				go func() {
					done <- c.Do(ctx, "k", func(gateway.Execution) error {
						if how != "connection lost" {
							t.Error(how + ": the function runs")
						}
						return nil
					})
				}()
				synctest.Wait()
				switch how {
				case "cancelled":
					cancel()
					synctest.Wait()
				case "cancelled when it is granted":
					cancel() // and at once the owner grants it
				default:
					s.Sever(w, false)
				}
				return nil
			})
			if err := <-done; (err == nil) != (how == "connection lost") {
				t.Errorf("%s: %v", how, err)
			}
			cancel()
			synctest.Wait()
			if !w.IsFree(t, "k") {
				t.Errorf("%s: the key is held", how)
			}
		}
	})
}

// A key that was waited for longer than a lease is held for as long as any other.
func TestHoldAfterALongWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		w := s.StartServing()
		c := s.NewClient()
		done := make(chan error, 1)
		_ = w.Do(t.Context(), "k", func(gateway.Execution) error {
			go func() {
				done <- c.Do(t.Context(), "k", func(x gateway.Execution) error {
					ctx := x.Context()
					time.Sleep(5 * time.Second)
					return ctx.Err()
				})
			}()
			time.Sleep(25 * time.Second)
			return nil
		})
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// Keys that are held move with their partitions, under their holders' hands: nobody else
// gets one meanwhile, and a worker that leaves does not wait for them.
func TestTrapHoldsMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		w := s.StartServing()
		c := s.NewClient()
		var wg sync.WaitGroup
		var holding [64]atomic.Int32
		var last [len(holding)]atomic.Int64
		for i := range holding {
			key := fmt.Sprint("key", i)
			for range 2 {
				wg.Go(func() {
					err := c.Do(t.Context(), key, func(x gateway.Execution) error {
						ctx, token := x.Context(), x.Token()
						if holding[i].Add(1) > 1 {
							t.Errorf("%s is held twice", key)
						}
						if before := last[i].Swap(token); before >= token {
							t.Errorf("%s: token %d after %d", key, token, before)
						}
						time.Sleep(2 * kit.TTL)
						holding[i].Add(-1)
						return ctx.Err()
					})
					if err != nil {
						t.Errorf("%s: %v", key, err)
					}
				})
			}
		}
		for range 3 {
			time.Sleep(time.Second)
			next := s.StartServing()
			began := time.Now()
			if err := w.Drain(t.Context()); err != nil {
				t.Error(err)
			}
			if d := time.Since(began); d > 2*time.Second {
				t.Errorf("it took %v to leave", d)
			}
			s.Sever(w, true)
			w.Close()
			w.Member.Vanish()
			next.AwaitServing(t, 16)
			if w = next; w.Status().Holds < len(holding) {
				t.Errorf("%d holds have moved", w.Status().Holds)
			}
		}
		wg.Wait()
		time.Sleep(kit.TTL / 10)
		if n := w.Status(); n.BusyKeys != 0 || n.Holds != 0 {
			t.Errorf("%d keys are busy in the end, %d holds", n.BusyKeys, n.Holds)
		}
	})
}

// The work with a hold ends at its deadline, for a holder that looks whether it may go on, and for one that waits.
func TestHoldEndsAtItsDeadline(t *testing.T) {
	ends := func(poll bool) (after time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			s := site.NewInBubble(t)
			w := s.StartServing()
			time.Sleep(70 * time.Millisecond)
			_ = s.NewClient().Do(t.Context(), "k", func(x gateway.Execution) error {
				ctx := x.Context()
				s.Sever(w, true)
				began := time.Now()
				if !poll {
					<-ctx.Done()
				}
				for ctx.Err() == nil {
					time.Sleep(time.Millisecond)
				}
				after = time.Since(began)
				return nil
			})
		})
		return after
	}
	if compared, timed := ends(true), ends(false); (timed - compared).Abs() > kit.TTL/50 { // the session is renewed at random
		t.Errorf("the context has ended after %v for who asked, and %v for who waited", compared, timed)
	}
}

// What a hold rests on ends no later than at its owner, however long the answer took
// by which it was confirmed.
func TestTrapLeaseRunsFromBeforeTheCall(t *testing.T) {
	for _, method := range []string{":acquire", ":renew"} {
		synctest.Test(t, func(t *testing.T) {
			s := site.NewInBubble(t)
			store := &site.CutStore{Store: s.Store}
			w := s.StartServing(func(cfg *worker.Config) { cfg.Store = store })
			c := s.NewClient()
			_ = c.Do(t.Context(), "connected", func(gateway.Execution) error { return nil })
			s.Network.Delay(method, 1500*time.Millisecond)
			store.Set(true)
			ended := make(chan time.Time, 1)
			go func() {
				_ = w.Do(t.Context(), "other", func(x gateway.Execution) error {
					<-x.Context().Done()
					ended <- time.Now()
					return nil
				})
			}()
			_ = c.Do(t.Context(), "k", func(x gateway.Execution) error {
				ctx := x.Context()
				if method == ":renew" {
					time.Sleep(kit.TTL/5 + kit.TTL/50 + 1500*time.Millisecond + kit.TTL/100) // it has been confirmed once
				}
				s.Sever(w, true)
				<-ctx.Done()
				if late := time.Since(<-ended); late > kit.TTL/50 {
					t.Errorf("%s: cancelled %v after the owner's own executions", method, late)
				}
				return nil
			})
		})
	}
}

// A renewal that is answered after the deadline of its hold comes too late, whether or not anybody has looked at the
// deadline since.
func TestTrapLateRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const offset = kit.TTL / 100 // the deadline lies between two looks, ttl/50 apart
		began := time.Now()
		c := site.ClientOf(t, func(w *link.ResponseWriter, r *link.ServerRequest) {
			promise, states := holder.Promise{Cancel: kit.TTL, Surrender: kit.TTL}, []holder.Answer{holder.Held}
			_ = kit.Must(io.ReadAll(r.Body))
			switch {
			case r.Method == holds.Acquire:
				time.Sleep(offset)
				_, _ = w.Write(holds.Grant{Token: 1, Lease: kit.TTL, Promise: promise}.Append(nil))
			case r.Method != holds.Renew:
				_, _ = w.Write(holds.Answers{States: states}.Append(nil))
			case time.Since(began) < kit.TTL*62/100:
				_ = w.WriteHead(http.StatusServiceUnavailable, 0, link.Fields{})
			default:
				time.Sleep(time.Until(began.Add(kit.TTL*8/10 + offset/2)))
				_, _ = w.Write(holds.Answers{Promise: promise, States: states}.Append(nil))
			}
		})
		l := kit.Must(c.Lock(t.Context(), "k"))
		time.Sleep(time.Until(began.Add(kit.TTL)))
		if err := context.Cause(l.Context()); !errors.Is(err, gateway.ErrOwnershipLost) {
			t.Errorf("the lock goes on until %v after its deadline: %v", time.Until(l.Until()), err)
		}
	})
}

// A grant whose answer is lost is released when its caller gives up.
func TestTrapLostGrantIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		w := s.StartServing()
		c := s.NewClient()
		if err := c.Do(t.Context(), "other", func(gateway.Execution) error { return nil }); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		s.Mute(w) // what it answers is not heard
		done := make(chan error, 1)
		go func() { done <- c.Do(ctx, "k", func(gateway.Execution) error { return nil }) }()
		synctest.Wait()
		if w.IsFree(t, "k") {
			t.Fatal("the key was not granted")
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		synctest.Wait()
		if !w.IsFree(t, "k") {
			t.Error("the key is held for nobody")
		}
	})
}

// Who waits for a key at a worker that dies gets it once at its next owner, after whoever
// held it: an execution there, or another process.
func TestTrapHoldWaitsAtAWorkerThatDies(t *testing.T) {
	for name, byClient := range map[string]bool{"behind an execution": false, "behind a hold": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := site.NewInBubble(t)
				a, b := s.StartServing(), s.StartServing()
				time.Sleep(kit.TTL)
				key := s.KeyOf(a, "k")
				var at atomic.Int32
				enter := func() (leave func()) {
					if n := at.Add(1); n != 1 {
						t.Errorf("%d have the key at once", n)
					}
					return func() { at.Add(-1) }
				}
				var all sync.WaitGroup
				held := make(chan struct{})
				all.Go(func() {
					work := func(ctx context.Context) {
						defer enter()()
						close(held)
						<-ctx.Done()
						time.Sleep(kit.TTL / 20) // it takes a moment to end
					}
					if byClient {
						_ = s.NewClient().Do(t.Context(), key, func(x gateway.Execution) error { work(x.Context()); return nil })
						return
					}
					_ = a.Do(t.Context(), key, func(x gateway.Execution) error { work(x.Context()); return nil })
				})
				<-held
				var granted [3]atomic.Int32
				for i := range granted {
					c := s.NewClient()
					all.Go(func() {
						err := c.Do(t.Context(), key, func(x gateway.Execution) error {
							ctx := x.Context()
							defer enter()()
							granted[i].Add(1)
							time.Sleep(100 * time.Millisecond)
							return ctx.Err()
						})
						if err != nil {
							t.Errorf("waiter %d: %v", i, err)
						}
					})
				}
				synctest.Wait()
				s.Kill(a)
				all.Wait()
				for i := range granted {
					if n := granted[i].Load(); n != 1 {
						t.Errorf("waiter %d was granted the key %d times", i, n)
					}
				}
				if !b.IsFree(t, key) {
					t.Error("the key is held in the end")
				}
			})
		})
	}
}
