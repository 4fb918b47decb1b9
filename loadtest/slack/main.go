//go:build linux

// Command slack measures how late workers renew their sessions, idle and at full load, also
// with a fraction of a core each (a cgroup, which needs root). It prints a table. A default for
// --session-ttl has to leave room for the worst of it: docs/reliability.md. It needs redis-server.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/loadtest/internal/load"
	"github.com/keyway-go/keyway/loadtest/internal/servers"
	"github.com/keyway-go/keyway/ring"
)

const (
	workers = 3
	every   = 20 * time.Millisecond // between two looks at a worker
)

func main() { os.Exit(cli.Main("slack", run)) }

func run(ctx context.Context, args []string, stdout, _ io.Writer) error {
	var ttl, length time.Duration
	var clients int
	f := cli.NewFlags("slack", "Slack measures how late workers renew their sessions.\n")
	f.Duration(&ttl, "ttl", ring.Settings{}.WithDefaults().TTL, time.Second, "session `TTL` of the workers")
	f.Duration(&length, "t", 30*time.Second, time.Second, "`time` of a row")
	f.Int(&clients, "clients", 64, 1, "`number` of connections that send requests one after the other, at full load")
	if err := f.Parse(args, stdout); err != nil {
		return err
	}
	stage, programs, err := servers.Open(ctx, "slack", "")
	if err != nil {
		return err
	}
	defer stage.Close()
	admission := ttl * 7 / 10 // stops at that age of a confirmation
	fmt.Fprintf(stdout, "| cores for each worker | clients | requests/s | oldest confirmation | of what stops admission (%v) | sessions lost | load of the machine |\n|---|---|---|---|---|---|---|\n", admission)
	for _, row := range []struct {
		cores   float64 // 0: all
		clients int
	}{{0, 0}, {0, clients}, {0.5, clients}, {0.2, clients}, {0.1, clients}, {0.05, clients}} {
		r := &result{slack: admission}
		rate, err := r.measure(ctx, programs, ttl, length, row.cores, row.clients)
		if err == nil && !r.read {
			err = errors.New("no worker says how much slack it has")
		}
		if err != nil {
			return err
		}
		cores := "all"
		if row.cores > 0 {
			cores = fmt.Sprint(row.cores)
		}
		busy, _ := os.ReadFile("/proc/loadavg")
		oldest := admission - r.slack
		fmt.Fprintf(stdout, "| %s | %d | %.0f | %v | %.0f %% | %.0f | %.4s |\n", cores, row.clients, rate, oldest.Round(10*time.Millisecond), 100*oldest.Seconds()/admission.Seconds(), r.lost, busy)
	}
	return nil
}

// result is what a row measures.
type result struct {
	mu    sync.Mutex
	slack time.Duration // until admission stops, at its least
	lost  float64       // sessions
	read  bool          // a worker's slack was
}

// measure returns how many requests a second were answered.
func (r *result) measure(ctx context.Context, programs cluster.Programs, ttl, length time.Duration, cores float64, clients int) (rate float64, err error) {
	site, err := servers.NewSite(ctx, "slack", programs, workers, cores, []string{"--session-ttl", ttl.String()}, nil)
	if err != nil {
		return 0, err
	}
	defer site.Close()
	running, end := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer end()
	for _, w := range site.Workers {
		watching.Go(func() { r.watch(running, cluster.Of(w).Admin) })
	}
	if clients == 0 {
		select {
		case <-time.After(length):
		case <-ctx.Done():
		}
		return 0, context.Cause(ctx)
	}
	answers, err := load.Run(ctx, load.Config{Addr: site.Router.Listen, Clients: clients, Mix: load.Mix{Keys: 10_000, Path: "/"}, Time: length})
	if err != nil {
		return 0, err
	}
	return float64(answers.Answered) / answers.Time.Seconds(), nil
}

// watch reads a worker's slack until ctx ends. It does not see the slack between two reads.
func (r *result) watch(ctx context.Context, admin string) {
	for ; ctx.Err() == nil; time.Sleep(every) {
		values, err := servers.Metrics(ctx, admin)
		slack, known := values["keyway_worker_session_slack_seconds"]
		if err != nil || !known {
			continue
		}
		r.mu.Lock()
		r.read = true
		r.slack = min(r.slack, time.Duration(slack*float64(time.Second)))
		r.lost = max(r.lost, values["keyway_worker_sessions_lost_total"])
		r.mu.Unlock()
	}
}
