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
	"io"
	"math/rand/v2"
	"os"
	"time"

	"github.com/keyway-go/keyway/internal/cli"
	"github.com/keyway-go/keyway/internal/cmd/chaos/trial"
)

func main() {
	if part := partOf(os.Getenv); part != nil {
		os.Exit(cli.Main("chaos", func(ctx context.Context, _ []string, _, _ io.Writer) error { return part(ctx) }))
	}
	os.Exit(cli.Main("chaos", run))
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

const about = "Chaos tries the promises on real processes: a redis-server, a router, workers that come, go and die, and callers that lock keys.\n"

func run(ctx context.Context, args []string, stdout, _ io.Writer) error {
	cfg := config{Out: stdout}
	var scenario string
	f := cli.NewFlags("chaos", about)
	f.Duration(&cfg.Time, "t", time.Minute, 10*time.Second, "`length` of the campaign")
	f.Int64(&cfg.Seed, "seed", rand.Int64N(1e6), 0, "seed of the plan and the mix")
	f.Duration(&cfg.TTL, "session-ttl", 0, 0, "session TTL of the workers; 0 chooses one that fits -t, 10s at most")
	f.Duration(&cfg.Hold, "hold", 15*time.Second, 0, "how long the router holds a request")
	f.Int(&cfg.Clients, "clients", 64, 1, "`number` of clients")
	f.Int(&cfg.Lockers, "lockers", 1000, leastLockers, "`number` of callers that lock keys")
	f.Duration(&cfg.Grant, "grant", grantTime, 0, "how long a key that is free, and has an owner, may be kept from a waiting caller: more on a busy machine")
	f.Bool(&cfg.Links, "links", "cut, stall and delay the connections between router and workers at random")
	f.Bool(&cfg.Doors, "doors", "send requests to the public addresses of workers, in turns through nginx, and not to the router")
	f.Bool(&cfg.Race, "race", "build router and worker with the race detector")
	f.String(&cfg.Programs, "programs", "", "`directory` of the programs router and worker; by default they are built")
	f.Bool(&cfg.Verbose, "v", "print the logs of all processes, with debug messages")
	f.Choice(&scenario, "scenario", "chaos, or transfers: nodes that hold accounts of each other with DoAll are killed", "chaos", "transfers")
	if err := f.Parse(args, stdout); err != nil {
		return err
	}
	play := runChaos
	if scenario == "transfers" {
		play = runTransfers
	}
	return trial.InDir(stdout, "chaos", args, cfg.Seed, false, func(dir string) error { return play(ctx, cfg, dir) })
}

func runChaos(ctx context.Context, cfg config, dir string) error {
	r, err := campaign(ctx, cfg, dir)
	if err != nil {
		return err
	}
	r.print(cfg.Out)
	return r.Verdict(cfg.Out, cfg.Seed, dir, r.histories())
}
