//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/keyway-go/keyway/loadtest/internal/proc"
	"github.com/keyway-go/keyway/loadtest/internal/report"
)

// errGrows: a proxy needs more and more memory, or open files.
var errGrows = errors.New("a proxy grows")

// longTurn is how long turns must be for proxies to be judged, and samples is how often their memory is looked at then.
// Within a turn, whose connections stay, the number of open files may rise by moreFiles.
const (
	longTurn  = time.Minute
	samples   = 60
	moreFiles = 64
)

// openFiles returns how many files a proxy has open.
func (p *proxy) openFiles() (n int) {
	for _, pid := range p.pids() {
		files, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)) // none of a process that has ended
		n += len(files)
	}
	return n
}

// watch looks at the memory of a proxy until what it returns is called, which returns how much it was.
func (p *proxy) watch(every time.Duration) (stop func() report.Series) {
	done, seen := make(chan struct{}), make(chan report.Series)
	go func() {
		var s report.Series
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			s = append(s, float64(proc.Resident(p.pids()...)))
			select {
			case <-tick.C:
			case <-done:
				seen <- s
				return
			}
		}
	}()
	return func() report.Series {
		close(done)
		return <-seen
	}
}

// grown returns the medians of the second third of a series and of the last, and whether they differ by more than noise.
// That is a tenth, the spread of the former's middle half, or 16 MB, whichever is most. In the first third the memory of
// each connection grows, such as its tables of HTTP/2.
func grown(s report.Series) (before, after float64, grows bool) {
	third := len(s) / 3
	if third == 0 {
		return 0, 0, false
	}
	second, last := s[third:2*third], s[2*third:]
	sorted := slices.Sorted(slices.Values(second))
	quarter := third / 4
	before, after = second.Median(), last.Median()
	return before, after, after-before > max(before/10, sorted[third-1-quarter]-sorted[quarter], 16e6)
}
