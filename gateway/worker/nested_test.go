package worker_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/site"
)

// A call for a key that its own chain holds runs at once, with the same token,
// however deep; its context is its own and has the whole chain.
func TestNestedCallsRunInline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).StartOwner()
		var wg sync.WaitGroup
		defer wg.Wait()
		err := w.Do(t.Context(), "a", func(a gateway.Execution) error {
			wg.Go(func() { // waits for its turn, in which all below is over
				_ = w.Do(t.Context(), "a", func(x gateway.Execution) error {
					if x.Token() <= a.Token() {
						t.Errorf("the next execution has token %d after %d", x.Token(), a.Token())
					}
					return nil
				})
			})
			synctest.Wait()
			return w.Do(a.Context(), "b", func(b gateway.Execution) error {
				for name, do := range map[string]func(context.Context, string, func(gateway.Execution) error) error{"Do": w.Do, "TryDo": w.TryDo} {
					var kept gateway.Execution
					var keptContext context.Context
					err := do(b.Context(), "a", func(x gateway.Execution) error {
						kept, keptContext = x, x.Context()
						if x.Key() != "a" || x.Token() != a.Token() {
							t.Errorf("%s: key %s, token %d; want a, %d", name, x.Key(), x.Token(), a.Token())
						}
						if token, ok := worker.TokenFrom(x.Context()); !ok || token != a.Token() {
							t.Errorf("%s: token %d in the context", name, token)
						}
						ctx, cancel := context.WithTimeout(x.Context(), time.Second)
						defer cancel()
						return errors.Join(do(ctx, "a", ok), do(ctx, "b", ok), do(ctx, "c", ok))
					})
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
					if keptContext.Err() == nil || kept.Context().Err() == nil {
						t.Errorf("%s: its context outlives it", name)
					}
				}
				if a.Context().Err() != nil || b.Context().Err() != nil {
					t.Error("the end of a nested call has ended another")
				}
				return nil
			})
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// A nested call that outlives the execution that it began in keeps the key held;
// one that comes when that has ended waits for its turn as any other.
func TestNestedCallHoldsItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).StartOwner()
		var wg sync.WaitGroup
		var ended context.Context
		var inside atomic.Bool
		err := w.Do(t.Context(), "k", func(outer gateway.Execution) error {
			ended = context.WithoutCancel(outer.Context())
			wg.Go(func() {
				_ = w.Do(ended, "k", func(x gateway.Execution) error {
					return w.Do(x.Context(), "k", func(gateway.Execution) error {
						inside.Store(true)
						time.Sleep(time.Second)
						inside.Store(false)
						return nil
					})
				})
			})
			synctest.Wait()
			if !inside.Load() {
				t.Error("the nested call waits")
			}
			return nil
		})
		if err != nil || !inside.Load() {
			t.Errorf("%v; the nested call is running: %v", err, inside.Load())
		}
		for _, ctx := range []context.Context{t.Context(), ended} {
			wg.Go(func() {
				err := w.Do(ctx, "k", func(gateway.Execution) error {
					if inside.Load() {
						t.Error("two executions of a key overlap")
					}
					inside.Store(true)
					time.Sleep(time.Second)
					inside.Store(false)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
			time.Sleep(1500 * time.Millisecond) // the first comes while the nested call runs, the other when all is over
		}
		wg.Wait()
		if w.Ready() != nil {
			t.Error(w.Ready())
		}
	})
}

// A done context always loses, and so does an execution whose ownership was lost.
func TestNestedCallTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		store := &site.CutStore{Store: c.Store}
		w := c.StartOwner(func(cfg *worker.Config) { cfg.Store = store })
		ran := func(gateway.Execution) error { t.Error("it ran"); return nil }
		err := w.Do(t.Context(), "k", func(x gateway.Execution) error {
			gone, cancel := context.WithCancel(x.Context())
			cancel()
			if err := w.Do(gone, "k", ran); !errors.Is(err, context.Canceled) {
				t.Errorf("done context: %v", err)
			}
			outer, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := w.Do(outer, "k", ran); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `key "k" was not free`) {
				t.Errorf("with the caller's context, it waits for itself: %v", err)
			}
			if _, _, err := worker.Share(gone, w.Worker, "k", "read", func(x gateway.Execution) (int, error) { return 0, ran(x) }); !errors.Is(err, context.Canceled) {
				t.Errorf("done context: %v", err)
			}
			store.Set(true)
			<-x.Context().Done()
			if err := w.Do(x.Context(), "k", ran); !errors.Is(err, gateway.ErrOwnershipLost) {
				t.Errorf("ownership lost: %v", err)
			}
			if err := w.Do(context.WithoutCancel(x.Context()), "k", ran); !errors.Is(err, gateway.ErrOwnershipLost) {
				t.Errorf("ownership lost, without cancel: %v", err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// A batch within an execution that holds its key is of one item: what others have
// asked for waits until the execution has ended. It may use what the chain holds.
func TestNestedBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).StartOwner()
		b := newBatches(t, w, worker.BatchConfig{Linger: time.Second})
		err := w.Do(t.Context(), "outer", func(x gateway.Execution) error {
			return w.Do(x.Context(), "k", func(x gateway.Execution) error {
				b.wg.Go(func() {
					if out, err := b.Do(t.Context(), "k", "other"); out != "OTHER" || err != nil {
						t.Error(out, err)
					}
				})
				synctest.Wait()
				b.hook = func(batch gateway.Execution, _ []*worker.Item[string, string]) error {
					if batch.Token() != x.Token() {
						t.Errorf("token %d within %d", batch.Token(), x.Token())
					}
					return w.Do(batch.Context(), "outer", ok)
				}
				out, err := b.Do(x.Context(), "k", "mine")
				if out != "MINE" || err != nil {
					t.Error(out, err)
				}
				if !slices.Equal(b.ran, []string{"mine"}) {
					t.Errorf("ran %q", b.ran)
				}
				b.hook = nil
				return nil
			})
		})
		if err != nil {
			t.Error(err)
		}
		b.wg.Wait()
	})
}

// A request is not a part of an execution, even if it is served with its context:
// it would wait for itself, and gets 508.
func TestNestedRequestIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).StartOwner()
		_ = w.Do(t.Context(), "k", func(x gateway.Execution) error {
			r := httptest.NewRequestWithContext(x.Context(), http.MethodGet, "/", nil)
			r.Header.Set(gateway.HeaderKey, "k")
			answer := httptest.NewRecorder()
			w.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it ran") })).ServeHTTP(answer, r)
			if text := answer.Body.String(); answer.Code != http.StatusLoopDetected || !strings.Contains(text, `"k", of "k"`) {
				t.Errorf("status %d, %s", answer.Code, text)
			}
			return nil
		})
		if err := w.Do(t.Context(), "k", ok); err != nil {
			t.Error(err)
		}
	})
}

func TestTryDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		store := &site.CutStore{Store: c.Store}
		w := c.Start(func(cfg *worker.Config) { cfg.Store = store })
		at := func(what string, want error, w *site.Worker, key string) {
			t.Helper()
			began := time.Now()
			err := w.TryDo(t.Context(), key, func(x gateway.Execution) error {
				if x.Key() != key || x.Context().Err() != nil {
					t.Errorf("%s: execution of %q, %v", what, x.Key(), x.Context().Err())
				}
				return nil
			})
			if !errors.Is(err, want) || time.Since(began) != 0 {
				t.Errorf("%s: %v after %v, want %v", what, err, time.Since(began), want)
			}
		}
		at("nobody owns it", gateway.ErrUnavailable, w, "k")
		w.AwaitServing(t, 16)
		at("free", nil, w, "k")
		at("no key", gateway.ErrNoKey, w, "")
		_ = w.Do(t.Context(), "k", func(gateway.Execution) error {
			at("held", gateway.ErrLocked, w, "k")
			at("another", nil, w, "other")
			return nil
		})
		at("free again", nil, w, "k")
		reason := errors.New("reason")
		if err := w.TryDo(t.Context(), "k", func(gateway.Execution) error { return reason }); !errors.Is(err, reason) {
			t.Errorf("the function's error: %v", err)
		}
		b := c.Start()
		for b.Serving() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(time.Second)
		for p := range 16 {
			err := b.TryDo(t.Context(), keyIn(c.Ring, p), ok)
			if notOwner, is := errors.AsType[*gateway.NotOwnerError](err); err != nil && (!is || notOwner.Worker != "w1") {
				t.Errorf("partition %d at the other worker: %v", p, err)
			}
		}
		store.Set(true)
		time.Sleep(7500 * time.Millisecond)
		for p := range 16 {
			if err := w.TryDo(t.Context(), keyIn(c.Ring, p), ok); err == nil {
				t.Errorf("partition %d without a session: it ran", p)
			}
		}
	})
}
