package keyed

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/internal/handoff"
	"github.com/keyway-go/keyway/internal/records"
	"github.com/keyway-go/keyway/ring"
)

// posted is an Owner that keeps what is posted.
type posted []handoff.Input

func (p *posted) Post(in handoff.Input) { *p = append(*p, in) }

func (p *posted) Waiting(int, *records.Record) (wait time.Duration, what string) { return 0, "" }

// However many callers wait for a partition, the owner is told once, and once more each time they go on to wait.
func TestAwaitedPartitionsAreSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := ring.NewView(nil, nil)
		k := New(Config{Settings: ring.Settings{Ring: ring.Config{Partitions: 2}}, View: func() *ring.View { return view }, MaxAwaiting: 10, AwaitTimeout: time.Minute})
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
			p.Open.Store(n == 2)
			p.Announce()
		}
		synctest.Wait()
		if len(said) != 2 || k.Awaiting.Load() != 0 {
			t.Errorf("said: %v, and %d callers wait", said, k.Awaiting.Load())
		}
	})
}
