package worker_test

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/workertest"
)

func hotOf(w *workertest.Worker, key string) (h gateway.HotKey, rank int) {
	for i, h := range w.HotKeys(100) {
		if h.Key == key {
			return h, i
		}
	}
	return h, -1
}

// Keys that have to be waited for are counted each time, with who waits now.
func TestHotKeysOfThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := workertest.New(t, 16).Start()
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
		if hot := w.HotKeys(10); len(hot) != 0 {
			t.Errorf("%+v while they wait yet", hot)
		}
		time.Sleep(time.Second)
		release()
		calls.Wait()
		calls.Go(func() { occupy(t, w, "sold out")() })
		calls.Wait()
		hot := w.HotKeys(10)
		if len(hot) != 1 || hot[0].Key != "sold out" || math.Abs(hot[0].PerSecond-10) > 1 || hot[0].Error != 0 {
			t.Errorf("%+v, want 100 of one key in 10 s", hot)
		}
		release = occupy(t, w, "sold out")
		calls.Go(func() { _ = w.Do(t.Context(), "sold out", ok) })
		synctest.Wait()
		if h, _ := hotOf(w, "sold out"); h.Waiting != 1 {
			t.Errorf("%+v, and one waits", h)
		}
		release()
		calls.Wait()
		time.Sleep(time.Minute)
		if hot := w.HotKeys(10); len(hot) != 0 {
			t.Errorf("%+v a minute later", hot)
		}
	})
}

// Keys that nobody waits for are found by samples, also where they take turns in a
// partition.
func TestHotKeysAreSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := workertest.New(t, 1).Start()
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
	})
}

// Batches count each of their items.
func TestHotKeysOfBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := workertest.New(t, 16).Start()
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
