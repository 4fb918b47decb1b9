package keytable

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestStress lets goroutines lock a few keys, some of them with contexts that
// end at any moment, while another closes and opens the table, and checks that
// nothing overlaps, that the lists of Close are complete and that nothing is
// left over. It is worth most under the race detector.
func TestStress(t *testing.T) {
	const goroutines, rounds, keyCount = 16, 2000, 5
	var (
		table   = Table{Queue: new(Queue)}
		keys    [keyCount]string
		inside  [keyCount]int   // guarded by the key
		highest [keyCount]int64 // guarded by the key
		entered atomic.Int64
		listed  sync.Map // token → key, as Unlock reported
		wg      sync.WaitGroup
	)
	for i := range keys {
		keys[i] = fmt.Sprint("key ", i)
	}
	stop := make(chan struct{})
	var fromClose []Held
	closer := sync.WaitGroup{}
	closer.Go(func() {
		for first := int64(1); ; first += 1000 {
			fromClose = append(fromClose, table.Close()...)
			table.Open(first, first+20, keys[:1])
			table.Unblock(keys[0])
			for n := int64(2); n < 6; n++ {
				select {
				case <-stop:
					return
				case <-time.After(20 * time.Microsecond):
					table.Advance(first, first+20*n)
				}
			}
		}
	})
	for g := range goroutines {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(g)))
			for range rounds {
				k := random.IntN(keyCount)
				ctx, cancel := t.Context(), context.CancelFunc(func() {})
				if random.IntN(3) == 0 {
					ctx, cancel = context.WithTimeout(ctx, time.Duration(random.IntN(20))*time.Microsecond)
				}
				token, err := table.Lock(ctx, keys[k])
				cancel()
				if err != nil {
					if !errors.Is(err, ErrClosed) && !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("Lock: %v", err)
					}
					continue
				}
				entered.Add(1)
				inside[k]++
				if inside[k] != 1 {
					t.Errorf("%d executions in %q", inside[k], keys[k])
				}
				if token <= highest[k] {
					t.Errorf("%q: token %d after %d", keys[k], token, highest[k])
				}
				highest[k] = token
				runtime.Gosched() // let the others come and wait
				inside[k]--
				if table.Unlock(keys[k], token) {
					listed.Store(token, keys[k])
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	closer.Wait()

	if entered.Load() == 0 {
		t.Error("nobody got a key")
	}
	slices.SortFunc(fromClose, func(a, b Held) int { return int(a.Token - b.Token) })
	for _, held := range slices.Compact(fromClose) {
		if key, ok := listed.LoadAndDelete(held.Token); !ok || key != held.Key {
			t.Errorf("Close listed %v, Unlock did not report it", held)
		}
	}
	for token, key := range listed.Range {
		t.Errorf("Unlock reported %v, %v as listed, Close did not list it", key, token)
	}
	if n, waiting := table.Len(), table.Queue.Waiting(); n != 0 || waiting != 0 {
		t.Errorf("%d keys and %d waiters left over", n, waiting)
	}
}

// TestStressCounter counts in plain variables, one for each key.
func TestStressCounter(t *testing.T) {
	const goroutines, rounds = 8, 2000
	var table Table
	keys := []string{"a", "b", "c"}
	counts := make([]int, len(keys))
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range rounds {
				k := (g + i) % len(keys)
				token, err := table.Lock(t.Context(), keys[k])
				if err != nil {
					t.Error(err)
					return
				}
				n := counts[k]
				runtime.Gosched() // let the others come and wait
				counts[k] = n + 1
				table.Unlock(keys[k], token)
			}
		})
	}
	wg.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	if total != goroutines*rounds {
		t.Errorf("counted to %d, want %d", total, goroutines*rounds)
	}
	if n := table.Len(); n != 0 {
		t.Errorf("%d keys left over", n)
	}
}
