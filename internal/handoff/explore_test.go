package handoff

import (
	"flag"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	scopeName  = flag.String("scope", "", "part of the names of the only scopes to explore; _ stands for a space")
	showTraces = flag.Bool("traces", false, "whether to show how each mutation is found out")
	mutate     = flag.String("mutate", "", "part of the names of the only mutations to try")
)

// TestExplore searches every scope to its end for a way to break a promise of
// the protocol, within what may go wrong there. Under the race detector, which
// has nothing to find in a search by a single goroutine, it searches a part.
func TestExplore(t *testing.T) {
	all, began := scopes(), time.Now()
	all = slices.DeleteFunc(all, func(sc *scope) bool { return !strings.Contains(sc.name, strings.ReplaceAll(*scopeName, "_", " ")) })
	outs := make([]outcome, len(all))
	inParallel(len(all), func(i int) {
		s := &search{sc: all[i]}
		if underRace {
			s.limit = 500
		}
		outs[i] = s.run()
	})
	total, whole := 0, 0
	for i, out := range outs {
		total += out.states
		if out.ended {
			whole++
		}
		t.Logf("%-50s %v", all[i].name, out)
		if out.err != nil {
			t.Errorf("%s: %v\n%s", all[i].name, out.err, strings.Join(out.trace, "\n"))
		} else if !out.ended && !underRace {
			t.Errorf("%s did not end: %v", all[i].name, out)
		}
	}
	t.Logf("%d states in %d scopes, %d of them to their end, in %v", total, len(all), whole, time.Since(began).Round(time.Second))
}

// inParallel calls f for 0 to n-1, as many at a time as there are processors.
// Meanwhile the heap grows to up to 2 GB before garbage is collected, which
// would take a third of the time: a search keeps most of what it makes.
func inParallel(n int, f func(i int)) {
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(2 << 30))
	var wg sync.WaitGroup
	next := make(chan int)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}
