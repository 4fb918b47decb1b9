package historytest

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/keyway-go/keyway/gateway"
	"github.com/keyway-go/keyway/gateway/worker"
)

// arrival is a call that waits for the key behind those before it.
type arrival struct {
	batch  bool
	leaves bool // its caller, before its turn has come
}

// Calls of one key, by Do and in batches, run in the order in which they came,
// and those that left while they waited do not run.
func TestOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var ran []int // guarded by the key
		w := newWorld(t, 1)
		n := w.start()
		defer w.stop(n)
		batcher, err := worker.NewBatcher(n.Worker.Worker, worker.BatchConfig{MaxItems: 5}, func(_ gateway.Execution, items []*worker.Item[int, int]) error {
			for _, item := range items {
				ran = append(ran, item.In)
				item.Out = answer(item.In)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 200 {
			arrivals := make([]arrival, rand.IntN(20))
			for i := range arrivals {
				arrivals[i] = arrival{batch: rand.IntN(3) > 0, leaves: rand.IntN(5) == 0}
			}
			ran = nil
			line(t, n, batcher, arrivals, &ran)
			var want []int
			for i, a := range arrivals {
				if !a.leaves {
					want = append(want, i)
				}
			}
			if !slices.Equal(ran, want) {
				t.Fatalf("%+v ran as %v", arrivals, ran)
			}
		}
	})
}

func answer(call int) int { return 2*call + 1 }

// line holds the key until all have come, one after the other, and those that
// leave have left. It returns when all have run.
func line(t *testing.T, n *node, batcher *worker.Batcher[int, int], arrivals []arrival, ran *[]int) {
	held, free := make(chan struct{}), make(chan struct{})
	var calls sync.WaitGroup
	calls.Go(func() {
		_ = n.Do(t.Context(), keyName(0), func(gateway.Execution) error {
			close(held)
			<-free
			return nil
		})
	})
	<-held
	var leave []context.CancelFunc
	for i, a := range arrivals {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if a.leaves {
			leave = append(leave, cancel)
		}
		calls.Go(func() {
			got, err := 0, error(nil)
			if a.batch {
				got, err = batcher.Do(ctx, keyName(0), i)
			} else {
				err = n.Do(ctx, keyName(0), func(gateway.Execution) error {
					*ran = append(*ran, i)
					got = answer(i)
					return nil
				})
			}
			if (err != nil) != a.leaves || err == nil && got != answer(i) {
				t.Errorf("call %d, %+v, got %d, %v", i, a, got, err)
			}
		})
		synctest.Wait() // it stands behind those before it
	}
	for _, cancel := range leave {
		cancel()
	}
	synctest.Wait()
	close(free)
	calls.Wait()
}
