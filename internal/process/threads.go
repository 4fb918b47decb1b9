package process

import (
	"os"
	"runtime"
	"sync"
	"time"
)

// How SpareThreads decides, by the share of a core's time that the process takes between two looks, and by how
// late a look is: goroutines wait then, gossip's and the session's among them.
const (
	threadsLook = 100 * time.Millisecond
	threadsIdle = 500 * time.Millisecond // in place of threadsLook, while the process takes less than idleOne
	threadsLate = 20 * time.Millisecond
	idleOne     = 0.05
	enoughOne   = 0.4 // at most, for calmLooks in a row: one thread does it
	tooMuchOne  = 0.6 // and more: one thread is not enough
	calmLooks   = 20
	afterLate   = 80 // looks more, after a late one
)

// SpareThreads lets goroutines run on one thread at a time for as long as the process needs
// less than 0.6 of a core's time and none of them waits for long, until stop is called; from then on, and otherwise, on as many
// as Go chooses by itself. Whenever a goroutine becomes ready Go wakes a thread more that looks for work, even if
// the running one is about to wait: in a process that takes requests from one process and passes them on to
// another, most of these find none (docs/benchmarks.md counts what that costs). With GOMAXPROCS in the
// environment, and where the time that the process takes is not known, SpareThreads does nothing.
func SpareThreads() (stop func()) {
	if os.Getenv("GOMAXPROCS") != "" || cpuTime == nil || runtime.GOMAXPROCS(0) == 1 {
		return func() {}
	}
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() { spareThreads(done) })
	return func() { close(done); running.Wait() }
}

func spareThreads(done <-chan struct{}) {
	runtime.GOMAXPROCS(1)
	defer runtime.SetDefaultGOMAXPROCS()
	wait := threadsLook
	timer := time.NewTimer(wait)
	defer timer.Stop()
	one, calm := true, 0
	for at, took := time.Now(), cpuTime(); ; {
		select {
		case <-done:
			return
		case <-timer.C:
		}
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
		timer.Reset(wait)
	}
}
