package process

import (
	"os"
	"runtime"
	"time"
)

// How SpareThreads decides, by the share of a core's time that the process takes between two looks.
const (
	threadsLook = 100 * time.Millisecond
	enoughOne   = 0.4 // at most, for calmLooks in a row: one thread does it
	tooMuchOne  = 0.6 // and more: one thread is not enough
	calmLooks   = 20
)

// SpareThreads lets goroutines run on one thread at a time for as long as the process needs
// less than 0.6 of a core's time, until stop is called; from then on, or at more, on as many as Go
// chooses by itself. Whenever a goroutine becomes ready Go wakes a thread more that looks for work, even if
// the running one is about to wait: in a process that takes requests from one process and passes them on to
// another, most of these find none (docs/benchmarks.md counts what that costs). With GOMAXPROCS in the
// environment, and where the time that the process takes is not known, SpareThreads does nothing.
func SpareThreads() (stop func()) {
	if os.Getenv("GOMAXPROCS") != "" || cpuTime == nil || runtime.GOMAXPROCS(0) == 1 {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		spareThreads(done)
	}()
	return func() {
		close(done)
		<-ended
	}
}

func spareThreads(done <-chan struct{}) {
	runtime.GOMAXPROCS(1)
	defer runtime.SetDefaultGOMAXPROCS()
	ticker := time.NewTicker(threadsLook)
	defer ticker.Stop()
	one, calm := true, 0
	for at, took := time.Now(), cpuTime(); ; {
		select {
		case <-done:
			return
		case <-ticker.C:
		}
		lastAt, lastTook := at, took
		at, took = time.Now(), cpuTime()
		switch share := float64(took-lastTook) / float64(at.Sub(lastAt)); {
		case one && share > tooMuchOne:
			one, calm = false, 0
			runtime.SetDefaultGOMAXPROCS()
		case one:
		case share > enoughOne:
			calm = 0
		default:
			if calm++; calm == calmLooks {
				one = true
				runtime.GOMAXPROCS(1)
			}
		}
	}
}
