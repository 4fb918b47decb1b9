//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/loadtest/internal/load"
	"github.com/keyway-go/keyway/loadtest/internal/proc"
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
	measured    []*proc.Process
	addr        map[front]string // of the routers
}

// runSoak loads two routers, one of them with TLS, and two sidecars before an app, and
// returns an error if one of these needs more at the end than at the beginning.
func runSoak(ctx context.Context, args []string, stdout io.Writer) error {
	s := new(soak)
	var f flags
	set := cli.NewFlags("soak", "Soak loads routers and sidecars for long, and looks whether they need more and more.\n")
	f.common(set)
	set.Duration(&s.time, "t", 10*time.Minute, time.Second, "`time` of the load")
	set.Int(&s.connections, "connections", 10_000, 10, "`number` of connections of clients: 7 of 10 with HTTP/1.1, 2 with HTTP/2 of two streams each, 1 with HTTP/1.1 over TLS")
	if err := set.Parse(args, stdout); err != nil {
		return err
	}
	h, err := newHop(ctx, stdout, f, "redis-server")
	if err != nil {
		return err
	}
	s.hop, h.env = h, []string{collectorTrace}
	err = s.run()
	h.close(err)
	return err
}

func (s *soak) run() (err error) {
	if err := s.start(); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "%d connections for %v: two routers, one of them with TLS, and two sidecars before an app, on the cores of the load.\n", s.connections, s.time)
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	var failed error
	var loads sync.WaitGroup
	loads.Go(func() {
		defer cancel()
		failed = s.loadAll()
	})
	samples := s.sample(ctx)
	loads.Wait()
	if failed != nil {
		return failed
	}
	return judge(s.out, samples)
}

// start starts the cluster.
func (s *soak) start() (err error) {
	if s.redis, err = s.startRedis(); err != nil {
		return err
	}
	if _, err := s.upstreams(kindApp); err != nil {
		return err
	}
	s.addr = make(map[front]string)
	tls, err := s.tlsArgs()
	if err != nil {
		return err
	}
	// More than its default, where a process may have few files.
	first, err := s.startRouter("router", s.programs.Router, soakCluster, nil, "--max-connections", strconv.Itoa(s.connections))
	if err != nil {
		return err
	}
	second, err := s.startRouter("router-tls", s.programs.Router, soakCluster, nil, append(tls, "--join", first.gossip)...)
	if err != nil {
		return err
	}
	s.addr[frontHTTP], s.addr[frontHTTP2], s.addr[frontTLS] = first.listen, first.listen, second.listen
	s.measured = []*proc.Process{first.Process, second.Process}
	for _, name := range []string{"sidecar-1", "sidecar-2"} {
		p, err := s.startSidecar(name, s.programs.Worker, soakCluster, first.gossip)
		if err != nil {
			return err
		}
		s.measured = append(s.measured, p)
	}
	return errors.Join(s.probe(first.listen, false), s.probe(second.listen, true))
}

// loadAll makes the load, and says what became of it.
func (s *soak) loadAll() error {
	parts := []struct {
		front       front
		connections int
		streams     int
	}{
		{frontHTTP, s.connections - s.connections/10*3, 0},
		{frontHTTP2, s.connections / 10 * 2, 2},
		{frontTLS, s.connections / 10, 0},
	}
	results, errs := make([]load.Result, len(parts)), make([]error, len(parts))
	var all sync.WaitGroup
	for i, part := range parts {
		cfg := s.config(scenario{front: part.front, connections: part.connections, streams: part.streams, path: "/100"}, &proxy{addr: s.addr})
		cfg.Time = s.time
		name := "load-" + strings.NewReplacer("/", "", ".", "", " ", "-").Replace(string(part.front))
		all.Go(func() { results[i], errs[i] = s.loadAs(name, cfg) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i, part := range parts {
		r := results[i]
		fmt.Fprintf(s.out, "%s: %s requests/s, p99 %s, %d failed\n", part.front, thousands(float64(r.Answered)/r.Time.Seconds()), millis(float64(r.P99)), r.Failed)
		s.keep = s.keep || r.Failed > 0
		for _, f := range r.Failures {
			fmt.Fprintln(s.out, "  "+f.String())
		}
		if r.Answered == 0 {
			return fmt.Errorf("soak: no request over %s was answered with 200: %s", part.front, r.Failures)
		}
	}
	return nil
}

// sample takes samples of the processes until ctx ends, from when the connections have
// been there for a third of the time: until then what each of them needs grows, such as its tables of HTTP/2.
func (s *soak) sample(ctx context.Context) *growth {
	g := &growth{began: time.Now()}
	tick := time.NewTicker(min(10*time.Second, max(s.time/40, 100*time.Millisecond)))
	defer tick.Stop()
	var open time.Time // since when they are there
	for {
		select {
		case <-ctx.Done():
			return g
		case <-tick.C:
			if open.IsZero() && openFiles(s.measured[0].Pids()[0]) >= s.connections*8/10 { // 9 of 10 are the first router's
				open = time.Now()
			}
			if open.IsZero() || time.Since(open) < s.time/3 {
				continue
			}
			for _, p := range s.measured {
				g.add(p.Name, p.Pids()[0], filepath.Join(s.dir, p.Name+".log"))
			}
		}
	}
}
