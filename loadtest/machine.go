//go:build linux

package main

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/keyway-go/keyway/loadtest/internal/report"
)

func cores() int { return runtime.NumCPU() }

// machine describes this one.
func machine() report.Machine {
	m := report.Machine{CPU: field("/proc/cpuinfo", "model name"), Cores: cores(), System: runtime.GOOS + "/" + runtime.GOARCH}
	if kb, err := strconv.ParseFloat(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"), 64); err == nil {
		m.MemoryGB = float64(int(kb/(1<<20)*10+0.5)) / 10
	}
	if name := strings.Trim(field("/etc/os-release", "PRETTY_NAME"), `"`); name != "" {
		m.System = name + ", " + m.System
	}
	var kernel unix.Utsname
	if unix.Uname(&kernel) == nil {
		m.System += ", Linux " + unix.ByteSliceToString(kernel.Release[:])
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.Load, _ = strconv.ParseFloat(strings.Fields(string(b))[0], 64)
	}
	return m
}

// field returns the value of the first line of a file that begins with a name.
func field(path, name string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		key, value, ok := strings.Cut(strings.Replace(lines.Text(), "=", ":", 1), ":")
		if ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Warnings are given above these shares.
const (
	busyGenerator = 0.5 // of a core
	busyNetwork   = 0.3 // of a core
	busyMachine   = 0.5 // of all cores, before the run
)

// warnings are what makes results doubtful.
func (o *options) warnings(r *report.Report) (all []string) {
	all = append(all, o.leftOut...)
	for _, s := range r.Scenes {
		for _, row := range s.Rows {
			if share := row.Median(func(t report.Turn) float64 { return t.Generator }); share > busyGenerator {
				all = append(all, fmt.Sprintf("%s, %s: the load generator, which has one thread, was busy for %.0f %% of the time: it may limit this contender", s.Name, row.Contender, 100*share))
			}
			for _, m := range row.Marks {
				if end := row.Turns[len(row.Turns)-1].Seconds; m.Done > end {
					all = append(all, fmt.Sprintf("%s, %s: %s lasted beyond the measured time, until %.1f s: give it more --time", s.Name, row.Contender, m.What, m.Done))
				}
			}
		}
	}
	if _, most := r.NetworkCost(); most > busyNetwork {
		all = append(all, fmt.Sprintf("what delays the network was busy for up to %.0f %% of the time, on a core that the contenders have, too: it may limit them, and more so the more round trips they make; take fewer --clients, or a --rate", 100*most))
	}
	for _, name := range slices.Sorted(maps.Keys(o.given)) {
		all = append(all, fmt.Sprintf("--%s was given, so that its CPU time and the commands to it are not counted", name))
	}
	if r.Machine.Load > busyMachine*float64(r.Machine.Cores) {
		all = append(all, fmt.Sprintf("the machine was busy before the run (load %.1f on %d cores): only ratios count, if anything", r.Machine.Load, r.Machine.Cores))
	}
	return all
}
