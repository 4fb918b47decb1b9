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
	began time.Time
	rows  []growthRow
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

// noise is by how much the median of the second half may exceed that of the first one: by a tenth, by what the
// middle half of the first one's values differ, or by the need's floor, whichever is most.
func (r *growthRow) noise(first series) float64 {
	sorted := slices.Sorted(slices.Values(first))
	quarter := len(sorted) / 4
	return max(first.median()/10, sorted[len(sorted)-1-quarter]-sorted[quarter], r.need.floor)
}

// judge prints the growth of each process, and returns errGrows if one is more than noise.
func judge(out io.Writer, g *growth) error {
	if len(g.rows) == 0 || len(g.rows[0].values) < 2 {
		return fmt.Errorf("soak: the load ended before there were samples")
	}
	lines := [][]string{{"", "", "before", "after", "growth a minute", "noise", ""}}
	var grown error
	for i := range g.rows {
		r := &g.rows[i]
		half := len(r.values) / 2
		before, after := r.values[:half], r.values[half:]
		growth, noise, verdict := after.median()-before.median(), r.noise(before), ""
		if growth > noise {
			verdict = "GROWS"
			grown = errGrows
		}
		minutes := max(r.at[len(r.at)-1]-r.at[0], time.Second).Minutes() / 2 // between the middles of the halves
		lines = append(lines, []string{r.process, r.need.name, r.need.unit(before.median()), r.need.unit(after.median()), r.need.unit(growth / minutes), r.need.unit(noise), verdict})
	}
	table(out, "medians of the second third of the time and of the last; a process grows if they differ by more than noise: a tenth, or what the middle half of the former differ by, or a floor", lines)
	return grown
}
