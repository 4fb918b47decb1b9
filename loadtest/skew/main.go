//go:build linux

// Command skew measures what placement by load gains when some keys are asked for more than others. Each worker
// has a fraction of a core (a cgroup, which needs root). It prints a table. It needs redis-server.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/loadtest/internal/load"
	"github.com/keyway-go/keyway/loadtest/internal/proc"
	"github.com/keyway-go/keyway/loadtest/internal/servers"
)

func main() { os.Exit(cli.Main("skew", run)) }

const (
	workers  = 4
	cores    = 0.1 // of each worker
	clients  = 64  // that send requests one after the other
	keys     = 2000
	exponent = 1.1 // of Zipf's law: the key of rank i comes with weight 1/i^exponent
)

// site is what is measured.
type site struct {
	moves          int
	warmUp, length time.Duration
	programs       cluster.Programs
	stdout         io.Writer
}

func run(ctx context.Context, args []string, stdout, _ io.Writer) error {
	s := &site{stdout: stdout}
	f := cli.NewFlags("skew", "Skew measures what placement by load gains.\n")
	f.Int(&s.moves, "moves", 100, 1, "`number` of partitions that are moved by hand before that")
	f.Duration(&s.warmUp, "warm-up", 3*time.Minute, time.Second, "`time` before that: at most 9 % of the load move in a minute")
	f.Duration(&s.length, "t", 30*time.Second, time.Second, "`time` that is measured")
	if err := f.Parse(args, stdout); err != nil {
		return err
	}
	stage, programs, err := servers.Open(ctx, "skew", "")
	if err != nil {
		return err
	}
	defer stage.Close()
	s.programs = programs
	if err := s.stalls(ctx); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "\n%d workers with %v cores each, %d keys with Zipf's exponent %v, %d clients, %v after %v.\n\n", workers, cores, keys, exponent, clients, s.length, s.warmUp)
	fmt.Fprintln(stdout, "| placement | requests/s | failed | p99 | busiest worker's CPU | idlest's |\n|---|---|---|---|---|---|")
	for _, placement := range []string{"off", "on"} {
		if err := s.measure(ctx, placement); err != nil {
			return err
		}
	}
	return nil
}

// measure prints a row.
func (s *site) measure(ctx context.Context, placement string) error {
	running, err := servers.NewSite(ctx, "skew", s.programs, workers, cores, nil, []string{"--placement", placement})
	if err != nil {
		return err
	}
	defer running.Close()
	used := make([]time.Duration, workers)
	took := func(sign time.Duration) func() {
		return func() {
			for i, w := range running.Workers {
				used[i] += sign * proc.CPU(w)
			}
		}
	}
	answers, err := load.Run(ctx, load.Config{
		Addr: running.Router.Listen, Clients: clients, Mix: load.Mix{Keys: keys, Skew: exponent, Path: "/"}, WarmUp: s.warmUp, Time: s.length, Begin: took(-1), End: took(1),
	})
	if err != nil {
		return err
	}
	share := func(d time.Duration) float64 { return 100 * d.Seconds() / s.length.Seconds() / cores }
	_, err = fmt.Fprintf(s.stdout, "| %s | %.0f | %d | %v | %.0f %% | %.0f %% |\n", placement, float64(answers.Answered)/answers.Time.Seconds(), answers.Failed,
		answers.Quantile(99).Round(time.Millisecond), share(slices.Max(used)), share(slices.Min(used)))
	return err
}
