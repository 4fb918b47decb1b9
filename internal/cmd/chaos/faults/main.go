// Command faults tells what each fault of a cluster costs its users. For each fault and store it starts real programs
// on this machine: a store, two routers and three workers as sidecars. It sends requests without a pause, brings the
// fault about, waits until that is over, and compares what clients and the app have seen.
//
//	go run ./faults kill store-leader redis etcd
//
// The arguments choose faults and stores; the default is all. It prints a table, whose figures docs/reliability.md has, and
// its progress to stderr. It exits with 1 if two executions of a key overlapped, a request ran twice, a token did not
// rise, or a fault could not be tried. It runs in internal/cmd/chaos and needs redis-server, redis-sentinel and etcd.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/cluster"
	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
	"github.com/keyway-go/keyway/ring"
)

var errViolated = errors.New("a promise was broken, or a fault could not be tried")

func main() { os.Exit(cli.Main("faults", run)) }

// config is what all rows have in common.
type config struct {
	TTL      time.Duration
	programs cluster.Programs
	times    int // that each fault is tried
	clients  int
	stderr   io.Writer
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cfg := config{stderr: stderr}
	var faults, kinds []string
	for _, r := range rows {
		faults = append(faults, r.name)
	}
	for _, s := range stores {
		kinds = append(kinds, s.name)
	}
	f := cli.NewFlags("faults", "Faults tells what each fault of a cluster costs its users.\nFaults: "+strings.Join(faults, ", ")+"; by default all.\nStores: "+strings.Join(kinds, ", ")+"; by default all.\n")
	f.Args = "[FAULT…] [STORE…]"
	f.Duration(&cfg.TTL, "session-ttl", ring.Settings{}.WithDefaults().TTL, ring.MinSessionTTL, "session `TTL` of the members")
	f.Int(&cfg.times, "times", 1, 1, "`number` of times that each fault is tried, with processes of its own")
	f.Int(&cfg.clients, "clients", clients, 1, "`number` of clients that send requests, of which the first 120 have a key each and short requests")
	if err := f.Parse(args, stdout); err != nil {
		return err
	}
	unknown := slices.IndexFunc(f.Words, func(name string) bool { return !slices.Contains(faults, name) && !slices.Contains(kinds, name) })
	switch {
	case unknown >= 0:
		return cli.Usagef("there is no %q; there are the faults %s, and the stores %s", f.Words[unknown], strings.Join(faults, " "), strings.Join(kinds, " "))
	case cfg.clients > clients:
		return cli.Usagef("--clients: there are %d at most", clients)
	}
	chosen := func(name string, of []string) bool {
		return slices.Contains(f.Words, name) || !slices.ContainsFunc(of, func(name string) bool { return slices.Contains(f.Words, name) })
	}
	logs, err := os.MkdirTemp("", "keyway-faults-")
	if err != nil {
		return err
	}
	if cfg.programs, err = cluster.Build(ctx, logs); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "Session TTL %v, %d routers, %d workers, %d clients, load average %s.\n\n", cfg.TTL, routers, workers, cfg.clients, loadAverage())
	fmt.Fprint(stdout, "| fault | store | failed requests | longest stall of a key | keys that stalled | double executions | token regressions |\n|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		for _, store := range stores {
			if !chosen(r.name, faults) || !chosen(store.name, kinds) {
				continue
			}
			fmt.Fprintf(stdout, "| %s | %s | ", r.title, store.title)
			text, e := r.tryOut(ctx, cfg, store, filepath.Join(logs, r.name+"-"+store.name))
			if ctx.Err() != nil {
				return ctx.Err()
			}
			fmt.Fprintln(stdout, text)
			err = errors.Join(err, e)
		}
	}
	fmt.Fprintf(stdout, "\nLoad average at the end %s.\n", loadAverage())
	if err != nil {
		return fmt.Errorf("%w; logs: %s", errViolated, logs)
	}
	return os.RemoveAll(logs)
}

func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	return strings.Join(strings.Fields(string(text) + " unknown")[:1], "")
}

// tryOut tries a fault and returns the text of its line from the third cell on, and an error if that is not as it should be.
func (r row) tryOut(ctx context.Context, cfg config, kind store, dir string) (text string, err error) {
	if r.led && kind.nodes == 1 {
		return "– | – | – | – | – |", nil
	}
	var all cell
	for i := range cfg.times {
		c, err := r.try(ctx, cfg, kind, filepath.Join(dir, strconv.Itoa(i+1)))
		for _, detail := range c.details {
			fmt.Fprintln(cfg.stderr, "         ", detail)
		}
		if err != nil {
			fmt.Fprintf(cfg.stderr, "%s: %v\n", dir, err)
			return "failed to run | – | – | – | – |", err
		}
		all.add(c)
	}
	return all.verdict()
}

// try plays a fault with a store and judges it.
func (r row) try(ctx context.Context, cfg config, kind store, dir string) (cell, error) {
	say := func(format string, args ...any) {
		fmt.Fprintf(cfg.stderr, "%s %s: %s\n", time.Now().Format(time.TimeOnly), filepath.Base(filepath.Dir(dir))+"/"+filepath.Base(dir), fmt.Sprintf(format, args...))
	}
	say("starts")
	s, err := newSite(ctx, cfg, dir, kind, r.args)
	if err != nil {
		s.Close()
		return cell{}, err
	}
	defer s.Close()
	loading, end := context.WithCancel(ctx)
	defer end()
	var load sync.WaitGroup
	load.Go(func() { s.load.Run(loading) })
	trial.Sleep(ctx, s.calm()+rand.N(time.Second)) // jobs repeat from run to run, so this one would hit the same request
	begin := s.Observer.Now()
	say("%d requests, %d failed; now the fault", s.load.Done.Load(), s.load.Failed.Load())
	err = r.play(ctx, s)
	s.settle(ctx)
	say("over after %.1f s; %d requests, %d failed", (s.Observer.Now() - begin).Seconds(), s.load.Done.Load(), s.load.Failed.Load())
	end()
	load.Wait()
	return judge(s.load.Requests(), s.Observer.Record(), s.paused), err
}
