package worker_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/internal/calls"
	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/gateway/worker/internal/ownership"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// A worker that is told to leave the ring hands its partitions over, waits for what
// runs, and has its partitions back when it is told to come back.
func TestLeaveAndJoinRing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		a, b := c.Start(), c.Start()
		together(t, a, b)
		share, incarnation := a.Serving(), a.Incarnation()
		var key string
		for p := range 16 {
			if m, _ := a.Member.View().Owner(p); m.Name == "w1" {
				key = keyIn(c.Ring, p)
			}
		}
		release := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := a.Do(t.Context(), key, func(gateway.Execution) error { <-release; return nil }); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := a.LeaveRing(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 keys busy") {
			t.Errorf("left although a key of it runs: %v", err)
		}
		if b.Serving() != 16 || a.IsActive() {
			t.Errorf("the other one serves %d", b.Serving())
		}
		if err := a.Ready(); err == nil || !strings.Contains(err.Error(), "drained") {
			t.Errorf("ready: %v", err)
		}
		if s := a.Status(); s.State != "drained" || s.NotReady == "" || s.Wanted+s.Served != 0 {
			t.Errorf("status: %+v", s)
		}
		wg.Go(func() {
			if err := a.LeaveRing(t.Context()); err != nil {
				t.Errorf("leaving again: %v", err)
			}
		})
		synctest.Wait()
		close(release)
		wg.Wait()
		time.Sleep(time.Minute)
		if a.IsActive() {
			t.Error("it came back by itself")
		}
		if err := a.JoinRing(); err != nil {
			t.Fatal(err)
		}
		kit.Eventually(t, "it has its partitions back", func() bool { return a.Serving() == share && a.Ready() == nil })
		if a.Incarnation() != incarnation {
			t.Error("it has begun anew")
		}

		// To leave for good goes before.
		if err := a.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := a.JoinRing(); err == nil {
			t.Error("a worker that leaves for good came back")
		}
	})
}

// A worker that leaves the ring begins a new incarnation off the ring too.
func TestDrainedWorkerLosesItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		cut := &site.CutStore{Store: c.Store}
		a, b := c.Start(func(cfg *worker.Config) { cfg.Store = cut }), c.Start()
		together(t, a, b)
		if err := a.LeaveRing(t.Context()); err != nil {
			t.Fatal(err)
		}
		was := a.Incarnation()
		cut.Set(true)
		time.Sleep(15 * time.Second)
		cut.Set(false)
		time.Sleep(15 * time.Second)
		if a.Incarnation() == was || a.IsActive() || b.Serving() != 16 {
			t.Errorf("the new incarnation is on the ring, or it is none; the other one serves %d", b.Serving())
		}
	})
}

// A worker stays on the ring if nobody else is there, and comes back if the others have
// gone before it is empty.
func TestNobodyToTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		logs := new(kit.Buffer)
		a := c.StartReady(logged(logs))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := a.LeaveRing(ctx); !errors.Is(err, ownership.ErrAlone) {
			t.Errorf("the only one: %v", err)
		}
		if !a.IsActive() || a.Ready() != nil || strings.Contains(logs.String(), "told to leave") {
			t.Errorf("it has left the ring: %s", logs)
		}
		b := c.Start()
		together(t, a, b)
		release := make(chan struct{})
		var wg sync.WaitGroup
		for p := range 16 {
			wg.Go(func() {
				_ = a.TryDo(t.Context(), keyIn(c.Ring, p), func(gateway.Execution) error { <-release; return nil })
			})
		}
		synctest.Wait()
		left := make(chan error, 1)
		wg.Go(func() { left <- a.LeaveRing(ctx) })
		kit.Eventually(t, "the other one has taken over", func() bool { return b.Serving() == 16 && !a.IsActive() })
		b.Close()
		b.Member.Vanish()
		if err := <-left; !errors.Is(err, ownership.ErrAlone) {
			t.Errorf("the other one died meanwhile: %v", err)
		}
		close(release)
		wg.Wait()
		a.AwaitServing(t, 16)
	})
}

// Members ask a worker of itself, and have it leave the ring and come back.
func TestCallsOfOperators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 16)
		a, b := c.StartReady(), c.Start()
		together(t, a, b)
		m := newCaller(t, a)
		ask := func(method, key string, want int, text string) {
			t.Helper()
			status, body, err := m.call(t.Context(), method, key, nil)
			if err != nil || status != want || !strings.Contains(string(body), text) {
				t.Errorf("%s: %d %s %v, want %d with %q", method, status, body, err, want, text)
			}
		}
		ask(calls.Status, "", http.StatusOK, `"name":"w1"`)
		ask(calls.Explain, "k", http.StatusOK, `"key":"k"`)
		ask(calls.Explain, "", http.StatusBadRequest, "key")
		ask(calls.Drain, "", http.StatusOK, "")
		ask(calls.Status, "", http.StatusOK, `"state":"drained"`)
		ask(calls.Undrain, "", http.StatusOK, "")
		together(t, a, b)
		b.Close()
		b.Member.Vanish()
		a.AwaitServing(t, 16)
		ask(calls.Drain, "", http.StatusServiceUnavailable, "no other worker is on the ring")
	})
}
