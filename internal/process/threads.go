package process

import (
	"context"
	"os"
	"runtime"
	"time"

	"github.com/keyway-go/keyway/internal/wake"
)

// How SpareThreads decides, by the share of a core's time that the process takes between two looks, and by how
// late a look is: goroutines wait then, gossip's and the session's among them.
const (
	threadsLook = 100 * time.Millisecond
	threadsIdle = time.Second // in place of threadsLook, while the process takes less than idleOne
	threadsLate = 20 * time.Millisecond
	idleOne     = 0.05
	enoughOne   = 0.4 // at most, for calmLooks in a row: one thread does it
	tooMuchOne  = 0.6 // and more: one thread is not enough
	calmLooks   = 20
	afterLate   = 80 // looks more, after a late one
)

// SpareThreads runs goroutines on one thread at a time until stop is called, while the process
// needs less than 0.6 of a core and no goroutine waits for long. Otherwise Go chooses the number of
// threads. Go wakes another thread whenever a goroutine becomes ready, even if the running one is
// about to wait. In a process that passes requests from one process to another, most of these
// threads find no work (docs/benchmarks.md has the cost). SpareThreads does nothing if GOMAXPROCS
// is in the environment, or if the process's CPU time is unknown.
func SpareThreads() (stop func()) {
	if os.Getenv("GOMAXPROCS") != "" || cpuTime == nil || runtime.GOMAXPROCS(0) == 1 {
		return func() {}
	}
	return wake.Background(spareThreads)
}

func spareThreads(ctx context.Context) {
	runtime.GOMAXPROCS(1)
	defer runtime.SetDefaultGOMAXPROCS()
	wait := threadsLook
	one, calm := true, 0
	for at, took := time.Now(), cpuTime(); wake.Sleep(wait, ctx.Done()); {
		lastAt, lastTook := at, took
		at, took = time.Now(), cpuTime()
		late := at.Sub(lastAt) > wait+threadsLate
		share := float64(took-lastTook) / float64(at.Sub(lastAt))
		if one && (late || share > tooMuchOne) {
			one = false
			runtime.SetDefaultGOMAXPROCS()
		}
		switch {
		case late:
			calm = -afterLate
		case share > enoughOne:
			calm = min(calm, 0)
		default:
			calm++
		}
		if !one && calm >= calmLooks {
			one = true
			runtime.GOMAXPROCS(1)
		}
		wait = threadsLook
		if one && share < idleOne {
			wait = threadsIdle
		}
	}
}
