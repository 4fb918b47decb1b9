package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/client"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

func TestDoAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		a, b := s.StartServing(), s.StartServing()
		time.Sleep(5 * time.Second)
		ka, kb := s.KeyOf(a, "b"), s.KeyOf(b, "a")
		c := s.NewClient()
		ran := false
		err := c.DoAll(t.Context(), []string{ka, kb, ka}, func(xs gateway.Execution) error {
			ran = true
			if keys := xs.Keys(); len(keys) != 2 || keys[0] != kb || keys[1] != ka {
				t.Errorf("keys %q", keys)
			}
			if xs.TokenOf(ka) == 0 || xs.TokenOf(kb) == 0 || xs.TokenOf("other") != 0 {
				t.Errorf("tokens %d %d %d", xs.TokenOf(ka), xs.TokenOf(kb), xs.TokenOf("other"))
			}
			if a.IsFree(t, ka) || b.IsFree(t, kb) {
				t.Error("a key is free")
			}
			return c.DoAll(xs.Context(), []string{kb, ka}, func(again gateway.Execution) error {
				if again.TokenOf(ka) != xs.TokenOf(ka) {
					t.Error("nested: another token")
				}
				return nil
			})
		})
		if err != nil || !ran {
			t.Fatal(err)
		}
		synctest.Wait()
		if !a.IsFree(t, ka) || !b.IsFree(t, kb) {
			t.Error("a key is held")
		}
		never := func(gateway.Execution) error {
			t.Error("the function runs")
			return nil
		}
		if err := c.DoAll(t.Context(), nil, never); !errors.Is(err, gateway.ErrNoKey) {
			t.Errorf("no keys: %v", err)
		}
		if err := c.DoAll(t.Context(), []string{"a", "\x00"}, never); !errors.Is(err, gateway.ErrBadKey) {
			t.Errorf("a bad key: %v", err)
		}
		var many []string
		for i := range 65 {
			many = append(many, fmt.Sprint(i))
		}
		if err := c.DoAll(t.Context(), many, never); err == nil {
			t.Error("65 keys are held")
		}
		// The loss of one key ends the whole.
		err = c.DoAll(t.Context(), []string{ka, kb}, func(xs gateway.Execution) error {
			s.Kill(b) // kb is the outer one
			<-xs.Context().Done()
			return context.Cause(xs.Context())
		})
		if !errors.Is(err, gateway.ErrOwnershipLost) {
			t.Errorf("the loss of a key: %v", err)
		}
	})
}

// Money that is moved between accounts of several workers is neither made nor lost,
// and nobody waits in a circle.
func TestDoAllTransfers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const accounts, start, transfers, callers = 6, 1000, 60, 8
		s := site.NewInBubble(t)
		s.StartServing()
		var balance [accounts]int
		for i := range balance {
			balance[i] = start
		}
		clients := []*client.Client{s.NewClient(), s.NewClient()}
		var wg sync.WaitGroup
		for i := range callers {
			c := clients[i%len(clients)]
			wg.Go(func() {
				for n := range transfers {
					from, to := (i+n)%accounts, (i*n+1)%accounts
					err := c.DoAll(t.Context(), []string{fmt.Sprint("account", from), fmt.Sprint("account", to)}, func(xs gateway.Execution) error {
						if xs.Context().Err() != nil {
							return xs.Context().Err()
						}
						a := balance[from]
						time.Sleep(time.Duration(i) * time.Millisecond)
						balance[from] = a - 1
						b := balance[to]
						time.Sleep(time.Millisecond)
						balance[to] = b + 1
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		s.StartServing()
		s.StartServing()
		wg.Wait()
		sum := 0
		for _, b := range balance {
			sum += b
		}
		if sum != accounts*start {
			t.Errorf("%d in all, want %d: %v", sum, accounts*start, balance)
		}
	})
}

// Keys of the process's own worker are held there, and its executions are a part of
// what holds keys: they nest, and those that wait for each other are found out.
func TestDoAllAtItsOwnWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		a, b := s.StartServing(), s.StartServing()
		time.Sleep(5 * time.Second)
		ka, kb := s.KeyOf(a, "a"), s.KeyOf(b, "b")
		c := s.NewClient(func(cfg *client.Config) { cfg.Local = a.Local(a.Handler(nil)) })
		err := c.DoAll(t.Context(), []string{kb, ka}, func(xs gateway.Execution) error {
			if token, ok := worker.TokenFrom(xs.Context()); !ok || token != xs.TokenOf(ka) {
				t.Errorf("token %d of the worker's execution, want %d", token, xs.TokenOf(ka))
			}
			return a.Do(xs.Context(), ka, func(x gateway.Execution) error {
				if x.Token() != xs.TokenOf(ka) {
					t.Error("a nested call has another token")
				}
				return c.Do(x.Context(), ka, func(inner gateway.Execution) error {
					if inner.Token() != x.Token() {
						t.Error("a nested hold has another token")
					}
					return c.TryDo(x.Context(), kb, func(gateway.Execution) error { return nil })
				})
			})
		})
		if err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if !a.IsFree(t, ka) || !b.IsFree(t, kb) {
			t.Error("a key is held")
		}
		if err := a.Do(t.Context(), ka, func(gateway.Execution) error {
			return c.TryDo(t.Context(), ka, func(gateway.Execution) error { return nil })
		}); !errors.Is(err, gateway.ErrLocked) {
			t.Errorf("a key that is held here: %v", err)
		}
		// The worker leaves while its client goes on: its keys are another one's then.
		done := make(chan error, 1)
		go func() {
			done <- c.DoAll(t.Context(), []string{ka, kb}, func(xs gateway.Execution) error {
				time.Sleep(2 * kit.TTL)
				return xs.Context().Err()
			})
		}()
		synctest.Wait()
		if err := a.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Errorf("while the worker leaves: %v", err)
		}
		if err := c.DoAll(t.Context(), []string{ka, kb}, func(gateway.Execution) error { return nil }); err != nil {
			t.Errorf("after the worker has left: %v", err)
		}
	})
}

// A key that its holder works with comes to the holder's own worker: what asks for it
// there, within, runs at once and does not wait for itself.
func TestTrapHeldKeyComesHome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		a, b := s.StartServing(), s.StartServing()
		time.Sleep(5 * time.Second)
		kb := s.KeyOf(b, "b")
		c := s.NewClient(func(cfg *client.Config) { cfg.Local = a.Local(a.Handler(nil)) })
		err := c.Do(t.Context(), kb, func(x gateway.Execution) error {
			if err := b.Drain(t.Context()); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
			never := func(gateway.Execution) error { t.Error("it runs as an execution of the worker"); return nil }
			if err := a.TryDo(t.Context(), kb, never); !errors.Is(err, gateway.ErrLocked) {
				t.Errorf("another caller: %v", err)
			}
			for _, try := range []bool{false, true} {
				began := time.Now()
				if here, err := a.Worker.Local(nil).Do(x.Context(), kb, try, never); here || time.Since(began) > 0 {
					t.Errorf("try %v: here %v, %v after %v", try, here, err, time.Since(began))
				}
			}
			return c.Do(x.Context(), kb, func(inner gateway.Execution) error {
				if inner.Token() != x.Token() {
					t.Errorf("token %d within, want %d", inner.Token(), x.Token())
				}
				return nil
			})
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// Nobody waits for a key for ever.
func TestHoldWaitsForMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := site.NewInBubble(t)
		w := s.StartServing(func(cfg *worker.Config) { cfg.MaxWait = 3 * time.Second })
		c := s.NewClient()
		_ = w.Do(t.Context(), "k", func(gateway.Execution) error {
			began := time.Now()
			err := c.Do(t.Context(), "k", func(gateway.Execution) error { return nil })
			if d := time.Since(began); !errors.Is(err, gateway.ErrWaited) || d > 4*time.Second {
				t.Errorf("after %v: %v", d, err)
			}
			return nil
		})
	})
}
