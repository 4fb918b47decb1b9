//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/keyway-go/keyway/loadtest/internal/proc"
)

// collectorTrace has a Go program log each garbage collection, from which its live heap
// and its goroutines' stacks are known.
const collectorTrace = "GODEBUG=gctrace=1"

// need is what a process may need more and more of.
type need struct {
	name  string
	floor float64 // what it may grow by in any case
	unit  func(float64) string
}

func megabytesOf(n float64) string { return megabytes(int64(n)) }

func count(n float64) string { return strconv.FormatFloat(n, 'f', 0, 64) }

var needs = []need{
	{"resident", 16e6, megabytesOf},
	{"live heap", 8e6, megabytesOf},
	{"goroutines' stacks", 4e6, megabytesOf},
	{"open files", 64, count},
}

// growth is samples of what processes need.
type growth struct {
	began  time.Time
	window time.Duration // at each end, from which medians are taken
	rows   []growthRow
}

// growthRow is the samples of one need of one process.
type growthRow struct {
	process string
	need    need
	at      []time.Duration // since began
	values  series
}

// add takes a sample of a process that writes its log to a file.
func (g *growth) add(process string, pid int, log string) {
	heap, stacks := collected(log)
	values := []float64{float64(proc.MemoryOf(pid).Resident), heap, stacks, float64(openFiles(pid))}
	for i, need := range needs {
		r := g.row(process, need)
		r.at, r.values = append(r.at, time.Since(g.began)), append(r.values, values[i])
	}
}

func (g *growth) row(process string, n need) *growthRow {
	i := slices.IndexFunc(g.rows, func(r growthRow) bool { return r.process == process && r.need.name == n.name })
	if i < 0 {
		i = len(g.rows)
		g.rows = append(g.rows, growthRow{process: process, need: n})
	}
	return &g.rows[i]
}

func openFiles(pid int) int {
	files, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid)) // none if it has ended
	return len(files)
}

var collection = regexp.MustCompile(`->(\d+) MB, \d+ MB goal, (\d+) MB stacks`)

// collected returns the bytes of the live heap and of the stacks at the end of the last
// garbage collection in a log, 0 if there was none.
func collected(log string) (heap, stacks float64) {
	const tail = 64 << 10
	f, err := os.Open(log)
	if err != nil {
		return 0, 0
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > tail {
		_, _ = f.Seek(-tail, io.SeekEnd) // else it is read from its beginning
	}
	text, _ := io.ReadAll(f)
	all := collection.FindAllSubmatch(bytes.TrimSpace(text), -1)
	if len(all) == 0 {
		return 0, 0
	}
	last := all[len(all)-1]
	heap, _ = strconv.ParseFloat(string(last[1]), 64) // digits
	stacks, _ = strconv.ParseFloat(string(last[2]), 64)
	return heap * (1 << 20), stacks * (1 << 20)
}

// ends returns the values within the window at each end.
func (r *growthRow) ends(window time.Duration) (first, last series) {
	for i, at := range r.at {
		if at-r.at[0] <= window {
			first = append(first, r.values[i])
		}
		if r.at[len(r.at)-1]-at <= window {
			last = append(last, r.values[i])
		}
	}
	return first, last
}

// noise is by how much the last median may exceed the first one: by a tenth, by what the
// values of the first window differ, or by the need's floor, whichever is most.
func (r *growthRow) noise(first series) float64 {
	return max(first.median()/10, slices.Max(first)-slices.Min(first), r.need.floor)
}

// judge prints the growth of each process, and returns errGrows if one is more than noise.
func judge(out io.Writer, g *growth) error {
	if len(g.rows) == 0 {
		return fmt.Errorf("soak: the load ended before there was a sample")
	}
	lines := [][]string{{"", "", "first", "last", "growth a minute", "noise", ""}}
	var grown error
	for i := range g.rows {
		r := &g.rows[i]
		first, last := r.ends(g.window)
		growth, noise, verdict := last.median()-first.median(), r.noise(first), ""
		if growth > noise {
			verdict = "GROWS"
			grown = errGrows
		}
		minutes := max(r.at[len(r.at)-1]-r.at[0]-g.window, time.Second).Minutes() // between the middles of the windows
		lines = append(lines, []string{r.process, r.need.name, r.need.unit(first.median()), r.need.unit(last.median()), r.need.unit(growth / minutes), r.need.unit(noise), verdict})
	}
	table(out, fmt.Sprintf("medians of the first and the last %v; a process grows if they differ by more than noise: a tenth, or what the first %v differ by, or a floor", g.window, g.window), lines)
	return grown
}
