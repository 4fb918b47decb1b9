package worker_test

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
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/site"
)

func TestShareRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).StartOwner()
		var runs atomic.Int32
		release := make(chan struct{})
		read := func(gateway.Execution) (string, error) {
			runs.Add(1)
			<-release
			return "value", nil
		}
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				v, shared, err := worker.Share(t.Context(), w.Worker, "k", "read", read)
				if v != "value" || !shared || err != nil {
					t.Errorf("Share: %v, %v, %v", v, shared, err)
				}
			})
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() {
			if _, _, err := worker.Share(ctx, w.Worker, "k", "read", read); !errors.Is(err, context.Canceled) {
				t.Errorf("a caller that left: %v", err)
			}
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(release)
		wg.Wait()
		if n := runs.Load(); n != 1 {
			t.Errorf("%d runs, want 1", n)
		}
		_, shared, err := worker.Share(t.Context(), w.Worker, "k", "read", read)
		if shared || err != nil || runs.Load() != 2 {
			t.Errorf("a later call: shared %v, %v, %d runs", shared, err, runs.Load())
		}
	})
}

func TestShareOfNobodyIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).StartOwner()
		ctx, cancel := context.WithCancel(t.Context())
		read := func(x gateway.Execution) (string, error) {
			select {
			case <-x.Context().Done():
				return "", context.Cause(x.Context())
			case <-time.After(time.Second):
				return "value", nil
			}
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, shared, err := worker.Share(ctx, w.Worker, "k", "read", read); shared || !errors.Is(err, context.Canceled) {
				t.Errorf("the first, which leaves: shared %v, %v", shared, err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if v, shared, err := worker.Share(t.Context(), w.Worker, "k", "read", read); v != "value" || shared || err != nil {
				t.Errorf("the one that waits: %v, %v, %v", v, shared, err)
			}
		})
		synctest.Wait()
		cancel()
		wg.Wait()
	})
}

// A panic is that of its caller alone: whoever waits runs its own function.
func TestSharePanicComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).StartOwner()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				defer func() {
					if p := recover(); p != "boom" {
						t.Errorf("recovered %v", p)
					}
				}()
				_, _, _ = worker.Share(t.Context(), w.Worker, "k", "read", func(gateway.Execution) (string, error) { panic("boom") })
			})
		}
		wg.Wait()
		if err := w.Do(t.Context(), "k", ok); err != nil {
			t.Errorf("the key after a panic: %v", err)
		}
	})
}

// Whoever has changed something reads it again, however many others read: a
// result is shared only while its key is held.
func TestTrapShareIsNoOlderThanItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 1).StartOwner()
		var value int64
		read := func() int64 {
			v, _, err := worker.Share(t.Context(), w.Worker, "k", "read", func(gateway.Execution) (int64, error) { return value, nil })
			if err != nil {
				t.Error(err)
				return -1
			}
			return v
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 5000 {
					var written int64
					err := w.Do(t.Context(), "k", func(gateway.Execution) error { value++; written = value; return nil })
					if err != nil {
						t.Error(err)
						return
					}
					if got := read(); got < written {
						t.Errorf("read %d after having written %d", got, written)
						return
					}
				}
			})
		}
		wg.Wait()
	})
}

// A holder that shares a read of its own key runs it at once and for itself, also
// where others wait to share it.
func TestShareNested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).StartOwner()
		value := "old"
		read := func(x gateway.Execution) (string, error) { return fmt.Sprint(value, x.Token()), nil }
		var wg sync.WaitGroup
		err := w.Do(t.Context(), "k", func(x gateway.Execution) error {
			wg.Go(func() {
				if v, _, err := worker.Share(t.Context(), w.Worker, "k", "read", read); v != fmt.Sprint("new", x.Token()+1) || err != nil {
					t.Errorf("the one outside: %v, %v", v, err)
				}
			})
			synctest.Wait()
			v, shared, err := worker.Share(x.Context(), w.Worker, "k", "read", read)
			if v != fmt.Sprint("old", x.Token()) || shared {
				t.Errorf("the holder: %v, shared %v", v, shared)
			}
			value = "new"
			return err
		})
		if err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
}

// Whoever waits for the key of a caller gets nothing that was read within what that
// one holds: it is in the middle of changing it.
func TestShareOfAHolderIsItsOwn(t *testing.T) {
	eachDo(t, func(t *testing.T, w *site.Worker, do doFunc) {
		began, goOn := make(chan struct{}, 2), make(chan struct{})
		other := 0
		read := func(x gateway.Execution) (v int, err error) {
			began <- struct{}{}
			<-goOn
			err = do(x.Context(), "other", func(gateway.Execution) error { v = other; return nil })
			return v, err
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			err := do(t.Context(), "other", func(x gateway.Execution) error {
				other = 1
				if v, _, err := worker.Share(x.Context(), w.Worker, "k", "read", read); v != 1 || err != nil {
					t.Errorf("the holder: %v, %v", v, err)
				}
				other = 2
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		<-began
		wg.Go(func() {
			if v, _, err := worker.Share(t.Context(), w.Worker, "k", "read", read); v != 2 || err != nil {
				t.Errorf("the one that waited: %v, %v", v, err)
			}
		})
		synctest.Wait()
		close(goOn)
		wg.Wait()
	})
}

type doFunc func(ctx context.Context, key string, fn func(gateway.Execution) error) error

// eachDo runs a test in bubbles, with functions that hold a key as an execution of the worker, and as a
// lock that a client has there.
func eachDo(t *testing.T, test func(t *testing.T, w *site.Worker, do doFunc)) {
	for name, far := range map[string]bool{"here": false, "by a client": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := site.New(t, 16)
				w := s.StartServing()
				do := w.Do
				if far {
					do = s.NewClient().Do
				}
				test(t, w, do)
			})
		})
	}
}

// Results of another type are not shared.
func TestShareOfTwoTypes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).StartOwner()
		goOn := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			if v, _, err := worker.Share(t.Context(), w.Worker, "k", "read", func(gateway.Execution) (int, error) { <-goOn; return 1, nil }); v != 1 || err != nil {
				t.Error(v, err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if v, _, err := worker.Share(t.Context(), w.Worker, "k", "read", func(gateway.Execution) (string, error) { return "two", nil }); v != "two" || err != nil {
				t.Error(v, err)
			}
		})
		synctest.Wait()
		close(goOn)
		wg.Wait()
	})
}

// Who shares what another does not finish waits for MaxWait.
func TestShareWaitsForMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).StartOwner(func(cfg *worker.Config) { cfg.MaxWait = 5 * time.Second })
		read := func(gateway.Execution) (int, error) { time.Sleep(time.Minute); return 1, nil }
		share := func(ctx context.Context) error {
			_, _, err := worker.Share(ctx, w.Worker, "k", "read", read)
			return err
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		err := w.Do(t.Context(), "k", func(gateway.Execution) error {
			if err := share(soon); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, gateway.ErrMayHaveRun) {
				t.Errorf("who left before anything ran: %v", err)
			}
			wg.Go(func() {
				if err := share(t.Context()); err != nil {
					t.Errorf("the first: %v", err)
				}
			})
			synctest.Wait()
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		synctest.Wait()
		began := time.Now()
		if err := share(t.Context()); !errors.Is(err, gateway.ErrWaited) || errors.Is(err, gateway.ErrMayHaveRun) || time.Since(began) != 5*time.Second {
			t.Errorf("who came later: %v after %v", err, time.Since(began))
		}
		wg.Wait()
	})
}

func BenchmarkShare(b *testing.B) {
	c := site.New(b, 64)
	w := c.StartReady()
	read := func(gateway.Execution) (int, error) { return 42, nil }
	for _, callers := range []int{1, 8} {
		b.Run(fmt.Sprint(callers, " callers"), func(b *testing.B) {
			b.ReportAllocs()
			var left atomic.Int64
			left.Store(int64(b.N))
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for left.Add(-1) >= 0 {
						if v, _, err := worker.Share(b.Context(), w.Worker, "k", "read", read); v != 42 || err != nil {
							b.Error(v, err)
							return
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

// A result of an incarnation that was lost is not shared: what it read is of
// the time before others may have owned the key.
func TestShareJoinsNothingCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		w := c.StartOwner()
		old := w.Incarnation()
		goOn := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _, _ = worker.Share(t.Context(), w.Worker, "k", "read", func(gateway.Execution) (string, error) {
				<-goOn // a handler that does not heed its context
				return "old", nil
			})
		})
		synctest.Wait()
		if err := c.Store.Release(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		for w.Incarnation() == old || w.Ready() != nil {
			time.Sleep(100 * time.Millisecond)
		}
		wg.Go(func() {
			v, _, err := worker.Share(t.Context(), w.Worker, "k", "read", func(gateway.Execution) (string, error) { return "new", nil })
			if v != "new" || err != nil {
				t.Errorf("%v, %v", v, err)
			}
		})
		synctest.Wait()
		close(goOn)
		wg.Wait()
	})
}
