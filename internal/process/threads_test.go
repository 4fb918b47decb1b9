package process_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keyway-go/keyway/internal/process"
)

// TestSpareThreads: one thread while the process takes little time, all soon when it takes more, and one
// again only when it has taken little for two seconds.
func TestSpareThreads(t *testing.T) {
	defer runtime.SetDefaultGOMAXPROCS()
	runtime.SetDefaultGOMAXPROCS()
	all := runtime.GOMAXPROCS(0)
	synctest.Test(t, func(t *testing.T) {
		var began, taken = time.Now(), time.Duration(0)
		var percent atomic.Int64 // of a core, that the process takes
		defer process.SetCPUTime(func() time.Duration {
			taken += time.Since(began) * time.Duration(percent.Load()) / 100
			began = time.Now()
			return taken
		})()
		stop := process.SpareThreads()
		for i, step := range []struct {
			percent int64
			time    time.Duration
			want    int
		}{
			{0, 0, 1},
			{55, time.Minute, 1},
			{65, 100 * time.Millisecond, all},
			{35, 1900 * time.Millisecond, all},
			{45, 100 * time.Millisecond, all},
			{35, 1900 * time.Millisecond, all},
			{35, 100 * time.Millisecond, 1},
			{150, 100 * time.Millisecond, all},
			{0, time.Minute, 1},
			{150, time.Second, all}, // it looks more rarely when there is nothing to do
		} {
			percent.Store(step.percent)
			time.Sleep(step.time)
			synctest.Wait()
			if got := runtime.GOMAXPROCS(0); got != step.want {
				t.Errorf("step %d: %d threads, want %d", i, got, step.want)
			}
		}
		percent.Store(0)
		time.Sleep(3 * time.Second)
		stop()
		if got := runtime.GOMAXPROCS(0); got != all {
			t.Errorf("%d threads at the end, want %d", got, all)
		}
	})
}

// TestSpareThreadsOfAStarvedProcess: while goroutines wait to run there are all threads, and for ten seconds after.
func TestSpareThreadsOfAStarvedProcess(t *testing.T) {
	defer runtime.SetDefaultGOMAXPROCS()
	runtime.SetDefaultGOMAXPROCS()
	all := runtime.GOMAXPROCS(0)
	synctest.Test(t, func(t *testing.T) {
		var starved atomic.Bool
		defer process.SetCPUTime(func() time.Duration {
			if starved.Swap(false) {
				time.Sleep(125 * time.Millisecond)
			}
			return 0
		})()
		defer process.SpareThreads()()
		for i, step := range []struct {
			starved bool
			time    time.Duration
			want    int
		}{
			{false, 50 * time.Millisecond, 1},
			{true, 1300 * time.Millisecond, all}, // the look at 100 ms takes until 225 ms, and the next one is at 1225 ms
			{false, 9600 * time.Millisecond, all},
			{false, 600 * time.Millisecond, 1},
		} {
			starved.Store(step.starved)
			time.Sleep(step.time)
			synctest.Wait()
			if got := runtime.GOMAXPROCS(0); got != step.want {
				t.Errorf("step %d: %d threads, want %d", i, got, step.want)
			}
		}
	})
}

// TestSpareThreadsHeeds: the user's word goes before.
func TestSpareThreadsHeeds(t *testing.T) {
	t.Setenv("GOMAXPROCS", "3")
	before := runtime.GOMAXPROCS(0)
	defer process.SpareThreads()()
	if got := runtime.GOMAXPROCS(0); got != before {
		t.Errorf("%d threads, want %d", got, before)
	}
}
