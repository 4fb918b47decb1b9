package worker_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/test/memstore"
	"github.com/keyway-go/keyway/internal/test/site"
	"github.com/keyway-go/keyway/ring"
)

// ask asks a worker's handler for key, as a router would, and returns the status.
func ask(t *testing.T, w *site.Worker, key string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set(gateway.HeaderKey, key)
	answer := httptest.NewRecorder()
	w.Handler(http.NotFoundHandler()).ServeHTTP(answer, r)
	return answer
}

// While nobody serves a key, requests wait for AwaitTimeout, since they can be
// sent elsewhere, and calls for MaxWait.
func TestWaitsForAPartitionOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		store := &site.CutStore{Store: c.Store}
		store.Set(true)
		w := c.Start(func(cfg *worker.Config) {
			cfg.Store, cfg.AwaitTimeout, cfg.MaxWait = store, time.Second, time.Minute
		})
		_ = w.Member.Announce(func(self *ring.Member) { self.State = ring.StateActive })
		began := time.Now()
		answer := ask(t, w, "k")
		if took := time.Since(began); answer.Code != http.StatusMisdirectedRequest || answer.Header().Get("Keyway-Owner") != "" || took != time.Second {
			t.Errorf("%d, %v after %v, want a refusal without a hint after AwaitTimeout", answer.Code, answer.Header(), took)
		}
		began = time.Now()
		err := w.Do(t.Context(), "k", ok)
		unowned, is := errors.AsType[*gateway.UnownedError](err)
		if took := time.Since(began); !is || !errors.Is(err, gateway.ErrUnavailable) || took != time.Minute {
			t.Fatalf("%v after %v, want a refusal after MaxWait", err, took)
		}
		if unowned.Key != "k" || unowned.Partition != c.Ring.Partition("k") || unowned.Wait != 0 || !strings.Contains(err.Error(), "no session in the store") {
			t.Errorf("%+v: %v", unowned, err)
		}
		began = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := w.Do(ctx, "k", ok); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, gateway.ErrUnavailable) || time.Since(began) != time.Second {
			t.Errorf("a caller with less time: %v after %v", err, time.Since(began))
		}
		store.Set(false)
		if err := w.Do(t.Context(), "k", ok); err != nil {
			t.Error(err)
		}
	})
}

// On an empty store nobody owns anything for a TTL. The error of a call says so,
// and for how long yet; a call that may wait does.
func TestCallOnAnEmptyStoreSaysWhatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		c.Store = memstore.New(memstore.Config{Settings: c.Settings})
		w := c.Start(func(cfg *worker.Config) { cfg.NewCluster = false })
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		err := w.Do(ctx, "k", ok)
		unowned, is := errors.AsType[*gateway.UnownedError](err)
		if !is {
			t.Fatal(err)
		}
		if text := err.Error(); !strings.Contains(text, "has not claimed it yet") || !strings.Contains(text, "one TTL (10s)") || !strings.Contains(text, "6s left") {
			t.Error(text)
		}
		expected := time.Since(began) + unowned.Wait
		if err := w.Do(t.Context(), "k", ok); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < expected || took > expected+time.Second {
			t.Errorf("served after %v, said to be after %v", took, expected)
		}
	})
}

// The session of an owner that died is waited for by the worker that takes its
// keys over, and by all others; these then say who has.
func TestCallAfterACrashWaitsForTheNextOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions = 64
		c := site.New(t, partitions)
		a := c.StartOwner()
		b, d := c.Start(), c.Start()
		for b.Serving() == 0 || d.Serving() == 0 || a.Serving()+b.Serving()+d.Serving() < partitions {
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(3 * time.Second)
		var key string // of a, then of d
		for p := range partitions {
			key = keyIn(c.Ring, p)
			if err := a.Do(t.Context(), key, ok); err != nil {
				continue
			}
			without, err := ring.New(c.Ring, []string{"w2", "w3"})
			if err != nil {
				t.Fatal(err)
			}
			if owner, _ := without.Owner(p); owner == "w3" {
				break
			}
		}
		a.Close()
		a.Member.Vanish()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := b.Do(ctx, key, ok)
		unowned, is := errors.AsType[*gateway.UnownedError](err)
		if !is || unowned.Wait < 5*time.Second || unowned.Wait > 10*time.Second || !strings.Contains(err.Error(), "worker w3, which has not claimed it yet: the session of its last owner") {
			t.Fatalf("%v", err)
		}
		err = b.Do(t.Context(), key, ok)
		if notOwner, is := errors.AsType[*gateway.NotOwnerError](err); !is || notOwner.Worker != "w3" || notOwner.Addr != "w3:80" || notOwner.Key != key {
			t.Errorf("%v, want w3 for the owner", err)
		} else if text := err.Error(); !strings.Contains(text, "belongs to worker w3") || strings.Contains(text, d.Incarnation()) {
			t.Error(text)
		}
		began := time.Now()
		if err := b.Do(t.Context(), key, ok); time.Since(began) != 0 {
			t.Errorf("the next call: %v after %v", err, time.Since(began))
		}
	})
}

// A worker that leaves or is closed keeps no call waiting.
func TestCallOnALeavingWorkerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		c.Store = memstore.New(memstore.Config{Settings: c.Settings})
		w := c.Start(func(cfg *worker.Config) { cfg.NewCluster = false })
		failed := make(chan error, 1)
		go func() { failed <- w.Do(t.Context(), "k", ok) }()
		synctest.Wait()
		began := time.Now()
		w.Close()
		for range 2 {
			if err := <-failed; !errors.Is(err, gateway.ErrUnavailable) || !strings.Contains(err.Error(), "leaving") || time.Since(began) != 0 {
				t.Errorf("%v after %v", err, time.Since(began))
			}
			failed <- w.Do(t.Context(), "k", ok)
		}
	})
}

// A request at a worker that has left, where no other worker would take its key, is refused at once.
func TestRequestAtTheLastWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := site.New(t, 16).Start()
		w.AwaitServing(t, 16)
		if err := w.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		rec := site.Ask(t, w.Handler(http.NotFoundHandler()), "/", "k")
		if rec.Code != http.StatusMisdirectedRequest || time.Since(began) > 0 {
			t.Errorf("status %d after %v", rec.Code, time.Since(began))
		}
	})
}

// A worker whose name another one has on the ring says so.
func TestNameIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		one, other := c.StartNamed("twin"), c.StartNamed("twin")
		time.Sleep(time.Second)
		err := errors.Join(one.Ready(), other.Ready()) // either may be on the ring, since both began at the same time
		if err == nil || strings.Count(err.Error(), "another incarnation has its name there") != 1 {
			t.Errorf("%v, want one error about the name", err)
		}
	})
}
