//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/hopbench/load"
	"github.com/keyway-go/keyway/internal/hopbench/proc"
)

// workload is one table.
type workload struct {
	name  string
	title string
	keys  int
	skew  float64
	path  string
	goal  string
}

func workloads() []workload {
	return []workload{
		{name: "uniform", title: "uniform keys, no work", keys: 10_000, path: "/", goal: "requests/s ≥ 2.7 ×, CPU ≤ 0.35 ×, ≥ 1.3 × nginx hash"},
		{name: "zipf", title: "Zipf 1.1, no work", keys: 10_000, skew: 1.1, path: "/", goal: "requests/s ≥ 3.5 ×, p99.9 ≤ 0.1 ×"},
		{name: "hot", title: "one hot key, no work", keys: 1, path: "/", goal: "requests/s ≥ 13 ×, p99.9 ≤ 0.1 ×"},
		{name: "wait", title: "Zipf 1.1, 0.2 ms of waiting in the critical section", keys: 10_000, skew: 1.1, path: waitPath},
	}
}

type e2eFlags struct {
	router      string
	rounds      int
	time        time.Duration
	warmUp      time.Duration
	connections int
	poll        time.Duration
	wait        time.Duration
	workloads   []workload
	stacks      []stack
}

func runE2E(ctx context.Context, args []string, stdout, _ io.Writer) error {
	f, err := parseE2E(args, stdout)
	if err != nil {
		return err
	}
	b, err := newBench(ctx, stdout, f.router, "nginx", "redis-server")
	if err != nil {
		return err
	}
	e := &e2e{bench: b, e2eFlags: f}
	err = e.run()
	b.close(err)
	return err
}

func parseE2E(args []string, out io.Writer) (f e2eFlags, err error) {
	var chosen, rows string
	var names, rowNames []string
	for _, w := range workloads() {
		names = append(names, w.name)
	}
	for _, s := range stacks() {
		rowNames = append(rowNames, s.id)
	}
	flags := flag.NewFlagSet("e2e", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.StringVar(&f.router, "router", "", "`path` of cmd/router; by default it is built")
	flags.IntVar(&f.rounds, "rounds", 5, "rounds in which each row has its turn")
	seconds := flags.Float64("seconds", 2, "length of a turn")
	flags.DurationVar(&f.warmUp, "warm-up", 300*time.Millisecond, "load before each turn")
	flags.IntVar(&f.connections, "connections", 64, "connections of clients")
	flags.DurationVar(&f.poll, "poll", 2*time.Millisecond, "mean time between two attempts to get the plain Redis lock; each is between half of it and one and a half")
	flags.DurationVar(&f.wait, "wait", 200*time.Microsecond, "work of the workload wait; a timer makes it longer")
	flags.StringVar(&chosen, "workloads", strings.Join(names, ","), "which ones, separated by commas")
	flags.StringVar(&rows, "rows", strings.Join(rowNames, ","), "which rows, separated by commas; the first is what the others are compared with")
	if err := flags.Parse(args); err != nil {
		return f, errors.Join(err, quietUsage(err))
	}
	f.time = time.Duration(*seconds * float64(time.Second))
	for name := range strings.SplitSeq(chosen, ",") {
		i := slices.Index(names, name)
		if i < 0 {
			return f, cli.Usagef("--workloads: there is no %q; there are %s", name, strings.Join(names, ","))
		}
		f.workloads = append(f.workloads, workloads()[i])
	}
	for id := range strings.SplitSeq(rows, ",") {
		if id == broken().id {
			f.stacks = append(f.stacks, broken())
			continue
		}
		i := slices.Index(rowNames, id)
		if i < 0 {
			return f, cli.Usagef("--rows: there is no %q; there are %s", id, strings.Join(rowNames, ","))
		}
		f.stacks = append(f.stacks, stacks()[i])
	}
	if flags.NArg() > 0 || f.rounds < 1 || f.time <= 0 || f.connections < 1 || f.poll <= 0 {
		return f, cli.Usagef("no arguments; --rounds, --seconds, --connections and --poll are positive")
	}
	return f, nil
}

// e2e is a measurement of stacks.
type e2e struct {
	*bench
	e2eFlags
}

// errIncorrect: a lock did not exclude.
var errIncorrect = errors.New("correctness counters are not zero")

func (e *e2e) run() error {
	fmt.Fprintf(e.out, "%d app processes, %d connections, everything on all cores of this machine. CPU is that of all processes but the load generator. × are medians of the rounds' ratios to the first row.\n", instances, e.connections)
	running := make([]*runningStack, len(e.stacks))
	var starting errgroup.Group
	for i, s := range e.stacks {
		starting.Go(func() (err error) {
			if running[i], err = e.startStack(s); err != nil {
				return fmt.Errorf("starting %s: %w", s.name, err)
			}
			return nil
		})
	}
	if err := starting.Wait(); err != nil {
		return err
	}
	for _, w := range e.workloads {
		if err := e.measure(w, running); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return e.judge(running)
}

func (e *e2e) measure(w workload, running []*runningStack) error {
	rows := make([]figures, len(running))
	for round := range e.rounds {
		for i, s := range running {
			if rows[i] == nil {
				rows[i] = make(figures)
			}
			if err := e.turn(w, s, rows[i]); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			fmt.Fprintf(e.out, "  %s %d/%d  %-40s %9s/s  p99 %s\n", w.name, round+1, e.rounds, s.name, thousands(rows[i][perSecond][round]), millis(rows[i][p99][round]))
		}
	}
	e.print(w, running, rows)
	return nil
}

func (e *e2e) turn(w workload, s *runningStack, f figures) error {
	r, err := e.load(load.Config{
		Addr: s.addr, Connections: e.connections, Path: w.path, Keys: w.keys, Skew: w.skew, WarmUp: e.warmUp, Time: e.time, Groups: s.groups(),
	})
	if err != nil {
		return err
	}
	if r.Requests == 0 {
		return fmt.Errorf("no request was answered with 200: %s", r.Failure)
	}
	s.answered += r.Total
	s.failed += r.Failed
	seconds, requests := r.Time.Seconds(), float64(r.Requests)
	f.add(perSecond, requests/seconds)
	f.add(p50, float64(r.P50))
	f.add(p99, float64(r.P99))
	f.add(p999, float64(r.P999))
	f.add(failures, float64(r.Failed))
	f.add(loadBusy, r.Own.Seconds()/seconds)
	var sum time.Duration
	for group, d := range r.CPU {
		sum += d
		f.add(group, float64(d)/requests)
	}
	f.add(cpuPer, float64(sum)/requests)
	return nil
}

func (e *e2e) print(w workload, running []*runningStack, rows []figures) {
	lines := [][]string{{"", perSecond, "×", "p50", "p99", "×", "p99.9", "×", cpuPer, "×", groupProxy, groupApps, groupRedis, loadBusy, failures}}
	base := rows[0]
	for i, s := range running {
		f := rows[i]
		lines = append(lines, []string{s.name, thousands(f[perSecond].median()), times(f[perSecond].over(base[perSecond])), millis(f[p50].median()),
			millis(f[p99].median()), times(f[p99].over(base[p99])), millis(f[p999].median()), times(f[p999].over(base[p999])),
			micros(f[cpuPer].median()), times(f[cpuPer].over(base[cpuPer])),
			micros(f[groupProxy].median()), micros(f[groupApps].median()), micros(f[groupRedis].median()),
			percent(f[loadBusy].median()), fmt.Sprint(slices.Max(f[failures]))})
	}
	title := w.title
	if w.goal != "" {
		title += " (goal: " + w.goal + ")"
	}
	table(e.out, title, lines)
	fmt.Fprintln(e.out)
}

// judge prints the correctness counters.
func (e *e2e) judge(running []*runningStack) error {
	lines := [][]string{{"", "answered", "executions", "overlaps", "lost updates"}}
	var wrong error
	for _, s := range running {
		v := s.counters.verdict()
		lines = append(lines, []string{s.name, fmt.Sprint(s.answered), fmt.Sprint(v.executions), fmt.Sprint(v.overlaps), fmt.Sprint(v.lost)})
		if v.overlaps != 0 || v.lost != 0 || v.executions < s.answered {
			wrong = errors.Join(wrong, fmt.Errorf("%w: %s", errIncorrect, s.name))
		}
	}
	table(e.out, "correctness", lines)
	return wrong
}

// stack is a row: a design from the front door to the lock.
type stack struct {
	id, name string
	front    string // haproxy, nginx's configuration or a router
	lock     string
}

// Fronts of stacks.
const (
	frontRoundRobin   = "nginx, round robin"
	frontHash         = "nginx, by key"
	frontReverseProxy = "Go's ReverseProxy, by key"
	frontRouter       = "router"
)

func stacks() []stack {
	return []stack{
		{"redis", "nginx round robin + Redis lock", frontRoundRobin, lockRedis},
		{"redsync", "nginx round robin + redsync", frontRoundRobin, lockRedsync},
		{"reverseproxy", "Go ReverseProxy by key + local mutex (u)", frontReverseProxy, lockLocal},
		{"hash", "nginx hash + local mutex (u)", frontHash, lockLocal},
		{"keyway", "Keyway, http.Handler", frontRouter, lockKeyway},
		{"keyway-link", "Keyway, handler without net/http", frontRouter, lockLink},
	}
}

// broken is a row that excludes nothing, to see that it is noticed.
func broken() stack {
	return stack{"broken", "nginx round robin + local mutex", frontRoundRobin, lockLocal}
}

// runningStack is a stack that takes requests.
type runningStack struct {
	stack
	addr     string
	proxy    *proc.Process
	apps     []*proc.Process
	redis    *proc.Process // of this stack alone
	counters counters
	answered int64
	failed   int64
}

func (s *runningStack) groups() map[string][]int {
	g := map[string][]int{groupProxy: s.proxy.Pids(), groupRedis: s.redis.Pids()}
	for _, p := range s.apps {
		g[groupApps] = append(g[groupApps], p.Pids()...)
	}
	return g
}
