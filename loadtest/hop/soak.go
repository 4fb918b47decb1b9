//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/loadtest/internal/load"
	"github.com/keyway-go/keyway/loadtest/internal/report"
	"github.com/keyway-go/keyway/loadtest/internal/servers"
)

// errGrows: a process needs more and more of something.
var errGrows = errors.New("soak: a process grows")

// soakCluster is the name of the cluster.
const soakCluster = "soak"

// soak is a load that lasts, with everything on, and what the processes need meanwhile.
type soak struct {
	*hop
	time        time.Duration
	connections int
	measured    []*cluster.Process // two routers, one of them with TLS, and sidecars
	begun       atomic.Bool        // measuring, after a third of the time: until then what each connection needs grows, such as its tables of HTTP/2
}

// runSoak loads two routers, one of them with TLS, and two sidecars before an app, and
// returns an error if one of these needs more at the end than at the beginning.
func runSoak(ctx context.Context, args []string, stdout io.Writer) error {
	s := new(soak)
	var f flags
	set := cli.NewFlags("soak", "Soak loads routers and sidecars for long, and looks whether they need more and more.\n")
	set.String(&f.programsDir, "programs", "", "`directory` of the router and worker to use; by default they are built")
	set.Duration(&s.time, "t", 10*time.Minute, time.Second, "`time` of the load")
	set.Int(&s.connections, "connections", 10_000, 10, "`number` of connections of clients: 7 of 10 with HTTP/1.1, 2 with HTTP/2 of two streams each, 1 with HTTP/1.1 over TLS")
	if err := set.Parse(args, stdout); err != nil {
		return err
	}
	h, err := newHop(ctx, stdout, f, "redis-server")
	if err != nil {
		return err
	}
	s.hop = h
	err = s.run()
	h.close(err)
	return err
}

func (s *soak) run() (err error) {
	if err := s.start(); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "%d connections for %v: two routers, one of them with TLS, and two sidecars before an app, on the cores of the load.\n", s.connections, s.time)
	loaded := make(chan error, 1)
	go func() { loaded <- s.loadAll() }()
	var all []*growth
	for _, m := range s.measured {
		for _, n := range needs {
			all = append(all, &growth{process: m.Name, need: n})
		}
	}
	every := min(10*time.Second, max(s.time/40, 100*time.Millisecond))
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case err := <-loaded:
			if err != nil {
				return err
			}
			return judge(s.out, every, all)
		case <-tick.C:
			s.sample(all)
		}
	}
}

// start starts the cluster.
func (s *soak) start() error {
	if err := s.prepare(); err != nil {
		return err
	}
	if _, err := s.upstreams(kindApp); err != nil {
		return err
	}
	// More than its default, where a process may have few files.
	first, err := s.startRouter("router", s.programs.Router, soakCluster, "--max-connections", strconv.Itoa(s.connections))
	if err != nil {
		return err
	}
	second, err := s.startRouter("router-tls", s.programs.Router, soakCluster, append(s.tlsArgs(), "--join", first.Gossip)...)
	if err != nil {
		return err
	}
	s.measured = []*cluster.Process{first, second}
	for _, name := range []string{"sidecar-1", "sidecar-2"} {
		m, err := s.startSidecar(name, s.programs.Worker, soakCluster, first.Gossip)
		if err != nil {
			return err
		}
		s.measured = append(s.measured, m)
	}
	return errors.Join(s.await(frontHTTP, routerProxy(first, frontHTTP)), s.await(frontTLS, routerProxy(second, frontTLS)))
}

// loadAll makes the load, and says what became of it.
func (s *soak) loadAll() error {
	parts := []struct {
		front       front
		router      *cluster.Process
		connections int
		streams     int
	}{
		{frontHTTP, s.measured[0], s.connections - s.connections/10*3, 0},
		{frontHTTP2, s.measured[0], s.connections / 10 * 2, 2},
		{frontTLS, s.measured[1], s.connections / 10, 0},
	}
	results, errs := make([]*load.Result, len(parts)), make([]error, len(parts))
	var all sync.WaitGroup
	for i, part := range parts {
		cfg := s.config(scenario{front: part.front, connections: part.connections, streams: part.streams, path: "/100"}, routerProxy(part.router, part.front))
		cfg.WarmUp, cfg.Time, cfg.Begin = s.time/3, s.time-s.time/3, func() { s.begun.Store(true) }
		all.Go(func() { results[i], errs[i] = load.Run(s.ctx, cfg) })
	}
	all.Wait()
	if err := errors.Join(append(errs, s.stage.Check())...); err != nil {
		return err
	}
	for i, part := range parts {
		r := results[i]
		fmt.Fprintf(s.out, "%s: %s requests/s, p99 %s, %d failed\n", part.front, report.Count(float64(r.Answered)/r.Time.Seconds()), report.Millis(r.Quantile(99).Seconds()*1e3), r.Failed)
		s.stage.Keep = s.stage.Keep || r.Failed > 0
		for what, n := range r.Failures {
			fmt.Fprintf(s.out, "  %d × %s\n", n, what)
		}
		if r.Answered == 0 {
			return fmt.Errorf("soak: no request over %s was answered with 200: %s", part.front, r.Failures)
		}
	}
	return nil
}

// need is what a process may need more and more of.
type need struct {
	name   string
	metric string
	floor  float64 // what it may grow by in any case
	unit   func(float64) string
}

var needs = []need{
	{"resident", "process_resident_memory_bytes", 16e6, megabytes},
	{"heap's goal", "go_memstats_next_gc_bytes", 16e6, megabytes}, // twice what lives
	{"goroutines' stacks", "go_memstats_stack_inuse_bytes", 4e6, megabytes},
	{"open files", "process_open_fds", 64, func(n float64) string { return fmt.Sprintf("%.0f", n) }},
}

// growth is the samples of one need of one process.
type growth struct {
	process string
	need    need
	values  report.Series
}

// sample takes a sample of each process, from when measuring has begun.
func (s *soak) sample(all []*growth) {
	for i, m := range s.measured {
		values, err := servers.Metrics(s.ctx, m.Admin)
		if err != nil || !s.begun.Load() {
			continue
		}
		for j, n := range needs {
			g := all[i*len(needs)+j]
			g.values = append(g.values, values[n.metric])
		}
	}
}

// noise is by how much the median of the second half may exceed that of the first one: by a tenth, by what the
// middle half of the first one's values differ, or by the need's floor, whichever is most.
func (g *growth) noise(first report.Series) float64 {
	sorted := slices.Sorted(slices.Values(first))
	quarter := len(sorted) / 4
	return max(first.Median()/10, sorted[len(sorted)-1-quarter]-sorted[quarter], g.need.floor)
}

// judge prints the growth of each process, whose samples are that far apart, and returns errGrows if one is more than noise.
func judge(out io.Writer, every time.Duration, all []*growth) error {
	lines := [][]string{{"", "", "before", "after", "growth a minute", "noise", ""}}
	var grown error
	for _, g := range all {
		half := len(g.values) / 2
		if half == 0 {
			return errors.New("soak: the load ended before there were samples")
		}
		before, after := g.values[:half], g.values[half:]
		growth, noise, verdict := after.Median()-before.Median(), g.noise(before), ""
		if growth > noise {
			verdict = "GROWS"
			grown = errGrows
		}
		minutes := (every * time.Duration(half)).Minutes() // between the middles of the halves
		unit := g.need.unit
		lines = append(lines, []string{g.process, g.need.name, unit(before.Median()), unit(after.Median()), unit(growth / minutes), unit(noise), verdict})
	}
	report.Table(out, "medians of the second third of the time and of the last; a process grows if they differ by more than noise: a tenth, or what the middle half of the former differ by, or a floor", lines)
	return grown
}
