package worker_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/workertest"
)

func TestShareRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := workertest.New(t, 16)
		w := c.Start()
		w.AwaitServing(t, 16)
		var runs atomic.Int32
		release := make(chan struct{})
		read := func(worker.Execution) (any, error) {
			runs.Add(1)
			<-release
			return "value", nil
		}
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				v, shared, err := w.Share(t.Context(), "k", "read", read)
				if v != "value" || !shared || err != nil {
					t.Errorf("Share: %v, %v, %v", v, shared, err)
				}
			})
		}
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() {
			if _, _, err := w.Share(ctx, "k", "read", read); !errors.Is(err, context.Canceled) {
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
		_, shared, err := w.Share(t.Context(), "k", "read", read)
		if shared || err != nil || runs.Load() != 2 {
			t.Errorf("a later call: shared %v, %v, %d runs", shared, err, runs.Load())
		}
	})
}

func TestShareOfNobodyIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := workertest.New(t, 16)
		w := c.Start()
		w.AwaitServing(t, 16)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			synctest.Wait()
			cancel()
		}()
		_, _, err := w.Share(ctx, "k", "read", func(x worker.Execution) (any, error) {
			defer close(ended)
			<-x.Context().Done()
			return nil, nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		<-ended
	})
}

func TestSharePanicComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := workertest.New(t, 16)
		w := c.Start()
		w.AwaitServing(t, 16)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				defer func() {
					p, is := recover().(*worker.PanicError)
					if !is || p.Value != "boom" || len(p.Stack) == 0 {
						t.Errorf("recovered %v", p)
					}
				}()
				_, _, _ = w.Share(t.Context(), "k", "read", func(worker.Execution) (any, error) { panic("boom") })
			})
		}
		wg.Wait()
		if err := w.Do(t.Context(), "k", ok); err != nil {
			t.Errorf("the key after a panic: %v", err)
		}
	})
}

// Whoever has changed something reads it again, however many others read: a
// flight is joined only while its key is held.
func TestTrapShareIsNoOlderThanItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := workertest.New(t, 1)
		w := c.Start()
		w.AwaitServing(t, 1)
		var value int64
		read := func() int64 {
			v, _, err := w.Share(t.Context(), "k", "read", func(worker.Execution) (any, error) { return value, nil })
			if err != nil {
				t.Error(err)
				return -1
			}
			return v.(int64)
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 5000 {
					var written int64
					err := w.Do(t.Context(), "k", func(worker.Execution) error { value++; written = value; return nil })
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

// A holder that shares a read of its own key would wait for itself, also when
// it would join others.
func TestShareNested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := workertest.New(t, 16)
		w := c.Start()
		w.AwaitServing(t, 16)
		read := func(worker.Execution) (any, error) { return "value", nil }
		var wg sync.WaitGroup
		err := w.Do(t.Context(), "k", func(x worker.Execution) error {
			wg.Go(func() {
				if v, _, err := w.Share(t.Context(), "k", "read", read); v != "value" || err != nil {
					t.Errorf("the one outside: %v, %v", v, err)
				}
			})
			synctest.Wait()
			_, _, err := w.Share(x.Context(), "k", "read", read)
			return err
		})
		if !errors.Is(err, worker.ErrNested) {
			t.Errorf("the holder: %v", err)
		}
		wg.Wait()
	})
}

// A caller that joined the flight of a holder does not get the error that comes
// of what that one holds.
func TestShareOwnErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := workertest.New(t, 16)
		w := c.Start()
		w.AwaitServing(t, 16)
		began, goOn := make(chan struct{}, 2), make(chan struct{})
		read := func(x worker.Execution) (any, error) {
			began <- struct{}{}
			<-goOn
			err := w.Do(x.Context(), "other", ok)
			return "value", err
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			err := w.Do(t.Context(), "other", func(x worker.Execution) error {
				_, _, err := w.Share(x.Context(), "k", "read", read)
				return err
			})
			if !errors.Is(err, worker.ErrNested) {
				t.Errorf("the holder: %v", err)
			}
		})
		<-began
		wg.Go(func() {
			if v, _, err := w.Share(t.Context(), "k", "read", read); v != "value" || err != nil {
				t.Errorf("the one that joined: %v, %v", v, err)
			}
		})
		synctest.Wait()
		close(goOn)
		wg.Wait()
	})
}

// A flight of an incarnation that was lost is not joined: what it reads is of
// the time before others may have owned the key.
func TestShareJoinsNothingCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := workertest.New(t, 16)
		w := c.Start()
		w.AwaitServing(t, 16)
		old := w.Incarnation()
		goOn := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _, _ = w.Share(t.Context(), "k", "read", func(worker.Execution) (any, error) {
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
			v, _, err := w.Share(t.Context(), "k", "read", func(worker.Execution) (any, error) { return "new", nil })
			if v != "new" || err != nil {
				t.Errorf("%v, %v", v, err)
			}
		})
		synctest.Wait()
		close(goOn)
		wg.Wait()
	})
}
