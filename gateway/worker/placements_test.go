package worker_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway/worker"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/internal/status"
	"github.com/keyway-go/keyway/internal/test/kit"
	"github.com/keyway-go/keyway/internal/test/site"
)

// A partition that is placed moves to its worker, and back when it is not placed any more.
func TestPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 64)
		a, b := c.Start(), c.Start()
		together(t, a, b)
		p := 0
		for m, _ := a.Member.View().Owner(p); m.Name != a.Member.Self().Name; m, _ = a.Member.View().Owner(p) {
			p++
		}
		wasA, wasB := a.Serving(), b.Serving()
		place := func(by *site.Worker, name string, wantA, wantB int) {
			t.Helper()
			if err := by.Place(t.Context(), p, name); err != nil {
				t.Fatal(err)
			}
			kit.Eventually(t, "the partition has moved", func() bool { return a.Serving() == wantA && b.Serving() == wantB })
			time.Sleep(time.Second) // until the move is remembered
		}
		place(a, b.Member.Self().Name, wasA-1, wasB+1)
		if m := moved(t, b, "taken", "placement"); m.Partitions != 1 || m.Worker != a.Member.Self().Name || m.Because != "the placements changed" {
			t.Errorf("b remembers %+v", m)
		}
		place(b, b.Member.Self().Name, wasA-1, wasB+1)
		place(b, "", wasA, wasB)
		moved(t, a, "taken", "placement")

		place(b, b.Member.Self().Name, wasA-1, wasB+1)
		if err := b.LeaveRing(t.Context()); err != nil {
			t.Fatal(err)
		}
		kit.Eventually(t, "the other worker has it, since that of the placement is off the ring", func() bool { return a.Serving() == 64 })
		if err := b.JoinRing(); err != nil {
			t.Fatal(err)
		}
		kit.Eventually(t, "its worker has it again", func() bool { return a.Serving() == wasA-1 && b.Serving() == wasB+1 })
	})
}

func TestPlaceRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := site.New(t, 64).Start()
		a.AwaitServing(t, 64)
		if err := a.Place(t.Context(), 3, "nobody"); !errors.Is(err, status.ErrNoWorker) {
			t.Errorf("placed at nobody: %v", err)
		}
		for _, p := range []int{-1, 64} {
			if err := a.Place(t.Context(), p, a.Member.Self().Name); err == nil {
				t.Errorf("placed partition %d of 64", p)
			}
		}
		if text := a.Member.View().Placements; text != "" {
			t.Errorf("the placements are %q", text)
		}
	})
}

// An operator's placement replaces a text in the store that no worker can read.
func TestPlaceReplacesGarbage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 64)
		a := c.Start()
		a.AwaitServing(t, 64)
		if _, err := c.Store.Replace(t.Context(), records.Placements, "", "garbage"); err != nil {
			t.Fatal(err)
		}
		if err := a.Place(t.Context(), 3, a.Member.Self().Name); err != nil {
			t.Fatal(err)
		}
		kit.Eventually(t, "the placement is in force", func() bool { return a.Member.View().Placements != "" })
	})
}

// silentNotes is a store that never answers who would replace a note.
type silentNotes struct{ worker.Store }

func (s silentNotes) Replace(ctx context.Context, _ records.Note, _, _ string) (string, error) {
	<-ctx.Done()
	return "", context.Cause(ctx)
}

// That an operator has left is no failure of the store; that this has not answered in time is one.
func TestPlaceWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := site.New(t, 64)
		a := c.Start(func(cfg *worker.Config) { cfg.Store = silentNotes{c.Store} })
		a.AwaitServing(t, 64)
		left, leave := context.WithCancel(t.Context())
		leave()
		if err := a.Place(left, 3, a.Member.Self().Name); !errors.Is(err, context.Canceled) {
			t.Errorf("the operator has left: %v", err)
		}
		if s := a.Status().Store; s.LastError != "" {
			t.Errorf("the operator has left, and the store has failed: %q", s.LastError)
		}
		if err := a.Place(t.Context(), 3, a.Member.Self().Name); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the store does not answer: %v", err)
		}
		if s := a.Status().Store; s.LastError == "" {
			t.Error("the store has not answered, and has not failed")
		}
	})
}

// slowMoves is a store that takes its time to write who owns what.
type slowMoves struct {
	worker.Store
	delay atomic.Int64
}

func (s *slowMoves) Apply(ctx context.Context, generation, incarnation string, changes []records.Change) ([]records.PartitionState, error) {
	time.Sleep(time.Duration(s.delay.Load()))
	return s.Store.Apply(ctx, generation, incarnation, changes)
}

// A request that comes while its partition is given away is refused with the name of the next owner, unless the store is
// slow to write that.
func TestRequestWaitsForTheMove(t *testing.T) {
	for _, tt := range []struct {
		name  string
		delay time.Duration
		leave bool // in place of a placement
		named bool
	}{
		{"quick", 20 * time.Millisecond, false, true},
		{"slow", 400 * time.Millisecond, false, false},
		{"leaving", 20 * time.Millisecond, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := site.New(t, 64)
				store := &slowMoves{Store: c.Store}
				c.Store = store
				a, b := c.Start(), c.Start()
				together(t, a, b)
				p := 0
				for m, _ := a.Member.View().Owner(p); m.Name != a.Member.Self().Name; m, _ = a.Member.View().Owner(p) {
					p++
				}
				key, serving := keyIn(c.Ring, p), a.Serving()
				store.delay.Store(int64(tt.delay))
				if tt.leave {
					go a.Drain(t.Context())
				} else if err := a.Place(t.Context(), p, b.Member.Self().Name); err != nil {
					t.Fatal(err)
				}
				for a.Serving() == serving {
					time.Sleep(time.Millisecond)
				}
				synctest.Wait() // the other tables close, too
				began, next := time.Now(), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the request ran at its former owner") })
				rec := site.Ask(t, a.Handler(next), "/", key)
				want := ""
				if tt.named {
					want = b.Incarnation()
				}
				if owner := rec.Header().Get("Keyway-Owner"); rec.Code != http.StatusMisdirectedRequest || owner != want || time.Since(began) > 60*time.Millisecond {
					t.Errorf("after %v status %d, owner %q, want %q", time.Since(began), rec.Code, owner, want)
				}
			})
		})
	}
}
