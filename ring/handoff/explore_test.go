package handoff

import (
	"flag"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	exploreTime = flag.Duration("explore", 0, "how long the explorer searches each scope that has no end in sight; 0 for a small part of it")
	scopeName   = flag.String("scope", "", "part of the names of the only scopes to explore")
	showTraces  = flag.Bool("traces", false, "whether to show how each mutation is found out")
	mutate      = flag.String("mutate", "", "part of the names of the only mutations to try")
)

// TestExplore searches every scope for a way to break a promise of the
// protocol, within what may go wrong there.
func TestExplore(t *testing.T) {
	all, began := scopes(), time.Now()
	all = slices.DeleteFunc(all, func(sc *scope) bool { return !strings.Contains(sc.name, *scopeName) })
	outs := make([]outcome, len(all))
	inParallel(len(all), func(i int) {
		s := &search{sc: all[i], limit: 12000}
		if *exploreTime > 0 {
			s.limit, s.until = 20e6, time.Now().Add(*exploreTime)
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
		}
	}
	t.Logf("%d states in %d scopes, %d of them to their end, in %v", total, len(all), whole, time.Since(began).Round(time.Second))
}

// inParallel calls f for 0 to n-1, as many at a time as there are processors.
func inParallel(n int, f func(i int)) {
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
