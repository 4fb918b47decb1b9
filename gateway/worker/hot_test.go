package worker_test

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/internal/test/site"
)

func hotOf(w *site.Worker, key string) (h status.HotKey, rank int) {
	for i, h := range w.HotKeys(100) {
		if h.Key == key {
			return h, i
		}
	}
	return h, -1
}

// Requests and calls for a key that is taken are counted each, as they come, with who waits now.
func TestHotKeysOfThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).Start()
		w.AwaitServing(t, 16)
		if hot := w.HotKeys(10); len(hot) != 0 {
			t.Errorf("%+v before anything has come", hot)
		}
		time.Sleep(time.Minute)
		release := occupy(t, w, "sold out")
		var calls sync.WaitGroup
		for range 100 {
			calls.Go(func() { _ = w.Do(t.Context(), "sold out", ok) })
		}
		synctest.Wait()
		time.Sleep(10 * time.Second)
		if hot := w.HotKeys(10); len(hot) != 1 || hot[0].Key != "sold out" || math.Abs(hot[0].PerSecond-10) > 1 || hot[0].Error != 0 || hot[0].Waiting != 100 {
			t.Errorf("%+v while they wait, want 100 of one key in 10 s", hot)
		}
		release()
		calls.Wait()
		if hot := w.HotKeys(10); len(hot) != 1 || math.Abs(hot[0].PerSecond-10) > 1 || hot[0].Waiting != 0 {
			t.Errorf("%+v once they have run, want 100 of one key in 10 s", hot)
		}
		time.Sleep(time.Minute)
		if hot := w.HotKeys(10); len(hot) != 0 {
			t.Errorf("%+v a minute later", hot)
		}
	})
}

// Those count, too, who are told that the key is taken, or that too many wait for it.
func TestHotKeysOfThoseWhoAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).Start(func(cfg *worker.Config) { cfg.QueuePerKey = 1 })
		w.AwaitServing(t, 16)
		time.Sleep(time.Minute)
		release := occupy(t, w, "k")
		var waits sync.WaitGroup
		waits.Go(func() { _ = w.Do(t.Context(), "k", ok) })
		synctest.Wait()
		for range 10 {
			if err := w.TryDo(t.Context(), "k", ok); !errors.Is(err, gateway.ErrLocked) {
				t.Errorf("TryDo: %v", err)
			}
			if err := w.Do(t.Context(), "k", ok); !errors.Is(err, gateway.ErrBusy) {
				t.Errorf("Do: %v", err)
			}
		}
		time.Sleep(time.Second)
		if h, _ := hotOf(w, "k"); math.Abs(h.PerSecond-21.0/11) > 0.1 || h.Waiting != 1 {
			t.Errorf("%+v, want 21 in 11 s, of which one waits", h)
		}
		release()
		waits.Wait()
	})
}

// A key that nobody asks for any more stays among the hot ones while somebody waits for it.
func TestHotKeysWhoseHolderIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).Start(func(cfg *worker.Config) { cfg.MaxWait = time.Hour })
		w.AwaitServing(t, 16)
		release, releaseOther := occupy(t, w, "stuck"), occupy(t, w, "other")
		var calls sync.WaitGroup
		for range 5 {
			calls.Go(func() { _ = w.Do(t.Context(), "stuck", ok) })
		}
		for second := range 300 {
			if second < 100 { // later nothing comes
				_ = w.TryDo(t.Context(), "other", ok)
			}
			time.Sleep(time.Second)
			if second > 200 && second%45 != 0 { // and nobody looks for long
				continue
			}
			if h, _ := hotOf(w, "stuck"); h.Waiting != 5 || h.PerSecond < 5.0/20 || h.PerSecond > 5 {
				t.Fatalf("after %d s: %+v, and 5 wait", second, h)
			}
		}
		release()
		releaseOther()
		calls.Wait()
		time.Sleep(time.Minute)
		if hot := w.HotKeys(10); len(hot) != 0 {
			t.Errorf("%+v a minute later", hot)
		}
	})
}

// Thousands in a window are counted as exactly as ten in a later one.
func TestHotKeysOfVeryMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).Start()
		w.AwaitServing(t, 16)
		time.Sleep(time.Minute)
		release, releaseOther := occupy(t, w, "hot"), occupy(t, w, "warm")
		const n = 20_000
		for i := range n {
			_ = w.TryDo(t.Context(), "hot", ok)
			if i%4 == 0 {
				_ = w.TryDo(t.Context(), "warm", ok)
			}
		}
		time.Sleep(time.Second)
		for key, want := range map[string]float64{"hot": n / 11, "warm": n / 4 / 11} {
			if h, _ := hotOf(w, key); math.Abs(h.PerSecond-want) > 1 {
				t.Errorf("%s: %+v, want about %.0f a second", key, h, want)
			}
		}
		time.Sleep(30 * time.Second)
		for range 10 {
			_ = w.TryDo(t.Context(), "hot", ok)
		}
		time.Sleep(time.Second)
		if h, _ := hotOf(w, "hot"); math.Abs(h.PerSecond*11-10) > 0.5 {
			t.Errorf("%+v of 10 in a later window", h)
		}
		release()
		releaseOther()
	})
}

// Keys that nobody waits for are found by samples, also where they take turns in a
// partition.
func TestHotKeysAreSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 1).Start()
		w.AwaitServing(t, 1)
		const seconds, rate = 20, 2000 // of each of the two hot keys
		for i := range seconds * rate {
			for _, key := range []string{"odd", "even", fmt.Sprint("cold-", i)} {
				if err := w.Do(t.Context(), key, ok); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second / rate)
		}
		for _, key := range []string{"odd", "even"} {
			h, rank := hotOf(w, key)
			if rank < 0 || rank > 1 || math.Abs(h.PerSecond-h.Error/2-rate) > rate/2 {
				t.Errorf("%s: place %d, %+v, want about %d a second", key, rank, h, rate)
			}
		}
		if hot := w.HotKeys(100); len(hot) != 2 {
			t.Errorf("%+v: there are keys that have come once", hot)
		}
	})
}

// Batches count each of their items.
func TestHotKeysOfBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).Start()
		w.AwaitServing(t, 16)
		b := newBatches(t, w, worker.BatchConfig{})
		time.Sleep(time.Minute)
		release := occupy(t, w, "k")
		var calls sync.WaitGroup
		for range 50 {
			calls.Go(func() { _, _ = b.Do(t.Context(), "k", "x") })
		}
		synctest.Wait()
		release()
		calls.Wait()
		time.Sleep(time.Second)
		if h, _ := hotOf(w, "k"); math.Abs(h.PerSecond-50.0/11) > 0.1 {
			t.Errorf("%+v, want 50 in 11 s", h)
		}
	})
}
