// Command chaos tries Keyway's promises on real processes: a redis-server, a
// router and several workers as sidecars, under the load of many clients, some
// of which break uploads, tunnels and event streams off while the app works,
// while workers join, leave, are killed and paused, and redis-server is
// restarted with and without its data. The app behind the sidecars sees every
// execution, and judges. A thousand callers lock keys of the same workers, in this process,
// over HTTP, and in client processes that are killed: they tell this one when
// locks are held, lost and let go.
//
//	go run . -t 60s -seed 1
//
// It prints what happened and exits with 1 if a promise was broken. Which
// failures are allowed is said in docs/guarantees.md and in [judge.classify].
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if part := partOf(os.Getenv); part != nil {
		err = part(ctx)
	} else {
		err = run(ctx, os.Args[1:], os.Stdout)
	}
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return
	case errors.Is(err, errUsage):
		os.Exit(2)
	}
	fmt.Fprintln(os.Stderr, "chaos:", err)
	os.Exit(1)
}

// partOf returns what this process does in a scenario of another one, nil for nothing.
func partOf(env func(string) string) func(context.Context) error {
	for name, run := range map[string]func(context.Context, string) error{bankEnv: runBankNode, lockEnv: runLockClient} {
		if settings := env(name); settings != "" {
			return func(ctx context.Context) error { return run(ctx, settings) }
		}
	}
	return nil
}

var (
	errUsage    = errors.New("usage")
	errViolated = errors.New("a promise was broken")
)

func run(ctx context.Context, args []string, stdout io.Writer) error {
	cfg := config{Out: stdout}
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.DurationVar(&cfg.Time, "t", time.Minute, "length of the campaign")
	flags.Uint64Var(&cfg.Seed, "seed", rand.Uint64N(1e6), "seed of the plan and the mix")
	flags.DurationVar(&cfg.TTL, "session-ttl", 0, "session TTL of the workers; 0 chooses one that fits -t, 10s at most")
	flags.DurationVar(&cfg.Hold, "hold", 15*time.Second, "how long the router holds a request")
	flags.IntVar(&cfg.Clients, "clients", 64, "number of clients")
	flags.IntVar(&cfg.Lockers, "lockers", 1000, "number of callers that lock keys")
	flags.DurationVar(&cfg.Grant, "grant", grantTime, "how long a key that is free, and has an owner, may be kept from a waiting caller: more on a busy machine")
	flags.BoolVar(&cfg.Links, "links", false, "cut, stall and delay the connections between router and workers at random")
	flags.BoolVar(&cfg.Race, "race", false, "build router and worker with the race detector")
	flags.StringVar(&cfg.Programs, "programs", "", "`directory` of the programs router and worker; by default they are built")
	flags.BoolVar(&cfg.Verbose, "v", false, "print the logs of all processes, with debug messages")
	flags.StringVar(&cfg.Scenario, "scenario", "chaos", "chaos, or transfers: nodes that hold accounts of each other with DoAll are killed")
	if err := flags.Parse(args); err != nil {
		return errors.Join(errUsage, err)
	}
	play, ok := map[string]func(context.Context, config, string) error{"chaos": runChaos, "transfers": runTransfers}[cfg.Scenario]
	if !ok || flags.NArg() > 0 || cfg.Clients < 1 || cfg.Lockers < leastLockers || cfg.Time < 10*time.Second {
		fmt.Fprintln(flags.Output(), "chaos: no arguments; -scenario chaos or transfers; -t 10s or more; -clients 1 or more; -lockers 20 or more")
		return errUsage
	}
	dir, err := os.MkdirTemp("", "keyway-chaos-")
	if err != nil {
		return err
	}
	if err := play(ctx, cfg, dir); err != nil {
		fmt.Fprintf(stdout, "logs and data: %s\nagain: go run . %s\n", dir, again(args, cfg.Seed))
		return err
	}
	return os.RemoveAll(dir)
}

// again returns the arguments that repeat a run, for a shell.
func again(args []string, seed uint64) string {
	var b strings.Builder
	for _, arg := range append(args, "-seed", fmt.Sprint(seed)) {
		if strings.Contains(arg, " ") {
			arg = "'" + arg + "'"
		}
		b.WriteString(" " + arg)
	}
	return strings.TrimSpace(b.String())
}

func runChaos(ctx context.Context, cfg config, dir string) error {
	r, err := campaign(ctx, cfg, dir)
	if err != nil {
		return err
	}
	r.print(cfg.Out)
	if len(r.violations) == 0 {
		fmt.Fprintf(cfg.Out, "no violation (seed %d)\n", cfg.Seed)
		return nil
	}
	return errors.Join(r.printViolations(cfg.Out, dir), fmt.Errorf("%w: %d violations (seed %d)", errViolated, len(r.violations), cfg.Seed))
}
