package keyed

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/internal/handoff"
	"github.com/keyway-go/keyway/internal/lease"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/ring"
)

// posted is an Owner that keeps what is posted.
type posted []handoff.Input

func (p *posted) Post(in handoff.Input) { *p = append(*p, in) }

func (p *posted) Waiting(int, *records.Record) (wait time.Duration, what string) { return 0, "" }

// However many callers wait for a partition, the owner is told once, and once more each time they go on to wait.
// There are no more of them than may wait.
func TestAwaitedPartitionsAreSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := ring.NewView(nil, nil)
		k := New(Config{Settings: ring.Settings{Ring: ring.Config{Partitions: 2}}, View: func() *ring.View { return view }, MaxAwaiting: 3, AwaitTimeout: time.Minute})
		var said posted
		k.Owner = &said
		p := &k.Parts[1]
		for range 3 {
			go func() {
				if err := p.awaitOwnership(t.Context(), "k", Asking{}, time.Now().Add(time.Minute)); err != nil {
					t.Error(err)
				}
			}()
		}
		for n := 1; n <= 2; n++ {
			synctest.Wait()
			if len(said) != n || said[n-1] != (handoff.Awaited{Partition: 1}) {
				t.Fatalf("said: %v", said)
			}
			if err := p.AwaitOpen(t.Context(), "k", Asking{}); !errors.Is(err, gateway.ErrBusy) {
				t.Errorf("one more waits: %v", err)
			}
			p.Open.Store(n == 2)
			p.Announce()
		}
		synctest.Wait()
		if len(said) != 2 || k.Awaiting.Load() != 0 {
			t.Errorf("said: %v, and %d callers wait", said, k.Awaiting.Load())
		}
	})
}

// An execution that has waited since it was admitted begins nothing if its key may be another worker's by now. One that
// runs within another goes on for as long as that.
func TestStillAdmits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := ring.NewView(nil, nil)
		k := New(Config{Settings: ring.Settings{Ring: ring.Config{Partitions: 1}}, View: func() *ring.View { return view }})
		k.Owner = new(posted)
		defer k.Close()
		p := &k.Parts[0]
		p.Table.Open(1, 0, nil)
		p.Open.Store(true)
		admit := func() (outer, inner Execution) {
			l := lease.New(k.Instant(time.Now()), time.Minute)
			k.Lease.Store(&l)
			outer, err := k.Admit(t.Context(), "k", Asking{Call: true})
			if err != nil {
				t.Fatal(err)
			}
			inner, nested, err := k.Nest(outer.Context(), "k", true)
			if !nested || err != nil || k.StillAdmits(outer) != nil || k.StillAdmits(inner) != nil {
				t.Fatalf("%v, %v; %v and %v", nested, err, k.StillAdmits(outer), k.StillAdmits(inner))
			}
			return outer, inner
		}
		check := func(x Execution, lost bool) {
			if err := k.StillAdmits(x); errors.Is(err, gateway.ErrUnavailable) != lost {
				t.Errorf("nested %v: %v", x.Nested(), err)
			}
			k.Release(x)
		}
		outer, inner := admit()
		k.Lease.Store(new(handoff.Lease))
		check(inner, false)
		check(outer, true)
		for range 2 {
			outer, inner = admit()
			p.CancelRunning()
			check(inner, true)
			check(outer, true)
		}
	})
}
