//go:build linux

package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/keyway-go/keyway/loadtest/internal/proc"
)

// profileTurn records where the proxy spends its time in a turn of its own, and
// prints a summary in microseconds per request.
func (h *hop) profileTurn(s scenario, name string, perRequest float64) error {
	if err := os.MkdirAll(h.profile, 0o755); err != nil {
		return err
	}
	file := filepath.Join(h.profile, strings.NewReplacer(" ", "", ",", "-", "/", "").Replace(s.name+"-"+name)) + ".perf"
	_, _, err := h.watched(s, name, func(pids string) []string {
		return []string{"perf", "record", "-q", "-e", "cpu-clock", "-F", "1999", "-g", "-o", file, "-p", pids}
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(h.out, "  %s: perf report -g none --no-children -i %s\n", name, file)
	report, err := h.stage.Output(h.ctx, proc.Spec{
		Name: "perf-report", Program: proc.Find("perf"),
		Args: []string{"report", "-i", file, "--stdio", "--children", "-g", "none", "-F", "overhead_children,overhead,dso,sym", "-t", ";"},
	})
	if err != nil {
		return err
	}
	h.summarize(report, perRequest)
	return nil
}

// share is how much of the CPU time something takes.
type share struct {
	what    string
	percent float64
}

// summarize prints what a report of perf says: system calls with all that the
// kernel does in them, and what runs outside of the kernel by package.
func (h *hop) summarize(report string, perRequest float64) {
	calls, packages := make(map[string]float64), make(map[string]float64)
	for line := range strings.Lines(report) {
		f := strings.Split(line, ";")
		if len(f) != 4 || strings.HasPrefix(line, "#") {
			continue
		}
		all, self := parsePercent(f[0]), parsePercent(f[1])
		symbol := strings.TrimSpace(f[3])
		if kernel, ok := strings.CutPrefix(symbol, "[k] "); ok {
			packages["kernel"] += self
			for _, prefix := range []string{"__x64_sys_", "__arm64_sys_", "ksys_", "do_"} {
				if call, ok := strings.CutPrefix(kernel, prefix); ok && (prefix != "do_" || call == "writev") {
					calls[call] = max(calls[call], all)
				}
			}
			continue
		}
		packages[packageOf(strings.TrimSpace(f[2]), strings.TrimPrefix(symbol, "[.] "))] += self
	}
	for _, group := range []struct {
		title  string
		shares map[string]float64
	}{{"by package", packages}, {"system calls", calls}} {
		fmt.Fprintf(h.out, "    %s:", group.title)
		for _, s := range largest(group.shares) {
			fmt.Fprintf(h.out, " %s %.2f µs,", s.what, s.percent/100*perRequest/1e3)
		}
		fmt.Fprintln(h.out)
	}
}

func parsePercent(s string) float64 {
	n, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(s), "%"), 64) // 0 for a line of another form
	return n
}

// largest returns the shares above half a percent, the largest first.
func largest(shares map[string]float64) (all []share) {
	for what, percent := range shares {
		if percent >= 0.5 {
			all = append(all, share{what, percent})
		}
	}
	slices.SortFunc(all, func(a, b share) int { return cmp.Compare(b.percent, a.percent) })
	return all
}

// runtimeParts are parts of Go's runtime by how the names of their functions
// begin.
var runtimeParts = []struct {
	part     string
	prefixes []string
}{
	{"runtime: garbage collector", []string{"gc", "scan", "greyobject", "(*gc", "sweep", "bgsweep", "(*sweep", "markroot", "tryDeferToSpanScan", "wb", "bulkBarrier", "spanOf", "findObject", "(*unwinder)", "pcvalue", "step", "pcdatavalue", "(*stackScan", "getStackMap", "adjustframe", "(*lfstack"}},
	{"runtime: memory", []string{"malloc", "newobject", "makeslice", "growslice", "nextFree", "memclr", "memmove", "(*mcache)", "(*mcentral)", "(*mspan)", "(*mheap)", "deductAssist", "(*spanInlineMarkBits", "rawstring", "concatstring", "slicebytetostring"}},
	{"runtime: maps, strings, interfaces", []string{"map", "memhash", "aeshash", "strhash", "memequal", "assert", "type", "efaceeq", "conv", "cmpstring", "getitab"}},
}

// packageOf says where a function belongs.
func packageOf(dso, symbol string) string {
	symbol, _, _ = strings.Cut(symbol, "[") // of type arguments
	dir, base := "", symbol
	if i := strings.LastIndex(symbol, "/"); i >= 0 {
		dir, base = symbol[:i+1], symbol[i+1:]
	}
	pkg, function, isGo := strings.Cut(base, ".")
	if !isGo || strings.HasPrefix(dso, "lib") {
		return dso
	}
	switch pkg = dir + pkg; {
	case pkg == "internal/runtime/maps":
		return runtimeParts[2].part
	case pkg == "internal/runtime/gc/scan":
		return runtimeParts[0].part
	case pkg != "runtime":
		return strings.TrimPrefix(pkg, "github.com/keyway-go/keyway/")
	}
	for _, part := range runtimeParts {
		for _, prefix := range part.prefixes {
			if strings.HasPrefix(function, prefix) {
				return part.part
			}
		}
	}
	return "runtime: goroutines and the rest"
}
